//! The members of two versions of a structure or union, paired.

use std::collections::VecDeque;
use std::hash::Hash;

use hashbrown::{HashMap, HashSet};

use crate::graph::{Graph, Member, TypeId, TypeKind};

/// The maximum nesting of unnamed members, and the maximum number of members in them: broken files
/// can have any.
const MAX_NESTING: usize = 64;
const MAX_INNER_MEMBERS: usize = 1 << 16;

/// The maximum number of members in one place among which a renamed one is searched.
const MAX_RENAMED: usize = 256;

/// The members that programs name: those of unnamed structures and unions count as the outer one's
/// (C11 6.7.2.1p13), as do those of base classes. So it does not matter how they are nested. Unnamed
/// bit-fields are padding. Bit-fields have the form of DWARF and BTF: the member has the width. In
/// CTF its type is a part of an integer.
pub(super) fn named_members<'a>(graph: &Graph<'a>, members: &[Member<'a>]) -> Vec<Member<'a>> {
    let mut found = NamedMembers {
        graph,
        left: MAX_INNER_MEMBERS,
        all: Vec::with_capacity(members.len()),
    };
    found.add(members, 0, MAX_NESTING);
    found.all
}

struct NamedMembers<'g, 'a> {
    graph: &'g Graph<'a>,
    left: usize,
    all: Vec<Member<'a>>,
}

impl<'a> NamedMembers<'_, 'a> {
    fn add(&mut self, members: &[Member<'a>], base: u64, depth: usize) {
        let graph = self.graph;
        for member in members {
            let offset = base.saturating_add(member.offset);
            if !member.name.is_empty() {
                let mut member = Member {
                    offset,
                    ..member.clone()
                };
                if let Some(TypeKind::Slice {
                    of, bits, offset, ..
                }) = graph.get(member.ty).map(|ty| &ty.kind)
                {
                    member.ty = *of;
                    member.offset = member.offset.saturating_add(u64::from(*offset));
                    member.bits = Some(*bits);
                }
                self.all.push(member);
                continue;
            }
            let inner = graph.resolve(member.ty).and_then(|id| graph.get(id));
            if let Some(TypeKind::Record { members, .. }) = inner.map(|ty| &ty.kind)
                && let Some(left) = self.left.checked_sub(members.len())
                && depth > 0
            {
                self.left = left;
                self.add(members, offset, depth - 1);
            }
        }
    }
}

/// The counterpart of each old member among the new ones: the member of its name, best at its
/// offset, else one in its place that has a new name. Members of broken files can have equal names.
pub(super) fn counterparts(
    old: &[Member<'_>],
    new: &[Member<'_>],
    has_same_size: impl Fn(TypeId, TypeId) -> bool,
) -> Vec<Option<usize>> {
    let mut pairing = Pairing {
        found: vec![None; old.len()],
        is_taken: vec![false; new.len()],
    };
    pairing.add(old, new, |member| (&*member.name, member.offset));
    pairing.add(old, new, |member| &*member.name);
    let old_names: HashSet<&str> = old.iter().map(|member| &*member.name).collect();
    let mut renamed: HashMap<(u64, Option<u16>), Vec<usize>> = HashMap::new();
    for (at, member) in new.iter().enumerate() {
        if !old_names.contains(&*member.name) {
            let place = (member.offset, member.bits);
            renamed.entry(place).or_default().push(at);
        }
    }
    let mut found = pairing.found;
    for (member, found) in old
        .iter()
        .zip(&mut found)
        .filter(|(_, found)| found.is_none())
    {
        let there = renamed.get(&(member.offset, member.bits));
        let mut there = there.into_iter().flatten().take(MAX_RENAMED).copied();
        *found = there.find(|at| {
            let other = new.get(*at);
            other.is_some_and(|other| has_same_size(member.ty, other.ty))
        });
    }
    found
}

/// The counterparts found so far.
struct Pairing {
    /// Of each old member.
    found: Vec<Option<usize>>,
    /// Whether a new member is one.
    is_taken: Vec<bool>,
}

impl Pairing {
    /// Pairs members with equal keys, in order.
    fn add<'m, K: Hash + Eq>(
        &mut self,
        old: &'m [Member<'_>],
        new: &'m [Member<'_>],
        key: impl Fn(&'m Member<'_>) -> K,
    ) {
        let mut free: HashMap<K, VecDeque<usize>> = HashMap::new();
        for ((at, member), is_taken) in new.iter().enumerate().zip(&self.is_taken) {
            if !is_taken {
                free.entry(key(member)).or_default().push_back(at);
            }
        }
        let open = old.iter().zip(&mut self.found);
        for (member, found) in open.filter(|(_, found)| found.is_none()) {
            *found = free.get_mut(&key(member)).and_then(VecDeque::pop_front);
            if let Some(is_taken) = found.and_then(|at| self.is_taken.get_mut(at)) {
                *is_taken = true;
            }
        }
    }
}
