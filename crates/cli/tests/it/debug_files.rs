//! Separate debug files in the cache of debuginfod clients: all commands that need such files find
//! them.

use std::fs;
use std::path::{Path, PathBuf};

use unspool_testing::{Finish as _, tool};

use crate::harness;

/// A function with a `push` that no directive describes, and a program that calls it.
const WRONG: &str = "\
\t.globl\tf
\t.type\tf, @function
f:
\t.cfi_startproc
\tpush\t%rbx
\tmov\t%edi, %eax
\tpop\t%rbx
\tret
\t.cfi_endproc
\t.size\tf, . - f
\t.section .note.GNU-stack,\"\",@progbits
";
const PROGRAM: &str = "struct pair { int a; long b; };\nint f(int);\nvoid abort(void);\n\
    static __attribute__((noinline)) void fails(volatile int number) { if (number) abort(); }\n\
    int main(int count, char **words) { struct pair pair = { 0, 1 }; fails(count > 1 ? 4711 : 0); return f(pair.a); }\n";

fn run_tool(path: &str, arguments: &[&str], folder: &Path) {
    tool(path).args(arguments).current_dir(folder).succeed();
}

/// Builds `program`, and moves its debugging information to the cache.
fn build(folder: &Path) -> PathBuf {
    fs::write(folder.join("f.s"), WRONG).unwrap();
    fs::write(folder.join("main.c"), PROGRAM).unwrap();
    let build_id = format!("{:040x}", 0x5eed);
    let option = format!("-Wl,--build-id=0x{build_id}");
    let arguments = ["-g", &option, "-o", "program", "main.c", "f.s"];
    run_tool("/usr/bin/gcc", &arguments, folder);
    let cache = folder.join("cache");
    let own = cache.join(build_id);
    fs::create_dir_all(&own).unwrap();
    let debug = own.join("debuginfo");
    let debug = ["--only-keep-debug", "program", debug.to_str().unwrap()];
    run_tool("/usr/bin/objcopy", &debug, folder);
    run_tool("/usr/bin/objcopy", &["--strip-all", "program"], folder);
    cache
}

/// The results and messages of `unspool`, with a cache.
fn unspool(folder: &Path, cache: &Path, arguments: &[&str]) -> String {
    harness::unspool_in(folder, arguments)
        .env("DEBUGINFOD_CACHE_PATH", cache)
        .env("HOME", folder)
        .finish()
        .all()
}

#[test]
fn the_cache_of_debuginfod_is_looked_into() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let cache = build(folder);
    let none = folder.join("none");
    for (arguments, found) in [
        // Line numbers show that it is hand-written, and where.
        (&["check", "program"][..], "f.s:6: refuted CFI001 "),
        (&["check", "--strict", "program"], ": in f+0x1"),
        (
            &["check", "--run", "--", "./program"],
            "f.s:6: refuted CFI001 ",
        ),
        (
            &["check", "--run", "--function", "f", "--", "./program"],
            "1 of 1 functions called",
        ),
    ] {
        let said = unspool(folder, &cache, arguments);
        assert!(
            said.contains(found),
            "{arguments:?}: `{found}` is not in:\n{said}"
        );
        let without = unspool(folder, &none, arguments);
        assert!(!without.contains(found), "{arguments:?}:\n{without}");
    }
    let from_dwarf = ["ctf", "from-dwarf", "program", "-o", "types.ctf"];
    unspool(folder, &none, &from_dwarf);
    assert!(!folder.join("types.ctf").exists());
    unspool(folder, &cache, &from_dwarf);
    let pair = unspool(folder, &none, &["ctf", "type", "struct pair", "types.ctf"]);
    assert!(pair.contains("int a;"), "{pair}");
    let stack = ["stack", "--args", "--no-cache", "--", "./program", "x"];
    for (cache, is_known) in [(&none, false), (&cache, true)] {
        let said = unspool(folder, cache, &stack);
        assert!(said.contains("abort"), "{said}");
        // The argument, from the argument table; debug information alone has the current value.
        assert_eq!(said.contains("count: int = 2\n"), is_known, "{said}");
    }
}
