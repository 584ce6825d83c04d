//! Comments in source that allow a finding: `# unspool: allow CFI010 helpers return in rbx`.
//!
//! One behind code is about its line; one on a line of its own about the next line that makes code.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use unspool_annotate::Source;
use unspool_check::Code;

/// Larger files are nobody's source.
const MOST_BYTES: u64 = 64 << 20;

/// A comment that allows findings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Allow {
    /// Its line, counted from 1.
    pub(super) line: u32,
    codes: Vec<Code>,
    /// Why they are allowed; empty if the author does not say, which allows nothing.
    pub(super) reason: String,
}

impl Allow {
    /// Reads the comment of a line.
    fn of(line: u32, text: &str) -> Option<Allow> {
        let (before, words) = text.split_once("unspool: allow")?;
        let is_comment = before.trim_end().ends_with(['#', '/', '*', ';', '@', '!']);
        let words = words.split("*/").next().unwrap_or_default();
        let mut rest = words.trim();
        let mut codes = Vec::new();
        loop {
            let end = rest.find([' ', '\t', ',']).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            let Some(code) = Code::named(word) else {
                break;
            };
            codes.push(code);
            rest = behind.trim_start_matches([' ', '\t', ',']);
        }
        is_comment.then(|| Allow {
            line,
            codes,
            reason: rest.trim().to_owned(),
        })
    }

    /// What is wrong with the comment itself.
    pub(super) fn problem(&self) -> Option<&'static str> {
        match (self.codes.is_empty(), self.reason.is_empty()) {
            (true, _) => Some("this allows nothing: write `unspool: allow CFI010 REASON`"),
            (_, true) => Some("this allows nothing without a reason: write it after the code"),
            _ => None,
        }
    }
}

/// The comments of a text.
#[derive(Debug, Clone, Default)]
pub(super) struct Allows {
    pub(super) all: Vec<Allow>,
}

impl Allows {
    pub(super) fn of(source: &Source) -> Allows {
        let lines = source.texts();
        let all = lines.filter_map(|(line, text)| Allow::of(line, text));
        Allows { all: all.collect() }
    }

    /// The comment that allows a finding on a line of the text.
    pub(super) fn covering(&self, source: &Source, line: u32, code: Code) -> Option<usize> {
        if self.all.is_empty() {
            return None;
        }
        let above = source.gap_before(line).lines;
        self.all.iter().position(|allow| {
            let is_near =
                allow.line == line || above.contains(&allow.line) && source.is_bare(allow.line);
            is_near && allow.problem().is_none() && allow.codes.contains(&code)
        })
    }
}

/// A text with its comments.
struct Known {
    source: Source,
    allows: Allows,
    /// Those that have allowed something.
    used: Vec<bool>,
}

/// The source files that findings are in, as far as they can be read.
#[derive(Default)]
pub(super) struct Sources {
    files: HashMap<PathBuf, Option<Known>>,
}

impl Sources {
    fn known(&mut self, path: &Path) -> Option<&mut Known> {
        let path = fs::canonicalize(path).ok()?;
        let known = self.files.entry(path).or_insert_with_key(|path| {
            let metadata = fs::metadata(path).ok()?;
            let is_text = metadata.is_file() && metadata.len() <= MOST_BYTES;
            let text = is_text
                .then(|| fs::read_to_string(path))
                .and_then(Result::ok)?;
            let source = super::source::parsed(path, &text);
            let allows = Allows::of(&source);
            Some(Known {
                used: vec![false; allows.all.len()],
                source,
                allows,
            })
        });
        known.as_mut()
    }

    /// The reason for which a finding on a line is allowed.
    pub(super) fn reason(&mut self, path: &Path, line: u32, code: Code) -> Option<String> {
        let known = self.known(path)?;
        let number = known.allows.covering(&known.source, line, code)?;
        *known.used.get_mut(number)? = true;
        Some(known.allows.all.get(number)?.reason.clone())
    }

    /// The line of assembly source behind which a directive stands that is to hold from an instruction's line on.
    pub(super) fn line_before(&mut self, path: &Path, line: u32) -> Option<u32> {
        let source = &self.known(path)?.source;
        let place = source.places_before(line).first().copied();
        place.filter(|_| !source.is_repeated(line))?.checked_sub(1)
    }

    /// The comments of a file, and whether they have allowed something.
    pub(super) fn comments(&mut self, path: &Path) -> Vec<(Allow, bool)> {
        let known = self.known(path);
        known.map_or_else(Vec::new, |known| {
            let used = known.used.iter().copied();
            known.allows.all.iter().cloned().zip(used).collect()
        })
    }
}
