//! Who wrote code: a compiler has its reasons for what looks odd, and people seldom.

use core::ops::Range;

use unspool_ir::Vaddr;
use unspool_module::{ElfFile, ElfKind, assembled};

/// Who made code and its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// A compiler: where the code alone does not say whether control comes somewhere, its table is believed.
    Compiler,
    /// People: nothing is believed.
    People,
}

impl Maker {
    /// Who probably made a file, if one did all of it. An object file without the line that compilers leave in `.comment` is an
    /// assembler's.
    #[must_use]
    pub fn of(file: &ElfFile) -> Maker {
        let has_comment = file.sections().any(|section| section.name == ".comment");
        match file.kind() == ElfKind::Relocatable && !has_comment {
            true => Maker::People,
            false => Maker::Compiler,
        }
    }
}

/// Functions that the C library's and the compiler's files for the start of programs bring along.
pub const START_FILES: [&str; 8] = [
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
pub struct Authors {
    /// Who made what nothing else is known of.
    whole: Maker,
    /// What people wrote in a compiler's file: ascending, without overlap.
    people: Vec<Range<u64>>,
}

impl Authors {
    /// Those of a file: people wrote what its own debug information says to be of assembly. Of a file whose debug information is kept
    /// elsewhere, as distributions do, nobody here is the author.
    #[must_use]
    pub fn of(file: &ElfFile) -> Authors {
        match Maker::of(file) {
            Maker::People => Authors::from(Maker::People),
            Maker::Compiler => Authors::from(Maker::Compiler).and(assembled(file)),
        }
    }

    /// The same, where people wrote these ranges, too.
    #[must_use]
    pub fn and(mut self, ranges: impl IntoIterator<Item = Range<Vaddr>>) -> Authors {
        let ranges = ranges.into_iter().map(|range| range.start.0..range.end.0);
        self.people.extend(ranges);
        self.people.sort_by_key(|range| (range.start, range.end));
        self.people.dedup_by(|next, last| {
            let is_part = next.start <= last.end;
            last.end = last.end.max(if is_part { next.end } else { 0 });
            is_part
        });
        self
    }

    /// Who made the code at an address.
    #[must_use]
    pub fn of_code(&self, at: Vaddr) -> Maker {
        let behind = self.people.partition_point(|range| range.start <= at.0);
        let near = behind
            .checked_sub(1)
            .and_then(|place| self.people.get(place));
        match near.is_some_and(|range| at.0 < range.end) {
            true => Maker::People,
            false => self.whole,
        }
    }

    /// Whether a compiler made some of it, and people wrote some.
    pub(crate) fn has_both(&self) -> bool {
        !self.people.is_empty()
    }

    /// Whether people made all that nothing else is known of.
    pub(crate) fn is_of_people(&self) -> bool {
        self.whole == Maker::People
    }

    /// Whether people wrote any of it.
    #[must_use]
    pub fn has_people(&self) -> bool {
        self.whole == Maker::People || !self.people.is_empty()
    }
}

impl From<Maker> for Authors {
    fn from(whole: Maker) -> Authors {
        Authors {
            whole,
            people: Vec::new(),
        }
    }
}
