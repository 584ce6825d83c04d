//! A profile with everything in it, and the plain list of its samples. It has two processes, three
//! threads, recursion, inlined functions, guessed and spliced frames, the kernel, incomplete
//! stacks.

use unspool_elf::{BuildId, ContentKey};
use unspool_profile::{
    CodeLocation, CodeSegment, CpuState, FrameEvidence, LocationName, LossOrigin, LostSamples,
    Meta, ModuleKind, NameResolver, Profile, ProfileModule, ProfileProcess, ProfileRate,
    ProfileSample, ProfileThread, ProfileWriter, RawFrame, RecordedSymbol, SampledEvent,
    SourceFrame, StackEnd, Time, WeightUnit,
};
use unspool_rows::{CodeAddr, RuntimeAddr, Vaddr};

/// The functions, by their index in stacks; the last two are one frame, in which `inlined` was
/// inlined.
pub(crate) const MAIN: usize = 0;
pub(crate) const RECURSE: usize = 1;
pub(crate) const WORK: usize = 2;
pub(crate) const LEAF: usize = 3;
pub(crate) const NAMELESS: usize = 4;
pub(crate) const JIT: usize = 5;
pub(crate) const KERNEL: usize = 6;
pub(crate) const OUTER: usize = 7;

/// The start of function `n`; from 4 on, elsewhere.
pub(crate) const STARTS: [u64; 8] = [
    0x1000,
    0x1100,
    0x1200,
    0x1300,
    0x5000,
    0x7f00_0000_1000,
    0xffff_ffff_8100_0000,
    0x1400,
];

/// The names of `n`, innermost function first, and its module.
pub(crate) fn called(n: usize) -> (&'static [&'static str], &'static str) {
    match n {
        MAIN => (&["main"], "app"),
        RECURSE => (&["recurse"], "app"),
        WORK => (&["work<int>(std::vector<int>&)"], "app"),
        LEAF => (&["leaf"], "app"),
        NAMELESS => (&["[libplain.so]"], "libplain.so"),
        JIT => (&["LazyCompile:~f"], "[jit]"),
        KERNEL => (&["do_syscall_64"], "[kernel.kallsyms]"),
        _ => (&["inlined", "outer"], "app"),
    }
}

/// A sample: thread, functions from the innermost on with their evidence, weight, state, end.
#[derive(Debug, Clone)]
pub(crate) struct MadeSample {
    pub(crate) thread: usize,
    pub(crate) stack: Vec<(usize, FrameEvidence)>,
    pub(crate) weight: u64,
    pub(crate) state: CpuState,
    pub(crate) end: StackEnd,
    pub(crate) time: u64,
}

/// The threads: name, tid, process.
pub(crate) const THREADS: [(&str, u32, usize); 3] =
    [("app", 100, 0), ("worker", 101, 0), ("child", 200, 1)];
/// The processor of all samples: a number that only a stranger's file has.
pub(crate) const CPU: u32 = 1 << 24;
/// The processes: name and pid.
pub(crate) const PROCESSES: [(&str, u32); 2] = [("app", 100), ("child", 200)];

fn made(thread: usize, stack: &[usize], weight: u64, end: StackEnd) -> MadeSample {
    let evidence = |n: usize, function: usize| match (function, n) {
        (KERNEL, _) => FrameEvidence::Kernel,
        (_, 0) => FrameEvidence::Registers,
        _ => FrameEvidence::Cfi,
    };
    let stack = stack.iter().enumerate();
    MadeSample {
        thread,
        stack: stack
            .map(|(n, function)| (*function, evidence(n, *function)))
            .collect(),
        weight,
        state: CpuState::OnCpu,
        end,
        time: 0,
    }
}

/// The samples.
pub(crate) fn samples() -> Vec<MadeSample> {
    let mut samples = vec![
        made(0, &[LEAF, WORK, MAIN], 1000, StackEnd::Outermost),
        made(
            0,
            &[LEAF, RECURSE, RECURSE, RECURSE, MAIN],
            500,
            StackEnd::Outermost,
        ),
        made(
            0,
            &[RECURSE, WORK, RECURSE, MAIN],
            250,
            StackEnd::EntryPoint,
        ),
        made(1, &[OUTER, WORK, MAIN], 2000, StackEnd::Outermost),
        made(1, &[KERNEL, OUTER, MAIN], 300, StackEnd::Outermost),
        made(2, &[JIT, MAIN], 70, StackEnd::Outermost),
        made(2, &[NAMELESS, MAIN], 40, StackEnd::Outermost),
        made(1, &[LEAF, NAMELESS], 30, StackEnd::NoTable),
        made(0, &[LEAF, NAMELESS], 35, StackEnd::NoTable),
        made(0, &[LEAF, WORK], 20, StackEnd::NotCopied),
        made(2, &[KERNEL], 15, StackEnd::NoUserRegisters),
        made(2, &[], 5, StackEnd::CodeReplaced),
        made(0, &[LEAF, WORK, MAIN], 1000, StackEnd::Outermost),
    ];
    samples[3].stack[1].1 = FrameEvidence::FramePointer;
    samples[6].stack[1].1 = FrameEvidence::Spliced;
    for (n, sample) in (0..).zip(&mut samples) {
        sample.time = 1_000_000_000 + n * 1_000_000;
    }
    let mut off = made(1, &[KERNEL, WORK, MAIN], 9_000_000, StackEnd::Outermost);
    off.state = CpuState::OffCpu;
    off.time = 1_020_000_000;
    samples.push(off);
    samples
}

/// The addresses of a function's frames.
pub(crate) fn offset(function: usize) -> u64 {
    0x10 + function as u64
}

/// The profile of these samples.
pub(crate) fn profile(samples: &[MadeSample]) -> Profile {
    profile_of(&meta(), samples)
}

pub(crate) fn profile_of(meta: &Meta, samples: &[MadeSample]) -> Profile {
    Profile::read(&file(meta, samples)[..]).unwrap()
}

pub(crate) fn meta() -> Meta {
    Meta {
        command: vec!["./app".into(), "a;b".into()],
        host: "machine".into(),
        kernel: "6.1.0".into(),
        arch: "x86_64".into(),
        tool: "unspool 0.1.0".into(),
        event: SampledEvent {
            name: "cpu-clock".into(),
            rate: ProfileRate::Frequency(1000),
            unit: WeightUnit::Nanoseconds,
        },
        started: 1_700_000_000_000_000_000,
        clock: Time(1_000_000_000),
    }
}

fn file(meta: &Meta, samples: &[MadeSample]) -> Vec<u8> {
    let mut writer = ProfileWriter::new(Vec::new(), meta).unwrap();
    let start = Time(1_000_000_000);
    let processes = PROCESSES.map(|(name, pid)| {
        writer.process(&ProfileProcess {
            pid,
            parent_pid: 1,
            start,
            end: None,
            name: name.into(),
        })
    });
    let threads = THREADS.map(|(name, tid, process)| {
        writer.thread(&ProfileThread {
            process: processes[process],
            tid,
            start,
            end: None,
            name: name.into(),
        })
    });
    let modules = [module("/opt/app", 0xaa), module("/lib/libplain.so", 0xbb)];
    let kernel = CodeLocation::Kernel(RuntimeAddr(STARTS[KERNEL]));
    symbol(&mut writer, kernel, "do_syscall_64", "[kernel.kallsyms]");
    let jit = CodeLocation::Process(processes[1], RuntimeAddr(STARTS[JIT]));
    symbol(&mut writer, jit, "LazyCompile:~f", "");
    writer.lost(&LostSamples {
        time: start,
        cpu: 0,
        count: 3,
        origin: LossOrigin::Kernel,
    });
    for sample in samples {
        let thread = threads[sample.thread];
        let process = processes[THREADS[sample.thread].2];
        let frames: Vec<_> = sample.stack.iter().map(|(n, how)| raw(*n, *how)).collect();
        let stack = writer.stack(thread, &frames, |all, address| match address.0 {
            a if a >= STARTS[KERNEL] => CodeLocation::Kernel(address),
            a if a >= STARTS[JIT] => CodeLocation::Process(process, address),
            a if a >= STARTS[NAMELESS] => CodeLocation::Module(all.id(&modules[1]), Vaddr(a)),
            a => CodeLocation::Module(all.id(&modules[0]), Vaddr(a)),
        });
        let (weight, state, end) = (sample.weight, sample.state, sample.end);
        let sample = ProfileSample {
            time: Time(sample.time),
            thread,
            cpu: CPU,
            stack,
            weight,
            state,
            end,
        };
        writer.sample(&sample).unwrap();
    }
    writer.finish(Time(2_000_000_000)).unwrap()
}

fn module(path: &str, id: u8) -> ProfileModule {
    ProfileModule {
        kind: ModuleKind::File,
        path: path.into(),
        content: BuildId::new(&[id; 20]).map(ContentKey::BuildId),
        is_deleted: false,
        code: Some(CodeSegment {
            address: Vaddr(0xfc0),
            offset: 0x4fc0,
            size: 0x8000,
        }),
    }
}

fn symbol(writer: &mut ProfileWriter<Vec<u8>>, start: CodeLocation, name: &str, module: &str) {
    writer.symbol(&RecordedSymbol {
        start,
        size: 0x100,
        name: name.into(),
        module: module.into(),
    });
}

fn raw(function: usize, evidence: FrameEvidence) -> RawFrame {
    let address = RuntimeAddr(STARTS[function] + offset(function));
    let code = match evidence {
        FrameEvidence::Registers | FrameEvidence::Kernel => CodeAddr::Instruction(address),
        _ => CodeAddr::Return(address),
    };
    RawFrame {
        code,
        evidence,
        arguments: None,
    }
}

/// Names of the functions of `app`, with lines.
pub(crate) struct AppNames;

impl NameResolver for AppNames {
    fn name(&self, location: CodeLocation) -> LocationName {
        let CodeLocation::Module(_, Vaddr(address)) = location else {
            return LocationName::default();
        };
        let in_app = |n: &usize| *n != NAMELESS && STARTS[*n] == address & !0xff;
        let Some(n) = (0..STARTS.len()).find(in_app) else {
            return LocationName::default();
        };
        let (functions, _) = called(n);
        let functions = functions.iter().zip(10..);
        LocationName {
            symbol_hash: None,
            functions: functions
                .map(|(name, line)| SourceFrame {
                    function: (*name).into(),
                    file: Some(format!("/src/{n}.c")),
                    line: Some(line),
                })
                .collect(),
            start: Some(STARTS[n]),
        }
    }
}

/// The functions of a sample's stack by name, innermost first, each with its module and its frame's
/// evidence.
pub(crate) fn functions(sample: &MadeSample) -> Vec<(&'static str, &'static str, FrameEvidence)> {
    let frames = sample.stack.iter();
    let functions = frames.flat_map(|(n, how)| {
        let (names, module) = called(*n);
        names.iter().map(move |name| (*name, module, *how))
    });
    functions.collect()
}
