//! The stacks of samples as a tree of functions.

use std::collections::HashMap;

use crate::intern::number;
use crate::names::{FrameCertainty, FrameLine};
use crate::output::View;
use crate::stacks::StackId;

/// A function of a frame in a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct StackStep {
    pub(super) function: u32,
    mark: FrameCertainty,
    is_inlined: bool,
    /// The line in the function, from 1 for its first one; 0 if unknown.
    pub(super) line: u32,
}

impl StackStep {
    pub(super) fn flags(&self) -> u64 {
        let mark = match self.mark {
            FrameCertainty::Certain => 0,
            FrameCertainty::Guessed => 1,
            FrameCertainty::Spliced => 2,
        };
        mark | u64::from(self.is_inlined) << 2
    }
}

/// A node of the tree and its relations; 0 is the root.
struct StackTreeNode {
    step: StackStep,
    /// The first callee, and the next callee of the caller; 0 for none.
    first_callee: u32,
    next: u32,
}

/// A node in preorder.
pub(super) struct PreorderNode {
    /// The number of functions in its stack.
    pub(super) depth: u32,
    pub(super) step: StackStep,
}

/// The stacks of samples, with functions instead of frames.
pub(super) struct StackTree {
    nodes: Vec<StackTreeNode>,
    /// For each stack of the profile, its innermost node; `u32::MAX` if no sample has it.
    by_stack: Vec<u32>,
    preorder: Vec<PreorderNode>,
    /// For each node, its number in preorder.
    numbers: Vec<u32>,
}

impl StackTree {
    const UNUSED: u32 = u32::MAX;

    /// The stacks of a view; `line_of` is the line of a function in a frame ([`StackStep::line`]).
    pub(super) fn new(view: &View<'_>, line_of: impl Fn(&FrameLine) -> u32) -> StackTree {
        let stacks = view.named.profile.stacks();
        let mut is_used = vec![false; stacks.count() as usize];
        for sample in &view.samples {
            let mut stack = sample.stack;
            while let Some(used) = is_used.get_mut(stack.0 as usize).filter(|used| !**used) {
                *used = true;
                let Some(node) = stacks.node(stack) else {
                    break;
                };
                stack = node.parent;
            }
        }
        let mut tree = StackTree {
            nodes: vec![StackTreeNode {
                step: StackStep {
                    function: 0,
                    mark: FrameCertainty::Certain,
                    is_inlined: false,
                    line: 0,
                },
                first_callee: 0,
                next: 0,
            }],
            by_stack: vec![0],
            preorder: Vec::new(),
            numbers: Vec::new(),
        };
        let mut callees = HashMap::new();
        for (node, is_used) in stacks.nodes().zip(is_used.iter().skip(1)) {
            let mut at = StackTree::UNUSED;
            if *is_used {
                at = tree.innermost(node.parent);
                let evidence = view.named.profile.frame(node.frame).map(|f| f.evidence);
                let mark = evidence.map_or(FrameCertainty::Certain, FrameCertainty::from_evidence);
                for line in view.named.lines_of(node.frame).iter().rev() {
                    let step = StackStep {
                        function: line.function.0,
                        mark,
                        is_inlined: line.is_inlined,
                        line: line_of(line),
                    };
                    at = *callees
                        .entry((at, step))
                        .or_insert_with(|| tree.add(at, step));
                }
            }
            tree.by_stack.push(at);
        }
        tree.number_nodes();
        tree
    }

    fn innermost(&self, stack: StackId) -> u32 {
        self.by_stack.get(stack.0 as usize).copied().unwrap_or(0)
    }

    fn add(&mut self, caller: u32, step: StackStep) -> u32 {
        let id = number(self.nodes.len());
        let mut next = 0;
        if let Some(caller) = self.nodes.get_mut(caller as usize) {
            next = std::mem::replace(&mut caller.first_callee, id);
        }
        self.nodes.push(StackTreeNode {
            step,
            first_callee: 0,
            next,
        });
        id
    }

    /// Numbers the nodes in preorder: equal functions with different marks or lines are neighbours.
    fn number_nodes(&mut self) {
        let mut numbers = vec![0; self.nodes.len()];
        let mut waiting = vec![(0, 0)];
        while let Some((id, depth)) = waiting.pop() {
            let Some(node) = self.nodes.get(id as usize) else {
                continue;
            };
            if let Some(place) = numbers.get_mut(id as usize) {
                *place = number(self.preorder.len());
            }
            self.preorder.push(PreorderNode {
                depth,
                step: node.step,
            });
            let mut callees = Vec::new();
            let mut callee = node.first_callee;
            while let Some(node) = self.nodes.get(callee as usize).filter(|_| callee != 0) {
                callees.push((node.step, callee));
                callee = node.next;
            }
            callees.sort_unstable();
            let callees = callees.into_iter().rev();
            waiting.extend(callees.map(|(_, callee)| (callee, depth + 1)));
        }
        self.numbers = numbers;
    }

    /// All nodes except the root, each after its caller.
    pub(super) fn preorder(&self) -> &[PreorderNode] {
        self.preorder.get(1..).unwrap_or_default()
    }

    /// The number of a stack's innermost node in preorder, from 1; 0 without a frame.
    pub(super) fn number(&self, stack: StackId) -> u32 {
        let node = self.innermost(stack) as usize;
        self.numbers.get(node).copied().unwrap_or(0)
    }
}
