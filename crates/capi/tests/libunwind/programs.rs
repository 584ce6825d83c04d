//! Compiling and running the C programs in `programs`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use xtask::{capi, packages};

/// The folder of our shared objects, which are built once.
pub(crate) fn shared_objects() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shared-objects");
        capi::build(&folder).unwrap();
        folder
    })
}

/// Compiles one against libunwind's headers.
pub(crate) fn compile(source: &str) -> PathBuf {
    compile_with(source, &[])
}

/// Does so with more options.
pub(crate) fn compile_with(source: &str, options: &[&str]) -> PathBuf {
    packages::path("/usr/include/x86_64-linux-gnu/libunwind.h").unwrap();
    let mut gcc = Command::new(packages::path("/usr/bin/gcc").unwrap());
    gcc.args(["-O1", "-Wall", "-Werror", "-pthread", "-D_GNU_SOURCE"]);
    gcc.args(options);
    build(gcc, source)
}

/// Compiles one in C++.
pub(crate) fn compile_cxx(source: &str) -> PathBuf {
    let mut gxx = Command::new(packages::path("/usr/bin/g++").unwrap());
    gxx.args(["-O1", "-Wall", "-Werror", "-pthread", "-rdynamic"]);
    build(gxx, source)
}

/// Compiles one in Rust.
pub(crate) fn compile_rust(source: &str) -> PathBuf {
    let mut rustc = Command::new("rustc");
    rustc.args(["-O", "--edition=2024"]);
    build(rustc, source)
}

fn build(mut compiler: Command, source: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/libunwind/programs");
    let (name, _) = source.split_once('.').unwrap();
    let program = scratch(name);
    compiler.arg("-o").arg(&program).arg(folder.join(source));
    assert!(
        compiler.status().unwrap().success(),
        "{source} does not compile"
    );
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
