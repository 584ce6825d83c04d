//! The places that control comes to otherwise than from the instruction before.

use core::ops::Range;

use super::frame::{Beyond, Frame, Lack};
use crate::arch::Facts;

/// Such a place.
#[derive(Debug, Clone)]
pub(super) struct Label {
    /// What holds there, once that is known.
    frame: Frame,
    /// What is known of the ways there.
    ways: Ways,
    /// Whether a jump there was met in this sweep.
    is_met: bool,
    /// Whether an instruction begins there that was looked at.
    is_done: bool,
    /// Whether control comes there for certain. That depends on the code alone, and stays known from sweep to sweep.
    is_reached: bool,
    /// Whether nothing was known to lead there when it was looked at.
    is_doubtful: bool,
}

/// What is known of the ways to a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ways {
    /// Nothing.
    Unknown,
    /// Nothing, and what holds there was assumed.
    Assumed,
    /// There is one, at least.
    Known,
}

/// Whether control comes to an instruction from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comes {
    Surely,
    /// If it comes to a label before.
    Perhaps,
    Never,
}

impl Label {
    const NEW: Label = Label {
        frame: Frame::UNKNOWN,
        ways: Ways::Unknown,
        is_met: false,
        is_done: false,
        is_reached: false,
        is_doubtful: false,
    };

    /// Comes to it from the instruction before with a frame, if at all; what is claimed to hold there, and is so on all ways, is the
    /// frame then. `None` if frames cannot meet.
    pub(super) fn pass(
        &mut self,
        frame: &mut Frame,
        comes: Comes,
        claim: &Frame,
        facts: &Facts,
    ) -> Option<Comes> {
        if comes != Comes::Never {
            self.take_in(frame, comes, facts).ok()?;
        } else if self.ways == Ways::Unknown {
            // Only jumps from behind lead there.
            self.frame = claim.or_stack_of(frame);
            self.ways = Ways::Assumed;
        }
        self.frame.keep(claim);
        self.is_done = true;
        self.is_doubtful = !self.is_met;
        *frame = self.frame;
        Some(match self.is_reached {
            true => Comes::Surely,
            false => Comes::Perhaps,
        })
    }

    /// Lets a frame arrive; what does not hold then that held for certain when it was looked at.
    pub(super) fn take_in(
        &mut self,
        frame: &Frame,
        comes: Comes,
        facts: &Facts,
    ) -> Result<Lack, Beyond> {
        self.is_met = true;
        self.is_reached |= comes == Comes::Surely;
        let ways = core::mem::replace(&mut self.ways, Ways::Known);
        if ways != Ways::Unknown && frame.has(&self.frame) {
            return Ok(Lack::Nothing);
        }
        let lack = match self.is_done {
            true => frame.lacks(&self.frame, facts),
            false => Lack::Nothing,
        };
        match ways {
            Ways::Known => self.frame.meet(frame, facts)?,
            Ways::Assumed | Ways::Unknown => self.frame = *frame,
        }
        Ok(lack)
    }
}

/// A range of code.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) range: Range<u64>,
    /// Where its bytes are among those of all.
    pub(super) first: usize,
    /// How far it was looked at.
    pub(super) done: u64,
}

/// The labels of a unit.
#[derive(Debug, Default)]
pub(super) struct Labels {
    labels: Vec<Label>,
    places: Vec<Place>,
    /// For each byte of the ranges, one range after another, the label that is there, plus 1.
    at: Vec<u32>,
}

impl Labels {
    /// Forgets all but the room, and takes in the ranges that labels may be in, ascending.
    pub(super) fn begin(&mut self, ranges: impl Iterator<Item = Range<u64>>) {
        self.labels.clear();
        self.places.clear();
        self.at.clear();
        let mut first = 0;
        for range in ranges {
            let length = usize::try_from(range.end - range.start).unwrap_or(0);
            let done = range.start;
            self.places.push(Place { range, first, done });
            first += length;
        }
        self.at.resize(first, 0);
    }

    /// Has all be looked at again, with what was learned.
    pub(super) fn again(&mut self) {
        for label in &mut self.labels {
            (label.is_met, label.is_done) = (false, false);
        }
        for place in &mut self.places {
            place.done = place.range.start;
        }
    }

    /// Whether it is certain that each that was looked at is come to, and none is inside an instruction.
    pub(super) fn are_sound(&self) -> bool {
        self.labels.iter().all(|label| {
            let is_met = label.is_done || label.ways != Ways::Known;
            is_met && (label.is_reached || !label.is_doubtful)
        })
    }

    /// How many are come to for certain.
    pub(super) fn reached(&self) -> usize {
        let reached = self.labels.iter().filter(|label| label.is_reached);
        reached.count()
    }

    /// Whether an address is in the ranges.
    pub(super) fn contains(&self, address: u64) -> bool {
        self.place(address).is_some()
    }

    /// Whether a range ends at an address.
    pub(super) fn has_end(&self, address: u64) -> bool {
        let place = self
            .places
            .partition_point(|place| place.range.end < address);
        let place = self.places.get(place);
        place.is_some_and(|place| place.range.end == address)
    }

    /// The range that has an address.
    pub(super) fn place(&self, address: u64) -> Option<&Place> {
        let behind = self
            .places
            .partition_point(|place| place.range.start <= address);
        let place = self.places.get(behind.checked_sub(1)?)?;
        (address < place.range.end).then_some(place)
    }

    /// Has an address be one, if it is in the ranges.
    pub(super) fn add(&mut self, address: u64) {
        if let Some(place) = self.place(address).cloned() {
            let _ = self.need(&place, address);
        }
    }

    /// The label at an address of a range, which is one from now on, and whether code there was looked at already without knowing that.
    #[inline]
    pub(super) fn need(&mut self, place: &Place, address: u64) -> Option<(&mut Label, bool)> {
        let offset = usize::try_from(address - place.range.start).ok()?;
        let number = self.at.get_mut(place.first + offset)?;
        let is_new = *number == 0;
        if is_new {
            self.labels.push(Label::NEW);
            *number = u32::try_from(self.labels.len()).ok()?;
        }
        let label = self.labels.get_mut(*number as usize - 1)?;
        Some((label, is_new && address < place.done))
    }

    /// Whether a byte is one, by its place among all.
    #[inline]
    pub(super) fn has(&self, byte: usize) -> bool {
        self.at.get(byte).is_some_and(|number| *number != 0)
    }

    /// The label of a byte, by its place among all.
    #[inline]
    pub(super) fn of(&mut self, byte: usize) -> Option<&mut Label> {
        let number = self.at.get(byte)?.checked_sub(1)?;
        self.labels.get_mut(number as usize)
    }

    /// Takes in that all code of a range was looked at that begins at `start`.
    pub(super) fn finish(&mut self, start: u64) {
        let place = self
            .places
            .partition_point(|place| place.range.start < start);
        if let Some(place) = self.places.get_mut(place) {
            place.done = place.range.end;
        }
    }
}
