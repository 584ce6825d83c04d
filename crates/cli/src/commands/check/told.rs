//! Findings with what stands around them.

use std::borrow::Cow;
use std::sync::Arc;

use unspool_check::{Finding, Line, Subject};
use unspool_ir::Vaddr;
use unspool_module::{DebugFiles, ElfFile, Lines, SearchRoots, Symbols, demangle};
use unspool_synth::{Analyzer, Machine};

use super::Checked;
use super::edit::Advice;
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
        match self.remedy() {
            Some(remedy) => format!("{message}, {place}; {remedy}"),
            None => format!("{message}, {place}"),
        }
    }

    /// What to write, and where.
    pub(super) fn remedy(&self) -> Option<String> {
        if let Some(advice) = &self.advice {
            return Some(advice.to_string());
        }
        let fix = self.finding.fix.as_ref()?;
        Some(match self.after_line {
            Some(line) => format!("write after line {line}: {fix}"),
            None => format!("write before {:x}: {fix}", self.finding.at.0),
        })
    }
}

/// What stands around the findings of a file.
pub(super) struct Surroundings<'s> {
    subject: &'s Subject<'s>,
    symbols: Symbols,
    lines: Lines,
    analyzer: Analyzer,
}

impl<'s> Surroundings<'s> {
    /// None if there are no findings.
    pub(super) fn of(
        file: &Arc<ElfFile>,
        subject: &'s Subject<'s>,
        findings: &[Finding],
    ) -> Option<Surroundings<'s>> {
        let addresses: Vec<Vaddr> = findings.iter().map(|finding| finding.at).collect();
        if addresses.is_empty() {
            return None;
        }
        let debug = DebugFiles::locate(file, &SearchRoots::from_environment());
        Some(Surroundings {
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
            suppression: None,
        }
    }
}
