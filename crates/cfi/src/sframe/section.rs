//! Reading a whole section as functions, and sorting functions.

use alloc::vec::Vec;

use unspool_rows::Vaddr;

use super::error::{SframeError, SframeProblem};
use super::frame::{FrameRowEntry, FreContents, SframeAbi};
use super::reader::{SframeFde, SframeHeader, SubSections};

/// An entry and its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SframeFunction {
    /// The first address.
    pub start: Vaddr,
    /// The number of bytes.
    pub size: u32,
    /// The size of the repeated block in bytes, if the rows are for one: row offsets are then
    /// relative to each block.
    pub block: Option<u8>,
    /// Whether its frames were interrupted by a signal, not called from.
    pub is_signal_frame: bool,
    /// Whether return addresses are signed with key B (AArch64).
    pub has_key_b: bool,
    /// The rows, ascending. Without rows, the function is not described.
    pub rows: Vec<FrameRowEntry>,
    /// Its origin, for messages: an offset in the section that was read.
    pub origin: u64,
}

impl SframeFunction {
    /// One past the last address.
    #[must_use]
    pub fn end(&self) -> Vaddr {
        self.start.offset(self.size.into())
    }

    /// The row's content at an address of the function.
    #[must_use]
    pub fn frame(&self, pc: Vaddr) -> Option<FreContents> {
        let mut offset = pc.0.wrapping_sub(self.start.0);
        if offset >= u64::from(self.size) {
            return None;
        }
        if let Some(block) = self.block {
            offset = offset.checked_rem(block.into())?;
        }
        let behind = self
            .rows
            .partition_point(|row| u64::from(row.offset) <= offset);
        let row = self.rows.get(behind.checked_sub(1)?)?;
        Some(row.contents)
    }

    /// The function between two of its addresses; `None` if that would begin inside a block.
    pub(super) fn part(&self, from: Vaddr, to: Vaddr) -> Option<SframeFunction> {
        let distance = u32::try_from(from.0.wrapping_sub(self.start.0)).ok()?;
        let size = u32::try_from(to.0.wrapping_sub(from.0)).ok()?;
        let rows = match self.block {
            Some(block) if distance.is_multiple_of(block.into()) => self.rows.clone(),
            Some(_) => return None,
            None => {
                let end = distance.saturating_add(size);
                let first = self.rows.partition_point(|row| row.offset <= distance);
                let last = self.rows.partition_point(|row| row.offset < end);
                let rows = self.rows.get(first.saturating_sub(1)..last)?;
                let moved = rows.iter().map(|row| FrameRowEntry {
                    offset: row.offset.saturating_sub(distance),
                    contents: row.contents,
                });
                moved.collect()
            }
        };
        Some(SframeFunction {
            start: from,
            size,
            rows,
            ..*self
        })
    }
}

/// A header, and its location in the section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubSectionInfo {
    /// The offset of its first byte.
    pub offset: u64,
    /// One past the last byte of its part.
    pub end: u64,
    /// The header.
    pub header: SframeHeader,
}

/// The content of a section, and its faults.
#[derive(Debug, Clone, Default)]
pub struct SframeSection {
    /// Its parts.
    pub sub_sections: Vec<SubSectionInfo>,
    /// Every readable entry, in the order of the section.
    pub functions: Vec<SframeFunction>,
    /// The faults of unreadable entries and parts.
    pub problems: Vec<SframeProblem>,
}

/// The maximum number of rows of a section, per byte of the section; a million more are allowed.
const ROWS: usize = 1;

/// Reads every entry of a section with its first byte at that address. A bad entry is reported and
/// does not affect the others. The same is true of a part for another machine.
///
/// Takes time and memory linear in the section: entries can share rows. All together may have a
/// million rows and one for each byte of the section; more are reported as
/// [`SframeError::TooLarge`]. In sections of assemblers and linkers a row has at least three bytes
/// of its own.
#[must_use]
pub fn read(data: &[u8], address: Vaddr, abi: SframeAbi) -> SframeSection {
    let mut reading = SframeSection::default();
    let mut left = data.len().saturating_mul(ROWS).saturating_add(1 << 20);
    for (offset, part) in SubSections::new(data, address) {
        let of_machine = part.and_then(|part| match part.header.abi {
            other if other != abi => Err(SframeError::OtherMachine(other.number())),
            _ => Ok(part),
        });
        let part = match of_machine {
            Ok(part) => part,
            Err(error) => {
                let entry = offset;
                reading.problems.push(SframeProblem { entry, error });
                continue;
            }
        };
        reading.sub_sections.push(SubSectionInfo {
            offset,
            end: part.end(),
            header: part.header,
        });
        let false_fields = part.false_fields().map(|error| SframeProblem {
            entry: offset,
            error,
        });
        reading.problems.extend(false_fields);
        for (entry, read) in part.entries() {
            match read.and_then(|entry| function(&entry, &mut left)) {
                Ok(function) => reading.functions.push(function),
                Err(error) => reading.problems.push(SframeProblem { entry, error }),
            }
        }
    }
    reading
}

fn function(entry: &SframeFde<'_>, left: &mut usize) -> Result<SframeFunction, SframeError> {
    let count = entry.count as usize;
    let mut rows = Vec::new();
    if entry.is_outermost() {
        rows.push(FrameRowEntry {
            offset: 0,
            contents: FreContents::Outermost,
        });
    } else {
        *left = left.checked_sub(count).ok_or(SframeError::TooLarge)?;
        for row in entry.rows() {
            rows.push(row?);
        }
        // This row holds nowhere.
        rows.pop_if(|row| entry.limit() > 0 && row.offset == entry.limit());
    }
    let block = entry.block_bytes()?.map(u8::try_from).transpose();
    Ok(SframeFunction {
        start: entry.start,
        size: entry.size,
        block: block.map_err(|_| SframeError::TooLarge)?,
        is_signal_frame: entry.is_signal_frame,
        has_key_b: entry.has_key_b,
        rows,
        origin: entry.offset,
    })
}

/// An obstacle to searching a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchProblem {
    /// A second header: readers only use the first.
    Concatenated {
        /// Its offset in the section.
        offset: u64,
    },
    /// An entry that begins before the previous one.
    Unsorted {
        /// Its offset in the section.
        entry: u64,
        /// Its start.
        start: Vaddr,
        /// Whether the header claims that entries ascend.
        is_denied: bool,
    },
    /// An entry that overlaps another.
    Overlap {
        /// The offset in the section of the one that begins later.
        entry: u64,
        /// Its start.
        start: Vaddr,
        /// The offset of the other in the section.
        other: u64,
    },
}

impl SframeSection {
    /// The obstacles to searching the section, at most `limit` of each kind.
    #[must_use]
    pub fn disorder(&self, limit: usize) -> Vec<SearchProblem> {
        let parts = self.sub_sections.iter().skip(1);
        let parts = parts.map(|part| SearchProblem::Concatenated {
            offset: part.offset,
        });
        let mut found: Vec<SearchProblem> = parts.take(limit).collect();
        for part in &self.sub_sections {
            let range = part.offset..part.end;
            let own = || self.functions.iter().filter(|f| range.contains(&f.origin));
            let pairs = own().zip(own().skip(1));
            let unsorted = pairs.filter(|(before, after)| after.start < before.start);
            let unsorted = unsorted.map(|(_, function)| SearchProblem::Unsorted {
                entry: function.origin,
                start: function.start,
                is_denied: part.header.is_sorted(),
            });
            found.extend(unsorted.take(limit));
        }
        let mut sorted: Vec<&SframeFunction> =
            self.functions.iter().filter(|f| f.size > 0).collect();
        sorted.sort_by_key(|function| function.start);
        let mut farthest: Option<&SframeFunction> = None;
        let mut overlaps = Vec::new();
        for function in sorted {
            if let Some(other) = farthest.filter(|other| function.start < other.end()) {
                overlaps.push(SearchProblem::Overlap {
                    entry: function.origin,
                    start: function.start,
                    other: other.origin,
                });
            }
            if farthest.is_none_or(|other| other.end() < function.end()) {
                farthest = Some(function);
            }
        }
        overlaps.truncate(limit);
        found.extend(overlaps);
        found
    }
}

/// Brings functions into the order that a search needs: ascending and disjoint. Where they overlap,
/// the one with the greatest start counts, and among equal starts the first, as in
/// [`unspool_rows::Table`]. Functions that cover nothing are dropped.
#[must_use]
pub fn repair(functions: &[SframeFunction]) -> Vec<SframeFunction> {
    let mut waiting: Vec<&SframeFunction> = functions.iter().filter(|f| f.size > 0).collect();
    // The first of equal starts must be opened last.
    waiting.reverse();
    waiting.sort_by_key(|function| function.start);
    let mut scan = FunctionScan {
        open: Vec::new(),
        at: Vaddr(0),
        done: Vec::new(),
    };
    for function in waiting {
        scan.go_to(function.start);
        scan.open.push(function);
    }
    scan.go_to(Vaddr(u64::MAX));
    scan.done
}

/// The functions at an address, of which the last counts, and the finished ones.
struct FunctionScan<'f> {
    open: Vec<&'f SframeFunction>,
    at: Vaddr,
    done: Vec<SframeFunction>,
}

impl FunctionScan<'_> {
    fn go_to(&mut self, to: Vaddr) {
        while let Some(top) = self.open.last() {
            let end = top.end().min(to);
            if self.at < end {
                self.done.extend(top.part(self.at, end));
                self.at = end;
            }
            if top.end() > self.at {
                return;
            }
            self.open.pop();
        }
        self.at = to;
    }
}
