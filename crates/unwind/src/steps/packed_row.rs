//! Rows in one word.

use unspool_rows::row::{CfaRule, RaState, RegisterRule, Row};
use unspool_rows::{Arch, Register};

use super::locations::{REGISTERS, SavedRegisters};
use crate::modules::ModuleSlot;

const FRAME_POINTER: Register = Register(6);
const STACK_POINTER: Register = Register(7);
const RETURN_ADDRESS: Register = Register(16);

/// A row in one word, for nearly all frames. The CFA is some words above the stack pointer or the
/// frame pointer, the return address is right below it, and preserved registers are in the words
/// below that. Or the frame is the outermost, or a signal frame.
///
/// ```text
/// bits 0-29   the saved registers, and their locations: `SavedRegisters`
/// bits 30-31  the base of the CFA: `CfaBase`
/// bit 32      there are pushed arguments: only set in rows of the own process
/// bits 33-48  the CFA's distance above its base, in words; never zero for a row
/// bits 49-63  the number of the module in the own process, or zero
/// ```
///
/// If base and module are zero, as in nearly all, the bits above bit 30 are a number of bytes.
///
/// No rule is zero: [`PackedRow::NONE`] leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedRow(u64);

/// The base of a CFA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CfaBase {
    /// The stack pointer.
    StackPointer,
    /// The frame pointer.
    FramePointer,
    /// There is no caller.
    Outermost,
    /// Nothing: the stack pointer is at the kernel's signal record, which has all registers.
    Signal,
}

impl PackedRow {
    /// No rule.
    pub const NONE: PackedRow = PackedRow(0);

    /// The return address is undefined: there is no caller.
    pub const OUTERMOST: PackedRow = PackedRow(2 << PackedRow::BASE_SHIFT);

    /// All registers are in the kernel's signal record, at the stack pointer.
    pub const SIGNAL: PackedRow = PackedRow(3 << PackedRow::BASE_SHIFT);

    const BASE_SHIFT: u32 = SavedRegisters::BITS;
    const OFFSET_SHIFT: u32 = 33;
    const PLACE_SHIFT: u32 = 49;

    /// The module of the own process, and the base of the CFA.
    const KIND: u64 = 0x7fff << PackedRow::PLACE_SHIFT | 7 << PackedRow::BASE_SHIFT;
    const ARGUMENTS: u64 = 4 << PackedRow::BASE_SHIFT;
    const ON_FRAME_POINTER: u64 = 1 << PackedRow::BASE_SHIFT;

    /// The row in this form, if possible.
    #[must_use]
    pub fn from_row(row: &Row<'_>) -> Option<PackedRow> {
        if row.is_outermost() {
            return Some(PackedRow::OUTERMOST);
        }
        if row.signal_frame {
            return is_signal(row).then_some(PackedRow::SIGNAL);
        }
        let CfaRule::RegisterOffset { register, offset } = row.cfa else {
            return None;
        };
        let base = match register {
            STACK_POINTER => 0,
            FRAME_POINTER => 1,
            _ => return None,
        };
        let words = u16::try_from(offset / 8).ok()?;
        let returns = row.rule(RETURN_ADDRESS) == Some(RegisterRule::Offset(-8));
        if !returns || row.return_address != RETURN_ADDRESS || words == 0 || offset % 8 != 0 {
            return None;
        }
        let mut saved = SavedRegisters::NONE;
        for (Register(number), rule) in row.rules() {
            saved = match rule {
                _ if number == RETURN_ADDRESS.0 => saved,
                RegisterRule::Offset(offset) => saved.with(number, offset)?,
                _ => return None,
            };
        }
        let words = u64::from(words) << PackedRow::OFFSET_SHIFT;
        Some(PackedRow(
            u64::from(saved.bits()) | base << PackedRow::BASE_SHIFT | words,
        ))
    }

    /// The reverse of [`PackedRow::word`].
    #[must_use]
    pub fn from_word(word: u64) -> PackedRow {
        PackedRow(word)
    }

    /// As a word.
    #[must_use]
    pub fn word(self) -> u64 {
        self.0
    }

    /// The row with a module of the own process; `None` for a slot number in the upper half.
    #[must_use]
    pub fn with_module_slot(self, slot: ModuleSlot) -> Option<PackedRow> {
        let row = self.0 & ((1 << PackedRow::PLACE_SHIFT) - 1);
        let word = row | u64::from(slot.0) << PackedRow::PLACE_SHIFT;
        (slot.0 >> 15 == 0).then_some(PackedRow(word))
    }

    /// The row's module in the own process.
    #[inline]
    #[must_use]
    pub fn module_slot(self) -> Option<ModuleSlot> {
        match u16::try_from(self.0 >> PackedRow::PLACE_SHIFT) {
            Ok(0) | Err(_) => None,
            Ok(number) => Some(ModuleSlot(number)),
        }
    }

    /// The same row for a frame with pushed arguments, which its landing pad expects to be popped.
    #[must_use]
    pub fn with_arguments(self) -> PackedRow {
        PackedRow(self.0 | PackedRow::ARGUMENTS)
    }

    /// Whether it is [`PackedRow::with_arguments`].
    #[must_use]
    pub fn has_arguments(self) -> bool {
        self.0 & PackedRow::ARGUMENTS != 0
    }

    /// The row without its module.
    #[inline(always)]
    #[must_use]
    pub fn without_module_slot(self) -> PackedRow {
        PackedRow(self.0 & ((1 << PackedRow::PLACE_SHIFT) - 1))
    }

    /// The CFA's distance above the stack pointer in bytes, if that is its base and the row has no
    /// module of the own process: true for nearly all frames.
    #[inline(always)]
    #[must_use]
    pub fn above_stack_pointer(self) -> Option<u64> {
        (self.0 & PackedRow::KIND == 0).then_some(self.0 >> PackedRow::BASE_SHIFT)
    }

    /// The same for the frame pointer.
    #[inline(always)]
    #[must_use]
    pub fn above_frame_pointer(self) -> Option<u64> {
        let is_it = self.0 & PackedRow::KIND == PackedRow::ON_FRAME_POINTER;
        is_it.then_some(self.0 >> PackedRow::BASE_SHIFT & !7)
    }

    /// The base of the CFA.
    #[inline]
    #[must_use]
    pub fn base(self) -> CfaBase {
        match self.0 >> PackedRow::BASE_SHIFT & 3 {
            0 => CfaBase::StackPointer,
            1 => CfaBase::FramePointer,
            2 => CfaBase::Outermost,
            _ => CfaBase::Signal,
        }
    }

    /// The CFA's distance above its base, in bytes.
    #[inline]
    #[must_use]
    pub fn cfa_offset(self) -> u64 {
        (self.0 >> PackedRow::OFFSET_SHIFT & 0xffff) * 8
    }

    /// The saved registers, and their locations.
    #[inline(always)]
    #[must_use]
    pub fn saved(self) -> SavedRegisters {
        let [a, b, c, d, ..] = self.0.to_le_bytes();
        SavedRegisters::from_bits(u32::from_le_bytes([a, b, c, d]))
    }
}

/// Whether the registers are in the kernel's signal record, as in glibc's row for the code that
/// handlers return to.
fn is_signal(row: &Row<'_>) -> bool {
    let Some(record) = Arch::X86_64.spec().signal_record else {
        return false;
    };
    row.return_address == RETURN_ADDRESS
        && row.ra_state == RaState::Plain
        && record.has_cfa(row.cfa)
        && row
            .rules()
            .all(|(register, rule)| record.has_saved(register, rule))
        && row.rules().count() == usize::from(REGISTERS)
}

#[cfg(test)]
mod tests {
    use unspool_rows::Expression;

    use super::*;

    fn row(cfa: (u16, i64), rules: &[(u16, RegisterRule<'static>)]) -> Row<'static> {
        let mut row = Row::new(RETURN_ADDRESS);
        row.cfa = CfaRule::RegisterOffset {
            register: Register(cfa.0),
            offset: cfa.1,
        };
        for (register, rule) in rules {
            row.set_rule(Register(*register), Some(*rule)).unwrap();
        }
        row
    }

    #[test]
    fn packed_rows_unpack_unchanged() {
        use RegisterRule::Offset;
        const CFA: u64 = 0x10_0000;
        let rules = [
            (3, Offset(-56)),
            (6, Offset(-248)),
            (12, Offset(-8)),
            (13, Offset(-16)),
            (14, Offset(-24)),
            (15, Offset(-128)),
            (16, Offset(-8)),
        ];
        for left_out in 0..6 {
            let mut some = rules.to_vec();
            some.remove(left_out);
            for (register, base) in [(7, CfaBase::StackPointer), (6, CfaBase::FramePointer)] {
                let simple = PackedRow::from_row(&row((register, 0x7_fff8), &some)).unwrap();
                let own = simple.with_module_slot(ModuleSlot(0x7edc)).unwrap();
                assert_eq!(simple.with_module_slot(ModuleSlot(0x8000)), None);
                assert_eq!(
                    (simple.module_slot(), own.module_slot()),
                    (None, Some(ModuleSlot(0x7edc)))
                );
                let is_usual = base == CfaBase::StackPointer;
                assert_eq!(simple.above_stack_pointer(), is_usual.then_some(0x7_fff8));
                assert_eq!(own.above_stack_pointer(), None);
                assert!(own.with_arguments().has_arguments() && !own.has_arguments());
                for simple in [simple, own, own.with_arguments()] {
                    assert_eq!((simple.base(), simple.cfa_offset()), (base, 0x7_fff8));
                    for register in (0..16).chain([17, 31, 32, 99]) {
                        let mut rules = some.iter();
                        let expected = rules.find_map(|(number, rule)| match rule {
                            Offset(offset) if *number == register => {
                                CFA.checked_add_signed(*offset)
                            }
                            _ => None,
                        });
                        assert_eq!(simple.saved().address(register, CFA), expected);
                    }
                }
            }
        }
    }

    #[test]
    fn an_undefined_return_address_is_the_end() {
        let mut outermost = row((12, 3), &[(16, RegisterRule::Undefined)]);
        assert_eq!(PackedRow::from_row(&outermost), Some(PackedRow::OUTERMOST));
        outermost.signal_frame = true;
        assert_eq!(PackedRow::from_row(&outermost), Some(PackedRow::OUTERMOST));
        assert_eq!(PackedRow::OUTERMOST.base(), CfaBase::Outermost);
        assert_eq!(PackedRow::OUTERMOST.above_stack_pointer(), None);
    }

    /// Whether glibc's row, changed by `change`, still packs into a word.
    fn is_signal_after(change: impl FnOnce(&mut Row<'static>)) -> bool {
        const OFFSETS: [u8; 17] = [
            144, 136, 152, 128, 112, 104, 120, 160, 40, 48, 56, 64, 72, 80, 88, 96, 168,
        ];
        const PLACES: [[u8; 3]; 17] = {
            let mut places = [[0x77, 0, 0]; 17];
            let mut number = 0;
            while number < 17 {
                let place = OFFSETS[number];
                places[number] = [0x77, place & 0x7f | 0x80, place >> 7];
                number += 1;
            }
            places
        };
        let mut row = Row::new(RETURN_ADDRESS);
        row.signal_frame = true;
        row.cfa = CfaRule::Expression(Expression(&[0x77, 0xa0, 0x01, 0x06]));
        for (place, register) in PLACES.iter().zip(0..) {
            let rule = RegisterRule::Expression(Expression(place));
            row.set_rule(Register(register), Some(rule)).unwrap();
        }
        change(&mut row);
        let simple = PackedRow::from_row(&row);
        assert!(simple.is_none_or(|simple| simple == PackedRow::SIGNAL));
        simple.is_some()
    }

    #[test]
    fn a_signal_frame_has_all_registers_where_the_kernel_puts_them() {
        assert_eq!(PackedRow::SIGNAL.base(), CfaBase::Signal);
        let own = PackedRow::SIGNAL.with_module_slot(ModuleSlot(3)).unwrap();
        assert_eq!(
            (own.base(), own.module_slot()),
            (CfaBase::Signal, Some(ModuleSlot(3)))
        );
        assert!(is_signal_after(|_| {}));
        for register in 0..17 {
            let elsewhere = RegisterRule::Expression(Expression(&[0x77, 0x30]));
            for rule in [None, Some(RegisterRule::SameValue), Some(elsewhere)] {
                let set = |row: &mut Row<'static>| row.set_rule(Register(register), rule).unwrap();
                assert!(
                    !is_signal_after(|row| {
                        set(row);
                    }) || (register, rule) == (9, Some(elsewhere))
                );
            }
        }
        let more = Some(RegisterRule::SameValue);
        assert!(!is_signal_after(|row| {
            row.set_rule(Register(17), more).unwrap();
        }));
        assert!(!is_signal_after(|row| row.signal_frame = false));
        assert!(!is_signal_after(|row| row.return_address = Register(15)));
        assert!(!is_signal_after(|row| row.ra_state = RaState::Signed));
        for cfa in [
            &[0x77, 0xa0, 0x01][..],
            &[0x77, 0xa8, 0x01, 0x06],
            &[0x76, 0xa0, 0x01, 0x06],
        ] {
            assert!(!is_signal_after(
                |row| row.cfa = CfaRule::Expression(Expression(cfa))
            ));
        }
    }

    #[test]
    fn other_rows_are_not_simple() {
        use RegisterRule::{Offset, SameValue, Undefined, ValOffset};
        let ra = (16, Offset(-8));
        let mut signal = row((7, 8), &[ra]);
        signal.signal_frame = true;
        let mut column = row((7, 8), &[ra]);
        column.return_address = Register(15);
        for other in [
            row((7, 8), &[]),
            row((7, 1 << 19), &[ra]),
            row((7, 0), &[ra]),
            row((3, 8), &[ra]),
            row((7, -8), &[ra]),
            row((7, 12), &[ra]),
            row((7, 8), &[(16, Offset(-16))]),
            row((16, 8), &[ra]),
            row((7, 8), &[(16, Offset(0))]),
            row((7, 8), &[(16, ValOffset(-8))]),
            row((7, 8), &[ra, (3, Undefined)]),
            row((7, 8), &[ra, (3, SameValue)]),
            row((7, 8), &[ra, (3, Offset(-256))]),
            row((7, 8), &[ra, (3, Offset(-12))]),
            row((7, 8), &[ra, (3, Offset(0))]),
            row((7, 8), &[ra, (3, Offset(8))]),
            row((7, 8), &[ra, (3, Offset(i64::MIN))]),
            row((7, 8), &[ra, (7, Offset(-16))]),
            row((7, 8), &[ra, (0, Offset(-16))]),
            row((7, 8), &[ra, (17, Offset(-16))]),
            signal,
            column,
        ] {
            assert_eq!(PackedRow::from_row(&other), None, "{other:?}");
        }
        assert!(PackedRow::from_row(&row((7, 8), &[ra])).is_some());
    }
}
