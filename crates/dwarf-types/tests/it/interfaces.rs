//! Changes of interfaces, compared with abidiff: single edits of the small library in `interfaces/`,
//! each with the verdict expected of both.

use std::process::Output;

use unspool_c_types::{Compatibility, CtfWriter, Excuses, InterfaceDiff};
use unspool_testing::{sample, tool};

use crate::type_folder::TypeFolder;

const SOURCE: &str = include_str!("../interfaces/lib.c");
const EDITS: &str = include_str!("../interfaces/edits.txt");

/// An edit, and the expected verdict.
struct SourceEdit<'t> {
    name: &'t str,
    ours: &'t str,
    abidiff: &'t str,
    edited: String,
}

fn edits() -> Vec<SourceEdit<'static>> {
    let blocks = EDITS.split("\n\n").map(str::trim_start);
    blocks
        .filter(|block| !block.starts_with('#'))
        .map(edit)
        .collect()
}

fn edit(block: &'static str) -> SourceEdit<'static> {
    let (head, lines) = block.split_once('\n').unwrap();
    let (name, verdicts) = head.split_once(": ").unwrap();
    let (ours, abidiff) = verdicts
        .split_once(", abidiff ")
        .unwrap_or((verdicts, verdicts));
    let part = |sign: &str| -> Vec<&str> {
        let lines = lines.lines().filter_map(|line| line.strip_prefix(sign));
        lines
            .map(|line| line.strip_prefix(' ').unwrap_or(line))
            .collect()
    };
    let mut edited = SOURCE.to_owned();
    let (gone, come) = (part("-"), part("+"));
    assert_eq!(gone.len(), come.len(), "{name}");
    for (gone, come) in gone.into_iter().zip(come) {
        assert!(edited.contains(gone), "{name}: {gone}");
        edited = edited.replacen(gone, come, 1);
    }
    SourceEdit {
        name,
        ours,
        abidiff,
        edited,
    }
}

/// A library, with DWARF and with CTF.
fn build(folder: &TypeFolder, name: &str, source: &str) {
    folder.write(&format!("{name}.c"), source);
    // Without that, ld has no types of thread-local variables.
    for (flag, form) in [("-g", "dwarf"), ("-gctf -Wl,--ctf-variables", "ctf")] {
        let words = format!("-w {flag} -O1 -fPIC -shared -o {name}.{form}.so {name}.c");
        folder.tool("gcc", &words);
    }
}

/// Unspool's verdict for two files.
fn ours(folder: &TypeFolder, old: &str, new: &str) -> &'static str {
    verdict(&folder.changes(old, new).0)
}

pub(crate) fn verdict(found: &InterfaceDiff) -> &'static str {
    match (is_breaking(found), found.changes.is_empty()) {
        (true, _) => "breaks",
        (false, true) => "none",
        (false, false) => "compatible",
    }
}

fn is_breaking(found: &InterfaceDiff) -> bool {
    let mut changes = found.changes.iter();
    changes.any(|change| change.compatibility == Compatibility::Breaking)
}

/// abidiff's verdict: changes and removals are incompatible; harmless changes and additions are
/// not.
pub(crate) fn abidiff(folder: &TypeFolder, options: &str, old: &str, new: &str) -> &'static str {
    let run = |words: &str| -> Output {
        let words = format!("{options} {words} {old} {new}");
        folder
            .started(&mut tool("abidiff"), &words)
            .output()
            .unwrap()
    };
    let output = run("");
    if output.status.success() {
        return if run("--harmless").status.success() {
            "none"
        } else {
            "compatible"
        };
    }
    let report = String::from_utf8(output.stdout).unwrap();
    let summaries = report
        .lines()
        .filter_map(|line| line.split_once(" changes summary: "));
    let counted = summaries.flat_map(|(_, counts)| counts.split(", ").take(2));
    let is_none = |count: &str| count.starts_with("0 ");
    if counted.into_iter().all(is_none) {
        "compatible"
    } else {
        "breaks"
    }
}

/// From DWARF and from CTF the verdict is the same, and abidiff's, except for the listed ones.
#[test]
fn verdicts_are_those_of_abidiff() {
    let folder = &TypeFolder::new();
    build(folder, "old", SOURCE);
    let edits = edits();
    assert!(edits.len() >= 50, "{}", edits.len());
    let mut wrong = Vec::new();
    for edit in sample(&edits, 3) {
        build(folder, "new", &edit.edited);
        let lines = [
            (
                "DWARF",
                edit.ours,
                ours(folder, "old.dwarf.so", "new.dwarf.so"),
            ),
            ("CTF", edit.ours, ours(folder, "old.ctf.so", "new.ctf.so")),
            (
                "DWARF against CTF",
                edit.ours,
                ours(folder, "old.dwarf.so", "new.ctf.so"),
            ),
            (
                "abidiff",
                edit.abidiff,
                abidiff(folder, "", "old.dwarf.so", "new.dwarf.so"),
            ),
        ];
        for (who, expected, said) in lines {
            if expected != said {
                wrong.push(format!(
                    "{}: {who} says {said}, and not {expected}",
                    edit.name
                ));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Compiles and links a source by gcc with additional arguments.
fn gcc(folder: &TypeFolder, name: &str, source: &str, words: &str) {
    folder.write("source.c", source);
    folder.tool("gcc", &format!("-w -g -O1 {words} -o {name} source.c"));
}

/// Static symbols are not part of an interface. For object files and static programs the global
/// symbols count; if one side is types alone, the other's exports.
#[test]
fn static_symbols_are_not_exported() {
    let folder = &TypeFolder::new();
    let statics = "static long kept; __attribute__((noinline)) static long own(long a) { return kept += a; }\n\
                   long use_own(void) { return own(1); }\n";
    let old = format!("{SOURCE}{statics}");
    let new = format!("{SOURCE}long use_own(void) {{ return 1; }}\n");
    let gone = new.replace("float scale(", "static float scale(");
    let versions = [("old", &old), ("new", &new), ("gone", &gone)];
    for (form, words) in [
        ("o", "-c"),
        ("so", "-fPIC -shared"),
        ("static", "-static -nostdlib -Wl,-e,use_own"),
    ] {
        for (name, source) in versions {
            gcc(folder, &format!("{name}.{form}"), source, words);
        }
        let [old, new, gone] = ["old", "new", "gone"].map(|name| format!("{name}.{form}"));
        assert_eq!(ours(folder, &old, &new), "none", "{form}");
        assert_eq!(abidiff(folder, "", &old, &new), "none", "{form}");
        assert_eq!(ours(folder, &old, &gone), "breaks", "{form}");
    }
    for (name, source) in versions {
        let ctf = folder.dwarf(&format!("{name}.so"), |linked| {
            CtfWriter::default().write(linked)
        });
        folder.write(&format!("{name}.ctf"), ctf.0.unwrap().0);
        gcc(folder, "member.o", source, "-gctf -c");
        folder.tool("ar", &format!("rc {name}.a member.o"));
    }
    for (old, new, verdict) in [
        ("old.ctf", "new.so", "none"),
        ("old.so", "new.ctf", "none"),
        ("new.ctf", "old.so", "none"),
        ("new.so", "old.ctf", "none"),
        ("old.a", "new.a", "none"),
        ("old.a", "gone.a", "breaks"),
    ] {
        assert_eq!(ours(folder, old, new), verdict, "{old} {new}");
    }
}

/// A pair of libraries: what differs, the version scripts if there are any, and the verdicts.
struct LibraryPair {
    name: &'static str,
    old: &'static str,
    new: &'static str,
    scripts: [&'static str; 2],
    ours: &'static str,
    abidiff: &'static str,
}

const ANONYMOUS: &str = "union attr { struct { int a; }; struct { long b; int c; }; };
    struct nest { union { struct { struct {} e1; int v[0]; }; struct { struct {} e2; long s[0]; }; } data; };
    int f(union attr *u) { return u->a; } int g(struct nest *u) { return u->data.v[0]; }";
const TWO: &str = "struct two { int a; int b; }; int f(struct two *t) { return t->b; }";
const VECTOR: &str =
    "typedef float v4 __attribute__((vector_size(16))); float f(v4 *v) { return (*v)[0]; }";
const VERSIONS: &str = "__asm__(\".symver f_old, f@V1\"); __asm__(\".symver f_new, f@@V2\");
    int f_old(int a) { return a; } long f_new(long a, long b) { return a + b; } int f();";
const ONE_VERSION: &str =
    "__asm__(\".symver f_new, f@@V2\"); long f_new(long a, long b) { return a + b; }";
const NODES: &str = "V1 { global: f; local: *; }; V2 { global: f; } V1;";

const PAIRS: &[LibraryPair] = &[
    LibraryPair {
        name: "anonymous members, and nothing else",
        old: ANONYMOUS,
        new: ANONYMOUS,
        scripts: [""; 2],
        ours: "none",
        abidiff: "none",
    },
    LibraryPair {
        name: "anonymous members in another order",
        old: ANONYMOUS,
        new: "union attr { struct { long b; int c; }; struct { int a; }; };
            struct nest { union { struct { struct {} e1; int v[0]; }; struct { struct {} e2; long s[0]; }; } data; };
            int f(union attr *u) { return u->a; } int g(struct nest *u) { return u->data.v[0]; }",
        scripts: [""; 2],
        ours: "none",
        abidiff: "compatible",
    },
    LibraryPair {
        name: "members get an anonymous structure",
        old: TWO,
        new: "struct two { struct { int a; int b; }; }; int f(struct two *t) { return t->b; }",
        scripts: [""; 2],
        ours: "none",
        abidiff: "compatible",
    },
    LibraryPair {
        name: "a member gets an anonymous union",
        old: TWO,
        new: "struct two { int a; union { int b; unsigned u; }; }; int f(struct two *t) { return t->b; }",
        scripts: [""; 2],
        ours: "compatible",
        abidiff: "compatible",
    },
    LibraryPair {
        name: "a member of an anonymous structure moves",
        old: ANONYMOUS,
        new: "union attr { struct { int a; }; struct { int c; long b; }; };
            struct nest { union { struct { struct {} e1; int v[0]; }; struct { struct {} e2; long s[0]; }; } data; };
            int f(union attr *u) { return u->a; } int g(struct nest *u) { return u->data.v[0]; }",
        scripts: [""; 2],
        ours: "breaks",
        abidiff: "breaks",
    },
    LibraryPair {
        name: "a longer vector",
        old: VECTOR,
        new: "typedef float v4 __attribute__((vector_size(32))); float f(v4 *v) { return (*v)[0]; }",
        scripts: [""; 2],
        ours: "breaks",
        abidiff: "breaks",
    },
    LibraryPair {
        name: "the same versions",
        old: VERSIONS,
        new: VERSIONS,
        scripts: [NODES; 2],
        ours: "none",
        abidiff: "none",
    },
    LibraryPair {
        name: "a version of a function is gone",
        old: VERSIONS,
        new: ONE_VERSION,
        scripts: [NODES; 2],
        ours: "breaks",
        abidiff: "breaks",
    },
    LibraryPair {
        name: "a version of a function is another function",
        old: VERSIONS,
        new: "__asm__(\".symver f_old, f@V1\"); __asm__(\".symver f_new, f@@V2\");
            int f_old(int a, int b) { return a + b; } long f_new(long a, long b) { return a + b; } int f();",
        scripts: [NODES; 2],
        ours: "breaks",
        abidiff: "breaks",
    },
    LibraryPair {
        name: "a function gets one more version",
        old: "__asm__(\".symver f_old, f@@V1\"); int f_old(int a) { return a; }",
        new: VERSIONS,
        scripts: ["V1 { global: f; local: *; };", NODES],
        ours: "compatible",
        abidiff: "none",
    },
];

/// Single edits cannot say all that matters: what members are named through, vectors, and versions of
/// symbols.
#[test]
fn verdicts_on_pairs_are_those_of_abidiff() {
    let folder = &TypeFolder::new();
    let mut wrong = Vec::new();
    for pair in PAIRS {
        for ((name, source), script) in [("old", pair.old), ("new", pair.new)]
            .into_iter()
            .zip(pair.scripts)
        {
            folder.write("versions", script);
            let script = match script {
                "" => "",
                _ => "-Wl,--version-script=versions",
            };
            gcc(
                folder,
                &format!("{name}.so"),
                source,
                &format!("-fPIC -shared {script}"),
            );
        }
        let said = [
            ours(folder, "old.so", "new.so"),
            abidiff(folder, "", "old.so", "new.so"),
        ];
        if said != [pair.ours, pair.abidiff] {
            wrong.push(format!("{}: {said:?}", pair.name));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Versions, SONAMEs, and the names that a change reaches.
#[test]
fn a_change_says_what_it_reaches() {
    let folder = &TypeFolder::new();
    let source = "typedef unsigned long size_type; struct shared { int a; size_type n; };
        int f1(struct shared *s) { return s->a; } int f2(struct shared *s) { return s->a; }
        int f3(struct shared *s, size_type n) { return s->a + n; } struct shared data;
        int other(int a) { return a; }";
    folder.write("versions", "V1 { global: *; };");
    let library = |name: &str, source: &str, words: &str| {
        gcc(folder, name, source, &format!("-fPIC -shared {words}"));
    };
    library("old.so", source, "");
    let changed = source.replace("unsigned long size_type", "unsigned int size_type");
    library("new.so", &changed, "");
    let (mut found, _) = folder.changes("old.so", "new.so");
    let shared = &found.changes[0];
    assert_eq!((&*shared.subject, &*shared.path), ("struct shared", "data"));
    let names: Vec<_> = found.exports(shared).collect();
    assert_eq!(names, ["f1", "f2", "f3", "data"]);
    let text = "* struct:sh* ours alone\n* nothing:here a typo\ntype *(2) as is this\n";
    let mut excuses = Excuses::parse(text).unwrap();
    let count = found.changes.len();
    assert_eq!(excuses.apply(&mut found.changes), count);
    assert!(found.changes.is_empty());
    assert_eq!(excuses.unused().collect::<Vec<_>>(), [2]);
    library("soname.so", source, "-Wl,-soname,libx.so.1");
    library("renamed.so", source, "-Wl,-soname,libx.so.2");
    library("versioned.so", source, "-Wl,--version-script=versions");
    for (old, new, expected) in [
        ("soname.so", "soname.so", None),
        (
            "soname.so",
            "renamed.so",
            Some((true, "SONAME is libx.so.2, was libx.so.1")),
        ),
        (
            "old.so",
            "versioned.so",
            Some((false, "function f1 has the version V1, had none")),
        ),
        ("versioned.so", "old.so", Some((true, "version V1 is gone"))),
    ] {
        let (found, _) = folder.changes(old, new);
        let changes = found.changes.iter();
        let said: Vec<_> = changes
            .map(|one| format!("{} {}", one.subject, one.message))
            .collect();
        match expected {
            None => assert_eq!(said, Vec::<String>::new()),
            Some((breaks, text)) => {
                assert!(said.iter().any(|one| one == text), "{old} {new}: {said:?}");
                assert_eq!(is_breaking(&found), breaks, "{old} {new}");
            }
        }
    }
}

/// A library of several sources, each with its own options.
fn library(folder: &TypeFolder, name: &str, sources: &[(&str, &str)]) {
    let mut objects = String::new();
    for (nth, (source, options)) in sources.iter().enumerate() {
        let object = format!("{name}{nth}.o");
        gcc(folder, &object, source, &format!("-c -fPIC -g0 {options}"));
        objects += &format!("{object} ");
    }
    folder.tool("gcc", &format!("-shared -o {name} {objects}"));
}

/// What has no type in one version cannot be compared.
#[test]
fn functions_without_types_are_counted() {
    let folder = &TypeFolder::new();
    let (typed, untyped) = (
        "int typed(int a) { return a; }",
        "int bare(int a) { return a; }",
    );
    library(folder, "all.so", &[(typed, "-g"), (untyped, "-g")]);
    library(folder, "some.so", &[(typed, "-g"), (untyped, "")]);
    for (old, new, is_complete) in [
        ("all.so", "some.so", false),
        ("some.so", "all.so", true),
        ("some.so", "some.so", true),
    ] {
        let (found, _) = folder.changes(old, new);
        let untyped: Vec<_> = found.untyped.iter().map(|one| &*one.subject).collect();
        assert_eq!(untyped, ["function bare"], "{old} {new}");
        assert_eq!(found.names.len(), 1, "{old} {new}");
        assert_eq!(found.is_complete(), is_complete, "{old} {new}");
    }
}

/// A static function of another unit can have the name of an exported one.
#[test]
fn static_functions_do_not_stand_for_exported_ones() {
    let folder = &TypeFolder::new();
    let exported = |ty: &str| format!("int get({ty} *a) {{ return a != 0; }}");
    let (old, new) = (
        exported("struct { int x; }"),
        exported("struct { int x, y; }"),
    );
    let of_its_own = "static __attribute__((noinline)) void get(long a) { asm(\"\" : : \"r\"(a)); }\
                      void user(long a) { get(a); }";
    for is_first in [true, false] {
        let build = |name: &str, exported: &str| {
            let mut sources = [(exported, "-g"), (of_its_own, "-g")];
            if !is_first {
                sources.reverse();
            }
            library(folder, name, &sources);
        };
        build("old.so", &old);
        build("new.so", &new);
        assert_eq!(ours(folder, "old.so", "new.so"), "breaks", "{is_first}");
        assert_eq!(ours(folder, "old.so", "old.so"), "none", "{is_first}");
    }
}
