//! i386, System V psABI.

use object::elf;

use super::{ArchFormat, PLAIN, RelocationHowto};

pub(super) const FORMAT: ArchFormat = ArchFormat {
    relocations: &[
        (elf::R_386_32, RelocationHowto::absolute(4)),
        (elf::R_386_16, RelocationHowto::absolute(2)),
        (elf::R_386_8, RelocationHowto::absolute(1)),
        (elf::R_386_PC32, RelocationHowto::pc_relative(4)),
        (elf::R_386_PLT32, RelocationHowto::pc_relative(4)),
        (elf::R_386_PC16, RelocationHowto::pc_relative(2)),
        (elf::R_386_PC8, RelocationHowto::pc_relative(1)),
    ],
    relax: |_, _, _| false,
    ..PLAIN
};
