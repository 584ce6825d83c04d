//! Whole arguments, of all their pieces.

use crate::location::ArgSource;
use crate::table::Parameter;
use crate::value::{ArgStack, Certainty, argument};

/// The DWARF numbers of vector registers begin here, on x86-64 and AArch64.
const FIRST_VECTOR_REGISTER: u8 = 17;

/// How the value of an argument was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgOrigin {
    /// How certain it is: as certain as the least certain piece.
    pub certainty: Certainty,
    /// How many frames further out a piece of it was found, at most.
    pub caller_depth: usize,
}

/// Why the value of an argument was not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ArgUnavailable {
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
    Overwritten,
    /// A part of it.
    #[error("a part of it is in no known location any more")]
    PartOverwritten,
}

/// Fills in the bytes of what the function of a frame was called with for a parameter, as many as there is room for.
///
/// # Errors
///
/// [`ArgUnavailable`]; the bytes are of no use then.
pub fn read_argument(
    stack: &dyn ArgStack,
    frame: usize,
    parameter: &Parameter<'_>,
    into: &mut [u8],
) -> Result<ArgOrigin, ArgUnavailable> {
    if !parameter.is_known {
        return Err(ArgUnavailable::Type);
    }
    into.fill(0);
    let mut whole = ArgOrigin {
        certainty: Certainty::Exact,
        caller_depth: 0,
    };
    for (index, piece) in parameter.pieces().enumerate() {
        let source: ArgSource = piece.source.ok_or(ArgUnavailable::Vector)?;
        let value = argument(stack, frame, source, piece.bytes.saturating_mul(8));
        let value = value.ok_or(match (index, source) {
            (0, ArgSource::Register(FIRST_VECTOR_REGISTER..)) => ArgUnavailable::Vector,
            (0, _) => ArgUnavailable::Overwritten,
            _ => ArgUnavailable::PartOverwritten,
        })?;
        whole.certainty = whole.certainty.min(value.certainty);
        whole.caller_depth = whole.caller_depth.max(value.caller_depth);
        let start = usize::try_from(piece.offset).unwrap_or(usize::MAX);
        let places = into.iter_mut().skip(start).take(piece.bytes.into());
        for (place, byte) in places.zip(value.number.to_le_bytes()) {
            *place = byte;
        }
    }
    Ok(whole)
}
