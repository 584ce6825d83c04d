//! Choosing the rows of an entry to remember, so that one byte can restore them.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use unspool_rows::{RowId, Vaddr};

/// The change from one row to the next.
#[derive(Debug, Clone)]
pub(super) struct RowChange {
    /// The start of the row.
    pub(super) at: Vaddr,
    pub(super) row: RowId,
    /// The instructions.
    pub(super) bytes: Vec<u8>,
    /// Whether it only changes parts that all readers save: not the size of arguments, nor the
    /// signing of the return address.
    pub(super) is_restorable: bool,
}

/// The marks of a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct StateMarks {
    /// Restore it, instead of writing its instructions.
    pub(super) is_restored: bool,
    /// Remember it.
    pub(super) is_remembered: bool,
}

/// The maximum size of the instructions between remembering and restoring, in bytes. Readers can
/// undo few changes.
const MAX_LOOKBACK_BYTES: usize = 64;

/// The size of `DW_CFA_remember_state` and `DW_CFA_restore_state` in bytes.
const BOTH: usize = 2;

/// Chooses pairs of equal rows, the first to be remembered and the second to be restored, so that
/// most bytes are saved. One state is remembered at a time.
pub(super) fn states(changes: &[RowChange]) -> Vec<StateMarks> {
    // For each row: the maximum saving up to it, and the row that it is then restored from, if any.
    let mut best: Vec<(usize, Option<usize>)> = Vec::with_capacity(changes.len());
    let mut last: BTreeMap<RowId, (usize, usize)> = BTreeMap::new();
    let mut sum = 0;
    for (here, change) in changes.iter().enumerate() {
        let saved = |at: usize| best.get(at).map_or(0, |(saved, _)| *saved);
        let without = here.checked_sub(1).map_or(0, saved);
        sum += change.bytes.len();
        let from = last.insert(change.row, (here, sum));
        let from =
            from.filter(|(_, then)| change.is_restorable && sum - then <= MAX_LOOKBACK_BYTES);
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
