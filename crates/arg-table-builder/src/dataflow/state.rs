//! The abstract state of arguments before an instruction, and the transfer functions of effects.

use std::collections::BTreeSet;

use unspool_arg_table::{ArgLocation, ArgSource, CallSiteValue, EntryValue};
use unspool_code_analysis::arch::AbiInfo;
use unspool_code_analysis::state::SCRATCH;

use super::effect::{ArgEffect, COUNT, is_vector, members, number_of, vectors};

/// Bytes of the frame that hold an entry value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ArgSlot {
    at: i32,
    bytes: u8,
    entry_value: EntryValue,
    /// Whether the program keeps it there (`unspool_keep.h`): no other code writes to it.
    is_kept: bool,
}

impl ArgSlot {
    fn overlaps(&self, at: i32, bytes: u32) -> bool {
        let (start, end) = (i64::from(at), i64::from(at) + i64::from(bytes));
        i64::from(self.at) < end && start < i64::from(self.at) + i64::from(self.bytes)
    }
}

/// The state before an instruction, or while the callee of a call runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArgState {
    registers: [Option<EntryValue>; COUNT],
    /// Register values for calls, apart from entry values.
    copies: [Option<CallSiteValue>; COUNT],
    slots: Vec<ArgSlot>,
    /// Bit n: the n-th eight bytes above the CFA were overwritten.
    overwritten_words: u64,
    /// The words of the frame written since the last call, by their distances from the CFA: they
    /// may be arguments of a callee.
    written: BTreeSet<i32>,
    /// More words than these were written.
    wrote_more: bool,
    /// The sharing of memory below the CFA.
    frame: Sharing,
    /// The sharing of the caller's memory above the CFA.
    passed: Sharing,
}

/// Who may write to stack memory. Memory above the CFA and below it never belongs to one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sharing {
    /// Only the function.
    Private,
    /// Only the function, but it has computed an address in it.
    Exposed,
    /// All code that may have got that address.
    Shared,
}

/// The maximum number of tracked words of a frame.
const MAX_FRAME_WORDS: usize = 256;

impl ArgState {
    /// The state at entry.
    pub(super) fn entry(abi_info: &AbiInfo) -> ArgState {
        let mut registers = [None; COUNT];
        let arguments = abi_info.arguments.iter().copied();
        for register in arguments.chain(abi_info.vector_arguments.clone()) {
            let number = number_of(abi_info, register);
            if let Some(held) = registers.get_mut(usize::from(number)) {
                *held = Some(EntryValue {
                    source: ArgSource::Register(register),
                    addend: 0,
                    bits: 64,
                    is_certain: true,
                });
            }
        }
        ArgState {
            registers,
            ..ArgState::unknown(0)
        }
    }

    /// The unknown state; only memory above the CFA outside of `lost` is known.
    pub(super) fn unknown(lost: u64) -> ArgState {
        ArgState {
            registers: [None; COUNT],
            copies: [None; COUNT],
            slots: Vec::new(),
            overwritten_words: lost,
            written: BTreeSet::new(),
            wrote_more: false,
            frame: Sharing::Private,
            passed: Sharing::Private,
        }
    }

    /// Whether the value at a distance from the CFA is certain.
    pub(super) fn is_private(&self, at: i32) -> bool {
        let sharing = if at < 0 { self.frame } else { self.passed };
        sharing != Sharing::Shared
    }

    /// Drops values that others may overwrite through an address.
    fn invalidate_shared(&mut self) {
        for sharing in [&mut self.frame, &mut self.passed] {
            if *sharing == Sharing::Exposed {
                *sharing = Sharing::Shared;
            }
        }
    }

    /// A location of a source's low `bits`, if all of them are there. Certain ones come first, then
    /// call-preserved registers, which stay valid longest. A frame's vector registers are not
    /// available.
    #[must_use]
    pub(crate) fn location_of(
        &self,
        source: ArgSource,
        bits: u8,
        abi_info: &AbiInfo,
    ) -> Option<(ArgLocation, EntryValue)> {
        let fits =
            |entry_value: &EntryValue| entry_value.source == source && entry_value.bits >= bits;
        let registers = (0_u8..).zip(&self.registers);
        let registers = registers.filter_map(|(register, held)| {
            let is_there = register != SCRATCH && !is_vector(register);
            let held = (*held).filter(|held| is_there && fits(held))?;
            Some((ArgLocation::Register(register), held))
        });
        let slots = self.slots.iter().filter(|slot| fits(&slot.entry_value));
        let slots = slots.map(|slot| (ArgLocation::Slot(slot.at), self.load_value(slot)));
        let own = self
            .incoming_stack_value(source)
            .map(|(at, held)| (ArgLocation::Slot(at), held));
        let rank = |(place, held): &(ArgLocation, EntryValue)| {
            let stays = match place {
                ArgLocation::Register(register) => abi_info.preserved.contains(register),
                ArgLocation::Slot(_) => true,
            };
            (held.is_certain, stays, held.addend == 0)
        };
        let mut best: Option<(ArgLocation, EntryValue)> = None;
        for found in registers.chain(slots).chain(own) {
            if best.as_ref().is_none_or(|best| rank(&found) > rank(best)) {
                best = Some(found);
            }
        }
        best
    }

    /// An argument passed in memory that was not overwritten is at its original location.
    fn incoming_stack_value(&self, source: ArgSource) -> Option<(i32, EntryValue)> {
        let ArgSource::Stack(word) = source else {
            return None;
        };
        let is_lost = word >= 64 || self.overwritten_words >> word & 1 != 0;
        let at = i32::from(word) * 8;
        let held = EntryValue {
            source,
            addend: 0,
            bits: 64,
            is_certain: self.is_private(at),
        };
        (!is_lost).then_some((at, held))
    }

    /// The value loaded from a slot.
    fn load_value(&self, slot: &ArgSlot) -> EntryValue {
        let is_certain = slot.entry_value.is_certain && (slot.is_kept || self.is_private(slot.at));
        EntryValue {
            is_certain,
            ..slot.entry_value
        }
    }

    pub(super) fn entry_value(&self, register: u8) -> Option<EntryValue> {
        self.registers.get(usize::from(register)).copied()?
    }

    pub(super) fn copy(&self, register: u8) -> Option<CallSiteValue> {
        self.copies.get(usize::from(register)).copied()?
    }

    /// Sets the value of a register.
    fn set(&mut self, register: u8, entry_value: Option<EntryValue>, copy: Option<CallSiteValue>) {
        for copy in &mut self.copies {
            if matches!(copy, Some(CallSiteValue::Register { register: of, .. }) if *of == register)
            {
                *copy = None;
            }
        }
        let index = usize::from(register);
        if let (Some(known), Some(same)) =
            (self.registers.get_mut(index), self.copies.get_mut(index))
        {
            (*known, *same) = (entry_value, copy);
        }
    }

    /// Overwrites bytes of the frame.
    fn overwrite(&mut self, at: i32, bytes: u32) {
        self.slots.retain(|slot| !slot.overlaps(at, bytes));
        for copy in &mut self.copies {
            if let Some(CallSiteValue::Slot {
                at: place,
                bytes: own,
                ..
            }) = copy
            {
                let end = i64::from(at) + i64::from(bytes);
                let is_hit =
                    i64::from(*place) < end && i64::from(at) < i64::from(*place) + i64::from(*own);
                if is_hit {
                    *copy = None;
                }
            }
        }
        let words = i64::from(at).div_euclid(8)
            ..(i64::from(at) + i64::from(bytes.max(1)) + 7).div_euclid(8);
        for word in (0..64).filter(|word| words.contains(&i64::from(*word))) {
            self.overwritten_words |= 1 << word;
        }
        let room = MAX_FRAME_WORDS.saturating_sub(self.written.len());
        self.wrote_more |= words.clone().nth(room).is_some();
        let places = words.map_while(|word| i32::try_from(word * 8).ok());
        self.written.extend(places.take(room));
    }

    /// Drops values in memory that any effect of the unit writes: control may return after any of
    /// them.
    pub(super) fn forget_written(&mut self, effects: &[ArgEffect]) {
        for effect in effects {
            match *effect {
                ArgEffect::Store { at, bytes, .. } => self.overwrite(at, bytes.into()),
                ArgEffect::Overwrite { at, bytes } => self.overwrite(at, bytes),
                _ => {}
            }
        }
    }

    /// Puts an entry value into bytes of the frame.
    fn put(&mut self, at: i32, bytes: u8, entry_value: EntryValue, is_kept: bool) {
        self.slots.push(ArgSlot {
            at,
            bytes,
            entry_value,
            is_kept,
        });
        self.slots.sort_unstable_by_key(|slot| slot.at);
    }

    /// The entry value in bytes of the frame.
    fn load(&self, at: i32, bytes: u8) -> Option<EntryValue> {
        let slots = self.slots.iter();
        let mut slots = slots.filter(|slot| slot.at == at && slot.bytes >= bytes);
        let held = match slots.next() {
            Some(slot) => Some(self.load_value(slot)),
            None if at >= 0 && at % 8 == 0 => {
                let word = u8::try_from(at / 8).ok()?;
                self.incoming_stack_value(ArgSource::Stack(word))
                    .map(|(_, held)| held)
            }
            None => None,
        }?;
        Some(EntryValue {
            bits: held.bits.min(bytes.saturating_mul(8)),
            ..held
        })
    }

    /// The effect of a call.
    fn call(&mut self, sp: Option<i32>, takes_none: bool, abi_info: &AbiInfo) {
        for register in members(abi_info.clobbered | vectors(abi_info)) {
            self.set(register, None, None);
        }
        if let Some(sp) = sp {
            self.slots.retain(|slot| slot.at >= sp);
            if !takes_none {
                let end = self.outgoing_end(sp);
                self.slots.retain(|slot| slot.is_kept || slot.at >= end);
                // The end may be the maximum address.
                let given = |word: &i32| word * 8 < end && sp < word * 8 + 8;
                for word in (0..64).filter(given) {
                    self.overwritten_words |= 1 << word;
                }
            }
        }
        for copy in &mut self.copies {
            if matches!(copy, Some(CallSiteValue::Slot { .. })) {
                *copy = None;
            }
        }
        self.written.clear();
        self.wrote_more = false;
        self.invalidate_shared();
    }

    /// The end of the words that may be a callee's arguments: the words written last, from the
    /// stack pointer upwards. One unwritten word may align the next (psABI, §3.2.3).
    fn outgoing_end(&self, sp: i32) -> i32 {
        if self.wrote_more {
            return i32::MAX;
        }
        let mut end = sp;
        for at in self.written.range(sp..) {
            if at.saturating_sub(end) > 8 {
                break;
            }
            end = at.saturating_add(8);
        }
        end
    }

    /// The slots that a call leaves to the caller, if the stack pointer before it is known: those
    /// from this distance from the CFA upwards.
    pub(super) fn own_from(&self, sp: Option<i32>, takes_none: bool) -> i32 {
        match sp {
            Some(sp) if takes_none => sp,
            Some(sp) => self.outgoing_end(sp),
            None => i32::MIN,
        }
    }

    /// Joins the state of another path; returns whether that changed anything.
    pub(super) fn join(&mut self, other: &ArgState) -> bool {
        let before = self.clone();
        for (mine, theirs) in self.registers.iter_mut().zip(&other.registers) {
            *mine = join_values(*mine, *theirs);
        }
        for (mine, theirs) in self.copies.iter_mut().zip(&other.copies) {
            if mine != theirs {
                *mine = None;
            }
        }
        self.slots.retain_mut(|slot| {
            let same = |theirs: &&ArgSlot| {
                (theirs.at, theirs.bytes, theirs.is_kept) == (slot.at, slot.bytes, slot.is_kept)
            };
            let theirs = other
                .slots
                .iter()
                .find(same)
                .map(|theirs| theirs.entry_value);
            let held = join_values(Some(slot.entry_value), theirs);
            slot.entry_value = held.unwrap_or(slot.entry_value);
            held.is_some()
        });
        self.overwritten_words |= other.overwritten_words;
        self.frame = self.frame.max(other.frame);
        self.passed = self.passed.max(other.passed);
        self.written.extend(&other.written);
        self.wrote_more |= other.wrote_more;
        *self != before
    }

    /// Applies an effect; for a call, `takes_none` is whether it is known to take no arguments in
    /// memory.
    pub(super) fn step(&mut self, effect: ArgEffect, takes_none: bool, abi_info: &AbiInfo) {
        let is_preserved = |register: u8| abi_info.preserved.contains(&register);
        match effect {
            ArgEffect::Copy {
                to,
                from,
                addend: add,
            } => {
                let held = self.entry_value(from).and_then(|held| {
                    let add = held.addend.checked_add(add)?;
                    Some(EntryValue {
                        addend: add,
                        ..held
                    })
                });
                let copy = if is_preserved(from) && to != from {
                    Some(CallSiteValue::Register {
                        register: from,
                        addend: add,
                        bits: 64,
                    })
                } else {
                    self.copy(from).and_then(|copy| with_addend(copy, add))
                };
                self.set(to, held, copy);
                if add == 0 && is_preserved(to) && to != from && !is_preserved(from) {
                    self.record_copy(from, to, 64);
                }
            }
            ArgEffect::Truncate {
                to,
                from,
                bits,
                is_rest_zero,
            } => {
                let held = self.entry_value(from).map(|held| EntryValue {
                    bits: held.bits.min(bits),
                    ..held
                });
                let copy = if is_preserved(from) && to != from {
                    Some(CallSiteValue::Register {
                        register: from,
                        addend: 0,
                        bits,
                    })
                } else {
                    self.copy(from).and_then(|copy| low(copy, bits))
                };
                // For a number all bits would be recorded.
                let copy =
                    copy.filter(|copy| is_rest_zero || !matches!(copy, CallSiteValue::Number(_)));
                self.set(to, held, copy);
                if is_preserved(to) && to != from && !is_preserved(from) {
                    self.record_copy(from, to, bits);
                }
            }
            ArgEffect::Constant { to, value } => {
                self.set(to, None, Some(CallSiteValue::Number(value)));
            }
            ArgEffect::Address { to, value } => {
                self.set(to, None, Some(CallSiteValue::Address(value)));
            }
            ArgEffect::Cfa { to, at } => self.set(to, None, Some(CallSiteValue::Cfa(at))),
            ArgEffect::Kill { registers } => {
                for register in members(registers) {
                    self.set(register, None, None);
                }
            }
            ArgEffect::Load { to, at, bytes } => {
                let held = self.load(at, bytes);
                let copy = CallSiteValue::Slot {
                    at,
                    bytes,
                    is_certain: self.is_private(at),
                };
                self.set(to, held, Some(copy));
            }
            ArgEffect::Store { at, from, bytes } => {
                let own = u8::try_from(at / 8).ok().filter(|_| at >= 0 && at % 8 == 0);
                let held = self.entry_value(from).map(|held| EntryValue {
                    bits: held.bits.min(bytes.saturating_mul(8)),
                    ..held
                });
                let stays = own.is_some_and(|word| {
                    let before = self
                        .incoming_stack_value(ArgSource::Stack(word))
                        .map(|(_, held)| held);
                    before.is_some() && held == before
                });
                if stays {
                    return;
                }
                self.overwrite(at, bytes.into());
                if let Some(held) = held
                    && self.slots.len() < MAX_FRAME_WORDS
                {
                    self.put(at, bytes, held, false);
                }
                if self.copy(from).is_none() && !is_preserved(from) {
                    let copy = CallSiteValue::Slot {
                        at,
                        bytes,
                        is_certain: self.is_private(at),
                    };
                    if let Some(known) = self.copies.get_mut(usize::from(from)) {
                        *known = Some(copy);
                    }
                }
            }
            ArgEffect::Overwrite { at, bytes } => self.overwrite(at, bytes),
            ArgEffect::Expose { at } => {
                let sharing = if at < 0 {
                    &mut self.frame
                } else {
                    &mut self.passed
                };
                *sharing = (*sharing).max(Sharing::Exposed);
            }
            ArgEffect::Keep { at, source, bytes } => {
                self.slots.retain(|slot| !slot.overlaps(at, bytes.into()));
                let held = EntryValue {
                    source,
                    addend: 0,
                    bits: bytes.saturating_mul(8),
                    is_certain: true,
                };
                self.put(at, bytes, held, true);
            }
            ArgEffect::StoreUnknown => self.invalidate_shared(),
            ArgEffect::StackPointerUnknown => self.slots.clear(),
            ArgEffect::Call { sp, .. } => self.call(sp, takes_none, abi_info),
        }
    }

    /// Records that a register equals a call-preserved one, unless more is known about it.
    fn record_copy(&mut self, register: u8, as_preserved: u8, bits: u8) {
        let known = self.copies.get_mut(usize::from(register));
        if let Some(known @ (None | Some(CallSiteValue::Slot { .. }))) = known {
            *known = Some(CallSiteValue::Register {
                register: as_preserved,
                addend: 0,
                bits,
            });
        }
    }
}

/// The join of two values.
fn join_values(a: Option<EntryValue>, b: Option<EntryValue>) -> Option<EntryValue> {
    let (a, b) = (a?, b?);
    ((a.source, a.addend) == (b.source, b.addend)).then(|| EntryValue {
        bits: a.bits.min(b.bits),
        is_certain: a.is_certain && b.is_certain,
        ..a
    })
}

/// The same value plus a number.
fn with_addend(copy: CallSiteValue, add: i32) -> Option<CallSiteValue> {
    Some(match copy {
        _ if add == 0 => copy,
        CallSiteValue::Number(value) => {
            CallSiteValue::Number(value.wrapping_add_signed(add.into()))
        }
        CallSiteValue::Address(value) => {
            CallSiteValue::Address(value.wrapping_add_signed(add.into()))
        }
        CallSiteValue::Cfa(at) => CallSiteValue::Cfa(at.checked_add(add)?),
        CallSiteValue::Register {
            register,
            addend: before,
            bits,
        } => CallSiteValue::Register {
            register,
            addend: before.checked_add(add)?,
            bits,
        },
        CallSiteValue::Slot { .. } | CallSiteValue::EntryValue(_) => return None,
    })
}

/// The low bits of the same value.
fn low(copy: CallSiteValue, bits: u8) -> Option<CallSiteValue> {
    Some(match copy {
        CallSiteValue::Number(value) if bits < 64 => {
            CallSiteValue::Number(value & ((1 << bits) - 1))
        }
        CallSiteValue::Register {
            register,
            addend: add,
            bits: before,
        } => CallSiteValue::Register {
            register,
            addend: add,
            bits: before.min(bits),
        },
        CallSiteValue::Slot {
            at,
            bytes,
            is_certain,
        } => CallSiteValue::Slot {
            at,
            bytes: bytes.min(bits / 8),
            is_certain,
        },
        _ => return None,
    })
}
