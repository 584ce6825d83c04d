//! Whole stacks as addresses, fast.
//!
//! A [`Walker`] finds what a [`Cursor`] finds, frame by frame: where each frame stands and why the
//! walk ends. It is many times faster because
//!
//! - nearly every frame above the innermost one is left by the same few kinds of rule, which take only
//!   the stack pointer and the frame pointer ([`rule`]);
//! - the rule of a return address that any thread has met before is one load away ([`Rules`]);
//! - what is left of a stack that has been walked before is compared, not walked ([`Memo`]).
//!
//! What is not of these kinds (signal frames, expressions, addresses without a row, memory that cannot be
//! read) is the cursor's, one step at a time. Should a step need a register that is not followed, the
//! cursor starts again from the innermost frame with all registers.
//!
//! Async-signal-safe as far as the modules and the memory are: nothing here allocates, locks,
//! waits, or loops without bound. Every step either leads to a greater stack pointer or is the cursor's, which
//! stops where an address and a CFA come back.

use unspool_ir::{Abi, CodeAddr, Memory, Register, RegisterRule, Registers, RuntimeAddr};

use crate::arch;
use crate::cursor::{Cursor, Step};
use crate::evidence::End;
use crate::modules::{Modules, Place};

mod memo;
mod rule;
mod rules;
#[cfg(test)]
mod tests;

pub use memo::Memo;
pub use rules::Rules;

use memo::Taken;
use rule::Rule;

/// The innermost frame of a stack.
#[derive(Debug, Clone, Copy)]
pub struct Top<'t> {
    /// Where it stands.
    pub code: CodeAddr,
    /// Its stack pointer.
    pub stack_pointer: u64,
    /// Its frame pointer register, whatever that holds.
    pub frame_pointer: u64,
    /// Other registers, for the few stacks that need them.
    pub others: &'t [(Register, u64)],
}

/// What a walk came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walk {
    /// How many frames were found: so many addresses were written.
    pub frames: usize,
    /// How many of them were guessed.
    pub guesses: usize,
    /// Why the walk ended.
    pub end: End,
}

/// Walks the stacks of one address space, one after another.
///
/// Cheap to make; to keep one makes walks faster, because it knows the modules of the last.
#[derive(Debug)]
pub struct Walker<'r> {
    abi: Abi,
    pac_mask: u64,
    rules: &'r Rules,
    recent: Recent,
}

impl<'r> Walker<'r> {
    /// A walker that shares rules with others: of one address space, or of several in which no
    /// module number stands for two modules.
    #[must_use]
    pub const fn new(abi: Abi, rules: &'r Rules) -> Self {
        Walker {
            abi,
            pac_mask: 0,
            rules,
            recent: Recent::new(),
        }
    }

    /// Names the bits of a code address that a pointer authentication code takes (AArch64).
    #[must_use]
    pub fn with_pac_mask(mut self, mask: u64) -> Self {
        self.pac_mask = mask;
        self
    }

    /// Walks a stack, and writes where its frames stand, from the innermost out, as far as there
    /// is room. Addresses above the first are return addresses, except above a signal frame.
    pub fn walk<S, M>(
        &mut self,
        top: &Top<'_>,
        modules: &S,
        memory: &M,
        addresses: &mut [RuntimeAddr],
    ) -> Walk
    where
        S: Modules + ?Sized,
        M: Memory + ?Sized,
    {
        self.run(top, modules, memory, &mut Forgetful, addresses)
    }

    /// Does the same, with a memory of the last walk: of the same thread, to be of use.
    pub fn walk_again<S, M>(
        &mut self,
        memo: &mut Memo,
        top: &Top<'_>,
        modules: &S,
        memory: &M,
        addresses: &mut [RuntimeAddr],
    ) -> Walk
    where
        S: Modules + ?Sized,
        M: Memory + ?Sized,
    {
        memo.begin();
        self.run(top, modules, memory, memo, addresses)
    }

    fn run<S, M, R>(
        &mut self,
        top: &Top<'_>,
        modules: &S,
        memory: &M,
        record: &mut R,
        addresses: &mut [RuntimeAddr],
    ) -> Walk
    where
        S: Modules + ?Sized,
        M: Memory + ?Sized,
        R: Record,
    {
        self.recent.begin();
        let mut run = Run {
            walker: self,
            modules,
            memory,
            record,
            frames: Frames {
                addresses,
                count: 0,
                guesses: 0,
            },
            slow: None,
        };
        let end = run.walk(top);
        Walk {
            frames: run.frames.count,
            guesses: run.frames.guesses,
            end,
        }
    }
}

/// Where the frames that are found go.
struct Frames<'o> {
    addresses: &'o mut [RuntimeAddr],
    count: usize,
    guesses: usize,
}

impl Frames<'_> {
    /// `None` where there is no room.
    #[inline]
    fn push(&mut self, address: u64) -> Option<()> {
        *self.addresses.get_mut(self.count)? = RuntimeAddr(address);
        self.count += 1;
        Some(())
    }
}

/// What is followed from frame to frame.
#[derive(Debug, Clone, Copy)]
struct State {
    code: u64,
    stack_pointer: u64,
    frame_pointer: u64,
}

/// Why rules do not lead on.
enum Stop {
    /// The walk is at its end.
    End(End),
    /// The cursor's turn.
    Slow,
}

/// A walk under way.
struct Run<'w, 'r, S: ?Sized, M: ?Sized, R> {
    walker: &'w mut Walker<'r>,
    modules: &'w S,
    memory: &'w M,
    record: &'w mut R,
    frames: Frames<'w>,
    /// What takes the steps that rules cannot take.
    slow: Option<Cursor>,
}

impl<S, M, R> Run<'_, '_, S, M, R>
where
    S: Modules + ?Sized,
    M: Memory + ?Sized,
    R: Record,
{
    fn walk(&mut self, top: &Top<'_>) -> End {
        let mut state = State {
            code: top.code.address().0,
            stack_pointer: top.stack_pointer,
            frame_pointer: top.frame_pointer,
        };
        if self.frames.push(state.code).is_none() {
            return End::Limit;
        }
        let mut code = top.code;
        loop {
            if matches!(code, CodeAddr::Return(_)) {
                match self.by_rules(&mut state) {
                    Stop::End(end) => return end,
                    Stop::Slow => {}
                }
                // It may be that of the frame above the last.
                code = CodeAddr::Return(RuntimeAddr(state.code));
            }
            self.record.interrupt();
            code = match self.by_cursor(code, &mut state) {
                Some(Ok(code)) => code,
                Some(Err(end)) => return end,
                None => return self.with_all_registers(top),
            };
        }
    }

    /// Goes on by rules as far as they lead.
    #[inline]
    fn by_rules(&mut self, state: &mut State) -> Stop {
        let State {
            mut code,
            mut stack_pointer,
            mut frame_pointer,
        } = *state;
        let mut place = Place::NOWHERE;
        let stop = loop {
            let address = RuntimeAddr(code);
            if !place.contains(address) {
                match self.walker.recent.find(address, self.modules) {
                    Some(found) => place = found,
                    None => break self.without_place(code),
                }
            }
            let key = place.key(address);
            let rule = match self.walker.rules.get(address, key) {
                Some(rule) => rule,
                None => match self.learn(address, &place) {
                    Some(rule) => rule,
                    None => break Stop::Slow,
                },
            };
            if rule.is_end() {
                let end = match rule {
                    Rule::OUTERMOST => End::Outermost,
                    _ => End::EntryPoint,
                };
                self.record
                    .finish(address, stack_pointer, end, &self.walker.recent);
                break Stop::End(end);
            }
            if let Some(end) = self.by_record(address, stack_pointer, frame_pointer) {
                break Stop::End(end);
            }
            let base = match rule.by_frame_pointer() {
                true => frame_pointer,
                false => stack_pointer,
            };
            let cfa = base.wrapping_add(rule.cfa_offset());
            if cfa <= stack_pointer {
                break Stop::Slow;
            }
            let saved_at = cfa.wrapping_sub(rule.saved_below());
            let caller = self.memory.read_eight(RuntimeAddr(cfa.wrapping_sub(8)));
            let saved = self.memory.read_eight(RuntimeAddr(saved_at));
            let (Ok(caller), Ok(saved)) = (caller, saved) else {
                break Stop::Slow;
            };
            let caller = u64::from_le_bytes(caller);
            if self.frames.push(caller).is_none() {
                break Stop::End(End::Limit);
            }
            let keeps = rule.keeps_frame_pointer();
            self.record.take(Taken {
                code,
                stack_pointer,
                frame_pointer,
                saved_at: if keeps { 0 } else { saved_at },
                by_frame_pointer: rule.by_frame_pointer(),
            });
            frame_pointer = match keeps {
                true => frame_pointer,
                false => u64::from_le_bytes(saved),
            };
            stack_pointer = cfa;
            code = caller;
        };
        *state = State {
            code,
            stack_pointer,
            frame_pointer,
        };
        stop
    }

    /// The return address is in no module.
    #[cold]
    fn without_place(&mut self, code: u64) -> Stop {
        if code == 0 && self.frames.count > 1 {
            self.frames.count -= 1;
            return Stop::End(End::ZeroReturnAddress);
        }
        Stop::Slow
    }

    /// Finishes the walk by what is remembered of the last.
    #[inline]
    fn by_record(
        &mut self,
        code: RuntimeAddr,
        stack_pointer: u64,
        frame_pointer: u64,
    ) -> Option<End> {
        let frame = State {
            code: code.0,
            stack_pointer,
            frame_pointer,
        };
        let (recent, modules) = (&mut self.walker.recent, self.modules);
        self.record
            .resume(frame, self.memory, modules, recent, &mut self.frames)
    }

    /// The rule of a return address that is not known yet.
    #[cold]
    fn learn(&mut self, address: RuntimeAddr, place: &Place) -> Option<Rule> {
        let code = CodeAddr::Return(address);
        // What the byte before belongs to is the module that counts.
        if !place.contains(code.lookup()) {
            return None;
        }
        let module = self.modules.module(code.lookup())?;
        let found = module.row(module.bias.to_vaddr(code.lookup())).ok()?;
        // A signal handler's return address: its bytes tell.
        if module.bias.to_vaddr(address) == found.entry_end {
            return None;
        }
        let row = &found.row;
        let rule = if row.rule(row.return_address) == Some(RegisterRule::Undefined) {
            Rule::OUTERMOST
        } else if module.entry == Some(found.entry_start) {
            Rule::ENTRY_POINT
        } else {
            Rule::of(row, self.walker.abi)?
        };
        self.walker.rules.put(address, place.key(address), rule);
        Some(rule)
    }

    /// One step by the cursor, with the registers that are followed; `None` if these are not
    /// enough.
    #[cold]
    fn by_cursor(&mut self, code: CodeAddr, state: &mut State) -> Option<Result<CodeAddr, End>> {
        let abi = self.walker.abi;
        let spec = abi.arch.spec();
        let frame_pointer = arch::frame_pointer(abi.arch);
        let mut registers = Registers::new();
        registers.set(spec.stack_pointer, state.stack_pointer);
        if let Some(register) = frame_pointer {
            registers.set(register, state.frame_pointer);
        }
        registers.set(spec.pc, code.address().0);
        let mask = self.walker.pac_mask;
        let cursor = self
            .slow
            .get_or_insert_with(|| Cursor::at(abi, code, Registers::new()).with_pac_mask(mask));
        cursor.move_to(code, registers);
        match cursor.step(self.modules, self.memory) {
            Step::Caller(found) => {
                let registers = cursor.registers();
                let caller = State {
                    code: cursor.code().address().0,
                    stack_pointer: registers.get(spec.stack_pointer)?,
                    frame_pointer: registers.get(frame_pointer?)?,
                };
                let code = cursor.code();
                self.frames.guesses += usize::from(found.evidence.is_guess());
                *state = caller;
                match self.frames.push(caller.code) {
                    Some(()) => Some(Ok(code)),
                    None => Some(Err(End::Limit)),
                }
            }
            Step::End(end @ End::Step(_)) if end.unreadable().is_none() => None,
            Step::End(end) => Some(Err(end)),
        }
    }

    /// Walks again from the innermost frame, following all registers.
    #[cold]
    fn with_all_registers(&mut self, top: &Top<'_>) -> End {
        let abi = self.walker.abi;
        let spec = abi.arch.spec();
        let mut registers = Registers::new();
        for (register, value) in top.others {
            registers.set(*register, *value);
        }
        registers.set(spec.stack_pointer, top.stack_pointer);
        if let Some(register) = arch::frame_pointer(abi.arch) {
            registers.set(register, top.frame_pointer);
        }
        registers.set(spec.pc, top.code.address().0);
        let mut cursor = Cursor::at(abi, top.code, registers).with_pac_mask(self.walker.pac_mask);
        self.frames.count = 1;
        self.frames.guesses = 0;
        loop {
            match cursor.step(self.modules, self.memory) {
                Step::Caller(found) => {
                    if self.frames.push(cursor.code().address().0).is_none() {
                        return End::Limit;
                    }
                    self.frames.guesses += usize::from(found.evidence.is_guess());
                }
                Step::End(end) => return end,
            }
        }
    }
}

/// What is kept of a walk for the next one.
trait Record {
    /// A step was taken by a rule.
    fn take(&mut self, taken: Taken);

    /// A step follows that cannot be kept.
    fn interrupt(&mut self);

    /// The rest of the walk, if a frame is one that was kept and all that followed still holds.
    fn resume<S: Modules + ?Sized, M: Memory + ?Sized>(
        &mut self,
        frame: State,
        memory: &M,
        modules: &S,
        recent: &mut Recent,
        frames: &mut Frames<'_>,
    ) -> Option<End>;

    /// The walk ended at a frame by its rule.
    fn finish(&mut self, code: RuntimeAddr, stack_pointer: u64, end: End, recent: &Recent);
}

/// Nothing is kept.
struct Forgetful;

impl Record for Forgetful {
    #[inline]
    fn take(&mut self, _: Taken) {}

    #[inline]
    fn interrupt(&mut self) {}

    #[inline]
    fn resume<S: Modules + ?Sized, M: Memory + ?Sized>(
        &mut self,
        _: State,
        _: &M,
        _: &S,
        _: &mut Recent,
        _: &mut Frames<'_>,
    ) -> Option<End> {
        None
    }

    #[inline]
    fn finish(&mut self, _: RuntimeAddr, _: u64, _: End, _: &Recent) {}
}

/// The modules that were met last.
#[derive(Debug)]
struct Recent {
    places: [Place; Recent::COUNT],
    /// Which of them were seen to be there since the walk began, as bits.
    seen: u32,
    /// Whether one that was seen had to make room.
    is_overfull: bool,
    next: usize,
}

impl Recent {
    const COUNT: usize = 8;

    const fn new() -> Self {
        Recent {
            places: [Place::NOWHERE; Recent::COUNT],
            seen: 0,
            is_overfull: false,
            next: 0,
        }
    }

    /// A walk begins: nothing was seen yet.
    fn begin(&mut self) {
        self.seen = 0;
        self.is_overfull = false;
    }

    /// The module at an address, which is there.
    fn find<S: Modules + ?Sized>(&mut self, address: RuntimeAddr, modules: &S) -> Option<Place> {
        let known = self.places.iter().position(|place| place.contains(address));
        if let Some(at) = known {
            let place = *self.places.get(at)?;
            if self.seen >> at & 1 != 0 {
                return Some(place);
            }
            if modules.is_there(&place) {
                self.seen |= 1 << at;
                return Some(place);
            }
            *self.places.get_mut(at)? = Place::NOWHERE;
        }
        let place = modules.place(address)?;
        let at = self.next;
        *self.places.get_mut(at)? = place;
        self.is_overfull |= self.seen >> at & 1 != 0;
        self.seen |= 1 << at;
        self.next = (at + 1) % Recent::COUNT;
        Some(place)
    }

    fn is_there<S: Modules + ?Sized>(&mut self, place: &Place, modules: &S) -> bool {
        let known = self.places.iter().position(|known| known == place);
        let is_seen = known.is_some_and(|at| self.seen >> at & 1 != 0);
        let is_there = is_seen || modules.is_there(place);
        if let Some(at) = known
            && is_there
        {
            self.seen |= 1 << at;
        }
        is_there
    }

    /// The modules that the walk went through; `None` if they were too many.
    fn used(&self) -> Option<impl Iterator<Item = Place>> {
        let seen = self.seen;
        let places = self.places.iter().enumerate();
        let used = places.filter_map(move |(at, place)| (seen >> at & 1 != 0).then_some(*place));
        (!self.is_overfull).then_some(used)
    }
}
