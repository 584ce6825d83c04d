//! Rewrites the `.eh_frame` of a relocatable file: some entries get other rows, and new ones are
//! appended.
//!
//! Only the instructions of a changed entry change; all other entries keep their bytes. Offsets do
//! change, and with them the distance from an FDE to its CIE.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use unspool_rows::{Fde, Table, Vaddr};

use crate::entry::{CfiEntry, Cie, ParsedFde};
use crate::error::{CfiError, CfiProblem};
use crate::evaluate::initial_row;
use crate::table::{CIE_BYTES, bound};
use crate::write::{
    EhFrame, InstructionWriter, SizeOptimization, WriteError, close, word, word_bytes,
};
use crate::{CfiSection, SectionKind};

/// Why a section cannot be rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// An entry cannot be read, so its other content cannot be kept.
    #[error(transparent)]
    Entry(#[from] CfiProblem),
    /// The CIE of a changed entry counts code in units of more than a byte.
    #[error(
        ".eh_frame entry at offset {offset:#x}: the code alignment factor of its CIE is {unit}, not 1"
    )]
    Unit {
        /// The offset of the CIE in the section, in bytes.
        offset: u64,
        /// The unit, in bytes.
        unit: u64,
    },
    /// No instruction can express a row, or the section would be too large.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// A rewritten section. Offsets are in bytes from its start.
#[derive(Debug, Clone, Default)]
pub struct RewrittenSection {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The kept ranges of the old section, ascending, and their new offsets. Relocations there move
    /// with them.
    pub unchanged: Vec<(Range<u64>, u64)>,
    /// Offsets of 4-byte fields, and the address to write there, relative to the field.
    pub pointers: Vec<(u64, Vaddr)>,
}

/// Rewrites a section. Its bytes are those of the file, before relocation.
///
/// The entries of `changed` replace the rows of their original entries ([`Fde::origin`]). Those of
/// `added` follow all others.
///
/// # Errors
///
/// An entry cannot be read or written.
pub fn rewrite(
    section: &CfiSection<'_>,
    changed: &Table,
    added: &Table,
) -> Result<RewrittenSection, RewriteError> {
    let mut rewriting = SectionRewriter {
        section,
        table: changed,
        changed: changed.fdes().iter().map(|fde| (fde.origin, fde)).collect(),
        cie_bytes: bound(section, CIE_BYTES),
        written: RewrittenSection::default(),
        cies: BTreeMap::new(),
        fdes: Vec::new(),
    };
    let mut end = 0;
    for (offset, entry) in section.entries() {
        let entry = entry.map_err(|error| rewriting.problem(offset, error))?;
        rewriting.entry(&entry)?;
        end = entry.end();
    }
    rewriting.lead_to_cies()?;
    let mut written = rewriting.written;
    let added = EhFrame::from_table(added)?;
    let from = written.bytes.len() as u64;
    let pointers = added.pointers().iter();
    let pointers = pointers.map(|(place, address)| (from + *place as u64, *address));
    written.pointers.extend(pointers);
    written.bytes.extend(added.entries());
    if end < section.data.len() as u64 {
        written.bytes.extend([0; 4]); // The file ends all unwind tables that are linked before it.
    }
    Ok(written)
}

/// The escape for a length of 8 bytes, which no assembler writes here.
const LONG: [u8; 4] = [0xff; 4];

struct SectionRewriter<'r, 'a> {
    section: &'r CfiSection<'a>,
    table: &'r Table,
    /// The changed entries, by their offset in the section.
    changed: BTreeMap<u64, &'r Fde>,
    /// The remaining budget for evaluating CIE instructions, in bytes.
    cie_bytes: usize,
    written: RewrittenSection,
    /// Old and new offsets of CIEs.
    cies: BTreeMap<u64, u64>,
    /// FDEs: their old offset, the offset of their CIE pointer, and their CIE's old offset.
    fdes: Vec<(u64, u64, u64)>,
}

impl SectionRewriter<'_, '_> {
    fn problem(&self, entry: u64, error: CfiError) -> RewriteError {
        let section = SectionKind::EhFrame;
        CfiProblem {
            section,
            entry,
            error,
        }
        .into()
    }

    fn entry(&mut self, entry: &CfiEntry<'_>) -> Result<(), RewriteError> {
        let (from, to) = (entry.offset, self.written.bytes.len() as u64);
        if self.section.bytes(from, from + 4) == LONG {
            return Err(self.problem(from, CfiError::ReservedLength(u32::MAX)));
        }
        let changed = match entry.cie {
            None => {
                self.cies.insert(from, to);
                None
            }
            Some(cie) => {
                self.fdes.push((from, to + 4, cie));
                self.changed.get(&from).map(|fde| (cie, *fde))
            }
        };
        match changed {
            Some((cie, fde)) => self.put_rows(entry, cie, fde),
            None => {
                self.keep(from..entry.end());
                Ok(())
            }
        }
    }

    fn keep(&mut self, range: Range<u64>) {
        let to = self.written.bytes.len() as u64;
        self.written
            .bytes
            .extend(self.section.bytes(range.start, range.end));
        self.written.unchanged.push((range, to));
    }

    /// Writes an FDE with changed rows.
    fn put_rows(&mut self, entry: &CfiEntry<'_>, cie: u64, fde: &Fde) -> Result<(), RewriteError> {
        let section = self.section;
        let at = entry.offset;
        let cie = Cie::parse_at(section, cie).map_err(|error| self.problem(at, error))?;
        if cie.code_alignment != 1 {
            let (offset, unit) = (cie.offset, cie.code_alignment);
            return Err(RewriteError::Unit { offset, unit });
        }
        let left = self.cie_bytes.checked_sub(cie.instructions.len());
        self.cie_bytes = left.ok_or_else(|| self.problem(at, CfiError::TooLarge))?;
        let initial = initial_row(section, &cie).map_err(|error| self.problem(at, error))?;
        let old = ParsedFde::parse(section, &cie, entry.clone());
        let old = old.map_err(|error| self.problem(at, error))?;
        let start = self.written.bytes.len();
        self.keep(at..old.instructions_offset);
        let writer = InstructionWriter {
            data_alignment: cie.data_alignment,
            initial: initial.row,
            optimizations: SizeOptimization::ALL,
        };
        let bytes = &mut self.written.bytes;
        writer.put_rows(self.table, fde, bytes)?;
        Ok(close(bytes, start, section.abi, word_bytes(section.abi))?)
    }

    /// Updates the CIE pointers of all FDEs.
    fn lead_to_cies(&mut self) -> Result<(), RewriteError> {
        for (from, field, cie) in core::mem::take(&mut self.fdes) {
            let to = self.cies.get(&cie);
            let to = to.ok_or_else(|| self.problem(from, CfiError::NoCie(cie)))?;
            let back = i32::try_from(field.cast_signed() - to.cast_signed());
            let back = back.map_err(|_| WriteError::TooLarge)?;
            let back = word(back.cast_unsigned(), self.section.abi.endian);
            let place = usize::try_from(field).unwrap_or(usize::MAX);
            let slot = self.written.bytes.get_mut(place..place.saturating_add(4));
            slot.ok_or(WriteError::TooLarge)?.copy_from_slice(&back);
        }
        Ok(())
    }
}
