//! The report of a file: its findings by severity and author, with suppressions.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unspool_elf::{DebugFiles, ElfFile, ElfKind, Lines};
use unspool_rows::Vaddr;

use crate::callees::Callees;
use crate::convention::CallingConvention;
use crate::finding::{FindingCode, Severity};
use crate::locate::{FindingLocator, LocatedFinding};
use crate::origin::{CodeOrigin, CodeOrigins};
use crate::ownership::CodeOwnership;
use crate::report::{CheckReport, RowTotals};
use crate::subject::{CheckSubject, DeclaredTable, SubjectError};
use crate::suppress::{CommentRemark, Suppressor};

/// What to report.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// The lowest reported severity.
    pub strictness: Strictness,
    /// Report only findings in source under this folder, and in hand-written code without line
    /// numbers.
    pub own: Option<PathBuf>,
    /// Report only functions of these names, and their parts; without any, all.
    pub functions: Vec<String>,
    /// The calling convention of all code whose symbols show none; by default the psABI's.
    pub convention: Option<CallingConvention>,
    /// The number of threads.
    pub threads: NonZeroUsize,
}

/// All files and functions, by origin, in one thread.
impl Default for CheckOptions {
    fn default() -> Self {
        CheckOptions {
            strictness: Strictness::default(),
            own: None,
            functions: Vec::new(),
            convention: None,
            threads: NonZeroUsize::MIN,
        }
    }
}

/// Which severities are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strictness {
    /// In hand-written code, all that is not proven; in a compiler's, what is refuted.
    #[default]
    ByOrigin,
    /// Everything.
    Strict,
    /// What is refuted.
    Lenient,
}

impl Strictness {
    /// The lowest severity that is reported for code of an origin.
    #[must_use]
    pub fn minimum_severity(self, origin: CodeOrigin) -> Severity {
        match (self, origin) {
            (Strictness::Strict, _) => Severity::Note,
            (Strictness::ByOrigin, CodeOrigin::HandWritten) => Severity::Unproven,
            (Strictness::ByOrigin | Strictness::Lenient, _) => Severity::Refuted,
        }
    }
}

/// The findings of one file.
#[derive(Debug, Clone)]
pub struct FileReport {
    /// The file.
    pub path: PathBuf,
    /// The archive that contains it.
    pub archive: Option<PathBuf>,
    /// Counts of rows.
    pub totals: RowTotals,
    /// The functions counted in [`RowTotals::assuming_bounds`].
    pub functions_assuming_bounds: Vec<Vaddr>,
    /// The calls of the functions counted in [`RowTotals::assuming_noreturn`].
    pub calls_assumed_noreturn: Vec<Vaddr>,
    /// The functions that these calls go to, as far as they are known, each once.
    pub functions_assumed_noreturn: Vec<String>,
    /// The calling conventions other than the psABI's, each with the number of its entries.
    pub conventions: Vec<(CallingConvention, usize)>,
    /// The findings, with suppressed ones.
    pub findings: Vec<LocatedFinding>,
    /// The number of findings below the reported severity.
    pub below_severity: usize,
    /// Remarks on comments that allow findings.
    pub remarks: Vec<CommentRemark>,
    /// Whether nothing is reported because no line numbers show whose code it is
    /// ([`CheckOptions::own`]).
    pub lacks_lines: bool,
}

impl FileReport {
    /// Checks an ELF file, with the names and lines of its debug files. The functions of an object
    /// file without a table lack entries, whoever wrote them.
    ///
    /// # Errors
    ///
    /// It has no table that can be read, or its architecture is not supported.
    pub fn from_elf(
        file: &Arc<ElfFile>,
        debug: &DebugFiles,
        options: &CheckOptions,
        suppressor: &mut Suppressor,
    ) -> Result<FileReport, SubjectError> {
        let ownership = CodeOwnership::new(file, options.own.as_deref());
        let origins = ownership.origins(file, &Lines::new(Arc::clone(file), debug, &[]));
        let mut checker = FileChecker {
            file,
            debug,
            options,
            suppressor,
        };
        match DeclaredTable::read(file) {
            Ok(declared) => checker.check(&declared, origins),
            Err(error) => checker.check_without_table(origins)?.ok_or(error),
        }
    }

    /// Checks a file that was assembled from a hand-written source of the same path. Each function
    /// without directives is a finding.
    ///
    /// # Errors
    ///
    /// Its table cannot be read, or its architecture is not supported.
    pub fn from_assembled(
        file: &Arc<ElfFile>,
        options: &CheckOptions,
        suppressor: &mut Suppressor,
    ) -> Result<FileReport, SubjectError> {
        let mut checker = FileChecker {
            file,
            debug: &DebugFiles::default(),
            options,
            suppressor,
        };
        let declared = DeclaredTable::read_if_any(file)?;
        let mut report = checker.check(&declared, CodeOrigin::HandWritten.into())?;
        report.remarks = suppressor.remarks(file.path());
        Ok(report)
    }

    /// Findings without a suppression.
    pub fn unsuppressed(&self) -> impl Iterator<Item = &LocatedFinding> {
        self.findings
            .iter()
            .filter(|finding| finding.suppression.is_none())
    }

    /// The severities of unsuppressed findings and of remarks.
    pub fn severities(&self) -> impl Iterator<Item = Severity> {
        let findings = self.unsuppressed().map(|finding| finding.finding.severity);
        findings.chain(self.remarks.iter().map(|remark| remark.severity))
    }

    /// Whether there is more than notes.
    #[must_use]
    pub fn has_findings(&self) -> bool {
        let mut severities = self.severities();
        severities.any(|severity| severity != Severity::Note)
    }

    /// Removes findings of code that is in several files: a library, and the programs that link it.
    pub fn remove_duplicates(reports: &mut [FileReport]) {
        let mut seen = HashSet::new();
        for file in reports {
            file.findings.retain(|finding| {
                let key = (
                    finding.finding.code,
                    finding.function.clone(),
                    finding.finding.subject.clone(),
                );
                finding.function.is_none() || seen.insert(key)
            });
        }
    }
}

/// A file to check.
struct FileChecker<'c> {
    file: &'c Arc<ElfFile>,
    debug: &'c DebugFiles,
    options: &'c CheckOptions,
    suppressor: &'c mut Suppressor,
}

impl FileChecker<'_> {
    fn check(
        &mut self,
        declared: &DeclaredTable,
        origins: CodeOrigins,
    ) -> Result<FileReport, SubjectError> {
        Ok(self.check_and_count(declared, origins)?.0)
    }

    /// The report, and the number of findings before those are left out that are not asked for.
    fn check_and_count(
        &mut self,
        declared: &DeclaredTable,
        origins: CodeOrigins,
    ) -> Result<(FileReport, usize), SubjectError> {
        let file = self.file;
        let has_lines = origins.has_hand_written();
        let lines = has_lines.then(|| Lines::new(Arc::clone(file), self.debug, &[]));
        let subject = CheckSubject::new(file, declared, origins)?;
        let subject = subject.with_convention(self.options.convention);
        let mut subject = subject.with_functions(&self.options.functions);
        if let Some(lines) = &lines {
            subject = subject.with_lines(lines);
        }
        let report = CheckReport::from_subject(&mut subject, self.options.threads, |_, _| {});
        let assumed = Callees::new(file, self.debug, &report.calls_assumed_noreturn);
        let mut checked = FileReport {
            path: file.path().to_path_buf(),
            archive: None,
            totals: report.totals,
            functions_assuming_bounds: report.functions_assuming_bounds,
            calls_assumed_noreturn: report.calls_assumed_noreturn,
            functions_assumed_noreturn: assumed.names(),
            conventions: subject.conventions(),
            below_severity: 0,
            findings: Vec::new(),
            remarks: Vec::new(),
            lacks_lines: false,
        };
        let count = report.findings.len();
        let locator = FindingLocator::new(file, self.debug, &subject, &report.findings);
        let Some(mut locator) = locator else {
            return Ok((checked, count));
        };
        let ownership = CodeOwnership::new(file, self.options.own.as_deref());
        checked.lacks_lines = ownership.lacks_lines();
        for finding in report.findings {
            let source = locator.source(finding.address);
            let source_path = source.as_ref().map(|(source, _)| Path::new(source));
            if !ownership.is_own(source_path) {
                continue;
            }
            // In hand-written code everything is reported, in any program, whichever unit has its
            // line numbers.
            let origin = if ownership.is_hand_written(source_path) {
                CodeOrigin::HandWritten
            } else {
                subject.origin_at(finding.address)
            };
            // Nothing that holds an unknown instruction is proven, whoever wrote it.
            let judged_as = match finding.code {
                FindingCode::UnknownInstruction => CodeOrigin::HandWritten,
                _ => origin,
            };
            if finding.severity < self.options.strictness.minimum_severity(judged_as) {
                // A comment may be about a finding that is reported only on request.
                self.suppressor.find_comment(source.as_ref(), finding.code);
                checked.below_severity += 1;
                continue;
            }
            let mut located = locator.locate(finding, source, checked.findings.len());
            located.suppression = self.suppressor.find(&checked.path, &located);
            located.after_line = self.suppressor.line_before(&located);
            checked.findings.push(located);
        }
        set_fix_sets(&subject, &mut checked.findings);
        Ok((checked, count))
    }

    /// Checks an object file that has code and no table. `None` if the file cannot be checked
    /// without a table: without functions, a kernel module, or linked, since its table may be in
    /// another file.
    fn check_without_table(
        &mut self,
        origins: CodeOrigins,
    ) -> Result<Option<FileReport>, SubjectError> {
        let file = self.file;
        let is_object = file.kind() == ElfKind::Relocatable && !is_kernel_module(file);
        if !is_object || file.executable_ranges().is_empty() {
            return Ok(None);
        }
        let bare = match DeclaredTable::read_if_any(file) {
            Ok(declared) if declared.table.fdes().is_empty() => declared,
            _ => return Ok(None),
        };
        let origins = if origins.has_hand_written() {
            origins
        } else {
            CodeOrigins::from(CodeOrigin::HandWritten)
        };
        let (checked, count) = self.check_and_count(&bare, origins)?;
        Ok((count > checked.below_severity).then_some(checked))
    }
}

/// Tells findings of one entry of each other, where directives fix them.
fn set_fix_sets(subject: &CheckSubject<'_>, findings: &mut [LocatedFinding]) {
    let mut sets: HashMap<Option<usize>, Vec<Vaddr>> = HashMap::new();
    let entry = |located: &LocatedFinding| {
        let address = located.finding.address.0;
        subject.program().index_containing(address)
    };
    let fixed = |located: &&LocatedFinding| located.finding.fix.is_some();
    for located in findings.iter().filter(fixed) {
        let set = sets.entry(entry(located)).or_default();
        set.push(located.finding.address);
    }
    sets.retain(|_, set| set.len() > 1);
    let sets = sets.into_iter();
    let sets: HashMap<_, Arc<[Vaddr]>> = sets.map(|(entry, set)| (entry, set.into())).collect();
    for located in findings.iter_mut().filter(|it| it.finding.fix.is_some()) {
        located.fix_set = sets
            .get(&entry(located))
            .map(Arc::clone)
            .unwrap_or_default();
    }
}

/// Whether a file is a module of the Linux kernel.
#[must_use]
pub fn is_kernel_module(file: &ElfFile) -> bool {
    file.sections().any(|section| section.name == ".modinfo")
}
