//! Where the unwind table does not hold: what was kept in registers is not to be had of frames that are found by such rows.

use unspool_args::Doubts;
use unspool_check::{Aspect, Prover, RowVerdict, Subject, Verdict};

/// A range of code whose unwind row the code does not bear out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doubt {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// What of the row.
    pub doubts: Doubts,
}

/// The doubts about a unit's rows.
pub(crate) fn of_unit(subject: &Subject<'_>, prover: &mut Prover, unit: usize) -> Vec<Doubt> {
    let rows = subject.judge_unit(prover, unit).rows;
    let nexts = rows.iter().skip(1).map(|row| row.start.0);
    let ends = nexts.chain([u64::MAX]);
    let doubt = |(row, next): (&RowVerdict, u64)| {
        let doubts = of_row(subject, row);
        let extent = subject.program().extent_at(row.start.0)?;
        (!doubts.is_none()).then_some(Doubt {
            start: row.start.0,
            end: next.min(extent.end),
            doubts,
        })
    };
    rows.iter().zip(ends).filter_map(doubt).collect()
}

fn of_row(subject: &Subject<'_>, row: &RowVerdict) -> Doubts {
    // Nothing leads there, and a frame stands there nevertheless.
    let Some(judgement) = &row.judgement else {
        return Doubts::ALL;
    };
    let aspects = judgement.aspects(subject.facts());
    let doubted = aspects.filter(|(_, verdict)| *verdict != Verdict::Proven);
    let doubts = doubted.map(|(aspect, _)| match aspect {
        Aspect::Register(register) => Doubts::of_register(register),
        Aspect::Cfa | Aspect::ReturnAddress => Doubts::ALL,
    });
    doubts.fold(Doubts::NONE, Doubts::and)
}
