//! Comments in source that allow a finding: `# unspool: allow CFI010 helpers return in rbx`.
//!
//! A comment after code applies to its line; a comment on its own line to the next line with code.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use unspool_assembly::AssemblySource;
use unspool_check::FindingCode;

/// The largest source file to read, in bytes.
const MAX_SOURCE_BYTES: u64 = 64 << 20;

/// A comment that allows findings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AllowComment {
    /// Its line, counted from 1.
    pub(super) line: u32,
    codes: Vec<FindingCode>,
    /// Why they are allowed. Without a reason, the comment allows nothing.
    pub(super) reason: String,
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
pub(super) struct AllowComments {
    pub(super) all: Vec<AllowComment>,
}

impl AllowComments {
    pub(super) fn parse(source: &AssemblySource) -> AllowComments {
        let lines = source.numbered_lines();
        let all = lines.filter_map(|(line, text)| AllowComment::parse(line, text));
        AllowComments { all: all.collect() }
    }

    /// The comment that allows a finding on a line of the text.
    pub(super) fn covering(
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
struct SourceText {
    source: AssemblySource,
    allows: AllowComments,
    /// The comments that have allowed a finding.
    used: Vec<bool>,
}

/// The source files of findings, if readable.
#[derive(Default)]
pub(super) struct SourceTexts {
    files: HashMap<PathBuf, Option<SourceText>>,
}

impl SourceTexts {
    fn source_text(&mut self, path: &Path) -> Option<&mut SourceText> {
        let path = fs::canonicalize(path).ok()?;
        let known = self.files.entry(path).or_insert_with_key(|path| {
            let metadata = fs::metadata(path).ok()?;
            let is_text = metadata.is_file() && metadata.len() <= MAX_SOURCE_BYTES;
            let text = is_text
                .then(|| fs::read_to_string(path))
                .and_then(Result::ok)?;
            let source = AssemblySource::for_path(path, &text);
            let allows = AllowComments::parse(&source);
            Some(SourceText {
                used: vec![false; allows.all.len()],
                source,
                allows,
            })
        });
        known.as_mut()
    }

    /// The reason that allows a finding on a line.
    pub(super) fn reason(&mut self, path: &Path, line: u32, code: FindingCode) -> Option<String> {
        let known = self.source_text(path)?;
        let number = known.allows.covering(&known.source, line, code)?;
        *known.used.get_mut(number)? = true;
        Some(known.allows.all.get(number)?.reason.clone())
    }

    /// The line of assembly source after which a directive must stand to take effect at an
    /// instruction's line.
    pub(super) fn line_before(&mut self, path: &Path, line: u32) -> Option<u32> {
        let source = &self.source_text(path)?.source;
        let place = source.insertion_points_before(line).first().copied();
        place.filter(|_| !source.is_repeated(line))?.checked_sub(1)
    }

    /// The comments of a file, and whether each has allowed a finding.
    pub(super) fn comments(&mut self, path: &Path) -> Vec<(AllowComment, bool)> {
        let known = self.source_text(path);
        known.map_or_else(Vec::new, |known| {
            let used = known.used.iter().copied();
            known.allows.all.iter().cloned().zip(used).collect()
        })
    }
}
