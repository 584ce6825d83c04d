//! Inline data between instructions: jump tables, constants.
//!
//! A range is decoded from its start on, whatever it contains. Data also decodes as instructions,
//! and the last of these may reach into the code behind. So a jump into the middle of an unreached
//! instruction makes its target an anchor: decoding restarts there. (A reached instruction may be
//! jumped into as well: a jump over a prefix.)

use core::ops::Range;
use std::collections::HashMap;
use std::sync::Arc;

use super::{Analysis, Analyzer, BranchTarget};
use crate::code::InsnId;
use crate::op::Flow;
use crate::program::{ProgramCode, ReturnBehavior};
use crate::state::AbstractState;
use crate::value::JumpTable;

/// Inline data of a unit's ranges.
#[derive(Debug, Default)]
pub(super) struct InlineData {
    /// Addresses where decoding restarts, ascending.
    pub(super) anchors: Vec<u64>,
    /// Addresses of known jump tables.
    pub(super) tables: Vec<Range<u64>>,
    /// Targets of the jump tables that were used.
    pub(super) resolved_tables: HashMap<JumpTable, JumpTableTargets>,
    /// Jump table targets without an instruction there.
    pub(super) misaligned_targets: Vec<u64>,
    /// Reached jumps into the middle of instructions.
    pub(super) overlapping_jumps: Vec<InsnId>,
    /// What callers find behind functions that tables and pointers name.
    pub(super) callees: HashMap<JumpTable, Option<ReturnBehavior>>,
}

/// A resolved jump table.
#[derive(Debug)]
pub(super) struct JumpTableTargets {
    /// Its targets, ascending.
    pub(super) targets: Arc<[InsnId]>,
    /// A state that all targets have already joined.
    pub(super) propagated: Option<AbstractState>,
}

impl InlineData {
    /// Clears everything except the anchors.
    pub(super) fn clear(&mut self) {
        self.tables.clear();
        self.resolved_tables.clear();
        self.misaligned_targets.clear();
        self.overlapping_jumps.clear();
        self.callees.clear();
    }

    /// A range, split at the anchors.
    pub(super) fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let Range { mut start, end } = range;
        let inside = move |anchor: &&u64| start < **anchor && **anchor < end;
        let cuts = self.anchors.iter().filter(inside).copied();
        cuts.chain([end]).map(move |cut| {
            let piece = start..cut;
            start = cut;
            piece
        })
    }

    /// Whether a range overlaps a jump table.
    pub(super) fn is_in_table(&self, range: &Range<u64>) -> bool {
        let overlaps = |table: &Range<u64>| range.start < table.end && table.start < range.end;
        self.tables.iter().any(overlaps)
    }
}

impl Analyzer {
    /// Finds new anchors of the unit. Returns whether there are any.
    pub(super) fn find_anchors(&mut self, program: &ProgramCode) -> bool {
        /// A bound, for code that hides code behind data repeatedly.
        const MAX_ANCHORS: usize = 256;
        if self.data.anchors.len() > MAX_ANCHORS {
            return false;
        }
        let found = Analysis {
            analyzer: self,
            program,
        }
        .misaligned_targets();
        let before = self.data.anchors.len();
        self.data.anchors.extend(found);
        self.data.anchors.sort_unstable();
        self.data.anchors.dedup();
        self.data.anchors.len() > before
    }
}

impl Analysis<'_> {
    /// Jump targets in the middle of unreached instructions.
    fn misaligned_targets(&self) -> Vec<u64> {
        let analyzer = self.analyzer;
        let straddler = |to| analyzer.ranges.insn_across(to, &analyzer.code);
        let jumps = analyzer.code.flows().iter().zip(&analyzer.targets);
        let jumps = jumps.filter_map(|((insn, flow), target)| match (flow, target) {
            (
                Flow::Jump(to) | Flow::Branch { to, .. } | Flow::Call(to),
                BranchTarget::Outside(_),
            ) => Some((*insn, *to)),
            _ => None,
        });
        let mut jumps: Vec<_> = jumps.filter(|(_, to)| straddler(*to).is_some()).collect();
        let mut missed: Vec<u64> = analyzer.data.misaligned_targets.clone();
        missed.retain(|to| straddler(*to).is_some());
        if jumps.is_empty() && missed.is_empty() {
            return missed;
        }
        let unreached: Vec<_> = self.unreached_insns().collect();
        jumps.retain(|(insn, _)| unreached.binary_search(insn).is_err());
        missed.extend(jumps.into_iter().map(|(_, to)| to));
        missed.retain(|to| {
            let hidden = straddler(*to);
            hidden.is_some_and(|insn| unreached.binary_search(&insn).is_ok())
        });
        missed
    }
}
