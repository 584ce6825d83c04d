//! Wording of rules and actual locations, and directives for them. Expressions are formulas, in the
//! syntax of `unspool expr`.

use unspool_rows::arch::RegisterName;
use unspool_rows::formula::{ExpressionUse, Statement};
use unspool_rows::text::{ExpressionText, RuleText};
use unspool_rows::{Abi, CfaRule, Expression, Register, RegisterRule, Row};

use crate::declared_row::RuleLocation;
use crate::row_checker::Aspect;

/// For a register that has the caller's value.
pub(crate) const UNCHANGED: &str = "unchanged";

/// The subject of a rule: `the CFA`, `the caller's rbx`.
#[must_use]
pub fn aspect(of: Aspect, abi: Abi) -> String {
    match of {
        Aspect::Cfa => "the CFA".to_owned(),
        Aspect::ReturnAddress => "the return address".to_owned(),
        Aspect::Register(register) => {
            let name = RegisterName(Register(register.into()), abi.arch);
            format!("the caller's {name}")
        }
    }
}

/// A row's rule for the CFA: `rsp+16`, `*(rsp+8)+16`.
#[must_use]
pub fn cfa(row: &Row<'_>, abi: Abi) -> String {
    match row.cfa {
        CfaRule::Undefined => "undefined".to_owned(),
        CfaRule::RegisterOffset { register, offset } => {
            let register = RegisterName(register, abi.arch);
            match offset {
                0 => register.to_string(),
                offset => format!("{register}{offset:+}"),
            }
        }
        CfaRule::Expression(expression) => {
            let formula = formula(ExpressionUse::Cfa, expression, abi);
            formula.unwrap_or_else(|| ExpressionText(expression, abi).to_string())
        }
    }
}

/// A row's rule for a register of the caller: `[cfa-16]`, `*(rbp-8)`, `unchanged`.
#[must_use]
pub fn register(row: &Row<'_>, register: Register, abi: Abi) -> String {
    let rule = match row.rule(register) {
        None | Some(RegisterRule::SameValue) => return UNCHANGED.to_owned(),
        Some(RegisterRule::Register(own)) if own == register => return UNCHANGED.to_owned(),
        Some(rule) => rule,
    };
    let formula = match rule {
        RegisterRule::Expression(expression) => {
            formula(ExpressionUse::Address(register), expression, abi)
        }
        RegisterRule::ValExpression(expression) => {
            formula(ExpressionUse::Value(register), expression, abi)
        }
        _ => None,
    };
    formula.unwrap_or_else(|| RuleText(rule, abi).to_string())
}

/// A location: `rsp+16`, `[cfa-16]`, `unchanged`.
#[must_use]
pub fn location_text(location: RuleLocation, of: Aspect, abi: Abi) -> String {
    let name = |register: u8| RegisterName(Register(register.into()), abi.arch).to_string();
    match location {
        RuleLocation::Undefined => "undefined".to_owned(),
        RuleLocation::Register(own, 0) if of == Aspect::Register(own) => UNCHANGED.to_owned(),
        RuleLocation::Register(register, 0) => name(register),
        RuleLocation::Register(register, offset) => format!("{}{offset:+}", name(register)),
        RuleLocation::CfaOffset(offset) => format!("[cfa{offset:+}]"),
        RuleLocation::CfaValue(offset) => format!("cfa{offset:+}"),
        RuleLocation::Expression => "an expression".to_owned(),
    }
}

/// The directive for a location; `None` if there is none. `column` is the return address's number.
#[must_use]
pub fn directive(of: Aspect, location: RuleLocation, column: u8, abi: Abi) -> Option<String> {
    let register = match of {
        Aspect::Cfa => {
            let RuleLocation::Register(register, offset) = location else {
                return None;
            };
            return Some(format!(".cfi_def_cfa {}, {offset}", operand(register, abi)));
        }
        Aspect::ReturnAddress => column,
        Aspect::Register(register) => register,
    };
    let name = operand(register, abi);
    match location {
        RuleLocation::CfaOffset(offset) => Some(format!(".cfi_offset {name}, {offset}")),
        RuleLocation::Register(own, 0) if own == register => {
            (of != Aspect::ReturnAddress).then(|| format!(".cfi_restore {name}"))
        }
        RuleLocation::Register(other, 0) => {
            Some(format!(".cfi_register {name}, {}", operand(other, abi)))
        }
        _ => None,
    }
}

/// The name of a register in directives: `%rbx`.
pub(crate) fn operand(register: u8, abi: Abi) -> String {
    let name = abi.arch.assembler_name(Register(register.into()));
    name.map_or_else(|| register.to_string(), |name| format!("%{name}"))
}

/// The right side of an assignment; `None` if there is no formula.
fn formula(purpose: ExpressionUse, expression: Expression<'_>, abi: Abi) -> Option<String> {
    let expression = expression.0.to_vec();
    let statement = Statement {
        purpose,
        expression,
    };
    Some(statement.formula(abi).ok()?.to_string())
}
