//! `unspool ctf`: its output is compared with objdump's, and its linked types are read by objdump,
//! readelf, gdb and libctf.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use unspool_testing::{Finish as _, command, packages, tool};

use crate::harness::{TestFolder, unspool};
use crate::json;

/// The C sources of the linked types.
const SOURCES: [&str; 4] = ["kinds", "one", "two", "three"];

/// A folder with object files of all sources.
fn folder() -> TestFolder {
    let folder = TestFolder::new();
    for name in SOURCES {
        let source = source(name);
        let words = format!("-gctf -O1 -c {} -o {name}.o", source.display());
        folder.tool("gcc", &words);
    }
    folder
}

/// objdump's output for a file's CTF, without the lines about the file.
fn objdump(folder: &TestFolder, file: &str) -> String {
    let text = folder.tool("objdump", &format!("--ctf {file}"));
    // binutils 2.44 puts types that cannot be found by name in braces. 2.40 prints one comma too many
    // between flags.
    let without_braces = |line: &str| {
        if line.trim_start().starts_with("{0x") {
            line.replace(['{', '}'], "")
        } else {
            line.replace("INFO, , ", "INFO, ")
        }
    };
    text.lines()
        .skip(4)
        .map(|line| without_braces(line) + "\n")
        .collect()
}

fn printed(output: Output, what: &str) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a definition needs is written before it, and nothing else.
#[test]
fn a_type_with_what_it_needs_compiles() {
    let folder = TestFolder::new();
    let text = "\
typedef unsigned short code;
enum kind { ONE, TWO };
struct point { int x; code y; };
typedef struct { struct point at; enum kind kind; } placed;
struct other { int a; };
typedef struct node node;
typedef int (*visit)(node *, const placed *);
struct node {
    node *next; struct other *other; placed all[2];
    union { struct point point; visit visit; } u;
    enum kind kind : 2;
};
struct node node_of_all;
struct other other_of_all;
";
    folder.write("needs.c", text);
    for option in ["-gctf", "-g"] {
        folder.tool("gcc", &format!("{option} -c needs.c -o needs.o"));
        for (name, count) in [("node", 7), ("visit", 6), ("point", 2), ("code", 1)] {
            let written = folder.done(&format!("ctf type {name} needs.o --with-needed"));
            folder.write("written.c", &written);
            folder.tool("gcc", "-Wall -Werror -fsyntax-only written.c");
            let is_start = |line: &&str| !line.starts_with([' ', '}']);
            assert_eq!(written.lines().filter(is_start).count(), count, "{written}");
        }
        let alone = folder.done("ctf type node needs.o");
        assert!(!alone.contains("typedef unsigned short"), "{alone}");
    }
    for (words, message) in [
        (
            "ctf type nod needs.o",
            "nothing is named \"nod\"; there is `node`",
        ),
        ("ctf symbol node_of needs.o", "; there is `node_of_all`"),
        (
            "ctf type needs.o node",
            "the name comes first: `unspool ctf type node needs.o`",
        ),
    ] {
        let said = folder.unspool(words);
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.contains(message), "{words}: {said}");
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../c-types/tests/c/{name}.c"))
}

fn check_lines(folder: &TestFolder, file: &str) {
    let theirs = objdump(folder, file);
    let ours = folder.done(&format!("ctf dump --as objdump {file}"));
    assert!(theirs.lines().count() > 20, "{theirs}");
    for (nth, (ours, theirs)) in ours.lines().zip(theirs.lines()).enumerate() {
        assert_eq!(ours, theirs, "{file}, line {nth}");
    }
    assert_eq!(ours.lines().count(), theirs.lines().count(), "{file}");
}

#[test]
fn an_added_section_prints_the_same_as_in_objdump() {
    let folder = folder();
    for symbols in ["names", "symtab", "dynsym", "none"] {
        for objects in ["kinds.o", "one.o two.o three.o"] {
            folder.tool("gcc", &format!("{objects} -rdynamic -o program"));
            folder.done(&format!(
                "ctf link {objects} --into program --symbols {symbols}"
            ));
            check_lines(&folder, "program");
            let sections = folder.tool("readelf", "-SW program");
            assert_eq!(sections.matches(" .ctf ").count(), 1, "{sections}");
            let of_elf = match symbols {
                "symtab" => "--ctf-symbols=.symtab --ctf-strings=.strtab",
                "dynsym" => "--ctf-symbols=.dynsym --ctf-strings=.dynstr",
                _ => "",
            };
            let text = folder.tool("readelf", &format!("--ctf=.ctf {of_elf} program"));
            assert!(
                text.contains("struct node") || text.contains("struct item"),
                "{text}"
            );
            // The file is intact: it runs, and strip accepts it.
            let status = folder.run(folder.join("program"), "").status;
            folder.tool("strip", "program -o stripped");
            assert_eq!(folder.run(folder.join("stripped"), "").status, status);
        }
    }
}

/// Tools that write symbols and strings anew change no type and no name: each shown declaration is
/// the source's. Types in the order of `.symtab` are refused after its order changed.
#[test]
fn types_survive_other_tools() {
    let folder = TestFolder::new();
    let mut declarations = BTreeSet::new();
    let mut text = "struct pair { int left; long right[3]; };\n".to_owned();
    for (nth, ty) in ["char", "short int", "int", "long int", "struct pair *"]
        .into_iter()
        .enumerate()
    {
        let space = if ty.ends_with('*') { "" } else { " " };
        for (visibility, name) in [("static", "own"), ("", "shared")] {
            let declaration = format!("{ty}{space}{name}_{nth}({ty}, struct pair *)");
            text += &format!(
                "__attribute__((noipa, used)) {visibility} {ty}{space}{name}_{nth}({ty}{space}a, struct pair *b) {{ return a; }}\n"
            );
            declarations.insert(format!("{declaration};"));
        }
        text += &format!("{ty}{space}data_{nth};\n");
        declarations.insert(format!("{ty}{space}data_{nth};"));
    }
    text += "int main(void) { return 0; }\n";
    declarations.insert("int main(void);".to_owned());
    folder.write("a.c", text);
    folder.tool("gcc", "-g -O1 -rdynamic -fno-toplevel-reorder a.c -o plain");
    let dump = |file: &str| {
        let output = folder.unspool(&format!("ctf dump {file}"));
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(
            text.contains("    long int right[3]; "),
            "{file}: {text}{errors}"
        );
        let lines = text
            .lines()
            .filter(|line| line.ends_with(';') && !line.starts_with('}'));
        let shown: BTreeSet<_> = lines.map(str::to_owned).collect();
        (shown, output.status.code().unwrap(), errors)
    };
    let tools = [
        "strip",
        "strip -g",
        "strip -x",
        "strip -s",
        "strip --strip-unneeded",
        "objcopy -L shared_0",
        "objcopy --redefine-sym shared_1=other",
        "objcopy --add-symbol more=.text:0,function,local,before=own_0",
        "objcopy --prefix-symbols=long_prefix_",
    ];
    for symbols in ["default", "names", "dynsym", "symtab"] {
        let option = match symbols {
            "default" => String::new(),
            _ => format!("--symbols {symbols}"),
        };
        fs::copy(folder.join("plain"), folder.join("program")).unwrap();
        folder.done(&format!("ctf from-dwarf plain --into program {option}"));
        let (before, status, errors) = dump("program");
        assert_eq!(status, 0, "{errors}");
        if symbols == "dynsym" {
            assert!(before.is_subset(&declarations), "{before:?}");
            assert!(before.len() >= 10, "{before:?}");
        } else {
            assert!(before.is_superset(&declarations), "{before:?}");
        }
        for line in tools {
            let (tool, words) = line.split_once(' ').unwrap_or((line, ""));
            fs::copy(folder.join("program"), folder.join("changed")).unwrap();
            folder.tool(tool, &format!("{words} changed"));
            let (after, status, errors) = dump("changed");
            if symbols != "symtab" || line == "strip -g" {
                assert_eq!(
                    (&after, status),
                    (&before, 0),
                    "{symbols}, {line}: {errors}"
                );
            } else {
                let remedy =
                    "in the order of .symtab, which has changed since: write the types anew";
                assert!(status == 1 && errors.contains(remedy), "{line}: {errors}");
                // Tables that are smaller by name are still right.
                assert!(after.is_subset(&declarations), "{line}: {after:?}");
                assert!(after.len() < declarations.len(), "{line}: {after:?}");
            }
        }
    }
    // Names in .strtab, as the first versions wrote.
    folder.tool("objcopy", "--dump-section .ctf=ctf program");
    folder.done("ctf from-dwarf plain -o ctf --uncompressed");
    let mut old = folder.bytes("ctf");
    let types = u32::from_le_bytes(*old[40..].first_chunk().unwrap());
    old[52 + usize::try_from(types).unwrap() + 3] |= 0x80;
    folder.write("ctf", old);
    folder.tool("objcopy", "--update-section .ctf=ctf program");
    for words in [
        "dump program",
        "symbol main program",
        "diff program plain",
        "to-btf program",
    ] {
        let output = folder.unspool(&format!("ctf {words}"));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words}: {errors}");
        assert!(
            errors.contains("names in .strtab") && errors.contains("--into"),
            "{errors}"
        );
    }
}

#[test]
fn gdb_shows_types_without_dwarf() {
    let folder = folder();
    folder.tool("gcc", "kinds.o -o program");
    folder.done("ctf link kinds.o --into program");
    let debugger = |question: &str| {
        let mut gdb = tool("gdb");
        gdb.args(["-nx", "-batch", "-ex", question, "program"]);
        gdb.current_dir(folder.path()).succeed()
    };
    let node = debugger("ptype struct node");
    for member in [
        "struct node *next;",
        "int a : 3;",
        "unsigned int b : 5;",
        "double d;",
    ] {
        assert!(node.contains(member), "{node}");
    }
    // A function that is not exported: ld would leave it out.
    assert_eq!(debugger("ptype quiet"), "type = void ()\n");
    assert_eq!(
        debugger("ptype use"),
        "type = int (struct node *, union mixed *, size_t)\n"
    );
}

#[test]
fn libctf_reads_what_is_linked() {
    let folder = folder();
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/types.c");
    packages::path("/usr/include/ctf-api.h").unwrap();
    folder.tool("gcc", &format!("{} -o types -lctf", reader.display()));
    folder.tool("gcc", "kinds.o -o program");
    folder.done("ctf link kinds.o --into program");
    let text = printed(folder.run(folder.join("types"), "program"), "types");
    for line in [
        "dictionary .ctf",
        "function use: int (*) (struct node *, union mixed *, size_t)",
        "function quiet: void (*) ()",
        "member next at 0: struct node *",
        "member d at 512: double",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}: {text}");
    }
    // Child dictionaries: functions of one name exist with both types.
    folder.tool("gcc", "one.o two.o three.o -o three");
    folder.done("ctf link one.o two.o three.o --into three --symbols names");
    let text = printed(folder.run(folder.join("types"), "three"), "types");
    assert!(
        text.contains("function pick: struct item *(*) (struct shelf *)\n"),
        "{text}"
    );
    assert!(
        text.contains("function pick: struct item *(*) (struct shelf *, int)\n"),
        "{text}"
    );
}

#[test]
fn units_with_a_common_prefix_get_one_dictionary() {
    let folder = folder();
    let prefix = source("one");
    let prefix = prefix.parent().unwrap().display();
    folder.done(&format!(
        "ctf link one.o two.o three.o -o together.ctf --unit {prefix}/=together"
    ));
    let names: Vec<_> = folder
        .done("ctf dump --as objdump together.ctf")
        .lines()
        .filter(|line| line.starts_with("CTF archive member"))
        .map(str::to_owned)
        .collect();
    assert_eq!(names, ["CTF archive member: together:"]);
}

/// A pipe is read once and completely: `<(…)` of a shell, a FIFO, standard input.
#[test]
fn types_are_read_through_pipes() {
    let folder = folder();
    folder.tool("ar", "rc lib.a kinds.o one.o");
    folder.done("ctf link kinds.o -o kinds.ctf");
    folder.done("ctf to-btf kinds.o -o kinds.btf");
    let unspool = env!("CARGO_BIN_EXE_unspool");
    let shell = |line: &str| {
        // Every Debian has it.
        let mut command = command("/bin/bash");
        command.arg("-c").arg(line.replace("unspool", unspool));
        command.current_dir(folder.path());
        let output = command.output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        (output.status.code().unwrap(), printed, errors)
    };
    for file in ["kinds.ctf", "kinds.btf", "kinds.o", "lib.a"] {
        let expected = (0, folder.done(&format!("ctf type node {file}")));
        for line in [
            format!("unspool ctf type node <(cat {file})"),
            format!("cat {file} | unspool ctf type node /dev/stdin"),
            format!(
                "mkfifo {file}.pipe && (cat {file} > {file}.pipe & unspool ctf type node {file}.pipe)"
            ),
            format!("unspool ctf type node /dev/stdin < {file}"),
        ] {
            let (status, printed, errors) = shell(&line);
            assert_eq!((status, printed), expected, "{line}: {errors}");
        }
    }
    let (status, printed, errors) = shell("unspool ctf diff <(cat kinds.o) <(cat kinds.o)");
    assert_eq!(status, 0, "{printed}{errors}");
    // The query for a symbol without a type reads the same bytes.
    let (status, _, errors) = shell("unspool ctf symbol nobody <(cat kinds.o)");
    assert!(
        status == 1 && errors.contains("nothing is named"),
        "{errors}"
    );
    let (status, _, errors) = shell("unspool ctf from-dwarf <(cat one.o)");
    assert!(status == 2 && errors.contains(": a pipe"), "{errors}");
    let (status, _, errors) = shell("unspool ctf dump .");
    assert!(
        status == 2 && errors.contains(": a folder, not a regular file"),
        "{errors}"
    );
}

#[test]
fn impossible_requests_are_reported() {
    let folder = folder();
    fs::write(folder.join("empty.c"), "int none;\n").unwrap();
    folder.tool("gcc", "-c empty.c -o empty.o");
    let said = |words: &str, status: i32| {
        let output = folder.unspool(&format!("ctf {words}"));
        assert_eq!(output.status.code(), Some(status), "{words}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said("dump empty.o", 2).contains("gcc -gctf"));
    assert!(said("link empty.o -o x", 2).contains("gcc -gctf"));
    assert!(said("type nothing kinds.o", 1).contains("nothing is named"));
    assert!(said("dump --member nothing kinds.o", 2).contains("it has .ctf"));
    assert!(said("link one.o --into two.o", 2).contains("relocatable"));
    assert!(said("link one.o -o x --symbols dynsym", 2).contains("--into"));
    let whole = fs::read(folder.join("one.o")).unwrap();
    fs::write(folder.join("cut"), &whole[..64]).unwrap();
    let missing = "unspool: error: cannot read absent: No such file or directory (os error 2)\n";
    for words in [
        "dump FILE",
        "link FILE -o x",
        "to-btf FILE",
        "diff FILE one.o",
        "from-dwarf FILE",
    ] {
        assert_eq!(
            said(&words.replace("FILE", "absent"), 2),
            missing,
            "{words}"
        );
        let errors = said(&words.replace("FILE", "cut"), 2);
        assert_eq!(errors.matches("cut: ").count(), 1, "{errors}");
    }
}

/// Pointers of two sizes cannot be in one dictionary: a reader would confuse them.
#[test]
fn files_of_two_word_sizes_are_not_linked() {
    let folder = folder();
    let one = source("one");
    folder.tool(
        "gcc",
        &format!("-m32 -g -gctf -c {} -o narrow.o", one.display()),
    );
    fs::write(folder.join("main.c"), "int main(void) { return 0; }\n").unwrap();
    folder.tool("gcc", "main.c -o wide");
    let before = fs::read(folder.join("wide")).unwrap();
    for (words, other) in [
        ("link one.o narrow.o -o x", "one.o"),
        ("link two.o three.o narrow.o -o x", "two.o"),
        ("link narrow.o --into wide", "wide"),
        ("from-dwarf narrow.o --into wide", "wide"),
    ] {
        let output = folder.unspool(&format!("ctf {words}"));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words}: {errors}");
        let has = |text: &str| errors.contains(text);
        assert!(
            has(&format!("{other} is 64-bit")) && has("narrow.o is 32-bit"),
            "{errors}"
        );
    }
    assert!(!folder.join("x").exists());
    assert_eq!(fs::read(folder.join("wide")).unwrap(), before);
    folder.done("ctf link narrow.o -o x");
}

/// The examples in the help are valid.
#[test]
fn the_examples_of_to_btf_do_what_they_say() {
    let folder = TestFolder::new();
    let source = source("kinds");
    folder.tool("gcc", &format!("-gctf -O1 {} -o app", source.display()));
    folder.done("ctf link app -o app.ctf");
    packages::path("/usr/sbin/bpftool").unwrap();
    let help = folder.done("ctf to-btf --help");
    let (_, examples) = help.split_once("Examples:\n").unwrap();
    let examples: Vec<&str> = examples
        .lines()
        .map_while(|line| line.strip_prefix("  "))
        .collect();
    assert_eq!(examples.len(), 2, "{help}");
    let unspool = Path::new(env!("CARGO_BIN_EXE_unspool")).parent().unwrap();
    for example in examples {
        let mut command = command("sh");
        command.args(["-ec", example]).current_dir(folder.path());
        command.env(
            "PATH",
            format!("{}:/usr/sbin:/usr/bin:/bin", unspool.display()),
        );
        let output = command.output().unwrap();
        assert!(output.status.success(), "{example}: {output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        let has_types = printed.contains("STRUCT 'node'");
        assert_eq!(has_types, example.contains("bpftool"), "{printed}");
        let types = folder.tool("bpftool", "btf dump file app.btf format raw");
        assert!(types.matches("] STRUCT ").count() > 2, "{types}");
    }
}

/// Files of CTF and of BTF with two conflicting units, with a sign in all of their names: a compiler
/// takes a word of the same length, which the sign then replaces.
fn named(folder: &TestFolder, file: &str, sign: &str) {
    let word = "Q".repeat(sign.len());
    let mut objects = String::new();
    for unit in ["1", "2"] {
        let text = "typedef int int#; typedef struct record# { int# member#; } name#;
            enum list# { ONE# = @ } one#; struct record# data#;
            name# call#(int# from#) { return data#; }";
        let name = format!("unit{unit}{word}");
        let text = text.replace('#', &word).replace('@', unit);
        folder.write(&format!("{name}.c"), text);
        folder.tool("gcc", &format!("-g -gctf -c {name}.c -o {name}.o"));
        objects += &format!(" {name}.o");
    }
    folder.done(&format!("ctf link{objects} -o {file}.ctf --uncompressed"));
    folder.done(&format!("ctf to-btf unit1{word}.o -o {file}.btf"));
    for name in [format!("{file}.ctf"), format!("{file}.btf")] {
        let mut bytes = folder.bytes(&name);
        for at in 0..bytes.len().saturating_sub(word.len()) {
            if bytes[at..].starts_with(word.as_bytes()) {
                bytes[at..at + word.len()].copy_from_slice(sign.as_bytes());
            }
        }
        folder.write(&name, bytes);
    }
}

/// Names that would control a terminal or start a line are shown with escapes. JSON has them
/// unchanged.
#[test]
fn names_are_no_commands_to_a_terminal() {
    let folder = TestFolder::new();
    let sign = "\u{1b}[2J\n\r\u{9b}";
    named(&folder, "wild", sign);
    named(&folder, "tame", &sign.escape_default().to_string());
    let names = |text: &str| text.matches("\\u{1b}[2J\\n\\r\\u{9b}").count();
    let questions = [
        ("dump FILE.ctf", 8),
        ("dump FILE.btf", 8),
        ("dump --as objdump FILE.ctf", 20),
        ("type nameSIGN FILE.ctf", 1),
        ("type recordSIGN FILE.btf", 3),
        ("symbol callSIGN FILE.ctf", 3),
        ("symbol callSIGN FILE.btf", 3),
        ("symbol dataSIGN FILE.ctf", 2),
    ];
    for (question, least) in questions {
        let ask = |file: &str, sign: &str| {
            let mut command = unspool();
            let words = question.split(' ');
            command.arg("ctf").current_dir(folder.path());
            command.args(words.map(|word| word.replace("FILE", file).replace("SIGN", sign)));
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        let (wild, tame) = (
            ask("wild", sign),
            ask("tame", &sign.escape_default().to_string()),
        );
        // String offsets differ.
        if question.contains("objdump") {
            assert_eq!(wild.lines().count(), tame.lines().count(), "{wild}{tame}");
        } else {
            assert_eq!(wild, tame, "{question}");
        }
        assert!(names(&wild) >= least, "{question}: {wild}");
        let is_odd = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
        assert!(!wild.contains(is_odd), "{question}: {wild:?}");
    }
    let json: serde_json::Value = json::document(folder.done("ctf dump --as json wild.btf"));
    let functions = &json["files"][0]["dictionaries"][0]["functions"];
    assert_eq!(functions[0]["name"], format!("call{sign}"));
}

/// A function without a type is distinguished from an unknown name.
#[test]
fn untyped_symbols_are_reported() {
    let folder = TestFolder::new();
    fs::write(folder.join("a.c"), "static int hid(int x) { return x; } int (*volatile p)(int) = hid; int main(void) { return p(0); }").unwrap();
    folder.tool("gcc", "-g -gctf a.c -o a");
    let said = String::from_utf8(folder.unspool("ctf symbol hid a").stderr).unwrap();
    assert!(
        said.contains("exported symbols only") && said.contains("from-dwarf a --into a"),
        "{said}"
    );
    let said = String::from_utf8(folder.unspool("ctf symbol nobody a").stderr).unwrap();
    assert!(said.contains("nothing is named \"nobody\""), "{said}");
    folder.done("ctf from-dwarf a --into a");
    assert_eq!(folder.done("ctf symbol hid a"), "int hid(int);\n");
}

/// What CTF or BTF cannot represent, and units in other languages, are notices; losses are findings.
#[test]
fn losses_are_findings() {
    let folder = TestFolder::new();
    folder.write(
        "a.c",
        "enum e { LARGE = 1L << 40 } e; typedef int v4 __attribute__((vector_size(16))); v4 v;",
    );
    folder.write("b.cc", "struct S { int x; } s;");
    folder.tool("gcc", "-g -c a.c -o a.o");
    folder.tool("g++", "-g -c b.cc -o b.o");
    folder.tool("ld", "-r a.o b.o -o both.o");
    for (words, status, message) in [
        ("from-dwarf a.o", 1, "enum e: LARGE is 1099511627776"),
        ("to-btf a.o -o a.btf", 1, "BTF cannot say v4: "),
        (
            "from-dwarf both.o",
            1,
            "both.o: 1 unit is left out: C_plus_plus",
        ),
        ("from-dwarf b.o", 2, "no DWARF of units in C"),
    ] {
        let output = folder.unspool(&format!("ctf {words}"));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{words}: {errors}");
        assert!(errors.contains(message), "{words}: {errors}");
    }
}
