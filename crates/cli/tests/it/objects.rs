//! Object files with unwind tables written by `unspool synth --emit eh_frame` and `unspool check
//! --fix`, and the name `as`. Three linkers link them, exceptions pass through them, and gdb and
//! readelf read them.
#![cfg(target_arch = "x86_64")]

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Output;

use unspool_testing::{Finish as _, tool};

use crate::harness::{self, TestFolder, source};

/// The output and messages of the command, which must succeed.
fn done(folder: &TestFolder, words: &str) -> String {
    let mut unspool = harness::unspool();
    folder
        .started(&mut unspool, words)
        .finish()
        .ended_with(0)
        .all()
}

/// The functions of a backtrace from a location in a program.
fn backtrace(folder: &TestFolder, program: &str, at: &str) -> Vec<String> {
    let mut gdb = tool("gdb");
    gdb.args([
        "-batch", "-nx", "-ex", at, "-ex", "run", "-ex", "bt", program,
    ]);
    let output = gdb.current_dir(folder.path()).finish().all();
    let frames = output.lines().filter(|line| line.starts_with('#'));
    let name = |line: &str| {
        let rest = line.split_once(" in ").map_or(line, |(_, rest)| rest);
        let rest = rest.trim_start_matches(|c: char| c == '#' || c.is_ascii_digit());
        rest.split_whitespace().next().unwrap().to_owned()
    };
    frames.map(name).collect()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Compiles the program that catches.
fn make_main(folder: &TestFolder) {
    let main = source("object_main.cc");
    folder.tool("g++", &format!("-O2 -c {main} -o main.o"));
}

/// The gdb command that stops at a throw.
const THROW: &str = "catch throw";

/// Links objects in three ways, throws through them, and makes readelf read all entries.
fn links_and_catches(folder: &TestFolder, objects: &str) {
    for linker in ["bfd", "gold", "lld"] {
        let words = format!("-fuse-ld={linker} -Wl,--gc-sections -o {linker} {objects}");
        folder.tool("g++", &words);
        let output = folder.run(format!("./{linker}"), "");
        assert_eq!(text(&output), "caught 42\n", "{linker}");
        let mut readelf = tool("readelf");
        let words = format!("--debug-dump=frames -W {linker}");
        let output = folder.started(&mut readelf, &words).finish();
        assert_eq!(output.err, "", "{linker}");
        let checked = done(folder, &format!("check {linker}"));
        assert!(checked.contains(" 0 refuted, 0 unproven"), "{checked}");
    }
}

/// Entries of a file, by readelf.
fn entries(folder: &TestFolder, file: &str) -> usize {
    let frames = folder.tool("readelf", &format!("--debug-dump=frames -W {file}"));
    frames.matches(" FDE ").count()
}

#[test]
fn an_exception_goes_through_what_nasm_made() {
    let folder = TestFolder::new();
    make_main(&folder);
    let nasm = format!("-f elf64 {} -o through.o", source("object_through.asm"));
    folder.tool("nasm", &nasm);
    folder.tool("g++", "-o before main.o through.o");
    assert!(!folder.run("./before", "").status.success());

    done(&folder, "synth through.o --emit eh_frame -o made.o");
    links_and_catches(&folder, "main.o made.o");
    let frames = backtrace(&folder, "./bfd", THROW);
    // NASM's local labels are symbols, which gdb takes for Ada's.
    assert_eq!(frames[1..], ["callee", "helper[again]", "through", "main"]);

    // In place, and again: nothing is missing any more.
    done(&folder, "synth through.o --emit eh_frame -o through.o");
    let once = fs::read(folder.path().join("through.o")).unwrap();
    assert_eq!(once, fs::read(folder.path().join("made.o")).unwrap());
    done(&folder, "synth through.o --emit eh_frame -o through.o");
    assert_eq!(once, fs::read(folder.path().join("through.o")).unwrap());
}

/// Code in COMDAT groups and in separate sections, from compilers with and without section symbols.
#[test]
fn entries_go_with_the_sections_that_linkers_leave_out() {
    for compiler in ["gcc", "clang"] {
        let folder = TestFolder::new();
        make_main(&folder);
        for (object, defines) in [
            ("one", "-DNOBODY=none"),
            ("other", "-DNOBODY=neither -DOTHER"),
        ] {
            let comdat = source("object_comdat.cc");
            let words = format!(
                "-O2 -ffunction-sections -fno-asynchronous-unwind-tables -fno-exceptions {defines} -c {comdat} -o {object}.o"
            );
            folder.tool(compiler, &words);
            done(
                &folder,
                &format!("synth {object}.o --emit eh_frame -o {object}.o"),
            );
            assert_eq!(entries(&folder, &format!("{object}.o")), 3, "{compiler}");
        }
        links_and_catches(&folder, "main.o one.o other.o");
        for linker in ["bfd", "gold", "lld"] {
            let frames = backtrace(&folder, &format!("./{linker}"), THROW);
            let own = ["callee", "int", "through", "main"];
            assert_eq!(frames[1..], own, "{compiler}, {linker}");
            let symbols = folder.tool("nm", linker);
            assert!(!symbols.contains("none"), "{symbols}");
        }
        // Each linker leaves out the entry of the second copy, and those of unused functions.
        let main = entries(&folder, "main.o");
        folder.tool("g++", "-nostdlib -nostartfiles -r -o whole.o one.o other.o");
        assert_eq!(entries(&folder, "whole.o"), 5, "{compiler}");
        folder.tool("g++", "-fuse-ld=lld -nostdlib -Wl,--gc-sections,-e,through,--unresolved-symbols=ignore-all -o bare one.o other.o");
        assert_eq!(entries(&folder, "bare"), 3, "{compiler}: {main}");
    }
}

/// Section numbers that do not fit into symbols, and a section count that does not fit into the
/// header.
#[test]
fn more_sections_than_the_header_counts() {
    let folder = TestFolder::new();
    let source = "
	.macro function n
	.section .text.f\\n, \"ax\", @progbits
	.globl f\\n
	.type f\\n, @function
f\\n:	push %rbx
	call callee
	pop %rbx
	ret
	.size f\\n, . - f\\n
	.endm
	.altmacro
	.set i, 0
	.rept 33000
	function %i
	.set i, i + 1
	.endr
";
    fs::write(folder.path().join("many.s"), source).unwrap();
    folder.tool("as", "-o many.o many.s");
    done(&folder, "synth many.o --emit eh_frame -o many.o");
    assert!(
        folder
            .done("check many.o")
            .contains(": 99000 rows: 99000 proven,")
    );
    for linker in ["ld", "ld.lld"] {
        folder.tool(linker, "-r -o whole.o many.o");
        assert_eq!(entries(&folder, "whole.o"), 33000, "{linker}");
    }
}

/// The parts of an object other than the table: complete, with the same names and relocations.
#[test]
fn all_else_stays() {
    for compiler in ["gcc", "clang"] {
        let folder = TestFolder::new();
        let comdat = source("object_comdat.cc");
        let words = format!(
            "-O2 -g -ffunction-sections -fno-asynchronous-unwind-tables -fno-exceptions -DNOBODY=none -c {comdat} -o a.o"
        );
        folder.tool(compiler, &words);
        done(&folder, "synth a.o --emit eh_frame -o b.o");
        let parts = |words: &str, file: &str, between: &str| {
            let dump = folder.tool("objdump", &format!("{words} {file}"));
            let parts = dump.split(between).skip(1);
            let parts = parts.filter(|part| !part.trim_start().contains("[.eh_frame]:"));
            let parts = parts.filter(|part| !part.trim_start().starts_with(".eh_frame:"));
            parts.map(|part| part.trim().to_owned()).collect::<Vec<_>>()
        };
        let shown = |file: &str| {
            let taken = folder.tool("llvm-readelf", &format!("--addrsig {file}"));
            let taken = taken.lines().filter(|line| line.contains(": "));
            let taken = taken.filter_map(|line| Some(line.split_once(": ")?.1.to_owned()));
            let symbols = folder.tool("nm", &format!("-a {file}"));
            let symbols = symbols.lines().filter(|line| !line.contains(" t .text"));
            [
                parts("-s", file, "Contents of section"),
                parts("-r", file, "RELOCATION RECORDS FOR"),
                vec![folder.tool("readelf", &format!("-g -W {file}"))],
                taken.collect(),
                symbols.map(str::to_owned).collect(),
            ]
        };
        let (before, after) = (shown("a.o"), shown("b.o"));
        assert!(before[0].len() > 4 && before[1].len() > 4, "{before:?}");
        assert_eq!(before[3].is_empty(), compiler == "gcc", "{before:?}");
        assert_eq!(before, after, "{compiler}");
    }
}

/// Programs with inline assembly in C and Rust: how the object is made, and repaired.
#[test]
fn an_exception_goes_through_inline_assembly() {
    let c = source("inline_through.c");
    let rust = source("inline_through.rs");
    let c = format!("-O2 -mno-red-zone -c {c} -o through.o");
    let rust = format!(
        "--edition 2024 --crate-type lib --emit obj -C opt-level=2 -C panic=abort {rust} -o through.o"
    );
    for (compiler, words) in [("gcc", &c), ("clang", &c), ("rustc", &rust)] {
        let folder = TestFolder::new();
        make_main(&folder);
        folder.tool(compiler, words);
        folder.tool("g++", "-o before main.o through.o");
        assert!(!folder.run("./before", "").status.success(), "{compiler}");
        let frames = backtrace(&folder, "./before", "break callee");
        assert_ne!(frames.last().unwrap(), "main", "{compiler}: {frames:?}");

        let found = folder.unspool("check through.o");
        assert_eq!(found.status.code(), Some(1), "{compiler}");
        let fixed = done(&folder, "check --fix through.o");
        assert!(fixed.contains("rows mended of through"), "{fixed}");
        assert!(fixed.contains(" 0 refuted, 0 unproven"), "{fixed}");
        links_and_catches(&folder, "main.o through.o");
        let frames = backtrace(&folder, "./bfd", "break callee");
        assert_eq!(frames, ["callee", "through", "main"], "{compiler}");
        // Each executed row finds the caller.
        let stepped = "check --run --function through --";
        let before = folder.unspool(&format!("{stepped} ./before"));
        assert_eq!(before.status.code(), Some(1), "{}", text(&before));
        done(&folder, &format!("{stepped} ./bfd"));
    }
}

/// Branches and loops with more on the stack than the compiler assumes, a stack pointer known only
/// at run time, and another stack.
#[test]
fn whatever_inline_assembly_does_to_the_stack() {
    let folder = TestFolder::new();
    make_main(&folder);
    for compiler in ["gcc", "clang"] {
        for body in ["BRANCH", "LOOP", "REALIGNED", "OTHER_STACK"] {
            let through = source("inline_through.c");
            let words = format!("-O2 -mno-red-zone -D{body} -c {through} -o through.o");
            folder.tool(compiler, &words);
            folder.tool("g++", "-o before main.o through.o");
            assert!(
                !folder.run("./before", "").status.success(),
                "{compiler} {body}"
            );
            done(&folder, "check --fix through.o");
            folder.tool("g++", "-o after main.o through.o");
            let output = folder.run("./after", "");
            assert_eq!(text(&output), "caught 42\n", "{compiler} {body}");
        }
    }
}

/// A function that is not proven as a whole is left unchanged, and reported.
#[test]
fn lost_registers_do_not_start_a_guess() {
    let folder = TestFolder::new();
    let lost = "void f(void);\nlong g(long n)\n{\n\t__asm__ volatile(\"push %%r12; xor %%ebp, %%ebp; call f; pop %%r12\" ::: \"rax\");\n\treturn n;\n}\n";
    fs::write(folder.path().join("lost.c"), lost).unwrap();
    folder.tool("gcc", "-O2 -mno-red-zone -c lost.c -o lost.o");
    let before = fs::read(folder.path().join("lost.o")).unwrap();
    let output = folder.unspool("check --fix lost.o");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = "lost.o: the rows of g stay as they are: 0x4: a register that calls preserve was overwritten";
    assert!(text(&output).contains(said), "{}", text(&output));
    assert_eq!(before, fs::read(folder.path().join("lost.o")).unwrap());
}

/// The function's landing pad, its personality and its call sites do not change.
#[test]
fn exception_tables_are_unchanged() {
    for compiler in ["gcc", "clang"] {
        let folder = TestFolder::new();
        let guard = source("inline_guard.cc");
        folder.tool(
            compiler,
            &format!("-O2 -mno-red-zone -c {guard} -o guard.o"),
        );
        folder.tool("g++", "-o before guard.o");
        let frames = backtrace(&folder, "./before", "break noted");
        assert_ne!(frames.last().unwrap(), "main", "{compiler}: {frames:?}");

        // Personality, LSDA and code, in their order; their offsets have changed.
        let relocations = || {
            let all = folder.tool("readelf", "--relocs -W guard.o");
            let (_, own) = all.split_once("'.rela.eh_frame'").unwrap();
            let own = own.lines().filter(|line| line.contains("R_X86_64"));
            let kinds = own.map(|line| line.split_once(' ').unwrap().1.to_owned());
            kinds.collect::<Vec<_>>()
        };
        let before = relocations();
        done(&folder, "check --fix guard.o");
        assert_eq!(relocations(), before);
        for linker in ["bfd", "gold", "lld"] {
            folder.tool("g++", &format!("-fuse-ld={linker} -o {linker} guard.o"));
            let output = folder.run(format!("./{linker}"), "");
            assert_eq!(
                text(&output),
                "caught 42, guarded 1\n",
                "{compiler}, {linker}"
            );
            let frames = backtrace(&folder, &format!("./{linker}"), "break noted");
            assert_eq!(frames, ["noted", "through", "main"], "{compiler}, {linker}");
        }
    }
}

/// An `ar` archive and a Rust library, with one wrong member: that one is repaired; the others and
/// the symbol index do not change.
#[test]
fn members_of_archives_are_mended() {
    let c = source("inline_through.c");
    let rust = source("inline_through.rs");
    for (library, made) in [("libthrough.a", "gcc"), ("libthrough.rlib", "rustc")] {
        let folder = TestFolder::new();
        make_main(&folder);
        match made {
            "gcc" => {
                fs::write(folder.path().join("odd.txt"), "odd").unwrap();
                folder.tool("gcc", &format!("-O2 -mno-red-zone -c {c} -o through.o"));
                folder.tool("gcc", &format!("-O2 -c {} -o other.o", source("sorts.c")));
                folder.tool("ar", &format!("rcs {library} odd.txt through.o other.o"));
            }
            _ => drop(folder.tool(
                "rustc",
                &format!(
                    "--edition 2024 --crate-type rlib -C opt-level=2 -C panic=abort {rust} -o {library}"
                ),
            )),
        }
        folder.tool("g++", &format!("-o before main.o {library}"));
        assert!(!folder.run("./before", "").status.success(), "{library}");
        let names = folder.tool("ar", &format!("t {library}"));
        let index = folder.tool("nm", &format!("-s {library}"));
        let contents = || -> Vec<(String, Vec<u8>)> {
            let members = names.lines().map(|name| {
                let words = format!("p {library} {name}");
                let output = folder.run("ar", &words);
                (name.to_owned(), output.stdout)
            });
            members.collect()
        };
        let before = contents();

        let found = folder.unspool(&format!("check {library}"));
        assert_eq!(found.status.code(), Some(1), "{library}");
        let fixed = done(&folder, &format!("check --fix {library}"));
        assert!(fixed.contains("): rows mended of through"), "{fixed}");

        assert_eq!(folder.tool("ar", &format!("t {library}")), names);
        // Symbols and their members; and nm's output for these.
        assert_eq!(folder.tool("nm", &format!("-s {library}")), index);
        assert!(index.contains("through in "), "{index}");
        let after = contents();
        let changed = before.iter().zip(&after).filter(|(a, b)| a != b);
        let changed: Vec<&String> = changed.map(|((name, _), _)| name).collect();
        assert_eq!(changed.len(), 1, "{changed:?}");
        assert!(changed[0].contains("through"), "{changed:?}");
        links_and_catches(&folder, &format!("main.o {library}"));
        let frames = backtrace(&folder, "./bfd", "break callee");
        assert_eq!(frames, ["callee", "through", "main"], "{library}");
        // There is nothing left to do.
        let once = fs::read(folder.path().join(library)).unwrap();
        done(&folder, &format!("check --fix {library}"));
        assert_eq!(once, fs::read(folder.path().join(library)).unwrap());
    }
}

/// A finding allowed by a comment in the source stays in the object file, if line numbers lead to
/// it.
#[test]
fn suppressed_findings_are_not_fixed() {
    let body = |name: &str, comment: &str| {
        format!(
            "long {name}(int n)\n{{\n\tlong kept = n;\n\t__asm__ volatile(\"push %%r12; mov %[n], %%edi; call callee; pop %%r12\" \
             :: [n] \"r\"(n) : \"rax\", \"rcx\", \"rdx\", \"rsi\", \"rdi\", \"r8\", \"r9\", \"r10\", \"r11\", \"memory\"); {comment}\n\
             \treturn kept;\n}}\n"
        )
    };
    let allowed = "/* unspool: allow CFI001 nobody unwinds here */";
    let main = "void callee(int n) { (void)n; }\nlong CALLED(int n);\nint main(void) { return (int)CALLED(0); }\n";
    for (options, of_meant) in [("-g", false), ("-g0", true)] {
        let folder = TestFolder::new();
        let both =
            "void callee(int n);\n".to_owned() + &body("wrong", "") + &body("meant", allowed);
        fs::write(folder.path().join("both.c"), both).unwrap();
        fs::write(folder.path().join("main.c"), main).unwrap();
        // Equal functions would be merged, and one would lose its lines.
        let words = format!("-O2 -mno-red-zone -fno-ipa-icf {options} -c both.c");
        folder.tool("gcc", &words);
        folder.unspool("check --fix both.o");
        for (function, is_mended) in [("wrong", true), ("meant", of_meant)] {
            let words = format!("-O1 -DCALLED={function} main.c both.o -o {function}");
            folder.tool("gcc", &words);
            let frames = backtrace(&folder, &format!("./{function}"), "break callee");
            let is_whole = frames == ["callee", function, "main"];
            assert_eq!(is_whole, is_mended, "{options} {function}: {frames:?}");
        }
    }
}

#[test]
fn programs_are_mended_too() {
    let folder = TestFolder::new();
    let program = source("inline_program.rs");
    folder.tool(
        "rustc",
        &format!("--edition 2024 -C opt-level=2 {program} -o program"),
    );
    let shows_main = || {
        let output = folder.run("./program", "");
        assert!(output.status.success(), "{}", text(&output));
        let text = text(&output);
        assert!(text.contains("inline_program::through"), "{text}");
        text.contains("inline_program::main")
    };
    assert!(!shows_main());
    let fixed = done(&folder, "check --fix program");
    assert!(
        fixed.contains("rows mended of inline_program::through"),
        "{fixed}"
    );
    assert!(shows_main());
    // There is nothing left to do.
    let once = fs::read(folder.path().join("program")).unwrap();
    done(&folder, "check --fix program");
    assert_eq!(once, fs::read(folder.path().join("program")).unwrap());
}

#[test]
fn compilers_find_it_as_their_assembler() {
    let folder = TestFolder::new();
    fs::create_dir(folder.path().join("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_unspool"), folder.path().join("bin/as")).unwrap();
    let (main, through) = (source("object_main.cc"), source("inline_through.c"));
    folder.tool("g++", &format!("-O2 -c {main} -o main.o"));
    for (compiler, options) in [
        ("gcc", "-B bin -O2 -mno-red-zone"),
        ("gcc", "-B bin -pipe -O2 -mno-red-zone -g"),
        ("clang", "-fno-integrated-as -B bin -O2 -mno-red-zone"),
    ] {
        let words = format!("{options} -c {through} -o through.o");
        let said = folder.started(&mut tool(compiler), &words).finish();
        assert_eq!(
            said.ended_with(0).all(),
            "unspool: through.o: rows mended of through\n",
            "{compiler}"
        );
        folder.tool("g++", "-o program main.o through.o");
        let output = folder.run("./program", "");
        assert_eq!(text(&output), "caught 42\n", "{compiler} {options}");
    }
    // The assembler's messages and exit status are passed on; without output from it, nothing is
    // repaired.
    fs::write(folder.path().join("wrong.s"), "\tno such thing\n").unwrap();
    let failed = folder.run("bin/as", "-o wrong.o wrong.s");
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed).contains("wrong.s:1:"), "{}", text(&failed));
    folder.tool("gcc", &format!("-O2 -mno-red-zone -c {through} -o a.out"));
    let before = fs::read(folder.path().join("a.out")).unwrap();
    let version = folder.run("bin/as", "--version");
    assert!(
        text(&version).starts_with("GNU assembler"),
        "{}",
        text(&version)
    );
    assert_eq!(before, fs::read(folder.path().join("a.out")).unwrap());
    // Objects for other architectures, and those without a table, are left alone.
    for options in ["-m32", "-fno-asynchronous-unwind-tables"] {
        let words = format!("-B bin {options} -c {} -o x.o", source("throws_through.c"));
        let said = folder.started(&mut tool("gcc"), &words).finish();
        assert_eq!(said.ended_with(0).all(), "", "{options}");
    }
}

/// A project with inline assembly, and a folder with the linkers' names.
fn project() -> TestFolder {
    let folder = TestFolder::new();
    fs::create_dir(folder.path().join("tools")).unwrap();
    for name in ["ld", "ld.bfd", "ld.gold", "ld.lld"] {
        symlink(
            env!("CARGO_BIN_EXE_unspool"),
            folder.path().join("tools").join(name),
        )
        .unwrap();
    }
    for (from, to) in [
        ("inline_through.c", "through.c"),
        ("object_main.cc", "main.cc"),
    ] {
        fs::copy(source(from), folder.path().join(to)).unwrap();
    }
    folder
}

/// The lines of a section of docs/annotate.md that begin with a word.
fn documented(word: &str) -> Vec<String> {
    let page = include_str!("../../../../docs/annotate.md");
    let (_, section) = page.split_once("\n## In a build\n").unwrap();
    let lines = section.lines().filter(|line| line.starts_with(word));
    lines.map(str::to_owned).collect()
}

/// Runs commands of a shell in a folder; what they print.
fn shell(folder: &TestFolder, script: &str) -> String {
    let mut sh = tool("sh");
    sh.args(["-e", "-c", script]).current_dir(folder.path());
    sh.finish().ended_with(0).all()
}

/// What compilers link is repaired, by each linker's name.
#[test]
fn compilers_find_it_as_their_linker() {
    let folder = project();
    folder.tool("gcc", "-O2 -mno-red-zone -flto -c through.c -o through.o");
    folder.tool("g++", "-O2 -c main.cc -o main.o");
    for linker in ["bfd", "gold", "lld"] {
        let lto = if linker == "bfd" { "-flto" } else { "" };
        if lto.is_empty() {
            folder.tool("gcc", "-O2 -mno-red-zone -c through.c -o through.o");
        }
        let words = format!("-B tools -fuse-ld={linker} {lto} -o {linker} main.o through.o");
        let said = folder
            .started(&mut tool("g++"), &words)
            .finish()
            .ended_with(0)
            .all();
        assert!(said.contains("rows mended of through"), "{linker}: {said}");
        let output = folder.run(format!("./{linker}"), "");
        assert_eq!(text(&output), "caught 42\n", "{linker}");
        let frames = backtrace(&folder, &format!("./{linker}"), "break callee");
        assert_eq!(frames, ["callee", "through", "main"], "{linker}");
    }
    // Without output, nothing is repaired; the linker's status is passed on.
    let version = folder.run("tools/ld.bfd", "--version");
    assert!(text(&version).starts_with("GNU ld"), "{}", text(&version));
    let failed = folder.run("tools/ld", "-o none missing.o");
    assert_eq!(failed.status.code(), Some(1), "{}", text(&failed));
}

/// The lines of docs/annotate.md for Make, CMake and Meson; each program catches what goes through.
#[test]
fn build_systems_find_it() {
    let folder = project();
    folder.write(
        "Makefile",
        "CFLAGS = -O2 -mno-red-zone\napp: through.o main.o\n\t$(CC) -o $@ $^ -lstdc++\n",
    );
    let cmake = "cmake_minimum_required(VERSION 3.10)\nproject(app C CXX)\nset(CMAKE_C_FLAGS \"${CMAKE_C_FLAGS} -O2 -mno-red-zone\")\n\
                 add_executable(app through.c main.cc)\n";
    folder.write("CMakeLists.txt", cmake);
    let meson = "project('app', 'c', 'cpp')\n\
                 executable('app', 'through.c', 'main.cc', c_args: ['-O2', '-mno-red-zone'], link_language: 'c', dependencies: meson.get_compiler('cpp').find_library('stdc++'))\n";
    folder.write("meson.build", meson);
    for (words, build, program) in [
        (&["make "][..], "", "./app"),
        (&["cmake "], "cmake --build build", "build/app"),
        (
            &["FOLDER=", "printf ", "meson setup"],
            "ninja -C build",
            "build/app",
        ),
    ] {
        let _ = fs::remove_dir_all(folder.path().join("build"));
        let mut script: Vec<_> = words.iter().flat_map(|word| documented(word)).collect();
        assert_eq!(script.len(), words.len(), "{script:?}");
        script.push(build.to_owned());
        let said = shell(&folder, &script.join("\n"));
        assert!(
            said.contains("rows mended of through"),
            "{script:?}: {said}"
        );
        let output = folder.run(folder.path().join(program), "");
        assert_eq!(text(&output), "caught 42\n", "{script:?}");
    }
}

/// The line of docs/annotate.md for Cargo.
#[test]
fn cargo_finds_it() {
    let folder = project();
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::copy(
        source("inline_program.rs"),
        folder.path().join("src/main.rs"),
    )
    .unwrap();
    let manifest =
        "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
    folder.write("Cargo.toml", manifest);
    let line = documented("RUSTFLAGS=");
    assert_eq!(line.len(), 1, "{line:?}");
    // Cargo does not show what linkers print.
    let plain = "cargo build --release --target-dir plain";
    shell(
        &folder,
        &format!("{plain}\nexport CARGO_TARGET_DIR=built\n{}", line[0]),
    );
    let plain = folder.unspool("check plain/release/app");
    assert_eq!(plain.status.code(), Some(1), "{plain:?}");
    done(&folder, "check built/release/app");
}

#[test]
fn unwritable_tables_are_reported() {
    let folder = TestFolder::new();
    let source = source("throws_through.c");
    let without_table = format!("-O2 -fno-asynchronous-unwind-tables -c {source}");
    folder.tool("gcc", &format!("{without_table} -o whole.o"));
    folder.tool("strip", "-o stripped.o whole.o");
    folder.tool("gcc", &format!("{without_table} -m32 -o i386.o"));
    folder.tool(
        "gcc",
        &format!("-O2 -g -fno-asynchronous-unwind-tables -c {source} -o debug.o"),
    );
    folder.tool("ar", "rc lib.a whole.o");
    folder.tool("ar", "rcT thin.a whole.o");
    let whole = fs::read(folder.path().join("whole.o")).unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    write("empty.o", &[]);
    write("cut.o", &whole[..whole.len() - 100]);
    write("text.o", b"no object file");
    folder.tool("ar", "rc broken.a whole.o cut.o");
    write(
        "signed.o",
        &[&whole[..], b"~Module signature appended~\n"].concat(),
    );
    for (words, said) in [
        ("synth empty.o", "empty.o: the file is empty"),
        ("synth cut.o", "cut.o: the section header table at offset"),
        ("synth text.o", "text.o: not an ELF file"),
        (
            "synth stripped.o",
            "stripped.o: its unwind table cannot be written: it has no symbol table",
        ),
        ("synth signed.o", "signed.o: 0x1c bytes at offset"),
        ("synth i386.o", "i386.o: i386 code is not supported"),
        ("synth lib.a", "lib.a is an archive: take its members out"),
        ("check --fix empty.o", "empty.o: the file is empty"),
        (
            "check --fix cut.o",
            "cut.o: the section header table at offset",
        ),
        ("check --fix whole.o", "whole.o: no unwind table"),
        (
            "check --fix thin.a",
            "thin.a: it cannot be unpacked: it is a thin archive",
        ),
        (
            "check --fix broken.a",
            "broken.a: nothing is written, since 1 of its members could not be mended",
        ),
        ("check --diff whole.o", "--fix a copy"),
    ] {
        let words = match words.strip_prefix("synth ") {
            Some(file) => format!("synth {file} --emit eh_frame -o out.o"),
            None => words.to_owned(),
        };
        let output = folder.unspool(&words);
        assert_eq!(output.status.code(), Some(2), "{words}: {}", text(&output));
        assert!(text(&output).contains(said), "{words}: {}", text(&output));
        assert!(!folder.path().join("out.o").exists(), "{words}");
    }
    // An object without code needs nothing.
    fs::write(folder.path().join("nothing.s"), "").unwrap();
    folder.tool("as", "-o nothing.o nothing.s");
    done(&folder, "synth nothing.o --emit eh_frame -o made.o");
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    assert_eq!(read("nothing.o"), read("made.o"));
    // A table for debuggers only is a table, too.
    done(&folder, "synth debug.o --emit eh_frame -o out.o");
    let frames = folder.tool("readelf", "--debug-dump=frames -W out.o");
    assert_eq!(frames.matches(" FDE ").count(), 2, "{frames}");
}
