//! How most frames are left, in 18 bits.

use unspool_compact::{Compiled, RowRef};
use unspool_ir::encoding::EncodedRow;
use unspool_ir::{Abi, Arch, CfaRule, RaState, RegisterRule, Row};

use crate::arch;

/// The rules that rows of a compiled table come to: made beforehand, so that a walk that learns a rule
/// need not read the row.
#[derive(Debug, Clone, Copy, Default)]
pub struct RowRules<'r>(&'r [u32]);

impl<'r> RowRules<'r> {
    /// Makes the rules of as many of a table's rows as there are numbers, the first row's first:
    /// [`Compiled::distinct_rows`] are all.
    #[must_use]
    pub fn make(compiled: &Compiled<'_>, into: &'r mut [u32]) -> Self {
        for (slot, number) in into.iter_mut().zip(0..=u16::MAX) {
            let bytes = compiled.encoded_row(RowRef(number)).unwrap_or_default();
            let rule = Rule::of_encoded(bytes, compiled.abi());
            *slot = rule.map_or(0, Rule::bits);
        }
        RowRules(into)
    }

    /// The rule that a row comes to. Outer `None`: none was made; inner: no rule can say it.
    #[expect(
        clippy::option_option,
        reason = "unknown, none and one are three answers"
    )]
    pub(super) fn get(self, row: RowRef) -> Option<Option<Rule>> {
        let bits = *self.0.get(usize::from(row.0))?;
        Some((bits != 0).then_some(Rule(bits)))
    }
}

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

    /// What a row says, if it is of the usual form.
    fn of(said: &Said<'_>, abi: Abi) -> Option<Leave> {
        if abi.arch != Arch::X86_64 || !said.is_plain {
            return None;
        }
        let stack_pointer = abi.arch.spec().stack_pointer;
        let frame_pointer = arch::frame_pointer(abi.arch)?;
        let CfaRule::RegisterOffset { register, offset } = said.cfa else {
            return None;
        };
        if register != stack_pointer && register != frame_pointer {
            return None;
        }
        if said.return_address != Some(RegisterRule::Offset(-8)) || said.stack_pointer.is_some() {
            return None;
        }
        Some(Leave {
            by_frame_pointer: register == frame_pointer,
            cfa_offset: u64::try_from(offset).ok()?,
            saved_below: match said.frame_pointer {
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

/// What a row says of the registers that a walk follows.
struct Said<'e> {
    cfa: CfaRule<'e>,
    return_address: Option<RegisterRule<'e>>,
    stack_pointer: Option<RegisterRule<'e>>,
    frame_pointer: Option<RegisterRule<'e>>,
    /// It is no signal frame, and the return address is not signed.
    is_plain: bool,
}

impl<'e> Said<'e> {
    fn by_row(row: &Row<'e>, abi: Abi) -> Option<Self> {
        Some(Said {
            cfa: row.cfa,
            return_address: row.rule(row.return_address),
            stack_pointer: row.rule(abi.arch.spec().stack_pointer),
            frame_pointer: row.rule(arch::frame_pointer(abi.arch)?),
            is_plain: !row.signal_frame && row.ra_state == RaState::Plain,
        })
    }

    fn by_encoded(row: &EncodedRow<'e>, abi: Abi) -> Option<Self> {
        let stack_pointer = abi.arch.spec().stack_pointer;
        let frame_pointer = arch::frame_pointer(abi.arch)?;
        let mut said = Said {
            cfa: row.cfa,
            return_address: None,
            stack_pointer: None,
            frame_pointer: None,
            is_plain: !row.signal_frame && row.ra_state == RaState::Plain,
        };
        let mut rules = row.rules();
        while let Some((register, rule)) = rules.next_rule()? {
            let slot = match register {
                _ if register == row.return_address => &mut said.return_address,
                _ if register == stack_pointer => &mut said.stack_pointer,
                _ if register == frame_pointer => &mut said.frame_pointer,
                _ => continue,
            };
            *slot = Some(rule);
        }
        Some(said)
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
        Rule::saying(&Said::by_row(row, abi)?, abi)
    }

    /// Does the same for a row in its encoding; `None` also where that is damaged.
    pub(super) fn of_encoded(row: &[u8], abi: Abi) -> Option<Rule> {
        Rule::saying(&Said::by_encoded(&EncodedRow::parse(row)?, abi)?, abi)
    }

    fn saying(said: &Said<'_>, abi: Abi) -> Option<Rule> {
        if said.return_address == Some(RegisterRule::Undefined) {
            return Some(Rule::OUTERMOST);
        }
        let leave = Leave::of(said, abi)?;
        let rule = Rule::small(leave)
            .or_else(|| Rule::odd(leave))
            .or_else(|| Rule::large(leave))?;
        debug_assert_eq!(rule.leave(), Some(leave), "a rule says what it was made of");
        Some(rule)
    }

    fn small(leave: Leave) -> Option<Rule> {
        let cfa = units(leave.cfa_offset, 16, 11)?;
        // No bits at all are no rule: such a frame would have no room for its return address.
        if leave == Leave::NOTHING {
            return None;
        }
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
