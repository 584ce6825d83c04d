//! Comments in source that allow a finding: `# unspool: allow CFI010 helpers return in rbx`.
//!
//! A comment after code applies to its line; a comment on its own line to the next line with code.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use unspool_assembly::AssemblySource;

use crate::finding::FindingCode;

/// A comment that allows findings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AllowComment {
    /// Its line, counted from 1.
    pub(crate) line: u32,
    codes: Vec<FindingCode>,
    /// Why they are allowed. Without a reason, the comment allows nothing.
    pub(crate) reason: String,
}

impl AllowComment {
    /// Parses the comment of a line.
    fn parse(line: u32, text: &str) -> Option<AllowComment> {
        let (before, words) = text.split_once("unspool: allow")?;
        let is_comment = before.trim_end().ends_with(['#', '/', '*', ';', '@', '!']);
        let words = words.split("*/").next().unwrap_or_default();
        let mut rest = words.trim();
        let mut codes = Vec::new();
        loop {
            let end = rest.find([' ', '\t', ',']).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            let Some(code) = FindingCode::from_name(word) else {
                break;
            };
            codes.push(code);
            rest = behind.trim_start_matches([' ', '\t', ',']);
        }
        is_comment.then(|| AllowComment {
            line,
            codes,
            reason: rest.trim().to_owned(),
        })
    }

    /// What is wrong with the comment itself.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        match (self.codes.is_empty(), self.reason.is_empty()) {
            (true, _) => Some("this allows nothing: write `unspool: allow CFI010 REASON`"),
            (_, true) => Some("this allows nothing without a reason: write it after the code"),
            _ => None,
        }
    }
}

/// The comments of a text.
#[derive(Debug, Clone, Default)]
pub(crate) struct AllowComments {
    pub(crate) all: Vec<AllowComment>,
}

impl AllowComments {
    pub(crate) fn parse(source: &AssemblySource) -> AllowComments {
        let lines = source.numbered_lines();
        let all = lines.filter_map(|(line, text)| AllowComment::parse(line, text));
        AllowComments { all: all.collect() }
    }

    /// The comment that allows a finding on a line of the text.
    pub(crate) fn covering(
        &self,
        source: &AssemblySource,
        line: u32,
        code: FindingCode,
    ) -> Option<usize> {
        if self.all.is_empty() {
            return None;
        }
        let above = source.gap_before(line).lines;
        self.all.iter().position(|allow| {
            let is_near =
                allow.line == line || above.contains(&allow.line) && source.is_blank(allow.line);
            is_near && allow.problem().is_none() && allow.codes.contains(&code)
        })
    }
}

/// A text with its comments.
#[derive(Debug)]
struct SourceText {
    /// Its file's path, without links.
    path: PathBuf,
    source: AssemblySource,
    allows: AllowComments,
    /// The comments that have allowed a finding.
    used: Vec<bool>,
}

/// Reads a source file: its path without links, so that one file is one text by all its names, and
/// its text. `None` if it cannot be read.
pub type ReadSource = fn(&Path) -> Option<(PathBuf, String)>;

/// The source files of findings, each read once.
#[derive(Debug)]
pub struct SourceTexts {
    read: ReadSource,
    /// By the name in a finding: the text's place in `texts`, if it can be read.
    names: HashMap<PathBuf, Option<usize>>,
    texts: Vec<SourceText>,
}

/// No source file can be read.
impl Default for SourceTexts {
    fn default() -> Self {
        SourceTexts::new(|_| None)
    }
}

impl SourceTexts {
    /// No text yet.
    #[must_use]
    pub fn new(read: ReadSource) -> SourceTexts {
        SourceTexts {
            read,
            names: HashMap::new(),
            texts: Vec::new(),
        }
    }

    fn source_text(&mut self, name: &Path) -> Option<&mut SourceText> {
        let place = match self.names.get(name) {
            Some(known) => *known,
            None => {
                let place = (self.read)(name).map(|(path, text)| self.place_of(path, &text));
                self.names.insert(name.to_owned(), place);
                place
            }
        };
        self.texts.get_mut(place?)
    }

    /// The place of a text that was read, under this name or another.
    fn place_of(&mut self, path: PathBuf, text: &str) -> usize {
        let known = self.texts.iter().position(|text| text.path == path);
        known.unwrap_or_else(|| {
            let source = AssemblySource::for_path(&path, text);
            let allows = AllowComments::parse(&source);
            self.texts.push(SourceText {
                used: vec![false; allows.all.len()],
                path,
                source,
                allows,
            });
            self.texts.len() - 1
        })
    }

    /// The reason that allows a finding on a line.
    pub(crate) fn reason(&mut self, path: &Path, line: u32, code: FindingCode) -> Option<String> {
        let known = self.source_text(path)?;
        let number = known.allows.covering(&known.source, line, code)?;
        *known.used.get_mut(number)? = true;
        Some(known.allows.all.get(number)?.reason.clone())
    }

    /// The line of assembly source after which a directive must stand to take effect at an
    /// instruction's line.
    pub(crate) fn line_before(&mut self, path: &Path, line: u32) -> Option<u32> {
        let source = &self.source_text(path)?.source;
        let place = source.insertion_points_before(line).first().copied();
        place.filter(|_| !source.is_repeated(line))?.checked_sub(1)
    }

    /// The comments of a file, and whether each has allowed a finding.
    pub(crate) fn comments(&mut self, path: &Path) -> Vec<(AllowComment, bool)> {
        let known = self.source_text(path);
        known.map_or_else(Vec::new, |known| {
            let used = known.used.iter().copied();
            known.allows.all.iter().cloned().zip(used).collect()
        })
    }
}
