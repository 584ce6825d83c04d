//! Types in C programs: libctf reads the same, and what is written.

use std::path::Path;
use std::process::Command;

use unspool_testing::{Finish as _, Folder, tool};

use crate::programs::{self, pkg_config_of, stdout, with_library, with_std};

fn example(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(name)
}

fn libraries() -> Vec<String> {
    with_std();
    pkg_config_of("unspool-types")
}

/// A folder with object files that have CTF.
fn objects() -> Folder {
    let folder = Folder::new();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../c-types/tests/c");
    for name in ["kinds", "one", "two", "three"] {
        let source = sources.join(name).with_extension("c");
        folder.tool(
            "gcc",
            &format!("-gctf -O1 -c {} -o {name}.o", source.display()),
        );
    }
    folder
}

fn in_folder(folder: &Folder, program: &Path) -> Command {
    let mut command = with_library(program);
    command.current_dir(folder.path());
    command
}

/// What binutils reads in bare CTF.
fn dump(folder: &Folder, name: &str) -> String {
    folder.write("empty.c", "");
    folder.tool("gcc", "-c empty.c");
    folder.tool(
        "objcopy",
        &format!("--add-section .ctf={name} empty.o with.o"),
    );
    folder.tool("objdump", "--ctf=.ctf with.o")
}

#[test]
fn types_are_those_of_libctf() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/types.c");
    let mut libraries = libraries();
    libraries.push("-lctf".to_owned());
    let program = programs::build(programs::cc(), &source, &libraries);
    let folder = objects();
    for object in ["kinds.o", "one.o", "two.o"] {
        let text = stdout(in_folder(&folder, &program).arg(object));
        let count: usize = text.trim().parse().unwrap();
        assert!(count > 10, "{object}: {text}");
    }
}

#[test]
fn a_linker_of_types() {
    let program = programs::build(programs::cc(), &example("link_types.c"), &libraries());
    let folder = objects();
    let mut link = in_folder(&folder, &program);
    let text = stdout(link.args(["out.ctf", "one.o", "two.o", "three.o"]));
    assert!(text.ends_with(" types\n"), "{text}");
    // binutils reads it, and it has each type once.
    let dumped = dump(&folder, "out.ctf");
    let is_common = |line: &&str| {
        let (_, rest) = line.split_once(": ").unwrap_or_default();
        line.starts_with("    0x") && rest.starts_with("(kind 6) struct common (")
    };
    assert_eq!(dumped.lines().filter(is_common).count(), 1, "{dumped}");
    // A part of the types would be linked as if it were all.
    let mut bytes = std::fs::read(folder.join("out.ctf")).unwrap();
    bytes.truncate(bytes.len() - 1);
    std::fs::write(folder.join("cut.ctf"), bytes).unwrap();
    for (input, message) in [
        ("none.o", "cannot read none.o: "),
        ("cut.ctf", "cut.ctf: name of an archive member"),
    ] {
        let ended = in_folder(&folder, &program)
            .args(["again.ctf", input])
            .finish();
        assert!(ended.err.starts_with(message), "{ended}");
        assert_eq!(ended.status.code(), Some(1));
    }
}

/// The plugin is called only if its structure is the program's.
#[test]
fn a_plugin_of_another_version_is_not_called() {
    let folder = Folder::new();
    let compiler = || {
        let mut cc = programs::cc();
        cc.args(["-gctf", "-rdynamic"]);
        cc
    };
    let mut libraries = libraries();
    libraries.push("-ldl".to_owned());
    let program = programs::build(compiler(), &example("check_abi.c"), &libraries);
    for (members, status, said) in [
        ("int kind; long size;", 0, "served 101\n"),
        ("int kind; int flags; long size;", 0, ""),
        ("int kind; int size;", 1, "not called\n"),
        ("long size; int kind;", 1, "not called\n"),
    ] {
        let source = format!(
            "struct request {{ {members} }};\nstruct request last;\nlong serve(const struct request *asked) {{ last = *asked; return asked->size + asked->kind; }}\n"
        );
        folder.write("plugin.c", &source);
        folder.tool("gcc", "-gctf -shared -fPIC plugin.c -o plugin.so");
        let ended = in_folder(&folder, &program).arg("./plugin.so").finish();
        if said.is_empty() {
            // A member in padding changes nothing for those that were built without it, or is reported.
            assert!(
                ended.out.contains("flags") || ended.status.success(),
                "{ended}"
            );
            continue;
        }
        assert!(ended.out.ends_with(said), "{members}: {ended}");
        assert_eq!(ended.status.code(), Some(status), "{members}: {ended}");
    }
}

/// Types that a program makes are read by libctf, and nothing leaks.
#[test]
fn made_types_are_read_by_libctf_and_valgrind_is_silent() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/makes_types.c");
    let mut cc = programs::cc();
    cc.arg("-g");
    let program = programs::build(cc, &source, &libraries());
    let folder = Folder::new();
    let mut valgrind = tool("valgrind");
    valgrind.args([
        "--quiet",
        "--error-exitcode=9",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
    ]);
    valgrind
        .arg(&program)
        .env("LD_LIBRARY_PATH", programs::shared_objects());
    let said = valgrind.current_dir(folder.path()).finish();
    assert_eq!(
        (said.out.as_str(), said.status.code()),
        ("struct point *here\n8 bytes\n", Some(0)),
        "{said}"
    );
    let dumped = dump(&folder, "made.ctf");
    for part in ["struct point", "x:", "y:", "enum side"] {
        assert!(dumped.contains(part), "{part}: {dumped}");
    }
}
