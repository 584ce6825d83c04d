//! Recipes: the work of code for a row, in order.

use unspool_rows::arch::DefaultRule;
use unspool_rows::expression::{MAX_STACK_VALUES, MAX_STEPS, Operation, operation};
use unspool_rows::{Abi, CfaRule, Expression, Register, RegisterRule, Row};

use crate::outline::Outline;
use crate::status::StepStatus;

/// An expression without branches: its operations run in sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BranchFreeExpression(pub(crate) Vec<Operation>);

/// The source of a value. All values are computed from the callee's frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ValueSource {
    /// The CFA plus an offset in bytes.
    Cfa(i64),
    /// 8 bytes of memory at the CFA plus an offset in bytes.
    AtCfa(i64),
    /// A register plus an offset.
    Register(u8, i64),
    /// The result of an expression.
    Value(BranchFreeExpression),
    /// 8 bytes of memory at the result of an expression.
    Memory(BranchFreeExpression),
}

/// The recipe of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Recipe {
    /// Fails with a status.
    Fails(StepStatus),
    /// Steps to the caller.
    Steps(CallerRecipe),
}

/// The source of the return address. It is computed after the CFA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReturnAddress {
    /// It must have a value.
    Source(ValueSource),
    /// There is no caller.
    Undefined,
    /// There is no rule, or it is never known.
    Missing(StepStatus),
}

/// The recipe of a step to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallerRecipe {
    /// The CFA. It must have a value.
    pub(crate) cfa: ValueSource,
    pub(crate) return_address: ReturnAddress,
    /// Registers that stay unchanged: bit n stands for register n.
    pub(crate) kept: u32,
    /// Registers that get another value, if there is one; without the return address.
    pub(crate) set: Vec<(u8, ValueSource)>,
    /// Whether the frame was interrupted.
    pub(crate) is_interrupted: bool,
}

impl Recipe {
    pub(crate) fn from_row(row: &Row<'_>, abi: Abi) -> Recipe {
        match steps(row, abi) {
            Ok(steps) => Recipe::Steps(steps),
            Err(status) => Recipe::Fails(status),
        }
    }
}

fn steps(row: &Row<'_>, abi: Abi) -> Result<CallerRecipe, StepStatus> {
    let spec = abi.arch.spec();
    let cfa = match row.cfa {
        CfaRule::Undefined => return Err(StepStatus::NoRule),
        CfaRule::RegisterOffset { register, offset } => {
            let number = number(register).ok_or(StepStatus::UnknownRegister)?;
            ValueSource::Register(number, offset)
        }
        CfaRule::Expression(expression) => ValueSource::Value(straight(expression, abi, 0)?),
    };
    let column = row.return_address;
    let return_address = match row.rule(column) {
        Some(RegisterRule::Undefined) => ReturnAddress::Undefined,
        Some(rule) => source(rule, column, abi)?.map_or(
            ReturnAddress::Missing(StepStatus::UnknownRegister),
            ReturnAddress::Source,
        ),
        None => match (abi.arch.unspecified(column), number(column)) {
            (DefaultRule::Cfa, _) => ReturnAddress::Source(ValueSource::Cfa(0)),
            (DefaultRule::Unknown, _) if !row.signal_frame => {
                ReturnAddress::Missing(StepStatus::NoRule)
            }
            (_, Some(number)) => ReturnAddress::Source(ValueSource::Register(number, 0)),
            (_, None) => ReturnAddress::Missing(StepStatus::UnknownRegister),
        },
    };
    let mut steps = CallerRecipe {
        cfa,
        return_address,
        kept: 0,
        set: Vec::new(),
        is_interrupted: row.signal_frame,
    };
    for register in (0..Outline::REGISTERS).map(Register) {
        let Some(number) = number(register).filter(|_| register != spec.pc) else {
            continue;
        };
        let rule = row.rule(register);
        let found = match rule {
            Some(rule) => source(rule, register, abi)?,
            None => match abi.arch.unspecified(register) {
                DefaultRule::Cfa => Some(ValueSource::Cfa(0)),
                DefaultRule::SameValue => Some(ValueSource::Register(number, 0)),
                DefaultRule::Unknown if row.signal_frame => Some(ValueSource::Register(number, 0)),
                DefaultRule::Unknown => None,
            },
        };
        match found {
            Some(ValueSource::Register(from, 0)) if from == number => steps.kept |= 1 << number,
            Some(source) => steps.set.push((number, source)),
            None => {}
        }
    }
    Ok(steps)
}

/// A register of a frame.
fn number(register: Register) -> Option<u8> {
    let number = u8::try_from(register.0).ok();
    number.filter(|_| register < Register(Outline::REGISTERS))
}

/// The source of a register's value by a rule; `None` if there is none.
fn source(
    rule: RegisterRule<'_>,
    register: Register,
    abi: Abi,
) -> Result<Option<ValueSource>, StepStatus> {
    Ok(match rule {
        RegisterRule::Undefined => None,
        RegisterRule::SameValue => number(register).map(|number| ValueSource::Register(number, 0)),
        RegisterRule::Register(other) => {
            number(other).map(|number| ValueSource::Register(number, 0))
        }
        RegisterRule::Offset(offset) => Some(ValueSource::AtCfa(offset)),
        RegisterRule::ValOffset(offset) => Some(ValueSource::Cfa(offset)),
        RegisterRule::Expression(expression) => {
            Some(ValueSource::Memory(straight(expression, abi, 1)?))
        }
        RegisterRule::ValExpression(expression) => {
            Some(ValueSource::Value(straight(expression, abi, 1)?))
        }
    })
}

/// The operations of an expression that starts with this many values on the stack.
fn straight(
    expression: Expression<'_>,
    abi: Abi,
    depth: usize,
) -> Result<BranchFreeExpression, StepStatus> {
    let operations = expression.operations(abi).collect::<Result<Vec<_>, _>>();
    let operations = operations.map_err(|_| StepStatus::NotCompiled)?;
    let mut depth = depth;
    for operation in &operations {
        let (needs, leaves) = effect(operation).ok_or(StepStatus::NotCompiled)?;
        depth = depth.checked_sub(needs).ok_or(StepStatus::NotCompiled)? + leaves;
        if depth > MAX_STACK_VALUES {
            return Err(StepStatus::NotCompiled);
        }
    }
    match depth {
        0 => Err(StepStatus::NotCompiled),
        _ if operations.len() > MAX_STEPS as usize => Err(StepStatus::NotCompiled),
        _ => Ok(BranchFreeExpression(operations)),
    }
}

/// Number of values that an operation needs on the stack, and of those that it leaves instead;
/// `None` if it is not compiled.
pub(crate) fn effect(operation: &Operation) -> Option<(usize, usize)> {
    use operation::*;
    Some(match operation.opcode {
        DW_OP_ADDR | DW_OP_CONST1U..=DW_OP_CONSTS => (0, 1),
        DW_OP_DUP => (1, 2),
        DW_OP_DROP => (1, 0),
        DW_OP_OVER => (2, 3),
        DW_OP_PICK => {
            let needs = usize::try_from(operation.unsigned()).ok()?.checked_add(1)?;
            (needs, needs.checked_add(1)?)
        }
        DW_OP_SWAP => (2, 2),
        DW_OP_ROT => (3, 3),
        DW_OP_DEREF | DW_OP_ABS | DW_OP_NEG | DW_OP_NOT | DW_OP_PLUS_UCONST => (1, 1),
        DW_OP_DEREF_SIZE => matches!(operation.unsigned(), 1 | 2 | 4 | 8).then_some((1, 1))?,
        DW_OP_AND..=DW_OP_MUL
        | DW_OP_OR..=DW_OP_PLUS
        | DW_OP_SHL..=DW_OP_XOR
        | DW_OP_EQ..=DW_OP_NE => (2, 1),
        DW_OP_NOP => (0, 0),
        _ => match constant(operation) {
            Some(_) => (0, 1),
            None => {
                let (register, _) = register(operation)?;
                (register < Outline::REGISTERS).then_some((0, 1))?
            }
        },
    })
}

/// The constant that an operation pushes.
pub(crate) fn constant(operation: &Operation) -> Option<u64> {
    use operation::*;
    match operation.opcode {
        DW_OP_CONST1U..=DW_OP_CONSTS => Some(operation.unsigned()),
        opcode => {
            let literal = opcode.checked_sub(DW_OP_LIT0)?;
            (opcode <= DW_OP_LIT31).then_some(literal.into())
        }
    }
}

/// The register that an operation reads, and the offset that it adds.
pub(crate) fn register(operation: &Operation) -> Option<(u16, i64)> {
    use operation::*;
    match operation.opcode {
        DW_OP_BREGX => {
            let register = u16::try_from(operation.unsigned()).ok()?;
            Some((register, operation.second_signed()))
        }
        opcode => {
            let register = opcode.checked_sub(DW_OP_BREG0)?;
            (opcode <= DW_OP_BREG31).then_some((register.into(), operation.signed()))
        }
    }
}
