//! Stacks of a real program: Python's interpreter, interrupted by a timer, and walked in the signal
//! handler by all peers in turn.
//!
//! Frames are those of the interpreter and the C library as Debian builds them, below a signal
//! frame; `_PyEval_EvalFrameDefault` alone has hundreds of rows. Samples are taken only where the
//! interpreter's own code is interrupted: some of the peers allocate, and must not interrupt
//! `malloc`.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::ops::Range;
use std::path::Path;

use anyhow::Context as _;

use crate::OpenedPeer;
use crate::peers::PeerWalker;
use crate::report::{Figures, WalkError};
use crate::sys::{Library, OwnStack, Python, UnwindBacktrace, sample, ticks};
use crate::visit::{Clock, WalkSample};
use crate::workload::Build;

/// The name of the scenario.
pub(crate) const NAME: &str = "python";

/// A mixed workload, in which C code calls Python code and the reverse.
const SOURCE: &str = r#"
import sys
if 'before' not in globals():
    before = set(sys.modules)
for name in set(sys.modules) - before:
    del sys.modules[name]
import argparse, ast, collections, configparser, difflib, functools, inspect, json, re, statistics
import textwrap, unittest

text = inspect.getsource(argparse)
class Nested:
    def __init__(self, depth):
        self.inner = Nested(depth - 1) if depth else None
    def __repr__(self):
        return f'Nested({self.inner!r})'
    def __eq__(self, other):
        return [self.inner] == [other.inner]
    def __hash__(self):
        return hash((self.inner, 1))
for depth in range(1, 60, 3):
    nested = Nested(depth)
    repr(nested), nested == Nested(depth), hash(nested)
tree = ast.parse(text)
ast.dump(tree)
compile(tree, 'text', 'exec')
words = re.findall(r'\w+', text)
re.sub(r'\w+', lambda match: match[0].upper(), text)
sorted(words[:3000], key=functools.cmp_to_key(lambda a, b: (a > b) - (a < b)))
collections.Counter(map(str.lower, filter(lambda word: len(word) > 3, words)))
json.loads(json.dumps({word: [word, {'n': n}] for n, word in enumerate(words)}, default=str))
json.dumps([Nested(20)] * 50, default=repr, indent=1)
list(difflib.unified_diff(text.splitlines()[:300], text.lower().splitlines()[:300]))
textwrap.fill(text[:20000])
"#;

/// More frames than any stack has, the samples of a round, and the addresses in all of them.
const MAX_FRAMES: usize = 4096;
const SAMPLES: usize = 1 << 16;
const ADDRESSES: usize = 1 << 23;

/// The interpreter, after running the workload once.
pub(crate) struct PythonProgram {
    python: Python,
    /// The addresses of its code.
    code: Range<u64>,
    /// The addresses of this program's code.
    own: Range<u64>,
}

/// A peer and its result. It allocates nothing while samples are taken.
struct SampledPeer {
    walker: Box<dyn PeerWalker>,
    out: Vec<u64>,
    samples: Vec<WalkSample>,
    wrong: Option<WalkDifference>,
}

/// Where two walks differ.
#[derive(Debug, Clone, Copy)]
struct WalkDifference {
    /// The number of equal frames, counted from the outermost.
    same: usize,
    seen: Option<u64>,
    expected: Option<u64>,
}

/// The walked stacks: the number of addresses in each.
struct WalkedStacks {
    addresses: Vec<u64>,
    lengths: Vec<usize>,
}

impl PythonProgram {
    /// Starts it: must be called before peers are opened, which look for loaded files.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let python = Python::start()?;
        python.run(SOURCE)?;
        let own = std::env::current_exe()?;
        let own = own.to_str().context("the name of this program")?;
        Ok(PythonProgram {
            python,
            code: code_of("/libpython3")?,
            own: code_of(own)?,
        })
    }

    /// All peers, on the same samples; the first round is not counted. Prints statistics of the
    /// stacks.
    pub(crate) fn compare(
        &self,
        peers: &[OpenedPeer],
        rounds: u64,
        clock: Clock,
    ) -> anyhow::Result<(Vec<Figures>, Vec<WalkError>)> {
        let reference = UnwindBacktrace::from_library(Library::open(Path::new("libgcc_s.so.1"))?)?;
        // No peer can walk it by frame pointers.
        let opened = || {
            peers
                .iter()
                .filter(|peer| peer.build != Build::FramePointers)
        };
        let mut all: Vec<SampledPeer> = opened().map(SampledPeer::new).collect();
        let mut seen = WalkedStacks::new();
        let mut frames = Vec::with_capacity(MAX_FRAMES);
        for round in 0..=rounds {
            let mut number = 0;
            let mut each = |stack: &OwnStack| {
                number += 1;
                walk(&mut frames, |out| reference.walk(out));
                let theirs = |address: &u64| !self.own.contains(address);
                let first = frames.iter().position(theirs).unwrap_or(frames.len());
                let expected = &frames[first..];
                let is_counted = round > 0 && seen.add(expected);
                // They alternate as the first, which finds less of the stack in the caches.
                let turn = number % all.len().max(1);
                let (later, sooner) = all.split_at_mut(turn);
                for peer in sooner.iter_mut().chain(later) {
                    peer.visit(stack, expected, clock, is_counted);
                }
            };
            sample(self.code.clone(), &mut each, || self.python.run(SOURCE))??;
        }
        seen.print();
        let (mut figures, mut wrong) = (Vec::new(), Vec::new());
        for (peer, opened) in all.into_iter().zip(opened()) {
            match peer.wrong {
                None => figures.push(Figures::from_samples(NAME, opened.name, &peer.samples)),
                Some(difference) => wrong.push((opened.name, difference.to_string())),
            }
        }
        Ok((figures, wrong))
    }
}

/// The addresses from the first to the last executable mapping of a file.
fn code_of(name: &str) -> anyhow::Result<Range<u64>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let mut code: Option<Range<u64>> = None;
    for line in maps
        .lines()
        .filter(|line| line.contains(name) && line.contains(" r-xp "))
    {
        let (range, _) = line.split_once(' ').context("a mapping")?;
        let (start, end) = range.split_once('-').context("a mapping")?;
        let (start, end) = (
            u64::from_str_radix(start, 16)?,
            u64::from_str_radix(end, 16)?,
        );
        code = Some(code.map_or(start, |code| code.start)..end);
    }
    code.with_context(|| format!("no code of {name}"))
}

impl SampledPeer {
    fn new(opened: &OpenedPeer) -> Self {
        SampledPeer {
            walker: (opened.make)(),
            out: Vec::with_capacity(MAX_FRAMES),
            samples: Vec::with_capacity(SAMPLES),
            wrong: None,
        }
    }

    fn visit(&mut self, stack: &OwnStack, expected: &[u64], clock: Clock, is_counted: bool) {
        if self.wrong.is_some() {
            return;
        }
        let mut time = 0.0;
        walk(&mut self.out, |out| {
            let from = ticks();
            let count = black_box(self.walker.walk(stack, black_box(out)));
            time = clock.nanoseconds(ticks() - from);
            count
        });
        self.wrong = WalkDifference::find(&self.out, expected);
        if is_counted {
            let frame = time / self.out.len().max(1) as f64;
            self.samples.push(WalkSample { walk: time, frame });
        }
    }
}

/// Runs a walker; a return address of zero at the end, as from some walks, is removed.
fn walk(out: &mut Vec<u64>, walk: impl FnOnce(&mut [u64]) -> usize) {
    out.clear();
    out.resize(MAX_FRAMES, 0);
    let count = walk(out);
    out.truncate(count);
    while out.last() == Some(&0) {
        out.pop();
    }
}

impl WalkDifference {
    /// A walk starts in the walker, and should end with the expected frames.
    fn find(seen: &[u64], expected: &[u64]) -> Option<Self> {
        let pairs = seen.iter().rev().zip(expected.iter().rev());
        let same = pairs
            .take_while(|(seen, expected)| seen == expected)
            .count();
        let at = |frames: &[u64]| frames.iter().rev().nth(same).copied();
        (same < expected.len()).then(|| WalkDifference {
            same,
            seen: at(seen),
            expected: at(expected),
        })
    }
}

impl std::fmt::Display for WalkDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let WalkDifference {
            same,
            seen,
            expected,
        } = self;
        write!(
            f,
            "after {same} frames from the outermost, {seen:x?} where there is {expected:x?}"
        )
    }
}

impl WalkedStacks {
    fn new() -> Self {
        WalkedStacks {
            addresses: Vec::with_capacity(ADDRESSES),
            lengths: Vec::with_capacity(SAMPLES),
        }
    }

    /// Whether there was room for another stack.
    fn add(&mut self, stack: &[u64]) -> bool {
        let has_room =
            self.lengths.len() < SAMPLES && self.addresses.len() + MAX_FRAMES < ADDRESSES;
        if has_room {
            self.addresses.extend_from_slice(stack);
            self.lengths.push(stack.len());
        }
        has_room
    }

    fn print(&self) {
        let mut rest = &self.addresses[..];
        let mut different = BTreeSet::new();
        let mut points: BTreeSet<u64> = BTreeSet::new();
        for length in &self.lengths {
            let (stack, others) = rest.split_at(*length);
            different.insert(stack);
            points.extend(stack.get(1)); // The frame after the signal trampoline.
            rest = others;
        }
        let addresses: BTreeSet<u64> = self.addresses.iter().copied().collect();
        println!(
            "\n{NAME}: {} samples of Python's interpreter at work, at {} places; {} different stacks, of {:.0} \
             frames,\nand {} different addresses in them",
            self.lengths.len(),
            points.len(),
            different.len(),
            self.addresses.len() as f64 / self.lengths.len().max(1) as f64,
            addresses.len(),
        );
    }
}
