//! How the functions of a unit end: returns, tail calls, and the registers behind them.

use unspool_code_analysis::op::ReturnTarget;
use unspool_code_analysis::{
    AbstractState, AbstractValue, Analysis, InsnId, PushedWords, ReturnBehavior, ValueFact,
};
use unspool_rows::Vaddr;
use unspool_synthesis::ElfCodeImage;

use super::Discrepancy;
use super::row_walk::RowWalk;
use crate::declared_row::RuleLocation;
use crate::hint::Hint;
use crate::origin::CodeOrigin;
use crate::row_checker::{Aspect, RowVerdicts, Verdict};

/// The last of the words that a function may write to its caller's frame stands for all further
/// ones.
const BEYOND_CALLER_WORDS: u64 = 1 << 63;

/// The registers for which something holds: bit n stands for register n.
pub(super) fn register_set(is_in: impl Fn(u8) -> bool) -> u64 {
    let registers = (0..64).filter(|register| is_in(*register));
    registers.fold(0, |all, register| all | 1 << register)
}

impl RowWalk<'_, '_> {
    /// If `target` is the return address: the behavior of a return with the stack pointer `left`.
    pub(super) fn exit(
        &self,
        target: AbstractValue,
        state: &AbstractState,
        left: AbstractValue,
    ) -> Option<ReturnBehavior> {
        let abi_info = self.subject.abi_info();
        let behind = target.bytes_past_return_address(abi_info.return_address)?;
        let cfa =
            AbstractValue::entry_value(abi_info.stack_pointer).plus(abi_info.call_pushes.into());
        let Some(popped) = left.distance_from(cfa) else {
            return self.exit_elsewhere(state);
        };
        if self.origin == CodeOrigin::HandWritten {
            let registers = self.register_behavior(state, popped);
            if self.caller_words & BEYOND_CALLER_WORDS != 0 {
                return Some(ReturnBehavior::Unknown);
            }
            match (behind, popped) {
                (0, 0) => return Some(registers),
                _ if registers.breaks_abi() => return Some(ReturnBehavior::Unknown),
                _ => {}
            }
        }
        if behind > 0 {
            return (popped == 0).then_some(ReturnBehavior::SkipsData(behind));
        }
        if let Ok(pops) = u16::try_from(popped) {
            return Some(ReturnBehavior::Pops(pops));
        }
        let saved = |at: i64| {
            let holds = state.load(cfa.plus(at)).unwrap_or(AbstractValue::UNKNOWN);
            let mut preserved = abi_info.preserved.iter().copied();
            preserved.find(|register| holds == AbstractValue::entry_value(*register))
        };
        let words = (1..=-popped / 8).map(|word| saved(-8 * word));
        (popped % 8 == 0).then(|| PushedWords::new(words).map(ReturnBehavior::LeavesWords))?
    }

    /// The behavior of a return with a stack pointer at no known distance from the caller's, as of
    /// functions that allocate on their caller's stack.
    fn exit_elsewhere(&self, state: &AbstractState) -> Option<ReturnBehavior> {
        let behavior = self.register_behavior(state, 0);
        let sp = 1 << self.subject.abi_info().stack_pointer;
        match behavior {
            _ if self.origin == CodeOrigin::Compiler => None,
            ReturnBehavior::Registers {
                lost,
                unknown,
                words,
                ..
            } => Some(ReturnBehavior::Registers {
                kept: 0,
                lost: lost | sp,
                unknown: unknown | sp,
                words,
            }),
            other => Some(other),
        }
    }

    /// How a function treats registers, and the words of its caller's frame above those that it
    /// pops, if it returns in a state. A register with an unknown value counts as preserved, unless
    /// the row at the return denies that.
    fn register_behavior(&self, state: &AbstractState, popped: i64) -> ReturnBehavior {
        let words = register_set(|word| i64::from(word) * 8 >= popped);
        let abi_info = self.subject.abi_info();
        let kept = register_set(|register| {
            abi_info.clobbered >> register & 1 != 0
                && state.get(register) == AbstractValue::entry_value(register)
        });
        let denied = self.undefined_registers();
        let denied =
            denied & register_set(|register| state.get(register) == AbstractValue::UNKNOWN);
        let lost = self.subject.unrestored_registers(state);
        // A stack address may be the same, computed anew.
        let addresses = register_set(|register| state.get(register).is_address());
        ReturnBehavior::Registers {
            kept,
            lost: lost | denied,
            unknown: lost & addresses | denied,
            words: self.caller_words & words,
        }
    }

    /// The preserved registers that the present row says are lost.
    fn undefined_registers(&self) -> u64 {
        let abi_info = self.subject.abi_info();
        register_set(|register| {
            abi_info.preserved.contains(&register)
                && self.declared.is_some_and(|row| {
                    row.rule_for(Aspect::Register(register), abi_info) == RuleLocation::Undefined
                })
        })
    }

    /// Notes a jump to another function in place of a return.
    pub(super) fn note_tail_call(
        &mut self,
        analysis: &Analysis<'_>,
        insn: InsnId,
        target: AbstractValue,
        state: &AbstractState,
    ) {
        let column = self.subject.abi_info().return_address;
        let is_return = target.bytes_past_return_address(column).is_some();
        if is_return || self.leads_inside(analysis, target) {
            return;
        }
        let named = || match target.fact() {
            ValueFact::TableTarget(table) => {
                let image = ElfCodeImage(self.subject.file());
                let mut targets = self.subject.program().jump_table_targets(table, &image);
                targets.next()
            }
            _ => None,
        };
        let pointed_to = || self.subject.pointed_to(target).or_else(named);
        let to = target.as_constant().or_else(pointed_to);
        let returns = analysis.returns_of(target);
        self.note_exit_to(analysis, insn, (to, returns), state);
    }

    /// Notes that control goes on in another function, as if that were called in place of a return:
    /// what that one does counts as this one's, and nobody restores what this one has changed.
    pub(super) fn note_exit_to(
        &mut self,
        analysis: &Analysis<'_>,
        insn: InsnId,
        (to, returns): (Option<u64>, Option<ReturnBehavior>),
        state: &AbstractState,
    ) {
        let (range, program) = (analysis.code().range(insn), self.subject.program());
        let sp = self.subject.abi_info().stack_pointer;
        let is_own = to.is_some_and(|to| {
            program.index_containing(to) == program.index_containing(range.start)
        });
        let is_function =
            to.is_none_or(|to| program.extent_at(to).is_none() || program.is_call_target(to));
        if is_own || !is_function || state.get(sp) != AbstractValue::entry_value(sp) {
            return;
        }
        let exit = match returns {
            Some(ReturnBehavior::Never) => None,
            Some(ReturnBehavior::SkipsData(_) | ReturnBehavior::Unknown) => returns,
            // A compiler's function preserves what it has to.
            _ if self.origin == CodeOrigin::Compiler => returns
                .filter(|returns| returns.breaks_abi())
                .map(ReturnBehavior::without_kept),
            _ => {
                let column = AbstractValue::entry_value(self.subject.abi_info().return_address);
                let behind = analysis.state_after_tail_call(state, returns);
                let exit = self.exit(column, &behind, behind.get(sp));
                exit.map(|exit| self.with_callee(exit, to, returns))
            }
        };
        let exit = exit.map(|exit| (Vaddr(range.start), exit));
        self.report.tail_calls.extend(exit);
    }

    /// The behavior of a function that ends with a jump to `to`, which returns so. If it is not
    /// known where the jump leads, a register that the row finds may be restored there.
    fn with_callee(
        &self,
        exit: ReturnBehavior,
        to: Option<u64>,
        callee: Option<ReturnBehavior>,
    ) -> ReturnBehavior {
        let ReturnBehavior::Registers {
            kept,
            lost,
            unknown,
            words,
        } = exit
        else {
            return exit;
        };
        let (also, too, others) = match callee {
            Some(ReturnBehavior::Registers {
                lost,
                unknown,
                words,
                ..
            }) => (lost, unknown, words),
            _ => (0, 0, 0),
        };
        let perhaps = if to.is_none() {
            lost & !self.undefined_registers()
        } else {
            0
        };
        ReturnBehavior::Registers {
            kept,
            lost: lost | also,
            unknown: unknown | too | perhaps,
            words: words | others,
        }
    }

    /// A register that a row declares saved is lost if it has another value at a return. The value
    /// may still be in its slot, but the caller does not look there.
    pub(super) fn check_unrestored(&mut self, at: u64, to: ReturnTarget, state: &AbstractState) {
        let abi_info = self.subject.abi_info();
        let sp = abi_info.stack_pointer;
        let is_return =
            state.get(sp) == AbstractValue::entry_value(sp) && abi_info.is_return(to, state);
        let Some(declared) = self.declared.filter(|_| is_return) else {
            return;
        };
        let lost = self.subject.unrestored_registers(state) & !self.subject.unpreserved_at(at);
        let Some(row) = self.report.rows.get_mut(self.row) else {
            return;
        };
        let declared_rules = abi_info.preserved.iter().zip(&declared.preserved);
        for (place, (register, location)) in declared_rules.enumerate() {
            let is_lost = lost >> (register & 63) & 1 != 0;
            // If its slot was overwritten, the row as such is reported.
            let is_saved = matches!(*location, RuleLocation::CfaOffset(offset)
                if state.load(self.subject.row_checker.cfa_value().plus(offset)) == Some(AbstractValue::entry_value(*register)));
            if !is_lost || !is_saved {
                continue;
            }
            let mut verdicts = row.verdicts.unwrap_or(RowVerdicts::PROVEN);
            if let Some(verdict) = verdicts.preserved.get_mut(place) {
                *verdict = Verdict::Refuted;
            }
            row.verdicts = Some(verdicts);
            self.report.discrepancies.push(Discrepancy {
                address: Vaddr(at),
                row: row.row,
                aspect: Aspect::Register(*register),
                verdict: Verdict::Refuted,
                actual: None,
                hint: Some(Hint::LostAtReturn),
            });
        }
    }
}
