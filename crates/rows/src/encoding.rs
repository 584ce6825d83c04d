//! A row as bytes: one canonical form, so that equal rows are equal bytes.
//!
//! [`crate::Table`] stores its distinct rows in this form, and the compiled table keeps it as
//! its dictionary. Integers are LEB128 (`u` unsigned, `s` signed) in their shortest form.
//!
//! ```text
//! row   = flags, u return-address column, [u args size], cfa, rule*
//! flags = bit 0 signal frame · bits 1-2 RA state (plain, signed, signed with pc)
//!       · bit 3 args size present · bits 4-5 CFA kind · bits 6-7 zero
//! cfa   = kind 0: nothing · kind 1: u register, s offset · kind 2: u length, bytes
//! rule  = kind << 5 | register, [u register when those 5 bits are 31], operand
//!         kind 0 undefined · 1 same value · 2 s at CFA+n · 3 s CFA+n · 4 u register
//!         · 5 u length, bytes: at expression · 6 u length, bytes: expression
//! ```
//!
//! Rules are in ascending order of register and end with the bytes. Example: the row
//! `cfa=rsp+16 ra=[cfa-8] rbp=[cfa-16]` of x86-64 is
//!
//! ```text
//! 10        flags: CFA is register+offset
//! 10        return-address column 16
//! 07 10     rsp + 16
//! 46 70     kind 2, register 6 (rbp): at CFA - 16
//! 50 78     kind 2, register 16 (ra): at CFA - 8
//! ```

use crate::expression::Expression;
use crate::leb128;
use crate::register::Register;
use crate::row::{CfaRule, RaState, RegisterRule, Row};

const SIGNAL: u8 = 1;
const RA_STATE_SHIFT: u8 = 1;
const ARGS_SIZE: u8 = 1 << 3;
const CFA_SHIFT: u8 = 4;
const RESERVED: u8 = 0xc0;
const LONG_REGISTER: u8 = 31;

/// Reads a row back. `None` when the bytes are not the encoding of a row.
///
/// Memory-safe and linear in `bytes` whatever they hold; allocates nothing.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<Row<'_>> {
    let mut row = Row::new(Register(0));
    decode_into(bytes, &mut row)?;
    Some(row)
}

/// Decodes into an existing row. If this yields `None`, the row's content means nothing.
pub fn decode_into<'e>(bytes: &'e [u8], row: &mut Row<'e>) -> Option<()> {
    let encoded = EncodedRow::parse(bytes)?;
    row.clear(encoded.return_address);
    row.cfa = encoded.cfa;
    row.signal_frame = encoded.signal_frame;
    row.ra_state = encoded.ra_state;
    row.args_size = encoded.args_size;
    let mut rules = encoded.rules();
    while let Some((register, rule)) = rules.next_rule()? {
        row.set_rule(register, Some(rule)).ok()?;
    }
    Some(())
}

/// An encoded row with its rules still undecoded: for callers that need one or two of them, and not
/// the 1.7 KB of a [`Row`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodedRow<'e> {
    /// As [`Row::cfa`].
    pub(crate) cfa: CfaRule<'e>,
    /// As [`Row::return_address`].
    pub(crate) return_address: Register,
    /// As [`Row::signal_frame`].
    pub(crate) signal_frame: bool,
    /// As [`Row::ra_state`].
    pub(crate) ra_state: RaState,
    /// As [`Row::args_size`].
    pub(crate) args_size: u64,
    rules: &'e [u8],
}

impl<'e> EncodedRow<'e> {
    /// Reads everything before the rules. `None` if the bytes do not begin like a row.
    #[must_use]
    #[inline]
    pub(crate) fn parse(bytes: &'e [u8]) -> Option<Self> {
        let mut rest = bytes;
        let flags = leb128::byte(&mut rest)?;
        if flags & RESERVED != 0 {
            return None;
        }
        let return_address = register(&mut rest)?;
        let ra_state = RaState::from_number(u64::from(flags >> RA_STATE_SHIFT & 3))?;
        let args_size = match flags & ARGS_SIZE {
            0 => 0,
            _ => leb128::unsigned(&mut rest)?,
        };
        let cfa = match flags >> CFA_SHIFT & 3 {
            0 => CfaRule::Undefined,
            1 => CfaRule::RegisterOffset {
                register: register(&mut rest)?,
                offset: leb128::signed(&mut rest)?,
            },
            2 => CfaRule::Expression(expression(&mut rest)?),
            _ => return None,
        };
        Some(EncodedRow {
            cfa,
            return_address,
            signal_frame: flags & SIGNAL != 0,
            ra_state,
            args_size,
            rules: rest,
        })
    }

    /// An iterator over the rules, from the first.
    #[must_use]
    #[inline]
    pub(crate) fn rules(&self) -> EncodedRules<'e> {
        EncodedRules(self.rules)
    }
}

/// The rules of an [`EncodedRow`], in ascending order of register.
#[derive(Debug, Clone)]
pub(crate) struct EncodedRules<'e>(&'e [u8]);

impl<'e> EncodedRules<'e> {
    /// The next register and its rule, `Some(None)` after the last. `None` if the bytes are not a
    /// rule.
    #[inline]
    pub(crate) fn next_rule(&mut self) -> Option<Option<(Register, RegisterRule<'e>)>> {
        if self.0.is_empty() {
            return Some(None);
        }
        rule(&mut self.0).map(Some)
    }
}

#[inline]
fn register(rest: &mut &[u8]) -> Option<Register> {
    u16::try_from(leb128::unsigned(rest)?).ok().map(Register)
}

fn expression<'e>(rest: &mut &'e [u8]) -> Option<Expression<'e>> {
    let len = usize::try_from(leb128::unsigned(rest)?).ok()?;
    leb128::take(rest, len).map(Expression)
}

#[inline]
fn rule<'e>(rest: &mut &'e [u8]) -> Option<(Register, RegisterRule<'e>)> {
    let head = leb128::byte(rest)?;
    let register = match head & LONG_REGISTER {
        LONG_REGISTER => register(rest)?,
        short => Register(u16::from(short)),
    };
    let rule = match head >> 5 {
        0 => RegisterRule::Undefined,
        1 => RegisterRule::SameValue,
        2 => RegisterRule::Offset(leb128::signed(rest)?),
        3 => RegisterRule::ValOffset(leb128::signed(rest)?),
        4 => RegisterRule::Register(self::register(rest)?),
        5 => RegisterRule::Expression(expression(rest)?),
        6 => RegisterRule::ValExpression(expression(rest)?),
        _ => return None,
    };
    Some((register, rule))
}

#[cfg(feature = "alloc")]
pub use write::encode;

#[cfg(feature = "alloc")]
mod write {
    use super::{ARGS_SIZE, CFA_SHIFT, LONG_REGISTER, RA_STATE_SHIFT, SIGNAL};
    use crate::expression::Expression;
    use crate::leb128::{put_signed, put_unsigned};
    use crate::register::Register;
    use crate::row::{CfaRule, RegisterRule, Row};
    use alloc::vec::Vec;

    /// Appends the canonical encoding of `row`.
    pub fn encode(row: &Row<'_>, out: &mut Vec<u8>) {
        out.push(flags(row));
        put_unsigned(out, u64::from(row.return_address.0));
        if row.args_size != 0 {
            put_unsigned(out, row.args_size);
        }
        match row.cfa {
            CfaRule::Undefined => {}
            CfaRule::RegisterOffset { register, offset } => {
                put_unsigned(out, u64::from(register.0));
                put_signed(out, offset);
            }
            CfaRule::Expression(expression) => put_expression(out, expression),
        }
        for (register, rule) in row.rules() {
            put_rule(out, register, rule);
        }
    }

    fn flags(row: &Row<'_>) -> u8 {
        let cfa = match row.cfa {
            CfaRule::Undefined => 0,
            CfaRule::RegisterOffset { .. } => 1,
            CfaRule::Expression(_) => 2,
        };
        let signal = if row.signal_frame { SIGNAL } else { 0 };
        let args_size = if row.args_size != 0 { ARGS_SIZE } else { 0 };
        signal | row.ra_state.number() << RA_STATE_SHIFT | args_size | cfa << CFA_SHIFT
    }

    fn put_expression(out: &mut Vec<u8>, Expression(bytes): Expression<'_>) {
        put_unsigned(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }

    fn put_rule(out: &mut Vec<u8>, register: Register, rule: RegisterRule<'_>) {
        let kind = match rule {
            RegisterRule::Undefined => 0,
            RegisterRule::SameValue => 1,
            RegisterRule::Offset(_) => 2,
            RegisterRule::ValOffset(_) => 3,
            RegisterRule::Register(_) => 4,
            RegisterRule::Expression(_) => 5,
            RegisterRule::ValExpression(_) => 6,
        };
        match u8::try_from(register.0) {
            Ok(short) if short < LONG_REGISTER => out.push(kind << 5 | short),
            _ => {
                out.push(kind << 5 | LONG_REGISTER);
                put_unsigned(out, u64::from(register.0));
            }
        }
        match rule {
            RegisterRule::Undefined | RegisterRule::SameValue => {}
            RegisterRule::Offset(offset) | RegisterRule::ValOffset(offset) => {
                put_signed(out, offset);
            }
            RegisterRule::Register(other) => put_unsigned(out, u64::from(other.0)),
            RegisterRule::Expression(expression) | RegisterRule::ValExpression(expression) => {
                put_expression(out, expression);
            }
        }
    }
}
