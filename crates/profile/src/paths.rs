//! Paths with weights, as a tree that has no nodes in memory: among sorted paths, those that begin alike are
//! neighbours.

/// A path, from the root on, with its weight in each of `N` profiles.
#[derive(Debug, Clone)]
pub(crate) struct WeightedPath<T, const N: usize> {
    pub(crate) steps: Box<[T]>,
    pub(crate) weights: [u64; N],
}

/// Paths, sorted.
#[derive(Debug, Clone)]
pub(crate) struct PathTree<T, const N: usize>(Vec<WeightedPath<T, N>>);

impl<T: Copy + Ord, const N: usize> PathTree<T, N> {
    pub(crate) fn new(mut paths: Vec<WeightedPath<T, N>>) -> PathTree<T, N> {
        paths.sort_unstable_by(|a, b| a.steps.cmp(&b.steps));
        PathTree(paths)
    }

    /// Where all paths come from: no step.
    pub(crate) fn root(&self) -> PathBranch<'_, T, N> {
        PathBranch {
            steps: &[],
            end: 0,
            paths: &self.0,
        }
    }

    /// The paths that differ, in their order, with the weight of all that are alike.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&[T], [u64; N])> {
        let alike = self.0.chunk_by(|a, b| a.steps == b.steps);
        alike.filter_map(|paths| Some((&*paths.first()?.steps, sum(paths))))
    }
}

/// The paths that begin alike, as far as they do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathBranch<'p, T, const N: usize> {
    /// What they share behind the branch that this one is of.
    pub(crate) steps: &'p [T],
    /// How many steps they share in all.
    end: usize,
    paths: &'p [WeightedPath<T, N>],
}

impl<'p, T: Copy + Ord, const N: usize> PathBranch<'p, T, N> {
    /// The paths that end here, which come before those that go on, and the others.
    fn split_at_end(&self) -> (&'p [WeightedPath<T, N>], &'p [WeightedPath<T, N>]) {
        let goes_on = |path: &WeightedPath<T, N>| path.steps.len() > self.end;
        let ends = self.paths.partition_point(|path| !goes_on(path));
        self.paths.split_at(ends)
    }

    /// The weight of the paths that end here; `None` if none does.
    pub(crate) fn own(&self) -> Option<[u64; N]> {
        let ends = self.split_at_end().0;
        (!ends.is_empty()).then(|| sum(ends))
    }

    /// The weight of all of them.
    pub(crate) fn total(&self) -> [u64; N] {
        sum(self.paths)
    }

    /// Those that go on, by the step that they take.
    pub(crate) fn branches(&self) -> impl Iterator<Item = PathBranch<'p, T, N>> + use<'p, T, N> {
        let at = self.end;
        let parts = self.split_at_end().1;
        let parts = parts.chunk_by(move |a, b| a.steps.get(at) == b.steps.get(at));
        parts.filter_map(move |paths| {
            // What the first and the last of sorted paths share, all have.
            let (first, last) = (&paths.first()?.steps, &paths.last()?.steps);
            let pairs = first.iter().zip(last.iter()).skip(at);
            let end = at + pairs.take_while(|(a, b)| a == b).count();
            Some(PathBranch {
                steps: first.get(at..end)?,
                end,
                paths,
            })
        })
    }
}

fn sum<T, const N: usize>(paths: &[WeightedPath<T, N>]) -> [u64; N] {
    paths
        .iter()
        .fold([0; N], |sums, path| add(sums, path.weights))
}

/// The sum in each profile.
pub(crate) fn add<const N: usize>(mut sums: [u64; N], weights: [u64; N]) -> [u64; N] {
    for (sum, weight) in sums.iter_mut().zip(weights) {
        *sum = sum.saturating_add(weight);
    }
    sums
}
