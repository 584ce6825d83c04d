//! Whole arguments, of all their pieces.

use crate::place::Source;
use crate::table::Parameter;
use crate::value::{Certainty, Stack, argument};

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
    /// Its type is not known well enough.
    #[error("its type is not known well enough to say where it is passed")]
    Type,
    /// It is passed where nobody looks.
    #[error("it is passed in a vector register")]
    Vector,
    /// Nobody has it.
    #[error("nobody has it any more")]
    Gone,
    /// A part of it.
    #[error("a part of it is not there any more")]
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
        let value = value.ok_or(if index == 0 { Lost::Gone } else { Lost::Part })?;
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
