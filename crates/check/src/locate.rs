//! Findings with their context.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use unspool_assembly::{AssemblySource, EditStep};
use unspool_code_analysis::{Analyzer, Lifter};
use unspool_elf::{DebugFiles, ElfFile, ElfKind, Lines, Symbols, demangle};
use unspool_rows::Vaddr;

use crate::callees::Callees;
use crate::finding::{Finding, FindingCode};
use crate::hint::Hint;
use crate::listing::ListingLine;
use crate::origin::CodeOrigin;
use crate::places::CodePlaces;
use crate::subject::CheckSubject;
use crate::suppress::Suppression;

/// A finding with its context.
#[derive(Debug, Clone)]
pub struct LocatedFinding {
    /// The finding.
    pub finding: Finding,
    /// The function, with the distance from its start in bytes.
    pub function: Option<(String, u64)>,
    /// The section and the distance from its start in bytes, in an object file with several sections
    /// of code.
    pub section: Option<(String, u64)>,
    /// The source file, and the line in it.
    pub source: Option<(String, u32)>,
    /// The instructions around it.
    pub lines: Vec<ListingLine>,
    /// The jumps on a path to it: addresses, and lines of the same source.
    pub path: Vec<[(Vaddr, Option<u32>); 2]>,
    /// Whether the preceding instruction is from the same source line.
    pub shares_line: bool,
    /// The line after which to write the directive.
    pub after_line: Option<u32>,
    /// The addresses of all findings of its entry that a directive fixes, if there are others: the
    /// entry is right with all of these directives.
    pub fix_set: Arc<[Vaddr]>,
    /// What a fix would do about it, if known.
    pub advice: Option<Vec<EditStep>>,
    /// How its text names places in the code.
    pub(crate) places: CodePlaces,
    /// The command or option that writes an entry for its code.
    pub entry_writer: String,
    /// The command that writes its row, where no directive can: a compiler's source has none.
    pub row_writer: Option<String>,
    /// Why it does not count, if it is suppressed.
    pub suppression: Option<Suppression>,
}

impl LocatedFinding {
    /// The source file and line, or without line numbers the checked file.
    #[must_use]
    pub(crate) fn place<'a>(&'a self, checked: &'a Path) -> (Cow<'a, str>, Option<u32>) {
        match &self.source {
            Some((source, line)) => (source.as_str().into(), Some(*line)),
            None => (checked.to_string_lossy(), None),
        }
    }

    /// The address, as objdump prints it: in an object file by its section.
    #[must_use]
    pub fn address(&self) -> String {
        match &self.section {
            Some((name, offset)) => format!("{name}+{offset:#x}"),
            None => self.finding.address.to_string(),
        }
    }

    /// The function's name, empty if no symbol names it.
    #[must_use]
    pub(crate) fn function_name(&self) -> &str {
        self.function.as_ref().map_or("", |(name, _)| name.as_str())
    }

    /// A sentence that says what is wrong.
    #[must_use]
    pub fn message(&self) -> String {
        self.finding.message_with(&self.places)
    }

    /// A possible cause.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = self.finding.hint?;
        let mut text = String::new();
        hint.write(&mut text, &self.places).ok()?;
        Some(text)
    }

    /// An address of the same function, as objdump prints it: in an object file with several
    /// sections of code, the distance from the section's start.
    #[must_use]
    pub fn printed_address(&self, at: Vaddr) -> u64 {
        let start = self.section.as_ref().map_or(0, |(_, offset)| {
            self.finding.address.0.wrapping_sub(*offset)
        });
        at.0.wrapping_sub(start)
    }

    /// The problem, its location, and the directive to write.
    #[must_use]
    pub fn sentence(&self) -> String {
        let place = match &self.function {
            Some((name, distance)) => format!("in {name}+{distance:#x}"),
            None => format!("at {}", self.address()),
        };
        let mut message = self.message();
        if let Some(hint) = self.hint() {
            message = format!("{message} ({hint})");
        }
        format!("{message}, {place}; {}", self.remedy())
    }

    /// Whether a line of assembly source makes this instruction as its first.
    pub(crate) fn is_assembly_line(&self) -> bool {
        let source = self.source.as_ref();
        let is_assembly =
            source.is_some_and(|(path, _)| AssemblySource::is_assembly_path(Path::new(path)));
        is_assembly && !self.shares_line
    }

    /// The directive to write and where, or another remedy.
    #[must_use]
    pub fn remedy(&self) -> String {
        if let Some(advice) = &self.advice {
            let steps: Vec<String> = advice.iter().map(EditStep::to_string).collect();
            return steps.join("; ");
        }
        match (&self.finding.fix, self.after_line) {
            (Some(_), _) if self.row_writer.is_some() => format!(
                "{} writes the row: no directive in an asm statement knows the compiler's (docs/annotate.md)",
                self.row_writer.as_deref().unwrap_or_default()
            ),
            (Some(fix), Some(line)) => format!("write after line {line}: {fix}"),
            (Some(fix), None) if self.is_assembly_line() => {
                let line = self.source.as_ref().map_or(0, |(_, line)| *line);
                format!("write before line {line}: {fix}")
            }
            (Some(fix), None) if self.section.is_some() => {
                format!("write before {}: {fix}", self.address())
            }
            (None, _) if self.finding.code == FindingCode::NoEntry => {
                format!("{} writes its entry", self.entry_writer)
            }
            _ => self.finding.remedy_with(&self.places),
        }
    }
}

/// The command or option that writes an entry for code of a file, and from a source if that is
/// known: directives for assembly source, else a file with a table.
fn entry_writer(file: &ElfFile, source: Option<&str>) -> String {
    let checked = file.path();
    match source.map(Path::new) {
        _ if AssemblySource::is_assembly_path(checked) => {
            format!("unspool annotate {}", checked.display())
        }
        Some(source) if AssemblySource::is_assembly_path(source) => {
            format!("unspool annotate {}", source.display())
        }
        // Compilers write entries themselves with this option.
        Some(_) => "-fasynchronous-unwind-tables, given to the compiler,".to_owned(),
        None => match archive_member(checked) {
            (archive, Some(member)) => format!(
                "ar x {archive} {member} && unspool synth {member} --into {member} && ar r {archive} {member}"
            ),
            (file, None) => format!("unspool synth {file} --into OUT"),
        },
    }
}

/// The command that writes rows of code with a compiler's source. Without line numbers, an object
/// file's origin shows that.
fn row_writer(file: &ElfFile, source: Option<&str>, origin: CodeOrigin) -> Option<String> {
    let is_compiled = match source {
        Some(source) => !AssemblySource::is_assembly_path(Path::new(source)),
        None => file.kind() == ElfKind::Relocatable && origin == CodeOrigin::Compiler,
    };
    let (whole, _) = archive_member(file.path());
    is_compiled.then(|| format!("unspool check --fix {whole}"))
}

/// A file, or an archive and its member.
fn archive_member(path: &Path) -> (String, Option<String>) {
    let name = path.to_string_lossy();
    let member = name
        .strip_suffix(')')
        .and_then(|name| name.rsplit_once('('));
    match member {
        Some((archive, member)) => (archive.to_owned(), Some(member.to_owned())),
        None => (name.into_owned(), None),
    }
}

/// Finds the context of a file's findings.
pub struct FindingLocator<'s> {
    file: &'s ElfFile,
    subject: &'s CheckSubject<'s>,
    symbols: Symbols,
    lines: Lines,
    analyzer: Analyzer,
    /// The functions of the calls that hints name.
    callees: Callees,
}

impl<'s> FindingLocator<'s> {
    /// For these findings of a subject, with the names and lines of the file and its debug files.
    /// `None` without findings.
    #[must_use]
    pub fn new(
        file: &'s Arc<ElfFile>,
        debug: &DebugFiles,
        subject: &'s CheckSubject<'s>,
        findings: &[Finding],
    ) -> Option<FindingLocator<'s>> {
        let addresses: Vec<Vaddr> = findings.iter().map(|finding| finding.address).collect();
        if addresses.is_empty() {
            return None;
        }
        let hints = findings.iter().filter_map(|finding| finding.hint);
        let calls = hints.filter_map(|hint| match hint {
            Hint::CallBeforeJoin { call } => Some(call),
            _ => None,
        });
        let calls: Vec<Vaddr> = calls.collect();
        Some(FindingLocator {
            callees: Callees::new(file, debug, &calls),
            file,
            subject,
            symbols: Symbols::for_addresses(file, debug.debug.as_deref(), &addresses),
            lines: Lines::new(Arc::clone(file), debug, &addresses),
            analyzer: Analyzer::new(Lifter::new(file.abi())?),
        })
    }

    /// The file and line of the source.
    #[must_use]
    pub fn source(&self, at: Vaddr) -> Option<(String, u32)> {
        self.lines.line(at)
    }

    /// The names of the places that a finding's text has. `line_of` knows lines of its source.
    fn places(&self, finding: &Finding, line_of: impl Fn(Vaddr) -> Option<u32>) -> CodePlaces {
        let mut places = CodePlaces::default();
        let hinted = finding.hint.and_then(|hint| hint.place());
        for at in finding.related.iter().copied().chain(hinted) {
            if let Some(line) = line_of(at) {
                places.name_place(at, format!("line {line}"));
            } else if let Some((section, offset)) = self.subject.code_section(at) {
                places.name_place(at, format!("{section}+{offset:#x}"));
            }
            if let Some(function) = self.callees.get(at) {
                places.name_callee(at, function);
            }
        }
        places
    }

    /// A finding with its context; the number of earlier ones limits listings.
    pub fn locate(
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
        let source_path = source.as_ref().map(|(file, _)| file.as_str());
        let is_assembly =
            source_path.is_some_and(|it| AssemblySource::is_assembly_path(Path::new(it)));
        let places = self.places(&finding, |at| line_of(at).filter(|_| is_assembly));
        let entry_writer = entry_writer(self.file, source_path);
        let origin = self.subject.origin_at(finding.address);
        let row_writer = row_writer(self.file, source_path, origin);
        LocatedFinding {
            function: symbol.map(|symbol| {
                let distance = finding.address.0.saturating_sub(symbol.address.0);
                (demangle(&symbol.name).into_owned(), distance)
            }),
            section: self.subject.code_section(finding.address),
            shares_line: line_before.is_some() && line_before == line_of(finding.address),
            path: path.map(|jump| jump.map(|at| (at, line_of(at)))).collect(),
            source,
            lines,
            finding,
            places,
            after_line: None,
            fix_set: Arc::default(),
            advice: None,
            entry_writer,
            row_writer,
            suppression: None,
        }
    }
}
