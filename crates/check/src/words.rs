//! What rows say, in words: expressions as formulas, as `unspool expr` writes them.

use unspool_ir::arch::RegisterName;
use unspool_ir::formula::{Purpose, Statement};
use unspool_ir::text::{ExpressionText, RuleText};
use unspool_ir::{Abi, CfaRule, Expression, Register, RegisterRule, Row};

/// Where a row says that the CFA is: `rsp+16`, `*(rsp+8)+16`.
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
            let formula = formula(Purpose::Cfa, expression, abi);
            formula.unwrap_or_else(|| ExpressionText(expression, abi).to_string())
        }
    }
}

/// Where a row says that a register of the caller is: `[cfa-16]`, `*(rbp-8)`; its own name if it is unchanged.
#[must_use]
pub fn register(row: &Row<'_>, register: Register, abi: Abi) -> String {
    let rule = match row.rule(register) {
        None | Some(RegisterRule::SameValue) => {
            return RegisterName(register, abi.arch).to_string();
        }
        Some(rule) => rule,
    };
    let formula = match rule {
        RegisterRule::Expression(expression) => {
            formula(Purpose::Address(register), expression, abi)
        }
        RegisterRule::ValExpression(expression) => {
            formula(Purpose::Value(register), expression, abi)
        }
        _ => None,
    };
    formula.unwrap_or_else(|| RuleText(rule, abi).to_string())
}

/// The right side of a statement; `None` if it has no formula.
fn formula(purpose: Purpose, expression: Expression<'_>, abi: Abi) -> Option<String> {
    let expression = expression.0.to_vec();
    let statement = Statement {
        purpose,
        expression,
    };
    Some(statement.formula(abi).ok()?.to_string())
}
