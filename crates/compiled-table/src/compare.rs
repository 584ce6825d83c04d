//! The proof: a compiled table compared with its source rows, over every address.
//!
//! Rows are constant on ranges of addresses. Within a range of the source, the compiled table's own
//! ranges are visited one after another. So both ends of every range of either side are looked up,
//! and no range is skipped. The comparison is complete, not sampled.

use alloc::vec;
use alloc::vec::Vec;

use unspool_rows::table::Span;
use unspool_rows::{Fde, RowId, Table, Vaddr};

use crate::call_sites::CallSites;
use crate::call_test::{CALL_WINDOW_BYTES, window};
use crate::encode::ExecutableCode;
use crate::reader::{CompiledTable, EntryInfo, RowRef, TableCorruption};

/// The result of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceComparison {
    /// Ranges of the source that were compared.
    pub rows: u64,
    /// Distinct rows among them.
    pub distinct_rows: u64,
    /// Pieces of entries that were compared by bounds, personality and LSDA.
    pub entries: u64,
    /// Holes, looked up at both ends.
    pub holes: u64,
    /// Addresses that pass the call test and were looked up in the call-site part.
    pub call_sites: u64,
    /// Those of them that the call-site part leaves to the full table.
    pub call_sites_asked: u64,
    /// Addresses that do not pass; the call-site part must not answer for them.
    pub other_addresses: u64,
    /// Differences; the first [`SourceComparison::MAX_MISMATCHES`] are kept.
    pub mismatches: Vec<Mismatch>,
    /// The number of all differences.
    pub mismatch_count: u64,
}

impl SourceComparison {
    /// The limit of differences kept for display.
    pub const MAX_MISMATCHES: usize = 100;

    /// Whether the two are equal.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.mismatch_count == 0
    }

    fn note(&mut self, at: Vaddr, what: MismatchKind) {
        self.mismatch_count += 1;
        if self.mismatches.len() < Self::MAX_MISMATCHES {
            self.mismatches.push(Mismatch { at, what });
        }
    }

    /// Adds the counts of another part of the same table.
    pub fn add(&mut self, other: SourceComparison) {
        self.rows += other.rows;
        self.entries += other.entries;
        self.holes += other.holes;
        self.call_sites += other.call_sites;
        self.call_sites_asked += other.call_sites_asked;
        self.other_addresses += other.other_addresses;
        self.mismatch_count += other.mismatch_count;
        let room = Self::MAX_MISMATCHES.saturating_sub(self.mismatches.len());
        self.mismatches
            .extend(other.mismatches.into_iter().take(room));
    }
}

/// An address where the compiled table differs from its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// The address.
    pub at: Vaddr,
    /// The difference.
    pub what: MismatchKind,
}

/// A kind of difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MismatchKind {
    /// The architecture or byte order, at no address in particular.
    #[error("another architecture or byte order")]
    Abi,
    /// The source has a row; the compiled table has another, or none.
    #[error("another row")]
    Row,
    /// The source has a hole and the compiled table a row.
    #[error("a row in a hole")]
    Hole,
    /// The entry's bounds, personality or LSDA.
    #[error("another entry")]
    Entry,
    /// The call-site part has another row than the source at the call.
    #[error("another row at a call site")]
    CallSite,
    /// The call-site part answers for an address that does not follow a call.
    #[error("a call-site answer for an address that follows no call")]
    NotACallSite,
    /// The compiled table is corrupt there.
    #[error(transparent)]
    Corrupt(#[from] TableCorruption),
}

/// Compares a compiled table with its source over every address.
///
/// `code` has the executable ranges with their bytes; without them the call-site part is not
/// compared. Linear in both; allocates a word per distinct row.
#[must_use]
pub fn compare(
    source: &Table,
    compiled: &CompiledTable<'_>,
    code: &ExecutableCode<'_>,
) -> SourceComparison {
    let mut comparison = compare_rows(source, compiled);
    comparison.add(compare_calls(source, compiled, code));
    comparison
}

/// Maps rows of the source to rows of the compiled table: each pair is compared once.
struct RowMatcher<'s, 't> {
    source: &'s Table,
    compiled: &'s CompiledTable<'t>,
    known: Vec<Option<RowRef>>,
}

impl RowMatcher<'_, '_> {
    fn is_same(&mut self, ours: RowId, theirs: RowRef) -> bool {
        let Some(known) = self.known.get_mut(ours.0 as usize) else {
            return false;
        };
        if *known == Some(theirs) {
            return true;
        }
        let same = match (self.source.row(ours), self.compiled.row(theirs)) {
            (Some(ours), Ok(theirs)) => ours == theirs,
            _ => false,
        };
        if same {
            *known = Some(theirs);
        }
        same
    }
}

/// Compares rows, holes and entries: the first half of [`compare`].
#[must_use]
pub fn compare_rows(source: &Table, compiled: &CompiledTable<'_>) -> SourceComparison {
    let mut comparison = SourceComparison::default();
    if compiled.abi() != source.abi() {
        comparison.note(Vaddr(0), MismatchKind::Abi);
    }
    if !compiled.is_ordered() {
        comparison.note(Vaddr(0), MismatchKind::Corrupt(TableCorruption::Pieces));
        return comparison;
    }
    let mut same = RowMatcher {
        source,
        compiled,
        known: vec![None; source.distinct_rows()],
    };
    let mut seen = vec![false; source.distinct_rows()];
    let mut pieces = compiled.piece_starts().peekable();
    let mut at = Vaddr(0);
    let mut entry_before = None;
    for span in source.spans() {
        if at < span.start {
            while let Some(piece) = pieces.next_if(|piece| *piece < span.start) {
                comparison.note(piece, MismatchKind::Hole);
            }
            compare_hole(&mut comparison, compiled, at, Vaddr(span.start.0 - 1));
        }
        comparison.rows += 1;
        if let Some(seen) = seen.get_mut(span.row.0 as usize) {
            comparison.distinct_rows += u64::from(!*seen);
            *seen = true;
        }
        if let Err(difference) = compare_span(&mut same, &span) {
            comparison.note(span.start, difference);
        }
        let ours = source.fde(span.fde).map(facts_of);
        // A piece of the previous entry may extend into this one.
        if entry_before != Some(span.fde) && pieces.peek() != Some(&span.start) {
            compare_entry(&mut comparison, compiled, span.start, ours);
        }
        while let Some(piece) = pieces.next_if(|piece| *piece < span.end) {
            comparison.entries += 1;
            compare_entry(&mut comparison, compiled, piece, ours);
        }
        at = span.end;
        entry_before = Some(span.fde);
    }
    for piece in pieces {
        comparison.note(piece, MismatchKind::Hole);
    }
    // No entry extends past the last address, so that one is always in a hole.
    compare_hole(&mut comparison, compiled, at, Vaddr(u64::MAX));
    comparison
}

fn compare_entry(
    comparison: &mut SourceComparison,
    compiled: &CompiledTable<'_>,
    at: Vaddr,
    ours: Option<EntryInfo>,
) {
    match compiled.entry(at) {
        Ok(theirs) if theirs == ours => {}
        Ok(_) => comparison.note(at, MismatchKind::Entry),
        Err(corrupt) => comparison.note(at, corrupt.into()),
    }
}

fn facts_of(fde: &Fde) -> EntryInfo {
    EntryInfo {
        start: fde.start,
        end: fde.end,
        personality: fde.personality,
        lsda: fde.lsda,
    }
}

/// Visits the compiled ranges from one end of a source range to the other.
fn compare_span(matcher: &mut RowMatcher<'_, '_>, span: &Span) -> Result<(), MismatchKind> {
    let mut at = span.start;
    while at < span.end {
        let hit = matcher.compiled.lookup(at)?.ok_or(MismatchKind::Row)?;
        // A range that does not contain its address would leave others unchecked.
        if hit.start > at || hit.end <= at {
            return Err(MismatchKind::Corrupt(TableCorruption::Pieces));
        }
        let last = Vaddr(hit.end.0.min(span.end.0) - 1);
        let at_last = matcher.compiled.lookup(last)?.ok_or(MismatchKind::Row)?;
        if !matcher.is_same(span.row, hit.row) || !matcher.is_same(span.row, at_last.row) {
            return Err(MismatchKind::Row);
        }
        at = hit.end;
    }
    Ok(())
}

/// Looks up the first and the last address of a hole; the caller has checked that no piece begins
/// in it.
fn compare_hole(
    comparison: &mut SourceComparison,
    compiled: &CompiledTable<'_>,
    first: Vaddr,
    last: Vaddr,
) {
    comparison.holes += 1;
    for at in [first, last] {
        match compiled.lookup(at) {
            Ok(None) => {}
            Ok(Some(_)) => comparison.note(at, MismatchKind::Hole),
            Err(corrupt) => comparison.note(at, corrupt.into()),
        }
    }
}

/// Compares the call-site part, the second half of [`compare`]: at every address of the code,
/// whether it passes the call test or not.
///
/// The part answers only for addresses that pass; those are looked up one by one. The others are
/// represented by both neighbours of every passing address, which must have no answer.
#[must_use]
pub fn compare_calls(
    source: &Table,
    compiled: &CompiledTable<'_>,
    code: &ExecutableCode<'_>,
) -> SourceComparison {
    let mut comparison = SourceComparison::default();
    let mut same = RowMatcher {
        source,
        compiled,
        known: vec![None; source.distinct_rows()],
    };
    let sites = compiled.call_sites();
    if code.ranges.is_empty() && !sites.is_empty() {
        // It answers for addresses without any code to compare it with.
        comparison.note(Vaddr(0), MismatchKind::NotACallSite);
    }
    let mut spans = source.spans().peekable();
    for (start, bytes) in &code.ranges {
        let before = |address: Vaddr| {
            let end = usize::try_from(address.0.wrapping_sub(start.0)).unwrap_or(usize::MAX);
            window(bytes, end)
        };
        let mut next_other = *start;
        sites.test().for_each(*start, bytes, |address| {
            for other in [next_other, Vaddr(address.0.wrapping_sub(1))] {
                if other < address && other >= next_other {
                    compare_other(&mut comparison, &sites, other, before(other));
                }
            }
            next_other = address.offset(1);
            let call = Vaddr(address.0.wrapping_sub(1));
            while spans.next_if(|span| span.end <= call).is_some() {}
            let row = spans
                .peek()
                .filter(|span| span.start <= call)
                .map(|span| span.row);
            compare_site(
                &mut comparison,
                &mut same,
                &sites,
                address,
                before(address),
                row,
            );
        });
        comparison.other_addresses += bytes.len() as u64;
    }
    comparison.other_addresses = comparison
        .other_addresses
        .saturating_sub(comparison.call_sites);
    comparison
}

fn compare_site(
    comparison: &mut SourceComparison,
    matcher: &mut RowMatcher<'_, '_>,
    sites: &CallSites<'_>,
    address: Vaddr,
    before: [u8; CALL_WINDOW_BYTES],
    row: Option<RowId>,
) {
    comparison.call_sites += 1;
    match (sites.row(address, before), row) {
        (Ok(None), _) => comparison.call_sites_asked += 1,
        (Ok(Some(theirs)), Some(ours)) if matcher.is_same(ours, theirs) => {}
        (Ok(Some(_)), _) => comparison.note(address, MismatchKind::CallSite),
        (Err(corrupt), _) => comparison.note(address, corrupt.into()),
    }
}

fn compare_other(
    comparison: &mut SourceComparison,
    sites: &CallSites<'_>,
    address: Vaddr,
    before: [u8; CALL_WINDOW_BYTES],
) {
    match sites.row(address, before) {
        Ok(None) => {}
        Ok(Some(_)) => comparison.note(address, MismatchKind::NotACallSite),
        Err(corrupt) => comparison.note(address, corrupt.into()),
    }
}
