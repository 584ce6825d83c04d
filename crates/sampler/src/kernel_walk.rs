//! Walks in the kernel (`unspool-bpf-walk`): the program at the sampled events, and its memory.
//!
//! A complete walk yields a record, and the kernel writes no sample. All other samples are the
//! kernel's usual ones, with a copy of the stack.

use std::io;
use std::sync::Arc;

use unspool_bpf::{Link, MapError, Program};
use unspool_bpf_walk::{KernelOffsets, WalkCounts, WalkHead, WalkLoadError, WalkMaps, WalkRecord};
use unspool_perf_events::Counter;

mod directory;
mod tables;

pub(crate) use directory::Directory;
pub(crate) use tables::ArenaTables;

/// Why stacks cannot be walked in the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelWalkError {
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

/// The program that walks stacks, at the events of a recording.
pub(crate) struct KernelWalk {
    pub(crate) maps: WalkMaps,
    /// The tables in the arena.
    pub(crate) tables: Arc<ArenaTables>,
    /// Processors have smaller numbers.
    cpus: usize,
    program: Program,
    links: Vec<Link>,
    /// The bytes of the first record in the ring that is not used yet.
    first: Vec<u8>,
}

impl KernelWalk {
    /// Loads the program. Processors have numbers below `cpus`.
    pub(crate) fn new(cpus: usize) -> Result<KernelWalk, KernelWalkError> {
        let kernel = KernelOffsets::read().map_err(KernelWalkError::Types)?;
        let maps = WalkMaps::new(cpus)?;
        let program = maps.load(WalkHead::PerfEvent(kernel))?;
        Ok(KernelWalk {
            tables: Arc::new(ArenaTables::new(Arc::clone(maps.arena()))),
            maps,
            cpus,
            program,
            links: Vec::new(),
            first: Vec::new(),
        })
    }

    /// Runs the program at an event.
    pub(crate) fn attach(&mut self, counter: &Counter) -> Result<(), KernelWalkError> {
        let link = self.program.attach(counter, 0);
        self.links.push(link.map_err(KernelWalkError::Attach)?);
        Ok(())
    }

    /// The numbers of walks so far.
    pub(crate) fn counts(&self) -> WalkCounts {
        self.maps.counts(self.cpus)
    }

    /// The first record that is not used yet.
    pub(crate) fn first_record(&mut self) -> Option<WalkRecord<'_>> {
        while WalkRecord::parse(&self.first).is_none() {
            let bytes = self.maps.records().next_record()?;
            self.first.clear();
            self.first.extend_from_slice(bytes);
        }
        WalkRecord::parse(&self.first)
    }

    /// Goes on to the next record.
    pub(crate) fn skip_record(&mut self) {
        self.first.clear();
    }
}
