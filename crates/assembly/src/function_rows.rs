//! The instructions of functions with their rows, and reasons to doubt these.

use core::ops::Range;
use std::collections::{HashMap, HashSet};

use unspool_code_analysis::arch::AbiInfo;
use unspool_code_analysis::op::Flow;
use unspool_code_analysis::{
    AbstractValue, Analysis, Analyzer, ExtentKind, InsnId, MissingRow, NoAssumptions, ProgramCode,
    ProvenRules, ValueFact,
};
use unspool_elf::ElfFile;
use unspool_rows::Vaddr;
use unspool_synthesis::{ElfCodeImage, FunctionExtent};

use crate::directives::DirectiveWriter;
use crate::refusal::{AnnotateRefusal, RefusalReason};
use crate::source::AssemblySource;

/// An instruction that needs a row.
#[derive(Debug, Clone)]
pub(crate) struct PlannedInsn {
    pub(crate) range: Range<u64>,
    pub(crate) line: u32,
    pub(crate) rules: ProvenRules,
    /// Whether control falls through to the next.
    pub(crate) falls_through: bool,
}

/// Plans the functions of a file.
pub(crate) struct FunctionPlanner<'w, L> {
    pub(crate) file: &'w ElfFile,
    pub(crate) program: &'w ProgramCode,
    pub(crate) writer: DirectiveWriter,
    pub(crate) line_of: &'w L,
    /// Return behavior of functions, by start.
    pub(crate) callee_behavior: &'w HashMap<u64, CalleeBehavior>,
    pub(crate) source: &'w AssemblySource,
}

/// How a function returns to its callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CalleeBehavior {
    /// As the ABI says.
    Standard,
    /// With another stack pointer.
    MovesStackPointer,
    /// With other values in registers that calls preserve.
    LosesRegisters,
}

impl CalleeBehavior {
    /// Return behavior of all functions of a program, by start: the worst of their own returns and
    /// those of the functions that they jump to.
    pub(crate) fn by_function(
        program: &ProgramCode,
        image: &ElfCodeImage<'_>,
        analyzer: &mut Analyzer,
    ) -> HashMap<u64, CalleeBehavior> {
        let abi_info = analyzer.abi_info();
        let mut all = HashMap::new();
        let mut jumps: Vec<(u64, u64)> = Vec::new();
        for unit in 0..program.unit_count() {
            let analysis = analyzer.analyze(program, image, unit, &[], &NoAssumptions);
            let returned = CalleeBehavior::of_unit(&analysis, program, abi_info);
            let code = analysis.code();
            let targets = code.ids().filter_map(|id| code.flow(id)?.jump_target());
            let targets: Vec<u64> = targets
                .filter(|to| program.index_starting_at(*to).is_some())
                .collect();
            for extent in program.unit(unit) {
                all.insert(extent.start, returned);
                jumps.extend(targets.iter().map(|to| (extent.start, *to)));
            }
        }
        loop {
            let mut changed = false;
            for (from, to) in &jumps {
                let there = all.get(to).copied();
                if let Some((here, there)) = all.get_mut(from).zip(there)
                    && *here < there
                {
                    *here = there;
                    changed = true;
                }
            }
            if !changed {
                return all;
            }
        }
    }

    /// The worst of a unit's returns, and of jumps in place of a call and a return.
    fn of_unit(
        analysis: &Analysis<'_>,
        program: &ProgramCode,
        abi_info: &AbiInfo,
    ) -> CalleeBehavior {
        let mut worst = CalleeBehavior::Standard;
        let entry_sp = AbstractValue::entry_value(abi_info.stack_pointer);
        analysis.visit(|id, state| {
            let Some(flow) = analysis.code().flow(id) else {
                return;
            };
            let sp = state.get(abi_info.stack_pointer);
            let wanted = match flow {
                Flow::Return { to, .. } if abi_info.is_return(to, state) => entry_sp,
                // A return elsewhere is a jump there.
                Flow::Return { .. } => entry_sp.plus(-i64::from(abi_info.call_pushes)),
                // With another stack pointer it stays in the function: to a case of a switch.
                Flow::IndirectJump(_) if sp == entry_sp => entry_sp,
                _ if sp == entry_sp
                    && let Some(to) = flow.jump_target()
                    && program.index_starting_at(to).is_some() =>
                {
                    entry_sp
                }
                _ => return,
            };
            if !analysis.preserves(state) {
                worst = worst.max(CalleeBehavior::LosesRegisters);
            } else if sp != wanted {
                worst = worst.max(CalleeBehavior::MovesStackPointer);
            }
        });
        worst
    }
}

/// The jumps of a unit that are returns: to the return address, with the stack as after a return.
fn returning_jumps(analysis: &Analysis<'_>) -> HashSet<InsnId> {
    let mut found = HashSet::new();
    analysis.visit(|id, state| {
        let Some(Flow::IndirectJump(target)) = analysis.code().flow(id) else {
            return;
        };
        if analysis.is_return_by(target, state) {
            found.insert(id);
        }
    });
    found
}

impl<L: Fn(Vaddr) -> Option<u32>> FunctionPlanner<'_, L> {
    /// The instructions of a function, up to the last one that is not padding, with their rows.
    pub(crate) fn instructions(
        &self,
        analysis: &Analysis<'_>,
        function: &FunctionExtent,
    ) -> Result<Vec<PlannedInsn>, AnnotateRefusal> {
        let code = analysis.code();
        let refuse = |(id, reason): (InsnId, RefusalReason)| AnnotateRefusal {
            function: function.name.clone(),
            line: (self.line_of)(Vaddr(code.range(id).start)),
            reason,
        };
        let extent = function.extent;
        let is_own = |id: &InsnId| (extent.start..extent.end).contains(&code.range(*id).start);
        let mut own: Vec<InsnId> = code.ids().filter(is_own).collect();
        self.check_function(analysis, function, &own)
            .map_err(refuse)?;
        let mut rules: HashMap<u64, Result<ProvenRules, MissingRow>> = HashMap::new();
        analysis.visit_rows(|id, _, row, _| {
            rules.insert(code.range(id).start, row);
        });
        let row_of = |id: InsnId| {
            let row = rules.get(&code.range(id).start);
            row.copied().unwrap_or(Err(MissingRow::Unreached))
        };
        // Behind the last reached instruction there is padding or data.
        let is_last = |id: &InsnId| match row_of(*id) {
            Err(MissingRow::Unreached) => function.has_size && !is_padding(analysis, *id),
            _ => true,
        };
        let end = own.iter().rposition(is_last).map_or(0, |last| last + 1);
        own.truncate(end);
        if let Some(last) = own
            .last()
            .filter(|last| falls_through_end(code.flow(**last)))
        {
            return Err(refuse((*last, RefusalReason::FallsThrough)));
        }
        let mut insns: Vec<PlannedInsn> = Vec::new();
        for id in own {
            let rules = match row_of(id) {
                Ok(rules) => rules,
                // A trap has the row before it. Alignment padding has none: directives behind the
                // line come before it.
                Err(MissingRow::Unreached) if is_padding(analysis, id) => {
                    let is_trap = code.flow(id).is_some();
                    match insns.last().filter(|_| is_trap) {
                        Some(last) => last.rules,
                        None => continue,
                    }
                }
                Err(why) => {
                    let mut conflicts = analysis.conflicts().iter();
                    let why = if conflicts.any(|conflict| conflict.at == id) {
                        RefusalReason::StackHeightConflict
                    } else {
                        why.into()
                    };
                    return Err(refuse((id, why)));
                }
            };
            let range = code.range(id);
            let line = (self.line_of)(Vaddr(range.start));
            insns.push(PlannedInsn {
                line: line.ok_or_else(|| refuse((id, RefusalReason::NoLine)))?,
                rules,
                falls_through: code.flow(id).is_none_or(Flow::falls_through),
                range,
            });
        }
        Ok(insns)
    }

    /// Checks that a function is entered and left as the analysis assumes. The error is the
    /// instruction that is not.
    fn check_function(
        &self,
        analysis: &Analysis<'_>,
        function: &FunctionExtent,
        own: &[InsnId],
    ) -> Result<(), (InsnId, RefusalReason)> {
        let code = analysis.code();
        let Some(first) = own.first().copied() else {
            return Ok(());
        };
        if function.name == "_start" {
            return Err((first, RefusalReason::ProgramEntry));
        }
        if self.callee_behavior.get(&function.extent.start) == Some(&CalleeBehavior::LosesRegisters)
        {
            return Err((first, RefusalReason::UnrestoredRegisters));
        }
        let returns = returning_jumps(analysis);
        let is_unknown = |id: &InsnId| own.binary_search(id).is_ok() && !returns.contains(id);
        if let Some(jump) = analysis.unresolved().iter().find(|id| is_unknown(id)) {
            return Err((*jump, RefusalReason::UnknownJumpTarget));
        }
        let is_odd_call = |id: &InsnId| match code.flow(*id) {
            Some(Flow::Call(to)) => {
                let returned = self.callee_behavior.get(&to);
                returned.is_some_and(|returned| *returned != CalleeBehavior::Standard)
            }
            _ => false,
        };
        if let Some(call) = own.iter().find(|id| is_odd_call(id)) {
            return Err((*call, RefusalReason::NonstandardCallee));
        }
        self.check_exits(analysis, own)
            .map_err(|id| (id, RefusalReason::UnbalancedTailCall))
    }

    /// A jump to another function needs a state as at entry.
    fn check_exits(&self, analysis: &Analysis<'_>, own: &[InsnId]) -> Result<(), InsnId> {
        let code = analysis.code();
        let abi_info = self.writer.abi_info;
        let mut found = Ok(());
        analysis.visit(|id, state| {
            let (Some(Flow::Jump(to)) | Some(Flow::Branch { to, .. })) = code.flow(id) else {
                return;
            };
            let place = self.program.index_starting_at(to);
            let extent = place.and_then(|place| self.program.extents().get(place));
            let here = code.range(id).start;
            let is_other = extent.is_some_and(|extent| {
                extent.kind == ExtentKind::Function && !(extent.start..extent.end).contains(&here)
            });
            if !is_other || own.binary_search(&id).is_err() || found.is_err() {
                return;
            }
            let sp = state.get(abi_info.stack_pointer).fact();
            let is_as_entered =
                matches!(sp, ValueFact::EntryValue(register, 0) if register.0 == abi_info.stack_pointer.into());
            let rules = ProvenRules::from_state(state, abi_info);
            let is_same = rules
                .is_ok_and(|rules| rules.return_address == ProvenRules::function_entry(abi_info).return_address);
            if !(is_as_entered && is_same) {
                found = Err(id);
            }
        });
        found
    }
}

/// Whether control falls through at a function's end: a call there never returns.
fn falls_through_end(flow: Option<Flow>) -> bool {
    flow.is_none_or(|flow| flow.falls_through() && !flow.is_call())
}

/// Whether an instruction does nothing or traps: it is between functions, or behind calls that
/// never return.
fn is_padding(analysis: &Analysis<'_>, id: InsnId) -> bool {
    let code = analysis.code();
    match code.flow(id) {
        Some(Flow::Trap | Flow::Unknown) => true,
        None => code.ops_of(id).is_empty(),
        Some(_) => false,
    }
}
