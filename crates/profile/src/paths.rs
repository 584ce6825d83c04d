//! Paths with weights, as a tree without nodes in memory: in sorted order, paths with a common
//! prefix are neighbours.

/// A path from the root, with its weight in each of `N` profiles.
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

    /// The paths.
    pub(crate) fn into_paths(self) -> Vec<WeightedPath<T, N>> {
        self.0
    }

    /// The root of all paths, without steps.
    pub(crate) fn root(&self) -> PathBranch<'_, T, N> {
        PathBranch {
            steps: &[],
            end: 0,
            paths: &self.0,
        }
    }

    /// The distinct paths, sorted, with their total weight.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&[T], [u64; N])> {
        let alike = self.0.chunk_by(|a, b| a.steps == b.steps);
        alike.filter_map(|paths| Some((&*paths.first()?.steps, sum(paths))))
    }
}

/// Paths with a common prefix, as long as possible.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathBranch<'p, T, const N: usize> {
    /// The steps that they share after the parent branch.
    pub(crate) steps: &'p [T],
    /// The number of steps that they share.
    end: usize,
    paths: &'p [WeightedPath<T, N>],
}

impl<'p, T: Copy + Ord, const N: usize> PathBranch<'p, T, N> {
    /// The paths that end here, which sort first, and the others.
    fn split_at_end(&self) -> (&'p [WeightedPath<T, N>], &'p [WeightedPath<T, N>]) {
        let goes_on = |path: &WeightedPath<T, N>| path.steps.len() > self.end;
        let ends = self.paths.partition_point(|path| !goes_on(path));
        self.paths.split_at(ends)
    }

    /// The weight of the paths that end here; `None` if none ends.
    pub(crate) fn own(&self) -> Option<[u64; N]> {
        let ends = self.split_at_end().0;
        (!ends.is_empty()).then(|| sum(ends))
    }

    /// Their total weight.
    pub(crate) fn total(&self) -> [u64; N] {
        sum(self.paths)
    }

    /// The longer paths, by their next step.
    pub(crate) fn branches(&self) -> impl Iterator<Item = PathBranch<'p, T, N>> + use<'p, T, N> {
        let at = self.end;
        let parts = self.split_at_end().1;
        let parts = parts.chunk_by(move |a, b| a.steps.get(at) == b.steps.get(at));
        parts.filter_map(move |paths| {
            // All sorted paths share the common prefix of the first and the last.
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
