//! Assembly source, checked.

use std::num::NonZeroUsize;
use std::process::Command;

use unspool_check::{Declarations, Finding, Maker, Report, Subject};
use unspool_module::{ElfFile, Symbols};

/// The findings of a source, and the address of a label.
pub(crate) fn check(source: &str, label: &str) -> (Vec<Finding>, u64) {
    let (report, label) = report(source, label);
    (report.findings, label)
}

/// What is found of a source, and the address of a label.
pub(crate) fn report(source: &str, label: &str) -> (Report, u64) {
    let folder = tempfile::tempdir().unwrap();
    let [input, object] = ["f.s", "f.o"].map(|name| folder.path().join(name));
    std::fs::write(&input, source).unwrap();
    let mut assembler = Command::new("as");
    assembler.arg(&input).arg("-o").arg(&object);
    let status = assembler.status().expect("install binutils");
    assert!(status.success());
    let file = ElfFile::from_bytes(&object, std::fs::read(&object).unwrap()).unwrap();
    let declarations = Declarations::read(&file).unwrap();
    let mut subject = Subject::new(&file, &declarations, Maker::of(&file)).unwrap();
    let report = Report::of(&mut subject, NonZeroUsize::MIN, |_, _| {});
    let symbols = Symbols::new(&file, None);
    let label = symbols.named(label).next().unwrap();
    (report, label.address.0)
}
