//! Compares walks in the kernel with walks of the copies of the same samples.

use std::collections::HashMap;
use std::fmt::Write as _;

use unspool_profile::{FrameEvidence, RawFrame, StackEnd};

/// The most differences that are described.
const MAX_DESCRIBED: usize = 5;

/// The results of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WalkComparison {
    /// The number of samples that both have walked.
    pub compared: u64,
    /// The number of samples with different frames.
    pub different: u64,
    /// The frames of some of these.
    pub described: Vec<String>,
}

/// Compares walks.
#[derive(Debug, Default)]
pub(crate) struct WalkComparer {
    /// The last copy of each processor: its time, frames and end.
    copies: HashMap<u32, (u64, Vec<RawFrame>, StackEnd)>,
    pub(crate) result: WalkComparison,
}

impl WalkComparer {
    /// A copy was walked. The kernel's walk of the same sample is next on this processor.
    pub(crate) fn note_copy(&mut self, cpu: u32, time: u64, frames: &[RawFrame], end: StackEnd) {
        self.copies.insert(cpu, (time, frames.to_vec(), end));
    }

    /// Compares a walk to the stack's root with the copy of its sample. That may end earlier.
    pub(crate) fn compare(&mut self, cpu: u32, time: u64, walked: &[RawFrame]) {
        let Some((_, copied, end)) = self.copies.remove(&cpu).filter(|copy| copy.0 == time) else {
            return;
        };
        self.result.compared += 1;
        // Guesses, and frames from elsewhere, are no opinion on the walk's.
        let is_read = |frame: &&RawFrame| {
            use FrameEvidence::{Cfi, Kernel, Registers};
            matches!(frame.evidence, Cfi | Kernel | Registers)
        };
        let read = copied.iter().take_while(is_read);
        let is_whole = end.is_root() && copied.iter().all(|frame| is_read(&frame));
        let is_longer = walked.len() > read.clone().count();
        let is_same = read.zip(walked).all(|(one, other)| one.code == other.code);
        if is_same && (is_longer || walked.len() == copied.len()) && !(is_whole && is_longer) {
            return;
        }
        self.result.different += 1;
        if self.result.described.len() < MAX_DESCRIBED {
            let mut text = format!(
                "walked {} frames, copied {}: {end:?}",
                walked.len(),
                copied.len()
            );
            for number in 0..walked.len().max(copied.len()) {
                let (walked, copied) = (walked.get(number), copied.get(number));
                let _ = write!(
                    text,
                    "\n  {:x?} {copied:x?}",
                    walked.map(|frame| frame.code)
                );
            }
            self.result.described.push(text);
        }
    }
}
