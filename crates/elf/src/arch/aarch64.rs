//! AArch64, AAELF64.

use object::elf::{self, RelocationType};

use super::{ArchFormat, PLAIN, RelocationHowto};

/// The distance in instructions, of `b` and `bl`.
const BRANCH: RelocationHowto = RelocationHowto {
    bits: 26,
    shift: 2,
    ..RelocationHowto::pc_relative(4)
};

pub(super) const FORMAT: ArchFormat = ArchFormat {
    relocations: &[
        (elf::R_AARCH64_ABS64, RelocationHowto::absolute(8)),
        (elf::R_AARCH64_ABS32, RelocationHowto::absolute(4)),
        (elf::R_AARCH64_ABS16, RelocationHowto::absolute(2)),
        (elf::R_AARCH64_PREL64, RelocationHowto::pc_relative(8)),
        (elf::R_AARCH64_PREL32, RelocationHowto::pc_relative(4)),
        (elf::R_AARCH64_PREL16, RelocationHowto::pc_relative(2)),
        (elf::R_AARCH64_CALL26, BRANCH),
        (elf::R_AARCH64_JUMP26, BRANCH),
    ],
    relax: |_, _, _| false,
    // R_AARCH64_NONE had this number in old object files.
    no_relocation: Some(RelocationType(256)),
    ..PLAIN
};
