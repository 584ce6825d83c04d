//! The report of a unit: the verdicts on its rows, and what else its code shows.

use unspool_code_analysis::ReturnBehavior;
use unspool_rows::{RowId, Vaddr};

use crate::declared_row::RuleLocation;
use crate::hint::Hint;
use crate::path::JumpEdge;
use crate::row_checker::{Aspect, RowVerdicts, Verdict};

/// The verdict on one row of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedRow {
    /// The address of the row.
    pub start: Vaddr,
    /// The row.
    pub row: RowId,
    /// The join over all its instructions; `None` if none is reached.
    pub verdicts: Option<RowVerdicts>,
}

/// A rule of a row that is not proven before an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discrepancy {
    /// The address of the instruction.
    pub address: Vaddr,
    /// The row.
    pub row: RowId,
    /// The aspect.
    pub aspect: Aspect,
    /// The verdict.
    pub verdict: Verdict,
    /// The actual location, if it is known.
    pub actual: Option<RuleLocation>,
    /// A possible cause.
    pub hint: Option<Hint>,
}

/// A join of paths with different stack heights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeightConflict {
    /// Where they join.
    pub at: Vaddr,
    /// The paths.
    pub paths: [JoiningPath; 2],
}

/// A path to a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoiningPath {
    /// The last instruction before the join; the join itself if the path begins there.
    pub from: Vaddr,
    /// Whether it is a call.
    pub is_call: bool,
    /// Distance of the CFA above the stack pointer in bytes, if it is known.
    pub cfa: Option<i64>,
}

/// The report of a unit's extents.
#[derive(Debug, Clone, Default)]
pub struct UnitReport {
    /// Their rows, ascending.
    pub rows: Vec<CheckedRow>,
    /// Rules that are not proven, in code order.
    pub discrepancies: Vec<Discrepancy>,
    /// Joins of paths with different stack heights.
    pub conflicts: Vec<HeightConflict>,
    /// The first unreached instruction of each entry that is neither padding nor data.
    pub unreached: Vec<Vaddr>,
    /// Returns of functions to their callers, and their behavior.
    pub exits: Vec<(Vaddr, ReturnBehavior)>,
    /// Jumps to other functions in place of a return, and what callers find behind those.
    pub(crate) tail_calls: Vec<(Vaddr, ReturnBehavior)>,
    /// Other exits of extents; not all of them in compiled code.
    pub other_exits: Vec<Vaddr>,
    /// Functions of other units that this one continues in with another CFA than their first rows
    /// say. Each has the distance of that CFA above the stack pointer.
    pub entered_with_frame: Vec<(Vaddr, i64)>,
    /// The jumps among these.
    pub(crate) jumps_with_frame: Vec<JumpEdge>,
    /// Rows that start inside an instruction.
    pub misaligned_rows: Vec<Vaddr>,
    /// Instructions that fall through the end of all entries, and their targets.
    pub fall_through_ends: Vec<JumpEdge>,
    /// Whether a store to the stack uses an index or a number that only a run knows: proven rows
    /// hold if it is inside its array.
    pub assumes_bounds: bool,
    /// Whether the analysis took too many steps: nothing is known.
    pub is_given_up: bool,
    /// Reached instructions that are not known. Whatever control does behind them is not judged.
    pub unknown_insns: Vec<Vaddr>,
    /// Calls of unknown functions that are assumed not to return: the rows behind them contradict
    /// the calls, and other paths lead there.
    pub assumed_noreturn: Vec<Vaddr>,
    /// Ends of entries, in hand-written code, behind calls that may return there.
    pub(crate) ends_behind_calls: Vec<Vaddr>,
    /// Targets of indirect jumps, in hand-written code, that are in no entry.
    pub(crate) targets_outside: Vec<Vaddr>,
    /// Indirect jumps, in hand-written code, into other units otherwise than to functions.
    pub(crate) indirect_edges: Vec<JumpEdge>,
    /// Jumps to other functions with addresses of the unit's code in registers: the function, and
    /// the registers. Bit n stands for register n.
    pub(crate) jumps_with_address: Vec<(Vaddr, u64)>,
    /// Jumps to a register's entry value: the start of the extent, and the register.
    pub(crate) entry_register_jumps: Vec<(Vaddr, u8)>,
    /// Returns, with the preserved registers that have another value than at entry: bit n stands
    /// for register n.
    pub unrestored_at_returns: Vec<(Vaddr, u64)>,
}

impl UnitReport {
    /// Whether there is nothing to report, as mostly.
    pub(crate) fn is_clear(&self) -> bool {
        let places = [&self.unreached, &self.misaligned_rows, &self.unknown_insns];
        self.discrepancies.is_empty()
            && !self.is_given_up
            && self.fall_through_ends.is_empty()
            && places.iter().all(|places| places.is_empty())
    }

    /// Leaves all rows unproven: control may come back from an unknown instruction to any of them.
    pub(super) fn leave_open(&mut self) {
        self.unreached.clear();
        for row in &mut self.rows {
            let known = row.verdicts.unwrap_or(RowVerdicts::PROVEN);
            row.verdicts = Some(known.join(&RowVerdicts::UNPROVEN));
        }
    }
}
