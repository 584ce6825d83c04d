//! Peers of the benchmark `walk` that Debian's current release does not have: built below the
//! target folder.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

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
    fs::create_dir_all(&source)?;
    download(&source)?;
    run(Command::new("tar")
        .arg("xf")
        .arg(archive(&source)?)
        .current_dir(&source))?;
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

/// Has apt fetch and check the source, without touching the machine's own list of packages.
fn download(source: &Path) -> Result<(), Error> {
    for part in ["parts", "lists/partial"] {
        fs::create_dir_all(source.join(part))?;
    }
    let list = format!(
        "Types: deb-src\nURIs: {}\nSuites: {RELEASE}\nComponents: main\n\
         Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n",
        mirror()?
    );
    fs::write(source.join("parts/source.sources"), list)?;
    let option = |name: &str, value: &Path| format!("-o{name}={}", value.display());
    let options = [
        "--quiet".to_owned(),
        option("Dir::Etc::SourceList", Path::new("/dev/null")),
        option("Dir::Etc::SourceParts", &source.join("parts")),
        option("Dir::State::Lists", &source.join("lists")),
        option("Dir::Cache", source),
    ];
    let apt_get = || {
        let mut command = Command::new("apt-get");
        command.args(&options).current_dir(source);
        command
    };
    run(apt_get().arg("update"))?;
    run(apt_get().args(["source", "--download-only", "--tar-only", "libunwind"]))
}

/// Where this machine has its packages from.
fn mirror() -> Result<String, Error> {
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI)"])
        .args(["Created-By: Packages", "Label: Debian"])
        .output()
        .map_err(|error| format!("cannot run apt-get: {error}"))?;
    let text = String::from_utf8(output.stdout)?;
    let mirror = text.lines().next();
    Ok(mirror.ok_or("apt knows no mirror of Debian")?.to_owned())
}

fn archive(source: &Path) -> Result<PathBuf, Error> {
    let is_archive = |path: &PathBuf| path.to_string_lossy().contains(".orig.tar");
    let mut paths = fs::read_dir(source)?.flatten().map(|entry| entry.path());
    Ok(paths
        .find(is_archive)
        .ok_or("apt-get has fetched no archive")?)
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

fn run(command: &mut Command) -> Result<(), Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .map_err(|error| format!("cannot run {name}: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{name}: {status}").into()),
    }
}
