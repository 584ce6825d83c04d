//! Compiling and running the C programs in `programs`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use xtask::packages;

/// Compiles one against libunwind's headers.
pub(crate) fn compile(source: &str) -> PathBuf {
    packages::path("/usr/include/x86_64-linux-gnu/libunwind.h").unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/libunwind/programs");
    let program = scratch(source.trim_end_matches(".c"));
    let gcc = packages::path("/usr/bin/gcc").unwrap();
    let status = Command::new(gcc)
        .args(["-O1", "-Wall", "-Werror", "-pthread", "-D_GNU_SOURCE", "-o"])
        .arg(&program)
        .arg(folder.join(source))
        .status();
    assert!(status.unwrap().success(), "{source} does not compile");
    program
}

/// A path that nobody else uses.
pub(crate) fn scratch(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{name}-{}-{count}", std::process::id());
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// What a command prints; it must succeed.
pub(crate) fn stdout(command: &mut Command) -> String {
    let Output { status, stdout, .. } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {status}");
    String::from_utf8(stdout).unwrap()
}
