//! The verifier's small abstract state: stack addresses, and the locations of registers that calls
//! preserve. Most rows say no more.

use crate::arch::AbiInfo;
use crate::op::{Op, UNBOUNDED, bits};

/// Number of tracked registers: those with smaller numbers.
const REGISTERS: usize = 16;

/// A register's contents, or where its entry value is saved: a distance from the CFA, or one of the
/// [`encoding`]s. Few frames exceed 28 KiB: larger distances are [`OutsideDomain`].
type Lane = i16;

mod encoding {
    use super::Lane;

    /// The register's entry value.
    pub(super) const ENTRY_VALUE: Lane = Lane::MAX;
    /// Something else; for the stack pointer, an address below all saves; for a save, nowhere.
    pub(super) const UNKNOWN: Lane = Lane::MIN;
    /// From here on: an image address, by its number in the verifier's list.
    pub(super) const FIRST_IMAGE_ADDRESS: Lane = Lane::MAX - (1 << 12);
}

/// Contents of a register, in the domain of a [`VerifierState`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterContents {
    /// Its entry value.
    EntryValue,
    /// The CFA plus a number of bytes.
    StackAddress(i16),
    /// Something else, or an image address.
    Other,
}

/// Registers with stack addresses or entry values, and where entry values are saved. Registers have
/// DWARF numbers. Operations on all lanes have no branches and process several lanes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifierState {
    /// Contents of registers; from [`REGISTERS`] on, where they are saved.
    lanes: [Lane; 2 * REGISTERS],
}

/// The facts of one state that another state lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PrecisionLoss {
    /// Nothing.
    None,
    /// Stack addresses in registers other than the stack and frame pointers.
    StackAddresses,
    /// More.
    Essential,
}

/// No [`VerifierState`] expresses the operation's effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutsideDomain;

impl VerifierState {
    /// The state without any facts.
    pub const UNKNOWN: VerifierState = VerifierState {
        lanes: [encoding::UNKNOWN; 2 * REGISTERS],
    };

    /// The state at a function's entry.
    #[must_use]
    pub fn entry(abi_info: &AbiInfo) -> VerifierState {
        let mut frame = VerifierState::UNKNOWN;
        for register in abi_info.preserved {
            frame.set(*register, encoding::ENTRY_VALUE);
        }
        frame.set(
            abi_info.stack_pointer,
            encode_distance(-abi_info.call_pushes),
        );
        frame
    }

    /// Sets a register's contents. Returns whether they can be expressed.
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

    /// Sets where a register's entry value is saved, relative to the CFA. Returns whether that can
    /// be expressed.
    #[must_use]
    pub fn set_saved_at(&mut self, register: u8, at: i16) -> bool {
        self.set_saved(register, at);
        self.saved_lane(register) == at && at != encoding::UNKNOWN
    }

    /// Contents of a register.
    #[must_use]
    pub fn get(&self, register: u8) -> RegisterContents {
        match self.register_lane(register) {
            encoding::ENTRY_VALUE => RegisterContents::EntryValue,
            encoding::UNKNOWN | encoding::FIRST_IMAGE_ADDRESS.. => RegisterContents::Other,
            distance => RegisterContents::StackAddress(distance),
        }
    }

    /// Whether a register's entry value is saved somewhere.
    #[must_use]
    #[inline]
    pub(crate) fn has_saved(&self, register: u8) -> bool {
        self.saved_lane(register) != encoding::UNKNOWN
    }

    /// Where a register's entry value is saved, relative to the CFA.
    #[must_use]
    pub fn saved_at(&self, register: u8) -> Option<i16> {
        Some(self.saved_lane(register)).filter(|at| *at != encoding::UNKNOWN)
    }

    /// The number of the image address in a register, if it is known to hold one.
    #[must_use]
    pub(crate) fn image_address(&self, register: u8) -> Option<usize> {
        match self.register_lane(register) {
            encoding::ENTRY_VALUE => None,
            held @ encoding::FIRST_IMAGE_ADDRESS.. => {
                usize::try_from(held - encoding::FIRST_IMAGE_ADDRESS).ok()
            }
            _ => None,
        }
    }

    /// Sets a register to an image address, if the number is small enough.
    pub(crate) fn set_image_address(&mut self, register: u8, number: usize) {
        let held = Lane::try_from(number)
            .ok()
            .and_then(|number| encoding::FIRST_IMAGE_ADDRESS.checked_add(number));
        self.set(
            register,
            held.filter(|held| *held != encoding::ENTRY_VALUE)
                .unwrap_or(encoding::UNKNOWN),
        );
    }

    /// Whether it has all facts of another state.
    #[must_use]
    #[inline]
    pub(crate) fn implies(&self, other: &VerifierState) -> bool {
        let mut lacks = 0;
        for (own, other) in self.lanes.iter().zip(&other.lanes) {
            lacks |= match *other {
                encoding::UNKNOWN => 0,
                other => *own ^ other,
            };
        }
        lacks == 0
    }

    /// The facts of another state that this one lacks.
    #[must_use]
    pub(crate) fn precision_loss(
        &self,
        other: &VerifierState,
        abi_info: &AbiInfo,
    ) -> PrecisionLoss {
        let lanes = (0..).zip(self.lanes.iter().zip(&other.lanes));
        let lacks = lanes.filter(|(_, (own, other))| **other != encoding::UNKNOWN && own != other);
        let lacks = lacks.map(|(lane, (_, other))| {
            let is_register = usize::from(lane) < REGISTERS && !abi_info.points_at_frames(lane);
            let is_minor = is_register && *other != encoding::ENTRY_VALUE;
            if is_minor {
                PrecisionLoss::StackAddresses
            } else {
                PrecisionLoss::Essential
            }
        });
        lacks.max().unwrap_or(PrecisionLoss::None)
    }

    /// Joins another state: keeps only facts of both.
    ///
    /// # Errors
    ///
    /// If the stack pointers differ, and one of them is not below all saves.
    #[inline]
    pub(crate) fn join(
        &mut self,
        other: &VerifierState,
        abi_info: &AbiInfo,
    ) -> Result<(), OutsideDomain> {
        let tops = [&*self, other].map(|frame| frame.register_lane(abi_info.stack_pointer));
        for (own, other) in self.lanes.iter_mut().zip(&other.lanes) {
            *own = if *own == *other {
                *own
            } else {
                encoding::UNKNOWN
            };
        }
        let is_lost = tops.iter().max() != tops.iter().min();
        if is_lost && tops.iter().any(|top| *top > self.lowest_saved_slot()) {
            Err(OutsideDomain)
        } else {
            Ok(())
        }
    }

    /// Keeps only stack addresses, and those entry values that another state has, too.
    #[inline]
    pub(crate) fn restrict_to(&mut self, other: &VerifierState) {
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

    /// This state, with another state's stack addresses in registers that are unknown here.
    #[must_use]
    pub(crate) fn with_stack_addresses_of(&self, other: &VerifierState) -> VerifierState {
        let mut both = *self;
        let registers = both.lanes.iter_mut().zip(&other.lanes);
        for (own, other) in registers.take(REGISTERS) {
            if *own == encoding::UNKNOWN && *other != encoding::ENTRY_VALUE {
                *own = *other;
            }
        }
        both
    }

    /// The lowest slot with a saved register; 0 if there is none.
    #[must_use]
    #[inline]
    pub fn lowest_saved_slot(&self) -> i16 {
        let saved = self.lanes.iter().skip(REGISTERS);
        saved.fold(0, |lowest, at| match *at {
            encoding::UNKNOWN => lowest,
            at => lowest.min(at),
        })
    }

    /// Whether the stack pointer has its entry value.
    #[must_use]
    pub(crate) fn is_stack_pointer_at_entry(&self, abi_info: &AbiInfo) -> bool {
        self.register_lane(abi_info.stack_pointer) == encode_distance(-abi_info.call_pushes)
    }

    /// Whether everything is as at entry.
    #[must_use]
    pub(crate) fn is_as_at_entry(&self, abi_info: &AbiInfo) -> bool {
        let mut preserved = abi_info.preserved.iter();
        self.is_stack_pointer_at_entry(abi_info)
            && preserved.all(|register| self.register_lane(*register) == encoding::ENTRY_VALUE)
    }

    /// Applies an operation. Returns whether the state has changed.
    ///
    /// # Errors
    ///
    /// If no verifier state expresses the result.
    #[inline]
    pub fn transfer(&mut self, op: Op, abi_info: &AbiInfo) -> Result<bool, OutsideDomain> {
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
                // An unknown address need not be below all saves.
                let is_lost = to == abi_info.stack_pointer && from != to;
                if is_lost && value == encoding::UNKNOWN {
                    return Err(OutsideDomain);
                }
                self.set(to, value)
            }
            Op::Align { .. } => self.lower_stack_pointer(abi_info)?,
            Op::Difference { to, a, .. } if to == abi_info.stack_pointer && a == to => {
                self.lower_stack_pointer(abi_info)?
            }
            // In a program's arrays.
            Op::StoreIndexed { base, from, .. }
                if self.register_lane(from) != encoding::ENTRY_VALUE
                    || !self.holds_stack_address(base) =>
            {
                false
            }
            _ if op.written(abi_info.stack_pointer) >> abi_info.stack_pointer & 1 != 0 => {
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
            | Op::Advance { to, .. }
            | Op::Choose { to, .. } => self.set(to, encoding::UNKNOWN),
            Op::Clobber { registers } => self.lose(registers),
            Op::Compute { to, .. } => self.lose(to.into()),
            Op::Load { to, base, offset } => {
                let value = match self.address(base, offset)? {
                    Some(at) if self.saved_lane(to) == at => encoding::ENTRY_VALUE,
                    _ => encoding::UNKNOWN,
                };
                self.set(to, value)
            }
            Op::Store { base, offset, from } => match self.address(base, offset)? {
                Some(at) => {
                    let changed = self.overwrite(at, 8, abi_info)?;
                    let is_saved = self.register_lane(from) == encoding::ENTRY_VALUE;
                    changed | (is_saved && self.set_saved(from, at))
                }
                None => false,
            },
            Op::StoreLow {
                base, offset, size, ..
            } => self.write(base, offset, size.into(), abi_info)?,
            Op::WeakOverwrite {
                size: UNBOUNDED, ..
            } => return Err(OutsideDomain),
            Op::Overwrite { base, offset, size }
            | Op::WeakOverwrite { base, offset, size }
            | Op::StoreUntracked { base, offset, size } => {
                self.write(base, offset, size.into(), abi_info)?
            }
            Op::Fill { base, .. } if !self.holds_stack_address(base) => false,
            Op::Fill {
                base,
                count: None,
                size,
                ..
            } => self.write(base, 0, size.into(), abi_info)?,
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

    /// Applies a call that returns, except for arguments that it pops.
    ///
    /// # Errors
    ///
    /// If the callee may overwrite this frame's return address.
    #[inline]
    pub(crate) fn transfer_call(&mut self, abi_info: &AbiInfo) -> Result<(), OutsideDomain> {
        for (register, held) in self.lanes.iter_mut().take(REGISTERS).enumerate() {
            let is_lost = abi_info.clobbered >> register & 1 != 0;
            *held = if is_lost { encoding::UNKNOWN } else { *held };
        }
        if let RegisterContents::StackAddress(top) = self.get(abi_info.stack_pointer) {
            if i32::from(top) > -abi_info.call_pushes {
                return Err(OutsideDomain);
            }
            // The callee owns the memory below.
            for at in self.lanes.iter_mut().skip(REGISTERS) {
                *at = if *at < top { encoding::UNKNOWN } else { *at };
            }
        }
        Ok(())
    }

    /// Lowers the stack pointer by an unknown distance.
    fn lower_stack_pointer(&mut self, abi_info: &AbiInfo) -> Result<bool, OutsideDomain> {
        if self.register_lane(abi_info.stack_pointer) > self.lowest_saved_slot() {
            Err(OutsideDomain)
        } else {
            Ok(self.set(abi_info.stack_pointer, encoding::UNKNOWN))
        }
    }

    /// Raises the stack pointer by a number of bytes.
    ///
    /// # Errors
    ///
    /// If the distance is too large.
    pub(crate) fn pop_arguments(
        &mut self,
        bytes: i32,
        abi_info: &AbiInfo,
    ) -> Result<(), OutsideDomain> {
        let sp = abi_info.stack_pointer;
        if let RegisterContents::StackAddress(top) = self.get(sp) {
            self.set(sp, offset_by(top, bytes)?);
        }
        Ok(())
    }

    /// Whether a register holds a stack address.
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

    /// Sets a register. Returns whether this changed it.
    #[inline]
    fn set(&mut self, register: u8, value: Lane) -> bool {
        match usize::from(register) {
            register @ 0..REGISTERS => self.set_lane(register, value),
            _ => false,
        }
    }

    /// Sets registers to unknown values. Returns whether this changed any.
    fn lose(&mut self, registers: u64) -> bool {
        let lost = bits(registers).map(|register| self.set(register, encoding::UNKNOWN));
        lost.fold(false, |any, is_lost| any | is_lost)
    }

    /// Sets where a register is saved. Returns whether this changed it.
    fn set_saved(&mut self, register: u8, at: Lane) -> bool {
        self.set_lane(REGISTERS + usize::from(register), at)
    }

    #[inline]
    fn set_lane(&mut self, lane: usize, value: Lane) -> bool {
        let lane = self.lanes.get_mut(lane);
        lane.is_some_and(|lane| core::mem::replace(lane, value) != value)
    }

    /// The stack address at a register plus an offset, if it is one.
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
        abi_info: &AbiInfo,
    ) -> Result<bool, OutsideDomain> {
        match self.address(base, offset)? {
            Some(at) => self.overwrite(at, size, abi_info),
            None => Ok(false),
        }
    }

    /// Overwrites bytes. Returns whether a register was saved there.
    #[inline]
    fn overwrite(
        &mut self,
        at: Lane,
        size: i32,
        abi_info: &AbiInfo,
    ) -> Result<bool, OutsideDomain> {
        let end = i32::from(at).saturating_add(size);
        if at < 0 && -abi_info.call_pushes < end {
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

/// A stack address plus a number of bytes.
#[inline]
fn offset_by(distance: Lane, bytes: i32) -> Result<Lane, OutsideDomain> {
    match encode_distance(i32::from(distance).saturating_add(bytes)) {
        encoding::UNKNOWN => Err(OutsideDomain),
        distance => Ok(distance),
    }
}

/// A distance as a lane, if it is in a frame's range.
#[inline]
fn encode_distance(distance: i32) -> Lane {
    match Lane::try_from(distance) {
        Ok(encoding::FIRST_IMAGE_ADDRESS..) | Err(_) => encoding::UNKNOWN,
        Ok(distance) => distance,
    }
}
