//! Peers of the benchmark `walk` that Debian's current release does not have: built below the
//! target folder.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::run;
use crate::{Error, debian};

/// The release of Debian whose source of libunwind is taken, and the version that it has.
const RELEASE: &str = "trixie";
const LIBUNWIND: &str = "libunwind-1.8.1";

/// Builds them all, or again.
///
/// # Errors
///
/// A file cannot be had or written, or a command is missing or fails.
pub fn build() -> Result<(), Error> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("no workspace")?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = std::path::absolute(target)?.join("bench-peers");
    fs::create_dir_all(&folder)?;
    libunwind(&folder)?;
    unwinding(root, &folder)
}

/// libunwind with a cache for each thread, its fastest form.
fn libunwind(folder: &Path) -> Result<(), Error> {
    let source = folder.join("source");
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    debian::source(&source, RELEASE, "libunwind")?;
    let build = source.join(LIBUNWIND);
    run(Command::new("./configure")
        .args([
            "--quiet",
            "--disable-static",
            "--disable-tests",
            "--disable-documentation",
        ])
        .args([
            "--disable-minidebuginfo",
            "--enable-per-thread-cache",
            "CFLAGS=-O2 -g",
        ])
        .current_dir(&build))?;
    run(Command::new("make")
        .args(["--silent", "-C", "src", "libunwind.la"])
        .current_dir(&build))?;
    let built = build.join("src/.libs/libunwind.so.8");
    fs::copy(built, folder.join("libunwind.so.8"))?;
    Ok(())
}

/// The crate `unwinding`, as a shared library, since its symbols are those of libgcc.
fn unwinding(root: &Path, folder: &Path) -> Result<(), Error> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = folder.join("unwinding");
    run(Command::new(cargo)
        .args(["build", "--quiet", "--release", "--locked", "--target-dir"])
        .arg(&built)
        .current_dir(root.join("bench/unwinding")))?;
    let name = "libunwinding_peer.so";
    fs::copy(built.join("release").join(name), folder.join(name))?;
    Ok(())
}
