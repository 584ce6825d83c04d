//! One row: how to find the CFA, and a rule for every register that has one.

use crate::expression::Expression;
use crate::register::Register;

/// How the CFA is computed (DWARF 5 §6.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CfaRule<'e> {
    /// No instruction defined it: no caller can be found from here.
    Undefined,
    /// The value of a register of this frame plus an offset in bytes.
    RegisterOffset {
        /// The register.
        register: Register,
        /// The offset, in bytes.
        offset: i64,
    },
    /// The result of a DWARF expression, evaluated on an empty stack.
    Expression(Expression<'e>),
}

/// How the caller's value of a register is found (DWARF 5 §6.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterRule<'e> {
    /// It has no recoverable value. For the return address: this frame is the outermost.
    Undefined,
    /// It is what it is in this frame.
    SameValue,
    /// It is in memory at CFA + offset, in bytes.
    Offset(i64),
    /// It *is* CFA + offset, in bytes.
    ValOffset(i64),
    /// It is what another register is in this frame.
    Register(Register),
    /// It is in memory at the address that the expression yields, evaluated with the CFA on
    /// the stack.
    Expression(Expression<'e>),
    /// It is what the expression yields, evaluated with the CFA on the stack.
    ValExpression(Expression<'e>),
}

/// Whether the return address carries a pointer authentication code (AADWARF64, "DWARF register
/// names", `RA_SIGN_STATE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RaState {
    /// It is a plain address; always so outside AArch64 (`DW_AARCH64_RA_NOT_SIGNED`, 0).
    #[default]
    Plain,
    /// It is signed with the stack pointer at entry (`DW_AARCH64_RA_SIGNED_SP`, 1).
    Signed,
    /// It is signed with the stack pointer and the signing instruction's address
    /// (`DW_AARCH64_RA_SIGNED_SP_PC`, 2).
    SignedWithPc,
}

impl RaState {
    /// The ABI's number of the state.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            RaState::Plain => 0,
            RaState::Signed => 1,
            RaState::SignedWithPc => 2,
        }
    }

    /// The state with this number; `None` for the numbers that the ABI reserves.
    #[must_use]
    pub const fn from_number(number: u64) -> Option<Self> {
        match number {
            0 => Some(RaState::Plain),
            1 => Some(RaState::Signed),
            2 => Some(RaState::SignedWithPc),
            _ => None,
        }
    }
}

/// One row of an unwind table, in fixed storage: at most [`Row::MAX_RULES`] register rules,
/// kept sorted by register.
///
/// `'e` is the lifetime of expression bytes: the section, or the compiled table, that was read.
#[derive(Clone, Copy)]
pub struct Row<'e> {
    /// How the CFA is found.
    pub cfa: CfaRule<'e>,
    /// The return-address column: its recovered value is the caller's pc.
    pub return_address: Register,
    /// The frame was interrupted; it made no call. The caller's pc is the address of an
    /// instruction, not of a return (augmentation `S`).
    pub signal_frame: bool,
    /// Whether the return address is signed.
    pub ra_state: RaState,
    /// Bytes of outgoing arguments on the stack (`DW_CFA_GNU_args_size`), which a landing pad
    /// expects to be popped.
    pub args_size: u64,
    registers: [Register; Row::MAX_RULES],
    rules: [RegisterRule<'e>; Row::MAX_RULES],
    len: u8,
}

/// A row would need more than [`Row::MAX_RULES`] register rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a row has rules for more than {max} registers", max = Row::MAX_RULES)]
pub struct TooManyRules;

impl<'e> Row<'e> {
    /// The limit of register rules in one row. An AArch64 signal frame, the largest one seen, has
    /// 33.
    pub const MAX_RULES: usize = 64;

    /// A row without CFA and rules.
    #[must_use]
    pub const fn new(return_address: Register) -> Self {
        Row {
            cfa: CfaRule::Undefined,
            return_address,
            signal_frame: false,
            ra_state: RaState::Plain,
            args_size: 0,
            registers: [Register(0); Row::MAX_RULES],
            rules: [RegisterRule::Undefined; Row::MAX_RULES],
            len: 0,
        }
    }

    /// Makes it the same as a [`Row::new`]: without CFA and rules.
    pub fn clear(&mut self, return_address: Register) {
        self.cfa = CfaRule::Undefined;
        self.return_address = return_address;
        self.signal_frame = false;
        self.ra_state = RaState::Plain;
        self.args_size = 0;
        self.len = 0;
    }

    /// Makes this row equal to another; copies only the rules in use.
    pub fn assign(&mut self, other: &Row<'e>) {
        self.cfa = other.cfa;
        self.return_address = other.return_address;
        self.signal_frame = other.signal_frame;
        self.ra_state = other.ra_state;
        self.args_size = other.args_size;
        self.len = other.len;
        let used = usize::from(other.len);
        for (slot, register) in self
            .registers
            .iter_mut()
            .zip(other.registers.iter().take(used))
        {
            *slot = *register;
        }
        for (slot, rule) in self.rules.iter_mut().zip(other.rules.iter().take(used)) {
            *slot = *rule;
        }
    }

    fn used(&self) -> &[Register] {
        self.registers
            .get(..usize::from(self.len))
            .unwrap_or_default()
    }

    /// The rule of `register`, or `None` where the ABI's default holds
    /// ([`crate::Arch::unspecified`]).
    #[must_use]
    pub fn rule(&self, register: Register) -> Option<RegisterRule<'e>> {
        let at = self.used().iter().position(|r| *r == register)?;
        self.rules.get(at).copied()
    }

    /// Whether the frame has no caller: the return address is undefined.
    #[must_use]
    pub fn is_outermost(&self) -> bool {
        self.rule(self.return_address) == Some(RegisterRule::Undefined)
    }

    /// The rules, in ascending order of register.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = (Register, RegisterRule<'e>)> + '_ {
        self.used().iter().copied().zip(self.rules.iter().copied())
    }

    /// Gives `register` a rule, or removes it with `None`; yields the previous one.
    ///
    /// # Errors
    ///
    /// [`TooManyRules`] when the row is full; it is then unchanged.
    pub fn set_rule(
        &mut self,
        register: Register,
        rule: Option<RegisterRule<'e>>,
    ) -> Result<Option<RegisterRule<'e>>, TooManyRules> {
        let at = self.used().iter().take_while(|r| **r < register).count();
        let present = self.used().get(at) == Some(&register);
        let old = if present {
            self.rules.get(at).copied()
        } else {
            None
        };
        match (rule, present) {
            (Some(rule), true) => self.replace(at, rule),
            (Some(rule), false) => self.insert(at, register, rule)?,
            (None, true) => self.remove(at),
            (None, false) => {}
        }
        Ok(old)
    }

    fn replace(&mut self, at: usize, rule: RegisterRule<'e>) {
        if let Some(slot) = self.rules.get_mut(at) {
            *slot = rule;
        }
    }

    fn insert(
        &mut self,
        at: usize,
        register: Register,
        rule: RegisterRule<'e>,
    ) -> Result<(), TooManyRules> {
        let len = usize::from(self.len);
        let (Some(registers), Some(rules)) = (
            self.registers.get_mut(at..=len),
            self.rules.get_mut(at..=len),
        ) else {
            return Err(TooManyRules);
        };
        registers.copy_within(..registers.len() - 1, 1);
        rules.copy_within(..rules.len() - 1, 1);
        if let (Some(first), Some(first_rule)) = (registers.first_mut(), rules.first_mut()) {
            *first = register;
            *first_rule = rule;
        }
        self.len += 1;
        Ok(())
    }

    fn remove(&mut self, at: usize) {
        let len = usize::from(self.len);
        if let (Some(registers), Some(rules)) =
            (self.registers.get_mut(at..len), self.rules.get_mut(at..len))
        {
            registers.rotate_left(1);
            rules.rotate_left(1);
            self.len -= 1;
        }
    }
}

impl PartialEq for Row<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cfa == other.cfa
            && self.return_address == other.return_address
            && self.signal_frame == other.signal_frame
            && self.ra_state == other.ra_state
            && self.args_size == other.args_size
            && self.rules().eq(other.rules())
    }
}

impl Eq for Row<'_> {}

impl core::fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut out = f.debug_struct("Row");
        out.field("cfa", &self.cfa)
            .field("return_address", &self.return_address.0);
        if self.signal_frame {
            out.field("signal_frame", &true);
        }
        if self.ra_state != RaState::Plain {
            out.field("ra_state", &self.ra_state);
        }
        if self.args_size != 0 {
            out.field("args_size", &self.args_size);
        }
        for (register, rule) in self.rules() {
            out.field("rule", &(register.0, rule));
        }
        out.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    #[test]
    fn rules_behave_like_a_sorted_map() {
        // Against a BTreeMap, over a fixed pseudo-random sequence of settings and removals.
        let mut row = Row::new(Register(16));
        let mut model = BTreeMap::new();
        let mut state = 1_u32;
        for _ in 0..unspool_testing::generated(10_000) {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let register = Register((state >> 16) as u16 % 60);
            let rule = (!state.is_multiple_of(3)).then_some(RegisterRule::Offset(i64::from(state)));
            let old = row.set_rule(register, rule).unwrap();
            let expected = match rule {
                Some(rule) => model.insert(register, rule),
                None => model.remove(&register),
            };
            assert_eq!(old, expected);
            assert!(row.rules().eq(model.iter().map(|(r, rule)| (*r, *rule))));
        }
        assert!(!model.is_empty());
    }

    #[test]
    fn a_full_row_refuses_one_more_and_stays_as_it_was() {
        let mut row = Row::new(Register(16));
        for n in 0..u16::try_from(Row::MAX_RULES).unwrap() {
            row.set_rule(Register(n * 2), Some(RegisterRule::SameValue))
                .unwrap();
        }
        let before: Vec<_> = row.rules().collect();
        for n in [1, 63, 999] {
            assert_eq!(
                row.set_rule(Register(n), Some(RegisterRule::Undefined)),
                Err(TooManyRules)
            );
        }
        assert_eq!(row.rules().collect::<Vec<_>>(), before);
        // A register that has a rule can still get another.
        row.set_rule(Register(0), Some(RegisterRule::Offset(8)))
            .unwrap();
        assert_eq!(row.rule(Register(0)), Some(RegisterRule::Offset(8)));
    }
}
