//! Assembly source, checked.
#![allow(dead_code, reason = "no test asks for all of it")]

use std::num::NonZeroUsize;

use unspool_check::{CheckReport, CheckSubject, CodeOrigin, DeclaredTable, Finding};
use unspool_elf::{ElfFile, Symbols};
use unspool_testing::{Finish as _, Folder, tool};

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
