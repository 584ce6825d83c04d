//! Compiling and running the C programs in `programs`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use unspool_testing::{Finish as _, packages, tool};
use xtask::{programs, shared_objects};

/// The folder of our shared objects, built once.
pub(crate) fn shared_objects() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(SCRATCH).join("shared-objects");
        shared_objects::build(&folder).unwrap();
        folder
    })
}

/// Compiles a program with libunwind's headers.
pub(crate) fn compile(source: &str) -> PathBuf {
    compile_with(source, &[])
}

/// The same with more options.
pub(crate) fn compile_with(source: &str, options: &[&str]) -> PathBuf {
    let headers = packages::libunwind_headers().unwrap();
    let mut gcc = tool("gcc");
    gcc.arg("-I").arg(headers);
    gcc.args(["-O1", "-Wall", "-Werror", "-pthread", "-D_GNU_SOURCE"]);
    gcc.args(options);
    build(gcc, source)
}

/// Compiles a program in C++.
pub(crate) fn compile_cxx(source: &str) -> PathBuf {
    compile_cxx_with(source, &["-rdynamic"])
}

/// The same with other options.
pub(crate) fn compile_cxx_with(source: &str, options: &[&str]) -> PathBuf {
    let headers = packages::libunwind_headers().unwrap();
    let mut gxx = tool("g++");
    gxx.arg("-I").arg(headers);
    gxx.args(["-O1", "-Wall", "-Werror", "-pthread"]);
    gxx.args(options);
    build(gxx, source)
}

fn build(compiler: Command, source: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    programs::build(compiler, &folder.join(source), &[], SCRATCH.as_ref()).unwrap()
}

/// The minor version of Debian's libunwind 1.
pub(crate) fn libunwind_minor_version() -> u32 {
    packages::libunwind_minor_version().unwrap()
}

/// What a program's lines and Debian's library should agree about: all, up to version 1.6. Since
/// version 1.8 the names of functions in libraries may be those of debug files.
pub(crate) fn without_debug_names(text: &str) -> String {
    if libunwind_minor_version() < 8 {
        return text.to_owned();
    }
    let line = |line: &str| {
        let is_of_library = line.contains("info=0:7f");
        let words = line.split_whitespace();
        let words = words.filter(|word| !is_of_library || !word.starts_with("name="));
        words.collect::<Vec<_>>().join(" ") + "\n"
    };
    text.lines().map(line).collect()
}

const SCRATCH: &str = env!("CARGO_TARGET_TMPDIR");

/// A unique path.
pub(crate) fn scratch(name: &str) -> PathBuf {
    unspool_testing::scratch(SCRATCH.as_ref(), name)
}

/// The output of a command, which must succeed.
pub(crate) fn stdout(command: &mut Command) -> String {
    command.succeed()
}
