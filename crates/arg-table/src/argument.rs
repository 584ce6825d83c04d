//! Whole arguments, assembled from all their pieces.

use crate::location::ArgSource;
use crate::table::TableParameter;
use crate::value::{ArgStack, ValueCertainty, argument};

/// The DWARF numbers of vector registers begin here, on x86-64 and AArch64.
const FIRST_VECTOR_REGISTER: u8 = 17;

/// The origin of an argument's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgOrigin {
    /// Its certainty: that of the least certain piece.
    pub certainty: ValueCertainty,
    /// The number of frames further out of the piece found furthest out.
    pub caller_depth: usize,
}

/// Why the value of an argument was not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ArgUnavailable {
    /// No table has its function's parameters, so it was not searched. Only a caller that knows the
    /// argument from elsewhere reports this.
    #[error("its location at the call is not known")]
    Function,
    /// Its type is incomplete.
    #[error("its type is not known well enough to say where it is passed")]
    Type,
    /// It was passed in a vector register, and is not at a known place in memory.
    #[error("it was passed in a vector register, which was not saved")]
    Vector,
    /// It has been overwritten everywhere.
    #[error("it is in no known location any more")]
    Overwritten,
    /// A part of it has been overwritten.
    #[error("a part of it is in no known location any more")]
    PartOverwritten,
}

/// Reads the bytes of a parameter's value when the function of a frame was called, up to the size
/// of the buffer.
///
/// # Errors
///
/// [`ArgUnavailable`]; the bytes have no meaning then.
pub fn read_argument(
    stack: &dyn ArgStack,
    frame: usize,
    parameter: &TableParameter<'_>,
    into: &mut [u8],
) -> Result<ArgOrigin, ArgUnavailable> {
    if !parameter.is_known {
        return Err(ArgUnavailable::Type);
    }
    into.fill(0);
    let mut whole = ArgOrigin {
        certainty: ValueCertainty::Exact,
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
