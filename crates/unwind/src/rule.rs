//! Rules for stepping from most frames, in 18 bits.

use unspool_cfi::FastRow;
use unspool_compiled_table::{CompiledTable, RowRef};
use unspool_rows::encoding::EncodedRow;
use unspool_rows::{Abi, Arch, CfaRule, Expression, RaState, Register, RegisterRule, Row};

/// The rules of a compiled table's rows, made in advance: a walk that learns a rule need not read
/// the row.
#[derive(Debug, Clone, Copy, Default)]
pub struct RowRules<'r>(&'r [u32]);

impl<'r> RowRules<'r> {
    /// Makes the rules of the first `into.len()` rows of a table. [`CompiledTable::distinct_rows`]
    /// is the number of all.
    #[must_use]
    pub fn make(compiled: &CompiledTable<'_>, into: &'r mut [u32]) -> Self {
        for (slot, number) in into.iter_mut().zip(0..=u16::MAX) {
            let bytes = compiled.encoded_row(RowRef(number)).unwrap_or_default();
            let rule = UsualRule::from_encoded(bytes, compiled.abi()).and_then(PackedRule::pack);
            *slot = rule.map_or(0, PackedRule::bits);
        }
        RowRules(into)
    }

    /// Rules from [`RowRules::make`], in the same memory.
    #[must_use]
    pub fn from_slice(rules: &'r [u32]) -> Self {
        RowRules(rules)
    }

    /// The rule of a row. `None` if none was made, or if no rule can express the row.
    pub(crate) fn get(self, row: RowRef) -> Option<PackedRule> {
        let bits = *self.0.get(usize::from(row.0))?;
        (bits != 0).then_some(PackedRule(bits))
    }
}

/// The step from a frame with known stack pointer and frame pointer.
///
/// The bits are those of an entry of [`RuleCache`](crate::walk::RuleCache), from bit 4 on:
///
/// ```text
/// bits 4-14  offset of the CFA, in pairs of words: with the bits below, in bytes. At a call the
///            stack has this alignment
/// bit 15     the offset is from the frame pointer, not from the stack pointer
/// bits 16-19 the number of words from the caller's frame pointer up to the return address;
///            0 if it is unchanged
/// bits 20-21 0: a small step
///
/// bits 4-15  offset of the CFA from the stack pointer, in words
/// bits 16-19 as above
/// bits 20-21 1: an odd step
///
/// bits 4-19  offset of the CFA from the stack pointer, in pairs of words
/// bits 20-21 2: a large step
///
/// bits 4-19  0 outermost frame, 1 entry code: there is no caller; 2 signal frame; from 3 on a
///            number of `walk::numbered_rules`
/// bits 20-21 3
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackedRule(u32);

/// The content of a row for a walk that tracks stack pointer and frame pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UsualRule {
    /// The return address is undefined.
    Outermost,
    /// The return address is right below the CFA, which is at an offset from one of the two
    /// registers.
    Step(FrameStep),
    /// The CFA is in memory.
    Realigned(RealignedFrame),
    /// The kernel's signal record is at the stack pointer.
    Signal,
}

impl UsualRule {
    /// `None` if a row has another form.
    pub(crate) fn from_row(row: &Row<'_>, abi: Abi) -> Option<UsualRule> {
        WatchedRules::from_row(row, abi)?.usual_rule(abi)
    }

    /// The same for a [`FastRow`].
    pub(crate) fn from_fast_row(row: &FastRow<'_>, abi: Abi) -> Option<UsualRule> {
        WatchedRules::from_fast_row(row).usual_rule(abi)
    }

    /// The same for an encoded row; `None` also if that is malformed.
    pub(crate) fn from_encoded(row: &[u8], abi: Abi) -> Option<UsualRule> {
        WatchedRules::from_encoded(&EncodedRow::parse(row)?, abi)?.usual_rule(abi)
    }
}

/// The step from a frame that has a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameStep {
    /// The CFA is relative to the frame pointer, not to the stack pointer.
    pub(crate) by_frame_pointer: bool,
    /// The CFA's offset, in bytes.
    pub(crate) cfa_offset: u64,
    /// The distance of the caller's frame pointer below the return address in bytes, a multiple of
    /// 8; 0 if it is unchanged.
    pub(crate) saved_below: u64,
}

impl FrameStep {
    /// All bits zero: there is no room for a return address.
    pub(crate) const NOTHING: FrameStep = FrameStep {
        by_frame_pointer: false,
        cfa_offset: 0,
        saved_below: 0,
    };

    const WORD: u64 = 8;
}

/// A row's rules for the registers that a walk tracks.
pub(crate) struct WatchedRules<'e> {
    pub(crate) cfa: CfaRule<'e>,
    pub(crate) return_address: Option<RegisterRule<'e>>,
    pub(crate) stack_pointer: Option<RegisterRule<'e>>,
    pub(crate) frame_pointer: Option<RegisterRule<'e>>,
    is_signal_frame: bool,
    /// The return address is not signed.
    is_plain: bool,
}

impl<'e> WatchedRules<'e> {
    fn from_row(row: &Row<'e>, abi: Abi) -> Option<Self> {
        Some(WatchedRules {
            cfa: row.cfa,
            return_address: row.rule(row.return_address),
            stack_pointer: row.rule(abi.arch.spec().stack_pointer),
            frame_pointer: row.rule(abi.arch.spec().frame_pointer?),
            is_signal_frame: row.signal_frame,
            is_plain: row.ra_state == RaState::Plain,
        })
    }

    fn from_fast_row(row: &FastRow<'e>) -> Self {
        let [stack_pointer, frame_pointer] = row.watched;
        WatchedRules {
            cfa: row.cfa,
            return_address: row.return_address,
            stack_pointer,
            frame_pointer,
            is_signal_frame: false,
            is_plain: true,
        }
    }

    fn from_encoded(row: &EncodedRow<'e>, abi: Abi) -> Option<Self> {
        let stack_pointer = abi.arch.spec().stack_pointer;
        let frame_pointer = abi.arch.spec().frame_pointer?;
        let mut said = WatchedRules {
            cfa: row.cfa,
            return_address: None,
            stack_pointer: None,
            frame_pointer: None,
            is_signal_frame: row.signal_frame,
            is_plain: row.ra_state == RaState::Plain,
        };
        let mut rules = row.rules();
        while let Some((register, rule)) = rules.next_rule()? {
            // The return-address column may be the same register as one of the two others.
            for (watched, slot) in [
                (row.return_address, &mut said.return_address),
                (stack_pointer, &mut said.stack_pointer),
                (frame_pointer, &mut said.frame_pointer),
            ] {
                if register == watched {
                    *slot = Some(rule);
                }
            }
        }
        Some(said)
    }

    fn usual_rule(&self, abi: Abi) -> Option<UsualRule> {
        if self.return_address == Some(RegisterRule::Undefined) {
            return Some(UsualRule::Outermost);
        }
        if abi.arch != Arch::X86_64 || !self.is_plain {
            return None;
        }
        if self.is_signal_frame {
            return is_signal(self, abi.arch).then_some(UsualRule::Signal);
        }
        let returns_to = self.return_address;
        if returns_to != Some(RegisterRule::Offset(-8)) || self.stack_pointer.is_some() {
            return None;
        }
        match self.cfa {
            CfaRule::RegisterOffset { register, offset } => {
                let step = self.frame_step(register, offset, abi)?;
                (step != FrameStep::NOTHING).then_some(UsualRule::Step(step))
            }
            CfaRule::Expression(cfa) => {
                RealignedFrame::from_expressions(cfa, self.frame_pointer).map(UsualRule::Realigned)
            }
            CfaRule::Undefined => None,
        }
    }

    fn frame_step(&self, register: Register, offset: i64, abi: Abi) -> Option<FrameStep> {
        let frame_pointer = abi.arch.spec().frame_pointer?;
        if register != abi.arch.spec().stack_pointer && register != frame_pointer {
            return None;
        }
        Some(FrameStep {
            by_frame_pointer: register == frame_pointer,
            cfa_offset: u64::try_from(offset).ok()?,
            saved_below: match self.frame_pointer {
                None | Some(RegisterRule::SameValue) => 0,
                Some(RegisterRule::Offset(offset)) => {
                    let below_cfa = u64::try_from(offset.checked_neg()?).ok()?;
                    below_cfa
                        .checked_sub(FrameStep::WORD)
                        .filter(|below| *below > 0 && below.is_multiple_of(FrameStep::WORD))?
                }
                Some(_) => return None,
            },
        })
    }
}

impl PackedRule {
    /// The return address is undefined in the row.
    pub(crate) const OUTERMOST: PackedRule = PackedRule(PackedRule::END);
    /// The frame runs entry code.
    pub(crate) const ENTRY_POINT: PackedRule = PackedRule(PackedRule::END | 1 << 4);

    /// The frame is a signal frame.
    pub(crate) const SIGNAL: PackedRule = PackedRule(PackedRule::END | 2 << 4);

    /// The bits of an entry with the form of the rule: 0 for a small step.
    pub(crate) const KIND: u32 = 3 << 20;
    const UNUSUAL: u32 = 1 << 20;
    const LARGE: u32 = 2 << 20;
    const END: u32 = 3 << 20;
    /// The number of rules of this form without a rule number.
    const ENDS: u32 = 3;
    const BY_FRAME_POINTER: u32 = 1 << 15;
    const ALL: u32 = (1 << 22) - (1 << 4);

    /// The rule in an entry.
    #[inline]
    pub(crate) fn in_entry(entry: u32) -> PackedRule {
        PackedRule(entry & PackedRule::ALL)
    }

    /// The bits of an entry.
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// The packed form of a rule; `None` if there is none.
    pub(crate) fn pack(usual_rule: UsualRule) -> Option<PackedRule> {
        let step = match usual_rule {
            UsualRule::Outermost => return Some(PackedRule::OUTERMOST),
            UsualRule::Step(leave) => leave,
            UsualRule::Signal => return Some(PackedRule::SIGNAL),
            UsualRule::Realigned(_) => return None,
        };
        let rule = PackedRule::small(step)
            .or_else(|| PackedRule::odd(step))
            .or_else(|| PackedRule::large(step))?;
        debug_assert_eq!(
            rule.frame_step(),
            Some(step),
            "a rule says what it was made of"
        );
        Some(rule)
    }

    /// The packed form of a numbered rule.
    pub(crate) fn rare(number: u16) -> Option<PackedRule> {
        let number = u32::from(number) + PackedRule::ENDS;
        (number < 1 << 16).then_some(PackedRule(PackedRule::END | number << 4))
    }

    /// The number of a numbered rule.
    pub(crate) fn rare_number(self) -> Option<u16> {
        let number = (self.0 & 0xf_fff0) >> 4;
        let number = number
            .checked_sub(PackedRule::ENDS)
            .filter(|_| self.0 & PackedRule::KIND == PackedRule::END)?;
        u16::try_from(number).ok()
    }

    fn small(step: FrameStep) -> Option<PackedRule> {
        let cfa = units(step.cfa_offset, 16, 11)?;
        let saved = units(step.saved_below, 8, 4)?;
        let base = match step.by_frame_pointer {
            true => PackedRule::BY_FRAME_POINTER,
            false => 0,
        };
        Some(PackedRule(cfa << 4 | base | saved << 16))
    }

    fn odd(step: FrameStep) -> Option<PackedRule> {
        let cfa = units(step.cfa_offset, 8, 12).filter(|_| !step.by_frame_pointer)?;
        let saved = units(step.saved_below, 8, 4)?;
        Some(PackedRule(cfa << 4 | saved << 16 | PackedRule::UNUSUAL))
    }

    fn large(step: FrameStep) -> Option<PackedRule> {
        let is_plain = !step.by_frame_pointer && step.saved_below == 0;
        let cfa = units(step.cfa_offset, 16, 16).filter(|_| is_plain)?;
        Some(PackedRule(cfa << 4 | PackedRule::LARGE))
    }

    /// The step, if it is small.
    #[inline]
    pub(crate) fn small_frame_step(self) -> FrameStep {
        FrameStep {
            by_frame_pointer: self.0 & PackedRule::BY_FRAME_POINTER != 0,
            cfa_offset: u64::from(self.0 & 0x7ff0),
            saved_below: u64::from(self.0 >> 13 & 0x78),
        }
    }

    /// The step; `None` if there is no caller, or the rule is numbered.
    pub(crate) fn frame_step(self) -> Option<FrameStep> {
        let by_stack_pointer = |cfa_offset: u32, saved_below: u32| FrameStep {
            by_frame_pointer: false,
            cfa_offset: cfa_offset.into(),
            saved_below: saved_below.into(),
        };
        match self.0 & PackedRule::KIND {
            0 => Some(self.small_frame_step()),
            PackedRule::UNUSUAL => {
                Some(by_stack_pointer((self.0 & 0xfff0) / 2, self.0 >> 13 & 0x78))
            }
            PackedRule::LARGE => Some(by_stack_pointer(self.0 & 0xf_fff0, 0)),
            _ => None,
        }
    }
}

/// A frame with its CFA, and its caller's frame pointer, in memory, at distances from the frame
/// pointer in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RealignedFrame {
    pub(crate) cfa_at: i64,
    pub(crate) saved_at: i64,
}

const RBP: Register = Register(6);

impl RealignedFrame {
    const DEREF: u8 = 0x06;

    /// Reads two expressions, if they have this form.
    pub(crate) fn from_expressions(
        cfa: Expression<'_>,
        saved: Option<RegisterRule<'_>>,
    ) -> Option<Self> {
        let Some(RegisterRule::Expression(saved)) = saved else {
            return None;
        };
        let (cfa_at, &[RealignedFrame::DEREF]) = cfa.register_offset(RBP)? else {
            return None;
        };
        let (saved_at, &[]) = saved.register_offset(RBP)? else {
            return None;
        };
        Some(RealignedFrame { cfa_at, saved_at })
    }

    /// Both distances in one number, above its lowest two bits; `None` if they need more bits.
    pub(crate) fn packed(self) -> Option<u64> {
        pack(self.cfa_at, self.saved_at)
    }

    /// The reverse of [`RealignedFrame::packed`].
    pub(crate) fn unpacked(bits: u64) -> Self {
        let [cfa_at, saved_at] = unpack(bits);
        RealignedFrame { cfa_at, saved_at }
    }
}

/// Whether by the row the CFA, and the registers that a walk tracks, are in the kernel's record.
fn is_signal(watched: &WatchedRules<'_>, arch: Arch) -> bool {
    let spec = arch.spec();
    let (Some(record), Some(frame_pointer)) = (spec.signal_record, spec.frame_pointer) else {
        return false;
    };
    let has_saved =
        |register, rule: Option<_>| rule.is_some_and(|rule| record.has_saved(register, rule));
    record.has_cfa(watched.cfa)
        && has_saved(spec.stack_pointer, watched.stack_pointer)
        && has_saved(frame_pointer, watched.frame_pointer)
        && has_saved(spec.pc, watched.return_address)
}

/// Bytes as a number of units, if it is whole and has at most `bits` bits.
fn units(bytes: u64, unit: u64, bits: u32) -> Option<u32> {
    let count = u32::try_from(bytes / unit).ok()?;
    (bytes.is_multiple_of(unit) && count < 1 << bits).then_some(count)
}

/// The bits of each of two packed numbers.
const FIELD: u32 = 31;

/// Two numbers in bits 2-32 and 33-63; `None` if one needs more bits.
pub(crate) fn pack(first: i64, second: i64) -> Option<u64> {
    let field = |number: i64| {
        let shift = u64::BITS - FIELD;
        let field = number.cast_unsigned() << shift;
        (field.cast_signed() >> shift == number).then_some(field >> shift)
    };
    Some(field(first)? << 2 | field(second)? << 33)
}

/// The reverse of [`pack`].
pub(crate) fn unpack(bits: u64) -> [i64; 2] {
    [bits << FIELD, bits].map(|field| field.cast_signed() >> 33)
}

#[cfg(test)]
mod tests {
    use unspool_rows::{Expression, RegisterRule};

    use super::{RealignedFrame, UsualRule};

    #[test]
    fn expressions_that_are_meant() {
        let of = |cfa: &[u8], saved: &[u8]| {
            let saved = Some(RegisterRule::Expression(Expression(saved)));
            RealignedFrame::from_expressions(Expression(cfa), saved)
        };
        let found = of(&[0x76, 0x78, 0x06], &[0x76, 0]);
        assert_eq!(
            found.map(UsualRule::Realigned),
            Some(UsualRule::Realigned(RealignedFrame {
                cfa_at: -8,
                saved_at: 0,
            }))
        );
        for (cfa, saved) in [
            (&[0x76, 0x78][..], &[0x76, 0][..]),
            (&[0x76, 0x78, 0x06, 0x06], &[0x76, 0]),
            (&[0x77, 0x78, 0x06], &[0x76, 0]),
            (&[0x76, 0x78, 0x06], &[0x76, 0, 0x06]),
            (&[0x76, 0x78, 0x06], &[0x77, 0]),
            (&[0x76, 0x78, 0x06], &[]),
            (&[], &[0x76, 0]),
        ] {
            assert_eq!(of(cfa, saved), None, "{cfa:x?} {saved:x?}");
        }
        let cfa = Expression(&[0x76, 0x78, 0x06]);
        for saved in [None, Some(RegisterRule::Offset(-16))] {
            assert_eq!(RealignedFrame::from_expressions(cfa, saved), None);
        }
    }
}
