//! What the ELF files of an architecture have of their own.

use object::elf::{self, RelocationType, SectionType};
use unspool_rows::{Arch, Vaddr};

mod aarch64;
mod arm;
mod bpf;
mod i386;
mod x86_64;

/// The supplement of an architecture's psABI to ELF.
pub(crate) struct ArchFormat {
    /// What relocation types do: absolute and pc-relative ones.
    relocations: &'static [(RelocationType, RelocationHowto)],
    /// Rewrites an instruction that uses a slot with a symbol's address, so that it uses the address,
    /// as linkers do: the relocation type, the bytes of the section, the place of the field. Returns
    /// whether it has; the field then is a pc-relative one of 4 bytes.
    pub(crate) relax: fn(RelocationType, &mut [u8], usize) -> bool,
    /// The relocation type, beside 0, that changes nothing.
    pub(crate) no_relocation: Option<RelocationType>,
    /// The relocation type of a distance in `.eh_frame`, where object files can be rewritten.
    pub(crate) eh_frame_distance: Option<RelocationType>,
    /// The type of `.eh_frame` sections, where they may have one of their own.
    pub(crate) eh_frame_type: Option<SectionType>,
    /// The stubs of the procedure linkage table, where they are known.
    pub(crate) stubs: Option<StubFormat>,
}

/// How a stub of the procedure linkage table finds its function.
pub(crate) struct StubFormat {
    /// The relocation types of slots that hold the address of a function.
    pub(crate) slots: [RelocationType; 2],
    /// The address of the slot that the stub at an address jumps through.
    pub(crate) slot_of: fn(Vaddr, &[u8]) -> Option<u64>,
}

/// How a relocation type computes and stores its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RelocationHowto {
    /// Relative to the address of the field.
    pub(crate) relative: bool,
    /// Size of the field in bytes: 1, 2, 4 or 8.
    pub(crate) bytes: usize,
    /// Low bits of the field that hold the value; the others are kept.
    pub(crate) bits: u32,
    /// The value is shifted right by this many bits.
    pub(crate) shift: u32,
}

impl RelocationHowto {
    /// Of a whole field.
    const fn absolute(bytes: u32) -> RelocationHowto {
        RelocationHowto {
            relative: false,
            bytes: bytes as usize,
            bits: bytes * 8,
            shift: 0,
        }
    }

    pub(crate) const fn pc_relative(bytes: u32) -> RelocationHowto {
        RelocationHowto {
            relative: true,
            ..RelocationHowto::absolute(bytes)
        }
    }
}

impl ArchFormat {
    /// What a relocation type does; `None` for unsupported ones.
    pub(crate) fn howto(&self, kind: RelocationType) -> Option<RelocationHowto> {
        let mut known = self.relocations.iter();
        known.find(|known| known.0 == kind).map(|known| known.1)
    }
}

/// An architecture without anything of its own.
const PLAIN: ArchFormat = ArchFormat {
    relocations: &[],
    relax: |_, _, _| false,
    no_relocation: None,
    eh_frame_distance: None,
    eh_frame_type: None,
    stubs: None,
};

/// The format of an architecture's files.
pub(crate) fn format(arch: Arch) -> &'static ArchFormat {
    match arch {
        Arch::X86_64 => &x86_64::FORMAT,
        Arch::I386 => &i386::FORMAT,
        Arch::Arm => &arm::FORMAT,
        Arch::Aarch64 => &aarch64::FORMAT,
        Arch::Other { machine, .. } if machine == elf::EM_BPF.0 => &bpf::FORMAT,
        _ => &PLAIN,
    }
}
