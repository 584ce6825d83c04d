//! The meaning of a row: `docs/semantics.md`, in terms.
//!
//! This is written from the semantics, and shares nothing with the code generator.

use unspool_rows::arch::DefaultRule;
use unspool_rows::expression::{MAX_STACK_VALUES, MAX_STEPS, Operation, operation};
use unspool_rows::{Abi, CfaRule, Expression, Register, RegisterRule, Row};

use super::memory;
use super::terms::{InputTerm, TermId, TermOperator, Terms};
use crate::outline::Outline;
use crate::status::StepStatus;

/// The registers of a frame.
pub(super) const REGISTERS: usize = Outline::REGISTERS as usize;
/// Number of conditions for the word of known registers: one bit for each register, and one for all
/// bits above.
pub(super) const BITS: usize = REGISTERS + 1;

/// Result of `unspool_step`, in each case.
pub(super) struct StepTerms {
    pub(super) status: TermId,
    /// Which registers are known.
    pub(super) known: [TermId; BITS],
    /// The registers; unknown ones have no claims.
    pub(super) registers: [TermId; REGISTERS],
    pub(super) cfa: TermId,
}

/// An optional value.
#[derive(Debug, Clone, Copy)]
pub(super) struct OptionalTerm {
    pub(super) value: TermId,
    /// Whether there is a value.
    pub(super) is_some: TermId,
    /// The status if a required value is missing.
    failure: TermId,
}

/// The meaning of a row for the caller as a whole.
pub(super) struct CallerTerms {
    pub(super) cfa: OptionalTerm,
    address: Option<OptionalTerm>,
    /// Whether there is a caller.
    pub(super) has_caller: TermId,
    /// The status if there is one, and if there is none.
    pub(super) success: TermId,
    pub(super) failure: TermId,
}

/// The row has an expression that objects leave to the table.
struct UnsupportedExpression;

impl From<UnsupportedExpression> for StepStatus {
    fn from(_: UnsupportedExpression) -> StepStatus {
        StepStatus::NotCompiled
    }
}

fn status(terms: &mut Terms, status: StepStatus) -> TermId {
    terms.number(u64::from(status.number().cast_unsigned()))
}

/// A result with only a status: the frame is unchanged.
pub(super) fn fails(terms: &mut Terms, with: StepStatus) -> StepTerms {
    StepTerms {
        status: status(terms, with),
        known: core::array::from_fn(|bit| terms.known(number(bit))),
        registers: core::array::from_fn(|register| {
            terms.input_term(InputTerm::Register(number(register)))
        }),
        cfa: terms.input_term(InputTerm::OldCfa),
    }
}

/// The number of a bit or a register.
fn number(place: usize) -> u8 {
    u8::try_from(place).unwrap_or(u8::MAX)
}

/// The result of a step by a row.
pub(super) fn row_terms(terms: &mut Terms, row: &Row<'_>, abi: Abi) -> StepTerms {
    match (RowMeaning { terms, row, abi }).outcome() {
        Ok(outcome) => outcome,
        Err(status) => fails(terms, status),
    }
}

/// The meaning of a row.
pub(super) struct RowMeaning<'t, 'r> {
    pub(super) terms: &'t mut Terms,
    pub(super) row: &'r Row<'r>,
    pub(super) abi: Abi,
}

impl RowMeaning<'_, '_> {
    fn outcome(mut self) -> Result<StepTerms, StepStatus> {
        let caller = self.caller()?;
        let mut registers = [Terms::UNKNOWN; REGISTERS];
        let mut known = [Terms::NO; BITS];
        for (place, (value, is_known)) in registers.iter_mut().zip(&mut known).enumerate() {
            let recovered = self.register_of(&caller, place, caller.cfa.value)?;
            *value = recovered.value;
            *is_known = recovered.is_some;
        }
        // All values are computed from the callee's frame, which changes only if there is a caller.
        let terms = self.terms;
        let old = fails(terms, StepStatus::NoRow);
        let has_cfa = match caller.address {
            Some(_) => caller.has_caller,
            None => caller.cfa.is_some,
        };
        let mut of_both = |new: TermId, old: TermId| terms.choose(caller.has_caller, new, old);
        Ok(StepTerms {
            status: of_both(caller.success, caller.failure),
            known: core::array::from_fn(|bit| {
                of_both(element(&known, bit), element(&old.known, bit))
            }),
            registers: core::array::from_fn(|register| {
                of_both(
                    element(&registers, register),
                    element(&old.registers, register),
                )
            }),
            cfa: terms.choose(has_cfa, caller.cfa.value, old.cfa),
        })
    }

    /// The caller as a whole; or the status if it is the same for all frames.
    pub(super) fn caller(&mut self) -> Result<CallerTerms, StepStatus> {
        let cfa = match self.row.cfa {
            CfaRule::Undefined => return Err(StepStatus::NoRule),
            CfaRule::RegisterOffset { register, offset } => {
                if register.0 >= Outline::REGISTERS {
                    return Err(StepStatus::UnknownRegister);
                }
                let base = self.register(register);
                OptionalTerm {
                    value: self.terms.add(base.value, offset),
                    ..base
                }
            }
            CfaRule::Expression(expression) => self.evaluate(expression, None)?,
        };
        let column = self.row.return_address;
        let address = match self.row.rule(column) {
            Some(RegisterRule::Undefined) => None,
            _ => Some(self.recover(column, cfa.value)?),
        };
        let with = match (address, self.row.signal_frame) {
            (None, _) => None,
            (Some(_), true) => Some(StepStatus::Interrupted),
            (Some(_), false) => Some(StepStatus::Caller),
        };
        let (is, success, failure) = match (address, with) {
            (Some(address), Some(with)) => (
                self.terms.and(cfa.is_some, address.is_some),
                status(self.terms, with),
                address.failure,
            ),
            _ => (
                Terms::NO,
                Terms::UNKNOWN,
                status(self.terms, StepStatus::Outermost),
            ),
        };
        Ok(CallerTerms {
            cfa,
            address,
            has_caller: is,
            success,
            failure: self.terms.choose(cfa.is_some, failure, cfa.failure),
        })
    }

    /// A register of the caller, by number, for a given CFA.
    pub(super) fn register_of(
        &mut self,
        caller: &CallerTerms,
        number: usize,
        cfa: TermId,
    ) -> Result<OptionalTerm, StepStatus> {
        let register = Register(self::number(number).into());
        Ok(
            match (register == self.abi.arch.spec().pc, caller.address) {
                (true, Some(address)) => address,
                (true, None) => self.never(StepStatus::NoRule),
                (false, _) => self.recover(register, cfa)?,
            },
        )
    }

    fn always(&self, value: TermId) -> OptionalTerm {
        OptionalTerm {
            value,
            is_some: Terms::YES,
            failure: Terms::UNKNOWN,
        }
    }

    fn never(&mut self, failure: StepStatus) -> OptionalTerm {
        OptionalTerm {
            value: Terms::UNKNOWN,
            is_some: Terms::NO,
            failure: status(self.terms, failure),
        }
    }

    /// A register of the frame.
    fn register(&mut self, register: Register) -> OptionalTerm {
        match u8::try_from(register.0) {
            Ok(number) if register.0 < Outline::REGISTERS => OptionalTerm {
                value: self.terms.input_term(InputTerm::Register(number)),
                is_some: self.terms.known(number),
                failure: status(self.terms, StepStatus::UnknownRegister),
            },
            _ => self.never(StepStatus::UnknownRegister),
        }
    }

    /// A register's value in the caller.
    fn recover(
        &mut self,
        register: Register,
        cfa: TermId,
    ) -> Result<OptionalTerm, UnsupportedExpression> {
        let Some(rule) = self.row.rule(register) else {
            return Ok(match self.abi.arch.unspecified(register) {
                DefaultRule::SameValue => self.register(register),
                DefaultRule::Cfa => self.always(cfa),
                DefaultRule::Unknown if self.row.signal_frame => self.register(register),
                DefaultRule::Unknown => self.never(StepStatus::NoRule),
            });
        };
        Ok(match rule {
            RegisterRule::Undefined => self.never(StepStatus::NoRule),
            RegisterRule::SameValue => self.register(register),
            RegisterRule::Register(other) => self.register(other),
            RegisterRule::Offset(offset) => {
                let address = self.terms.add(cfa, offset);
                let address = self.always(address);
                self.load(address, 8)
            }
            RegisterRule::ValOffset(offset) => {
                let value = self.terms.add(cfa, offset);
                self.always(value)
            }
            RegisterRule::Expression(expression) => {
                let address = self.evaluate(expression, Some(cfa))?;
                self.load(address, 8)
            }
            RegisterRule::ValExpression(expression) => self.evaluate(expression, Some(cfa))?,
        })
    }

    fn load(&mut self, address: OptionalTerm, size: u64) -> OptionalTerm {
        let is_readable = memory::is_readable(self.terms, address.value, size);
        let loaded = memory::loaded(self.terms, address.value, size);
        self.unless(address, is_readable, StepStatus::Unreadable, loaded)
    }

    /// The result of a value if a condition holds, and the status if not.
    fn unless(
        &mut self,
        from: OptionalTerm,
        condition: TermId,
        failure: StepStatus,
        value: TermId,
    ) -> OptionalTerm {
        let failure = status(self.terms, failure);
        OptionalTerm {
            value,
            is_some: self.terms.and(from.is_some, condition),
            failure: self.terms.choose(from.is_some, failure, from.failure),
        }
    }

    /// An expression without branches.
    fn evaluate(
        &mut self,
        expression: Expression<'_>,
        initial: Option<TermId>,
    ) -> Result<OptionalTerm, UnsupportedExpression> {
        let mut stack = Vec::from_iter(initial);
        // The terms so far, without a value.
        let mut so_far = self.always(Terms::UNKNOWN);
        let mut steps = 0;
        for step in expression.operations(self.abi) {
            let step = step.map_err(|_| UnsupportedExpression)?;
            steps += 1;
            let value = self.operation(&step, &mut stack, &mut so_far)?;
            stack.extend(value);
            if stack.len() > MAX_STACK_VALUES || steps > MAX_STEPS {
                return Err(UnsupportedExpression);
            }
        }
        Ok(OptionalTerm {
            value: stack.pop().ok_or(UnsupportedExpression)?,
            ..so_far
        })
    }

    /// Applies an operation, and returns the value that it pushes.
    fn operation(
        &mut self,
        step: &Operation,
        stack: &mut Vec<TermId>,
        so_far: &mut OptionalTerm,
    ) -> Result<Option<TermId>, UnsupportedExpression> {
        use operation::*;
        let mut pop = || stack.pop().ok_or(UnsupportedExpression);
        let terms = &mut *self.terms;
        let value = match step.opcode {
            DW_OP_ADDR => {
                let bias = terms.input_term(InputTerm::Bias);
                terms.add(bias, step.unsigned().cast_signed())
            }
            DW_OP_CONST1U..=DW_OP_CONSTS => terms.number(step.unsigned()),
            DW_OP_LIT0..=DW_OP_LIT31 => terms.number((step.opcode - DW_OP_LIT0).into()),
            DW_OP_BREG0..=DW_OP_BREG31 => {
                let register = Register((step.opcode - DW_OP_BREG0).into());
                return self.based(register, step.signed(), so_far).map(Some);
            }
            DW_OP_BREGX => {
                let register = u16::try_from(step.unsigned()).map_err(|_| UnsupportedExpression)?;
                let offset = step.second_signed();
                return self.based(Register(register), offset, so_far).map(Some);
            }
            DW_OP_DUP => peek(stack, 0)?,
            DW_OP_OVER => peek(stack, 1)?,
            DW_OP_PICK => peek(stack, step.unsigned())?,
            DW_OP_DROP => return pop().map(|_| None),
            DW_OP_SWAP => {
                let (top, second) = (pop()?, pop()?);
                stack.push(top);
                second
            }
            DW_OP_ROT => {
                let (top, second, third) = (pop()?, pop()?, pop()?);
                stack.extend([top, third]);
                second
            }
            DW_OP_DEREF | DW_OP_DEREF_SIZE => {
                let size = match (step.opcode, step.unsigned()) {
                    (DW_OP_DEREF, _) => 8,
                    (_, size @ (1 | 2 | 4 | 8)) => size,
                    _ => return Err(UnsupportedExpression),
                };
                let address = OptionalTerm {
                    value: pop()?,
                    ..*so_far
                };
                *so_far = self.load(address, size);
                so_far.value
            }
            DW_OP_ABS => {
                let value = pop()?;
                let bits = terms.number(63);
                let sign = terms.apply(TermOperator::Sar, value, bits);
                let inverted = terms.apply(TermOperator::Xor, value, sign);
                terms.apply(TermOperator::Sub, inverted, sign)
            }
            DW_OP_NEG => {
                let value = pop()?;
                terms.negate(value)
            }
            DW_OP_NOT => {
                let value = pop()?;
                terms.invert(value)
            }
            DW_OP_PLUS_UCONST => {
                let value = pop()?;
                terms.add(value, step.unsigned().cast_signed())
            }
            DW_OP_NOP => return Ok(None),
            DW_OP_SKIP | DW_OP_BRA => return Err(UnsupportedExpression),
            _ => {
                let (rhs, lhs) = (pop()?, pop()?);
                return self.binary(step.opcode, lhs, rhs, so_far).map(Some);
            }
        };
        Ok(Some(value))
    }

    /// A register plus an offset.
    fn based(
        &mut self,
        register: Register,
        offset: i64,
        so_far: &mut OptionalTerm,
    ) -> Result<TermId, UnsupportedExpression> {
        if register.0 >= Outline::REGISTERS {
            return Err(UnsupportedExpression);
        }
        let base = self.register(register);
        let value = self.terms.add(base.value, offset);
        *so_far = self.unless(*so_far, base.is_some, StepStatus::UnknownRegister, value);
        Ok(value)
    }

    fn binary(
        &mut self,
        opcode: u8,
        lhs: TermId,
        rhs: TermId,
        so_far: &mut OptionalTerm,
    ) -> Result<TermId, UnsupportedExpression> {
        use operation::*;
        let terms = &mut *self.terms;
        let apply = |terms: &mut Terms, operation| terms.apply(operation, lhs, rhs);
        Ok(match opcode {
            DW_OP_AND => apply(terms, TermOperator::And),
            DW_OP_OR => apply(terms, TermOperator::Or),
            DW_OP_XOR => apply(terms, TermOperator::Xor),
            DW_OP_PLUS => apply(terms, TermOperator::Add),
            DW_OP_MINUS => apply(terms, TermOperator::Sub),
            DW_OP_MUL => apply(terms, TermOperator::Mul),
            DW_OP_DIV | DW_OP_MOD => {
                let by_zero = terms.apply(TermOperator::Equal, rhs, Terms::NO);
                let can = terms.not(by_zero);
                let value = match opcode {
                    DW_OP_MOD => apply(terms, TermOperator::Rem),
                    _ => {
                        // Division by -1 is negation, also for the least number.
                        let minus_one = terms.number(u64::MAX);
                        let by_minus_one = terms.apply(TermOperator::Equal, rhs, minus_one);
                        let negated = terms.negate(lhs);
                        let divided = terms.apply(TermOperator::DivSigned, lhs, rhs);
                        terms.choose(by_minus_one, negated, divided)
                    }
                };
                *so_far = self.unless(*so_far, can, StepStatus::NoValue, value);
                value
            }
            DW_OP_SHL | DW_OP_SHR | DW_OP_SHRA => {
                let most = terms.number(63);
                let is_far = terms.apply(TermOperator::Below, most, rhs);
                let (operation, far) = match opcode {
                    DW_OP_SHL => (TermOperator::Shl, Terms::NO),
                    DW_OP_SHR => (TermOperator::Shr, Terms::NO),
                    _ => (TermOperator::Sar, terms.apply(TermOperator::Sar, lhs, most)),
                };
                let near = terms.apply(operation, lhs, rhs);
                terms.choose(is_far, far, near)
            }
            DW_OP_EQ => apply(terms, TermOperator::Equal),
            DW_OP_NE => {
                let equal = apply(terms, TermOperator::Equal);
                terms.not(equal)
            }
            DW_OP_LT => apply(terms, TermOperator::Less),
            DW_OP_GE => {
                let less = apply(terms, TermOperator::Less);
                terms.not(less)
            }
            DW_OP_GT => terms.apply(TermOperator::Less, rhs, lhs),
            DW_OP_LE => {
                let greater = terms.apply(TermOperator::Less, rhs, lhs);
                terms.not(greater)
            }
            _ => return Err(UnsupportedExpression),
        })
    }
}

/// A value on the stack, this many below its top.
fn peek(stack: &[TermId], below: u64) -> Result<TermId, UnsupportedExpression> {
    let below = usize::try_from(below).map_err(|_| UnsupportedExpression)?;
    let at = stack
        .len()
        .checked_sub(below)
        .and_then(|at| at.checked_sub(1));
    at.and_then(|at| stack.get(at))
        .copied()
        .ok_or(UnsupportedExpression)
}

pub(super) fn element<const N: usize>(nodes: &[TermId; N], place: usize) -> TermId {
    nodes.get(place).copied().unwrap_or(Terms::UNKNOWN)
}
