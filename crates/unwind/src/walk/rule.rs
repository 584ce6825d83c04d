//! How most frames are left, in 17 bits.

use core::ops::Range;

use unspool_ir::{Abi, Arch, CfaRule, RaState, RegisterRule, Row};

use crate::arch;

/// How to leave a frame of which only stack pointer and frame pointer are known.
///
/// As it is in an entry of [`super::Rules`], from bit 3 on:
///
/// ```text
/// bits 3-12  offset of the CFA, in words: with the bits below, in bytes
/// bit 13     the offset is from the frame pointer, not from the stack pointer
/// bits 14-17 how many words below the return address the caller's frame pointer is; 0 where it is
///            unchanged
/// bits 18-19 0
///
/// bits 3-14  offset of the CFA from the stack pointer, in pairs of words
/// bits 15-17 how many words below the return address the caller's frame pointer is, or 0
/// bits 18-19 1: a large step
///
/// bit 3      there is no caller: 0 outermost frame, 1 entry code
/// bits 18-19 2
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule(u64);

/// What a rule says of a frame that has a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leave {
    /// The CFA is based on the frame pointer, not on the stack pointer.
    pub(super) by_frame_pointer: bool,
    /// The CFA's offset from there, in bytes.
    pub(super) cfa_offset: u64,
    /// How many bytes below the return address the caller's frame pointer is; 0 where it is
    /// unchanged.
    pub(super) saved_below: u64,
}

impl Leave {
    /// Leads nowhere: the CFA would not be higher.
    pub(super) const NOTHING: Leave = Leave {
        by_frame_pointer: false,
        cfa_offset: 0,
        saved_below: 0,
    };

    const WORD: u64 = 8;

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
                None | Some(RegisterRule::SameValue) => 0,
                Some(RegisterRule::Offset(offset)) => {
                    let below_cfa = u64::try_from(offset.checked_neg()?).ok()?;
                    below_cfa
                        .checked_sub(Leave::WORD)
                        .filter(|below| *below > 0)?
                }
                Some(_) => return None,
            },
        })
    }
}

impl Rule {
    /// The bits of a rule in an entry.
    pub(super) const BITS: Range<u32> = 3..20;

    /// The row says that the return address is undefined.
    pub(super) const OUTERMOST: Rule = Rule(Rule::END);
    /// The frame runs entry code.
    pub(super) const ENTRY_POINT: Rule = Rule(Rule::END | 1 << 3);

    const BY_FRAME_POINTER: u64 = 1 << 13;
    const KIND: u64 = 3 << 18;
    const LARGE: u64 = 1 << 18;
    const END: u64 = 2 << 18;
    const ALL: u64 = (1 << Rule::BITS.end) - (1 << Rule::BITS.start);

    /// The rule in an entry.
    #[inline]
    pub(super) fn in_entry(entry: u64) -> Rule {
        Rule(entry & Rule::ALL)
    }

    /// The bits of an entry.
    pub(super) fn bits(self) -> u64 {
        self.0
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
        let base = match leave.by_frame_pointer {
            true => Rule::BY_FRAME_POINTER,
            false => 0,
        };
        Some(Rule(cfa << 3 | base | saved << 14))
    }

    fn large(leave: Leave) -> Option<Rule> {
        let cfa = units(leave.cfa_offset, 16, 12).filter(|_| !leave.by_frame_pointer)?;
        let saved = units(leave.saved_below, 8, 3)?;
        Some(Rule(cfa << 3 | saved << 15 | Rule::LARGE))
    }

    /// How to leave the frame, if that is a small step.
    #[inline]
    pub(super) fn leave_small(self) -> Option<Leave> {
        (self.0 & Rule::KIND == 0).then_some(Leave {
            by_frame_pointer: self.0 & Rule::BY_FRAME_POINTER != 0,
            cfa_offset: self.0 & 0x1ff8,
            saved_below: self.0 >> 11 & 0x78,
        })
    }

    /// How to leave the frame; `None` where there is no caller.
    pub(super) fn leave(self) -> Option<Leave> {
        let large = || Leave {
            by_frame_pointer: false,
            cfa_offset: (self.0 & 0x7ff8) * 2,
            saved_below: self.0 >> 12 & 0x38,
        };
        let is_large = self.0 & Rule::KIND == Rule::LARGE;
        self.leave_small().or_else(|| is_large.then(large))
    }
}

/// Bytes as a number of units, if it is whole and has no more than so many bits.
fn units(bytes: u64, unit: u64, bits: u32) -> Option<u64> {
    let count = bytes / unit;
    (bytes.is_multiple_of(unit) && count < 1 << bits).then_some(count)
}
