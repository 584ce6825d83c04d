//! Functions with a first row that denies it.
//!
//! If an entry's first row is not that after a call, it may be a part of a function that other
//! parts jump into. It may also be code entered with something on the stack, like a PLT's resolver.
//! Only its first row describes such code, so that is assumed. If the row is wrong, all findings
//! based on it are, too. But code that returns properly when entered as by a call is a function.

use std::collections::BTreeSet;

use unspool_code_analysis::op::{Flow, Op};
use unspool_code_analysis::{
    AbstractState, Analyzer, Assumptions, CodeExtent, ExtentKind, Lifter, ProgramCode,
};
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
            !is_interrupted && returns_properly(subject, &mut analyzer, subject.program(), *unit)
        })
        .map(|(_, start)| start)
        .collect()
}

/// The labels inside entries that no call enters: their rows deny it, no call in the file leads
/// there, and they do not return properly if called. Outlined epilogues have one for each number of
/// registers.
pub(crate) fn declared_entries(subject: &CheckSubject<'_>) -> BTreeSet<u64> {
    let mut labels = subject.uncalled_labels();
    if labels.is_empty() {
        return labels;
    }
    let abi = subject.table().abi();
    let (Some(mut lifter), Some(own)) = (Lifter::new(abi), Lifter::new(abi)) else {
        return BTreeSet::new();
    };
    let (mut analyzer, image) = (Analyzer::new(own), ElfCodeImage(subject.file()));
    let called = subject.called_addresses();
    labels.retain(|label| {
        let Some(extent) = subject.program().extent_at(*label) else {
            return false;
        };
        let rest = CodeExtent {
            start: *label,
            kind: ExtentKind::Fragment,
            ..extent
        };
        let program = ProgramCode::scan(&mut lifter, &image, vec![rest], Vec::new(), |_| false);
        !called.contains(label) && !returns_properly(subject, &mut analyzer, &program, 0)
    });
    labels
}

/// Whether a unit of a program, entered as by a call, returns, and each time as after a call.
fn returns_properly(
    subject: &CheckSubject<'_>,
    analyzer: &mut Analyzer,
    program: &ProgramCode,
    unit: usize,
) -> bool {
    let called = AllCalled(analyzer.entry());
    let analysis = analyzer.analyze(program, &ElfCodeImage(subject.file()), unit, &[], &called);
    let (mut returns, mut are_proper) = (0_usize, true);
    analysis.visit(|insn, state| {
        // It is only assumed where the caller's frame is.
        let mut ops = analysis.code().ops_of(insn).iter();
        are_proper &= !ops.any(|op| matches!(op, Op::AssumeStackPointer { .. }));
        if let Some(Flow::Return { to, .. }) = analysis.code().flow(insn) {
            returns += 1;
            are_proper &= analysis.is_return(to, state);
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
