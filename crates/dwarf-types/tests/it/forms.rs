//! Types of one source in all forms: DWARF against gcc's CTF of the same compilation, and BTF against
//! pahole's and bpftool's.

use std::collections::BTreeMap;
use std::fs;

use unspool_c_types::{Agreement, BtfReading, CtfWriter, Gcc, Graph, SymbolForm, Type, TypeKind};
use unspool_dwarf_types::TypeFileError;

use crate::type_folder::{TypeFolder, open, source};

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
    let folder = TypeFolder::new();
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
            let (ours, _) = folder.dwarf("o.so", |linked| CtfWriter::default().write(linked));
            let (theirs, (ours, _)) = (folder.bytes("theirs"), ours.unwrap());
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
    let folder = TypeFolder::new();
    let path = source("kinds");
    folder.tool(
        "gcc",
        &format!("-g -O1 -shared -fPIC -Wl,--build-id {path} -o whole.so"),
    );
    let whole = folder.declarations("whole.so");
    folder.tool("objcopy", "--only-keep-debug whole.so one.debug");
    folder.tool(
        "objcopy",
        "--strip-debug --add-gnu-debuglink=one.debug whole.so one.so",
    );
    assert_eq!(folder.declarations("one.so"), whole);
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
    assert_eq!(sorted(folder.declarations("first.so")), sorted(whole));
}

/// Types in `.dwo` files and packages are read as if they were in the file itself, and missing ones
/// are reported.
#[test]
fn types_in_files_of_their_own_are_read() {
    let folder = TypeFolder::new();
    let (one, two) = (source("one"), source("two"));
    let linked = |compiler: &str, flags: &str, output: &str| {
        let words = format!("{flags} -O1 -shared -fPIC {one} {two} -o {output}");
        folder.tool(compiler, &words);
    };
    // clang 14 does not name them by the output.
    let names = |output: &str| {
        ["one.dwo", "two.dwo"].map(|unit| {
            let name = format!("{output}-{unit}");
            let is_there = folder.join(&name).exists();
            if is_there { name } else { unit.to_owned() }
        })
    };
    for (compiler, output, packer) in [("gcc", "gcc.so", "dwp"), ("clang", "clang.so", "llvm-dwp")]
    {
        for version in ["-gdwarf-4", "-gdwarf-5"] {
            linked(compiler, version, "whole.so");
            linked(compiler, &format!("{version} -gsplit-dwarf"), output);
            let whole = folder.declarations("whole.so");
            assert!(whole.contains("struct "), "{whole}");
            let assert_same = |what: &str| {
                assert_eq!(
                    folder.declarations(output),
                    whole,
                    "{compiler} {version}{what}"
                );
                let (found, is_clean) = folder.changes("whole.so", output);
                assert!(found.changes.is_empty() && is_clean && !found.names.is_empty());
            };
            assert_same("");
            // binutils' dwp 2.40 does not support DWARF 5.
            if packer != "dwp" || version == "-gdwarf-4" {
                folder.tool(packer, &format!("-e {output} -o {output}.dwp"));
                for name in names(output) {
                    fs::remove_file(folder.join(name)).unwrap();
                }
                assert_same(", packed");
                fs::remove_file(folder.join(format!("{output}.dwp"))).unwrap();
            }
        }
    }
    linked("gcc", "-g -gsplit-dwarf", "gcc.so");
    for (nth, name) in (1..).zip(names("gcc.so")) {
        fs::remove_file(folder.join(name)).unwrap();
        let (found, notices) = folder.dwarf("gcc.so", |_| ());
        match (nth, found) {
            (1, Ok(((), is_clean))) => assert!(!is_clean),
            (2, Err(TypeFileError::Split { file })) => assert!(file.ends_with("gcc.so")),
            (_, other) => panic!("{other:?}"),
        }
        assert!(notices.contains("the unit at 0x"), "{notices}");
    }
}

/// Units in other languages are left out with a notice.
#[test]
fn cxx_is_left_out() {
    let folder = TypeFolder::new();
    folder.write(
        "a.cc",
        "struct S { int x; }; S s; int main() { return s.x; }",
    );
    folder.write("b.c", "struct T { int y; } t;");
    folder.tool("g++", "-g -c a.cc -o a.o");
    folder.tool("gcc", "-g -c b.c -o b.o");
    folder.tool("g++", "a.o b.o -o both");
    let printed = folder.declarations("both");
    assert!(
        printed.contains("struct T {") && !printed.contains("struct S"),
        "{printed}"
    );
    let (_, notices) = folder.dwarf("both", |_| ());
    assert!(
        notices.contains("1 unit is left out: C_plus_plus"),
        "{notices}"
    );
    let (found, _) = folder.load(|loader| loader.types(&folder.join("a.o"), |_| ()));
    assert!(matches!(found, Err(TypeFileError::NoTypes { .. })));
}

/// Enumerators that CTF cannot represent are reported.
#[test]
fn large_enumerators_are_reported() {
    let folder = TypeFolder::new();
    let text = "enum e { SMALL = -1, LARGE = 1L << 40 } e;";
    folder.write("a.c", text);
    folder.tool("gcc", "-g -c a.c -o a.o");
    let (found, _) = folder.dwarf("a.o", |linked| linked.wide_enumerators().join("\n"));
    let wide = found.unwrap().0;
    assert_eq!(
        wide,
        "enum e: LARGE is 1099511627776; CTF has only its low 32 bits"
    );
}

/// bpftool's number of types of each kind, and the names of functions.
fn kinds(folder: &TypeFolder, file: &str) -> (BTreeMap<String, usize>, Vec<String>) {
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
    let folder = TypeFolder::new();
    for name in ["one", "two", "three"] {
        let path = source(name);
        folder.tool("gcc", &format!("-g -O1 -fPIC -c {path} -o {name}.o"));
    }
    folder.tool("gcc", "-shared one.o two.o three.o -o all.so");
    folder.tool(
        "pahole",
        "--btf_gen_floats --btf_encode_detached theirs.btf all.so",
    );
    folder.write("ours.btf", folder.to_btf("all.so", false).0);
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
    let (shelf, _) = folder.definition("shelf", "ours.btf");
    assert!(shelf.contains("struct shelf {"), "{shelf}");
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
    let folder = TypeFolder::new();
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
    let folder = TypeFolder::new();
    let mut text = "typedef int t0;\n".to_owned();
    for nth in 1..=400 {
        text += &format!("typedef t{} t{nth};\n", nth - 1);
    }
    text += "t400 last; t400 same(t400 x) { return x; }\n";
    folder.write("a.c", text);
    folder.tool("gcc", "-g -c a.c -o a.o");
    folder.write("a.btf", folder.to_btf("a.o", true).0);
    let (kinds, functions) = kinds(&folder, "a.btf");
    assert_eq!((kinds["TYPEDEF"], kinds["VAR"]), (401, 1));
    assert_eq!(functions, ["'same'"]);
}

/// Types that BTF cannot express are reported.
#[test]
fn types_unrepresentable_in_btf_are_reported() {
    let folder = TypeFolder::new();
    let text = "typedef int v4 __attribute__((vector_size(16))); v4 vector; struct s { int a; v4 b; } s; int f(v4 x) { return x[0]; } int g(struct s *p) { return p->a; }";
    folder.write("a.c", text);
    folder.tool("gcc", "-g -c a.c -o a.o");
    let (bytes, omitted) = folder.to_btf("a.o", true);
    for what in ["v4", "struct s.b", "f", "vector"] {
        let message = format!("BTF cannot say {what}: ");
        assert!(
            omitted.iter().any(|one| one.starts_with(&message)),
            "{what}: {omitted:?}"
        );
    }
    folder.write("a.btf", bytes);
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

/// Aliases have the types of their targets, except for indirect functions (ifunc): there the
/// resolver is described.
#[test]
fn aliases_have_the_types_of_what_they_name() {
    let folder = TypeFolder::new();
    let source = "\
        long impl_of(int a, long b) { return a + b; }\n\
        extern __typeof(impl_of) weakly __attribute__((weak, alias(\"impl_of\")));\n\
        short table[3];\n\
        extern __typeof(table) other __attribute__((alias(\"table\")));\n\
        static void *choose(void) { return impl_of; }\n\
        long chosen(int, long) __attribute__((ifunc(\"choose\")));\n";
    folder.write("a.c", source);
    let gcc = |words: &str| folder.tool("gcc", &format!("-fPIC {words}"));
    gcc("-g -shared a.c -o dwarf.so");
    gcc("-gctf -c a.c");
    gcc("-shared a.o -o ctf.so");
    let (ctf, _) = folder.dwarf("dwarf.so", |linked| CtfWriter::default().write(linked));
    folder.write("dwarf.ctf", ctf.unwrap().0);
    folder.put_dwarf("dwarf.so", "dwarf.so", SymbolForm::Names);
    folder.link(&["a.o"], "ctf.so");
    gcc("-g -shared a.c -o stripped.so");
    folder.tool("objcopy", "--only-keep-debug stripped.so stripped.debug");
    folder.tool("strip", "stripped.so");
    folder.tool("objcopy", "--add-gnu-debuglink=stripped.debug stripped.so");
    folder.put_dwarf("stripped.so", "stripped.so", SymbolForm::Names);
    for file in ["dwarf.so", "dwarf.ctf", "ctf.so", "stripped.so"] {
        let typed = |name| folder.symbol(name, file);
        assert_eq!(
            typed("weakly"),
            "long int weakly(int, long int);\n",
            "{file}"
        );
        assert_eq!(typed("other"), "short int other[3];\n", "{file}");
        let chosen = typed("chosen");
        assert!(!chosen.contains("void *"), "{file}: {chosen}");
    }
}

/// An assembler's description of a function is not a prototype: the C declaration is used, in DWARF
/// and in types made from it.
#[test]
fn functions_in_assembly_have_the_types_that_c_declares() {
    let folder = TypeFolder::new();
    let write = |name: &str, text: &str| folder.write(name, text);
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
    folder.put_dwarf("new.so", "new.so", SymbolForm::Names);
    assert_eq!(
        folder.symbol("twice", "new.so"),
        "long int twice(long int);\n"
    );
    for [old, new] in [["old.so", "new.so"], ["new.so", "old.so"]] {
        let (found, is_clean) = folder.changes(old, new);
        assert!(found.changes.is_empty() && found.is_complete() && is_clean);
    }
}
