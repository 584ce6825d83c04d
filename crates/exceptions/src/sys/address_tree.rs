//! A binary search tree by address, which may be read while it is changed.
//!
//! It is a treap: each node has a pseudo-random rank, which is below its parent's. So its depth is
//! logarithmic, whatever the order of insertions. A reader of a tree that is being changed finds
//! anything, but ends; it has to read again ([`super::registered`]). Nodes are never unmapped.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

/// A node, in a line of the processor's cache.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct AddressNode {
    /// What it is sorted by.
    pub(super) key: AtomicU64,
    /// What is kept of the key.
    pub(super) words: [AtomicU64; 3],
    /// A list that it is in.
    pub(super) next: NodeLink,
    left: NodeLink,
    right: NodeLink,
    /// The first node of its list.
    pub(super) first: NodeLink,
}

/// A place for a node.
#[derive(Debug)]
pub(super) struct NodeLink(AtomicPtr<AddressNode>);

impl NodeLink {
    pub(super) const fn none() -> NodeLink {
        NodeLink(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline]
    pub(super) fn get(&self) -> Option<&'static AddressNode> {
        // SAFETY: null, or stored by `set`.
        unsafe { self.0.load(Relaxed).as_ref() }
    }

    pub(super) fn set(&self, node: Option<&'static AddressNode>) {
        let node = node.map_or(ptr::null(), ptr::from_ref);
        self.0.store(node.cast_mut(), Relaxed);
    }

    /// Makes a node the first of a list.
    pub(super) fn push(&self, node: &'static AddressNode) {
        node.next.set(self.get());
        self.set(Some(node));
    }

    /// Takes the first node of a list.
    pub(super) fn pop(&self) -> Option<&'static AddressNode> {
        let node = self.get()?;
        self.set(node.next.get());
        Some(node)
    }
}

impl AddressNode {
    /// The order in the tree: equal keys are in the order of their nodes.
    fn order(&self) -> (u64, *const AddressNode) {
        (self.key.load(Relaxed), ptr::from_ref(self))
    }

    /// The last step of SplitMix64, of its address.
    fn rank(&self) -> u64 {
        let mut rank = ptr::from_ref(self).addr() as u64;
        rank = (rank ^ rank >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        rank = (rank ^ rank >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        rank ^ rank >> 31
    }
}

/// The tree.
#[derive(Debug)]
pub(super) struct AddressTree {
    root: NodeLink,
}

impl AddressTree {
    /// A reader's limit: no tree that fits into memory is as deep.
    const MAX_DEPTH: usize = 512;

    /// Without a node.
    pub(super) const fn new() -> AddressTree {
        AddressTree {
            root: NodeLink::none(),
        }
    }

    /// Forgets all nodes.
    pub(super) fn clear(&self) {
        self.root.set(None);
    }

    /// The last node with a key up to this one.
    pub(super) fn last_up_to(&self, key: u64) -> Option<&'static AddressNode> {
        let mut last = None;
        let mut next = self.root.get();
        for _ in 0..AddressTree::MAX_DEPTH {
            let Some(node) = next else {
                break;
            };
            if node.key.load(Relaxed) <= key {
                last = Some(node);
                next = node.right.get();
            } else {
                next = node.left.get();
            }
        }
        last
    }

    /// The place of a node, or of one with a lower rank, on the way to that.
    fn place(&self, order: (u64, *const AddressNode), rank: u64) -> &NodeLink {
        let mut link = &self.root;
        while let Some(other) = link.get()
            && other.order() != order
            && other.rank() >= rank
        {
            link = if other.order() < order {
                &other.right
            } else {
                &other.left
            };
        }
        link
    }

    /// Inserts a node that is not in it.
    pub(super) fn insert(&self, node: &'static AddressNode) {
        let order = node.order();
        let link = self.place(order, node.rank());
        let mut rest = link.get();
        let (mut left, mut right) = (&node.left, &node.right);
        while let Some(other) = rest {
            if other.order() < order {
                left.set(rest);
                left = &other.right;
                rest = left.get();
            } else {
                right.set(rest);
                right = &other.left;
                rest = right.get();
            }
        }
        left.set(None);
        right.set(None);
        link.set(Some(node));
    }

    /// Removes a node that is in it.
    pub(super) fn remove(&self, node: &'static AddressNode) {
        let mut link = self.place(node.order(), 0);
        let (mut left, mut right) = (node.left.get(), node.right.get());
        while let (Some(lower), Some(upper)) = (left, right) {
            if lower.rank() >= upper.rank() {
                link.set(left);
                link = &lower.right;
                left = link.get();
            } else {
                link.set(right);
                link = &upper.left;
                right = link.get();
            }
        }
        link.set(left.or(right));
    }
}

#[cfg(test)]
mod tests {
    use std::boxed::Box;
    use std::collections::BTreeMap;

    use unspool_walk_testing::random::CaseRandom;

    use super::*;

    fn node(key: u64) -> &'static AddressNode {
        Box::leak(Box::new(AddressNode {
            key: AtomicU64::new(key),
            words: [const { AtomicU64::new(0) }; 3],
            next: NodeLink::none(),
            left: NodeLink::none(),
            right: NodeLink::none(),
            first: NodeLink::none(),
        }))
    }

    fn depth(link: &NodeLink) -> usize {
        link.get()
            .map_or(0, |node| 1 + depth(&node.left).max(depth(&node.right)))
    }

    /// Against an ordered map, with keys that repeat; and keys that fall, as `mmap`'s addresses do.
    #[test]
    fn a_node_is_found_from_its_key_on() {
        let mut random = CaseRandom::default();
        let (tree, mut expected) = (AddressTree::new(), BTreeMap::new());
        for round in 0..4_000_u64 {
            let key = if round < 1_000 {
                9_000 - round
            } else {
                random.number() % 10_000
            };
            let known = expected
                .keys()
                .nth(usize::try_from(key).unwrap() % 700)
                .copied();
            match known.filter(|_| round % 3 == 0) {
                Some(order) => tree.remove(expected.remove(&order).unwrap()),
                None => {
                    let new = node(key);
                    tree.insert(new);
                    expected.insert((key, ptr::from_ref(new).addr()), new);
                }
            }
            let probe = random.number() % 10_000;
            let before = expected.range(..=(probe, usize::MAX)).next_back();
            let found = tree.last_up_to(probe).map(ptr::from_ref);
            assert_eq!(found, before.map(|(_, node)| ptr::from_ref(*node)));
        }
        assert!(expected.len() > 1_000 && depth(&tree.root) < 50);
        for node in expected.into_values() {
            tree.remove(node);
        }
        assert!(tree.last_up_to(u64::MAX).is_none());
    }
}
