//! A row of the table, in the form that is held against states.

use unspool_ir::{CfaRule, Register, RegisterRule, Row};
use unspool_synth::arch::Facts;
use unspool_synth::op::{MEMORY, STORED};

use crate::judge::Aspect;

/// Where a row says that the CFA or a register of the caller is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: it has no value that could be found.
    Undefined,
    /// What a register is, plus an offset.
    Register(u8, i64),
    /// In memory, at the CFA plus an offset.
    AtCfa(i64),
    /// The CFA plus an offset.
    Cfa(i64),
    /// What an expression says.
    Expression,
}

impl Place {
    /// Whether it is counted from a register.
    pub(crate) fn counts_from(self, register: u8) -> bool {
        matches!(self, Place::Register(own, _) if own == register)
    }

    /// What of a state is read to find the value, as [`unspool_synth::State::settle`] has it.
    fn reads(self) -> u64 {
        match self {
            Place::Undefined | Place::Cfa(_) => 0,
            Place::Register(register, _) => 1 << (register & 63),
            Place::AtCfa(_) => MEMORY | STORED,
            Place::Expression => u64::MAX,
        }
    }
}

/// A row: where it says that things are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declared {
    /// The CFA.
    pub cfa: Place,
    /// The return address.
    pub return_address: Place,
    /// The registers that calls preserve, in the order of [`Facts::preserved`].
    pub preserved: [Place; Declared::MOST],
    /// The caller's stack pointer, if the row has a rule for it.
    pub stack_pointer: Option<Place>,
    /// What of a state it speaks of, as [`unspool_synth::State::settle`] has it.
    pub reads: u64,
    /// Whether a rule is an expression.
    pub has_expression: bool,
    /// Bytes of arguments that the unwinder takes off the stack before an exception lands.
    pub args_size: u64,
    /// Whether the frame was interrupted, not called from.
    pub signal_frame: bool,
}

impl Declared {
    /// The most registers that calls of a machine preserve.
    pub const MOST: usize = 12;

    /// What a row says.
    #[must_use]
    pub fn of(row: &Row<'_>, facts: &Facts) -> Declared {
        let cfa = match row.cfa {
            CfaRule::Undefined => Place::Undefined,
            CfaRule::RegisterOffset { register, offset } => match u8::try_from(register.0) {
                Ok(register) => Place::Register(register, offset),
                Err(_) => Place::Expression,
            },
            CfaRule::Expression(_) => Place::Expression,
        };
        let mut preserved = [Place::Undefined; Declared::MOST];
        for (register, place) in facts.preserved.iter().zip(&mut preserved) {
            *place = place_of(row, *register);
        }
        // An entry may say that another register stands for the return address.
        let column = u8::try_from(row.return_address.0);
        let return_address = column.map_or(Place::Expression, |column| place_of(row, column));
        let sp = Register(facts.stack_pointer.into());
        let stack_pointer = row.rule(sp).map(|_| place_of(row, facts.stack_pointer));
        let places = preserved.iter().take(facts.preserved.len());
        let places = places.chain([&cfa, &return_address]).chain(&stack_pointer);
        let has_expression = places.clone().any(|place| *place == Place::Expression);
        // Whether a slot is out of reach of signals depends on where the stack pointer is.
        let reach = i64::from(facts.red_zone) + i64::from(facts.call_pushes);
        let is_deep = |place: &&Place| matches!(place, Place::AtCfa(offset) if *offset < -reach);
        let of_depth = match places.clone().any(|place| is_deep(&place)) {
            true => 1 << (facts.stack_pointer & 63),
            false => 0,
        };
        let reads = places.fold(of_depth, |all, place| all | place.reads());
        Declared {
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

    /// Whether all is where it is at the begin of a function, as a call leaves it.
    #[must_use]
    pub fn is_begin(&self, facts: &Facts) -> bool {
        let pushed = i64::from(facts.call_pushes);
        let mut preserved = facts.preserved.iter().zip(self.preserved);
        self.cfa == Place::Register(facts.stack_pointer, pushed)
            && self.return_address == Place::AtCfa(-pushed)
            && preserved.all(|(register, place)| place == Place::Register(*register, 0))
            && !self.signal_frame
    }

    /// What the row says of something.
    pub(crate) fn claim(&self, of: Aspect, facts: &Facts) -> Place {
        match of {
            Aspect::Cfa => self.cfa,
            Aspect::ReturnAddress => self.return_address,
            Aspect::Register(register) => {
                let mut claims = facts.preserved.iter().zip(self.preserved);
                let found = claims.find(|(number, _)| **number == register);
                found.map_or(Place::Undefined, |(_, claim)| claim)
            }
        }
    }
}

fn place_of(row: &Row<'_>, register: u8) -> Place {
    match row.rule(Register(register.into())) {
        None | Some(RegisterRule::SameValue) => Place::Register(register, 0),
        Some(RegisterRule::Undefined) => Place::Undefined,
        Some(RegisterRule::Offset(offset)) => Place::AtCfa(offset),
        Some(RegisterRule::ValOffset(offset)) => Place::Cfa(offset),
        Some(RegisterRule::Register(other)) => {
            u8::try_from(other.0).map_or(Place::Expression, |other| Place::Register(other, 0))
        }
        Some(RegisterRule::Expression(_) | RegisterRule::ValExpression(_)) => Place::Expression,
    }
}
