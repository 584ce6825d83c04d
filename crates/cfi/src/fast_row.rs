//! The rules of the few registers that a walk needs, without the whole row.
//!
//! When a walk reaches new code, it needs the CFA and three of the rules, once for each call site.
//! The [evaluator](crate::evaluate) computes all rules, and takes four times as long. This module
//! decodes the instructions that compilers make for ordinary functions, byte by byte. Everything
//! else, including all faults, is left to the evaluator: a fast row never contradicts the
//! evaluator.

use unspool_rows::{CfaRule, Expression, Pointer, Register, RegisterRule, Vaddr, leb128};

use crate::CfiSection;
use crate::byte_reader::number;
use crate::entry::{Cie, ParsedFde};
use crate::evaluate::{MAX_CHANGES, MAX_DISTANCE_BYTES, MAX_EXPRESSION_BYTES};

/// The rules of the CFA, of the return address, and of `N` more registers at an address. It is not a
/// row of a signal frame, and its return address is not signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastRow<'a, const N: usize = 2> {
    /// The rule of the CFA.
    pub cfa: CfaRule<'a>,
    /// The rule of the return address.
    pub return_address: Option<RegisterRule<'a>>,
    /// The rules of the requested registers.
    pub watched: [Option<RegisterRule<'a>>; N],
    /// The size of pushed arguments (`DW_CFA_GNU_args_size`), in bytes.
    pub args_size: u64,
    /// The entry's first address.
    pub start: Vaddr,
    /// One past the entry's last address.
    pub end: Vaddr,
    /// The personality routine.
    pub personality: Option<Pointer>,
    /// The language-specific data area.
    pub lsda: Option<Pointer>,
}

/// The maximum number of saved states: compilers save one at a time.
const MAX_SAVED_STATES: usize = 2;

/// A row cannot overflow if all its registers are numbered below its maximum number of rules.
const MAX_SET_RULES: u64 = unspool_rows::Row::MAX_RULES as u64;

impl<'a, const N: usize> FastRow<'a, N> {
    /// Computes the rules of `fde` at `pc`, which it covers; reads no further than there. `None`
    /// leaves the row, or its fault, to an evaluator.
    // Not inlined: reading the headers does not need its stack.
    #[inline(never)]
    #[must_use]
    pub fn lookup(
        section: &CfiSection<'a>,
        cie: &Cie<'a>,
        fde: &ParsedFde<'a>,
        pc: Vaddr,
        watched: [Register; N],
        states: &mut FastRowStates<'a, N>,
    ) -> Option<Self> {
        let is_distinct = |kept: &Register| {
            *kept != cie.return_address
                && watched.iter().filter(|other| kept == *other).count() == 1
        };
        if cie.signal_frame || !watched.iter().all(is_distinct) {
            return None;
        }
        states.current = FastRowState::EMPTY;
        let mut reader = FastRowReader {
            section,
            cie,
            watched,
            states: &mut *states,
            initial: None,
            depth: 0,
            changes: 0,
            expressions: 0,
            args_size: 0,
        };
        // A CIE has no addresses: advances have no effect there.
        reader.follow(cie.instructions, fde.start, Vaddr(u64::MAX))?;
        // Compilers' CIEs have the rules of the CFA and the return address.
        if reader.states.current.watched.iter().any(Option::is_some) {
            return None;
        }
        reader.initial = reader.states.current.return_address;
        (reader.depth, reader.changes) = (0, 0);
        reader.follow(fde.instructions, fde.start, pc)?;
        let args_size = reader.args_size;
        let FastRowState {
            cfa,
            return_address,
            watched,
        } = states.current;
        Some(FastRow {
            cfa,
            return_address,
            watched,
            args_size,
            start: fde.start,
            end: fde.end,
            personality: cie.personality,
            lsda: fde.lsda,
        })
    }
}

/// Storage for [`FastRow::lookup`]: its contents before do not matter.
#[derive(Debug, Clone)]
pub struct FastRowStates<'a, const N: usize> {
    current: FastRowState<'a, N>,
    remembered: [FastRowState<'a, N>; MAX_SAVED_STATES],
}

impl<const N: usize> FastRowStates<'_, N> {
    /// New storage.
    #[must_use]
    pub const fn new() -> Self {
        FastRowStates {
            current: FastRowState::EMPTY,
            remembered: [FastRowState::EMPTY; MAX_SAVED_STATES],
        }
    }
}

impl<const N: usize> Default for FastRowStates<'_, N> {
    fn default() -> Self {
        FastRowStates::new()
    }
}

/// The row being built.
#[derive(Debug, Clone, Copy)]
struct FastRowState<'a, const N: usize> {
    cfa: CfaRule<'a>,
    return_address: Option<RegisterRule<'a>>,
    watched: [Option<RegisterRule<'a>>; N],
}

struct FastRowReader<'s, 'a, const N: usize> {
    section: &'s CfiSection<'a>,
    cie: &'s Cie<'a>,
    watched: [Register; N],
    states: &'s mut FastRowStates<'a, N>,
    /// The CIE's rule of the return address. It has none of the requested registers.
    initial: Option<RegisterRule<'a>>,
    depth: usize,
    /// The number of rules set while a state was saved: each is at most one change to undo.
    changes: usize,
    /// The total length of all expressions so far, in bytes: an upper bound for each row.
    expressions: usize,
    /// Not part of a state: as for libgcc, restoring one does not change it.
    args_size: u64,
}

impl<'a, const N: usize> FastRowReader<'_, 'a, N> {
    /// Follows instructions up to the one that passes `pc`. The first is at `start`.
    fn follow(&mut self, instructions: &'a [u8], start: Vaddr, pc: Vaddr) -> Option<()> {
        let mut rest = instructions;
        let mut at = start;
        while let [opcode, behind @ ..] = rest {
            rest = behind;
            let delta = match opcode {
                0x40..=0x7f => u64::from(opcode & 0x3f),
                0x02 => self.delta(&mut rest, 1)?,
                0x03 => self.delta(&mut rest, 2)?,
                0x04 => self.delta(&mut rest, 4)?,
                _ => {
                    self.apply(*opcode, &mut rest)?;
                    continue;
                }
            };
            at = Vaddr(at.0.checked_add(delta.checked_mul(self.cie.code_alignment)?)?);
            if at.0 - start.0 > MAX_DISTANCE_BYTES {
                return None;
            }
            if at > pc {
                break;
            }
        }
        Some(())
    }

    fn delta(&self, rest: &mut &'a [u8], size: usize) -> Option<u64> {
        Some(number(leb128::take(rest, size)?, self.section.abi.endian))
    }

    /// Applies an instruction that stays in the row.
    #[inline]
    fn apply(&mut self, opcode: u8, rest: &mut &'a [u8]) -> Option<()> {
        match opcode {
            // DW_CFA_offset, DW_CFA_def_cfa_offset, DW_CFA_restore: nearly all.
            0x80..=0xbf => self.offset(u64::from(opcode & 0x3f), rest),
            0x0e => {
                let to = i64::try_from(leb128::unsigned(rest)?).ok()?;
                match &mut self.states.current.cfa {
                    CfaRule::RegisterOffset { offset, .. } => *offset = to,
                    CfaRule::Expression(_) | CfaRule::Undefined => return None,
                }
                Some(())
            }
            0xc0..=0xff => {
                let register = u64::from(opcode & 0x3f);
                let is_column = u64::from(self.cie.return_address.0) == register;
                self.set(register, self.initial.filter(|_| is_column))
            }
            _ => self.apply_other(opcode, rest),
        }
    }

    fn apply_other(&mut self, opcode: u8, rest: &mut &'a [u8]) -> Option<()> {
        match opcode {
            // DW_CFA_nop
            0x00 => Some(()),
            // DW_CFA_offset_extended
            0x05 => {
                let register = leb128::unsigned(rest)?;
                self.offset(register, rest)
            }
            // DW_CFA_undefined
            0x07 => self.set(leb128::unsigned(rest)?, Some(RegisterRule::Undefined)),
            // DW_CFA_same_value
            0x08 => self.set(leb128::unsigned(rest)?, Some(RegisterRule::SameValue)),
            // DW_CFA_remember_state
            0x0a => {
                *self.states.remembered.get_mut(self.depth)? = self.states.current;
                self.depth += 1;
                Some(())
            }
            // DW_CFA_restore_state
            0x0b => {
                self.depth = self.depth.checked_sub(1)?;
                self.states.current = *self.states.remembered.get(self.depth)?;
                Some(())
            }
            // DW_CFA_def_cfa
            0x0c => {
                self.states.current.cfa = CfaRule::RegisterOffset {
                    register: register(rest)?,
                    offset: i64::try_from(leb128::unsigned(rest)?).ok()?,
                };
                Some(())
            }
            // DW_CFA_def_cfa_register
            0x0d => {
                let to = register(rest)?;
                match &mut self.states.current.cfa {
                    CfaRule::RegisterOffset { register, .. } => *register = to,
                    CfaRule::Expression(_) | CfaRule::Undefined => return None,
                }
                Some(())
            }
            // DW_CFA_def_cfa_expression
            0x0f => {
                self.states.current.cfa = CfaRule::Expression(self.expression(rest)?);
                Some(())
            }
            // DW_CFA_expression
            0x10 => {
                let register = leb128::unsigned(rest)?;
                let expression = self.expression(rest)?;
                self.set(register, Some(RegisterRule::Expression(expression)))
            }
            // DW_CFA_GNU_args_size
            0x2e => {
                self.args_size = leb128::unsigned(rest)?;
                Some(())
            }
            _ => None,
        }
    }

    #[inline]
    fn offset(&mut self, register: u64, rest: &mut &'a [u8]) -> Option<()> {
        let factored = i64::try_from(leb128::unsigned(rest)?).ok()?;
        let offset = factored.checked_mul(self.cie.data_alignment)?;
        self.set(register, Some(RegisterRule::Offset(offset)))
    }

    fn expression(&mut self, rest: &mut &'a [u8]) -> Option<Expression<'a>> {
        let length = usize::try_from(leb128::unsigned(rest)?).ok()?;
        let bytes = leb128::take(rest, length)?;
        self.expressions = self.expressions.checked_add(length)?;
        (self.expressions <= MAX_EXPRESSION_BYTES).then_some(Expression(bytes))
    }

    #[inline]
    fn set(&mut self, register: u64, rule: Option<RegisterRule<'a>>) -> Option<()> {
        if register >= MAX_SET_RULES {
            return None;
        }
        self.changes += usize::from(self.depth > 0);
        if self.changes > MAX_CHANGES {
            return None;
        }
        let (column, watched) = (self.cie.return_address, self.watched);
        if let Some(slot) = self.states.current.rule(column, watched, register) {
            *slot = rule;
        }
        Some(())
    }
}

impl<'a, const N: usize> FastRowState<'a, N> {
    const EMPTY: FastRowState<'a, N> = FastRowState {
        cfa: CfaRule::Undefined,
        return_address: None,
        watched: [None; N],
    };

    /// The rule of a register, if it is tracked.
    #[inline]
    fn rule(
        &mut self,
        column: Register,
        watched: [Register; N],
        register: u64,
    ) -> Option<&mut Option<RegisterRule<'a>>> {
        if u64::from(column.0) == register {
            return Some(&mut self.return_address);
        }
        let mut rules = watched.iter().zip(&mut self.watched);
        let (_, rule) = rules.find(|(kept, _)| u64::from(kept.0) == register)?;
        Some(rule)
    }
}

fn register(rest: &mut &[u8]) -> Option<Register> {
    u16::try_from(leb128::unsigned(rest)?).ok().map(Register)
}
