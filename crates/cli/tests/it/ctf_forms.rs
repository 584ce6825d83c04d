//! `unspool ctf from-dwarf` and `to-btf`, compared with gcc's CTF from the same compilation, and
//! with the readers pahole, bpftool and gdb.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use unspool_c_types::{
    Agreement, BtfReading, BtfWriter, CtfSection, CtfWriter, ElfContext, Endian, Enumerator, Gcc,
    Graph, LinkOptions, LinkUnit, Member, Number, Parameter, Share, Tag, Type, TypeKind,
    TypedSymbol, link,
};
use unspool_testing::{command, packages};

use crate::harness::{self, TestFolder};
use crate::json;

/// The sources of the tests of `unspool-c-types`.
fn source(name: &str) -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../c-types/tests/c");
    tests.join(format!("{name}.c")).display().to_string()
}

fn open(bytes: &[u8]) -> CtfSection<'_> {
    let elf = ElfContext {
        is_64: true,
        ..ElfContext::default()
    };
    CtfSection::open(bytes, elf).unwrap()
}

/// Asserts that each named type, function and variable is the same in both. Returns their number.
fn assert_same(ours: &Graph<'_>, theirs: &Graph<'_>, what: &str) -> usize {
    let mut count = 0;
    for (id, ty) in ours.types().filter(|(_, ty)| ty.name_space().is_some()) {
        let is_it =
            |other: &Type<'_>| other.name == ty.name && other.name_space() == ty.name_space();
        let found: Vec<_> = theirs.types().filter(|(_, other)| is_it(other)).collect();
        let compared = found.iter();
        let compared: Vec<_> = compared
            .map(|(other, _)| ours.agrees(id, theirs, *other, Agreement::Same))
            .collect();
        let is_same = compared.iter().any(Result::is_ok);
        assert!(is_same, "{what}: {}: {compared:?}", ours.declare(id, ""));
        count += 1;
    }
    for (ours_of, theirs_of) in [
        (&ours.functions, &theirs.functions),
        (&ours.objects, &theirs.objects),
    ] {
        for symbol in ours_of {
            let found = theirs_of.iter().find(|other| other.name == symbol.name);
            let other = found
                .unwrap_or_else(|| panic!("{what}: {}", symbol.name))
                .ty;
            let same = ours.agrees(symbol.ty, theirs, other, Agreement::Same);
            assert_eq!(same, Ok(()), "{what}: {}", symbol.name);
            count += 1;
        }
    }
    count
}

/// DWARF of all versions, with types in separate units or not, has the same types as gcc's CTF from
/// the same compilation.
#[test]
fn dwarf_says_what_gcc_says_in_ctf() {
    let folder = TestFolder::new();
    for flags in [
        "-gdwarf-5",
        "-gdwarf-4",
        "-gdwarf-3",
        "-gdwarf-2",
        "-gdwarf-4 -fdebug-types-section",
        "-gdwarf-5 -fdebug-types-section",
        "-gdwarf-5 -gsplit-dwarf",
        "-gdwarf-4 -gsplit-dwarf",
        "-gdwarf-5 -gsplit-dwarf -fdebug-types-section",
        "-gdwarf-4 -gsplit-dwarf -fdebug-types-section",
    ] {
        // DWARF 2 does not have `restrict`, which `kinds` uses.
        let names = ["one", "two", "three", "kinds"];
        for name in &names[..if flags == "-gdwarf-2" { 3 } else { 4 }] {
            let path = source(name);
            // With older DWARF, gcc 12 has wrong offsets of bit-fields in CTF.
            folder.tool("gcc", &format!("-gdwarf-5 -gctf -O1 -c {path} -o ctf.o"));
            folder.tool("objcopy", "--dump-section .ctf=theirs ctf.o");
            folder.tool(
                "gcc",
                &format!("{flags} -O1 -fPIC -shared -nostartfiles {path} -o o.so"),
            );
            folder.done("ctf from-dwarf o.so -o ours --symbols names");
            let (theirs, ours) = (folder.bytes("theirs"), folder.bytes("ours"));
            let (theirs, ours) = (open(&theirs), open(&ours));
            let (theirs, ours) = (theirs.parents(), ours.parents());
            let comment = folder.tool("readelf", "-p .comment ctf.o");
            let gcc = comment
                .lines()
                .find_map(|line| line.split_once("GCC: "))
                .unwrap()
                .1;
            let gcc = Gcc::from_comment(&format!("GCC: {}", gcc.trim())).unwrap();
            let theirs = match gcc.quirk() {
                Some(_) => theirs[0].reading.graph.with_reversed_arrays(),
                None => Graph::clone(&theirs[0].reading.graph),
            };
            let count = assert_same(&ours[0].reading.graph, &theirs, &format!("{flags} {name}"));
            assert!(count > 5, "{flags} {name}: {count}");
        }
    }
}

/// Types in a separate debug file, or in one shared by several files, are found.
#[test]
fn separate_files_are_found() {
    let folder = TestFolder::new();
    let path = source("kinds");
    folder.tool(
        "gcc",
        &format!("-g -O1 -shared -fPIC -Wl,--build-id {path} -o whole.so"),
    );
    let whole = folder.done("ctf from-dwarf whole.so");
    folder.tool("objcopy", "--only-keep-debug whole.so one.debug");
    folder.tool(
        "objcopy",
        "--strip-debug --add-gnu-debuglink=one.debug whole.so one.so",
    );
    assert_eq!(folder.done("ctf from-dwarf one.so"), whole);
    // dwz moves the common parts of two files into a third one.
    let two = source("kinds");
    folder.tool(
        "gcc",
        &format!("-g -O1 -shared -fPIC -DOTHER {two} -o two.so"),
    );
    folder.tool("gcc", &format!("-g -O1 -shared -fPIC {two} -o first.so"));
    folder.tool("dwz", "-m common.debug first.so two.so");
    let sections = folder.tool("readelf", "-SW first.so");
    assert!(sections.contains(".gnu_debugaltlink"), "{sections}");
    let sorted = |text: String| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(
        sorted(folder.done("ctf from-dwarf first.so")),
        sorted(whole)
    );
}

/// Types in `.dwo` files and packages are read as if they were in the file itself, and missing ones
/// are reported.
#[test]
fn types_in_files_of_their_own_are_read() {
    let folder = TestFolder::new();
    let (one, two) = (source("one"), source("two"));
    let linked = |compiler: &str, flags: &str, output: &str| {
        let words = format!("{flags} -O1 -shared -fPIC {one} {two} -o {output}");
        folder.tool(compiler, &words);
    };
    // clang 14 does not name them by the output.
    let names = |output: &str| {
        ["one.dwo", "two.dwo"].map(|unit| {
            let name = format!("{output}-{unit}");
            if folder.join(&name).exists() {
                name
            } else {
                unit.to_owned()
            }
        })
    };
    for (compiler, output, packer) in [
        ("gcc", "gcc.so", "/usr/bin/dwp"),
        ("clang", "clang.so", "/usr/bin/llvm-dwp"),
    ] {
        for version in ["-gdwarf-4", "-gdwarf-5"] {
            linked(compiler, version, "whole.so");
            linked(compiler, &format!("{version} -gsplit-dwarf"), output);
            let whole = folder.done("ctf from-dwarf whole.so");
            assert!(whole.contains("struct "), "{whole}");
            assert_eq!(folder.done(&format!("ctf from-dwarf {output}")), whole);
            let same = "changes that break: 0, compatible: 0\n";
            let diff = format!("diff whole.so {output}");
            assert_eq!(
                folder.done(&format!("ctf {diff}")),
                same,
                "{compiler} {version}"
            );
            // binutils' dwp 2.40 does not support DWARF 5.
            if packer != "/usr/bin/dwp" || version == "-gdwarf-4" {
                folder.tool(packer, &format!("-e {output} -o {output}.dwp"));
                for name in names(output) {
                    fs::remove_file(folder.join(name)).unwrap();
                }
                assert_eq!(folder.done(&format!("ctf from-dwarf {output}")), whole);
                assert_eq!(
                    folder.done(&format!("ctf {diff}")),
                    same,
                    "{compiler} {version}, packed"
                );
                fs::remove_file(folder.join(format!("{output}.dwp"))).unwrap();
            }
        }
    }
    linked("gcc", "-g -gsplit-dwarf", "gcc.so");
    let mut missing = Vec::new();
    for (name, status) in names("gcc.so").into_iter().zip([1, 2]) {
        let path = folder.join(name);
        fs::remove_file(&path).unwrap();
        missing.push(path);
        let output = folder.unspool("ctf from-dwarf gcc.so");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{said}");
        let lines: Vec<_> = said
            .lines()
            .filter(|line| line.contains("the unit at 0x"))
            .collect();
        assert_eq!(lines.len(), missing.len(), "{said}");
        for (line, path) in lines.iter().zip(&missing) {
            assert!(line.starts_with("unspool: gcc.so: "), "{said}");
            let message = format!("{} is not there", path.display());
            assert!(line.contains(&message), "{said}");
        }
    }
}

/// Units in other languages are left out with a notice.
#[test]
fn cxx_is_left_out() {
    let folder = TestFolder::new();
    fs::write(
        folder.join("a.cc"),
        "struct S { int x; }; S s; int main() { return s.x; }",
    )
    .unwrap();
    fs::write(folder.join("b.c"), "struct T { int y; } t;").unwrap();
    folder.tool("g++", "-g -c a.cc -o a.o");
    folder.tool("gcc", "-g -c b.c -o b.o");
    folder.tool("g++", "a.o b.o -o both");
    let output = folder.unspool("ctf from-dwarf both");
    let (printed, said) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert!(
        printed.contains("struct T {") && !printed.contains("struct S"),
        "{printed}"
    );
    assert!(said.contains("1 unit is left out: C_plus_plus"), "{said}");
    let output = folder.unspool("ctf from-dwarf a.o");
    assert_eq!(output.status.code(), Some(2));
}

/// Enumerators that CTF cannot represent are reported, and are a finding.
#[test]
fn large_enumerators_are_reported() {
    let folder = TestFolder::new();
    let text = "enum e { SMALL = -1, LARGE = 1L << 40 } e;";
    fs::write(folder.join("a.c"), text).unwrap();
    folder.tool("gcc", "-g -c a.c -o a.o");
    let output = folder.unspool("ctf from-dwarf a.o");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("enum e: LARGE is 1099511627776") && !said.contains("SMALL"),
        "{said}"
    );
}

/// gdb and unspool show CTF made from DWARF as in the source, whichever gcc compiled the code.
#[test]
fn arrays_are_the_right_way_round() {
    let folder = TestFolder::new();
    fs::write(
        folder.join("a.c"),
        "int m[2][3][4]; struct s { char n[5][6]; } s; int main(void) { return 0; }",
    )
    .unwrap();
    folder.tool("gcc", "-g -rdynamic a.c -o a");
    folder.done("ctf from-dwarf a --into a --symbols dynsym");
    assert_eq!(folder.done("ctf symbol m a"), "int m[2][3][4];\n");
    folder.tool("strip", "-g a");
    fs::write(folder.join("ask"), "ptype m\n").unwrap();
    let shown = folder.tool("gdb", "-batch -nx -x ask a");
    assert!(shown.contains("[2][3][4]"), "{shown}");
}

/// The dimensions of arrays in C or gdb output.
fn dimensions(text: &str) -> Vec<String> {
    let arrays = text.lines().filter_map(|line| {
        let (start, end) = (line.find('[')?, line.rfind(']')?);
        Some(line[start..=end].to_owned())
    });
    arrays.filter(|array| array.contains("][")).collect()
}

/// Two units that share types and disagree on one.
const UNITS: [(&str, &str); 2] = [
    (
        "one",
        "struct both { char n[5][6]; int k; }; typedef long grid[7][8];
         struct s { struct both b; short q[2][3][4]; } s; grid g;",
    ),
    (
        "two",
        "struct both { char n[5][6]; int k; }; typedef long grid[7][8];
         struct s { struct both b; short q[2][3][4]; grid gs[3]; int other[9][10]; } t; grid h;",
    ),
];

impl TestFolder {
    /// The object of a unit as if made by a release of gcc.
    fn object(&self, name: &str, text: &str, release: &str, flags: &str) {
        self.write(&format!("{name}.c"), text);
        self.tool("gcc", &format!("{flags} -S {name}.c"));
        let code = String::from_utf8(self.bytes(&format!("{name}.s"))).unwrap();
        let own = code.split("\"GCC: ").nth(1).unwrap();
        let own = format!("GCC: {}", own.split('"').next().unwrap());
        let version = own.rsplit(' ').next().unwrap();
        let other = format!("GCC: ({release}-1) {release}");
        let code = code.replace(&own, &other);
        // `DW_AT_producer`, after the language standard.
        let code = code.replace(&format!(" {version} -"), &format!(" {release} -"));
        self.write(&format!("{name}.s"), code);
        self.tool("gcc", &format!("-c {name}.s -o {name}.o"));
        let quirk = |line: &str| Gcc::from_comment(line).unwrap().quirk();
        if flags.contains("-gctf") && quirk(&own) != quirk(&other) {
            self.tool("objcopy", &format!("--dump-section .ctf=ctf {name}.o"));
            let ctf = self.bytes("ctf");
            let ctf = open(&ctf);
            let graph = ctf.parents()[0].reading.graph.with_reversed_arrays();
            self.write("ctf", CtfWriter::default().dict(&graph));
            self.tool("objcopy", &format!("--update-section .ctf=ctf {name}.o"));
        }
    }

    /// gdb's dimensions of [`UNITS`].
    fn by_gdb(&self, program: &str, types: &[&str]) -> BTreeSet<String> {
        let asks: Vec<_> = types.iter().map(|ty| format!("ptype {ty}\n")).collect();
        self.write("ask", asks.concat());
        let shown = self.tool("gdb", &format!("-batch -nx -x ask {program}"));
        dimensions(&shown).into_iter().collect()
    }

    /// Unspool's dimensions, and its message about the last.
    fn by_unspool(&self, program: &str, options: &str) -> (BTreeSet<String>, String) {
        let mut found = BTreeSet::new();
        let mut said = String::new();
        for ty in ["both", "grid", "s"] {
            let words = format!("type {ty} {program} {options}");
            let output = self.unspool(&format!("ctf {words}"));
            said = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{words}: {said}");
            found.extend(dimensions(&String::from_utf8(output.stdout).unwrap()));
        }
        (found, said)
    }
}

const UNKNOWN: &str = "which gcc stored the arrays of arrays of .ctf";
const TURNED: &str = "stored arrays of arrays the wrong way round";

/// Whether gcc stored array dimensions in reverse is decided by the gcc versions in `.comment` if
/// they agree, else by each unit's `DW_AT_producer`. In a child dictionary of GNU ld, most arrays
/// are the parent's.
#[test]
fn whether_arrays_are_turned_is_decided_by_the_gcc_that_wrote_them() {
    for release in ["12.2.0", "14.2.0"] {
        let folder = TestFolder::new();
        for (name, text) in UNITS {
            folder.object(name, text, release, "-g -gctf -fPIC");
        }
        folder.tool("gcc", "-shared -nostdlib one.o two.o -o alike");
        let truth = folder.by_gdb("alike", &["struct both", "grid", "s", "t"]);
        let source = ["[2][3][4]", "[3][7][8]", "[5][6]", "[7][8]", "[9][10]"];
        assert_eq!(truth, BTreeSet::from(source.map(str::to_owned)));
        let is_wrong = release == "12.2.0";
        let (found, said) = folder.by_unspool("alike", "");
        assert_eq!(found, truth, "{release}");
        assert_eq!(said.contains(TURNED), is_wrong, "{release}: {said}");
        let (stored, _) = folder.by_unspool("alike", "--arrays-as-stored");
        assert_eq!(stored == truth, !is_wrong, "{release}: {stored:?}");

        // Such lines are from other tools, and are ignored.
        folder.tool("objcopy", "--dump-section .comment=comment alike");
        let mut comment = folder.bytes("comment");
        comment.extend(b"Linker: LLD 14.0.6\0Debian clang version 14.0.6\0GNU C17 9.1.0\0");
        folder.write("comment", comment);
        folder.tool(
            "objcopy",
            "--strip-debug --update-section .comment=comment alike others",
        );
        let (found, said) = folder.by_unspool("others", "");
        assert_eq!(
            (found, said.contains(UNKNOWN)),
            (truth.clone(), false),
            "{said}"
        );

        // As from a C library's object compiled by another gcc.
        let another = if is_wrong { "14.2.0" } else { "12.2.0" };
        folder.object("other", "int other;", another, "");
        folder.tool("gcc", "-shared -nostdlib other.o one.o two.o -o mixed");
        let comment = folder.tool("readelf", "-p .comment mixed");
        assert_eq!(comment.matches("GCC: ").count(), 2, "{comment}");
        let (found, said) = folder.by_unspool("mixed", "");
        assert_eq!(
            (found, said.contains(UNKNOWN)),
            (truth.clone(), false),
            "{said}"
        );

        folder.tool("strip", "-g mixed -o stripped");
        let (found, said) = folder.by_unspool("stripped", "");
        assert_eq!((&found, said.contains(UNKNOWN)), (&stored, true), "{said}");
        let (found, said) = folder.by_unspool("stripped", "--arrays-as-stored");
        assert_eq!((&found, said.contains(UNKNOWN)), (&stored, false), "{said}");
    }
}

/// Two gcc versions compiled the input of GNU ld: the order of shared arrays is unknown, that of a
/// unit's own is its gcc's.
#[test]
fn of_two_gccs_each_unit_has_its_own_order() {
    let folder = TestFolder::new();
    for ((name, text), release) in UNITS.into_iter().zip(["12.2.0", "14.2.0"]) {
        folder.object(name, text, release, "-g -gctf -fPIC");
    }
    folder.tool("gcc", "-shared -nostdlib one.o two.o -o two_gccs");
    let place = folder.path().canonicalize().unwrap();
    for (unit, variable) in [("one", "s"), ("two", "t")] {
        let member = place.join(unit).display().to_string();
        let words = format!("dump two_gccs --member {member}.c");
        let said = String::from_utf8(folder.unspool(&format!("ctf {words}")).stderr).unwrap();
        assert!(said.contains(UNKNOWN) && said.contains(TURNED), "{said}");
        let mut found = BTreeSet::from_iter(dimensions(&folder.done(&format!("ctf {words}"))));
        // GNU ld shares one of the two types of `grid`, but no conflicting structure.
        found.remove("[7][8]");
        let truth = folder.by_gdb("two_gccs", &["struct both", variable]);
        assert_eq!(found, truth, "{unit}");
    }
}

/// Linked types have arrays as in the source, for other readers too, and are marked so. The file
/// that receives them may name no compiler, or another gcc.
#[test]
fn linked_arrays_are_the_right_way_round() {
    for releases in [["12.2.0"; 2], ["14.2.0"; 2], ["12.2.0", "14.2.0"]] {
        let folder = TestFolder::new();
        for ((name, text), release) in UNITS.into_iter().zip(releases) {
            folder.object(name, text, release, "-g -gctf -fPIC");
        }
        folder.tool("gcc", "-shared -nostdlib one.o two.o -o program");
        let truth = folder.by_gdb("program", &["struct both", "grid", "s", "t"]);
        assert_eq!(truth.len(), 5, "{truth:?}");
        folder.done("ctf link one.o two.o -o types.ctf");
        // Once more, from the linked types.
        folder.done("ctf link types.ctf -o again.ctf");
        folder.tool("strip", "-g program -o stripped");
        folder.done("ctf link again.ctf --into stripped");
        for file in ["types.ctf", "again.ctf", "stripped"] {
            let (found, said) = folder.by_unspool(file, "");
            assert_eq!((&found, &*said), (&truth, ""), "{releases:?} {file}");
        }
        let by_gdb = folder.by_gdb("stripped", &["struct both", "grid"]);
        let source = ["[5][6]", "[7][8]"].map(str::to_owned);
        assert_eq!(by_gdb, BTreeSet::from(source), "{releases:?}");
    }
}

/// If the gcc version is unknown, arrays stay as stored, with a notice, and the file that receives
/// them decides.
#[test]
fn arrays_of_an_unknown_gcc_stay_as_they_are_stored() {
    let folder = TestFolder::new();
    let (name, text) = UNITS[0];
    folder.object(name, text, "12.2.0", "-g -gctf -fPIC");
    folder.tool("gcc", "-shared -nostdlib one.o -o program");
    let truth = folder.by_gdb("program", &["struct both"]);
    folder.tool("strip", "-g program");
    folder.tool("objcopy", "--dump-section .ctf=bare one.o");
    let both = |file: &str| {
        let output = folder.unspool(&format!("ctf type both {file}"));
        let said = String::from_utf8(output.stderr).unwrap();
        (dimensions(&String::from_utf8(output.stdout).unwrap()), said)
    };
    let (stored, said) = both("bare");
    assert_eq!(stored, ["[6][5]"]);
    assert!(said.contains(UNKNOWN), "{said}");
    let output = folder.unspool("ctf link bare --into program");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.matches(UNKNOWN).count(), 1, "{said}");
    let (found, said) = both("program");
    assert_eq!(BTreeSet::from_iter(found), truth);
    assert!(said.contains(TURNED), "{said}");
    // `diff` and `to-btf` read types in the same way, and have no option for it.
    for words in ["diff bare bare", "to-btf bare -o btf"] {
        let said = String::from_utf8(folder.unspool(&format!("ctf {words}")).stderr).unwrap();
        assert!(said.contains(UNKNOWN), "{words}: {said}");
    }
}

/// bpftool's number of types of each kind, and the names of functions.
fn kinds(folder: &TestFolder, file: &str) -> (BTreeMap<String, usize>, Vec<String>) {
    let text = folder.tool("bpftool", &format!("btf dump file {file} format raw"));
    let mut kinds = BTreeMap::new();
    let mut functions = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('[')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        *kinds.entry(words[1].to_owned()).or_default() += 1;
        if words[1] == "FUNC" {
            functions.push(words[2].to_owned());
        }
    }
    functions.sort();
    (kinds, functions)
}

/// pahole's BTF from the same DWARF has the same meaning and functions, and is not smaller.
#[test]
fn btf_is_what_pahole_makes() {
    let folder = TestFolder::new();
    for name in ["one", "two", "three"] {
        let path = source(name);
        folder.tool("gcc", &format!("-g -O1 -fPIC -c {path} -o {name}.o"));
    }
    folder.tool("gcc", "-shared one.o two.o three.o -o all.so");
    folder.tool(
        "pahole",
        "--btf_gen_floats --btf_encode_detached theirs.btf all.so",
    );
    folder.done("ctf to-btf all.so --without-data -o ours.btf");
    let ((_, our_functions), (_, their_functions)) =
        (kinds(&folder, "ours.btf"), kinds(&folder, "theirs.btf"));
    assert_eq!(our_functions, their_functions);
    let (ours, theirs) = (folder.bytes("ours.btf"), folder.bytes("theirs.btf"));
    assert!(
        ours.len() * 100 <= theirs.len() * 105,
        "{} and {}",
        ours.len(),
        theirs.len()
    );
    let (ours, theirs) = (
        BtfReading::parse(&ours, 8).unwrap(),
        BtfReading::parse(&theirs, 8).unwrap(),
    );
    assert_eq!((ours.problems, theirs.problems), (vec![], vec![]));
    assert!(assert_same(&ours.graph, &theirs.graph, "BTF") > 10);
    let shown = folder.tool("pahole", "-F btf ours.btf");
    assert!(shown.contains("struct shelf {"), "{shown}");
    assert!(
        folder
            .done("ctf type shelf ours.btf")
            .contains("struct shelf {")
    );
}

/// The number of types of the main kinds.
fn counts(graph: &Graph<'_>) -> [usize; 4] {
    let count =
        |is: fn(&TypeKind<'_>) -> bool| graph.types().filter(|(_, ty)| is(&ty.kind)).count();
    [
        count(|kind| matches!(kind, TypeKind::Record { .. })),
        count(|kind| {
            matches!(
                kind,
                TypeKind::Typedef(_) | TypeKind::Enum { .. } | TypeKind::Forward(_)
            )
        }),
        count(|kind| matches!(kind, TypeKind::Pointer(_) | TypeKind::Qualified(..))),
        count(|kind| matches!(kind, TypeKind::Function { .. } | TypeKind::Array { .. })),
    ]
}

/// Merging pahole's types of single units leaves as many types as its output for the whole.
#[test]
fn as_many_types_are_left_as_libbpf_leaves() {
    let folder = TestFolder::new();
    let pahole = |from: &str| {
        let words = format!("--btf_gen_floats --btf_encode_detached {from}.btf {from}");
        folder.tool("pahole", &words);
        folder.bytes(&format!("{from}.btf"))
    };
    let parts = ["one", "two"].map(|name| {
        let path = source(name);
        folder.tool("gcc", &format!("-g -O1 -fPIC -c {path} -o {name}.o"));
        pahole(&format!("{name}.o"))
    });
    folder.tool("gcc", "-shared one.o two.o -o both.so");
    let whole = pahole("both.so");
    let read = |bytes: &'static [u8]| BtfReading::parse(bytes, 8).unwrap().graph;
    let [one, two] = parts.map(|bytes| read(Vec::leak(bytes)));
    let whole = read(Vec::leak(whole));
    let before = one.last() + two.last();
    let merged = Graph::merged(&[&one, &two]);
    assert_eq!(counts(&merged), counts(&whole));
    assert!(merged.last() < before, "{before}");
    // Merging a merged graph does not change it.
    assert_eq!(counts(&Graph::merged(&[&whole])), counts(&whole));
}

/// Typedefs may be nested as often as the source has them.
#[test]
fn long_chains_of_names_are_said() {
    let folder = TestFolder::new();
    let mut text = "typedef int t0;\n".to_owned();
    for nth in 1..=400 {
        text += &format!("typedef t{} t{nth};\n", nth - 1);
    }
    text += "t400 last; t400 same(t400 x) { return x; }\n";
    fs::write(folder.join("a.c"), text).unwrap();
    folder.tool("gcc", "-g -c a.c -o a.o");
    folder.done("ctf to-btf a.o -o a.btf");
    let (kinds, functions) = kinds(&folder, "a.btf");
    assert_eq!((kinds["TYPEDEF"], kinds["VAR"]), (401, 1));
    assert_eq!(functions, ["'same'"]);
}

/// The examples in the help are valid.
#[test]
fn the_examples_of_to_btf_do_what_they_say() {
    let folder = TestFolder::new();
    let source = source("kinds");
    folder.tool("gcc", &format!("-gctf -O1 {source} -o app"));
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
        assert!(kinds(&folder, "app.btf").0["STRUCT"] > 2);
    }
}

/// Types that BTF cannot express are reported, and are a finding.
#[test]
fn types_unrepresentable_in_btf_are_reported() {
    let folder = TestFolder::new();
    let text = "typedef int v4 __attribute__((vector_size(16))); v4 vector; struct s { int a; v4 b; } s; int f(v4 x) { return x[0]; } int g(struct s *p) { return p->a; }";
    fs::write(folder.join("a.c"), text).unwrap();
    folder.tool("gcc", "-g -c a.c -o a.o");
    let output = folder.unspool("ctf to-btf a.o -o a.btf");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    for what in ["v4", "struct s.b", "f", "vector"] {
        assert!(
            said.contains(&format!("BTF cannot say {what}: ")),
            "{what}: {said}"
        );
    }
    let dump = folder.tool("bpftool", "btf dump file a.btf format c");
    let body = dump
        .split("struct s {")
        .nth(1)
        .and_then(|rest| rest.split("};").next());
    assert!(
        body.is_some_and(|body| body.contains("int a;") && !body.contains(" b;")),
        "{dump}"
    );
}

/// Files of CTF and of BTF with two conflicting units, with a sign in all of their names.
fn named(folder: &TestFolder, file: &str, sign: &str) {
    let unit = |count: i128| {
        let mut graph = Graph::new(8);
        let int = TypeKind::Integer(Number::with_size(4, Number::SIGNED));
        let int = graph.add(Type::named(format!("int{sign}"), int));
        let member = Member {
            name: format!("member{sign}").into(),
            ty: int,
            offset: 0,
            bits: None,
        };
        let record = graph.add(Type::named(
            format!("record{sign}"),
            TypeKind::Record {
                tag: Tag::Struct,
                size: 4,
                members: vec![member],
            },
        ));
        let one = Enumerator {
            name: format!("ONE{sign}").into(),
            value: count,
        };
        graph.add(Type::named(
            format!("list{sign}"),
            TypeKind::Enum {
                size: 4,
                is_signed: false,
                enumerators: vec![one],
            },
        ));
        graph.add(Type::named(
            format!("name{sign}"),
            TypeKind::Typedef(record),
        ));
        let function = graph.add(Type::unnamed(TypeKind::Function {
            returns: record,
            parameters: vec![Parameter {
                name: format!("from{sign}").into(),
                ty: int,
            }],
            is_variadic: false,
        }));
        let symbol = |name: &str, ty| TypedSymbol::new(format!("{name}{sign}"), ty);
        graph.functions = vec![symbol("call", function)];
        graph.objects = vec![symbol("data", record)];
        graph.unit = Some(format!("unit{count}{sign}").into());
        Arc::new(graph)
    };
    let units = [LinkUnit::new(unit(1)), LinkUnit::new(unit(2))];
    let options = LinkOptions {
        share: Share::Unconflicted,
        threads: 1,
    };
    let writer = CtfWriter {
        label: &format!("label{sign}"),
        ..CtfWriter::default()
    };
    let path = folder.join(file);
    fs::write(
        path.with_extension("ctf"),
        writer.write(&link(&units, options)),
    )
    .unwrap();
    let endian = Endian::Little;
    let (btf, unsaid) = BtfWriter { endian }.write(&unit(1));
    assert!(unsaid.is_empty());
    fs::write(path.with_extension("btf"), btf).unwrap();
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
            let mut command = harness::unspool();
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

/// Aliases have the types of their targets, except for indirect functions (ifunc): there the
/// resolver is described.
#[test]
fn aliases_have_the_types_of_what_they_name() {
    let folder = TestFolder::new();
    let source = "\
        long impl_of(int a, long b) { return a + b; }\n\
        extern __typeof(impl_of) weakly __attribute__((weak, alias(\"impl_of\")));\n\
        short table[3];\n\
        extern __typeof(table) other __attribute__((alias(\"table\")));\n\
        static void *choose(void) { return impl_of; }\n\
        long chosen(int, long) __attribute__((ifunc(\"choose\")));\n";
    fs::write(folder.join("a.c"), source).unwrap();
    let gcc = |words: &str| folder.tool("gcc", &format!("-fPIC {words}"));
    gcc("-g -shared a.c -o dwarf.so");
    gcc("-gctf -c a.c");
    gcc("-shared a.o -o ctf.so");
    folder.done("ctf from-dwarf dwarf.so -o dwarf.ctf");
    folder.done("ctf from-dwarf dwarf.so --into dwarf.so");
    folder.done("ctf link a.o --into ctf.so");
    gcc("-g -shared a.c -o stripped.so");
    folder.tool("objcopy", "--only-keep-debug stripped.so stripped.debug");
    folder.tool("strip", "stripped.so");
    folder.tool("objcopy", "--add-gnu-debuglink=stripped.debug stripped.so");
    folder.done("ctf from-dwarf stripped.so --into stripped.so");
    for file in ["dwarf.so", "dwarf.ctf", "ctf.so", "stripped.so"] {
        let typed = |name| folder.done(&format!("ctf symbol {name} {file}"));
        assert_eq!(
            typed("weakly"),
            "long int weakly(int, long int);\n",
            "{file}"
        );
        assert_eq!(typed("other"), "short int other[3];\n", "{file}");
        let chosen = folder.unspool(&format!("ctf symbol chosen {file}"));
        let chosen = String::from_utf8(chosen.stdout).unwrap();
        assert!(!chosen.contains("void *"), "{file}: {chosen}");
    }
}

/// An assembler's description of a function is not a prototype: the C declaration is used, in DWARF
/// and in types made from it.
#[test]
fn functions_in_assembly_have_the_types_that_c_declares() {
    let folder = TestFolder::new();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    write(
        "twice.s",
        ".globl twice\n.type twice, @function\ntwice: lea (%rdi,%rdi), %rax\nret\n.size twice, .-twice\n",
    );
    write(
        "use.c",
        "long twice(long); long use(long a) { return twice(a); }\n",
    );
    folder.tool("gcc", "-g -shared -fPIC use.c twice.s -o old.so");
    let dwarf = folder.tool("readelf", "--debug-dump=info old.so");
    assert_eq!(dwarf.matches("DW_AT_language").count(), 2, "{dwarf}");
    fs::copy(folder.join("old.so"), folder.join("new.so")).unwrap();
    folder.done("ctf from-dwarf new.so --into new.so");
    assert_eq!(
        folder.done("ctf symbol twice new.so"),
        "long int twice(long int);\n"
    );
    for files in ["old.so new.so", "new.so old.so"] {
        let said = folder.done(&format!("ctf diff {files}"));
        assert_eq!(said, "changes that break: 0, compatible: 0\n");
    }
}
