//! The projection of the rows on return addresses.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use unspool_ir::Vaddr;
use unspool_ir::table::Span;

use super::{Code, Numbering, put_u16, put_u32};
use crate::buckets::Builder;
use crate::layout::{ASK_SLOT, GRANULE, PAGE, STEP_BUCKET};

/// The sections of the call-site part; all empty where there is none.
#[derive(Default)]
pub(super) struct Calls {
    /// `EXEC`.
    pub(super) executable: Vec<u8>,
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
    let mut calls = Calls::default();
    if addresses.is_empty() {
        return calls;
    }
    let (start, end) = code.bounds();
    for bound in [start, end] {
        let offset = bound.0.wrapping_sub(base.0);
        put_u32(
            &mut calls.executable,
            usize::try_from(offset).unwrap_or(usize::MAX),
        );
    }
    let covered = covered_pages(spans, base);
    let keys = keys(addresses, base, &covered);
    let (granules, sites_of) = answers(&keys, spans, base, numbering);
    let slot_of = rank(sites_of);
    calls.slots = slot_bytes(&slot_of);
    calls.lay_out(&granules, &slot_of, &covered);
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
    /// Writes steps and their buckets. In a run of pages without rows nothing was asked: there
    /// the answer is the full table's, as it is before the first step.
    fn lay_out(&mut self, granules: &[(u32, Answer)], slot_of: &[u16], covered: &[bool]) {
        let mut buckets = Builder::new(STEP_BUCKET);
        let mut in_force = ASK_SLOT;
        let mut put = |offset: u64, slot: u16| {
            if in_force != slot {
                in_force = slot;
                buckets.push(offset);
                let within = offset % STEP_BUCKET / GRANULE;
                put_u16(&mut self.steps, within << 9 | u64::from(slot));
            }
        };
        let mut granules = granules.iter().peekable();
        for (page, is_covered) in (0..).zip(covered) {
            if !is_covered {
                put(page * PAGE, ASK_SLOT);
            }
            let is_here =
                |(granule, _): &&(u32, Answer)| u64::from(*granule) * GRANULE < (page + 1) * PAGE;
            while let Some((granule, answer)) = granules.next_if(is_here) {
                let slot = answer
                    .and_then(|row| slot_of.get(usize::from(row)))
                    .copied();
                put(u64::from(*granule) * GRANULE, slot.unwrap_or(ASK_SLOT));
            }
        }
        self.buckets = buckets.finish(covered.len() as u64, PAGE);
    }
}
