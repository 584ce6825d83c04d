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
//! separate table of [`VersionedWords`].

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use unspool_rows::{CodeAddr, RuntimeAddr};

use super::CachedPackedRow;
use super::numbered_rules::{GENERATION, NumberedRules};
use crate::versioned_words::VersionedWords;

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
/// The numbers of rules are lower.
const NUMBERS_END: u64 = NUMBERS as u64;
const NUMBERS: usize = 1 << 14;

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
    /// The packed rows.
    numbered: NumberedRules<{ StepCache::SLOTS }, NUMBERS>,
    others: [UnnumberedRule; OTHERS],
}

const OTHERS: usize = 256;

/// A rule that has no number: the key, with the generation, or zero if empty; the length of an
/// encoded row in bytes, or zero for a packed row, which is then the first word; and the words.
type UnnumberedRule = VersionedWords<{ 2 + ROW_WORDS }>;

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
    pub(crate) const SLOTS: usize = 1 << 16;

    /// An empty cache: all zero.
    #[must_use]
    pub const fn empty() -> StepCache {
        StepCache {
            generation: AtomicU64::new(0),
            numbered: NumberedRules::new(),
            others: [const { UnnumberedRule::new() }; OTHERS],
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
        self.numbered.clear();
        self.others.iter().for_each(UnnumberedRule::clear_key);
    }

    /// The rule of an address, if it is cached, packed, and in the address's own slot: the usual
    /// case. It may be [`CachedPackedRow::NONE`].
    #[inline(always)]
    #[must_use]
    pub fn simple(&self, step_address: StepAddress) -> Option<CachedPackedRow> {
        let generation = self.generation.load(Ordering::Relaxed);
        let word = (self.numbered).own(step_address.slot(), step_address.key ^ generation);
        word.map(CachedPackedRow::from_word)
    }

    /// The rule of an address, if cached.
    #[must_use]
    pub fn get(&self, step_address: StepAddress) -> Option<CachedRule> {
        let tag = step_address.key ^ self.generation.load(Ordering::Relaxed);
        let word = self.numbered.get(step_address.slot(), tag);
        let simple = word.map(CachedPackedRow::from_word);
        match simple.filter(|simple| *simple != CachedPackedRow::NONE) {
            Some(simple) => Some(CachedRule::Simple(simple)),
            None => unpacked(self.other(step_address)?.read(tag).filter(|_| tag != 0)?),
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
        let is_numbered = match rule {
            StepRule::Simple(simple) => {
                (self.numbered).put(step_address.slot(), tag, simple.word(), generation.0)
            }
            StepRule::Encoded(_) => false,
        };
        if !is_numbered
            && let (Some(other), Some(words)) = (self.other(step_address), packed(tag, rule))
        {
            other.write(words);
        }
    }
}

impl Default for StepCache {
    fn default() -> Self {
        StepCache::empty()
    }
}

/// A rule with its key; `None` for an encoded row that is too long.
fn packed(key: u64, rule: StepRule<'_>) -> Option<[u64; 2 + ROW_WORDS]> {
    let (len, words) = match rule {
        StepRule::Simple(simple) => (0, [simple.word(); ROW_WORDS]),
        StepRule::Encoded(row) => {
            let mut bytes = [0; ROW_BYTES];
            bytes.get_mut(..row.len())?.copy_from_slice(row);
            let (words, _) = bytes.as_chunks();
            let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
            (
                row.len(),
                core::array::from_fn(|_| words.next().unwrap_or(0)),
            )
        }
    };
    let mut words = [key, len as u64].into_iter().chain(words);
    Some(core::array::from_fn(|_| words.next().unwrap_or(0)))
}

fn unpacked([_, len, words @ ..]: [u64; 2 + ROW_WORDS]) -> Option<CachedRule> {
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
