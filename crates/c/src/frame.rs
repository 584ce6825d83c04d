//! A frame of the own stack: what an `unspool_cursor` holds.
//!
//! Async-signal-safe.

use unspool_ir::interpret::{self, Frame as RowFrame, Place as Recovered};
use unspool_ir::{Register, Registers, RuntimeAddr};
use unspool_unwind::local::{self, ABI, Interrupted, OwnMemory};
use unspool_unwind::{Cursor, End, Evidence, Found, Located, Step};

/// Registers with lower numbers are kept: `rax` to `r15`, and `rip`.
pub const REGISTERS: u16 = 17;

const RBP: Register = Register(6);
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

/// A frame.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    cursor: Cursor,
    places: Places,
    found: Option<Found>,
    end: Option<End>,
}

impl Frame {
    /// The frame that a walk begins with.
    #[must_use]
    pub fn new(cursor: Cursor, places: Places) -> Frame {
        Frame {
            cursor,
            places,
            found: None,
            end: None,
        }
    }

    /// Its code address, and whether that is a return address.
    #[must_use]
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
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
        let modules = local::modules();
        let before = self.cursor;
        let located = before.locate(modules);
        let step =
            local::with_memory(
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
        located: &Located<'_>,
        found: &Found,
        memory: &OwnMemory,
    ) -> Places {
        match found.evidence {
            Evidence::Cfi => self.places_by_row(before, located, found, memory),
            Evidence::FramePointer => {
                let mut places = [Place::Lost; REGISTERS as usize];
                set(&mut places, RBP, below(found.cfa, 16));
                set(&mut places, RIP, below(found.cfa, 8));
                places
            }
            Evidence::BadCall => {
                let mut places = self.places;
                set(&mut places, RIP, below(found.cfa, 8));
                places
            }
            Evidence::SignalTrampoline => places_of_signal(before),
        }
    }

    fn places_by_row(
        &self,
        before: &Cursor,
        located: &Located<'_>,
        found: &Found,
        memory: &OwnMemory,
    ) -> Places {
        let mut places = [Place::Lost; REGISTERS as usize];
        let (Some(module), Ok(row)) = (&located.module, &located.row) else {
            return places;
        };
        let frame = RowFrame {
            abi: ABI,
            registers: before.registers(),
            memory,
            bias: module.bias,
            pac_mask: 0,
        };
        for (number, slot) in (0..).zip(&mut places) {
            let recovered = interpret::recover(&row.row, &frame, found.cfa, Register(number));
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

    /// Notes that a register has another value now.
    pub fn note(&mut self, register: u16, value: u64) {
        self.cursor.set_register(Register(register), value);
    }

    /// The canonical frame address, by the row that covers the frame.
    #[must_use]
    pub fn cfa(&self) -> Option<RuntimeAddr> {
        local::with_memory(|memory| self.cursor.cfa(local::modules(), memory))
    }

    /// Whether the frame is that of a signal handler's trampoline: what it leads to was interrupted.
    #[must_use]
    pub fn is_signal_frame(&self) -> bool {
        let mut cursor = self.cursor;
        let step = local::with_memory(|memory| cursor.step(local::modules(), memory));
        matches!(step, Step::Caller(found) if found.signal_frame)
    }
}

/// The kernel's record of a signal lies at the stack pointer of the trampoline: a `ucontext_t`.
fn places_of_signal(trampoline: &Cursor) -> Places {
    const REGISTERS_OF_CONTEXT: u64 = 40;
    let record = trampoline.stack_pointer().unwrap_or_default();
    let first = record.0.wrapping_add(REGISTERS_OF_CONTEXT);
    Interrupted::IN_CONTEXT
        .map(|at| Place::Memory(RuntimeAddr(first.wrapping_add_signed(8 * i64::from(at)))))
}

fn below(cfa: RuntimeAddr, bytes: u64) -> Place {
    Place::Memory(RuntimeAddr(cfa.0.wrapping_sub(bytes)))
}

fn set(places: &mut Places, register: Register, place: Place) {
    if let Some(slot) = places.get_mut(usize::from(register.0)) {
        *slot = place;
    }
}

/// Registers by their DWARF numbers.
pub fn registers(known: impl IntoIterator<Item = (u16, u64)>) -> Registers {
    let mut registers = Registers::new();
    for (number, value) in known {
        registers.set(Register(number), value);
    }
    registers
}
