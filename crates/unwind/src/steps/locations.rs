//! The locations of a frame's registers.

use unspool_rows::interpret::{self, RecoveredRegister};
use unspool_rows::packed_row::{PackedStep, SavedRegister, SavedRegisters};
use unspool_rows::{Arch, PackedRow, Register};

/// Registers with lower numbers are tracked: rax to r15, and rip.
pub const REGISTERS: u16 = 17;

const RETURN_ADDRESS: u16 = 16;

const COUNT: usize = REGISTERS as usize;

/// The location of a frame's register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolvedLocation {
    /// In this register of the innermost frame, which the client has.
    Register(u16),
    /// At this address in the target's memory.
    Memory(u64),
    /// Nowhere: this is its value.
    Value(u64),
    /// Nowhere: it is unknown.
    Unrecoverable,
}

/// The stack pointer, and the locations of all registers.
///
/// Few clients need them, so a step from a usual frame only notes the frame
/// ([`RegisterLocations::leave`]). A request for a register searches the notes for the last frame
/// that saved it. If there is no room for more notes, the locations are computed.
#[derive(Debug, Clone, Copy)]
pub struct RegisterLocations {
    /// The locations before the frames in `left`.
    base: BaseLocations,
    /// The noted frames. The first entry only stands for the stack pointer before them: it saved
    /// nothing.
    left: [SkippedFrame; RegisterLocations::MAX_SKIPPED_FRAMES + 1],
    /// The number of noted frames, and the index of the last.
    count: usize,
}

/// The known registers of a frame.
#[derive(Debug, Clone, Copy)]
enum BaseLocations {
    /// Their locations.
    Places([ResolvedLocation; COUNT]),
    /// Their values, without locations. Bit n: register n is known.
    Values([u64; COUNT], u64),
}

/// A usual frame: its return address was right below its CFA, which is its caller's stack pointer.
#[derive(Debug, Clone, Copy)]
struct SkippedFrame {
    /// Saved registers are below it, too.
    cfa: u64,
    saved: SavedRegisters,
}

impl SkippedFrame {
    /// No frame: only a stack pointer.
    const fn none(stack_pointer: u64) -> SkippedFrame {
        SkippedFrame {
            cfa: stack_pointer,
            saved: SavedRegisters::NONE,
        }
    }
}

impl RegisterLocations {
    const MAX_SKIPPED_FRAMES: usize = 37;

    /// A stack pointer, and a location for each register, from `place`.
    #[inline(always)]
    #[must_use]
    pub fn new(stack_pointer: u64, place: impl Fn(u16) -> ResolvedLocation) -> RegisterLocations {
        let mut base = [ResolvedLocation::Unrecoverable; COUNT];
        for (to, register) in base.iter_mut().zip(0..) {
            *to = place(register);
        }
        RegisterLocations {
            base: BaseLocations::Places(base),
            left: [SkippedFrame::none(stack_pointer); RegisterLocations::MAX_SKIPPED_FRAMES + 1],
            count: 0,
        }
    }

    /// Sets it to a frame with known values of registers, but without locations. Bit n of `known`:
    /// register n is known.
    pub fn set_values(&mut self, stack_pointer: u64, values: [u64; COUNT], known: u64) {
        self.base = BaseLocations::Values(values, known);
        self.count = 0;
        if let Some(first) = self.left.first_mut() {
            *first = SkippedFrame::none(stack_pointer);
        }
    }

    /// The values of registers, if only values are known.
    #[inline]
    #[must_use]
    pub fn values(&self) -> Option<(&[u64; COUNT], u64)> {
        match &self.base {
            BaseLocations::Values(values, known) if self.count == 0 => Some((values, *known)),
            _ => None,
        }
    }

    /// The innermost frame's: every register in itself.
    #[inline(always)]
    #[must_use]
    pub fn innermost(stack_pointer: u64) -> RegisterLocations {
        RegisterLocations::new(stack_pointer, ResolvedLocation::Register)
    }

    /// The innermost frame's, after its registers were stored: every register at the address given
    /// by `address`.
    pub fn stored(stack_pointer: u64, address: impl Fn(u16) -> u64) -> RegisterLocations {
        RegisterLocations::new(stack_pointer, |register| {
            ResolvedLocation::Memory(address(register))
        })
    }

    /// Those of an interrupted frame: in the kernel's record, a `ucontext_t`, at this address.
    #[must_use]
    pub fn interrupted(stack_pointer: u64, record: u64) -> RegisterLocations {
        let saved = Arch::HOST.spec().signal_record;
        RegisterLocations::new(stack_pointer, |register| {
            let at = saved.and_then(|saved| saved.address(record, Register(register)));
            at.map_or(ResolvedLocation::Unrecoverable, ResolvedLocation::Memory)
        })
    }

    /// Those of the caller, by the interpreter's result for a register; `column` is the
    /// return-address column.
    #[must_use]
    pub fn caller(
        &self,
        stack_pointer: u64,
        column: Register,
        recover: impl Fn(Register) -> RecoveredRegister,
    ) -> RegisterLocations {
        let same = |number| self.get(number).unwrap_or(ResolvedLocation::Unrecoverable);
        RegisterLocations::new(stack_pointer, |number| {
            let recovered = recover(match number {
                RETURN_ADDRESS => column,
                _ => Register(number),
            });
            match (recovered.location, recovered.value) {
                (interpret::RegisterLocation::SameRegister, _) if number == RETURN_ADDRESS => {
                    same(column.0)
                }
                (interpret::RegisterLocation::SameRegister, _) => same(number),
                (interpret::RegisterLocation::Memory(addr), _) => ResolvedLocation::Memory(addr.0),
                (interpret::RegisterLocation::Register(other), _) => same(other.0),
                (interpret::RegisterLocation::Value, Some(value)) => ResolvedLocation::Value(value),
                (interpret::RegisterLocation::Value, None)
                | (interpret::RegisterLocation::Unrecoverable, _) => {
                    ResolvedLocation::Unrecoverable
                }
            }
        })
    }

    /// The location of a register; `None` for an invalid number.
    #[must_use]
    pub fn get(&self, register: u16) -> Option<ResolvedLocation> {
        if self.count == 0 {
            return self.before(register);
        }
        match register {
            RETURN_ADDRESS => {
                return Some(ResolvedLocation::Memory(
                    self.stack_pointer().wrapping_sub(8),
                ));
            }
            REGISTERS.. => return None,
            _ if !SavedRegisters::has(register) => return Some(ResolvedLocation::Unrecoverable),
            _ => {}
        }
        self.last_saved(register).or_else(|| self.before(register))
    }

    /// The stack pointer.
    #[inline(always)]
    #[must_use]
    pub fn stack_pointer(&self) -> u64 {
        self.left.get(self.count).map_or(0, |last| last.cfa)
    }

    /// The location of a register in the last noted frame that did not leave it unchanged.
    #[inline(always)]
    #[must_use]
    pub fn last_saved(&self, register: u16) -> Option<ResolvedLocation> {
        let mut at = self.count;
        loop {
            let frame = self.left.get(at)?;
            match frame.saved.get(register)? {
                // After the first there are no more.
                SavedRegister::Unchanged => at = at.wrapping_sub(1),
                SavedRegister::Below(bytes) => {
                    return Some(ResolvedLocation::Memory(frame.cfa.wrapping_sub(bytes)));
                }
                SavedRegister::Undefined => return Some(ResolvedLocation::Unrecoverable),
            }
        }
    }

    /// The location of a register before all noted frames; `None` as in [`RegisterLocations::get`].
    #[must_use]
    pub fn before(&self, register: u16) -> Option<ResolvedLocation> {
        let at = usize::from(register);
        match &self.base {
            BaseLocations::Places(places) => places.get(at).copied(),
            BaseLocations::Values(values, known) => {
                values.get(at).map(|value| match known >> at & 1 {
                    0 => ResolvedLocation::Unrecoverable,
                    _ => ResolvedLocation::Value(*value),
                })
            }
        }
    }

    /// Moves the stack pointer.
    #[cfg(feature = "local")]
    pub(crate) fn set_stack_pointer(&mut self, stack_pointer: u64) {
        self.settle();
        self.left = [SkippedFrame::none(stack_pointer); RegisterLocations::MAX_SKIPPED_FRAMES + 1];
    }

    /// Sets a register's location; an untracked register stays unknown.
    pub fn set(&mut self, register: u16, place: ResolvedLocation) {
        *self = RegisterLocations::new(self.stack_pointer(), |other| {
            if other == register {
                place
            } else {
                self.get(other).unwrap_or(ResolvedLocation::Unrecoverable)
            }
        });
    }

    /// Notes a usual frame before it is left; the note counts after [`RegisterLocations::leave`].
    /// `cfa` computes its CFA from the stack pointer. `None` if it cannot, or there is no room.
    #[inline(always)]
    pub fn note(
        &mut self,
        saved: SavedRegisters,
        cfa: impl FnOnce(u64) -> Option<u64>,
    ) -> Option<u64> {
        if self.count >= RegisterLocations::MAX_SKIPPED_FRAMES {
            return None;
        }
        let cfa = cfa(self.stack_pointer())?;
        *self.left.get_mut(self.count + 1)? = SkippedFrame { cfa, saved };
        Some(cfa)
    }

    /// The same for a known CFA; there always is room.
    pub(crate) fn note_known(&mut self, saved: SavedRegisters, cfa: u64) {
        if self.note(saved, |_| Some(cfa)).is_none() {
            self.settle();
            self.note(saved, |_| Some(cfa));
        }
    }

    /// Leaves the frame of the last [`RegisterLocations::note`].
    #[inline(always)]
    pub fn leave(&mut self) {
        self.count += 1;
    }

    /// Moves to where a packed row has led from this frame.
    #[inline]
    pub fn enter(&mut self, row: PackedRow, step: PackedStep) {
        match step {
            PackedStep::Caller {
                cfa, saved_base, ..
            } => {
                self.note_known(row.saved(), saved_base);
                self.leave();
                if saved_base != cfa || !cfa.is_multiple_of(8) {
                    self.enter_unusual(cfa);
                }
            }
            PackedStep::Interrupted {
                stack_pointer,
                record,
                ..
            } => *self = RegisterLocations::interrupted(stack_pointer, record),
            PackedStep::Outermost => {}
        }
    }

    /// Continues [`RegisterLocations::enter`] for a frame whose saved registers are not below its
    /// CFA, or are at addresses that are no multiples of 8.
    #[cold]
    fn enter_unusual(&mut self, cfa: u64) {
        self.note_known(SavedRegisters::NONE, cfa);
        self.leave();
        // Notes are only for words that one read yields.
        self.settle();
    }

    /// Computes the locations, to make room for notes.
    pub fn settle(&mut self) {
        if self.count == 0 {
            return;
        }
        *self = RegisterLocations::new(self.stack_pointer(), |register| {
            self.get(register)
                .unwrap_or(ResolvedLocation::Unrecoverable)
        });
    }
}
