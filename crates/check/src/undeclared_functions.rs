//! Functions with a first row that denies it.
//!
//! If an entry's first row is not that after a call, it may be a part of a function that other
//! parts jump into. It may also be code entered with something on the stack, like a PLT's resolver.
//! Only its first row describes such code, so that is assumed. If the row is wrong, all findings
//! based on it are, too. But code that returns properly when entered as by a call is a function.

use unspool_code_analysis::op::Flow;
use unspool_code_analysis::{AbstractState, Analyzer, Assumptions, ExtentKind, Lifter};
use unspool_synthesis::ElfCodeImage;

use crate::subject::CheckSubject;

/// The starts of entries that are functions although their first rows say otherwise.
pub(crate) fn undeclared_functions(subject: &CheckSubject<'_>, lifter: Lifter) -> Vec<u64> {
    let mut analyzer = Analyzer::new(lifter);
    let program = subject.program();
    let alone = |unit: usize| {
        let mut extents = program.unit(unit);
        let extent = extents.next()?;
        let is_alone = extents.next().is_none() && extent.kind == ExtentKind::Fragment;
        is_alone.then_some((unit, extent.start))
    };
    let alone = (0..program.unit_count()).filter_map(alone);
    alone
        .filter(|(unit, start)| {
            let row = subject.first_row(*start);
            let is_interrupted = row.is_some_and(|(_, declared)| declared.signal_frame);
            !is_interrupted && returns_properly(subject, &mut analyzer, *unit)
        })
        .map(|(_, start)| start)
        .collect()
}

/// Whether a unit entered as by a call returns, and each time as after a call.
fn returns_properly(subject: &CheckSubject<'_>, analyzer: &mut Analyzer, unit: usize) -> bool {
    let called = AllCalled(analyzer.entry());
    let analysis = analyzer.analyze(
        subject.program(),
        &ElfCodeImage(subject.file()),
        unit,
        &[],
        &called,
    );
    let (mut returns, mut are_proper) = (0_usize, true);
    analysis.visit(|insn, state| {
        if let Some(Flow::Return { .. }) = analysis.code().flow(insn) {
            returns += 1;
            are_proper &= analysis.is_return(state);
        }
    });
    returns != 0 && are_proper
}

/// Assumes that every entry is entered as by a call.
struct AllCalled(AbstractState);

impl Assumptions for AllCalled {
    fn fragment_entry_state(&self, _: u64) -> Option<AbstractState> {
        Some(self.0.clone())
    }
}
