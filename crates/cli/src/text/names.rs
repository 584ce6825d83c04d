//! Suggestions for names that are not there.

/// The names that contain an unknown one: the shortest, which are the closest.
pub(crate) fn suggest<'n>(names: impl Iterator<Item = &'n str>, unknown: &str) -> String {
    const MAX_SUGGESTIONS: usize = 5;
    let wanted = unknown.to_lowercase();
    let mut near: Vec<_> = names
        .filter(|name| name.to_lowercase().contains(&wanted))
        .collect();
    near.sort_unstable_by_key(|name| (name.len(), *name));
    near.dedup();
    near.truncate(MAX_SUGGESTIONS);
    match near.as_slice() {
        [] => String::new(),
        [one] => format!("; there is `{one}`"),
        near => format!("; there are `{}`", near.join("`, `")),
    }
}

#[cfg(test)]
mod tests {
    use super::suggest;

    #[test]
    fn names_that_contain_it_are_suggested() {
        let names = ["a_node", "tree", "node", "node", "nodes"];
        let near = |unknown| suggest(names.into_iter(), unknown);
        assert_eq!(near("Nod"), "; there are `node`, `nodes`, `a_node`");
        assert_eq!(near("tre"), "; there is `tree`");
        assert_eq!(near("leaf"), "");
    }
}
