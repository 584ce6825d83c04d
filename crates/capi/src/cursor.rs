//! A frame of a walk: what an `unw_cursor_t` holds.
//!
//! The registers of a frame are not read before somebody asks for them: what is kept is where they
//! are. Only the code address and the stack pointer, which every step needs, are kept as values.

use core::ffi::{c_int, c_void};

use unspool_ir::interpret::{self, Frame, Recovered};
use unspool_ir::row::{RegisterRule, Row};
use unspool_ir::{CodeAddr, LoadBias, Register, Registers, RuntimeAddr, encoding};

use crate::abi::{self, Error, RegisterNumber, SaveLocation};
use crate::cache::Hit;
use crate::client::Client;
use crate::guess::Known;
use crate::own;
use crate::places::{PRESERVED, Place, Places, REGISTERS};
use crate::remote_cfi::ABI;
use crate::resolve;
use crate::rule::{Rule, Simple};
use crate::space::AddressSpace;

const RETURN_ADDRESS: Register = Register(16);
const STACK_POINTER: Register = Register(7);

/// How the code address of a frame is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// It is the innermost frame's.
    Innermost,
    /// It is a return address.
    Called,
    /// A signal frame was left: it was interrupted.
    Interrupted,
}

/// A frame.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'s> {
    client: Client<'s>,
    ip: u64,
    stack_pointer: u64,
    arrival: Arrival,
    places: Places,
    cycle: Cycle,
}

impl<'s> Cursor<'s> {
    /// The innermost frame of a client's target.
    ///
    /// # Errors
    ///
    /// The client's, when it is asked for the code address or the stack pointer.
    pub fn new(space: &'s AddressSpace, argument: *mut c_void) -> Result<Self, Error> {
        let client = Client { space, argument };
        Ok(Cursor {
            client,
            ip: client.read_register(RETURN_ADDRESS.0)?,
            stack_pointer: client.read_register(STACK_POINTER.0)?,
            arrival: Arrival::Innermost,
            places: Places::innermost(),
            cycle: Cycle::NONE,
        })
    }

    /// A frame of the own process, of which all registers are at the addresses that `address`
    /// says: one that was interrupted, or waits for a call to return.
    ///
    /// # Errors
    ///
    /// [`Error::INVALID`] if they are not there.
    pub fn stored(
        client: Client<'s>,
        address: impl Fn(u16) -> u64,
        is_interrupted: bool,
    ) -> Result<Self, Error> {
        Ok(Cursor {
            client,
            ip: client.read_word(address(RETURN_ADDRESS.0))?,
            stack_pointer: client.read_word(address(STACK_POINTER.0))?,
            arrival: match is_interrupted {
                true => Arrival::Innermost,
                false => Arrival::Called,
            },
            places: Places::stored(address),
            cycle: Cycle::NONE,
        })
    }

    /// The address space and argument.
    #[must_use]
    pub fn client(&self) -> Client<'s> {
        self.client
    }

    /// The code address, as `unw_get_reg` yields it.
    #[must_use]
    pub fn ip(&self) -> u64 {
        self.ip
    }

    /// The code address, and which row it means.
    #[must_use]
    pub fn code(&self) -> CodeAddr {
        match self.arrival {
            Arrival::Called => CodeAddr::Return(RuntimeAddr(self.ip)),
            Arrival::Innermost | Arrival::Interrupted => {
                CodeAddr::Instruction(RuntimeAddr(self.ip))
            }
        }
    }

    /// `unw_is_signal_frame`: whether the last step left a signal frame, so that this frame was
    /// interrupted. That is what libunwind's answer means on x86-64, and what its callers take it
    /// for.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.arrival == Arrival::Interrupted
    }

    /// `unw_step`: steps to the caller. Positive; zero where there is none, and the code address is
    /// then zero, too; negative for an error: the client's own, or [`Error::BAD_FRAME`] where the
    /// table makes no sense or the walk came back to a frame that it had left.
    #[inline]
    pub fn step(&mut self) -> c_int {
        match self.client.space.simple(self.code()) {
            Some(simple) if simple.own_place().is_none() => answer(self.step_simple(&simple)),
            _ => self.step_otherwise(),
        }
    }

    #[cold]
    #[inline(never)]
    fn step_otherwise(&mut self) -> c_int {
        answer(self.step_found())
    }

    fn step_found(&mut self) -> Result<bool, Error> {
        match self.client.space.known(self.code()) {
            Some(Hit::Simple(simple)) if simple.own_place().is_none_or(own::is_there) => {
                self.step_simple(&simple)
            }
            Some(Hit::Encoded(short)) => self.step_encoded(short.bytes()),
            Some(Hit::Outermost) => Ok(self.end()),
            Some(Hit::Simple(_)) | None => self.step_resolving(),
        }
    }

    fn step_resolving(&mut self) -> Result<bool, Error> {
        let code = self.code();
        let client = self.client;
        if client.space.is_own() {
            return self.step_own();
        }
        let resolve = || resolve::rule(client, code, || self.known());
        let Some(rule) = client.space.keep(code, resolve)? else {
            return Ok(self.end());
        };
        match &rule {
            Rule::Simple(simple) => self.step_simple(simple),
            Rule::Encoded(bytes) => self.step_encoded(bytes),
            Rule::Outermost => Ok(self.end()),
        }
    }

    /// A step in the own process: the row is applied where it was found.
    fn step_own(&mut self) -> Result<bool, Error> {
        let (code, space) = (self.code(), self.client.space);
        let Some(found) = resolve::own_row(self.client, code, || self.known())? else {
            return Ok(self.end());
        };
        if let (Some(simple), Some(place)) = (Simple::from_row(&found.row), found.place) {
            space.keep(code, || Ok(Some(Rule::Simple(simple.of_own(place)))))?;
        }
        self.step_row(&found.row, found.bias)
    }

    fn known(&self) -> Known {
        Known {
            ip: self.ip,
            is_interrupted: self.arrival != Arrival::Called,
            stack_pointer: self.stack_pointer,
            frame_pointer: self.value(Register(6)).ok(),
        }
    }

    /// What [`Cursor::step_row`] does, for a row that has the simple form.
    #[inline(always)]
    fn step_simple(&mut self, simple: &Simple) -> Result<bool, Error> {
        let base = match simple.cfa_register() {
            STACK_POINTER => self.stack_pointer,
            register => self.value(register)?,
        };
        let cfa = base.wrapping_add_signed(i64::from(simple.cfa_offset()));
        let return_slot = cfa.wrapping_add_signed(i64::from(simple.return_address()));
        let return_address = self.client.read_word(return_slot)?;
        self.places.leave(cfa, return_slot, &simple.saved());
        self.arrive(cfa, return_address)?;
        Ok(return_address != 0)
    }

    /// Steps by an encoded row.
    ///
    /// # Errors
    ///
    /// As [`Cursor::step`]; [`Error::INVALID`] if the bytes are no row.
    pub fn step_encoded(&mut self, bytes: &[u8]) -> Result<bool, Error> {
        let row = encoding::decode(bytes).ok_or(Error::INVALID)?;
        self.step_row(&row, LoadBias(0))
    }

    /// Steps by a row: what `interpret::step` does, for registers that are kept by their places.
    fn step_row(&mut self, row: &Row<'_>, bias: LoadBias) -> Result<bool, Error> {
        let column = row.return_address;
        if row.rule(column) == Some(RegisterRule::Undefined) {
            return Ok(self.end());
        }
        let registers = self.values();
        let memory = self.client.memory();
        let frame = Frame {
            abi: ABI,
            registers: &registers,
            memory: &memory,
            bias,
            pac_mask: 0,
        };
        let cfa = interpret::cfa(row, &frame).map_err(|_| Error::BAD_FRAME)?;
        let recover = |register| interpret::recover(row, &frame, cfa, register);
        let return_address = recover(column);
        let ip = return_address.value.ok_or(Error::BAD_FRAME)?;
        let stack_pointer = recover(STACK_POINTER).value.ok_or(Error::BAD_FRAME)?;
        let before = self.places;
        for number in 0..RETURN_ADDRESS.0 {
            let place = place(recover(Register(number)), number, &before);
            self.places.set(number, place);
        }
        let place = place(return_address, column.0, &before);
        self.places.set(RETURN_ADDRESS.0, place);
        self.arrive(stack_pointer, ip)?;
        if row.signal_frame {
            self.arrival = Arrival::Interrupted;
        }
        // Code at 0 can be interrupted, by the fault of a call there.
        Ok(ip != 0 || row.signal_frame)
    }

    /// Stands at the caller.
    #[inline]
    fn arrive(&mut self, stack_pointer: u64, ip: u64) -> Result<(), Error> {
        self.ip = ip;
        self.stack_pointer = stack_pointer;
        self.arrival = Arrival::Called;
        match self.cycle.is_repeated(ip, stack_pointer) {
            true => Err(Error::BAD_FRAME),
            false => Ok(()),
        }
    }

    fn end(&mut self) -> bool {
        self.ip = 0;
        false
    }

    /// Sends the frame to another address when it is resumed. Nothing is written.
    pub fn send_to(&mut self, ip: u64) {
        self.ip = ip;
        self.places.set(RETURN_ADDRESS.0, Place::Value(ip));
    }

    /// Where the kernel stored the code address of a frame that a signal interrupted, beside all
    /// its other registers.
    #[must_use]
    pub fn interrupted_at(&self) -> Option<u64> {
        match self.places.get(RETURN_ADDRESS.0) {
            Ok(Place::Memory(addr)) if self.is_interrupted() => Some(addr),
            _ => None,
        }
    }

    /// The values of all registers that can be read.
    #[must_use]
    pub fn values(&self) -> Registers {
        let mut registers = Registers::new();
        for number in 0..=RETURN_ADDRESS.0 {
            if let Ok(value) = self.register(number) {
                registers.set(Register(number), value);
            }
        }
        registers
    }

    fn register(&self, number: u16) -> Result<u64, Error> {
        match Register(number) {
            RETURN_ADDRESS => Ok(self.ip),
            STACK_POINTER => Ok(self.stack_pointer),
            register => self.value(register),
        }
    }

    #[inline]
    fn value(&self, register: Register) -> Result<u64, Error> {
        match self.places.get(register.0)? {
            Place::Memory(addr) => self.client.read_word(addr),
            Place::Register(number) => self.client.read_register(number),
            Place::Value(value) => Ok(value),
            Place::Lost => Err(Error::BAD_REGISTER),
        }
    }

    /// `unw_get_reg`.
    ///
    /// # Errors
    ///
    /// [`Error::BAD_REGISTER`] where there is no such register or it is lost; the client's.
    #[inline]
    pub fn get(&self, number: RegisterNumber) -> Result<u64, Error> {
        match number {
            abi::RIP => Ok(self.ip),
            abi::RSP | abi::CFA => Ok(self.stack_pointer),
            _ => self.value(register_numbered(number)?),
        }
    }

    /// `unw_set_reg`: writes a register of this frame where it is.
    ///
    /// # Errors
    ///
    /// [`Error::READ_ONLY_REGISTER`] for the stack pointer, [`Error::BAD_REGISTER`] where the
    /// register is nowhere; the client's.
    pub fn set(&mut self, number: RegisterNumber, value: u64) -> Result<(), Error> {
        match number {
            abi::RSP | abi::CFA => return Err(Error::READ_ONLY_REGISTER),
            // Arguments of a landing pad: they go to the frame that is resumed, and the
            // innermost frame keeps what it has.
            abi::RAX | abi::RDX => {
                self.places
                    .set(register_numbered(number)?.0, Place::Value(value));
                return Ok(());
            }
            abi::RIP => self.ip = value,
            _ => {}
        }
        match self.places.get(register_numbered(number)?.0)? {
            Place::Register(number) => self.client.write_register(number, value),
            Place::Memory(addr) => self.client.write_word(addr, value),
            Place::Value(_) | Place::Lost => Err(Error::BAD_REGISTER),
        }
    }

    /// `unw_get_save_loc`: where a register that calls preserve is.
    #[must_use]
    pub fn save_location(&self, number: RegisterNumber) -> SaveLocation {
        let is_shown = |register: &Register| {
            PRESERVED >> register.0 & 1 != 0 || matches!(*register, STACK_POINTER | RETURN_ADDRESS)
        };
        let shown = register_numbered(number).ok().filter(is_shown);
        let location = shown.and_then(|register| self.places.get(register.0).ok());
        let (kind, place) = match location {
            Some(Place::Register(number)) => (abi::SAVED_REGISTER, u64::from(number)),
            Some(Place::Memory(addr)) => (abi::SAVED_MEMORY, addr),
            Some(Place::Value(_) | Place::Lost) | None => (abi::SAVED_NONE, 0),
        };
        SaveLocation {
            kind,
            place,
            extra: 0,
        }
    }

    /// Gives the innermost frame the registers of this one, as far as they are known, for the
    /// client to continue there (`unw_resume`).
    ///
    /// # Errors
    ///
    /// The client's.
    pub fn establish(&self) -> Result<(), Error> {
        let values = self.values();
        for (register, value) in values.iter() {
            self.client.write_register(register.0, value)?;
        }
        Ok(())
    }
}

/// What C functions say of a step: whether there was a caller.
#[inline]
pub fn answer(step: Result<bool, Error>) -> c_int {
    match step {
        Ok(is_running) => c_int::from(is_running),
        Err(Error(code)) => code,
    }
}

fn register_numbered(number: RegisterNumber) -> Result<Register, Error> {
    match u16::try_from(number) {
        Ok(number @ 0..REGISTERS) => Ok(Register(number)),
        _ => Err(Error::BAD_REGISTER),
    }
}

/// Where a register of the caller is, by where everything is in this frame.
fn place(recovered: Recovered, register: u16, frame: &Places) -> Place {
    let same = |register| frame.get(register).unwrap_or(Place::Lost);
    match (recovered.place, recovered.value) {
        (interpret::Place::Unchanged, _) => same(register),
        (interpret::Place::Memory(addr), _) => Place::Memory(addr.0),
        (interpret::Place::Register(other), _) => same(other.0),
        (interpret::Place::Value, Some(value)) => Place::Value(value),
        (interpret::Place::Value, None) | (interpret::Place::Lost, _) => Place::Lost,
    }
}

/// Finds cycles of any length in constant memory (Brent's algorithm): a frame is remembered,
/// compared with all that follow, and replaced after ever longer stretches.
#[derive(Debug, Clone, Copy)]
struct Cycle {
    ip: u64,
    stack_pointer: u64,
    /// How many frames are still compared with the one that is remembered.
    left: u32,
    stretch: u32,
}

impl Cycle {
    /// No frame has this stack pointer, which is not aligned.
    const NONE: Cycle = Cycle {
        ip: 0,
        stack_pointer: u64::MAX,
        left: 1,
        stretch: 1,
    };

    #[inline]
    fn is_repeated(&mut self, ip: u64, stack_pointer: u64) -> bool {
        self.left -= 1;
        if self.left == 0 {
            return self.remember(ip, stack_pointer);
        }
        self.ip == ip && self.stack_pointer == stack_pointer
    }

    #[cold]
    fn remember(&mut self, ip: u64, stack_pointer: u64) -> bool {
        let is_repeated = self.ip == ip && self.stack_pointer == stack_pointer;
        let stretch = self.stretch.saturating_mul(2);
        *self = Cycle {
            ip,
            stack_pointer,
            left: stretch,
            stretch,
        };
        is_repeated
    }
}

#[cfg(test)]
mod tests;
