//! Recursion in printed stacks: lines that repeat those before them.

/// Items that repeat those before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cycle {
    /// The items of one turn.
    pub(crate) length: usize,
    pub(crate) repeats: usize,
}

impl Cycle {
    /// Longer turns are not looked for.
    const MAX_LENGTH: usize = 16;
    /// Fewer items are printed.
    const MIN_FOLDED: usize = 64;

    /// The cycle that continues in `next` what the end of `shown` begins; the shortest one.
    pub(crate) fn at<T>(
        shown: &[T],
        next: &[T],
        is_same: impl Fn(&T, &T) -> bool,
    ) -> Option<Cycle> {
        (1..=Cycle::MAX_LENGTH.min(shown.len())).find_map(|length| {
            let turn = shown.get(shown.len() - length..)?;
            let repeated = turn
                .iter()
                .cycle()
                .zip(next)
                .take_while(|(one, other)| is_same(one, other));
            let repeats = repeated.count() / length;
            (repeats * length >= Cycle::MIN_FOLDED).then_some(Cycle { length, repeats })
        })
    }

    /// How many items it has.
    pub(crate) fn items(self) -> usize {
        self.length * self.repeats
    }
}

#[cfg(test)]
mod tests {
    use super::Cycle;

    /// A letter for each item: those shown, and those that follow.
    fn length_and_items(shown: &str, next: &str) -> Option<(usize, usize)> {
        let cycle = Cycle::at(shown.as_bytes(), next.as_bytes(), u8::eq)?;
        Some((cycle.length, cycle.items()))
    }

    #[test]
    fn the_shortest_turn_is_found_and_ends_whole() {
        let rounds = |turn: &str| turn.repeat(100);
        let check = |shown, next: String, expected| {
            assert_eq!(length_and_items(shown, &next), expected, "{shown} {next}");
        };
        check("ma", rounds("a"), Some((1, 100)));
        check("mab", rounds("ab") + "a", Some((2, 200)));
        check("maab", rounds("aab"), Some((3, 300)));
        // The end of what is shown is no whole turn.
        check("ma", rounds("ba"), None);
        // Few are shown as they are.
        check("ma", "a".repeat(63), None);
        // A turn of more than 16 is not looked for.
        check("abcdefghijklmnopq", rounds("abcdefghijklmnopq"), None);
    }
}
