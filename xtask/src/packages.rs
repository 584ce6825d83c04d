//! The Debian packages that tests and tasks need beside a Rust toolchain.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// A file that a test or a task needs, and the Debian package that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needed {
    /// Where it is.
    pub file: &'static str,
    /// The package.
    pub package: &'static str,
}

/// Everything that tests and tasks need. `cargo xtask setup` installs what is missing.
pub const NEEDED: &[Needed] = &[
    needed("/usr/bin/readelf", "binutils"),
    needed("/usr/bin/as", "binutils"),
    needed("/usr/bin/gdb", "gdb"),
    needed("/lib64/ld-linux-x86-64.so.2", "libc6"),
    needed("/lib/x86_64-linux-gnu/libc.so.6", "libc6"),
    needed("/usr/lib/x86_64-linux-gnu/libgcrypt.so.20", "libgcrypt20"),
    needed("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "libstdc++6"),
    needed("/usr/lib/x86_64-linux-gnu/libc.a", "libc6-dev"),
    needed("/usr/lib/x86_64-linux-gnu/crti.o", "libc6-dev"),
    needed("/usr/lib32/libc.so.6", "libc6-i386"),
    needed("/usr/lib32/libstdc++.so.6", "lib32stdc++6"),
    needed(
        "/usr/arm-linux-gnueabihf/lib/libc.so.6",
        "libc6-armhf-cross",
    ),
    needed(
        "/usr/bin/arm-linux-gnueabihf-as",
        "binutils-arm-linux-gnueabihf",
    ),
    needed("/usr/aarch64-linux-gnu/lib/libc.so.6", "libc6-arm64-cross"),
    needed(
        "/usr/aarch64-linux-gnu/lib/libstdc++.so.6",
        "libstdc++6-arm64-cross",
    ),
    needed(
        "/usr/bin/aarch64-linux-gnu-as",
        "binutils-aarch64-linux-gnu",
    ),
];

const fn needed(file: &'static str, package: &'static str) -> Needed {
    Needed { file, package }
}

/// The path of a file of [`NEEDED`].
///
/// # Errors
///
/// It is missing, or not of [`NEEDED`]; the message says what to do.
pub fn path(file: &str) -> Result<PathBuf, Error> {
    let needed = NEEDED.iter().find(|needed| needed.file == file);
    let needed = needed.ok_or_else(|| format!("{file} is not listed in xtask/src/packages.rs"))?;
    match Path::new(file).exists() {
        true => Ok(PathBuf::from(file)),
        false => {
            let package = needed.package;
            Err(format!("{file} is missing (package {package}): run `cargo xtask setup`").into())
        }
    }
}

/// The packages of [`NEEDED`] that are missing, each once.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    let mut missing: Vec<&str> = NEEDED
        .iter()
        .filter(|needed| !Path::new(needed.file).exists())
        .map(|needed| needed.package)
        .collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// Installs what is missing, as root or with `sudo`.
///
/// # Errors
///
/// `apt-get` cannot be run or fails, or a file is still missing after it.
pub fn setup(out: &mut impl Write) -> Result<(), Error> {
    let packages = missing();
    if packages.is_empty() {
        writeln!(out, "nothing is missing")?;
        return Ok(());
    }
    writeln!(out, "installing {}", packages.join(" "))?;
    out.flush()?;
    let mut command = match is_root()? {
        true => Command::new("apt-get"),
        false => {
            let mut sudo = Command::new("sudo");
            sudo.arg("apt-get");
            sudo
        }
    };
    command
        .args(["install", "--yes", "--no-install-recommends"])
        .args(&packages);
    let status = command.status().map_err(|error| {
        let program = command.get_program().to_string_lossy().into_owned();
        format!(
            "cannot run {program}: {error}; install by hand: {}",
            packages.join(" ")
        )
    })?;
    if !status.success() {
        return Err(format!("apt-get failed ({status}); is `apt-get update` due?").into());
    }
    match NEEDED
        .iter()
        .find(|needed| !Path::new(needed.file).exists())
    {
        None => Ok(()),
        Some(Needed { file, package }) => {
            Err(format!("package {package} is installed, but does not have {file}").into())
        }
    }
}

fn is_root() -> Result<bool, Error> {
    let id = Command::new("id").arg("-u").output()?;
    Ok(id.stdout.trim_ascii() == b"0")
}
