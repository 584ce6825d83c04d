//! How most frames are left, in 18 bits.

use unspool_ir::{Abi, Arch, CfaRule, RaState, RegisterRule, Row};

use crate::arch;

/// How to leave a frame of which only stack pointer and frame pointer are known.
///
/// As it is in an entry of [`super::Rules`], from bit 4 on:
///
/// ```text
/// bits 4-14  offset of the CFA, in pairs of words: with the bits below, in bytes. A stack is aligned
///            to that where a call is made
/// bit 15     the offset is from the frame pointer, not from the stack pointer
/// bits 16-19 how many words below the return address the caller's frame pointer is; 0 where it is
///            unchanged
/// bits 20-21 0: a small step
///
/// bits 4-15  offset of the CFA from the stack pointer, in words
/// bits 16-19 how many words below the return address the caller's frame pointer is, or 0
/// bits 20-21 1: an odd step
///
/// bits 4-19  offset of the CFA from the stack pointer, in pairs of words
/// bits 20-21 2: a large step
///
/// bit 4      there is no caller: 0 outermost frame, 1 entry code
/// bits 20-21 3
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
    /// The row says that the return address is undefined.
    pub(super) const OUTERMOST: Rule = Rule(Rule::END);
    /// The frame runs entry code.
    pub(super) const ENTRY_POINT: Rule = Rule(Rule::END | 1 << 4);

    /// The bits of an entry that say which form the rule has: 0 for a small step.
    pub(super) const KIND: u32 = 3 << 20;
    const ODD: u32 = 1 << 20;
    const LARGE: u32 = 2 << 20;
    const END: u32 = 3 << 20;
    const BY_FRAME_POINTER: u32 = 1 << 15;
    const ALL: u32 = (1 << 22) - (1 << 4);

    /// The rule in an entry.
    #[inline]
    pub(super) fn in_entry(entry: u32) -> Rule {
        Rule(entry & Rule::ALL)
    }

    /// The bits of an entry.
    pub(super) fn bits(self) -> u32 {
        self.0
    }

    /// The rule that says the same of stack pointer, frame pointer and return address as a row;
    /// `None` for rows that no rule can say.
    pub(super) fn of(row: &Row<'_>, abi: Abi) -> Option<Rule> {
        if row.rule(row.return_address) == Some(RegisterRule::Undefined) {
            return Some(Rule::OUTERMOST);
        }
        let leave = Leave::of(row, abi)?;
        let rule = Rule::small(leave)
            .or_else(|| Rule::odd(leave))
            .or_else(|| Rule::large(leave))?;
        debug_assert_eq!(rule.leave(), Some(leave), "a rule says what it was made of");
        Some(rule)
    }

    fn small(leave: Leave) -> Option<Rule> {
        let cfa = units(leave.cfa_offset, 16, 11)?;
        let saved = units(leave.saved_below, 8, 4)?;
        let base = match leave.by_frame_pointer {
            true => Rule::BY_FRAME_POINTER,
            false => 0,
        };
        Some(Rule(cfa << 4 | base | saved << 16))
    }

    fn odd(leave: Leave) -> Option<Rule> {
        let cfa = units(leave.cfa_offset, 8, 12).filter(|_| !leave.by_frame_pointer)?;
        let saved = units(leave.saved_below, 8, 4)?;
        Some(Rule(cfa << 4 | saved << 16 | Rule::ODD))
    }

    fn large(leave: Leave) -> Option<Rule> {
        let is_plain = !leave.by_frame_pointer && leave.saved_below == 0;
        let cfa = units(leave.cfa_offset, 16, 16).filter(|_| is_plain)?;
        Some(Rule(cfa << 4 | Rule::LARGE))
    }

    /// How to leave the frame, if the step is small.
    #[inline]
    pub(super) fn leave_small(self) -> Leave {
        Leave {
            by_frame_pointer: self.0 & Rule::BY_FRAME_POINTER != 0,
            cfa_offset: u64::from(self.0 & 0x7ff0),
            saved_below: u64::from(self.0 >> 13 & 0x78),
        }
    }

    /// How to leave the frame; `None` where there is no caller.
    pub(super) fn leave(self) -> Option<Leave> {
        let by_stack_pointer = |cfa_offset: u32, saved_below: u32| Leave {
            by_frame_pointer: false,
            cfa_offset: cfa_offset.into(),
            saved_below: saved_below.into(),
        };
        match self.0 & Rule::KIND {
            0 => Some(self.leave_small()),
            Rule::ODD => Some(by_stack_pointer((self.0 & 0xfff0) / 2, self.0 >> 13 & 0x78)),
            Rule::LARGE => Some(by_stack_pointer(self.0 & 0xf_fff0, 0)),
            _ => None,
        }
    }
}

/// Bytes as a number of units, if it is whole and has no more than so many bits.
fn units(bytes: u64, unit: u64, bits: u32) -> Option<u32> {
    let count = u32::try_from(bytes / unit).ok()?;
    (bytes.is_multiple_of(unit) && count < 1 << bits).then_some(count)
}
