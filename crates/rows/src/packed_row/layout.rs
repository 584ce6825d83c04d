//! The positions of a word's parts, for programs that read words by themselves.

/// The bits of a saved register.
pub const SAVED_BITS: u32 = 5;
/// The position of the frame pointer's.
pub const FRAME_POINTER_SHIFT: u32 = SAVED_BITS;

/// The position of the form, which has two bits. It is 0 if the CFA is above the stack pointer.
pub const FORM_SHIFT: u32 = 30;
/// The CFA is above the frame pointer.
pub const ON_FRAME_POINTER: u32 = 1;
/// The CFA is in memory, at the frame pointer.
pub const REALIGNED: u32 = 2;
/// Another form: its number is at [`DISTANCE_SHIFT`].
pub const OTHER: u32 = 3;

/// The position of the distance, which has 16 bits, or of another form's number, which has three.
pub const DISTANCE_SHIFT: u32 = 33;
/// The number of outermost frames.
pub const OUTERMOST: u32 = 1;
/// The number of signal frames.
pub const SIGNAL: u32 = 2;
/// The number of entries of the procedure linkage table.
pub const LINKAGE_TABLE: u32 = 3;
/// The position of the first byte after which such an entry has pushed its second word.
pub const PUSHED_SHIFT: u32 = DISTANCE_SHIFT + 3;
