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
