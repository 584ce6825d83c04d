//! Small programs built for the tests, and other tools' results for them.
#![allow(dead_code, reason = "the tests of `unspool-symbols` use the rest")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use unspool_testing::{Finish as _, tool};

/// A fresh directory for the files of one test.
pub(crate) fn directory(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Compiles C source text with these arguments.
pub(crate) fn compile(directory: &Path, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    compile_with("gcc", "c", directory, name, source, arguments)
}

/// Compiles C++ source text with these arguments.
pub(crate) fn compile_cxx(
    directory: &Path,
    name: &str,
    source: &str,
    arguments: &[&str],
) -> PathBuf {
    compile_with("g++", "cc", directory, name, source, arguments)
}

fn compile_with(
    compiler: &str,
    extension: &str,
    directory: &Path,
    name: &str,
    source: &str,
    arguments: &[&str],
) -> PathBuf {
    let path = directory.join(name);
    let text = directory.join(format!("{name}.{extension}"));
    fs::write(&text, source).unwrap();
    let mut compiler = tool(compiler);
    compiler
        .arg("-o")
        .args([&path, &text])
        .args(arguments)
        .succeed();
    path
}

/// Runs a program of binutils.
pub(crate) fn binutils<A: AsRef<OsStr>>(
    name: &str,
    arguments: impl IntoIterator<Item = A>,
) -> String {
    tool(name).args(arguments).succeed()
}

/// The files of a program with a build ID.
pub(crate) struct Stripped {
    /// With symbols and debug information.
    pub whole: PathBuf,
    /// Without.
    pub stripped: PathBuf,
    /// The stripped symbols and debug information.
    pub debug: PathBuf,
}

/// Builds [`PROGRAM`], and strips it.
pub(crate) fn strip(directory: &Path) -> Stripped {
    let flags = ["-O1", "-g", "-Wl,--build-id=sha1"];
    let whole = compile(directory, "whole", PROGRAM, &flags);
    let copy = |option: &str, name: &str| {
        let to = directory.join(name);
        binutils(
            "objcopy",
            [option.as_ref(), whole.as_os_str(), to.as_os_str()],
        );
        to
    };
    Stripped {
        stripped: copy("--strip-all", "stripped"),
        debug: copy("--only-keep-debug", "debug"),
        whole,
    }
}

/// A program of three functions and an inlined one. It includes nothing, so that it also compiles
/// for 32 bits if only the headers for 64 are installed.
pub(crate) const PROGRAM: &str = "\
int printf(const char *, ...);
int puts(const char *);
int abs(int);
static inline __attribute__((always_inline)) int twice(int n)
{
    return printf(\"%d\", n) * 2;
}
__attribute__((noinline)) int outer(int n)
{
    int m = twice(n) + 1;
    return m * puts(\"x\");
}
__attribute__((noinline)) static int local(int n)
{
    return outer(n) - 1;
}
int main(int argc, char **argv)
{
    (void)argv;
    return local(argc) + local(2) + abs(argc);
}
";
