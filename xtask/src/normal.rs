//! Rows in one form, from either reader.

use std::fmt;

use unspool_ir::arch::{Arch, RegisterName};
use unspool_ir::expression::{Expression, Operand, operation};
use unspool_ir::{Abi, CfaRule, RaState, Register, RegisterRule};

use crate::facts::{Facts, Note};
use crate::readelf::{Cell, Row};

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Normal {
    /// How the CFA is found.
    pub cfa: Cfa,
    /// The rules, in ascending order of register.
    pub rules: Vec<(Register, Rule)>,
    /// The return address is signed.
    pub signed: bool,
    /// Bytes of outgoing arguments.
    pub args_size: u64,
    /// The return-address column.
    pub return_address: Register,
    /// The frame was interrupted.
    pub signal_frame: bool,
}

/// How the CFA is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cfa {
    /// Not at all.
    Undefined,
    /// Register plus offset.
    Offset(Register, i64),
    /// An expression.
    Expression(String),
}

/// How a register is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// Not at all.
    Undefined,
    /// Unchanged.
    Same,
    /// At CFA plus offset.
    Offset(i64),
    /// CFA plus offset.
    ValOffset(i64),
    /// In a register.
    Register(Register),
    /// At the address that an expression yields.
    Expression(String),
    /// What an expression yields.
    ValExpression(String),
}

/// What a CIE says of all its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Common {
    /// The return-address column.
    pub return_address: Register,
    /// Frames were interrupted.
    pub signal_frame: bool,
}

impl Normal {
    /// A row of `readelf`.
    #[must_use]
    pub fn theirs(row: &Row, facts: &Facts, common: Common) -> Self {
        let cfa = match (row.cfa, &facts.cfa) {
            // What nothing defined is printed as register 0 plus 0.
            (Some((Register(0), 0)), None) if !facts.has_cfa => Cfa::Undefined,
            (Some((register, offset)), _) => Cfa::Offset(register, offset),
            (None, text) => Cfa::Expression(text.clone().unwrap_or_else(|| "?".to_owned())),
        };
        let mut rules: Vec<(Register, Rule)> = row
            .cells
            .iter()
            .filter_map(|(register, cell)| {
                let note = facts.registers.get(register);
                Some((*register, their_rule(*cell, note)?))
            })
            .collect();
        rules.sort_by_key(|(register, _)| *register);
        Normal {
            cfa,
            rules,
            signed: facts.signed,
            args_size: facts.args_size,
            return_address: common.return_address,
            signal_frame: common.signal_frame,
        }
    }

    /// A row of ours.
    #[must_use]
    pub fn ours(row: &unspool_ir::Row<'_>, abi: Abi) -> Self {
        let cfa = match row.cfa {
            CfaRule::Undefined => Cfa::Undefined,
            CfaRule::RegisterOffset { register, offset } => Cfa::Offset(register, as_int(offset)),
            CfaRule::Expression(expression) => Cfa::Expression(expression_text(expression, abi)),
        };
        let rules = row
            .rules()
            .map(|(register, rule)| (register, our_rule(rule, abi)));
        Normal {
            cfa,
            rules: rules.collect(),
            signed: row.ra_state != RaState::Plain,
            args_size: row.args_size,
            return_address: row.return_address,
            signal_frame: row.signal_frame,
        }
    }
}

/// `None` where there is no rule.
fn their_rule(cell: Cell, note: Option<&Note>) -> Option<Rule> {
    Some(match (cell, note) {
        (Cell::Undefined, Some(Note::Undefined)) => Rule::Undefined,
        (Cell::Undefined, _) => return None,
        (Cell::Same, _) => Rule::Same,
        (Cell::Offset(offset), _) => Rule::Offset(offset),
        (Cell::ValOffset(offset), _) => Rule::ValOffset(offset),
        (Cell::Register(register), _) => Rule::Register(register),
        (Cell::Expression, Some(Note::Expression(text))) => Rule::Expression(text.clone()),
        (Cell::Expression, _) => Rule::Expression("?".to_owned()),
        (Cell::ValExpression, Some(Note::ValExpression(text))) => Rule::ValExpression(text.clone()),
        (Cell::ValExpression, _) => Rule::ValExpression("?".to_owned()),
    })
}

fn our_rule(rule: RegisterRule<'_>, abi: Abi) -> Rule {
    match rule {
        RegisterRule::Undefined => Rule::Undefined,
        RegisterRule::SameValue => Rule::Same,
        RegisterRule::Offset(offset) => Rule::Offset(as_int(offset)),
        RegisterRule::ValOffset(offset) => Rule::ValOffset(as_int(offset)),
        RegisterRule::Register(register) => Rule::Register(register),
        RegisterRule::Expression(expression) => Rule::Expression(expression_text(expression, abi)),
        RegisterRule::ValExpression(expression) => {
            Rule::ValExpression(expression_text(expression, abi))
        }
    }
}

/// Deviation of `readelf`: it keeps offsets in an `int`, and prints the low 32 bits of others.
fn as_int(offset: i64) -> i64 {
    offset << 32 >> 32
}

/// An expression in the words of `readelf`, without names of registers and punctuation.
fn expression_text(expression: Expression<'_>, abi: Abi) -> String {
    let mut text = String::new();
    for operation in expression.operations(abi) {
        if !text.is_empty() {
            text.push_str("; ");
        }
        let Ok(operation) = operation else {
            text.push_str("? ");
            break;
        };
        let name = match operation.opcode {
            code @ 0x30..=0x4f => format!("lit{}", code - 0x30),
            code @ 0x70..=0x8f => format!("breg{}", code - 0x70),
            code => {
                let known = operation::SINGLE.iter().find(|(known, ..)| *known == code);
                known.map_or("?", |(_, name, _)| *name).to_owned()
            }
        };
        text.push_str(&name);
        text.push_str(&match operation::operand_of(operation.opcode) {
            Some(Operand::Address) => format!(" {:x}", operation.unsigned()),
            Some(Operand::Unsigned(_) | Operand::Uleb) => format!(" {}", operation.unsigned()),
            Some(Operand::Signed(_) | Operand::Sleb | Operand::Branch) => {
                format!(" {}", operation.signed())
            }
            Some(Operand::RegisterOffset) => {
                format!(" {} {}", operation.unsigned(), operation.second_signed())
            }
            Some(Operand::None) | None => String::new(),
        });
    }
    text
}

/// Prints a row with the names of an architecture.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a>(pub &'a Normal, pub Arch);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Text(row, arch) = *self;
        match &row.cfa {
            Cfa::Undefined => f.write_str("cfa=undefined")?,
            Cfa::Offset(register, offset) => {
                write!(f, "cfa={}{offset:+}", RegisterName(*register, arch))?;
            }
            Cfa::Expression(text) => write!(f, "cfa={{{text}}}")?,
        }
        for (register, rule) in &row.rules {
            write!(f, " {}=", RegisterName(*register, arch))?;
            match rule {
                Rule::Undefined => f.write_str("undefined")?,
                Rule::Same => f.write_str("same")?,
                Rule::Offset(offset) => write!(f, "[cfa{offset:+}]")?,
                Rule::ValOffset(offset) => write!(f, "cfa{offset:+}")?,
                Rule::Register(other) => write!(f, "{}", RegisterName(*other, arch))?,
                Rule::Expression(text) => write!(f, "[{{{text}}}]")?,
                Rule::ValExpression(text) => write!(f, "{{{text}}}")?,
            }
        }
        write!(f, " return={}", RegisterName(row.return_address, arch))?;
        if row.signed {
            f.write_str(" signed")?;
        }
        if row.signal_frame {
            f.write_str(" signal")?;
        }
        match row.args_size {
            0 => Ok(()),
            size => write!(f, " args={size}"),
        }
    }
}
