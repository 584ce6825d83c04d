//! The authorship of code: the crate's own code, and hand-written code.

use core::ops::Range;
use std::path::Path;

use unspool_assembly::AssemblySource;
use unspool_elf::{Binding, ElfFile, ElfKind, Lines, Symbol};
use unspool_rows::Vaddr;

use crate::origin::{CodeOrigins, START_FILE_FUNCTIONS};

/// The authorship of the code in a file.
pub(crate) struct CodeOwnership<'a> {
    own: Option<&'a Path>,
    kind: ElfKind,
    has_lines: bool,
}

impl<'a> CodeOwnership<'a> {
    pub(crate) fn new(file: &ElfFile, own: Option<&'a Path>) -> CodeOwnership<'a> {
        CodeOwnership {
            own,
            kind: file.kind(),
            has_lines: file.sections().any(|section| section.name == ".debug_line"),
        }
    }

    /// Whether nothing shows which code is in scope.
    pub(crate) fn lacks_lines(&self) -> bool {
        self.own.is_some() && !self.has_lines && self.kind != ElfKind::Relocatable
    }

    /// Whether code is in scope.
    pub(crate) fn is_own(&self, source: Option<&Path>) -> bool {
        match (self.own, source) {
            (Some(own), Some(source)) => source.starts_with(own),
            // The objects of a crate's library are its own; programs have code of others in them.
            (Some(_), None) => self.has_lines || self.kind == ElfKind::Relocatable,
            (None, _) => true,
        }
    }

    /// Whether it is hand-written assembly. rustc gives `global_asm!` and naked functions no line
    /// numbers.
    pub(crate) fn is_hand_written(&self, source: Option<&Path>) -> bool {
        match source {
            Some(source) => AssemblySource::is_assembly_path(source),
            None => self.own.is_some() && self.has_lines,
        }
    }

    /// The origin of each part of a file's code. In a crate's file with line numbers, code without
    /// any is hand-written, except the C library's startup code.
    pub(crate) fn origins(&self, file: &ElfFile, lines: &Lines) -> CodeOrigins {
        let origins = CodeOrigins::from_file(file);
        if self.own.is_none() || !self.has_lines {
            return origins;
        }
        let code = file.executable_ranges();
        let is_start = |symbol: &Symbol<'_>| START_FILE_FUNCTIONS.contains(&symbol.name.as_ref());
        let is_stub = |at| {
            let section = file.section_of(at);
            section.is_some_and(|(name, _)| name.starts_with(".plt"))
        };
        let symbols = file.symbols().iter();
        let bare = symbols.filter(|symbol| {
            let is_function = symbol.is_function || symbol.binding != Binding::Local;
            is_function
                && code.iter().any(|range| range.contains(&symbol.address))
                && !is_start(symbol)
                && !is_stub(symbol.address)
                && lines.line(symbol.address).is_none()
        });
        let range = |symbol: Symbol<'_>| -> Range<Vaddr> {
            symbol.address..symbol.address.offset(symbol.size.max(1))
        };
        origins.with_hand_written(bare.map(range))
    }
}
