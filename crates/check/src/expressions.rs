//! Checks expressions by example: the interpreter unwinds with the row in random concrete states
//! that the abstract state allows. It must find the caller in all of them.
//!
//! A row's expressions add and mask known contents. A wrong sum agrees by chance with a probability
//! of one in 2^40. A wrong mask never does: each bit of an address is set in one of the first two
//! states, and clear in the other. Only the lowest four bits of the CFA, which are 0 (psABI, "The
//! Stack Frame"), and those above bit 46 are the same.

use unspool_code_analysis::arch::AbiInfo;
use unspool_code_analysis::{AbstractState, AbstractValue, ValueFact};
use unspool_rows::interpret::{self, FrameContext};
use unspool_rows::memory::UnreadableReason;
use unspool_rows::{
    Abi, CfaRule, LoadBias, Memory, Register, RegisterRule, Registers, Row, RuntimeAddr, Unreadable,
};

use crate::declared_row::{DeclaredRow, RuleLocation};
use crate::row_checker::{RowVerdicts, Verdict};

/// A row with expressions.
#[derive(Debug)]
pub(crate) struct ExpressionRow<'t> {
    row: Row<'t>,
    /// The registers that its expressions read: bit n stands for register n.
    reads: u64,
}

impl<'t> ExpressionRow<'t> {
    pub(crate) fn new(row: Row<'t>, abi: Abi) -> ExpressionRow<'t> {
        let cfa = match row.cfa {
            CfaRule::Expression(expression) => Some(expression),
            CfaRule::Undefined | CfaRule::RegisterOffset { .. } => None,
        };
        let rules = row.rules().filter_map(|(_, rule)| match rule {
            RegisterRule::Expression(expression) | RegisterRule::ValExpression(expression) => {
                Some(expression)
            }
            _ => None,
        });
        let operations = rules.chain(cfa).flat_map(|it| it.operations(abi));
        let reads = operations.fold(0, |all, operation| match operation {
            // There may be others behind the branch.
            Ok(operation) if operation.branches() => u64::MAX,
            Ok(operation) => all | operation.register().map_or(0, bit),
            // Operations behind it are not evaluated either.
            Err(_) => all,
        });
        ExpressionRow { row, reads }
    }

    /// The registers that its expressions read: bit n stands for register n.
    pub(crate) fn reads(&self) -> u64 {
        self.reads
    }
}

/// The bit of a register.
fn bit(register: Register) -> u64 {
    1_u64.checked_shl(register.0.into()).unwrap_or(0)
}

/// A row with expressions, before one instruction.
pub(crate) struct ExpressionCheck<'a> {
    pub(crate) abi_info: &'static AbiInfo,
    pub(crate) abi: Abi,
    pub(crate) row: &'a ExpressionRow<'a>,
    pub(crate) declared: &'a DeclaredRow,
    pub(crate) state: &'a AbstractState,
    /// The address of the instruction.
    pub(crate) pc: u64,
}

impl ExpressionCheck<'_> {
    /// Checks the expressions of a row; the other rules are already checked.
    pub(crate) fn judge(&self, plainly: RowVerdicts) -> RowVerdicts {
        // Behind a stack alignment, each multiple of 16 below 64 that the CFA may be above a
        // multiple of 64.
        let examples = if self.state.aligned().is_some() { 4 } else { 2 };
        let verdicts = (0..examples).map(|number| self.judge_in(number, plainly));
        let worst = verdicts.reduce(|worst, verdicts| worst.join(&verdicts));
        worst.unwrap_or(plainly)
    }

    fn judge_in(&self, number: u64, plainly: RowVerdicts) -> RowVerdicts {
        let example = ConcreteState {
            number,
            state: self.state,
            abi_info: self.abi_info,
        };
        let mut registers = Registers::new();
        self.put_registers(&example, &mut registers);
        let frame = FrameContext {
            abi: self.abi,
            registers: &registers,
            memory: &example,
            bias: LoadBias(0),
            pac_mask: 0,
        };
        let row = &self.row.row;
        let mut verdicts = plainly;
        let Some(cfa) = example.cfa() else {
            return verdicts;
        };
        // Offsets count from the row's CFA: mostly that is the caller's stack pointer.
        let has_own_cfa = self.declared.has_own_cfa();
        let found = interpret::cfa(row, &frame).ok();
        let own = found.filter(|_| has_own_cfa).unwrap_or(RuntimeAddr(cfa));
        let recover = |register: u8| {
            let at = Register(register.into());
            interpret::recover(row, &frame, own, at).value
        };
        if has_own_cfa {
            let sp = found.and_then(|_| recover(self.abi_info.stack_pointer));
            verdicts.cfa = verdict(sp, Some(cfa));
        } else if self.declared.cfa == RuleLocation::Expression {
            verdicts.cfa = verdict(found.map(|cfa| cfa.0), Some(cfa));
        }
        let check = |register: u8| {
            if has_own_cfa && found.is_none() {
                Verdict::Unproven
            } else {
                verdict(recover(register), example.entry(register))
            }
        };
        let is_evaluated = |place: RuleLocation| match place {
            RuleLocation::Expression => true,
            RuleLocation::CfaOffset(_) | RuleLocation::CfaValue(_) => has_own_cfa,
            RuleLocation::Register(..) | RuleLocation::Undefined => false,
        };
        if is_evaluated(self.declared.return_address) {
            verdicts.return_address = check(self.abi_info.return_address);
        }
        let declared = self.abi_info.preserved.iter().zip(&self.declared.preserved);
        for ((register, place), verdict) in declared.zip(&mut verdicts.preserved) {
            if is_evaluated(*place) {
                *verdict = check(*register);
            }
        }
        verdicts
    }

    /// Sets the registers that the row reads, and the program counter.
    fn put_registers(&self, state: &ConcreteState<'_>, registers: &mut Registers) {
        for number in 0..self.abi_info.machine_registers {
            let register = Register(number.into());
            if (self.row.reads & bit(register) != 0 || self.declared.has_own_cfa())
                && let Some(value) = state.number(self.state.get(number))
            {
                registers.set(register, value);
            }
        }
        registers.set(self.abi.arch.spec().pc, self.pc);
    }
}

fn verdict(found: Option<u64>, wanted: Option<u64>) -> Verdict {
    match found {
        None => Verdict::Unproven,
        found if found == wanted => Verdict::Proven,
        _ => Verdict::Refuted,
    }
}

/// A concrete state: numbers for values that only a run knows.
struct ConcreteState<'s> {
    /// The state's number.
    number: u64,
    state: &'s AbstractState,
    abi_info: &'s AbiInfo,
}

impl ConcreteState<'_> {
    /// A random number. The first two states have each other's complement, so that each bit is set
    /// in one of them.
    fn random(&self, of: u64) -> u64 {
        let (state, complement) = match self.number {
            1 => (0, u64::MAX),
            number => (number, 0),
        };
        // The finalizer of splitmix64.
        let mut number = state
            .wrapping_add(0x5eed_0001)
            .wrapping_add(of.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31) ^ complement
    }

    /// A stack address of 47 bits, aligned as before a call, or further if something aligns it.
    fn address(&self, of: u64) -> u64 {
        (self.random(of) >> 17) & !63
    }

    /// The CFA, aligned only as the ABI says. The first two states differ in all other bits.
    fn canonical(&self) -> u64 {
        self.address(0).wrapping_add(16 * (3 * self.number % 4))
    }

    /// The number for a value in this state; `None` if it could be any.
    fn number(&self, value: AbstractValue) -> Option<u64> {
        let (origin, offset) = match value.fact() {
            ValueFact::Constant(number) => return Some(number),
            ValueFact::EntryValue(register, offset)
                if register.0 == u16::from(self.abi_info.stack_pointer) =>
            {
                let pushed = self.abi_info.call_pushes.unsigned_abs();
                (self.canonical().wrapping_sub(pushed.into()), offset)
            }
            ValueFact::EntryValue(register, offset) => {
                (self.random(1 + u64::from(register.0)), offset)
            }
            ValueFact::SymbolicBase(at, offset) => (self.base(at)?, offset),
            _ => return None,
        };
        Some(origin.wrapping_add_signed(offset.into()))
    }

    /// The number for a symbolic base.
    fn base(&self, at: u32) -> Option<u64> {
        let own = AbstractValue::symbolic_base(at, 0);
        if let Some(known) = self.state.aligned()
            && let Some(above) = own.distance_from(known.aligned)
        {
            let multiple = u64::from(known.multiple);
            let aligned = self.number(known.original)? & multiple.wrapping_neg();
            return Some(aligned.wrapping_add_signed(above));
        }
        match self.state.indexed().filter(|slot| slot.address == own) {
            Some(slot) => {
                let index = self.number(slot.index)?;
                Some(self.number(slot.base)?.wrapping_add(index.wrapping_mul(8)))
            }
            None => Some(self.address(0x1000 + u64::from(at))),
        }
    }

    /// A register's entry value.
    fn entry(&self, register: u8) -> Option<u64> {
        self.number(AbstractValue::entry_value(register))
    }

    /// Whether an address is in the function's own frame, which contains no escaped values.
    fn is_in_frame(&self, address: u64) -> bool {
        /// Larger than any frame.
        const MAX_FRAME_BYTES: u64 = 1 << 20;
        let is_near = |end: u64| address < end && end - address <= MAX_FRAME_BYTES;
        let registers = (0..self.abi_info.machine_registers).map(|number| self.state.get(number));
        // Above a relocated stack pointer there may be older contents.
        let mut moved = registers.filter_map(|value| match value.fact() {
            ValueFact::SymbolicBase(at, _) => self.number(AbstractValue::symbolic_base(at, 0)),
            _ => None,
        });
        let below_cfa = self.cfa().is_some_and(is_near);
        let on_moved = moved.any(is_near);
        !self.state.has_escaped() && (below_cfa || on_moved)
    }

    /// Whether a signal's frame may be written over a slot.
    fn is_below_red_zone(&self, slot: AbstractValue) -> bool {
        let sp = self.state.get(self.abi_info.stack_pointer);
        let above = slot.distance_from(sp);
        above.is_some_and(|above| above < -i64::from(self.abi_info.red_zone))
    }

    fn cfa(&self) -> Option<u64> {
        let sp = self.entry(self.abi_info.stack_pointer)?;
        Some(sp.wrapping_add_signed(self.abi_info.call_pushes.into()))
    }
}

impl Memory for ConcreteState<'_> {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let unreadable = Unreadable {
            addr,
            reason: UnreadableReason::NotRecorded,
        };
        let slots = self.state.slots().iter();
        let mut found = slots.filter(|slot| self.number(slot.address) == Some(addr.0));
        let holds = match found.next() {
            Some(slot) if self.is_below_red_zone(slot.address) => None,
            Some(slot) => self.number(slot.value),
            // No entry value was stored there.
            None => self.is_in_frame(addr.0).then(|| self.random(addr.0)),
        };
        let bytes = holds.ok_or(unreadable)?.to_le_bytes();
        if into.len() != bytes.len() {
            return Err(unreadable);
        }
        into.copy_from_slice(&bytes);
        Ok(())
    }
}
