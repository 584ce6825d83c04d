//! Pairs of libraries with public and private headers, in C and in C++ with a C interface, compared
//! with abidiff: all types, and what the public headers declare.
//!
//! A file of `interfaces/pairs/` has what changes, the verdict for all types and that for
//! `include/`, and the library's files; the new version is built with `-DNEW`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use unspool_c_types::InterfaceDiff;
use unspool_dwarf_types::{PublicHeaders, TypeFileError, TypeLoader, UnitChoice};
use unspool_testing::sample;

use crate::interfaces::{abidiff, verdict};
use crate::type_folder::TypeFolder;

/// A pair: its files, and the verdicts, ours and abidiff's.
struct InterfacePair {
    name: String,
    whole: [String; 2],
    headers: [String; 2],
    files: BTreeMap<String, String>,
}

fn pairs() -> Vec<InterfacePair> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interfaces/pairs");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut pairs: Vec<InterfacePair> = files.map(|file| pair(&file)).collect();
    pairs.sort_by(|one, other| one.name.cmp(&other.name));
    pairs
}

fn pair(path: &Path) -> InterfacePair {
    let text = fs::read_to_string(path).unwrap();
    let mut parts = text.split("\n-- ");
    let head = parts.next().unwrap();
    let verdicts = |key: &str| {
        let line = head
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .unwrap();
        let (ours, abidiff) = line.split_once(", abidiff ").unwrap_or((line, line));
        [ours.to_owned(), abidiff.to_owned()]
    };
    let files = parts.map(|part| {
        let (name, content) = part.split_once(" --\n").unwrap();
        (name.to_owned(), format!("{content}\n"))
    });
    InterfacePair {
        name: path.file_stem().unwrap().to_string_lossy().into_owned(),
        whole: verdicts("whole: "),
        headers: verdicts("headers: "),
        files: files.collect(),
    }
}

impl InterfacePair {
    /// Builds both versions: with DWARF, and in C with CTF, too. Returns whether it is in C.
    fn build(&self, folder: &TypeFolder) -> bool {
        let is_source = |name: &&String| name.starts_with("src/") && !name.ends_with(".h");
        let source = self.files.keys().find(is_source).unwrap();
        let is_c = source.ends_with(".c");
        for (version, define) in [("old", ""), ("new", "-DNEW")] {
            for (name, content) in &self.files {
                let file = folder.join(version).join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, content).unwrap();
            }
            let (tool, forms): (_, &[_]) = if is_c {
                ("gcc", &[("-g", "so"), ("-gctf", "ctf.so")])
            } else {
                ("g++", &[("-g", "so")])
            };
            for (flag, name) in forms {
                let words = format!(
                    "{define} -w {flag} -O1 -fPIC -shared -I{version}/include -I{version}/src \
                     -o {version}.{name} {version}/{source}"
                );
                folder.tool(tool, &words);
            }
        }
        is_c
    }
}

/// The changes of what public headers declare, or of all.
pub(crate) fn changes(
    folder: &TypeFolder,
    headers: Option<[&PublicHeaders; 2]>,
    [old, new]: [&str; 2],
) -> (Result<InterfaceDiff, TypeFileError>, String) {
    folder.load(|loader| {
        let load = |nth: usize| TypeLoader {
            units: UnitChoice::CLinkage,
            headers: headers.and_then(|headers| headers.get(nth).copied()),
            ..loader
        };
        load(0).types(&folder.join(old), |old| {
            load(1).types(&folder.join(new), |new| loader.interface_diff(old, new))?
        })?
    })
}

fn headers(folder: &TypeFolder, name: &str) -> PublicHeaders {
    PublicHeaders::read(&[folder.join(name)]).unwrap()
}

#[test]
fn verdicts_are_those_of_abidiff() {
    let pairs = pairs();
    assert!(
        pairs
            .iter()
            .filter(|pair| !pair.name.starts_with("cpp_"))
            .count()
            >= 40
    );
    let mut wrong = Vec::new();
    for pair in sample(&pairs, 3) {
        let folder = &TypeFolder::new();
        let is_c = pair.build(folder);
        let said = |headers, files| {
            let (found, _) = changes(folder, headers, files);
            found.map_or_else(
                |error| error.to_string(),
                |found| verdict(&found).to_owned(),
            )
        };
        let public = ["old/include", "new/include"].map(|name| headers(folder, name));
        let public = Some([&public[0], &public[1]]);
        let options = "--headers-dir1 old/include --headers-dir2 new/include";
        let dwarf = ["old.so", "new.so"];
        let [whole, declared] = [&pair.whole, &pair.headers];
        let ctf = ["old.ctf.so", "new.ctf.so"];
        let lines = [
            ("DWARF", &whole[0], said(None, dwarf)),
            (
                "CTF",
                &whole[0],
                if is_c {
                    said(None, ctf)
                } else {
                    whole[0].clone()
                },
            ),
            ("itself", &"none".to_owned(), said(None, ["new.so"; 2])),
            (
                "abidiff",
                &whole[1],
                abidiff(folder, "", "old.so", "new.so").to_owned(),
            ),
            ("headers", &declared[0], said(public, dwarf)),
            (
                "abidiff, headers",
                &declared[1],
                abidiff(folder, options, "old.so", "new.so").to_owned(),
            ),
        ];
        for (who, expected, said) in lines {
            if *expected != said {
                wrong.push(format!(
                    "{}: {who} says {said}, and not {expected}",
                    pair.name
                ));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

const LIBRARY: [(&str, &str); 3] = [
    (
        "include/lib.h",
        "struct hidden; struct shown { int a; struct hidden *rest; };\n\
         typedef struct { int x; } point; int shown_of(struct shown *s, point *p);",
    ),
    (
        "src/lib.h.in",
        "struct hidden { int b; }; int hidden_of(struct hidden *h); /* not shown_of */",
    ),
    (
        "src/lib.c",
        "#include \"lib.h\"\n#include \"lib.h.in\"\ntypedef struct { int inner; } own;\n\
         int shown_of(struct shown *s, point *p) { return s->a + s->rest->b + p->x; }\n\
         int hidden_of(struct hidden *h) { own o = { h->b }; return o.inner; }",
    ),
];

/// Builds a library of two versions, of which the new one has a replaced text.
fn library(folder: &TypeFolder, flags: &str, [from, to]: [&str; 2]) {
    for version in ["old", "new"] {
        let change = |text: &str| match version {
            "old" => text.to_owned(),
            _ => text.replace(from, to),
        };
        for (name, text) in LIBRARY {
            let file = folder.join(version).join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, change(text)).unwrap();
        }
        let words = format!(
            "-w -O1 {flags} -fPIC -shared -I{version}/include -o {version}.so {version}/src/lib.c"
        );
        folder.tool("gcc", &words);
    }
}

/// In all forms of DWARF, and for headers that were copied.
#[test]
fn private_types_and_names_are_counted() {
    let folder = &TypeFolder::new();
    let forms = [
        "-gdwarf-5",
        "-gdwarf-4",
        "-gdwarf-4 -fdebug-types-section",
        "-gsplit-dwarf",
    ];
    for (nth, flags) in forms.into_iter().enumerate() {
        library(folder, &format!("-g {flags}"), ["int b;", "long b;"]);
        let copy = folder.join(format!("copied{nth}"));
        fs::create_dir_all(&copy).unwrap();
        fs::copy(folder.join("old/include/lib.h"), copy.join("lib.h")).unwrap();
        for name in ["old/include", &format!("copied{nth}")] {
            let public = headers(folder, name);
            let (found, notices) = changes(folder, Some([&public; 2]), ["old.so", "new.so"]);
            let found = found.unwrap_or_else(|error| panic!("{flags}: {error}, {notices}"));
            assert_eq!(found.changes, [], "{flags}, {name}");
            assert_eq!(
                found.private_exports,
                ["function hidden_of"],
                "{flags}, {name}"
            );
            let types: Vec<_> = found.private_types.iter().map(String::as_str).collect();
            assert_eq!(types, ["struct hidden"], "{flags}, {name}");
        }
        let (found, _) = changes(folder, None, ["old.so", "new.so"]);
        assert_eq!(verdict(&found.unwrap()), "breaks", "{flags}");
    }
}

/// A structure without a tag is declared where its name is.
#[test]
fn untagged_structures_are_declared_by_their_names() {
    let folder = &TypeFolder::new();
    library(folder, "-g", ["{ int x; } point", "{ long x; } point"]);
    let public = headers(folder, "old/include");
    let (found, _) = changes(folder, Some([&public; 2]), ["old.so", "new.so"]);
    assert_eq!(verdict(&found.unwrap()), "breaks");
}

/// CTF has no files of types: that is an error. With DWARF beside it, DWARF is read.
#[test]
fn headers_need_dwarf() {
    let folder = &TypeFolder::new();
    for (flags, is_error) in [("-gctf", true), ("-gctf -g", false)] {
        library(folder, flags, ["int b;", "long b;"]);
        let public = headers(folder, "old/include");
        let (found, _) = changes(folder, Some([&public; 2]), ["old.so", "new.so"]);
        match found {
            Ok(found) => assert!(!is_error && found.changes.is_empty(), "{flags}"),
            Err(error) => {
                let said = "has CTF, which does not say in which files types are declared";
                assert!(is_error && error.to_string().contains(said), "{error}");
            }
        }
    }
}
