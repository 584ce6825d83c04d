//! Findings with their context.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use unspool_assembly::{AssemblySource, EditStep};
use unspool_check::{CheckSubject, Finding, FindingCode, ListingLine};
use unspool_code_analysis::{Analyzer, Lifter};
use unspool_elf::{DebugFiles, ElfFile, Lines, SearchRoots, Symbols, demangle};
use unspool_rows::Vaddr;

use super::FileReport;
use super::suppressions::Suppression;

/// A finding with its context.
pub(super) struct LocatedFinding {
    pub(super) finding: Finding,
    /// The function, with the distance from its start.
    pub(super) function: Option<(String, u64)>,
    pub(super) source: Option<(String, u32)>,
    pub(super) lines: Vec<ListingLine>,
    /// The jumps on a path to it: addresses, and lines of the same source.
    pub(super) path: Vec<[(Vaddr, Option<u32>); 2]>,
    /// Whether the preceding instruction is from the same source line.
    pub(super) shares_line: bool,
    /// The line after which to write the directive.
    pub(super) after_line: Option<u32>,
    /// What `--fix` would do about it, if known.
    pub(super) advice: Option<Vec<EditStep>>,
    /// The command that writes entries for the file, if there is one.
    pub(super) writer: Option<String>,
    /// Why it does not count, if it is suppressed.
    pub(super) suppression: Option<Suppression>,
}

impl LocatedFinding {
    /// The source file and line, or without line numbers the checked file.
    pub(super) fn place<'a>(&'a self, file: &'a FileReport) -> (Cow<'a, str>, Option<u32>) {
        match &self.source {
            Some((source, line)) => (source.as_str().into(), Some(*line)),
            None => (file.path.to_string_lossy(), None),
        }
    }

    /// The function's name, empty if no symbol names it.
    pub(super) fn function_name(&self) -> &str {
        self.function.as_ref().map_or("", |(name, _)| name.as_str())
    }

    /// The problem, its location, and the directive to write.
    pub(super) fn sentence(&self) -> String {
        let at = self.finding.address;
        let place = match &self.function {
            Some((name, distance)) => format!("in {name}+{distance:#x}"),
            None => format!("at {at}"),
        };
        let mut message = self.finding.message();
        if let Some(hint) = self.finding.hint {
            message = format!("{message} ({hint})");
        }
        format!("{message}, {place}; {}", self.remedy())
    }

    /// The directive to write and where, or another remedy.
    pub(super) fn remedy(&self) -> String {
        if let Some(advice) = &self.advice {
            let steps: Vec<String> = advice.iter().map(EditStep::to_string).collect();
            return steps.join("; ");
        }
        match (&self.finding.fix, self.after_line, &self.writer) {
            (Some(fix), Some(line), _) => format!("write after line {line}: {fix}"),
            (None, _, Some(writer)) if self.finding.code == FindingCode::NoEntry => {
                format!("{writer} writes its entry")
            }
            _ => self.finding.remedy(),
        }
    }
}

/// The line numbers of a file.
pub(super) fn lines(file: &Arc<ElfFile>) -> Lines {
    let debug = DebugFiles::locate(file, &SearchRoots::from_environment());
    Lines::new(Arc::clone(file), &debug, &[])
}

/// Finds the context of a file's findings.
pub(super) struct FindingLocator<'s> {
    file: &'s ElfFile,
    subject: &'s CheckSubject<'s>,
    symbols: Symbols,
    lines: Lines,
    analyzer: Analyzer,
}

impl<'s> FindingLocator<'s> {
    /// `None` if there are no findings.
    pub(super) fn new(
        file: &'s Arc<ElfFile>,
        subject: &'s CheckSubject<'s>,
        findings: &[Finding],
    ) -> Option<FindingLocator<'s>> {
        let addresses: Vec<Vaddr> = findings.iter().map(|finding| finding.address).collect();
        if addresses.is_empty() {
            return None;
        }
        let debug = DebugFiles::locate(file, &SearchRoots::from_environment());
        Some(FindingLocator {
            file,
            subject,
            symbols: Symbols::for_addresses(file, debug.debug.as_deref(), &addresses),
            lines: Lines::new(Arc::clone(file), &debug, &addresses),
            analyzer: Analyzer::new(Lifter::new(file.abi())?),
        })
    }

    /// The file and line of the source.
    pub(super) fn source(&self, at: Vaddr) -> Option<(String, u32)> {
        self.lines.line(at)
    }

    /// A finding with its context; the number of earlier ones limits listings.
    pub(super) fn locate(
        &mut self,
        finding: Finding,
        source: Option<(String, u32)>,
        reported: usize,
    ) -> LocatedFinding {
        /// The number of instructions shown before a finding's instruction, and from it on.
        const LISTED_INSTRUCTIONS: (usize, usize) = (3, 2);
        /// Each listing decodes the function once more.
        const MAX_LISTINGS: usize = 1000;
        let symbol = self.symbols.lookup(finding.address);
        let (mut lines, mut path) = (Vec::new(), None);
        if reported < MAX_LISTINGS {
            lines = self.subject.listing(
                &mut self.analyzer,
                finding.address,
                LISTED_INSTRUCTIONS.0,
                LISTED_INSTRUCTIONS.1,
            );
            path = self.subject.path_to(&mut self.analyzer, finding.address);
        }
        // Lines of another file would mislead.
        let line_of = |at: Vaddr| {
            let here = self.source(at)?;
            source
                .as_ref()
                .filter(|(file, _)| *file == here.0)
                .map(|_| here.1)
        };
        let before = lines
            .iter()
            .rev()
            .find(|insn: &&ListingLine| insn.address < finding.address);
        let line_before = before.and_then(|insn| line_of(insn.address));
        let path = path.unwrap_or_default().into_iter();
        let source_path = source.as_ref().map(|(file, _)| file.clone());
        LocatedFinding {
            function: symbol.map(|symbol| {
                let distance = finding.address.0.saturating_sub(symbol.address.0);
                (demangle(&symbol.name).into_owned(), distance)
            }),
            shares_line: line_before.is_some() && line_before == line_of(finding.address),
            path: path.map(|jump| jump.map(|at| (at, line_of(at)))).collect(),
            source,
            lines,
            finding,
            after_line: None,
            advice: None,
            writer: writer(self.file, source_path.as_deref()),
            suppression: None,
        }
    }
}

/// The command that writes entries: directives for assembly source, else a file with a table.
fn writer(file: &ElfFile, source: Option<&str>) -> Option<String> {
    let checked = file.path();
    let is_source = |source: &&str| AssemblySource::is_assembly_path(Path::new(source));
    match source {
        _ if AssemblySource::is_assembly_path(checked) => {
            Some(format!("unspool annotate {}", checked.display()))
        }
        Some(source) if is_source(&source) => Some(format!("unspool annotate {source}")),
        // Compilers write entries themselves with these options.
        Some(_) => Some("-fasynchronous-unwind-tables, given to the compiler,".to_owned()),
        None => {
            // For a member of an archive, the archive's name.
            let whole = checked.to_string_lossy();
            let whole = match whole
                .strip_suffix(')')
                .and_then(|name| name.rsplit_once('('))
            {
                Some((archive, _)) => archive.to_owned(),
                None => whole.into_owned(),
            };
            Some(format!("unspool synth {whole} --into OUT"))
        }
    }
}
