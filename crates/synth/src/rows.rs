//! Rows out of states: where the CFA and the caller's registers are before an instruction.
//!
//! A row is proven by how it is made: each place that it names holds the value that it is named for, whichever way
//! control came. Where there is no such place, there is no row, but a reason ([`NoRow`]).

use unspool_ir::expression::operation;
use unspool_ir::leb128::{put_signed, put_unsigned};
use unspool_ir::row::TooManyRules;
use unspool_ir::table::TableError;
use unspool_ir::{CfaRule, Expression, Register, RegisterRule, Row, RowId, Table};

use crate::analysis::{Analysis, Watch};
use crate::arch::Facts;
use crate::code::InsnId;
use crate::op::{Flow, MEMORY, STORED};
use crate::state::State;
use crate::value::{Known, Value};

/// Where the CFA is. Registers are by their DWARF numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cfa {
    /// A register plus so many bytes.
    Register(u8, i64),
    /// What is in memory at a register plus `at`, plus `offset`.
    Loaded {
        /// The register.
        register: u8,
        /// What is added to it, in bytes.
        at: i64,
        /// What is added to the word there.
        offset: i64,
    },
}

/// Where the caller's value of a register is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Saved {
    /// In the register.
    Same,
    /// In memory, at the CFA plus so many bytes.
    AtCfa(i64),
    /// In memory, at another register plus so many bytes.
    At(u8, i64),
    /// In another register.
    In(u8),
    /// Nowhere: something else was written over it.
    Lost,
}

/// Why there is no row before an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRow {
    /// Nothing is known to lead there.
    #[error("no known path leads here")]
    Unreached,
    /// The CFA is at no known distance from a register.
    #[error("no register or stack slot is at a known distance from the CFA")]
    Cfa,
    /// The return address is not where it could be told.
    #[error("the return address is at no known location")]
    ReturnAddress,
    /// A register may or may not hold what it held at entry.
    #[error("the location of a register's caller value depends on the path that led here")]
    Register(u8),
}

/// The most registers that calls of a machine preserve.
const MOST: usize = 12;

/// What a row says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Where the CFA is.
    pub cfa: Cfa,
    /// Where the return address is.
    pub return_address: Saved,
    preserved: [Saved; MOST],
}

impl Rules {
    /// The row at the entry of a function.
    #[must_use]
    pub fn at_entry(facts: &Facts) -> Rules {
        Rules {
            cfa: Cfa::Register(facts.stack_pointer, facts.call_pushes.into()),
            return_address: match facts.call_pushes {
                0 => Saved::Same,
                pushed => Saved::AtCfa(-i64::from(pushed)),
            },
            preserved: [Saved::Same; MOST],
        }
    }

    /// The row that the state before an instruction proves.
    ///
    /// The CFA is counted from a frame pointer while there is one, which points at its own saved value; else from the
    /// stack pointer where that is at a known distance, else from another register, else from what a stack slot holds. A register is in its stack slot from the time that it is
    /// saved there until the slot is given back.
    ///
    /// # Errors
    ///
    /// [`NoRow`]: something that a row must name is at no known place.
    pub fn of(state: &State, facts: &Facts) -> Result<Rules, NoRow> {
        Rules::in_places(&Places {
            state,
            facts,
            clobbered: 0,
            red_zone: facts.red_zone.into(),
        })
    }

    /// The row that the state before a call proves. It holds until the call returns, since it is the one that is found
    /// by the return address: the callee may change registers and what is below the stack pointer.
    ///
    /// # Errors
    ///
    /// As for [`Rules::of`].
    pub fn across_call(state: &State, facts: &Facts) -> Result<Rules, NoRow> {
        Rules::in_places(&Places {
            state,
            facts,
            clobbered: facts.clobbered,
            red_zone: 0,
        })
    }

    fn in_places(places: &Places<'_>) -> Result<Rules, NoRow> {
        let facts = places.facts;
        let mut preserved = [Saved::Same; MOST];
        for (register, saved) in facts.preserved.iter().zip(&mut preserved) {
            *saved = places.saved(*register)?;
        }
        Ok(Rules {
            cfa: places.cfa().ok_or(NoRow::Cfa)?,
            return_address: match places.saved(facts.return_address) {
                Ok(Saved::Lost) | Err(_) => return Err(NoRow::ReturnAddress),
                Ok(saved) => saved,
            },
            preserved,
        })
    }

    /// The registers that calls preserve, and where the caller's values are.
    pub fn preserved(&self, facts: &Facts) -> impl Iterator<Item = (u8, Saved)> {
        let registers = facts.preserved.iter().copied();
        registers.zip(self.preserved)
    }

    /// Whether all is in its register still, or where the CFA says; across a call, the CFA cannot be counted from another
    /// register than one that calls preserve.
    fn is_plain(&self) -> bool {
        let mut saved = self.preserved.iter().chain([&self.return_address]);
        matches!(self.cfa, Cfa::Register(..))
            && saved.all(|saved| matches!(saved, Saved::Same | Saved::AtCfa(_)))
    }

    /// Puts the row into a table, without the rules that hold where a row has none.
    ///
    /// # Errors
    ///
    /// The table is full.
    pub fn intern(&self, table: &mut Table, facts: &Facts) -> Result<RowId, TableError> {
        let column = facts.return_address;
        let all = self.preserved(facts).chain([(column, self.return_address)]);
        let expressions: Vec<(u8, Saved, Vec<u8>)> = all
            .map(|(register, saved)| (register, saved, saved.address()))
            .collect();
        let cfa = self.cfa.expression();
        let mut row = Row::new(Register(column.into()));
        row.cfa = match self.cfa {
            Cfa::Register(register, offset) => CfaRule::RegisterOffset {
                register: Register(register.into()),
                offset,
            },
            Cfa::Loaded { .. } => CfaRule::Expression(Expression(&cfa)),
        };
        for (register, saved, address) in &expressions {
            let rule = match *saved {
                Saved::Same => None,
                Saved::AtCfa(offset) => Some(RegisterRule::Offset(offset)),
                Saved::At(..) => Some(RegisterRule::Expression(Expression(address))),
                Saved::In(other) => Some(RegisterRule::Register(Register(other.into()))),
                Saved::Lost => Some(RegisterRule::Undefined),
            };
            // There are fewer registers than a row has room for.
            let set: Result<_, TooManyRules> = row.set_rule(Register((*register).into()), rule);
            debug_assert!(set.is_ok());
        }
        table.intern(&row)
    }
}

impl Cfa {
    /// The expression that yields it.
    #[must_use]
    pub fn expression(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Cfa::Register(register, offset) => put_register(&mut bytes, register, offset),
            Cfa::Loaded {
                register,
                at,
                offset,
            } => {
                put_register(&mut bytes, register, at);
                bytes.push(operation::DW_OP_DEREF);
                match u64::try_from(offset) {
                    Ok(0) => {}
                    Ok(offset) => {
                        bytes.push(operation::DW_OP_PLUS_UCONST);
                        put_unsigned(&mut bytes, offset);
                    }
                    Err(_) => {
                        bytes.push(operation::DW_OP_CONSTS);
                        put_signed(&mut bytes, offset);
                        bytes.push(operation::DW_OP_PLUS);
                    }
                }
            }
        }
        bytes
    }
}

impl Saved {
    /// The expression that yields the address of [`Saved::At`]; nothing for others.
    #[must_use]
    pub fn address(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Saved::At(register, offset) = self {
            put_register(&mut bytes, register, offset);
        }
        bytes
    }
}

/// `DW_OP_bregx` says any register, but one byte longer.
fn put_register(bytes: &mut Vec<u8>, register: u8, offset: i64) {
    const DW_OP_BREG0: u8 = 0x70;
    match register {
        0..=31 => bytes.push(DW_OP_BREG0 + register),
        _ => {
            bytes.push(operation::DW_OP_BREGX);
            put_unsigned(bytes, register.into());
        }
    }
    put_signed(bytes, offset);
}

/// Finds values in a state.
struct Places<'s> {
    state: &'s State,
    facts: &'s Facts,
    /// Registers that no place is relative to: bit n stands for register n.
    clobbered: u64,
    /// How far below the stack pointer memory keeps its value, in bytes.
    red_zone: i64,
}

impl Places<'_> {
    fn the_cfa(&self) -> Value {
        let sp = Register(self.facts.stack_pointer.into());
        Value::entry(sp, self.facts.call_pushes)
    }

    /// The stack pointer, the registers that calls preserve (the frame pointer is the second of x86-64), the others.
    fn registers(&self) -> impl Iterator<Item = u8> {
        let sp = self.facts.stack_pointer;
        let preserved = self.facts.preserved.iter().copied();
        [sp].into_iter()
            .chain(preserved)
            .chain(0..self.facts.return_address)
            .filter(|register| self.clobbered >> register & 1 == 0)
    }

    /// A register at a known distance from an address, and how far below the address it is.
    fn near(&self, address: Value) -> Option<(u8, i64)> {
        self.registers().find_map(|register| {
            let distance = address.distance_from(self.state.get(register))?;
            Some((register, distance))
        })
    }

    /// A register that points at its own saved value is a frame pointer: the CFA is counted from it as long as that
    /// is so, as compilers do, whatever becomes of the stack pointer.
    fn frame_pointer(&self, cfa: Value) -> Option<(u8, i64)> {
        let mut preserved = self.facts.preserved.iter();
        preserved.find_map(|register| {
            let points_at = self.state.get(*register);
            let own = Value::at_entry(*register);
            let is_frame = points_at.is_address() && self.state.load(points_at) == Some(own);
            let distance = cfa.distance_from(points_at).filter(|_| is_frame)?;
            Some((*register, distance))
        })
    }

    fn cfa(&self) -> Option<Cfa> {
        let cfa = self.the_cfa();
        if let Some((register, offset)) = self.frame_pointer(cfa).or_else(|| self.near(cfa)) {
            return Some(Cfa::Register(register, offset));
        }
        self.state.slots().iter().find_map(|slot| {
            let offset = cfa.distance_from(slot.holds)?;
            let (register, at) = self.near(slot.at).filter(|_| !self.is_below(slot.at, 0))?;
            Some(Cfa::Loaded {
                register,
                at,
                offset,
            })
        })
    }

    /// Whether an address is more than so many bytes below the stack pointer.
    fn is_below(&self, address: Value, bytes: i64) -> bool {
        let sp = self.state.get(self.facts.stack_pointer);
        let distance = address.distance_from(sp);
        distance.is_some_and(|distance| distance < -bytes)
    }

    /// The stack slot that holds a value, not more than so many bytes below the stack pointer.
    fn slot(&self, wanted: Value, below: i64) -> Option<Saved> {
        let cfa = self.the_cfa();
        let slots = self.state.slots().iter();
        let mut holding =
            slots.filter(|slot| slot.holds == wanted && !self.is_below(slot.at, below));
        let at_cfa = holding.clone();
        // Of several, the one nearest to the CFA.
        let offset = at_cfa.filter_map(|slot| slot.at.distance_from(cfa)).max();
        if let Some(offset) = offset {
            return Some(Saved::AtCfa(offset));
        }
        let (register, offset) = holding.find_map(|slot| self.near(slot.at))?;
        Some(Saved::At(register, offset))
    }

    /// Where what a register held at entry is.
    fn saved(&self, register: u8) -> Result<Saved, NoRow> {
        let wanted = Value::at_entry(register);
        let held = self.state.get(register);
        let mut slots = self.state.slots().iter();
        let is_saved = slots.any(|slot| slot.holds == wanted);
        if is_saved && let Some(slot) = self.slot(wanted, 0) {
            return Ok(slot);
        }
        let is_machine_register = register != self.facts.return_address;
        if is_machine_register && held == wanted {
            return Ok(Saved::Same);
        }
        if is_saved && let Some(slot) = self.slot(wanted, self.red_zone) {
            return Ok(slot);
        }
        let mut registers = self.registers();
        if let Some(other) = registers.find(|other| self.state.get(*other) == wanted) {
            return Ok(Saved::In(other));
        }
        match held.known() {
            Known::Unknown => Err(NoRow::Register(register)),
            _ => Ok(Saved::Lost),
        }
    }
}

impl Analysis<'_> {
    /// Tells of each instruction that something leads to, in the order of the unit's ranges, what holds before it, its
    /// row, and whether that may be another one than the row told before.
    pub fn visit_rules(&self, mut visit: impl FnMut(InsnId, &State, Result<Rules, NoRow>, bool)) {
        let (facts, code) = (self.facts(), self.code());
        let preserved = facts.preserved.iter().chain([&facts.stack_pointer]);
        let telling = preserved.fold(MEMORY | STORED, |all, register| all | 1 << (register & 63));
        let mut last: Option<Told> = None;
        self.watch(|insn, state, written| {
            let is_call = matches!(code.flow(insn), Some(Flow::Call(_) | Flow::IndirectCall));
            let known = last.filter(|last| match last.is_plain {
                true => written & telling == 0,
                false => written == 0 && last.is_call == is_call,
            });
            let told = known.unwrap_or_else(|| Told::of(state, facts, is_call));
            last = Some(told);
            visit(insn, state, told.rules, known.is_none());
            Watch::ALL
        });
    }
}

/// The row before an instruction.
#[derive(Clone, Copy)]
struct Told {
    rules: Result<Rules, NoRow>,
    /// Whether it was asked for across a call.
    is_call: bool,
    /// Whether it holds both before the instruction and across a call, and whatever becomes of registers that calls do
    /// not preserve.
    is_plain: bool,
}

impl Told {
    fn of(state: &State, facts: &Facts, is_call: bool) -> Told {
        let across = Rules::across_call(state, facts);
        // What is not at a distance from the CFA may be found from a register that calls do not preserve.
        let cfa = Value::at_entry(facts.stack_pointer);
        let mut slots = state.slots().iter();
        let is_plain = across.is_ok_and(|rules| rules.is_plain())
            && slots.all(|slot| slot.at.distance_from(cfa).is_some());
        Told {
            rules: match is_call || is_plain {
                true => across,
                false => Rules::of(state, facts),
            },
            is_call,
            is_plain,
        }
    }
}
