//! Findings with what stands around them.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use unspool_check::{Code, Finding, Line, Subject};
use unspool_ir::Vaddr;
use unspool_module::{DebugFiles, ElfFile, Lines, SearchRoots, Symbols, demangle};
use unspool_synth::{Analyzer, Machine};

use super::Checked;
use super::edit::Advice;
use super::source;
use super::suppressions::Suppression;

/// A finding with its surroundings.
pub(super) struct Told {
    pub(super) finding: Finding,
    /// The function, with the distance from its start.
    pub(super) function: Option<(String, u64)>,
    pub(super) source: Option<(String, u32)>,
    pub(super) lines: Vec<Line>,
    /// The jumps on a way there: addresses, and lines of the same source.
    pub(super) path: Vec<[(Vaddr, Option<u32>); 2]>,
    /// Whether the instruction before is of the same line of the source.
    pub(super) shares_line: bool,
    /// The line after which the directive is to be written.
    pub(super) after_line: Option<u32>,
    /// What `--fix` would do about it, if that is known.
    pub(super) advice: Option<Advice>,
    /// The command that writes entries for the file, if one does.
    pub(super) writer: Option<String>,
    /// Why it does not count, if it does not.
    pub(super) suppression: Option<Suppression>,
}

impl Told {
    /// The file and line of the source, or without one the file that was checked.
    pub(super) fn place<'a>(&'a self, file: &'a Checked) -> (Cow<'a, str>, Option<u32>) {
        match &self.source {
            Some((source, line)) => (source.as_str().into(), Some(*line)),
            None => (file.path.to_string_lossy(), None),
        }
    }

    /// The function's name, empty if no symbol names it.
    pub(super) fn function_name(&self) -> &str {
        self.function.as_ref().map_or("", |(name, _)| name.as_str())
    }

    /// What is wrong, where, and what to write.
    pub(super) fn sentence(&self) -> String {
        let at = self.finding.at;
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

    /// What to write, and where, or what else helps.
    pub(super) fn remedy(&self) -> String {
        if let Some(advice) = &self.advice {
            return advice.to_string();
        }
        match (&self.finding.fix, self.after_line, &self.writer) {
            (Some(fix), Some(line), _) => format!("write after line {line}: {fix}"),
            (None, _, Some(writer)) if self.finding.code == Code::NoEntry => {
                format!("{writer} writes its entry")
            }
            _ => self.finding.remedy(),
        }
    }
}

/// What stands around the findings of a file.
pub(super) struct Surroundings<'s> {
    file: &'s ElfFile,
    subject: &'s Subject<'s>,
    symbols: Symbols,
    lines: Lines,
    analyzer: Analyzer,
}

impl<'s> Surroundings<'s> {
    /// None if there are no findings.
    pub(super) fn of(
        file: &'s Arc<ElfFile>,
        subject: &'s Subject<'s>,
        findings: &[Finding],
    ) -> Option<Surroundings<'s>> {
        let addresses: Vec<Vaddr> = findings.iter().map(|finding| finding.at).collect();
        if addresses.is_empty() {
            return None;
        }
        let debug = DebugFiles::locate(file, &SearchRoots::from_environment());
        Some(Surroundings {
            file,
            subject,
            symbols: Symbols::near(file, debug.debug.as_deref(), &addresses),
            lines: Lines::new(Arc::clone(file), &debug, &addresses),
            analyzer: Analyzer::new(Machine::of(file.abi())?),
        })
    }

    /// The file and line of the source.
    pub(super) fn source(&self, at: Vaddr) -> Option<(String, u32)> {
        self.lines.line(at)
    }

    /// A finding with what stands around it, when so many have been told.
    pub(super) fn tell(
        &mut self,
        finding: Finding,
        source: Option<(String, u32)>,
        told: usize,
    ) -> Told {
        /// Instructions that are shown before the one that a finding is about, and from it on.
        const SHOWN: (usize, usize) = (3, 2);
        /// Each listing takes another look at the function.
        const LISTINGS: usize = 1000;
        let symbol = self.symbols.lookup(finding.at);
        let (mut lines, mut path) = (Vec::new(), None);
        if told < LISTINGS {
            lines = self
                .subject
                .listing(&mut self.analyzer, finding.at, SHOWN.0, SHOWN.1);
            path = self.subject.path_to(&mut self.analyzer, finding.at);
        }
        // Lines of another file would mislead.
        let line_of = |at: Vaddr| {
            let here = self.source(at)?;
            source
                .as_ref()
                .filter(|(file, _)| *file == here.0)
                .map(|_| here.1)
        };
        let before = lines.iter().rev().find(|insn: &&Line| insn.at < finding.at);
        let line_before = before.and_then(|insn| line_of(insn.at));
        let path = path.unwrap_or_default().into_iter();
        let source_path = source.as_ref().map(|(file, _)| file.clone());
        Told {
            function: symbol.map(|symbol| {
                let distance = finding.at.0.saturating_sub(symbol.address.0);
                (demangle(&symbol.name).into_owned(), distance)
            }),
            shares_line: line_before.is_some() && line_before == line_of(finding.at),
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

/// The command that writes entries: for assembly source its directives, and else a file with a table.
fn writer(file: &ElfFile, source: Option<&str>) -> Option<String> {
    let checked = file.path();
    let is_source = |source: &&str| source::is_assembly(Path::new(source));
    match source {
        _ if source::is_assembly(checked) => {
            Some(format!("unspool annotate {}", checked.display()))
        }
        Some(source) if is_source(&source) => Some(format!("unspool annotate {source}")),
        // Compilers write entries themselves, if they are told to.
        Some(_) => Some("-fasynchronous-unwind-tables, given to the compiler,".to_owned()),
        None => {
            // Of a member of an archive, that is named.
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
