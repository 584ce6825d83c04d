//! Patterns.

/// Whether a text is of a pattern, in which `*` stands for any characters.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        if let Some(between) = last.replace(part) {
            match rest.split_once(between) {
                Some((_, behind)) => rest = behind,
                None => return false,
            }
        }
    }
    last.map_or(rest.is_empty(), |last| rest.ends_with(last))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "any"),
            ("a*", "a"),
            ("*b", "ab"),
            ("a*b*c", "abc"),
            ("a*b*c", "axbybzc"),
            ("**", "x"),
            ("a", "a"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("a", "ab"),
            ("", "a"),
            ("a*", "ba"),
            ("*b", "bc"),
            ("ab*b", "ab"),
            ("a*b*c", "acb"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
