//! From a frame to its caller.
//!
//! Async-signal-safe if the modules and the memory are: nothing here allocates, locks or loops
//! without bound.

use core::cell::Cell;

use unspool_compiled_table::call_test::{CALL_WINDOW_BYTES, CallTest};
use unspool_rows::interpret::{self, FrameContext, StepError};
use unspool_rows::memory::read_uint;
use unspool_rows::{
    Abi, CodeAddr, LoadBias, Memory, Register, RegisterRule, Registers, Row, RuntimeAddr, Vaddr,
};

use crate::evidence::{End, Evidence, NoRow};
use crate::frame::FrameState;
use crate::guess::{self, Guess, NoGuess};
use crate::modules::{Module, ModuleRow, Modules, NativeTarget, NativeUnwinder};

/// A frame of a walk: its code address and its registers.
#[derive(Debug, Clone, Copy)]
pub struct Cursor {
    frame: FrameState,
    /// The address where the last step read the frame's code address, if it did.
    code_at: Option<RuntimeAddr>,
    pub(crate) loop_guard: LoopGuard,
}

/// State that ends a walk in a circle.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LoopGuard {
    cycle: CycleDetector,
    /// The number of steps that left their stack.
    stack_changes: u16,
}

/// The result of a step.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// The cursor is at the caller.
    Caller(StepInfo),
    /// No caller was found; the cursor has not moved.
    End(End),
}

/// The result of a look-up of a frame's address in the tables.
#[derive(Debug, Clone, Copy)]
pub struct RowLookup<'e, 'm> {
    /// The module at the address.
    pub module: Option<Module<'m>>,
    /// The row that covers it, or why there is none.
    pub row: Result<ModuleRow<'e, 'm>, NoRow>,
}

/// How the caller was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepInfo {
    /// The evidence.
    pub evidence: Evidence,
    /// The canonical frame address of the callee, the frame before the step.
    pub cfa: RuntimeAddr,
    /// For a guess, why there was no row.
    pub instead_of: Option<NoRow>,
    /// The frame before the step is that of a signal handler's trampoline: its caller was
    /// interrupted.
    pub signal_frame: bool,
}

impl Cursor {
    /// The limit of a walk's steps that leave their stack. A signal handler on its own stack takes
    /// one or two, and so does a segment of a split stack.
    pub const MAX_STACK_CHANGES: u16 = 1024;

    /// The innermost frame of a thread; `None` if its code address is unknown.
    #[must_use]
    pub fn new(abi: Abi, registers: Registers) -> Option<Self> {
        let pc = registers.get(abi.arch.spec().pc)?;
        let code = CodeAddr::Instruction(RuntimeAddr(pc));
        Some(Cursor::with_code(abi, code, registers))
    }

    /// A frame at `code`.
    #[must_use]
    pub fn with_code(abi: Abi, code: CodeAddr, registers: Registers) -> Self {
        Cursor {
            frame: FrameState {
                abi,
                code,
                registers,
                pac_mask: 0,
            },
            code_at: None,
            loop_guard: LoopGuard::default(),
        }
    }

    /// Continues from a frame further out that was found by other means.
    pub(crate) fn move_to(&mut self, code: CodeAddr, registers: Registers) {
        self.frame.code = code;
        self.frame.registers = registers;
    }

    /// The address where the last step read the frame's code address, if it did.
    pub(crate) fn code_at(&self) -> Option<RuntimeAddr> {
        self.code_at
    }

    /// Sets the bits of a code address that hold a pointer authentication code (AArch64).
    #[must_use]
    pub fn with_pac_mask(mut self, mask: u64) -> Self {
        self.frame.pac_mask = mask;
        self
    }

    /// The frame's code address.
    #[must_use]
    pub fn code(&self) -> CodeAddr {
        self.frame.code
    }

    /// The frame's known registers.
    #[must_use]
    pub fn registers(&self) -> &Registers {
        &self.frame.registers
    }

    /// The frame's stack pointer.
    #[must_use]
    pub fn stack_pointer(&self) -> Option<RuntimeAddr> {
        self.frame.stack_pointer()
    }

    /// Looks up the frame's address in the tables; a row is decoded into `row`.
    #[inline]
    pub fn locate<'e, 'm, S>(&self, modules: &'m S, row: &'e mut Row<'m>) -> RowLookup<'e, 'm>
    where
        S: Modules + ?Sized,
    {
        self.locate_in(modules.module(self.frame.code.lookup()), modules, row)
    }

    #[inline]
    fn locate_in<'e, 'm, S>(
        &self,
        module: Option<Module<'m>>,
        modules: &'m S,
        row: &'e mut Row<'m>,
    ) -> RowLookup<'e, 'm>
    where
        S: Modules + ?Sized,
    {
        let pc = self.frame.code.lookup();
        let row = match &module {
            Some(module) => module.row(module.bias.to_vaddr(pc), row),
            None => Err(modules.without_module(pc)),
        };
        RowLookup { module, row }
    }

    /// Steps to the caller by the row that covers the frame's address. Without a row, by a guess
    /// that is checked against known code.
    pub fn step(
        &mut self,
        modules: &(impl Modules + ?Sized),
        memory: &(impl Memory + ?Sized),
    ) -> Step {
        let module = modules.module(self.frame.code.lookup());
        if let Some(module) = &module
            && let Some(native) = module.native
            && let Some(step) = self.step_by_native(native, module, modules, memory)
        {
            return step;
        }
        let mut row = Row::new(Register(0));
        let located = self.locate_in(module, modules, &mut row);
        self.step_by(&located, modules, memory)
    }

    /// Steps from a frame that was already [located](Cursor::locate).
    #[inline]
    pub fn step_by(
        &mut self,
        lookup: &RowLookup<'_, '_>,
        modules: &(impl Modules + ?Sized),
        memory: &(impl Memory + ?Sized),
    ) -> Step {
        let outcome = match (&lookup.module, &lookup.row) {
            (Some(module), Ok(found)) => self
                .step_by_trampoline(found, module, memory)
                .unwrap_or_else(|| self.step_by_row(found, module, memory)),
            // No guess: the table's source still has the row, and the table's owner can use that.
            (_, Err(corrupt @ NoRow::CorruptTable(_))) => Err(End::NoRow(*corrupt)),
            (module, Err(missing)) => {
                self.step_without_row(*missing, module.as_ref(), modules, memory)
            }
            (None, Ok(_)) => Err(End::NoRow(NoRow::NoModule)),
        };
        match outcome {
            Ok((caller, found)) => {
                let stack_pointer = self.frame.abi.arch.spec().stack_pointer;
                let there = CallerPosition {
                    code: caller.code,
                    stack_pointer: caller.registers.get(stack_pointer),
                    read: caller.code_at,
                };
                self.arrive(&there, found, modules, |registers| {
                    *registers = caller.registers;
                })
            }
            Err(end) => Step::End(end),
        }
    }

    /// Moves to a caller and sets its registers, unless that ends the walk.
    #[inline]
    fn arrive(
        &mut self,
        caller: &CallerPosition,
        step_info: StepInfo,
        modules: &(impl Modules + ?Sized),
        put: impl FnOnce(&mut Registers),
    ) -> Step {
        if let Some(end) = end_outside_code(caller.code, modules) {
            return Step::End(end);
        }
        let trail = &mut self.loop_guard;
        if trail
            .cycle
            .is_repeated(caller.code.address(), step_info.cfa)
        {
            return Step::End(End::Loop);
        }
        if !self.climbs_to(caller) {
            self.loop_guard.stack_changes += 1;
            if self.loop_guard.stack_changes > Cursor::MAX_STACK_CHANGES {
                return Step::End(End::TooManyStacks);
            }
        }
        self.frame.code = caller.code;
        self.code_at = caller.read;
        put(&mut self.frame.registers);
        Step::Caller(step_info)
    }

    /// Whether a caller is further up the stack, and was found by a word below it.
    ///
    /// Each such step uses a word of memory that no other step of the same climb uses, so a climb
    /// ends with the stack. A wrong table can lead upwards without reading any word, until
    /// addresses run out. It can also lead down, but never twice to the same frame.
    fn climbs_to(&self, caller: &CallerPosition) -> bool {
        let left = self.stack_pointer().zip(caller.stack_pointer);
        let left = left.map(|(from, to)| from..RuntimeAddr(to));
        left.zip(caller.read)
            .is_some_and(|(left, at)| left.contains(&at))
    }

    /// The canonical frame address by the row that covers the frame, if there is one. An outermost
    /// frame also has one, without a caller.
    #[must_use]
    pub fn cfa(
        &self,
        modules: &(impl Modules + ?Sized),
        memory: &(impl Memory + ?Sized),
    ) -> Option<RuntimeAddr> {
        let pc = self.frame.code.lookup();
        let module = modules.module(pc)?;
        let mut row = Row::new(Register(0));
        let found = module.row(module.bias.to_vaddr(pc), &mut row).ok()?;
        interpret::cfa(found.row, &self.frame(module.bias, memory)).ok()
    }

    fn frame<'f, M: Memory + ?Sized>(
        &'f self,
        bias: LoadBias,
        memory: &'f M,
    ) -> FrameContext<'f, M> {
        FrameContext {
            abi: self.frame.abi,
            registers: &self.frame.registers,
            memory,
            bias,
            pac_mask: self.frame.pac_mask,
        }
    }

    /// Checks for a trampoline at the frame's address. A handler returns to the first byte of its
    /// trampoline, which does not follow a call. So the byte before may belong to another function
    /// and have the wrong row. That function ends where the trampoline begins, as does one that
    /// ends in a call that never returns. The trampoline's bytes decide.
    #[inline(never)]
    fn step_by_trampoline<M: Memory + ?Sized>(
        &self,
        found: &ModuleRow<'_, '_>,
        module: &Module<'_>,
        memory: &M,
    ) -> Option<Result<(CallerState, StepInfo), End>> {
        let address = self.frame.code.address();
        let stands_behind = matches!(self.frame.code, CodeAddr::Return(_))
            && module.bias.to_vaddr(address) == found.entry_end;
        match stands_behind.then(|| guess::trampoline(&self.frame, memory))? {
            Ok(guess) => Some(Ok(guessed_caller(&guess, NoRow::Hole))),
            Err(NoGuess::Implausible) => None,
            Err(none) => Some(Err(none.end(NoRow::Hole))),
        }
    }

    /// Steps by the machine code of the module's table, if possible: like [`Cursor::step_by_row`],
    /// but faster.
    // Registers are large: those of other branches must not be on a small stack, for instance a
    // signal handler's.
    #[inline(never)]
    fn step_by_native<M: Memory + ?Sized>(
        &mut self,
        native: &dyn NativeUnwinder,
        module: &Module<'_>,
        modules: &(impl Modules + ?Sized),
        memory: &M,
    ) -> Option<Step> {
        let endian = self.frame.abi.endian;
        let highest = Cell::new(None);
        let read = |addr: RuntimeAddr, size| {
            let number = read_uint(memory, addr, size, endian).ok()?;
            highest.set(highest.get().max(Some(addr)));
            Some(number)
        };
        let step = native.step(self.frame.code, module.bias, &self.frame.registers, &read)?;
        let spec = self.frame.abi.arch.spec();
        let address = RuntimeAddr(step.get(spec.pc)?);
        let (code, signal_frame) = match step.target {
            NativeTarget::Outermost => return Some(Step::End(End::Outermost)),
            NativeTarget::Interrupted => (CodeAddr::Instruction(address), true),
            NativeTarget::Caller => (CodeAddr::Return(address), false),
        };
        // The row's entry shows whether the stack begins here.
        (address.0 != 0 || signal_frame).then_some(())?;
        let there = CallerPosition {
            code,
            stack_pointer: step.get(spec.stack_pointer),
            // Usually the return address; any other word of the frame would serve as well.
            read: highest.get(),
        };
        let found = StepInfo {
            evidence: Evidence::Cfi,
            cfa: step.cfa,
            instead_of: None,
            signal_frame,
        };
        Some(self.arrive(&there, found, modules, |registers| {
            registers.replace(step.values, step.known.into());
        }))
    }

    fn step_by_row<M: Memory + ?Sized>(
        &self,
        found: &ModuleRow<'_, '_>,
        module: &Module<'_>,
        memory: &M,
    ) -> Result<(CallerState, StepInfo), End> {
        let row = found.row;
        match row.rule(row.return_address) {
            Some(RegisterRule::Undefined) if found.evidence == Evidence::Cfi => {
                return Err(End::Outermost);
            }
            // Entry code need not describe a missing caller.
            _ if module.entry == Some(found.entry_start) => return Err(End::EntryPoint),
            // A function that has made a call has saved its return address somewhere. A link
            // register without a rule holds the call's return address, and would lead back to here.
            // If no call leads to here, the stack's creator put the address at the base.
            None if matches!(self.frame.code, CodeAddr::Return(_)) => {
                let address = self.frame.code.address();
                return Err(if self.follows_call(address, memory) == Some(false) {
                    End::EntryPoint
                } else {
                    End::Step(StepError::NoReturnAddress)
                });
            }
            Some(RegisterRule::Undefined) => return Err(End::Outermost),
            _ => {}
        }
        let caller = interpret::step(row, &self.frame(module.bias, memory)).map_err(End::Step)?;
        let return_address = caller.return_address.ok_or(End::Outermost)?;
        // Code at 0 can be interrupted, by the fault of a call there.
        if return_address.0 == 0 && !row.signal_frame {
            return Err(if follows_no_call(self.frame.code, found, module) {
                End::EntryPoint
            } else {
                End::ZeroReturnAddress
            });
        }
        let code = if row.signal_frame {
            CodeAddr::Instruction(return_address)
        } else {
            CodeAddr::Return(return_address)
        };
        let found = StepInfo {
            evidence: found.evidence,
            cfa: caller.cfa,
            instead_of: None,
            signal_frame: row.signal_frame,
        };
        Ok((
            CallerState {
                code,
                code_at: caller.return_address_at,
                registers: caller.registers,
            },
            found,
        ))
    }

    /// Steps from a frame that no table covers, unless it is the stack's base: by the code that it
    /// has yet to run, or by a guess.
    #[cold]
    #[inline(never)]
    fn step_without_row<S, M>(
        &self,
        missing: NoRow,
        module: Option<&Module<'_>>,
        modules: &S,
        memory: &M,
    ) -> Result<(CallerState, StepInfo), End>
    where
        S: Modules + ?Sized,
        M: Memory + ?Sized,
    {
        let pc = self.frame.code.lookup();
        if let Some(module) = module
            && let Some(entry) = module.entry
            && (entry..=entry.offset(MAX_START_CODE_BYTES)).contains(&module.bias.to_vaddr(pc))
        {
            return Err(End::EntryPoint);
        }
        if module.is_some_and(|module| self.is_at_base(module, memory)) {
            return Err(End::EntryPoint);
        }
        if let Some(step) = self.step_by_exit_row(module, modules, memory) {
            return step;
        }
        let guess = guess::guess(&self.frame, modules, memory).map_err(|none| none.end(missing))?;
        Ok(guessed_caller(&guess, missing))
    }

    /// Steps by the code that the frame has yet to run. Its rules hold if the code keeps to the ABI:
    /// then the caller's code makes a call.
    #[inline(never)]
    fn step_by_exit_row(
        &self,
        module: Option<&Module<'_>>,
        modules: &(impl Modules + ?Sized),
        memory: &(impl Memory + ?Sized),
    ) -> Option<Result<(CallerState, StepInfo), End>> {
        let (rows, bias) = match module {
            Some(module) => (module.synthesized?, module.bias),
            None => {
                let rows = modules.anonymous_code(self.frame.code.lookup())?;
                (rows, LoadBias(0))
            }
        };
        let row = rows.exit_row(self.frame.code, bias, &self.frame.registers)?;
        if row.is_outermost() {
            return Some(Err(End::Outermost));
        }
        let caller = match interpret::step(&row, &self.frame(bias, memory)) {
            Ok(caller) => caller,
            Err(error) => {
                let end = End::Step(error);
                return end.unreadable().map(|_| Err(end));
            }
        };
        let address = caller.return_address?;
        let follows_no_call = self.follows_call(address, memory) == Some(false);
        let code = CodeAddr::Return(address);
        if follows_no_call || !modules.is_code(code.lookup()) {
            return None;
        }
        let found = StepInfo {
            evidence: Evidence::Synthesized,
            cfa: caller.cfa,
            instead_of: None,
            signal_frame: false,
        };
        let caller = CallerState {
            code,
            code_at: caller.return_address_at,
            registers: caller.registers,
        };
        Some(Ok((caller, found)))
    }

    /// Whether the bytes before an address look like a call; `None` if they are unreadable.
    fn follows_call<M: Memory + ?Sized>(&self, address: RuntimeAddr, memory: &M) -> Option<bool> {
        let test = CallTest::anywhere(self.frame.abi.arch)?;
        let mut before = [0; CALL_WINDOW_BYTES];
        let window = RuntimeAddr(address.0.wrapping_sub(CALL_WINDOW_BYTES as u64));
        memory.read(window, &mut before).ok()?;
        Some(test.passes(Vaddr(address.0), before))
    }

    /// Whether the return address is the first byte of a function without a call before it: the
    /// stack's creator put it at the base. glibc's `makecontext` makes coroutines return to such a
    /// function.
    fn is_at_base<M: Memory + ?Sized>(&self, module: &Module<'_>, memory: &M) -> bool {
        let CodeAddr::Return(address) = self.frame.code else {
            return false;
        };
        let start = module.bias.to_vaddr(address);
        let mut row = Row::new(Register(0));
        let found = module.row(start, &mut row);
        if !found.is_ok_and(|found| found.entry_start == start) {
            return false;
        }
        // A handler returns to its trampoline in the same way.
        self.follows_call(address, memory) == Some(false)
            && matches!(
                guess::trampoline(&self.frame, memory),
                Err(NoGuess::Implausible)
            )
    }

    /// The architecture and byte order.
    #[must_use]
    pub fn abi(&self) -> Abi {
        self.frame.abi
    }
}

/// Whether a return address is one byte into a function, where no call can end: the stack's creator
/// put it at the base. Go's goroutines return to `runtime.goexit` that way.
pub(crate) fn follows_no_call(
    code: CodeAddr,
    found: &ModuleRow<'_, '_>,
    module: &Module<'_>,
) -> bool {
    let is_first = module.bias.to_vaddr(code.lookup()) == found.entry_start;
    is_first && matches!(code, CodeAddr::Return(_))
}

/// The end of a walk at a frame whose caller would be at an address without executable memory. A
/// signal can interrupt a jump to such an address, but no call returns there. A signal handler may
/// return to the first byte of executable memory.
pub(crate) fn end_outside_code(caller: CodeAddr, modules: &(impl Modules + ?Sized)) -> Option<End> {
    let CodeAddr::Return(address) = caller else {
        return None;
    };
    let is_outside = modules.is_not_code(caller.lookup()) && modules.is_not_code(address);
    is_outside.then_some(End::NotCode(address))
}

/// The assumed limit of entry code without its own table, in bytes: `_start` of musl has 22.
const MAX_START_CODE_BYTES: u64 = 64;

/// A caller, as needed to decide whether a walk may continue there.
struct CallerPosition {
    code: CodeAddr,
    stack_pointer: Option<u64>,
    /// A word read by the step: the return address, if it was read.
    read: Option<RuntimeAddr>,
}

/// A step's resulting frame.
struct CallerState {
    code: CodeAddr,
    /// The address where `code` was read, if it was.
    code_at: Option<RuntimeAddr>,
    registers: Registers,
}

/// A guessed caller, found without a row.
fn guessed_caller(guess: &Guess, missing: NoRow) -> (CallerState, StepInfo) {
    let found = StepInfo {
        evidence: guess.evidence,
        cfa: guess.cfa,
        instead_of: Some(missing),
        signal_frame: guess.evidence == Evidence::SignalTrampoline,
    };
    let caller = CallerState {
        code: guess.code,
        code_at: guess.code_at,
        registers: guess.registers,
    };
    (caller, found)
}

/// Finds cycles of any length in constant memory (Brent's algorithm). A frame is remembered,
/// compared with all later ones, and replaced after ever longer intervals.
#[derive(Debug, Clone, Copy, Default)]
struct CycleDetector {
    remembered: Option<(RuntimeAddr, RuntimeAddr)>,
    steps: u64,
    stretch: u64,
}

impl CycleDetector {
    fn is_repeated(&mut self, pc: RuntimeAddr, cfa: RuntimeAddr) -> bool {
        if self.remembered == Some((pc, cfa)) {
            return true;
        }
        self.steps += 1;
        if self.steps >= self.stretch {
            self.remembered = Some((pc, cfa));
            self.steps = 0;
            self.stretch = (self.stretch * 2).max(1);
        }
        false
    }
}
