//! Go programs.

use std::path::PathBuf;

use crate::command::{Finish as _, tool};
use crate::folder::Folder;

/// The linker's option that leaves out symbols and debugging information.
pub const STRIPPED: &str = "-ldflags=-s -w";

/// Builds a Go program of one file in a folder. Code that cgo makes is at the same addresses with
/// and without [`STRIPPED`].
#[track_caller]
#[must_use]
pub fn build_go(folder: &Folder, source: &str, name: &str, options: &[&str]) -> PathBuf {
    let file = folder.write(&format!("{name}.go"), source);
    let to = folder.path().join(name);
    let mut go = tool("go");
    go.args(["build", "-o"]).arg(&to).args(options).arg(file);
    go.current_dir(folder.path()).succeed();
    to
}
