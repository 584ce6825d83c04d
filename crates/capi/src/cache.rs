//! Which rule a code address has: a table of fixed size for one address space.
//!
//! Any number of threads may read and write it, from signal handlers too: nobody waits. A slot has
//! a sequence number, odd while it is being written; a reader that sees it odd or changing has
//! found nothing, a writer that does leaves the slot alone. Everything is forgotten at once by a
//! new generation, which slots of the one before do not have.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use unspool_ir::CodeAddr;

use crate::abi::Error;
use crate::rule::{Rule, Simple};
use crate::sys;

/// The rules of the addresses that were asked for last.
#[derive(Debug)]
pub struct Cache {
    slots: Slots,
    /// How many of the slots are used: a power of two.
    used: AtomicUsize,
    /// Grows by [`GENERATION`], and is never zero, which is what empty slots have.
    generation: AtomicU64,
}

#[derive(Debug)]
enum Slots {
    Heap(Box<[Slot]>),
    Static(&'static [Slot]),
}

impl Slots {
    #[inline]
    fn get(&self, at: usize) -> Option<&Slot> {
        match self {
            Slots::Heap(slots) => slots.get(at),
            Slots::Static(slots) => slots.get(at),
        }
    }
}

/// Two lines of a processor's cache.
#[derive(Debug)]
pub(crate) struct Slot {
    sequence: AtomicU64,
    key: AtomicU64,
    /// The generation, and in its lowest byte, which is zero, how many bytes of `data` an encoded
    /// row has, or [`SIMPLE`] or [`OUTERMOST`].
    stamp: AtomicU64,
    data: [AtomicU64; DATA_WORDS],
}

impl Slot {
    /// Nothing.
    pub(crate) const fn empty() -> Slot {
        Slot {
            sequence: AtomicU64::new(0),
            key: AtomicU64::new(0),
            stamp: AtomicU64::new(0),
            data: [const { AtomicU64::new(0) }; DATA_WORDS],
        }
    }
}

const GENERATION: u64 = 1 << 8;

const DATA_WORDS: usize = 13;
const DATA_BYTES: usize = 8 * DATA_WORDS;

/// Instead of a length, which is at most [`DATA_BYTES`], and never 0 for an encoded row: what else
/// there is.
const SIMPLE: u64 = 0;
const OUTERMOST: u64 = 0xff;

/// A stretch of time between two flushes.
#[derive(Debug, Clone, Copy)]
pub struct Now(u64);

/// What was found.
#[derive(Debug, Clone, Copy)]
pub enum Hit {
    /// An outermost frame.
    Outermost,
    /// A simple row.
    Simple(Simple),
    /// Another row.
    Encoded(Short),
}

/// An encoded row that is short enough for a slot. glibc's signal frame, with a rule for every
/// register, takes 88 bytes.
#[derive(Debug, Clone, Copy)]
pub struct Short {
    bytes: [u8; DATA_BYTES],
    len: u8,
}

impl Short {
    /// The row.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl Cache {
    /// The most slots, and how many there are if nobody says otherwise.
    pub const SLOTS: usize = 4096;

    /// A cache with nothing in it.
    ///
    /// # Errors
    ///
    /// [`Error::NO_MEMORY`].
    pub fn new() -> Result<Cache, Error> {
        Ok(Cache {
            // Zero pages of the system: those that are never used are never there.
            slots: Slots::Heap(sys::heap::zeroed(Cache::SLOTS).ok_or(Error::NO_MEMORY)?),
            used: AtomicUsize::new(Cache::SLOTS),
            generation: AtomicU64::new(GENERATION),
        })
    }

    /// A cache with nothing in it, in these slots, [`Cache::SLOTS`] of them.
    pub(crate) const fn of_static(slots: &'static [Slot; Cache::SLOTS]) -> Cache {
        Cache {
            slots: Slots::Static(slots),
            used: AtomicUsize::new(Cache::SLOTS),
            generation: AtomicU64::new(GENERATION),
        }
    }

    /// Forgets everything.
    pub fn flush(&self) {
        self.generation.fetch_add(GENERATION, Ordering::Relaxed);
    }

    /// Uses so many slots, rounded up to a power of two, and at most [`Cache::SLOTS`]. Forgets
    /// everything.
    pub fn resize(&self, slots: usize) {
        let slots = slots.clamp(2, Cache::SLOTS).next_power_of_two();
        self.used.store(slots, Ordering::Relaxed);
        self.flush();
    }

    /// An address's own slot, and its number.
    #[inline]
    fn own(&self, key: u64) -> Option<(&Slot, usize)> {
        // Fibonacci hashing: neighbouring addresses go to different slots.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let at = usize::try_from(hash).ok()? & (self.used.load(Ordering::Relaxed) - 1);
        Some((self.slots.get(at)?, at))
    }

    /// The other slot that an address may be in.
    fn other(&self, at: usize) -> Option<&Slot> {
        self.slots.get(at ^ 1)
    }

    /// The row of an address, if it is known to be simple and at its own place: what nearly every
    /// step finds.
    #[inline]
    #[must_use]
    pub fn simple(&self, code: CodeAddr) -> Option<Simple> {
        let key = key(code);
        let (first, _) = self.own(key)?;
        first.simple(key, self.generation.load(Ordering::Relaxed))
    }

    /// The rule of an address, if it is known.
    #[must_use]
    pub fn get(&self, code: CodeAddr) -> Option<Hit> {
        let key = key(code);
        let generation = self.generation.load(Ordering::Relaxed);
        let (first, at) = self.own(key)?;
        first
            .get(key, generation)
            .or_else(|| self.other(at)?.get(key, generation))
    }

    /// What is to be asked for before a rule is found out that [`Cache::put`] is to keep.
    #[must_use]
    pub fn now(&self) -> Now {
        Now(self.generation.load(Ordering::Relaxed))
    }

    /// Keeps the rule of an address, if it is short enough and the cache was not flushed since
    /// `now`.
    pub fn put(&self, code: CodeAddr, rule: &Rule, now: Now) {
        let key = key(code);
        let Now(generation) = now;
        if let Some((first, at)) = self.own(key)
            && let Some(second) = self.other(at)
        {
            // It takes its own slot, where it is found soonest; who was there goes to the other.
            second.take_over(first, generation);
            first.put(key, generation, rule);
        }
    }
}

/// An address and which row of it is meant: that of the instruction, or of the call before it.
fn key(code: CodeAddr) -> u64 {
    match code {
        CodeAddr::Instruction(addr) => addr.0 << 1,
        CodeAddr::Return(addr) => addr.0 << 1 | 1,
    }
}

impl Slot {
    fn is_of(&self, generation: u64) -> bool {
        self.stamp.load(Ordering::Relaxed) ^ generation < GENERATION
    }

    #[inline]
    fn simple(&self, key: u64, generation: u64) -> Option<Simple> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let stamp = generation | SIMPLE;
        let [a, b, c, d, e, ..] = &self.data;
        let is_it =
            self.key.load(Ordering::Relaxed) == key && self.stamp.load(Ordering::Relaxed) == stamp;
        let simple = Simple([a, b, c, d, e].map(|word| word.load(Ordering::Relaxed)));
        (is_it && self.is_unchanged(sequence)).then_some(simple)
    }

    fn get(&self, key: u64, generation: u64) -> Option<Hit> {
        if let Some(simple) = self.simple(key, generation) {
            return Some(Hit::Simple(simple));
        }
        let sequence = self.sequence.load(Ordering::Acquire);
        let is_it = self.key.load(Ordering::Relaxed) == key;
        let kind = self.stamp.load(Ordering::Relaxed) ^ generation;
        let hit = match kind {
            // It was being written a moment ago.
            SIMPLE => return None,
            OUTERMOST => Hit::Outermost,
            _ => Hit::Encoded(self.encoded(u8::try_from(kind).ok()?)),
        };
        (is_it && self.is_unchanged(sequence)).then_some(hit)
    }

    /// Whether nothing was written since the sequence number was read, and nothing was being
    /// written then.
    #[inline]
    fn is_unchanged(&self, sequence: u64) -> bool {
        fence(Ordering::Acquire);
        sequence & 1 == 0 && self.sequence.load(Ordering::Relaxed) == sequence
    }

    fn encoded(&self, len: u8) -> Short {
        let mut bytes = [0; DATA_BYTES];
        for (to, from) in bytes.chunks_exact_mut(8).zip(&self.data) {
            to.copy_from_slice(&from.load(Ordering::Relaxed).to_le_bytes());
        }
        Short { bytes, len }
    }

    fn put(&self, key: u64, generation: u64, rule: &Rule) {
        if let Some((data, kind)) = packed(rule) {
            self.write(key, generation | kind, data);
        }
    }

    /// Becomes what `other` is, if that is worth keeping.
    fn take_over(&self, other: &Slot, generation: u64) {
        let sequence = other.sequence.load(Ordering::Acquire);
        if !other.is_of(generation) {
            return;
        }
        let (key, stamp) = (&other.key, &other.stamp);
        let (key, stamp) = (key.load(Ordering::Relaxed), stamp.load(Ordering::Relaxed));
        let data = other
            .data
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        if other.is_unchanged(sequence) {
            self.write(key, stamp, data);
        }
    }

    fn write(&self, key: u64, stamp: u64, data: [u64; DATA_WORDS]) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        let taken = self.sequence.compare_exchange(
            sequence & !1,
            sequence | 1,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if taken.is_err() {
            return;
        }
        // No store below may be seen before the odd number.
        fence(Ordering::Release);
        self.key.store(key, Ordering::Relaxed);
        self.stamp.store(stamp, Ordering::Relaxed);
        for (to, from) in self.data.iter().zip(data) {
            to.store(from, Ordering::Relaxed);
        }
        let next = (sequence | 1).wrapping_add(1);
        self.sequence.store(next, Ordering::Release);
    }
}

/// What a slot keeps of a rule, and the lowest byte of its stamp; `None` for an encoded row that
/// is too long.
fn packed(rule: &Rule) -> Option<([u64; DATA_WORDS], u64)> {
    let mut data = [0; DATA_WORDS];
    match rule {
        Rule::Outermost => Some((data, OUTERMOST)),
        Rule::Simple(simple) => {
            for (to, from) in data.iter_mut().zip(simple.0) {
                *to = from;
            }
            Some((data, SIMPLE))
        }
        Rule::Encoded(bytes) => {
            let mut all = [0; DATA_BYTES];
            all.get_mut(..bytes.len())?.copy_from_slice(bytes);
            for (to, from) in data.iter_mut().zip(all.chunks_exact(8)) {
                *to = u64::from_le_bytes(from.try_into().ok()?);
            }
            Some((data, bytes.len() as u64))
        }
    }
}

#[cfg(test)]
mod tests;
