//! Results of a run by module.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use unspool_check::{
    CheckSubject, CodeOrigin, DeclaredTable, Finding, FindingLocator, LocatedFinding, Severity,
    SubjectError,
};
use unspool_elf::{DebugFiles, ElfFile, SearchRoots};
use unspool_table_store::SourceError;

use crate::{FunctionRun, ObservedFinding, RowSource, StepReport};

/// The results of one module.
#[derive(Debug)]
pub struct ModuleRun<'r> {
    /// The file.
    pub path: &'r Path,
    /// Its functions in scope, by address.
    pub functions: Vec<&'r FunctionRun>,
    /// The number of other functions, which are compiled.
    pub functions_skipped: usize,
    /// Its findings, by address.
    pub findings: Vec<&'r ObservedFinding>,
}

impl StepReport {
    /// The results by module with functions in scope.
    #[must_use]
    pub fn by_module(&self) -> Vec<ModuleRun<'_>> {
        let mut modules: BTreeMap<&Path, Vec<&FunctionRun>> = BTreeMap::new();
        for function in &self.functions {
            modules.entry(&function.module).or_default().push(function);
        }
        let modules = modules.into_iter().map(|(path, functions)| ModuleRun {
            path,
            functions,
            functions_skipped: self.left_out.get(path).copied().unwrap_or_default(),
            findings: self
                .findings
                .iter()
                .filter(|it| it.module == path)
                .collect(),
        });
        modules.collect()
    }

    /// Whether there is more than notes.
    #[must_use]
    pub fn has_findings(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|observed| observed.finding.severity != Severity::Note)
    }

    /// Whether no function in scope was called: the request was not carried out.
    #[must_use]
    pub fn is_without_calls(&self) -> bool {
        self.functions.iter().all(|function| function.entered == 0)
    }
}

/// How much of a module was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModuleCounts {
    /// Functions that were called.
    pub entered: usize,
    /// Rows that were compared.
    pub executed: usize,
    /// Rows at which nothing was executed.
    pub not_executed: usize,
    /// Executed instructions without a row.
    pub missing: usize,
}

impl ModuleRun<'_> {
    /// The sums over its functions.
    #[must_use]
    pub fn counts(&self) -> ModuleCounts {
        let mut counts = ModuleCounts::default();
        for function in &self.functions {
            counts.entered += usize::from(function.entered > 0);
            counts.executed += function.rows.executed;
            counts.not_executed += function.rows.not_executed.len();
            counts.missing += function.rows.missing;
        }
        counts
    }

    /// The findings with their context in the module's file and its debug files. `rows` are those
    /// that were compared.
    ///
    /// # Errors
    ///
    /// The file cannot be read again.
    pub fn located_findings(&self, rows: RowSource) -> Result<Vec<LocatedFinding>, SubjectError> {
        if self.findings.is_empty() {
            return Ok(Vec::new());
        }
        let file = Arc::new(ElfFile::open(self.path).map_err(SourceError::from)?);
        let debug = DebugFiles::locate(&file, &SearchRoots::from_environment());
        let findings = self
            .findings
            .iter()
            .map(|observed| observed.finding.clone());
        let findings: Vec<Finding> = findings.collect();
        let declared = DeclaredTable::from_table(rows.read(&file));
        let subject = CheckSubject::new(&file, &declared, CodeOrigin::from_file(&file))?;
        let Some(mut locator) = FindingLocator::new(&file, &debug, &subject, &findings) else {
            return Ok(Vec::new());
        };
        let located = findings.into_iter().enumerate().map(|(number, finding)| {
            let source = locator.source(finding.address);
            locator.locate(finding, source, number)
        });
        Ok(located.collect())
    }
}
