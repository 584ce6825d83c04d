//! A whole section, read into a table.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use unspool_ir::table::{FdeHeader, RowId, RowStart, TableError};
use unspool_ir::{Abi, Pointer, Row, Table};

use crate::Section;
use crate::entry::{Cie, Entry, FdeEntry};
use crate::error::{CfiError, Problem};
use crate::evaluate::{self, Evaluator, MadeBy, RowRange};

/// What a section holds, and what is wrong with it.
#[derive(Debug, Clone)]
pub struct Reading {
    /// Every entry that could be read, in the order of the section.
    pub table: Table,
    /// Every entry that could not, in the order of the section.
    pub problems: Vec<Problem>,
    /// What was counted on the way.
    pub summary: Summary,
}

/// Counts of what a section holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// CIEs.
    pub cies: u32,
    /// FDEs that were read, those that cover nothing included.
    pub fdes: u32,
    /// FDEs that cover nothing.
    pub empty_fdes: u32,
}

/// A CIE and the row that its instructions make, or why there is none.
struct Known<'a> {
    cie: Cie<'a>,
    initial: Row<'a>,
}

struct Reader<'s, 'a> {
    section: &'s Section<'a>,
    cies: BTreeMap<u64, Result<Known<'a>, CfiError>>,
    table: Table,
    rows: Vec<RowStart>,
    steps: Steps,
    evaluator: Evaluator<'a>,
    summary: Summary,
}

/// Reads every entry of a section. A bad entry is reported and does not disturb the others.
///
/// Takes time and memory linear in the section. Allocates the table, one row per CIE, and the
/// problems.
#[must_use]
pub fn read_table(section: &Section<'_>) -> Reading {
    read_tables(section.abi, core::slice::from_ref(section))
}

/// Reads several sections into one table: the `.eh_frame` sections of a relocatable file.
#[must_use]
pub fn read_tables(abi: Abi, sections: &[Section<'_>]) -> Reading {
    let mut reading = Reading {
        table: Table::new(abi),
        problems: Vec::new(),
        summary: Summary::default(),
    };
    for section in sections {
        let mut reader = Reader {
            section,
            cies: BTreeMap::new(),
            table: reading.table,
            rows: Vec::new(),
            steps: Steps::new(),
            evaluator: Evaluator::new(),
            summary: reading.summary,
        };
        for (offset, entry) in section.entries() {
            let read = entry.and_then(|entry| reader.read(entry));
            if let Err(error) = read {
                reading.problems.push(Problem {
                    section: section.kind,
                    entry: offset,
                    error,
                });
            }
        }
        reader.summary.cies += u32::try_from(reader.cies.len()).unwrap_or(u32::MAX);
        reading.table = reader.table;
        reading.summary = reader.summary;
    }
    reading
}

impl<'a> Reader<'_, 'a> {
    fn read(&mut self, entry: Entry<'a>) -> Result<(), CfiError> {
        let section = self.section;
        let at = entry.cie.unwrap_or(entry.offset);
        let known = self
            .cies
            .entry(at)
            .or_insert_with(|| Known::read(section, at));
        let known = match (known, entry.cie) {
            (Ok(_), None) => return Ok(()),
            (Ok(known), Some(_)) => known,
            (Err(error @ CfiError::NoCie(_)), _) | (Err(error), None) => return Err(*error),
            (Err(_), Some(cie)) => return Err(CfiError::BadCie(cie)),
        };
        let fde = FdeEntry::parse(section, &known.cie, entry)?;
        self.rows.clear();
        let mut rows = self
            .evaluator
            .rows(section, &known.cie, &known.initial, &fde);
        let mut last: Option<RowId> = None;
        while let Some(range) = rows.advance()? {
            let step = Step::new(section, known.cie.offset, last, &range);
            let mut intern = || {
                self.table
                    .intern(rows.row())
                    .map_err(|_| CfiError::TooLarge)
            };
            let row = match (range.made_by, last) {
                (MadeBy::Nothing, Some(last)) => last,
                (MadeBy::Instructions, _) => self.steps.take(step, intern)?,
                _ => intern()?,
            };
            last = Some(row);
            self.rows.push(RowStart {
                start: range.start,
                row,
            });
        }
        let header = FdeHeader {
            start: fde.start,
            end: fde.end,
            personality: known.cie.personality,
            lsda: fde
                .lsda
                .map(|(Pointer::Direct(addr) | Pointer::Indirect(addr))| addr),
            origin: fde.offset,
        };
        self.table
            .push(header, &self.rows)
            .map_err(|error| match error {
                TableError::RowOrder { at, start, .. } => CfiError::Backwards {
                    from: start,
                    to: at,
                },
                _ => CfiError::TooLarge,
            })?;
        self.summary.fdes += 1;
        self.summary.empty_fdes += u32::from(fde.start == fde.end);
        Ok(())
    }
}

/// Steps from row to row that have been seen: most are taken again and again.
///
/// A cache, not a map: a step that finds its slot taken by another replaces it.
struct Steps {
    slots: Vec<(Step, RowId)>,
}

/// Instructions on a row, of a CIE: what the next row depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Step {
    cie: u64,
    /// The row before plus 1; 0 for the CIE's own.
    row: u64,
    /// The instructions' bytes, and their number in the highest byte; 0 in an empty slot.
    instructions: u128,
}

impl Step {
    /// `None` for more than 15 bytes of instructions, and at the end of the section.
    fn new(
        section: &Section<'_>,
        cie: u64,
        row: Option<RowId>,
        range: &RowRange<'_>,
    ) -> Option<Self> {
        let len = u32::try_from(range.instructions.len())
            .ok()
            .filter(|len| *len < 16)?;
        // Sixteen bytes at once, of which the first `len` are kept.
        let from = usize::try_from(range.instructions_offset).ok()?;
        let bytes = u128::from_le_bytes(*section.data.get(from..)?.first_chunk::<16>()?);
        let kept = bytes & ((1 << (8 * len)) - 1);
        let row = row.map_or(0, |row| u64::from(row.0) + 1);
        Some(Step {
            cie,
            row,
            instructions: kept | u128::from(len) << 120,
        })
    }

    /// A slot number. The multipliers are odd constants without further meaning.
    #[expect(clippy::cast_possible_truncation, reason = "a hash takes any bits")]
    fn hash(&self) -> usize {
        let (low, high) = (self.instructions as u64, (self.instructions >> 64) as u64);
        let mixed = low
            ^ high.rotate_left(29)
            ^ self.row.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ self.cie.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        let hash = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> (64 - Steps::BITS);
        hash as usize
    }
}

impl Steps {
    const BITS: u32 = 13;

    fn new() -> Self {
        Steps {
            slots: vec![(Step::default(), RowId(0)); 1 << Self::BITS],
        }
    }

    /// Where a step leads: as it did before, or else to what `find` yields.
    fn take(
        &mut self,
        step: Option<Step>,
        find: impl FnOnce() -> Result<RowId, CfiError>,
    ) -> Result<RowId, CfiError> {
        let slot = step.and_then(|step| Some((step, self.slots.get_mut(step.hash())?)));
        match slot {
            Some((step, slot)) if slot.0 == step => Ok(slot.1),
            Some((step, slot)) => {
                let row = find()?;
                *slot = (step, row);
                Ok(row)
            }
            None => find(),
        }
    }
}

impl<'a> Known<'a> {
    fn read(section: &Section<'a>, offset: u64) -> Result<Self, CfiError> {
        let cie = Cie::at(section, offset)?;
        let initial = evaluate::initial_row(section, &cie)?;
        Ok(Known { cie, initial })
    }
}
