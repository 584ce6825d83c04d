//! The open events of a recording, with their rings.

use std::fs;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};

use unspool_perf_events::{
    Counter, EventAttr, EventTarget, OpenError, OpenRefusal, PerfEvent, Ring, RingError,
    SampleRate, user_mask,
};
use unspool_rows::Arch;

use super::copy_size::CopySize;
use super::merge::{RingKind, RingSource};
use super::{RecordError, RecordNotice, RecordOptions, UnwindEngine};

/// The preferred memory of the sample rings, in bytes: all together, and each. A sample takes the
/// full requested copy size in it, even for a small stack.
const MAX_ALL_RINGS_BYTES: usize = 32 << 20;
const MAX_SAMPLE_RING_BYTES: usize = 16 << 20;

/// The memory of rings for mapping and task records.
const TASK_RING_BYTES: usize = 256 << 10;

/// The smallest useful ring.
const MIN_RING_BYTES: usize = 64 << 10;

/// The most threads for which both copy sizes are prepared.
const MAX_THREADS_WITH_BOTH_SIZES: usize = 64;

/// The events of a recording.
#[derive(Debug)]
pub(crate) struct Events {
    /// All counters, grouped by CPU.
    counters: Vec<Counter>,
    /// For each ring, the index of its counter.
    owners: Vec<usize>,
    pub(crate) sources: Vec<RingSource>,
    /// The sampled event.
    pub(crate) event: PerfEvent,
    /// The counters with large copies of stacks.
    large: Range<usize>,
    /// The counters of threads that stop running.
    off_cpu: Range<usize>,
    /// Their counterparts with small copies, in the same rings and order; empty if not available.
    /// Only one of the two sets is enabled.
    small: Vec<Counter>,
    /// Whether mapping and task records are read at once: walks in the kernel need them.
    wakes_by_tasks: bool,
    /// The number of target threads; 0 if all are recorded.
    threads: usize,
}

/// The target of the events, and when they start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventScope<'s> {
    pub(crate) target: &'s [EventTarget],
    pub(crate) from_exec: bool,
}

impl Events {
    /// Opens the events that the options request. Falls back to the next best event.
    pub(crate) fn open(
        options: &RecordOptions,
        scope: EventScope<'_>,
        notices: &mut Vec<RecordNotice>,
    ) -> Result<Events, RecordError> {
        let cpus = cpus();
        let mut setup = EventAttr {
            event: options.event.clone().unwrap_or_else(PerfEvent::cycles),
            rate: options.rate,
            user_registers: user_mask(Arch::HOST).unwrap_or_default(),
            stack_bytes: CopySize::Large.bytes(),
            with_kernel: true,
            // They lead on where a copy ends: on the stacks of goroutines.
            with_frame_pointers: options.unwind != UnwindEngine::Kernel,
            inherits: options.inherits,
            from_exec: scope.from_exec,
            with_tasks: false,
            with_switches: false,
            wake_after: 0,
        };
        find_event(&mut setup, options, scope, &cpus, notices)?;
        let mut events = Events {
            counters: Vec::new(),
            owners: Vec::new(),
            sources: Vec::new(),
            event: setup.event.clone(),
            large: 0..0,
            off_cpu: 0..0,
            small: Vec::new(),
            threads: match scope.target {
                [EventTarget::Everyone] => 0,
                threads => threads.len(),
            },
            wakes_by_tasks: options.unwind != UnwindEngine::Copy,
        };
        let tasks = EventAttr {
            event: PerfEvent::dummy(),
            rate: SampleRate::Period(1),
            user_registers: 0,
            stack_bytes: 0,
            with_kernel: false,
            with_tasks: true,
            ..setup.clone()
        };
        events.open_all(&tasks, scope, &cpus, RingKind::Tasks, TASK_RING_BYTES)?;
        if options.off_cpu && !setup.with_kernel {
            return Err(RecordError::OffCpu);
        }
        let switches = options.off_cpu.then(|| EventAttr {
            event: PerfEvent::context_switches(),
            rate: SampleRate::Period(1),
            with_switches: true,
            ..setup.clone()
        });
        let sampled: Vec<_> = std::iter::once((setup, RingKind::OnCpu))
            .chain(switches.map(|switches| (switches, RingKind::OffCpu)))
            .collect();
        let mut opened = events.open_sampled(&sampled, scope, &cpus)?.into_iter();
        events.large = opened.next().unwrap_or_default();
        events.off_cpu = opened.next().unwrap_or_default();
        if let Some((setup, RingKind::OnCpu)) = sampled.first()
            && scope.target.len() <= MAX_THREADS_WITH_BOTH_SIZES
        {
            events.open_small(setup, scope, &cpus);
        }
        Ok(events)
    }

    /// Opens a counterpart with small copies for each event with large copies.
    fn open_small(&mut self, attr: &EventAttr, scope: EventScope<'_>, cpus: &[u32]) {
        let setup = EventAttr {
            stack_bytes: CopySize::Small.bytes(),
            from_exec: false,
            ..attr.clone()
        };
        let owners = self
            .owners
            .iter()
            .filter(|owner| self.large.contains(owner));
        for (cpu, owner) in cpus.iter().zip(owners) {
            let owner = self.counters.get(*owner);
            for whom in scope.target {
                let opened = Counter::open(&setup, *whom, *cpu).ok();
                let beside = opened.filter(|counter| {
                    owner.is_some_and(|owner| counter.write_to_ring_of(owner).is_ok())
                });
                self.small.extend(beside);
            }
        }
        // Threads exit, and file descriptors run out.
        if self.small.len() != self.large.len() {
            self.small.clear();
        }
    }

    /// The counters whose samples are of running threads.
    pub(crate) fn on_cpu(&self) -> impl Iterator<Item = &Counter> {
        let large = self.counters.get(self.large.clone()).unwrap_or_default();
        large.iter().chain(&self.small)
    }

    /// The counters whose samples are of threads that stop running.
    pub(crate) fn off_cpu(&self) -> impl Iterator<Item = &Counter> {
        let counters = self.counters.get(self.off_cpu.clone());
        counters.unwrap_or_default().iter()
    }

    /// The most periods of sampled counters that have not ended: each thread has one on each
    /// processor and for each copy size. `created` threads have inherited their counters.
    pub(crate) fn unfinished_periods(&self, created: u64) -> u64 {
        let counters = self.on_cpu().count();
        let of_thread = counters.checked_div(self.threads).unwrap_or(0);
        counters as u64 + created * of_thread as u64
    }

    /// Whether both copy sizes are available.
    pub(crate) fn has_sizes(&self) -> bool {
        !self.small.is_empty()
    }

    /// Switches to another copy size.
    pub(crate) fn copy_up_to(&self, size: CopySize) {
        let large = self.counters.get(self.large.clone()).unwrap_or_default();
        let (from, to) = match size {
            CopySize::Small => (large, &*self.small),
            CopySize::Large => (&*self.small, large),
        };
        for (from, to) in from.iter().zip(to) {
            // The counter of an exited thread cannot be changed any more.
            let _ = from.disable();
            let _ = to.enable();
        }
    }

    /// Opens the sampled events, with rings of one size: the largest that all of them can have.
    /// Returns the counters of each event.
    fn open_sampled(
        &mut self,
        sampled: &[(EventAttr, RingKind)],
        scope: EventScope<'_>,
        cpus: &[u32],
    ) -> Result<Vec<Range<usize>>, RecordError> {
        let before = self.counters.len();
        let mut size = (MAX_ALL_RINGS_BYTES / cpus.len()).min(MAX_SAMPLE_RING_BYTES);
        loop {
            let opened = sampled.iter().map(|(setup, kind)| {
                let first = self.counters.len();
                self.open_all(setup, scope, cpus, *kind, size)?;
                Ok(first..self.counters.len())
            });
            let opened: Result<Vec<_>, RecordError> = opened.collect();
            match opened {
                Err(RecordError::Map(RingError::Locked { .. })) if size > MIN_RING_BYTES => {
                    self.close_from(before);
                    size /= 2;
                }
                opened => return opened,
            }
        }
    }

    /// Closes the counters from an index on, with their rings.
    fn close_from(&mut self, counter: usize) {
        self.owners.retain(|owner| *owner < counter);
        self.sources.truncate(self.owners.len());
        self.counters.truncate(counter);
    }

    /// Opens an event on all CPUs, with one ring of the given size in bytes for each.
    fn open_all(
        &mut self,
        attr: &EventAttr,
        scope: EventScope<'_>,
        cpus: &[u32],
        kind: RingKind,
        size: usize,
    ) -> Result<(), RecordError> {
        let mut setup = attr.clone();
        setup.wake_after = match (kind, self.wakes_by_tasks) {
            (RingKind::Tasks, true) => 1,
            _ => u32::try_from(size / 4).unwrap_or(u32::MAX),
        };
        for cpu in cpus {
            let mut owner = None;
            for whom in scope.target {
                let counter = match Counter::open(&setup, *whom, *cpu) {
                    Ok(counter) => counter,
                    // It has exited in the meantime.
                    Err(OpenError {
                        reason: OpenRefusal::NoProcess,
                        ..
                    }) => continue,
                    Err(error) => return Err(error.into()),
                };
                let number = self.counters.len();
                match owner.and_then(|owner: usize| self.counters.get(owner)) {
                    Some(owner) => counter.write_to_ring_of(owner).map_err(RecordError::Ring)?,
                    None => {
                        let ring = Ring::new(&counter, size)?;
                        owner = Some(number);
                        self.owners.push(number);
                        self.sources.push(RingSource {
                            kind,
                            ring,
                            format: setup.layout(),
                        });
                    }
                }
                self.counters.push(counter);
            }
        }
        Ok(())
    }

    /// Starts counting.
    pub(crate) fn enable(&self) -> Result<(), RecordError> {
        let mut all = self.counters.iter();
        all.try_for_each(Counter::enable).map_err(RecordError::Ring)
    }

    /// Stops counting.
    pub(crate) fn disable(&self) {
        for counter in self.counters.iter().chain(&self.small) {
            // A counter that cannot be stopped is not read any more.
            let _ = counter.disable();
        }
    }

    /// The sizes of the rings for samples in bytes, one for each CPU and event.
    pub(crate) fn ring_sizes(&self) -> impl Iterator<Item = usize> {
        let sampled = self
            .sources
            .iter()
            .filter(|source| source.kind != RingKind::Tasks);
        sampled.map(|source| source.ring.capacity())
    }

    /// Descriptors that become readable when a ring is filling up.
    pub(crate) fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let owners = self.owners.iter();
        owners.filter_map(|owner| Some(self.counters.get(*owner)?.as_fd()))
    }
}

/// Finds an available event, and whether it can include the kernel.
fn find_event(
    attr: &mut EventAttr,
    options: &RecordOptions,
    scope: EventScope<'_>,
    cpus: &[u32],
    notices: &mut Vec<RecordNotice>,
) -> Result<(), RecordError> {
    let cpu = cpus.first().copied().unwrap_or(0);
    let mut others = scope.target.iter().copied();
    let mut whom = others.next().unwrap_or(EventTarget::Everyone);
    loop {
        let Err(error) = Counter::open(attr, whom, cpu) else {
            return Ok(());
        };
        // It has exited, which the others need not have.
        if matches!(error.reason, OpenRefusal::NoProcess)
            && let Some(other) = others.next()
        {
            whom = other;
            continue;
        }
        let next = match (&error.reason, attr.event.name()) {
            (OpenRefusal::NotCounted, "cycles") => Some(PerfEvent::cpu_clock()),
            (OpenRefusal::NotCounted, "cpu-clock") => Some(PerfEvent::task_clock()),
            _ => None,
        };
        match (&error.reason, next) {
            (_, Some(next)) if options.event.is_none() => {
                notices.push(RecordNotice::OtherEvent {
                    wanted: attr.event.clone(),
                    taken: next.clone(),
                });
                attr.event = next;
            }
            (OpenRefusal::Paranoid { needed: 1, .. }, _) if attr.with_kernel => {
                notices.push(RecordNotice::WithoutKernel);
                attr.with_kernel = false;
            }
            _ => return Err(error.into()),
        }
    }
}

/// The number of the last CPU that is online, plus 1.
pub(crate) fn online_cpus() -> usize {
    let last = cpus().last().copied().unwrap_or(0);
    usize::try_from(last).unwrap_or(0) + 1
}

/// The CPUs that are online.
fn cpus() -> Vec<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    });
    let cpus: Vec<u32> = ranges.flatten().collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}
