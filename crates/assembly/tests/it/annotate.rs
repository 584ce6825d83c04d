//! Annotating: the right tables of the corpus are removed and rewritten. If a table differs from
//! the original, gdb single-steps the code, and its unwinder must find the truth by it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use unspool_assembly::{Annotated, Assemble, AssembleError, annotate};
use unspool_rows::Arch;
use unspool_testing::{Folder, assemble};
use xtask::corpus::pair::{self, Pair};
use xtask::corpus::program::{PairProgram, Variant};
use xtask::readelf::{DumpHeader, DumpItem, Readelf, ReadelfForm};

/// gcc, with these options.
struct GccAssembler(&'static [&'static str]);

impl Assemble for GccAssembler {
    fn assemble(&self, text: &str, path: &Path) -> Result<Vec<u8>, AssembleError> {
        assemble(text, path, self.0).map_err(|said| AssembleError(said.into()))
    }
}

/// The right variant of a source without its directives, where their lines have no instructions.
fn stripped(text: &str) -> String {
    let text = pair::plain(text, Variant::Right);
    let lines = text.split_inclusive('\n');
    lines
        .filter(|line| !line.trim_start().starts_with(".cfi_"))
        .collect()
}

/// readelf's row at each address where a row starts, and at the ends of entries.
fn rows(path: &Path) -> BTreeMap<u64, String> {
    let mut rows = BTreeMap::new();
    let mut readelf = Readelf::start(path, ReadelfForm::Rows, Arch::X86_64).unwrap();
    while let Some(item) = readelf.next_item().unwrap() {
        let DumpItem::Entry(entry) = item else {
            continue;
        };
        if let DumpHeader::Fde { end, .. } = entry.header {
            rows.entry(end).or_default();
            for row in entry.rows {
                let cfa = row
                    .cfa
                    .map_or("an expression".to_owned(), |cfa| format!("{cfa:?}"));
                let cells = row.cells.iter().map(|cell| format!("{cell:?}"));
                let cells = cells.filter(|cell| !cell.contains("Same"));
                let cells: Vec<String> = cells.collect();
                rows.insert(row.at, format!("{cfa} {}", cells.join(" ")));
            }
        }
    }
    rows
}

/// Whether two tables agree at every address, in the rules that readelf can print.
fn is_equal(a: &BTreeMap<u64, String>, b: &BTreeMap<u64, String>) -> bool {
    let starts: BTreeSet<u64> = a.keys().chain(b.keys()).copied().collect();
    let at = |rows: &BTreeMap<u64, String>, address: u64| {
        let row = rows.range(..=address).next_back();
        row.map_or(String::new(), |(_, row)| row.clone())
    };
    starts.iter().all(|start| at(a, *start) == at(b, *start))
        && !a.values().any(|row| row.contains("xpression"))
}

#[derive(Debug, PartialEq, Eq)]
enum AnnotateOutcome {
    /// The original table.
    Equal,
    /// Another one, which a run confirms.
    True,
    /// Another one, which is wrong.
    False(String),
    /// An error, with its text.
    Refused(String),
}

fn outcome(pair: &Pair, folder: &Folder) -> AnnotateOutcome {
    let name = &pair.name;
    let text = stripped(&fs::read_to_string(&pair.path).unwrap());
    let (annotated, refused) = annotated(&format!("{name}.s"), &text);
    if let Some(first) = refused.lines().next() {
        assert!(
            first.contains(&format!("{name}.s:")),
            "{name} names no line: {refused}"
        );
        return AnnotateOutcome::Refused(first.to_owned());
    }
    let is_old = |line: &&str| !line.trim_start().starts_with(".cfi_");
    let old: Vec<&str> = annotated.lines().filter(is_old).collect();
    assert!(
        old.iter().eq(&text.lines().collect::<Vec<_>>()),
        "{name}: text was changed"
    );
    let (again, _) = self::annotated(&format!("{name}.s"), &annotated);
    assert_eq!(again, annotated, "{name}: not idempotent");
    let written = folder.write(&format!("{name}.s"), &annotated);

    let build = |path: PathBuf| {
        let pair = Pair {
            path,
            ..pair.clone()
        };
        PairProgram::build(&pair, Variant::Right, folder, &["/usr/bin/as"]).unwrap()
    };
    let (right, ours) = (build(pair.path.clone()), build(written));
    assert_eq!(right.code, ours.code, "{name}");
    if is_equal(&rows(&right.path), &rows(&ours.path)) {
        return AnnotateOutcome::Equal;
    }
    let run = match ours.step(pair) {
        Ok(run) => run,
        Err(error) => return AnnotateOutcome::False(error.to_string()),
    };
    assert_eq!(run.exit, "0", "{name}");
    if let Some((address, difference)) = run.differences.iter().next() {
        return AnnotateOutcome::False(format!("{address:#x}: {difference}"));
    }
    let is_covered = |address: &u64| ours.entries.iter().any(|entry| entry.contains(address));
    assert!(
        run.executed.iter().all(is_covered),
        "{name}: code without entry was executed"
    );
    assert!(run.executed.len() > 2, "{name}: nothing was stepped");
    AnnotateOutcome::True
}

/// No wrong table is written, and at least this many are written.
#[test]
fn tables_of_the_corpus_are_written_anew() {
    let folder = Folder::new();
    let pairs = pair::all().unwrap();
    let outcomes = pair::outcomes(&pairs, |pair| outcome(pair, &folder));
    let count = |wanted: &dyn Fn(&AnnotateOutcome) -> bool| {
        outcomes.values().filter(|one| wanted(one)).count()
    };
    let equal = count(&|one| *one == AnnotateOutcome::Equal);
    let true_ones = count(&|one| *one == AnnotateOutcome::True);
    for (name, outcome) in &outcomes {
        if *outcome != AnnotateOutcome::Equal {
            println!("{name}: {outcome:?}");
        }
    }
    println!(
        "{equal} equal, {true_ones} different and true, of {}",
        outcomes.len()
    );
    assert_eq!(count(&|one| matches!(one, AnnotateOutcome::False(_))), 0);
    assert!(equal >= 54, "{equal}");
    assert!(equal + true_ones >= 106, "{equal} + {true_ones}");
}

/// The text with directives, and the refusals, a line each.
fn annotated(name: &str, text: &str) -> (String, String) {
    annotated_by(&GccAssembler(&[]), name, text)
}

fn annotated_by(gcc: &GccAssembler, name: &str, text: &str) -> (String, String) {
    let Annotated {
        text, plan, proof, ..
    } = annotate(Path::new(name), text, gcc).unwrap();
    let refusals = plan.refusals.iter().chain(proof.as_ref().err());
    let refusals = refusals.map(|refusal| match refusal.line {
        Some(line) => format!("{name}:{line}: {refusal}\n"),
        None => format!("{name}: {refusal}\n"),
    });
    let refusals = refusals.collect();
    (text, refusals)
}

const FRAMED: &str = "\
\t.globl f
f:\tpush %rbp\t# saved
\tmov %rsp, %rbp
\ttest %edi, %edi
\tje 1f
\tleave
\tret
1:\txor %eax, %eax
\tpop %rbp
\tret
";

#[test]
fn directives_are_those_that_people_write() {
    let (written, refused) = annotated("f.s", FRAMED);
    assert_eq!(refused, "");
    let expected = "\
\t.globl f
\t.cfi_startproc
f:\tpush %rbp\t# saved
\t.cfi_adjust_cfa_offset 8
\t.cfi_offset %rbp, -16
\tmov %rsp, %rbp
\t.cfi_def_cfa_register %rbp
\ttest %edi, %edi
\tje 1f
\tleave
\t.cfi_remember_state
\t.cfi_def_cfa %rsp, 8
\t.cfi_restore %rbp
\tret
\t.cfi_restore_state
1:\txor %eax, %eax
\tpop %rbp
\t.cfi_def_cfa %rsp, 8
\t.cfi_restore %rbp
\tret
\t.cfi_endproc
";
    assert_eq!(written, expected);
    // Windows line ends, and no newline at the end of the file.
    let (written, refused) = annotated("f.s", FRAMED.replace('\n', "\r\n").trim_end());
    assert_eq!(refused, "");
    assert_eq!(written, expected.replace('\n', "\r\n"));
}

#[test]
fn the_preprocessor_macros_and_intel_syntax_are_kept() {
    let text = "\
#define FRAME 24
\t.intel_syntax noprefix
\t.macro twice what
\t\\what
\t\\what
\t.endm
#ifdef __x86_64__
\t.globl f
f:
\tpush rbx
\tsub rsp, FRAME
\ttwice nop
\tadd rsp, FRAME
\tpop rbx
\tret
#endif
";
    let (written, refused) = annotated("f.S", text);
    assert_eq!(refused, "");
    let directives: Vec<&str> = written
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with(".cfi"))
        .collect();
    let expected = [
        ".cfi_startproc",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_offset rbx, -16",
        ".cfi_adjust_cfa_offset 24",
        ".cfi_adjust_cfa_offset -24",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        ".cfi_endproc",
    ];
    assert_eq!(directives, expected);
    let old: String = written
        .lines()
        .filter(|line| !line.contains(".cfi_"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(old, text);
}

/// Padding before an aligned label has the label's row, since directives follow the previous line.
#[test]
fn gaps_before_labels_are_no_obstacle() {
    let text = "\
\t.globl f
f:
\tpush %rbx
\ttest %edi, %edi
\tje 1f
\tpop %rbx
\tret
\t.p2align 4
1:
\tcall g
\tsub $16, %rsp
\t.p2align 4
2:
\tdec %eax
\tjne 2b
\tadd $16, %rsp
\tpop %rbx
\tret
";
    let (written, refused) = annotated("f.s", text);
    assert_eq!(refused, "");
    for lines in [
        "\tpop %rbx\n\t.cfi_remember_state\n\t.cfi_adjust_cfa_offset -8\n\t.cfi_restore %rbx\n\tret\n\t.cfi_restore_state\n\t.p2align 4\n1:\n",
        "\tsub $16, %rsp\n\t.cfi_adjust_cfa_offset 16\n\t.p2align 4\n2:\n",
    ] {
        assert!(written.contains(lines), "{written}");
    }
}

#[test]
fn existing_directives_are_kept() {
    let kept = "\t.globl g\ng:\t.cfi_startproc\n\tpush %rax\n\tpop %rax\n\tret\n\t.cfi_endproc\n";
    let annotated = annotate(
        Path::new("f.s"),
        &format!("{kept}{FRAMED}"),
        &GccAssembler(&[]),
    )
    .unwrap();
    assert!(annotated.text.starts_with(kept), "{}", annotated.text);
    let plan = annotated.plan;
    assert_eq!((plan.annotated_count(), plan.already_described), (1, 1));
    assert!(plan.refusals.is_empty() && annotated.proof.is_ok());
}

#[test]
fn unknown_frames_are_reported_with_their_line() {
    let cases = [
        (
            "\t.globl f\nf:\tpush %rax; push %rax\n\tpop %rax\n\tpop %rax\n\tret\n",
            "f.s:2: f: the line makes several",
        ),
        (
            "\t.globl f\nf:\n\t.rept 2\n\tpush %rax\n\tpush %rax\n\t.endr\n\tadd $32, %rsp\n\tret\n",
            "f.s:4: f: the line is assembled more than once",
        ),
        (
            "\t.globl f\nf:\ttest %edi, %edi\n\tje 1f\n\tpush %rax\n1:\tnop\n\tret\n",
            "f.s:5: f: paths meet here",
        ),
        (
            "\t.globl f\nf:\tmov $39, %eax\n\tsyscall\n",
            "f.s:3: f: control continues past",
        ),
        (
            "\t.globl f\nf:\tmov %rdi, %rbx\n\tret\n",
            "f.s:2: f: it is not known to restore",
        ),
        (
            "\t.globl f, g, h\nf:\tcall g\n\tret\ng:\tjmp h\nh:\tpop %rcx\n\tpop %rdx\n\tpush %rcx\n\tret\n",
            "f.s:2: f: the function called",
        ),
        (
            "\t.globl _start\n_start:\tud2\n",
            "f.s:2: _start: nobody calls",
        ),
        (
            "\t.globl f, g\nf:\tpush %rax\n\tjmp g\ng:\tret\n",
            "f.s:3: f: it jumps to another",
        ),
    ];
    for (text, expected) in cases {
        let (_, refused) = annotated("f.s", text);
        assert!(refused.starts_with(expected), "{expected}: {refused}");
    }
}

#[test]
fn a_row_that_depends_on_a_condition_is_refused() {
    let in_function = |body: &str| {
        format!("\t.globl f\n\t.type f, @function\nf:\n{body}\tret\n\t.size f, . - f\n")
    };
    let cases = [
        // The other branch would need its own directives.
        (
            "#ifdef FOO\n\tpush %rbx\n#else\n\tpush %rbp\n#endif\n\tcall g\n#ifdef FOO\n\tpop %rbx\n#else\n\tpop %rbp\n#endif\n",
            "f.S:5: f: the row depends on the condition in line 4",
        ),
        // There is a frame pointer only in one variant.
        (
            "\t.ifndef BAR\n\tpush %rbp\n\tmov %rsp, %rbp\n\t.endif\n\tcall g\n\t.ifndef BAR\n\tleave\n\t.endif\n",
            "f.S:6: f: the row depends on the condition in line 4",
        ),
    ];
    for (body, expected) in cases {
        let text = in_function(body);
        let (written, refused) = annotated_by(&GccAssembler(&["-DFOO"]), "f.S", &text);
        assert_eq!(written, text, "{refused}");
        assert!(refused.contains(expected), "{refused}");
    }
}
