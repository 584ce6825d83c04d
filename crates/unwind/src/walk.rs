//! Whole stacks as addresses, fast.
//!
//! A [`Walker`] finds the same as a [`Cursor`], frame by frame: each frame's code address and the
//! walk's end. It is many times faster because
//!
//! - nearly all frames above the innermost one follow a few kinds of rule, which use only the stack
//!   pointer and the frame pointer;
//! - the rule of an address that any thread has reached before is one load away ([`RuleCache`]): of
//!   a return address, or of an instruction that a signal interrupted;
//! - the part of a stack that was walked before is compared, not walked ([`Memo`]).
//!
//! Everything else (most expressions, addresses without a row, unreadable memory) is left to the
//! cursor, one step at a time. If a step needs an untracked register, or leads back down the stack,
//! the cursor starts again from the innermost frame with all registers.
//!
//! Two results may differ. A circle through signal frames, which can lead to other stacks, may be
//! noticed later. And a remembered walk that ended with [`End::Limit`] for lack of room ends so
//! again if there is still no room. It does not check whether there still is another frame.
//!
//! Async-signal-safe if the modules and the memory are: nothing here allocates, locks, waits, or
//! loops without bound. Every step either leads to a greater stack pointer or is the cursor's,
//! which stops when an address and a CFA repeat. The only exception is one step off the stack of a
//! signal handler.

use unspool_cfi::FastRow;
use unspool_rows::packed_row::RowHead;
use unspool_rows::{
    Abi, CodeAddr, FrameRegisters, Memory, PackedRow, RaState, Register, Registers, Row,
    RuntimeAddr, Vaddr,
};

use crate::cursor::{Cursor, Step, end_outside_code, follows_no_call};
use crate::evidence::{End, Evidence};
use crate::modules::{Module, ModuleSlot, Modules};
use crate::row_rules::SCOPE;

mod entry_rule;
mod memo;
mod rule_cache;
#[cfg(test)]
mod tests;

pub use memo::Memo;
#[cfg(feature = "local")]
pub use rule_cache::{MappedRuleCache, OutOfMemory};
pub use rule_cache::{RuleCache, RuleCacheMemory, RuleCacheSize, RuleCacheSizeError};

use entry_rule::EntryRule;
use rule_cache::ModuleRule;

/// The innermost frame of a stack.
pub trait InnermostFrame {
    /// Its code address.
    fn code(&self) -> CodeAddr;

    /// Its stack pointer.
    fn stack_pointer(&self) -> u64;

    /// Its frame pointer register, with any content.
    fn frame_pointer(&self) -> u64;

    /// Other registers, for the few stacks that need them.
    fn others(&self) -> impl Iterator<Item = (Register, u64)>;

    /// Whether it is part of the result, or only the walk's start.
    fn is_shown(&self) -> bool {
        true
    }
}

/// The result of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkResult {
    /// The number of found frames, and of written addresses.
    pub frames: usize,
    /// The number of guessed ones.
    pub guesses: usize,
    /// The number found by rows synthesized from the code.
    pub synthesized: usize,
    /// The number interrupted by a signal. Their addresses, which follow those of the kernel's
    /// signal frames, are not return addresses.
    pub interrupted: usize,
    /// Why the walk ended.
    pub end: End,
    /// Where the address of the outermost frame was read, if the walk ended because something of
    /// that frame was unavailable. For the innermost frame, which has its address in a register, it
    /// means nothing.
    pub code_at: Option<RuntimeAddr>,
    /// The cost of the walk.
    pub stats: WalkStats,
}

/// A walk's cost besides steps by rules found at once, which are most steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WalkStats {
    /// Frames that were remembered, and only compared.
    pub remembered: u32,
    /// Steps by rules outside their own slots, or with words outside near memory.
    pub searched: u32,
    /// New rules, looked up in the tables of their modules.
    pub learned: u32,
    /// Steps by the cursor.
    pub by_cursor: u32,
    /// Whether it began again, with all registers: the cursor's steps are then those of both
    /// passes.
    pub began_again: bool,
}

/// Walks stacks.
#[derive(Debug, Clone, Copy)]
pub struct Walker<'r> {
    abi: Abi,
    pac_mask: u64,
    rules: &'r RuleCache<'r>,
    by_cursor: bool,
}

impl<'r> Walker<'r> {
    /// A walker that shares rules with others: of one address space, or of several where each
    /// module slot belongs to one module.
    #[must_use]
    pub const fn new(abi: Abi, rules: &'r RuleCache<'r>) -> Self {
        Walker {
            abi,
            pac_mask: 0,
            rules,
            by_cursor: false,
        }
    }

    /// Makes a [`Cursor`] take every step, with all registers: by machine code, in modules that
    /// have some ([`Module::native`]). Rules and memos are not used.
    #[must_use]
    pub fn with_cursor_only(mut self) -> Self {
        self.by_cursor = true;
        self
    }

    /// Sets the bits of a code address that hold a pointer authentication code (AArch64).
    #[must_use]
    pub fn with_pac_mask(mut self, mask: u64) -> Self {
        self.pac_mask = mask;
        self
    }

    /// Walks a stack, and writes the code addresses of its frames, from the innermost out, as room
    /// permits. Addresses above the first are return addresses, except above a signal frame.
    pub fn walk(
        &self,
        top: &impl InnermostFrame,
        modules: &(impl Modules + ?Sized),
        memory: &(impl Memory + ?Sized),
        addresses: &mut [RuntimeAddr],
    ) -> WalkResult {
        self.run(top, modules, memory, &mut NoRecorder, addresses)
    }

    /// The same with a memo of the last walk, which helps if that was of the same thread.
    pub fn walk_again(
        &self,
        memo: &mut Memo,
        top: &impl InnermostFrame,
        modules: &(impl Modules + ?Sized),
        memory: &(impl Memory + ?Sized),
        addresses: &mut [RuntimeAddr],
    ) -> WalkResult {
        if !self.by_cursor && memo.begin() {
            self.run(top, modules, memory, memo, addresses)
        } else {
            self.run(top, modules, memory, &mut NoRecorder, addresses)
        }
    }

    #[inline]
    fn run(
        &self,
        top: &impl InnermostFrame,
        modules: &(impl Modules + ?Sized),
        memory: &(impl Memory + ?Sized),
        record: &mut impl WalkRecorder,
        addresses: &mut [RuntimeAddr],
    ) -> WalkResult {
        let mut run = WalkRun {
            walker: self,
            modules,
            memory,
            record,
            frames: FrameSink {
                addresses,
                count: 0,
                guesses: 0,
                synthesized: 0,
                interrupted: 0,
            },
            live: LiveModules::new(modules.staying()),
            learned_of: [ModuleSlot(0); 4],
            slow: None,
            has_fallen: false,
            code_at: None,
            stats: WalkStats::default(),
        };
        let end = run.walk(top);
        WalkResult {
            frames: run.frames.count,
            guesses: run.frames.guesses,
            synthesized: run.frames.synthesized,
            interrupted: run.frames.interrupted,
            end,
            code_at: run.code_at,
            stats: run.stats,
        }
    }
}

/// The output of found frames.
struct FrameSink<'o> {
    addresses: &'o mut [RuntimeAddr],
    count: usize,
    guesses: usize,
    synthesized: usize,
    interrupted: usize,
}

impl FrameSink<'_> {
    fn is_full(&self) -> bool {
        self.count >= self.addresses.len()
    }

    /// Counts a frame that was not found by a table.
    fn count_evidence(&mut self, evidence: Evidence) {
        self.guesses += usize::from(evidence.is_guess());
        self.synthesized += usize::from(evidence == Evidence::Synthesized);
    }

    /// `None` if there is no room.
    #[inline]
    fn push(&mut self, address: u64) -> Option<()> {
        *self.addresses.get_mut(self.count)? = RuntimeAddr(address);
        self.count += 1;
        Some(())
    }

    /// Adds addresses; `None` if there is not enough room for all of them.
    #[inline]
    fn push_all(&mut self, addresses: &[u64]) -> Option<()> {
        let room = self.addresses.get_mut(self.count..).unwrap_or_default();
        let pairs = room.iter_mut().zip(addresses);
        pairs.for_each(|(slot, address)| *slot = RuntimeAddr(*address));
        let added = room.len().min(addresses.len());
        self.count += added;
        (added == addresses.len()).then_some(())
    }
}

/// The tracked registers of the innermost frame.
#[inline(always)]
fn innermost_registers(top: &impl InnermostFrame) -> FrameRegisters {
    FrameRegisters {
        code: top.code().address().0,
        stack_pointer: top.stack_pointer(),
        frame_pointer: top.frame_pointer(),
    }
}

/// Sets the tracked registers.
fn set_tracked(registers: &mut Registers, frame: FrameRegisters, abi: Abi) {
    let spec = abi.arch.spec();
    registers.set(spec.stack_pointer, frame.stack_pointer);
    if let Some(register) = spec.frame_pointer {
        registers.set(register, frame.frame_pointer);
    }
    registers.set(spec.pc, frame.code);
}

/// The end of a walk by rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RuleEnd {
    Outermost,
    EntryPoint,
    ZeroReturnAddress,
    Limit,
}

impl From<RuleEnd> for End {
    fn from(end: RuleEnd) -> End {
        match end {
            RuleEnd::Outermost => End::Outermost,
            RuleEnd::EntryPoint => End::EntryPoint,
            RuleEnd::ZeroReturnAddress => End::ZeroReturnAddress,
            RuleEnd::Limit => End::Limit,
        }
    }
}

/// Why the fast loop stops at a frame.
enum LoopExit<J> {
    /// The frame is remembered.
    Remembered(J),
    /// The frame needs something else, or there is no caller, or no more room.
    Unusual,
}

/// The result of using the memo.
enum MemoResult {
    /// Nowhere.
    Unused,
    /// To the end of the walk.
    End(RuleEnd),
    /// To an outer frame.
    Frame(FrameRegisters),
}

/// Why rules do not continue.
enum RuleStop {
    /// The walk has ended.
    End(RuleEnd),
    /// The cursor must continue, at this frame.
    Slow(CodeAddr, FrameRegisters),
}

/// A running walk.
struct WalkRun<'w, 'r, S: ?Sized, M: ?Sized, R> {
    walker: &'w Walker<'r>,
    modules: &'w S,
    memory: &'w M,
    record: &'w mut R,
    frames: FrameSink<'w>,
    live: LiveModules,
    /// The slots of some modules with rules learned in this walk, the last first: `live` has them.
    learned_of: [ModuleSlot; 4],
    /// The cursor for steps that rules cannot take.
    slow: Option<Cursor>,
    /// Whether a rule has led from the stack of a signal handler to one below it: the cursor
    /// prevents that this repeats forever.
    has_fallen: bool,
    /// Where the code address was read of the frame where the cursor stopped.
    code_at: Option<RuntimeAddr>,
    stats: WalkStats,
}

impl<'w, S, M, R> WalkRun<'w, '_, S, M, R>
where
    S: Modules + ?Sized,
    M: Memory + ?Sized,
    R: WalkRecorder,
{
    #[inline(always)]
    fn walk(&mut self, top: &impl InnermostFrame) -> End {
        let frame = innermost_registers(top);
        if top.is_shown() && self.frames.push(frame.code).is_none() {
            return End::Limit;
        }
        if self.walker.by_cursor {
            return self.with_all_registers(top);
        }
        let stop = match top.code() {
            CodeAddr::Return(_) => self.follow_rules(frame),
            code @ CodeAddr::Instruction(_) => self.follow_rules_from(code, frame),
        };
        match stop {
            RuleStop::End(last) => self.end(last),
            RuleStop::Slow(code, frame) => self.with_cursor(top, code, frame),
        }
    }

    /// Why the walk ends. Rules do not know the starts of functions, which mark the base of some
    /// stacks.
    fn end(&self, end: RuleEnd) -> End {
        match end {
            RuleEnd::ZeroReturnAddress if self.is_at_base() => End::EntryPoint,
            last => last.into(),
        }
    }

    /// Whether the outermost frame is at an address where no call returns.
    #[cold]
    fn is_at_base(&self) -> bool {
        // The innermost may not be at a return address.
        let callers = self.frames.addresses.get(1..self.frames.count);
        let Some(outermost) = callers.and_then(<[_]>::last) else {
            return false;
        };
        let code = CodeAddr::Return(*outermost);
        let Some(module) = self.modules.module(code.lookup()) else {
            return false;
        };
        let mut row = Row::new(Register(0));
        let found = module.row(module.bias.to_vaddr(code.lookup()), &mut row);
        found.is_ok_and(|found| follows_no_call(code, &found, &module))
    }

    /// Continues from a frame by the cursor, and by rules again where possible.
    #[cold]
    fn with_cursor(
        &mut self,
        top: &impl InnermostFrame,
        mut code: CodeAddr,
        mut frame: FrameRegisters,
    ) -> End {
        loop {
            self.record.interrupt();
            if self.frames.count > usize::from(top.is_shown())
                && let Some(end) = end_outside_code(code, self.modules)
            {
                // A rule has led to it, but it is not a frame.
                self.frames.count -= 1;
                return end;
            }
            (code, frame) = match self.step_by_cursor(code, frame) {
                Some(Ok(caller)) => caller,
                Some(Err(end)) => {
                    self.code_at = self.slow.as_ref().and_then(code_at);
                    return end;
                }
                None => return self.with_all_registers(top),
            };
            (code, frame) = match self.follow_rules_from(code, frame) {
                RuleStop::End(last) => return self.end(last),
                RuleStop::Slow(code, frame) => (code, frame),
            }
        }
    }

    /// Continues by rules as long as possible, from a frame that may have been interrupted.
    fn follow_rules_from(&mut self, code: CodeAddr, frame: FrameRegisters) -> RuleStop {
        match self.leave_interrupted(code, frame) {
            Ok(frame) => self.follow_rules(frame),
            Err(stop) => stop,
        }
    }

    /// Continues by rules as long as possible.
    ///
    /// Always inlined, so that the frame stays in registers.
    #[inline(always)]
    fn follow_rules(&mut self, mut frame: FrameRegisters) -> RuleStop {
        loop {
            let (last, pause) = self.follow_near_rules(frame);
            let next = match pause {
                LoopExit::Unusual => self.follow_rule(last),
                LoopExit::Remembered(joint) => match self.resume_from_record(joint) {
                    MemoResult::Unused => self.follow_rule(last),
                    MemoResult::Frame(frame) => Ok(frame),
                    MemoResult::End(end) => return RuleStop::End(end),
                },
            };
            match next {
                Ok(caller) => frame = caller,
                Err(stop) => return stop,
            }
        }
    }

    /// Continues while every frame is usual: the rule is in its own slot and a small step, its
    /// module was checked, and its words are near. Yields the last frame.
    ///
    /// The loop has nothing else, so that all its state stays in registers.
    #[inline(always)]
    fn follow_near_rules(
        &mut self,
        mut frame: FrameRegisters,
    ) -> (FrameRegisters, LoopExit<R::RecordedFrame>) {
        // If the first frame is remembered, the loop is not set up.
        if let Some(recorded) = self.record.find(&frame) {
            return (frame, LoopExit::Remembered(recorded));
        }
        let mut count = self.frames.count;
        let addresses = &mut *self.frames.addresses;
        let (rules, memory, seen) = (*self.walker.rules, self.memory, self.live.0.low);
        let pause = loop {
            let Some(known) = rules.near(RuntimeAddr(frame.code)) else {
                break LoopExit::Unusual;
            };
            // Near rules have slots below 64.
            if seen >> (known.slot.0 % 64) & 1 == 0 {
                break LoopExit::Unusual;
            }
            let step = known.rule.as_small_step();
            let Some(caller) = step.caller(frame, |end, below| memory.near_pair(end, below)) else {
                break LoopExit::Unusual;
            };
            let Some(slot) = addresses.get_mut(count) else {
                break LoopExit::Unusual;
            };
            *slot = RuntimeAddr(caller.code);
            count += 1;
            self.record.take(&frame, known.rule);
            frame = caller;
            if let Some(recorded) = self.record.find(&frame) {
                break LoopExit::Remembered(recorded);
            }
        };
        self.frames.count = count;
        (frame, pause)
    }

    /// Takes one step by a rule, even if the rule or its words need a search; then further steps to
    /// the next return address.
    #[cold]
    fn follow_rule(&mut self, frame: FrameRegisters) -> Result<FrameRegisters, RuleStop> {
        match self.step(CodeAddr::Return(RuntimeAddr(frame.code)), frame) {
            Ok((CodeAddr::Return(_), caller)) => Ok(caller),
            Ok((code, caller)) => self.leave_interrupted(code, caller),
            Err(stop) => {
                if let RuleStop::End(end) = stop {
                    let rules = self.walker.rules;
                    self.record.finish(frame, end, rules, &self.live);
                }
                Err(stop)
            }
        }
    }

    /// Steps by rules until a frame is at a return address.
    #[inline(never)]
    fn leave_interrupted(
        &mut self,
        mut code: CodeAddr,
        mut frame: FrameRegisters,
    ) -> Result<FrameRegisters, RuleStop> {
        while let CodeAddr::Instruction(_) = code {
            (code, frame) = self.step(code, frame)?;
        }
        Ok(frame)
    }

    /// Takes one step by a rule.
    #[inline(always)]
    fn step(
        &mut self,
        code: CodeAddr,
        frame: FrameRegisters,
    ) -> Result<(CodeAddr, FrameRegisters), RuleStop> {
        self.stats.searched += 1;
        let known = self.cached_rule(code);
        let known = known.ok_or_else(|| self.without_rule(code, frame))?;
        if known.rule == EntryRule::ENTRY_POINT {
            return Err(RuleStop::End(RuleEnd::EntryPoint));
        }
        let row = self.walker.rules.row(known.rule);
        let row = row.ok_or(RuleStop::Slow(code, frame))?;
        if row == PackedRow::OUTERMOST {
            return Err(RuleStop::End(RuleEnd::Outermost));
        }
        let caller = self
            .apply_row(row, frame)
            .ok_or(RuleStop::Slow(code, frame))?;
        let is_signal_frame = row == PackedRow::SIGNAL;
        // Code at 0 can be interrupted, by the fault of a call there.
        if caller.code == 0 && !is_signal_frame {
            return Err(RuleStop::End(RuleEnd::ZeroReturnAddress));
        }
        let address = RuntimeAddr(caller.code);
        let next = if is_signal_frame {
            CodeAddr::Instruction(address)
        } else {
            CodeAddr::Return(address)
        };
        if self.frames.push(caller.code).is_none() {
            // The cursor ends the walk if there is no frame.
            let is_frame = end_outside_code(next, self.modules).is_none();
            return Err(if is_frame {
                RuleStop::End(RuleEnd::Limit)
            } else {
                RuleStop::Slow(code, frame)
            });
        }
        if is_signal_frame {
            self.record.interrupt();
            self.frames.interrupted += 1;
            return Ok((next, caller));
        }
        match code {
            CodeAddr::Return(_) => self.record.take(&frame, known.rule),
            CodeAddr::Instruction(_) => self.record.interrupt(),
        }
        Ok((next, caller))
    }

    /// The caller of a frame, if there is one and the step is allowed: only one may lead down.
    #[inline(always)]
    fn apply_row(&mut self, row: PackedRow, frame: FrameRegisters) -> Option<FrameRegisters> {
        let read = |addr: u64| {
            let mut word = [0; 8];
            self.memory.read(RuntimeAddr(addr), &mut word).ok()?;
            Some(u64::from_le_bytes(word))
        };
        let caller = row.step(self.walker.abi.arch, frame, read)?;
        let rises = caller.stack_pointer > frame.stack_pointer;
        if rises || row != PackedRow::SIGNAL {
            return rises.then_some(caller);
        }
        let has_fallen = core::mem::replace(&mut self.has_fallen, true);
        (!has_fallen).then_some(caller)
    }

    /// Handles an address without a rule for the next step.
    fn without_rule(&mut self, code: CodeAddr, frame: FrameRegisters) -> RuleStop {
        if code == CodeAddr::Return(RuntimeAddr(0)) {
            // It is not a frame.
            self.frames.count = self.frames.count.saturating_sub(1);
            return RuleStop::End(RuleEnd::ZeroReturnAddress);
        }
        RuleStop::Slow(code, frame)
    }

    /// Continues by the memo of the last walk.
    fn resume_from_record(&mut self, recorded: R::RecordedFrame) -> MemoResult {
        let WalkRun {
            live: seen, frames, ..
        } = self;
        let before = frames.count;
        let resumed = self.record.resume(
            recorded,
            self.walker.rules,
            self.memory,
            self.modules,
            seen,
            frames,
        );
        let added = frames.count - before;
        self.stats.remembered += u32::try_from(added).unwrap_or(u32::MAX);
        resumed
    }

    /// The cached rule at a code address, if its module is present.
    fn cached_rule(&mut self, code: CodeAddr) -> Option<ModuleRule> {
        let known = self.walker.rules.get(code);
        let seen = known.filter(|known| self.live.has(known.slot, self.modules));
        seen.or_else(|| self.learn(code))
    }

    /// The rule of a new address, if its module is present.
    #[cold]
    fn learn(&mut self, code: CodeAddr) -> Option<ModuleRule> {
        let (module, place) = self.module(code.lookup())?;
        let row = match code {
            CodeAddr::Return(address) => module.row_of_call(module.bias.to_vaddr(address)),
            CodeAddr::Instruction(pc) => module.row_of_instruction(module.bias.to_vaddr(pc)),
        };
        let rule = match row {
            Some((compiled, row)) => self.walker.rules.rule(module.rules.get(compiled, row)?),
            None => self.rule_by_row(code, &module),
        }?;
        self.stats.learned += 1;
        let known = ModuleRule { rule, slot: place };
        self.walker.rules.put(code, known);
        Some(known)
    }

    /// The module mapped at an address, and its slot, if it has one. A module with rules learned in
    /// this walk was present then, and contains a return address of the stack: it still is.
    fn module(&mut self, addr: RuntimeAddr) -> Option<(Module<'w>, ModuleSlot)> {
        let modules = self.modules;
        let mut places = self.learned_of.iter();
        let known = places.find_map(|place| Some((modules.module_at(*place, addr)?, *place)));
        if known.is_some() {
            return known;
        }
        let module = modules.module(addr)?;
        let place = module.slot?;
        let [first, second, third, _] = self.learned_of;
        self.learned_of = [place, first, second, third];
        self.live.0.add(place);
        Some((module, place))
    }

    /// The rule of an address by its row and its entry.
    fn rule_by_row(&self, code: CodeAddr, module: &Module<'_>) -> Option<EntryRule> {
        let abi = self.walker.abi;
        let pc = module.bias.to_vaddr(code.lookup());
        let spec = abi.arch.spec();
        let watched = [spec.stack_pointer, spec.frame_pointer?];
        let (row, start, end) = match module.fast_row(pc, watched) {
            Some(row) => (packed_fast_row(&row, watched, abi), row.start, row.end),
            None => packed_row(pc, module, abi)?,
        };
        // It may be the return address of a signal handler: the bytes there decide.
        if let CodeAddr::Return(address) = code
            && module.bias.to_vaddr(address) == end
        {
            return None;
        }
        match row {
            Some(PackedRow::OUTERMOST) => Some(EntryRule::OUTERMOST),
            _ if module.entry == Some(start) => Some(EntryRule::ENTRY_POINT),
            row => self.walker.rules.rule(row?),
        }
    }

    /// One step by the cursor, with the tracked registers; `None` if these are not enough.
    #[cold]
    fn step_by_cursor(
        &mut self,
        code: CodeAddr,
        frame: FrameRegisters,
    ) -> Option<Result<(CodeAddr, FrameRegisters), End>> {
        let abi = self.walker.abi;
        let spec = abi.arch.spec();
        let mut registers = Registers::new();
        set_tracked(&mut registers, frame, abi);
        let mask = self.walker.pac_mask;
        let cursor = self.slow.get_or_insert_with(|| {
            Cursor::with_code(abi, code, Registers::new()).with_pac_mask(mask)
        });
        cursor.move_to(code, registers);
        self.stats.by_cursor += 1;
        let is_interrupted = matches!(code, CodeAddr::Instruction(_));
        match cursor.step(self.modules, self.memory) {
            // With all registers, the rest of the frame's code may show its caller.
            Step::Caller(found) if is_interrupted && found.evidence.is_guess() => None,
            Step::End(End::NoRow(_)) if is_interrupted => None,
            Step::Caller(found) => {
                let registers = cursor.registers();
                let caller = FrameRegisters {
                    code: cursor.code().address().0,
                    stack_pointer: registers.get(spec.stack_pointer)?,
                    frame_pointer: registers.get(spec.frame_pointer?)?,
                };
                let code = cursor.code();
                // It may be a circle. When that is noticed depends on all of the steps before.
                let rises =
                    frame.stack_pointer < found.cfa.0 && found.cfa.0 <= caller.stack_pointer;
                if !rises && !found.signal_frame {
                    return None;
                }
                if self.frames.push(caller.code).is_none() {
                    return Some(Err(End::Limit));
                }
                self.frames.count_evidence(found.evidence);
                self.frames.interrupted += usize::from(found.signal_frame);
                Some(Ok((code, caller)))
            }
            Step::End(end @ End::Step(_)) if end.unreadable().is_none() => None,
            Step::End(End::Loop | End::TooManyStacks) => None,
            Step::End(end) => Some(Err(end)),
        }
    }

    /// Walks from the innermost frame, tracking all registers; again, if rules have failed.
    #[cold]
    fn with_all_registers(&mut self, top: &impl InnermostFrame) -> End {
        let abi = self.walker.abi;
        let mut registers = Registers::new();
        for (register, value) in top.others() {
            registers.set(register, value);
        }
        set_tracked(&mut registers, innermost_registers(top), abi);
        let mut cursor =
            Cursor::with_code(abi, top.code(), registers).with_pac_mask(self.walker.pac_mask);
        self.frames.count = usize::from(top.is_shown());
        self.frames.guesses = 0;
        self.frames.synthesized = 0;
        self.frames.interrupted = 0;
        self.stats.began_again = !self.walker.by_cursor;
        loop {
            self.stats.by_cursor += 1;
            match cursor.step(self.modules, self.memory) {
                Step::Caller(found) => {
                    if self.frames.push(cursor.code().address().0).is_none() {
                        return End::Limit;
                    }
                    self.frames.count_evidence(found.evidence);
                    self.frames.interrupted += usize::from(found.signal_frame);
                }
                Step::End(end) => {
                    self.code_at = code_at(&cursor);
                    return end;
                }
            }
        }
    }
}

/// Where the code address of a cursor's frame was read. Calls that push it leave it below the stack
/// pointer; rules, which are for these only, do not move the cursor.
fn code_at(cursor: &Cursor) -> Option<RuntimeAddr> {
    let spec = cursor.abi().arch.spec();
    if spec.return_address == spec.pc {
        let stack_pointer = cursor.stack_pointer()?;
        stack_pointer.0.checked_sub(8).map(RuntimeAddr)
    } else {
        cursor.code_at()
    }
}

/// The packed row of an address, if its row packs, and the bounds of its entry.
#[cold]
fn packed_row(
    pc: Vaddr,
    module: &Module<'_>,
    abi: Abi,
) -> Option<(Option<PackedRow>, Vaddr, Vaddr)> {
    let mut row = Row::new(Register(0));
    let found = module.row(pc, &mut row).ok()?;
    // Others are left to the cursor, so that a walk counts them.
    (found.evidence == Evidence::Cfi).then_some(())?;
    Some((
        PackedRow::from_row(found.row, abi.arch, SCOPE),
        found.entry_start,
        found.entry_end,
    ))
}

/// The packed row of a fast row.
fn packed_fast_row(row: &FastRow<'_>, watched: [Register; 2], abi: Abi) -> Option<PackedRow> {
    let column = abi.arch.spec().pc;
    let head = RowHead {
        cfa: row.cfa,
        return_address: column,
        signal_frame: false,
        ra_state: RaState::Plain,
    };
    let ([first, second], [first_rule, second_rule]) = (watched, row.watched);
    let rules = [
        (column, row.return_address),
        (first, first_rule),
        (second, second_rule),
    ];
    let rules = rules
        .into_iter()
        .filter_map(|(register, rule)| Some((register, rule?)));
    PackedRow::from_rules(head, rules, abi.arch, SCOPE)
}

/// The recorder of a walk for the next one.
trait WalkRecorder {
    /// A recorded frame.
    type RecordedFrame;

    /// The frame, if it is recorded.
    fn find(&mut self, frame: &FrameRegisters) -> Option<Self::RecordedFrame>;

    /// The frames recorded after a frame, if all of them still hold.
    fn resume<S: Modules + ?Sized, M: Memory + ?Sized>(
        &mut self,
        recorded: Self::RecordedFrame,
        rules: &RuleCache<'_>,
        memory: &M,
        modules: &S,
        live_modules: &mut LiveModules,
        frames: &mut FrameSink<'_>,
    ) -> MemoResult;

    /// Records a step by a rule.
    fn take(&mut self, frame: &FrameRegisters, rule: EntryRule);

    /// Notes that the next step cannot be recorded.
    fn interrupt(&mut self);

    /// Ends the walk at a frame: by the frame's rule, or because there was no more room.
    fn finish(
        &mut self,
        frame: FrameRegisters,
        end: RuleEnd,
        rules: &RuleCache<'_>,
        live_modules: &LiveModules,
    );
}

/// Records nothing.
struct NoRecorder;

impl WalkRecorder for NoRecorder {
    type RecordedFrame = core::convert::Infallible;

    #[inline]
    fn find(&mut self, _: &FrameRegisters) -> Option<Self::RecordedFrame> {
        None
    }

    fn resume<S: Modules + ?Sized, M: Memory + ?Sized>(
        &mut self,
        recorded: Self::RecordedFrame,
        _: &RuleCache<'_>,
        _: &M,
        _: &S,
        _: &mut LiveModules,
        _: &mut FrameSink<'_>,
    ) -> MemoResult {
        match recorded {}
    }

    #[inline]
    fn take(&mut self, _: &FrameRegisters, _: EntryRule) {}

    fn interrupt(&mut self) {}

    fn finish(&mut self, _: FrameRegisters, _: RuleEnd, _: &RuleCache<'_>, _: &LiveModules) {}
}

/// The modules that this walk has found present, or that stay.
#[derive(Debug)]
struct LiveModules(ModuleSlotSet);

impl LiveModules {
    fn new(staying: u64) -> Self {
        LiveModules(ModuleSlotSet {
            low: staying,
            ..ModuleSlotSet::NONE
        })
    }

    /// Whether a module is present: checked once in a walk.
    fn has<S: Modules + ?Sized>(&mut self, slot: ModuleSlot, modules: &S) -> bool {
        if self.0.contains(slot) {
            return true;
        }
        let is_there = modules.is_mapped(slot);
        if is_there {
            self.0.add(slot);
        }
        is_there
    }

    /// Whether all modules with some of these addresses are present. Others may be about to be
    /// unloaded: nothing is read of them.
    #[inline]
    fn have_all<S: Modules + ?Sized>(
        &mut self,
        slots: &ModuleSlotSet,
        codes: &[u64],
        modules: &S,
    ) -> bool {
        let low = slots.low & !self.0.low;
        low == 0 && slots.others == ModuleSlotSet::NONE.others
            || self.have_all_asked(slots, codes, modules)
    }

    fn have_all_asked<S: Modules + ?Sized>(
        &mut self,
        slots: &ModuleSlotSet,
        codes: &[u64],
        modules: &S,
    ) -> bool {
        let low = slots.low & !self.0.low;
        let mut low = (0..64)
            .filter(|number| low >> number & 1 != 0)
            .map(ModuleSlot);
        let mut others = slots.others.iter().copied().filter(|place| place.0 != 0);
        let mut is_there_or_unused = |place| {
            let mut codes = codes.iter().map(|code| RuntimeAddr(*code));
            self.0.contains(place)
                || !codes.any(|code| modules.was_in(place, code))
                || self.has(place, modules)
        };
        low.all(&mut is_there_or_unused) && others.all(is_there_or_unused)
    }
}

/// A set of module slots.
#[derive(Debug, Clone, Copy)]
struct ModuleSlotSet {
    /// Those below 64, as bits.
    low: u64,
    /// The others, by the low bits of their numbers.
    others: [ModuleSlot; ModuleSlotSet::OTHERS],
    /// Whether one had to be evicted for another.
    is_overfull: bool,
}

impl ModuleSlotSet {
    const OTHERS: usize = 16;
    const NONE: ModuleSlotSet = ModuleSlotSet {
        low: 0,
        others: [ModuleSlot(0); ModuleSlotSet::OTHERS],
        is_overfull: false,
    };

    #[inline]
    fn contains(&self, slot: ModuleSlot) -> bool {
        let at = usize::from(slot.0) % ModuleSlotSet::OTHERS;
        slot.is_in(self.low) || self.others.get(at) == Some(&slot)
    }

    fn add(&mut self, module_slot: ModuleSlot) {
        let at = usize::from(module_slot.0) % ModuleSlotSet::OTHERS;
        if module_slot.0 < 64 {
            self.low |= 1 << module_slot.0;
        } else if let Some(slot) = self.others.get_mut(at) {
            self.is_overfull |= *slot != ModuleSlot(0) && *slot != module_slot;
            *slot = module_slot;
        }
    }

    fn add_all(&mut self, all: &ModuleSlotSet) {
        self.low |= all.low;
        let others = all.others.iter().filter(|place| place.0 != 0);
        others.for_each(|place| self.add(*place));
        self.is_overfull |= all.is_overfull;
    }
}

impl ModuleSlot {
    /// Whether it is one of those in `low`.
    #[inline]
    fn is_in(self, low: u64) -> bool {
        self.0 < 64 && low >> self.0 & 1 != 0
    }
}
