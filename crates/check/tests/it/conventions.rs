//! Calling conventions other than the psABI's, and who made an object file.

use std::sync::Arc;

use unspool_check::{CallingConvention, CheckOptions, CodeOrigin, FileReport, FindingCode};
use unspool_elf::{DebugFiles, ElfFile};
use unspool_testing::Folder;

use crate::common::{assembled, report_of, suppressor};

/// A function that loses `rbx`, and ends with a jump. Its CFA can be this around a call.
fn losing(begin: &str, name: &str, adjust: u8, cfa: &str) -> String {
    format!(
        "
        .text
        {begin}
        .globl {name}
        .type {name}, @function
{name}: .cfi_startproc
        push %rbp
        .cfi_adjust_cfa_offset {adjust}
        .cfi_offset %rbp, -16
        mov %rsp, %rbp
        mov %rdi, %rbx
        {cfa}
        call elsewhere
        mov %rax, (%rbx)
        pop %rbp
        .cfi_restore %rbp
        .cfi_def_cfa %rsp, 8
        jmp *(%rbx)
        .cfi_endproc
        .size {name}, . - {name}
"
    )
}

fn report(text: &str, convention: Option<CallingConvention>) -> FileReport {
    let file = Arc::new(assembled(text));
    let options = CheckOptions {
        convention,
        ..CheckOptions::default()
    };
    let debug = DebugFiles::default();
    FileReport::from_elf(&file, &debug, &options, &mut suppressor()).unwrap()
}

/// OCaml's and Go's own documents say what calls preserve. Both kinds of code are known by labels.
#[test]
fn registers_that_a_convention_does_not_preserve_are_not_judged() {
    let ocaml = ["camlUnit__code_begin", "camlUnit__code_end"];
    let go = ["runtime.text", "runtime.etext"];
    for (name, [begin, end], function) in [("OCaml", ocaml, "f"), ("Go", go, "main.f")] {
        let checked = |adjust: u8, cfa: &str| {
            let begin = format!(".globl {begin}\n{begin}:");
            let text = losing(&begin, function, adjust, cfa);
            report(&format!("{text}\n.globl {end}\n{end}: nop\n"), None)
        };
        let right = checked(8, "");
        assert_eq!(right.totals.proven, right.totals.rows, "{name}");
        assert_eq!(right.totals.partly_judged, right.totals.rows, "{name}");
        let conventions = right.conventions.iter();
        let names = conventions.map(|(it, entries)| (it.name, *entries));
        assert_eq!(names.collect::<Vec<_>>(), [(name, 1)]);
        // Nothing shows that it is another's.
        let plain = report(&losing("", function, 8, ""), None);
        assert!(plain.totals.refuted > 0, "{name}");
        assert!(checked(16, "").totals.refuted > 0, "{name}");
        // `rbp` keeps its distance from the CFA across calls in Go only.
        let by_frame = checked(8, ".cfi_def_cfa %rbp, 16").totals;
        assert_eq!(
            by_frame.proven == by_frame.rows,
            name == "Go",
            "{by_frame:?}"
        );
    }
}

/// LLVM: `__regcall` has arguments in `r12` to `r15`, and keeps `rbx`. Other conventions are named
/// by the user.
#[test]
fn conventions_are_known_by_name_or_named() {
    let body = |name: &str, register: &str| {
        format!(
            "\t.globl {name}\n\t.type {name}, @function\n{name}:\t.cfi_startproc\n\tmov %rdi, %{register}\n\tnop\n\tret\n\t.cfi_endproc\n\t.size {name}, . - {name}\n"
        )
    };
    for (name, register, refuted) in [
        ("__regcall3__f", "r12", 0),
        ("__regcall3__f", "rbx", 1),
        ("f", "r12", 1),
    ] {
        let found = report(&body(name, register), None);
        assert_eq!(found.totals.refuted, refuted, "{name} {register}");
    }
    for (kept, refuted) in [(1 << 12, 1), (1 << 3, 0), (0, 0)] {
        let convention = CallingConvention::preserving(kept);
        let found = report(&body("f", "r12"), Some(convention));
        assert_eq!(found.totals.refuted, refuted, "{kept:#x}");
    }
}

/// GHC's code is not called, and has no entries unless it is asked for them.
#[test]
fn ghc_code_is_not_judged() {
    let closure = "\t.globl base_GHCziList_map_info\n\t.type base_GHCziList_map_info, @function\nbase_GHCziList_map_info:";
    let bare = format!("{closure}\n\tmov %rbx, (%rbp)\n\tjmp *(%rbp)\n");
    let file = Arc::new(assembled(&bare));
    let checked = FileReport::from_elf(
        &file,
        &DebugFiles::default(),
        &CheckOptions::default(),
        &mut suppressor(),
    );
    // Without anything to report, a file without a table is refused.
    assert!(checked.is_err());
    let with_rows = format!(
        "{closure}\n\t.cfi_startproc\n\t.cfi_def_cfa %rbp, 8\n\tmov %rbx, (%rbp)\n\tadd $8, %rbp\n\tjmp *(%rbp)\n\t.cfi_endproc\n"
    );
    let report = report(&with_rows, None);
    assert!(report.findings.is_empty() && report.totals.unproven > 0);
}

/// Names alone do not make code GHC's, and one function of it not that of others.
#[test]
fn code_with_names_like_ghcs_is_judged() {
    let wrong = |name: &str| {
        format!(
            "\t.globl {name}\n\t.type {name}, @function\n{name}:\t.cfi_startproc\n\tpush %rbx\n\txor %ebx, %ebx\nat: call x\n\tpop %rbx\n\tret\n\t.cfi_endproc\n\t.size {name}, . - {name}\n"
        )
    };
    let haskell = "\t.globl base_GHCziList_map_info\n\t.type base_GHCziList_map_info, @function\nbase_GHCziList_map_info:\n\tmov %rbx, (%rbp)\n\tjmp *(%rbp)\n";
    let plain = report(&wrong("read_archive"), None).totals;
    assert!(plain.refuted > 0);
    for name in [
        "read_zip_entry",
        "unzip_info",
        "normalizing_slow",
        "stg_info",
    ] {
        assert_eq!(report(&wrong(name), None).totals, plain, "{name}");
        let beside = report(&(wrong(name) + haskell), None);
        assert_eq!(beside.totals.refuted, plain.refuted, "{name}");
        // A tail call is not a jump to GHC's stack.
        let tail = wrong(name).replace("\tret\n", "\tjmp y\n");
        assert!(report(&tail, None).totals.refuted > 0, "{name}");
    }
    // The labels of OCaml's runtime are around code by the psABI.
    for begin in ["caml_hot", "caml_system"] {
        let labels = |end: &str| format!("\t.globl {begin}__code_{end}\n{begin}__code_{end}:\n");
        let text = labels("begin") + &wrong("caml_start_program") + &labels("end");
        assert_eq!(report(&text, None).totals.refuted, plain.refuted, "{begin}");
    }
}

/// Behind the call nothing returns, and paths meet: only a compiler does that.
const NEVER_RETURNS: &str = "\
void leave(const char *why) __attribute__((noreturn));
int use(const char *);
int f(int n, const char *name)
{
    char buffer[64];
    if (n > 3) leave(name);
    for (int i = 0; i < 64; i++) buffer[i] = name[i] + n;
    return use(buffer);
}
";

/// An object of a compiler is known by its line in `.comment`, and by its language.
#[test]
fn objects_of_compilers_are_known() {
    let folder = Folder::new();
    folder.write("f.c", NEVER_RETURNS);
    folder.write("g.S", ".globl g\ng: ret\n");
    let origin = |options: &str, stripped: &str| {
        folder.tool("gcc", &format!("-O2 -c -o f.o {options}"));
        folder.tool("objcopy", &format!("{stripped} f.o"));
        CodeOrigin::from_file(&ElfFile::open(folder.join("f.o")).unwrap())
    };
    for (options, stripped, expected) in [
        ("f.c", "--keep-file-symbols", CodeOrigin::Compiler),
        // Assembly that a compiler made, and that people changed, has the name, too.
        (
            "-fno-ident f.c",
            "--keep-file-symbols",
            CodeOrigin::HandWritten,
        ),
        (
            "-fno-ident -g f.c",
            "--strip-symbol=f.c",
            CodeOrigin::Compiler,
        ),
        (
            "-fno-ident f.c",
            "--strip-unneeded",
            CodeOrigin::HandWritten,
        ),
        ("g.S", "--keep-file-symbols", CodeOrigin::HandWritten),
        ("-g g.S", "--keep-file-symbols", CodeOrigin::HandWritten),
    ] {
        assert_eq!(origin(options, stripped), expected, "{options} {stripped}");
    }
}

/// Of an object with nothing that shows its compiler, all rows are proven as well.
#[test]
fn stripped_objects_of_compilers_are_clean() {
    let folder = Folder::new();
    folder.write("f.c", NEVER_RETURNS);
    folder.tool("gcc", "-O2 -fno-ident -c f.c");
    folder.tool("objcopy", "--strip-unneeded f.o");
    let file = ElfFile::open(folder.join("f.o")).unwrap();
    let report = report_of(&file, CodeOrigin::from_file(&file));
    let refuted = report.findings.iter();
    let refuted = refuted.filter(|it| it.code == FindingCode::HeightsDiffer);
    assert_eq!(refuted.count(), 0, "{:#?}", report.findings);
    assert_eq!(report.totals.refuted, 0);
}
