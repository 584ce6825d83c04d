//! Ranges in which the unwind table is not proven: register values restored by such rows are
//! unknown.

use unspool_arg_table::UnprovenRules;
use unspool_check::{Aspect, CheckSubject, CheckedRow, UnitChecker, Verdict};

/// A range of code with an unwind row that the code does not prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnprovenRange {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// The unproven rules of the row.
    pub rules: UnprovenRules,
}

/// The unproven ranges of a unit's rows.
pub(crate) fn unit_ranges(
    subject: &CheckSubject<'_>,
    unit_checker: &mut UnitChecker,
    unit: usize,
) -> Vec<UnprovenRange> {
    let rows = subject.check_unit(unit_checker, unit).rows;
    let nexts = rows.iter().skip(1).map(|row| row.start.0);
    let ends = nexts.chain([u64::MAX]);
    let unproven_range = |(row, next): (&CheckedRow, u64)| {
        let unproven = of_row(subject, row);
        let extent = subject.program().extent_at(row.start.0)?;
        (!unproven.is_none()).then_some(UnprovenRange {
            start: row.start.0,
            end: next.min(extent.end),
            rules: unproven,
        })
    };
    rows.iter().zip(ends).filter_map(unproven_range).collect()
}

fn of_row(subject: &CheckSubject<'_>, row: &CheckedRow) -> UnprovenRules {
    // The code is unreachable by the analysis, but a frame is there nevertheless.
    let Some(verdicts) = &row.verdicts else {
        return UnprovenRules::ALL;
    };
    let aspects = verdicts.aspects(subject.abi_info());
    let unproven_aspects = aspects.filter(|(_, verdict)| *verdict != Verdict::Proven);
    let unproven = unproven_aspects.map(|(aspect, _)| match aspect {
        Aspect::Register(register) => UnprovenRules::from_register(register),
        Aspect::Cfa | Aspect::ReturnAddress => UnprovenRules::ALL,
    });
    unproven.fold(UnprovenRules::NONE, UnprovenRules::union)
}
