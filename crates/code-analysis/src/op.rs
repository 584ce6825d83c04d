//! The interface between architectures and the analysis: effects on registers and stack slots, and
//! control flow.
//!
//! An architecture lifts each instruction to a few of these operations. An effect that it does not
//! know in detail is an [`Op::Clobber`]: the written registers are then
//! [`crate::AbstractValue::FRESH`].

/// One effect of an instruction. Registers have DWARF numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// `to` is a number.
    Constant {
        /// The register written.
        to: u8,
        /// The number.
        value: u64,
    },
    /// `to` is an address that the instruction encodes relative to its own.
    Address {
        /// The register written.
        to: u8,
        /// The address.
        value: u64,
    },
    /// `to` is `from` plus a number of bytes.
    Add {
        /// The register written.
        to: u8,
        /// The register read.
        from: u8,
        /// What is added.
        bytes: i32,
    },
    /// `to` is `a` plus `b`.
    Sum {
        /// The register written.
        to: u8,
        /// A register read.
        a: u8,
        /// A register read.
        b: u8,
    },
    /// `to` is `base` plus a number that is only known at run time.
    AddUnknown {
        /// The register written.
        to: u8,
        /// The register read.
        base: u8,
    },
    /// `to` is `a` minus `b`.
    Difference {
        /// The register written.
        to: u8,
        /// A register read.
        a: u8,
        /// A register read.
        b: u8,
    },
    /// `to` is unknown; it may be a value that escaped.
    Unknown {
        /// The register written.
        to: u8,
    },
    /// `to` is `from`, truncated to at most `limit`.
    Bound {
        /// The register written.
        to: u8,
        /// The register read.
        from: u8,
        /// The greatest result.
        limit: u32,
    },
    /// `to` is the sign extension of the low bits of `from`.
    SignExtend {
        /// The register written.
        to: u8,
        /// The register read.
        from: u8,
        /// Number of low bits.
        bits: u8,
    },
    /// The stack pointer is rounded down to a multiple of a number.
    Align {
        /// The number: a power of 2.
        multiple: u32,
    },
    /// `to` is the 8 bytes of memory at `base` plus `offset`.
    Load {
        /// The register written.
        to: u8,
        /// The register with the address.
        base: u8,
        /// Added to the address.
        offset: i32,
    },
    /// `to` is a table entry in memory, at `base` plus `index` times the entry size plus `offset`.
    LoadIndexed {
        /// The register written.
        to: u8,
        /// The register with the table's address; none if `offset` is the address.
        base: Option<u8>,
        /// The register with the index.
        index: u8,
        /// Entry size in bytes: 4 (signed) or 8.
        size: u8,
        /// Added to the address.
        offset: i32,
    },
    /// `to` is the signed 4 bytes of memory at `a` plus `b` plus `offset`: a table entry, if one of
    /// the two registers has the table's address.
    LoadSum {
        /// The register written.
        to: u8,
        /// A register read.
        a: u8,
        /// A register read.
        b: u8,
        /// Added to the address.
        offset: i32,
    },
    /// 8 bytes of memory, at `base` plus 8 times `index` plus `offset`, are `from`.
    StoreIndexed {
        /// The register with the address.
        base: u8,
        /// The register with the index.
        index: u8,
        /// Added to the address.
        offset: i32,
        /// The register read.
        from: u8,
    },
    /// 8 bytes of memory, at `base` plus `offset`, are `from`.
    Store {
        /// The register with the address.
        base: u8,
        /// Added to the address.
        offset: i32,
        /// The register read.
        from: u8,
    },
    /// The low `size` bytes of `to` are loaded from `base` plus `offset`; the others are computed
    /// from them.
    LoadLow {
        /// The register written.
        to: u8,
        /// The register with the address.
        base: u8,
        /// Added to the address.
        offset: i32,
        /// Number of bytes: fewer than the register has.
        size: u8,
    },
    /// `size` bytes of memory, at `base` plus `offset`, are the low ones of `from`.
    StoreLow {
        /// The register with the address.
        base: u8,
        /// Added to the address.
        offset: i32,
        /// The register read.
        from: u8,
        /// Number of bytes: fewer than the register has.
        size: u8,
    },
    /// Weak update of `size` bytes of memory at `base` plus `scale` times `index` plus `offset`:
    /// one or more elements of an array, which only a run knows.
    OverwriteIndexed {
        /// The register with the address.
        base: u8,
        /// The register with the index; none if a register does not have it.
        index: Option<u8>,
        /// Factor of the index.
        scale: u8,
        /// Added to the address.
        offset: i32,
        /// Number of bytes, or [`UNBOUNDED`].
        size: u16,
    },
    /// Weak update of `count` rows of `size` bytes. The first is at `base` plus `offset`, each next
    /// one `scale` times `index` further.
    OverwriteTileRows {
        /// The register with the address.
        base: u8,
        /// The register with the index.
        index: u8,
        /// Factor of the index.
        scale: u8,
        /// Added to the address.
        offset: i32,
        /// Bytes in a row.
        size: u16,
        /// Number of rows.
        count: u8,
    },
    /// Weak update of any memory below or above `base`.
    OverwriteUnbounded {
        /// The register with the address.
        base: u8,
    },
    /// The processor's state is stored at `base` plus `offset`: the components that two registers
    /// choose.
    SaveState {
        /// The register with the address.
        base: u8,
        /// Added to the address.
        offset: i32,
        /// The registers with the low and the high half of the mask.
        chosen: [u8; 2],
    },
    /// Strong update: `size` bytes of memory, at `base` plus `offset`, are something else.
    Overwrite {
        /// The register with the address.
        base: u8,
        /// Added to the address.
        offset: i32,
        /// How many bytes.
        size: u16,
    },
    /// Weak update: some of `size` bytes of memory, at `base` plus `offset`, are something else.
    /// Only a run knows which.
    WeakOverwrite {
        /// The register with the address.
        base: u8,
        /// Added to the address.
        offset: i32,
        /// Number of bytes, or [`UNBOUNDED`].
        size: u16,
    },
    /// `size` bytes of memory, at `base` plus `offset`, are stored from untracked registers.
    StoreUntracked {
        /// The register with the address.
        base: u8,
        /// Added to the address.
        offset: i32,
        /// How many bytes.
        size: u16,
    },
    /// `size` bytes of memory, at `base` plus `offset`, escape to untracked registers.
    EscapeMemory {
        /// The register with the address.
        base: u8,
        /// Added to the address.
        offset: i32,
        /// How many bytes.
        size: u16,
    },
    /// `from` escapes to an untracked register.
    Escape {
        /// The register read.
        from: u8,
    },
    /// Strong update of `size` bytes of memory, `count` times (once without a register), from
    /// `base` on, in the current [direction](Op::Direction).
    Fill {
        /// The register with the address.
        base: u8,
        /// The register with the number of repetitions.
        count: Option<u8>,
        /// Bytes in one repetition.
        size: u8,
        /// What is stored.
        contents: FillContents,
    },
    /// A string instruction moves `to` past the elements that it read or wrote, in the current
    /// [direction](Op::Direction).
    Advance {
        /// The register.
        to: u8,
        /// The register with the number of elements; none if it is one.
        count: Option<u8>,
        /// Bytes in one element.
        size: u8,
    },
    /// Registers are computed from others, or from their old values. A result may be the value of
    /// one of these: a later computation undoes it, or it changes nothing. Sets of registers: bit n
    /// stands for register n.
    Compute {
        /// The registers written.
        to: u32,
        /// The registers read.
        from: u32,
    },
    /// `to` is `from`, or stays as it is. Only a run knows which, and both are assumed to happen.
    Choose {
        /// The register written, or not.
        to: u8,
        /// The register read.
        from: u8,
    },
    /// Sets the direction of string instructions.
    Direction {
        /// Whether it is towards lower addresses.
        is_down: bool,
    },
    /// A system call. Some return on another stack, some return twice on the same stack.
    SystemCall {
        /// The register with its number; none if it uses another numbering.
        number: Option<u8>,
    },
    /// The processor halts, or traps: only kernels may halt it.
    Halt,
    /// Assumes the stack pointer at this distance from its entry value, on this stack or on an
    /// equivalent one. Values saved there are the values saved here; all others are unknown.
    AssumeStackPointer {
        /// The distance in bytes: negative below.
        offset: i32,
    },
    /// Registers in this set are something else: bit n stands for register n.
    Clobber {
        /// The registers.
        registers: u64,
    },
}

/// What [`Op::Fill`] stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillContents {
    /// The low bytes of a register.
    Register(u8),
    /// A copy of the memory at the address in a register.
    Memory(u8),
    /// Something else.
    Other,
}

/// Stands for an unbounded number of bytes in operations that write.
pub const UNBOUNDED: u16 = u16::MAX;

/// Stands for memory in [`Op::written`].
pub const MEMORY_BIT: u64 = 1 << 63;

/// Stands for a new memory slot in [`crate::AbstractState::take_written`].
pub const NEW_SLOT_BIT: u64 = 1 << 62;

impl Op {
    /// The write set: bit n stands for register n, [`MEMORY_BIT`] for memory.
    #[must_use]
    #[inline]
    pub fn written(self, stack_pointer: u8) -> u64 {
        let bit = |register: u8| 1_u64 << (register & 63);
        match self {
            Op::Constant { to, .. }
            | Op::Address { to, .. }
            | Op::Add { to, .. }
            | Op::Sum { to, .. }
            | Op::Difference { to, .. }
            | Op::Bound { to, .. }
            | Op::SignExtend { to, .. }
            | Op::Unknown { to }
            | Op::Load { to, .. }
            | Op::LoadLow { to, .. }
            | Op::AddUnknown { to, .. }
            | Op::Advance { to, .. }
            | Op::Choose { to, .. }
            | Op::LoadSum { to, .. }
            | Op::LoadIndexed { to, .. } => bit(to),
            Op::Clobber { registers } => registers,
            Op::Compute { to, .. } => to.into(),
            Op::AssumeStackPointer { .. } => u64::MAX,
            Op::Halt | Op::Escape { .. } | Op::EscapeMemory { .. } | Op::Direction { .. } => 0,
            Op::Align { .. } => bit(stack_pointer),
            Op::SystemCall { .. } => bit(stack_pointer) | MEMORY_BIT,
            // `base` and `index` get symbolic bases.
            Op::StoreIndexed { base, index, .. } => bit(base) | bit(index) | MEMORY_BIT,
            Op::Store { .. }
            | Op::StoreLow { .. }
            | Op::Overwrite { .. }
            | Op::WeakOverwrite { .. }
            | Op::StoreUntracked { .. }
            | Op::Fill { .. }
            | Op::OverwriteIndexed { .. }
            | Op::OverwriteTileRows { .. }
            | Op::OverwriteUnbounded { .. }
            | Op::SaveState { .. } => MEMORY_BIT,
        }
    }
}

impl Op {
    /// The memory that it may write, if that is at a register's value plus a number: the register,
    /// the number, and how many bytes.
    #[must_use]
    pub fn stored(self) -> Option<(u8, i32, u16)> {
        Some(match self {
            Op::Store { base, offset, .. } => (base, offset, 8),
            Op::StoreLow {
                base, offset, size, ..
            } => (base, offset, size.into()),
            Op::Overwrite { base, offset, size }
            | Op::WeakOverwrite { base, offset, size }
            | Op::StoreUntracked { base, offset, size } => (base, offset, size),
            _ => return None,
        })
    }
}

/// The registers of a set.
#[inline]
pub(crate) fn bits(mut registers: u64) -> impl Iterator<Item = u8> {
    core::iter::from_fn(move || {
        let register = u8::try_from(registers.trailing_zeros()).ok()?;
        (registers != 0).then(|| registers &= registers - 1)?;
        Some(register)
    })
}

/// Control flow of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Jumps to an address.
    Jump(u64),
    /// Jumps to an address, or falls through.
    Branch {
        /// The address.
        to: u64,
        /// What the condition implies.
        condition: BranchCondition,
    },
    /// Calls a function at an address; it returns behind the call.
    Call(u64),
    /// Calls the function at the address in a register ([`crate::state::SCRATCH`] if it was loaded
    /// from memory); it returns behind the call.
    IndirectCall(u8),
    /// Jumps to the address in a register ([`crate::state::SCRATCH`] if it was loaded from memory).
    IndirectJump(u8),
    /// Returns, and pops arguments.
    Return {
        /// Where the return address is.
        to: ReturnTarget,
        /// Bytes popped, behind a return address on the stack.
        pops: u16,
    },
    /// Resumes code that a system call, an interrupt or the like has left, and that called nobody.
    Resume(ResumePoint),
    /// Traps.
    Trap,
    /// The byte begins no instruction that is known. Control may go anywhere.
    Unknown,
}

impl Flow {
    /// Whether control may leave to an address that the code does not name: another function, or
    /// the caller.
    #[must_use]
    pub fn leaves(self) -> bool {
        !matches!(self, Flow::Jump(_) | Flow::Branch { .. } | Flow::Trap)
    }

    /// Whether control may go on behind the instruction. Behind a call it does if the callee
    /// returns.
    #[must_use]
    pub fn falls_through(self) -> bool {
        match self {
            Flow::Call(_) | Flow::IndirectCall(_) | Flow::Branch { .. } => true,
            Flow::Jump(_)
            | Flow::IndirectJump(_)
            | Flow::Return { .. }
            | Flow::Resume(_)
            | Flow::Trap
            | Flow::Unknown => false,
        }
    }

    /// The address that a jump or branch names.
    #[must_use]
    pub fn jump_target(self) -> Option<u64> {
        match self {
            Flow::Jump(to) | Flow::Branch { to, .. } => Some(to),
            _ => None,
        }
    }

    /// Whether it is a call.
    #[must_use]
    pub fn is_call(self) -> bool {
        matches!(self, Flow::Call(_) | Flow::IndirectCall(_))
    }
}

/// Where an instruction finds the address that it returns to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReturnTarget {
    /// On top of the stack, from where it is popped.
    Stack,
    /// In a register.
    Register(u8),
}

/// Where an instruction finds the address of the code that it resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumePoint {
    /// In a register.
    Register {
        /// The register.
        address: u8,
        /// The register with the resumed code's stack pointer.
        stack_pointer: u8,
    },
    /// On top of the stack.
    Stack {
        /// Distance of the resumed code's stack pointer above the address, in bytes.
        stack_pointer_at: u8,
    },
    /// In neither.
    Elsewhere,
}

/// What a conditional branch implies for registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchCondition {
    /// Nothing.
    None,
    /// Two registers are equal.
    Equal {
        /// One.
        a: u8,
        /// The other.
        b: u8,
        /// The edge on which this holds.
        holds_on: BranchEdge,
    },
    /// A register is at most this, unsigned.
    AtMost {
        /// The register.
        register: u8,
        /// The greatest number.
        limit: u16,
        /// The edge on which this holds.
        holds_on: BranchEdge,
    },
}

/// An edge out of a conditional branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchEdge {
    /// The branch is taken.
    Taken,
    /// The branch falls through.
    FallThrough,
}

/// Events of the first pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanEvent {
    /// Control flow.
    Flow(Flow),
    /// An address that it takes, or the address of a table that it reads.
    AddressTaken(u64),
    /// An immediate operand. In code without relative addresses it may be an address.
    Immediate(u64),
    /// The last instruction falls through.
    FallsThroughEnd,
}
