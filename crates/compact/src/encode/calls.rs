//! The projection of the rows on return addresses.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use unspool_ir::Vaddr;
use unspool_ir::table::Span;

use super::{Code, Numbering, put_u16, put_u32};
use crate::call::MAX_RANGES;
use crate::layout::{ASK_PAGE, ASK_SLOT, BUCKET, BUCKETS, GRANULE, PAGE};

/// The sections of the call-site part; all empty where there is none.
#[derive(Default)]
pub(super) struct Calls {
    /// `EXEC`.
    pub(super) executable: Vec<u8>,
    /// `CDIR`.
    pub(super) pages: Vec<u8>,
    /// `CBKT`.
    pub(super) buckets: Vec<u8>,
    /// `CSTP`.
    pub(super) steps: Vec<u8>,
    /// `CSLT`.
    pub(super) slots: Vec<u8>,
}

/// What the projection says of a granule: a row, or ask the full table.
type Answer = Option<u16>;

/// Builds the call-site part for the addresses that pass the call test.
pub(super) fn project(
    code: &Code<'_>,
    addresses: &[Vaddr],
    spans: &[Span],
    base: Vaddr,
    numbering: &Numbering,
) -> Calls {
    if addresses.is_empty() || code.ranges.len() > MAX_RANGES {
        return Calls::default();
    }
    let mut calls = Calls::default();
    for (start, bytes) in &code.ranges {
        let start = start.0.wrapping_sub(base.0);
        for bound in [start, start + bytes.len() as u64] {
            put_u32(
                &mut calls.executable,
                usize::try_from(bound).unwrap_or(usize::MAX),
            );
        }
    }
    let keys = keys(addresses, base, &covered_pages(spans, base));
    let (granules, sites_of) = answers(&keys, spans, base, numbering);
    let slot_of = rank(sites_of);
    calls.slots = slot_bytes(&slot_of);
    calls.lay_out(&granules, &slot_of);
    calls
}

/// For each page, whether any row lies in it: the projection says nothing of the others.
fn covered_pages(spans: &[Span], base: Vaddr) -> Vec<bool> {
    let page = |addr: u64| usize::try_from(addr.wrapping_sub(base.0) / PAGE).unwrap_or(0);
    let mut covered = vec![false; spans.last().map_or(0, |last| page(last.end.0 - 1) + 1)];
    for span in spans {
        if let Some(pages) = covered.get_mut(page(span.start.0)..=page(span.end.0 - 1)) {
            pages.fill(true);
        }
    }
    covered
}

/// The keys (address minus 1, from base) of the addresses in covered pages, ascending.
fn keys(addresses: &[Vaddr], base: Vaddr, covered: &[bool]) -> Vec<u32> {
    let key = |address: &Vaddr| {
        let key = address.0.wrapping_sub(1).wrapping_sub(base.0);
        let page = usize::try_from(key / PAGE).unwrap_or(usize::MAX);
        u32::try_from(key)
            .ok()
            .filter(|_| covered.get(page) == Some(&true))
    };
    addresses.iter().filter_map(key).collect()
}

/// The answer for each granule that holds a key, and the number of keys of each row.
fn answers(
    keys: &[u32],
    spans: &[Span],
    base: Vaddr,
    numbering: &Numbering,
) -> (Vec<(u32, Answer)>, Vec<u32>) {
    let mut granules: Vec<(u32, Answer)> = Vec::with_capacity(keys.len());
    let mut sites_of = vec![0_u32; 1 << 16];
    let mut rest = spans;
    let granule_bits = GRANULE.trailing_zeros();
    for key in keys {
        let address = base.offset(u64::from(*key));
        while let [span, tail @ ..] = rest
            && span.end <= address
        {
            rest = tail;
        }
        let answer = rest
            .first()
            .filter(|span| span.start <= address)
            .map(|span| numbering.number(span.row));
        if let Some(count) = answer.and_then(|row| sites_of.get_mut(usize::from(row))) {
            *count += 1;
        }
        let granule = key >> granule_bits;
        match granules.last_mut() {
            Some((last, known)) if *last == granule => {
                if *known != answer {
                    *known = None;
                }
            }
            _ => granules.push((granule, answer)),
        }
    }
    (granules, sites_of)
}

/// Gives the rows with the most call sites a slot; yields each row's slot.
fn rank(sites_of: Vec<u32>) -> Vec<u16> {
    let mut rows: Vec<(u16, u32)> = (0_u16..=u16::MAX)
        .zip(sites_of)
        .filter(|(_, sites)| *sites > 0)
        .collect();
    rows.sort_by_key(|(row, sites)| (Reverse(*sites), *row));
    let mut slot_of = vec![ASK_SLOT; 1 << 16];
    for (slot, (row, _)) in (0..ASK_SLOT).zip(rows) {
        if let Some(place) = slot_of.get_mut(usize::from(row)) {
            *place = slot;
        }
    }
    slot_of
}

fn slot_bytes(slot_of: &[u16]) -> Vec<u8> {
    let mut rows: Vec<(u16, u16)> = (0_u16..=u16::MAX)
        .zip(slot_of)
        .filter(|(_, slot)| **slot != ASK_SLOT)
        .map(|(row, slot)| (*slot, row))
        .collect();
    rows.sort_unstable();
    rows.into_iter()
        .flat_map(|(_, row)| row.to_le_bytes())
        .collect()
}

impl Calls {
    /// Writes steps, buckets and pages.
    fn lay_out(&mut self, granules: &[(u32, Answer)], slot_of: &[u16]) {
        let granules_per_page = u32::try_from(PAGE / GRANULE).unwrap_or(u32::MAX);
        let granules_per_bucket = u32::try_from(BUCKET / GRANULE).unwrap_or(u32::MAX);
        let mut in_force = None;
        let mut blocks = 0;
        let mut next_page = 0;
        for page in granules.chunk_by(|a, b| a.0 / granules_per_page == b.0 / granules_per_page) {
            let Some((first, _)) = page.first() else {
                continue;
            };
            let number = first / granules_per_page;
            for _ in next_page..number {
                put_u32(&mut self.pages, ASK_PAGE as usize);
                put_u32(&mut self.pages, 0);
            }
            next_page = number + 1;
            let first_step = self.steps.len() / 2;
            put_u32(&mut self.pages, first_step);
            put_u32(&mut self.pages, blocks);
            blocks += 1;
            let mut steps_up_to = [0_u64; BUCKETS];
            for (granule, answer) in page {
                let slot = answer
                    .and_then(|row| slot_of.get(usize::from(row)))
                    .copied();
                let slot = slot.unwrap_or(ASK_SLOT);
                if in_force != Some(slot) {
                    in_force = Some(slot);
                    let within = granule % granules_per_bucket;
                    put_u16(&mut self.steps, u64::from(within << 9 | u32::from(slot)));
                }
                let bucket = granule % granules_per_page / granules_per_bucket;
                let so_far = (self.steps.len() / 2 - first_step) as u64;
                for count in steps_up_to.iter_mut().skip(bucket as usize) {
                    *count = so_far;
                }
            }
            for count in steps_up_to {
                put_u16(&mut self.buckets, count);
            }
        }
    }
}
