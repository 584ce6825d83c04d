//! Tests packages in fresh roots of Debian: installs, runs, and removes them completely.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Release, copy, output};
use crate::debian::{bootstrap, run};
use crate::{Error, packages};

/// A root of a Debian release.
pub(super) struct Root {
    pub(super) release: &'static str,
    /// Its packages in addition to the essential ones.
    includes: &'static str,
}

/// The root with lintian also checks the packages.
pub(super) const ALL: [Root; 3] = [
    Root {
        release: "bullseye",
        includes: "gcc,libc6-dev,pkg-config",
    },
    Root {
        release: "bookworm",
        includes: "gcc,libc6-dev,pkg-config,lintian",
    },
    Root {
        release: "trixie",
        includes: "gcc,libc6-dev,pkg-config",
    },
];

/// The script to run in a root.
const SCRIPT: &str = include_str!("try.sh");

/// Paths that may change: files of dpkg, ld.so, man and mount.
const NOTES: [&str; 8] = [
    "var/lib/dpkg/status",
    "var/lib/dpkg/status-old",
    "var/lib/dpkg/triggers/",
    "var/log/dpkg.log",
    "var/cache/ldconfig/",
    "var/cache/man/",
    "etc/ld.so.cache",
    "run/mount",
];

impl Root {
    pub(super) fn try_packages(
        &self,
        release: &Release,
        debs: &[PathBuf],
        archives: &[PathBuf],
    ) -> Result<(), Error> {
        let root = release.empty("root")?;
        run(Command::new(packages::path("/usr/bin/tar")?)
            .args(["--extract", "--preserve-permissions", "--numeric-owner"])
            .arg("--directory")
            .arg(&root)
            .arg("--file")
            .arg(self.archive(&release.folder.join("roots"))?))?;
        let before = listing(&root)?;
        let work = root.join("tmp/try");
        let examples = release.workspace.join("examples");
        let examples = ["backtrace.c", "variables.c"].map(|name| examples.join(name));
        for path in debs.iter().chain(archives).chain(&examples) {
            copy(path, &work.join(path.file_name().ok_or("no name")?))?;
        }
        run(Command::new(packages::path("/usr/bin/unshare")?)
            .args(["--mount", "--pid", "--fork", "--mount-proc"])
            .arg(format!("--root={}", root.display()))
            .args(["sh", "-euc", SCRIPT]))
        .map_err(|error| format!("Debian {}: {error}", self.release))?;
        fs::remove_dir_all(&work)?;
        let after = listing(&root)?;
        let left: Vec<_> = before.symmetric_difference(&after).cloned().collect();
        if !left.is_empty() {
            let left = left.join("\n");
            return Err(format!("Debian {}: not as before:\n{left}", self.release).into());
        }
        fs::remove_dir_all(root)?;
        Ok(())
    }

    /// The archive of the fresh root, created once.
    fn archive(&self, folder: &Path) -> Result<PathBuf, Error> {
        let archive = folder.join(self.release).with_extension("tar");
        if !archive.exists() {
            fs::create_dir_all(folder)?;
            let unfinished = archive.with_extension("part.tar");
            bootstrap(&unfinished, self.release, self.includes)?;
            fs::rename(unfinished, &archive)?;
        }
        Ok(archive)
    }
}

/// All files of a root except [`NOTES`], a line each: kind, mode, size, path, target of the link.
fn listing(root: &Path) -> Result<BTreeSet<String>, Error> {
    let text = output(
        Command::new("find")
            .arg(root)
            .args(["-xdev", "(", "-type", "d", "-printf", "%y %m 0 %P\\n", ")"])
            .args(["-o", "-printf", "%y %m %s %P %l\\n"]),
    )?;
    let is_noted = |line: &str| {
        let path = line.splitn(4, ' ').nth(3).unwrap_or_default();
        NOTES.iter().any(|note| path.starts_with(note))
    };
    Ok(text
        .lines()
        .filter(|line| !is_noted(line))
        .map(str::to_owned)
        .collect())
}
