//! Where values are: at entry of a function, later on, and in what calls are given.

/// Where the caller of a function puts an argument, or eight bytes of it. Registers are by their DWARF numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArgSource {
    /// In the register of that number: of a vector register, in its low eight bytes.
    Register(u8),
    /// In memory, so many times 8 bytes above the CFA.
    Stack(u8),
}

/// Where something that a function was called with is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArgLocation {
    /// In a register.
    Register(u8),
    /// In memory, at the CFA plus so many bytes.
    Slot(i32),
}

/// Where a function's argument, or a piece of it, is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PieceLocation {
    /// The place.
    pub location: ArgLocation,
    /// What has been added to it since entry.
    pub addend: i32,
    /// Whether nobody but the function can have written there.
    pub is_certain: bool,
}

/// What a register or a slot holds of what the function was called with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryValue {
    /// Where it was at entry.
    pub source: ArgSource,
    /// What has been added to it since.
    pub addend: i32,
    /// How many of its low bits are these.
    pub bits: u8,
    /// Whether it was never where others may have written.
    pub is_certain: bool,
}

/// What a call is given in a register, as the frame of the caller can be asked for it while the callee runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallSiteValue {
    /// A number.
    Number(u64),
    /// An address of the image as linked.
    Address(u64),
    /// The CFA plus so many bytes.
    Cfa(i32),
    /// What a register holds that calls preserve.
    Register {
        /// The register.
        register: u8,
        /// What is added to it.
        addend: i32,
        /// How many of the low bits are these.
        bits: u8,
    },
    /// What is in memory at the CFA plus `at`.
    Slot {
        /// The distance from the CFA.
        at: i32,
        /// How many bytes.
        bytes: u8,
        /// Whether nobody else may have written there.
        is_certain: bool,
    },
    /// What the caller was called with itself.
    EntryValue(EntryValue),
}

/// What unwind rows say that the code does not bear out: what they restore is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct UnprovenRules(u32);

impl UnprovenRules {
    /// All is borne out.
    pub const NONE: UnprovenRules = UnprovenRules(0);
    /// The CFA is not, so nothing else is.
    pub const ALL: UnprovenRules = UnprovenRules(u32::MAX);

    const CFA: u32 = 1 << 31;

    /// The register of this DWARF number.
    #[must_use]
    pub fn from_register(register: u8) -> UnprovenRules {
        UnprovenRules(1_u32.checked_shl(register.into()).unwrap_or(Self::CFA))
    }

    /// Those of both.
    #[must_use]
    pub fn union(self, other: UnprovenRules) -> UnprovenRules {
        UnprovenRules(self.0 | other.0)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether the CFA is doubted, and so the caller's frame.
    #[must_use]
    pub fn has_cfa(self) -> bool {
        self.0 & Self::CFA != 0
    }

    /// Whether the caller's value of a register is doubted.
    #[must_use]
    pub fn has_register(self, register: u8) -> bool {
        self.0 & (Self::from_register(register).0 | Self::CFA) != 0
    }

    /// As it is stored: bit n stands for the register of DWARF number n, bit 31 for the CFA.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// As it was stored.
    #[must_use]
    pub fn from_bits(bits: u32) -> UnprovenRules {
        UnprovenRules(bits)
    }
}
