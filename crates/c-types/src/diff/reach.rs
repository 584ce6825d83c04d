//! The exported names that lead to each pair of types.

use std::rc::Rc;

use hashbrown::{HashMap, HashSet};

use crate::graph::TypeId;

/// The memory for sets of names, in words of 64 names: 256 MiB.
const MAX_WORDS: usize = 1 << 25;

/// A set of exported names, by their numbers. Changes with the same names share one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportSet {
    words: Rc<[u64]>,
    is_cut: bool,
}

impl ExportSet {
    /// Their number.
    #[must_use]
    pub fn len(&self) -> usize {
        let ones = self.words.iter().map(|word| word.count_ones());
        ones.map(|ones| usize::try_from(ones).unwrap_or(0)).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Whether there are more: too many changes have different names.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        let words = self.words.iter().zip((0..).step_by(64));
        words.flat_map(|(word, first)| {
            (0..64).filter_map(move |bit| (word >> bit & 1 != 0).then_some(first + bit))
        })
    }
}

/// What leads to a pair of types, or has a change: an exported name or another pair, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Origin {
    Export(usize),
    Pair(usize),
}

/// The compared pairs of types, and what leads to each.
#[derive(Default)]
pub(super) struct Pairs {
    numbers: HashMap<(TypeId, TypeId), usize>,
    origins: Vec<Vec<Origin>>,
}

impl Pairs {
    /// The number of a pair, and whether it is new.
    pub(super) fn add(&mut self, old: TypeId, new: TypeId, origin: Origin) -> (usize, bool) {
        let next = self.origins.len();
        let number = *self.numbers.entry((old, new)).or_insert(next);
        if number == next {
            self.origins.push(Vec::new());
        }
        if let Some(origins) = self.origins.get_mut(number) {
            origins.push(origin);
        }
        (number, number == next)
    }

    /// The exported names, of `count`, that lead to each of some origins; none to `None`.
    pub(super) fn exports(
        &self,
        count: usize,
        ends: impl Iterator<Item = Option<Origin>>,
    ) -> Vec<ExportSet> {
        let components = Components::new(self);
        let mut sets = SharedSets::new(count);
        let mut of_components: Vec<ExportSet> = Vec::new();
        // What leads to a component is in components before it.
        for members in &components.members {
            let mut set = NewSet::default();
            let mut added: HashSet<*const u64> = HashSet::new();
            let origins = members.iter().filter_map(|pair| self.origins.get(*pair));
            for origin in origins.flatten() {
                match origin {
                    Origin::Export(number) => sets.insert(&mut set, *number),
                    Origin::Pair(pair) => {
                        let component = components.numbers.get(*pair);
                        let before = component.and_then(|number| of_components.get(*number));
                        if let Some(before) = before
                            && added.insert(before.words.as_ptr())
                        {
                            sets.extend(&mut set, before);
                        }
                    }
                }
            }
            of_components.push(sets.share(set));
        }
        ends.map(|end| match end {
            None => ExportSet::default(),
            Some(Origin::Export(number)) => {
                let mut set = NewSet::default();
                sets.insert(&mut set, number);
                sets.share(set)
            }
            Some(Origin::Pair(pair)) => {
                let component = components.numbers.get(pair);
                let found = component.and_then(|number| of_components.get(*number));
                found.cloned().unwrap_or_default()
            }
        })
        .collect()
    }
}

/// A set that is not stored yet.
#[derive(Default)]
struct NewSet {
    words: Vec<u64>,
    is_cut: bool,
}

/// Sets of some numbers, each stored once.
struct SharedSets {
    /// The words of one set.
    words: usize,
    known: HashSet<Rc<[u64]>>,
}

impl SharedSets {
    fn new(count: usize) -> SharedSets {
        SharedSets {
            words: count.div_ceil(64),
            known: HashSet::new(),
        }
    }

    fn insert(&self, set: &mut NewSet, number: usize) {
        set.words.resize(self.words, 0);
        if let Some(word) = set.words.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
    }

    fn extend(&self, set: &mut NewSet, others: &ExportSet) {
        set.words.resize(self.words, 0);
        set.is_cut |= others.is_cut;
        for (word, other) in set.words.iter_mut().zip(&*others.words) {
            *word |= other;
        }
    }

    fn share(&mut self, set: NewSet) -> ExportSet {
        let NewSet { words, is_cut } = set;
        let is_full = self.known.len() * self.words > MAX_WORDS;
        let known = if is_full {
            self.known.get(&*words)
        } else {
            Some(self.known.get_or_insert_with(&*words, |words| words.into()))
        };
        ExportSet {
            words: known.cloned().unwrap_or_default(),
            is_cut: is_cut || known.is_none(),
        }
    }
}

/// The strongly connected components of pairs: pairs that lead to each other (R. Tarjan, "Depth-first
/// search and linear graph algorithms", 1972). Each is behind those that lead to it.
struct Components {
    /// The component of each pair.
    numbers: Vec<usize>,
    members: Vec<Vec<usize>>,
}

impl Components {
    fn new(pairs: &Pairs) -> Components {
        let count = pairs.origins.len();
        let mut found = Components {
            numbers: vec![usize::MAX; count],
            members: Vec::new(),
        };
        // The order in which pairs were met, and the earliest that each leads back to.
        let (mut order, mut lowest) = (vec![usize::MAX; count], vec![usize::MAX; count]);
        let (mut next, mut open) = (0, Vec::new());
        for root in 0..count {
            let mut path = Vec::new();
            if order.get(root) == Some(&usize::MAX) {
                path.push((root, 0));
            }
            while let Some((pair, at)) = path.last_mut() {
                let pair = *pair;
                if *at == 0 {
                    set(&mut order, pair, next);
                    set(&mut lowest, pair, next);
                    next += 1;
                    open.push(pair);
                }
                let origins = pairs.origins.get(pair).map_or(&[][..], Vec::as_slice);
                let before = origins.get(*at);
                *at += 1;
                match before {
                    Some(Origin::Export(_)) => {}
                    Some(Origin::Pair(before)) if get(&order, *before) == usize::MAX => {
                        path.push((*before, 0));
                    }
                    Some(Origin::Pair(before)) => {
                        if get(&found.numbers, *before) == usize::MAX {
                            let low = get(&lowest, pair).min(get(&order, *before));
                            set(&mut lowest, pair, low);
                        }
                    }
                    None => {
                        path.pop();
                        let low = get(&lowest, pair);
                        if let Some((parent, _)) = path.last() {
                            let lower = get(&lowest, *parent).min(low);
                            set(&mut lowest, *parent, lower);
                        }
                        if low == get(&order, pair) {
                            found.close(&mut open, pair);
                        }
                    }
                }
            }
        }
        found
    }

    /// Makes a component of the open pairs from one on.
    fn close(&mut self, open: &mut Vec<usize>, first: usize) {
        let start = open.iter().rposition(|pair| *pair == first).unwrap_or(0);
        let members = open.split_off(start);
        for pair in &members {
            set(&mut self.numbers, *pair, self.members.len());
        }
        self.members.push(members);
    }
}

fn get(list: &[usize], at: usize) -> usize {
    list.get(at).copied().unwrap_or(usize::MAX)
}

fn set(list: &mut [usize], at: usize, value: usize) {
    if let Some(place) = list.get_mut(at) {
        *place = value;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// The names that lead to a pair, found by following all edges back.
    fn reached(pairs: &Pairs, from: usize) -> BTreeSet<usize> {
        let (mut open, mut seen) = (vec![from], BTreeSet::new());
        let mut names = BTreeSet::new();
        while let Some(pair) = open.pop() {
            if seen.insert(pair) {
                for origin in &pairs.origins[pair] {
                    match origin {
                        Origin::Export(name) => drop(names.insert(*name)),
                        Origin::Pair(pair) => open.push(*pair),
                    }
                }
            }
        }
        names
    }

    proptest! {
        #[test]
        fn all_names_that_lead_to_a_pair_are_found(
            edges in prop::collection::vec((0_usize..40, 0_usize..40), 0..80),
            names in prop::collection::vec(0_usize..40, 0..100),
        ) {
            let mut pairs = Pairs { origins: vec![Vec::new(); 40], ..Pairs::default() };
            for (from, to) in edges {
                pairs.origins[to].push(Origin::Pair(from));
            }
            for (name, pair) in names.iter().enumerate() {
                pairs.origins[*pair].push(Origin::Export(name));
            }
            let ends = (0..40).map(|pair| Some(Origin::Pair(pair)));
            let ends = ends.chain([None, Some(Origin::Export(0))]);
            let found = pairs.exports(names.len() + 1, ends);
            for (pair, found) in found.iter().take(40).enumerate() {
                let expected: Vec<usize> = reached(&pairs, pair).into_iter().collect();
                prop_assert_eq!(found.len(), expected.len());
                prop_assert_eq!(found.is_empty(), expected.is_empty());
                prop_assert_eq!(found.iter().collect::<Vec<_>>(), expected);
            }
            prop_assert!(found[40].is_empty());
            prop_assert_eq!(found[41].iter().collect::<Vec<_>>(), [0]);
        }
    }
}
