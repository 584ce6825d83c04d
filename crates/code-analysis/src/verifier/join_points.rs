//! The places that control comes to otherwise than from the instruction before.

use core::ops::Range;

use super::state::{OutsideDomain, PrecisionLoss, VerifierState};
use crate::arch::AbiInfo;

/// Such a place.
#[derive(Debug, Clone)]
pub(super) struct JoinPoint {
    /// What holds there, once that is known.
    frame: VerifierState,
    /// What is known of the ways there.
    predecessors: Predecessors,
    /// Whether a jump there was met in this sweep.
    has_incoming_edge: bool,
    /// Whether an instruction begins there that was looked at.
    is_verified: bool,
    /// Whether control comes there for certain. That depends on the code alone, and stays known from sweep to sweep.
    is_reached: bool,
    /// Whether nothing was known to lead there when it was looked at.
    is_assumed_reachable: bool,
}

/// What is known of the ways to a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Predecessors {
    /// Nothing.
    Unknown,
    /// Nothing, and what holds there was assumed.
    Assumed,
    /// There is one, at least.
    Known,
}

/// Whether control comes to an instruction from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reachability {
    Certain,
    /// If it comes to a label before.
    Conditional,
    Unreachable,
}

impl JoinPoint {
    const NEW: JoinPoint = JoinPoint {
        frame: VerifierState::UNKNOWN,
        predecessors: Predecessors::Unknown,
        has_incoming_edge: false,
        is_verified: false,
        is_reached: false,
        is_assumed_reachable: false,
    };

    /// Comes to it from the instruction before with a frame, if at all; what is claimed to hold there, and is so on all ways, is the
    /// frame then. `None` if frames cannot meet.
    pub(super) fn enter(
        &mut self,
        frame: &mut VerifierState,
        comes: Reachability,
        claim: &VerifierState,
        facts: &AbiInfo,
    ) -> Option<Reachability> {
        if comes != Reachability::Unreachable {
            self.join(frame, comes, facts).ok()?;
        } else if self.predecessors == Predecessors::Unknown {
            // Only jumps from behind lead there.
            self.frame = claim.with_stack_addresses_of(frame);
            self.predecessors = Predecessors::Assumed;
        }
        self.frame.restrict_to(claim);
        self.is_verified = true;
        self.is_assumed_reachable = !self.has_incoming_edge;
        *frame = self.frame;
        Some(match self.is_reached {
            true => Reachability::Certain,
            false => Reachability::Conditional,
        })
    }

    /// Lets a frame arrive; what does not hold then that held for certain when it was looked at.
    pub(super) fn join(
        &mut self,
        frame: &VerifierState,
        comes: Reachability,
        facts: &AbiInfo,
    ) -> Result<PrecisionLoss, OutsideDomain> {
        self.has_incoming_edge = true;
        self.is_reached |= comes == Reachability::Certain;
        let ways = core::mem::replace(&mut self.predecessors, Predecessors::Known);
        if ways != Predecessors::Unknown && frame.implies(&self.frame) {
            return Ok(PrecisionLoss::None);
        }
        let lack = match self.is_verified {
            true => frame.precision_loss(&self.frame, facts),
            false => PrecisionLoss::None,
        };
        match ways {
            Predecessors::Known => self.frame.join(frame, facts)?,
            Predecessors::Assumed | Predecessors::Unknown => self.frame = *frame,
        }
        Ok(lack)
    }
}

/// A range of code.
#[derive(Debug, Clone)]
pub(super) struct UnitRange {
    pub(super) range: Range<u64>,
    /// Where its bytes are among those of all.
    pub(super) byte_offset: usize,
    /// How far it was looked at.
    pub(super) verified_until: u64,
}

/// The labels of a unit.
#[derive(Debug, Default)]
pub(super) struct JoinPoints {
    points: Vec<JoinPoint>,
    ranges: Vec<UnitRange>,
    /// For each byte of the ranges, one range after another, the label that is there, plus 1.
    point_by_byte: Vec<u32>,
}

impl JoinPoints {
    /// Forgets all but the room, and takes in the ranges that labels may be in, ascending.
    pub(super) fn reset(&mut self, ranges: impl Iterator<Item = Range<u64>>) {
        self.points.clear();
        self.ranges.clear();
        self.point_by_byte.clear();
        let mut first = 0;
        for range in ranges {
            let length = usize::try_from(range.end - range.start).unwrap_or(0);
            let done = range.start;
            self.ranges.push(UnitRange {
                range,
                byte_offset: first,
                verified_until: done,
            });
            first += length;
        }
        self.point_by_byte.resize(first, 0);
    }

    /// Has all be looked at again, with what was learned.
    pub(super) fn start_pass(&mut self) {
        for label in &mut self.points {
            (label.has_incoming_edge, label.is_verified) = (false, false);
        }
        for place in &mut self.ranges {
            place.verified_until = place.range.start;
        }
    }

    /// Whether it is certain that each that was looked at is come to, and none is inside an instruction.
    pub(super) fn are_verified(&self) -> bool {
        self.points.iter().all(|label| {
            let is_met = label.is_verified || label.predecessors != Predecessors::Known;
            is_met && (label.is_reached || !label.is_assumed_reachable)
        })
    }

    /// How many are come to for certain.
    pub(super) fn reached_count(&self) -> usize {
        let reached = self.points.iter().filter(|label| label.is_reached);
        reached.count()
    }

    /// Whether an address is in the ranges.
    pub(super) fn contains(&self, address: u64) -> bool {
        self.range_containing(address).is_some()
    }

    /// Whether a range ends at an address.
    pub(super) fn has_end(&self, address: u64) -> bool {
        let place = self
            .ranges
            .partition_point(|place| place.range.end < address);
        let place = self.ranges.get(place);
        place.is_some_and(|place| place.range.end == address)
    }

    /// The range that has an address.
    pub(super) fn range_containing(&self, address: u64) -> Option<&UnitRange> {
        let behind = self
            .ranges
            .partition_point(|place| place.range.start <= address);
        let place = self.ranges.get(behind.checked_sub(1)?)?;
        (address < place.range.end).then_some(place)
    }

    /// Has an address be one, if it is in the ranges.
    pub(super) fn add(&mut self, address: u64) {
        if let Some(place) = self.range_containing(address).cloned() {
            let _ = self.get_or_insert(&place, address);
        }
    }

    /// The label at an address of a range, which is one from now on, and whether code there was looked at already without knowing that.
    #[inline]
    pub(super) fn get_or_insert(
        &mut self,
        place: &UnitRange,
        address: u64,
    ) -> Option<(&mut JoinPoint, bool)> {
        let offset = usize::try_from(address - place.range.start).ok()?;
        let number = self.point_by_byte.get_mut(place.byte_offset + offset)?;
        let is_new = *number == 0;
        if is_new {
            self.points.push(JoinPoint::NEW);
            *number = u32::try_from(self.points.len()).ok()?;
        }
        let label = self.points.get_mut(*number as usize - 1)?;
        Some((label, is_new && address < place.verified_until))
    }

    /// Whether a byte is one, by its place among all.
    #[inline]
    pub(super) fn is_join_point(&self, byte: usize) -> bool {
        self.point_by_byte
            .get(byte)
            .is_some_and(|number| *number != 0)
    }

    /// The label of a byte, by its place among all.
    #[inline]
    pub(super) fn get_mut(&mut self, byte: usize) -> Option<&mut JoinPoint> {
        let number = self.point_by_byte.get(byte)?.checked_sub(1)?;
        self.points.get_mut(number as usize)
    }

    /// Takes in that all code of a range was looked at that begins at `start`.
    pub(super) fn finish(&mut self, start: u64) {
        let place = self
            .ranges
            .partition_point(|place| place.range.start < start);
        if let Some(place) = self.ranges.get_mut(place) {
            place.verified_until = place.range.end;
        }
    }
}
