//! What of a state rows mostly speak of, in few bytes: addresses of the stack, and where what calls preserve is.

use crate::arch::AbiInfo;
use crate::op::{Op, UNBOUNDED, bits};

/// How many registers are followed: those of smaller numbers.
const REGISTERS: usize = 16;

/// What a register holds, or where what it held at entry is saved: a distance from the CFA, or one of [`held`]. Few frames have more than
/// 28 KiB: what is further away is [`OutsideDomain`].
type Lane = i16;

mod encoding {
    use super::Lane;

    /// What the register of that number held at entry.
    pub(super) const ENTRY_VALUE: Lane = Lane::MAX;
    /// Something else; of the stack pointer, an address below all that is saved; saved nowhere.
    pub(super) const UNKNOWN: Lane = Lane::MIN;
    /// From here on: one of the addresses that the user of frames keeps.
    pub(super) const FIRST_IMAGE_ADDRESS: Lane = Lane::MAX - (1 << 12);
}

/// What a register holds, as far as a [`VerifierState`] knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterContents {
    /// What it held at entry.
    EntryValue,
    /// The CFA plus a number of bytes.
    StackAddress(i16),
    /// Something else, or one of the [addresses](Frame::address_of).
    Other,
}

/// Which registers hold addresses of the stack, or what they held at entry, and where the latter is saved. Registers are by their DWARF
/// numbers. Whatever is done to all of it is done without branches, several lanes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifierState {
    /// What registers hold; from [`REGISTERS`] on, where they are saved.
    lanes: [Lane; 2 * REGISTERS],
}

/// What of what one frame knows another does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PrecisionLoss {
    /// Nothing.
    None,
    /// Addresses of the stack in registers that do not point at frames.
    StackAddresses,
    /// More.
    Essential,
}

/// An operation does what no [`VerifierState`] tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutsideDomain;

impl VerifierState {
    /// One of which nothing is known.
    pub const UNKNOWN: VerifierState = VerifierState {
        lanes: [encoding::UNKNOWN; 2 * REGISTERS],
    };

    /// What holds at the entry of a function.
    #[must_use]
    pub fn entry(facts: &AbiInfo) -> VerifierState {
        let mut frame = VerifierState::UNKNOWN;
        for register in facts.preserved {
            frame.set(*register, encoding::ENTRY_VALUE);
        }
        frame.set(facts.stack_pointer, encode_distance(-facts.call_pushes));
        frame
    }

    /// Knows that a register holds something; whether that can be told.
    #[must_use]
    pub fn set_register(&mut self, register: u8, holds: RegisterContents) -> bool {
        let value = match holds {
            RegisterContents::EntryValue => encoding::ENTRY_VALUE,
            RegisterContents::StackAddress(distance) => distance,
            RegisterContents::Other => encoding::UNKNOWN,
        };
        self.set(register, value);
        self.get(register) == holds
    }

    /// Knows where what a register held at entry is saved: how far from the CFA; whether that can be told.
    #[must_use]
    pub fn set_saved_at(&mut self, register: u8, at: i16) -> bool {
        self.set_saved(register, at);
        self.saved_lane(register) == at && at != encoding::UNKNOWN
    }

    /// What a register holds.
    #[must_use]
    pub fn get(&self, register: u8) -> RegisterContents {
        match self.register_lane(register) {
            encoding::ENTRY_VALUE => RegisterContents::EntryValue,
            encoding::UNKNOWN | encoding::FIRST_IMAGE_ADDRESS.. => RegisterContents::Other,
            distance => RegisterContents::StackAddress(distance),
        }
    }

    /// Whether what a register held at entry is saved somewhere.
    #[must_use]
    #[inline]
    pub fn has_saved(&self, register: u8) -> bool {
        self.saved_lane(register) != encoding::UNKNOWN
    }

    /// Where what a register held at entry is saved: how far from the CFA.
    #[must_use]
    pub fn saved_at(&self, register: u8) -> Option<i16> {
        Some(self.saved_lane(register)).filter(|at| *at != encoding::UNKNOWN)
    }

    /// Which of the addresses a register holds that the user of frames keeps, if it is known to hold one.
    #[must_use]
    pub fn image_address(&self, register: u8) -> Option<usize> {
        match self.register_lane(register) {
            encoding::ENTRY_VALUE => None,
            held @ encoding::FIRST_IMAGE_ADDRESS.. => {
                usize::try_from(held - encoding::FIRST_IMAGE_ADDRESS).ok()
            }
            _ => None,
        }
    }

    /// Knows that a register holds one of the addresses, if there are not too many.
    pub fn set_image_address(&mut self, register: u8, number: usize) {
        let held = Lane::try_from(number)
            .ok()
            .and_then(|number| encoding::FIRST_IMAGE_ADDRESS.checked_add(number));
        self.set(
            register,
            held.filter(|held| *held != encoding::ENTRY_VALUE)
                .unwrap_or(encoding::UNKNOWN),
        );
    }

    /// Whether it knows all that another does.
    #[must_use]
    #[inline]
    pub fn implies(&self, other: &VerifierState) -> bool {
        let mut lacks = 0;
        for (own, other) in self.lanes.iter().zip(&other.lanes) {
            lacks |= match *other {
                encoding::UNKNOWN => 0,
                other => *own ^ other,
            };
        }
        lacks == 0
    }

    /// What of what another knows it does not.
    #[must_use]
    pub fn precision_loss(&self, other: &VerifierState, facts: &AbiInfo) -> PrecisionLoss {
        let lanes = (0..).zip(self.lanes.iter().zip(&other.lanes));
        let lacks = lanes.filter(|(_, (own, other))| **other != encoding::UNKNOWN && own != other);
        let lacks = lacks.map(|(lane, (_, other))| {
            let is_register = usize::from(lane) < REGISTERS && !facts.points_at_frames(lane);
            let is_minor = is_register && *other != encoding::ENTRY_VALUE;
            if is_minor {
                PrecisionLoss::StackAddresses
            } else {
                PrecisionLoss::Essential
            }
        });
        lacks.max().unwrap_or(PrecisionLoss::None)
    }

    /// Knows no more than another does, too.
    ///
    /// # Errors
    ///
    /// If the stack pointers differ, and one of them is not below all that is saved.
    #[inline]
    pub fn join(&mut self, other: &VerifierState, facts: &AbiInfo) -> Result<(), OutsideDomain> {
        let tops = [&*self, other].map(|frame| frame.register_lane(facts.stack_pointer));
        for (own, other) in self.lanes.iter_mut().zip(&other.lanes) {
            *own = if *own == *other {
                *own
            } else {
                encoding::UNKNOWN
            };
        }
        let is_lost = tops.iter().max() != tops.iter().min();
        match is_lost && tops.iter().any(|top| *top > self.lowest_saved_slot()) {
            true => Err(OutsideDomain),
            false => Ok(()),
        }
    }

    /// Leaves only addresses of the stack, and what another knows, too, of what registers held at entry.
    #[inline]
    pub fn restrict_to(&mut self, other: &VerifierState) {
        let (registers, saved) = self.lanes.split_at_mut(REGISTERS);
        let (their_registers, their_saved) = other.lanes.split_at(REGISTERS);
        for (own, other) in registers.iter_mut().zip(their_registers) {
            let is_lost = (*own == encoding::ENTRY_VALUE) & (*other != encoding::ENTRY_VALUE);
            *own = if is_lost { encoding::UNKNOWN } else { *own };
        }
        for (own, other) in saved.iter_mut().zip(their_saved) {
            *own = if *own == *other {
                *own
            } else {
                encoding::UNKNOWN
            };
        }
    }

    /// This, and, of registers of which it knows nothing, the addresses of the stack that another knows.
    #[must_use]
    pub fn with_stack_addresses_of(&self, other: &VerifierState) -> VerifierState {
        let mut both = *self;
        let registers = both.lanes.iter_mut().zip(&other.lanes);
        for (own, other) in registers.take(REGISTERS) {
            if *own == encoding::UNKNOWN && *other != encoding::ENTRY_VALUE {
                *own = *other;
            }
        }
        both
    }

    /// Where the lowest slot is in which something is saved; 0 if nothing is.
    #[must_use]
    #[inline]
    pub fn lowest_saved_slot(&self) -> i16 {
        let saved = self.lanes.iter().skip(REGISTERS);
        saved.fold(0, |lowest, at| match *at {
            encoding::UNKNOWN => lowest,
            at => lowest.min(at),
        })
    }

    /// Whether the stack pointer is where it was at entry.
    #[must_use]
    pub fn is_stack_pointer_at_entry(&self, facts: &AbiInfo) -> bool {
        self.register_lane(facts.stack_pointer) == encode_distance(-facts.call_pushes)
    }

    /// Whether all is as it was at entry.
    #[must_use]
    pub fn is_as_at_entry(&self, facts: &AbiInfo) -> bool {
        let mut preserved = facts.preserved.iter();
        self.is_stack_pointer_at_entry(facts)
            && preserved.all(|register| self.register_lane(*register) == encoding::ENTRY_VALUE)
    }

    /// Does what an operation does; whether anything is known otherwise than before.
    ///
    /// # Errors
    ///
    /// If no frame tells what that is.
    #[inline]
    pub fn transfer(&mut self, op: Op, facts: &AbiInfo) -> Result<bool, OutsideDomain> {
        Ok(match op {
            Op::Add { to, from, bytes } => {
                let old = self.register_lane(from);
                let is_moved = to != from || bytes != 0;
                let value = match old {
                    encoding::ENTRY_VALUE if is_moved => encoding::UNKNOWN,
                    encoding::FIRST_IMAGE_ADDRESS.. if bytes != 0 => encoding::UNKNOWN,
                    encoding::ENTRY_VALUE | encoding::UNKNOWN | encoding::FIRST_IMAGE_ADDRESS.. => {
                        old
                    }
                    distance => offset_by(distance, bytes)?,
                };
                // From anywhere, it need not be below.
                let is_lost = to == facts.stack_pointer && from != to;
                if is_lost && value == encoding::UNKNOWN {
                    return Err(OutsideDomain);
                }
                self.set(to, value)
            }
            Op::Align { .. } => self.lower_stack_pointer(facts)?,
            Op::Difference { to, a, .. } if to == facts.stack_pointer && a == to => {
                self.lower_stack_pointer(facts)?
            }
            // Among a program's arrays.
            Op::StoreIndexed { base, from, .. }
                if self.register_lane(from) != encoding::ENTRY_VALUE
                    || !self.holds_stack_address(base) =>
            {
                false
            }
            _ if op.written(facts.stack_pointer) >> facts.stack_pointer & 1 != 0 => {
                return Err(OutsideDomain);
            }
            Op::Constant { to, .. }
            | Op::Address { to, .. }
            | Op::Sum { to, .. }
            | Op::AddUnknown { to, .. }
            | Op::Difference { to, .. }
            | Op::Unknown { to }
            | Op::Bound { to, .. }
            | Op::SignExtend { to, .. }
            | Op::LoadLow { to, .. }
            | Op::LoadIndexed { to, .. }
            | Op::LoadSum { to, .. }
            | Op::Invert { to } => self.set(to, encoding::UNKNOWN),
            Op::Clobber { registers } => {
                let lost = bits(registers).map(|register| self.set(register, encoding::UNKNOWN));
                lost.fold(false, |any, is_lost| any | is_lost)
            }
            Op::Load { to, base, offset } => {
                let value = match self.address(base, offset)? {
                    Some(at) if self.saved_lane(to) == at => encoding::ENTRY_VALUE,
                    _ => encoding::UNKNOWN,
                };
                self.set(to, value)
            }
            Op::Store { base, offset, from } => match self.address(base, offset)? {
                Some(at) => {
                    let changed = self.overwrite(at, 8, facts)?;
                    let is_saved = self.register_lane(from) == encoding::ENTRY_VALUE;
                    changed | (is_saved && self.set_saved(from, at))
                }
                None => false,
            },
            Op::StoreLow {
                base, offset, size, ..
            } => self.write(base, offset, size.into(), facts)?,
            Op::WeakOverwrite {
                size: UNBOUNDED, ..
            } => return Err(OutsideDomain),
            Op::Overwrite { base, offset, size }
            | Op::WeakOverwrite { base, offset, size }
            | Op::StoreUntracked { base, offset, size } => {
                self.write(base, offset, size.into(), facts)?
            }
            Op::InvertMemory { base, offset } => self.write(base, offset, 8, facts)?,
            Op::Fill { base, .. } if !self.holds_stack_address(base) => false,
            Op::Fill {
                base,
                count: None,
                size,
            } => self.write(base, 0, size.into(), facts)?,
            Op::OverwriteIndexed { .. }
            | Op::EscapeMemory { .. }
            | Op::Escape { .. }
            | Op::Direction { is_down: false }
            | Op::Halt => false,
            Op::Fill { .. }
            | Op::Direction { .. }
            | Op::OverwriteTileRows { .. }
            | Op::OverwriteUnbounded { .. }
            | Op::SaveState { .. }
            | Op::StoreIndexed { .. }
            | Op::SystemCall { .. }
            | Op::AssumeStackPointer { .. } => return Err(OutsideDomain),
        })
    }

    /// Is as a call leaves it that comes back, but for arguments that it pops.
    ///
    /// # Errors
    ///
    /// If the callee may write over the return address of this frame.
    #[inline]
    pub fn transfer_call(&mut self, facts: &AbiInfo) -> Result<(), OutsideDomain> {
        for (register, held) in self.lanes.iter_mut().take(REGISTERS).enumerate() {
            let is_lost = facts.clobbered >> register & 1 != 0;
            *held = if is_lost { encoding::UNKNOWN } else { *held };
        }
        if let RegisterContents::StackAddress(top) = self.get(facts.stack_pointer) {
            if i32::from(top) > -facts.call_pushes {
                return Err(OutsideDomain);
            }
            // What is below is the callee's.
            for at in self.lanes.iter_mut().skip(REGISTERS) {
                *at = if *at < top { encoding::UNKNOWN } else { *at };
            }
        }
        Ok(())
    }

    /// Has the stack pointer be somewhere below.
    fn lower_stack_pointer(&mut self, facts: &AbiInfo) -> Result<bool, OutsideDomain> {
        match self.register_lane(facts.stack_pointer) > self.lowest_saved_slot() {
            true => Err(OutsideDomain),
            false => Ok(self.set(facts.stack_pointer, encoding::UNKNOWN)),
        }
    }

    /// Has the stack pointer be so many bytes higher.
    ///
    /// # Errors
    ///
    /// If that is too far away.
    pub fn pop_arguments(&mut self, bytes: i32, facts: &AbiInfo) -> Result<(), OutsideDomain> {
        let sp = facts.stack_pointer;
        if let RegisterContents::StackAddress(top) = self.get(sp) {
            self.set(sp, offset_by(top, bytes)?);
        }
        Ok(())
    }

    /// Whether a register holds an address of the stack.
    #[must_use]
    #[inline]
    pub fn holds_stack_address(&self, register: u8) -> bool {
        matches!(self.get(register), RegisterContents::StackAddress(_))
    }

    #[inline]
    fn register_lane(&self, register: u8) -> Lane {
        match usize::from(register) {
            register @ 0..REGISTERS => self.lane(register),
            _ => encoding::UNKNOWN,
        }
    }

    #[inline]
    fn saved_lane(&self, register: u8) -> Lane {
        self.lane(REGISTERS + usize::from(register))
    }

    #[inline]
    fn lane(&self, lane: usize) -> Lane {
        self.lanes.get(lane).copied().unwrap_or(encoding::UNKNOWN)
    }

    /// Has a register hold something; whether it did not.
    #[inline]
    fn set(&mut self, register: u8, value: Lane) -> bool {
        match usize::from(register) {
            register @ 0..REGISTERS => self.set_lane(register, value),
            _ => false,
        }
    }

    /// Has what a register held at entry be saved somewhere; whether it was not there.
    fn set_saved(&mut self, register: u8, at: Lane) -> bool {
        self.set_lane(REGISTERS + usize::from(register), at)
    }

    #[inline]
    fn set_lane(&mut self, lane: usize, value: Lane) -> bool {
        let lane = self.lanes.get_mut(lane);
        lane.is_some_and(|lane| core::mem::replace(lane, value) != value)
    }

    /// An address of the stack, if it is one.
    #[inline]
    fn address(&self, base: u8, offset: i32) -> Result<Option<Lane>, OutsideDomain> {
        match self.get(base) {
            RegisterContents::StackAddress(distance) => offset_by(distance, offset).map(Some),
            RegisterContents::EntryValue | RegisterContents::Other => Ok(None),
        }
    }

    #[inline]
    fn write(
        &mut self,
        base: u8,
        offset: i32,
        size: i32,
        facts: &AbiInfo,
    ) -> Result<bool, OutsideDomain> {
        match self.address(base, offset)? {
            Some(at) => self.overwrite(at, size, facts),
            None => Ok(false),
        }
    }

    /// Has bytes be something else; whether something was saved there.
    #[inline]
    fn overwrite(&mut self, at: Lane, size: i32, facts: &AbiInfo) -> Result<bool, OutsideDomain> {
        let end = i32::from(at).saturating_add(size);
        if at < 0 && -facts.call_pushes < end {
            return Err(OutsideDomain);
        }
        let end = Lane::try_from(end).unwrap_or(encoding::ENTRY_VALUE);
        let before = at.saturating_sub(8);
        let mut lost = 0;
        for saved in self.lanes.iter_mut().skip(REGISTERS) {
            let is_common = (*saved < end) & (before < *saved);
            let left = if is_common { encoding::UNKNOWN } else { *saved };
            lost |= left ^ *saved;
            *saved = left;
        }
        Ok(lost != 0)
    }
}

/// So many bytes above an address of the stack.
#[inline]
fn offset_by(distance: Lane, bytes: i32) -> Result<Lane, OutsideDomain> {
    match encode_distance(i32::from(distance).saturating_add(bytes)) {
        encoding::UNKNOWN => Err(OutsideDomain),
        distance => Ok(distance),
    }
}

/// A distance, if it is one of a frame.
#[inline]
fn encode_distance(distance: i32) -> Lane {
    match Lane::try_from(distance) {
        Ok(encoding::FIRST_IMAGE_ADDRESS..) | Err(_) => encoding::UNKNOWN,
        Ok(distance) => distance,
    }
}
