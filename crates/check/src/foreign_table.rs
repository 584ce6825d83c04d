//! Another table's rows, checked against the same code.

use core::ops::Range;

use unspool_code_analysis::Analyzer;
use unspool_code_analysis::op::Flow;
use unspool_rows::table::Span;
use unspool_rows::{Row, RowId, Table};

use crate::row_checker::{RowChecker, RowVerdicts};
use crate::subject::CheckSubject;
use crate::unit::TableAssumptions;

/// A table of a file's code other than the file's own.
#[derive(Debug)]
pub struct ForeignTable<'t> {
    table: &'t Table,
    spans: Vec<Span>,
    row_checker: RowChecker<'t>,
}

impl<'t> ForeignTable<'t> {
    /// Prepares a table for the check against a file's code.
    #[must_use]
    pub fn new(table: &'t Table, subject: &CheckSubject<'_>) -> ForeignTable<'t> {
        ForeignTable {
            table,
            spans: table.spans().collect(),
            row_checker: RowChecker::new(table, subject.abi_info()),
        }
    }

    /// The row at an address.
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
    /// Checks another table's row at each reached instruction of a unit, with the dataflow analysis
    /// that checks the file's own table. `found` receives the instruction's addresses and the
    /// verdicts, `None` where the other table has no row.
    pub fn check_foreign_table(
        &self,
        analyzer: &mut Analyzer,
        unit: usize,
        foreign: &ForeignTable<'_>,
        mut found: impl FnMut(Range<u64>, Option<RowVerdicts>),
    ) {
        let rows = self.rows_of(unit);
        let analysis = self.analyze(analyzer, unit, &TableAssumptions::new(self, unit, &rows));
        let code = analysis.code();
        analysis.visit(|insn, state| {
            let range = code.range(insn);
            let is_call = code.flow(insn).is_some_and(Flow::is_call);
            let verdicts = foreign.row_id(range.start).map(|row| {
                let before = foreign.row_checker.check(row, state, range.start);
                if is_call {
                    let across = analysis.state_during_call(state);
                    before.join(&foreign.row_checker.check(row, &across, range.start))
                } else {
                    before
                }
            });
            found(range, verdicts);
        });
    }
}
