//! How to step from a frame: a row of the unwind table in the forms that a cache can keep.

use alloc::vec::Vec;

use unspool_ir::row::{CfaRule, RegisterRule, Row};
use unspool_ir::{Register, encoding};
use unspool_unwind::Place;

use crate::abi::Error;
use crate::places::{PRESERVED, Saved};

const RETURN_ADDRESS: Register = Register(16);

/// The row that nearly every frame has: the CFA is a register and an offset, and the return
/// address and preserved registers are in memory at offsets from the CFA.
///
/// In five words, which a cache keeps as they are, of two 32-bit numbers each, the lower first:
///
/// ```text
/// what is added to the register, in bytes  · bits 0-15 of the saved registers, 16-20 the register
/// where the return address is from the CFA · where rbx is, or zero if it is not saved
/// rbp · r12
/// r13 · r14
/// r15 · the number of the module in the own process, or zero
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Simple(pub(crate) [u64; Simple::WORDS]);

impl Simple {
    /// Its size in words.
    pub const WORDS: usize = 5;

    /// The row in this form, if it has it.
    #[must_use]
    pub fn from_row(row: &Row<'_>) -> Option<Simple> {
        let CfaRule::RegisterOffset { register, offset } = row.cfa else {
            return None;
        };
        let is_plain = row.return_address == RETURN_ADDRESS && !row.signal_frame;
        if !is_plain || register.0 >= RETURN_ADDRESS.0 {
            return None;
        }
        let return_address = from_cfa(row.rule(RETURN_ADDRESS)?)?;
        let mut set = 0;
        let mut offsets = [0; 16];
        for (Register(number), rule) in row.rules() {
            if let Some(offset) = offsets.get_mut(usize::from(number)) {
                *offset = from_cfa(rule)?;
                set |= 1 << number;
            } else if number != RETURN_ADDRESS.0 {
                return None;
            }
        }
        if set & !PRESERVED != 0 {
            return None;
        }
        let [_, _, _, rbx, _, _, rbp, _, _, _, _, _, r12, r13, r14, r15] = offsets;
        let head = set | u32::from(register.0) << REGISTER_SHIFT;
        Some(Simple([
            word(i32::try_from(offset).ok()?, head.cast_signed()),
            word(return_address, rbx),
            word(rbp, r12),
            word(r13, r14),
            word(r15, 0),
        ]))
    }

    /// The row of a module of the own process.
    #[must_use]
    pub fn of_own(self, place: Place) -> Simple {
        let [a, b, c, d, e] = self.0;
        Simple([a, b, c, d, e | u64::from(place.0) << 32])
    }

    /// The module of the own process that the row is of.
    #[inline]
    #[must_use]
    pub fn own_place(&self) -> Option<Place> {
        let [.., last] = self.0;
        match u16::try_from(last >> 32) {
            Ok(0) | Err(_) => None,
            Ok(number) => Some(Place(number)),
        }
    }

    /// The register that the CFA is based on.
    #[inline]
    #[must_use]
    pub fn cfa_register(&self) -> Register {
        let [head, ..] = self.0;
        let register = u16::try_from(high(head).cast_unsigned() >> REGISTER_SHIFT);
        register.map_or(RETURN_ADDRESS, Register)
    }

    /// What is added to it, in bytes.
    #[inline]
    #[must_use]
    pub fn cfa_offset(&self) -> i32 {
        let [head, ..] = self.0;
        low(head)
    }

    /// Where the return address is from the CFA, in bytes.
    #[inline]
    #[must_use]
    pub fn return_address(&self) -> i32 {
        let [_, first, ..] = self.0;
        low(first)
    }

    /// Which registers were saved, and where.
    #[inline]
    #[must_use]
    pub fn saved(&self) -> Saved {
        let [head, a, b, c, d] = self.0;
        Saved {
            set: high(head).cast_unsigned() & 0xffff,
            offsets: [high(a), low(b), high(b), low(c), high(c), low(d)],
        }
    }
}

const REGISTER_SHIFT: u32 = 16;

/// Where a rule finds a register from the CFA, in bytes. Zero has another meaning.
fn from_cfa(rule: RegisterRule<'_>) -> Option<i32> {
    match rule {
        RegisterRule::Offset(offset) if offset != 0 => i32::try_from(offset).ok(),
        _ => None,
    }
}

fn word(low: i32, high: i32) -> u64 {
    u64::from(low.cast_unsigned()) | u64::from(high.cast_unsigned()) << 32
}

fn low(word: u64) -> i32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

fn high(word: u64) -> i32 {
    low(word >> 32)
}

/// What a step follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// The return address is undefined: the frame is the outermost.
    Outermost,
    /// A row in the short form.
    Simple(Simple),
    /// Any other row, as [`encoding`] has it.
    Encoded(Vec<u8>),
}

impl Rule {
    /// The rule of a row.
    ///
    /// # Errors
    ///
    /// [`Error::NO_MEMORY`].
    pub fn from_row(row: &Row<'_>) -> Result<Rule, Error> {
        if row.rule(row.return_address) == Some(RegisterRule::Undefined) {
            return Ok(Rule::Outermost);
        }
        match Simple::from_row(row) {
            Some(simple) => Ok(Rule::Simple(simple)),
            None => Ok(Rule::Encoded(encoded(row)?)),
        }
    }
}

/// The row as [`encoding`] has it.
///
/// # Errors
///
/// [`Error::NO_MEMORY`].
pub fn encoded(row: &Row<'_>) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    // `encode` cannot report that memory is short: it gets all that a row can take beforehand.
    bytes
        .try_reserve_exact(MAX_ENCODED)
        .map_err(|_| Error::NO_MEMORY)?;
    encoding::encode(row, &mut bytes);
    Ok(bytes)
}

/// More than an encoded row has: its expressions, and 16 bytes for each rule.
const MAX_ENCODED: usize = unspool_cfi::evaluate::MAX_EXPRESSION_BYTES + 16 * (Row::MAX_RULES + 2);

#[cfg(test)]
mod tests {
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
    fn what_is_packed_comes_out_again() {
        use RegisterRule::Offset;
        let rules = [
            (3, Offset(-56)),
            (6, Offset(-48)),
            (12, Offset(i64::from(i32::MIN))),
            (13, Offset(12)),
            (14, Offset(-24)),
            (15, Offset(i64::from(i32::MAX))),
            (16, Offset(-8)),
        ];
        for left_out in 0..6 {
            let mut some = rules.to_vec();
            let (register, _) = some.remove(left_out);
            let simple = Simple::from_row(&row((15, -0x1_0000), &some)).unwrap();
            assert_eq!(simple.cfa_register(), Register(15));
            assert_eq!(simple.cfa_offset(), -0x1_0000);
            assert_eq!(simple.return_address(), -8);
            let saved = simple.saved();
            assert_eq!(saved.set, PRESERVED & !(1 << register));
            for (at, (_, rule)) in rules[..6].iter().enumerate() {
                let expected = match rule {
                    Offset(offset) if at != left_out => *offset,
                    _ => 0,
                };
                assert_eq!(i64::from(saved.offsets[at]), expected);
            }
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
            row((7, 1 << 32), &[ra]),
            row((16, 8), &[ra]),
            row((7, 8), &[(16, Offset(0))]),
            row((7, 8), &[(16, ValOffset(-8))]),
            row((7, 8), &[ra, (3, Undefined)]),
            row((7, 8), &[ra, (3, SameValue)]),
            row((7, 8), &[ra, (3, Offset(1 << 31))]),
            row((7, 8), &[ra, (7, Offset(-16))]),
            row((7, 8), &[ra, (0, Offset(-16))]),
            row((7, 8), &[ra, (17, Offset(-16))]),
            signal,
            column,
        ] {
            assert_eq!(Simple::from_row(&other), None, "{other:?}");
        }
        assert!(Simple::from_row(&row((7, 8), &[ra])).is_some());
    }
}
