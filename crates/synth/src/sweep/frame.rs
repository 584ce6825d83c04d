//! What of a state rows mostly speak of, in few bytes: addresses of the stack, and where what calls preserve is.

use crate::arch::Facts;
use crate::op::{Op, UNBOUNDED, bits};

/// How many registers are followed: those of smaller numbers.
const REGISTERS: usize = 16;

/// What a register holds, or where what it held at entry is saved: a distance from the CFA, or one of [`held`]. Few frames have more than
/// 28 KiB: what is further away is [`Beyond`].
type Lane = i16;

mod held {
    use super::Lane;

    /// What the register of that number held at entry.
    pub(super) const OWN: Lane = Lane::MAX;
    /// Something else; of the stack pointer, an address below all that is saved; saved nowhere.
    pub(super) const OTHER: Lane = Lane::MIN;
    /// From here on: one of the addresses that the user of frames keeps.
    pub(super) const ADDRESS: Lane = Lane::MAX - (1 << 12);
}

/// What a register holds, as far as a [`Frame`] knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// What it held at entry.
    Own,
    /// The CFA plus a number of bytes.
    Stack(i16),
    /// Something else, or one of the [addresses](Frame::address_of).
    Other,
}

/// Which registers hold addresses of the stack, or what they held at entry, and where the latter is saved. Registers are by their DWARF
/// numbers. Whatever is done to all of it is done without branches, several lanes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// What registers hold; from [`REGISTERS`] on, where they are saved.
    lanes: [Lane; 2 * REGISTERS],
}

/// What of what one frame knows another does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// Nothing.
    Nothing,
    /// Addresses of the stack in registers that do not point at frames.
    Minor,
    /// More.
    Major,
}

/// An operation does what no [`Frame`] tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beyond;

impl Frame {
    /// One of which nothing is known.
    pub const UNKNOWN: Frame = Frame {
        lanes: [held::OTHER; 2 * REGISTERS],
    };

    /// What holds at the entry of a function.
    #[must_use]
    pub fn entry(facts: &Facts) -> Frame {
        let mut frame = Frame::UNKNOWN;
        for register in facts.preserved {
            frame.set(*register, held::OWN);
        }
        frame.set(facts.stack_pointer, within(-facts.call_pushes));
        frame
    }

    /// Knows that a register holds something; whether that can be told.
    #[must_use]
    pub fn know(&mut self, register: u8, holds: Held) -> bool {
        let value = match holds {
            Held::Own => held::OWN,
            Held::Stack(distance) => distance,
            Held::Other => held::OTHER,
        };
        self.set(register, value);
        self.get(register) == holds
    }

    /// Knows where what a register held at entry is saved: how far from the CFA; whether that can be told.
    #[must_use]
    pub fn know_saved(&mut self, register: u8, at: i16) -> bool {
        self.set_saved(register, at);
        self.saved(register) == at && at != held::OTHER
    }

    /// What a register holds.
    #[must_use]
    pub fn get(&self, register: u8) -> Held {
        match self.held(register) {
            held::OWN => Held::Own,
            held::OTHER | held::ADDRESS.. => Held::Other,
            distance => Held::Stack(distance),
        }
    }

    /// Whether what a register held at entry is saved somewhere.
    #[must_use]
    #[inline]
    pub fn is_saved(&self, register: u8) -> bool {
        self.saved(register) != held::OTHER
    }

    /// Where what a register held at entry is saved: how far from the CFA.
    #[must_use]
    pub fn saved_at(&self, register: u8) -> Option<i16> {
        Some(self.saved(register)).filter(|at| *at != held::OTHER)
    }

    /// Which of the addresses a register holds that the user of frames keeps, if it is known to hold one.
    #[must_use]
    pub fn address_of(&self, register: u8) -> Option<usize> {
        match self.held(register) {
            held::OWN => None,
            held @ held::ADDRESS.. => usize::try_from(held - held::ADDRESS).ok(),
            _ => None,
        }
    }

    /// Knows that a register holds one of the addresses, if there are not too many.
    pub fn know_address(&mut self, register: u8, number: usize) {
        let held = Lane::try_from(number)
            .ok()
            .and_then(|number| held::ADDRESS.checked_add(number));
        self.set(
            register,
            held.filter(|held| *held != held::OWN)
                .unwrap_or(held::OTHER),
        );
    }

    /// Whether it knows all that another does.
    #[must_use]
    #[inline]
    pub fn has(&self, other: &Frame) -> bool {
        let mut lacks = 0;
        for (own, other) in self.lanes.iter().zip(&other.lanes) {
            lacks |= match *other {
                held::OTHER => 0,
                other => *own ^ other,
            };
        }
        lacks == 0
    }

    /// What of what another knows it does not.
    #[must_use]
    pub fn lacks(&self, other: &Frame, facts: &Facts) -> Lack {
        let lanes = (0..).zip(self.lanes.iter().zip(&other.lanes));
        let lacks = lanes.filter(|(_, (own, other))| **other != held::OTHER && own != other);
        let lacks = lacks.map(|(lane, (_, other))| {
            let is_register = usize::from(lane) < REGISTERS && !facts.points_at_frames(lane);
            let is_minor = is_register && *other != held::OWN;
            if is_minor { Lack::Minor } else { Lack::Major }
        });
        lacks.max().unwrap_or(Lack::Nothing)
    }

    /// Knows no more than another does, too.
    ///
    /// # Errors
    ///
    /// If the stack pointers differ, and one of them is not below all that is saved.
    #[inline]
    pub fn meet(&mut self, other: &Frame, facts: &Facts) -> Result<(), Beyond> {
        let tops = [&*self, other].map(|frame| frame.held(facts.stack_pointer));
        for (own, other) in self.lanes.iter_mut().zip(&other.lanes) {
            *own = if *own == *other { *own } else { held::OTHER };
        }
        let is_lost = tops.iter().max() != tops.iter().min();
        match is_lost && tops.iter().any(|top| *top > self.lowest()) {
            true => Err(Beyond),
            false => Ok(()),
        }
    }

    /// Leaves only addresses of the stack, and what another knows, too, of what registers held at entry.
    #[inline]
    pub fn keep(&mut self, other: &Frame) {
        let (registers, saved) = self.lanes.split_at_mut(REGISTERS);
        let (their_registers, their_saved) = other.lanes.split_at(REGISTERS);
        for (own, other) in registers.iter_mut().zip(their_registers) {
            let is_lost = (*own == held::OWN) & (*other != held::OWN);
            *own = if is_lost { held::OTHER } else { *own };
        }
        for (own, other) in saved.iter_mut().zip(their_saved) {
            *own = if *own == *other { *own } else { held::OTHER };
        }
    }

    /// This, and, of registers of which it knows nothing, the addresses of the stack that another knows.
    #[must_use]
    pub fn or_stack_of(&self, other: &Frame) -> Frame {
        let mut both = *self;
        let registers = both.lanes.iter_mut().zip(&other.lanes);
        for (own, other) in registers.take(REGISTERS) {
            if *own == held::OTHER && *other != held::OWN {
                *own = *other;
            }
        }
        both
    }

    /// Where the lowest slot is in which something is saved; 0 if nothing is.
    #[must_use]
    #[inline]
    pub fn lowest(&self) -> i16 {
        let saved = self.lanes.iter().skip(REGISTERS);
        saved.fold(0, |lowest, at| match *at {
            held::OTHER => lowest,
            at => lowest.min(at),
        })
    }

    /// Whether the stack pointer is where it was at entry.
    #[must_use]
    pub fn is_stack_as_called(&self, facts: &Facts) -> bool {
        self.held(facts.stack_pointer) == within(-facts.call_pushes)
    }

    /// Whether all is as it was at entry.
    #[must_use]
    pub fn is_as_called(&self, facts: &Facts) -> bool {
        let mut preserved = facts.preserved.iter();
        self.is_stack_as_called(facts)
            && preserved.all(|register| self.held(*register) == held::OWN)
    }

    /// Does what an operation does; whether anything is known otherwise than before.
    ///
    /// # Errors
    ///
    /// If no frame tells what that is.
    #[inline]
    pub fn apply(&mut self, op: Op, facts: &Facts) -> Result<bool, Beyond> {
        Ok(match op {
            Op::Add { to, from, bytes } => {
                let old = self.held(from);
                let is_moved = to != from || bytes != 0;
                let value = match old {
                    held::OWN if is_moved => held::OTHER,
                    held::ADDRESS.. if bytes != 0 => held::OTHER,
                    held::OWN | held::OTHER | held::ADDRESS.. => old,
                    distance => at_distance(distance, bytes)?,
                };
                // From anywhere, it need not be below.
                let is_lost = to == facts.stack_pointer && from != to;
                if is_lost && value == held::OTHER {
                    return Err(Beyond);
                }
                self.set(to, value)
            }
            Op::Align { .. } => self.lower(facts)?,
            Op::Difference { to, a, .. } if to == facts.stack_pointer && a == to => {
                self.lower(facts)?
            }
            // Among a program's arrays.
            Op::StoreEntry { base, from, .. }
                if self.held(from) != held::OWN || !self.is_stack(base) =>
            {
                false
            }
            _ if op.written(facts.stack_pointer) >> facts.stack_pointer & 1 != 0 => {
                return Err(Beyond);
            }
            Op::Constant { to, .. }
            | Op::Address { to, .. }
            | Op::Sum { to, .. }
            | Op::Near { to, .. }
            | Op::Difference { to, .. }
            | Op::Unknown { to }
            | Op::Narrow { to, .. }
            | Op::Extend { to, .. }
            | Op::LoadLow { to, .. }
            | Op::LoadEntry { to, .. }
            | Op::LoadSum { to, .. }
            | Op::Turn { to } => self.set(to, held::OTHER),
            Op::Clobber { registers } => {
                let lost = bits(registers).map(|register| self.set(register, held::OTHER));
                lost.fold(false, |any, is_lost| any | is_lost)
            }
            Op::Load { to, base, offset } => {
                let value = match self.address(base, offset)? {
                    Some(at) if self.saved(to) == at => held::OWN,
                    _ => held::OTHER,
                };
                self.set(to, value)
            }
            Op::Store { base, offset, from } => match self.address(base, offset)? {
                Some(at) => {
                    let changed = self.overwrite(at, 8, facts)?;
                    let is_saved = self.held(from) == held::OWN;
                    changed | (is_saved && self.set_saved(from, at))
                }
                None => false,
            },
            Op::StoreLow {
                base, offset, size, ..
            } => self.write(base, offset, size.into(), facts)?,
            Op::OverwritePerhaps {
                size: UNBOUNDED, ..
            } => return Err(Beyond),
            Op::Overwrite { base, offset, size }
            | Op::OverwritePerhaps { base, offset, size }
            | Op::StoreUnfollowed { base, offset, size } => {
                self.write(base, offset, size.into(), facts)?
            }
            Op::Mix { base, offset } => self.write(base, offset, 8, facts)?,
            Op::Fill { base, .. } if !self.is_stack(base) => false,
            Op::Fill {
                base,
                count: None,
                size,
            } => self.write(base, 0, size.into(), facts)?,
            Op::OverwriteNear { .. }
            | Op::KeepLoaded { .. }
            | Op::Keep { .. }
            | Op::Direction { is_down: false }
            | Op::Halt => false,
            Op::Fill { .. }
            | Op::Direction { .. }
            | Op::OverwriteRows { .. }
            | Op::OverwriteAround { .. }
            | Op::SaveState { .. }
            | Op::StoreEntry { .. }
            | Op::SystemCall { .. }
            | Op::FindBack { .. } => return Err(Beyond),
        })
    }

    /// Is as a call leaves it that comes back, but for arguments that it pops.
    ///
    /// # Errors
    ///
    /// If the callee may write over the return address of this frame.
    #[inline]
    pub fn call(&mut self, facts: &Facts) -> Result<(), Beyond> {
        for (register, held) in self.lanes.iter_mut().take(REGISTERS).enumerate() {
            let is_lost = facts.clobbered >> register & 1 != 0;
            *held = if is_lost { held::OTHER } else { *held };
        }
        if let Held::Stack(top) = self.get(facts.stack_pointer) {
            if i32::from(top) > -facts.call_pushes {
                return Err(Beyond);
            }
            // What is below is the callee's.
            for at in self.lanes.iter_mut().skip(REGISTERS) {
                *at = if *at < top { held::OTHER } else { *at };
            }
        }
        Ok(())
    }

    /// Has the stack pointer be somewhere below.
    fn lower(&mut self, facts: &Facts) -> Result<bool, Beyond> {
        match self.held(facts.stack_pointer) > self.lowest() {
            true => Err(Beyond),
            false => Ok(self.set(facts.stack_pointer, held::OTHER)),
        }
    }

    /// Has the stack pointer be so many bytes higher.
    ///
    /// # Errors
    ///
    /// If that is too far away.
    pub fn pop(&mut self, bytes: i32, facts: &Facts) -> Result<(), Beyond> {
        let sp = facts.stack_pointer;
        if let Held::Stack(top) = self.get(sp) {
            self.set(sp, at_distance(top, bytes)?);
        }
        Ok(())
    }

    /// Whether a register holds an address of the stack.
    #[must_use]
    #[inline]
    pub fn is_stack(&self, register: u8) -> bool {
        matches!(self.get(register), Held::Stack(_))
    }

    #[inline]
    fn held(&self, register: u8) -> Lane {
        match usize::from(register) {
            register @ 0..REGISTERS => self.lane(register),
            _ => held::OTHER,
        }
    }

    #[inline]
    fn saved(&self, register: u8) -> Lane {
        self.lane(REGISTERS + usize::from(register))
    }

    #[inline]
    fn lane(&self, lane: usize) -> Lane {
        self.lanes.get(lane).copied().unwrap_or(held::OTHER)
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
    fn address(&self, base: u8, offset: i32) -> Result<Option<Lane>, Beyond> {
        match self.get(base) {
            Held::Stack(distance) => at_distance(distance, offset).map(Some),
            Held::Own | Held::Other => Ok(None),
        }
    }

    #[inline]
    fn write(&mut self, base: u8, offset: i32, size: i32, facts: &Facts) -> Result<bool, Beyond> {
        match self.address(base, offset)? {
            Some(at) => self.overwrite(at, size, facts),
            None => Ok(false),
        }
    }

    /// Has bytes be something else; whether something was saved there.
    #[inline]
    fn overwrite(&mut self, at: Lane, size: i32, facts: &Facts) -> Result<bool, Beyond> {
        let end = i32::from(at).saturating_add(size);
        if at < 0 && -facts.call_pushes < end {
            return Err(Beyond);
        }
        let end = Lane::try_from(end).unwrap_or(held::OWN);
        let before = at.saturating_sub(8);
        let mut lost = 0;
        for saved in self.lanes.iter_mut().skip(REGISTERS) {
            let is_common = (*saved < end) & (before < *saved);
            let left = if is_common { held::OTHER } else { *saved };
            lost |= left ^ *saved;
            *saved = left;
        }
        Ok(lost != 0)
    }
}

/// So many bytes above an address of the stack.
#[inline]
fn at_distance(distance: Lane, bytes: i32) -> Result<Lane, Beyond> {
    match within(i32::from(distance).saturating_add(bytes)) {
        held::OTHER => Err(Beyond),
        distance => Ok(distance),
    }
}

/// A distance, if it is one of a frame.
#[inline]
fn within(distance: i32) -> Lane {
    match Lane::try_from(distance) {
        Ok(held::ADDRESS..) | Err(_) => held::OTHER,
        Ok(distance) => distance,
    }
}
