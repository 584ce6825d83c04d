//! A frame of a walk: the content of an `unw_cursor_t`.
//!
//! Registers of a frame are read on demand: the cursor has their locations. Only the code address
//! and the stack pointer, which every step needs, are kept as values.

use core::ffi::c_int;
use core::ops::Range;

use unspool_rows::interpret::{self, FrameContext};
use unspool_rows::packed_row::{CfaBase, PackedForm, PackedStep, SavedRegisters};
use unspool_rows::row::{RegisterRule, Row};
use unspool_rows::{
    CodeAddr, LoadBias, PackedRow, Register, RegisterScope, Registers, RuntimeAddr, encoding,
};
use unspool_unwind::local::pool::with_row;
use unspool_unwind::steps::{
    Arrival, CachedPackedRow, CachedRule, REGISTERS, RegisterLocations, ResolvedLocation,
    StepAddress,
};

use crate::abi::{self, Error, RegisterNumber, SaveLocation};
use crate::client::{AlignedMemory, Client, TopRegisters};
use crate::guess::GuessInput;
use crate::own_process::ReadableCache;
use crate::remote_cfi::ABI;
use crate::resolve;
use crate::rule::OwnedStepRule;
use crate::sys::callbacks;

pub(crate) const RETURN_ADDRESS: Register = Register(16);
const STACK_POINTER: Register = Register(7);
const FRAME_POINTER: Register = Register(6);

/// A frame.
#[derive(Debug, Clone, Copy)]
pub struct ClientCursor<'s> {
    client: Client<'s>,
    step_address: StepAddress,
    locations: RegisterLocations,
    cycle: CycleDetector,
    readable_cache: ReadableCache,
    objects: ObjectUse,
}

/// Whether steps use machine code of tables, if there is some. Machine code returns the values of
/// registers, not their locations.
#[derive(Debug, Clone, Copy)]
enum ObjectUse {
    /// Never, or no longer.
    Unused,
    /// Allowed, not used so far.
    Usable(WalkStart),
    /// Used at least once.
    Used(WalkStart),
}

/// The start of a walk.
#[derive(Debug, Clone, Copy)]
enum WalkStart {
    /// The innermost frame. The client has its registers.
    Innermost,
    /// A frame with its registers in a context, the client's argument. The frame may have been
    /// interrupted.
    Stored { is_interrupted: bool },
}

impl<'s> ClientCursor<'s> {
    /// The innermost frame of a client's target.
    #[inline(always)]
    #[must_use]
    pub(crate) fn innermost(client: Client<'s>, top: TopRegisters) -> Self {
        let TopRegisters { ip, stack_pointer } = top;
        ClientCursor {
            client,
            step_address: StepAddress::new(ip, stack_pointer, Arrival::Innermost),
            locations: RegisterLocations::innermost(stack_pointer),
            cycle: CycleDetector::NONE,
            readable_cache: ReadableCache::new(client.space),
            objects: ObjectUse::Usable(WalkStart::Innermost),
        }
    }

    /// A frame with all registers in memory, at the addresses returned by `address`. It was
    /// interrupted, or waits for a call to return. `ip` and `stack_pointer` are two of the
    /// registers.
    pub(crate) fn stored(
        client: Client<'s>,
        ip: u64,
        stack_pointer: u64,
        address: impl Fn(u16) -> u64,
        is_interrupted: bool,
    ) -> Self {
        // No call returns to 0: such an address is from a signal.
        let arrival = if is_interrupted || ip == 0 {
            Arrival::Innermost
        } else {
            Arrival::Called
        };
        ClientCursor {
            client,
            step_address: StepAddress::new(ip, stack_pointer, arrival),
            locations: RegisterLocations::stored(stack_pointer, address),
            cycle: CycleDetector::NONE,
            readable_cache: ReadableCache::new(client.space),
            objects: ObjectUse::Usable(WalkStart::Stored { is_interrupted }),
        }
    }

    /// The address space and argument.
    #[must_use]
    pub(crate) fn client(&self) -> Client<'s> {
        self.client
    }

    /// The code address, as `unw_get_reg` returns it.
    #[must_use]
    pub(crate) fn ip(&self) -> u64 {
        self.step_address.ip()
    }

    /// The code address, as a return address or an instruction.
    #[must_use]
    pub(crate) fn code(&self) -> CodeAddr {
        self.step_address.code()
    }

    /// `unw_is_signal_frame`: whether the last step left a signal frame, so that this frame was
    /// interrupted. libunwind's result has this meaning on x86-64, and its callers rely on that.
    #[must_use]
    pub(crate) fn is_interrupted(&self) -> bool {
        self.step_address.arrival() == Arrival::Interrupted
    }

    /// `unw_step`: steps to the caller. Returns a positive number. Zero if there is no caller; then
    /// the code address is zero, too. Negative for an error: the client's own, or
    /// [`Error::BAD_FRAME`] if the table is inconsistent or the walk returned to an earlier frame.
    #[inline(always)]
    pub(crate) fn step(&mut self) -> c_int {
        let Some(cached) = self.client.space.simple(self.step_address) else {
            return self.step_slow();
        };
        let Some(distance) = cached.above_stack_pointer() else {
            return self.step_by(cached);
        };
        let cfa = |stack_pointer: u64| stack_pointer.wrapping_add(distance);
        self.step_up(cached.saved(), cfa, self.client_words())
    }

    /// A step by another kind of cached row than the usual one: for a frame with a frame pointer,
    /// of the own process, or the outermost.
    #[inline(never)]
    fn step_by(&mut self, cached: CachedPackedRow) -> c_int {
        let Some(distance) = cached.above_frame_pointer() else {
            return self.step_own_cached(cached);
        };
        let Some(base) = self.frame_pointer() else {
            return self.step_slow();
        };
        let cfa = |_| base.wrapping_add(distance);
        self.step_up(cached.saved(), cfa, self.client_words())
    }

    /// A step by a cached row of the own process, if its module is known to be loaded; or from the
    /// outermost frame.
    #[inline(never)]
    fn step_own_cached(&mut self, cached: CachedPackedRow) -> c_int {
        if cached == CachedPackedRow::OUTERMOST {
            return c_int::from(self.end());
        }
        let row = cached.row();
        let base = match row.usual_base() {
            Some(CfaBase::StackPointer) => Some(self.stack_pointer()),
            Some(CfaBase::FramePointer) => self.value(FRAME_POINTER).ok(),
            None => None,
        };
        let is_there = cached
            .module_slot()
            .is_some_and(|place| self.readable_cache.has(place));
        match base {
            Some(base) if is_there && base.is_multiple_of(8) => {
                let cfa = |_| base.wrapping_add(row.cfa_offset());
                self.step_up(row.saved(), cfa, ClientCursor::own_word)
            }
            Some(_) | None => self.step_slow(),
        }
    }

    /// The frame pointer, if it is a multiple of 8. Not inlined, so that a step needs few
    /// registers.
    #[inline(never)]
    fn frame_pointer(&self) -> Option<u64> {
        let value = match self.locations.last_saved(FRAME_POINTER.0) {
            Some(ResolvedLocation::Memory(addr)) => callbacks::read_memory(&self.client, addr),
            Some(lost) => self.value_at(Some(lost)),
            None => self.value_at(self.locations.before(FRAME_POINTER.0)),
        };
        value.ok().filter(|value| value.is_multiple_of(8))
    }

    /// Words of memory, read by the client.
    #[inline(always)]
    fn client_words(&self) -> impl FnOnce(&mut Self, u64) -> Result<u64, Error> + use<'s> {
        let client = self.client;
        move |_, addr| callbacks::read_memory(&client, addr)
    }

    /// The word at an address of the own process. After that, the memory around it is known to be
    /// readable.
    #[inline(always)]
    fn own_word(&mut self, addr: u64) -> Result<u64, Error> {
        match self.readable_cache.word(addr) {
            Some(word) => Ok(word),
            None => self.readable_cache.probe_word(addr),
        }
    }

    /// The word at an address, of the own process or by the client.
    fn known_word(&self, addr: u64) -> Result<u64, Error> {
        match self.readable_cache.word(addr) {
            Some(word) => Ok(word),
            None => self.client.read_word(addr),
        }
    }

    /// Steps to a frame further up, by the CFA from the stack pointer, a multiple of 8.
    #[inline(always)]
    fn step_up(
        &mut self,
        saved: SavedRegisters,
        cfa: impl FnOnce(u64) -> u64,
        read: impl FnOnce(&mut Self, u64) -> Result<u64, Error>,
    ) -> c_int {
        let higher = |stack_pointer| Some(cfa(stack_pointer)).filter(|cfa| *cfa > stack_pointer);
        let Some(cfa) = self.locations.note(saved, higher) else {
            return self.step_slow();
        };
        let ip = match read(self, cfa.wrapping_sub(8)) {
            Ok(ip) => ip,
            Err(Error(code)) => return code,
        };
        self.locations.leave();
        let Some(at) = StepAddress::returned(ip) else {
            return self.end_at(ip);
        };
        self.step_address = at;
        1
    }

    #[cold]
    #[inline(never)]
    fn end_at(&mut self, ip: u64) -> c_int {
        self.step_address = StepAddress::new(ip, self.stack_pointer(), Arrival::Called);
        c_int::from(ip != 0)
    }

    #[cold]
    #[inline(never)]
    fn step_slow(&mut self) -> c_int {
        answer(self.step_uncached())
    }

    fn step_uncached(&mut self) -> Result<bool, Error> {
        if self.step_address.is_nowhere() {
            return Ok(false);
        }
        if let Some(stepped) = self.step_by_object() {
            return stepped;
        }
        match self.client.space.cached_rule(self.step_address) {
            Some(CachedRule::Simple(cached))
                if self.readable_cache.probe_module(cached.module_slot()) =>
            {
                self.step_packed(cached.row())
            }
            Some(CachedRule::Encoded(short)) => self.step_encoded(short.bytes()),
            Some(CachedRule::Simple(_)) | None => self.step_resolving(),
        }
    }

    fn step_resolving(&mut self) -> Result<bool, Error> {
        if self.client.space.is_own() {
            self.step_own()
        } else {
            self.step_remote()
        }
    }

    // Rows are large. Rows of branches that are not taken must not use a small stack, such as a
    // signal handler's.
    #[inline(never)]
    fn step_remote(&mut self) -> Result<bool, Error> {
        let code = self.code();
        let client = self.client;
        let of_address = client
            .space
            .keep(self.step_address, || resolve::rule(client, code))?;
        let rule = match of_address {
            Some(rule) => Some(rule),
            None => resolve::guess_rule(client, &self.guess_input())?,
        };
        let Some(rule) = rule else {
            return Ok(self.end());
        };
        match &rule {
            OwnedStepRule::Simple(cached) => self.step_packed(cached.row()),
            OwnedStepRule::Encoded(bytes) => self.step_encoded(bytes),
        }
    }

    /// A step in the own process: by the rule, which is then cached, or by the row in its place.
    #[inline(never)]
    fn step_own(&mut self) -> Result<bool, Error> {
        with_row(|row| self.step_own_by(row))
    }

    fn step_own_by(&mut self, row: &mut Row<'static>) -> Result<bool, Error> {
        let (code, space) = (self.code(), self.client.space);
        let found = resolve::own_row(self.client, code, || self.guess_input(), row)?;
        let Some(owner) = found else {
            return Ok(self.end());
        };
        let Some(packed) = PackedRow::from_row(row, ABI.arch, RegisterScope::All) else {
            return self.step_row(row, owner.bias);
        };
        if let Some(place) = owner.slot {
            let packed = match row.args_size {
                0 => packed,
                _ => packed.with_arguments(),
            };
            let rule = CachedPackedRow::new(packed, place).map(OwnedStepRule::Simple);
            space.keep(self.step_address, || Ok(rule))?;
        }
        self.step_packed(packed)
    }

    fn guess_input(&self) -> GuessInput {
        GuessInput {
            ip: self.step_address.ip(),
            is_interrupted: self.step_address.arrival() != Arrival::Called,
            stack_pointer: self.stack_pointer(),
            frame_pointer: self.value(FRAME_POINTER).ok(),
        }
    }

    /// [`ClientCursor::step_row`] for a packed row.
    fn step_packed(&mut self, row: PackedRow) -> Result<bool, Error> {
        let is_usual = matches!(row.form(), Some(PackedForm::Usual { .. }));
        let (left, ip) = (self.stack_pointer(), self.ip());
        let base = match row.base() {
            CfaBase::StackPointer => left,
            CfaBase::FramePointer => self.value(FRAME_POINTER)?,
        };
        let read = |addr| {
            let word = self.stack_word(addr);
            word.map_err(|error| if is_usual { error } else { Error::BAD_FRAME })
        };
        let step = row.caller(ABI.arch, ip, base, read)?;
        let step = step.ok_or(Error::BAD_FRAME)?;
        let was_interrupted = matches!(step, PackedStep::Interrupted { .. });
        let (ip, stack_pointer, ip_at) = match step {
            PackedStep::Outermost => return Ok(self.end()),
            PackedStep::Caller { code, cfa, .. } => (code, cfa, cfa.wrapping_sub(8)),
            PackedStep::Interrupted {
                code,
                stack_pointer,
                code_at,
                ..
            } => (code, stack_pointer, code_at),
        };
        let ip_at = interpret::RegisterLocation::Memory(RuntimeAddr(ip_at));
        if !is_usual && !climbs(left..stack_pointer, ip_at) {
            self.cycle.change_stack()?;
        }
        self.locations.enter(row, step);
        self.arrive(left, ip)?;
        if was_interrupted {
            self.step_address = StepAddress::new(ip, stack_pointer, Arrival::Interrupted);
        }
        // An interrupted frame can be at 0, by the fault of a call there.
        Ok(ip != 0 || was_interrupted)
    }

    /// The word at an address of the stack, which may be the own stack.
    fn stack_word(&mut self, addr: u64) -> Result<u64, Error> {
        if self.client.space.is_own() {
            self.own_word(addr)
        } else {
            self.client.read_word(addr)
        }
    }

    /// Steps by an encoded row.
    ///
    /// # Errors
    ///
    /// As [`ClientCursor::step`]; [`Error::INVALID`] if the bytes are not a row.
    #[inline(never)]
    pub(crate) fn step_encoded(&mut self, bytes: &[u8]) -> Result<bool, Error> {
        let row = encoding::decode(bytes).ok_or(Error::INVALID)?;
        self.step_row(&row, LoadBias(0))
    }

    /// Steps by a row: like `interpret::step`, for registers given by their locations.
    #[inline(never)]
    fn step_row(&mut self, row: &Row<'_>, bias: LoadBias) -> Result<bool, Error> {
        let column = row.return_address;
        if row.rule(column) == Some(RegisterRule::Undefined) {
            return Ok(self.end());
        }
        let registers = self.values();
        let (client, learnt) = (self.client, self.readable_cache);
        let memory = AlignedMemory::new(|addr| match learnt.word(addr) {
            Some(word) => Ok(word),
            None => client.read_word(addr),
        });
        let frame = FrameContext {
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
        let left = self.stack_pointer();
        if !climbs(left..stack_pointer, return_address.location) {
            self.cycle.change_stack()?;
        }
        self.locations = self.locations.caller(stack_pointer, column, recover);
        self.arrive(left, ip)?;
        if row.signal_frame {
            self.step_address = StepAddress::new(ip, stack_pointer, Arrival::Interrupted);
        }
        // An interrupted frame can be at 0, by the fault of a call there.
        Ok(ip != 0 || row.signal_frame)
    }

    /// Moves to the caller of a frame with the stack pointer `left`. As long as the stack pointer
    /// rises, no frame can repeat.
    fn arrive(&mut self, left: u64, ip: u64) -> Result<(), Error> {
        let stack_pointer = self.stack_pointer();
        let is_rising = stack_pointer > left;
        self.step_address = StepAddress::new(ip, stack_pointer, Arrival::Called);
        if !is_rising && self.cycle.is_repeated(ip, stack_pointer) {
            Err(Error::BAD_FRAME)
        } else {
            Ok(())
        }
    }

    /// Replaces the frame's code address.
    fn set_ip(&mut self, ip: u64) {
        self.step_address = StepAddress::new(ip, self.stack_pointer(), self.step_address.arrival());
    }

    fn end(&mut self) -> bool {
        self.step_address = StepAddress::new(0, self.stack_pointer(), Arrival::Called);
        false
    }

    /// The same cursor, without machine code.
    #[must_use]
    pub(crate) fn without_objects(self) -> Self {
        ClientCursor {
            objects: ObjectUse::Unused,
            ..self
        }
    }

    /// The address where the kernel stored the code address of an interrupted frame, beside all its
    /// other registers.
    #[must_use]
    pub(crate) fn interrupted_at(&self) -> Option<u64> {
        match self.locations.get(RETURN_ADDRESS.0) {
            Some(ResolvedLocation::Memory(addr)) if self.is_interrupted() => Some(addr),
            _ => None,
        }
    }

    /// The values of all readable registers.
    #[must_use]
    pub(crate) fn values(&self) -> Registers {
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
            RETURN_ADDRESS => Ok(self.step_address.ip()),
            STACK_POINTER => Ok(self.stack_pointer()),
            register => self.value(register),
        }
    }

    #[inline(always)]
    fn stack_pointer(&self) -> u64 {
        self.locations.stack_pointer()
    }

    fn value(&self, register: Register) -> Result<u64, Error> {
        self.value_at(self.locations.get(register.0))
    }

    /// The value of a register at this location.
    #[inline]
    fn value_at(&self, place: Option<ResolvedLocation>) -> Result<u64, Error> {
        match place.ok_or(Error::BAD_REGISTER)? {
            ResolvedLocation::Memory(addr) => self.known_word(addr),
            ResolvedLocation::Register(number) => self.client.read_register(number),
            ResolvedLocation::Value(value) => Ok(value),
            ResolvedLocation::Unrecoverable => Err(Error::BAD_REGISTER),
        }
    }

    /// `unw_get_reg`.
    ///
    /// # Errors
    ///
    /// [`Error::BAD_REGISTER`] if the register does not exist or its value is lost; the client's
    /// errors.
    #[inline]
    pub(crate) fn get(&self, number: RegisterNumber) -> Result<u64, Error> {
        match number {
            abi::RIP => Ok(self.step_address.ip()),
            abi::RSP | abi::CFA => Ok(self.stack_pointer()),
            _ => self.value(register_numbered(number)?),
        }
    }

    /// `unw_set_reg`: writes a register of this frame at its location.
    ///
    /// # Errors
    ///
    /// [`Error::READ_ONLY_REGISTER`] for the stack pointer, [`Error::BAD_REGISTER`] if the register
    /// has no location; the client's errors.
    pub(crate) fn set(&mut self, number: RegisterNumber, value: u64) -> Result<(), Error> {
        self.use_rules();
        match number {
            abi::RSP | abi::CFA => return Err(Error::READ_ONLY_REGISTER),
            // Arguments of a landing pad: they are for the resumed frame, and the innermost frame
            // keeps its own values.
            abi::RAX | abi::RDX => {
                self.locations
                    .set(register_numbered(number)?.0, ResolvedLocation::Value(value));
                return Ok(());
            }
            abi::RIP => self.set_ip(value),
            _ => {}
        }
        let place = self.locations.get(register_numbered(number)?.0);
        match place.ok_or(Error::BAD_REGISTER)? {
            ResolvedLocation::Register(number) => self.client.write_register(number, value),
            ResolvedLocation::Memory(addr) => self.client.write_word(addr, value),
            ResolvedLocation::Value(_) | ResolvedLocation::Unrecoverable => {
                Err(Error::BAD_REGISTER)
            }
        }
    }

    /// `unw_get_save_loc`: the location of a call-preserved register.
    pub(crate) fn save_location(&mut self, number: RegisterNumber) -> SaveLocation {
        self.find_places();
        let is_shown = |register: &Register| {
            SavedRegisters::has(register.0) || matches!(*register, STACK_POINTER | RETURN_ADDRESS)
        };
        let shown = register_numbered(number).ok().filter(is_shown);
        let location = shown.and_then(|register| self.locations.get(register.0));
        let (kind, place) = match location {
            Some(ResolvedLocation::Register(number)) => (abi::SAVED_REGISTER, u64::from(number)),
            Some(ResolvedLocation::Memory(addr)) => (abi::SAVED_MEMORY, addr),
            Some(ResolvedLocation::Value(_) | ResolvedLocation::Unrecoverable) | None => {
                (abi::SAVED_NONE, 0)
            }
        };
        SaveLocation {
            kind,
            value: place,
            extra: 0,
        }
    }

    /// Gives the innermost frame the known registers of this one, so that the client can continue
    /// there (`unw_resume`).
    ///
    /// # Errors
    ///
    /// The client's errors.
    pub(crate) fn establish(&self) -> Result<(), Error> {
        let values = self.values();
        for (register, value) in values.iter() {
            self.client.write_register(register.0, value)?;
        }
        Ok(())
    }
}

/// Whether a step goes up the stack, by a return address from the part that is left. Memory limits
/// the number of such steps. It also limits steps by a simple rule, which reads at a distance from
/// the CFA. Other steps can continue without reading, as long as there are addresses.
fn climbs(left: Range<u64>, return_address: interpret::RegisterLocation) -> bool {
    matches!(return_address, interpret::RegisterLocation::Memory(at) if left.contains(&at.0))
}

/// The C functions' result of a step: whether there was a caller.
#[inline]
pub(crate) fn answer(step: Result<bool, Error>) -> c_int {
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

/// Finds cycles of any length in constant memory (Brent's algorithm). A frame is saved, compared
/// with all later ones, and replaced after ever longer intervals. Only frames that are not above
/// the previous one are passed to it; each cycle has one.
#[derive(Debug, Clone, Copy)]
struct CycleDetector {
    ip: u64,
    stack_pointer: u64,
    /// The number of frames still to compare with the saved one.
    left: u32,
    stretch: u32,
    /// The number of steps that did not climb their stack.
    stack_changes: u32,
}

impl CycleDetector {
    /// No frame has this unaligned stack pointer.
    const NONE: CycleDetector = CycleDetector {
        ip: 0,
        stack_pointer: u64::MAX,
        left: 1,
        stretch: 1,
        stack_changes: 0,
    };

    fn change_stack(&mut self) -> Result<(), Error> {
        self.stack_changes += 1;
        if self.stack_changes > u32::from(unspool_unwind::Cursor::MAX_STACK_CHANGES) {
            Err(Error::BAD_FRAME)
        } else {
            Ok(())
        }
    }

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
        *self = CycleDetector {
            ip,
            stack_pointer,
            left: stretch,
            stretch,
            ..*self
        };
        is_repeated
    }
}

mod objects;
#[cfg(test)]
mod tests;
