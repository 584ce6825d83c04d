//! 32-bit ARM, AAELF32.

use object::elf;

use super::{ArchFormat, PLAIN, RelocationHowto};

pub(super) const FORMAT: ArchFormat = ArchFormat {
    relocations: &[
        (elf::R_ARM_ABS32, RelocationHowto::absolute(4)),
        (elf::R_ARM_TARGET1, RelocationHowto::absolute(4)),
        (elf::R_ARM_REL32, RelocationHowto::pc_relative(4)),
        (
            elf::R_ARM_PREL31,
            RelocationHowto {
                bits: 31,
                ..RelocationHowto::pc_relative(4)
            },
        ),
    ],
    relax: |_, _, _| false,
    // It only marks `bx`.
    no_relocation: Some(elf::R_ARM_V4BX),
    ..PLAIN
};
