//! Rows as directives.

use unspool_cfi::escape;
use unspool_ir::formula::{Purpose, Statement};
use unspool_ir::{Abi, Register};
use unspool_synth::arch::Facts;
use unspool_synth::{Cfa, Rules, Saved};

/// How a file writes registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// `%rax`.
    Prefixed,
    /// `rax`: after `.intel_syntax noprefix`.
    Plain,
}

impl Syntax {
    /// The syntax that a text's directives choose.
    #[must_use]
    pub fn of(text: &str) -> Syntax {
        let is_plain = |line: &str| {
            let mut words = line.split_whitespace();
            let is_chosen = matches!(words.next(), Some(".intel_syntax" | ".att_syntax"));
            is_chosen && words.next() == Some("noprefix")
        };
        match text.lines().any(is_plain) {
            true => Syntax::Plain,
            false => Syntax::Prefixed,
        }
    }
}

/// Writes directives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer {
    pub(crate) abi: Abi,
    pub(crate) facts: &'static Facts,
    pub(crate) syntax: Syntax,
}

impl Writer {
    fn name(&self, register: u8) -> String {
        let register = Register(register.into());
        let name = self.abi.arch.assembler_name(register);
        let name = name.map_or_else(|| register.0.to_string(), str::to_owned);
        match self.syntax {
            Syntax::Prefixed => format!("%{name}"),
            Syntax::Plain => name,
        }
    }

    /// The directives that change one row into another.
    pub(crate) fn change(&self, from: &Rules, to: &Rules) -> Vec<String> {
        let mut directives = Vec::new();
        directives.extend(self.cfa(from.cfa, to.cfa));
        let column = self.facts.return_address;
        let (before, after) = (from.preserved(self.facts), to.preserved(self.facts));
        let before = before.chain([(column, from.return_address)]);
        let after = after.chain([(column, to.return_address)]);
        let at_entry = Rules::at_entry(self.facts);
        for ((register, before), (_, after)) in before.zip(after) {
            let initial = match register == column {
                true => at_entry.return_address,
                false => Saved::Same,
            };
            if before != after {
                directives.push(match after == initial {
                    true => format!(".cfi_restore {}", self.name(register)),
                    false => self.saved(register, after),
                });
            }
        }
        directives
    }

    fn cfa(&self, from: Cfa, to: Cfa) -> Option<String> {
        if from == to {
            return None;
        }
        let Cfa::Register(register, offset) = to else {
            return Some(self.escape(Purpose::Cfa, to.expression()));
        };
        Some(match from {
            Cfa::Register(before, old) if before == register => {
                format!(".cfi_adjust_cfa_offset {}", offset - old)
            }
            Cfa::Register(_, old) if old == offset => {
                format!(".cfi_def_cfa_register {}", self.name(register))
            }
            _ => format!(".cfi_def_cfa {}, {offset}", self.name(register)),
        })
    }

    fn saved(&self, register: u8, saved: Saved) -> String {
        let name = self.name(register);
        match saved {
            Saved::Same => format!(".cfi_same_value {name}"),
            Saved::AtCfa(offset) => format!(".cfi_offset {name}, {offset}"),
            Saved::In(other) => format!(".cfi_register {name}, {}", self.name(other)),
            Saved::Lost => format!(".cfi_undefined {name}"),
            Saved::At(..) => {
                let purpose = Purpose::Address(Register(register.into()));
                self.escape(purpose, saved.address())
            }
        }
    }

    /// What no directive says, with its meaning.
    fn escape(&self, purpose: Purpose, expression: Vec<u8>) -> String {
        let statement = Statement {
            purpose,
            expression,
        };
        let bytes = escape::encode(&statement).unwrap_or_default();
        let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:#04x}")).collect();
        let meaning = match statement.formula(self.abi) {
            Ok(formula) => format!("\t# {}{formula}", statement.left_side(self.abi)),
            Err(_) => String::new(),
        };
        format!(".cfi_escape {}{meaning}", bytes.join(", "))
    }
}
