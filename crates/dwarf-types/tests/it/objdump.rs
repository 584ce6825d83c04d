//! The text of CTF is objdump's, and the sizes and offsets in it are gcc's.

use std::fs;
use std::path::Path;

use unspool_c_types::{ObjdumpText, SHARED, SymbolForm, Tag, TypeKind};
use unspool_dwarf_types::{ArrayView, LoadedDicts};

use crate::type_folder::{TypeFolder, source};

/// The C sources of the linked types.
const SOURCES: [&str; 4] = ["kinds", "one", "two", "three"];

/// A folder with object files of all sources.
fn folder() -> TypeFolder {
    let mut folder = TypeFolder::new();
    folder.arrays = ArrayView::AsStored;
    for name in SOURCES {
        let words = format!("-gctf -O1 -c {} -o {name}.o", source(name));
        folder.tool("gcc", &words);
    }
    folder
}

/// The dictionaries as `objdump --ctf` prints them.
fn listing(found: &LoadedDicts<'_>) -> String {
    let mut text = String::new();
    for (nth, dictionary) in found.dictionaries.iter().enumerate() {
        let unit = dictionary.ctf.as_ref().unwrap();
        if unit.name != SHARED || nth != 0 {
            text += &format!("\nCTF archive member: {}:\n", unit.name);
        }
        let (dict, reading) = (unit.dict, &unit.reading);
        text += &ObjdumpText { dict, reading }.to_string();
    }
    text
}

fn check_lines(folder: &TypeFolder, file: &str) {
    let theirs = folder.tool("objdump", &format!("--ctf {file}"));
    // binutils 2.44 puts types that cannot be found by name in braces. 2.40 prints one comma too many
    // between flags.
    let same_form = |line: &str| {
        if line.trim_start().starts_with("{0x") {
            line.replace(['{', '}'], "")
        } else {
            line.replace("INFO, , ", "INFO, ")
        }
    };
    // The first ones are about the file.
    let theirs: Vec<_> = theirs.lines().skip(4).map(same_form).collect();
    let ours = folder.dictionaries(file, listing).0.unwrap();
    assert!(theirs.len() > 20, "{theirs:?}");
    for (nth, (ours, theirs)) in ours.lines().zip(&theirs).enumerate() {
        assert_eq!(ours, *theirs, "{file}, line {nth}");
    }
    assert_eq!(ours.lines().count(), theirs.len(), "{file}");
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
    let cases = Path::new(&cases).parent().unwrap();
    let mut seen = 0;
    for case in fs::read_dir(cases).unwrap() {
        let case = case.unwrap().path();
        let name = case.file_name().unwrap().to_str().unwrap();
        let mut objects = Vec::new();
        for source in fs::read_dir(&case).unwrap() {
            let source = source.unwrap().path();
            let nth = source.file_stem().unwrap().to_str().unwrap();
            let object = format!("{name}-{nth}.o");
            let words = format!("-gctf -fPIC -O1 -c {} -o {object}", source.display());
            folder.tool("gcc", &words);
            check_lines(&folder, &object);
            objects.push(object);
        }
        folder.tool("gcc", &format!("-shared {} -o linked", objects.join(" ")));
        check_lines(&folder, "linked");
        let objects: Vec<_> = objects.iter().map(String::as_str).collect();
        for symbols in [SymbolForm::Names, SymbolForm::Dynsym] {
            folder.link_into(&objects, "linked", symbols);
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
        folder.write(&format!("{name}.c"), text);
        folder.tool("gcc", &format!("-gctf -c {name}.c -o {name}.o"));
        check_lines(&folder, &format!("{name}.o"));
    }
}

/// The declarations of records, compiled by gcc with assertions on sizes and offsets, are valid.
#[test]
fn gcc_agrees_with_sizes_and_offsets() {
    let folder = folder();
    let (checks, _) = folder.dictionaries("kinds.o", |found| {
        let graph = &found.dictionaries[0].graph;
        let mut checks = format!("#include \"{}\"\n", source("kinds"));
        for (id, ty) in graph.types() {
            let TypeKind::Record { tag, size, .. } = &ty.kind else {
                continue;
            };
            if ty.name.is_empty() || ty.name.starts_with("__") {
                continue;
            }
            let tag = match tag {
                Tag::Struct => format!("struct {}", ty.name),
                Tag::Union => format!("union {}", ty.name),
                Tag::Enum => continue,
            };
            let align = graph.align(id).unwrap();
            checks += &format!("_Static_assert(sizeof({tag}) == {size}, \"\");\n");
            checks += &format!("_Static_assert(_Alignof({tag}) == {align}, \"\");\n");
            for member in graph.layout(id).unwrap().members {
                if !member.name.is_empty() && !member.is_bit_field {
                    let offset = member.offset / 8;
                    let name = &member.name;
                    checks +=
                        &format!("_Static_assert(offsetof({tag}, {name}) == {offset}, \"\");\n");
                }
            }
        }
        checks
    });
    let checks = checks.unwrap();
    assert!(checks.matches("offsetof").count() > 10, "{checks}");
    folder.write("check.c", checks);
    folder.tool("gcc", "-fsyntax-only check.c");
}

#[test]
fn c_is_what_the_source_says() {
    let mut folder = folder();
    let as_stored = folder.symbol("bytes", "kinds.o");
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
    folder.arrays = ArrayView::AsDeclared;
    let node = folder.definition("node", "kinds.o").0;
    for line in [
        "    int a : 3;                               /* at 8:0, 3 bits */",
        "    u32 grid[3][4];                          /* at 12, 48 bytes */",
        "    int last[0];                             /* at 80, 0 bytes */",
        "}; /* size 80, align 8, holes 46 bits */",
    ] {
        assert!(node.lines().any(|other| other == line), "{line}\n{node}");
    }
    let declared = |name: &str| folder.symbol(name, "kinds.o");
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
}
