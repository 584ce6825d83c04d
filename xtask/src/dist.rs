//! The files of a release, for x86-64: the command and the libraries, each as an archive and as
//! Debian packages.

mod deb;
mod glibc;
mod roots;
mod third_party;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::run as run_command;
use crate::{Error, packages, shared_objects};
use third_party::Closure;

/// The help of `cargo xtask dist`.
pub const HELP: &str = "\
usage: cargo xtask dist [--try]

Builds what a release has to install, for x86-64 Linux with glibc 2.28 or later, into the folder
`distribution` of the target folder:

  unspool-VERSION-x86_64-linux-gnu.tar.gz     the command, its manual pages and completions
  libunspool-VERSION-x86_64-linux-gnu.tar.gz  the shared objects and headers of docs/api.md, docs/libunwind.md
  *.deb                                       the same, for Debian and what is made of it
  SHA256SUMS

Each has the licences of what it contains, and a list of that (an SBOM in CycloneDX). The linker is given
the names and versions of glibc 2.28, which zig has (from PyPI); readelf looks at the result.

  --try  then install the packages in fresh roots of Debian 11, 12 and 13, run what they bring, and remove
         them: what is left is an error. As root
";

/// The version of the release.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The options of `cargo xtask dist`.
#[derive(Debug)]
pub struct Options {
    is_tried: bool,
}

impl Options {
    /// Parses the arguments.
    ///
    /// # Errors
    ///
    /// An argument is unknown.
    pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Self, Error> {
        let mut options = Options { is_tried: false };
        for arg in args {
            match arg.to_str() {
                Some("--try") => options.is_tried = true,
                _ => return Err(format!("unknown argument {}", arg.display()).into()),
            }
        }
        Ok(options)
    }
}

/// Builds everything, tests it on request, and prints its location.
///
/// # Errors
///
/// Something cannot be built or fetched, needs a later C library, has an unexpected licence, or
/// does not work in a fresh root.
pub fn run(options: &Options, out: &mut impl Write) -> Result<(), Error> {
    let release = Release::new()?;
    let command = release.command()?;
    let libraries = release.libraries()?;
    let debs = [
        deb::command(&release, &command)?,
        deb::libraries(&release, &libraries)?,
        deb::development(&release, &libraries)?,
    ];
    let archives = [release.archive(&command)?, release.archive(&libraries)?];
    release.sums(archives.iter().chain(&debs))?;
    if options.is_tried {
        for root in roots::ALL {
            writeln!(out, "{}", root.release)?;
            out.flush()?;
            root.try_packages(&release, &debs, &archives)?;
        }
    }
    writeln!(out, "{}", release.folder.display())?;
    Ok(())
}

/// A release under construction.
struct Release {
    /// The workspace's folder.
    workspace: PathBuf,
    /// The output folder.
    folder: PathBuf,
    /// The time of its commit, in seconds since 1970: the time of all files in archives.
    epoch: String,
    glibc: glibc::Glibc,
}

impl Release {
    fn new() -> Result<Self, Error> {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .canonicalize()?;
        let target =
            env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
        let folder = std::path::absolute(target)?.join("distribution");
        fs::create_dir_all(&folder)?;
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_file() {
                fs::remove_file(path)?; // Left by an earlier version.
            }
        }
        let epoch = match env::var("SOURCE_DATE_EPOCH") {
            Ok(epoch) => epoch,
            Err(_) => output(
                Command::new(packages::path("/usr/bin/git")?)
                    .args(["log", "-1", "--format=%ct"])
                    .current_dir(&workspace),
            )?,
        };
        let glibc = glibc::Glibc::make(&folder)?;
        Ok(Release {
            workspace,
            folder,
            epoch,
            glibc,
        })
    }

    /// An empty folder of this name.
    fn empty(&self, name: &str) -> Result<PathBuf, Error> {
        let folder = self.folder.join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// The environment of cargo and its C compilers: their output must not have paths of this
    /// machine.
    fn environment(&self, flags: &[String]) -> Result<Vec<(&'static str, OsString)>, Error> {
        let home = env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| env::home_dir().map(|home| home.join(".cargo")));
        let home = home.ok_or("no home folder")?;
        let renamed = [(self.workspace.as_path(), "unspool"), (&home, "cargo")];
        let rename = |option: &str| {
            let each = renamed.iter();
            each.map(|(from, to)| format!("{option}={}={to}", from.display()))
                .collect::<Vec<_>>()
        };
        let mut rust = rename("--remap-path-prefix");
        rust.extend_from_slice(flags);
        Ok(vec![
            ("CARGO_ENCODED_RUSTFLAGS", rust.join("\x1f").into()),
            ("CFLAGS", rename("-ffile-prefix-map").join(" ").into()),
            ("CARGO_TARGET_DIR", self.folder.join("build").into()),
        ])
    }

    /// The command with its files, laid out as in `/usr`.
    fn command(&self) -> Result<PathBuf, Error> {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .current_dir(&self.workspace)
            .envs(self.environment(&self.glibc.rustc_options())?)
            .args(["build", "--quiet", "--locked", "--package", "unspool-cli"])
            .args(["--profile", "dist", "--target", TARGET]);
        run_command(&mut cargo)?;

        let folder = self.empty(&format!("unspool-{VERSION}-x86_64-linux-gnu"))?;
        let built = self.folder.join("build").join(TARGET).join("dist");
        for name in ["unspool", "cargo-unspool"] {
            let program = folder.join("bin").join(name);
            copy(&built.join(name), &program)?;
            // Linked by zig, they keep their symbols, whatever the profile says.
            strip(&program, &["--strip-all"])?;
            self.glibc.check(&program)?;
        }
        let unspool = || Command::new(folder.join("bin/unspool"));
        run_command(unspool().arg("man").arg(folder.join("share/man/man1")))?;
        for (shell, path) in [
            ("bash", "share/bash-completion/completions/unspool"),
            ("fish", "share/fish/vendor_completions.d/unspool.fish"),
            ("zsh", "share/zsh/site-functions/_unspool"),
        ] {
            let script = output(unspool().args(["completions", shell]))? + "\n";
            write(&folder.join(path), &script)?;
        }
        self.documents(
            &["unspool-cli".to_owned()],
            &folder.join("share/doc/unspool"),
        )?;
        Ok(folder)
    }

    /// The shared objects and headers, as built by `cargo xtask shared-objects`, with those of libunwind's
    /// names apart.
    fn libraries(&self) -> Result<PathBuf, Error> {
        let folder = self.empty(&format!("libunspool-{VERSION}-x86_64-linux-gnu"))?;
        let build = shared_objects::Build {
            options: self.glibc.cc_options(),
            environment: self.environment(&[])?,
            ..shared_objects::Build::default()
        };
        build.own(&folder)?;
        build.variables(&folder)?;
        build.types(&folder)?;
        build.libunwind(&folder.join("libunwind"))?;
        for path in files(&folder)? {
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            if name.contains(".so") {
                strip(&path, &["--strip-unneeded", "--remove-section=.comment"])?;
                self.glibc.check(&path)?;
            } else if name.ends_with(".a") {
                strip(&path, &["-D", "--strip-debug", "--remove-section=.comment"])?;
            }
        }
        self.documents(&shared_objects::crates(), &folder.join("doc"))?;
        Ok(folder)
    }

    /// The licences of these crates and their dependencies, and the list of these.
    fn documents(&self, crates: &[String], folder: &Path) -> Result<(), Error> {
        for name in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            copy(&self.workspace.join(name), &folder.join(name))?;
        }
        let closure = Closure::from_crates(crates, &self.workspace)?;
        closure.check_licences()?;
        write(&folder.join("third-party.txt"), &closure.licences()?)?;
        let time = self.date("+%Y-%m-%dT%H:%M:%SZ")?;
        write(&folder.join("sbom.cdx.json"), &closure.sbom(&time)?)
    }

    /// The time of the release.
    fn date(&self, format: &str) -> Result<String, Error> {
        let mut date = Command::new("date");
        date.env("LC_ALL", "C").arg("--utc");
        output(date.arg(format!("--date=@{}", self.epoch)).arg(format))
    }

    /// An archive of a folder.
    fn archive(&self, folder: &Path) -> Result<PathBuf, Error> {
        let name = folder.file_name().ok_or("a folder without a name")?;
        let mut archive = folder.as_os_str().to_owned();
        archive.push(".tar.gz");
        run_command(
            Command::new(packages::path("/usr/bin/tar")?)
                .args([
                    "--create",
                    "--sort=name",
                    "--format=gnu",
                    "--mode=go=rX,u+rw",
                ])
                .args(["--owner=0", "--group=0", "--numeric-owner"])
                .arg(format!("--mtime=@{}", self.epoch))
                // Without the time that gzip would store.
                .arg("--use-compress-program=gzip --best --no-name")
                .arg("--file")
                .arg(&archive)
                .arg("--directory")
                .arg(&self.folder)
                .arg(name),
        )?;
        Ok(archive.into())
    }

    /// Writes the input of `sha256sum --check`.
    fn sums<'p>(&self, paths: impl Iterator<Item = &'p PathBuf>) -> Result<(), Error> {
        let names = paths.filter_map(|path| path.file_name());
        let mut command = Command::new("sha256sum");
        let sums = output(command.current_dir(&self.folder).args(names))? + "\n";
        write(&self.folder.join("SHA256SUMS"), &sums)
    }
}

/// The output of a command, without the last line end.
fn output(command: &mut Command) -> Result<String, Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("cannot run {name}: {error}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name}: {}\n{text}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// All regular files below a folder, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()? {
            kind if kind.is_dir() => found.extend(files(&entry.path())?),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found.sort();
    Ok(found)
}

fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<(), Error> {
    fs::create_dir_all(path.parent().ok_or("a file without a folder")?)?;
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(())
}

/// Removes what options of `strip` say from a file.
fn strip(path: &Path, options: &[&str]) -> Result<(), Error> {
    let mut strip = Command::new(packages::path("/usr/bin/strip")?);
    run_command(strip.args(options).arg(path))
}

/// Copies a file, or a link as a link.
fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    fs::create_dir_all(to.parent().ok_or("a file without a folder")?)?;
    let copied = match fs::read_link(from) {
        Ok(target) => symlink(target, to),
        Err(_) => fs::copy(from, to).map(|_| ()),
    };
    Ok(copied.map_err(|error| format!("{}: {error}", from.display()))?)
}
