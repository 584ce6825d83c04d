//! The ranges of a unit's code, and their instructions.

use core::ops::Range;

use super::as_u32;
use crate::arch::Lifter;
use crate::code::{InsnId, LiftedCode};
use crate::program::{CodeExtent, CodeImage, ExtentKind};

/// A range of a unit's code.
#[derive(Debug, Clone)]
pub(super) struct LiftedRange {
    pub(super) range: Range<u64>,
    /// Its instructions.
    pub(super) insns: Range<u32>,
    /// Its part of [`Ranges::starts`], if it has one.
    starts: Range<usize>,
    /// How control enters it.
    pub(super) kind: ExtentKind,
}

/// All ranges of a unit.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    ranges: Vec<LiftedRange>,
    /// For each byte of the ranges, in order: the instruction that starts there, plus 1.
    starts: Vec<u32>,
}

impl Ranges {
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
        self.starts.clear();
    }

    /// Decodes one more range, each piece from its start on.
    pub(super) fn decode(
        &mut self,
        extent: CodeExtent,
        pieces: impl Iterator<Item = Range<u64>>,
        image: &(impl CodeImage + ?Sized),
        lifter: &mut Lifter,
        code: &mut LiftedCode,
    ) {
        let range = extent.start..extent.end;
        let (first, begin) = (as_u32(code.len()), self.starts.len());
        if let Some(bytes) = image.bytes(range.clone()) {
            for piece in pieces {
                let at = |address: u64| usize::try_from(address - range.start).ok();
                let place = at(piece.start).zip(at(piece.end));
                let part = place.and_then(|(start, end)| bytes.get(start..end));
                lifter.lift(part.unwrap_or_default(), piece.start, code);
            }
            self.starts.resize(begin + bytes.len(), 0);
        }
        let insns = first..as_u32(code.len());
        let starts = self.starts.get_mut(begin..).unwrap_or_default();
        for (number, address) in (first + 1..).zip(code.starts(insns.clone())) {
            let at = usize::try_from(address - range.start).ok();
            if let Some(start) = at.and_then(|at| starts.get_mut(at)) {
                *start = number;
            }
        }
        self.ranges.push(LiftedRange {
            range,
            insns,
            starts: begin..self.starts.len(),
            kind: extent.kind,
        });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LiftedRange> {
        self.ranges.iter()
    }

    pub(super) fn get(&self, place: usize) -> Option<&LiftedRange> {
        self.ranges.get(place)
    }

    /// The part of [`Ranges::starts`] for the last range that begins at or before an address. The
    /// second result is the address's index in it, if the range contains it.
    fn starts_near(&self, address: u64) -> Option<(&[u32], usize)> {
        let behind = (self.ranges).partition_point(|lifted| lifted.range.start <= address);
        let lifted = self.ranges.get(behind.checked_sub(1)?)?;
        let at = usize::try_from(address - lifted.range.start).ok()?;
        Some((self.starts.get(lifted.starts.clone())?, at))
    }

    /// The instruction that starts at an address.
    pub(super) fn insn_at(&self, address: u64) -> Option<InsnId> {
        let (starts, at) = self.starts_near(address)?;
        Some(InsnId(starts.get(at)?.checked_sub(1)?))
    }

    /// The instruction with an address in its middle.
    pub(super) fn insn_across(&self, address: u64, code: &LiftedCode) -> Option<InsnId> {
        let (starts, at) = self.starts_near(address)?;
        let starts = starts.get(..=at)?;
        let number = starts.iter().rev().find(|number| **number != 0)?;
        let insn = InsnId(number.checked_sub(1)?);
        let range = code.range(insn);
        (range.start < address && address < range.end).then_some(insn)
    }

    /// The range that contains an instruction.
    pub(super) fn range_of(&self, insn: InsnId) -> Option<&LiftedRange> {
        let behind = (self.ranges).partition_point(|lifted| lifted.insns.start <= insn.0);
        self.ranges.get(behind.checked_sub(1)?)
    }

    /// Whether a range ends at an address.
    pub(super) fn has_end(&self, address: u64) -> bool {
        let place = (self.ranges).partition_point(|lifted| lifted.range.end < address);
        let range = self.ranges.get(place);
        range.is_some_and(|lifted| lifted.range.end == address)
    }
}
