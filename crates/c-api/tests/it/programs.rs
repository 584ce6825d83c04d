//! Compiling and running programs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use unspool_testing::{Finish as _, command, is_thorough, tool};
use xtask::programs;
use xtask::shared_objects::{self, Build, Profile};

/// The folder of our shared objects, built once.
pub(crate) fn shared_objects() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(SCRATCH).join("unspool");
        shared_objects::build_unspool(&folder).unwrap();
        folder
    })
}

/// The output of `pkg-config` for the library.
pub(crate) fn pkg_config() -> Vec<String> {
    pkg_config_of("unspool")
}

/// The output for any library.
pub(crate) fn pkg_config_of(library: &str) -> Vec<String> {
    let mut command = tool("pkg-config");
    command
        .env("PKG_CONFIG_PATH", shared_objects().join("pkgconfig"))
        .args(["--cflags", "--libs", library]);
    let text = stdout(&mut command);
    text.split_whitespace().map(str::to_owned).collect()
}

/// The folder of our shared objects, with those for variables and types, which are built once, too. They have half of the workspace
/// in them, and are shipped with that optimized as a whole, which takes minutes.
pub(crate) fn with_std() -> &'static Path {
    static FOLDER: OnceLock<&Path> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = shared_objects();
        let profile = if is_thorough() {
            Profile::Shipped
        } else {
            Profile::Tests
        };
        let build = Build {
            profile,
            ..Build::default()
        };
        build.variables(folder).unwrap();
        build.types(folder).unwrap();
        folder
    })
}

/// The compiler option for our header's folder.
pub(crate) fn include() -> String {
    format!("-I{}", shared_objects().join("include").display())
}

/// A C compiler with all warnings.
pub(crate) fn cc() -> Command {
    let mut command = tool("gcc");
    command.args(["-Wall", "-Wextra", "-Werror", "-pthread"]);
    command
}

/// The same for C++.
pub(crate) fn cxx() -> Command {
    let mut command = tool("g++");
    command.args(["-Wall", "-Wextra", "-Werror", "-pthread"]);
    command
}

/// A program of this folder.
pub(crate) fn compile(source: &str, options: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let mut command = cc();
    command.args(options);
    build(command, &folder.join(source), &[])
}

/// Compiles and links a source, followed by `libraries`.
pub(crate) fn build(compiler: Command, source: &Path, libraries: &[String]) -> PathBuf {
    programs::build(compiler, source, libraries, SCRATCH.as_ref()).unwrap()
}

const SCRATCH: &str = env!("CARGO_TARGET_TMPDIR");

/// A unique path.
pub(crate) fn scratch(name: &str) -> PathBuf {
    unspool_testing::scratch(SCRATCH.as_ref(), name)
}

/// A command that runs a program with our library.
pub(crate) fn with_library(program: &Path) -> Command {
    let mut command = command(program);
    command.env("LD_LIBRARY_PATH", shared_objects());
    command
}

/// The output of a command, which must succeed.
pub(crate) fn stdout(command: &mut Command) -> String {
    command.succeed()
}
