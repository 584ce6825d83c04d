//! What is known of arguments before an instruction, and what steps do to it.

use std::collections::BTreeSet;

use unspool_args::{Held, Passed, Place, Source};
use unspool_synth::arch::Facts;
use unspool_synth::state::SCRATCH;

use super::step::{COUNT, Step, is_vector, members, number_of, vectors};

/// Bytes of the frame that hold something that the function was called with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    at: i32,
    bytes: u8,
    held: Held,
    /// Whether the program keeps it there on purpose: nobody else writes to it.
    is_kept: bool,
}

impl Slot {
    fn overlaps(&self, at: i32, bytes: u32) -> bool {
        let (start, end) = (i64::from(at), i64::from(at) + i64::from(bytes));
        i64::from(self.at) < end && start < i64::from(self.at) + i64::from(self.bytes)
    }
}

/// What is known before an instruction, or while the callee of a call runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    registers: [Option<Held>; COUNT],
    /// What registers hold that is not held of an argument, for calls.
    copies: [Option<Passed>; COUNT],
    slots: Vec<Slot>,
    /// Bit n: the n-th eight bytes above the CFA were written over.
    lost: u64,
    /// The words of the frame written since the last call, by their distances from the CFA: a callee may have
    /// been given them.
    written: BTreeSet<i32>,
    /// They are more than these.
    wrote_more: bool,
    /// Of what is below the CFA.
    frame: Sharing,
    /// Of what the caller put above it.
    passed: Sharing,
}

/// Who may write to memory of the stack. What is above the CFA and what is below it are never parts of the same thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sharing {
    /// The function alone.
    Private,
    /// The function alone, which has made an address of something in it.
    Exposed,
    /// Whoever was given that address.
    Shared,
}

/// No frame passes more words than a function is looked at for.
const MOST_WORDS: usize = 256;

impl Kept {
    /// What is known at entry.
    pub(super) fn entry(facts: &Facts) -> Kept {
        let mut registers = [None; COUNT];
        let arguments = facts.arguments.iter().copied();
        for register in arguments.chain(facts.vector_arguments.clone()) {
            let number = number_of(facts, register);
            if let Some(held) = registers.get_mut(usize::from(number)) {
                *held = Some(Held {
                    source: Source::Register(register),
                    add: 0,
                    bits: 64,
                    is_certain: true,
                });
            }
        }
        Kept {
            registers,
            ..Kept::nothing(0)
        }
    }

    /// Nothing is known, but what is above the CFA if it was not `lost`.
    pub(super) fn nothing(lost: u64) -> Kept {
        Kept {
            registers: [None; COUNT],
            copies: [None; COUNT],
            slots: Vec::new(),
            lost,
            written: BTreeSet::new(),
            wrote_more: false,
            frame: Sharing::Private,
            passed: Sharing::Private,
        }
    }

    /// Whether what is at a distance from the CFA is certain.
    pub(super) fn is_private(&self, at: i32) -> bool {
        let sharing = if at < 0 { self.frame } else { self.passed };
        sharing != Sharing::Shared
    }

    /// Others can do what they like, once they have an address.
    fn let_others(&mut self) {
        for sharing in [&mut self.frame, &mut self.passed] {
            if *sharing == Sharing::Exposed {
                *sharing = Sharing::Shared;
            }
        }
    }

    /// Where something that the function was called with is, if all its low `bits` are, and how: certain ones first, then
    /// those in registers that calls preserve, which stay longest. Nobody has the vector registers of a frame.
    #[must_use]
    pub(crate) fn place_of(
        &self,
        source: Source,
        bits: u8,
        facts: &Facts,
    ) -> Option<(Place, Held)> {
        let fits = |held: &Held| held.source == source && held.bits >= bits;
        let registers = (0_u8..).zip(&self.registers);
        let registers = registers.filter_map(|(register, held)| {
            let is_there = register != SCRATCH && !is_vector(register);
            let held = (*held).filter(|held| is_there && fits(held))?;
            Some((Place::Register(register), held))
        });
        let slots = self.slots.iter().filter(|slot| fits(&slot.held));
        let slots = slots.map(|slot| (Place::Slot(slot.at), self.seen(slot)));
        let own = self.own(source).map(|(at, held)| (Place::Slot(at), held));
        let rank = |(place, held): &(Place, Held)| {
            let stays = match place {
                Place::Register(register) => facts.preserved.contains(register),
                Place::Slot(_) => true,
            };
            (held.is_certain, stays, held.add == 0)
        };
        let mut best: Option<(Place, Held)> = None;
        for found in registers.chain(slots).chain(own) {
            if best.as_ref().is_none_or(|best| rank(&found) > rank(best)) {
                best = Some(found);
            }
        }
        best
    }

    /// What was passed in memory and was not written over is where it was.
    fn own(&self, source: Source) -> Option<(i32, Held)> {
        let Source::Stack(word) = source else {
            return None;
        };
        let is_lost = word >= 64 || self.lost >> word & 1 != 0;
        let at = i32::from(word) * 8;
        let held = Held {
            source,
            add: 0,
            bits: 64,
            is_certain: self.is_private(at),
        };
        (!is_lost).then_some((at, held))
    }

    /// What is read out of a slot.
    fn seen(&self, slot: &Slot) -> Held {
        let is_certain = slot.held.is_certain && (slot.is_kept || self.is_private(slot.at));
        Held {
            is_certain,
            ..slot.held
        }
    }

    pub(super) fn held(&self, register: u8) -> Option<Held> {
        self.registers.get(usize::from(register)).copied()?
    }

    pub(super) fn copy(&self, register: u8) -> Option<Passed> {
        self.copies.get(usize::from(register)).copied()?
    }

    /// Has a register hold something else.
    fn set(&mut self, register: u8, held: Option<Held>, copy: Option<Passed>) {
        for copy in &mut self.copies {
            if matches!(copy, Some(Passed::Register { register: of, .. }) if *of == register) {
                *copy = None;
            }
        }
        let index = usize::from(register);
        if let (Some(known), Some(same)) =
            (self.registers.get_mut(index), self.copies.get_mut(index))
        {
            (*known, *same) = (held, copy);
        }
    }

    /// Has bytes of the frame hold something else.
    fn overwrite(&mut self, at: i32, bytes: u32) {
        self.slots.retain(|slot| !slot.overlaps(at, bytes));
        for copy in &mut self.copies {
            if let Some(Passed::Slot {
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
            self.lost |= 1 << word;
        }
        let room = MOST_WORDS.saturating_sub(self.written.len());
        self.wrote_more |= words.clone().nth(room).is_some();
        let places = words.map_while(|word| i32::try_from(word * 8).ok());
        self.written.extend(places.take(room));
    }

    /// Forgets what is in memory that any step of the unit writes: control comes back when others of them were done.
    pub(super) fn forget_written(&mut self, steps: &[Step]) {
        for step in steps {
            match *step {
                Step::Store { at, bytes, .. } => self.overwrite(at, bytes.into()),
                Step::Overwrite { at, bytes } => self.overwrite(at, bytes),
                _ => {}
            }
        }
    }

    /// Has bytes of the frame hold something of an argument.
    fn put(&mut self, at: i32, bytes: u8, held: Held, is_kept: bool) {
        self.slots.push(Slot {
            at,
            bytes,
            held,
            is_kept,
        });
        self.slots.sort_unstable_by_key(|slot| slot.at);
    }

    /// What bytes of the frame hold.
    fn load(&self, at: i32, bytes: u8) -> Option<Held> {
        let slots = self.slots.iter();
        let mut slots = slots.filter(|slot| slot.at == at && slot.bytes >= bytes);
        let held = match slots.next() {
            Some(slot) => Some(self.seen(slot)),
            None if at >= 0 && at % 8 == 0 => {
                let word = u8::try_from(at / 8).ok()?;
                self.own(Source::Stack(word)).map(|(_, held)| held)
            }
            None => None,
        }?;
        Some(Held {
            bits: held.bits.min(bytes.saturating_mul(8)),
            ..held
        })
    }

    /// Does what a call does.
    fn call(&mut self, sp: Option<i32>, takes_none: bool, facts: &Facts) {
        for register in members(facts.clobbered | vectors(facts)) {
            self.set(register, None, None);
        }
        if let Some(sp) = sp {
            self.slots.retain(|slot| slot.at >= sp);
            if !takes_none {
                let end = self.outgoing_end(sp);
                self.slots.retain(|slot| slot.is_kept || slot.at >= end);
                // The end may be that of all memory.
                let given = |word: &i32| word * 8 < end && sp < word * 8 + 8;
                for word in (0..64).filter(given) {
                    self.lost |= 1 << word;
                }
            }
        }
        for copy in &mut self.copies {
            if matches!(copy, Some(Passed::Slot { .. })) {
                *copy = None;
            }
        }
        self.written.clear();
        self.wrote_more = false;
        self.let_others();
    }

    /// Where what may be given to a callee ends: what was written last, from the stack pointer upwards, may be the callee's. One word that
    /// was not may align the next (psABI, §3.2.3).
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

    /// Which slots a call leaves to the caller, as far as it is known where the stack pointer is before it: those from this distance from the CFA on.
    pub(super) fn own_from(&self, sp: Option<i32>, takes_none: bool) -> i32 {
        match sp {
            Some(sp) if takes_none => sp,
            Some(sp) => self.outgoing_end(sp),
            None => i32::MIN,
        }
    }

    /// Takes in what is known on another way; whether that changed anything.
    pub(super) fn join(&mut self, other: &Kept) -> bool {
        let before = self.clone();
        for (mine, theirs) in self.registers.iter_mut().zip(&other.registers) {
            *mine = agreed(*mine, *theirs);
        }
        for (mine, theirs) in self.copies.iter_mut().zip(&other.copies) {
            if mine != theirs {
                *mine = None;
            }
        }
        self.slots.retain_mut(|slot| {
            let same = |theirs: &&Slot| {
                (theirs.at, theirs.bytes, theirs.is_kept) == (slot.at, slot.bytes, slot.is_kept)
            };
            let theirs = other.slots.iter().find(same).map(|theirs| theirs.held);
            let held = agreed(Some(slot.held), theirs);
            slot.held = held.unwrap_or(slot.held);
            held.is_some()
        });
        self.lost |= other.lost;
        self.frame = self.frame.max(other.frame);
        self.passed = self.passed.max(other.passed);
        self.written.extend(&other.written);
        self.wrote_more |= other.wrote_more;
        *self != before
    }

    /// Does what a step does; of a call, `takes_none` says whether it is known to pass nothing in memory.
    pub(super) fn step(&mut self, step: Step, takes_none: bool, facts: &Facts) {
        let is_preserved = |register: u8| facts.preserved.contains(&register);
        match step {
            Step::Copy { to, from, add } => {
                let held = self.held(from).and_then(|held| {
                    let add = held.add.checked_add(add)?;
                    Some(Held { add, ..held })
                });
                let copy = match is_preserved(from) && to != from {
                    true => Some(Passed::Register {
                        register: from,
                        add,
                        bits: 64,
                    }),
                    false => self.copy(from).and_then(|copy| plus(copy, add)),
                };
                self.set(to, held, copy);
                if add == 0 && is_preserved(to) && to != from && !is_preserved(from) {
                    self.same(from, to, 64);
                }
            }
            Step::Low {
                to,
                from,
                bits,
                is_rest_zero,
            } => {
                let held = self.held(from).map(|held| Held {
                    bits: held.bits.min(bits),
                    ..held
                });
                let copy = match is_preserved(from) && to != from {
                    true => Some(Passed::Register {
                        register: from,
                        add: 0,
                        bits,
                    }),
                    false => self.copy(from).and_then(|copy| low(copy, bits)),
                };
                // Of a number all bits would be told.
                let copy = copy.filter(|copy| is_rest_zero || !matches!(copy, Passed::Number(_)));
                self.set(to, held, copy);
                if is_preserved(to) && to != from && !is_preserved(from) {
                    self.same(from, to, bits);
                }
            }
            Step::Number { to, value } => self.set(to, None, Some(Passed::Number(value))),
            Step::Address { to, value } => self.set(to, None, Some(Passed::Address(value))),
            Step::Cfa { to, at } => self.set(to, None, Some(Passed::Cfa(at))),
            Step::Kill { registers } => {
                for register in members(registers) {
                    self.set(register, None, None);
                }
            }
            Step::Load { to, at, bytes } => {
                let held = self.load(at, bytes);
                let copy = Passed::Slot {
                    at,
                    bytes,
                    is_certain: self.is_private(at),
                };
                self.set(to, held, Some(copy));
            }
            Step::Store { at, from, bytes } => {
                let own = u8::try_from(at / 8).ok().filter(|_| at >= 0 && at % 8 == 0);
                let held = self.held(from).map(|held| Held {
                    bits: held.bits.min(bytes.saturating_mul(8)),
                    ..held
                });
                let stays = own.is_some_and(|word| {
                    let before = self.own(Source::Stack(word)).map(|(_, held)| held);
                    before.is_some() && held == before
                });
                if stays {
                    return;
                }
                self.overwrite(at, bytes.into());
                if let Some(held) = held
                    && self.slots.len() < MOST_WORDS
                {
                    self.put(at, bytes, held, false);
                }
                if self.copy(from).is_none() && !is_preserved(from) {
                    let copy = Passed::Slot {
                        at,
                        bytes,
                        is_certain: self.is_private(at),
                    };
                    if let Some(known) = self.copies.get_mut(usize::from(from)) {
                        *known = Some(copy);
                    }
                }
            }
            Step::Overwrite { at, bytes } => self.overwrite(at, bytes),
            Step::Expose { at } => {
                let sharing = match at < 0 {
                    true => &mut self.frame,
                    false => &mut self.passed,
                };
                *sharing = (*sharing).max(Sharing::Exposed);
            }
            Step::Keep { at, source, bytes } => {
                self.slots.retain(|slot| !slot.overlaps(at, bytes.into()));
                let held = Held {
                    source,
                    add: 0,
                    bits: bytes.saturating_mul(8),
                    is_certain: true,
                };
                self.put(at, bytes, held, true);
            }
            Step::Elsewhere => self.let_others(),
            Step::Astray => self.slots.clear(),
            Step::Call { sp, .. } => self.call(sp, takes_none, facts),
        }
    }

    /// Notes that a register holds the same as one that calls preserve, unless more is known of it.
    fn same(&mut self, register: u8, as_preserved: u8, bits: u8) {
        let known = self.copies.get_mut(usize::from(register));
        if let Some(known @ (None | Some(Passed::Slot { .. }))) = known {
            *known = Some(Passed::Register {
                register: as_preserved,
                add: 0,
                bits,
            });
        }
    }
}

/// What two ways agree about.
fn agreed(a: Option<Held>, b: Option<Held>) -> Option<Held> {
    let (a, b) = (a?, b?);
    ((a.source, a.add) == (b.source, b.add)).then(|| Held {
        bits: a.bits.min(b.bits),
        is_certain: a.is_certain && b.is_certain,
        ..a
    })
}

/// The same plus a number.
fn plus(copy: Passed, add: i32) -> Option<Passed> {
    Some(match copy {
        _ if add == 0 => copy,
        Passed::Number(value) => Passed::Number(value.wrapping_add_signed(add.into())),
        Passed::Address(value) => Passed::Address(value.wrapping_add_signed(add.into())),
        Passed::Cfa(at) => Passed::Cfa(at.checked_add(add)?),
        Passed::Register {
            register,
            add: before,
            bits,
        } => Passed::Register {
            register,
            add: before.checked_add(add)?,
            bits,
        },
        Passed::Slot { .. } | Passed::Own(_) => return None,
    })
}

/// The low bits of the same.
fn low(copy: Passed, bits: u8) -> Option<Passed> {
    Some(match copy {
        Passed::Number(value) if bits < 64 => Passed::Number(value & ((1 << bits) - 1)),
        Passed::Register {
            register,
            add,
            bits: before,
        } => Passed::Register {
            register,
            add,
            bits: before.min(bits),
        },
        Passed::Slot {
            at,
            bytes,
            is_certain,
        } => Passed::Slot {
            at,
            bytes: bytes.min(bits / 8),
            is_certain,
        },
        _ => return None,
    })
}
