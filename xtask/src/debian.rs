//! Sources of Debian's packages, of releases other than the machine's own.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// Has apt fetch and check the source of a package, and unpacks it in a folder, which is made: as its authors released it.
///
/// # Errors
///
/// It cannot be had or written, or a command is missing or fails.
pub fn source(folder: &Path, release: &str, package: &str) -> Result<(), Error> {
    download(folder, release, &["--tar-only", package])?;
    run(Command::new("tar")
        .arg("xf")
        .arg(file(folder, |name| name.contains(".orig.tar"))?)
        .current_dir(folder))
}

/// The same with Debian's changes, unpacked in the folder's folder of the package's name.
///
/// # Errors
///
/// As [`source`].
pub fn patched_source(folder: &Path, release: &str, package: &str) -> Result<(), Error> {
    download(folder, release, &[package])?;
    let begin = format!("{package}_");
    let is_description = |name: &str| name.starts_with(&begin) && name.ends_with(".dsc");
    run(Command::new("dpkg-source")
        .args(["--no-check", "-x"])
        .arg(file(folder, is_description)?)
        .arg(package)
        .current_dir(folder))
}

/// Does not touch the machine's own list of packages.
fn download(folder: &Path, release: &str, what: &[&str]) -> Result<(), Error> {
    for part in ["parts", "lists/partial"] {
        fs::create_dir_all(folder.join(part))?;
    }
    let list = format!(
        "Types: deb-src\nURIs: {}\nSuites: {release}\nComponents: main\n\
         Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n",
        mirror()?
    );
    fs::write(folder.join("parts/source.sources"), list)?;
    let option = |name: &str, value: &Path| format!("-o{name}={}", value.display());
    let options = [
        "--quiet".to_owned(),
        option("Dir::Etc::SourceList", Path::new("/dev/null")),
        option("Dir::Etc::SourceParts", &folder.join("parts")),
        option("Dir::State::Lists", &folder.join("lists")),
        option("Dir::Cache", folder),
    ];
    let apt_get = || {
        let mut command = Command::new("apt-get");
        command.args(&options).current_dir(folder);
        command
    };
    run(apt_get().arg("update"))?;
    run(apt_get().args(["source", "--download-only"]).args(what))
}

/// Where this machine has its packages from.
pub(crate) fn mirror() -> Result<String, Error> {
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI)"])
        .args(["Created-By: Packages", "Label: Debian"])
        .output()
        .map_err(|error| format!("cannot run apt-get: {error}"))?;
    let text = String::from_utf8(output.stdout)?;
    let mirror = text.lines().next();
    Ok(mirror.ok_or("apt knows no mirror of Debian")?.to_owned())
}

fn file(folder: &Path, is_it: impl Fn(&str) -> bool) -> Result<PathBuf, Error> {
    let has_name = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str);
        name.is_some_and(&is_it)
    };
    let mut paths = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let found = paths.find(has_name);
    Ok(found.ok_or("apt-get has not fetched what was asked for")?)
}

/// Runs a command.
///
/// # Errors
///
/// It is missing, or fails.
pub fn run(command: &mut Command) -> Result<(), Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .map_err(|error| format!("cannot run {name}: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{name}: {status}").into()),
    }
}
