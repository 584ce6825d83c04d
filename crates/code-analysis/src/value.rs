//! The lattice of abstract values of registers and stack slots.

use core::fmt;
use core::ops::Range;

use unspool_rows::Register;

/// Greatest size of inline data behind a call that its callee skips, in bytes.
pub const MAX_SKIPPED_BYTES: u16 = 4096;

/// An abstract 64-bit value, relative to the function's entry.
///
/// Values form a lattice of small height. Known values are at the bottom, [`AbstractValue::FRESH`]
/// (computed, and not an entry value) is above them, and [`AbstractValue::UNKNOWN`] is the top (⊤).
/// [`AbstractValue::join`] is the least upper bound.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AbstractValue(u64);

/// The unpacked form of an [`AbstractValue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueFact {
    /// Unknown: paths disagree, or it was read from unknown memory.
    Unknown,
    /// Computed since entry, and not from entry values.
    Fresh,
    /// Computed, and at most this.
    AtMost(u16),
    /// This number; addresses are those of the image as linked.
    Constant(u64),
    /// A register's entry value plus an offset. The CFA is the stack pointer at entry plus the
    /// bytes that a call pushes. The return-address column stands for the return address.
    EntryValue(Register, i32),
    /// A symbolic base plus an offset: the stack pointer after the instruction with this number, or
    /// another address that was named there.
    SymbolicBase(u32, i32),
    /// An entry of a table of 4-byte distances at this address, at an index of at most `max_index`.
    RelativeTableEntry {
        /// Address of the table.
        table: u64,
        /// The greatest index, if known.
        max_index: Option<u16>,
    },
    /// A code address from a table.
    TableTarget(JumpTable),
}

/// A table with the targets of an indirect jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JumpTable {
    /// Its address.
    pub address: u64,
    /// The greatest index, if known.
    pub max_index: Option<u16>,
    /// Encoding of its entries.
    pub encoding: JumpTableEncoding,
}

impl JumpTable {
    /// The size of an entry, in bytes.
    pub(crate) fn entry_size(self) -> usize {
        match self.encoding {
            JumpTableEncoding::Relative32 => 4,
            JumpTableEncoding::Absolute64 => 8,
        }
    }

    /// The code address for an entry.
    #[must_use]
    pub(crate) fn target(self, entry: &[u8]) -> u64 {
        match self.encoding {
            JumpTableEncoding::Relative32 => {
                let distance = entry.try_into().map_or(0, i32::from_le_bytes);
                self.address.wrapping_add_signed(distance.into())
            }
            JumpTableEncoding::Absolute64 => entry.try_into().map_or(0, u64::from_le_bytes),
        }
    }

    /// Whether an entry is a word of zeros.
    #[must_use]
    pub(crate) fn is_null(self, entry: &[u8]) -> bool {
        self.encoding == JumpTableEncoding::Absolute64 && entry.iter().all(|byte| *byte == 0)
    }
}

/// Encoding of the entries of a [`JumpTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JumpTableEncoding {
    /// Signed 4-byte distances from the table's address.
    Relative32,
    /// 8-byte addresses.
    Absolute64,
}

const TAG_BITS: u32 = 4;
const PAYLOAD_BITS: u32 = 64 - TAG_BITS;

/// Tags, in the top bits.
const FRESH: u64 = 1;
const AT_MOST: u64 = 2;
const CONSTANT: u64 = 3;
const ENTRY: u64 = 4;
const BASE: u64 = 5;
const DISTANCE: u64 = 6;
const TARGET_BY_DISTANCE: u64 = 7;
const TARGET_BY_ADDRESS: u64 = 8;

/// Bits of a table's address; the rest of the payload is the greatest index.
const TABLE_BITS: u32 = 47;
const NO_LAST: u64 = (1 << (PAYLOAD_BITS - TABLE_BITS)) - 1;

/// Numbers of bases are those of instructions. This bit marks the base of an index that the
/// instruction used.
pub(crate) const INDEX_BASE_BIT: u32 = 1 << 25;

/// This bit marks the base of the slot with such an index.
pub(crate) const INDEXED_SLOT_BASE_BIT: u32 = 2 << 25;

/// Both bits mark an unconstrained base: an address that may also have another name.
pub(crate) const UNCONSTRAINED_BASE_BITS: u32 = 3 << 25;

const fn tagged(tag: u64, payload: u64) -> AbstractValue {
    AbstractValue(tag << PAYLOAD_BITS | payload)
}

impl AbstractValue {
    /// Nothing is known.
    pub const UNKNOWN: AbstractValue = AbstractValue(0);
    /// Computed since entry; an entry value only by chance.
    pub const FRESH: AbstractValue = tagged(FRESH, 0);

    /// A computed value that is at most `limit`.
    #[must_use]
    pub(crate) fn at_most(limit: u64) -> AbstractValue {
        match u16::try_from(limit) {
            Ok(limit) => tagged(AT_MOST, limit.into()),
            Err(_) => AbstractValue::FRESH,
        }
    }

    /// A number; [`AbstractValue::FRESH`] for the few that are neither a code address nor a frame
    /// size.
    #[must_use]
    pub fn constant(number: u64) -> AbstractValue {
        let payload = number & ((1 << PAYLOAD_BITS) - 1);
        let value = tagged(CONSTANT, payload);
        if value.as_constant() == Some(number) {
            value
        } else {
            AbstractValue::FRESH
        }
    }

    /// The entry value of `register`, plus `offset`.
    #[must_use]
    pub(crate) fn entry_value_plus(register: Register, offset: i32) -> AbstractValue {
        let register = u64::from(register.0 & 0xff);
        tagged(ENTRY, register << 32 | u64::from(offset.cast_unsigned()))
    }

    /// The entry value of the register with that number.
    #[must_use]
    pub fn entry_value(register: u8) -> AbstractValue {
        AbstractValue::entry_value_plus(Register(register.into()), 0)
    }

    /// Distance past the return address in bytes, mostly 0; `register` stands for the return
    /// address. Some callees return past inline data behind the call.
    #[must_use]
    pub fn bytes_past_return_address(self, register: u8) -> Option<u16> {
        match self.fact() {
            ValueFact::EntryValue(origin, bytes) if origin.0 == register.into() => {
                u16::try_from(bytes)
                    .ok()
                    .filter(|bytes| *bytes <= MAX_SKIPPED_BYTES)
            }
            _ => None,
        }
    }

    /// The stack pointer after instruction `at`, plus `offset`.
    #[must_use]
    pub fn symbolic_base(at: u32, offset: i32) -> AbstractValue {
        let at = u64::from(at & 0x0fff_ffff);
        tagged(BASE, at << 32 | u64::from(offset.cast_unsigned()))
    }

    /// An entry of a table of distances.
    #[must_use]
    pub(crate) fn relative_table_entry(table: u64, last: Option<u16>) -> AbstractValue {
        with_table(DISTANCE, table, last)
    }

    /// A target from a table.
    #[must_use]
    pub(crate) fn table_target(table: JumpTable) -> AbstractValue {
        let tag = match table.encoding {
            JumpTableEncoding::Relative32 => TARGET_BY_DISTANCE,
            JumpTableEncoding::Absolute64 => TARGET_BY_ADDRESS,
        };
        with_table(tag, table.address, table.max_index)
    }

    const fn tag(self) -> u64 {
        self.0 >> PAYLOAD_BITS
    }

    const fn payload(self) -> u64 {
        self.0 & ((1 << PAYLOAD_BITS) - 1)
    }

    #[inline]
    fn low(self) -> i32 {
        let low = u32::try_from(self.0 & 0xffff_ffff).unwrap_or_default();
        low.cast_signed()
    }

    /// The number, if it is a constant.
    #[must_use]
    #[inline]
    pub fn as_constant(self) -> Option<u64> {
        let sign_extended = (self.0 << TAG_BITS).cast_signed() >> TAG_BITS;
        (self.tag() == CONSTANT).then_some(sign_extended.cast_unsigned())
    }

    /// Its unpacked form.
    #[must_use]
    #[inline]
    pub fn fact(self) -> ValueFact {
        match self.tag() {
            FRESH => ValueFact::Fresh,
            AT_MOST => ValueFact::AtMost(u16::try_from(self.payload()).unwrap_or(u16::MAX)),
            CONSTANT => ValueFact::Constant(self.as_constant().unwrap_or_default()),
            ENTRY => ValueFact::EntryValue(
                Register(u16::try_from(self.payload() >> 32).unwrap_or_default()),
                self.low(),
            ),
            BASE => ValueFact::SymbolicBase(
                u32::try_from(self.payload() >> 32).unwrap_or_default(),
                self.low(),
            ),
            DISTANCE => {
                let JumpTable {
                    address,
                    max_index: last,
                    ..
                } = self.table(JumpTableEncoding::Relative32);
                ValueFact::RelativeTableEntry {
                    table: address,
                    max_index: last,
                }
            }
            TARGET_BY_DISTANCE => ValueFact::TableTarget(self.table(JumpTableEncoding::Relative32)),
            TARGET_BY_ADDRESS => ValueFact::TableTarget(self.table(JumpTableEncoding::Absolute64)),
            _ => ValueFact::Unknown,
        }
    }

    fn table(self, encoding: JumpTableEncoding) -> JumpTable {
        let last = self.payload() >> TABLE_BITS;
        JumpTable {
            address: self.payload() & ((1 << TABLE_BITS) - 1),
            max_index: (last != NO_LAST)
                .then(|| u16::try_from(last).ok())
                .flatten(),
            encoding,
        }
    }

    /// Whether it is relative to a known base: offsets can be added, and slots can be there.
    #[must_use]
    #[inline]
    pub fn is_address(self) -> bool {
        matches!(self.tag(), ENTRY | BASE)
    }

    /// Bytes from `other` up to `self`, if both are [`ValueFact::EntryValue`] or
    /// [`ValueFact::SymbolicBase`] of the same origin.
    #[must_use]
    #[inline]
    pub fn distance_from(self, other: AbstractValue) -> Option<i64> {
        let same = self.is_address() && self.0 >> 32 == other.0 >> 32;
        same.then(|| i64::from(self.low()) - i64::from(other.low()))
    }

    /// Whether its distance above another address is in a range of bytes.
    #[inline]
    pub(crate) fn is_at_distance(self, other: AbstractValue, bytes: Range<i64>) -> bool {
        self.shares_base_with(other)
            && bytes.contains(&(i64::from(self.low()) - i64::from(other.low())))
    }

    /// Whether it is below an address.
    #[inline]
    pub(crate) fn is_below(self, other: AbstractValue) -> bool {
        self.shares_base_with(other) && self.low() < other.low()
    }

    /// Whether it is relative to a symbolic base.
    #[inline]
    pub(crate) fn is_symbolic_base(self) -> bool {
        self.tag() == BASE
    }

    /// Whether it is relative to the same entry value or symbolic base as an address.
    #[inline]
    pub(crate) fn shares_base_with(self, address: AbstractValue) -> bool {
        self.0 >> 32 == address.0 >> 32
    }

    /// The offset of an address.
    #[inline]
    pub(crate) fn offset(self) -> i32 {
        self.low()
    }

    /// The bits in which two values differ.
    #[inline]
    pub(crate) fn difference(self, other: AbstractValue) -> u64 {
        self.0 ^ other.0
    }

    /// The register and the offset of [`ValueFact::EntryValue`].
    #[inline]
    pub(crate) fn as_entry(self) -> Option<(u8, i32)> {
        let [.., register, _, _, _] = self.0.to_le_bytes();
        (self.tag() == ENTRY).then_some((register, self.low()))
    }

    /// The number of its [`ValueFact::SymbolicBase`].
    #[must_use]
    #[inline]
    pub(crate) fn symbolic_base_id(self) -> Option<u32> {
        let at = u32::try_from(self.payload() >> 32).unwrap_or_default();
        (self.tag() == BASE).then_some(at)
    }

    /// Whether it was loaded from a fixed address, where a value may have been kept.
    #[must_use]
    #[inline]
    pub fn is_read_at_fixed_address(self) -> bool {
        self.tag() == TARGET_BY_ADDRESS
    }

    /// Whether it is relative to a relocated stack pointer: the caller has nothing below it.
    #[inline]
    pub(crate) fn is_relocated_stack(self) -> bool {
        self.symbolic_base_id()
            .is_some_and(|at| at & UNCONSTRAINED_BASE_BITS == 0)
    }

    /// Whether it is relative to an unconstrained base: another origin may have the same address.
    #[must_use]
    #[inline]
    pub fn is_unconstrained(self) -> bool {
        self.symbolic_base_id()
            .is_some_and(|at| at & UNCONSTRAINED_BASE_BITS == UNCONSTRAINED_BASE_BITS)
    }

    /// This value plus `bytes`.
    #[must_use]
    #[inline]
    pub fn plus(self, bytes: i64) -> AbstractValue {
        if bytes == 0 {
            return self;
        }
        match self.tag() {
            ENTRY | BASE => {
                let sum = i64::from(self.low()).checked_add(bytes);
                match sum.map(i32::try_from) {
                    Some(Ok(sum)) => {
                        AbstractValue(self.0 & !0xffff_ffff | u64::from(sum.cast_unsigned()))
                    }
                    _ => AbstractValue::UNKNOWN,
                }
            }
            CONSTANT => {
                let number = self.as_constant().unwrap_or_default();
                AbstractValue::constant(number.wrapping_add_signed(bytes))
            }
            0 => AbstractValue::UNKNOWN,
            _ => AbstractValue::FRESH,
        }
    }

    /// Least upper bound: a value that is one of these two.
    #[must_use]
    #[inline]
    pub fn join(self, other: AbstractValue) -> AbstractValue {
        if self == other {
            return self;
        }
        if self.may_be_entry() || other.may_be_entry() {
            AbstractValue::UNKNOWN
        } else {
            AbstractValue::FRESH
        }
    }

    /// Joins with another value in place. Returns whether this changed.
    #[inline]
    pub(crate) fn join_with(&mut self, other: AbstractValue) -> bool {
        if *self == other {
            return false;
        }
        let joined = self.join(other);
        core::mem::replace(self, joined) != joined
    }

    /// Whether it is, or could be, relative to an entry value.
    fn may_be_entry(self) -> bool {
        matches!(self.tag(), 0 | ENTRY | BASE)
    }
}

fn with_table(tag: u64, address: u64, last: Option<u16>) -> AbstractValue {
    if address >> TABLE_BITS != 0 {
        return AbstractValue::FRESH;
    }
    let last = last.map_or(NO_LAST, |last| u64::from(last).min(NO_LAST));
    tagged(tag, last << TABLE_BITS | address)
}

impl fmt::Debug for AbstractValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fact().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_say_what_was_put_in() {
        let table = JumpTable {
            address: 0x7fff_1234_5678,
            max_index: Some(17),
            encoding: JumpTableEncoding::Absolute64,
        };
        let cases = [
            (AbstractValue::UNKNOWN, ValueFact::Unknown),
            (AbstractValue::FRESH, ValueFact::Fresh),
            (AbstractValue::at_most(255), ValueFact::AtMost(255)),
            (AbstractValue::at_most(1 << 20), ValueFact::Fresh),
            (
                AbstractValue::constant(0x401000),
                ValueFact::Constant(0x401000),
            ),
            (
                AbstractValue::constant(u64::MAX),
                ValueFact::Constant(u64::MAX),
            ),
            (
                AbstractValue::constant(0xffff_ffff_8100_0000),
                ValueFact::Constant(0xffff_ffff_8100_0000),
            ),
            (AbstractValue::constant(1 << 62), ValueFact::Fresh),
            (
                AbstractValue::entry_value_plus(Register(7), -136),
                ValueFact::EntryValue(Register(7), -136),
            ),
            (
                AbstractValue::symbolic_base(0x0abc_def0, i32::MAX),
                ValueFact::SymbolicBase(0x0abc_def0, i32::MAX),
            ),
            (
                AbstractValue::table_target(table),
                ValueFact::TableTarget(table),
            ),
            (
                AbstractValue::relative_table_entry(0x2000, None),
                ValueFact::RelativeTableEntry {
                    table: 0x2000,
                    max_index: None,
                },
            ),
        ];
        for (value, known) in cases {
            assert_eq!(value.fact(), known);
        }
    }

    #[test]
    fn sums_stay_what_they_are_relative_to() {
        let sp = AbstractValue::entry_value_plus(Register(7), 0);
        assert_eq!(sp.plus(-8).plus(8), sp);
        assert_eq!(sp.plus(-8).distance_from(sp), Some(-8));
        assert_eq!(
            sp.distance_from(AbstractValue::entry_value_plus(Register(6), 0)),
            None
        );
        assert_eq!(sp.plus(i64::MAX), AbstractValue::UNKNOWN);
        assert_eq!(
            AbstractValue::constant(8).plus(-9),
            AbstractValue::constant(u64::MAX)
        );
        assert_eq!(AbstractValue::UNKNOWN.plus(1), AbstractValue::UNKNOWN);
        assert_eq!(AbstractValue::at_most(3).plus(1), AbstractValue::FRESH);
        assert_eq!(
            AbstractValue::symbolic_base(1, 4).distance_from(AbstractValue::symbolic_base(2, 4)),
            None
        );
    }

    #[test]
    fn joins_go_down_and_stay_there() {
        let all = [
            AbstractValue::UNKNOWN,
            AbstractValue::FRESH,
            AbstractValue::at_most(3),
            AbstractValue::constant(3),
            AbstractValue::entry_value_plus(Register(3), 0),
            AbstractValue::symbolic_base(9, 0),
            AbstractValue::relative_table_entry(64, Some(3)),
        ];
        for a in all {
            for b in all {
                let joined = a.join(b);
                assert_eq!(joined, b.join(a));
                // Joining again changes nothing: a fixpoint is reached.
                assert_eq!(joined.join(a), joined);
                assert_eq!(joined.join(b), joined);
                let is_overwritten = joined == AbstractValue::FRESH;
                // An entry value is never taken for an overwritten one.
                assert!(!(is_overwritten && (a.is_address() || b.is_address())));
            }
        }
    }
}
