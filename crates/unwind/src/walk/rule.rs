//! How most frames are left, in 17 bits.

use unspool_ir::{Abi, Arch, CfaRule, RaState, RegisterRule, Row};

use crate::arch;

/// How to leave a frame of which only stack pointer and frame pointer are known.
///
/// ```text
/// bit 0      0: a small step
/// bit 1      the CFA is based on the frame pointer, not on the stack pointer
/// bit 2      0
/// bits 3-12  offset of the CFA from there, in words: with the bits below, in bytes
/// bits 13-16 how many words below the CFA the caller's frame pointer is; 1 is the place of the
///            return address, and stands for a frame pointer that is unchanged
///
/// bits 0-1   1: a large step, based on the stack pointer
/// bits 2-13  offset of the CFA, in pairs of words
/// bits 14-16 how many words below the CFA the caller's frame pointer is, less 1
///
/// bits 0-1   3: there is no caller
/// bit 2      0 outermost frame, 1 entry code
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule(u32);

/// What a rule says of a frame that has a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leave {
    /// The CFA is based on the frame pointer, not on the stack pointer.
    pub(super) by_frame_pointer: bool,
    /// The CFA's offset from there, in bytes.
    pub(super) cfa_offset: u64,
    /// How many bytes below the CFA the caller's frame pointer is; where it is unchanged, where
    /// the return address is.
    pub(super) saved_below: u64,
}

impl Leave {
    /// Leads nowhere: the CFA would not be higher.
    pub(super) const NOTHING: Leave = Leave {
        by_frame_pointer: false,
        cfa_offset: 0,
        saved_below: Leave::WORD,
    };

    const WORD: u64 = 8;

    /// Whether the frame pointer is the caller's.
    #[inline]
    pub(super) fn keeps_frame_pointer(self) -> bool {
        self.saved_below == Leave::WORD
    }

    /// What a row says of stack pointer, frame pointer and return address, if it is of the usual
    /// form.
    fn of(row: &Row<'_>, abi: Abi) -> Option<Leave> {
        if abi.arch != Arch::X86_64 || row.signal_frame || row.ra_state != RaState::Plain {
            return None;
        }
        let spec = abi.arch.spec();
        let frame_pointer = arch::frame_pointer(abi.arch)?;
        let CfaRule::RegisterOffset { register, offset } = row.cfa else {
            return None;
        };
        if register != spec.stack_pointer && register != frame_pointer {
            return None;
        }
        let is_at_cfa = row.rule(row.return_address) == Some(RegisterRule::Offset(-8));
        if !is_at_cfa || row.rule(spec.stack_pointer).is_some() {
            return None;
        }
        Some(Leave {
            by_frame_pointer: register == frame_pointer,
            cfa_offset: u64::try_from(offset).ok()?,
            saved_below: match row.rule(frame_pointer) {
                None | Some(RegisterRule::SameValue) => Leave::WORD,
                Some(RegisterRule::Offset(offset)) => u64::try_from(offset.checked_neg()?)
                    .ok()
                    .filter(|below| *below > Leave::WORD)?,
                Some(_) => return None,
            },
        })
    }
}

impl Rule {
    /// Bits of a rule.
    pub(super) const BITS: u32 = 17;

    /// The row says that the return address is undefined.
    pub(super) const OUTERMOST: Rule = Rule(0b011);
    /// The frame runs entry code.
    pub(super) const ENTRY_POINT: Rule = Rule(0b111);

    const IS_LARGE: u32 = 0b01;
    const BY_FRAME_POINTER: u32 = 0b10;

    #[inline]
    pub(super) fn from_bits(bits: u64) -> Rule {
        Rule((bits & ((1 << Rule::BITS) - 1)) as u32)
    }

    pub(super) fn bits(self) -> u64 {
        u64::from(self.0)
    }

    /// The rule that says the same of stack pointer, frame pointer and return address as a row;
    /// `None` for rows that no rule can say.
    pub(super) fn of(row: &Row<'_>, abi: Abi) -> Option<Rule> {
        let leave = Leave::of(row, abi)?;
        let rule = Rule::small(leave).or_else(|| Rule::large(leave))?;
        debug_assert_eq!(rule.leave(), Some(leave), "a rule says what it was made of");
        Some(rule)
    }

    fn small(leave: Leave) -> Option<Rule> {
        let cfa = units(leave.cfa_offset, 8, 10)?;
        let saved = units(leave.saved_below, 8, 4)?;
        let base = if leave.by_frame_pointer {
            Rule::BY_FRAME_POINTER
        } else {
            0
        };
        Some(Rule(base | cfa << 3 | saved << 13))
    }

    fn large(leave: Leave) -> Option<Rule> {
        let cfa = units(leave.cfa_offset, 16, 12).filter(|_| !leave.by_frame_pointer)?;
        let saved = units(leave.saved_below - Leave::WORD, 8, 3)?;
        Some(Rule(Rule::IS_LARGE | cfa << 2 | saved << 14))
    }

    /// How to leave the frame, if that is a small step.
    #[inline]
    pub(super) fn leave_small(self) -> Option<Leave> {
        (self.0 & 1 == 0).then(|| Leave {
            by_frame_pointer: self.0 & Rule::BY_FRAME_POINTER != 0,
            cfa_offset: u64::from(self.0 & 0x1ff8),
            saved_below: u64::from(self.0 >> 13) * Leave::WORD,
        })
    }

    /// How to leave the frame; `None` where there is no caller.
    #[inline]
    pub(super) fn leave(self) -> Option<Leave> {
        self.leave_small().or_else(|| self.leave_large())
    }

    fn leave_large(self) -> Option<Leave> {
        (self.0 & 0b11 == Rule::IS_LARGE).then(|| Leave {
            by_frame_pointer: false,
            cfa_offset: u64::from(self.0 >> 2 & 0xfff) * 16,
            saved_below: u64::from(self.0 >> 14) * Leave::WORD + Leave::WORD,
        })
    }
}

/// Bytes as a number of units, if it is whole and has no more than so many bits.
fn units(bytes: u64, unit: u64, bits: u32) -> Option<u32> {
    let count = u32::try_from(bytes / unit).ok()?;
    (bytes.is_multiple_of(unit) && count < 1 << bits).then_some(count)
}
