//! The rows of an entry without evaluating its instructions: from row to row, by transitions of
//! earlier entries.
//!
//! Only the common instructions are scanned; all others are left to the evaluator.

use alloc::vec::Vec;

use unspool_rows::table::RowStart;
use unspool_rows::{RowId, Vaddr};

use super::cache::{RowTransition, TransitionCache};
use crate::CfiSection;
use crate::byte_reader::number;
use crate::entry::{Cie, ParsedFde};
use crate::evaluate::{MAX_CHANGES, MAX_DISTANCE_BYTES, MAX_REMEMBERED};

const NOP: u8 = 0x00;
const REMEMBER_STATE: u8 = 0x0a;
const RESTORE_STATE: u8 = 0x0b;

/// A position in the instructions of an entry.
pub(super) struct InstructionScan<'s, 'a> {
    section: &'s CfiSection<'a>,
    cie: &'s Cie<'a>,
    /// The remaining instructions.
    rest: &'a [u8],
    /// The end of the instructions in the section.
    until: u64,
    at: Vaddr,
    /// The limit of row starts: the entry's end, or the maximum distance from its start.
    end: Vaddr,
    /// The row before; `None` for the CIE's own row.
    row: Option<RowId>,
    remembered: [Option<RowId>; MAX_REMEMBERED],
    depth: usize,
    /// The number of instruction bytes left when the outermost state was saved.
    left: usize,
}

/// The scanned instructions between two rows.
#[derive(Clone, Copy)]
pub(super) enum RowEffect {
    /// None that changes this row.
    Unchanged(RowId),
    /// Instructions that change the row.
    Step(RowTransition),
}

impl RowEffect {
    /// The next row, if the transition is cached.
    #[inline]
    pub(super) fn row(&self, transitions: &TransitionCache) -> Option<RowId> {
        match self {
            RowEffect::Unchanged(row) => Some(*row),
            RowEffect::Step(step) => transitions.find(step),
        }
    }
}

/// The operands of a supported instruction.
enum OperandForm {
    /// The instruction ends the row. A distance follows, unless the opcode has it.
    Advance,
    /// That many LEB128 numbers.
    Numbers(u8),
}

impl OperandForm {
    #[inline]
    fn from_opcode(opcode: u8) -> Option<Self> {
        Some(match opcode {
            0x02..=0x04 | 0x40..=0x7f => OperandForm::Advance,
            0x00 | 0x2d | 0xc0.. => OperandForm::Numbers(0),
            0x06..=0x08 | 0x0d | 0x0e | 0x13 | 0x80..=0xbf => OperandForm::Numbers(1),
            0x05 | 0x09 | 0x0c | 0x11 | 0x12 => OperandForm::Numbers(2),
            _ => return None,
        })
    }
}

impl<'s, 'a> InstructionScan<'s, 'a> {
    pub(super) fn new(section: &'s CfiSection<'a>, cie: &'s Cie<'a>, fde: &ParsedFde<'a>) -> Self {
        InstructionScan {
            section,
            cie,
            rest: fde.instructions,
            until: fde.instructions_offset + fde.instructions.len() as u64,
            at: fde.start,
            end: fde
                .end
                .min(Vaddr(fde.start.0.saturating_add(MAX_DISTANCE_BYTES + 1))),
            row: None,
            remembered: [None; MAX_REMEMBERED],
            depth: 0,
            left: 0,
        }
    }

    /// Appends the rows of the entry. `None` leaves the rows, or their fault, to an evaluator.
    pub(super) fn rows(
        mut self,
        transitions: &TransitionCache,
        rows: &mut Vec<RowStart>,
    ) -> Option<()> {
        while self.at < self.end {
            let start = self.at;
            let row = self.pass()?.row(transitions)?;
            self.enter_row(row);
            rows.push(RowStart { start, row });
        }
        self.rest.is_empty().then_some(())
    }

    /// Sets the row that the scanned instructions make.
    pub(super) fn enter_row(&mut self, row: RowId) {
        self.row = Some(row);
    }

    /// Scans the instructions that make a row, and the one that ends it. `None` if the row also
    /// depends on something else, or another row begins at the same address.
    #[inline]
    pub(super) fn pass(&mut self) -> Option<RowEffect> {
        self.remember_and_restore()?;
        let left = self.rest.len();
        while let [opcode, rest @ ..] = self.rest
            && let OperandForm::Numbers(count) = OperandForm::from_opcode(*opcode)?
        {
            self.rest = rest;
            for _ in 0..count {
                let last = self.rest.iter().position(|byte| byte & 0x80 == 0)?;
                self.rest = self.rest.get(last + 1..)?;
            }
        }
        // Each change to undo takes at least a byte.
        if self.depth > 0 && self.left - self.rest.len() > MAX_CHANGES {
            return None;
        }
        let place = (self.until - left as u64, left - self.rest.len());
        self.advance()?;
        match (self.row, place) {
            (Some(row), (_, 0)) => Some(RowEffect::Unchanged(row)),
            (row, place) => {
                RowTransition::new(self.section, self.cie.offset, row, place).map(RowEffect::Step)
            }
        }
    }

    /// Scans instructions that restore whole rows, if they are the first of a row.
    #[inline]
    fn remember_and_restore(&mut self) -> Option<()> {
        loop {
            match self.rest {
                [REMEMBER_STATE, rest @ ..] => {
                    if self.depth == 0 {
                        self.left = self.rest.len();
                    }
                    *self.remembered.get_mut(self.depth)? = self.row;
                    self.depth += 1;
                    self.rest = rest;
                }
                [RESTORE_STATE, rest @ ..] => {
                    self.depth = self.depth.checked_sub(1)?;
                    self.row = *self.remembered.get(self.depth)?;
                    self.rest = rest;
                }
                [NOP, rest @ ..] => self.rest = rest,
                _ => return Some(()),
            }
        }
    }

    /// Scans the instruction that ends a row. `None` if the next row would not begin after it,
    /// within the entry.
    #[inline]
    fn advance(&mut self) -> Option<()> {
        let [opcode, rest @ ..] = self.rest else {
            self.at = self.end;
            return Some(());
        };
        let operand = match opcode {
            0x02 => 1,
            0x03 => 2,
            0x04 => 4,
            _ => 0,
        };
        let (operand, rest) = rest.split_at_checked(operand)?;
        let delta = match operand {
            [] => u64::from(opcode & 0x3f),
            operand => number(operand, self.section.abi.endian),
        };
        let bytes = delta.checked_mul(self.cie.code_alignment)?;
        let next = Vaddr(self.at.0.checked_add(bytes)?);
        let is_within = self.at < next && next < self.end;
        (self.at, self.rest) = (next, rest);
        is_within.then_some(())
    }
}
