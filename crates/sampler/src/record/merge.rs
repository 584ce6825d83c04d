//! Records of several rings in the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use unspool_bpf_walk::WalkRecord;
use unspool_perf_events::{BadRecord, Record, Ring, SampleFormat, SampleId};

use crate::kernel_walk::KernelWalk;

/// The kind of samples in a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RingKind {
    /// None: it holds mapping and task records.
    Tasks,
    /// On-CPU samples.
    OnCpu,
    /// Samples of threads that stop running. Other records report when they resume.
    OffCpu,
}

/// A ring and how its records are read.
#[derive(Debug)]
pub(crate) struct RingSource {
    pub(crate) kind: RingKind,
    pub(crate) ring: Ring,
    pub(crate) format: SampleFormat,
}

impl RingSource {
    /// The time of the first record, if there is one. A record without a time sorts first.
    fn first_time(&mut self) -> Option<u64> {
        let layout = self.format;
        let (header, bytes) = self.ring.first()?;
        Some(layout.time(header, bytes).unwrap_or(0))
    }

    /// Passes on that records of mappings and tasks may be missing after the last one.
    fn note_gap(&mut self, each: &mut impl FnMut(RingRecord<'_>)) {
        if self.kind == RingKind::Tasks && self.ring.take_gap() {
            each(RingRecord::Gap);
        }
    }
}

/// A record of any ring.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RingRecord<'r> {
    /// Of a performance event.
    Event(RingKind, SampleId, &'r Record<'r>),
    /// Of a complete walk in the kernel.
    Walk(&'r WalkRecord<'r>),
    /// None: records of mappings and tasks may be missing here.
    Gap,
}

/// The longest time in nanoseconds between a record's timestamp and when it can be read.
const MAX_RECORD_DELAY_NS: u64 = 1_000_000;

/// The result of [`take`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct TakeSummary {
    /// The number of damaged records.
    pub(crate) damaged: u64,
    /// Whether mapping or task records are still too young.
    pub(crate) has_young_tasks: bool,
}

/// Processes all complete records of some rings, and of walks, in the order of their times. Walks
/// of different processors can be out of order by the duration of a walk. Records qualify if
/// they are older than `now` by [`MAX_RECORD_DELAY_NS`]: no ring can get an older one.
///
/// Damaged records are left out.
pub(crate) fn take(
    sources: &mut [RingSource],
    mut walks: Option<&mut KernelWalk>,
    now: u64,
    mut each: impl FnMut(RingRecord<'_>),
) -> TakeSummary {
    let until = now.saturating_sub(MAX_RECORD_DELAY_NS);
    let mut damaged = 0;
    let mut firsts = BinaryHeap::with_capacity(sources.len());
    for (number, source) in sources.iter_mut().enumerate() {
        source.ring.refresh();
        firsts.extend(source.first_time().map(|time| Reverse((time, number))));
    }
    // The number after those of the sources.
    let walk_number = sources.len();
    let first_walk = |walks: &mut Option<&mut KernelWalk>| {
        let time = walks.as_mut()?.first_record()?.time;
        Some(Reverse((time, walk_number)))
    };
    firsts.extend(first_walk(&mut walks));
    while let Some(Reverse((time, number))) = firsts.pop() {
        if time > until {
            break;
        }
        let Some(source) = sources.get_mut(number) else {
            if let Some(walks) = &mut walks {
                walks
                    .first_record()
                    .iter()
                    .for_each(|walk| each(RingRecord::Walk(walk)));
                walks.skip_record();
            }
            firsts.extend(first_walk(&mut walks));
            continue;
        };
        match read(source, &mut each) {
            Ok(()) => {}
            Err(_) => damaged += 1,
        }
        source.note_gap(&mut each);
        firsts.extend(source.first_time().map(|time| Reverse((time, number))));
    }
    let mut has_young_tasks = false;
    for source in sources {
        source.ring.release();
        source.note_gap(&mut each);
        has_young_tasks |= source.kind == RingKind::Tasks && source.first_time().is_some();
    }
    TakeSummary {
        damaged,
        has_young_tasks,
    }
}

fn read(source: &mut RingSource, each: &mut impl FnMut(RingRecord<'_>)) -> Result<(), BadRecord> {
    let RingSource {
        kind,
        format: layout,
        ..
    } = *source;
    source.ring.prefetch_second();
    let Some((header, bytes)) = source.ring.first() else {
        return Ok(());
    };
    let result = layout
        .read(header, bytes)
        .map(|(origin, record)| each(RingRecord::Event(kind, origin, &record)));
    source.ring.skip(header);
    // A full ring loses new records, so the kernel gets its memory back earlier.
    source.ring.release_if_large();
    result
}
