//! A corpus file's declarations about itself: the comments at its top.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::program::Variant;
use crate::Error;

/// The result of a static analysis of the wrong variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairVerdict {
    /// The row is false, and the code shows it.
    Refuted,
    /// The code alone does not show it.
    Unproven,
}

/// An assembly file, which is right by default and wrong with the symbol `WRONG`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The file's name without its extension.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
    /// The real bug that it reproduces or resembles.
    pub bug: String,
    /// The error in the wrong variant.
    pub wrong: String,
    /// The result of a static analysis of it.
    pub verdict: PairVerdict,
    /// The first instruction of each range with wrong rows.
    pub labels: Vec<String>,
    /// No run shows it: at every executed instruction, the rows are right.
    pub is_static_only: bool,
    /// A static analysis cannot prove all of the right variant either.
    pub is_right_unproven: bool,
    /// The code differs between the variants, not only the table.
    pub has_two_codes: bool,
    /// The first instruction of each range that no run reaches.
    pub never_runs: Vec<String>,
    /// Functions without a caller, at the end of a stack.
    pub outermost: Vec<String>,
    /// Labels inside functions that are called and return like functions.
    pub called: Vec<String>,
    /// A function that others jump to with the return address in a register, and the register.
    pub linked: Vec<String>,
}

/// The folder of the corpus.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/check/corpus")
}

/// All pairs, by name.
///
/// # Errors
///
/// A file cannot be read, or lacks a declaration.
pub fn all() -> Result<Vec<Pair>, Error> {
    let mut pairs = Vec::new();
    for entry in fs::read_dir(folder())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "s") {
            let text = fs::read_to_string(&path)?;
            let pair = Pair::parse(&path, &text);
            pairs.push(pair.map_err(|error| format!("{}: {error}", path.display()))?);
        }
    }
    pairs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(pairs)
}

/// The result for each pair, by name, computed on two threads.
#[must_use]
pub fn outcomes<T: Send>(
    pairs: &[Pair],
    outcome: impl Fn(&Pair) -> T + Sync,
) -> BTreeMap<String, T> {
    let (next, outcomes) = (Mutex::new(pairs.iter()), Mutex::new(BTreeMap::new()));
    let work = || {
        loop {
            let pair = next.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(pair) = pair else { return };
            let outcome = outcome(pair);
            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            outcomes.insert(pair.name.clone(), outcome);
        }
    };
    thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    outcomes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
}

impl Pair {
    /// Parses the comments at the top of a file.
    ///
    /// # Errors
    ///
    /// One is missing or unknown.
    pub fn parse(path: &Path, text: &str) -> Result<Pair, Error> {
        let name = path.file_stem().ok_or("a file without a name")?;
        let mut pair = Pair {
            name: name.to_string_lossy().into_owned(),
            path: path.to_owned(),
            bug: String::new(),
            wrong: String::new(),
            verdict: PairVerdict::Refuted,
            labels: Vec::new(),
            is_static_only: false,
            is_right_unproven: false,
            has_two_codes: false,
            never_runs: Vec::new(),
            outermost: Vec::new(),
            called: Vec::new(),
            linked: Vec::new(),
        };
        for (key, value) in comments(text)? {
            pair.take(&key, &value)?;
        }
        let said = [
            ("bug", pair.bug.is_empty()),
            ("wrong", pair.wrong.is_empty()),
            ("expect", pair.labels.is_empty()),
        ];
        match said.iter().find(|(_, is_missing)| *is_missing) {
            Some((key, _)) => Err(format!("there is no comment `# {key}: …`").into()),
            None => Ok(pair),
        }
    }

    fn take(&mut self, key: &str, value: &str) -> Result<(), Error> {
        let words = || value.split_whitespace().map(str::to_owned).collect();
        match (key, value) {
            ("bug", _) => self.bug = value.to_owned(),
            ("wrong", _) => self.wrong = value.to_owned(),
            ("expect", _) => self.expect(value)?,
            ("never runs", _) => self.never_runs = words(),
            ("outermost", _) => self.outermost = words(),
            ("called", _) => self.called = words(),
            ("linked", _) => self.linked = words(),
            ("right", "unproven-ok") => self.is_right_unproven = true,
            ("code", "differs") => self.has_two_codes = true,
            _ => return Err(format!("what is `# {key}: {value}`?").into()),
        }
        Ok(())
    }

    fn expect(&mut self, value: &str) -> Result<(), Error> {
        let mut words = value.split_whitespace();
        self.verdict = match words.next() {
            Some("refuted") => PairVerdict::Refuted,
            Some("unproven-ok") => PairVerdict::Unproven,
            _ => return Err(format!("`{value}` begins with no verdict").into()),
        };
        self.labels = words.map(str::to_owned).collect();
        let is_mark = |word: &String| word == "static-only";
        self.is_static_only = self.labels.iter().any(is_mark);
        self.labels.retain(|word| !is_mark(word));
        Ok(())
    }
}

/// The comments before the first other line, as keys and values; lines indented by three spaces
/// continue the previous value.
fn comments(text: &str) -> Result<Vec<(String, String)>, Error> {
    let mut comments: Vec<(String, String)> = Vec::new();
    for line in text.lines().map_while(|line| line.strip_prefix('#')) {
        let last = comments.last_mut();
        if let (Some(rest), Some((_, value))) = (line.strip_prefix("   "), last) {
            value.push(' ');
            value.push_str(rest);
        } else {
            let (key, value) = line
                .split_once(": ")
                .ok_or_else(|| format!("`#{line}` has no colon"))?;
            comments.push((key.trim().to_owned(), value.to_owned()));
        }
    }
    Ok(comments)
}

/// One variant of a source, without the conditionals.
#[must_use]
pub fn plain(text: &str, variant: Variant) -> String {
    let mut out = String::new();
    // For each enclosing conditional: whether it selects a variant, and whether it holds.
    let mut conditions: Vec<(bool, bool)> = Vec::new();
    for line in text.split_inclusive('\n') {
        let mut words = line.split_whitespace();
        let (first, second) = (words.next().unwrap_or_default(), words.next());
        let is_variant = second == Some("WRONG");
        match first {
            ".ifdef" | ".ifndef" if is_variant => {
                let holds = (first == ".ifdef") == (variant == Variant::Wrong);
                conditions.push((true, holds));
                continue;
            }
            _ if first.starts_with(".if") => conditions.push((false, true)),
            ".else" => {
                if let Some((true, holds)) = conditions.last_mut() {
                    *holds = !*holds;
                    continue;
                }
            }
            ".endif" => {
                if let Some((true, _)) = conditions.pop() {
                    continue;
                }
            }
            _ => {}
        }
        if conditions.iter().all(|(_, holds)| *holds) {
            out.push_str(line);
        }
    }
    out
}
