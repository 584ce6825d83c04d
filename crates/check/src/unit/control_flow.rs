//! Where control gets to from each instruction of a unit: few rows depend on that.

use core::cell::OnceCell;

use unspool_code_analysis::op::Flow;
use unspool_code_analysis::{AbstractValue, Analyzer, InsnId, Lifter};

use super::{Premises, TableAssumptions};
use crate::subject::CheckSubject;

/// The control flow of a unit, analysed when it is asked for.
pub(super) struct LazyControlFlow<'w, 's> {
    subject: &'w CheckSubject<'s>,
    unit: usize,
    premises: &'w Premises,
    analysed: OnceCell<ControlFlow>,
}

impl<'w, 's> LazyControlFlow<'w, 's> {
    pub(super) fn new(
        subject: &'w CheckSubject<'s>,
        unit: usize,
        premises: &'w Premises,
    ) -> LazyControlFlow<'w, 's> {
        LazyControlFlow {
            subject,
            unit,
            premises,
            analysed: OnceCell::new(),
        }
    }

    pub(super) fn get(&self) -> &ControlFlow {
        self.analysed
            .get_or_init(|| ControlFlow::new(self.subject, self.unit, self.premises))
    }
}

/// The instructions of a unit from which control may get to its ends. Addresses, ascending.
#[derive(Debug, Default)]
pub(super) struct ControlFlow {
    /// To a return to the caller.
    pub(super) to_caller: Vec<u64>,
    /// To a row that describes a context, which control is about to enter.
    to_context: Vec<u64>,
}

impl ControlFlow {
    /// Whether control enters another context from an instruction on, and never returns.
    pub(super) fn leaves_by_context(&self, pc: u64) -> bool {
        self.to_context.binary_search(&pc).is_ok() && self.to_caller.binary_search(&pc).is_err()
    }

    fn new(subject: &CheckSubject<'_>, unit: usize, premises: &Premises) -> ControlFlow {
        let Some(lifter) = Lifter::new(subject.table().abi()) else {
            return ControlFlow::default();
        };
        let mut analyzer = Analyzer::new(lifter).with_edges();
        let rows = subject.rows_of(unit);
        let guide = TableAssumptions::new(subject, unit, &rows).with_premises(premises);
        let analysis = subject.analyze(&mut analyzer, unit, &guide);
        let (code, abi_info) = (analysis.code(), analysis.abi_info());
        let sp = abi_info.stack_pointer;
        let mut returns = Vec::new();
        analysis.visit(|insn, state| {
            let is_return = match code.flow(insn) {
                Some(Flow::Return { to, .. }) => {
                    state.get(sp) == AbstractValue::entry_value(sp) && abi_info.is_return(to, state)
                }
                Some(Flow::IndirectJump(target)) => analysis.is_return_by(target, state),
                _ => false,
            };
            if is_return {
                returns.push(insn);
            }
        });
        let contexts = rows.iter().filter(|row| {
            let declared = subject.row_checker.declared(row.row);
            declared.is_some_and(|declared| declared.enters_context(abi_info))
        });
        let contexts = contexts.filter_map(|row| analysis.insn_at(row.start.0));
        let contexts: Vec<InsnId> = contexts.collect();
        let leading_to = |targets: &[InsnId]| {
            let leads = analysis.leading_to(targets);
            let insns = code.ids().zip(leads).filter(|(_, leads)| *leads);
            insns.map(|(insn, _)| code.range(insn).start).collect()
        };
        ControlFlow {
            to_caller: leading_to(&returns),
            to_context: leading_to(&contexts),
        }
    }
}
