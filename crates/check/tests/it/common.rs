//! Assembly source, checked.
#![allow(dead_code, reason = "no test asks for all of it")]

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use unspool_assembly::{Assemble, AssembleError};
use unspool_check::{
    CheckOptions, CheckReport, CheckSubject, CodeOrigin, DeclaredTable, FileReport, Finding,
    FixOptions, FixResult, Severity, SourceTexts, Suppressor, fix_source,
};
use unspool_elf::{DebugFiles, ElfFile, Symbols};
use unspool_testing::{Finish as _, Folder, assemble, tool};

/// The findings for a source, and the address of a label.
pub(crate) fn check(source: &str, label: &str) -> (Vec<Finding>, u64) {
    let (report, label) = report(source, label);
    (report.findings, label)
}

/// The report for a source, and the address of a label.
pub(crate) fn report(source: &str, label: &str) -> (CheckReport, u64) {
    let file = assembled(source);
    let report = report_of(&file, CodeOrigin::from_file(&file));
    let symbols = Symbols::new(&file, None);
    let label = symbols.named(label).next().unwrap();
    (report, label.address.0)
}

/// A source, assembled.
pub(crate) fn assembled(source: &str) -> ElfFile {
    let folder = Folder::new();
    let (input, object) = (folder.write("f.s", source), folder.join("f.o"));
    tool("as").arg("-o").args([&object, &input]).succeed();
    ElfFile::open(&object).unwrap()
}

/// The report for a file of this origin.
pub(crate) fn report_of(file: &ElfFile, origin: CodeOrigin) -> CheckReport {
    let declarations = DeclaredTable::read(file).unwrap();
    let mut subject = CheckSubject::new(file, &declarations, origin).unwrap();
    CheckReport::from_subject(&mut subject, NonZeroUsize::MIN, |_, _| {})
}

/// A function that an unwinder can be asked for, with this body.
pub(crate) fn in_function(body: &str) -> String {
    format!(
        "\t.globl\tf\n\t.type\tf, @function\nf:\n\t.cfi_startproc\n{body}\t.cfi_endproc\n\t.size\tf, . - f\n"
    )
}

/// A function with a `push` that no directive describes.
pub(crate) fn wrong() -> String {
    in_function("\tpush\t%rdi\n\tcall\tg\n\tpop\t%rdi\n\tret\n")
}

/// gcc, with these options.
pub(crate) struct GccAssembler(pub(crate) &'static [&'static str]);

impl Assemble for GccAssembler {
    fn assemble(&self, text: &str, path: &Path) -> Result<Vec<u8>, AssembleError> {
        assemble(text, path, self.0).map_err(|said| AssembleError(said.into()))
    }
}

/// Suppressions by comments only.
pub(crate) fn suppressor() -> Suppressor {
    let read = |path: &Path| Some((path.canonicalize().ok()?, fs::read_to_string(path).ok()?));
    Suppressor {
        sources: SourceTexts::new(read),
        ..Suppressor::default()
    }
}

/// A source file, assembled by gcc where it is.
pub(crate) fn assembled_file(folder: &Folder, name: &str, text: &str) -> Arc<ElfFile> {
    let (path, object) = (folder.write(name, text), folder.join("assembled.o"));
    tool("gcc")
        .args(["-c", "-g", "-o"])
        .args([&object, &path])
        .succeed();
    Arc::new(ElfFile::from_bytes(&path, fs::read(object).unwrap()).unwrap())
}

/// The report of a source file.
pub(crate) fn source_report(folder: &Folder, name: &str, text: &str) -> FileReport {
    let file = assembled_file(folder, name, text);
    FileReport::from_assembled(&file, &CheckOptions::default(), &mut suppressor()).unwrap()
}

/// The report of a text, with what a fix would do.
pub(crate) fn advised_report(name: &str, text: &str) -> FileReport {
    let folder = Folder::new();
    let file = assembled_file(&folder, name, text);
    let report = FileReport::from_assembled(&file, &CheckOptions::default(), &mut suppressor());
    let mut report = report.unwrap();
    fixed(name, text).advise(&file, &mut report.findings);
    report
}

/// The report of an ELF file.
pub(crate) fn elf_report(path: &Path) -> FileReport {
    let file = Arc::new(ElfFile::open(path).unwrap());
    let debug = DebugFiles::default();
    FileReport::from_elf(&file, &debug, &CheckOptions::default(), &mut suppressor()).unwrap()
}

/// A text that is fixed.
pub(crate) fn fixed(name: &str, text: &str) -> FixResult {
    let options = FixOptions {
        minimum_severity: Severity::Unproven,
        max_drafts: usize::MAX,
    };
    fix_source(Path::new(name), text, options, &GccAssembler(&[])).unwrap()
}

/// Findings, each as its severity, line and sentence, and its listing.
pub(crate) fn lines_of(report: &FileReport) -> String {
    let findings = report.unsuppressed().map(|located| {
        let line = located.source.as_ref().map_or(0, |(_, line)| *line);
        let finding = &located.finding;
        let head = format!(
            "{line}: {} {} {}\n",
            finding.severity,
            finding.code,
            located.sentence()
        );
        let listing = located.lines.iter().map(|line| {
            format!(
                "  {}  declared {}  is {}\n",
                line.text, line.declared, line.computed
            )
        });
        head + &listing.collect::<String>()
    });
    findings.collect()
}
