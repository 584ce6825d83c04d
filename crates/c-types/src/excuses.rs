//! Excuses: changes that a user accepts, with the reasons.

use crate::diff::{ChangeKind, Compatibility, InterfaceChange};

/// Accepted changes, from lines like `removed function:foo_* obsolete since 2.0`: the kind of change
/// or `*`, a pattern for the subject with colons for spaces, and the reason. Lines that are empty or
/// start with `#` are comments.
///
/// ```
/// use unspool_c_types::Excuses;
///
/// let mut excuses = Excuses::parse("removed function:foo_* obsolete")?;
/// assert_eq!(excuses.apply(&mut Vec::new()), 0);
/// assert_eq!(excuses.unused().collect::<Vec<_>>(), [1]);
/// # Ok::<(), unspool_c_types::ExcuseError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Excuses(Vec<Excuse>);

#[derive(Debug, Clone)]
struct Excuse {
    line: usize,
    /// The kind of change; `None` for any.
    kind: Option<ChangeKind>,
    subject: String,
    is_used: bool,
}

/// Why a line is not an excuse. Lines are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExcuseError {
    /// It lacks the subject or the reason.
    #[error("{line}: a line is `KIND SUBJECT REASON`, as in `removed function:foo_* obsolete`")]
    Form {
        /// The line.
        line: usize,
    },
    /// It begins with another word.
    #[error(
        "{line}: `{word}` is not a kind of change, which are {}, and * for all",
        ChangeKind::ALL.map(ChangeKind::word).join(", ")
    )]
    Kind {
        /// The line.
        line: usize,
        /// The word.
        word: String,
    },
}

impl Excuses {
    /// Reads a text of excuses.
    ///
    /// # Errors
    ///
    /// The first line that is not an excuse.
    pub fn parse(text: &str) -> Result<Excuses, ExcuseError> {
        let mut excuses = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let mut words = text.split_whitespace();
            let word = match words.next() {
                Some(word) if !word.starts_with('#') => word,
                _ => continue,
            };
            let (Some(subject), Some(_)) = (words.next(), words.next()) else {
                return Err(ExcuseError::Form { line });
            };
            let kind = ChangeKind::ALL.into_iter().find(|kind| kind.word() == word);
            if kind.is_none() && word != "*" {
                let word = word.to_owned();
                return Err(ExcuseError::Kind { line, word });
            }
            excuses.push(Excuse {
                line,
                kind,
                subject: subject.to_owned(),
                is_used: false,
            });
        }
        Ok(Excuses(excuses))
    }

    /// Removes the breaking changes that are excused, and returns their number.
    pub fn apply(&mut self, changes: &mut Vec<InterfaceChange>) -> usize {
        let before = changes.len();
        changes.retain(|change| {
            let subject = change.subject.replace(' ', ":");
            let is_it = |excuse: &&mut Excuse| {
                excuse.kind.is_none_or(|kind| kind == change.kind)
                    && matches(&excuse.subject, &subject)
            };
            let excuse = self.0.iter_mut().find(is_it);
            let excuse = excuse.filter(|_| change.compatibility == Compatibility::Breaking);
            let is_excused = excuse.is_some();
            if let Some(excuse) = excuse {
                excuse.is_used = true;
            }
            !is_excused
        });
        before - changes.len()
    }

    /// The lines that have excused nothing.
    pub fn unused(&self) -> impl Iterator<Item = usize> {
        let unused = self.0.iter().filter(|excuse| !excuse.is_used);
        unused.map(|excuse| excuse.line)
    }
}

/// Whether a text matches a pattern, in which `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_whole_subjects() {
        for (pattern, text, expected) in [
            ("struct:s", "struct:s", true),
            ("struct:s", "struct:shared", false),
            ("struct:sh*", "struct:shared", true),
            ("*(2)", "f3(2)", true),
            ("*(2)", "f3(2)x", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*b", "ab", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn lines_that_are_no_excuses_are_errors() {
        let text = "# kind subject reason\n\nsize struct:sh* ours alone\n";
        assert_eq!(
            Excuses::parse(text).unwrap().unused().collect::<Vec<_>>(),
            [3]
        );
        let error = Excuses::parse("size struct:x\n").unwrap_err();
        assert_eq!(error, ExcuseError::Form { line: 1 });
        let error = Excuses::parse("# a\nremove function:f no\n").unwrap_err();
        assert!(error.to_string().starts_with("2: `remove` is not a kind"));
    }
}
