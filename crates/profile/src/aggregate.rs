//! Sums over samples: lists and call trees.

use std::hash::Hash;

use crate::intern::FastMap;
use crate::model::{ProcessId, Profile, ProfileSample, ThreadId};
use crate::names::{FrameCertainty, FunctionId, NamedProfile, StackFunction};
use crate::output::View;
use crate::paths::{PathBranch, PathTree, WeightedPath};
use crate::stacks::StackId;
use crate::wait::{WaitReason, WaitReasons};

/// The weight of each stack of these samples.
fn weights(samples: &[&ProfileSample]) -> FastMap<StackId, u64> {
    sums(samples.iter().map(|sample| (sample.stack, sample.weight)))
}

/// The weight and the number of samples.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StackWeight {
    pub(crate) weight: u64,
    pub(crate) samples: u64,
}

impl StackWeight {
    pub(crate) fn add(&mut self, other: StackWeight) {
        self.weight = self.weight.saturating_add(other.weight);
        self.samples += other.samples;
    }
}

/// The weight and the number of the samples with each frame innermost, by [`FrameId`].
pub(crate) fn innermost_weights(view: &View<'_>) -> Vec<StackWeight> {
    let profile = view.named.profile;
    let mut sums = vec![StackWeight::default(); profile.frames().len()];
    for sample in &view.samples {
        let node = profile.stacks().node(sample.stack);
        if let Some(sum) = node.and_then(|node| sums.get_mut(node.frame.0 as usize)) {
            sum.add(StackWeight {
                weight: sample.weight,
                samples: 1,
            });
        }
    }
    sums
}

/// As [`weights`], with the number of samples.
pub(crate) fn stack_weights(samples: &[&ProfileSample]) -> FastMap<StackId, StackWeight> {
    let mut sums: FastMap<StackId, StackWeight> = FastMap::default();
    for sample in samples {
        sums.entry(sample.stack).or_default().add(StackWeight {
            weight: sample.weight,
            samples: 1,
        });
    }
    sums
}

fn sums<K: Eq + Hash>(weights: impl Iterator<Item = (K, u64)>) -> FastMap<K, u64> {
    let mut sums = FastMap::default();
    for (key, weight) in weights {
        let sum: &mut u64 = sums.entry(key).or_default();
        *sum = sum.saturating_add(weight);
    }
    sums
}

/// The weight of all these samples.
#[must_use]
pub fn total(samples: &[&ProfileSample]) -> u64 {
    samples
        .iter()
        .fold(0, |sum, sample| sum.saturating_add(sample.weight))
}

/// The number of these samples whose innermost frame is in code made at run time that has no name.
#[must_use]
pub fn unnamed(named: &NamedProfile<'_>, samples: &[&ProfileSample]) -> u64 {
    let stacks = named.profile.stacks();
    let is_unnamed = |sample: &&&ProfileSample| {
        let node = stacks.node(sample.stack);
        node.is_some_and(|node| named.is_unnamed(node.frame))
    };
    samples.iter().filter(is_unnamed).count() as u64
}

/// The weight of a function, a module or a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight<K> {
    /// Its key.
    pub key: K,
    /// The weight of samples whose innermost frame is in it.
    pub own: u64,
    /// The weight of samples with any frame in it, each counted once.
    pub total: u64,
    /// The weight of samples in which all these frames are guessed or spliced.
    pub guessed: u64,
}

/// The functions of these samples, the heaviest first: by their own weight, then by the total.
#[must_use]
pub fn functions(named: &NamedProfile<'_>, samples: &[&ProfileSample]) -> Vec<Weight<FunctionId>> {
    let ids = 0..crate::intern::number(named.functions().len());
    list(named, samples, ids.map(FunctionId))
}

/// The modules of these samples, by name, the heaviest first.
#[must_use]
pub fn modules<'n>(
    named: &'n NamedProfile<'_>,
    samples: &[&ProfileSample],
) -> Vec<Weight<&'n str>> {
    let modules = named.functions().iter();
    list(
        named,
        samples,
        modules.map(|function| function.module.as_str()),
    )
}

/// The threads of these samples, the heaviest first.
#[must_use]
pub fn threads(samples: &[&ProfileSample]) -> Vec<Weight<ThreadId>> {
    tasks(samples.iter().map(|sample| (sample.thread, sample.weight)))
}

/// What these samples wait for, the heaviest first. Samples on a CPU do not count.
#[must_use]
pub fn waits(named: &NamedProfile<'_>, samples: &[&ProfileSample]) -> Vec<Weight<WaitReason>> {
    let reasons = WaitReasons::new(named);
    let reason = |sample: &&ProfileSample| Some((reasons.get(sample)?, sample.weight));
    tasks(samples.iter().filter_map(reason))
}

/// The processes of these samples, the heaviest first.
#[must_use]
pub fn processes(profile: &Profile, samples: &[&ProfileSample]) -> Vec<Weight<ProcessId>> {
    tasks(samples.iter().filter_map(|sample| {
        let thread = profile.thread(sample.thread)?;
        Some((thread.process, sample.weight))
    }))
}

/// The weights by a key of whole samples.
fn tasks<K: Copy + Eq + Hash + Ord>(weights: impl Iterator<Item = (K, u64)>) -> Vec<Weight<K>> {
    let weight = |(key, weight)| Weight {
        key,
        own: weight,
        total: weight,
        guessed: 0,
    };
    sorted(sums(weights).into_iter().map(weight).collect())
}

/// A weight, and the state of the last stack with its key.
struct WeightEntry<K> {
    weight: Weight<K>,
    stack: Option<StackId>,
    /// Whether all its frames in that stack are guessed.
    is_guessed: bool,
}

/// The weights by a key of functions, given for each function.
fn list<K: Copy + Eq + Hash + Ord>(
    named: &NamedProfile<'_>,
    samples: &[&ProfileSample],
    keys: impl Iterator<Item = K>,
) -> Vec<Weight<K>> {
    let (keys, mut all) = numbered(keys);
    let mut of_stack = Vec::new();
    for (stack, weight) in weights(samples) {
        let mut innermost = None;
        for step in named.steps(stack) {
            let Some(key) = keys.get(step.function.0 as usize) else {
                continue;
            };
            innermost.get_or_insert(*key);
            let Some(seen) = all.get_mut(*key) else {
                continue;
            };
            if seen.stack.replace(stack) != Some(stack) {
                seen.is_guessed = true;
                of_stack.push(*key);
            }
            seen.is_guessed &= step.mark != FrameCertainty::Certain;
        }
        for key in of_stack.drain(..) {
            if let Some(seen) = all.get_mut(key) {
                seen.count(weight, innermost == Some(key));
            }
        }
    }
    let seen = all.into_iter().filter(|seen| seen.stack.is_some());
    sorted(seen.map(|seen| seen.weight).collect())
}

impl<K> WeightEntry<K> {
    fn new(key: K) -> WeightEntry<K> {
        let weight = Weight {
            key,
            own: 0,
            total: 0,
            guessed: 0,
        };
        WeightEntry {
            weight,
            stack: None,
            is_guessed: false,
        }
    }

    /// Adds the last stack.
    fn count(&mut self, weight: u64, is_innermost: bool) {
        let sums = &mut self.weight;
        sums.total = sums.total.saturating_add(weight);
        if is_innermost {
            sums.own = sums.own.saturating_add(weight);
        }
        if self.is_guessed {
            sums.guessed = sums.guessed.saturating_add(weight);
        }
    }
}

/// The index of each key, and the keys by index.
fn numbered<K: Copy + Eq + Hash>(
    keys: impl Iterator<Item = K>,
) -> (Vec<usize>, Vec<WeightEntry<K>>) {
    let mut ids = FastMap::default();
    let mut all = Vec::new();
    let number = |key| {
        *ids.entry(key).or_insert_with(|| {
            all.push(WeightEntry::new(key));
            all.len() - 1
        })
    };
    (keys.map(number).collect(), all)
}

fn sorted<K: Copy + Ord>(mut weights: Vec<Weight<K>>) -> Vec<Weight<K>> {
    weights.sort_by_key(|w| (std::cmp::Reverse((w.own, w.total)), w.key));
    weights
}

/// A tree of functions: callees from the root on, or callers.
#[derive(Debug, Clone)]
pub struct CallTree(PathTree<StackFunction, 1>);

/// Functions of a tree in a row without a branch.
#[derive(Debug, Clone, Copy)]
pub struct CallNode<'t> {
    /// The functions: all samples that reach the first reach the last. Empty in the root.
    pub functions: &'t [StackFunction],
    /// The weight of the samples that end in the last of them.
    pub own: u64,
    /// The weight of the samples that reach them.
    pub total: u64,
    branch: PathBranch<'t, StackFunction, 1>,
}

impl<'t> CallNode<'t> {
    fn new(branch: PathBranch<'t, StackFunction, 1>) -> CallNode<'t> {
        let [own] = branch.own().unwrap_or_default();
        let [total] = branch.total();
        CallNode {
            functions: branch.steps,
            own,
            total,
            branch,
        }
    }

    /// The child nodes, the heaviest first.
    #[must_use]
    pub fn children(&self) -> Vec<CallNode<'t>> {
        let mut children: Vec<_> = self.branch.branches().map(CallNode::new).collect();
        children.sort_by_key(|node| (std::cmp::Reverse(node.total), node.functions.first()));
        children
    }
}

/// The direction of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the outermost function to its callees.
    Callees,
    /// From the innermost function to its callers.
    Callers,
}

impl CallTree {
    /// The tree of these samples.
    #[must_use]
    pub fn new(
        named: &NamedProfile<'_>,
        samples: &[&ProfileSample],
        direction: Direction,
    ) -> CallTree {
        CallTree::from_samples(samples, |stack, path| {
            path.extend(named.steps(stack));
            if direction == Direction::Callees {
                path.reverse();
            }
        })
    }

    /// The tree around one function, which is below its root: its callees from its first call on,
    /// or its callers there. Samples without it do not count.
    #[must_use]
    pub fn around(
        named: &NamedProfile<'_>,
        samples: &[&ProfileSample],
        function: FunctionId,
        direction: Direction,
    ) -> CallTree {
        CallTree::from_samples(samples, |stack, path| {
            path.extend(named.steps(stack));
            let outermost = path.iter().rposition(|step| step.function == function);
            let Some(outermost) = outermost else {
                return path.clear();
            };
            match direction {
                Direction::Callers => drop(path.drain(..outermost)),
                Direction::Callees => {
                    path.truncate(outermost + 1);
                    path.reverse();
                }
            }
        })
    }

    /// A tree of paths. A stack without a path adds its weight to the root only.
    fn from_samples(
        samples: &[&ProfileSample],
        path_of: impl Fn(StackId, &mut Vec<StackFunction>),
    ) -> CallTree {
        let mut steps = Vec::new();
        let path = |(stack, weight)| {
            steps.clear();
            path_of(stack, &mut steps);
            WeightedPath {
                steps: steps.as_slice().into(),
                weights: [weight],
            }
        };
        CallTree(PathTree::new(
            weights(samples).into_iter().map(path).collect(),
        ))
    }

    /// The same tree, in which a function has one node below its parent, however its frames were
    /// found. Its mark is that of the most certain of them.
    #[must_use]
    pub fn merged(self) -> CallTree {
        let mut paths = self.0.into_paths();
        unite_marks(&mut paths);
        CallTree(PathTree::new(paths))
    }

    /// The root; its weight is that of all samples.
    #[must_use]
    pub fn root(&self) -> CallNode<'_> {
        CallNode::new(self.0.root())
    }
}

/// Gives equal functions that all paths reach in the same way the mark of the most certain one.
fn unite_marks(paths: &mut [WeightedPath<StackFunction, 1>]) {
    fn functions(path: &[StackFunction]) -> impl Iterator<Item = FunctionId> {
        path.iter().map(|step| step.function)
    }
    fn unite(into: &mut [StackFunction], from: &[StackFunction]) {
        let pairs = into.iter_mut().zip(from);
        for (own, other) in pairs.take_while(|(own, other)| own.function == other.function) {
            own.mark = own.mark.min(other.mark);
        }
    }
    paths.sort_unstable_by(|a, b| functions(&a.steps).cmp(functions(&b.steps)));
    // Paths with a common start are neighbours: the last of them gets the most certain marks of
    // all, and passes them back.
    for last in 1..paths.len() {
        if let Some([.., before, path]) = paths.get_mut(..=last) {
            unite(&mut path.steps, &before.steps);
        }
    }
    for last in (1..paths.len()).rev() {
        if let Some([.., before, path]) = paths.get_mut(..=last) {
            unite(&mut before.steps, &path.steps);
        }
    }
}
