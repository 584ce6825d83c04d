//! The README's test command in fresh roots of Debian, from a fresh clone.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{bootstrap, run};
use crate::shared_objects::target_folder;
use crate::{Error, packages};

/// A release, and who runs the tests in its root.
struct FreshRoot {
    release: &'static str,
    user: &'static str,
}

const ALL: [FreshRoot; 2] = [
    FreshRoot {
        release: "bookworm",
        user: "user",
    },
    FreshRoot {
        release: "trixie",
        user: "root",
    },
];

/// What the README presumes, besides rustup. The tests' packages are installed by the command.
const INCLUDES: &str = "ca-certificates,gcc,git,libc6-dev,sudo";

/// The script that runs in namespaces of its own.
const SCRIPT: &str = include_str!("fresh.sh");

/// All tests: those of `root` also where others failed.
const TESTS: &str = "\
failed=0
cargo xtask test --no-fail-fast || failed=1
cargo xtask root || failed=1
exit $failed";

/// Runs all tests of the last commit in a new root of each release, or of those named. Arguments
/// after `--` are a command that runs instead, in the roots that are there. Needs root.
///
/// # Errors
///
/// A root cannot be made, or is not there. A test or the command fails: then the root is kept.
pub fn test(arguments: &[OsString]) -> Result<(), Error> {
    let mut parts = arguments.splitn(2, |argument| argument == "--");
    let names = parts.next().unwrap_or_default();
    let command = parts.next();
    let unknown = |name: &&OsString| !ALL.iter().any(|root| **name == root.release);
    if let Some(unknown) = names.iter().find(unknown) {
        return Err(format!("{}: not bookworm or trixie", unknown.display()).into());
    }
    let is_wanted = |root: &&FreshRoot| names.is_empty() || names.iter().any(|n| n == root.release);
    // One after the other, all also where one fails: each is an hour's work.
    let mut failed = Vec::new();
    for root in ALL.iter().filter(is_wanted) {
        let done = match command {
            Some(command) => root.run_again(command),
            None => root.test(),
        };
        failed.extend(done.err().map(|error| error.to_string()));
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(failed.join("\n").into())
}

impl FreshRoot {
    /// Runs all tests in a new root, and removes it if they pass.
    fn test(&self) -> Result<(), Error> {
        let root = self.folder()?;
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        fs::create_dir_all(&root)?;
        self.say("making the root");
        bootstrap(&root, self.release, INCLUDES)?;
        run(Command::new("git")
            .args(["clone", "--quiet", "--no-hardlinks"])
            .arg(workspace())
            .arg(root.join("clone")))?;
        self.say("running all tests");
        self.run(&["sh", "-euc", TESTS].map(Into::into))?;
        self.say("all tests passed");
        Ok(fs::remove_dir_all(root)?)
    }

    /// Runs a command with the last commit, in the root that an earlier run kept.
    fn run_again(&self, command: &[OsString]) -> Result<(), Error> {
        let clone = self.folder()?.join("clone");
        if !clone.exists() {
            let release = self.release;
            return Err(format!("no root is kept: run `cargo xtask debian {release}`").into());
        }
        // The clone is its user's.
        let git = || {
            let mut git = Command::new("git");
            git.arg("-C").arg(&clone).args(["-c", "safe.directory=*"]);
            git
        };
        run(git()
            .args(["fetch", "--quiet"])
            .arg(workspace())
            .arg("HEAD"))?;
        run(git().args(["reset", "--quiet", "--hard", "FETCH_HEAD"]))?;
        self.run(command)
    }

    fn folder(&self) -> Result<PathBuf, Error> {
        Ok(target_folder()?.join("fresh").join(self.release))
    }

    fn say(&self, step: &str) {
        let _ = writeln!(io::stderr(), "Debian {}: {step}", self.release);
    }

    /// Runs a command in the root.
    fn run(&self, command: &[OsString]) -> Result<(), Error> {
        // Sources of dependencies are those of this user: they are not what is tried.
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        run(Command::new(cargo)
            .args(["fetch", "--locked"])
            .current_dir(workspace()))?;
        let registry = env::home_dir().ok_or("no home")?.join(".cargo");
        let registry = env::var_os("CARGO_HOME").map_or(registry, Into::into);
        let mut rustc = Command::new("rustc");
        let toolchain = crate::programs::stdout(rustc.args(["--print", "sysroot"]))?;
        let root = self.folder()?;
        run(Command::new(packages::path("/usr/bin/unshare")?)
            .args(["--mount", "--pid", "--fork", "--kill-child"])
            .args(["sh", "-euc", SCRIPT, "fresh"])
            .arg(&root)
            .args([self.user, toolchain.trim()])
            .arg(registry)
            .args(command))
        .map_err(|error| {
            let release = self.release;
            let root = root.display();
            format!(
                "Debian {release}: {error}: `cargo xtask debian {release} -- COMMAND` runs a command of the last commit \
                 in this root, {root}; remove it at the end"
            )
            .into()
        })
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
