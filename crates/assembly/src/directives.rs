//! Rows as directives.

use unspool_cfi::escape;
use unspool_code_analysis::arch::AbiInfo;
use unspool_code_analysis::{CfaLocation, ProvenRules, SavedLocation};
use unspool_rows::formula::{ExpressionUse, Statement};
use unspool_rows::{Abi, Register};

/// How a file writes registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterSyntax {
    /// `%rax`.
    Prefixed,
    /// `rax`: after `.intel_syntax noprefix`.
    Unprefixed,
}

impl RegisterSyntax {
    /// The syntax that a text's directives select.
    #[must_use]
    pub fn detect(text: &str) -> RegisterSyntax {
        let is_plain = |line: &str| {
            let mut words = line.split_whitespace();
            let is_chosen = matches!(words.next(), Some(".intel_syntax" | ".att_syntax"));
            is_chosen && words.next() == Some("noprefix")
        };
        if text.lines().any(is_plain) {
            RegisterSyntax::Unprefixed
        } else {
            RegisterSyntax::Prefixed
        }
    }
}

/// Writes directives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirectiveWriter {
    pub(crate) abi: Abi,
    pub(crate) abi_info: &'static AbiInfo,
    pub(crate) syntax: RegisterSyntax,
}

impl DirectiveWriter {
    fn name(&self, register: u8) -> String {
        let register = Register(register.into());
        let name = self.abi.arch.assembler_name(register);
        let name = name.map_or_else(|| register.0.to_string(), str::to_owned);
        match self.syntax {
            RegisterSyntax::Prefixed => format!("%{name}"),
            RegisterSyntax::Unprefixed => name,
        }
    }

    /// The directives that change one row into another.
    pub(crate) fn directives_between(&self, from: &ProvenRules, to: &ProvenRules) -> Vec<String> {
        let mut directives = Vec::new();
        directives.extend(self.cfa(from.cfa, to.cfa));
        let column = self.abi_info.return_address;
        let (before, after) = (from.preserved(self.abi_info), to.preserved(self.abi_info));
        let before = before.chain([(column, from.return_address)]);
        let after = after.chain([(column, to.return_address)]);
        let at_entry = ProvenRules::function_entry(self.abi_info);
        for ((register, before), (_, after)) in before.zip(after) {
            let initial = if register == column {
                at_entry.return_address
            } else {
                SavedLocation::SameValue
            };
            if before != after {
                directives.push(if after == initial {
                    format!(".cfi_restore {}", self.name(register))
                } else {
                    self.saved(register, after)
                });
            }
        }
        directives
    }

    fn cfa(&self, from: CfaLocation, to: CfaLocation) -> Option<String> {
        if from == to {
            return None;
        }
        let CfaLocation::Register(register, offset) = to else {
            return Some(self.escape(ExpressionUse::Cfa, to.expression()));
        };
        Some(match from {
            CfaLocation::Register(before, old) if before == register => {
                format!(".cfi_adjust_cfa_offset {}", offset - old)
            }
            CfaLocation::Register(_, old) if old == offset => {
                format!(".cfi_def_cfa_register {}", self.name(register))
            }
            _ => format!(".cfi_def_cfa {}, {offset}", self.name(register)),
        })
    }

    fn saved(&self, register: u8, saved: SavedLocation) -> String {
        let name = self.name(register);
        match saved {
            SavedLocation::SameValue => format!(".cfi_same_value {name}"),
            SavedLocation::CfaOffset(offset) => format!(".cfi_offset {name}, {offset}"),
            SavedLocation::Register(other) => format!(".cfi_register {name}, {}", self.name(other)),
            SavedLocation::Undefined => format!(".cfi_undefined {name}"),
            SavedLocation::RegisterOffset(..) => {
                let purpose = ExpressionUse::Address(Register(register.into()));
                self.escape(purpose, saved.address_expression())
            }
        }
    }

    /// A rule without a directive, with its meaning in a comment.
    fn escape(&self, purpose: ExpressionUse, expression: Vec<u8>) -> String {
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
