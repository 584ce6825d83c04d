//! `unspool ctf diff` compared with abidiff: single edits of the small library in `ctf_diff/`, each
//! with the verdict expected of both.

use std::fs;
use std::path::Path;
use std::process::Output;

use unspool_testing::{command, packages, sample};

use crate::json;

const SOURCE: &str = include_str!("../ctf_diff/lib.c");
const EDITS: &str = include_str!("../ctf_diff/edits.txt");

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

fn run(folder: &Path, program: impl AsRef<Path>, words: &str) -> Output {
    let mut command = command(program.as_ref());
    let words = words.split_whitespace();
    command.args(words).current_dir(folder).output().unwrap()
}

fn build(folder: &Path, name: &str, source: &str) {
    fs::write(folder.join(format!("{name}.c")), source).unwrap();
    let gcc = packages::path("/usr/bin/gcc").unwrap();
    // Without that, ld has no types of thread-local variables.
    for (flag, form) in [("-g", "dwarf"), ("-gctf -Wl,--ctf-variables", "ctf")] {
        let words = format!("-w {flag} -O1 -fPIC -shared -o {name}.{form}.so {name}.c");
        let output = run(folder, &gcc, &words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {errors}");
    }
}

/// Unspool's verdict for two files, from the report and the exit status.
fn ours(folder: &Path, files: &str) -> &'static str {
    let words = format!("ctf diff {files} --format json");
    let output = run(folder, env!("CARGO_BIN_EXE_unspool"), &words);
    let report = json::document(output.stdout);
    let is_breaking = report["breaking"].as_bool().unwrap();
    // A function may have lost its type: then nothing tells whether it is still the same.
    let is_unsure = report["complete"] == false;
    let status = i32::from(is_breaking || is_unsure);
    assert_eq!(output.status.code(), Some(status), "{files}: {report}");
    match (
        is_breaking,
        report["changes"].as_array().unwrap().is_empty(),
    ) {
        (true, _) => "breaks",
        (false, true) => "none",
        (false, false) => "compatible",
    }
}

/// abidiff's verdict: changes and removals are incompatible; harmless changes and additions are
/// not.
fn abidiff(folder: &Path, files: &str) -> &'static str {
    let program = packages::path("/usr/bin/abidiff").unwrap();
    let output = run(folder, &program, files);
    if output.status.success() {
        let harmless = run(folder, &program, &format!("--harmless {files}"));
        return if harmless.status.success() {
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
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
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
                ours(folder, "old.dwarf.so new.dwarf.so"),
            ),
            ("CTF", edit.ours, ours(folder, "old.ctf.so new.ctf.so")),
            (
                "DWARF against CTF",
                edit.ours,
                ours(folder, "old.dwarf.so new.ctf.so"),
            ),
            (
                "abidiff",
                edit.abidiff,
                abidiff(folder, "old.dwarf.so new.dwarf.so"),
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
fn gcc(folder: &Path, name: &str, source: &str, words: &str) {
    fs::write(folder.join("source.c"), source).unwrap();
    let words = format!("-w -g -O1 {words} -o {name} source.c");
    let output = run(folder, packages::path("/usr/bin/gcc").unwrap(), &words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {errors}");
}

/// Static symbols are not part of an interface. For object files and static programs the global
/// symbols count; if one side is types alone, the other's exports.
#[test]
fn static_symbols_are_not_exported() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
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
        let [none, breaks] = ["new", "gone"].map(|name| format!("old.{form} {name}.{form}"));
        assert_eq!(ours(folder, &none), "none", "{form}");
        assert_eq!(abidiff(folder, &none), "none", "{form}");
        assert_eq!(ours(folder, &breaks), "breaks", "{form}");
    }
    let unspool = env!("CARGO_BIN_EXE_unspool");
    for (name, source) in versions {
        let words = format!("ctf from-dwarf {name}.so -o {name}.ctf");
        assert!(run(folder, unspool, &words).status.success(), "{name}");
        gcc(folder, "member.o", source, "-gctf -c");
        let words = format!("rc {name}.a member.o");
        let ar = run(folder, packages::path("/usr/bin/ar").unwrap(), &words);
        assert!(ar.status.success(), "{name}");
    }
    for (files, verdict) in [
        ("old.ctf new.so", "none"),
        ("old.so new.ctf", "none"),
        ("new.ctf old.so", "none"),
        ("new.so old.ctf", "none"),
        ("old.a new.a", "none"),
        ("old.a gone.a", "breaks"),
    ] {
        assert_eq!(ours(folder, files), verdict, "{files}");
    }
}

/// A change is reported with the path that leads to it, and DWARF can be compared with BTF.
#[test]
fn a_change_is_reported_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    build(folder, "old", SOURCE);
    build(
        folder,
        "new",
        &SOURCE.replace("    int key;", "    long key;"),
    );
    let unspool = env!("CARGO_BIN_EXE_unspool");
    let output = run(folder, unspool, "ctf diff old.dwarf.so new.dwarf.so");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains(
            "breaking: struct hidden has 8 bytes, had 4\n    by node_color(1)->secret->, and 5 more names\n"
        ),
        "{text}"
    );
    let made = run(folder, unspool, "ctf to-btf old.dwarf.so -o old.btf");
    assert!(made.status.success());
    let output = run(folder, unspool, "ctf diff old.btf old.dwarf.so");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(
        text.lines().last(),
        Some("changes that break: 0, compatible: 0"),
        "{text}"
    );
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
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut wrong = Vec::new();
    for pair in PAIRS {
        for ((name, source), script) in [("old", pair.old), ("new", pair.new)]
            .into_iter()
            .zip(pair.scripts)
        {
            fs::write(folder.join("versions"), script).unwrap();
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
            ours(folder, "old.so new.so"),
            abidiff(folder, "old.so new.so"),
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
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let source = "typedef unsigned long size_type; struct shared { int a; size_type n; };
        int f1(struct shared *s) { return s->a; } int f2(struct shared *s) { return s->a; }
        int f3(struct shared *s, size_type n) { return s->a + n; } struct shared data;
        int other(int a) { return a; }";
    let library = |name: &str, source: &str, words: &str| {
        fs::write(folder.join("versions"), "V1 { global: *; };").unwrap();
        gcc(folder, name, source, &format!("-fPIC -shared {words}"));
    };
    library("old.so", source, "");
    let changed = source.replace("unsigned long size_type", "unsigned int size_type");
    library("new.so", &changed, "");
    let diff = |words: &str| {
        let output = run(
            folder,
            env!("CARGO_BIN_EXE_unspool"),
            &format!("ctf diff {words}"),
        );
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (status, text) = diff("old.so new.so");
    assert_eq!(status, 1, "{text}");
    for line in [
        "breaking: struct shared has 8 bytes, had 16\n    by data, and 3 more names\n",
        "breaking: f3(2) is size_type (unsigned int), was size_type (long unsigned int)\n    by f3(2), and 3 more names\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    let (_, text) = diff("old.so new.so --all-names");
    assert!(text.contains("\n    of f1, f2, f3, data\n"), "{text}");
    fs::write(
        folder.join("some"),
        "# kind subject reason\nsize struct:sh* ours alone\n* nothing:here a typo\n",
    )
    .unwrap();
    fs::write(
        folder.join("all"),
        "* struct:shared ours\ntype *(2) as is this\n",
    )
    .unwrap();
    let (status, text) = diff("old.so new.so --excuse some");
    assert!(
        status == 1 && text.contains("changes that are excused: 1\n"),
        "{text}"
    );
    let (status, text) = diff("old.so new.so --excuse all");
    assert!(status == 0 && !text.contains("breaking: "), "{text}");
    fs::write(folder.join("wrong"), "remove function:f no\n").unwrap();
    assert_eq!(diff("old.so new.so --excuse wrong").0, 2);
    library("soname.so", source, "-Wl,-soname,libx.so.1");
    library("renamed.so", source, "-Wl,-soname,libx.so.2");
    library("versioned.so", source, "-Wl,--version-script=versions");
    for (files, status, line) in [
        (
            "soname.so soname.so",
            0,
            "changes that break: 0, compatible: 0\n",
        ),
        (
            "soname.so renamed.so",
            1,
            "breaking: SONAME is libx.so.2, was libx.so.1\n",
        ),
        (
            "old.so versioned.so",
            0,
            "compatible: function f1 has the version V1, had none\n",
        ),
        ("versioned.so old.so", 1, "breaking: version V1 is gone\n"),
    ] {
        let (found, text) = diff(files);
        assert!(
            found == status && text.contains(line),
            "{files}: {found} {text}"
        );
    }
}

/// A library of several sources, each with its own options.
fn library(folder: &Path, name: &str, sources: &[(&str, &str)]) {
    let mut objects = String::new();
    for (nth, (source, options)) in sources.iter().enumerate() {
        let object = format!("{name}{nth}.o");
        gcc(folder, &object, source, &format!("-c -fPIC -g0 {options}"));
        objects += &format!("{object} ");
    }
    let words = format!("-shared -o {name} {objects}");
    let output = run(folder, packages::path("/usr/bin/gcc").unwrap(), &words);
    assert!(output.status.success(), "{output:?}");
}

/// What has no type in one version cannot be compared, and that is said.
#[test]
fn functions_without_types_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (typed, untyped) = (
        "int typed(int a) { return a; }",
        "int bare(int a) { return a; }",
    );
    library(folder, "all.so", &[(typed, "-g"), (untyped, "-g")]);
    library(folder, "some.so", &[(typed, "-g"), (untyped, "")]);
    let diff = |files: &str| {
        let words = format!("ctf diff --all-names {files}");
        let output = run(folder, env!("CARGO_BIN_EXE_unspool"), &words);
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let counted = "not compared, without a type in one version or both: 1 of 2 functions and data\n    \
                   function bare\n";
    for (files, status) in [
        ("all.so some.so", 1),
        ("some.so all.so", 0),
        ("some.so some.so", 0),
    ] {
        let (found, text) = diff(files);
        assert!(text.ends_with(counted), "{files}: {text}");
        assert_eq!(found, Some(status), "{files}: {text}");
    }
    library(folder, "other.so", &[(typed, ""), (untyped, "-g")]);
    let (found, text) = diff("some.so other.so");
    assert_eq!(found, Some(2), "{text}");
    assert!(
        text.contains("in both some.so and other.so: nothing could be compared\n"),
        "{text}"
    );
}

/// A static function of another unit can have the name of an exported one.
#[test]
fn static_functions_do_not_stand_for_exported_ones() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
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
        assert_eq!(ours(folder, "old.so new.so"), "breaks", "{is_first}");
        assert_eq!(ours(folder, "old.so old.so"), "none", "{is_first}");
    }
}
