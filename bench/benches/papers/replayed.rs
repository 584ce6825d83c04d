//! The samples unwound by unspool's own walk, by compact tables, as `unspool script` does.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use unspool_bench::recording::{OwnedSample, compile_tables};
use unspool_bench::remote::{ROUNDS, registers, stack_sum};
use unspool_bench::{Scratch, median, thread_time};
use unspool_perf_events::{DataFile, FileRecord, Record};
use unspool_profile::{FrameEvidence, RawFrame};
use unspool_sampler::{ProcessSpace, Replay, UnwoundStack};
use unspool_symbols::ModuleFinder;
use unspool_table_store::Store;

/// What the driver prints of its unwinders.
pub(crate) struct ReplayedTimes {
    pub(crate) frames: u64,
    pub(crate) same: u64,
    pub(crate) whole: f64,
}

/// Times whole walks: the median of passes over all samples. `sums` are those of the stacks of the
/// driver's first unwinder.
pub(crate) fn measure(
    recording: &Path,
    processes: &HashSet<u32>,
    folder: &Scratch,
    sums: &[u64],
) -> anyhow::Result<ReplayedTimes> {
    let file = DataFile::open(recording)?;
    let store = Store::new(None, Some(folder.join("cache").into()), None);
    compile_tables(&file, &store)?;
    let mut replay = Replay::new(&file, ModuleFinder::from_environment(), store)?;
    let mut copies = Vec::new();
    file.read(|record: FileRecord<'_>| {
        match &record.record {
            Record::Sample(sample) => {
                let is_walked = processes.contains(&record.sample_id.pid);
                if is_walked && registers(sample).is_some() {
                    copies.extend(OwnedSample::read(&file, &record));
                }
            }
            // The processes are walked after the end of all.
            Record::Exit(_) => {}
            other => {
                replay.note(other)?;
            }
        }
        anyhow::Ok(())
    })?;
    let spaces: Vec<Arc<ProcessSpace>> = copies
        .iter()
        .filter_map(|copy| Some(replay.space(copy.sample()?.0.pid)))
        .collect();
    let walks: Vec<(&OwnedSample, &ProcessSpace)> =
        copies.iter().zip(spaces.iter().map(Arc::as_ref)).collect();
    let (mut frames, mut same) = (0, 0);
    for ((copy, space), sum) in walks.iter().zip(sums) {
        let stack = callers(&mut replay, copy, space);
        frames += stack.len() as u64;
        same += u64::from(stack_sum(&stack) == *sum);
    }
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        times.push(per_frame(pass(&mut replay, &walks), frames));
    }
    Ok(ReplayedTimes {
        frames,
        same,
        whole: median(times),
    })
}

/// The frames of a sample after the innermost one.
fn callers(replay: &mut Replay, copy: &OwnedSample, space: &ProcessSpace) -> Vec<u64> {
    let Some((origin, sample)) = copy.sample() else {
        return Vec::new();
    };
    let stack = replay.unwind(space, origin.tid, &sample);
    let frames = user_frames(&stack).skip(1);
    frames.map(|frame| frame.code.address().0).collect()
}

/// The frames outside of the kernel.
fn user_frames<'u>(stack: &UnwoundStack<'u>) -> impl Iterator<Item = &'u RawFrame> {
    let frames = stack.frames.iter();
    frames.filter(|frame| frame.evidence != FrameEvidence::Kernel)
}

fn pass(replay: &mut Replay, walks: &[(&OwnedSample, &ProcessSpace)]) -> Duration {
    let samples = walks
        .iter()
        .filter_map(|(copy, space)| Some((copy.sample()?, *space)));
    let samples: Vec<_> = samples.collect();
    let begun = thread_time();
    let frames: usize = samples
        .iter()
        .map(|((origin, sample), space)| {
            let stack = replay.unwind(space, origin.tid, sample);
            user_frames(&stack).count()
        })
        .sum();
    std::hint::black_box(frames);
    thread_time().saturating_sub(begun)
}

fn per_frame(took: Duration, frames: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count of frames")]
    let frames = frames.max(1) as f64;
    took.as_secs_f64() * 1e9 / frames
}
