//! Small programs built for the tests, and other tools' opinions of them.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot be set up fails, and not every test uses everything"
)]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A fresh directory for the files of one test.
pub fn directory(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Runs a tool and returns what it prints; `package` is the Debian package that has it.
pub fn run<A: AsRef<OsStr>>(
    tool: &str,
    package: &str,
    arguments: impl IntoIterator<Item = A>,
) -> String {
    let mut command = Command::new(tool);
    command.args(arguments);
    let output = command.output().unwrap_or_else(|error| {
        panic!("cannot run {tool} ({error}): install the package {package}")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Compiles C source text with these arguments.
pub fn compile(directory: &Path, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    compile_with("gcc", "gcc", "c", directory, name, source, arguments)
}

/// Compiles C++ source text with these arguments.
pub fn compile_cxx(directory: &Path, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    compile_with("g++", "g++", "cc", directory, name, source, arguments)
}

fn compile_with(
    compiler: &str,
    package: &str,
    extension: &str,
    directory: &Path,
    name: &str,
    source: &str,
    arguments: &[&str],
) -> PathBuf {
    let path = directory.join(name);
    let text = directory.join(format!("{name}.{extension}"));
    fs::write(&text, source).unwrap();
    let fixed = [OsStr::new("-o"), path.as_os_str(), text.as_os_str()];
    run(
        compiler,
        package,
        fixed.into_iter().chain(arguments.iter().map(OsStr::new)),
    );
    path
}

/// Runs a program of binutils.
pub fn binutils<A: AsRef<OsStr>>(tool: &str, arguments: impl IntoIterator<Item = A>) -> String {
    run(tool, "binutils", arguments)
}

/// The files of a program with a build ID.
pub struct Stripped {
    /// With symbols and debug information.
    pub whole: PathBuf,
    /// Without.
    pub stripped: PathBuf,
    /// What was stripped.
    pub debug: PathBuf,
}

/// Builds [`PROGRAM`], and strips it.
pub fn strip(directory: &Path) -> Stripped {
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

/// A number as binutils print it: hexadecimal, with or without `0x`.
pub fn hex(digits: &str) -> u64 {
    u64::from_str_radix(digits.trim_start_matches("0x"), 16).unwrap()
}

/// A program of three functions and one that is inlined. It includes nothing, so that it also
/// compiles for 32 bits where only the headers for 64 are installed.
pub const PROGRAM: &str = "\
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
