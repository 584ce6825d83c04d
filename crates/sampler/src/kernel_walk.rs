//! Walks in the kernel (`unspool-bpf-walk`): the program at the sampled events, and its memory.
//!
//! A complete walk yields a record, and the kernel writes no sample. All other samples are the
//! kernel's usual ones, with a copy of the stack.

use std::io;
use std::sync::Arc;

use unspool_bpf::{Link, MapError};
use unspool_bpf_walk::{
    KernelOffsets, KernelSample, WalkCounts, WalkHead, WalkLoadError, WalkMaps, WalkRecord,
    WalkTrigger,
};
use unspool_host::Remedy;
use unspool_perf_events::Counter;
use unspool_rows::Arch;

use crate::record::{Events, online_cpus};

mod comparison;
mod directory;
mod free_space;
mod lists;
mod tables;

pub(crate) use comparison::WalkComparer;
pub use comparison::WalkComparison;
pub(crate) use directory::Directory;
pub(crate) use tables::{ArenaTable, ArenaTables, ExpectedTable};

/// Why stacks cannot be walked in the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelWalkError {
    /// The program reads the registers of x86-64.
    #[error("stacks are walked in the kernel on x86-64 only")]
    Architecture,
    /// The kernel refuses memory for the program.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The kernel refuses the program.
    #[error(transparent)]
    Load(#[from] WalkLoadError),
    /// The kernel's types are not known.
    #[error("/sys/kernel/btf/vmlinux: the kernel has no usable BTF (CONFIG_DEBUG_INFO_BTF)")]
    Types(#[source] io::Error),
    /// The kernel does not run the program at an event.
    #[error("the program cannot be attached to an event")]
    Attach(#[source] io::Error),
}

impl KernelWalkError {
    /// The remedy, if there is one.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            KernelWalkError::Map(error) => error.remedy(),
            KernelWalkError::Load(WalkLoadError::Load(error)) => error.remedy(),
            _ => None,
        }
    }
}

/// Whether stacks can be walked in the kernel.
///
/// # Errors
///
/// Why not. The message has the remedy, if there is one.
pub fn try_kernel_walk() -> Result<(), KernelWalkError> {
    let walk = KernelWalk::new()?;
    let head = WalkHead::PerfEvent(walk.kernel, KernelSample::Omitted);
    walk.maps.load(head, WalkTrigger::Sample)?;
    Ok(())
}

/// The program that walks stacks, at the events of a recording.
pub(crate) struct KernelWalk {
    pub(crate) maps: WalkMaps,
    /// The tables in the arena.
    pub(crate) tables: Arc<ArenaTables>,
    /// Processors have smaller numbers.
    cpus: usize,
    kernel: KernelOffsets,
    links: Vec<Link>,
    /// The bytes of the first record in the ring that is not used yet.
    first: Vec<u8>,
    /// The number of malformed records.
    malformed: u64,
}

impl KernelWalk {
    /// Makes the memory of programs.
    fn new() -> Result<KernelWalk, KernelWalkError> {
        if Arch::HOST != unspool_bpf_walk::ARCH {
            return Err(KernelWalkError::Architecture);
        }
        let kernel = KernelOffsets::read().map_err(KernelWalkError::Types)?;
        // Events are opened on these only.
        let cpus = online_cpus();
        let maps = WalkMaps::new(cpus)?;
        Ok(KernelWalk {
            tables: Arc::new(ArenaTables::new(Arc::clone(maps.arena()))),
            maps,
            cpus,
            kernel,
            links: Vec::new(),
            first: Vec::new(),
            malformed: 0,
        })
    }

    /// Runs programs at the sampled events.
    pub(crate) fn start(
        events: &Events,
        sample: KernelSample,
    ) -> Result<KernelWalk, KernelWalkError> {
        let mut walk = KernelWalk::new()?;
        let head = WalkHead::PerfEvent(walk.kernel, sample);
        walk.attach(events.on_cpu(), head, WalkTrigger::Sample)?;
        walk.attach(events.off_cpu(), head, WalkTrigger::SwitchOut)?;
        Ok(walk)
    }

    /// Loads a program, and runs it at events.
    fn attach<'c>(
        &mut self,
        counters: impl Iterator<Item = &'c Counter>,
        head: WalkHead,
        trigger: WalkTrigger,
    ) -> Result<(), KernelWalkError> {
        let mut counters = counters.peekable();
        if counters.peek().is_none() {
            return Ok(());
        }
        // The links keep it.
        let program = self.maps.load(head, trigger)?;
        for counter in counters {
            let link = program.attach(counter, 0);
            self.links.push(link.map_err(KernelWalkError::Attach)?);
        }
        Ok(())
    }

    /// The numbers of walks so far.
    pub(crate) fn counts(&self) -> WalkCounts {
        self.maps.counts(self.cpus)
    }

    /// The first record that is not used yet.
    pub(crate) fn first_record(&mut self) -> Option<WalkRecord<'_>> {
        while WalkRecord::parse(&self.first).is_none() {
            self.malformed += u64::from(!self.first.is_empty());
            let bytes = self.maps.records().next_record()?;
            self.first.clear();
            self.first.extend_from_slice(bytes);
        }
        WalkRecord::parse(&self.first)
    }

    /// The number of malformed records.
    pub(crate) fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Goes on to the next record.
    pub(crate) fn skip_record(&mut self) {
        self.first.clear();
    }
}
