//! The memory that a core file recorded.

use unspool_files::FileMap;
use unspool_rows::memory::UnreadableReason;
use unspool_rows::{Memory, RuntimeAddr, Unreadable};

use super::CoreProblem;
use crate::program_header::ProgramHeader;

/// The memory of a core file: see [`Core::memory`](super::Core::memory).
///
/// A read fails with [`UnreadableReason::Unmapped`] where nothing was mapped. It fails with
/// [`UnreadableReason::NotRecorded`] where the kernel left the bytes out of the core (program text,
/// by default). It fails with [`UnreadableReason::Truncated`] where the file ends too early.
#[derive(Debug)]
pub struct CoreMemory {
    contents: FileMap,
    loads: Vec<LoadSegment>,
}

/// A range of addresses and the file offset of its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoadSegment {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) flags: u32,
    offset: u64,
    /// The bytes of the range in the file; the rest was not recorded.
    recorded: u64,
}

impl CoreMemory {
    pub(super) fn new(contents: FileMap, loads: Vec<LoadSegment>) -> CoreMemory {
        CoreMemory { contents, loads }
    }

    /// The part of the file from the byte at `addr` to the end of its segment.
    fn recorded_at(&self, addr: RuntimeAddr) -> Result<&[u8], Unreadable> {
        let after = self.loads.partition_point(|load| load.end <= addr.0);
        let load = self.loads.get(after).filter(|load| load.start <= addr.0);
        let load = load.ok_or(Unreadable::unmapped(addr))?;
        let into = addr.0 - load.start;
        let left = load.recorded.checked_sub(into).filter(|left| *left > 0);
        let reason = UnreadableReason::NotRecorded;
        let left = left.ok_or(Unreadable { addr, reason })?;
        let reason = UnreadableReason::Truncated;
        let offset = usize::try_from(load.offset.saturating_add(into)).unwrap_or(usize::MAX);
        let bytes = self.contents.get(offset..);
        let bytes = bytes.filter(|bytes| !bytes.is_empty());
        let bytes = bytes.ok_or(Unreadable { addr, reason })?;
        let size = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        Ok(bytes.get(..size).unwrap_or(bytes))
    }

    /// Visits `size` bytes from `addr` on, in the pieces that the file has.
    fn each_piece(
        &self,
        addr: RuntimeAddr,
        size: usize,
        mut visit: impl FnMut(usize, &[u8]),
    ) -> Result<(), Unreadable> {
        let mut done = 0;
        while done < size {
            let wraps = Unreadable {
                addr,
                reason: UnreadableReason::Wraps,
            };
            let at = u64::try_from(done)
                .ok()
                .and_then(|done| addr.0.checked_add(done));
            let piece = self.recorded_at(RuntimeAddr(at.ok_or(wraps)?))?;
            let piece = piece.get(..size - done).unwrap_or(piece);
            visit(done, piece);
            done += piece.len();
        }
        Ok(())
    }
}

impl Memory for CoreMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        self.each_piece(addr, into.len(), |_, _| {})?;
        self.each_piece(addr, into.len(), |at, piece| {
            if let Some(to) = into.get_mut(at..at + piece.len()) {
                to.copy_from_slice(piece);
            }
        })?;
        // Otherwise the file had these bytes.
        let reason = UnreadableReason::Truncated;
        self.contents
            .check_intact()
            .map_err(|_| Unreadable { addr, reason })
    }
}

/// The `PT_LOAD` segments in ascending order, without overlap.
pub(super) fn loads(
    segments: &[ProgramHeader],
    length: u64,
    problems: &mut Vec<CoreProblem>,
) -> Vec<LoadSegment> {
    let mut loads = Vec::new();
    for segment in segments.iter().filter(|segment| segment.is_load()) {
        match load(segment) {
            Some(load) => loads.push(load),
            None => problems.push(CoreProblem::SegmentSize {
                vaddr: segment.vaddr.0,
            }),
        }
    }
    report_truncation(&loads, length, problems);
    loads.sort_by_key(|load: &LoadSegment| load.start);
    let mut end = 0;
    loads.retain_mut(|load| {
        if load.start < end {
            problems.push(CoreProblem::Overlap { vaddr: load.start });
            load.clip(end);
        }
        end = end.max(load.end);
        load.start < load.end
    });
    loads
}

fn load(segment: &ProgramHeader) -> Option<LoadSegment> {
    let end = segment.vaddr.0.checked_add(segment.memory_size)?;
    let recorded = segment.file_size.min(segment.memory_size);
    segment.offset.checked_add(recorded)?;
    Some(LoadSegment {
        start: segment.vaddr.0,
        end,
        flags: segment.flags,
        offset: segment.offset,
        recorded,
    })
}

fn report_truncation(loads: &[LoadSegment], length: u64, problems: &mut Vec<CoreProblem>) {
    let ends = loads.iter().filter(|load| load.recorded > 0);
    let ends = ends.map(|load| load.offset.saturating_add(load.recorded));
    let cut: Vec<u64> = ends.filter(|end| *end > length).collect();
    if let Some(needed) = cut.iter().max() {
        problems.push(CoreProblem::Truncated {
            segments: cut.len(),
            needed: *needed,
            length,
        });
    }
}

impl LoadSegment {
    /// Removes everything below `floor`.
    fn clip(&mut self, floor: u64) {
        let floor = floor.min(self.end);
        let cut = floor - self.start;
        self.start = floor;
        self.offset = self.offset.saturating_add(cut);
        self.recorded = self.recorded.saturating_sub(cut);
    }
}
