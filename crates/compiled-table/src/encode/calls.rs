//! The projection of the rows on return addresses.

use alloc::vec;
use alloc::vec::Vec;

use unspool_rows::{RowId, Vaddr};

use super::pieces::Pieces;
use super::{ExecutableCode, RowNumbering, put_u16, put_u32};
use crate::buckets::BucketIndex;
use crate::layout::{BUCKET_BYTES, GRANULE_BYTES, LOOKUP_IN_TABLE, PAGE_BYTES};

/// The sections of the call-site part; all empty if there is none.
#[derive(Default)]
pub(super) struct CallSiteSections {
    /// `EXEC`.
    pub(super) executable: Vec<u8>,
    /// `CPGS` and `CBKT`.
    pub(super) index: BucketIndex,
    /// `CSTP`.
    pub(super) steps: Vec<u8>,
}

/// The rows that hold at call sites, with their positions.
pub(super) struct CallSiteProjection {
    /// The granules that hold a key, ascending, with the answer for each.
    granules: Vec<(u32, GranuleRow)>,
    /// The number of keys of each row.
    pub(super) sites_of: Vec<u32>,
    /// For each page, whether any row lies in it: the projection has no answer for the others.
    covered: Vec<bool>,
}

/// The answer for a granule: a row, or ask the full table.
type GranuleRow = Option<RowId>;

impl CallSiteProjection {
    /// Projects the rows on the addresses that pass the call test.
    pub(super) fn new(addresses: &[Vaddr], pieces: &Pieces, base: Vaddr, rows: usize) -> Self {
        let mut projection = CallSiteProjection {
            granules: Vec::with_capacity(addresses.len()),
            sites_of: vec![0; rows],
            covered: covered_pages(pieces),
        };
        let mut rest = pieces.list.as_slice();
        for key in keys(addresses, base, &projection.covered) {
            while let [piece, tail @ ..] = rest
                && piece.end <= key
            {
                rest = tail;
            }
            let piece = rest.first().filter(|piece| piece.start <= key);
            let row = piece.and_then(|piece| {
                let rows = pieces.rows_of(piece).iter();
                rows.rev().find(|row| row.start <= key - piece.start)
            });
            projection.add(key, row.map(|row| row.row));
        }
        projection
    }

    fn add(&mut self, key: u32, granule_row: GranuleRow) {
        if let Some(sites) = granule_row.and_then(|row| self.sites_of.get_mut(row.0 as usize)) {
            *sites += 1;
        }
        let granule = key / GRANULE_BYTES;
        match self.granules.last_mut() {
            Some((last, known)) if *last == granule => {
                if *known != granule_row {
                    *known = None;
                }
            }
            _ => self.granules.push((granule, granule_row)),
        }
    }

    /// Writes steps and their index. In a run of pages without rows there are no keys: there, as
    /// before the first step, the answer is to ask the full table.
    pub(super) fn lay_out(
        &self,
        code: &ExecutableCode<'_>,
        base: Vaddr,
        numbering: &RowNumbering,
    ) -> CallSiteSections {
        let mut calls = CallSiteSections::default();
        if self.granules.is_empty() {
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
        let mut in_force = LOOKUP_IN_TABLE;
        let mut put = |offset: u64, row: u16| {
            if in_force != row {
                in_force = row;
                calls.index.push(offset);
                let granule = offset % BUCKET_BYTES / u64::from(GRANULE_BYTES);
                put_u16(&mut calls.steps, granule << 9 | u64::from(row));
            }
        };
        let mut granules = self.granules.iter().peekable();
        for (page, is_covered) in (0..).zip(&self.covered) {
            if !is_covered {
                put(page * PAGE_BYTES, LOOKUP_IN_TABLE);
            }
            let start = |granule: u32| u64::from(granule) * u64::from(GRANULE_BYTES);
            let is_here =
                |(granule, _): &&(u32, GranuleRow)| start(*granule) < (page + 1) * PAGE_BYTES;
            while let Some((granule, answer)) = granules.next_if(is_here) {
                let row = answer.map_or(LOOKUP_IN_TABLE, |row| numbering.number(row));
                put(start(*granule), row.min(LOOKUP_IN_TABLE));
            }
        }
        calls.index.finish(self.covered.len() as u64);
        calls
    }
}

/// For each page, whether any row lies in it.
fn covered_pages(pieces: &Pieces) -> Vec<bool> {
    let page = |start: u32| usize::try_from(u64::from(start) / PAGE_BYTES).unwrap_or(0);
    let last = pieces.list.last();
    let mut covered = vec![false; last.map_or(0, |piece| page(piece.start) + 1)];
    for piece in &pieces.list {
        if let Some(covered) = covered.get_mut(page(piece.start)) {
            *covered = true;
        }
    }
    covered
}

/// The keys (address minus 1, from base) of the addresses in covered pages, ascending.
fn keys(addresses: &[Vaddr], base: Vaddr, covered: &[bool]) -> Vec<u32> {
    let key = |address: &Vaddr| {
        let key = address.0.wrapping_sub(1).wrapping_sub(base.0);
        let page = usize::try_from(key / PAGE_BYTES).unwrap_or(usize::MAX);
        u32::try_from(key)
            .ok()
            .filter(|_| covered.get(page) == Some(&true))
    };
    addresses.iter().filter_map(key).collect()
}
