//! The walk of an unwind: from frame to frame with the registers that a landing pad finds.

use unspool_rows::interpret::{self, FrameContext};
use unspool_rows::packed_row::{CfaBase, PackedStep, SavedRegister, SavedRegisters};
use unspool_rows::{
    CodeAddr, LoadBias, Memory, PackedRow, Register, Registers, Row, RuntimeAddr, Unreadable,
};
use unspool_unwind::local::pool::with_row;
use unspool_unwind::local::{self, ABI, ReadableMemory};
use unspool_unwind::{Cursor, ModuleSlot, Modules};

use crate::cache::{FactsCache, FactsKey, FrameRule};
use crate::context::UnwindContext;
use crate::facts::{self, BadEntry, FrameFacts, FrameHandler, Validity};
use crate::generated_code;

/// Static, because an unwind does not use the heap.
static CACHE: FactsCache = FactsCache::empty();

/// Forgets all facts, before a generation of generated code has a number again.
pub(crate) fn forget() {
    CACHE.clear();
}

/// A frame with the registers that a landing pad finds: those that calls preserve.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LandingFrame {
    /// [`SavedRegisters::REGISTERS`].
    pub preserved: [u64; 6],
    /// The stack pointer.
    pub stack_pointer: u64,
    /// The code address: a return address, except in interrupted frames. 0 above the outermost.
    pub code: u64,
    /// The address of an interrupted frame's registers, a `ucontext_t`; [`LandingFrame::UNKNOWN`]
    /// if they are elsewhere. 0 in other frames.
    pub record: u64,
}

impl LandingFrame {
    /// An interrupted frame, whose registers are not in the kernel's record.
    pub const UNKNOWN: u64 = 1;

    /// Whether it was interrupted.
    #[inline(always)]
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.record != 0
    }

    /// The code address, as a return address or an instruction.
    #[must_use]
    pub fn code(&self) -> CodeAddr {
        let address = RuntimeAddr(self.code);
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
        self.stack_pointer.wrapping_sub(is_interrupted)
    }

    fn frame_pointer(&self) -> u64 {
        let [_, frame_pointer, ..] = self.preserved;
        frame_pointer
    }

    /// The registers that it has, and its code address.
    #[must_use]
    pub fn registers(&self) -> Registers {
        let mut registers = Registers::new();
        let preserved = SavedRegisters::REGISTERS.into_iter().zip(self.preserved);
        for (number, value) in preserved.chain([(7, self.stack_pointer), (16, self.code)]) {
            registers.set(Register(number), value);
        }
        registers
    }
}

/// A frame of the own stack, and what this walk knows of its memory.
#[derive(Debug)]
pub struct LandingWalk {
    /// The frame.
    pub frame: LandingFrame,
    memory: ReadableMemory,
    /// A bit set of the modules known to be loaded, by number.
    modules: u64,
    /// The number of steps that did not climb their stack.
    stack_changes: u16,
}

/// Memory of the own stack, for expressions. Others than the walk's the kernel is asked about.
struct StackMemory(ReadableMemory);

impl Memory for StackMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        match (self.0.word(addr), <&mut [u8; 8]>::try_from(&mut *into)) {
            (Some(word), Ok(bytes)) => {
                *bytes = word.to_le_bytes();
                Ok(())
            }
            _ => local::OwnMemory::with_own_stack().read(addr, into),
        }
    }
}

impl LandingWalk {
    /// Starts at a frame. Words in `memory` are read without asking the kernel.
    #[must_use]
    pub fn new(frame: LandingFrame, memory: ReadableMemory) -> LandingWalk {
        LandingWalk {
            frame,
            memory,
            modules: local::modules().staying(),
            stack_changes: 0,
        }
    }

    fn key(&self) -> FactsKey {
        FactsKey::new(self.frame.code, self.frame.is_interrupted())
    }

    /// What the walk needs of the frame; `None` if no table covers it: the stack ends there.
    ///
    /// # Errors
    ///
    /// Its entry is bad.
    #[inline(always)]
    pub fn rule(&mut self) -> Result<Option<FrameRule>, BadEntry> {
        match CACHE.rule(self.key()) {
            Some(rule) if rule.is_permanent() || self.is_valid(rule) => Ok(Some(rule)),
            _ => Ok(self.learn()?.as_ref().map(FrameRule::from)),
        }
    }

    /// Whether a rule is still true.
    #[inline(never)]
    fn is_valid(&mut self, rule: FrameRule) -> bool {
        match rule.validity() {
            Validity::Process => true,
            Validity::Module(slot) => self.is_loaded(slot),
            Validity::Generation(number) => generated_code::generation() == Some(number),
            Validity::Frame => false,
        }
    }

    /// Whether a module is loaded. The loader is asked once in a walk.
    fn is_loaded(&mut self, slot: ModuleSlot) -> bool {
        let is_known = slot.0 < 64 && self.modules >> slot.0 & 1 != 0;
        let is_loaded = is_known || local::modules().is_mapped(slot);
        if is_loaded && slot.0 < 64 {
            self.modules |= 1 << slot.0;
        }
        is_loaded
    }

    /// Learns the facts of the frame's code address.
    #[cold]
    #[inline(never)]
    fn learn(&self) -> Result<Option<FrameFacts>, BadEntry> {
        let code = self.frame.code();
        let Some(key) = FactsKey::from_code(code) else {
            return Ok(None);
        };
        let facts = FrameFacts::learn(code)?;
        if let Some(facts) = facts.as_ref()
            && facts.validity != Validity::Frame
        {
            CACHE.put(key, facts);
        }
        Ok(facts)
    }

    /// Whom to ask about exceptions in the frame, and the size of pushed arguments.
    #[inline]
    #[must_use]
    pub fn handler(&self) -> (FrameHandler, u64) {
        match CACHE.handler(self.key()) {
            Some(cached) => cached,
            None => self.uncached_handler(),
        }
    }

    #[cold]
    #[inline(never)]
    fn uncached_handler(&self) -> (FrameHandler, u64) {
        match self.learn() {
            Ok(Some(facts)) => (facts.handler, facts.arguments),
            Ok(None) | Err(_) => (FrameHandler::default(), 0),
        }
    }

    /// The frame as its landing pad finds it: pushed arguments are popped.
    #[inline(always)]
    pub fn pop_arguments(&mut self, rule: FrameRule) {
        if rule.has_arguments() {
            let (_, arguments) = self.handler();
            self.frame.stack_pointer = self.frame.stack_pointer.wrapping_add(arguments);
        }
    }

    /// The frame, for a personality routine or a stop function.
    #[inline(always)]
    pub fn context(&mut self, handler: &FrameHandler) -> UnwindContext {
        let mut context = UnwindContext::new(&self.frame, handler);
        if self.frame.record > LandingFrame::UNKNOWN {
            self.show_record(&mut context);
        }
        context
    }

    /// The other registers of an interrupted frame.
    #[cold]
    #[inline(never)]
    fn show_record(&mut self, context: &mut UnwindContext) {
        for (value, number) in context.registers.iter_mut().zip(0..=16) {
            *value = self.recorded(self.frame.record, number).unwrap_or(*value);
        }
    }

    /// Steps to the caller, by the frame's rule. Without a caller, or if one of its registers is
    /// lost that a landing pad finds, the code address is 0 then.
    ///
    /// # Errors
    ///
    /// The row leads nowhere, or the walk does not end.
    #[inline(always)]
    pub fn step(&mut self, rule: FrameRule) -> Result<(), BadEntry> {
        let row = rule.row();
        let cfa = match row.above_stack_pointer() {
            Some(distance) if distance != 0 => self.frame.stack_pointer.wrapping_add(distance),
            _ => match row.above_frame_pointer() {
                Some(distance) => self.frame.frame_pointer().wrapping_add(distance),
                None => return self.step_unusual(row),
            },
        };
        match self.step_up(cfa, row.saved().bits()) {
            Some(()) => Ok(()),
            None => self.step_unusual(row),
        }
    }

    /// Steps to a frame further up, in memory that is known. `None`, without any change, if it is
    /// not like that.
    #[inline(always)]
    fn step_up(&mut self, cfa: u64, saved: u32) -> Option<()> {
        if cfa <= self.frame.stack_pointer {
            return None;
        }
        let word = |words: u32| {
            let addr = cfa.wrapping_sub(8 * u64::from(words));
            self.memory.word(RuntimeAddr(addr))
        };
        let code = word(1)?;
        if saved != 0 {
            let mut preserved = self.frame.preserved;
            let mut rest = saved;
            for value in &mut preserved {
                // `FrameFacts::learn` leaves rows out that have lost a register.
                if rest & 31 != 0 {
                    *value = word(rest & 31)?;
                }
                rest >>= 5;
            }
            self.frame.preserved = preserved;
        }
        self.frame.code = code;
        self.frame.stack_pointer = cfa;
        self.frame.record = 0;
        Some(())
    }

    /// A step by any row.
    #[cold]
    #[inline(never)]
    fn step_unusual(&mut self, row: PackedRow) -> Result<(), BadEntry> {
        let base = match row.base() {
            CfaBase::StackPointer => self.frame.stack_pointer,
            CfaBase::FramePointer => self.frame.frame_pointer(),
        };
        let code = self.frame.code;
        let step = row.caller(ABI.arch, code, base, |addr| self.word(addr))?;
        let Some(step) = step else {
            return self.interpret();
        };
        match step {
            PackedStep::Outermost => {
                self.frame.code = 0;
                Ok(())
            }
            PackedStep::Caller {
                code,
                cfa,
                saved_base,
            } => {
                let mut caller = LandingFrame {
                    code,
                    stack_pointer: cfa,
                    record: 0,
                    ..self.frame
                };
                let numbers = SavedRegisters::REGISTERS.into_iter();
                for (value, number) in caller.preserved.iter_mut().zip(numbers) {
                    match row.saved().get(number) {
                        Some(SavedRegister::Below(bytes)) => {
                            *value = self.word(saved_base.wrapping_sub(bytes))?;
                        }
                        Some(SavedRegister::Unchanged) | None => {}
                        Some(SavedRegister::Undefined) => caller.code = 0,
                    }
                }
                self.enter(caller)
            }
            PackedStep::Interrupted {
                code,
                stack_pointer,
                record,
                ..
            } => {
                let mut preserved = [0; 6];
                for (value, number) in preserved.iter_mut().zip(SavedRegisters::REGISTERS) {
                    *value = self.recorded(record, number)?;
                }
                self.enter(LandingFrame {
                    preserved,
                    stack_pointer,
                    code,
                    record,
                })
            }
        }
    }

    /// A register of an interrupted frame, from the kernel's record.
    fn recorded(&mut self, record: u64, number: u16) -> Result<u64, BadEntry> {
        let layout = ABI.arch.spec().signal_record.ok_or(BadEntry)?;
        let addr = layout.address(record, Register(number)).ok_or(BadEntry)?;
        self.word(addr)
    }

    fn enter(&mut self, caller: LandingFrame) -> Result<(), BadEntry> {
        if caller.stack_pointer <= self.frame.stack_pointer {
            self.stack_changes += 1;
            if self.stack_changes > Cursor::MAX_STACK_CHANGES {
                return Err(BadEntry);
            }
        }
        self.frame = caller;
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
        let (registers, memory) = (self.frame.registers(), StackMemory(self.memory));
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
        let (code, stack_pointer) = (value(row.return_address)?, value(Register(7))?);
        let mut preserved = [None; 6];
        for (slot, number) in preserved.iter_mut().zip(SavedRegisters::REGISTERS) {
            *slot = value(Register(number))?;
        }
        let is_lost = preserved.contains(&None) || stack_pointer.is_none();
        let record = if row.signal_frame {
            LandingFrame::UNKNOWN
        } else {
            0
        };
        self.enter(LandingFrame {
            preserved: preserved.map(Option::unwrap_or_default),
            stack_pointer: stack_pointer.unwrap_or(cfa.0),
            code: code.filter(|_| !is_lost).unwrap_or(0),
            record,
        })
    }
}

#[cfg(test)]
mod tests;
