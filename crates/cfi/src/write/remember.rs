//! Which rows of an entry are remembered, to be come back to in one byte.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use unspool_rows::{RowId, Vaddr};

/// What leads to a row from the one before.
#[derive(Debug, Clone)]
pub(super) struct RowChange {
    /// Where the row begins.
    pub(super) at: Vaddr,
    pub(super) row: RowId,
    /// The instructions.
    pub(super) bytes: Vec<u8>,
    /// Whether it changes only what readers agree is part of a state: not the size of arguments, nor how the return
    /// address is signed.
    pub(super) is_restorable: bool,
}

/// What is done at a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct StateMarks {
    /// It is restored, in place of its instructions.
    pub(super) is_restored: bool,
    /// It is remembered.
    pub(super) is_remembered: bool,
}

/// The bytes of instructions between remembering and restoring are at most these. Readers hold few changes that are to be undone.
const MAX_LOOKBACK_ROWS: usize = 64;

/// `DW_CFA_remember_state` and `DW_CFA_restore_state`.
const BOTH: usize = 2;

/// Chooses pairs of equal rows, the first to be remembered and the second restored, so that most bytes are saved. One state is
/// remembered at a time.
pub(super) fn states(changes: &[RowChange]) -> Vec<StateMarks> {
    // For each row: the most that is saved up to it, and the row that it is restored from for that, if it is.
    let mut best: Vec<(usize, Option<usize>)> = Vec::with_capacity(changes.len());
    let mut last: BTreeMap<RowId, (usize, usize)> = BTreeMap::new();
    let mut sum = 0;
    for (here, change) in changes.iter().enumerate() {
        let saved = |at: usize| best.get(at).map_or(0, |(saved, _)| *saved);
        let without = here.checked_sub(1).map_or(0, saved);
        sum += change.bytes.len();
        let from = last.insert(change.row, (here, sum));
        let from = from.filter(|(_, then)| change.is_restorable && sum - then <= MAX_LOOKBACK_ROWS);
        let with = from.and_then(|(from, _)| {
            let gain = change.bytes.len().checked_sub(BOTH)?;
            (saved(from) + gain > without).then_some((saved(from) + gain, Some(from)))
        });
        best.push(with.unwrap_or((without, None)));
    }
    let mut states = vec![StateMarks::default(); changes.len()];
    let mut at = changes.len();
    while let Some(here) = at.checked_sub(1) {
        at = here;
        if let Some((_, Some(from))) = best.get(here) {
            if let Some(state) = states.get_mut(here) {
                state.is_restored = true;
            }
            if let Some(state) = states.get_mut(*from) {
                state.is_remembered = true;
            }
            at = from + 1;
        }
    }
    states
}
