//! The content of an SFrame row, independent of version and encoding.

use unspool_rows::arch::AddressSize;
use unspool_rows::{Abi, Arch, Endian, Register};

/// A version of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SframeVersion {
    /// Binutils 2.40; obsolete.
    V1,
    /// Binutils 2.41 to 2.45.
    V2,
    /// Since binutils 2.46.
    V3,
}

impl SframeVersion {
    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            SframeVersion::V1 => 1,
            SframeVersion::V2 => 2,
            SframeVersion::V3 => 3,
        }
    }

    pub(super) const fn from_number(number: u8) -> Option<SframeVersion> {
        match number {
            1 => Some(SframeVersion::V1),
            2 => Some(SframeVersion::V2),
            3 => Some(SframeVersion::V3),
            _ => None,
        }
    }

    /// The size of an index entry in bytes.
    pub(super) const fn fde_bytes(self) -> u8 {
        match self {
            SframeVersion::V1 => 17,
            SframeVersion::V2 => 20,
            SframeVersion::V3 => 16,
        }
    }
}

/// The machines of the format (`sfh_abi_arch`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SframeAbi {
    /// AArch64, big-endian.
    Aarch64Big,
    /// AArch64, little-endian.
    Aarch64Little,
    /// x86-64.
    Amd64,
    /// s390x.
    S390x,
}

/// The ELF header's `e_machine` of s390x.
const EM_S390: u16 = 22;

impl SframeAbi {
    const ALL: [SframeAbi; 4] = [
        SframeAbi::Aarch64Big,
        SframeAbi::Aarch64Little,
        SframeAbi::Amd64,
        SframeAbi::S390x,
    ];

    /// Its number in the header.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            SframeAbi::Aarch64Big => 1,
            SframeAbi::Aarch64Little => 2,
            SframeAbi::Amd64 => 3,
            SframeAbi::S390x => 4,
        }
    }

    pub(super) fn from_number(number: u8) -> Option<SframeAbi> {
        SframeAbi::ALL.into_iter().find(|m| m.number() == number)
    }

    /// Architecture and byte order.
    #[must_use]
    pub const fn abi(self) -> Abi {
        let (arch, endian) = match self {
            SframeAbi::Aarch64Big => (Arch::Aarch64, Endian::Big),
            SframeAbi::Aarch64Little => (Arch::Aarch64, Endian::Little),
            SframeAbi::Amd64 => (Arch::X86_64, Endian::Little),
            SframeAbi::S390x => (Arch::from_elf(EM_S390, AddressSize::W64), Endian::Big),
        };
        Abi { arch, endian }
    }

    /// The machine of an architecture and byte order, if the format has it.
    #[must_use]
    pub fn from_abi(abi: Abi) -> Option<SframeAbi> {
        SframeAbi::ALL.into_iter().find(|m| m.abi() == abi)
    }

    /// The stack pointer.
    #[must_use]
    pub const fn stack_pointer(self) -> Register {
        match self {
            SframeAbi::Aarch64Big | SframeAbi::Aarch64Little => Register(31),
            SframeAbi::Amd64 => Register(7),
            SframeAbi::S390x => Register(15),
        }
    }

    /// The frame pointer.
    #[must_use]
    pub const fn frame_pointer(self) -> Register {
        match self {
            SframeAbi::Aarch64Big | SframeAbi::Aarch64Little => Register(29),
            SframeAbi::Amd64 => Register(6),
            SframeAbi::S390x => Register(11),
        }
    }

    /// The register that has the return address, or the column of call frame information for it.
    #[must_use]
    pub const fn return_address(self) -> Register {
        match self {
            SframeAbi::Aarch64Big | SframeAbi::Aarch64Little => Register(30),
            SframeAbi::Amd64 => Register(16),
            SframeAbi::S390x => Register(14),
        }
    }

    /// The other call-preserved registers. The format does not describe them.
    #[must_use]
    pub const fn untracked_registers(self) -> &'static [u16] {
        match self {
            SframeAbi::Aarch64Big | SframeAbi::Aarch64Little => &[
                19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 72, 73, 74, 75, 76, 77, 78, 79,
            ],
            SframeAbi::Amd64 => &[3, 12, 13, 14, 15],
            SframeAbi::S390x => &[6, 7, 8, 9, 10, 12, 13, 24, 25, 26, 27, 28, 29, 30, 31],
        }
    }

    /// The fixed offset of the return address from the CFA, in bytes; 0 if it is not fixed.
    #[must_use]
    #[cfg(feature = "alloc")]
    pub(crate) const fn fixed_return_address(self) -> i8 {
        match self {
            SframeAbi::Amd64 => -8,
            SframeAbi::Aarch64Big | SframeAbi::Aarch64Little | SframeAbi::S390x => 0,
        }
    }

    /// The caller's stack pointer relative to the CFA, in bytes.
    #[must_use]
    pub(crate) const fn caller_stack_pointer(self) -> i64 {
        match self {
            SframeAbi::S390x => -160,
            SframeAbi::Amd64 | SframeAbi::Aarch64Big | SframeAbi::Aarch64Little => 0,
        }
    }

    /// The CFA's offset from its register, as stored in a row; `None` if it cannot be stored.
    #[must_use]
    #[cfg(feature = "alloc")]
    pub(crate) const fn stored_cfa_offset(self, offset: i64) -> Option<i64> {
        match self {
            SframeAbi::S390x if (offset - 160) % 8 == 0 => Some((offset - 160) / 8),
            SframeAbi::S390x => None,
            SframeAbi::Amd64 | SframeAbi::Aarch64Big | SframeAbi::Aarch64Little => Some(offset),
        }
    }

    /// The reverse of `stored_cfa_offset`.
    #[must_use]
    pub(crate) const fn cfa_offset(self, stored: i32) -> i64 {
        match self {
            SframeAbi::S390x => stored as i64 * 8 + 160,
            SframeAbi::Amd64 | SframeAbi::Aarch64Big | SframeAbi::Aarch64Little => stored as i64,
        }
    }
}

/// The base of an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FreBase {
    /// The CFA.
    Cfa,
    /// The value of a register in this frame.
    Register(Register),
}

/// A value: a base plus an offset, or the memory there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FreValue {
    /// The base of the offset.
    pub base: FreBase,
    /// The offset, in bytes.
    pub offset: i64,
    /// Whether the value is in memory at the sum; otherwise it is the sum.
    pub is_loaded: bool,
}

impl FreValue {
    /// The value in memory at this offset from the CFA.
    #[must_use]
    pub const fn saved(offset: i64) -> FreValue {
        FreValue {
            base: FreBase::Cfa,
            offset,
            is_loaded: true,
        }
    }

    /// A register plus an offset.
    #[must_use]
    pub const fn sum(register: Register, offset: i64) -> FreValue {
        FreValue {
            base: FreBase::Register(register),
            offset,
            is_loaded: false,
        }
    }

    /// The distance of the saved value from the CFA, if it is saved at a fixed one.
    #[must_use]
    pub const fn saved_at(self) -> Option<i64> {
        match self {
            FreValue {
                base: FreBase::Cfa,
                offset,
                is_loaded: true,
            } => Some(offset),
            _ => None,
        }
    }
}

/// The rules to find the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FreRules {
    /// The CFA. Its base is a register.
    pub cfa: FreValue,
    /// The return address; `None` if it is still in its register.
    pub return_address: Option<FreValue>,
    /// The caller's frame pointer; `None` if it is unchanged.
    pub frame_pointer: Option<FreValue>,
    /// Whether the return address is signed (AArch64).
    pub is_signed: bool,
}

/// The content of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FreContents {
    /// The outermost frame: it has no caller.
    Outermost,
    /// A frame with a caller.
    Rules(FreRules),
}

/// A row: it holds from its offset to the next row's, or to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameRowEntry {
    /// The offset, in bytes, from the function's start, or from the start of each of its blocks.
    pub offset: u32,
    /// The content of the row.
    pub contents: FreContents,
}
