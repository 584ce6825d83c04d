//! What rows of `readelf` leave out, from its list of instructions: expressions, the difference
//! between "undefined" and "no rule", signed return addresses, sizes of arguments.

use std::collections::BTreeMap;

use unspool_ir::Register;

use crate::readelf::Instruction;

/// What holds in a row beside what is printed of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The CFA was defined.
    pub has_cfa: bool,
    /// The CFA's expression.
    pub cfa: Option<String>,
    /// Registers whose rule is not shown in full.
    pub registers: BTreeMap<Register, Note>,
    /// The return address is signed.
    pub signed: bool,
    /// Bytes of outgoing arguments.
    pub args_size: u64,
}

/// A rule that is not shown in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// Undefined by an instruction.
    Undefined,
    /// At the address that an expression yields.
    Expression(String),
    /// What an expression yields.
    ValExpression(String),
}

/// The facts of each row of an entry, of which `initial` are its CIE's.
///
/// There is one for each row that `readelf` prints, or one if it prints none.
#[must_use]
pub fn facts(instructions: &[Instruction], initial: &Facts) -> Vec<Facts> {
    let mut rows = Vec::new();
    let mut now = initial.clone();
    let mut remembered: Vec<Facts> = Vec::new();
    for instruction in instructions {
        match instruction {
            Instruction::Advance(_) => rows.push(now.clone()),
            Instruction::RememberState => remembered.push(now.clone()),
            Instruction::RestoreState => {
                if let Some(before) = remembered.pop() {
                    // The size of arguments is no part of the state (as in libgcc).
                    let args_size = now.args_size;
                    now = Facts {
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

fn apply(now: &mut Facts, initial: &Facts, instruction: &Instruction) {
    let mut note = |register: &Register, note: Option<Note>| match note {
        Some(note) => drop(now.registers.insert(*register, note)),
        None => drop(now.registers.remove(register)),
    };
    match instruction {
        Instruction::Cfa => {
            now.has_cfa = true;
            now.cfa = None;
        }
        Instruction::CfaOffset => now.has_cfa = true,
        Instruction::CfaExpression(text) => {
            now.has_cfa = true;
            now.cfa = Some(text.clone());
        }
        Instruction::Undefined(register) => note(register, Some(Note::Undefined)),
        Instruction::Expression(register, text) => {
            note(register, Some(Note::Expression(text.clone())));
        }
        Instruction::ValExpression(register, text) => {
            note(register, Some(Note::ValExpression(text.clone())));
        }
        Instruction::Rule(register) => note(register, None),
        Instruction::Restore(register) => note(register, initial.registers.get(register).cloned()),
        Instruction::NegateRaState => now.signed = !now.signed,
        Instruction::ArgsSize(size) => now.args_size = *size,
        Instruction::Advance(_)
        | Instruction::RememberState
        | Instruction::RestoreState
        | Instruction::Nop => {}
    }
}
