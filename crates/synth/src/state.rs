//! What registers and stack slots hold at one place of the code.

use crate::op::{MEMORY, STORED, bits};
use crate::value::{ANYWHERE, INDEX, INDEXED, Value};

/// The most registers that an architecture can have here.
pub const REGISTERS: usize = 18;

/// The set of them: bit n stands for register n.
const ALL_REGISTERS: u64 = (1 << REGISTERS) - 1;

/// A register that no machine has: where operations keep what they still need.
pub const SCRATCH: u8 = 17;

/// How many slots are kept apart; what is saved beyond them is not known.
const SLOTS: usize = 24;

/// A slot of 8 bytes on the stack, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Its address: relative to an entry value, or to a stack pointer of run time.
    pub at: Value,
    /// What it holds.
    pub holds: Value,
}

/// Where a slot is whose address is only known by what a register holds: so many bytes above a place of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indexed {
    /// The place.
    pub base: Value,
    /// What the register holds. The slot is 8 times as much above the place.
    pub index: Value,
    /// The slot's address: what it is called in [`Slot::at`].
    pub at: Value,
}

impl Indexed {
    /// The address 8 times an index above a place, if it can be told from the slot's.
    pub(crate) fn address(self, base: Value, index: Value) -> Option<Value> {
        let distance = base.distance_from(self.base)?;
        (index == self.index).then(|| self.at.plus(distance))
    }

    /// Whether an index is the slot's, from a place of the same stack.
    pub(crate) fn is_found_by(self, base: Value, index: Value) -> bool {
        base.distance_from(self.base).is_some() && index == self.index
    }

    /// Whether some of the bytes at an address may be the slot's. Indices are at least 0.
    fn may_be_within(self, at: Value, size: i64) -> bool {
        let above = at.distance_from(self.base);
        above.is_some_and(|above| above + size > 0)
    }
}

/// What an address of run time is, if the stack pointer was aligned there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aligned {
    /// The address.
    pub at: Value,
    /// What it is the next lower multiple of, or itself.
    pub of: Value,
    /// The number that it is a multiple of: a power of 2.
    pub multiple: u32,
}

const EMPTY: Slot = Slot {
    at: Value::UNKNOWN,
    holds: Value::UNKNOWN,
};

/// What registers and stack slots hold before an instruction, whichever path led there.
#[derive(Debug, Clone)]
pub struct State {
    registers: [Value; REGISTERS],
    /// The registers of which something may be known: bit n stands for register n. Of the others nothing is.
    known: u64,
    slots: [Slot; SLOTS],
    len: u8,
    /// The first so many slots hold nothing that a call takes away, as [`State::lose_taken`] found.
    kept: u8,
    /// Where slots may be: [`words_of`] each, whatever its address is relative to.
    words: u64,
    /// What was written since [`State::settle`].
    written: u64,
    /// Whether an entry value may be in a slot that is not among these: it was stored nobody knows where, or
    /// there was no room.
    hides: bool,
    /// The slot that is found by an index.
    indexed: Option<Indexed>,
    /// Where the stack pointer was aligned last.
    aligned: Option<Aligned>,
    /// Whether strings may be written towards lower addresses.
    is_down: bool,
    /// Whether something was stored since [`State::assign`] of which it is assumed that it is inside its array.
    assumes_bounds: bool,
}

impl State {
    /// The state in which every register holds what it held at entry, and no slot is known.
    #[must_use]
    pub fn new() -> State {
        let mut registers = [Value::UNKNOWN; REGISTERS];
        for (number, value) in (0..).zip(&mut registers) {
            *value = Value::at_entry(number);
        }
        State {
            registers,
            known: ALL_REGISTERS,
            slots: [EMPTY; SLOTS],
            len: 0,
            kept: 0,
            words: 0,
            written: 0,
            hides: false,
            indexed: None,
            aligned: None,
            is_down: false,
            assumes_bounds: false,
        }
    }

    /// What a register holds.
    #[must_use]
    #[inline]
    pub fn get(&self, register: u8) -> Value {
        let value = self.registers.get(usize::from(register));
        value.copied().unwrap_or(Value::UNKNOWN)
    }

    /// Has a register hold something else.
    #[inline]
    pub fn set(&mut self, register: u8, value: Value) {
        if let Some(old) = self.registers.get_mut(usize::from(register)) {
            // Two that are unknown need not be the same.
            let is_other = *old != value || value == Value::UNKNOWN;
            self.written |= u64::from(is_other) << (register & 63);
            self.known |= 1 << (register & 63);
            *old = value;
        }
    }

    /// The slots of which something is known.
    #[must_use]
    #[inline]
    pub fn slots(&self) -> &[Slot] {
        self.slots.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Whether a slot is below an address.
    #[must_use]
    #[inline]
    pub fn has_below(&self, at: Value) -> bool {
        // Looking at all is faster than stopping early: mostly there is none.
        let below = self.slots().iter().map(|slot| slot.at.is_below(at));
        at.is_address() && below.fold(false, |any, is_below| any | is_below)
    }

    /// What the 8 bytes at an address hold, if that is known; `None` if no entry value was stored there.
    #[must_use]
    #[inline]
    pub fn load(&self, at: Value) -> Option<Value> {
        let known = match self.words & words_of(at, 1) {
            0 => None,
            _ => self.slots().iter().find(|slot| slot.at == at),
        };
        match known {
            Some(slot) => Some(slot.holds),
            None => self.hides.then_some(Value::UNKNOWN),
        }
    }

    /// Has the 8 bytes at an address hold something.
    #[inline]
    pub fn store(&mut self, at: Value, holds: Value) {
        self.lose_named_otherwise(at, 8);
        self.put(at, holds);
    }

    /// Has the 8 bytes at an address hold something that a program has stored into an array: what is saved is not there.
    #[inline]
    pub(crate) fn put(&mut self, at: Value, holds: Value) {
        self.clear(at, 8);
        // Wherever something is hidden, it is not here.
        if holds != Value::FRESH || self.hides {
            self.push(Slot { at, holds });
        }
    }

    fn push(&mut self, slot: Slot) {
        match self.slots.get_mut(usize::from(self.len)) {
            Some(place) => {
                *place = slot;
                self.len += 1;
                self.words |= words_of(slot.at, 8);
                self.written |= STORED;
            }
            None => self.hides = true,
        }
    }

    /// Whether an entry value may be in a slot that is not among [`State::slots`].
    #[must_use]
    pub fn hides(&self) -> bool {
        self.hides
    }

    /// The slot whose address is only known by what a register holds. One is kept.
    #[must_use]
    #[inline]
    pub fn indexed(&self) -> Option<Indexed> {
        self.indexed
    }

    /// What the address is that the stack pointer was aligned to last, if the paths agree on that.
    #[must_use]
    pub fn aligned(&self) -> Option<Aligned> {
        self.aligned
    }

    /// Has a register hold the next lower multiple of a number, by instruction `at`.
    pub(crate) fn align(&mut self, register: u8, multiple: u32, at: u32) {
        let of = self.get(register);
        self.rebase(register, at);
        let is_other = of.is_address() && of.base_of() != Some(at);
        self.aligned = is_other.then(|| Aligned {
            at: self.get(register),
            of,
            multiple,
        });
    }

    /// Has a register hold an address of which nothing is known, which has a name from then on, given by instruction `at`.
    pub(crate) fn name(&mut self, register: u8, at: u32) {
        if at < INDEX {
            self.rebase(register, at | ANYWHERE);
        }
    }

    /// Has the 8 bytes hold something that are 8 times what register `index` holds above `base`, by instruction `at`. A number
    /// that was computed has a name from then on, by which the register is known to hold it still.
    pub(crate) fn store_indexed(&mut self, base: Value, index: u8, holds: Value, at: u32) {
        self.forget_indexed();
        if at >= INDEX {
            return self.hide();
        }
        if !self.get(index).is_address() {
            self.rebase(index, at | INDEX);
        }
        let slot = Indexed {
            base,
            index: self.get(index),
            at: Value::base(at | INDEXED, 0),
        };
        self.store(slot.at, holds);
        self.indexed = Some(slot);
    }

    /// Forgets the slot that is found by an index.
    #[inline]
    pub(crate) fn forget_indexed(&mut self) {
        if let Some(slot) = self.indexed.take()
            && let Some(at) = slot.at.base_of()
        {
            self.forget_base(at);
        }
    }

    /// Whether strings may be written towards lower addresses.
    pub(crate) fn is_down(&self) -> bool {
        self.is_down
    }

    /// Has strings be written towards lower addresses, or not.
    pub(crate) fn set_direction(&mut self, is_down: bool) {
        self.is_down = is_down;
    }

    /// Notes that something is stored on the stack of which it is assumed that it is inside its array.
    pub(crate) fn assume_bounds(&mut self) {
        self.assumes_bounds = true;
    }

    /// Whether something was stored since [`State::assign`] of which that is assumed.
    #[must_use]
    pub fn assumes_bounds(&self) -> bool {
        self.assumes_bounds
    }

    /// An entry value is stored, and nobody knows where.
    pub fn hide(&mut self) {
        self.hides = true;
    }

    /// Has `size` bytes at an address hold something that is no entry value.
    #[inline]
    pub fn overwrite(&mut self, at: Value, size: i64) {
        self.lose_named_otherwise(at, size);
        match size {
            8 => self.put(at, Value::FRESH),
            _ => self.clear(at, size),
        }
    }

    /// Has what `size` bytes at an address are a part of hold nobody knows what: they are something else, or what they were.
    #[inline(never)]
    pub(crate) fn overwrite_perhaps(&mut self, at: Value, size: i64) {
        self.lose_named_otherwise(at, size);
        self.lose_where(|slot| slot.at.is_within(at, 1 - 8..size));
    }

    /// The same where only a run knows how much of an array is written, or in which the place is known by a number that a register holds. On the other side of where
    /// the stack pointer was aligned, an array is assumed not to reach.
    #[inline(never)]
    pub(crate) fn overwrite_in_array(&mut self, at: Value, size: i64) {
        let across = self.aligned.and_then(|known| across(known, at, size));
        self.assumes_bounds |= across.is_some_and(|(lowest, size)| {
            let mut slots = self.slots().iter();
            slots.any(|slot| slot.at.is_within(lowest, 1 - 8..size))
        });
        self.lose_where(|slot| slot.at.is_within(at, 1 - 8..size));
    }

    /// Has all that is known relative to what an address is relative to be something else, or what it was.
    #[inline(never)]
    pub(crate) fn overwrite_around(&mut self, at: Value) {
        if at.is_address() {
            self.forget_indexed();
            let is_near = |other: Value| other.has_origin_of(at);
            let is_aligned = self
                .aligned
                .is_some_and(|it| is_near(it.at) || is_near(it.of));
            self.lose_where(|slot| is_aligned || is_near(slot.at));
        }
    }

    /// Has all slots below an address hold nobody knows what.
    pub(crate) fn lose_below(&mut self, at: Value) {
        self.lose_where(|slot| slot.at.is_below(at));
    }

    /// Has slots hold nobody knows what.
    fn lose_where(&mut self, is_lost: impl Fn(&Slot) -> bool) {
        let used = usize::from(self.len);
        for slot in self.slots.iter_mut().take(used) {
            if is_lost(slot) && slot.holds != Value::UNKNOWN {
                slot.holds = Value::UNKNOWN;
                self.written |= MEMORY;
            }
        }
    }

    /// Whether some of the `size` bytes at an address are of a slot whose contents pass.
    #[inline]
    pub(crate) fn has_within(&self, at: Value, size: i64, passes: impl Fn(Value) -> bool) -> bool {
        let is_there = |slot: &Slot| slot.at.is_within(at, 1 - 8..size) && passes(slot.holds);
        at.is_address() && self.words & words_of(at, size) != 0 && self.slots().iter().any(is_there)
    }

    /// Forgets what may be where `size` bytes at an address are and has another name: the slot that is found by an index, and those on the
    /// other side of where the stack pointer was aligned.
    #[inline]
    fn lose_named_otherwise(&mut self, at: Value, size: i64) {
        self.lose_indexed(at, size);
        if let Some(known) = self.aligned
            && let Some((lowest, size)) = across(known, at, size)
        {
            self.lose_where(|slot| slot.at.is_within(lowest, 1 - 8..size));
        }
    }

    /// Forgets the slot that is found by an index, if it may be where `size` bytes at an address are.
    #[inline]
    pub(crate) fn lose_indexed(&mut self, at: Value, size: i64) {
        if let Some(slot) = self.indexed
            && slot.may_be_within(at, size)
        {
            self.forget_indexed();
        }
    }

    /// Forgets what `size` bytes at an address held.
    #[inline]
    fn clear(&mut self, at: Value, size: i64) {
        if self.words & words_of(at, size) != 0 {
            let is_gone = |slot: &Slot| slot.at.is_within(at, 1 - 8..size);
            // What was saved twice may have a name that counts from where the stack pointer was aligned, too.
            let saved = (self.slots().iter()).find(|slot| is_gone(slot) && slot.holds.is_address());
            let twin = saved.map(|slot| slot.holds);
            self.retain(|slot| {
                let is_twin = || Some(slot.holds) == twin && slot.at.is_base() && !at.is_base();
                !is_gone(slot) && !is_twin()
            });
        }
    }

    /// Has slots whose contents pass `is_taken` hold nobody knows what, as calls do: what passes must be an address. It is
    /// asked once of each.
    #[inline]
    pub(crate) fn lose_taken(&mut self, is_taken: impl Fn(&State, Value) -> bool) {
        if self.kept < self.len {
            self.lose(self.kept, is_taken);
            self.kept = self.len;
        }
    }

    /// Has slots whose contents pass `is_lost` hold nobody knows what.
    pub(crate) fn lose_all(&mut self, is_lost: impl Fn(&State, Value) -> bool) {
        self.lose(0, is_lost);
    }

    /// Has slots from the one at place `first` on whose contents pass `is_lost` hold nobody knows what.
    fn lose(&mut self, first: u8, is_lost: impl Fn(&State, Value) -> bool) {
        for index in usize::from(first)..usize::from(self.len) {
            let holds = (self.slots.get(index)).map_or(Value::UNKNOWN, |slot| slot.holds);
            if holds != Value::UNKNOWN
                && is_lost(self, holds)
                && let Some(slot) = self.slots.get_mut(index)
            {
                slot.holds = Value::UNKNOWN;
                self.written |= MEMORY;
            }
        }
    }

    /// Forgets what registers hold: bit n stands for register n.
    pub(crate) fn forget(&mut self, registers: u64) {
        self.written |= registers;
        self.known &= !registers;
        for register in bits(registers) {
            if let Some(value) = self.registers.get_mut(usize::from(register)) {
                *value = Value::UNKNOWN;
            }
        }
    }

    /// Forgets all slots below an address: the callee of a call may overwrite them.
    pub fn forget_below(&mut self, at: Value) {
        if self.has_below(at) {
            self.retain(|slot| !slot.at.is_below(at));
        }
    }

    /// Has a register hold an address that is only known at run time, after instruction `at`.
    #[inline(never)]
    pub(crate) fn rebase(&mut self, register: u8, at: u32) {
        self.forget_base(at);
        self.set(register, Value::base(at, 0));
    }

    /// Forgets what is relative to the stack pointer after instruction `at`: it has another one now.
    pub fn forget_base(&mut self, at: u32) {
        let is_counted = |slot: Indexed| {
            let counted = [slot.base, slot.index].map(Value::base_of);
            counted.contains(&Some(at))
        };
        if self.indexed.is_some_and(is_counted) {
            self.forget_indexed();
        }
        let is_aligned =
            |known: Aligned| [known.at, known.of].map(Value::base_of).contains(&Some(at));
        if self.aligned.is_some_and(is_aligned) {
            self.aligned = None;
        }
        for value in &mut self.registers {
            if value.base_of() == Some(at) {
                *value = Value::UNKNOWN;
                self.written = u64::MAX;
            }
        }
        let hidden = self
            .slots()
            .iter()
            .any(|slot| slot.at.base_of() == Some(at) && slot.holds.is_address());
        self.hides |= hidden;
        self.retain(|slot| slot.at.base_of() != Some(at));
        self.lose(0, |_, holds| holds.base_of() == Some(at));
    }

    /// Has what is relative to the run-time address that a register holds be relative to another one, `base`,
    /// which that register holds then: the same is said of some address, which has another name. The name may be that of an address so far away.
    pub fn rename_base(&mut self, register: u8, base: u32) {
        let old = self.get(register);
        let Some(from) = old.base_of() else { return };
        if from == base && old.offset() == 0 {
            return;
        }
        if from != base {
            self.forget_base(base);
        }
        let renamed = |value: Value| match value.distance_from(old) {
            Some(distance) => Value::base(base, 0).plus(distance),
            None => value,
        };
        self.written = u64::MAX;
        for value in &mut self.registers {
            *value = renamed(*value);
        }
        if let Some(slot) = &mut self.indexed {
            slot.base = renamed(slot.base);
        }
        if let Some(known) = &mut self.aligned {
            known.at = renamed(known.at);
            known.of = renamed(known.of);
        }
        let used = usize::from(self.len);
        for slot in self.slots.iter_mut().take(used) {
            slot.at = renamed(slot.at);
            slot.holds = renamed(slot.holds);
        }
        self.find_words();
    }

    /// Forgets slots relative to a base that another state has not: they may be anything.
    pub fn forget_slots_but(&mut self, base: u32, other: &State) {
        let is_lost = |slot: &Slot| {
            slot.at.base_of() == Some(base) && !other.slots().iter().any(|its| its.at == slot.at)
        };
        let mut lost = self.slots().iter().filter(|slot| is_lost(slot));
        self.hides |= lost.any(|slot| slot.holds.is_address());
        self.retain(|slot| !is_lost(slot));
    }

    /// Finds [`State::words`] anew, where slots have gone or moved.
    fn find_words(&mut self) {
        let words = self.slots().iter().map(|slot| words_of(slot.at, 8));
        self.words = words.fold(0, |all, words| all | words);
    }

    #[inline]
    fn retain(&mut self, keep: impl Fn(&Slot) -> bool) {
        let gone = self.slots().iter().position(|slot| !keep(slot));
        let Some(first) = gone else {
            return;
        };
        let mut kept = first;
        let mut not_taken = self.kept;
        if first < usize::from(self.kept) {
            not_taken -= 1;
        }
        for index in first + 1..usize::from(self.len) {
            let Some(slot) = self.slots.get(index).copied() else {
                break;
            };
            if keep(&slot) {
                if let Some(place) = self.slots.get_mut(kept) {
                    *place = slot;
                }
                kept += 1;
            } else if index < usize::from(self.kept) {
                not_taken -= 1;
            }
        }
        self.len = u8::try_from(kept).unwrap_or(self.len);
        self.kept = not_taken;
        self.find_words();
        self.written |= MEMORY;
    }

    /// What was written since the last time that this was asked, as [`crate::op::Op::written`] has it; memory
    /// only if a slot of which something was known is another, and [`STORED`] if something is known of one of which nothing was.
    #[inline]
    pub fn settle(&mut self) -> u64 {
        core::mem::take(&mut self.written)
    }

    /// Whether one of these was written since, or all may be others.
    #[inline]
    pub(crate) fn is_written(&self, watched: u64) -> bool {
        self.written & watched != 0
    }

    /// All may be others than before.
    pub(crate) fn touch(&mut self) {
        self.written = u64::MAX;
    }

    /// Takes in a state that holds at the same place on another path; whether that changed anything.
    pub fn join(&mut self, other: &State) -> bool {
        let mut changed = false;
        for register in bits(self.known) {
            let theirs = other.get(register);
            if let Some(mine) = self.registers.get_mut(usize::from(register)) {
                changed |= mine.meet(theirs);
            }
        }
        if self.hides != other.hides {
            changed |= !self.hides;
            self.hides = true;
        }
        if (self.indexed.is_some() | other.indexed.is_some()) && self.indexed != other.indexed {
            changed |= self.indexed.is_some();
            self.forget_indexed();
        }
        changed |= other.is_down && !self.is_down;
        self.is_down |= other.is_down;
        if self.aligned.is_some() && self.aligned != other.aligned {
            changed = true;
            self.aligned = None;
        }
        self.join_slots(other) || changed
    }

    /// What is in a slot on one path only is in it perhaps.
    fn join_slots(&mut self, other: &State) -> bool {
        if self.has_slots_of(other) {
            return false;
        }
        let both = self.slots().iter().zip(other.slots());
        let same = both.take_while(|(mine, theirs)| mine == theirs).count();
        let used = usize::from(self.len);
        let others = other.slots().get(same..).unwrap_or_default();
        let mut changed = false;
        let elsewhere = match other.hides {
            true => Value::UNKNOWN,
            false => Value::FRESH,
        };
        // Paths that meet mostly saved the same in the same order.
        let mut ahead = others;
        let mut met = 0;
        for slot in self.slots.iter_mut().take(used).skip(same) {
            let is_at = |theirs: &Slot| theirs.at == slot.at;
            if !ahead.first().is_some_and(is_at) {
                let place = others.iter().position(is_at);
                ahead = place.map_or(ahead, |place| others.get(place..).unwrap_or_default());
            }
            let mut theirs = elsewhere;
            if let Some((first, rest)) = ahead.split_first()
                && is_at(first)
            {
                theirs = first.holds;
                ahead = rest;
                met += 1;
            }
            changed |= slot.holds.meet(theirs);
        }
        // What is not among these is unknown already if it may be hidden.
        let has_more = met != others.len() && !self.hides;
        changed | (has_more && self.join_others(same, others))
    }

    /// Whether all slots are those of another state, in the same order. They mostly are, and looking at all of both is faster
    /// than stopping early.
    fn has_slots_of(&self, other: &State) -> bool {
        let both = self.slots().iter().zip(other.slots());
        let differences = both.map(|(mine, theirs)| {
            mine.at.difference(theirs.at) | mine.holds.difference(theirs.holds)
        });
        self.len == other.len && differences.fold(0, |all, difference| all | difference) == 0
    }

    /// Takes in those slots of another path that are none here, behind the first ones, which are the same.
    fn join_others(&mut self, same: usize, others: &[Slot]) -> bool {
        let before = (self.len, self.hides);
        for theirs in others {
            let mut mine = self.slots().iter().skip(same);
            if mine.all(|slot| slot.at != theirs.at) {
                self.push(Slot {
                    at: theirs.at,
                    holds: theirs.holds.join(Value::FRESH),
                });
            }
        }
        before != (self.len, self.hides)
    }

    /// Makes this state equal to another; copies only what there is.
    #[inline]
    pub fn assign(&mut self, other: &State) {
        self.registers = other.registers;
        self.known = other.known;
        let used = usize::from(other.len);
        if let (Some(mine), Some(theirs)) = (self.slots.get_mut(..used), other.slots.get(..used)) {
            mine.copy_from_slice(theirs);
        }
        self.len = other.len;
        self.kept = other.kept;
        self.words = other.words;
        self.written = 0;
        self.hides = other.hides;
        self.indexed = other.indexed;
        self.aligned = other.aligned;
        self.is_down = other.is_down;
        self.assumes_bounds = false;
    }
}

/// Where `size` bytes at an address may be, counted from the other side of an alignment; and how many bytes they are somewhere within.
fn across(known: Aligned, at: Value, size: i64) -> Option<(Value, i64)> {
    // What is so far above the aligned address is that far above the other one, or less.
    let less = i64::from(known.multiple) - 1;
    let lowest = match (at.distance_from(known.at), at.distance_from(known.of)) {
        (Some(above), _) => known.of.plus(above - less),
        (None, Some(above)) => known.at.plus(above),
        (None, None) => return None,
    };
    Some((lowest, size + less))
}

/// Which of the words are written, counted modulo 64 and from whatever the address is relative to, if `size` bytes are:
/// bit n stands for word n. What has none in common with something else of the same base does not overlap it.
#[inline]
fn words_of(at: Value, size: i64) -> u64 {
    let first = i64::from(at.offset()) >> 3;
    let last = (i64::from(at.offset()) + size - 1) >> 3;
    let others = u32::try_from(last - first).unwrap_or(0);
    let words = match others {
        0..63 => (2_u64 << others) - 1,
        63.. => u64::MAX,
    };
    let turn = u32::try_from(first & 63).unwrap_or(0);
    words.rotate_left(turn)
}

impl Default for State {
    fn default() -> Self {
        State::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_over_is_gone_and_nothing_else() {
        let sp = Value::at_entry(7);
        let holds = Value::at_entry(3);
        for (slot, at) in (-20..20).flat_map(|slot| (-600..600).map(move |at| (slot, at))) {
            for size in [1, 2, 4, 8, 16, 64, 520] {
                let mut state = State::new();
                state.store(sp.plus(slot), holds);
                state.overwrite(sp.plus(at), size);
                let has_common_bytes = slot < at + size && at < slot + 8;
                let left = (!has_common_bytes).then_some(holds);
                assert_eq!(
                    state.load(sp.plus(slot)),
                    left,
                    "{slot}: {size} bytes at {at}"
                );
            }
        }
    }

    #[test]
    fn what_is_stored_is_what_is_there() {
        let at = Value::at_entry(7).plus(-16);
        let mut state = State::new();
        state.hide();
        for holds in [Value::at_entry(3), Value::FRESH, Value::at_entry(6)] {
            state.store(at, holds);
            assert_eq!(state.load(at), Some(holds));
        }
        state.overwrite(at, 8);
        assert_eq!(state.load(at), Some(Value::FRESH));
    }

    #[test]
    fn slots_are_taken_away_whenever_they_came() {
        let sp = Value::at_entry(7);
        let is_taken = |_: &State, holds: Value| holds == sp;
        let mut state = State::new();
        for (at, gone) in [(-8, -16), (-24, -8), (-32, -24)] {
            state.store(sp.plus(at), sp);
            state.lose_taken(is_taken);
            state.overwrite(sp.plus(gone), 8);
            state.store(sp.plus(-40), sp);
            state.lose_taken(is_taken);
            let mut slots = state.slots().iter();
            assert!(slots.all(|slot| slot.holds == Value::UNKNOWN));
        }
    }
}
