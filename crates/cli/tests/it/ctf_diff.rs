//! `unspool ctf diff` as a user calls it. What is compared is tested in `unspool-dwarf-types`.

use std::fs;

use crate::harness::TestFolder;

const SOURCE: &str = "
    struct hidden { int key; };
    struct node { struct hidden *secret; };
    int color(struct node *node) { return node->secret->key; }
    int size(struct node *node) { return node->secret != 0; }";

/// Compiles a shared object from a source.
fn build(folder: &TestFolder, name: &str, source: &str, words: &str) {
    folder.write("source.c", source);
    let words = format!("-O1 -fPIC -shared {words} -o {name} source.c");
    folder.tool("gcc", &words);
}

/// The exit status, and all output.
fn diff(folder: &TestFolder, words: &str) -> (i32, String) {
    let output = folder.unspool(&format!("ctf diff {words}"));
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8(text).unwrap(),
    )
}

/// A change is reported with the path that leads to it. DWARF can be compared with BTF.
#[test]
fn a_change_is_reported_with_its_path() {
    let folder = TestFolder::new();
    build(&folder, "old.so", SOURCE, "-g");
    let changed = SOURCE.replace("int key", "long key");
    build(&folder, "new.so", &changed, "-g");
    let said =
        "breaking: struct hidden has 8 bytes, had 4\n    by color(1)->secret->, and 1 more name\n";
    let (status, text) = diff(&folder, "old.so new.so");
    assert!(status == 1 && text.contains(said), "{status}: {text}");
    let (_, text) = diff(&folder, "old.so new.so --all-names");
    assert!(text.contains("\n    of color, size\n"), "{text}");
    folder.done("ctf to-btf old.so -o old.btf");
    let none = "changes that break: 0, compatible: 0\n".to_owned();
    assert_eq!(diff(&folder, "old.btf old.so"), (0, none));
    let json = folder.done("ctf diff old.so old.so --format json");
    let json: serde_json::Value = crate::json::document(json);
    assert_eq!(json["breaking"], false);
    assert_eq!(
        (&json["complete"], &json["compared"]),
        (&true.into(), &2.into())
    );
}

/// Excused changes are counted, and do not fail.
#[test]
fn changes_are_excused() {
    let folder = TestFolder::new();
    build(&folder, "old.so", SOURCE, "-g");
    let changed = SOURCE.replace("int key", "long key");
    build(&folder, "new.so", &changed, "-g");
    folder.write("all", "* * ours\nsize nothing:here a typo\n");
    folder.write("wrong", "remove function:f no\n");
    let (status, text) = diff(&folder, "old.so new.so --excuse all");
    assert!(status == 0 && !text.contains("breaking: "), "{text}");
    assert!(text.contains("changes that are excused: ") && text.contains("all:2: excuses nothing"));
    let (status, text) = diff(&folder, "old.so new.so --excuse wrong");
    assert!(
        status == 2 && text.contains("wrong:1: `remove` is not"),
        "{text}"
    );
}

/// What has no type in one version cannot be compared, and that is said.
#[test]
fn functions_without_types_are_counted() {
    let folder = TestFolder::new();
    for name in ["typed", "bare"] {
        folder.write(
            &format!("{name}.c"),
            format!("int {name}(int a) {{ return a; }}"),
        );
        for level in ["-g", "-g0"] {
            folder.tool(
                "gcc",
                &format!("-fPIC {level} -c {name}.c -o {name}{level}.o"),
            );
        }
    }
    folder.tool("gcc", "-shared typed-g.o bare-g.o -o all.so");
    folder.tool("gcc", "-shared typed-g.o bare-g0.o -o some.so");
    folder.tool("gcc", "-shared typed-g0.o bare-g.o -o other.so");
    let counted = "not compared, without a type in one version or both: 1 of 2 functions and data\n    \
                   function bare\n";
    for (files, status) in [
        ("all.so some.so", 1),
        ("some.so all.so", 0),
        ("some.so some.so", 0),
    ] {
        let (found, text) = diff(&folder, &format!("--all-names {files}"));
        assert!(text.ends_with(counted), "{files}: {text}");
        assert_eq!(found, status, "{files}: {text}");
    }
    let (status, text) = diff(&folder, "--all-names some.so other.so");
    let none = "in both some.so and other.so: nothing could be compared\n";
    assert!(status == 2 && text.contains(none), "{status}: {text}");
}

/// What public headers do not declare is left out, and counted.
#[test]
fn headers_say_what_counts() {
    let folder = TestFolder::new();
    for name in ["include", "src"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    folder.write(
        "include/node.h",
        "struct node; int color(struct node *node);",
    );
    let header = "#include \"include/node.h\"\n";
    build(&folder, "old.so", &format!("{header}{SOURCE}"), "-g");
    let changed = SOURCE
        .replace("int key", "long key")
        .replace("int size", "long size");
    build(&folder, "new.so", &format!("{header}{changed}"), "-g");
    let expected = "changes that break: 0, compatible: 0\n\
                    not declared in headers below include: 1 exported name\n    function size\n\
                    not declared in headers below include: 1 type\n    struct node\n";
    let all = diff(&folder, "--headers include old.so new.so --all-names");
    assert_eq!(all, (0, expected.to_owned()));
    let both = "--headers include --new-headers include/node.h";
    let json = folder.done(&format!("ctf diff {both} old.so new.so --format json"));
    let json: serde_json::Value = crate::json::document(json);
    assert_eq!(
        json["private_exports"],
        serde_json::json!(["function size"])
    );
    assert_eq!(json["private_types"], serde_json::json!(["struct node"]));
    folder.write("other.h", "int none(void);");
    folder.done("ctf to-btf old.so -o old.btf");
    for (words, said) in [
        ("--headers src old.so new.so", "src has no headers"),
        ("--headers gone old.so new.so", "cannot read gone"),
        (
            "--headers other.h old.so new.so",
            "headers below other.h: nothing could be compared",
        ),
        (
            "--headers include old.btf new.so",
            "old.btf has BTF, which does not say",
        ),
        ("--new-headers include old.so new.so", "--headers"),
    ] {
        let (status, text) = diff(&folder, words);
        assert!(
            status == 2 && text.contains(said),
            "{words}: {status}: {text}"
        );
    }
}

/// Of units in C++, functions with C linkage are compared; others are counted.
#[test]
fn functions_of_cpp_with_c_linkage_are_compared() {
    let folder = TestFolder::new();
    let source = "struct item { int key; }; int other(item *i) { return i->key; }\n\
                  extern \"C\" int color(item *i) { return i->key; }";
    for (name, key) in [("old", "int key"), ("new", "long key")] {
        folder.write("source.cc", source.replace("int key", key));
        folder.tool("g++", &format!("-g -fPIC -shared -o {name}.so source.cc"));
    }
    let (status, text) = diff(&folder, "old.so new.so --all-names");
    assert_eq!(status, 1, "{text}");
    for said in [
        "breaking: struct item has 8 bytes, had 4\n    by color(1)->\n    of color\n",
        "one version or both: 1 of 2 functions and data\n    function _Z5otherP4item\n",
        "old.so: of 1 unit in C++, only functions and data with C linkage are compared\n",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
}
