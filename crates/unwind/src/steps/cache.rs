//! The rules of code addresses: tables of fixed size for one address space.
//!
//! Any number of threads may read and write them, from signal handlers too, without waiting.
//!
//! A slot is one word, with the address and the number of the address's rule. Frames have few
//! different rules: each gets a permanent number on first use, so a number never changes its
//! meaning. A new generation discards everything at once, because older words do not match it.
//!
//! ```text
//! key   bits 0-47   the code address
//!       bits 48-49  its kind: `Arrival`
//!       bit 50      no rule is cached for it: the address cannot be code, or the stack pointer is
//!                   not a multiple of 8
//!
//! tag   bits 0-50   the key
//!       bit 51      it is in the neighbouring slot
//!       bits 52-63  the generation
//!
//! slot  the exclusive or of a tag and the number of a rule; zero if empty
//! ```
//!
//! Numbers have 14 bits, and the low bits of a key choose the slot. So two tags with one slot
//! differ above these bits. A slot's word without the wanted tag is a number only if the word has
//! that tag: one comparison decides. An empty slot matches no tag, because no tag is so small.
//!
//! Rows that do not fit into a word, and rows without a number because there are too many, are in a
//! separate table. Its slots have a version, which is odd while the slot is written. A child that
//! is forked then has one slot less.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use unspool_rows::{CodeAddr, RuntimeAddr};

use super::CachedPackedRow;
use crate::row_numbers::RowNumbers;

/// A code address with its kind: the key of a cached rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepAddress {
    ip: u64,
    key: u64,
}

/// The kind of a frame's code address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It is a return address.
    Called,
    /// It is the innermost frame's.
    Innermost,
    /// It was interrupted: the inner frame is a signal frame.
    Interrupted,
}

/// Possible code addresses: below the end of the kernel's range for processes, and not in the first
/// pages, which it keeps free (`vm.mmap_min_addr`).
const CODE: Range<u64> = NUMBERS_END..1 << 48;
const ARRIVAL_SHIFT: u32 = 48;
const UNCACHEABLE: u64 = 1 << 50;
const IN_NEIGHBOUR_SLOT: u64 = 1 << 51;
const GENERATION: u64 = 1 << 52;
/// The numbers of rules are lower.
const NUMBERS_END: u64 = 1 << 14;

impl StepAddress {
    /// The address of a frame with this stack pointer.
    #[must_use]
    pub fn new(ip: u64, stack_pointer: u64, arrival: Arrival) -> StepAddress {
        let arrival = match arrival {
            Arrival::Called => 0,
            Arrival::Innermost => 1 << ARRIVAL_SHIFT,
            Arrival::Interrupted => 2 << ARRIVAL_SHIFT,
        };
        let is_kept = CODE.contains(&ip) && stack_pointer.is_multiple_of(8);
        let address = if is_kept { ip } else { UNCACHEABLE };
        StepAddress {
            ip,
            key: address | arrival,
        }
    }

    /// A return address with cached rules. `None` if it cannot be code.
    #[inline(always)]
    #[must_use]
    pub fn returned(ip: u64) -> Option<StepAddress> {
        CODE.contains(&ip).then_some(StepAddress { ip, key: ip })
    }

    /// Whether rules are cached for it; the stack pointer is a multiple of 8, then.
    #[must_use]
    pub fn is_kept(self) -> bool {
        self.key & UNCACHEABLE == 0
    }

    /// Whether it is the outermost frame's return address. Code at 0 may be interrupted, by the
    /// fault of a call there, but nothing returns there.
    #[must_use]
    pub fn is_nowhere(self) -> bool {
        self.ip == 0 && self.arrival() == Arrival::Called
    }

    /// The address.
    #[must_use]
    pub fn ip(self) -> u64 {
        self.ip
    }

    /// Its kind.
    #[must_use]
    pub fn arrival(self) -> Arrival {
        match self.key >> ARRIVAL_SHIFT & 3 {
            0 => Arrival::Called,
            1 => Arrival::Innermost,
            _ => Arrival::Interrupted,
        }
    }

    /// The address, as a [`CodeAddr`] that selects its row.
    #[must_use]
    pub fn code(self) -> CodeAddr {
        match self.arrival() {
            Arrival::Called => CodeAddr::Return(RuntimeAddr(self.ip)),
            Arrival::Innermost | Arrival::Interrupted => {
                CodeAddr::Instruction(RuntimeAddr(self.ip))
            }
        }
    }

    /// The index of its own slot. It may also be in the neighbouring one.
    #[inline(always)]
    fn slot(self) -> usize {
        usize::try_from(self.key).unwrap_or(0) % StepCache::SLOTS
    }
}

/// The rules of the last addresses used. All zero, it is empty.
#[derive(Debug)]
pub struct StepCache {
    /// A multiple of [`GENERATION`].
    generation: AtomicU64,
    slots: [AtomicU64; StepCache::SLOTS],
    /// The packed rows.
    rows: RowNumbers<NUMBERS>,
    others: [UnnumberedRule; OTHERS],
}

const NUMBERS: usize = 1 << NUMBERS_END.trailing_zeros();
const OTHERS: usize = 256;

/// A rule that has no number.
#[derive(Debug)]
struct UnnumberedRule {
    version: AtomicU64,
    /// The key, with the generation; zero if empty.
    key: AtomicU64,
    /// The length of an encoded row in bytes, or zero for a packed row, which is then the first
    /// word.
    len: AtomicU64,
    words: [AtomicU64; ROW_WORDS],
}

/// glibc's signal frame, with a rule for every register, takes 88 bytes.
const ROW_WORDS: usize = 13;
const ROW_BYTES: usize = 8 * ROW_WORDS;

/// The time between two flushes.
#[derive(Debug, Clone, Copy)]
pub struct Generation(u64);

/// The step from a frame, to be cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepRule<'r> {
    /// By a row in a word.
    Simple(CachedPackedRow),
    /// By another row, as [`unspool_rows::encoding`] has it.
    Encoded(&'r [u8]),
}

/// A cached rule.
#[derive(Debug, Clone, Copy)]
pub enum CachedRule {
    /// A row in a word.
    Simple(CachedPackedRow),
    /// Another row.
    Encoded(EncodedRowBuffer),
}

/// An encoded row that is short enough to be kept.
#[derive(Debug, Clone, Copy)]
pub struct EncodedRowBuffer {
    bytes: [u8; ROW_BYTES],
    len: usize,
}

impl EncodedRowBuffer {
    /// The row.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl StepCache {
    /// The capacity in addresses, without the few with unusual rows.
    pub const SLOTS: usize = 1 << 16;

    /// An empty cache: all zero.
    #[must_use]
    pub const fn empty() -> StepCache {
        StepCache {
            generation: AtomicU64::new(0),
            slots: [const { AtomicU64::new(0) }; StepCache::SLOTS],
            rows: RowNumbers::new(),
            others: [const { UnnumberedRule::empty() }; OTHERS],
        }
    }

    /// Forgets everything.
    pub fn flush(&self) {
        let next = |generation: u64| {
            let next = generation.wrapping_add(GENERATION);
            if next == 0 {
                // Earlier words may have these generation numbers.
                self.clear();
            }
            Some(next)
        };
        // `next` never declines.
        let _ = self
            .generation
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    fn clear(&self) {
        let keys = self.others.iter().map(|other| &other.key);
        for word in self.slots.iter().chain(keys) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The rule of an address, if it is cached, packed, and in the address's own slot: the usual
    /// case. It may be [`CachedPackedRow::NONE`].
    #[inline(always)]
    #[must_use]
    pub fn simple(&self, step_address: StepAddress) -> Option<CachedPackedRow> {
        let generation = self.generation.load(Ordering::Relaxed);
        self.numbered(step_address.slot(), step_address.key ^ generation)
    }

    /// A slot's rule for a tag.
    #[inline(always)]
    fn numbered(&self, slot: usize, tag: u64) -> Option<CachedPackedRow> {
        // Acquire: the rule was stored before its number.
        let word = self.slots.get(slot)?.load(Ordering::Acquire);
        let number = usize::try_from(word ^ tag).ok()?;
        // If it is not a number, the word has another tag.
        self.rows.word(number).map(CachedPackedRow::from_word)
    }

    /// The rule of an address, if cached.
    #[must_use]
    pub fn get(&self, step_address: StepAddress) -> Option<CachedRule> {
        let tag = step_address.key ^ self.generation.load(Ordering::Relaxed);
        let own = self.numbered(step_address.slot(), tag);
        let simple =
            own.or_else(|| self.numbered(step_address.slot() ^ 1, tag ^ IN_NEIGHBOUR_SLOT));
        match simple.filter(|simple| *simple != CachedPackedRow::NONE) {
            Some(simple) => Some(CachedRule::Simple(simple)),
            None => self.other(step_address)?.get(tag),
        }
    }

    fn other(&self, step_address: StepAddress) -> Option<&UnnumberedRule> {
        self.others.get(step_address.slot() % OTHERS)
    }

    /// The present generation, to be read before a rule is determined for [`StepCache::put`].
    #[must_use]
    pub fn now(&self) -> Generation {
        Generation(self.generation.load(Ordering::Relaxed))
    }

    /// Caches the rule of an address, if it is short enough and the cache was not flushed since
    /// `generation`.
    pub fn put(&self, step_address: StepAddress, rule: StepRule<'_>, generation: Generation) {
        if !step_address.is_kept() {
            return;
        }
        let tag = step_address.key ^ generation.0;
        let number = match rule {
            StepRule::Simple(simple) => self.rows.number(simple.word()),
            StepRule::Encoded(_) => None,
        };
        match number {
            Some(number) => self.put_number(step_address, tag, number, generation),
            None => {
                if let Some(other) = self.other(step_address) {
                    other.put(tag, rule);
                }
            }
        }
    }

    fn put_number(
        &self,
        step_address: StepAddress,
        tag: u64,
        number: usize,
        Generation(generation): Generation,
    ) {
        let own = step_address.slot();
        let (Some(first), Some(second)) = (self.slots.get(own), self.slots.get(own ^ 1)) else {
            return;
        };
        // It takes its own slot, where it is found soonest; the previous one moves to the other.
        let before = first.load(Ordering::Acquire);
        let is_others = before ^ tag >= NUMBERS_END && before != 0;
        if is_others && (before ^ generation) < GENERATION && before & IN_NEIGHBOUR_SLOT == 0 {
            second.store(before | IN_NEIGHBOUR_SLOT, Ordering::Release);
        }
        first.store(tag ^ number as u64, Ordering::Release);
    }
}

impl Default for StepCache {
    fn default() -> Self {
        StepCache::empty()
    }
}

impl UnnumberedRule {
    const fn empty() -> Self {
        UnnumberedRule {
            version: AtomicU64::new(0),
            key: AtomicU64::new(0),
            len: AtomicU64::new(0),
            words: [const { AtomicU64::new(0) }; ROW_WORDS],
        }
    }

    fn get(&self, key: u64) -> Option<CachedRule> {
        let version = self.version.load(Ordering::Acquire);
        let is_it = version.is_multiple_of(2) && self.key.load(Ordering::Relaxed) == key;
        let len = self.len.load(Ordering::Relaxed);
        let words = self
            .words
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        // The version is read again after all these loads.
        fence(Ordering::Acquire);
        let is_whole = self.version.load(Ordering::Relaxed) == version;
        (is_it && is_whole && key != 0).then(|| unpacked(len, words))?
    }

    fn put(&self, key: u64, rule: StepRule<'_>) {
        let Some((len, words)) = packed(rule) else {
            return;
        };
        let version = self.version.load(Ordering::Relaxed);
        let (even, odd) = (version & !1, version | 1);
        let taken = self
            .version
            .compare_exchange(even, odd, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            return;
        }
        // The stores below must not be visible before the odd version.
        fence(Ordering::Release);
        self.key.store(key, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        for (to, from) in self.words.iter().zip(words) {
            to.store(from, Ordering::Relaxed);
        }
        self.version.store(odd.wrapping_add(1), Ordering::Release);
    }
}

/// A rule's length and words; `None` for an encoded row that is too long.
fn packed(rule: StepRule<'_>) -> Option<(u64, [u64; ROW_WORDS])> {
    let mut words = [0; ROW_WORDS];
    match rule {
        StepRule::Simple(simple) => {
            words = [simple.word(); ROW_WORDS];
            Some((0, words))
        }
        StepRule::Encoded(row) => {
            let mut bytes = [0; ROW_BYTES];
            bytes.get_mut(..row.len())?.copy_from_slice(row);
            for (to, from) in words.iter_mut().zip(bytes.chunks_exact(8)) {
                *to = u64::from_le_bytes(from.try_into().ok()?);
            }
            Some((row.len() as u64, words))
        }
    }
}

fn unpacked(len: u64, words: [u64; ROW_WORDS]) -> Option<CachedRule> {
    if len == 0 {
        let [word, ..] = words;
        return Some(CachedRule::Simple(CachedPackedRow::from_word(word)));
    }
    let mut bytes = [0; ROW_BYTES];
    for (to, from) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&from.to_le_bytes());
    }
    let len = usize::try_from(len).ok()?;
    Some(CachedRule::Encoded(EncodedRowBuffer { bytes, len }))
}

#[cfg(test)]
mod tests;
