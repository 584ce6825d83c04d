//! Whole arguments, of all their pieces.

use crate::place::Source;
use crate::table::Parameter;
use crate::value::{Certainty, Stack, argument};

/// The DWARF numbers of vector registers begin here, on x86-64 and AArch64.
const VECTORS: u8 = 17;

/// How the value of an argument was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole {
    /// How certain it is: as certain as the least certain piece.
    pub certainty: Certainty,
    /// How many frames further out a piece of it was found, at most.
    pub by_caller: usize,
}

/// Why the value of an argument was not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// No table says what its function takes, so that it was looked for nowhere; only who knows of the argument from elsewhere says so.
    #[error("its location at the call is not known")]
    Function,
    /// Its type is not known well enough.
    #[error("its type is not known well enough to say where it is passed")]
    Type,
    /// It was passed in a vector register, and is in no memory that would be known.
    #[error("it was passed in a vector register, which was not saved")]
    Vector,
    /// Nobody has it.
    #[error("it is in no known location any more")]
    Gone,
    /// A part of it.
    #[error("a part of it is in no known location any more")]
    Part,
}

/// Fills in the bytes of what the function of a frame was called with for a parameter, as many as there is room for.
///
/// # Errors
///
/// [`Lost`]; the bytes are of no use then.
pub fn whole(
    stack: &dyn Stack,
    frame: usize,
    parameter: &Parameter<'_>,
    into: &mut [u8],
) -> Result<Whole, Lost> {
    if !parameter.is_known {
        return Err(Lost::Type);
    }
    into.fill(0);
    let mut whole = Whole {
        certainty: Certainty::Exact,
        by_caller: 0,
    };
    for (index, piece) in parameter.pieces().enumerate() {
        let source: Source = piece.source.ok_or(Lost::Vector)?;
        let value = argument(stack, frame, source, piece.bytes.saturating_mul(8));
        let value = value.ok_or(match (index, source) {
            (0, Source::Register(VECTORS..)) => Lost::Vector,
            (0, _) => Lost::Gone,
            _ => Lost::Part,
        })?;
        whole.certainty = whole.certainty.min(value.certainty);
        whole.by_caller = whole.by_caller.max(value.by_caller);
        let start = usize::try_from(piece.offset).unwrap_or(usize::MAX);
        let places = into.iter_mut().skip(start).take(piece.bytes.into());
        for (place, byte) in places.zip(value.number.to_le_bytes()) {
            *place = byte;
        }
    }
    Ok(whole)
}
