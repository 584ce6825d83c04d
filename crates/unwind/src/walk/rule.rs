//! How most frames are left, in 17 bits.

use unspool_ir::{Abi, Arch, CfaRule, RaState, RegisterRule, Row};

use crate::arch;

/// How to leave a frame of which only stack pointer and frame pointer are known.
///
/// ```text
/// bit 0      0: a step
/// bit 1      the CFA is based on the frame pointer, not on the stack pointer
/// bits 2-11  offset of the CFA from there, in words
/// bits 12-16 how many words below the CFA the caller's frame pointer is; 1 is the place of the
///            return address, and stands for a frame pointer that is unchanged
///
/// bit 0      1: there is no caller
/// bit 1      0 outermost frame, 1 entry code
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule(u32);

impl Rule {
    /// Bits of a rule.
    pub(super) const BITS: u32 = 17;

    /// The row says that the return address is undefined.
    pub(super) const OUTERMOST: Rule = Rule(0b01);
    /// The frame runs entry code.
    pub(super) const ENTRY_POINT: Rule = Rule(0b11);

    const WORD: i64 = 8;
    const FRAME_POINTER: u32 = 1 << 1;
    const CFA_SHIFT: u32 = 2;
    const CFA_BITS: u32 = 10;
    const SAVED_SHIFT: u32 = Rule::CFA_SHIFT + Rule::CFA_BITS;
    const SAVED_BITS: u32 = Rule::BITS - Rule::SAVED_SHIFT;
    const UNCHANGED: u32 = 1;

    pub(super) fn from_bits(bits: u64) -> Rule {
        Rule((bits & ((1 << Rule::BITS) - 1)) as u32)
    }

    pub(super) fn bits(self) -> u64 {
        u64::from(self.0)
    }

    /// The rule that says the same of stack pointer, frame pointer and return address as a row;
    /// `None` for rows that are not of the usual form.
    pub(super) fn of(row: &Row<'_>, abi: Abi) -> Option<Rule> {
        if abi.arch != Arch::X86_64 || row.signal_frame || row.ra_state != RaState::Plain {
            return None;
        }
        let spec = abi.arch.spec();
        let frame_pointer = arch::frame_pointer(abi.arch)?;
        let CfaRule::RegisterOffset { register, offset } = row.cfa else {
            return None;
        };
        let base = match register {
            _ if register == spec.stack_pointer => 0,
            _ if register == frame_pointer => Rule::FRAME_POINTER,
            _ => return None,
        };
        let is_at_cfa = row.rule(row.return_address) == Some(RegisterRule::Offset(-Rule::WORD));
        if !is_at_cfa || row.rule(spec.stack_pointer).is_some() {
            return None;
        }
        let saved = match row.rule(frame_pointer) {
            None | Some(RegisterRule::SameValue) => Rule::UNCHANGED,
            Some(RegisterRule::Offset(below)) => words(below.checked_neg()?)
                .filter(|words| (2..1 << Rule::SAVED_BITS).contains(words))?,
            Some(_) => return None,
        };
        let words = words(offset).filter(|words| *words < 1 << Rule::CFA_BITS)?;
        Some(Rule(
            base | words << Rule::CFA_SHIFT | saved << Rule::SAVED_SHIFT,
        ))
    }

    #[inline]
    pub(super) fn is_end(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether the CFA is based on the frame pointer.
    #[inline]
    pub(super) fn by_frame_pointer(self) -> bool {
        self.0 & Rule::FRAME_POINTER != 0
    }

    /// The CFA's offset, in bytes.
    #[inline]
    pub(super) fn cfa_offset(self) -> u64 {
        u64::from(self.0 >> Rule::CFA_SHIFT & ((1 << Rule::CFA_BITS) - 1)) * 8
    }

    /// How many bytes below the CFA the caller's frame pointer is; where it is unchanged, where
    /// the return address is.
    #[inline]
    pub(super) fn saved_below(self) -> u64 {
        u64::from(self.0 >> Rule::SAVED_SHIFT) * 8
    }

    /// Whether the frame pointer is the caller's.
    #[inline]
    pub(super) fn keeps_frame_pointer(self) -> bool {
        self.0 >> Rule::SAVED_SHIFT == Rule::UNCHANGED
    }
}

/// Bytes as words; `None` for what is negative or no multiple.
fn words(bytes: i64) -> Option<u32> {
    (bytes % Rule::WORD == 0)
        .then(|| u32::try_from(bytes / Rule::WORD).ok())
        .flatten()
}
