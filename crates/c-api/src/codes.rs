//! Numbers and texts of evidence and ends, and numbers of argument kinds.

use core::ffi::{CStr, c_int};

use unspool_arg_table::{DisplayKind, TableType, ValueCertainty};
use unspool_unwind::{End, Evidence, NoRow};

/// `unspool_evidence`: how a frame was found. The first frame of a walk is `GIVEN`.
pub(crate) fn evidence(of: Option<Evidence>) -> c_int {
    match of {
        None => 0,
        Some(Evidence::Cfi) => 1,
        Some(Evidence::SignalTrampoline) => 2,
        Some(Evidence::BadCall) => 3,
        Some(Evidence::FramePointer) => 4,
        Some(Evidence::Synthesized) => 5,
    }
}

/// The results of `unspool_evidence_text`, by number.
const EVIDENCE: [&CStr; 6] = [
    c"given",
    c"unwind table",
    c"guessed: the bytes of a signal trampoline",
    c"guessed: a call through a bad pointer",
    c"guessed: the frame pointer",
    c"rows made of the code",
];

/// `unspool_end`: why a walk ended; 0 if it has not.
pub(crate) fn end(of: Option<End>) -> c_int {
    match of {
        None => 0,
        Some(End::Outermost) => 1,
        Some(End::EntryPoint) => 2,
        Some(End::Limit) => 3,
        Some(End::ZeroReturnAddress) => 4,
        Some(End::Loop | End::TooManyStacks) => 5,
        Some(End::NoRow(NoRow::NoModule)) => 6,
        Some(End::NoRow(NoRow::BadEntry(_) | NoRow::BadSframe(_) | NoRow::CorruptTable(_))) => 8,
        Some(End::NoRow(_)) => 7,
        Some(end) if end.unreadable().is_some() => 9,
        Some(_) => 10,
    }
}

/// The results of `unspool_end_text`, by number.
const ENDS: [&CStr; 11] = [
    c"the walk has not ended",
    c"outermost frame",
    c"entry code",
    c"the limit of frames is reached",
    c"the return address is zero",
    c"the walk leads in a circle, or changes stacks without end",
    c"the address lies in no module",
    c"no unwind table covers the address",
    c"the unwind table is damaged",
    c"memory that leads to the caller is not mapped",
    c"the unwind table leads to no caller",
];

/// The text of a number of [`evidence`].
pub(crate) fn evidence_text(number: c_int) -> &'static CStr {
    text(&EVIDENCE, number)
}

/// The text of a number of [`end`].
pub(crate) fn end_text(number: c_int) -> &'static CStr {
    text(&ENDS, number)
}

fn text(texts: &[&'static CStr], number: c_int) -> &'static CStr {
    let at = usize::try_from(number).ok();
    at.and_then(|at| texts.get(at)).copied().unwrap_or(c"?")
}

/// `UNSPOOL_ARGUMENT_LOST`, `UNSPOOL_ARGUMENT_LIKELY`, `UNSPOOL_ARGUMENT_EXACT`.
#[must_use]
pub(crate) fn certainty(certainty: Option<ValueCertainty>) -> c_int {
    match certainty {
        None => 0,
        Some(ValueCertainty::Likely) => 1,
        Some(ValueCertainty::Exact) => 2,
    }
}

/// `UNSPOOL_KIND_SIGNED` and the others.
#[must_use]
pub(crate) fn display_kind_code(display_kind: DisplayKind<TableType<'_>>) -> c_int {
    match display_kind {
        DisplayKind::Signed => 0,
        DisplayKind::Unsigned | DisplayKind::UnsignedChar => 1,
        DisplayKind::Bool => 2,
        DisplayKind::Char => 3,
        DisplayKind::Pointer => 4,
        DisplayKind::CharPointer => 5,
        DisplayKind::Float => 6,
        // Arguments are neither arrays nor bit-fields.
        DisplayKind::Bytes | DisplayKind::Array(_) | DisplayKind::Bits(_) => 7,
        DisplayKind::Enum(_) => 8,
        DisplayKind::Record(_) => 9,
    }
}

#[cfg(test)]
mod tests {
    use unspool_cfi::CfiError;
    use unspool_rows::interpret::{RegisterError, StepError};
    use unspool_rows::{RuntimeAddr, Unreadable};

    use super::*;

    /// The number of a name in the header.
    fn number(name: &str) -> c_int {
        let header = include_str!("../include/unspool.h");
        let lines = header.lines().map(str::trim_start);
        let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
        let digits = values.next().unwrap().split(|c: char| !c.is_ascii_digit());
        digits.into_iter().next().unwrap().parse().unwrap()
    }

    #[test]
    fn numbers_are_the_headers() {
        let unreadable = Unreadable::unmapped(RuntimeAddr(1));
        let bad_entry = CfiError::ReservedLength(0xffff_fff0);
        for (name, ended) in [
            ("UNSPOOL_OUTERMOST", End::Outermost),
            ("UNSPOOL_ENTRY_POINT", End::EntryPoint),
            ("UNSPOOL_LIMIT", End::Limit),
            ("UNSPOOL_ZERO_RETURN_ADDRESS", End::ZeroReturnAddress),
            ("UNSPOOL_LOOP", End::Loop),
            ("UNSPOOL_LOOP", End::TooManyStacks),
            ("UNSPOOL_NO_MODULE", End::NoRow(NoRow::NoModule)),
            ("UNSPOOL_NO_TABLE", End::NoRow(NoRow::Hole)),
            ("UNSPOOL_NO_TABLE", End::NoRow(NoRow::NoTable)),
            ("UNSPOOL_BAD_TABLE", End::NoRow(NoRow::BadEntry(bad_entry))),
            (
                "UNSPOOL_UNREADABLE",
                End::Step(StepError::ReturnAddress(RegisterError::Unreadable(
                    unreadable,
                ))),
            ),
            ("UNSPOOL_NO_CALLER", End::Step(StepError::NoCfa)),
        ] {
            assert_eq!(end(Some(ended)), number(name), "{name}");
        }
        assert_eq!(end(None), number("UNSPOOL_NOT_ENDED"));
        for (name, found) in [
            ("UNSPOOL_GIVEN", None),
            ("UNSPOOL_TABLE", Some(Evidence::Cfi)),
            (
                "UNSPOOL_SIGNAL_TRAMPOLINE",
                Some(Evidence::SignalTrampoline),
            ),
            ("UNSPOOL_BAD_CALL", Some(Evidence::BadCall)),
            ("UNSPOOL_FRAME_POINTER", Some(Evidence::FramePointer)),
            ("UNSPOOL_SYNTHESIZED", Some(Evidence::Synthesized)),
        ] {
            assert_eq!(evidence(found), number(name), "{name}");
        }
    }
}
