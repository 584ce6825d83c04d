//! `unspool ctf`: its output is compared with objdump's, and its linked types are read by objdump,
//! readelf, gdb and libctf.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use unspool_testing::{Finish as _, command, packages, tool};

use crate::harness::TestFolder;
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
fn a_dump_has_the_lines_of_objdump() {
    let folder = folder();
    folder.tool("gcc", "kinds.o -o plain");
    folder.tool("gcc", "kinds.o -rdynamic -o exporting");
    folder.tool("gcc", "one.o two.o three.o -rdynamic -o archive");
    folder.tool(
        "gcc",
        "one.o two.o three.o -Wl,--ctf-variables -o variables",
    );
    folder.tool(
        "gcc",
        "one.o two.o three.o -Wl,--ctf-share-types=share-duplicated -o duplicated",
    );
    folder.tool("ld", "-r one.o two.o three.o -o again.o");
    let linked = [
        "plain",
        "exporting",
        "archive",
        "variables",
        "duplicated",
        "again.o",
    ];
    let objects = SOURCES.map(|name| format!("{name}.o"));
    for file in objects.iter().map(String::as_str).chain(linked) {
        check_lines(&folder, file);
    }
}

/// Sources of one subject each: their objects, ld's output for those, and unspool's.
#[test]
fn each_subject_has_the_lines_of_objdump() {
    let folder = folder();
    let cases = source("cases/arrays");
    let cases = cases.parent().unwrap();
    let mut seen = 0;
    for case in fs::read_dir(cases).unwrap() {
        let case = case.unwrap().path();
        let name = case.file_name().unwrap().to_str().unwrap();
        let mut objects = String::new();
        for source in fs::read_dir(&case).unwrap() {
            let source = source.unwrap().path();
            let nth = source.file_stem().unwrap().to_str().unwrap();
            let object = format!("{name}-{nth}.o");
            let words = format!("-gctf -fPIC -O1 -c {} -o {object}", source.display());
            folder.tool("gcc", &words);
            check_lines(&folder, &object);
            objects += &format!(" {object}");
        }
        folder.tool("gcc", &format!("-shared{objects} -o linked"));
        check_lines(&folder, "linked");
        for symbols in ["names", "dynsym"] {
            folder.done(&format!(
                "ctf link{objects} --into linked --symbols {symbols}"
            ));
            check_lines(&folder, "linked");
        }
        seen += 1;
    }
    assert!(seen >= 12);
}

/// Types that refer to each other over longer paths than in any source.
#[test]
fn long_ways_have_the_lines_of_objdump() {
    let folder = folder();
    let chain = |first: &str, link: &dyn Fn(usize) -> String, last: &str| {
        let links: String = (0..200).map(link).collect();
        format!("{first}{links}{last} x;")
    };
    let nested = |begin: &str, end: &str| {
        (0..100).fold(String::new(), |inner, _| format!("{begin}{inner}{end}"))
    };
    let typedefs = |of: &str| {
        chain(
            "typedef int t0;",
            &|at| format!("typedef {of}t{};", at + 1).replace("@", &at.to_string()),
            "t200",
        )
    };
    let parameters = vec!["const unsigned long *"; 1000].join(", ");
    let sources = [
        ("names", typedefs("t@ ")),
        ("qualified", typedefs("volatile t@ *const ")),
        ("pointers", format!("int {}x;", "*".repeat(200))),
        ("arrays", format!("char x{};", "[1]".repeat(200))),
        (
            "members",
            chain(
                "struct s0 { int a; };",
                &|at| format!("struct s{} {{ struct s{at} m; int b; }};", at + 1),
                "struct s200",
            ),
        ),
        (
            "named",
            typedefs("t@ ").replace("int t0", "struct own { char c; } t0")
                + "struct of { char c; t200 m; } y;",
        ),
        (
            "functions",
            format!("int {}x{};", "(*".repeat(100), ")(void)".repeat(100)),
        ),
        ("takers", format!("int (*x)({});", nested("int (*)(", ")"))),
        ("parameters", format!("int (*x)({parameters});")),
    ];
    for (name, text) in sources {
        fs::write(folder.join(format!("{name}.c")), text).unwrap();
        folder.tool("gcc", &format!("-gctf -c {name}.c -o {name}.o"));
        check_lines(&folder, &format!("{name}.o"));
    }
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
fn c_is_what_the_source_says() {
    let folder = folder();
    let node = folder.done("ctf type node kinds.o");
    for line in [
        "    int a : 3;                               /* at 8:0, 3 bits */",
        "    u32 grid[3][4];                          /* at 12, 48 bytes */",
        "    int last[0];                             /* at 80, 0 bytes */",
        "}; /* size 80, align 8, holes 46 bits */",
    ] {
        assert!(node.lines().any(|other| other == line), "{line}\n{node}");
    }
    let declared = |name: &str| folder.done(&format!("ctf symbol {name} kinds.o"));
    assert_eq!(declared("bytes"), "unsigned char bytes[2][3][5];\n");
    assert_eq!(
        declared("table"),
        "struct node *(*table[2])(struct holes *, int (*)(void));\n"
    );
    assert_eq!(
        declared("callback"),
        "int (*callback)(const char *restrict, ...);\n"
    );
    assert_eq!(declared("many"), "int many(int, ...);\n");
    let as_stored = folder.done("ctf symbol bytes --arrays-as-stored kinds.o");
    // gcc 12 before 12.4 and 13 before 13.3 reversed them (PR114186).
    let version = folder.tool("gcc", "-dumpfullversion");
    let mut version = version.trim().split('.').map(|part| part.parse().unwrap());
    let is_reversed = match (version.next(), version.next()) {
        (Some(12), Some(minor)) => minor < 4,
        (Some(13), Some(minor)) => minor < 3,
        (major, _) => major < Some(12),
    };
    let dimensions = if is_reversed {
        "[5][3][2]"
    } else {
        "[2][3][5]"
    };
    assert_eq!(as_stored, format!("unsigned char bytes{dimensions};\n"));
}

/// The declarations in a dump, compiled by gcc with assertions on sizes and offsets, are valid.
#[test]
fn gcc_agrees_with_sizes_and_offsets() {
    let folder = folder();
    let json = json::document(folder.done("ctf dump --as json kinds.o"));
    let mut check = format!("#include \"{}\"\n", source("kinds").display());
    let mut asserted = 0;
    for ty in json["files"][0]["dictionaries"][0]["types"]
        .as_array()
        .unwrap()
    {
        let is_record = matches!(ty["kind"].as_str().unwrap(), "struct" | "union");
        let Some(name) = ty["name"]
            .as_str()
            .filter(|name| is_record && !name.starts_with("__"))
        else {
            continue;
        };
        let tag = format!("{} {name}", ty["kind"].as_str().unwrap());
        check += &format!("_Static_assert(sizeof({tag}) == {}, \"\");\n", ty["size"]);
        check += &format!(
            "_Static_assert(_Alignof({tag}) == {}, \"\");\n",
            ty["align"]
        );
        for member in ty["members"].as_array().unwrap() {
            if let (Some(name), false) = (member["name"].as_str(), member["bit_field"] == true) {
                let offset = member["bit_offset"].as_u64().unwrap() / 8;
                check += &format!("_Static_assert(offsetof({tag}, {name}) == {offset}, \"\");\n");
                asserted += 1;
            }
        }
    }
    assert!(asserted > 10, "{check}");
    fs::write(folder.join("check.c"), check).unwrap();
    folder.tool("gcc", "-fsyntax-only check.c");
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
