//! Rows of another table, held against the same code.

use core::ops::Range;

use unspool_ir::table::Span;
use unspool_ir::{Row, RowId, Table};
use unspool_synth::Analyzer;
use unspool_synth::op::Flow;

use crate::judge::{Judge, Judgement};
use crate::subject::Subject;
use crate::unit::ByTable;

/// A table of a file's code that is not the file's own.
#[derive(Debug)]
pub struct Others<'t> {
    table: &'t Table,
    spans: Vec<Span>,
    judge: Judge<'t>,
}

impl<'t> Others<'t> {
    /// Makes a table ready to be held against the code of a file.
    #[must_use]
    pub fn new(table: &'t Table, subject: &Subject<'_>) -> Others<'t> {
        Others {
            table,
            spans: table.spans().collect(),
            judge: Judge::new(table, subject.facts()),
        }
    }

    /// The row of an address.
    #[must_use]
    pub fn row(&self, at: u64) -> Option<Row<'t>> {
        self.table.row(self.id(at)?)
    }

    fn id(&self, at: u64) -> Option<RowId> {
        let place = self.spans.partition_point(|span| span.end.0 <= at);
        let span = self.spans.get(place)?;
        (span.start.0 <= at).then_some(span.row)
    }
}

impl Subject<'_> {
    /// Judges another table's row at each instruction of a unit that something leads to, by what the analysis that
    /// judges the file's own table knows there. `found` is told the instruction's addresses and what was found, `None`
    /// where the other table has no row.
    pub fn judge_others(
        &self,
        analyzer: &mut Analyzer,
        unit: usize,
        others: &Others<'_>,
        mut found: impl FnMut(Range<u64>, Option<Judgement>),
    ) {
        let rows = self.rows_of(unit);
        let analysis = self.analyze(analyzer, unit, &ByTable::new(self, unit, &rows));
        let code = analysis.code();
        analysis.visit(|insn, state| {
            let range = code.range(insn);
            let is_call = matches!(code.flow(insn), Some(Flow::Call(_) | Flow::IndirectCall));
            let judgement = others.id(range.start).map(|row| {
                let before = others.judge.judge(row, state, range.start);
                match is_call {
                    true => {
                        let across = analysis.while_called(state);
                        before.worse(&others.judge.judge(row, &across, range.start))
                    }
                    false => before,
                }
            });
            found(range, judgement);
        });
    }
}
