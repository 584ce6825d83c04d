//! Functions whose first row says that they are none.
//!
//! An entry whose first row is not what a call leaves may be a part of a function, which other parts jump into, or code
//! that comes with something on the stack, as a resolver behind a PLT does. Of such code nothing is known but its first
//! row, so that is believed. If the row is wrong, all that is held against it is, too.
//! But who returns properly if it is come into as after a call is called.

use unspool_code_analysis::op::Flow;
use unspool_code_analysis::{AbstractState, Analyzer, Assumptions, ExtentKind, Lifter};
use unspool_synthesis::ElfCodeImage;

use crate::subject::CheckSubject;

/// The starts of entries that are functions although their first rows say something else.
pub(crate) fn undeclared_functions(subject: &CheckSubject<'_>, machine: Lifter) -> Vec<u64> {
    let mut analyzer = Analyzer::new(machine);
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

/// Whether a unit that is come into as after a call returns, and each time as after a call.
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

/// Has all be come into as after a call.
struct AllCalled(AbstractState);

impl Assumptions for AllCalled {
    fn fragment_entry_state(&self, _: u64) -> Option<AbstractState> {
        Some(self.0.clone())
    }
}
