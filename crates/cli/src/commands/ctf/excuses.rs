//! Excuses: changes that a user accepts, with the reasons.

use std::path::Path;

use anyhow::{Context as _, bail};
use unspool_c_types::{ChangeKind, Compatibility, InterfaceChange};

use crate::output;

/// The size of the largest file of excuses, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// A line of a file of excuses: `removed function:foo_* obsolete since 2.0`.
struct Excuse {
    line: usize,
    /// The kind of change; `None` for any.
    kind: Option<ChangeKind>,
    /// A pattern for the subject, with colons for spaces.
    subject: String,
    is_used: bool,
}

/// The excuses of a file.
pub(super) struct Excuses(Vec<Excuse>);

const FORM: &str = "a line is `KIND SUBJECT REASON`, as in `removed function:foo_* obsolete`";

impl Excuses {
    /// Reads a file of excuses.
    ///
    /// # Errors
    ///
    /// The first line that is not an excuse, a comment, or empty.
    pub(super) fn read(path: &Path) -> anyhow::Result<Excuses> {
        let text = unspool_files::read(path, MAX_BYTES)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let text = String::from_utf8_lossy(&text);
        let mut excuses = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let mut words = text.split_whitespace();
            let word = match words.next() {
                Some(word) if !word.starts_with('#') => word,
                _ => continue,
            };
            let at = format!("{}:{line}", path.display());
            let (Some(subject), Some(_)) = (words.next(), words.next()) else {
                bail!("{at}: {FORM}");
            };
            let kind = ChangeKind::ALL.into_iter().find(|kind| kind.word() == word);
            if kind.is_none() && word != "*" {
                let words = ChangeKind::ALL.map(ChangeKind::word).join(", ");
                bail!("{at}: `{word}` is not a kind of change, which are {words}, and * for all");
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

    /// Removes the breaking changes that are excused. Returns their number, and reports excuses
    /// without a change.
    pub(super) fn apply(&mut self, path: &Path, changes: &mut Vec<InterfaceChange>) -> usize {
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
        for excuse in self.0.iter().filter(|excuse| !excuse.is_used) {
            output::notice(&format_args!(
                "{}:{}: excuses nothing",
                path.display(),
                excuse.line
            ));
        }
        before - changes.len()
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
