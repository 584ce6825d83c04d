//! Numbered rules, for the few frames that no [`PackedRule`](crate::rule::PackedRule) can express.
//!
//! These are large frames with a frame pointer, and frames that align their stack: `gcc` describes
//! their CFA by an expression that reads memory. A program has a few forms of them. The first ones
//! found are kept forever; frames of other forms are left to the cursor.

use core::sync::atomic::{AtomicU64, Ordering};

use super::FastFrame;
use crate::rule::{FrameStep, RealignedFrame, UsualRule, pack, unpack};

impl RealignedFrame {
    /// The addresses of the CFA and of the caller's frame pointer.
    pub(super) fn places(self, frame: &FastFrame) -> [u64; 2] {
        [self.cfa_at, self.saved_at].map(|at| frame.frame_pointer.wrapping_add_signed(at))
    }

    /// The caller, if its stack pointer is higher and its words are readable.
    pub(super) fn caller(
        self,
        frame: FastFrame,
        read: impl Fn(u64) -> Option<u64>,
    ) -> Option<FastFrame> {
        let [cfa_at, saved_at] = self.places(&frame);
        let cfa = read(cfa_at)?;
        if cfa <= frame.stack_pointer {
            return None;
        }
        Some(FastFrame {
            code: read(cfa.wrapping_sub(8))?,
            stack_pointer: cfa,
            frame_pointer: read(saved_at)?,
        })
    }
}

/// Rules by number.
///
/// ```text
/// bits 0-1   0: none · 1: from the stack pointer · 2: from the frame pointer · 3: realigned
/// bits 2-32  offset of the CFA from there, in bytes; if realigned, of its word, signed
/// bits 33-63 the caller's frame pointer, in bytes below the return address; if realigned, its
///            offset, signed
/// ```
#[derive(Debug)]
pub(super) struct NumberedRules([AtomicU64; NumberedRules::MAX_RULES]);

impl NumberedRules {
    const MAX_RULES: usize = 128;

    pub(super) const fn new() -> Self {
        NumberedRules([const { AtomicU64::new(0) }; NumberedRules::MAX_RULES])
    }

    /// The number of a rule; `None` if there is no room for it, or its offsets do not fit.
    pub(super) fn number(&self, rule: UsualRule) -> Option<u16> {
        let bits = bits(rule)?;
        let is_here = |slot: &AtomicU64| {
            let taken = slot.compare_exchange(0, bits, Ordering::Relaxed, Ordering::Relaxed);
            taken.map_or_else(|before| before == bits, |_| true)
        };
        let number = self.0.iter().position(is_here)?;
        u16::try_from(number).ok()
    }

    /// The rule with a number.
    pub(super) fn rule(&self, number: u16) -> Option<UsualRule> {
        let bits = self.0.get(usize::from(number))?.load(Ordering::Relaxed);
        let [first, second] = unpack(bits);
        match bits & 3 {
            0 => None,
            3 => Some(UsualRule::Realigned(RealignedFrame::unpacked(bits))),
            base => Some(UsualRule::Step(FrameStep {
                by_frame_pointer: base == 2,
                cfa_offset: u64::try_from(first).ok()?,
                saved_below: u64::try_from(second).ok()?,
            })),
        }
    }
}

fn bits(rule: UsualRule) -> Option<u64> {
    let (kind, first, second) = match rule {
        UsualRule::Realigned(RealignedFrame { cfa_at, saved_at }) => (3, cfa_at, saved_at),
        UsualRule::Step(leave) => {
            let offset = i64::try_from(leave.cfa_offset).ok()?;
            let below = i64::try_from(leave.saved_below).ok()?;
            (1 + u64::from(leave.by_frame_pointer), offset, below)
        }
        UsualRule::Outermost | UsualRule::Signal => return None,
    };
    Some(kind | pack(first, second)?)
}

#[cfg(test)]
mod tests {
    use super::NumberedRules;
    use crate::rule::{FrameStep, RealignedFrame, UsualRule};

    fn leave(by_frame_pointer: bool, cfa_offset: u64, saved_below: u64) -> UsualRule {
        UsualRule::Step(FrameStep {
            by_frame_pointer,
            cfa_offset,
            saved_below,
        })
    }

    fn realigned(cfa_at: i64, saved_at: i64) -> UsualRule {
        UsualRule::Realigned(RealignedFrame { cfa_at, saved_at })
    }

    #[test]
    fn ways_are_kept_as_they_are() {
        static RARE: NumberedRules = NumberedRules::new();
        let most = (1 << 30) - 1;
        let rules = [
            leave(false, 57_632, 8),
            leave(true, 57_632, 8),
            leave(false, most, most),
            leave(true, 0, 0),
            realigned(-8, 0),
            realigned(0, -8),
            realigned(-1 << 30, (1 << 30) - 1),
        ];
        for round in 0..2 {
            for (number, rule) in (0..).zip(rules) {
                assert_eq!(RARE.number(rule), Some(number), "{round}");
                assert_eq!(RARE.rule(number), Some(rule));
            }
        }
        assert_eq!(RARE.rule(7), None);
        assert_eq!(RARE.rule(u16::MAX), None);
        for rule in [
            leave(false, most + 1, 0),
            realigned(0, 1 << 30),
            UsualRule::Outermost,
        ] {
            assert_eq!(RARE.number(rule), None);
        }
    }

    #[test]
    fn there_is_room_for_so_many() {
        static RARE: NumberedRules = NumberedRules::new();
        let kept = (0..1000).filter(|n| RARE.number(leave(false, 8 * n, 0)).is_some());
        assert_eq!(kept.count(), NumberedRules::MAX_RULES);
        assert_eq!(RARE.number(leave(false, 8, 0)), Some(1));
    }
}
