//! How the few frames are left that no [`super::rule::Rule`] can say: by number.
//!
//! Large frames that keep a frame pointer, and those that align their stack: `gcc` finds the CFA of these
//! in memory, by an expression. A program has a few forms of them. The first that are met are kept for
//! good; a frame of another form is the cursor's.

use core::sync::atomic::{AtomicU64, Ordering};

use unspool_ir::{Expression, RegisterRule};

use super::State;
use super::rule::{Leave, Way};
use crate::arch::beside;
use crate::arch::x86_64::RBP;

/// A frame whose CFA, and whose caller's frame pointer, are in memory, at distances from the frame
/// pointer in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Realigned {
    cfa_at: i64,
    saved_at: i64,
}

impl Realigned {
    const DEREF: u8 = 0x06;

    /// What two expressions say, if it is this.
    pub(super) fn of(cfa: Expression<'_>, saved: Option<RegisterRule<'_>>) -> Option<Self> {
        let Some(RegisterRule::Expression(saved)) = saved else {
            return None;
        };
        let (cfa_at, &[Realigned::DEREF]) = beside(RBP, cfa)? else {
            return None;
        };
        let (saved_at, &[]) = beside(RBP, saved)? else {
            return None;
        };
        Some(Realigned { cfa_at, saved_at })
    }

    /// Both distances in one number, above its lowest two bits; `None` if they need more.
    pub(super) fn packed(self) -> Option<u64> {
        pack(self.cfa_at, self.saved_at)
    }

    /// What was [packed](Realigned::packed).
    pub(super) fn unpacked(bits: u64) -> Self {
        let [cfa_at, saved_at] = unpack(bits);
        Realigned { cfa_at, saved_at }
    }

    /// Where the CFA is, and the caller's frame pointer.
    pub(super) fn places(self, frame: &State) -> [u64; 2] {
        [self.cfa_at, self.saved_at].map(|at| frame.frame_pointer.wrapping_add_signed(at))
    }

    /// The caller, if its stack pointer is higher and what leads there can be read.
    pub(super) fn caller(self, frame: State, read: impl Fn(u64) -> Option<u64>) -> Option<State> {
        let [cfa_at, saved_at] = self.places(&frame);
        let cfa = read(cfa_at)?;
        if cfa <= frame.stack_pointer {
            return None;
        }
        Some(State {
            code: read(cfa.wrapping_sub(8))?,
            stack_pointer: cfa,
            frame_pointer: read(saved_at)?,
        })
    }
}

/// How frames are left, by number.
///
/// ```text
/// bits 0-1   0: none · 1: from the stack pointer · 2: from the frame pointer · 3: realigned
/// bits 2-32  offset of the CFA from there in bytes; where the CFA is, signed
/// bits 33-63 how many bytes below the return address the caller's frame pointer is; where it is,
///            signed
/// ```
#[derive(Debug)]
pub(super) struct Rare([AtomicU64; Rare::MOST]);

impl Rare {
    const MOST: usize = 128;
    const FIELD: u32 = 31;

    pub(super) const fn new() -> Self {
        Rare([const { AtomicU64::new(0) }; Rare::MOST])
    }

    /// The number of a way; `None` where there is no room for it, or for one of its numbers.
    pub(super) fn number(&self, way: Way) -> Option<u16> {
        let bits = bits(way)?;
        let is_here = |slot: &AtomicU64| {
            let taken = slot.compare_exchange(0, bits, Ordering::Relaxed, Ordering::Relaxed);
            taken.map_or_else(|before| before == bits, |_| true)
        };
        let number = self.0.iter().position(is_here)?;
        u16::try_from(number).ok()
    }

    /// The way with a number.
    pub(super) fn way(&self, number: u16) -> Option<Way> {
        let bits = self.0.get(usize::from(number))?.load(Ordering::Relaxed);
        let [first, second] = unpack(bits);
        match bits & 3 {
            0 => None,
            3 => Some(Way::Realigned(Realigned::unpacked(bits))),
            base => Some(Way::Leave(Leave {
                by_frame_pointer: base == 2,
                cfa_offset: u64::try_from(first).ok()?,
                saved_below: u64::try_from(second).ok()?,
            })),
        }
    }
}

fn bits(way: Way) -> Option<u64> {
    let (kind, first, second) = match way {
        Way::Realigned(Realigned { cfa_at, saved_at }) => (3, cfa_at, saved_at),
        Way::Leave(leave) => {
            let offset = i64::try_from(leave.cfa_offset).ok()?;
            let below = i64::try_from(leave.saved_below).ok()?;
            (1 + u64::from(leave.by_frame_pointer), offset, below)
        }
        Way::Outermost | Way::Signal => return None,
    };
    Some(kind | pack(first, second)?)
}

/// Two numbers in bits 2-32 and 33-63; `None` if one needs more.
fn pack(first: i64, second: i64) -> Option<u64> {
    let field = |number: i64| {
        let shift = u64::BITS - Rare::FIELD;
        let field = number.cast_unsigned() << shift;
        (field.cast_signed() >> shift == number).then_some(field >> shift)
    };
    Some(field(first)? << 2 | field(second)? << 33)
}

/// What was packed.
fn unpack(bits: u64) -> [i64; 2] {
    [bits << Rare::FIELD, bits].map(|field| field.cast_signed() >> 33)
}

#[cfg(test)]
mod tests {
    use unspool_ir::{Expression, RegisterRule};

    use super::{Rare, Realigned};
    use crate::walk::rule::{Leave, Way};

    fn leave(by_frame_pointer: bool, cfa_offset: u64, saved_below: u64) -> Way {
        Way::Leave(Leave {
            by_frame_pointer,
            cfa_offset,
            saved_below,
        })
    }

    fn realigned(cfa_at: i64, saved_at: i64) -> Way {
        Way::Realigned(Realigned { cfa_at, saved_at })
    }

    #[test]
    fn ways_are_kept_as_they_are() {
        static RARE: Rare = Rare::new();
        let most = (1 << 30) - 1;
        let ways = [
            leave(false, 57_632, 8),
            leave(true, 57_632, 8),
            leave(false, most, most),
            leave(true, 0, 0),
            realigned(-8, 0),
            realigned(0, -8),
            realigned(-1 << 30, (1 << 30) - 1),
        ];
        for round in 0..2 {
            for (number, way) in (0..).zip(ways) {
                assert_eq!(RARE.number(way), Some(number), "{round}");
                assert_eq!(RARE.way(number), Some(way));
            }
        }
        assert_eq!(RARE.way(7), None);
        assert_eq!(RARE.way(u16::MAX), None);
        for way in [
            leave(false, most + 1, 0),
            realigned(0, 1 << 30),
            Way::Outermost,
        ] {
            assert_eq!(RARE.number(way), None);
        }
    }

    #[test]
    fn there_is_room_for_so_many() {
        static RARE: Rare = Rare::new();
        let kept = (0..1000).filter(|n| RARE.number(leave(false, 8 * n, 0)).is_some());
        assert_eq!(kept.count(), Rare::MOST);
        assert_eq!(RARE.number(leave(false, 8, 0)), Some(1));
    }

    #[test]
    fn expressions_that_are_meant() {
        let of = |cfa: &[u8], saved: &[u8]| {
            let saved = Some(RegisterRule::Expression(Expression(saved)));
            Realigned::of(Expression(cfa), saved)
        };
        let found = of(&[0x76, 0x78, 0x06], &[0x76, 0]);
        assert_eq!(found.map(Way::Realigned), Some(realigned(-8, 0)));
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
            assert_eq!(Realigned::of(cfa, saved), None);
        }
    }
}
