//! What one look at a unit tells: rows, ways out, and how deep its calls are in the stack.

use core::ops::Range;
use std::collections::{HashMap, VecDeque};

use unspool_synth::op::Flow;
use unspool_synth::{Analysis, Extent, InsnId, NoRow, Program, Rules, State, Value};

use crate::ways_out::WaysOut;

/// The rows of a file, each once; others name them by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    numbers: HashMap<Rules, u32>,
    rules: Vec<Rules>,
    /// Those that were last found: one of them is mostly the next.
    recent: VecDeque<(Rules, u32)>,
}

/// So many rows are compared before they are searched for among all.
const RECENT: usize = 8;

impl Rows {
    fn number(&mut self, rules: Rules) -> u32 {
        if let Some((_, number)) = self.recent.iter().find(|(recent, _)| *recent == rules) {
            return *number;
        }
        let number = *self.numbers.entry(rules).or_insert_with(|| {
            self.rules.push(rules);
            u32::try_from(self.rules.len() - 1).unwrap_or(u32::MAX)
        });
        self.recent.truncate(RECENT - 1);
        self.recent.push_front((rules, number));
        number
    }

    /// The row of a number.
    pub(crate) fn get(&self, number: u32) -> Option<Rules> {
        self.rules.get(number as usize).copied()
    }
}

/// An instruction with its row.
#[derive(Debug, Clone)]
pub(crate) struct Insn {
    pub(crate) range: Range<u64>,
    pub(crate) row: Result<u32, NoRow>,
    pub(crate) is_padding: bool,
}

impl Insn {
    pub(crate) fn is_reached(&self) -> bool {
        self.row != Err(NoRow::Unreached)
    }
}

/// Instructions one behind the other that have the same row, or none for the same reason.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) range: Range<u64>,
    pub(crate) row: Result<u32, NoRow>,
    /// How many instructions.
    pub(crate) len: usize,
    /// Whether they are padding that nothing leads to.
    pub(crate) is_left_out: bool,
}

impl Span {
    pub(crate) fn is_reached(&self) -> bool {
        self.row != Err(NoRow::Unreached)
    }
}

/// Puts instructions together, but none of different extents, of which `starts` are the starts.
pub(crate) fn spans(insns: &[Insn], starts: impl IntoIterator<Item = u64>) -> Vec<Span> {
    let mut starts = starts.into_iter().peekable();
    let mut spans: Vec<Span> = Vec::new();
    for insn in insns {
        let begins = starts.next_if(|start| *start <= insn.range.start).is_some();
        while starts.next_if(|start| *start <= insn.range.start).is_some() {}
        let is_left_out = insn.is_padding && !insn.is_reached();
        match spans.last_mut() {
            Some(last)
                if !begins
                    && last.range.end == insn.range.start
                    && (last.row, last.is_left_out) == (insn.row, is_left_out) =>
            {
                last.range.end = insn.range.end;
                last.len += 1;
            }
            _ => spans.push(Span {
                range: insn.range.clone(),
                row: insn.row,
                len: 1,
                is_left_out,
            }),
        }
    }
    spans
}

/// The spans of an extent, of those of its unit.
pub(crate) fn within<'s>(spans: &'s [Span], extent: &Extent) -> &'s [Span] {
    let place = |address| spans.partition_point(|span| span.range.start < address);
    let own = spans.get(place(extent.start)..place(extent.end));
    own.unwrap_or_default()
}

/// A call, and where the stack pointer is before it, counted from where it was at entry.
pub(crate) type Depth = (u64, i64);

/// What is found of a unit.
#[derive(Debug, Default)]
pub(crate) struct Described {
    pub(crate) insns: Vec<Insn>,
    pub(crate) ways: WaysOut,
    pub(crate) depths: Vec<Depth>,
}

impl Described {
    /// Looks at a unit; `see` is told of each instruction that something leads to, too.
    pub(crate) fn of(
        analysis: &Analysis<'_>,
        program: &Program,
        rows: &mut Rows,
        mut see: impl FnMut(InsnId, &State),
    ) -> Described {
        let code = analysis.code();
        let insn = |id| Insn {
            range: code.range(id),
            row: Err(NoRow::Unreached),
            is_padding: code.is_padding(id),
        };
        let mut described = Described {
            insns: code.ids().map(insn).collect(),
            ..Described::default()
        };
        let sp = analysis.facts().stack_pointer;
        let mut last = None;
        analysis.visit_rules(|id, state, rules, is_new| {
            let row = match last.filter(|_| !is_new) {
                Some(row) => row,
                None => rules.map(|rules| rows.number(rules)),
            };
            last = Some(row);
            if let Some(insn) = described.insns.get_mut(id.0 as usize) {
                insn.row = row;
            }
            let flow = code.flow(id);
            if matches!(flow, Some(Flow::Call(_) | Flow::IndirectCall))
                && let Some(depth) = state.get(sp).distance_from(Value::at_entry(sp))
            {
                described.depths.push((code.range(id).start, depth));
            }
            if flow.is_some() {
                described.ways.note(analysis, program, id, state);
                see(id, state);
            }
        });
        described
    }
}

/// The same, with less room, of a unit that something leads to: its ways out need not speak for it.
#[derive(Debug, Default)]
pub(crate) struct Description {
    pub(crate) spans: Vec<Span>,
    pub(crate) ways: WaysOut,
    pub(crate) depths: Vec<Depth>,
}

impl Description {
    /// Of the extents of the unit.
    pub(crate) fn of(described: Described, extents: impl Iterator<Item = Extent>) -> Description {
        let mut description = Description {
            spans: spans(&described.insns, extents.map(|extent| extent.start)),
            ways: described.ways,
            depths: described.depths,
        };
        description.spans.shrink_to_fit();
        description.depths.shrink_to_fit();
        description.ways.keep_against();
        description
    }
}
