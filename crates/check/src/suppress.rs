//! Which findings are suppressed, and why: comments in the source, suppression files, the baseline.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::finding::{FindingCode, Severity};
use crate::locate::LocatedFinding;

mod baseline;
mod comments;
mod pattern;
mod rules;

pub(crate) use baseline::FindingIdentity;
use baseline::file_name;
pub use baseline::{Baseline, BaselineError};
pub(crate) use comments::AllowComments;
pub use comments::{ReadSource, SourceTexts};
pub use rules::{SuppressionError, Suppressions};

/// Why a finding does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Suppression {
    /// Its source.
    #[serde(rename = "source")]
    pub kind: SuppressionKind,
    /// The reason given for it.
    pub reason: String,
}

/// The source of a suppression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SuppressionKind {
    /// A comment in the source.
    Comment,
    /// A line of a suppression file.
    File,
    /// The baseline.
    Baseline,
}

/// All sources of suppressions; by default none.
#[derive(Debug, Default)]
pub struct Suppressor {
    /// The source files, which may have comments.
    pub sources: SourceTexts,
    /// The suppression files, by path.
    pub files: Vec<(PathBuf, Suppressions)>,
    /// The baseline.
    pub baseline: Baseline,
}

/// A remark on a comment that allows findings.
#[derive(Debug, Clone)]
pub struct CommentRemark {
    /// The source file.
    pub path: String,
    /// The comment's line, counted from 1.
    pub line: u32,
    /// The severity.
    pub severity: Severity,
    /// What is wrong with the comment.
    pub text: &'static str,
}

impl Suppressor {
    /// Why a finding does not count.
    pub(crate) fn find(&mut self, path: &Path, finding: &LocatedFinding) -> Option<Suppression> {
        let suppression = |by, reason| Some(Suppression { kind: by, reason });
        if let Some(reason) = self.find_comment(finding.source.as_ref(), finding.finding.code) {
            return suppression(SuppressionKind::Comment, reason);
        }
        let function = finding.function_name();
        let checked = path.to_string_lossy();
        let source = finding.source.as_ref().map(|(source, _)| source.as_str());
        let paths = [Some(checked.as_ref()), source];
        let paths: Vec<&str> = paths.into_iter().flatten().collect();
        let names = paths.iter().map(|path| file_name(path));
        let all: Vec<&str> = names.chain(paths.iter().copied()).collect();
        for (_, file) in &mut self.files {
            if let Some(reason) = file.reason(finding.finding.code, &all, function) {
                return suppression(SuppressionKind::File, reason);
            }
        }
        let is_known = self.baseline.take(&FindingIdentity::new(path, finding));
        is_known.then(|| Suppression {
            kind: SuppressionKind::Baseline,
            reason: "it is in the baseline".to_owned(),
        })
    }

    /// The reason in a comment at a source line.
    pub(crate) fn find_comment(
        &mut self,
        source: Option<&(String, u32)>,
        code: FindingCode,
    ) -> Option<String> {
        let (source, line) = source?;
        self.sources.reason(Path::new(source), *line, code)
    }

    /// The line of assembly source after which a finding's directive must stand.
    pub(crate) fn line_before(&mut self, finding: &LocatedFinding) -> Option<u32> {
        let (source, line) = finding.source.as_ref()?;
        let is_certain = finding.is_assembly_line();
        is_certain.then(|| self.sources.line_before(Path::new(source), *line))?
    }

    /// Remarks on the comments of an assembly source file, after all of it was checked.
    pub(crate) fn remarks(&mut self, path: &Path) -> Vec<CommentRemark> {
        let comments = self.sources.comments(path).into_iter();
        let remarks = comments.filter_map(|(allow, is_used)| {
            let (severity, text) = match allow.problem() {
                Some(problem) => (Severity::Refuted, problem),
                None if is_used => return None,
                None => (Severity::Note, "this allows nothing that was found"),
            };
            Some(CommentRemark {
                path: path.to_string_lossy().into_owned(),
                line: allow.line,
                severity,
                text,
            })
        });
        remarks.collect()
    }
}
