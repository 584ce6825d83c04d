//! The README's test command in fresh roots of Debian, from a fresh clone.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
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

/// Runs all tests of the last commit in a new root of each release, or of those named. Needs root.
///
/// # Errors
///
/// A root cannot be made, or a test fails: then the root is kept.
pub fn test(names: &[OsString]) -> Result<(), Error> {
    let known = |name: &&OsString| !ALL.iter().any(|root| **name == root.release);
    if let Some(unknown) = names.iter().find(known) {
        return Err(format!("{}: not bookworm or trixie", unknown.display()).into());
    }
    let is_wanted = |root: &&FreshRoot| names.is_empty() || names.iter().any(|n| n == root.release);
    for root in ALL.iter().filter(is_wanted) {
        root.test()?;
    }
    Ok(())
}

impl FreshRoot {
    fn test(&self) -> Result<(), Error> {
        let root = target_folder()?.join("fresh").join(self.release);
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        fs::create_dir_all(&root)?;
        bootstrap(&root, self.release, INCLUDES)?;
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        run(Command::new("git")
            .args(["clone", "--quiet", "--no-hardlinks"])
            .arg(&workspace)
            .arg(root.join("clone")))?;
        // Sources of dependencies are those of this user: they are not what is tried.
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        run(Command::new(cargo)
            .args(["fetch", "--locked"])
            .current_dir(&workspace))?;
        let registry = env::home_dir().ok_or("no home")?.join(".cargo");
        let registry = env::var_os("CARGO_HOME").map_or(registry, Into::into);
        let mut rustc = Command::new("rustc");
        let toolchain = crate::programs::stdout(rustc.args(["--print", "sysroot"]))?;
        run(Command::new(packages::path("/usr/bin/unshare")?)
            .args(["--mount", "--pid", "--fork", "sh", "-euc", SCRIPT, "fresh"])
            .arg(&root)
            .args([self.user, toolchain.trim()])
            .arg(registry))
        .map_err(|error| format!("Debian {}, in {}: {error}", self.release, root.display()))?;
        Ok(fs::remove_dir_all(root)?)
    }
}
