//! Rows of another table, held against the same code.

use core::ops::Range;

use unspool_code_analysis::Analyzer;
use unspool_code_analysis::op::Flow;
use unspool_rows::table::Span;
use unspool_rows::{Row, RowId, Table};

use crate::row_checker::{Judgement, RowChecker};
use crate::subject::CheckSubject;
use crate::unit::TableAssumptions;

/// A table of a file's code that is not the file's own.
#[derive(Debug)]
pub struct ForeignTable<'t> {
    table: &'t Table,
    spans: Vec<Span>,
    judge: RowChecker<'t>,
}

impl<'t> ForeignTable<'t> {
    /// Makes a table ready to be held against the code of a file.
    #[must_use]
    pub fn new(table: &'t Table, subject: &CheckSubject<'_>) -> ForeignTable<'t> {
        ForeignTable {
            table,
            spans: table.spans().collect(),
            judge: RowChecker::new(table, subject.abi_info()),
        }
    }

    /// The row of an address.
    #[must_use]
    pub fn row(&self, at: u64) -> Option<Row<'t>> {
        self.table.row(self.row_id(at)?)
    }

    fn row_id(&self, at: u64) -> Option<RowId> {
        let place = self.spans.partition_point(|span| span.end.0 <= at);
        let span = self.spans.get(place)?;
        (span.start.0 <= at).then_some(span.row)
    }
}

impl CheckSubject<'_> {
    /// Judges another table's row at each instruction of a unit that something leads to, by what the analysis that
    /// judges the file's own table knows there. `found` is told the instruction's addresses and what was found, `None`
    /// where the other table has no row.
    pub fn check_foreign_table(
        &self,
        analyzer: &mut Analyzer,
        unit: usize,
        others: &ForeignTable<'_>,
        mut found: impl FnMut(Range<u64>, Option<Judgement>),
    ) {
        let rows = self.rows_of(unit);
        let analysis = self.analyze(analyzer, unit, &TableAssumptions::new(self, unit, &rows));
        let code = analysis.code();
        analysis.visit(|insn, state| {
            let range = code.range(insn);
            let is_call = matches!(code.flow(insn), Some(Flow::Call(_) | Flow::IndirectCall));
            let judgement = others.row_id(range.start).map(|row| {
                let before = others.judge.check(row, state, range.start);
                match is_call {
                    true => {
                        let across = analysis.state_during_call(state);
                        before.join(&others.judge.check(row, &across, range.start))
                    }
                    false => before,
                }
            });
            found(range, judgement);
        });
    }
}
