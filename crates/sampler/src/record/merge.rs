//! Records of several rings in the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use unspool_perf_events::{BadRecord, Record, Ring, SampleFormat, SampleId};

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
}

/// The longest time in nanoseconds between a record's timestamp and when it can be read.
const MAX_RECORD_DELAY_NS: u64 = 1_000_000;

/// Processes all complete records of some rings in the order of their times. Records qualify if
/// they are older than `now` by [`MAX_RECORD_DELAY_NS`]: no ring can get an older one.
///
/// Damaged records are left out; returns their number.
pub(crate) fn take(
    sources: &mut [RingSource],
    now: u64,
    mut each: impl FnMut(RingKind, SampleId, &Record<'_>),
) -> u64 {
    let until = now.saturating_sub(MAX_RECORD_DELAY_NS);
    let mut damaged = 0;
    let mut firsts = BinaryHeap::with_capacity(sources.len());
    for (number, source) in sources.iter_mut().enumerate() {
        source.ring.refresh();
        firsts.extend(source.first_time().map(|time| Reverse((time, number))));
    }
    while let Some(Reverse((time, number))) = firsts.pop() {
        let Some(source) = sources.get_mut(number) else {
            break;
        };
        if time > until {
            break;
        }
        match read(source, &mut each) {
            Ok(()) => {}
            Err(_) => damaged += 1,
        }
        firsts.extend(source.first_time().map(|time| Reverse((time, number))));
    }
    for source in sources {
        source.ring.release();
    }
    damaged
}

fn read(
    source: &mut RingSource,
    each: &mut impl FnMut(RingKind, SampleId, &Record<'_>),
) -> Result<(), BadRecord> {
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
        .map(|(origin, record)| each(kind, origin, &record));
    source.ring.skip(header);
    // A full ring loses new records, so the kernel gets its memory back earlier.
    source.ring.release_if_large();
    result
}
