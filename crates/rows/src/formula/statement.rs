//! Statements: an expression and its use.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::{Formula, FormulaError, FormulaParseError, InitialStack, parse};
use crate::arch::{Abi, RegisterName};
use crate::expression::Expression;
use crate::register::Register;
use crate::text::{self, ExpressionText};

/// The use of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpressionUse {
    /// Unknown.
    Any,
    /// The CFA (`DW_CFA_def_cfa_expression`).
    Cfa,
    /// The address where a register of the caller is in memory (`DW_CFA_expression`).
    Address(Register),
    /// A register of the caller (`DW_CFA_val_expression`).
    Value(Register),
}

/// A line about the CFA or a register of the caller: `cfa = *(rsp+8)+8`, `rbx = *(cfa-16)`.
///
/// The left side is always the value. If it is a word of memory, `rbx = *(cfa-16)`, the expression
/// yields the address, as `DW_CFA_expression` has it. Instead of a formula, operations can stand in
/// braces as in the text form of tables: `rbx = [{lit16; minus}]`, `rbx = {breg0 8}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The use of the expression.
    pub purpose: ExpressionUse,
    /// The expression's bytes.
    pub expression: Vec<u8>,
}

impl Statement {
    /// Reads a statement, or an expression without a left side.
    ///
    /// # Errors
    ///
    /// [`FormulaParseError`], with the position in the text.
    pub fn parse(text: &str, abi: Abi) -> Result<Statement, FormulaParseError> {
        let (subject, from) = subject(text, abi)?;
        let right = text.get(from..).unwrap_or_default();
        let trimmed = right.trim();
        let in_memory = trimmed
            .strip_prefix('[')
            .and_then(|inner| inner.trim_end().strip_suffix(']'))
            .map(str::trim)
            .filter(|inner| inner.starts_with('{'));
        if let Some(inner) = in_memory {
            let expression = operations(text, inner, abi)?;
            return match subject {
                LeftSide::Register(register) => Ok(Statement {
                    purpose: ExpressionUse::Address(register),
                    expression,
                }),
                _ => Err(FormulaParseError {
                    at: offset_of(text, trimmed),
                    what: "`[{…}]` says where a register is: `rbx = [{…}]`",
                }),
            };
        }
        if trimmed.starts_with('{') {
            return Ok(Statement {
                purpose: subject.value(),
                expression: operations(text, trimmed, abi)?,
            });
        }
        let initial = match subject {
            LeftSide::Cfa => InitialStack::Nothing,
            _ => InitialStack::Cfa,
        };
        let formula = parse::formula(text, from, abi, initial)?;
        let (purpose, formula) = match (subject, formula.address()) {
            (LeftSide::Register(register), Some(address)) => {
                (ExpressionUse::Address(register), address)
            }
            _ => (subject.value(), formula),
        };
        Ok(Statement {
            purpose,
            expression: formula.assemble(),
        })
    }

    /// The formula of the left side's value.
    ///
    /// # Errors
    ///
    /// [`FormulaError`] if the expression has none.
    pub fn formula(&self, abi: Abi) -> Result<Formula, FormulaError> {
        let expression = Expression(&self.expression);
        match self.purpose {
            ExpressionUse::Cfa => Formula::from_expression(expression, abi, InitialStack::Nothing),
            ExpressionUse::Value(_) => Formula::from_expression(expression, abi, InitialStack::Cfa),
            ExpressionUse::Address(_) => {
                Formula::from_expression(expression, abi, InitialStack::Cfa)?.loaded()
            }
            ExpressionUse::Any => Formula::from_expression(expression, abi, InitialStack::Nothing)
                .or_else(|_| Formula::from_expression(expression, abi, InitialStack::Cfa)),
        }
    }

    /// The left side with its ` = `; nothing if the expression's use is unknown.
    #[must_use]
    pub fn left_side(&self, abi: Abi) -> String {
        match self.purpose {
            ExpressionUse::Any => String::new(),
            ExpressionUse::Cfa => String::from("cfa = "),
            ExpressionUse::Address(register) | ExpressionUse::Value(register) => {
                alloc::format!("{} = ", RegisterName(register, abi.arch))
            }
        }
    }
}

/// Prints a statement with its operations by name; it parses back to the same bytes.
#[derive(Debug, Clone, Copy)]
pub struct OperationsText<'s>(pub &'s Statement, pub Abi);

impl fmt::Display for OperationsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OperationsText(statement, abi) = *self;
        let left_side = statement.left_side(abi);
        let operations = ExpressionText(Expression(&statement.expression), abi);
        match statement.purpose {
            ExpressionUse::Address(_) => write!(f, "{left_side}[{operations}]"),
            _ => write!(f, "{left_side}{operations}"),
        }
    }
}

/// The left side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeftSide {
    None,
    Cfa,
    Register(Register),
}

impl LeftSide {
    /// The use of an expression that yields the value.
    fn value(self) -> ExpressionUse {
        match self {
            LeftSide::None => ExpressionUse::Any,
            LeftSide::Cfa => ExpressionUse::Cfa,
            LeftSide::Register(register) => ExpressionUse::Value(register),
        }
    }
}

/// The left side, and the offset of the right one.
fn subject(text: &str, abi: Abi) -> Result<(LeftSide, usize), FormulaParseError> {
    let Some(equals) = text.find('=') else {
        return Ok((LeftSide::None, 0));
    };
    let (left, right) = text.split_at(equals);
    let name = left.trim();
    // `a == b` and `a <= b` are formulas.
    if right.starts_with("==") || name.ends_with(['<', '>', '!', '=']) {
        return Ok((LeftSide::None, 0));
    }
    let subject = match name.strip_prefix('%').unwrap_or(name) {
        "cfa" => Some(LeftSide::Cfa),
        name => abi.arch.register_named(name).map(LeftSide::Register),
    };
    let fault = FormulaParseError {
        at: offset_of(text, name),
        what: "expected `cfa` or the name of a register before `=`",
    };
    Ok((subject.ok_or(fault)?, equals + 1))
}

/// Operations in braces.
fn operations(text: &str, braced: &str, abi: Abi) -> Result<Vec<u8>, FormulaParseError> {
    let inner = braced
        .strip_prefix('{')
        .and_then(|inner| inner.strip_suffix('}'));
    let inner = inner.ok_or(FormulaParseError {
        at: offset_of(text, braced) + braced.len(),
        what: "`}` is missing",
    })?;
    text::expression(inner, abi).map_err(|(what, at): text::TextFault<'_>| FormulaParseError {
        at: offset_of(text, at),
        what,
    })
}

/// The offset of a part in its text.
fn offset_of(text: &str, part: &str) -> usize {
    let offset = part.as_ptr().addr().saturating_sub(text.as_ptr().addr());
    offset.min(text.len())
}
