//! A row of the table in the checker's form.

use unspool_code_analysis::arch::AbiInfo;
use unspool_code_analysis::op::{MEMORY_BIT, NEW_SLOT_BIT, ReturnTarget};
use unspool_rows::{CfaRule, Register, RegisterRule, Row};

use crate::row_checker::Aspect;

/// Where a rule says that the CFA or a register of the caller is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleLocation {
    /// Nowhere: its value cannot be found.
    Undefined,
    /// A register plus an offset.
    Register(u8, i64),
    /// In memory, at the CFA plus an offset.
    CfaOffset(i64),
    /// The CFA plus an offset.
    CfaValue(i64),
    /// The value of an expression.
    Expression,
}

impl RuleLocation {
    /// Where a call puts the return address.
    pub(crate) fn return_address_at_entry(abi_info: &AbiInfo) -> RuleLocation {
        match abi_info.return_target_of_call() {
            ReturnTarget::Stack => RuleLocation::CfaOffset(-i64::from(abi_info.call_pushes)),
            ReturnTarget::Register(register) => RuleLocation::Register(register, 0),
        }
    }

    /// Whether it is relative to a register.
    pub(crate) fn is_relative_to(self, register: u8) -> bool {
        matches!(self, RuleLocation::Register(own, _) if own == register)
    }

    /// The parts of a state that its value depends on, like
    /// [`unspool_code_analysis::AbstractState::take_written`].
    fn reads(self) -> u64 {
        match self {
            RuleLocation::Undefined | RuleLocation::CfaValue(_) => 0,
            RuleLocation::Register(register, _) => 1 << (register & 63),
            RuleLocation::CfaOffset(_) => MEMORY_BIT | NEW_SLOT_BIT,
            RuleLocation::Expression => u64::MAX,
        }
    }
}

/// A row: the declared locations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeclaredRow {
    /// The CFA.
    pub cfa: RuleLocation,
    /// The return address.
    pub return_address: RuleLocation,
    /// The registers that calls preserve, in the order of [`AbiInfo::preserved`].
    pub preserved: [RuleLocation; DeclaredRow::MAX_PRESERVED_REGISTERS],
    /// The caller's stack pointer, if the row has a rule for it.
    pub stack_pointer: Option<RuleLocation>,
    /// The parts of a state that it depends on, like
    /// [`unspool_code_analysis::AbstractState::take_written`].
    pub reads: u64,
    /// Whether a rule is an expression.
    pub has_expression: bool,
    /// Bytes of arguments that the unwinder pops before it enters a landing pad.
    pub args_size: u64,
    /// Whether the frame was interrupted, and did not call.
    pub signal_frame: bool,
}

impl DeclaredRow {
    /// Greatest number of registers that calls preserve.
    pub const MAX_PRESERVED_REGISTERS: usize = 12;

    /// Converts a row.
    #[must_use]
    pub fn from_row(row: &Row<'_>, abi_info: &AbiInfo) -> DeclaredRow {
        let cfa = match row.cfa {
            CfaRule::Undefined => RuleLocation::Undefined,
            CfaRule::RegisterOffset { register, offset } => match u8::try_from(register.0) {
                Ok(register) => RuleLocation::Register(register, offset),
                Err(_) => RuleLocation::Expression,
            },
            CfaRule::Expression(_) => RuleLocation::Expression,
        };
        let mut preserved = [RuleLocation::Undefined; DeclaredRow::MAX_PRESERVED_REGISTERS];
        for (register, place) in abi_info.preserved.iter().zip(&mut preserved) {
            *place = location_of(row, *register);
        }
        // An entry may choose another return address register.
        let column = u8::try_from(row.return_address.0);
        let return_address =
            column.map_or(RuleLocation::Expression, |column| location_of(row, column));
        let sp = Register(abi_info.stack_pointer.into());
        let stack_pointer = row
            .rule(sp)
            .map(|_| location_of(row, abi_info.stack_pointer));
        let places = preserved.iter().take(abi_info.preserved.len());
        let places = places.chain([&cfa, &return_address]).chain(&stack_pointer);
        let has_expression = places
            .clone()
            .any(|place| *place == RuleLocation::Expression);
        // Whether signals can overwrite a slot depends on the stack pointer.
        let reach = i64::from(abi_info.red_zone) + i64::from(abi_info.call_pushes);
        let is_deep = |location: &&RuleLocation| matches!(location, RuleLocation::CfaOffset(offset) if *offset < -reach);
        let of_depth = if places.clone().any(|place| is_deep(&place)) {
            1 << (abi_info.stack_pointer & 63)
        } else {
            0
        };
        let reads = places.fold(of_depth, |all, place| all | place.reads());
        DeclaredRow {
            cfa,
            return_address,
            preserved,
            stack_pointer,
            reads: if has_expression { u64::MAX } else { reads },
            has_expression,
            args_size: row.args_size,
            signal_frame: row.signal_frame,
        }
    }

    /// Whether everything is as a call leaves it at a function's begin.
    #[must_use]
    pub fn is_function_entry(&self, abi_info: &AbiInfo) -> bool {
        let mut preserved = abi_info.preserved.iter().zip(self.preserved);
        self.is_as_called(abi_info)
            && preserved.all(|(register, place)| place == RuleLocation::Register(*register, 0))
            && !self.signal_frame
    }

    /// Whether it finds the return address where a call puts it.
    pub(crate) fn is_as_called(&self, abi_info: &AbiInfo) -> bool {
        let pushed = i64::from(abi_info.call_pushes);
        self.cfa == RuleLocation::Register(abi_info.stack_pointer, pushed)
            && self.return_address == RuleLocation::return_address_at_entry(abi_info)
    }

    /// Whether it counts from a CFA of its own: a rule finds the caller's stack pointer otherwise
    /// than at a distance from it.
    pub(crate) fn has_own_cfa(&self) -> bool {
        !matches!(self.stack_pointer, None | Some(RuleLocation::CfaValue(_)))
    }

    /// Whether it describes a context in memory that control is about to enter: a rule says where
    /// its stack pointer is.
    pub(crate) fn enters_context(&self, abi_info: &AbiInfo) -> bool {
        self.has_own_cfa()
            && matches!(self.cfa, RuleLocation::Register(register, _) if !abi_info.points_at_frames(register))
    }

    /// The row's rule for an aspect.
    pub(crate) fn rule_for(&self, of: Aspect, abi_info: &AbiInfo) -> RuleLocation {
        match of {
            Aspect::Cfa => self.cfa,
            Aspect::ReturnAddress => self.return_address,
            Aspect::Register(register) => {
                let mut declared = abi_info.preserved.iter().zip(self.preserved);
                let found = declared.find(|(number, _)| **number == register);
                found.map_or(RuleLocation::Undefined, |(_, location)| location)
            }
        }
    }
}

fn location_of(row: &Row<'_>, register: u8) -> RuleLocation {
    match row.rule(Register(register.into())) {
        None | Some(RegisterRule::SameValue) => RuleLocation::Register(register, 0),
        Some(RegisterRule::Undefined) => RuleLocation::Undefined,
        Some(RegisterRule::Offset(offset)) => RuleLocation::CfaOffset(offset),
        Some(RegisterRule::ValOffset(offset)) => RuleLocation::CfaValue(offset),
        Some(RegisterRule::Register(other)) => u8::try_from(other.0)
            .map_or(RuleLocation::Expression, |other| {
                RuleLocation::Register(other, 0)
            }),
        Some(RegisterRule::Expression(_) | RegisterRule::ValExpression(_)) => {
            RuleLocation::Expression
        }
    }
}
