//! Join points: addresses that control reaches other than by fall-through.

use core::ops::Range;

use super::state::{OutsideDomain, PrecisionLoss, VerifierState};
use crate::arch::AbiInfo;

/// A join point.
#[derive(Debug, Clone)]
pub(super) struct JoinPoint {
    /// The state there, once known.
    state: VerifierState,
    /// Its known predecessors.
    predecessors: Predecessors,
    /// Whether this pass saw a jump to it.
    has_incoming_edge: bool,
    /// Whether a verified instruction begins there.
    is_verified: bool,
    /// Whether control certainly reaches it. That depends on the code alone, and is kept from pass
    /// to pass.
    is_reached: bool,
    /// Whether it was verified without a known predecessor.
    is_assumed_reachable: bool,
}

/// Knowledge about a join point's predecessors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Predecessors {
    /// Nothing.
    Unknown,
    /// None, and its state was assumed.
    Assumed,
    /// At least one.
    Known,
}

/// Whether control reaches an instruction by fall-through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reachability {
    Certain,
    /// If it reaches an earlier join point.
    Conditional,
    Unreachable,
}

impl JoinPoint {
    const NEW: JoinPoint = JoinPoint {
        state: VerifierState::UNKNOWN,
        predecessors: Predecessors::Unknown,
        has_incoming_edge: false,
        is_verified: false,
        is_reached: false,
        is_assumed_reachable: false,
    };

    /// Enters a join point by fall-through, if control can arrive that way. `state` becomes the
    /// annotated facts that hold on all edges.
    pub(super) fn enter(
        &mut self,
        state: &mut VerifierState,
        reachability: Reachability,
        claim: &VerifierState,
        abi_info: &AbiInfo,
    ) -> Result<Reachability, OutsideDomain> {
        if reachability != Reachability::Unreachable {
            self.join(state, reachability, abi_info)?;
        } else if self.predecessors == Predecessors::Unknown {
            // Only back edges lead here.
            self.state = claim.with_stack_addresses_of(state);
            self.predecessors = Predecessors::Assumed;
        }
        self.state.restrict_to(claim);
        self.is_verified = true;
        self.is_assumed_reachable = !self.has_incoming_edge;
        *state = self.state;
        Ok(if self.is_reached {
            Reachability::Certain
        } else {
            Reachability::Conditional
        })
    }

    /// Joins a state. Returns the precision lost against the state that the code was verified with.
    pub(super) fn join(
        &mut self,
        state: &VerifierState,
        reachability: Reachability,
        abi_info: &AbiInfo,
    ) -> Result<PrecisionLoss, OutsideDomain> {
        self.has_incoming_edge = true;
        self.is_reached |= reachability == Reachability::Certain;
        let ways = core::mem::replace(&mut self.predecessors, Predecessors::Known);
        if ways != Predecessors::Unknown && state.implies(&self.state) {
            return Ok(PrecisionLoss::None);
        }
        let lack = if self.is_verified {
            state.precision_loss(&self.state, abi_info)
        } else {
            PrecisionLoss::None
        };
        match ways {
            Predecessors::Known => self.state.join(state, abi_info)?,
            Predecessors::Assumed | Predecessors::Unknown => self.state = *state,
        }
        Ok(lack)
    }
}

/// A range of code.
#[derive(Debug, Clone)]
pub(super) struct UnitRange {
    pub(super) range: Range<u64>,
    /// Index of its first byte among those of all ranges.
    pub(super) byte_offset: usize,
    /// End of the verified part.
    pub(super) verified_until: u64,
}

/// The join points of a unit.
#[derive(Debug, Default)]
pub(super) struct JoinPoints {
    points: Vec<JoinPoint>,
    ranges: Vec<UnitRange>,
    /// For each byte of the ranges, in order: its join point, plus 1.
    point_by_byte: Vec<u32>,
}

impl JoinPoints {
    /// Clears all, keeps the memory, and sets the ranges of the unit, ascending.
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

    /// Starts another pass with the states learned so far.
    pub(super) fn start_pass(&mut self) {
        for label in &mut self.points {
            (label.has_incoming_edge, label.is_verified) = (false, false);
        }
        for place in &mut self.ranges {
            place.verified_until = place.range.start;
        }
    }

    /// Whether all verified join points are certainly reached, and none is inside an instruction.
    pub(super) fn are_verified(&self) -> bool {
        self.points.iter().all(|label| {
            let is_met = label.is_verified || label.predecessors != Predecessors::Known;
            is_met && (label.is_reached || !label.is_assumed_reachable)
        })
    }

    /// Number of join points that are certainly reached.
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

    /// The range that contains an address.
    pub(super) fn range_containing(&self, address: u64) -> Option<&UnitRange> {
        let behind = self
            .ranges
            .partition_point(|place| place.range.start <= address);
        let place = self.ranges.get(behind.checked_sub(1)?)?;
        (address < place.range.end).then_some(place)
    }

    /// Adds a join point at an address, if it is in the ranges.
    pub(super) fn add(&mut self, address: u64) {
        if let Some(place) = self.range_containing(address).cloned() {
            let _ = self.get_or_insert(&place, address);
        }
    }

    /// The join point at an address of a range, created if missing, and whether code there was
    /// already verified without it.
    #[inline]
    pub(super) fn get_or_insert(
        &mut self,
        range: &UnitRange,
        address: u64,
    ) -> Option<(&mut JoinPoint, bool)> {
        let offset = usize::try_from(address - range.range.start).ok()?;
        let number = self.point_by_byte.get_mut(range.byte_offset + offset)?;
        let is_new = *number == 0;
        if is_new {
            self.points.push(JoinPoint::NEW);
            *number = u32::try_from(self.points.len()).ok()?;
        }
        let label = self.points.get_mut(*number as usize - 1)?;
        Some((label, is_new && address < range.verified_until))
    }

    /// Whether a byte is a join point, by its index among all.
    #[inline]
    pub(super) fn is_join_point(&self, byte: usize) -> bool {
        self.point_by_byte
            .get(byte)
            .is_some_and(|number| *number != 0)
    }

    /// The join point of a byte, by its index among all.
    #[inline]
    pub(super) fn get_mut(&mut self, byte: usize) -> Option<&mut JoinPoint> {
        let number = self.point_by_byte.get(byte)?.checked_sub(1)?;
        self.points.get_mut(number as usize)
    }

    /// Notes that all code of the range that begins at `start` is verified.
    pub(super) fn finish(&mut self, start: u64) {
        let place = self
            .ranges
            .partition_point(|place| place.range.start < start);
        if let Some(place) = self.ranges.get_mut(place) {
            place.verified_until = place.range.end;
        }
    }
}
