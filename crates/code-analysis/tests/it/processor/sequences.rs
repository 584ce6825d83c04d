//! Random sequences of instructions, executed one after another on this processor: what the analysis
//! claims after all of them holds.

use std::collections::BTreeMap;

use iced_x86::FlowControl;
use unspool_code_analysis::op::{Flow, Op};
use unspool_code_analysis::{AbstractState, ValueFact};

use crate::processor::child::{CODE, ProcessorState, STACK, STACK_BYTES, StepEnd, TraceeProcess};
use crate::processor::comparison::{
    Checker, DIRECTION, Random, RegisterModel, contradictions, is_listed, numbered, setting, state,
};
use crate::processor::forms::InsnForm;
use crate::processor::hexadecimal;

/// Instructions that are tried for a sequence. Many fault.
const TRIED: usize = 64;

/// A pool of instructions without control flow: by mnemonic, so that each is as likely.
pub(crate) struct SequencePool<'f> {
    forms: Vec<Vec<&'f InsnForm>>,
    /// Those of mnemonics that have exact operations.
    exact: Vec<Vec<&'f InsnForm>>,
}

impl<'f> SequencePool<'f> {
    pub(crate) fn new(forms: &'f [InsnForm], checker: &mut Checker) -> SequencePool<'f> {
        let mut by_mnemonic: BTreeMap<String, (Vec<&InsnForm>, bool)> = BTreeMap::new();
        for form in forms {
            let (ops, flow) = checker.lift(&form.bytes);
            let is_index =
                |op: &Op| matches!(op, Op::OverwriteIndexed { .. } | Op::StoreIndexed { .. });
            // A system call may end the process.
            let is_syscall = matches!(
                form.insn.flow_control(),
                FlowControl::Interrupt | FlowControl::Call
            );
            // The assumption about indexes would hide all else.
            if flow.is_some()
                || is_syscall
                || is_listed(form.insn.code(), &form.bytes)
                || ops.iter().any(is_index)
            {
                continue;
            }
            let is_exact = !ops.iter().all(|op| matches!(op, Op::Clobber { .. }));
            let mnemonic = format!("{:?}", form.insn.mnemonic());
            let known = by_mnemonic.entry(mnemonic).or_default();
            known.0.push(form);
            known.1 |= is_exact;
        }
        let (exact, forms): (Vec<_>, Vec<_>) = by_mnemonic
            .into_values()
            .partition(|(_, is_exact)| *is_exact);
        let lists =
            |all: Vec<(Vec<&'f InsnForm>, bool)>| all.into_iter().map(|(it, _)| it).collect();
        SequencePool {
            forms: lists(forms),
            exact: lists(exact),
        }
    }

    fn choose(&self, random: &mut Random) -> &'f InsnForm {
        let lists = if random.next().is_multiple_of(8) {
            &self.forms
        } else {
            &self.exact
        };
        let list = &lists[random.index(lists.len())];
        list[random.index(list.len())]
    }
}

/// Executes one sequence. Returns the number of executed instructions, and what the analysis claims
/// that is not so.
pub(crate) fn execute(
    seed: u64,
    pool: &SequencePool<'_>,
    traced: &mut TraceeProcess,
    checker: &mut Checker,
) -> (usize, Vec<String>) {
    let mut random = Random(seed);
    let model = if seed.is_multiple_of(2) {
        RegisterModel::Concrete
    } else {
        RegisterModel::EntryValues
    };
    let first = setting(
        seed / 2 % 4,
        &traced.registers,
        &traced.extended,
        checker.abi_info,
    );
    let slots = match model {
        RegisterModel::Concrete => words_near(first.registers.rsp),
        RegisterModel::EntryValues => Vec::new(),
    };
    let mut known = state(model, &first, &slots, checker.abi_info);
    if first.registers.eflags & DIRECTION != 0 {
        known.transfer(Op::Direction { is_down: true }, 0, checker.abi_info);
    }
    let entry = numbered(&first.registers);
    let mut now = first;
    let mut executed = Vec::new();
    for _ in 0..TRIED {
        let form = pool.choose(&mut random);
        let (StepEnd::Done, mut after) = traced.execute(&form.bytes, &mut now) else {
            continue;
        };
        // It has more repetitions than are executed.
        if after.registers.rip == CODE {
            continue;
        }
        let (ops, flow): (Vec<Op>, Option<Flow>) = checker.lift(&form.bytes);
        assert_eq!(flow, None);
        if !is_covered(&ops, &known, &now, &after, checker.abi_info.stack_pointer) {
            continue;
        }
        let at = u32::try_from(executed.len()).expect("it is short");
        for op in &ops {
            known.transfer(*op, at, checker.abi_info);
        }
        executed.push(hexadecimal(&form.bytes));
        after.registers.rip = CODE;
        after.registers.orig_rax = u64::MAX;
        now = after;
        let found = contradictions(&known, &entry, &now, checker.abi_info);
        if !found.is_empty() {
            let line = executed.join(" ");
            let found = found
                .into_iter()
                .map(|it| format!("seed {seed}, {model:?}: {line}: {it}"));
            return (executed.len(), found.collect());
        }
    }
    (executed.len(), Vec::new())
}

/// Stack words around the stack pointer.
fn words_near(sp: u64) -> Vec<u64> {
    let near = (sp - 0x60..sp + 0x60).step_by(8);
    near.chain([STACK + 0x9040, STACK + 0x6000, STACK + 0x5000])
        .collect()
}

/// Whether a step is one that the analysis is about: the stack pointer stays on the stack, and the
/// stack is only written at addresses that are known (docs/checking.md, assumption 2).
fn is_covered(
    ops: &[Op],
    known: &AbstractState,
    before: &ProcessorState,
    after: &ProcessorState,
    stack_pointer: u8,
) -> bool {
    let room = STACK + 0x2000..STACK + STACK_BYTES as u64 - 0x2000;
    if !room.contains(&after.registers.rsp) {
        return false;
    }
    let is_on_stack = |base: u8| match known.get(base).fact() {
        ValueFact::EntryValue(register, _) => register.0 == u16::from(stack_pointer),
        ValueFact::SymbolicBase(..) => true,
        _ => false,
    };
    let is_known = |op: &Op| base(op).is_none_or(is_on_stack);
    before.stack == after.stack || ops.iter().all(is_known)
}

/// The register with the address that an operation writes to.
fn base(op: &Op) -> Option<u8> {
    match *op {
        Op::Store { base, .. }
        | Op::StoreLow { base, .. }
        | Op::Overwrite { base, .. }
        | Op::WeakOverwrite { base, .. }
        | Op::StoreUntracked { base, .. }
        | Op::OverwriteUnbounded { base }
        | Op::OverwriteTileRows { base, .. }
        | Op::SaveState { base, .. }
        | Op::Fill { base, .. } => Some(base),
        _ => None,
    }
}
