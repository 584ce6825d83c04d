//! Whose code it is: a crate's own, and what people wrote.

use std::path::Path;

use unspool_check::{Code, Finding, Severity};
use unspool_module::{ElfFile, ElfKind};

use super::source;
use crate::args::CheckArgs;

/// Whose code that in a file is.
pub(super) struct Origin<'a> {
    own: Option<&'a Path>,
    kind: ElfKind,
    pub(super) has_lines: bool,
}

impl<'a> Origin<'a> {
    pub(super) fn of(file: &ElfFile, args: &'a CheckArgs) -> Origin<'a> {
        Origin {
            own: args.own.as_deref(),
            kind: file.kind(),
            has_lines: file.sections().any(|section| section.name == ".debug_line"),
        }
    }

    /// Whether it is asked for.
    pub(super) fn is_own(&self, source: Option<&Path>) -> bool {
        match (self.own, source) {
            (Some(own), Some(source)) => source.starts_with(own),
            // The objects of a crate's library are its own; programs have others' code in them.
            (Some(_), None) => self.has_lines || self.kind == ElfKind::Relocatable,
            (None, _) => true,
        }
    }

    /// Whether people wrote it in assembly. rustc gives that of `global_asm!` and naked functions no line numbers.
    pub(super) fn is_written(&self, source: Option<&Path>) -> bool {
        match source {
            Some(source) => source::is_assembly(source),
            None => self.own.is_some() && self.has_lines,
        }
    }

    /// Functions without an entry are a fault of whoever wrote them, but for those that the C library begins programs
    /// with.
    pub(super) fn reconsider(&self, finding: &mut Finding) {
        let is_of_entry = matches!(finding.code, Code::NoEntry | Code::EntryTooShort);
        if is_of_entry && self.kind == ElfKind::Relocatable {
            finding.severity = Severity::Refuted;
        }
    }
}
