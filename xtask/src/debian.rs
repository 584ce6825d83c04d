//! Debian's packages and their sources, of releases other than the machine's own.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, packages};

pub mod fresh;

/// Fetches and verifies the source of a package by apt, and unpacks it in a new folder, without
/// Debian's changes.
///
/// # Errors
///
/// It cannot be fetched or written, or a command is missing or fails.
pub fn source(folder: &Path, release: &str, package: &str) -> Result<(), Error> {
    download(folder, release, &["--tar-only", package])?;
    run(Command::new("tar")
        .arg("xf")
        .arg(file(folder, |name| name.contains(".orig.tar"))?)
        .current_dir(folder))
}

/// The same with Debian's changes, unpacked in a subfolder with the package's name.
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

/// Fetches packages and their dependencies by apt, and unpacks them below a new folder. Nothing is
/// installed, and nothing of this machine counts as installed: they include their own C library.
///
/// # Errors
///
/// They cannot be fetched or written, or a command is missing or fails.
pub fn unpack(folder: &Path, release: &str, packages: &[&str]) -> Result<(), Error> {
    unpack_with(folder, release, &[], packages)
}

/// The same for an architecture, by Debian's name of it.
///
/// # Errors
///
/// As [`unpack`].
pub fn unpack_for(
    architecture: &str,
    folder: &Path,
    release: &str,
    packages: &[&str],
) -> Result<(), Error> {
    let options =
        ["Architecture", "Architectures"].map(|option| format!("-oAPT::{option}={architecture}"));
    unpack_with(folder, release, &options, packages)
}

fn unpack_with(
    folder: &Path,
    release: &str,
    options: &[String],
    packages: &[&str],
) -> Result<(), Error> {
    let own = folder.join("apt");
    let apt_get = AptGet::updated(&own, release, "deb", options)?;
    let download = [
        "install",
        "--download-only",
        "--yes",
        "--no-install-recommends",
    ];
    apt_get.run(&[&download[..], packages].concat())?;
    for entry in fs::read_dir(own.join("archives"))? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("deb")) {
            run(Command::new("dpkg-deb").arg("-x").arg(path).arg(folder))?;
        }
    }
    Ok(fs::remove_dir_all(own)?)
}

/// Unpacks one package in a folder, without its dependencies.
///
/// # Errors
///
/// As [`unpack`].
pub fn unpack_alone(folder: &Path, release: &str, package: &str) -> Result<(), Error> {
    AptGet::updated(folder, release, "deb", &[])?.run(&["download", package])?;
    let begin = format!("{package}_");
    let is_package = |name: &str| name.starts_with(&begin) && name.ends_with(".deb");
    run(Command::new("dpkg-deb")
        .arg("-x")
        .arg(file(folder, is_package)?)
        .arg(folder))
}

fn download(folder: &Path, release: &str, what: &[&str]) -> Result<(), Error> {
    let apt_get = AptGet::updated(folder, release, "deb-src", &[])?;
    apt_get.run(&[&["source", "--download-only"], what].concat())
}

/// apt-get with its own lists in a folder: it does not change the machine's.
struct AptGet<'a> {
    folder: &'a Path,
    options: Vec<String>,
}

impl<'a> AptGet<'a> {
    /// Fetches the list of a release's packages (`deb`) or sources (`deb-src`).
    fn updated(
        folder: &'a Path,
        release: &str,
        kind: &str,
        more_options: &[String],
    ) -> Result<Self, Error> {
        for part in ["parts", "lists/partial", "archives/partial"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let list = format!(
            "Types: {kind}\nURIs: {}\nSuites: {release}\nComponents: main\n\
             Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n",
            mirror()?
        );
        fs::write(folder.join("parts/source.sources"), list)?;
        fs::write(folder.join("status"), "")?;
        let option = |name: &str, value: &Path| format!("-o{name}={}", value.display());
        let mut apt_get = Self {
            folder,
            options: vec![
                "--quiet".to_owned(),
                option("Dir::Etc::SourceList", Path::new("/dev/null")),
                option("Dir::Etc::SourceParts", &folder.join("parts")),
                option("Dir::State::Lists", &folder.join("lists")),
                option("Dir::State::Status", &folder.join("status")),
                option("Dir::Cache", folder),
            ],
        };
        apt_get.options.extend_from_slice(more_options);
        apt_get.run(&["update"])?;
        Ok(apt_get)
    }

    fn run(&self, arguments: &[&str]) -> Result<(), Error> {
        let mut command = Command::new("apt-get");
        run(command
            .args(&self.options)
            .args(arguments)
            .current_dir(self.folder))
    }
}

/// Makes a root of a release with the essential packages and those included, separated by commas:
/// an archive if the path ends in `.tar`, else a folder.
///
/// # Errors
///
/// mmdebstrap is missing or fails.
pub fn bootstrap(root: &Path, release: &str, includes: &str) -> Result<(), Error> {
    run(Command::new(packages::path("/usr/bin/mmdebstrap")?)
        .args(["--variant=minbase", "--quiet"])
        .arg(format!("--include={includes}"))
        .arg(release)
        .args([root.as_os_str(), mirror()?.as_ref()]))
}

/// The package mirror of this machine.
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
/// It is missing or fails.
pub fn run(command: &mut Command) -> Result<(), Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .map_err(|error| format!("cannot run {name}: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{name}: {status}").into())
    }
}
