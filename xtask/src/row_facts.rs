//! Facts from `readelf`'s list of instructions that its rows do not show: expressions, the
//! difference between "undefined" and "no rule", signed return addresses, sizes of arguments.

use std::collections::BTreeMap;

use unspool_rows::Register;

use crate::readelf::DumpInstruction;

/// The facts of a row that its printed form does not show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowFacts {
    /// Whether the CFA was defined.
    pub has_cfa: bool,
    /// The CFA's expression.
    pub cfa: Option<String>,
    /// Registers with rules that are not shown completely.
    pub registers: BTreeMap<Register, HiddenRule>,
    /// Whether the return address is signed.
    pub signed: bool,
    /// The size of outgoing arguments in bytes.
    pub args_size: u64,
}

/// A rule that is not shown completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HiddenRule {
    /// Undefined by an instruction.
    Undefined,
    /// Saved at the address that an expression computes.
    Expression(String),
    /// The value that an expression computes.
    ValExpression(String),
}

/// The facts of each row of an entry; `initial` are those of its CIE.
///
/// There is one for each row that `readelf` prints, or one if it prints none.
#[must_use]
pub fn row_facts(instructions: &[DumpInstruction], initial: &RowFacts) -> Vec<RowFacts> {
    let mut rows = Vec::new();
    let mut now = initial.clone();
    let mut remembered: Vec<RowFacts> = Vec::new();
    for instruction in instructions {
        match instruction {
            DumpInstruction::Advance(_) => rows.push(now.clone()),
            DumpInstruction::RememberState => remembered.push(now.clone()),
            DumpInstruction::RestoreState => {
                if let Some(before) = remembered.pop() {
                    // The size of arguments is not part of the saved state (as in libgcc).
                    let args_size = now.args_size;
                    now = RowFacts {
                        args_size,
                        ..before
                    };
                }
            }
            other => apply(&mut now, initial, other),
        }
    }
    rows.push(now);
    rows
}

fn apply(now: &mut RowFacts, initial: &RowFacts, instruction: &DumpInstruction) {
    let mut note = |register: &Register, hidden_rule: Option<HiddenRule>| match hidden_rule {
        Some(hidden_rule) => drop(now.registers.insert(*register, hidden_rule)),
        None => drop(now.registers.remove(register)),
    };
    match instruction {
        DumpInstruction::Cfa => {
            now.has_cfa = true;
            now.cfa = None;
        }
        DumpInstruction::CfaOffset => now.has_cfa = true,
        DumpInstruction::CfaExpression(text) => {
            now.has_cfa = true;
            now.cfa = Some(text.clone());
        }
        DumpInstruction::Undefined(register) => note(register, Some(HiddenRule::Undefined)),
        DumpInstruction::Expression(register, text) => {
            note(register, Some(HiddenRule::Expression(text.clone())));
        }
        DumpInstruction::ValExpression(register, text) => {
            note(register, Some(HiddenRule::ValExpression(text.clone())));
        }
        DumpInstruction::Rule(register) => note(register, None),
        DumpInstruction::Restore(register) => {
            note(register, initial.registers.get(register).cloned());
        }
        DumpInstruction::NegateRaState => now.signed = !now.signed,
        DumpInstruction::ArgsSize(size) => now.args_size = *size,
        DumpInstruction::Advance(_)
        | DumpInstruction::RememberState
        | DumpInstruction::RestoreState
        | DumpInstruction::Nop => {}
    }
}
