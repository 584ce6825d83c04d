//! Why a function gets no directives.

use unspool_code_analysis::MissingRow;
use unspool_rows::Arch;

/// Why a function gets no directives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusalReason {
    /// No row is proven.
    #[error(transparent)]
    NoRow(#[from] MissingRow),
    /// Paths with different stack heights join.
    #[error("paths meet here that disagree about the stack pointer")]
    StackHeightConflict,
    /// An indirect jump has unknown targets.
    #[error("the target of this jump is not known")]
    UnknownJumpTarget,
    /// It jumps to another function with something on the stack.
    #[error("it jumps to another function, whose caller's frame is not as after a call")]
    UnbalancedTailCall,
    /// It returns, and a preserved register may have another value.
    #[error("it is not known to restore the registers that calls preserve before it returns")]
    UnrestoredRegisters,
    /// It calls a function that does not return as the ABI says.
    #[error(
        "the function called does not leave the stack pointer and the preserved registers as calls do"
    )]
    NonstandardCallee,
    /// Control falls through its last instruction.
    #[error(
        "control continues past the end of the function: if it never does, write `ud2` after this"
    )]
    FallsThrough,
    /// Nothing calls the program's entry point.
    #[error(
        "nobody calls the program's entry: write `.cfi_startproc` and `.cfi_undefined %rip` before it, `.cfi_endproc` after it"
    )]
    ProgramEntry,
    /// The row changes between instructions of one line.
    #[error(
        "the line makes several instructions, and the row changes between them: write them on lines of their own"
    )]
    SeveralInsnsOnLine,
    /// A line is assembled more than once, and needs a directive behind it.
    #[error(
        "the line is assembled more than once, and the row changes after it: write the line out, or write the directives by hand"
    )]
    RepeatedLine,
    /// A conditional branch has directives that are wrong if it is excluded.
    #[error(
        "the row depends on the condition in line {0}: write the directives of this function by hand, or have all branches do the same to the stack and the saved registers"
    )]
    ConditionalAssembly(u32),
    /// An instruction is not from a line of the file.
    #[error("no line of the file makes this instruction (it may be from an included file)")]
    NoLine,
    /// The written directives do not have the planned effect.
    #[error("no position of directives gives this instruction its row: write them by hand")]
    NotAsPlanned,
    /// The architecture is not supported.
    #[error("{} code is not supported; x86-64 code is", .0.spec().name)]
    Arch(Arch),
}

/// A function that gets no directives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{function}: {reason}")]
pub struct AnnotateRefusal {
    /// The function.
    pub function: String,
    /// The line in the file, counted from 1, if one is known.
    pub line: Option<u32>,
    /// The reason.
    pub reason: RefusalReason,
}
