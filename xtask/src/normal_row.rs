//! Rows in a common form, from either reader.

use std::fmt;

use unspool_rows::arch::{Arch, RegisterName};
use unspool_rows::expression::{Expression, Operand, operation};
use unspool_rows::{Abi, CfaRule, RaState, Register, RegisterRule};

use crate::readelf::{Cell, DumpRow};
use crate::row_facts::{HiddenRule, RowFacts};

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NormalRow {
    /// The CFA rule.
    pub cfa: NormalCfa,
    /// The rules, in ascending order of register.
    pub rules: Vec<(Register, NormalRule)>,
    /// Whether the return address is signed.
    pub signed: bool,
    /// The size of outgoing arguments in bytes.
    pub args_size: u64,
    /// The return-address column.
    pub return_address: Register,
    /// Whether the frame was interrupted.
    pub signal_frame: bool,
}

/// A CFA rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NormalCfa {
    /// Undefined.
    Undefined,
    /// Register plus offset.
    Offset(Register, i64),
    /// An expression.
    Expression(String),
}

/// A register rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NormalRule {
    /// Undefined.
    Undefined,
    /// Same value.
    Same,
    /// Saved at CFA plus offset.
    Offset(i64),
    /// The value CFA plus offset.
    ValOffset(i64),
    /// Saved in a register.
    Register(Register),
    /// Saved at the address that an expression computes.
    Expression(String),
    /// The value that an expression computes.
    ValExpression(String),
}

/// The properties of a CIE for all its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CieFields {
    /// The return-address column.
    pub return_address: Register,
    /// Whether frames were interrupted.
    pub signal_frame: bool,
}

impl NormalRow {
    /// A row of `readelf`.
    #[must_use]
    pub fn from_readelf(row: &DumpRow, facts: &RowFacts, cie: CieFields) -> Self {
        let cfa = match (row.cfa, &facts.cfa) {
            // An undefined CFA is printed as register 0 plus 0.
            (Some((Register(0), 0)), None) if !facts.has_cfa => NormalCfa::Undefined,
            (Some((register, offset)), _) => NormalCfa::Offset(register, offset),
            (None, text) => NormalCfa::Expression(text.clone().unwrap_or_else(|| "?".to_owned())),
        };
        let mut rules: Vec<(Register, NormalRule)> = row
            .cells
            .iter()
            .filter_map(|(register, cell)| {
                let note = facts.registers.get(register);
                Some((*register, their_rule(*cell, note)?))
            })
            .collect();
        rules.sort_by_key(|(register, _)| *register);
        NormalRow {
            cfa,
            rules,
            signed: facts.signed,
            args_size: facts.args_size,
            return_address: cie.return_address,
            signal_frame: cie.signal_frame,
        }
    }

    /// A row of unspool.
    #[must_use]
    pub fn from_row(row: &unspool_rows::Row<'_>, abi: Abi) -> Self {
        let cfa = match row.cfa {
            CfaRule::Undefined => NormalCfa::Undefined,
            CfaRule::RegisterOffset { register, offset } => {
                NormalCfa::Offset(register, as_int(offset))
            }
            CfaRule::Expression(expression) => {
                NormalCfa::Expression(expression_text(expression, abi))
            }
        };
        let rules = row
            .rules()
            .map(|(register, rule)| (register, our_rule(rule, abi)));
        NormalRow {
            cfa,
            rules: rules.collect(),
            signed: row.ra_state != RaState::Plain,
            args_size: row.args_size,
            return_address: row.return_address,
            signal_frame: row.signal_frame,
        }
    }
}

/// `None` without a rule.
fn their_rule(cell: Cell, hidden_rule: Option<&HiddenRule>) -> Option<NormalRule> {
    Some(match (cell, hidden_rule) {
        (Cell::Undefined, Some(HiddenRule::Undefined)) => NormalRule::Undefined,
        (Cell::Undefined, _) => return None,
        (Cell::Same, _) => NormalRule::Same,
        (Cell::Offset(offset), _) => NormalRule::Offset(offset),
        (Cell::ValOffset(offset), _) => NormalRule::ValOffset(offset),
        (Cell::Register(register), _) => NormalRule::Register(register),
        (Cell::Expression, Some(HiddenRule::Expression(text))) => {
            NormalRule::Expression(text.clone())
        }
        (Cell::Expression, _) => NormalRule::Expression("?".to_owned()),
        (Cell::ValExpression, Some(HiddenRule::ValExpression(text))) => {
            NormalRule::ValExpression(text.clone())
        }
        (Cell::ValExpression, _) => NormalRule::ValExpression("?".to_owned()),
    })
}

fn our_rule(rule: RegisterRule<'_>, abi: Abi) -> NormalRule {
    match rule {
        RegisterRule::Undefined => NormalRule::Undefined,
        RegisterRule::SameValue => NormalRule::Same,
        RegisterRule::Offset(offset) => NormalRule::Offset(as_int(offset)),
        RegisterRule::ValOffset(offset) => NormalRule::ValOffset(as_int(offset)),
        RegisterRule::Register(register) => NormalRule::Register(register),
        RegisterRule::Expression(expression) => {
            NormalRule::Expression(expression_text(expression, abi))
        }
        RegisterRule::ValExpression(expression) => {
            NormalRule::ValExpression(expression_text(expression, abi))
        }
    }
}

/// Deviation of `readelf`: it stores offsets in an `int`, and prints the low 32 bits of larger
/// ones.
fn as_int(offset: i64) -> i64 {
    offset << 32 >> 32
}

/// An expression in `readelf`'s terms, without register names and punctuation.
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

/// Prints a row with the register names of an architecture.
#[derive(Debug, Clone, Copy)]
pub struct NormalRowText<'a>(pub &'a NormalRow, pub Arch);

impl fmt::Display for NormalRowText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NormalRowText(row, arch) = *self;
        match &row.cfa {
            NormalCfa::Undefined => f.write_str("cfa=undefined")?,
            NormalCfa::Offset(register, offset) => {
                write!(f, "cfa={}{offset:+}", RegisterName(*register, arch))?;
            }
            NormalCfa::Expression(text) => write!(f, "cfa={{{text}}}")?,
        }
        for (register, rule) in &row.rules {
            write!(f, " {}=", RegisterName(*register, arch))?;
            match rule {
                NormalRule::Undefined => f.write_str("undefined")?,
                NormalRule::Same => f.write_str("same")?,
                NormalRule::Offset(offset) => write!(f, "[cfa{offset:+}]")?,
                NormalRule::ValOffset(offset) => write!(f, "cfa{offset:+}")?,
                NormalRule::Register(other) => write!(f, "{}", RegisterName(*other, arch))?,
                NormalRule::Expression(text) => write!(f, "[{{{text}}}]")?,
                NormalRule::ValExpression(text) => write!(f, "{{{text}}}")?,
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
