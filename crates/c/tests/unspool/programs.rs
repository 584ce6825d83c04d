//! Compiling and running programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use xtask::{capi, packages};

/// The folder of our shared objects, which are built once.
pub(crate) fn shared_objects() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unspool");
        capi::build_own(&folder).unwrap();
        folder
    })
}

/// What `pkg-config` says of the library.
pub(crate) fn pkg_config() -> Vec<String> {
    let mut command = Command::new(packages::path("/usr/bin/pkg-config").unwrap());
    command
        .env("PKG_CONFIG_PATH", shared_objects().join("pkgconfig"))
        .args(["--cflags", "--libs", "unspool"]);
    let text = stdout(&mut command);
    text.split_whitespace().map(str::to_owned).collect()
}

/// The option that leads a compiler to our header.
pub(crate) fn include() -> String {
    format!("-I{}", shared_objects().join("include").display())
}

/// A C compiler with all warnings.
pub(crate) fn cc() -> Command {
    let mut command = Command::new(packages::path("/usr/bin/gcc").unwrap());
    command.args(["-Wall", "-Wextra", "-Werror", "-pthread"]);
    command
}

/// The same for C++.
pub(crate) fn cxx() -> Command {
    let mut command = Command::new(packages::path("/usr/bin/g++").unwrap());
    command.args(["-Wall", "-Wextra", "-Werror", "-pthread"]);
    command
}

/// A program of this folder.
pub(crate) fn compile(source: &str, options: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unspool/programs");
    let mut command = cc();
    command.args(options);
    build(command, &folder.join(source), &[])
}

/// Compiles and links a source with `libraries` behind it.
pub(crate) fn build(mut compiler: Command, source: &Path, libraries: &[String]) -> PathBuf {
    let program = scratch(source.file_stem().unwrap().to_str().unwrap());
    compiler.arg("-o").arg(&program).arg(source).args(libraries);
    assert!(compiler.status().unwrap().success(), "{compiler:?}");
    program
}

/// A path that nobody else uses.
pub(crate) fn scratch(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{name}-{}-{count}", std::process::id());
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A command that runs a program with our library.
pub(crate) fn with_library(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", shared_objects());
    command
}

/// What a command prints; it must succeed.
pub(crate) fn stdout(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let stdout = String::from_utf8(stdout).unwrap();
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(
        status.success(),
        "{command:?}: {status}\n{stdout}\n{stderr}"
    );
    stdout
}
