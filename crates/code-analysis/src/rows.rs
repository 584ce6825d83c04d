//! Rows from states: the rules for the CFA and the caller's registers before an instruction.
//!
//! A row is proven by construction. Each location in it holds the right value on all paths. If
//! there is no such location, there is a [`MissingRow`] instead of a row.

use unspool_rows::expression::operation;
use unspool_rows::leb128::{put_signed, put_unsigned};
use unspool_rows::row::TooManyRules;
use unspool_rows::table::TableError;
use unspool_rows::{CfaRule, Expression, Register, RegisterRule, Row, RowId, Table};

use crate::arch::AbiInfo;
use crate::code::InsnId;
use crate::dataflow::{Analysis, VisitFilter};
use crate::op::{Flow, MEMORY_BIT, NEW_SLOT_BIT};
use crate::state::AbstractState;
use crate::value::{AbstractValue, ValueFact};

/// Location of the CFA. Registers have DWARF numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CfaLocation {
    /// A register plus an offset in bytes.
    Register(u8, i64),
    /// The word in memory at a register plus `at`, plus `offset`.
    Dereferenced {
        /// The register.
        register: u8,
        /// Offset of the word from the register, in bytes.
        at: i64,
        /// Added to the word, in bytes.
        offset: i64,
    },
}

/// Location of the caller's value of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SavedLocation {
    /// In the register.
    SameValue,
    /// In memory, at the CFA plus an offset in bytes.
    CfaOffset(i64),
    /// In memory, at another register plus an offset in bytes.
    RegisterOffset(u8, i64),
    /// In another register.
    Register(u8),
    /// Nowhere: it is overwritten.
    Undefined,
}

/// Why there is no row before an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MissingRow {
    /// No path to it was found.
    #[error("no known path leads here")]
    Unreached,
    /// It is not known what the instruction does.
    #[error("this instruction is not known")]
    UnknownInsn,
    /// The CFA is not at a known distance from a register.
    #[error("no register or stack slot is at a known distance from the CFA")]
    Cfa,
    /// The return address has no known location.
    #[error("the return address is at no known location")]
    ReturnAddress,
    /// A register may or may not hold its entry value.
    #[error("the location of a register's caller value depends on the path that led here")]
    Register(u8),
}

/// Greatest number of registers that calls preserve.
const MAX_PRESERVED_REGISTERS: usize = 12;

/// The rules of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProvenRules {
    /// Rule for the CFA.
    pub cfa: CfaLocation,
    /// Rule for the return address.
    pub return_address: SavedLocation,
    preserved: [SavedLocation; MAX_PRESERVED_REGISTERS],
}

impl ProvenRules {
    /// The row at the entry of a function.
    #[must_use]
    pub fn function_entry(abi_info: &AbiInfo) -> ProvenRules {
        ProvenRules {
            cfa: CfaLocation::Register(abi_info.stack_pointer, abi_info.call_pushes.into()),
            return_address: match abi_info.call_pushes {
                0 => SavedLocation::SameValue,
                pushed => SavedLocation::CfaOffset(-i64::from(pushed)),
            },
            preserved: [SavedLocation::SameValue; MAX_PRESERVED_REGISTERS],
        }
    }

    /// The row that the state before an instruction proves.
    ///
    /// The CFA rule uses the first of these that has a known distance: a frame pointer that points
    /// at its own saved value, the stack pointer, another register, the contents of a stack slot. A
    /// register is in its stack slot from the save on until the slot is freed.
    ///
    /// # Errors
    ///
    /// [`MissingRow`]: something that a row needs has no known location.
    pub fn from_state(
        state: &AbstractState,
        abi_info: &AbiInfo,
    ) -> Result<ProvenRules, MissingRow> {
        ProvenRules::from_locations(&LocationFinder {
            state,
            abi_info,
            clobbered: 0,
            red_zone: abi_info.red_zone.into(),
        })
    }

    /// The row that the state before a call proves. It holds until the call returns, because
    /// unwinders find it by the return address. The callee may change registers and the stack below
    /// the stack pointer.
    ///
    /// # Errors
    ///
    /// As for [`ProvenRules::from_state`].
    pub fn from_call_state(
        state: &AbstractState,
        abi_info: &AbiInfo,
    ) -> Result<ProvenRules, MissingRow> {
        ProvenRules::from_locations(&LocationFinder {
            state,
            abi_info,
            clobbered: abi_info.clobbered,
            red_zone: 0,
        })
    }

    fn from_locations(finder: &LocationFinder<'_>) -> Result<ProvenRules, MissingRow> {
        let abi_info = finder.abi_info;
        let mut preserved = [SavedLocation::SameValue; MAX_PRESERVED_REGISTERS];
        for (register, saved) in abi_info.preserved.iter().zip(&mut preserved) {
            *saved = finder.saved(*register)?;
        }
        Ok(ProvenRules {
            cfa: finder.cfa().ok_or(MissingRow::Cfa)?,
            return_address: match finder.saved(abi_info.return_address) {
                Ok(SavedLocation::Undefined) | Err(_) => return Err(MissingRow::ReturnAddress),
                Ok(saved) => saved,
            },
            preserved,
        })
    }

    /// The registers that calls preserve, and the locations of the caller's values.
    pub fn preserved(&self, abi_info: &AbiInfo) -> impl Iterator<Item = (u8, SavedLocation)> {
        let registers = abi_info.preserved.iter().copied();
        registers.zip(self.preserved)
    }

    /// Whether all registers are unchanged or saved at a distance from the CFA, and the CFA is at a
    /// distance from a register. Across a call, that can only be a register that calls preserve.
    fn is_plain(&self) -> bool {
        let mut saved = self.preserved.iter().chain([&self.return_address]);
        matches!(self.cfa, CfaLocation::Register(..))
            && saved.all(|saved| {
                matches!(
                    saved,
                    SavedLocation::SameValue | SavedLocation::CfaOffset(_)
                )
            })
    }

    /// Adds the row to a table, without the rules that a row implies anyway.
    ///
    /// # Errors
    ///
    /// The table is full.
    pub fn intern(&self, table: &mut Table, abi_info: &AbiInfo) -> Result<RowId, TableError> {
        let column = abi_info.return_address;
        let all = self
            .preserved(abi_info)
            .chain([(column, self.return_address)]);
        let expressions: Vec<(u8, SavedLocation, Vec<u8>)> = all
            .map(|(register, saved)| (register, saved, saved.address_expression()))
            .collect();
        let cfa = self.cfa.expression();
        let mut row = Row::new(Register(column.into()));
        row.cfa = match self.cfa {
            CfaLocation::Register(register, offset) => CfaRule::RegisterOffset {
                register: Register(register.into()),
                offset,
            },
            CfaLocation::Dereferenced { .. } => CfaRule::Expression(Expression(&cfa)),
        };
        for (register, saved, address) in &expressions {
            let rule = match *saved {
                SavedLocation::SameValue => None,
                SavedLocation::CfaOffset(offset) => Some(RegisterRule::Offset(offset)),
                SavedLocation::RegisterOffset(..) => {
                    Some(RegisterRule::Expression(Expression(address)))
                }
                SavedLocation::Register(other) => {
                    Some(RegisterRule::Register(Register(other.into())))
                }
                SavedLocation::Undefined => Some(RegisterRule::Undefined),
            };
            // There are fewer registers than a row has room for.
            let set: Result<_, TooManyRules> = row.set_rule(Register((*register).into()), rule);
            debug_assert!(set.is_ok());
        }
        table.intern(&row)
    }
}

impl CfaLocation {
    /// The expression for its value.
    #[must_use]
    pub fn expression(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            CfaLocation::Register(register, offset) => put_register(&mut bytes, register, offset),
            CfaLocation::Dereferenced {
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

impl SavedLocation {
    /// The expression for the address of [`SavedLocation::RegisterOffset`]; empty for other
    /// locations.
    #[must_use]
    pub fn address_expression(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let SavedLocation::RegisterOffset(register, offset) = self {
            put_register(&mut bytes, register, offset);
        }
        bytes
    }
}

/// `DW_OP_bregx` has any register, but is one byte longer.
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
struct LocationFinder<'s> {
    state: &'s AbstractState,
    abi_info: &'s AbiInfo,
    /// Registers that no location may use: bit n stands for register n.
    clobbered: u64,
    /// Bytes below the stack pointer that keep their values.
    red_zone: i64,
}

impl LocationFinder<'_> {
    fn cfa_value(&self) -> AbstractValue {
        let sp = Register(self.abi_info.stack_pointer.into());
        AbstractValue::entry_value_plus(sp, self.abi_info.call_pushes)
    }

    /// The stack pointer, the registers that calls preserve (the frame pointer is the second of
    /// x86-64), then the others.
    fn registers(&self) -> impl Iterator<Item = u8> {
        let sp = self.abi_info.stack_pointer;
        let preserved = self.abi_info.preserved.iter().copied();
        [sp].into_iter()
            .chain(preserved)
            .chain(0..self.abi_info.machine_registers)
            .filter(|register| self.clobbered >> register & 1 == 0)
    }

    /// A register at a known distance from an address, and its distance below the address.
    fn register_near(&self, address: AbstractValue) -> Option<(u8, i64)> {
        self.registers().find_map(|register| {
            let distance = address.distance_from(self.state.get(register))?;
            Some((register, distance))
        })
    }

    /// A register that points at its own saved value is a frame pointer. The CFA rule uses it while
    /// that holds, as compilers do, whatever happens to the stack pointer.
    fn frame_pointer(&self, cfa: AbstractValue) -> Option<(u8, i64)> {
        let mut preserved = self.abi_info.preserved.iter();
        preserved.find_map(|register| {
            let points_at = self.state.get(*register);
            let own = AbstractValue::entry_value(*register);
            let is_frame = points_at.is_address() && self.state.load(points_at) == Some(own);
            let distance = cfa.distance_from(points_at).filter(|_| is_frame)?;
            Some((*register, distance))
        })
    }

    fn cfa(&self) -> Option<CfaLocation> {
        let cfa = self.cfa_value();
        if let Some((register, offset)) =
            self.frame_pointer(cfa).or_else(|| self.register_near(cfa))
        {
            return Some(CfaLocation::Register(register, offset));
        }
        self.state.slots().iter().find_map(|slot| {
            let offset = cfa.distance_from(slot.value)?;
            let (register, at) = self
                .register_near(slot.address)
                .filter(|_| !self.is_below(slot.address, 0))?;
            Some(CfaLocation::Dereferenced {
                register,
                at,
                offset,
            })
        })
    }

    /// Whether an address is more than this many bytes below the stack pointer.
    fn is_below(&self, address: AbstractValue, bytes: i64) -> bool {
        let sp = self.state.get(self.abi_info.stack_pointer);
        let distance = address.distance_from(sp);
        distance.is_some_and(|distance| distance < -bytes)
    }

    /// The stack slot with a value, at most this many bytes below the stack pointer.
    fn slot(&self, wanted: AbstractValue, below: i64) -> Option<SavedLocation> {
        let cfa = self.cfa_value();
        let slots = self.state.slots().iter();
        let mut holding =
            slots.filter(|slot| slot.value == wanted && !self.is_below(slot.address, below));
        let at_cfa = holding.clone();
        // Of several, the one nearest to the CFA.
        let offset = at_cfa
            .filter_map(|slot| slot.address.distance_from(cfa))
            .max();
        if let Some(offset) = offset {
            return Some(SavedLocation::CfaOffset(offset));
        }
        let (register, offset) = holding.find_map(|slot| self.register_near(slot.address))?;
        Some(SavedLocation::RegisterOffset(register, offset))
    }

    /// Location of a register's entry value.
    fn saved(&self, register: u8) -> Result<SavedLocation, MissingRow> {
        let wanted = AbstractValue::entry_value(register);
        let held = self.state.get(register);
        let mut slots = self.state.slots().iter();
        let is_saved = slots.any(|slot| slot.value == wanted);
        if is_saved && let Some(slot) = self.slot(wanted, 0) {
            return Ok(slot);
        }
        let is_machine_register = register < self.abi_info.machine_registers;
        if is_machine_register && held == wanted {
            return Ok(SavedLocation::SameValue);
        }
        if is_saved && let Some(slot) = self.slot(wanted, self.red_zone) {
            return Ok(slot);
        }
        let mut registers = self.registers();
        if let Some(other) = registers.find(|other| self.state.get(*other) == wanted) {
            return Ok(SavedLocation::Register(other));
        }
        match held.fact() {
            ValueFact::Unknown => Err(MissingRow::Register(register)),
            _ => Ok(SavedLocation::Undefined),
        }
    }
}

impl Analysis<'_> {
    /// Visits each reached instruction in the order of the unit's ranges, with the state before it
    /// and its row. The last argument says whether the row may differ from the one visited before.
    pub fn visit_rows(
        &self,
        mut visit: impl FnMut(InsnId, &AbstractState, Result<ProvenRules, MissingRow>, bool),
    ) {
        let (abi_info, code) = (self.abi_info(), self.code());
        let preserved = abi_info.preserved.iter().chain([&abi_info.stack_pointer]);
        let telling = preserved.fold(MEMORY_BIT | NEW_SLOT_BIT, |all, register| {
            all | 1 << (register & 63)
        });
        let mut last: Option<CachedRow> = None;
        self.visit_filtered(|insn, state, written| {
            let is_call = code.flow(insn).is_some_and(Flow::is_call);
            let known = last.filter(|last| {
                if last.is_plain {
                    written & telling == 0
                } else {
                    written == 0 && last.is_call == is_call
                }
            });
            let cached = known.unwrap_or_else(|| CachedRow::new(state, abi_info, is_call));
            last = Some(cached);
            match code.flow(insn) {
                Some(Flow::Unknown) => visit(insn, state, Err(MissingRow::UnknownInsn), true),
                _ => visit(insn, state, cached.rules, known.is_none()),
            }
            VisitFilter::ALL
        });
    }
}

/// The row before an instruction.
#[derive(Clone, Copy)]
struct CachedRow {
    rules: Result<ProvenRules, MissingRow>,
    /// Whether it is a row across a call.
    is_call: bool,
    /// Whether it holds both before the instruction and across a call, and for any contents of
    /// registers that calls do not preserve.
    is_plain: bool,
}

impl CachedRow {
    fn new(state: &AbstractState, abi_info: &AbiInfo, is_call: bool) -> CachedRow {
        let across = ProvenRules::from_call_state(state, abi_info);
        // A value that is not at a distance from the CFA may be found by a register that calls do
        // not preserve.
        let cfa = AbstractValue::entry_value(abi_info.stack_pointer);
        let mut slots = state.slots().iter();
        let is_plain = across.is_ok_and(|rules| rules.is_plain())
            && slots.all(|slot| slot.address.distance_from(cfa).is_some());
        CachedRow {
            rules: if is_call || is_plain {
                across
            } else {
                ProvenRules::from_state(state, abi_info)
            },
            is_call,
            is_plain,
        }
    }
}
