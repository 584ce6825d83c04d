//! Random functions with CFI that is right by construction: it must be proven, and must be found
//! wrong without any one of its directives.

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::Path;

use unspool_check::{CheckReport, CheckSubject, CodeOrigin, DeclaredTable, Finding, Severity};
use unspool_elf::ElfFile;
use unspool_testing::tool;

/// A sequence of numbers that looks random (the constants are Knuth's, for MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Writes a function, and tracks its stack height.
struct FunctionGenerator<'r> {
    random: &'r mut Random,
    text: String,
    /// The distance from the stack pointer to the CFA.
    height: i64,
    saved: Vec<&'static str>,
    labels: u32,
}

const PRESERVED: [&str; 5] = ["rbx", "r12", "r13", "r14", "r15"];

impl FunctionGenerator<'_> {
    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "\t{line}");
    }

    fn adjust(&mut self, bytes: i64) {
        self.height += bytes;
        self.line(&format!(".cfi_adjust_cfa_offset {bytes}"));
    }

    /// Balanced code: everything pushed is popped.
    fn body(&mut self, depth: u32) {
        for _ in 0..=self.random.below(3) {
            match self.random.below(if depth == 0 { 3 } else { 6 }) {
                0 => self.line("add %rsi, %rdi"),
                1 => self.line("mov %rdi, -64(%rsp)"),
                2 => self.line("call other"),
                3 => self.save(depth),
                4 => self.allocate(depth),
                _ => self.branch(depth),
            }
        }
    }

    fn save(&mut self, depth: u32) {
        let free: Vec<_> = PRESERVED
            .into_iter()
            .filter(|register| !self.saved.contains(register))
            .collect();
        let Some(register) = free.first().copied() else {
            return;
        };
        self.line(&format!("push %{register}"));
        self.adjust(8);
        self.line(&format!(".cfi_rel_offset %{register}, 0"));
        self.line(&format!("mov $7, %{register}"));
        self.saved.push(register);
        self.body(depth - 1);
        self.saved.pop();
        self.line(&format!("pop %{register}"));
        self.adjust(-8);
        self.line(&format!(".cfi_restore %{register}"));
        self.line("nop");
    }

    fn allocate(&mut self, depth: u32) {
        let bytes = 8 * (1 + self.random.below(40)).cast_signed();
        self.line(&format!("sub ${bytes}, %rsp"));
        self.adjust(bytes);
        self.body(depth - 1);
        self.line(&format!("lea {bytes}(%rsp), %rsp"));
        self.adjust(-bytes);
        self.line("nop");
    }

    fn branch(&mut self, depth: u32) {
        self.labels += 1;
        let label = format!(".L{}", self.labels);
        self.line("test %rdi, %rdi");
        self.line(&format!("je {label}"));
        self.body(depth - 1);
        let _ = writeln!(self.text, "{label}:");
        self.line("nop");
    }
}

fn function(seed: u64) -> String {
    let mut random = Random(seed);
    let mut origin = FunctionGenerator {
        random: &mut random,
        text: "\t.globl f\n\t.type f, @function\nf:\n\t.cfi_startproc\n".to_owned(),
        height: 8,
        saved: Vec::new(),
        labels: 0,
    };
    origin.save(4);
    origin.allocate(3);
    origin.body(3);
    origin.text + "\tret\n\t.cfi_endproc\n\t.size f, . - f\n"
}

fn findings(text: &str, folder: &Path) -> Vec<Finding> {
    let (source, object) = (folder.join("f.s"), folder.join("f.o"));
    std::fs::write(&source, text).unwrap();
    let assembler = tool("as").arg("-o").arg(&object).arg(&source).output();
    let assembler = assembler.expect("install binutils");
    assert!(assembler.status.success(), "{assembler:?}\n{text}");
    let file = ElfFile::from_bytes(&object, std::fs::read(&object).unwrap()).unwrap();
    let declarations = DeclaredTable::read(&file).unwrap();
    let mut subject = CheckSubject::new(&file, &declarations, CodeOrigin::HandWritten).unwrap();
    let mut found = CheckReport::from_subject(&mut subject, NonZeroUsize::MIN, |_, _| {}).findings;
    found.retain(|finding| finding.severity > Severity::Note);
    found
}

#[test]
fn cfi_known_by_construction_is_proven_and_any_change_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut changed = 0;
    for seed in 1..40 {
        let text = function(seed);
        let found = findings(&text, folder.path());
        assert!(found.is_empty(), "{found:#?}\n{text}");
        let lines: Vec<&str> = text.lines().collect();
        let is_directive =
            |line: &str| line.contains("cfi_adjust") || line.contains("cfi_rel_offset");
        let directives = (0..lines.len()).filter(|at| is_directive(lines[*at]));
        // Every third one only: each takes a process.
        for at in directives.step_by(3) {
            let mut without = lines.clone();
            without.remove(at);
            let text = without.join("\n") + "\n";
            let found = findings(&text, folder.path());
            let is_refuted = found
                .iter()
                .any(|finding| finding.severity == Severity::Refuted);
            assert!(is_refuted, "without line {at}: {}\n{text}", lines[at]);
            changed += 1;
        }
    }
    assert!(changed > 100, "{changed}");
}
