//! Checks a row against a state.

use std::collections::HashMap;

use unspool_code_analysis::arch::AbiInfo;
use unspool_code_analysis::op::ReturnTarget;
use unspool_code_analysis::state::AbstractSlot;
use unspool_code_analysis::verifier::state::{RegisterContents, VerifierState};
use unspool_code_analysis::{AbstractState, AbstractValue, ValueFact};
use unspool_rows::{Abi, Row, RowId, Table};

use crate::declared_row::{DeclaredRow, RuleLocation};
use crate::expressions::{ExpressionCheck, ExpressionRow};
use crate::unit::{CheckedRow, UNKNOWN_FRAME_BASE};

/// Whether a rule is true on all paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It is.
    Proven,
    /// Neither proof nor contradiction was found.
    Unproven,
    /// It is not.
    Refuted,
}

/// The aspect of a row that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Aspect {
    /// The CFA.
    Cfa,
    /// The return address.
    ReturnAddress,
    /// A register that calls preserve.
    Register(u8),
}

/// The verdicts on a row before one instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowVerdicts {
    /// On the CFA.
    pub cfa: Verdict,
    /// On the return address.
    pub return_address: Verdict,
    /// On the preserved registers, in the order of [`AbiInfo::preserved`].
    pub preserved: [Verdict; DeclaredRow::MAX_PRESERVED_REGISTERS],
}

impl RowVerdicts {
    /// All are proven.
    pub(crate) const PROVEN: RowVerdicts = RowVerdicts {
        cfa: Verdict::Proven,
        return_address: Verdict::Proven,
        preserved: [Verdict::Proven; DeclaredRow::MAX_PRESERVED_REGISTERS],
    };

    /// None is proven.
    pub(crate) const UNPROVEN: RowVerdicts = RowVerdicts {
        cfa: Verdict::Unproven,
        return_address: Verdict::Unproven,
        preserved: [Verdict::Unproven; DeclaredRow::MAX_PRESERVED_REGISTERS],
    };

    /// The worst verdict on the return address and the preserved registers.
    #[must_use]
    pub fn registers(&self) -> Verdict {
        let worst = self.preserved.iter().copied().max();
        worst.unwrap_or(Verdict::Proven).max(self.return_address)
    }

    /// The worst verdict.
    #[must_use]
    pub fn worst(&self) -> Verdict {
        self.registers().max(self.cfa)
    }

    /// Join: for each aspect, the worse of two verdicts.
    #[must_use]
    pub fn join(mut self, other: &RowVerdicts) -> RowVerdicts {
        self.cfa = self.cfa.max(other.cfa);
        self.return_address = self.return_address.max(other.return_address);
        for (mine, theirs) in self.preserved.iter_mut().zip(other.preserved) {
            *mine = (*mine).max(theirs);
        }
        self
    }

    /// The same with a limit to how bad a verdict can be.
    #[must_use]
    pub(crate) fn capped_at(mut self, worst: Verdict) -> RowVerdicts {
        let own = [&mut self.cfa, &mut self.return_address];
        for verdict in own.into_iter().chain(&mut self.preserved) {
            *verdict = worst.min(*verdict);
        }
        self
    }

    /// The same without verdicts on some registers: bit n stands for register n.
    #[must_use]
    pub(crate) fn without(mut self, registers: u64, abi_info: &AbiInfo) -> RowVerdicts {
        for (register, verdict) in abi_info.preserved.iter().zip(&mut self.preserved) {
            if registers >> (register & 63) & 1 != 0 {
                *verdict = Verdict::Proven;
            }
        }
        self
    }

    /// The aspects with their verdicts.
    pub fn aspects(&self, abi_info: &AbiInfo) -> impl Iterator<Item = (Aspect, Verdict)> + use<'_> {
        let registers = abi_info.preserved.iter().copied().map(Aspect::Register);
        let own = [
            (Aspect::Cfa, self.cfa),
            (Aspect::ReturnAddress, self.return_address),
        ];
        own.into_iter()
            .chain(registers.zip(self.preserved.iter().copied()))
    }
}

/// Checks the rows of one table.
#[derive(Debug)]
pub(crate) struct RowChecker<'t> {
    pub(crate) abi_info: &'static AbiInfo,
    table: &'t Table,
    declared_rows: Vec<Option<DeclaredRow>>,
    expected_states: Vec<Option<ExpectedState>>,
    /// The rows as verifier states, if these express them; and the lowest slot.
    annotations: Vec<Option<(VerifierState, i16)>>,
    /// The rows with expressions, or with a CFA of their own.
    expressions: HashMap<RowId, ExpressionRow<'t>>,
    /// The CFA as an abstract value.
    cfa: AbstractValue,
}

impl<'t> RowChecker<'t> {
    pub(crate) fn new(table: &'t Table, abi_info: &'static AbiInfo) -> RowChecker<'t> {
        let ids = (0..u32::try_from(table.distinct_rows()).unwrap_or(u32::MAX)).map(RowId);
        let declared: Vec<_> = ids
            .map(|id| Some(DeclaredRow::from_row(&table.row(id)?, abi_info)))
            .collect();
        let cfa =
            AbstractValue::entry_value(abi_info.stack_pointer).plus(abi_info.call_pushes.into());
        let proof = |declared: &Option<DeclaredRow>| {
            ExpectedState::from_row(declared.as_ref()?, abi_info, cfa)
        };
        let expressions = (0..).map(RowId).zip(&declared);
        let expressions = expressions.filter_map(|(id, declared)| {
            let is_evaluated = |row: &&DeclaredRow| row.has_expression || row.has_own_cfa();
            declared.as_ref().filter(is_evaluated)?;
            Some((id, ExpressionRow::new(table.row(id)?, table.abi())))
        });
        RowChecker {
            abi_info,
            table,
            expressions: expressions.collect(),
            expected_states: declared.iter().map(proof).collect(),
            annotations: declared
                .iter()
                .map(|row| {
                    annotation(row.as_ref()?, abi_info)
                        .map(|frame| (frame, frame.lowest_saved_slot()))
                })
                .collect(),
            declared_rows: declared,
            cfa,
        }
    }

    pub(crate) fn abi(&self) -> Abi {
        self.table.abi()
    }

    /// A row of the table.
    pub(crate) fn row(&self, id: RowId) -> Option<Row<'t>> {
        self.table.row(id)
    }

    /// The CFA as an abstract value.
    pub(crate) fn cfa_value(&self) -> AbstractValue {
        self.cfa
    }

    /// The registers that a row's expressions read: bit n stands for register n.
    pub(crate) fn expressions_read(&self, id: RowId) -> u64 {
        self.expressions.get(&id).map_or(0, ExpressionRow::reads)
    }

    /// The declared form of a row.
    pub(crate) fn declared(&self, row: RowId) -> Option<&DeclaredRow> {
        self.declared_rows.get(row.0 as usize)?.as_ref()
    }

    /// The row declared for an address, among rows in ascending order.
    pub(crate) fn declared_in(&self, rows: &[CheckedRow], address: u64) -> Option<&DeclaredRow> {
        let behind = rows.partition_point(|row| row.start.0 <= address);
        self.declared(rows.get(behind.checked_sub(1)?)?.row)
    }

    /// Whether a simple comparison proves all of a row, as it mostly does.
    #[inline]
    pub(crate) fn matches_expected_state(&self, id: RowId, state: &AbstractState) -> bool {
        let proof = self
            .expected_states
            .get(id.0 as usize)
            .and_then(Option::as_ref);
        proof.is_some_and(|proof| {
            // Slots are in descending order.
            let lowest = proof.slots.last();
            proof.matches(state)
                && !lowest.is_some_and(|slot| self.is_below_red_zone(slot.address, state))
        })
    }

    /// A row as a verifier state, if that expresses it.
    #[inline]
    pub(crate) fn annotation(&self, id: RowId) -> Option<(VerifierState, i16)> {
        *self.annotations.get(id.0 as usize)?
    }

    /// Checks a row before the instruction at `pc`.
    pub(crate) fn check(&self, id: RowId, state: &AbstractState, pc: u64) -> RowVerdicts {
        let Some(declared) = self.declared(id) else {
            return RowVerdicts::PROVEN;
        };
        if declared.return_address == RuleLocation::Undefined {
            // The outermost frame: nothing is declared about a caller.
            return RowVerdicts::PROVEN;
        }
        let plainly = self.check_plain_rules(declared, state);
        let verdicts = match self.expressions.get(&id) {
            Some(row) => ExpressionCheck {
                abi_info: self.abi_info,
                abi: self.abi(),
                row,
                declared,
                state,
                pc,
            }
            .judge(plainly),
            None => plainly,
        };
        let is_elsewhere =
            self.is_on_other_stack(declared, state) || self.describes_context(declared, state);
        if is_elsewhere {
            verdicts.capped_at(Verdict::Unproven)
        } else {
            verdicts
        }
    }

    /// Whether a row is relative to an unknown stack pointer, as after a stack switch: it is also
    /// unknown whose frame the row describes.
    fn is_on_other_stack(&self, declared: &DeclaredRow, state: &AbstractState) -> bool {
        let sp = self.abi_info.stack_pointer;
        let value = state.get(sp);
        declared.cfa.is_relative_to(sp)
            && (value == AbstractValue::UNKNOWN || value.is_unconstrained())
    }

    /// Whether a row describes a context that control is about to switch to, as in `longjmp`: it
    /// has a rule for the stack pointer, and its CFA is not an address of this stack. The contents
    /// of such a context are a private convention.
    fn describes_context(&self, declared: &DeclaredRow, state: &AbstractState) -> bool {
        let is_elsewhere = match declared.cfa {
            RuleLocation::Register(register, _) => match state.get(register).fact() {
                ValueFact::EntryValue(origin, _) => {
                    origin.0 != u16::from(self.abi_info.stack_pointer)
                }
                ValueFact::SymbolicBase(..) => false,
                _ => true,
            },
            _ => false,
        };
        declared.has_own_cfa() && is_elsewhere
    }

    /// Whether the kernel may overwrite a slot with a signal frame: it is below the red zone.
    pub(crate) fn is_below_red_zone(&self, at: AbstractValue, state: &AbstractState) -> bool {
        let above = at.distance_from(state.get(self.abi_info.stack_pointer));
        above.is_some_and(|above| above < -i64::from(self.abi_info.red_zone))
    }

    /// Checks the CFA alone; an expression is unproven, and so is a CFA that is not the caller's stack
    /// pointer.
    pub(crate) fn check_cfa(&self, declared: &DeclaredRow, state: &AbstractState) -> Verdict {
        match declared.cfa {
            RuleLocation::Register(register, offset) if !declared.has_own_cfa() => {
                let value = state.get(register);
                let is_preserved = self.abi_info.preserved.contains(&register);
                if value.is_read_at_fixed_address() && !is_preserved {
                    Verdict::Unproven
                } else {
                    compare_value(value.plus(offset), self.cfa_of(declared, state))
                }
            }
            _ => Verdict::Unproven,
        }
    }

    /// The CFA that a row's offsets are relative to: the caller's stack pointer. The exception is a
    /// row with a rule for the stack pointer that adds something to the row's CFA. If the sum is
    /// the caller's stack pointer, the offsets are relative to the row's own CFA.
    fn cfa_of(&self, declared: &DeclaredRow, state: &AbstractState) -> AbstractValue {
        match (declared.cfa, declared.stack_pointer) {
            (RuleLocation::Register(register, offset), Some(RuleLocation::CfaValue(added)))
                if state.get(register).plus(offset).plus(added) == self.cfa =>
            {
                self.cfa.plus(added.saturating_neg())
            }
            _ => self.cfa,
        }
    }

    /// Checks all rules without expressions; those with expressions are unproven.
    fn check_plain_rules(&self, declared: &DeclaredRow, state: &AbstractState) -> RowVerdicts {
        let mut verdicts = RowVerdicts::PROVEN;
        verdicts.cfa = self.check_cfa(declared, state);
        let cfa = self.cfa_of(declared, state);
        let column = self.abi_info.return_address;
        let returns_to = self
            .moved_return_address(declared.return_address, cfa, state)
            .unwrap_or(AbstractValue::entry_value(column));
        verdicts.return_address =
            self.check_location(declared.return_address, cfa, returns_to, state);
        let declared_rules = self.abi_info.preserved.iter().zip(&declared.preserved);
        for ((register, place), verdict) in declared_rules.zip(&mut verdicts.preserved) {
            *verdict =
                self.check_location(*place, cfa, AbstractValue::entry_value(*register), state);
        }
        if let Some(place) = declared.stack_pointer {
            let found = self.check_location(place, cfa, self.cfa, state);
            verdicts.cfa = verdicts.cfa.max(found);
        }
        verdicts
    }

    /// The value at a row's return address rule, if code has moved the return address past data
    /// behind the call: it is where a return would find it, or it is already popped.
    fn moved_return_address(
        &self,
        location: RuleLocation,
        cfa: AbstractValue,
        state: &AbstractState,
    ) -> Option<AbstractValue> {
        let (column, pushes) = (
            self.abi_info.return_address,
            i64::from(self.abi_info.call_pushes),
        );
        let own = self.cfa.plus(-pushes);
        let above = own.distance_from(state.get(self.abi_info.stack_pointer));
        let is_popped = above.is_some_and(|above| above < 0);
        let found = match location {
            RuleLocation::Register(register, offset) if is_popped => {
                state.get(register).plus(offset)
            }
            RuleLocation::CfaOffset(offset) if cfa.plus(offset) == own => state.load(own)?,
            _ => return None,
        };
        found.bytes_past_return_address(column).map(|_| found)
    }

    /// Downgrades refuted registers to unproven if the row finds the value that another row of the
    /// entry declares by a private convention. So are those that code overwrites before it enters
    /// another context, further on (`is_left`): its caller never needs them.
    pub(crate) fn excuse_agreements(
        &self,
        found: &mut RowVerdicts,
        row: &DeclaredRow,
        state: &AbstractState,
        of_entry: &[&DeclaredRow],
        is_left: bool,
    ) {
        let declared_rules = row.preserved.iter().zip(&mut found.preserved);
        for (at, (place, verdict)) in declared_rules.enumerate() {
            let RuleLocation::Register(other, offset) = *place else {
                continue;
            };
            if is_left && offset == 0 && self.abi_info.preserved.get(at) == Some(&other) {
                *verdict = (*verdict).min(Verdict::Unproven);
            }
            let above = state.get(other).plus(offset).distance_from(self.cfa);
            let is_agreed = |above| {
                let says = |other: &&DeclaredRow| {
                    other.preserved.get(at) == Some(&RuleLocation::CfaValue(above))
                };
                of_entry.iter().any(says)
            };
            if *verdict == Verdict::Refuted && above.is_some_and(is_agreed) {
                *verdict = Verdict::Unproven;
            }
        }
    }

    /// Whether a value is where a row says. Offsets are relative to the actual `cfa`: a wrong one
    /// is reported once.
    fn check_location(
        &self,
        location: RuleLocation,
        cfa: AbstractValue,
        wanted: AbstractValue,
        state: &AbstractState,
    ) -> Verdict {
        match location {
            RuleLocation::Undefined => Verdict::Proven,
            RuleLocation::Register(register, _) if is_pushed(register, self.abi_info) => {
                Verdict::Refuted
            }
            RuleLocation::Register(register, offset) => {
                compare_value(state.get(register).plus(offset), wanted)
            }
            RuleLocation::CfaOffset(offset) => {
                let at = cfa.plus(offset);
                let slot = state.load(at);
                // The caller owns the memory above the return address.
                let is_own = at.distance_from(self.cfa).is_some_and(|above| above < 0);
                let unknown = if is_own {
                    AbstractValue::FRESH
                } else {
                    AbstractValue::UNKNOWN
                };
                let found = compare_value(slot.unwrap_or(unknown), wanted);
                if self.is_below_red_zone(at, state) {
                    found.max(Verdict::Unproven)
                } else {
                    found
                }
            }
            // A private convention may allow it.
            RuleLocation::CfaValue(offset) => {
                if cfa.plus(offset) == wanted {
                    Verdict::Proven
                } else {
                    Verdict::Unproven
                }
            }
            RuleLocation::Expression => Verdict::Unproven,
        }
    }

    /// The state at the start of code that only its row describes.
    pub(crate) fn entry_state(&self, declared: &DeclaredRow) -> Option<AbstractState> {
        let sp = self.abi_info.stack_pointer;
        let RuleLocation::Register(register, offset) = declared.cfa else {
            return None;
        };
        let mut state = AbstractState::new();
        state.set(sp, AbstractValue::UNKNOWN);
        let cfa = match declared.stack_pointer {
            None => self.cfa,
            Some(RuleLocation::CfaValue(added)) => self.cfa.plus(added.saturating_neg()),
            // It is only known where the caller's stack pointer is.
            Some(RuleLocation::CfaOffset(offset)) => {
                let own = AbstractValue::symbolic_base(UNKNOWN_FRAME_BASE, 0);
                state.store(own.plus(offset), self.cfa);
                own
            }
            Some(_) => return None,
        };
        let registers = self.abi_info.preserved.iter().zip(&declared.preserved);
        let column = self.abi_info.return_address;
        let own = [(&column, &declared.return_address)];
        for (register, place) in registers.chain(own) {
            let value = AbstractValue::entry_value(*register);
            match *place {
                RuleLocation::CfaOffset(offset) => {
                    state.set(*register, AbstractValue::UNKNOWN);
                    state.store(cfa.plus(offset), value);
                }
                RuleLocation::Register(other, 0) if other != *register => {
                    state.set(*register, AbstractValue::UNKNOWN);
                    state.set(other, value);
                }
                _ => {}
            }
        }
        state.set(register, cfa.plus(offset.checked_neg()?));
        Some(state)
    }

    /// The actual CFA: a register and an offset. If there are several, the declared register's is
    /// preferred, then the stack pointer's.
    pub(crate) fn actual_cfa(
        &self,
        claim: RuleLocation,
        state: &AbstractState,
    ) -> Option<(u8, i64)> {
        let claimed = match claim {
            RuleLocation::Register(register, _) => Some(register),
            _ => None,
        };
        let first = claimed.into_iter().chain([self.abi_info.stack_pointer]);
        // A register that calls change is useless behind the next one.
        let preserved = self.abi_info.preserved.iter().copied();
        let registers = first
            .chain(preserved)
            .chain(0..self.abi_info.machine_registers);
        let mut found = registers.filter_map(|register| {
            let distance = self.cfa.distance_from(state.get(register))?;
            Some((register, distance))
        });
        found.next()
    }

    /// The actual location of a register's entry value. If there are several, the first counts, or
    /// a slot if a slot is declared.
    pub(crate) fn actual_location(
        &self,
        register: u8,
        claim: RuleLocation,
        state: &AbstractState,
    ) -> Option<RuleLocation> {
        let wanted = AbstractValue::entry_value(register);
        let slots = state.slots().iter();
        let mut found = slots.filter(|slot| slot.value == wanted);
        let slot = found.find_map(|slot| slot.address.distance_from(self.cfa));
        let is_own = state.get(register) == wanted && register < self.abi_info.machine_registers;
        match (slot, claim) {
            (Some(offset), RuleLocation::CfaOffset(_)) => Some(RuleLocation::CfaOffset(offset)),
            _ if is_own => Some(RuleLocation::Register(register, 0)),
            (Some(offset), _) => Some(RuleLocation::CfaOffset(offset)),
            (None, _) => {
                let mut others = 0..self.abi_info.machine_registers;
                let other = others.find(|other| state.get(*other) == wanted)?;
                Some(RuleLocation::Register(other, 0))
            }
        }
    }
}

/// A row as a verifier state, if that expresses it.
fn annotation(declared: &DeclaredRow, abi_info: &AbiInfo) -> Option<VerifierState> {
    let mut expected = VerifierState::UNKNOWN;
    let RuleLocation::Register(register, offset) = declared.cfa else {
        return None;
    };
    let distance = i16::try_from(offset).ok()?.checked_neg()?;
    let is_plain = abi_info.points_at_frames(register)
        && declared.return_address == RuleLocation::return_address_at_entry(abi_info)
        && matches!(
            declared.stack_pointer,
            None | Some(RuleLocation::CfaValue(0))
        )
        && !declared.signal_frame;
    if !is_plain || !expected.set_register(register, RegisterContents::StackAddress(distance)) {
        return None;
    }
    for (register, place) in abi_info.preserved.iter().zip(&declared.preserved) {
        let is_reported = match *place {
            RuleLocation::Undefined => true,
            RuleLocation::Register(own, 0) if own == *register => {
                expected.get(*register) == RegisterContents::Other
                    && expected.set_register(*register, RegisterContents::EntryValue)
            }
            RuleLocation::CfaOffset(offset) => {
                expected.set_saved_at(*register, i16::try_from(offset).ok()?)
            }
            _ => false,
        };
        if !is_reported {
            return None;
        }
    }
    Some(expected)
}

/// The registers and slots that a true row implies, for a simple comparison.
#[derive(Debug)]
struct ExpectedState {
    /// Contents of registers.
    registers: Vec<(u8, AbstractValue)>,
    /// Contents of slots, in the usual order of saves: downwards.
    slots: Vec<AbstractSlot>,
}

impl ExpectedState {
    /// The expected state of a row; `None` if it takes more than registers and slots.
    fn from_row(
        declared: &DeclaredRow,
        abi_info: &AbiInfo,
        cfa: AbstractValue,
    ) -> Option<ExpectedState> {
        let mut proof = ExpectedState {
            registers: Vec::new(),
            slots: Vec::new(),
        };
        let preserved = abi_info.preserved.iter().zip(&declared.preserved);
        let registers = preserved.chain([(&abi_info.return_address, &declared.return_address)]);
        let registers =
            registers.map(|(register, place)| (AbstractValue::entry_value(*register), *place));
        let own = [declared.cfa].into_iter().chain(declared.stack_pointer);
        for (holds, place) in registers.chain(own.map(|place| (cfa, place))) {
            match place {
                RuleLocation::Register(register, _) if is_pushed(register, abi_info) => {
                    return None;
                }
                RuleLocation::Register(register, offset) => {
                    let base = holds.plus(offset.checked_neg()?);
                    if !base.is_address() {
                        return None;
                    }
                    proof.registers.push((register, base));
                }
                RuleLocation::CfaOffset(offset) => {
                    let at = cfa.plus(offset);
                    proof.slots.push(AbstractSlot {
                        address: at,
                        value: holds,
                    });
                }
                _ => return None,
            }
        }
        let below_cfa = |slot: &AbstractSlot| cfa.distance_from(slot.address);
        proof.slots.sort_by_key(below_cfa);
        Some(proof)
    }

    fn matches(&self, state: &AbstractState) -> bool {
        let mut registers = self.registers.iter();
        let mut slots = state.slots().iter();
        registers.all(|(register, value)| state.get(*register) == *value)
            && self
                .slots
                .iter()
                .all(|slot| slots.any(|known| known == slot))
    }
}

/// Whether a column stands for a return address on the stack, and not in a register.
fn is_pushed(register: u8, abi_info: &AbiInfo) -> bool {
    register == abi_info.return_address && abi_info.return_target_of_call() == ReturnTarget::Stack
}

fn compare_value(value: AbstractValue, wanted: AbstractValue) -> Verdict {
    if value == wanted {
        return Verdict::Proven;
    }
    match value.fact() {
        ValueFact::Unknown => Verdict::Unproven,
        ValueFact::SymbolicBase(..) if value.is_unconstrained() => Verdict::Unproven,
        _ => Verdict::Refuted,
    }
}
