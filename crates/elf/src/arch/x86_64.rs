//! x86-64, System V psABI.

use object::elf::{self, RelocationType};
use unspool_rows::Vaddr;

use super::{ArchFormat, RelocationHowto, StubFormat};

pub(super) const FORMAT: ArchFormat = ArchFormat {
    relocations: &[
        (elf::R_X86_64_64, RelocationHowto::absolute(8)),
        (elf::R_X86_64_32, RelocationHowto::absolute(4)),
        (elf::R_X86_64_32S, RelocationHowto::absolute(4)),
        (elf::R_X86_64_16, RelocationHowto::absolute(2)),
        (elf::R_X86_64_8, RelocationHowto::absolute(1)),
        (elf::R_X86_64_PC64, RelocationHowto::pc_relative(8)),
        (elf::R_X86_64_PC32, RelocationHowto::pc_relative(4)),
        (elf::R_X86_64_PLT32, RelocationHowto::pc_relative(4)),
        (elf::R_X86_64_PC16, RelocationHowto::pc_relative(2)),
        (elf::R_X86_64_PC8, RelocationHowto::pc_relative(1)),
    ],
    relax,
    no_relocation: None,
    eh_frame_distance: Some(elf::R_X86_64_PC32),
    // Solaris and some LLVM versions use it, and other tools keep copies with that type.
    eh_frame_type: Some(elf::SHT_X86_64_UNWIND),
    stubs: Some(StubFormat {
        slots: [elf::R_X86_64_JUMP_SLOT, elf::R_X86_64_GLOB_DAT],
        slot_of,
    }),
};

/// `jmp *slot(%rip)`, optionally after `endbr64` and with a `bnd` prefix.
fn slot_of(address: Vaddr, code: &[u8]) -> Option<u64> {
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let rest = code.strip_prefix(&ENDBR64).unwrap_or(code);
    let rest = rest.strip_prefix(&[0xf2]).unwrap_or(rest);
    let (displacement, behind) = rest.strip_prefix(&[0xff, 0x25])?.split_first_chunk()?;
    let next = address.offset((code.len() - behind.len()) as u64);
    let displacement = i32::from_le_bytes(*displacement);
    Some(next.0.wrapping_add_signed(displacement.into()))
}

/// Linker optimizations of the psABI: `call *slot`, `jmp *slot`, `mov slot, %reg`.
fn relax(kind: RelocationType, code: &mut [u8], field: usize) -> bool {
    const RELAXABLE: [RelocationType; 2] = [elf::R_X86_64_GOTPCRELX, elf::R_X86_64_REX_GOTPCRELX];
    let opcode = field.checked_sub(2).and_then(|at| code.get_mut(at..field));
    let Some([first, second]) = opcode.filter(|_| RELAXABLE.contains(&kind)) else {
        return false;
    };
    // A prefix that such jumps ignore keeps the length.
    (*first, *second) = match (*first, *second) {
        (0xff, 0x15) => (0x67, 0xe8),
        (0xff, 0x25) => (0x67, 0xe9),
        (0x8b, modrm) if modrm & 0xc7 == 0x05 => (0x8d, modrm),
        _ => return false,
    };
    true
}
