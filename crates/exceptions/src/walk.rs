//! The walk of an unwind: from frame to frame with the registers that a landing pad finds.

use core::cell::OnceCell;

use unspool_rows::interpret::{self, FrameContext};
use unspool_rows::packed_row::{CfaBase, PackedStep, SavedRegister, SavedRegisters};
use unspool_rows::{
    CodeAddr, LoadBias, Memory, PackedRow, Register, Registers, Row, RuntimeAddr, Unreadable,
};
use unspool_unwind::local::caller_registers::CallerRegisters;
use unspool_unwind::local::pool::with_row;
use unspool_unwind::local::{self, ABI, ReadableBlocks, ReadableMemory, StackTrust};
use unspool_unwind::{Cursor, ModuleSlot, Modules};

use crate::cache::{FactsCache, FactsKey, FrameRule};
use crate::context::UnwindContext;
use crate::facts::{self, BadEntry, FrameFacts, ProcedureInfo, Validity};
use crate::generated_code;

/// Static, because an unwind does not use the heap.
static CACHE: FactsCache = FactsCache::empty();

/// Forgets all facts.
#[cfg(feature = "panics")]
pub(crate) fn clear_cache() {
    CACHE.clear();
}

/// A frame with the registers that a landing pad finds: those that calls preserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LandingFrame {
    /// The registers. The code address is a return address, except in interrupted frames; it is 0
    /// above the outermost.
    pub registers: CallerRegisters,
    /// Whether it was interrupted.
    pub interruption: Interruption,
}

/// How a frame was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interruption {
    /// By a call.
    None,
    /// By a signal. Its registers are in the kernel's record at this address, a `ucontext_t`.
    Recorded(u64),
    /// By a signal. Its registers are elsewhere.
    Unrecorded,
}

impl From<&CallerRegisters> for LandingFrame {
    #[inline(always)]
    fn from(registers: &CallerRegisters) -> LandingFrame {
        LandingFrame {
            registers: *registers,
            interruption: Interruption::None,
        }
    }
}

impl LandingFrame {
    /// Whether it was interrupted.
    #[inline(always)]
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interruption != Interruption::None
    }

    /// The code address, as a return address or an instruction.
    #[must_use]
    pub fn code(&self) -> CodeAddr {
        let address = RuntimeAddr(self.registers.code);
        if self.is_interrupted() {
            CodeAddr::Instruction(address)
        } else {
            CodeAddr::Return(address)
        }
    }

    /// A value that identifies the frame in the walk. An interrupted frame that called nothing may
    /// have the stack pointer of its handler's frame; libgcc distinguishes them in the same way.
    #[inline]
    #[must_use]
    pub fn identity(&self) -> u64 {
        let is_interrupted = u64::from(self.is_interrupted());
        self.registers.stack_pointer.wrapping_sub(is_interrupted)
    }

    fn frame_pointer(&self) -> u64 {
        let [_, frame_pointer, ..] = self.registers.preserved;
        frame_pointer
    }

    /// The registers that it has, and its code address.
    #[must_use]
    pub fn registers(&self) -> Registers {
        let mut registers = Registers::new();
        let numbers = CallerRegisters::NUMBERS.into_iter();
        for (number, value) in numbers.zip(self.registers.values()) {
            registers.set(Register(number), value);
        }
        registers
    }
}

/// A frame of the own stack, and what this walk knows of its memory.
#[derive(Debug)]
pub(crate) struct LandingWalk {
    /// The frame.
    pub(crate) frame: LandingFrame,
    memory: ReadableMemory,
    /// Whether the stacks of the frames are trusted, or the kernel is asked.
    trust: Option<StackTrust>,
    /// A bit set of the modules known to be loaded, by number, and the last of those without a bit.
    modules: u64,
    last_module: ModuleSlot,
    /// The number of steps that did not climb their stack.
    stack_changes: u16,
    /// The last facts learned, which may not be kept elsewhere, and their key.
    learned: FrameFacts,
    learned_key: FactsKey,
}

/// A frame of a walk, to walk on from it again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WalkPosition {
    frame: LandingFrame,
    memory: ReadableMemory,
    stack_changes: u16,
}

/// Memory of the own stack, for expressions. Others than the walk's the kernel is asked about.
struct StackMemory {
    known: ReadableMemory,
    other: OnceCell<local::OwnMemory>,
}

impl Memory for StackMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        match (self.known.word(addr), <&mut [u8; 8]>::try_from(&mut *into)) {
            (Some(word), Ok(bytes)) => {
                *bytes = word.to_le_bytes();
                Ok(())
            }
            _ => (self.other)
                .get_or_init(local::OwnMemory::with_own_stack)
                .read(addr, into),
        }
    }
}

impl LandingWalk {
    /// Starts at a frame. The kernel is asked about unknown memory.
    #[cfg(feature = "panics")]
    #[must_use]
    pub(crate) fn new(frame: LandingFrame) -> LandingWalk {
        LandingWalk::in_memory(frame, ReadableMemory::stack(), None)
    }

    /// Starts at a frame of the stack that the calling function is on. That is trusted, and those
    /// that signals interrupted.
    #[inline(always)]
    #[must_use]
    pub(crate) fn trusting(frame: LandingFrame, trust: StackTrust) -> LandingWalk {
        LandingWalk::in_memory(frame, trust.own_memory(), Some(trust))
    }

    #[inline(always)]
    fn in_memory(
        frame: LandingFrame,
        memory: ReadableMemory,
        trust: Option<StackTrust>,
    ) -> LandingWalk {
        LandingWalk {
            frame,
            memory,
            trust,
            modules: local::modules().staying(),
            last_module: ModuleSlot(0),
            stack_changes: 0,
            learned: FrameFacts::NONE,
            learned_key: FactsKey::NONE,
        }
    }

    /// The present frame.
    #[inline(always)]
    #[must_use]
    pub(crate) fn position(&self) -> WalkPosition {
        WalkPosition {
            frame: self.frame,
            memory: self.memory,
            stack_changes: self.stack_changes,
        }
    }

    /// Walks on from a frame where this walk has been.
    pub(crate) fn return_to(&mut self, position: &WalkPosition) {
        self.frame = position.frame;
        self.memory = position.memory;
        self.stack_changes = position.stack_changes;
    }

    fn key(&self) -> FactsKey {
        FactsKey::new(self.frame.registers.code, self.frame.is_interrupted())
    }

    /// What the walk needs of the frame; `None` if no table covers it: the stack ends there.
    ///
    /// # Errors
    ///
    /// Its entry is bad.
    #[inline(always)]
    pub(crate) fn rule(&mut self) -> Result<Option<FrameRule>, BadEntry> {
        match CACHE.rule(self.key()) {
            Some(rule) if rule.is_permanent() || self.is_valid(rule) => Ok(Some(rule)),
            _ => self.learn(),
        }
    }

    /// Steps over the frames in which exceptions do nothing, this one too. What the walk needs of
    /// the next one; `None` if the stack ends before.
    ///
    /// # Errors
    ///
    /// An entry is bad, or a row leads nowhere, or the walk does not end.
    #[inline(always)]
    pub(crate) fn skip_passed(&mut self) -> Result<Option<FrameRule>, BadEntry> {
        loop {
            let rule = match self.skip_usual() {
                Some(rule) if rule.is_permanent() || self.is_valid(rule) => rule,
                _ => match self.rule()? {
                    Some(rule) => rule,
                    None => return Ok(None),
                },
            };
            if !rule.is_passed() {
                return Ok(Some(rule));
            }
            self.step(rule)?;
        }
    }

    /// The same as far as all is as in most frames: they were left by a call, their facts are
    /// cached for ever, and they have rows of the usual form. The cached rule of the first other
    /// frame, if it has one.
    #[inline(always)]
    fn skip_usual(&mut self) -> Option<FrameRule> {
        if self.frame.is_interrupted() {
            return None;
        }
        let registers = &mut self.frame.registers;
        let blocks = self.memory.blocks();
        // Not in memory, which functions called further on might change for all the compiler knows.
        let CallerRegisters {
            mut stack_pointer,
            mut code,
            mut shadow_stack_pointer,
            ..
        } = *registers;
        let rule = loop {
            let Some(rule) = CACHE.quick_rule(code) else {
                break None;
            };
            if !rule.is_always_passed() {
                break Some(rule);
            }
            let row = rule.row();
            let Some(caller) = usual_caller(row, stack_pointer, &mut registers.preserved, blocks)
            else {
                // The row of an empty slot is zero.
                break (row.word() != 0).then_some(rule);
            };
            (code, stack_pointer) = caller;
            shadow_stack_pointer = shadow_stack_pointer.wrapping_add(8);
        };
        registers.stack_pointer = stack_pointer;
        registers.code = code;
        registers.shadow_stack_pointer = shadow_stack_pointer;
        rule
    }

    /// Whether a rule is still true.
    #[inline(never)]
    fn is_valid(&mut self, rule: FrameRule) -> bool {
        match rule.validity() {
            Validity::Process => true,
            Validity::Module(slot) => self.is_loaded(slot),
            Validity::Generation(number) => {
                generated_code::generation(self.frame.code().lookup()) == Some(number)
            }
            Validity::Frame => false,
        }
    }

    /// Whether a module is loaded. The loader is asked once in a walk about each of the first 63
    /// modules; of the others, each time that the walk comes to another one.
    fn is_loaded(&mut self, slot: ModuleSlot) -> bool {
        let has_bit = slot.0 < 64;
        let is_known = has_bit && self.modules >> slot.0 & 1 != 0 || slot == self.last_module;
        let is_loaded = is_known || local::modules().is_mapped(slot);
        if is_loaded && has_bit {
            self.modules |= 1 << slot.0;
        } else if is_loaded {
            self.last_module = slot;
        }
        is_loaded
    }

    /// Learns the facts of the frame's code address.
    #[cold]
    #[inline(never)]
    fn learn(&mut self) -> Result<Option<FrameRule>, BadEntry> {
        let code = self.frame.code();
        let Some(key) = FactsKey::from_code(code) else {
            return Ok(None);
        };
        self.learned_key = FactsKey::NONE;
        if !self.learned.learn(code)? {
            return Ok(None);
        }
        self.learned_key = key;
        let rule = self.learned.rule;
        if rule.validity() != Validity::Frame {
            CACHE.put(key, &self.learned);
        }
        Ok(Some(rule))
    }

    /// The personality routine of the frame with this rule, and its data.
    #[inline(always)]
    #[must_use]
    pub(crate) fn procedure(&mut self, rule: FrameRule) -> ProcedureInfo {
        if !self.frame.is_interrupted()
            && let Some(procedure) = CACHE.quick_procedure(self.frame.registers.code, rule)
        {
            return procedure;
        }
        let (procedure, _) = self.procedure_and_arguments(rule);
        procedure
    }

    /// The same, and the size of pushed arguments.
    // The cached facts may be others: if they were not true any longer when the rule was learned,
    // and those could not be kept.
    #[inline(never)]
    fn procedure_and_arguments(&mut self, rule: FrameRule) -> (ProcedureInfo, u64) {
        match CACHE.facts(self.key()) {
            Some(cached) if cached.rule == rule => (cached.procedure, cached.arguments),
            _ => self.uncached_procedure(rule),
        }
    }

    #[cold]
    #[inline(never)]
    fn uncached_procedure(&mut self, rule: FrameRule) -> (ProcedureInfo, u64) {
        let is_learned = self.learned_key == self.key() && self.learned.rule == rule;
        // Otherwise another thread has replaced the facts since they were read.
        if is_learned || matches!(self.learn(), Ok(Some(_))) {
            (self.learned.procedure, self.learned.arguments)
        } else {
            Default::default()
        }
    }

    /// The frame as its landing pad finds it: pushed arguments are popped.
    #[inline(always)]
    pub(crate) fn pop_arguments(&mut self, rule: FrameRule) {
        if rule.has_arguments() {
            let (_, arguments) = self.procedure_and_arguments(rule);
            let stack_pointer = &mut self.frame.registers.stack_pointer;
            *stack_pointer = stack_pointer.wrapping_add(arguments);
        }
    }

    /// Adds the other registers of an interrupted frame to its context.
    // It does not return the context: that would be copied.
    #[inline(always)]
    pub(crate) fn complete(&mut self, context: &mut UnwindContext) {
        if let Interruption::Recorded(record) = self.frame.interruption {
            self.show_record(record, context);
        }
    }

    #[cold]
    #[inline(never)]
    fn show_record(&mut self, record: u64, context: &mut UnwindContext) {
        // It is on the handler's stack.
        let memory = self.memory;
        if let Some(trust) = self.trust {
            self.memory = trust.memory_from(record);
        }
        for (value, number) in context.registers.iter_mut().zip(0..=16) {
            *value = self.recorded(record, number).unwrap_or(*value);
        }
        self.memory = memory;
    }

    /// Steps to the caller, by the frame's rule. Without a caller, the code address is 0 then. A
    /// register that is marked as undefined keeps its value, as for libgcc.
    ///
    /// # Errors
    ///
    /// The row leads nowhere, or the walk does not end.
    #[inline(always)]
    pub(crate) fn step(&mut self, rule: FrameRule) -> Result<(), BadEntry> {
        let (row, blocks) = (rule.row(), self.memory.blocks());
        let registers = &mut self.frame.registers;
        let stack_pointer = registers.stack_pointer;
        let caller = usual_caller(row, stack_pointer, &mut registers.preserved, blocks);
        let Some((code, stack_pointer)) = caller else {
            return self.step_unusual(row);
        };
        registers.code = code;
        registers.stack_pointer = stack_pointer;
        self.climb_shadow_stack();
        self.frame.interruption = Interruption::None;
        Ok(())
    }

    /// Each frame has one word there.
    #[inline(always)]
    fn climb_shadow_stack(&mut self) {
        let pointer = &mut self.frame.registers.shadow_stack_pointer;
        *pointer = pointer.wrapping_add(8);
    }

    /// A step by any row.
    #[cold]
    #[inline(never)]
    fn step_unusual(&mut self, row: PackedRow) -> Result<(), BadEntry> {
        let base = match row.base() {
            CfaBase::StackPointer => self.frame.registers.stack_pointer,
            CfaBase::FramePointer => self.frame.frame_pointer(),
        };
        let code = self.frame.registers.code;
        let step = row.caller(ABI.arch, code, base, |addr| self.word(addr))?;
        let Some(step) = step else {
            return self.interpret();
        };
        let mut caller = self.frame;
        let preserved = caller.registers.preserved.iter_mut();
        let preserved = preserved.zip(SavedRegisters::REGISTERS);
        match step {
            PackedStep::Outermost => {
                self.frame.registers.code = 0;
                return Ok(());
            }
            PackedStep::Caller {
                code,
                cfa,
                saved_base,
            } => {
                for (value, number) in preserved {
                    if let Some(SavedRegister::Below(bytes)) = row.saved().get(number) {
                        *value = self.word(saved_base.wrapping_sub(bytes))?;
                    }
                }
                caller.registers.code = code;
                caller.registers.stack_pointer = cfa;
                caller.interruption = Interruption::None;
            }
            PackedStep::Interrupted {
                code,
                stack_pointer,
                record,
                ..
            } => {
                for (value, number) in preserved {
                    *value = self.recorded(record, number)?;
                }
                caller.registers.code = code;
                caller.registers.stack_pointer = stack_pointer;
                caller.interruption = Interruption::Recorded(record);
            }
        }
        self.enter(caller)
    }

    /// A register of an interrupted frame, from the kernel's record.
    fn recorded(&mut self, record: u64, number: u16) -> Result<u64, BadEntry> {
        let layout = ABI.arch.spec().signal_record.ok_or(BadEntry)?;
        let addr = layout.address(record, Register(number)).ok_or(BadEntry)?;
        self.word(addr)
    }

    fn enter(&mut self, caller: LandingFrame) -> Result<(), BadEntry> {
        let stack_pointer = caller.registers.stack_pointer;
        if stack_pointer <= self.frame.registers.stack_pointer {
            self.stack_changes += 1;
            if self.stack_changes > Cursor::MAX_STACK_CHANGES {
                return Err(BadEntry);
            }
        }
        self.frame = caller;
        self.climb_shadow_stack();
        // The kernel knew the stack that it has interrupted: it may be another one.
        if caller.is_interrupted()
            && let Some(trust) = self.trust
        {
            self.memory = trust.memory_from(stack_pointer);
        }
        Ok(())
    }

    /// The word at an address. After that, the memory around it is known.
    fn word(&mut self, addr: u64) -> Result<u64, BadEntry> {
        let addr = RuntimeAddr(addr);
        if let Some(word) = self.memory.word(addr) {
            return Ok(word);
        }
        let around = ReadableMemory::around(addr);
        if let Some(word) = around.word(addr) {
            self.memory = around;
            return Ok(word);
        }
        // A word on two pages is checked separately.
        let mut word = [0; 8];
        let read = local::OwnMemory::with_own_stack().read(addr, &mut word);
        read.map_err(|_| BadEntry)?;
        Ok(u64::from_le_bytes(word))
    }

    /// A step by a row that does not fit into a word.
    #[cold]
    #[inline(never)]
    fn interpret(&mut self) -> Result<(), BadEntry> {
        with_row(|row| {
            let origin = facts::row_at(self.frame.code(), row)?.ok_or(BadEntry)?;
            self.step_by_row(row, origin.entry.bias)
        })
    }

    fn step_by_row(&mut self, row: &Row<'_>, bias: LoadBias) -> Result<(), BadEntry> {
        let registers = self.frame.registers();
        let memory = StackMemory {
            known: self.memory,
            other: OnceCell::new(),
        };
        let frame = FrameContext {
            abi: ABI,
            registers: &registers,
            memory: &memory,
            bias,
            pac_mask: 0,
        };
        let cfa = interpret::cfa(row, &frame).map_err(|_| BadEntry)?;
        let value = |register| {
            let recovered = interpret::recover(row, &frame, cfa, register);
            match recovered.error {
                Some(_) => Err(BadEntry),
                None => Ok(recovered.value),
            }
        };
        let mut caller = self.frame;
        let preserved = caller.registers.preserved.iter_mut();
        for (slot, number) in preserved.zip(SavedRegisters::REGISTERS) {
            *slot = value(Register(number))?.unwrap_or(*slot);
        }
        caller.registers.code = value(row.return_address)?.unwrap_or(0);
        caller.registers.stack_pointer = value(Register(7))?.unwrap_or(cfa.0);
        caller.interruption = if row.signal_frame {
            Interruption::Unrecorded
        } else {
            Interruption::None
        };
        self.enter(caller)
    }
}

/// The code address and the stack pointer of the caller, and its other registers in `preserved`: by
/// a row of the usual form, further up, in memory that is known. `None`, without any change, if it
/// is not like that.
#[inline(always)]
fn usual_caller(
    row: PackedRow,
    stack_pointer: u64,
    preserved: &mut [u64; 6],
    memory: ReadableBlocks,
) -> Option<(u64, u64)> {
    let cfa = match row.above_stack_pointer() {
        Some(distance) => stack_pointer.wrapping_add(distance),
        None => {
            let [_, frame_pointer, ..] = *preserved;
            frame_pointer.wrapping_add(row.above_frame_pointer()?)
        }
    };
    if cfa <= stack_pointer {
        return None;
    }
    let below = memory.ending_at(cfa)?;
    let mut saved = row.saved().bits();
    if saved != 0 {
        for value in preserved {
            // `FrameFacts::learn` yields no rows with undefined registers.
            *value = below.word(saved & 31).unwrap_or(*value);
            saved >>= 5;
        }
    }
    Some((below.word(1)?, cfa))
}

#[cfg(test)]
mod tests;
