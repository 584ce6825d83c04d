//! The shared objects compared with Debian's: their exports and their needed libraries.

use std::path::{Path, PathBuf};

use crate::programs;
use unspool_testing::{command, packages};

const DEBIAN: &str = "/usr/lib/x86_64-linux-gnu";

/// The names that a shared object defines for others.
fn exported(path: &Path) -> Vec<String> {
    let nm = packages::path("/usr/bin/nm").unwrap();
    let mut command = command(nm);
    command.args(["-D", "--defined-only", "-P"]).arg(path);
    let text = programs::stdout(&mut command);
    let names = text.lines().filter_map(|line| line.split(' ').next());
    let mut names: Vec<_> = names.map(str::to_owned).collect();
    names.sort_unstable();
    names
}

fn debian(soname: &str) -> PathBuf {
    packages::path(&format!("{DEBIAN}/{soname}")).unwrap()
}

#[test]
fn exports_and_needs() {
    let folder = programs::shared_objects();

    for name in [
        "libunwind.so.8",
        "libunwind-x86_64.so.8",
        "libunwind-ptrace.so.0",
        "libunwind-coredump.so.0",
        "libunwind-setjmp.so.0",
    ] {
        assert_eq!(exported(&folder.join(name)), exported(&debian(name)));
        needs_no_unwinder(&folder.join(name));
    }
}

fn needs_no_unwinder(path: &Path) {
    let readelf = packages::path("/usr/bin/readelf").unwrap();
    let mut command = command(readelf);
    command
        .args(["--wide", "--dynamic", "--dyn-syms"])
        .arg(path);
    let text = programs::stdout(&mut command);
    for line in text.lines().filter(|line| line.contains("(NEEDED)")) {
        let is_known = ["[libc.so.6]", "[libunwind.so.8]"].map(|soname| line.contains(soname));
        assert!(is_known.contains(&true), "{line}");
    }
    assert!(text.contains("(NEEDED)") && text.contains(" UND "));
    for line in text.lines().filter(|line| line.contains(" UND ")) {
        assert!(!line.contains("_Unwind_"), "{line}");
    }
}
