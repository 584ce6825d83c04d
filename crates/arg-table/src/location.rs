//! Locations of values: at entry of a function, later on, and in calls.

/// The location where a function's caller puts an argument, or eight bytes of it. Registers are by
/// their DWARF numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArgSource {
    /// In the register with that number: for a vector register, in its low eight bytes.
    Register(u8),
    /// In memory, that many times 8 bytes above the CFA.
    Stack(u8),
}

/// The location of an argument, or a piece of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArgLocation {
    /// In a register.
    Register(u8),
    /// In memory, at the CFA plus that many bytes.
    Slot(i32),
}

/// A location of an argument's piece, with an addend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PieceLocation {
    /// The location.
    pub location: ArgLocation,
    /// The amount added since entry.
    pub addend: i32,
    /// Whether only the function can have written there.
    pub is_certain: bool,
}

/// An entry value in a register or a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryValue {
    /// Its location at entry.
    pub source: ArgSource,
    /// The amount added since entry.
    pub addend: i32,
    /// The number of low bits that are valid.
    pub bits: u8,
    /// Whether it was never in memory that others may have written to.
    pub is_certain: bool,
}

/// A value that a call passes in a register, in terms of the caller's frame while the callee runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallSiteValue {
    /// A number.
    Number(u64),
    /// A link-time address in the image.
    Address(u64),
    /// The CFA plus that many bytes.
    Cfa(i32),
    /// The value of a call-preserved register.
    Register {
        /// The register.
        register: u8,
        /// The addend.
        addend: i32,
        /// The number of low bits that are valid.
        bits: u8,
    },
    /// The value in memory at the CFA plus `at`.
    Slot {
        /// The distance from the CFA.
        at: i32,
        /// The number of bytes.
        bytes: u8,
        /// Whether only the caller can have written there.
        is_certain: bool,
    },
    /// An entry value of the caller itself.
    EntryValue(EntryValue),
}

/// The rules of unwind rows that the code does not prove: the restored values are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct UnprovenRules(u32);

impl UnprovenRules {
    /// All rules are proven.
    pub const NONE: UnprovenRules = UnprovenRules(0);
    /// The CFA is unproven, and so is everything else.
    pub const ALL: UnprovenRules = UnprovenRules(u32::MAX);

    const CFA: u32 = 1 << 31;

    /// The rule of the register with this DWARF number.
    #[must_use]
    pub fn from_register(register: u8) -> UnprovenRules {
        UnprovenRules(1_u32.checked_shl(register.into()).unwrap_or(Self::CFA))
    }

    /// The union of both.
    #[must_use]
    pub fn union(self, other: UnprovenRules) -> UnprovenRules {
        UnprovenRules(self.0 | other.0)
    }

    /// Whether all rules are proven.
    #[must_use]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether the CFA is unproven, and so the caller's frame.
    #[must_use]
    pub(crate) fn has_cfa(self) -> bool {
        self.0 & Self::CFA != 0
    }

    /// Whether the caller's value of a register is unproven.
    #[must_use]
    pub(crate) fn has_register(self, register: u8) -> bool {
        self.0 & (Self::from_register(register).0 | Self::CFA) != 0
    }

    /// The stored form: bit n is for the register with DWARF number n, bit 31 for the CFA.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Decodes the stored form.
    #[must_use]
    pub fn from_bits(bits: u32) -> UnprovenRules {
        UnprovenRules(bits)
    }
}
