//! Rules in entries of a [`RuleCache`](super::RuleCache).

use core::hint::select_unpredictable;

use unspool_rows::packed_row::{CfaBase, PackedForm, SavedRegister};
use unspool_rows::{FrameRegisters, PackedRow, RuntimeAddr};

/// The rule of a frame with known stack pointer and frame pointer, in 17 bits. It is made from a
/// [`PackedRow`], and means that. Nearly all rules of return addresses are small steps, which need
/// no second load.
///
/// The bits are those of an entry, from bit 4 on:
///
/// ```text
/// bits 4-14  offset of the CFA, in pairs of words: with the bits below, in bytes. At a call the
///            stack has this alignment
/// bit 15     the offset is from the frame pointer, not from the stack pointer
/// bits 16-19 the number of words from the caller's frame pointer up to the return address;
///            0 if it is unchanged
/// bit 20     0: a small step
///
/// bits 4-19  the number of a row; 1 to 3 are rules without a number
/// bit 20     1
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryRule(u32);

/// A step by a rule that needs no second load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SmallStep {
    /// The CFA is relative to the frame pointer, not to the stack pointer.
    pub(super) by_frame_pointer: bool,
    /// The CFA's offset, in bytes.
    pub(super) cfa_offset: u64,
    /// The distance of the caller's frame pointer below the return address in bytes, a multiple of
    /// 8; 0 if it is unchanged.
    pub(super) saved_below: u64,
}

pub(super) const FRAME_POINTER: u16 = 6;

impl EntryRule {
    /// The return address is undefined in the row.
    pub(super) const OUTERMOST: EntryRule = EntryRule(EntryRule::NUMBERED | 1 << 4);
    /// The frame is a signal frame.
    pub(super) const SIGNAL: EntryRule = EntryRule(EntryRule::NUMBERED | 2 << 4);
    /// The frame runs entry code.
    pub(super) const ENTRY_POINT: EntryRule = EntryRule(EntryRule::NUMBERED | 3 << 4);

    /// The number of rules without a number, and zero.
    const RESERVED: usize = 4;

    /// The bit of an entry that is not a small step.
    pub(super) const NUMBERED: u32 = 1 << 20;
    const BY_FRAME_POINTER: u32 = 1 << 15;
    const ALL: u32 = (1 << 21) - (1 << 4);

    /// The rule in an entry.
    #[inline]
    pub(super) fn in_entry(entry: u32) -> EntryRule {
        EntryRule(entry & EntryRule::ALL)
    }

    /// The bits of an entry.
    pub(super) fn bits(self) -> u32 {
        self.0
    }

    /// The rule of a row; `number` is called for a row that needs a number. `None` if it gets none.
    pub(super) fn new(
        row: PackedRow,
        number: impl FnOnce(PackedRow) -> Option<usize>,
    ) -> Option<EntryRule> {
        match row {
            PackedRow::OUTERMOST => Some(EntryRule::OUTERMOST),
            PackedRow::SIGNAL => Some(EntryRule::SIGNAL),
            _ => EntryRule::small(row).or_else(|| {
                let number = number(row)? + EntryRule::RESERVED;
                let number = u16::try_from(number).ok()?;
                Some(EntryRule(EntryRule::NUMBERED | u32::from(number) << 4))
            }),
        }
    }

    fn small(row: PackedRow) -> Option<EntryRule> {
        let PackedForm::Usual { base, cfa_offset } = row.form()? else {
            return None;
        };
        let saved = match row.saved().get(FRAME_POINTER)? {
            SavedRegister::Unchanged => 0,
            // The word below the CFA is the return address.
            SavedRegister::Below(bytes) => units(bytes - 8, 8, 4).filter(|words| *words != 0)?,
            SavedRegister::Undefined => return None,
        };
        let base = match base {
            CfaBase::StackPointer => 0,
            CfaBase::FramePointer => EntryRule::BY_FRAME_POINTER,
        };
        let cfa = units(cfa_offset, 16, 11)?;
        Some(EntryRule(cfa << 4 | base | saved << 16))
    }

    /// The row; `word` has the rows with a number. `None` for entry code.
    pub(super) fn row(self, word: impl FnOnce(usize) -> Option<u64>) -> Option<PackedRow> {
        match self {
            EntryRule::OUTERMOST => Some(PackedRow::OUTERMOST),
            EntryRule::SIGNAL => Some(PackedRow::SIGNAL),
            _ => match self.small_step() {
                Some(step) => step.row(),
                None => {
                    let number = usize::try_from(self.0 >> 4 & 0xffff).ok()?;
                    let word = word(number.checked_sub(EntryRule::RESERVED)?)?;
                    (word != 0).then_some(PackedRow::from_word(word))
                }
            },
        }
    }

    /// The step, if it is small.
    pub(super) fn small_step(self) -> Option<SmallStep> {
        (self.0 & EntryRule::NUMBERED == 0).then(|| self.as_small_step())
    }

    /// The step of a rule that is known to be small.
    #[inline]
    pub(super) fn as_small_step(self) -> SmallStep {
        SmallStep {
            by_frame_pointer: self.0 & EntryRule::BY_FRAME_POINTER != 0,
            cfa_offset: u64::from(self.0 & 0x7ff0),
            saved_below: u64::from(self.0 >> 13 & 0x78),
        }
    }
}

impl SmallStep {
    /// The caller of a frame, if its stack pointer is higher and its words are readable: one by its
    /// end, and another at a distance in bytes below.
    #[inline]
    pub(super) fn caller(
        self,
        frame: FrameRegisters,
        read: impl Fn(RuntimeAddr, u64) -> Option<[[u8; 8]; 2]>,
    ) -> Option<FrameRegisters> {
        let base = if self.by_frame_pointer {
            frame.frame_pointer
        } else {
            frame.stack_pointer
        };
        let cfa = base.wrapping_add(self.cfa_offset);
        if cfa <= frame.stack_pointer {
            return None;
        }
        let [code, saved] = read(RuntimeAddr(cfa), self.saved_below)?;
        Some(FrameRegisters {
            code: u64::from_le_bytes(code),
            stack_pointer: cfa,
            // Unpredictable for a branch: stacks of the same functions differ.
            frame_pointer: select_unpredictable(
                self.saved_below == 0,
                frame.frame_pointer,
                u64::from_le_bytes(saved),
            ),
        })
    }

    fn row(self) -> Option<PackedRow> {
        let base = if self.by_frame_pointer {
            CfaBase::FramePointer
        } else {
            CfaBase::StackPointer
        };
        let saved = match self.saved_below {
            0 => SavedRegister::Unchanged,
            below => SavedRegister::Below(below + 8),
        };
        PackedRow::usual(base, self.cfa_offset, saved)
    }
}

/// Bytes as a number of units, if it is whole and has at most `bits` bits.
fn units(bytes: u64, unit: u64, bits: u32) -> Option<u32> {
    let count = u32::try_from(bytes / unit).ok()?;
    (bytes.is_multiple_of(unit) && count < 1 << bits).then_some(count)
}

#[cfg(test)]
mod tests {
    use unspool_rows::{Arch, FrameRegisters, PackedRow};

    use super::EntryRule;

    const FRAME: FrameRegisters = FrameRegisters {
        code: 0x40_1005,
        stack_pointer: 0x7ffc_0000_1000,
        frame_pointer: 0x7ffc_0000_1800,
    };

    /// The word at an address, different from all others.
    fn word_at(addr: u64) -> u64 {
        addr.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// All rules: each is the rule of its row, and a small step leads where the row does.
    #[test]
    fn every_rule_means_its_row() {
        let no_number = |_| None;
        let (mut steps, mut refused) = (0, 0);
        for bits in (0..1 << 16).map(|bits: u32| bits << 4) {
            let rule = EntryRule::in_entry(bits);
            let step = rule.small_step().unwrap();
            let Some(row) = rule.row(|_| None) else {
                assert_eq!(step.cfa_offset, 0);
                refused += 1;
                continue;
            };
            assert_eq!(EntryRule::new(row, no_number), Some(rule), "{row:x?}");
            let found = step.caller(FRAME, |end, below| {
                let words = [end.0 - 8, end.0 - 8 - below].map(word_at);
                Some(words.map(u64::to_le_bytes))
            });
            let expected = row.step(Arch::X86_64, FRAME, |addr| Some(word_at(addr)));
            assert_eq!(found, expected, "{row:x?}");
            steps += 1;
        }
        // No CFA is at its base.
        assert_eq!((steps, refused), (32 * 2047, 32));
    }

    #[test]
    fn other_rows_get_a_number() {
        let rows = [
            PackedRow::OUTERMOST,
            PackedRow::SIGNAL,
            // Pairs of words from the stack pointer: an odd number, and too many.
            PackedRow::from_word(3 << 33),
            PackedRow::from_word(0x1000 << 33),
            // The frame pointer below the CFA: at the return address, too far, and lost.
            PackedRow::from_word(2 << 33 | 1 << 5),
            PackedRow::from_word(2 << 33 | 17 << 5),
            PackedRow::from_word(2 << 33 | 31 << 5),
            // In memory, and in the procedure linkage table.
            PackedRow::from_word(2 << 33 | 2 << 30),
            PackedRow::from_word(0x5b << 33 | 3 << 30),
        ];
        for row in rows {
            let rule = EntryRule::new(row, |_| Some(4000)).unwrap();
            assert_eq!(rule.small_step(), None);
            assert_eq!(EntryRule::in_entry(rule.bits()), rule);
            let word = |number| (number == 4000).then_some(row.word());
            assert_eq!(rule.row(word), Some(row));
            let is_reserved = [PackedRow::OUTERMOST, PackedRow::SIGNAL].contains(&row);
            assert_eq!(rule.row(|_| Some(0)).is_some(), is_reserved);
            assert_eq!(EntryRule::new(row, |_| None).is_some(), is_reserved);
            assert_eq!(
                EntryRule::new(row, |_| Some(1 << 16)).is_some(),
                is_reserved
            );
        }
        assert_eq!(EntryRule::ENTRY_POINT.row(|_| Some(1)), None);
    }
}
