//! The walked stacks, and how they change between walks.

use unspool_bench::Random;

use crate::sys::{CallInstruction, DescentPath, WorkFunctions};
use crate::visit::{ONCE, SampleSize, Visitor, WalkSample};
use crate::workload::{realigned_sites, sites};

/// The stacks of a round in which each is walked once.
const STACKS: usize = 400;

/// How often each call site is visited before: growing caches settle after a few times (libunwind's
/// are cleared whenever they grow).
const WARM_UPS: usize = 8;

/// The samples of a round in which one stack is walked repeatedly.
const SAMPLES: usize = 200;

/// The shortest duration of each of these in nanoseconds, so that reading the clock does not
/// matter, and the most walks for it.
const MIN_SAMPLE_NS: f64 = 4000.0;
const MAX_WALKS: usize = 16;

/// One kind of stacks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Frames of the workload.
    depth: usize,
    /// The number of different call sites in them, or to choose from.
    sites: usize,
    changes: Changes,
}

/// The difference from one walk to the next.
#[derive(Debug, Clone, Copy)]
enum Changes {
    Nothing,
    /// The innermost frames, 1 to all but one, usually few: about 8 on average.
    Innermost,
    All,
    /// All, and every 16th frame has an expression as its CFA.
    AllRealigned,
}

/// All, except for the cold start and the two threads.
pub(crate) const ALL: [Scenario; 8] = [
    scenario(
        "hot-8",
        64,
        8,
        Changes::Nothing,
        "one stack of 8 call sites, again and again",
    ),
    scenario(
        "hot",
        64,
        64,
        Changes::Nothing,
        "one stack of 64 call sites, again and again",
    ),
    scenario(
        "shallow",
        8,
        8,
        Changes::Nothing,
        "one stack of 8 frames, again and again",
    ),
    scenario(
        "deep",
        500,
        500,
        Changes::Nothing,
        "one stack of 500 frames, again and again",
    ),
    scenario(
        "churn",
        64,
        2048,
        Changes::Innermost,
        "the innermost 1 to 63 frames change, mean 8",
    ),
    scenario(
        "2k",
        64,
        2048,
        Changes::All,
        "random stacks over 2,048 call sites, one walk each",
    ),
    scenario(
        "32k",
        64,
        32_768,
        Changes::All,
        "random stacks over 32,768 call sites, one walk each",
    ),
    scenario(
        "realign",
        64,
        2048,
        Changes::AllRealigned,
        "as 2k; every 16th CFA is an expression",
    ),
];

const fn scenario(
    name: &'static str,
    depth: usize,
    sites: usize,
    changes: Changes,
    about: &'static str,
) -> Scenario {
    Scenario {
        name,
        about,
        depth,
        sites,
        changes,
    }
}

impl Scenario {
    /// One round of samples; the same stacks for every peer. The first, number 0, warms up: if
    /// stacks change, it visits each call site and returns nothing.
    ///
    /// # Errors
    ///
    /// A walk differs from the functions' own records.
    pub(crate) fn round(
        &self,
        round: u64,
        functions: &WorkFunctions,
        visitor: &mut Visitor,
    ) -> anyhow::Result<Vec<WalkSample>> {
        let mut random = Random::new(0x5eed_0001 + 2 * self.sites as u64);
        let pool = sites(self.sites, &mut random);
        let rare = realigned_sites(self.sites / 16, &mut random);
        // Different stacks in each round, over the same call sites.
        let mut random = Random::new(0xca11_5eed + (round << 8));
        let mut samples = Vec::new();
        let mut stack = self.stack(&pool, &mut random);
        visitor.introduce(&mut DescentPath::new(functions, &stack)?)?;
        if let Changes::Nothing = self.changes {
            let mut path = DescentPath::new(functions, &stack)?;
            let warm_up = SampleSize {
                samples: MAX_WALKS,
                walks: 1,
            };
            visitor.visit(&mut path, warm_up, &mut samples)?;
            let walk = samples.last().map_or(0.0, |sample| sample.walk);
            let enough = |walks: &usize| *walks as f64 * walk > MIN_SAMPLE_NS;
            let times = SampleSize {
                samples: SAMPLES,
                walks: (1..MAX_WALKS).find(enough).unwrap_or(MAX_WALKS),
            };
            samples.clear();
            visitor.visit(&mut path, times, &mut samples)?;
            return Ok(samples);
        }
        if round == 0 {
            self.warm_up(functions, &pool, &rare, visitor)?;
            return Ok(samples);
        }
        for _ in 0..STACKS {
            self.change(&mut stack, &pool, &rare, &mut random);
            visitor.visit(
                &mut DescentPath::new(functions, &stack)?,
                ONCE,
                &mut samples,
            )?;
        }
        Ok(samples)
    }

    /// Makes the walker visit each call site a few times.
    fn warm_up(
        &self,
        functions: &WorkFunctions,
        pool: &[CallInstruction],
        rare: &[CallInstruction],
        visitor: &mut Visitor,
    ) -> anyhow::Result<()> {
        let rare = match self.changes {
            Changes::AllRealigned => rare,
            _ => &[],
        };
        for _ in 0..WARM_UPS {
            for stack in pool.chunks(self.depth).chain(rare.chunks(self.depth)) {
                visitor.visit(
                    &mut DescentPath::new(functions, stack)?,
                    ONCE,
                    &mut Vec::new(),
                )?;
            }
        }
        Ok(())
    }

    /// The call sites of one stack, the outermost first.
    fn stack(&self, pool: &[CallInstruction], random: &mut Random) -> Vec<CallInstruction> {
        match self.changes {
            // Each call site occurs, and equally often.
            Changes::Nothing => pool.iter().copied().cycle().take(self.depth).collect(),
            _ => (0..self.depth).map(|_| any(pool, random)).collect(),
        }
    }

    fn change(
        &self,
        stack: &mut [CallInstruction],
        pool: &[CallInstruction],
        rare: &[CallInstruction],
        random: &mut Random,
    ) {
        let changed = match self.changes {
            Changes::Innermost => innermost(random, self.depth),
            _ => self.depth,
        };
        let kept = stack.len() - changed;
        for (number, site) in stack.iter_mut().enumerate().skip(kept) {
            *site = match self.changes {
                Changes::AllRealigned if number % 16 == 7 => any(rare, random),
                _ => any(pool, random),
            };
        }
    }
}

fn any(pool: &[CallInstruction], random: &mut Random) -> CallInstruction {
    pool[random.below(pool.len())]
}

/// At least one and less than `depth`, with a geometric distribution of mean 8.
fn innermost(random: &mut Random, depth: usize) -> usize {
    let mut count = 1;
    while count < depth - 1 && random.below(8) != 0 {
        count += 1;
    }
    count
}

/// A random stack for a fresh process or a thread.
pub(crate) fn random_stack(
    seed: u64,
    pool: &[CallInstruction],
    depth: usize,
) -> Vec<CallInstruction> {
    let mut random = Random::new(0x00c0_1d00 + (seed << 8));
    random.below(1);
    (0..depth).map(|_| any(pool, &mut random)).collect()
}
