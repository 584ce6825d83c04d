//! Reading a whole section into a table.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;

use unspool_rows::table::{FdeHeader, RowStart, TableError};
use unspool_rows::{Abi, CfaRule, Pointer, RaState, Register, RegisterRule, Row, Table, Vaddr};

use crate::CfiSection;
use crate::entry::{CfiEntry, Cie, ParsedFde};
use crate::error::{CfiError, CfiProblem};
use crate::evaluate::{self, Evaluator, InitialRow};

mod cache;
mod scan;

use cache::{EntryContent, RunCache, TransitionCache};
use scan::{InstructionScan, RowEffect};

/// The maximum size of a table's distinct rows, as a multiple of the section's size; 1 MiB more are
/// allowed.
const ROW_BYTES: usize = 16;

/// The maximum size of CIE instructions, as a multiple of the section's size; 1 MiB more are
/// allowed.
pub(crate) const CIE_BYTES: usize = 4;

/// A multiple of a section's size, plus 1 MiB for small ones.
pub(crate) fn bound(section: &CfiSection<'_>, times: usize) -> usize {
    section
        .data
        .len()
        .saturating_mul(times)
        .saturating_add(1 << 20)
}

/// The content of a section, and its faults.
#[derive(Debug, Clone)]
pub struct SectionTable {
    /// Every readable entry, in the order of the section.
    pub table: Table,
    /// Every entry that is unreadable, or not read with certainty, in the order of the section.
    pub problems: Vec<CfiProblem>,
    /// Counts of the entries.
    pub counts: EntryCounts,
}

/// Counts of a section's entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EntryCounts {
    /// CIEs.
    pub cies: u32,
    /// FDEs that were read, including those that cover nothing.
    pub fdes: u32,
    /// FDEs that cover nothing.
    pub empty_fdes: u32,
}

/// A CIE and the row of its instructions: an [`InitialRow`] in compact storage.
struct CieWithRow<'a> {
    cie: Cie<'a>,
    cfa: CfaRule<'a>,
    register_offset: Option<(Register, i64)>,
    ra_state: RaState,
    args_size: u64,
    rules: Box<[(Register, RegisterRule<'a>)]>,
}

struct SectionReader<'s, 'a> {
    section: &'s CfiSection<'a>,
    /// The remaining budget for evaluating CIE instructions, in bytes.
    cie_bytes: usize,
    cies: BTreeMap<u64, Result<CieWithRow<'a>, CfiError>>,
    builder: TableBuilder<'a>,
    counts: EntryCounts,
}

/// Reads every entry of a section. A bad entry is reported and does not affect the others.
///
/// Takes time and memory linear in the section. Repetition by entries is bounded:
///
/// - Two bytes of instructions make a row that repeats the rules of the row before. The distinct
///   rows of a section take at most 1 MiB and 16 times its size. The greatest known factor is 0.09,
///   in sections of more than 64 KiB.
/// - An FDE can name a CIE at any offset, also inside another entry. All CIE instructions together
///   have at most 1 MiB and 4 times the section's size. CIEs that do not overlap have at most once
///   that size.
///
/// Entries beyond these limits are reported as [`CfiError::TooLarge`]. Allocates the table, the
/// CIEs' rows, and the problems.
#[must_use]
pub fn read_table(section: &CfiSection<'_>) -> SectionTable {
    read_tables(section.abi, core::slice::from_ref(section))
}

/// Reads several sections into one table: the `.eh_frame` sections of a relocatable file.
#[must_use]
pub fn read_tables(abi: Abi, sections: &[CfiSection<'_>]) -> SectionTable {
    let mut reading = SectionTable::new(abi);
    for section in sections {
        reading.add(section, |_| true);
    }
    reading.table.shrink_to_fit();
    reading
}

impl SectionTable {
    /// Of no section.
    #[must_use]
    pub fn new(abi: Abi) -> SectionTable {
        SectionTable {
            table: Table::new(abi),
            problems: Vec::new(),
            counts: EntryCounts::default(),
        }
    }

    /// Reads the entries of one more section, behind those that were read: those with a wanted range
    /// of addresses.
    pub fn add(&mut self, section: &CfiSection<'_>, is_wanted: impl Fn(&Range<Vaddr>) -> bool) {
        let abi = self.table.abi();
        let mut reader = SectionReader {
            section,
            cie_bytes: bound(section, CIE_BYTES),
            cies: BTreeMap::new(),
            builder: TableBuilder::new(section, mem::replace(&mut self.table, Table::new(abi))),
            counts: self.counts,
        };
        for (offset, entry) in section.entries() {
            let read = entry.and_then(|entry| reader.read(entry, &is_wanted));
            if let Err(error) = read {
                self.problems.push(CfiProblem {
                    section: section.kind,
                    entry: offset,
                    error,
                });
            }
        }
        reader.counts.cies += u32::try_from(reader.cies.len()).unwrap_or(u32::MAX);
        self.table = reader.builder.table;
        self.counts = reader.counts;
    }
}

impl<'a> SectionReader<'_, 'a> {
    fn read(
        &mut self,
        entry: CfiEntry<'a>,
        is_wanted: impl Fn(&Range<Vaddr>) -> bool,
    ) -> Result<(), CfiError> {
        let section = self.section;
        let at = entry.cie.unwrap_or(entry.offset);
        let left = &mut self.cie_bytes;
        let known = self
            .cies
            .entry(at)
            .or_insert_with(|| CieWithRow::read(section, at, left));
        let known = match (known, entry.cie) {
            (Ok(known), None) => return known.note(),
            (Ok(known), Some(_)) => known,
            (Err(error @ (CfiError::NoCie(_) | CfiError::TooLarge)), _) | (Err(error), None) => {
                return Err(*error);
            }
            (Err(_), Some(cie)) => return Err(CfiError::BadCie(cie)),
        };
        let fde = ParsedFde::parse(section, &known.cie, entry)?;
        if !is_wanted(&(fde.start..fde.end)) {
            return Ok(());
        }
        self.builder.push(section, known, &fde)?;
        self.counts.fdes += 1;
        self.counts.empty_fdes += u32::from(fde.start == fde.end);
        Ok(())
    }
}

/// The table being built, and its caches: most entries have the instructions of another, and most
/// row transitions repeat earlier ones.
struct TableBuilder<'a> {
    table: Table,
    /// The rows of the current entry.
    rows: Vec<RowStart>,
    evaluator: Evaluator<'a>,
    /// The last CIE with an evaluated entry, and its initial row: most entries have the CIE of the
    /// entry before.
    initial: Option<(u64, InitialRow<'a>)>,
    /// The maximum size of the table's distinct rows, in bytes.
    most: usize,
    runs: RunCache<'a>,
    transitions: TransitionCache,
}

impl<'a> TableBuilder<'a> {
    /// Begins a section: the caches are keyed by CIE offsets in it.
    fn new(section: &CfiSection<'a>, table: Table) -> Self {
        TableBuilder {
            most: table
                .encoded_len()
                .saturating_add(bound(section, ROW_BYTES)),
            table,
            rows: Vec::new(),
            evaluator: Evaluator::new(),
            initial: None,
            runs: RunCache::new(section),
            transitions: TransitionCache::new(section),
        }
    }

    fn push(
        &mut self,
        section: &CfiSection<'a>,
        cie: &CieWithRow<'a>,
        fde: &ParsedFde<'a>,
    ) -> Result<(), CfiError> {
        let ParsedFde { start, end, .. } = *fde;
        let header = FdeHeader {
            start,
            end,
            personality: cie.cie.personality,
            lsda: fde
                .lsda
                .map(|(Pointer::Direct(addr) | Pointer::Indirect(addr))| addr),
            origin: fde.offset,
        };
        let same = EntryContent::new(cie.cie.offset, fde.instructions);
        // It cannot have the run if it is too short for all of the rows.
        if let Some(run) = self.runs.find(&same)
            && self.table.push_run(header, run).is_ok()
        {
            return Ok(());
        }
        self.rows.clear();
        let walk = InstructionScan::new(section, &cie.cie, fde);
        let is_movable = match walk.rows(&self.transitions, &mut self.rows) {
            Some(()) => true,
            None => self.evaluate(section, cie, fde)?,
        };
        let id = self
            .table
            .push(header, &self.rows)
            .map_err(|error| match error {
                TableError::RowOrder { at, start, .. } => CfiError::Backwards {
                    from: start,
                    to: at,
                },
                _ => CfiError::TooLarge,
            })?;
        if is_movable && let Some(fde) = self.table.fde(id) {
            self.runs.keep(same, fde.run());
        }
        Ok(())
    }

    /// Evaluates the instructions, and caches the transitions for other entries. Returns whether
    /// another entry with the same instructions has the same rows.
    fn evaluate(
        &mut self,
        section: &CfiSection<'a>,
        cie_with_row: &CieWithRow<'a>,
        fde: &ParsedFde<'a>,
    ) -> Result<bool, CfiError> {
        let initial = match &mut self.initial {
            Some((cie, initial)) if *cie == cie_with_row.cie.offset => initial,
            other => {
                &mut other
                    .insert((cie_with_row.cie.offset, cie_with_row.initial()?))
                    .1
            }
        };
        self.rows.clear();
        let mut rows = self
            .evaluator
            .rows(section, &cie_with_row.cie, initial, fde);
        let mut walk = InstructionScan::new(section, &cie_with_row.cie, fde);
        let mut is_walk = determines_next(&cie_with_row.cfa);
        while let Some(range) = rows.advance()? {
            let passed = if is_walk { walk.pass() } else { None };
            let row = match passed.and_then(|passed| passed.row(&self.transitions)) {
                Some(row) => row,
                None if self.table.encoded_len() > self.most => return Err(CfiError::TooLarge),
                None => {
                    let interned = self.table.intern(rows.row());
                    let row = interned.map_err(|_| CfiError::TooLarge)?;
                    if let Some(RowEffect::Step(step)) = passed {
                        self.transitions.keep(step, row);
                    }
                    row
                }
            };
            walk.enter_row(row);
            is_walk = passed.is_some() && determines_next(&rows.row().cfa);
            self.rows.push(RowStart {
                start: range.start,
                row,
            });
        }
        Ok(rows.is_movable())
    }
}

/// Whether later rows depend only on this row and their instructions. If the CFA is an expression,
/// the earlier register and offset may be used again.
fn determines_next(cfa: &CfaRule<'_>) -> bool {
    matches!(cfa, CfaRule::RegisterOffset { .. })
}

impl<'a> CieWithRow<'a> {
    /// Reads the CIE at `offset`, and subtracts the length of its instructions from `left`.
    fn read(section: &CfiSection<'a>, offset: u64, left: &mut usize) -> Result<Self, CfiError> {
        let cie = Cie::parse_at(section, offset)?;
        let rest = left.checked_sub(cie.instructions.len());
        *left = rest.ok_or(CfiError::TooLarge)?;
        let InitialRow {
            row,
            register_offset,
        } = evaluate::initial_row(section, &cie)?;
        Ok(CieWithRow {
            cfa: row.cfa,
            register_offset,
            ra_state: row.ra_state,
            args_size: row.args_size,
            rules: row.rules().collect(),
            cie,
        })
    }

    fn initial(&self) -> Result<InitialRow<'a>, CfiError> {
        let mut row = Row::new(self.cie.return_address);
        row.cfa = self.cfa;
        row.signal_frame = self.cie.signal_frame;
        row.ra_state = self.ra_state;
        row.args_size = self.args_size;
        for (register, rule) in &self.rules {
            row.set_rule(*register, Some(*rule))?;
        }
        Ok(InitialRow {
            row,
            register_offset: self.register_offset,
        })
    }

    /// The note on a usable CIE, as an error.
    fn note(&self) -> Result<(), CfiError> {
        match self.cie.unknown_letter {
            Some(letter) => Err(CfiError::AugmentationIgnored(char::from(letter))),
            None => Ok(()),
        }
    }
}
