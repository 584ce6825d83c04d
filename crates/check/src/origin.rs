//! Origin of code: compilers have reasons for odd code, people seldom do.

use core::ops::Range;

use unspool_elf::{ElfFile, ElfKind, assembly_ranges, has_compiled_units};
use unspool_rows::Vaddr;

/// Origin of code and its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeOrigin {
    /// A compiler: its table decides where the code alone does not show whether control reaches an
    /// address.
    Compiler,
    /// People: nothing is assumed.
    HandWritten,
}

impl CodeOrigin {
    /// The probable origin of a file as a whole. An object file is from an assembler unless a
    /// compiler has left its line in `.comment`, or its debug information. The name of its source,
    /// `f.c`, is none: assembly that a compiler made, and that people changed, has that line, too.
    #[must_use]
    pub fn from_file(file: &ElfFile) -> CodeOrigin {
        let is_signed = || {
            file.sections().any(|section| section.name == ".comment") || has_compiled_units(file)
        };
        if file.kind() == ElfKind::Relocatable && !is_signed() {
            CodeOrigin::HandWritten
        } else {
            CodeOrigin::Compiler
        }
    }
}

/// Functions from the C library's and the compiler's start files.
pub const START_FILE_FUNCTIONS: [&str; 8] = [
    "_start",
    "_init",
    "_fini",
    "_dl_relocate_static_pie",
    "deregister_tm_clones",
    "register_tm_clones",
    "__do_global_dtors_aux",
    "frame_dummy",
];

/// Origins of a file's code.
#[derive(Debug, Clone)]
pub struct CodeOrigins {
    /// Origin of all other code.
    default_origin: CodeOrigin,
    /// Hand-written code in a compiler's file: ascending, without overlap.
    hand_written: Vec<Range<u64>>,
}

impl CodeOrigins {
    /// The origins in a file: code is hand-written if the file's own debug information says
    /// assembly. A file with separate debug information, as from a distribution, is not the user's
    /// own code.
    #[must_use]
    pub fn from_file(file: &ElfFile) -> CodeOrigins {
        match CodeOrigin::from_file(file) {
            CodeOrigin::HandWritten => CodeOrigins::from(CodeOrigin::HandWritten),
            CodeOrigin::Compiler => {
                CodeOrigins::from(CodeOrigin::Compiler).with_hand_written(assembly_ranges(file))
            }
        }
    }

    /// The same with additional hand-written ranges.
    #[must_use]
    pub(crate) fn with_hand_written(
        mut self,
        ranges: impl IntoIterator<Item = Range<Vaddr>>,
    ) -> CodeOrigins {
        let ranges = ranges.into_iter().map(|range| range.start.0..range.end.0);
        self.hand_written.extend(ranges);
        self.hand_written
            .sort_by_key(|range| (range.start, range.end));
        self.hand_written.dedup_by(|next, last| {
            let is_part = next.start <= last.end;
            last.end = last.end.max(if is_part { next.end } else { 0 });
            is_part
        });
        self
    }

    /// Origin of the code at an address.
    #[must_use]
    pub(crate) fn origin_at(&self, at: Vaddr) -> CodeOrigin {
        let behind = self
            .hand_written
            .partition_point(|range| range.start <= at.0);
        let near = behind
            .checked_sub(1)
            .and_then(|place| self.hand_written.get(place));
        if near.is_some_and(|range| at.0 < range.end) {
            CodeOrigin::HandWritten
        } else {
            self.default_origin
        }
    }

    /// Whether it is partly compiled and partly hand-written.
    pub(crate) fn is_mixed(&self) -> bool {
        !self.hand_written.is_empty()
    }

    /// Whether all other code is hand-written.
    pub(crate) fn is_hand_written(&self) -> bool {
        self.default_origin == CodeOrigin::HandWritten
    }

    /// Whether any of it is hand-written.
    #[must_use]
    pub(crate) fn has_hand_written(&self) -> bool {
        self.default_origin == CodeOrigin::HandWritten || !self.hand_written.is_empty()
    }
}

impl From<CodeOrigin> for CodeOrigins {
    fn from(whole: CodeOrigin) -> CodeOrigins {
        CodeOrigins {
            default_origin: whole,
            hand_written: Vec::new(),
        }
    }
}
