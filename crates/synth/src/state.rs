//! What registers and stack slots hold at one place of the code.

use crate::value::Value;

/// The most registers that an architecture can have here.
pub const REGISTERS: usize = 18;

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

const EMPTY: Slot = Slot {
    at: Value::UNKNOWN,
    holds: Value::UNKNOWN,
};

/// What registers and stack slots hold before an instruction, whichever path led there.
#[derive(Debug, Clone)]
pub struct State {
    registers: [Value; REGISTERS],
    slots: [Slot; SLOTS],
    len: u8,
    /// Whether a slot came or went since [`State::settle`].
    is_stirred: bool,
    /// Whether an entry value may be in a slot that is not among these: it was stored nobody knows where, or
    /// there was no room.
    hides: bool,
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
            slots: [EMPTY; SLOTS],
            len: 0,
            is_stirred: false,
            hides: false,
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
            *old = value;
        }
    }

    /// The slots of which something is known.
    #[must_use]
    #[inline]
    pub fn slots(&self) -> &[Slot] {
        self.slots.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// What the 8 bytes at an address hold, if that is known; `None` if no entry value was stored there.
    #[must_use]
    #[inline]
    pub fn load(&self, at: Value) -> Option<Value> {
        match self.slots().iter().find(|slot| slot.at == at) {
            Some(slot) => Some(slot.holds),
            None => self.hides.then_some(Value::UNKNOWN),
        }
    }

    /// Has the 8 bytes at an address hold something.
    #[inline]
    pub fn store(&mut self, at: Value, holds: Value) {
        self.overwrite(at, 8);
        if holds != Value::FRESH {
            self.push(Slot { at, holds });
        }
    }

    fn push(&mut self, slot: Slot) {
        match self.slots.get_mut(usize::from(self.len)) {
            Some(place) => {
                *place = slot;
                self.len += 1;
                self.is_stirred = true;
            }
            None => self.hides = true,
        }
    }

    /// Whether an entry value may be in a slot that is not among [`State::slots`].
    #[must_use]
    pub fn hides(&self) -> bool {
        self.hides
    }

    /// An entry value is stored, and nobody knows where.
    pub fn hide(&mut self) {
        self.hides = true;
    }

    /// Has `size` bytes at an address hold something that is no entry value.
    #[inline]
    pub fn overwrite(&mut self, at: Value, size: i64) {
        let is_hit = |slot: &Slot| {
            let distance = slot.at.distance_from(at);
            distance.is_some_and(|distance| -8 < distance && distance < size)
        };
        self.retain(|slot| !is_hit(slot));
        if self.hides && size == 8 {
            // Wherever something is hidden, it is not here.
            self.push(Slot {
                at,
                holds: Value::FRESH,
            });
        }
    }

    /// Has slots whose contents pass `is_lost` hold nobody knows what.
    pub fn lose(&mut self, is_lost: impl Fn(Value) -> bool) {
        let used = usize::from(self.len);
        for slot in self.slots.iter_mut().take(used) {
            if slot.holds != Value::UNKNOWN && is_lost(slot.holds) {
                slot.holds = Value::UNKNOWN;
                self.is_stirred = true;
            }
        }
    }

    /// Forgets all slots below an address: the callee of a call may overwrite them.
    pub fn forget_below(&mut self, at: Value) {
        self.retain(|slot| {
            slot.at
                .distance_from(at)
                .is_none_or(|distance| distance >= 0)
        });
    }

    /// Forgets what is relative to the stack pointer after instruction `at`: it has another one now.
    pub fn forget_base(&mut self, at: u32) {
        for value in &mut self.registers {
            if value.base_of() == Some(at) {
                *value = Value::UNKNOWN;
            }
        }
        let hidden = self
            .slots()
            .iter()
            .any(|slot| slot.at.base_of() == Some(at) && slot.holds.is_address());
        self.hides |= hidden;
        self.retain(|slot| slot.at.base_of() != Some(at));
        self.lose(|holds| holds.base_of() == Some(at));
    }

    /// Has what is relative to the run-time address that a register holds be relative to another one, `base`,
    /// which that register holds then: the same is said of some address, which has another name.
    pub fn rename_base(&mut self, register: u8, base: u32) {
        let old = self.get(register);
        let Some(from) = old.base_of() else { return };
        if from == base {
            return;
        }
        self.forget_base(base);
        let renamed = |value: Value| match value.distance_from(old) {
            Some(distance) => Value::base(base, 0).plus(distance),
            None => value,
        };
        for value in &mut self.registers {
            *value = renamed(*value);
        }
        let used = usize::from(self.len);
        for slot in self.slots.iter_mut().take(used) {
            slot.at = renamed(slot.at);
            slot.holds = renamed(slot.holds);
        }
    }

    #[inline]
    fn retain(&mut self, keep: impl Fn(&Slot) -> bool) {
        let gone = self.slots().iter().position(|slot| !keep(slot));
        let Some(first) = gone else {
            return;
        };
        let mut kept = first;
        for index in first + 1..usize::from(self.len) {
            let Some(slot) = self.slots.get(index).copied() else {
                break;
            };
            if keep(&slot) {
                if let Some(place) = self.slots.get_mut(kept) {
                    *place = slot;
                }
                kept += 1;
            }
        }
        self.len = u8::try_from(kept).unwrap_or(self.len);
        self.is_stirred = true;
    }

    /// Whether a slot came or went since the last time that this was asked.
    #[inline]
    pub fn settle(&mut self) -> bool {
        core::mem::take(&mut self.is_stirred)
    }

    /// Takes in a state that holds at the same place on another path; whether that changed anything.
    pub fn join(&mut self, other: &State) -> bool {
        let mut changed = false;
        for (mine, theirs) in self.registers.iter_mut().zip(&other.registers) {
            if mine != theirs {
                let joined = mine.join(*theirs);
                changed |= joined != *mine;
                *mine = joined;
            }
        }
        if self.hides != other.hides {
            changed |= !self.hides;
            self.hides = true;
        }
        self.join_slots(other) || changed
    }

    /// What is in a slot on one path only is in it perhaps.
    fn join_slots(&mut self, other: &State) -> bool {
        if self.slots() == other.slots() {
            return false;
        }
        let mut changed = false;
        let used = usize::from(self.len);
        for slot in self.slots.iter_mut().take(used) {
            let theirs = other.load(slot.at).unwrap_or(Value::FRESH);
            let joined = slot.holds.join(theirs);
            changed |= joined != slot.holds;
            slot.holds = joined;
        }
        for theirs in other.slots() {
            if self.slots().iter().all(|slot| slot.at != theirs.at) {
                let was_hiding = self.hides;
                self.push(Slot {
                    at: theirs.at,
                    holds: theirs.holds.join(Value::FRESH),
                });
                changed |= self.len as usize != used || self.hides != was_hiding;
            }
        }
        changed
    }

    /// Makes this state equal to another; copies only what there is.
    #[inline]
    pub fn assign(&mut self, other: &State) {
        self.registers = other.registers;
        let used = usize::from(other.len);
        if let (Some(mine), Some(theirs)) = (self.slots.get_mut(..used), other.slots.get(..used)) {
            mine.copy_from_slice(theirs);
        }
        self.len = other.len;
        self.is_stirred = false;
        self.hides = other.hides;
    }
}

impl Default for State {
    fn default() -> Self {
        State::new()
    }
}
