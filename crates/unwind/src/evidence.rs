//! How a frame was found, and why a walk ended.

use unspool_cfi::CfiError;
use unspool_cfi::sframe::SframeError;
use unspool_compiled_table::TableCorruption;
use unspool_rows::RuntimeAddr;
use unspool_rows::expression::ExpressionError;
use unspool_rows::interpret::{RegisterError, StepError};
use unspool_rows::memory::{Unreadable, UnreadableReason};

/// How the caller of a frame was found, from most to least trustworthy. The first two are proof;
/// the others are guesses, reported as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// By a row of the module's unwind table.
    Cfi,
    /// By a row synthesized from the code, where the module's unwind table has none.
    Synthesized,
    /// The code is a signal trampoline by its bytes, with the kernel's record above it.
    SignalTrampoline,
    /// The address is not code: a call through a bad pointer has just been made, and its return
    /// address is still in place.
    BadCall,
    /// By the frame pointer, assuming that the code keeps one.
    FramePointer,
}

impl Evidence {
    /// Whether the frame was found without a row.
    #[must_use]
    pub fn is_guess(self) -> bool {
        self > Evidence::Synthesized
    }

    /// The name used in reports: `cfi`, `frame-pointer`, …
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Evidence::Cfi => "cfi",
            Evidence::Synthesized => "synthesized",
            Evidence::SignalTrampoline => "signal-trampoline",
            Evidence::BadCall => "bad-call",
            Evidence::FramePointer => "frame-pointer",
        }
    }
}

/// Why there is no row for an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoRow {
    /// The address is in no module.
    #[error("the address lies in no module")]
    NoModule,
    /// The file mapped at the address cannot be used.
    #[error("the module's file cannot be used")]
    NoFile,
    /// The module has no unwind table.
    #[error("the module has no unwind table")]
    NoTable,
    /// The module's table does not cover the address.
    #[error("the module's unwind table does not cover the address")]
    Hole,
    /// No table covers the address, and the module's rows are still being synthesized.
    #[error("rows for the address are still being made")]
    Pending,
    /// The entry that covers the address is bad.
    #[error("the unwind table entry is bad: {0}")]
    BadEntry(CfiError),
    /// The SFrame entry that covers the address is bad, or cannot be used without an allocator.
    #[error("the SFrame entry cannot be used: {0}")]
    BadSframe(SframeError),
    /// The compiled table has invalid bytes.
    #[error(transparent)]
    CorruptTable(#[from] TableCorruption),
}

/// Why a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum End {
    /// The return address is undefined in the row: the outermost frame.
    #[error("outermost frame")]
    Outermost,
    /// The frame runs the entry code of the program, of its loader, or of a stack that the program
    /// made. It has no caller.
    #[error("entry code")]
    EntryPoint,
    /// No row covers the frame's address, and no guess was plausible.
    #[error(transparent)]
    NoRow(NoRow),
    /// No row covers the frame's address, and a guess would read memory that was not copied.
    #[error("{missing}; {unreadable}")]
    Guess {
        /// Why there is no row.
        missing: NoRow,
        /// Memory that may lead to a caller.
        unreadable: Unreadable,
    },
    /// A caller cannot be computed by the row.
    #[error(transparent)]
    Step(StepError),
    /// The return address is not in executable memory: the stack or the table is wrong.
    #[error("the return address {0} is not in executable memory")]
    NotCode(RuntimeAddr),
    /// The return address is zero, in a frame that is not declared the outermost.
    #[error("the return address is zero")]
    ZeroReturnAddress,
    /// The same address and CFA repeated: the stack, or the table, leads in a circle.
    #[error("the walk came back to a frame that it had left")]
    Loop,
    /// The walk changed stacks more often than any program can.
    #[error("the walk changed stacks too often")]
    TooManyStacks,
    /// The requested number of frames was reached.
    #[error("the limit of frames is reached")]
    Limit,
}

impl End {
    /// Whether the walk reached the root of the stack.
    #[must_use]
    pub fn is_root(self) -> bool {
        matches!(self, End::Outermost | End::EntryPoint)
    }

    /// Unreadable memory, if that is why the walk ended.
    #[must_use]
    pub fn unreadable(self) -> Option<Unreadable> {
        match self {
            End::Guess { unreadable, .. }
            | End::Step(
                StepError::ReturnAddress(
                    RegisterError::Unreadable(unreadable)
                    | RegisterError::Expression(ExpressionError::Unreadable(unreadable)),
                )
                | StepError::CfaExpression(ExpressionError::Unreadable(unreadable)),
            ) => Some(unreadable),
            _ => None,
        }
    }

    /// The name used in reports: `outermost`, `no-table`, …
    #[must_use]
    pub fn name(self) -> &'static str {
        if let Some(unreadable) = self.unreadable()
            && unreadable.reason == UnreadableReason::NotRecorded
        {
            return "not-copied";
        }
        match self {
            End::Outermost => "outermost",
            End::EntryPoint => "entry-point",
            End::NoRow(NoRow::NoModule) => "no-module",
            End::NoRow(NoRow::NoFile) => "no-file",
            End::NoRow(NoRow::NoTable) => "no-table",
            End::NoRow(NoRow::Hole) => "hole",
            End::NoRow(NoRow::Pending) => "pending",
            End::NoRow(NoRow::BadEntry(_) | NoRow::BadSframe(_)) => "bad-entry",
            End::NoRow(NoRow::CorruptTable(_)) => "corrupt-table",
            End::Guess { .. } | End::Step(_) => "step-failed",
            End::NotCode(_) => "not-code",
            End::ZeroReturnAddress => "zero-return-address",
            End::Loop => "loop",
            End::TooManyStacks => "too-many-stacks",
            End::Limit => "frame-limit",
        }
    }
}
