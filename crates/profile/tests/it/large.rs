//! A large profile, always the same: stacks of 60 frames, of which the 8 innermost ones are new in
//! each sample. Each of 2,000 functions, with names of some 70 letters, calls 16 others.

use std::collections::HashSet;
use std::io::{self, Write};

use unspool_profile::{
    CodeLocation, CpuState, FrameEvidence, Meta, ModuleKind, ProfileModule, ProfileProcess,
    ProfileRate, ProfileSample, ProfileThread, ProfileWriter, RawFrame, RecordedSymbol,
    SampledEvent, StackEnd, Time, WeightUnit,
};
use unspool_rows::{CodeAddr, RuntimeAddr, Vaddr};

const FUNCTIONS: u64 = 2000;
/// The functions that each one calls.
const CALLEES: u64 = 16;
const FRAMES: usize = 60;
const NEW_FRAMES: usize = 8;
const THREADS: u32 = 4;
/// Between two samples of a thread, in nanoseconds.
const PERIOD: u64 = 1_001_001;

/// Writes it with the names of its functions.
pub(crate) fn write(out: impl Write, samples: u32) -> io::Result<()> {
    let meta = Meta {
        command: vec!["./app".into()],
        event: SampledEvent {
            name: "cpu-clock".into(),
            rate: ProfileRate::Frequency(999),
            unit: WeightUnit::Nanoseconds,
        },
        ..Meta::default()
    };
    let start = Time(0);
    let mut writer = ProfileWriter::new(out, &meta)?;
    let process = writer.process(&ProfileProcess {
        pid: 1,
        parent_pid: 0,
        start,
        end: None,
        name: "app".into(),
    });
    let threads: Vec<_> = (0..THREADS)
        .map(|tid| {
            writer.thread(&ProfileThread {
                process,
                tid,
                start,
                end: None,
                name: format!("worker {tid}"),
            })
        })
        .collect();
    let module = ProfileModule {
        kind: ModuleKind::File,
        path: "/opt/app".into(),
        content: None,
        is_deleted: false,
        code: None,
    };
    let address = |function: u64| 0x1000 + 0x100 * function;
    let mut seed = 1;
    let mut named = HashSet::new();
    let mut stack: Vec<u64> = (0..FRAMES).map(|_| random(&mut seed, FUNCTIONS)).collect();
    for (n, thread) in (0..samples).zip(threads.iter().cycle()) {
        stack.truncate(FRAMES - NEW_FRAMES);
        while stack.len() < FRAMES {
            let caller = stack.last().copied().unwrap_or_default();
            stack.push((caller * CALLEES + random(&mut seed, CALLEES)) % FUNCTIONS);
        }
        let frame = |(depth, function): (usize, &u64)| {
            let at = RuntimeAddr(address(*function) + 0x10);
            RawFrame {
                code: match depth {
                    0 => CodeAddr::Instruction(at),
                    _ => CodeAddr::Return(at),
                },
                evidence: FrameEvidence::Cfi,
                arguments: None,
            }
        };
        let frames: Vec<RawFrame> = stack.iter().rev().enumerate().map(frame).collect();
        let mut id = None;
        let stack_id = writer.stack(*thread, &frames, |modules, at| {
            let module = modules.id(&module);
            id = Some(module);
            CodeLocation::Module(module, Vaddr(at.0))
        });
        for function in &stack {
            if let Some(module) = id.filter(|_| named.insert(*function)) {
                let of = |text: &str| format!("{}{text}", text.len());
                let scope = of(&format!("component_{}", function % 40));
                let name = of(&format!("compute_partial_result_{function}"));
                writer.symbol(&RecordedSymbol {
                    start: CodeLocation::Module(module, Vaddr(address(*function))),
                    size: 0x100,
                    name: format!("_ZN11application{scope}{name}ERKSsi"),
                    module: String::new(),
                });
            }
        }
        writer.sample(&ProfileSample {
            time: Time(u64::from(n / THREADS) * PERIOD),
            thread: *thread,
            cpu: n % 2,
            stack: stack_id,
            weight: PERIOD,
            state: CpuState::OnCpu,
            end: StackEnd::Outermost,
        })?;
    }
    writer.finish(Time(u64::from(samples / THREADS) * PERIOD))?;
    Ok(())
}

/// A number below a limit (xorshift64*).
fn random(seed: &mut u64, limit: u64) -> u64 {
    *seed ^= *seed >> 12;
    *seed ^= *seed << 25;
    *seed ^= *seed >> 27;
    (seed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % limit
}
