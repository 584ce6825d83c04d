//! Peers of benchmarks that Debian's current release does not have, built below the target folder.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, debian};

/// The Debian release of the libunwind source, and its version.
const RELEASE: &str = "trixie";
const LIBUNWIND: &str = "libunwind-1.8.1";

/// Debian's next release, its unpacked packages, and their commands.
const NEXT: &str = "sid";
const PACKAGES: [&str; 3] = ["linux-perf", "gdb", "elfutils"];
const COMMANDS: [&str; 4] = ["perf", "gdb", "eu-stack", "eu-stackprof"];

/// Runs the task.
///
/// # Errors
///
/// An argument is unknown, a file cannot be fetched or written, or a command is missing or fails.
pub fn run(
    mut arguments: impl Iterator<Item = OsString>,
    out: &mut impl Write,
) -> Result<(), Error> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("no workspace")?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = std::path::absolute(target)?.join("bench-peers");
    fs::create_dir_all(&folder)?;
    match (arguments.next(), arguments.next()) {
        (None, _) => {
            libunwind(&folder)?;
            unwinding(root, &folder)
        }
        (Some(option), None) if option == "--next" => next(&folder.join("next"), out),
        _ => Err("no argument is taken but --next".into()),
    }
}

/// The newest perf, gdb and elfutils: in a separate folder with all their libraries.
fn next(folder: &Path, out: &mut impl Write) -> Result<(), Error> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    debian::unpack(folder, NEXT, &PACKAGES)?;
    let commands = folder.join("commands");
    fs::create_dir(&commands)?;
    for name in COMMANDS {
        let path = commands.join(name);
        fs::write(&path, starter(folder, name))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        let output = Command::new(&path).arg("--version").output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("{name} does not start: {}", text.trim_end()).into());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        writeln!(out, "{}", text.lines().next().unwrap_or_default())?;
    }
    writeln!(out, "PATH={}:$PATH", commands.display())?;
    Ok(())
}

/// A script that starts a command by its own loader with its own libraries. Its child processes use
/// the machine's libraries, since the environment does not change.
fn starter(folder: &Path, name: &str) -> String {
    let data = match name {
        "gdb" => " --data-directory=\"$root/usr/share/gdb\"",
        _ => "",
    };
    format!(
        "#!/bin/sh\nroot='{}'\nexec \"$root/usr/lib64/ld-linux-x86-64.so.2\" \
         --library-path \"$root/usr/lib/x86_64-linux-gnu\" \"$root/usr/bin/{name}\"{data} \"$@\"\n",
        folder.display()
    )
}

/// libunwind with per-thread caches, its fastest configuration.
fn libunwind(folder: &Path) -> Result<(), Error> {
    let source = folder.join("source");
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    debian::source(&source, RELEASE, "libunwind")?;
    let build = source.join(LIBUNWIND);
    debian::run(
        Command::new("./configure")
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
            .current_dir(&build),
    )?;
    debian::run(
        Command::new("make")
            .args(["--silent", "-C", "src", "libunwind.la"])
            .current_dir(&build),
    )?;
    let built = build.join("src/.libs/libunwind.so.8");
    fs::copy(built, folder.join("libunwind.so.8"))?;
    Ok(())
}

/// The crate `unwinding`, as a shared library, since it has the symbols of libgcc.
fn unwinding(root: &Path, folder: &Path) -> Result<(), Error> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = folder.join("unwinding");
    debian::run(
        Command::new(cargo)
            .args(["build", "--quiet", "--release", "--locked", "--target-dir"])
            .arg(&built)
            .current_dir(root.join("bench/unwinding")),
    )?;
    let name = "libunwinding_peer.so";
    fs::copy(built.join("release").join(name), folder.join(name))?;
    Ok(())
}
