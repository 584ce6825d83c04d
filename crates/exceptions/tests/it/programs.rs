//! Compiling the programs in `programs`, and running them with an unwinder.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use unspool_testing::{command, tool};
use xtask::{programs, shared_objects};

/// The shared objects with our unwinder, built once.
pub(crate) fn libraries() -> &'static [PathBuf; 2] {
    static LIBRARIES: OnceLock<[PathBuf; 2]> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let folder = Path::new(SCRATCH).join("shared-objects");
        shared_objects::build(&folder).unwrap();
        shared_objects::build_exceptions(&folder).unwrap();
        ["libunspool-eh.so", "libunwind.so.8"].map(|soname| folder.join(soname))
    })
}

/// The one that has nothing else.
pub(crate) fn library() -> &'static Path {
    let [library, _] = libraries();
    library
}

/// The same as an archive, for programs without a loader.
pub(crate) fn archive() -> PathBuf {
    library().with_file_name("libunspool-eh.a")
}

/// Compiles a program in C++.
pub(crate) fn compile_cxx(source: &str, options: &[&str]) -> PathBuf {
    let options = [&["-O1", "-Wall", "-Werror"], options].concat();
    compile_cxx_by("g++", source, &options)
}

/// The same by any compiler, with no other options.
pub(crate) fn compile_cxx_by(compiler: &str, source: &str, options: &[&str]) -> PathBuf {
    compile_cxx_with(compiler, source, options, &[])
}

/// The same, with libraries behind the source.
pub(crate) fn compile_cxx_with(
    compiler: &str,
    source: &str,
    options: &[&str],
    libraries: &[String],
) -> PathBuf {
    let mut compiler = tool(compiler);
    compiler.arg("-pthread").args(options);
    compile_by(compiler, source, libraries)
}

/// Compiles a program by a command that takes gcc's options for output and libraries.
pub(crate) fn compile_by(compiler: Command, source: &str, libraries: &[String]) -> PathBuf {
    programs::build(compiler, &program(source), libraries, SCRATCH.as_ref()).unwrap()
}

/// The path of a source in the folder of programs.
pub(crate) fn program(source: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    folder.join(source)
}

/// Compiles a program in C.
pub(crate) fn compile_c(source: &str, options: &[&str]) -> PathBuf {
    let mut gcc = tool("gcc");
    gcc.args(["-O1", "-Wall", "-Werror", "-pthread", "-fexceptions"]);
    gcc.args(options);
    compile_by(gcc, source, &[])
}

/// Compiles a program in Rust.
pub(crate) fn compile_rust(source: &str) -> PathBuf {
    let mut rustc = tool("rustc");
    rustc.args(["-O", "--edition=2024"]);
    compile_by(rustc, source, &[])
}

pub(crate) const SCRATCH: &str = env!("CARGO_TARGET_TMPDIR");

/// A program's output and its exit code.
pub(crate) fn run(
    program: &Path,
    arguments: &[&str],
    preloaded: Option<&Path>,
) -> (String, Option<i32>) {
    let mut command = command(program);
    command.args(arguments);
    if let Some(library) = preloaded {
        command.env("LD_PRELOAD", library);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (text, output.status.code())
}
