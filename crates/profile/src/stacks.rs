//! Stacks as a tree: stacks with the same outer frames share them.

use crate::model::FrameId;

/// The ID of a stack in its profile: that of its innermost frame in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StackId(pub u32);

impl StackId {
    /// The stack without frames, the root of all others.
    pub const EMPTY: StackId = StackId(0);
}

/// A frame and its caller's stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StackNode {
    /// The stack of its callers.
    pub parent: StackId,
    /// The frame.
    pub frame: FrameId,
}

/// The stacks of a profile. A stack comes after its caller's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stacks {
    nodes: Vec<StackNode>,
}

impl Stacks {
    /// Their number, including the empty one.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.nodes.len()).map_or(u32::MAX, |nodes| nodes.saturating_add(1))
    }

    /// The innermost frame of a stack and the stack without it; `None` for the empty one, and for
    /// an ID of another profile.
    #[must_use]
    pub fn node(&self, stack: StackId) -> Option<StackNode> {
        let index = stack.0.checked_sub(1)?;
        self.nodes.get(index as usize).copied()
    }

    /// The frames of a stack, from the innermost on.
    pub fn frames(&self, mut stack: StackId) -> impl Iterator<Item = FrameId> {
        std::iter::from_fn(move || {
            let node = self.node(stack)?;
            stack = node.parent;
            Some(node.frame)
        })
    }

    /// All stacks except the empty one, each after its caller's.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = StackNode> + ExactSizeIterator {
        self.nodes.iter().copied()
    }

    /// Adds a stack; `None` if its caller's is missing, or IDs have run out.
    pub(crate) fn push(&mut self, node: StackNode) -> Option<StackId> {
        let id = self.count();
        if node.parent.0 >= id || id == u32::MAX {
            return None;
        }
        self.nodes.push(node);
        Some(StackId(id))
    }
}
