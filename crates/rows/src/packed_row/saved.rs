//! Saved registers, five bits each.

use super::layout::SAVED_BITS;

/// Where a function saved the registers that a call preserves, except the stack pointer: rbx, rbp,
/// r12 to r15 (psABI, "Registers and the Stack Frame"). Each has five bits:
///
/// ```text
/// 0     it is unchanged
/// 1-30  it is this many words below the CFA; in a frame that has aligned its stack, below the end
///       of the word at the frame pointer
/// 31    it cannot be recovered
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavedRegisters(u32);

/// The caller's value of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SavedRegister {
    /// In the same register of the frame.
    Unchanged,
    /// In memory, this many bytes below [`PackedRow::saved_base`](super::PackedRow::saved_base).
    Below(u64),
    /// Nowhere: it cannot be recovered.
    Undefined,
}

impl SavedRegisters {
    /// Their DWARF numbers, in the order of their bits.
    pub const REGISTERS: [u16; 6] = [3, 6, 12, 13, 14, 15];

    /// They are unchanged.
    pub const NONE: SavedRegisters = SavedRegisters(0);

    const UNDEFINED: u32 = (1 << SAVED_BITS) - 1;

    /// [`SavedRegisters::REGISTERS`] as a set.
    const MASK: u32 = 1 << 3 | 1 << 6 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 15;

    /// The reverse of [`SavedRegisters::bits`]. Higher bits are ignored.
    #[inline(always)]
    #[must_use]
    pub const fn from_bits(bits: u32) -> SavedRegisters {
        SavedRegisters(bits)
    }

    /// As a number.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether a register is one of these.
    #[inline(always)]
    #[must_use]
    pub const fn has(register: u16) -> bool {
        register < 32 && SavedRegisters::MASK >> register & 1 != 0
    }

    /// The caller's value of a register; `None` if it is not one of these.
    #[inline(always)]
    #[must_use]
    pub fn get(self, register: u16) -> Option<SavedRegister> {
        Some(
            match self.0 >> shift(register)? & SavedRegisters::UNDEFINED {
                0 => SavedRegister::Unchanged,
                SavedRegisters::UNDEFINED => SavedRegister::Undefined,
                words => SavedRegister::Below(8 * u64::from(words)),
            },
        )
    }

    /// The same with another value of a register; `None` if there are no bits for it.
    pub(super) fn with(self, register: u16, saved: SavedRegister) -> Option<SavedRegisters> {
        let field = match saved {
            SavedRegister::Unchanged => 0,
            SavedRegister::Undefined => SavedRegisters::UNDEFINED,
            SavedRegister::Below(bytes) => u32::try_from(bytes / 8)
                .ok()
                .filter(|words| bytes % 8 == 0 && (1..SavedRegisters::UNDEFINED).contains(words))?,
        };
        let shift = shift(register)?;
        let others = self.0 & !(SavedRegisters::UNDEFINED << shift);
        Some(SavedRegisters(others | field << shift))
    }
}

/// The position of a register's bits.
#[inline(always)]
fn shift(register: u16) -> Option<u32> {
    let bit = 1_u32.checked_shl(u32::from(register))?;
    let before = (SavedRegisters::MASK & bit.wrapping_sub(1)).count_ones();
    (SavedRegisters::MASK & bit != 0).then_some(before * SAVED_BITS)
}
