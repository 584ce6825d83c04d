//! What is known of the value of a register or a stack slot.

use core::fmt;
use core::ops::Range;

use unspool_ir::Register;

/// The most bytes of data behind a call that its callee comes back behind.
pub const MOST_SKIPPED: u16 = 4096;

/// What is known of a 64-bit value, relative to the entry of the function.
///
/// Values form a lattice of small height: on top what is known, below it [`Value::FRESH`] (computed, and no
/// value from entry), at the bottom [`Value::UNKNOWN`]. [`Value::join`] goes down.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(u64);

/// What a [`Value`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Nothing: paths disagree, or it was read from where nothing is known.
    Unknown,
    /// It was computed since entry from nothing that entry values tell.
    Fresh,
    /// Computed, and at most this.
    AtMost(u16),
    /// This number; addresses of the image as linked.
    Constant(u64),
    /// What a register held at entry, plus an offset. The CFA is the stack pointer at entry, plus what a
    /// call pushes; the return-address column stands for the address to return to.
    Entry(Register, i32),
    /// What is only known at run time, plus an offset: what the stack pointer was after the instruction of that number, or
    /// what else was named there.
    Base(u32, i32),
    /// An entry of a table of 4-byte distances at this address, at an index that is at most `last`.
    Distance {
        /// Address of the table.
        table: u64,
        /// The greatest index, where it is known.
        last: Option<u16>,
    },
    /// An address of code out of a table.
    Target(JumpTable),
}

/// A table that an indirect jump takes its targets from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JumpTable {
    /// Its address.
    pub address: u64,
    /// The greatest index, where it is known.
    pub last: Option<u16>,
    /// What its entries are.
    pub entries: Entries,
}

impl JumpTable {
    /// The size of an entry, in bytes.
    pub(crate) fn entry_size(self) -> usize {
        match self.entries {
            Entries::Distances => 4,
            Entries::Addresses => 8,
        }
    }

    /// The address of code that an entry of the table leads to.
    #[must_use]
    pub(crate) fn target(self, entry: &[u8]) -> u64 {
        match self.entries {
            Entries::Distances => {
                let distance = entry.try_into().map_or(0, i32::from_le_bytes);
                self.address.wrapping_add_signed(distance.into())
            }
            Entries::Addresses => entry.try_into().map_or(0, u64::from_le_bytes),
        }
    }
}

/// What the entries of a [`JumpTable`] are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entries {
    /// Signed distances of 4 bytes from the table's address.
    Distances,
    /// Addresses of 8 bytes.
    Addresses,
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

/// Addresses of tables take so many bits; the rest of the payload is the greatest index.
const TABLE_BITS: u32 = 47;
const NO_LAST: u64 = (1 << (PAYLOAD_BITS - TABLE_BITS)) - 1;

/// Numbers of bases are those of instructions. Beside that of an instruction, this says that what an index held then is named.
pub(crate) const INDEX: u32 = 1 << 25;

/// The address of the slot that is found by such an index.
pub(crate) const INDEXED: u32 = 2 << 25;

/// An address of which nothing else is known: it may be one that has another name, too.
pub(crate) const ANYWHERE: u32 = 3 << 25;

const fn tagged(tag: u64, payload: u64) -> Value {
    Value(tag << PAYLOAD_BITS | payload)
}

impl Value {
    /// Nothing is known.
    pub const UNKNOWN: Value = Value(0);
    /// Computed since entry; not an entry value but by chance.
    pub const FRESH: Value = tagged(FRESH, 0);

    /// A computed value that is at most `limit`.
    #[must_use]
    pub fn at_most(limit: u64) -> Value {
        match u16::try_from(limit) {
            Ok(limit) => tagged(AT_MOST, limit.into()),
            Err(_) => Value::FRESH,
        }
    }

    /// A number; [`Value::FRESH`] for the few that no code address or frame size is.
    #[must_use]
    pub fn constant(number: u64) -> Value {
        let payload = number & ((1 << PAYLOAD_BITS) - 1);
        let value = tagged(CONSTANT, payload);
        match value.as_constant() == Some(number) {
            true => value,
            false => Value::FRESH,
        }
    }

    /// What `register` held at entry, plus `offset`.
    #[must_use]
    pub fn entry(register: Register, offset: i32) -> Value {
        let register = u64::from(register.0 & 0xff);
        tagged(ENTRY, register << 32 | u64::from(offset.cast_unsigned()))
    }

    /// What the register of that number held at entry.
    #[must_use]
    pub fn at_entry(register: u8) -> Value {
        Value::entry(Register(register.into()), 0)
    }

    /// How far behind the return address it is, in bytes, `register` standing for that: not at all, mostly. There are callees that come back behind data that is behind
    /// the call.
    #[must_use]
    pub fn behind_return(self, register: u8) -> Option<u16> {
        match self.known() {
            Known::Entry(origin, bytes) if origin.0 == register.into() => u16::try_from(bytes)
                .ok()
                .filter(|bytes| *bytes <= MOST_SKIPPED),
            _ => None,
        }
    }

    /// The stack pointer after instruction `at`, plus `offset`.
    #[must_use]
    pub fn base(at: u32, offset: i32) -> Value {
        let at = u64::from(at & 0x0fff_ffff);
        tagged(BASE, at << 32 | u64::from(offset.cast_unsigned()))
    }

    /// An entry of a table of distances.
    #[must_use]
    pub fn distance(table: u64, last: Option<u16>) -> Value {
        with_table(DISTANCE, table, last)
    }

    /// A target out of a table.
    #[must_use]
    pub fn target(table: JumpTable) -> Value {
        let tag = match table.entries {
            Entries::Distances => TARGET_BY_DISTANCE,
            Entries::Addresses => TARGET_BY_ADDRESS,
        };
        with_table(tag, table.address, table.last)
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

    /// The number, of a constant.
    #[must_use]
    #[inline]
    pub fn as_constant(self) -> Option<u64> {
        let sign_extended = (self.0 << TAG_BITS).cast_signed() >> TAG_BITS;
        (self.tag() == CONSTANT).then_some(sign_extended.cast_unsigned())
    }

    /// What it says.
    #[must_use]
    #[inline]
    pub fn known(self) -> Known {
        match self.tag() {
            FRESH => Known::Fresh,
            AT_MOST => Known::AtMost(u16::try_from(self.payload()).unwrap_or(u16::MAX)),
            CONSTANT => Known::Constant(self.as_constant().unwrap_or_default()),
            ENTRY => Known::Entry(
                Register(u16::try_from(self.payload() >> 32).unwrap_or_default()),
                self.low(),
            ),
            BASE => Known::Base(
                u32::try_from(self.payload() >> 32).unwrap_or_default(),
                self.low(),
            ),
            DISTANCE => {
                let JumpTable { address, last, .. } = self.table(Entries::Distances);
                Known::Distance {
                    table: address,
                    last,
                }
            }
            TARGET_BY_DISTANCE => Known::Target(self.table(Entries::Distances)),
            TARGET_BY_ADDRESS => Known::Target(self.table(Entries::Addresses)),
            _ => Known::Unknown,
        }
    }

    fn table(self, entries: Entries) -> JumpTable {
        let last = self.payload() >> TABLE_BITS;
        JumpTable {
            address: self.payload() & ((1 << TABLE_BITS) - 1),
            last: (last != NO_LAST)
                .then(|| u16::try_from(last).ok())
                .flatten(),
            entries,
        }
    }

    /// Whether it is an address relative to a known one: what may be added to, and what slots lie at.
    #[must_use]
    #[inline]
    pub fn is_address(self) -> bool {
        matches!(self.tag(), ENTRY | BASE)
    }

    /// The offset of [`Known::Entry`] or [`Known::Base`], if both are of the same origin: how far `self` is
    /// above `other`, in bytes.
    #[must_use]
    #[inline]
    pub fn distance_from(self, other: Value) -> Option<i64> {
        let same = self.is_address() && self.0 >> 32 == other.0 >> 32;
        same.then(|| i64::from(self.low()) - i64::from(other.low()))
    }

    /// Whether an address is so many bytes above another one.
    #[inline]
    pub(crate) fn is_within(self, other: Value, bytes: Range<i64>) -> bool {
        self.has_origin_of(other)
            && bytes.contains(&(i64::from(self.low()) - i64::from(other.low())))
    }

    /// Whether it is below an address.
    #[inline]
    pub(crate) fn is_below(self, other: Value) -> bool {
        self.has_origin_of(other) && self.low() < other.low()
    }

    /// Whether it is an address that is only known at run time.
    #[inline]
    pub(crate) fn is_base(self) -> bool {
        self.tag() == BASE
    }

    /// Whether it is relative to the same entry value, or address of run time, as an address.
    #[inline]
    pub(crate) fn has_origin_of(self, address: Value) -> bool {
        self.0 >> 32 == address.0 >> 32
    }

    /// The offset of an address.
    #[inline]
    pub(crate) fn offset(self) -> i32 {
        self.low()
    }

    /// The bits in which two differ.
    #[inline]
    pub(crate) fn difference(self, other: Value) -> u64 {
        self.0 ^ other.0
    }

    /// The register and the offset of [`Known::Entry`].
    #[inline]
    pub(crate) fn as_entry(self) -> Option<(u8, i32)> {
        let [.., register, _, _, _] = self.0.to_le_bytes();
        (self.tag() == ENTRY).then_some((register, self.low()))
    }

    /// The number of the instruction that it is a [`Known::Base`] of.
    #[must_use]
    #[inline]
    pub(crate) fn base_of(self) -> Option<u32> {
        let at = u32::try_from(self.payload() >> 32).unwrap_or_default();
        (self.tag() == BASE).then_some(at)
    }

    /// Whether it was read at a fixed address, where somebody may have kept it.
    #[must_use]
    #[inline]
    pub fn is_read_at_fixed_address(self) -> bool {
        self.tag() == TARGET_BY_ADDRESS
    }

    /// Whether it is relative to what the stack pointer was: where it was moved to, nothing of the caller's is below.
    #[inline]
    pub(crate) fn is_moved_stack(self) -> bool {
        self.base_of().is_some_and(|at| at & ANYWHERE == 0)
    }

    /// Whether it is relative to an address of which nothing is known: it may be the same as one that has another origin.
    #[must_use]
    #[inline]
    pub fn is_anywhere(self) -> bool {
        self.base_of().is_some_and(|at| at & ANYWHERE == ANYWHERE)
    }

    /// It plus `bytes`.
    #[must_use]
    #[inline]
    pub fn plus(self, bytes: i64) -> Value {
        if bytes == 0 {
            return self;
        }
        match self.tag() {
            ENTRY | BASE => {
                let sum = i64::from(self.low()).checked_add(bytes);
                match sum.map(i32::try_from) {
                    Some(Ok(sum)) => Value(self.0 & !0xffff_ffff | u64::from(sum.cast_unsigned())),
                    _ => Value::UNKNOWN,
                }
            }
            CONSTANT => {
                let number = self.as_constant().unwrap_or_default();
                Value::constant(number.wrapping_add_signed(bytes))
            }
            0 => Value::UNKNOWN,
            _ => Value::FRESH,
        }
    }

    /// What is known of a value that is one of these two.
    #[must_use]
    #[inline]
    pub fn join(self, other: Value) -> Value {
        if self == other {
            return self;
        }
        match self.may_be_entry() || other.may_be_entry() {
            true => Value::UNKNOWN,
            false => Value::FRESH,
        }
    }

    /// Makes it [`Value::join`] of it and another; whether that changed it.
    #[inline]
    pub(crate) fn meet(&mut self, other: Value) -> bool {
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

fn with_table(tag: u64, address: u64, last: Option<u16>) -> Value {
    if address >> TABLE_BITS != 0 {
        return Value::FRESH;
    }
    let last = last.map_or(NO_LAST, |last| u64::from(last).min(NO_LAST));
    tagged(tag, last << TABLE_BITS | address)
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.known().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_say_what_was_put_in() {
        let table = JumpTable {
            address: 0x7fff_1234_5678,
            last: Some(17),
            entries: Entries::Addresses,
        };
        let cases = [
            (Value::UNKNOWN, Known::Unknown),
            (Value::FRESH, Known::Fresh),
            (Value::at_most(255), Known::AtMost(255)),
            (Value::at_most(1 << 20), Known::Fresh),
            (Value::constant(0x401000), Known::Constant(0x401000)),
            (Value::constant(u64::MAX), Known::Constant(u64::MAX)),
            (
                Value::constant(0xffff_ffff_8100_0000),
                Known::Constant(0xffff_ffff_8100_0000),
            ),
            (Value::constant(1 << 62), Known::Fresh),
            (
                Value::entry(Register(7), -136),
                Known::Entry(Register(7), -136),
            ),
            (
                Value::base(0x0abc_def0, i32::MAX),
                Known::Base(0x0abc_def0, i32::MAX),
            ),
            (Value::target(table), Known::Target(table)),
            (
                Value::distance(0x2000, None),
                Known::Distance {
                    table: 0x2000,
                    last: None,
                },
            ),
        ];
        for (value, known) in cases {
            assert_eq!(value.known(), known);
        }
    }

    #[test]
    fn sums_stay_what_they_are_relative_to() {
        let sp = Value::entry(Register(7), 0);
        assert_eq!(sp.plus(-8).plus(8), sp);
        assert_eq!(sp.plus(-8).distance_from(sp), Some(-8));
        assert_eq!(sp.distance_from(Value::entry(Register(6), 0)), None);
        assert_eq!(sp.plus(i64::MAX), Value::UNKNOWN);
        assert_eq!(Value::constant(8).plus(-9), Value::constant(u64::MAX));
        assert_eq!(Value::UNKNOWN.plus(1), Value::UNKNOWN);
        assert_eq!(Value::at_most(3).plus(1), Value::FRESH);
        assert_eq!(Value::base(1, 4).distance_from(Value::base(2, 4)), None);
    }

    #[test]
    fn joins_go_down_and_stay_there() {
        let all = [
            Value::UNKNOWN,
            Value::FRESH,
            Value::at_most(3),
            Value::constant(3),
            Value::entry(Register(3), 0),
            Value::base(9, 0),
            Value::distance(64, Some(3)),
        ];
        for a in all {
            for b in all {
                let joined = a.join(b);
                assert_eq!(joined, b.join(a));
                // Joining again changes nothing: a fixpoint is reached.
                assert_eq!(joined.join(a), joined);
                assert_eq!(joined.join(b), joined);
                let is_overwritten = joined == Value::FRESH;
                // An entry value is never taken for an overwritten one.
                assert!(!(is_overwritten && (a.is_address() || b.is_address())));
            }
        }
    }
}
