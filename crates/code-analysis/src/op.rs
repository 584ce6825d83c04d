//! The seam between machines and the analysis: what an instruction does to registers and stack slots, and
//! where the processor goes next.
//!
//! An architecture turns each instruction into a few of these operations. What it does not know in detail
//! it says by [`Op::Clobber`]: the registers that were written are [`crate::AbstractValue::FRESH`] then.

/// What an instruction does. Registers are by their DWARF numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// `to` is a number.
    Constant {
        /// The register written.
        to: u8,
        /// The number.
        value: u64,
    },
    /// `to` is an address that the instruction says relative to its own.
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
    /// `to` is `base` plus some number that is only known at run time.
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
    /// `to` is something that nothing is known of: it may have been kept where nobody looks.
    Unknown {
        /// The register written.
        to: u8,
    },
    /// `to` is `from`, cut to what is at most `limit`.
    Bound {
        /// The register written.
        to: u8,
        /// The register read.
        from: u8,
        /// The greatest result.
        limit: u32,
    },
    /// The low bits of `to` are those of `from`, and the others copies of the highest of them.
    SignExtend {
        /// The register written.
        to: u8,
        /// The register read.
        from: u8,
        /// How many bits.
        bits: u8,
    },
    /// The stack pointer is the next lower multiple of a number, or what it was if it is one.
    Align {
        /// The number: a power of 2.
        multiple: u32,
    },
    /// `to` is what 8 bytes of memory hold, at `base` plus `offset`.
    Load {
        /// The register written.
        to: u8,
        /// The register that has the address.
        base: u8,
        /// What is added to it.
        offset: i32,
    },
    /// `to` is an entry of a table in memory, at `base` plus `index` times the size of an entry plus
    /// `offset`.
    LoadIndexed {
        /// The register written.
        to: u8,
        /// The register that has the table's address; none if `offset` is the address.
        base: Option<u8>,
        /// The register that has the index.
        index: u8,
        /// The size of an entry, in bytes: 4, with a sign, or 8.
        size: u8,
        /// What is added to the address.
        offset: i32,
    },
    /// `to` is what 4 bytes of memory hold, with their sign, at `a` plus `b` plus `offset`: an entry of a table, if one of the two registers
    /// has its address.
    LoadSum {
        /// The register written.
        to: u8,
        /// A register read.
        a: u8,
        /// A register read.
        b: u8,
        /// What is added to the address.
        offset: i32,
    },
    /// 8 bytes of memory are `from`, at `base` plus 8 times `index` plus `offset`.
    StoreIndexed {
        /// The register that has the address.
        base: u8,
        /// The register that has the index.
        index: u8,
        /// What is added to the address.
        offset: i32,
        /// The register read.
        from: u8,
    },
    /// 8 bytes of memory are `from`, at `base` plus `offset`.
    Store {
        /// The register that has the address.
        base: u8,
        /// What is added to it.
        offset: i32,
        /// The register read.
        from: u8,
    },
    /// The low `size` bytes of `to` are what is in memory, at `base` plus `offset`; the others are computed from
    /// them.
    LoadLow {
        /// The register written.
        to: u8,
        /// The register that has the address.
        base: u8,
        /// What is added to it.
        offset: i32,
        /// How many bytes: less than the register has.
        size: u8,
    },
    /// `size` bytes of memory are the low ones of `from`, at `base` plus `offset`.
    StoreLow {
        /// The register that has the address.
        base: u8,
        /// What is added to it.
        offset: i32,
        /// The register read.
        from: u8,
        /// How many bytes: less than the register has.
        size: u8,
    },
    /// `size` bytes of memory are something else, or what they were, at `base` plus `scale` times `index` plus `offset`: those of one element of an
    /// array, or of several, of which only a run knows which.
    OverwriteIndexed {
        /// The register that has the address.
        base: u8,
        /// The register that the number is a multiple of; none if no register is the number.
        index: Option<u8>,
        /// What the index is multiplied by.
        scale: u8,
        /// What is added to the address.
        offset: i32,
        /// How many bytes: [`UNBOUNDED`] are as many as there may be.
        size: u16,
    },
    /// `count` times `size` bytes of memory are something else, or what they were: at `base` plus `offset`, and each time `scale` times `index`
    /// further.
    OverwriteTileRows {
        /// The register that has the address.
        base: u8,
        /// The register that the distance is a multiple of.
        index: u8,
        /// What the index is multiplied by.
        scale: u8,
        /// What is added to the address.
        offset: i32,
        /// How many bytes are in a row.
        size: u16,
        /// How many rows there are.
        count: u8,
    },
    /// Memory is something else, or what it was, anywhere below `base` and above it.
    OverwriteUnbounded {
        /// The register that has the address.
        base: u8,
    },
    /// The state of the processor is stored at `base` plus `offset`: as much as it has of what two registers choose.
    SaveState {
        /// The register that has the address.
        base: u8,
        /// What is added to it.
        offset: i32,
        /// The registers that have the low and the high bits of the choice.
        chosen: [u8; 2],
    },
    /// `size` bytes of memory are something else, at `base` plus `offset`.
    Overwrite {
        /// The register that has the address.
        base: u8,
        /// What is added to it.
        offset: i32,
        /// How many bytes.
        size: u16,
    },
    /// `size` bytes of memory, at `base` plus `offset`, are something else, or what they were: which, only a run tells.
    WeakOverwrite {
        /// The register that has the address.
        base: u8,
        /// What is added to it.
        offset: i32,
        /// How many bytes: [`UNBOUNDED`] are as many as there may be.
        size: u16,
    },
    /// `size` bytes of memory, at `base` plus `offset`, come out of registers that are not followed.
    StoreUntracked {
        /// The register that has the address.
        base: u8,
        /// What is added to it.
        offset: i32,
        /// How many bytes.
        size: u16,
    },
    /// `size` bytes of memory, at `base` plus `offset`, are kept in registers that are not followed.
    EscapeMemory {
        /// The register that has the address.
        base: u8,
        /// What is added to it.
        offset: i32,
        /// How many bytes.
        size: u16,
    },
    /// `from` is kept in a register that is not followed.
    Escape {
        /// The register read.
        from: u8,
    },
    /// As many times `size` bytes of memory as a register says are something else, once if there is none: from `base` on, in the [direction](Op::Direction)
    /// that is set.
    Fill {
        /// The register that has the address.
        base: u8,
        /// The register that has the number.
        count: Option<u8>,
        /// How many bytes each has.
        size: u8,
    },
    /// `to` is computed from what it was, in a way that can be undone.
    Invert {
        /// The register.
        to: u8,
    },
    /// 8 bytes of memory, at `base` plus `offset`, are computed from what they were, in a way that can be undone.
    InvertMemory {
        /// The register that has the address.
        base: u8,
        /// What is added to it.
        offset: i32,
    },
    /// Which way strings are written from here on.
    Direction {
        /// Whether it is towards lower addresses.
        is_down: bool,
    },
    /// A system call. Some come back with the stack pointer of another stack, some twice on the same stack.
    SystemCall {
        /// The register that has its number; none if its numbers are others than usual.
        number: Option<u8>,
    },
    /// The processor waits, or traps: only kernels may have it wait.
    Halt,
    /// The stack pointer is so far from where it was at entry, on this stack or on another one that was left at the same place:
    /// what is saved there is what is saved here. Of what is not saved nothing is known.
    AssumeStackPointer {
        /// How far: less if it is below.
        offset: i32,
    },
    /// The registers of this set are something else: bit n stands for register n.
    Clobber {
        /// The registers.
        registers: u64,
    },
}

/// Stands for more bytes than anybody knows, where operations write some.
pub const UNBOUNDED: u16 = u16::MAX;

/// Stands for memory in [`Op::written`].
pub const MEMORY_BIT: u64 = 1 << 63;

/// Stands for memory of which nothing was known before, in [`crate::AbstractState::take_written`].
pub const NEW_SLOT_BIT: u64 = 1 << 62;

impl Op {
    /// What is written: bit n stands for register n, [`MEMORY_BIT`] for memory.
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
            | Op::Invert { to }
            | Op::LoadSum { to, .. }
            | Op::LoadIndexed { to, .. } => bit(to),
            Op::Clobber { registers } => registers,
            Op::AssumeStackPointer { .. } => u64::MAX,
            Op::Halt | Op::Escape { .. } | Op::EscapeMemory { .. } | Op::Direction { .. } => 0,
            Op::Align { .. } => bit(stack_pointer),
            Op::SystemCall { .. } => bit(stack_pointer) | MEMORY_BIT,
            // Both have names then.
            Op::StoreIndexed { base, index, .. } => bit(base) | bit(index) | MEMORY_BIT,
            Op::Store { .. }
            | Op::StoreLow { .. }
            | Op::Overwrite { .. }
            | Op::WeakOverwrite { .. }
            | Op::StoreUntracked { .. }
            | Op::Fill { .. }
            | Op::InvertMemory { .. }
            | Op::OverwriteIndexed { .. }
            | Op::OverwriteTileRows { .. }
            | Op::OverwriteUnbounded { .. }
            | Op::SaveState { .. } => MEMORY_BIT,
        }
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

/// Where the processor goes after an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// To an address.
    Jump(u64),
    /// To an address, or on.
    Branch {
        /// The address.
        to: u64,
        /// What the way that is taken tells.
        test: BranchCondition,
    },
    /// To an address, which returns behind the call.
    Call(u64),
    /// To a function whose address is in a register or memory, and which returns behind the call.
    IndirectCall,
    /// To the address in a register ([`crate::state::SCRATCH`] if it came out of memory).
    IndirectJump(u8),
    /// To the address on top of the stack, with so many bytes of arguments popped behind it.
    Return {
        /// The bytes popped behind the return address.
        pops: u16,
    },
    /// Nowhere: it traps.
    Trap,
}

impl Flow {
    /// Whether it may lead to where the code does not say: into another function, or back to the caller.
    #[must_use]
    pub fn leaves(self) -> bool {
        match self {
            Flow::Jump(_) | Flow::Branch { .. } | Flow::Trap => false,
            Flow::Call(_) | Flow::IndirectCall | Flow::IndirectJump(_) | Flow::Return { .. } => {
                true
            }
        }
    }
}

/// What a conditional branch tells of registers.
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
        /// Whether they are if the branch is taken, or if it is not.
        holds_on: BranchEdge,
    },
    /// A register is at most this, as a number without sign.
    AtMost {
        /// The register.
        register: u8,
        /// The greatest number.
        limit: u16,
        /// Whether it is if the branch is taken, or if it is not.
        holds_on: BranchEdge,
    },
}

/// A way out of a conditional branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchEdge {
    /// The branch is taken.
    Taken,
    /// It is not.
    FallThrough,
}

/// What a first look at an instruction tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanEvent {
    /// Where the processor goes.
    Flow(Flow),
    /// An address that it takes, or where a table is that it reads.
    AddressTaken(u64),
    /// A number that it puts somewhere. Where code does not say addresses relative to its own, it may be one.
    Immediate(u64),
    /// The last one was seen, and control goes on behind it.
    FallsThroughEnd,
}
