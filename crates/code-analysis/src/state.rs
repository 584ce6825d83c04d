//! Contents of registers and stack slots before one instruction.

use crate::op::{MEMORY_BIT, NEW_SLOT_BIT, bits};
use crate::value::{AbstractValue, INDEX_BASE_BIT, INDEXED_SLOT_BASE_BIT, UNCONSTRAINED_BASE_BITS};

/// Greatest number of registers of an architecture.
pub const REGISTERS: usize = 18;

/// The set of all registers: bit n stands for register n.
const ALL_REGISTERS: u64 = (1 << REGISTERS) - 1;

/// A register that no architecture has: scratch space for operations.
pub const SCRATCH: u8 = 17;

/// Greatest number of slots; saves beyond it are unknown.
const MAX_SLOTS: usize = 24;

/// An 8-byte stack slot and its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbstractSlot {
    /// Its address: relative to an entry value or to a symbolic base.
    pub address: AbstractValue,
    /// Its contents.
    pub value: AbstractValue,
}

/// A slot at an index that a register holds: 8 times the index above `base`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedSlot {
    /// Where index 0 would be.
    pub base: AbstractValue,
    /// The register's contents, which are the index.
    pub index: AbstractValue,
    /// The slot's address, as in [`AbstractSlot::address`].
    pub address: AbstractValue,
}

impl IndexedSlot {
    /// The address 8 times an index above a base, if it is the slot's.
    pub(crate) fn address(
        self,
        base: AbstractValue,
        index: AbstractValue,
    ) -> Option<AbstractValue> {
        let distance = base.distance_from(self.base)?;
        (index == self.index).then(|| self.address.plus(distance))
    }

    /// Whether an index from a base of the same stack addresses this slot.
    pub(crate) fn is_found_by(self, base: AbstractValue, index: AbstractValue) -> bool {
        base.distance_from(self.base).is_some() && index == self.index
    }

    /// Whether some of the bytes at an address may be the slot's. Indexes are at least 0.
    fn may_be_within(self, at: AbstractValue, size: i64) -> bool {
        let above = at.distance_from(self.base);
        above.is_some_and(|above| above + size > 0)
    }
}

/// How an aligned stack pointer relates to its value before the alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackAlignment {
    /// The aligned address.
    pub aligned: AbstractValue,
    /// The address before; rounded down, it is `aligned`.
    pub original: AbstractValue,
    /// The alignment: a power of 2.
    pub multiple: u32,
}

const EMPTY: AbstractSlot = AbstractSlot {
    address: AbstractValue::UNKNOWN,
    value: AbstractValue::UNKNOWN,
};

/// Contents of registers and stack slots before an instruction, on all paths to it.
#[derive(Debug, Clone)]
pub struct AbstractState {
    registers: [AbstractValue; REGISTERS],
    /// Registers with known contents: bit n stands for register n. All others are unknown.
    tracked_registers: u64,
    slots: [AbstractSlot; MAX_SLOTS],
    len: u8,
    /// Number of first slots that survive a call, as [`AbstractState::invalidate_after_call`]
    /// found.
    call_checked: u8,
    /// Where slots may be: the union of their [`word_mask`]s, for all bases.
    occupied_words: u64,
    /// Write set since [`AbstractState::take_written`].
    written: u64,
    /// Whether a slot that is not among these may have an entry value: its address was unknown, or
    /// there was no room.
    has_escaped: bool,
    /// The slot with an index.
    indexed: Option<IndexedSlot>,
    /// The last stack alignment.
    alignment: Option<StackAlignment>,
    /// Whether string instructions may write towards lower addresses.
    is_down: bool,
    /// Whether a store since [`AbstractState::assign`] was assumed to stay inside its array.
    assumes_bounds: bool,
}

impl AbstractState {
    /// The state in which each register holds its entry value and no slot is known.
    #[must_use]
    pub fn new() -> AbstractState {
        let mut registers = [AbstractValue::UNKNOWN; REGISTERS];
        for (number, value) in (0..).zip(&mut registers) {
            *value = AbstractValue::entry_value(number);
        }
        AbstractState {
            registers,
            tracked_registers: ALL_REGISTERS,
            slots: [EMPTY; MAX_SLOTS],
            len: 0,
            call_checked: 0,
            occupied_words: 0,
            written: 0,
            has_escaped: false,
            indexed: None,
            alignment: None,
            is_down: false,
            assumes_bounds: false,
        }
    }

    /// Contents of a register.
    #[must_use]
    #[inline]
    pub fn get(&self, register: u8) -> AbstractValue {
        let value = self.registers.get(usize::from(register));
        value.copied().unwrap_or(AbstractValue::UNKNOWN)
    }

    /// Sets a register's contents.
    #[inline]
    pub fn set(&mut self, register: u8, value: AbstractValue) {
        if let Some(old) = self.registers.get_mut(usize::from(register)) {
            // Two unknown values may differ.
            let is_other = *old != value || value == AbstractValue::UNKNOWN;
            self.written |= u64::from(is_other) << (register & 63);
            self.tracked_registers |= 1 << (register & 63);
            *old = value;
        }
    }

    /// The slots with known contents.
    #[must_use]
    #[inline]
    pub fn slots(&self) -> &[AbstractSlot] {
        self.slots.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Whether a slot is below an address.
    #[must_use]
    #[inline]
    pub fn has_below(&self, at: AbstractValue) -> bool {
        // Testing all is faster than stopping early: mostly none is below.
        let below = self.slots().iter().map(|slot| slot.address.is_below(at));
        at.is_address() && below.fold(false, |any, is_below| any | is_below)
    }

    /// Contents of the 8 bytes at an address; `None` if no entry value was stored there.
    #[must_use]
    #[inline]
    pub fn load(&self, at: AbstractValue) -> Option<AbstractValue> {
        let known = match self.occupied_words & word_mask(at, 1) {
            0 => None,
            _ => self.slots().iter().find(|slot| slot.address == at),
        };
        match known {
            Some(slot) => Some(slot.value),
            None => self.has_escaped.then_some(AbstractValue::UNKNOWN),
        }
    }

    /// Sets the contents of the 8 bytes at an address.
    #[inline]
    pub fn store(&mut self, at: AbstractValue, holds: AbstractValue) {
        self.invalidate_aliases(at, 8);
        self.store_into_array(at, holds);
    }

    /// Sets the contents of the 8 bytes at an address, stored into a program's array. Saved
    /// registers are not there.
    #[inline]
    pub(crate) fn store_into_array(&mut self, at: AbstractValue, holds: AbstractValue) {
        self.clear(at, 8);
        // Escaped values are elsewhere.
        if holds != AbstractValue::FRESH || self.has_escaped {
            self.push(AbstractSlot {
                address: at,
                value: holds,
            });
        }
    }

    fn push(&mut self, slot: AbstractSlot) {
        match self.slots.get_mut(usize::from(self.len)) {
            Some(place) => {
                *place = slot;
                self.len += 1;
                self.occupied_words |= word_mask(slot.address, 8);
                self.written |= NEW_SLOT_BIT;
            }
            None => self.has_escaped = true,
        }
    }

    /// Whether a slot that is not among [`AbstractState::slots`] may have an entry value.
    #[must_use]
    pub fn has_escaped(&self) -> bool {
        self.has_escaped
    }

    /// The slot with an index. Only one is kept.
    #[must_use]
    #[inline]
    pub fn indexed(&self) -> Option<IndexedSlot> {
        self.indexed
    }

    /// The last stack alignment, if the paths agree on it.
    #[must_use]
    pub fn aligned(&self) -> Option<StackAlignment> {
        self.alignment
    }

    /// Rounds a register down to a multiple of a number, in instruction `at`.
    pub(crate) fn align(&mut self, register: u8, multiple: u32, at: u32) {
        let of = self.get(register);
        self.set_symbolic_base(register, at);
        let is_other = of.is_address() && of.symbolic_base_id() != Some(at);
        self.alignment = is_other.then(|| StackAlignment {
            aligned: self.get(register),
            original: of,
            multiple,
        });
    }

    /// Gives a register that holds an unknown address an unconstrained symbolic base, in
    /// instruction `at`.
    pub(crate) fn name_unconstrained_base(&mut self, register: u8, at: u32) {
        if at < INDEX_BASE_BIT {
            self.set_symbolic_base(register, at | UNCONSTRAINED_BASE_BITS);
        }
    }

    /// Sets the contents of the 8 bytes at 8 times register `index` above `base`, in instruction
    /// `at`. A computed index gets a symbolic base, so that a later use of the same value is
    /// recognised.
    pub(crate) fn store_indexed(
        &mut self,
        base: AbstractValue,
        index: u8,
        holds: AbstractValue,
        at: u32,
    ) {
        self.forget_indexed();
        if at >= INDEX_BASE_BIT {
            return self.escape();
        }
        if !self.get(index).is_address() {
            self.set_symbolic_base(index, at | INDEX_BASE_BIT);
        }
        let slot = IndexedSlot {
            base,
            index: self.get(index),
            address: AbstractValue::symbolic_base(at | INDEXED_SLOT_BASE_BIT, 0),
        };
        self.store(slot.address, holds);
        self.indexed = Some(slot);
    }

    /// Forgets the slot with an index.
    #[inline]
    pub(crate) fn forget_indexed(&mut self) {
        if let Some(slot) = self.indexed.take()
            && let Some(at) = slot.address.symbolic_base_id()
        {
            self.forget_base(at);
        }
    }

    /// Whether string instructions may write towards lower addresses.
    pub(crate) fn is_down(&self) -> bool {
        self.is_down
    }

    /// Sets the direction of string instructions.
    pub(crate) fn set_direction(&mut self, is_down: bool) {
        self.is_down = is_down;
    }

    /// Notes that a store to the stack is assumed to stay inside its array.
    pub(crate) fn assume_bounds(&mut self) {
        self.assumes_bounds = true;
    }

    /// Whether a store was assumed to stay inside its array since the state was assigned.
    #[must_use]
    pub fn assumes_bounds(&self) -> bool {
        self.assumes_bounds
    }

    /// An entry value escapes: it is stored at an unknown address.
    pub(crate) fn escape(&mut self) {
        self.has_escaped = true;
    }

    /// Strong update: `size` bytes at an address are something else, and not an entry value.
    #[inline]
    pub(crate) fn overwrite(&mut self, at: AbstractValue, size: i64) {
        self.invalidate_aliases(at, size);
        match size {
            8 => self.store_into_array(at, AbstractValue::FRESH),
            _ => self.clear(at, size),
        }
    }

    /// Weak update of `size` bytes at an address: their slots become unknown.
    #[inline(never)]
    pub(crate) fn overwrite_weakly(&mut self, at: AbstractValue, size: i64) {
        self.invalidate_aliases(at, size);
        self.invalidate_where(|slot| slot.address.is_at_distance(at, 1 - 8..size));
    }

    /// Weak update of an array: only a run knows its length or the element. An array is assumed not
    /// to reach across a stack alignment.
    #[inline(never)]
    pub(crate) fn overwrite_in_array(&mut self, at: AbstractValue, size: i64) {
        let across = self
            .alignment
            .and_then(|known| across_alignment(known, at, size));
        self.assumes_bounds |= across.is_some_and(|(lowest, size)| {
            let mut slots = self.slots().iter();
            slots.any(|slot| slot.address.is_at_distance(lowest, 1 - 8..size))
        });
        self.invalidate_where(|slot| slot.address.is_at_distance(at, 1 - 8..size));
    }

    /// Weak update of all slots that share an address's base.
    #[inline(never)]
    pub(crate) fn overwrite_unbounded(&mut self, at: AbstractValue) {
        if at.is_address() {
            self.forget_indexed();
            let is_near = |other: AbstractValue| other.shares_base_with(at);
            let is_aligned = self
                .alignment
                .is_some_and(|it| is_near(it.aligned) || is_near(it.original));
            self.invalidate_where(|slot| is_aligned || is_near(slot.address));
        }
    }

    /// Invalidates all slots below an address.
    pub(crate) fn invalidate_below(&mut self, at: AbstractValue) {
        self.invalidate_where(|slot| slot.address.is_below(at));
    }

    /// Invalidates slots.
    fn invalidate_where(&mut self, is_lost: impl Fn(&AbstractSlot) -> bool) {
        let used = usize::from(self.len);
        for slot in self.slots.iter_mut().take(used) {
            if is_lost(slot) && slot.value != AbstractValue::UNKNOWN {
                slot.value = AbstractValue::UNKNOWN;
                self.written |= MEMORY_BIT;
            }
        }
    }

    /// Whether some of the `size` bytes at an address belong to a slot with contents that match.
    #[inline]
    pub(crate) fn has_within(
        &self,
        at: AbstractValue,
        size: i64,
        passes: impl Fn(AbstractValue) -> bool,
    ) -> bool {
        let is_there = |slot: &AbstractSlot| {
            slot.address.is_at_distance(at, 1 - 8..size) && passes(slot.value)
        };
        at.is_address()
            && self.occupied_words & word_mask(at, size) != 0
            && self.slots().iter().any(is_there)
    }

    /// Invalidates aliases of `size` bytes at an address: the slot with an index, and slots beyond
    /// a stack alignment.
    #[inline]
    fn invalidate_aliases(&mut self, at: AbstractValue, size: i64) {
        self.invalidate_indexed(at, size);
        if let Some(known) = self.alignment
            && let Some((lowest, size)) = across_alignment(known, at, size)
        {
            self.invalidate_where(|slot| slot.address.is_at_distance(lowest, 1 - 8..size));
        }
        self.assumes_bounds |= self.may_reach_older_frame(at);
    }

    /// Whether bytes at an address may be of the frame before the stack pointer was lowered by an
    /// unknown number. They are not if the allocated memory is large enough. How far an alignment
    /// reaches is known.
    #[inline]
    fn may_reach_older_frame(&self, at: AbstractValue) -> bool {
        let is_aligned = |known: StackAlignment| {
            known.aligned.shares_base_with(at) && !known.original.is_symbolic_base()
        };
        at.is_relocated_stack() && at.offset() >= 0 && !self.alignment.is_some_and(is_aligned)
    }

    /// Invalidates the slot with an index, if it may overlap `size` bytes at an address.
    #[inline]
    pub(crate) fn invalidate_indexed(&mut self, at: AbstractValue, size: i64) {
        if let Some(slot) = self.indexed
            && slot.may_be_within(at, size)
        {
            self.forget_indexed();
        }
    }

    /// Forgets the contents of `size` bytes at an address.
    #[inline]
    fn clear(&mut self, at: AbstractValue, size: i64) {
        if self.occupied_words & word_mask(at, size) != 0 {
            let is_gone = |slot: &AbstractSlot| slot.address.is_at_distance(at, 1 - 8..size);
            // A value saved twice may also have a slot that counts from the stack alignment.
            let saved = (self.slots().iter()).find(|slot| is_gone(slot) && slot.value.is_address());
            let twin = saved.map(|slot| slot.value);
            self.retain(|slot| {
                let is_twin = || {
                    Some(slot.value) == twin
                        && slot.address.is_symbolic_base()
                        && !at.is_symbolic_base()
                };
                !is_gone(slot) && !is_twin()
            });
        }
    }

    /// Invalidates slots that a call may change: those with contents that pass `is_taken`, which
    /// must only pass addresses. It is asked once for each slot.
    #[inline]
    pub(crate) fn invalidate_after_call(
        &mut self,
        is_taken: impl Fn(&AbstractState, AbstractValue) -> bool,
    ) {
        if self.call_checked < self.len {
            self.invalidate_from(self.call_checked, is_taken);
            self.call_checked = self.len;
        }
    }

    /// Invalidates slots with contents that pass `is_lost`.
    pub(crate) fn invalidate_all_matching(
        &mut self,
        is_lost: impl Fn(&AbstractState, AbstractValue) -> bool,
    ) {
        self.invalidate_from(0, is_lost);
    }

    /// Invalidates slots from index `first` on with contents that pass `is_lost`.
    fn invalidate_from(
        &mut self,
        first: u8,
        is_lost: impl Fn(&AbstractState, AbstractValue) -> bool,
    ) {
        for index in usize::from(first)..usize::from(self.len) {
            let holds = (self.slots.get(index)).map_or(AbstractValue::UNKNOWN, |slot| slot.value);
            if holds != AbstractValue::UNKNOWN
                && is_lost(self, holds)
                && let Some(slot) = self.slots.get_mut(index)
            {
                slot.value = AbstractValue::UNKNOWN;
                self.written |= MEMORY_BIT;
            }
        }
    }

    /// Makes registers unknown: bit n stands for register n.
    pub(crate) fn forget(&mut self, registers: u64) {
        self.written |= registers;
        self.tracked_registers &= !registers;
        for register in bits(registers) {
            if let Some(value) = self.registers.get_mut(usize::from(register)) {
                *value = AbstractValue::UNKNOWN;
            }
        }
    }

    /// Forgets all slots.
    pub(crate) fn forget_slots(&mut self) {
        self.retain(|_| false);
    }

    /// Forgets all slots below an address: a callee may overwrite them.
    pub(crate) fn forget_below(&mut self, at: AbstractValue) {
        if self.has_below(at) {
            self.retain(|slot| !slot.address.is_below(at));
        }
    }

    /// Gives a register a new symbolic base, after instruction `at`.
    #[inline(never)]
    pub(crate) fn set_symbolic_base(&mut self, register: u8, at: u32) {
        self.forget_base(at);
        self.set(register, AbstractValue::symbolic_base(at, 0));
    }

    /// Forgets everything relative to the stack pointer's symbolic base after instruction `at`: the
    /// name now means another address.
    pub(crate) fn forget_base(&mut self, at: u32) {
        let is_counted = |slot: IndexedSlot| {
            let counted = [slot.base, slot.index].map(AbstractValue::symbolic_base_id);
            counted.contains(&Some(at))
        };
        if self.indexed.is_some_and(is_counted) {
            self.forget_indexed();
        }
        let is_aligned = |known: StackAlignment| {
            [known.aligned, known.original]
                .map(AbstractValue::symbolic_base_id)
                .contains(&Some(at))
        };
        if self.alignment.is_some_and(is_aligned) {
            self.alignment = None;
        }
        for value in &mut self.registers {
            if value.symbolic_base_id() == Some(at) {
                *value = AbstractValue::UNKNOWN;
                self.written = u64::MAX;
            }
        }
        let hidden = self
            .slots()
            .iter()
            .any(|slot| slot.address.symbolic_base_id() == Some(at) && slot.value.is_address());
        self.has_escaped |= hidden;
        self.retain(|slot| slot.address.symbolic_base_id() != Some(at));
        self.invalidate_from(0, |_, holds| holds.symbolic_base_id() == Some(at));
    }

    /// Renames the symbolic base of a register's value: all values and slots relative to it become
    /// relative to `base`, which the register holds then. The old value may have had an offset.
    pub(crate) fn rename_base(&mut self, register: u8, base: u32) {
        let old = self.get(register);
        let Some(from) = old.symbolic_base_id() else {
            return;
        };
        if from == base && old.offset() == 0 {
            return;
        }
        if from != base {
            self.forget_base(base);
        }
        let renamed = |value: AbstractValue| match value.distance_from(old) {
            Some(distance) => AbstractValue::symbolic_base(base, 0).plus(distance),
            None => value,
        };
        self.written = u64::MAX;
        for value in &mut self.registers {
            *value = renamed(*value);
        }
        if let Some(slot) = &mut self.indexed {
            slot.base = renamed(slot.base);
        }
        if let Some(known) = &mut self.alignment {
            known.aligned = renamed(known.aligned);
            known.original = renamed(known.original);
        }
        let used = usize::from(self.len);
        for slot in self.slots.iter_mut().take(used) {
            slot.address = renamed(slot.address);
            slot.value = renamed(slot.value);
        }
        self.find_words();
    }

    /// Forgets slots relative to a base that another state does not have: they may be anything.
    pub(crate) fn retain_slots_of(&mut self, base: u32, other: &AbstractState) {
        let is_lost = |slot: &AbstractSlot| {
            slot.address.symbolic_base_id() == Some(base)
                && !other.slots().iter().any(|its| its.address == slot.address)
        };
        let mut lost = self.slots().iter().filter(|slot| is_lost(slot));
        self.has_escaped |= lost.any(|slot| slot.value.is_address());
        self.retain(|slot| !is_lost(slot));
    }

    /// Computes [`AbstractState::occupied_words`] again, after slots were removed or moved.
    fn find_words(&mut self) {
        let words = self.slots().iter().map(|slot| word_mask(slot.address, 8));
        self.occupied_words = words.fold(0, |all, words| all | words);
    }

    #[inline]
    fn retain(&mut self, keep: impl Fn(&AbstractSlot) -> bool) {
        let gone = self.slots().iter().position(|slot| !keep(slot));
        let Some(first) = gone else {
            return;
        };
        let mut kept = first;
        let mut not_taken = self.call_checked;
        if first < usize::from(self.call_checked) {
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
            } else if index < usize::from(self.call_checked) {
                not_taken -= 1;
            }
        }
        self.len = u8::try_from(kept).unwrap_or(self.len);
        self.call_checked = not_taken;
        self.find_words();
        self.written |= MEMORY_BIT;
    }

    /// The write set since the last call, like [`crate::op::Op::written`]. Memory is in it only if
    /// a known slot changed; [`NEW_SLOT_BIT`] if a slot became known.
    #[inline]
    pub fn take_written(&mut self) -> u64 {
        core::mem::take(&mut self.written)
    }

    /// Whether one of these was written since, or all may have changed.
    #[inline]
    pub(crate) fn is_written(&self, watched: u64) -> bool {
        self.written & watched != 0
    }

    /// All may differ from before.
    pub(crate) fn mark_all_written(&mut self) {
        self.written = u64::MAX;
    }

    /// Joins with the state on another path. Returns whether this changed.
    pub(crate) fn join(&mut self, other: &AbstractState) -> bool {
        let mut changed = false;
        for register in bits(self.tracked_registers) {
            let theirs = other.get(register);
            if let Some(mine) = self.registers.get_mut(usize::from(register)) {
                changed |= mine.join_with(theirs);
            }
        }
        if self.has_escaped != other.has_escaped {
            changed |= !self.has_escaped;
            self.has_escaped = true;
        }
        if (self.indexed.is_some() | other.indexed.is_some()) && self.indexed != other.indexed {
            changed |= self.indexed.is_some();
            self.forget_indexed();
        }
        changed |= other.is_down && !self.is_down;
        self.is_down |= other.is_down;
        if self.alignment.is_some() && self.alignment != other.alignment {
            changed = true;
            self.alignment = None;
        }
        self.join_slots(other) || changed
    }

    /// The contents of a slot on one path only are uncertain.
    fn join_slots(&mut self, other: &AbstractState) -> bool {
        if self.has_slots_of(other) {
            return false;
        }
        let both = self.slots().iter().zip(other.slots());
        let same = both.take_while(|(mine, theirs)| mine == theirs).count();
        let used = usize::from(self.len);
        let others = other.slots().get(same..).unwrap_or_default();
        let mut changed = false;
        let elsewhere = if other.has_escaped {
            AbstractValue::UNKNOWN
        } else {
            AbstractValue::FRESH
        };
        // Joining paths mostly saved the same values in the same order.
        let mut ahead = others;
        let mut joined = 0;
        for slot in self.slots.iter_mut().take(used).skip(same) {
            let is_at = |theirs: &AbstractSlot| theirs.address == slot.address;
            if !ahead.first().is_some_and(is_at) {
                let place = others.iter().position(is_at);
                ahead = place.map_or(ahead, |place| others.get(place..).unwrap_or_default());
            }
            let mut theirs = elsewhere;
            if let Some((first, rest)) = ahead.split_first()
                && is_at(first)
            {
                theirs = first.value;
                ahead = rest;
                joined += 1;
            }
            changed |= slot.value.join_with(theirs);
        }
        // Further slots are already unknown if a value may have escaped.
        let has_more = joined != others.len() && !self.has_escaped;
        changed | (has_more && self.join_others(same, others))
    }

    /// Whether all slots equal another state's, in the same order. They mostly do, and comparing
    /// all is faster than stopping early.
    fn has_slots_of(&self, other: &AbstractState) -> bool {
        let both = self.slots().iter().zip(other.slots());
        let differences = both.map(|(mine, theirs)| {
            mine.address.difference(theirs.address) | mine.value.difference(theirs.value)
        });
        self.len == other.len && differences.fold(0, |all, difference| all | difference) == 0
    }

    /// Joins the slots that only another path has; the first ones are the same.
    fn join_others(&mut self, same: usize, others: &[AbstractSlot]) -> bool {
        let before = (self.len, self.has_escaped);
        for theirs in others {
            let mut mine = self.slots().iter().skip(same);
            if mine.all(|slot| slot.address != theirs.address) {
                self.push(AbstractSlot {
                    address: theirs.address,
                    value: theirs.value.join(AbstractValue::FRESH),
                });
            }
        }
        before != (self.len, self.has_escaped)
    }

    /// Makes this state equal to another; copies only used slots.
    #[inline]
    pub(crate) fn assign(&mut self, other: &AbstractState) {
        self.registers = other.registers;
        self.tracked_registers = other.tracked_registers;
        let used = usize::from(other.len);
        if let (Some(mine), Some(theirs)) = (self.slots.get_mut(..used), other.slots.get(..used)) {
            mine.copy_from_slice(theirs);
        }
        self.len = other.len;
        self.call_checked = other.call_checked;
        self.occupied_words = other.occupied_words;
        self.written = 0;
        self.has_escaped = other.has_escaped;
        self.indexed = other.indexed;
        self.alignment = other.alignment;
        self.is_down = other.is_down;
        self.assumes_bounds = false;
    }
}

/// Lowest address that `size` bytes may have, counted from the other side of the stack alignment,
/// and the size of the range that they are somewhere in.
fn across_alignment(
    known: StackAlignment,
    at: AbstractValue,
    size: i64,
) -> Option<(AbstractValue, i64)> {
    // An address this far above the aligned one is at most this far above the original one.
    let less = i64::from(known.multiple) - 1;
    let lowest = match (
        at.distance_from(known.aligned),
        at.distance_from(known.original),
    ) {
        (Some(above), _) => known.original.plus(above - less),
        (None, Some(above)) => known.aligned.plus(above),
        (None, None) => return None,
    };
    Some((lowest, size + less))
}

/// The words that `size` bytes at an address overlap, modulo 64, relative to the base: bit n stands
/// for word n. Disjoint masks with the same base do not overlap.
#[inline]
fn word_mask(at: AbstractValue, size: i64) -> u64 {
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

impl Default for AbstractState {
    fn default() -> Self {
        AbstractState::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_removes_only_overlapping_slots() {
        let sp = AbstractValue::entry_value(7);
        let holds = AbstractValue::entry_value(3);
        for (slot, at) in (-20..20).flat_map(|slot| (-600..600).map(move |at| (slot, at))) {
            for size in [1, 2, 4, 8, 16, 64, 520] {
                let mut state = AbstractState::new();
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
    fn a_load_returns_the_stored_value() {
        let at = AbstractValue::entry_value(7).plus(-16);
        let mut state = AbstractState::new();
        state.escape();
        for holds in [
            AbstractValue::entry_value(3),
            AbstractValue::FRESH,
            AbstractValue::entry_value(6),
        ] {
            state.store(at, holds);
            assert_eq!(state.load(at), Some(holds));
        }
        state.overwrite(at, 8);
        assert_eq!(state.load(at), Some(AbstractValue::FRESH));
    }

    #[test]
    fn slots_are_taken_away_whenever_they_came() {
        let sp = AbstractValue::entry_value(7);
        let is_taken = |_: &AbstractState, holds: AbstractValue| holds == sp;
        let mut state = AbstractState::new();
        for (at, gone) in [(-8, -16), (-24, -8), (-32, -24)] {
            state.store(sp.plus(at), sp);
            state.invalidate_after_call(is_taken);
            state.overwrite(sp.plus(gone), 8);
            state.store(sp.plus(-40), sp);
            state.invalidate_after_call(is_taken);
            let mut slots = state.slots().iter();
            assert!(slots.all(|slot| slot.value == AbstractValue::UNKNOWN));
        }
    }
}
