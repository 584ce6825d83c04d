//! Which findings are suppressed, and why: comments in the source, suppression files, the baseline.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use unspool_assembly::AssemblySource;
use unspool_check::{FindingCode, Severity};

use super::allow::SourceTexts;
use super::suppressions::{Baseline, FindingIdentity, Suppression, SuppressionKind, Suppressions};
use super::{FileReport, LocatedFinding};
use crate::args::CheckArgs;
use crate::output::{self, EscapedText};

/// All sources of suppressions.
pub(super) struct SuppressionSources {
    sources: SourceTexts,
    files: Vec<(PathBuf, Suppressions)>,
    baseline: Baseline,
}

/// A remark on a comment that allows findings.
#[derive(Debug, Clone)]
pub(super) struct Remark {
    pub(super) path: String,
    pub(super) line: u32,
    pub(super) severity: Severity,
    pub(super) text: &'static str,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Remark {
            path,
            line,
            severity,
            text,
        } = self;
        write!(
            f,
            "{}:{line}: {} {} {text}",
            EscapedText(path),
            severity.name(),
            FindingCode::Allow.id()
        )
    }
}

impl Remark {
    pub(super) fn as_json(&self) -> Value {
        json!({
            "code": FindingCode::Allow.id(),
            "name": FindingCode::Allow.name(),
            "verdict": self.severity.name(),
            "file": self.path,
            "line": self.line,
            "message": self.text,
        })
    }
}

impl SuppressionSources {
    /// Reads the files that the command line names.
    pub(super) fn read(args: &CheckArgs) -> anyhow::Result<SuppressionSources> {
        let files = args.suppressions.iter().map(|path| {
            let suppressions = Suppressions::read(path)?;
            Ok((path.clone(), suppressions))
        });
        let baseline = match &args.baseline {
            Some(path) if !args.write_baseline => Baseline::read(path)?,
            _ => Baseline::default(),
        };
        Ok(SuppressionSources {
            sources: SourceTexts::default(),
            files: files.collect::<anyhow::Result<_>>()?,
            baseline,
        })
    }

    /// Why a finding does not count.
    pub(super) fn find(&mut self, path: &Path, finding: &LocatedFinding) -> Option<Suppression> {
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
        let is_known = self.baseline.take(&identity(path, finding));
        is_known.then(|| Suppression {
            kind: SuppressionKind::Baseline,
            reason: "it is in the baseline".to_owned(),
        })
    }

    /// The reason in a comment at a source line.
    pub(super) fn find_comment(
        &mut self,
        source: Option<&(String, u32)>,
        code: FindingCode,
    ) -> Option<String> {
        let (source, line) = source?;
        self.sources.reason(Path::new(source), *line, code)
    }

    /// The line of assembly source after which a finding's directive must stand.
    pub(super) fn line_before(&mut self, finding: &LocatedFinding) -> Option<u32> {
        let (source, line) = finding.source.as_ref()?;
        let path = Path::new(source);
        let is_certain = AssemblySource::is_assembly_path(path) && !finding.shares_line;
        is_certain.then(|| self.sources.line_before(path, *line))?
    }

    /// Remarks on the comments of an assembly source file, after all of it was checked.
    pub(super) fn remarks(&mut self, path: &Path) -> Vec<Remark> {
        let comments = self.sources.comments(path).into_iter();
        let remarks = comments.filter_map(|(allow, is_used)| {
            let (severity, text) = match allow.problem() {
                Some(problem) => (Severity::Refuted, problem),
                None if is_used => return None,
                None => (Severity::Note, "this allows nothing that was found"),
            };
            Some(Remark {
                path: path.to_string_lossy().into_owned(),
                line: allow.line,
                severity,
                text,
            })
        });
        remarks.collect()
    }

    /// Reports unused suppressions, and writes the baseline on request.
    pub(super) fn end(self, args: &CheckArgs, checked: &[FileReport]) -> anyhow::Result<()> {
        for (path, file) in &self.files {
            for line in file.unused() {
                let path = path.display();
                output::notice(&format_args!("{path}:{line}: suppresses no finding"));
            }
        }
        let Some(path) = &args.baseline else {
            return Ok(());
        };
        if !args.write_baseline {
            // Nothing is known about files that were not checked.
            let is_checked = |name: &str| {
                let mut checked = checked.iter();
                checked.any(|file| file_name(&file.path.to_string_lossy()) == name)
            };
            match self.baseline.count(is_checked) {
                0 => {}
                gone => output::notice(&format_args!(
                    "{}: {gone} findings are gone; --write-baseline writes it anew",
                    path.display()
                )),
            }
            return Ok(());
        }
        let mut baseline = Baseline::default();
        for file in checked {
            for finding in file.unsuppressed() {
                baseline.add(identity(&file.path, finding));
            }
        }
        let written = baseline.count(|_| true);
        baseline.write(path)?;
        output::notice(&format_args!(
            "{}: {written} findings written",
            path.display()
        ));
        Ok(())
    }
}

/// The identity of a finding in a file.
pub(super) fn identity(path: &Path, finding: &LocatedFinding) -> FindingIdentity {
    FindingIdentity {
        code: finding.finding.code.id(),
        file: file_name(&path.to_string_lossy()).to_owned(),
        function: finding.function_name().to_owned(),
        subject: finding.finding.subject.clone(),
    }
}

/// The part after the last slash.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
