//! A frame of the own stack, with the locations of its registers.
//!
//! For usual frames, a step takes the rule that was cached when their address was first reached
//! ([`crate::steps`]). Unusual frames are stepped by a [`Cursor`]. Registers are read from their
//! locations on demand.
//!
//! Async-signal-safe.

use unspool_rows::interpret::{self, FrameContext};
use unspool_rows::memory::read_uint;
use unspool_rows::packed_row::{CfaBase, PackedStep};
use unspool_rows::{CodeAddr, PackedRow, Register, RegisterScope, Registers, Row, RuntimeAddr};

use super::memory::OwnMemory;
use super::sys::CapturedRegisters;
use super::thread::{SignalRegisters, with_memory};
use super::{ABI, MODULES};
use crate::cursor::{Cursor, LoopGuard, RowLookup, Step, StepInfo};
use crate::evidence::{End, Evidence};
use crate::modules::Modules;
use crate::steps::{
    self, Arrival, CachedPackedRow, CachedRule, REGISTERS, StepAddress, StepCache, StepRule,
};

const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RIP: Register = Register(16);

/// The rules that all cursors of the process share.
static CACHE: StepCache = StepCache::empty();

/// The location of a register of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnRegisterLocation {
    /// Nowhere: its value is unknown.
    Unrecoverable,
    /// At this address.
    Memory(RuntimeAddr),
    /// In the register itself: no inner frame has saved it.
    SameRegister,
    /// Nowhere: its value was computed.
    Value,
}

/// The locations of all registers, by number.
pub type RegisterLocationArray = [OwnRegisterLocation; REGISTERS as usize];

/// A frame of the own stack. Valid until the frame returns.
#[derive(Debug, Clone, Copy)]
pub struct OwnCursor {
    code: CodeAddr,
    locations: steps::RegisterLocations,
    /// The registers of the innermost frame.
    innermost: [u64; REGISTERS as usize],
    loop_guard: LoopGuard,
    /// The code address of the last frame passed that was left at an instruction, not by a call.
    interrupted: Option<RuntimeAddr>,
    evidence: Option<Evidence>,
    end: Option<End>,
}

/// An unknown stack pointer: no frame is above it.
const UNKNOWN: u64 = u64::MAX;

impl OwnCursor {
    /// A walk's first frame, and the locations of its registers, by number.
    #[must_use]
    pub fn new(cursor: Cursor, locations: RegisterLocationArray) -> OwnCursor {
        let value = |number| cursor.registers().get(Register(number));
        let place = |number: u16| match (locations.get(usize::from(number)), value(number)) {
            (Some(OwnRegisterLocation::Memory(addr)), _) => steps::ResolvedLocation::Memory(addr.0),
            (Some(OwnRegisterLocation::SameRegister), Some(_)) => {
                steps::ResolvedLocation::Register(number)
            }
            (Some(OwnRegisterLocation::Value), Some(value)) => {
                steps::ResolvedLocation::Value(value)
            }
            _ => steps::ResolvedLocation::Unrecoverable,
        };
        let mut innermost = [0; REGISTERS as usize];
        for (number, slot) in (0..).zip(&mut innermost) {
            *slot = value(number).unwrap_or(0);
        }
        OwnCursor {
            code: cursor.code(),
            locations: steps::RegisterLocations::new(value(RSP.0).unwrap_or(UNKNOWN), place),
            innermost,
            loop_guard: cursor.loop_guard,
            interrupted: None,
            evidence: None,
            end: None,
        }
    }

    /// The frame's code address.
    #[must_use]
    pub fn code(&self) -> CodeAddr {
        self.code
    }

    /// The instruction of the last frame passed that was interrupted, not left by a call. `None` if
    /// all were left by calls.
    #[must_use]
    pub fn interrupted(&self) -> Option<RuntimeAddr> {
        self.interrupted
    }

    /// How it was found from the inner frame; `None` for the first.
    #[must_use]
    pub fn evidence(&self) -> Option<Evidence> {
        self.evidence
    }

    /// Why there is no outer frame, once that is known.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Steps to the caller, if there is one.
    pub fn step(&mut self) -> bool {
        let left = self.code;
        let has_caller = with_memory(|memory| match self.step_kept(memory) {
            Some(is_running) => is_running,
            None => self.step_by_cursor(memory),
        });
        if let (true, CodeAddr::Instruction(address)) = (has_caller, left) {
            self.interrupted = Some(address);
        }
        has_caller
    }

    fn stack_pointer(&self) -> Option<u64> {
        Some(self.locations.stack_pointer()).filter(|pointer| *pointer != UNKNOWN)
    }

    /// The cache key of the frame; `None` without a stack pointer.
    fn step_address(&self) -> Option<StepAddress> {
        let arrival = match self.code {
            CodeAddr::Return(_) => Arrival::Called,
            CodeAddr::Instruction(_) => Arrival::Interrupted,
        };
        let at = StepAddress::new(self.code.address().0, self.stack_pointer()?, arrival);
        at.is_kept().then_some(at)
    }

    /// The cached row, if its module is still loaded.
    fn kept(&self) -> Option<PackedRow> {
        let at = self.step_address()?;
        let usual = CACHE.simple(at);
        let cached = match usual.filter(|cached| *cached != CachedPackedRow::NONE) {
            Some(cached) => cached,
            None => match CACHE.get(at)? {
                CachedRule::Simple(cached) => cached,
                CachedRule::Encoded(_) => return None,
            },
        };
        let is_there = MODULES.is_mapped(cached.module_slot()?);
        is_there.then_some(cached.row())
    }

    /// Steps up the stack by the cached row; yields whether there is a caller. `None`, without any
    /// change, if no row is cached or anything is unusual.
    #[inline]
    fn step_kept(&mut self, memory: &OwnMemory) -> Option<bool> {
        let row = self.kept()?;
        let stack_pointer = self.stack_pointer()?;
        let base = match row.base() {
            CfaBase::StackPointer => stack_pointer,
            CfaBase::FramePointer => self.value(RBP.0, memory)?,
        };
        let read = |addr| word(memory, addr).ok_or(());
        let step = row.caller(ABI.arch, self.code.address().0, base, read);
        let step = step.ok()??;
        let code = match step {
            PackedStep::Outermost => {
                self.end = Some(End::Outermost);
                return Some(false);
            }
            PackedStep::Caller { code, cfa, .. } => {
                (code != 0 && cfa > stack_pointer).then_some(CodeAddr::Return(RuntimeAddr(code)))?
            }
            // Further up the same stack; the kernel's record lies between.
            PackedStep::Interrupted {
                code,
                stack_pointer,
                code_at,
                ..
            } => (stack_pointer > code_at).then_some(CodeAddr::Instruction(RuntimeAddr(code)))?,
        };
        self.locations.enter(row, step);
        Some(self.arrive(code))
    }

    fn arrive(&mut self, code: CodeAddr) -> bool {
        self.code = code;
        self.evidence = Some(Evidence::Cfi);
        true
    }

    /// The same frame, with the values of its registers.
    fn cursor(&self, memory: &OwnMemory) -> Cursor {
        let mut registers = Registers::new();
        for number in 0..REGISTERS {
            if let Some(value) = self.value(number, memory) {
                registers.set(Register(number), value);
            }
        }
        let mut cursor = Cursor::with_code(ABI, self.code, registers);
        cursor.loop_guard = self.loop_guard;
        cursor
    }

    #[cold]
    fn step_by_cursor(&mut self, memory: &OwnMemory) -> bool {
        let before = self.cursor(memory);
        let now = CACHE.now();
        let mut row = Row::new(Register(0));
        let located = before.locate(&MODULES, &mut row);
        let mut cursor = before;
        let step = cursor.step_by(&located, &MODULES, memory);
        self.loop_guard = cursor.loop_guard;
        if let (Some(at), Some(simple)) = (self.step_address(), simple(&step, &located)) {
            CACHE.put(at, StepRule::Simple(simple), now);
        }
        let found = match step {
            Step::Caller(found) => found,
            Step::End(end) => {
                self.end = Some(end);
                return false;
            }
        };
        self.locations = self.places_after(&before, &located, &found, memory);
        let stack_pointer = cursor.stack_pointer().map_or(UNKNOWN, |addr| addr.0);
        self.locations.set_stack_pointer(stack_pointer);
        self.code = cursor.code();
        self.evidence = Some(found.evidence);
        true
    }

    /// The locations of the caller's registers except the stack pointer, by their locations in this
    /// frame.
    fn places_after(
        &self,
        before: &Cursor,
        lookup: &RowLookup<'_, '_>,
        step_info: &StepInfo,
        memory: &OwnMemory,
    ) -> steps::RegisterLocations {
        let below = |bytes| steps::ResolvedLocation::Memory(step_info.cfa.0.wrapping_sub(bytes));
        match step_info.evidence {
            Evidence::Cfi | Evidence::Synthesized => {
                self.places_by_row(before, lookup, step_info, memory)
            }
            Evidence::FramePointer => {
                steps::RegisterLocations::new(UNKNOWN, |number| match Register(number) {
                    RBP => below(16),
                    RIP => below(8),
                    _ => steps::ResolvedLocation::Unrecoverable,
                })
            }
            Evidence::BadCall => {
                steps::RegisterLocations::new(UNKNOWN, |number| match Register(number) {
                    RIP => below(8),
                    RSP => steps::ResolvedLocation::Value(step_info.cfa.0),
                    _ => self
                        .locations
                        .get(number)
                        .unwrap_or(steps::ResolvedLocation::Unrecoverable),
                })
            }
            Evidence::SignalTrampoline => {
                let record = before.stack_pointer().unwrap_or_default().0;
                steps::RegisterLocations::interrupted(UNKNOWN, record)
            }
        }
    }

    fn places_by_row(
        &self,
        before: &Cursor,
        lookup: &RowLookup<'_, '_>,
        step_info: &StepInfo,
        memory: &OwnMemory,
    ) -> steps::RegisterLocations {
        let (Some(module), Ok(row)) = (&lookup.module, &lookup.row) else {
            return steps::RegisterLocations::new(UNKNOWN, |_| {
                steps::ResolvedLocation::Unrecoverable
            });
        };
        let frame = FrameContext {
            abi: ABI,
            registers: before.registers(),
            memory,
            bias: module.bias,
            pac_mask: 0,
        };
        let recover = |register| interpret::recover(row.row, &frame, step_info.cfa, register);
        let column = row.row.return_address;
        self.locations.caller(UNKNOWN, column, recover)
    }

    /// The location of a register.
    #[must_use]
    pub fn register_location(&self, register: u16) -> OwnRegisterLocation {
        match (self.locations.get(register), Register(register)) {
            (Some(steps::ResolvedLocation::Memory(addr)), _) => {
                OwnRegisterLocation::Memory(RuntimeAddr(addr))
            }
            (Some(steps::ResolvedLocation::Register(_)), _) => OwnRegisterLocation::SameRegister,
            (Some(steps::ResolvedLocation::Value(_)), _) => OwnRegisterLocation::Value,
            // It is tracked separately.
            (Some(steps::ResolvedLocation::Unrecoverable), RSP)
                if self.stack_pointer().is_some() =>
            {
                OwnRegisterLocation::Value
            }
            (Some(steps::ResolvedLocation::Unrecoverable) | None, _) => {
                OwnRegisterLocation::Unrecoverable
            }
        }
    }

    /// The value of a register, if it is known.
    #[must_use]
    pub fn register(&self, register: u16) -> Option<u64> {
        with_memory(|memory| self.value(register, memory))
    }

    fn value(&self, register: u16, memory: &OwnMemory) -> Option<u64> {
        match Register(register) {
            RSP => return self.stack_pointer(),
            RIP => return Some(self.code.address().0),
            _ => {}
        }
        match self.locations.get(register)? {
            steps::ResolvedLocation::Memory(addr) => word(memory, addr),
            steps::ResolvedLocation::Register(number) => {
                self.innermost.get(usize::from(number)).copied()
            }
            steps::ResolvedLocation::Value(value) => Some(value),
            steps::ResolvedLocation::Unrecoverable => None,
        }
    }

    /// Notes that the client has changed a register at its location.
    pub fn note(&mut self, register: u16, value: u64) {
        match Register(register) {
            RSP => self.locations.set_stack_pointer(value),
            RIP => {
                self.code = match self.code {
                    CodeAddr::Instruction(_) => CodeAddr::Instruction(RuntimeAddr(value)),
                    CodeAddr::Return(_) => CodeAddr::Return(RuntimeAddr(value)),
                };
            }
            _ => {}
        }
        match self.locations.get(register) {
            Some(steps::ResolvedLocation::Register(number)) => {
                if let Some(slot) = self.innermost.get_mut(usize::from(number)) {
                    *slot = value;
                }
            }
            Some(steps::ResolvedLocation::Value(_)) => self
                .locations
                .set(register, steps::ResolvedLocation::Value(value)),
            Some(steps::ResolvedLocation::Memory(_) | steps::ResolvedLocation::Unrecoverable)
            | None => {}
        }
    }

    /// The canonical frame address, by the row that covers the frame.
    #[must_use]
    pub fn cfa(&self) -> Option<RuntimeAddr> {
        with_memory(|memory| self.cursor(memory).cfa(&MODULES, memory))
    }

    /// Whether the frame is that of a signal handler's trampoline: its caller was interrupted.
    #[must_use]
    pub fn is_signal_frame(&self) -> bool {
        if let Some(simple) = self.kept() {
            return simple == PackedRow::SIGNAL;
        }
        let step = with_memory(|memory| self.cursor(memory).step(&MODULES, memory));
        matches!(step, Step::Caller(found) if found.signal_frame)
    }
}

fn word(memory: &OwnMemory, addr: u64) -> Option<u64> {
    read_uint(memory, RuntimeAddr(addr), 8, ABI.endian).ok()
}

/// The packed rule of a row, if a step used the row, it fits into a word, and its module has a
/// slot.
fn simple(step: &Step, lookup: &RowLookup<'_, '_>) -> Option<CachedPackedRow> {
    let by_row = match step {
        Step::Caller(found) => found.evidence == Evidence::Cfi,
        Step::End(end) => *end == End::Outermost,
    };
    if !by_row {
        return None;
    }
    let place = lookup.module.as_ref()?.slot?;
    let row = lookup.row.as_ref().ok()?;
    let row = PackedRow::from_row(row.row, ABI.arch, RegisterScope::All)?;
    CachedPackedRow::new(row, place)
}

/// The locations of registers that the kernel has stored, as `gregs` of a context.
fn places_from(stored: u64) -> RegisterLocationArray {
    let place = |at| {
        OwnRegisterLocation::Memory(RuntimeAddr(stored.wrapping_add_signed(8 * i64::from(at))))
    };
    SignalRegisters::IN_CONTEXT.map(place)
}

fn set(locations: &mut RegisterLocationArray, register: Register, location: OwnRegisterLocation) {
    if let Some(slot) = locations.get_mut(usize::from(register.0)) {
        *slot = location;
    }
}

/// Calls `body` with a cursor at the function that calls this one.
#[inline(never)]
pub fn with_cursor<R>(body: impl FnOnce(&mut OwnCursor) -> R) -> R {
    let mut here = CapturedRegisters::EMPTY;
    here.fill();
    let mut registers = Registers::new();
    let mut places = [OwnRegisterLocation::Unrecoverable; REGISTERS as usize];
    for (register, value) in CapturedRegisters::OTHERS.into_iter().zip(here.others) {
        registers.set(register, value);
        set(&mut places, register, OwnRegisterLocation::SameRegister);
    }
    for (register, value) in [(RBP, here.frame_pointer), (RSP, here.stack_pointer)] {
        registers.set(register, value);
        set(&mut places, register, OwnRegisterLocation::SameRegister);
    }
    let code = CodeAddr::Return(RuntimeAddr(here.code));
    let mut cursor = OwnCursor::new(Cursor::with_code(ABI, code, registers), places);
    cursor.step();
    cursor.evidence = None;
    body(&mut cursor)
}

/// The frame that a signal interrupted, with its registers where the kernel stored them: the third
/// argument of a handler (`SA_SIGINFO`) that has not returned.
impl From<&libc::ucontext_t> for OwnCursor {
    fn from(context: &libc::ucontext_t) -> Self {
        let interrupted = SignalRegisters::from(context);
        let mut registers = Registers::new();
        for (number, value) in (0..).zip(interrupted.0) {
            registers.set(Register(number), value);
        }
        let code = CodeAddr::Instruction(RuntimeAddr(interrupted.0[16]));
        let stored = core::ptr::from_ref(&context.uc_mcontext.gregs).addr() as u64;
        OwnCursor::new(Cursor::with_code(ABI, code, registers), places_from(stored))
    }
}
