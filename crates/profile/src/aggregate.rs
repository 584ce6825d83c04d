//! Sums over samples: lists and call trees.

use std::collections::HashMap;
use std::hash::Hash;

use crate::model::{Sample, ThreadId};
use crate::names::{FunctionId, Mark, Named, Step};
use crate::stacks::StackId;

/// The weight of each stack of these samples.
#[must_use]
pub fn weights(samples: &[&Sample]) -> HashMap<StackId, u64> {
    sums(samples.iter().map(|sample| (sample.stack, sample.weight)))
}

fn sums<K: Eq + Hash>(weights: impl Iterator<Item = (K, u64)>) -> HashMap<K, u64> {
    let mut sums = HashMap::new();
    for (key, weight) in weights {
        let sum: &mut u64 = sums.entry(key).or_default();
        *sum = sum.saturating_add(weight);
    }
    sums
}

/// The weight of all these samples.
#[must_use]
pub fn total(samples: &[&Sample]) -> u64 {
    samples
        .iter()
        .fold(0, |sum, sample| sum.saturating_add(sample.weight))
}

/// The weight of something: a function, a module, a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight<K> {
    /// What it is of.
    pub key: K,
    /// Of the samples whose innermost frame is in it.
    pub own: u64,
    /// Of the samples with any frame in it, each counted once.
    pub total: u64,
    /// Of those in which all these frames are guessed or spliced.
    pub guessed: u64,
}

/// The functions of these samples, the heaviest first: by their own weight, then by the total.
#[must_use]
pub fn functions(named: &Named<'_>, samples: &[&Sample]) -> Vec<Weight<FunctionId>> {
    list(named, samples, Some)
}

/// The modules of these samples, by name, the heaviest first.
#[must_use]
pub fn modules<'n>(named: &'n Named<'_>, samples: &[&Sample]) -> Vec<Weight<&'n str>> {
    list(named, samples, |function: FunctionId| {
        let function = named.functions().get(function.0 as usize)?;
        Some(function.module.as_str())
    })
}

/// The threads of these samples, the heaviest first.
#[must_use]
pub fn threads(samples: &[&Sample]) -> Vec<Weight<ThreadId>> {
    let of_threads = sums(samples.iter().map(|sample| (sample.thread, sample.weight)));
    let weight = |(key, weight)| Weight {
        key,
        own: weight,
        total: weight,
        guessed: 0,
    };
    sorted(of_threads.into_iter().map(weight).collect())
}

fn list<K: Copy + Eq + Hash + Ord>(
    named: &Named<'_>,
    samples: &[&Sample],
    key: impl Fn(FunctionId) -> Option<K>,
) -> Vec<Weight<K>> {
    let mut all: HashMap<K, Weight<K>> = HashMap::new();
    let mut seen: HashMap<K, bool> = HashMap::new();
    for (stack, weight) in weights(samples) {
        seen.clear();
        let mut innermost = None;
        for step in named.steps(stack) {
            let Some(key) = key(step.function) else {
                continue;
            };
            innermost.get_or_insert(key);
            *seen.entry(key).or_insert(true) &= step.mark != Mark::Sure;
        }
        for (key, is_guessed) in &seen {
            let sum = all.entry(*key).or_insert(Weight {
                key: *key,
                own: 0,
                total: 0,
                guessed: 0,
            });
            sum.total = sum.total.saturating_add(weight);
            if innermost == Some(*key) {
                sum.own = sum.own.saturating_add(weight);
            }
            if *is_guessed {
                sum.guessed = sum.guessed.saturating_add(weight);
            }
        }
    }
    sorted(all.into_values().collect())
}

fn sorted<K: Copy + Ord>(mut weights: Vec<Weight<K>>) -> Vec<Weight<K>> {
    weights.sort_by_key(|w| (std::cmp::Reverse((w.own, w.total)), w.key));
    weights
}

/// A tree of functions: called by each other from the root on, or calling each other.
#[derive(Debug, Clone, Default)]
pub struct CallTree {
    nodes: Vec<CallNode>,
    children: HashMap<(usize, Step), usize>,
}

/// A function in a tree.
#[derive(Debug, Clone, Default)]
pub struct CallNode {
    /// The function; `None` for the root.
    pub step: Option<Step>,
    /// The weight of the samples that end here.
    pub own: u64,
    /// The weight of the samples that come here.
    pub total: u64,
    /// The nodes below, the heaviest first, by their place in [`CallTree::nodes`].
    pub children: Vec<usize>,
}

/// How a tree is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the outermost function to what it calls.
    Callees,
    /// From the innermost function to what calls it.
    Callers,
}

impl CallTree {
    /// The tree of these samples.
    #[must_use]
    pub fn new(named: &Named<'_>, samples: &[&Sample], direction: Direction) -> CallTree {
        CallTree::of(samples, |stack, path| {
            path.extend(named.steps(stack));
            if direction == Direction::Callees {
                path.reverse();
            }
        })
    }

    /// The tree of what is around one function, which is below its root: what it calls, from where
    /// it was first called on, or what calls it there. Samples without it do not count.
    #[must_use]
    pub fn around(
        named: &Named<'_>,
        samples: &[&Sample],
        function: FunctionId,
        direction: Direction,
    ) -> CallTree {
        CallTree::of(samples, |stack, path| {
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

    /// A tree of paths. Of a stack without one the root has the weight, and no other node.
    fn of(samples: &[&Sample], path_of: impl Fn(StackId, &mut Vec<Step>)) -> CallTree {
        let mut tree = CallTree {
            nodes: vec![CallNode::default()],
            children: HashMap::new(),
        };
        let mut path = Vec::new();
        for (stack, weight) in weights(samples) {
            path.clear();
            path_of(stack, &mut path);
            tree.add(&path, weight);
        }
        tree.sort();
        tree
    }

    fn add(&mut self, path: &[Step], weight: u64) {
        let mut at = 0;
        for step in [None].into_iter().chain(path.iter().copied().map(Some)) {
            if let Some(step) = step {
                at = self.child(at, step);
            }
            if let Some(node) = self.nodes.get_mut(at) {
                node.total = node.total.saturating_add(weight);
            }
        }
        if let Some(node) = self.nodes.get_mut(at) {
            node.own = node.own.saturating_add(weight);
        }
    }

    fn child(&mut self, parent: usize, step: Step) -> usize {
        let next = self.nodes.len();
        let child = *self.children.entry((parent, step)).or_insert(next);
        if child == next {
            self.nodes.push(CallNode {
                step: Some(step),
                ..CallNode::default()
            });
            if let Some(parent) = self.nodes.get_mut(parent) {
                parent.children.push(child);
            }
        }
        child
    }

    fn sort(&mut self) {
        let weights: Vec<_> = (self.nodes.iter())
            .map(|node| (std::cmp::Reverse(node.total), node.step))
            .collect();
        for node in &mut self.nodes {
            node.children.sort_by_key(|child| weights.get(*child));
        }
    }

    /// The nodes; the root is the first.
    #[must_use]
    pub fn nodes(&self) -> &[CallNode] {
        &self.nodes
    }

    /// The children of a node, the heaviest first.
    pub fn children<'t>(&'t self, node: &'t CallNode) -> impl Iterator<Item = &'t CallNode> {
        let children = node.children.iter();
        children.filter_map(|child| self.nodes.get(*child))
    }

    /// The root; its weight is that of all samples.
    #[must_use]
    pub fn root(&self) -> Option<&CallNode> {
        self.nodes.first()
    }
}
