//! Who wrote code: a compiler has its reasons for what looks odd, and people seldom.

use core::ops::Range;

use unspool_elf::{ElfFile, ElfKind, assembly_ranges};
use unspool_rows::Vaddr;

/// Who made code and its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeOrigin {
    /// A compiler: where the code alone does not say whether control comes somewhere, its table is believed.
    Compiler,
    /// People: nothing is believed.
    HandWritten,
}

impl CodeOrigin {
    /// Who probably made a file, if one did all of it. An object file without the line that compilers leave in `.comment` is an
    /// assembler's.
    #[must_use]
    pub fn from_file(file: &ElfFile) -> CodeOrigin {
        let has_comment = file.sections().any(|section| section.name == ".comment");
        match file.kind() == ElfKind::Relocatable && !has_comment {
            true => CodeOrigin::HandWritten,
            false => CodeOrigin::Compiler,
        }
    }
}

/// Functions that the C library's and the compiler's files for the start of programs bring along.
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

/// Who wrote which code of a file.
#[derive(Debug, Clone)]
pub struct CodeOrigins {
    /// Who made what nothing else is known of.
    default_origin: CodeOrigin,
    /// What people wrote in a compiler's file: ascending, without overlap.
    hand_written: Vec<Range<u64>>,
}

impl CodeOrigins {
    /// Those of a file: people wrote what its own debug information says to be of assembly. Of a file whose debug information is kept
    /// elsewhere, as distributions do, nobody here is the author.
    #[must_use]
    pub fn from_file(file: &ElfFile) -> CodeOrigins {
        match CodeOrigin::from_file(file) {
            CodeOrigin::HandWritten => CodeOrigins::from(CodeOrigin::HandWritten),
            CodeOrigin::Compiler => {
                CodeOrigins::from(CodeOrigin::Compiler).with_hand_written(assembly_ranges(file))
            }
        }
    }

    /// The same, where people wrote these ranges, too.
    #[must_use]
    pub fn with_hand_written(
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

    /// Who made the code at an address.
    #[must_use]
    pub fn origin_at(&self, at: Vaddr) -> CodeOrigin {
        let behind = self
            .hand_written
            .partition_point(|range| range.start <= at.0);
        let near = behind
            .checked_sub(1)
            .and_then(|place| self.hand_written.get(place));
        match near.is_some_and(|range| at.0 < range.end) {
            true => CodeOrigin::HandWritten,
            false => self.default_origin,
        }
    }

    /// Whether a compiler made some of it, and people wrote some.
    pub(crate) fn is_mixed(&self) -> bool {
        !self.hand_written.is_empty()
    }

    /// Whether people made all that nothing else is known of.
    pub(crate) fn is_hand_written(&self) -> bool {
        self.default_origin == CodeOrigin::HandWritten
    }

    /// Whether people wrote any of it.
    #[must_use]
    pub fn has_hand_written(&self) -> bool {
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
