//! A recorder that writes a profile, and in parallel a naive model: all samples with all their
//! frames.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use proptest::prelude::*;
use unspool_elf::{BuildId, ContentKey};
use unspool_profile::{
    Argument, ArgumentCertainty, CodeLocation, CodeSegment, Completeness, CpuState, FrameEvidence,
    LossOrigin, LostSamples, Meta, ModuleInterner, ModuleKind, ProcessId, Profile, ProfileModule,
    ProfileProcess, ProfileRate, ProfileSample, ProfileThread, ProfileUpdate, ProfileWriter,
    RawFrame, RecordedSymbol, SampledEvent, StackEnd, StackId, ThreadId, Time, WeightUnit,
};
use unspool_rows::{CodeAddr, RuntimeAddr, Vaddr};

/// A sample with all its frames, from the innermost on. Modules are given by their paths.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plain {
    pub(crate) sample: ProfileSample,
    pub(crate) frames: Vec<(String, bool, FrameEvidence, Vec<Argument>)>,
}

/// A recorder's steps. Indices that are out of range are taken modulo the range.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Process(String),
    Thread(usize),
    Sample(StepSample),
    Remap(usize),
    RenameThread(usize, String),
    RenameProcess(usize, String),
    EndThread(usize),
    EndProcess(usize),
    Symbol(u64, String),
    Lost(u64),
    Flush,
}

/// A sample of a thread: a number of outermost frames of its last stack, and new inner ones.
#[derive(Debug, Clone)]
pub(crate) struct StepSample {
    pub(crate) thread: usize,
    pub(crate) kept: usize,
    pub(crate) inner: Vec<(u64, bool, usize)>,
    pub(crate) weight: u64,
    pub(crate) off: bool,
    pub(crate) end: usize,
    pub(crate) later: i64,
}

/// The written data.
#[derive(Debug, Clone, Default)]
pub(crate) struct Written {
    pub(crate) samples: Vec<Plain>,
    pub(crate) processes: Vec<ProfileProcess>,
    pub(crate) threads: Vec<ProfileThread>,
    pub(crate) symbols: Vec<(String, u64, String)>,
    pub(crate) lost: Vec<LostSamples>,
    /// The writer's counts.
    pub(crate) completeness: Completeness,
}

#[derive(Debug, Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A recorder for tests.
pub(crate) struct Recorder {
    writer: ProfileWriter<Shared>,
    bytes: Shared,
    time: Time,
    /// How often the mappings of each process changed.
    remaps: Vec<u64>,
    last: Vec<Vec<RawFrame>>,
    pub(crate) written: Written,
    /// The number of samples by file size in bytes.
    pub(crate) flushed: BTreeMap<usize, usize>,
}

pub(crate) fn meta() -> Meta {
    Meta {
        command: vec!["./app".into(), "--flag=a b".into()],
        host: "machine".into(),
        kernel: "6.1.0".into(),
        arch: "x86_64".into(),
        tool: "unspool 0.1.0".into(),
        event: SampledEvent {
            name: "cpu-clock".into(),
            rate: ProfileRate::Frequency(999),
            unit: WeightUnit::Nanoseconds,
        },
        started: 1_700_000_000_000_000_000,
        clock: Time(5_000_000_000),
    }
}

fn module(n: u64) -> ProfileModule {
    let kinds = [ModuleKind::File, ModuleKind::Vdso, ModuleKind::Jit];
    ProfileModule {
        kind: kinds[(n % 3) as usize],
        path: PathBuf::from(format!("/usr/lib/lib{n}.so")),
        content: match n % 4 {
            0 | 2 => BuildId::new(&[n.to_le_bytes()[0]; 20]).map(ContentKey::BuildId),
            1 => Some(ContentKey::Hash([n.to_le_bytes()[0]; 20])),
            _ => None,
        },
        is_deleted: n.is_multiple_of(5),
        code: (!n.is_multiple_of(4)).then_some(CodeSegment {
            address: Vaddr(0x1000),
            offset: 0x1000 * n,
            size: 0x9000,
        }),
    }
}

/// The code location of an address: its highest byte selects the kind, which changes with the
/// mappings.
fn resolve(
    modules: &mut ModuleInterner,
    owner: ProcessId,
    at: RuntimeAddr,
    remaps: u64,
) -> CodeLocation {
    match at.0 >> 56 {
        0xff => CodeLocation::Kernel(at),
        0 => CodeLocation::Process(owner, at),
        n => CodeLocation::Module(
            modules.id(&module(n % 8 + 8 * remaps)),
            Vaddr(at.0 & 0xffff),
        ),
    }
}

/// The expected result of [`resolve`], as text.
fn resolved(owner: ProcessId, at: RuntimeAddr, remaps: u64) -> String {
    match at.0 >> 56 {
        0xff => format!("kernel {at}"),
        0 => format!("process {} {at}", owner.0),
        n => format!("{:?} {:#x}", module(n % 8 + 8 * remaps), at.0 & 0xffff),
    }
}

fn as_text(profile: &Profile, location: CodeLocation) -> String {
    match location {
        CodeLocation::Kernel(at) => format!("kernel {at}"),
        CodeLocation::Process(process, at) => format!("process {} {at}", process.0),
        CodeLocation::Module(module, at) => format!("{:?} {at}", profile.module(module).unwrap()),
    }
}

fn raw(code: (u64, bool, usize)) -> RawFrame {
    let (address, is_return, evidence) = code;
    let address = RuntimeAddr(address);
    RawFrame {
        code: if is_return {
            CodeAddr::Return(address)
        } else {
            CodeAddr::Instruction(address)
        },
        evidence: FrameEvidence::ALL[evidence % FrameEvidence::ALL.len()],
        arguments: None,
    }
}

/// The arguments of the function at an address, always the same: one or two, or none known.
fn called_with(at: RuntimeAddr) -> Vec<Argument> {
    let argument = |n: u64| Argument {
        name: format!("#{n}"),
        type_name: "const char *".into(),
        value: "\"é\"".repeat(n as usize),
        certainty: ArgumentCertainty::ALL[(at.0 % 4) as usize],
    };
    (1..=at.0 / 16 % 3).map(argument).collect()
}

impl Recorder {
    pub(crate) fn new() -> Recorder {
        let bytes = Shared::default();
        Recorder {
            writer: ProfileWriter::new(bytes.clone(), &meta()).unwrap(),
            bytes,
            time: Time(7_000_000_000),
            remaps: Vec::new(),
            last: Vec::new(),
            written: Written::default(),
            flushed: BTreeMap::new(),
        }
    }

    pub(crate) fn step(&mut self, step: &Step) {
        let (processes, threads) = (self.remaps.len(), self.last.len());
        let process = |n: &usize| n.checked_rem(processes);
        let thread = |n: &usize| n.checked_rem(threads);
        match step {
            Step::Process(name) => self.process(name),
            Step::Thread(n) => {
                let _ = process(n).map(|n| self.thread(n));
            }
            Step::Sample(taken) => {
                let _ = thread(&taken.thread).map(|n| self.sample(n, taken));
            }
            Step::Remap(n) => {
                let _ = process(n).map(|n| self.remap(n));
            }
            Step::RenameThread(n, name) => {
                let _ = thread(n).map(|n| self.rename_thread(n, name));
            }
            Step::RenameProcess(n, name) => {
                let _ = process(n).map(|n| self.rename_process(n, name));
            }
            Step::EndThread(n) => {
                let _ = thread(n).map(|n| self.end_thread(n));
            }
            Step::EndProcess(n) => {
                let _ = process(n).map(|n| self.end_process(n));
            }
            Step::Symbol(address, name) => self.symbol(*address, name),
            Step::Lost(count) => self.lost(*count),
            Step::Flush => {
                self.writer.flush().unwrap();
                self.note_length();
            }
        }
    }

    /// The properly ended file, and its data.
    pub(crate) fn finish(mut self) -> (Vec<u8>, Written) {
        self.written.completeness = self.writer.completeness();
        self.writer.finish(self.time).unwrap();
        (self.bytes.0.take(), self.written)
    }

    fn note_length(&mut self) {
        let length = self.bytes.0.borrow().len();
        self.flushed.insert(length, self.written.samples.len());
    }

    fn process(&mut self, name: &str) {
        let process = ProfileProcess {
            pid: 1000 + self.remaps.len() as u32,
            parent_pid: 1,
            start: self.time,
            end: None,
            name: name.into(),
        };
        let id = self.writer.process(&process);
        assert_eq!(id.0 as usize, self.remaps.len());
        self.remaps.push(0);
        self.written.processes.push(process);
    }

    fn thread(&mut self, process: usize) {
        let thread = ProfileThread {
            process: ProcessId(process as u32),
            tid: 2000 + self.last.len() as u32,
            start: self.time,
            end: None,
            name: "first name".into(),
        };
        let id = self.writer.thread(&thread);
        assert_eq!(id.0 as usize, self.last.len());
        self.last.push(Vec::new());
        self.written.threads.push(thread);
    }

    fn sample(&mut self, thread: usize, taken: &StepSample) {
        let owner = self.written.threads[thread].process;
        let remaps = self.remaps[owner.0 as usize];
        let mut frames: Vec<RawFrame> = taken.inner.iter().copied().map(raw).collect();
        for frame in &mut frames {
            let arguments = called_with(frame.code.address());
            frame.arguments = (!arguments.is_empty()).then(|| self.writer.arguments(&arguments));
        }
        let old = &self.last[thread];
        frames.extend(&old[old.len().saturating_sub(taken.kept)..]);
        self.time = Time(self.time.0.wrapping_add_signed(taken.later));
        let id = ThreadId(thread as u32);
        let stack = self.writer.stack(id, &frames, |modules, at| {
            resolve(modules, owner, at, remaps)
        });
        let sample = ProfileSample {
            time: self.time,
            thread: id,
            cpu: (thread % 4) as u32,
            stack,
            weight: taken.weight,
            state: if taken.off {
                CpuState::OffCpu
            } else {
                CpuState::OnCpu
            },
            end: StackEnd::ALL[taken.end % StackEnd::ALL.len()],
        };
        self.writer.sample(&sample).unwrap();
        let plain = |frame: &RawFrame| {
            let is_return = matches!(frame.code, CodeAddr::Return(_));
            let at = resolved(owner, frame.code.lookup(), remaps);
            let arguments = called_with(frame.code.address());
            (at, is_return, frame.evidence, arguments)
        };
        let plain = frames.iter().map(plain).collect();
        self.written.samples.push(Plain {
            sample,
            frames: plain,
        });
        self.last[thread] = frames;
    }

    fn remap(&mut self, process: usize) {
        self.remaps[process] += 1;
        self.writer.mappings_changed(ProcessId(process as u32));
    }

    fn rename_thread(&mut self, n: usize, name: &str) {
        let change = ProfileUpdate::ThreadName(ThreadId(n as u32), name.into());
        self.writer.update(&change);
        self.written.threads[n].name = name.into();
    }

    fn rename_process(&mut self, n: usize, name: &str) {
        let change = ProfileUpdate::ProcessName(ProcessId(n as u32), name.into());
        self.writer.update(&change);
        self.written.processes[n].name = name.into();
    }

    fn end_thread(&mut self, n: usize) {
        let change = ProfileUpdate::ThreadEnd(ThreadId(n as u32), self.time);
        self.writer.update(&change);
        self.written.threads[n].end = Some(self.time);
    }

    fn end_process(&mut self, n: usize) {
        let change = ProfileUpdate::ProcessEnd(ProcessId(n as u32), self.time);
        self.writer.update(&change);
        self.written.processes[n].end = Some(self.time);
    }

    fn symbol(&mut self, address: u64, name: &str) {
        let start = CodeLocation::Kernel(RuntimeAddr(address));
        let (size, name, module) = (address % 100, name.to_owned(), "[module]".to_owned());
        self.written
            .symbols
            .push((format!("{start:?}"), size, name.clone()));
        self.writer.symbol(&RecordedSymbol {
            start,
            size,
            name,
            module,
        });
    }

    fn lost(&mut self, count: u64) {
        let lost = LostSamples {
            time: self.time,
            cpu: 3,
            count,
            origin: match count % 2 {
                0 => LossOrigin::Kernel,
                _ => LossOrigin::Recorder,
            },
        };
        self.writer.lost(&lost);
        self.written.lost.push(lost);
    }
}

/// The samples of a profile, each with all its frames.
pub(crate) fn plain(profile: &Profile) -> Vec<Plain> {
    let frames = |stack: StackId| {
        let frames = profile.stacks().frames(stack);
        let frames = frames.map(|frame| *profile.frame(frame).unwrap());
        frames
            .map(|f| {
                let arguments = f.arguments.map_or(&[][..], |id| profile.arguments(id));
                let at = as_text(profile, f.lookup);
                (at, f.is_return, f.evidence, arguments.to_vec())
            })
            .collect()
    };
    let samples = profile.samples().iter();
    samples
        .map(|sample| Plain {
            sample: *sample,
            frames: frames(sample.stack),
        })
        .collect()
}

/// Any steps, after a process and a thread.
pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let begin = vec![Step::Process("app".into()), Step::Thread(0)];
    proptest::collection::vec(step(), 0..120).prop_map(move |rest| [begin.clone(), rest].concat())
}

fn step() -> impl Strategy<Value = Step> {
    let name = || "[a-zé/ ]{0,20}";
    prop_oneof![
        1 => name().prop_map(Step::Process),
        2 => any::<usize>().prop_map(Step::Thread),
        20 => taken().prop_map(Step::Sample),
        1 => any::<usize>().prop_map(Step::Remap),
        1 => (any::<usize>(), name()).prop_map(|(n, name)| Step::RenameThread(n, name)),
        1 => (any::<usize>(), name()).prop_map(|(n, name)| Step::RenameProcess(n, name)),
        1 => any::<usize>().prop_map(Step::EndThread),
        1 => any::<usize>().prop_map(Step::EndProcess),
        1 => (any::<u64>(), name()).prop_map(|(address, name)| Step::Symbol(address, name)),
        1 => any::<u64>().prop_map(Step::Lost),
        3 => Just(Step::Flush),
    ]
}

fn taken() -> impl Strategy<Value = StepSample> {
    // Few addresses, so that frames and stacks repeat.
    let place = (0..10_u64, 0..6_u64).prop_map(|(high, low)| match high {
        9 => 0xff << 56 | low,
        high => high << 56 | low << 4,
    });
    let address = prop_oneof![20 => place, 1 => any::<u64>()];
    let frame = (address, any::<bool>(), 0..2_usize);
    let frame =
        prop_oneof![20 => frame.clone(), 1 => (frame, 0..8_usize).prop_map(|(f, e)| (f.0, f.1, e))];
    let later = prop_oneof![10 => 0..2_000_000_i64, 1 => any::<i64>()];
    let inner = proptest::collection::vec(frame, 0..8);
    let rest = (any::<u64>(), any::<bool>(), any::<usize>(), later);
    (any::<usize>(), 0..20_usize, inner, rest).prop_map(
        |(thread, kept, inner, (weight, off, end, later))| StepSample {
            thread,
            kept,
            inner,
            weight,
            off,
            end,
            later,
        },
    )
}
