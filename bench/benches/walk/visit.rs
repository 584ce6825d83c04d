//! One descent, and the walks at its end: timed, then compared with the functions' own records.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::peers::PeerWalker;
use crate::sys::{DescentPath, minor_faults, ticks};

/// The most frames of the walker itself and of the benchmark, before those of the workload.
const OWN_FRAMES: usize = 24;

/// Room for them if a walk should not go far beyond the workload.
const FEW_OWN_FRAMES: usize = 8;

/// The conversion of ticks to time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    nanoseconds: f64,
    /// The duration of reading the counter twice, in ticks.
    overhead: u64,
}

impl Clock {
    /// Compares the counter with the system's clock for a moment.
    pub(crate) fn calibrate() -> Self {
        let (start, from) = (Instant::now(), ticks());
        while start.elapsed() < Duration::from_millis(50) {}
        let counted = ticks() - from;
        let nanoseconds = start.elapsed().as_nanos() as f64 / counted as f64;
        let empty = (0..1000).map(|_| {
            let from = ticks();
            ticks() - from
        });
        Clock {
            nanoseconds,
            overhead: empty.min().unwrap_or(0),
        }
    }

    /// The nanoseconds between two readings of the counter.
    pub(crate) fn nanoseconds(self, ticks: u64) -> f64 {
        ticks.saturating_sub(self.overhead) as f64 * self.nanoseconds
    }
}

/// A walker and its last output.
pub(crate) struct Visitor {
    pub(crate) walker: Box<dyn PeerWalker>,
    clock: Clock,
    out: Vec<u64>,
    /// Frames before those of the workload: known after the first visit.
    own: Option<usize>,
}

/// The number of walks at the end of a descent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleSize {
    /// Samples.
    pub(crate) samples: usize,
    /// Walks per sample.
    pub(crate) walks: usize,
}

/// One walk after a descent.
pub(crate) const ONCE: SampleSize = SampleSize {
    samples: 1,
    walks: 1,
};

/// One sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WalkSample {
    /// Nanoseconds of one walk.
    pub(crate) walk: f64,
    /// Nanoseconds of each of its frames.
    pub(crate) frame: f64,
}

impl Visitor {
    pub(crate) fn new(walker: Box<dyn PeerWalker>, clock: Clock) -> Self {
        Visitor {
            walker,
            clock,
            out: Vec::new(),
            own: None,
        }
    }

    /// Descends along a path, walks there, and compares the last walk's output with the return
    /// addresses that the functions recorded.
    ///
    /// # Errors
    ///
    /// They differ.
    pub(crate) fn visit(
        &mut self,
        path: &mut DescentPath,
        sample_size: SampleSize,
        samples: &mut Vec<WalkSample>,
    ) -> anyhow::Result<()> {
        self.out.clear();
        let room = path.depth() + self.own.unwrap_or(OWN_FRAMES);
        self.out.resize(room, 0);
        samples.reserve(sample_size.samples);
        let mut count = 0;
        path.descend(&mut |stack| {
            for _ in 0..sample_size.samples {
                let from = ticks();
                for _ in 0..sample_size.walks {
                    count = black_box(self.walker.walk(stack, black_box(&mut self.out)));
                }
                let walk = self.clock.nanoseconds(ticks() - from) / sample_size.walks as f64;
                let frame = walk / count.max(1) as f64;
                samples.push(WalkSample { walk, frame });
            }
        })?;
        self.out.truncate(count);
        self.own = Some(self.check(path)?);
        Ok(())
    }

    /// The first visit: determines the number of the walker's own frames.
    pub(crate) fn introduce(&mut self, path: &mut DescentPath) -> anyhow::Result<()> {
        self.own = None;
        self.visit(path, ONCE, &mut Vec::new())
    }

    /// The very first walk, when not even the number of the walker's own frames is known: the
    /// sample, and its page faults.
    pub(crate) fn first(&mut self, path: &mut DescentPath) -> anyhow::Result<(WalkSample, i64)> {
        self.out.resize(path.depth() + FEW_OWN_FRAMES, 0);
        let mut result = None;
        path.descend(&mut |stack| {
            let faults = minor_faults();
            let from = ticks();
            let count = black_box(self.walker.walk(stack, black_box(&mut self.out)));
            let walk = self.clock.nanoseconds(ticks() - from);
            result = Some((count, walk, faults, minor_faults()));
        })?;
        let (count, walk, before, after) = result.context("no walk")?;
        self.out.truncate(count);
        self.own = Some(self.check(path)?);
        let frame = walk / count.max(1) as f64;
        Ok((WalkSample { walk, frame }, after? - before?))
    }

    /// The number of its own frames that the walker found first.
    fn check(&self, path: &DescentPath) -> anyhow::Result<usize> {
        let expected: Vec<u64> = path.return_addresses().collect();
        let innermost = expected.first();
        let own = self
            .out
            .iter()
            .position(|address| Some(address) == innermost);
        let Some(own) = own else {
            let seen = &self.out[..self.out.len().min(OWN_FRAMES)];
            anyhow::bail!("the innermost frame's caller {innermost:x?} is not among {seen:x?}");
        };
        let seen = &self.out[own..];
        let differs = |frame: &usize| seen.get(*frame) != expected.get(*frame);
        if let Some(frame) = (0..expected.len()).find(differs) {
            let expected = expected[frame];
            match seen.get(frame) {
                Some(seen) => {
                    anyhow::bail!("return address {frame} is {expected:#x}, not {seen:#x}")
                }
                None => anyhow::bail!("the walk ends before return address {frame}, {expected:#x}"),
            }
        }
        Ok(own)
    }
}
