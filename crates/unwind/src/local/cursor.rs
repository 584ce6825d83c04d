//! A frame of the own stack, with where its registers are.
//!
//! Async-signal-safe.

use unspool_ir::interpret::{self, Frame, Place as Recovered};
use unspool_ir::{CodeAddr, Register, Registers, Row, RuntimeAddr};

use super::memory::OwnMemory;
use super::sys::Captured;
use super::thread::{Interrupted, with_memory};
use super::{ABI, MODULES};
use crate::cursor::{Cursor, Found, Located, Step};
use crate::evidence::{End, Evidence};

/// Registers with lower numbers are kept: `rax` to `r15`, and `rip`.
const REGISTERS: u16 = 17;

const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RIP: Register = Register(16);

/// Where a register of a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: its value is not known.
    Lost,
    /// At this address.
    Memory(RuntimeAddr),
    /// In the register itself: no function further in has saved it.
    Register,
    /// Nowhere: its value was computed.
    Value,
}

/// The places of all registers, by number.
pub type Places = [Place; REGISTERS as usize];

/// A frame of the own stack. Of use as long as the frame has not returned.
#[derive(Debug, Clone, Copy)]
pub struct OwnCursor {
    cursor: Cursor,
    places: Places,
    found: Option<Found>,
    end: Option<End>,
}

impl OwnCursor {
    /// The frame that a walk begins with, and where its registers are, by number.
    #[must_use]
    pub fn new(cursor: Cursor, places: Places) -> OwnCursor {
        OwnCursor {
            cursor,
            places,
            found: None,
            end: None,
        }
    }

    /// Where the frame stands.
    #[must_use]
    pub fn code(&self) -> CodeAddr {
        self.cursor.code()
    }

    /// How it was found from the frame further in; the first was not.
    #[must_use]
    pub fn evidence(&self) -> Option<Evidence> {
        self.found.map(|found| found.evidence)
    }

    /// Why there is no frame further out, once that is known.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Steps to the caller, if there is one.
    pub fn step(&mut self) -> bool {
        let modules = &MODULES;
        let before = self.cursor;
        let mut row = Row::new(Register(0));
        let located = before.locate(modules, &mut row);
        let step = with_memory(
            |memory| match self.cursor.step_by(&located, modules, memory) {
                Step::Caller(found) => {
                    Ok((found, self.places_after(&before, &located, &found, memory)))
                }
                Step::End(end) => Err(end),
            },
        );
        match step {
            Ok((found, places)) => {
                self.found = Some(found);
                self.places = places;
                true
            }
            Err(end) => {
                self.end = Some(end);
                false
            }
        }
    }

    /// Where the registers of the caller are, by where they are in this frame.
    fn places_after(
        &self,
        before: &Cursor,
        located: &Located<'_, '_>,
        found: &Found,
        memory: &OwnMemory,
    ) -> Places {
        match found.evidence {
            Evidence::Cfi => self.places_by_row(before, located, found, memory),
            Evidence::FramePointer => {
                let mut places = [Place::Lost; REGISTERS as usize];
                set(&mut places, RBP, below(found.cfa, 16));
                return_to(&mut places, found.cfa);
                places
            }
            Evidence::BadCall => {
                let mut places = self.places;
                return_to(&mut places, found.cfa);
                places
            }
            Evidence::SignalTrampoline => places_of_signal(before),
        }
    }

    fn places_by_row(
        &self,
        before: &Cursor,
        located: &Located<'_, '_>,
        found: &Found,
        memory: &OwnMemory,
    ) -> Places {
        let mut places = [Place::Lost; REGISTERS as usize];
        let (Some(module), Ok(row)) = (&located.module, &located.row) else {
            return places;
        };
        let frame = Frame {
            abi: ABI,
            registers: before.registers(),
            memory,
            bias: module.bias,
            pac_mask: 0,
        };
        for (number, slot) in (0..).zip(&mut places) {
            let recovered = interpret::recover(row.row, &frame, found.cfa, Register(number));
            *slot = match recovered.place {
                Recovered::Unchanged => self.place(number),
                Recovered::Register(other) => self.place(other.0),
                Recovered::Memory(addr) => Place::Memory(addr),
                Recovered::Value => Place::Value,
                Recovered::Lost => Place::Lost,
            };
        }
        places
    }

    /// Where a register is.
    #[must_use]
    pub fn place(&self, register: u16) -> Place {
        let place = self.places.get(usize::from(register));
        place.copied().unwrap_or(Place::Lost)
    }

    /// The value of a register, if it is known.
    #[must_use]
    pub fn register(&self, register: u16) -> Option<u64> {
        self.cursor.registers().get(Register(register))
    }

    /// Notes that somebody has changed a register where it is.
    pub fn note(&mut self, register: u16, value: u64) {
        self.cursor.set_register(Register(register), value);
    }

    /// The canonical frame address, by the row that covers the frame.
    #[must_use]
    pub fn cfa(&self) -> Option<RuntimeAddr> {
        with_memory(|memory| self.cursor.cfa(&MODULES, memory))
    }

    /// Whether the frame is that of a signal handler's trampoline: what it leads to was interrupted.
    #[must_use]
    pub fn is_signal_frame(&self) -> bool {
        let mut cursor = self.cursor;
        let step = with_memory(|memory| cursor.step(&MODULES, memory));
        matches!(step, Step::Caller(found) if found.signal_frame)
    }
}

/// The kernel's record of a signal lies at the stack pointer of the trampoline: a `ucontext_t`.
fn places_of_signal(trampoline: &Cursor) -> Places {
    const REGISTERS_OF_CONTEXT: u64 = 40;
    let record = trampoline.stack_pointer().unwrap_or_default();
    places_from(record.0.wrapping_add(REGISTERS_OF_CONTEXT))
}

/// The places of registers that the kernel has stored, as `gregs` of a context.
fn places_from(stored: u64) -> Places {
    let place = |at| Place::Memory(RuntimeAddr(stored.wrapping_add_signed(8 * i64::from(at))));
    Interrupted::IN_CONTEXT.map(place)
}

/// A call has put the return address below the CFA, which is the caller's stack pointer.
fn return_to(places: &mut Places, cfa: RuntimeAddr) {
    set(places, RIP, below(cfa, 8));
    set(places, RSP, Place::Value);
}

fn below(cfa: RuntimeAddr, bytes: u64) -> Place {
    Place::Memory(RuntimeAddr(cfa.0.wrapping_sub(bytes)))
}

fn set(places: &mut Places, register: Register, place: Place) {
    if let Some(slot) = places.get_mut(usize::from(register.0)) {
        *slot = place;
    }
}

/// Calls `body` with a cursor at the function that calls this one.
#[inline(never)]
pub fn with_cursor<R>(body: impl FnOnce(&mut OwnCursor) -> R) -> R {
    let mut here = Captured::EMPTY;
    here.fill();
    let mut registers = Registers::new();
    let mut places = [Place::Lost; REGISTERS as usize];
    for (register, value) in Captured::OTHERS.into_iter().zip(here.others) {
        registers.set(register, value);
        set(&mut places, register, Place::Register);
    }
    for (register, value) in [(RBP, here.frame_pointer), (RSP, here.stack_pointer)] {
        registers.set(register, value);
        set(&mut places, register, Place::Register);
    }
    let code = CodeAddr::Return(RuntimeAddr(here.code));
    let mut cursor = OwnCursor::new(Cursor::at(ABI, code, registers), places);
    cursor.step();
    cursor.found = None;
    body(&mut cursor)
}

/// What a signal has interrupted, with its registers where the kernel stored them: the third argument
/// of a handler (`SA_SIGINFO`) that has not returned.
impl From<&libc::ucontext_t> for OwnCursor {
    fn from(context: &libc::ucontext_t) -> Self {
        let interrupted = Interrupted::from(context);
        let mut registers = Registers::new();
        for (number, value) in (0..).zip(interrupted.0) {
            registers.set(Register(number), value);
        }
        let code = CodeAddr::Instruction(RuntimeAddr(interrupted.0[16]));
        let stored = core::ptr::from_ref(&context.uc_mcontext.gregs).addr() as u64;
        OwnCursor::new(Cursor::at(ABI, code, registers), places_from(stored))
    }
}
