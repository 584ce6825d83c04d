//! Results for one unit: rows, exits, and the stack depth of its calls.

use core::ops::Range;
use std::collections::{HashMap, VecDeque};

use unspool_code_analysis::op::Flow;
use unspool_code_analysis::{
    AbstractState, AbstractValue, Analysis, CodeExtent, InsnId, MissingRow, ProgramCode,
    ProvenRules,
};

use crate::exits::Exits;

/// Interns the rows of a file, which are then named by number.
#[derive(Debug, Default)]
pub(crate) struct RowInterner {
    numbers: HashMap<ProvenRules, u32>,
    rules: Vec<ProvenRules>,
    /// The last rows found: the next is mostly one of them.
    recent: VecDeque<(ProvenRules, u32)>,
}

/// Number of recent rows compared before a search.
const RECENT_ROWS: usize = 8;

impl RowInterner {
    fn number(&mut self, rules: ProvenRules) -> u32 {
        if let Some((_, number)) = self.recent.iter().find(|(recent, _)| *recent == rules) {
            return *number;
        }
        let number = *self.numbers.entry(rules).or_insert_with(|| {
            self.rules.push(rules);
            u32::try_from(self.rules.len() - 1).unwrap_or(u32::MAX)
        });
        self.recent.truncate(RECENT_ROWS - 1);
        self.recent.push_front((rules, number));
        number
    }

    /// The row with a number.
    pub(crate) fn get(&self, number: u32) -> Option<ProvenRules> {
        self.rules.get(number as usize).copied()
    }
}

/// An instruction with its row.
#[derive(Debug, Clone)]
pub(crate) struct InsnRow {
    pub(crate) range: Range<u64>,
    pub(crate) row: Result<u32, MissingRow>,
    pub(crate) is_padding: bool,
}

impl InsnRow {
    pub(crate) fn is_reached(&self) -> bool {
        self.row != Err(MissingRow::Unreached)
    }
}

/// Consecutive instructions with the same row, or without a row for the same reason.
#[derive(Debug, Clone)]
pub(crate) struct RowSpan {
    pub(crate) range: Range<u64>,
    pub(crate) row: Result<u32, MissingRow>,
    /// Number of instructions.
    pub(crate) len: usize,
    /// Whether they are unreached padding.
    pub(crate) is_unreached_padding: bool,
}

impl RowSpan {
    pub(crate) fn is_reached(&self) -> bool {
        self.row != Err(MissingRow::Unreached)
    }
}

/// Groups instructions, but not across extents; `starts` are the starts of the extents.
pub(crate) fn spans(insns: &[InsnRow], starts: impl IntoIterator<Item = u64>) -> Vec<RowSpan> {
    let mut starts = starts.into_iter().peekable();
    let mut spans: Vec<RowSpan> = Vec::new();
    for insn in insns {
        let begins = starts.next_if(|start| *start <= insn.range.start).is_some();
        while starts.next_if(|start| *start <= insn.range.start).is_some() {}
        let is_left_out = insn.is_padding && !insn.is_reached();
        match spans.last_mut() {
            Some(last)
                if !begins
                    && last.range.end == insn.range.start
                    && (last.row, last.is_unreached_padding) == (insn.row, is_left_out) =>
            {
                last.range.end = insn.range.end;
                last.len += 1;
            }
            _ => spans.push(RowSpan {
                range: insn.range.clone(),
                row: insn.row,
                len: 1,
                is_unreached_padding: is_left_out,
            }),
        }
    }
    spans
}

/// The spans of an extent, out of those of its unit.
pub(crate) fn within<'s>(spans: &'s [RowSpan], extent: &CodeExtent) -> &'s [RowSpan] {
    let place = |address| spans.partition_point(|span| span.range.start < address);
    let own = spans.get(place(extent.start)..place(extent.end));
    own.unwrap_or_default()
}

/// A call, and the stack pointer before it relative to its entry value.
pub(crate) type CallDepth = (u64, i64);

/// Results for a unit.
#[derive(Debug, Default)]
pub(crate) struct UnitRows {
    pub(crate) insns: Vec<InsnRow>,
    pub(crate) exits: Exits,
    pub(crate) depths: Vec<CallDepth>,
}

impl UnitRows {
    /// Evaluates a unit; `see` also visits each reached instruction.
    pub(crate) fn from_analysis(
        analysis: &Analysis<'_>,
        program: &ProgramCode,
        rows: &mut RowInterner,
        mut see: impl FnMut(InsnId, &AbstractState),
    ) -> UnitRows {
        let code = analysis.code();
        let insn = |id| InsnRow {
            range: code.range(id),
            row: Err(MissingRow::Unreached),
            is_padding: code.is_padding(id),
        };
        let mut described = UnitRows {
            insns: code.ids().map(insn).collect(),
            ..UnitRows::default()
        };
        let sp = analysis.abi_info().stack_pointer;
        let mut last = None;
        analysis.visit_rows(|id, state, rules, is_new| {
            let row = match last.filter(|_| !is_new) {
                Some(row) => row,
                None => rules.map(|rules| rows.number(rules)),
            };
            last = Some(row);
            if let Some(insn) = described.insns.get_mut(id.0 as usize) {
                insn.row = row;
            }
            let flow = code.flow(id);
            if flow.is_some_and(Flow::is_call)
                && let Some(depth) = state.get(sp).distance_from(AbstractValue::entry_value(sp))
            {
                described.depths.push((code.range(id).start, depth));
            }
            if flow.is_some() {
                described.exits.add_insn(analysis, program, id, state);
                see(id, state);
            }
        });
        described
    }
}

/// The same in less memory, for a reached unit: its exits need not confirm it.
#[derive(Debug, Default)]
pub(crate) struct UnitSummary {
    pub(crate) spans: Vec<RowSpan>,
    pub(crate) exits: Exits,
    pub(crate) depths: Vec<CallDepth>,
}

impl UnitSummary {
    /// For the extents of the unit.
    pub(crate) fn from_rows(
        rows: UnitRows,
        extents: impl Iterator<Item = CodeExtent>,
    ) -> UnitSummary {
        let mut description = UnitSummary {
            spans: spans(&rows.insns, extents.map(|extent| extent.start)),
            exits: rows.exits,
            depths: rows.depths,
        };
        description.spans.shrink_to_fit();
        description.depths.shrink_to_fit();
        description.exits.retain_contradicting();
        description
    }
}
