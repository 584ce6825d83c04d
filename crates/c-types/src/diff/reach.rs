//! The exported names that lead to each pair of types.

use hashbrown::HashMap;

use crate::graph::TypeId;

/// The maximum number of visited references to a pair, for all changes together: more names are not
/// searched. The types of the kernel have a million references.
const MAX_STEPS: usize = 1 << 28;

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

    /// The numbers of the exported names that lead to each of some origins, ascending.
    pub(super) fn exports(&self, ends: impl IntoIterator<Item = Origin>) -> Vec<Vec<usize>> {
        let mut left = MAX_STEPS;
        let mut seen_in = vec![usize::MAX; self.origins.len()];
        let ends = ends.into_iter().enumerate();
        let find = |(round, end)| {
            let mut found = Vec::new();
            let mut open = vec![end];
            while let Some(origin) = open.pop().filter(|_| left > 0) {
                let pair = match origin {
                    Origin::Export(number) => {
                        found.push(number);
                        continue;
                    }
                    Origin::Pair(pair) => pair,
                };
                let seen = seen_in.get_mut(pair).filter(|seen| **seen != round);
                if let Some(seen) = seen {
                    *seen = round;
                    let origins = self.origins.get(pair).map_or(&[][..], |all| all);
                    left = left.saturating_sub(origins.len());
                    open.extend(origins);
                }
            }
            found.sort_unstable();
            found.dedup();
            found
        };
        ends.map(find).collect()
    }
}
