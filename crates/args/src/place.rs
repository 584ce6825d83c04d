//! Where values are: at entry of a function, later on, and in what calls are given.

/// Where the caller of a function puts an argument, or eight bytes of it. Registers are by their DWARF numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// In the register of that number: of a vector register, in its low eight bytes.
    Register(u8),
    /// In memory, so many times 8 bytes above the CFA.
    Stack(u8),
}

/// Where something that a function was called with is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// In a register.
    Register(u8),
    /// In memory, at the CFA plus so many bytes.
    Slot(i32),
}

/// Where a function's argument, or a piece of it, is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Found {
    /// The place.
    pub place: Place,
    /// What has been added to it since entry.
    pub add: i32,
    /// Whether nobody but the function can have written there.
    pub is_certain: bool,
}

/// What a register or a slot holds of what the function was called with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Held {
    /// Where it was at entry.
    pub source: Source,
    /// What has been added to it since.
    pub add: i32,
    /// How many of its low bits are these.
    pub bits: u8,
    /// Whether it was never where others may have written.
    pub is_certain: bool,
}

/// What a call is given in a register, as the frame of the caller can be asked for it while the callee runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Passed {
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
        add: i32,
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
    Own(Held),
}

/// What unwind rows say that the code does not bear out: what they restore is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Doubts(u32);

impl Doubts {
    /// All is borne out.
    pub const NONE: Doubts = Doubts(0);
    /// The CFA is not, so nothing else is.
    pub const ALL: Doubts = Doubts(u32::MAX);

    const CFA: u32 = 1 << 31;

    /// The register of this DWARF number.
    #[must_use]
    pub fn of_register(register: u8) -> Doubts {
        Doubts(1_u32.checked_shl(register.into()).unwrap_or(Self::CFA))
    }

    /// Those of both.
    #[must_use]
    pub fn and(self, other: Doubts) -> Doubts {
        Doubts(self.0 | other.0)
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
        self.0 & (Self::of_register(register).0 | Self::CFA) != 0
    }

    /// As it is stored: bit n stands for the register of DWARF number n, bit 31 for the CFA.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// As it was stored.
    #[must_use]
    pub fn from_bits(bits: u32) -> Doubts {
        Doubts(bits)
    }
}
