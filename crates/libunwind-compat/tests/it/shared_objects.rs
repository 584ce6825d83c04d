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
    let mut left_out = 0;

    for name in [
        "libunwind.so.8",
        "libunwind-x86_64.so.8",
        "libunwind-ptrace.so.0",
        "libunwind-coredump.so.0",
        "libunwind-setjmp.so.0",
    ] {
        let (mut ours, theirs) = (exported(&folder.join(name)), exported(&debian(name)));
        let other = match programs::libunwind_minor_version() {
            ..8 => SINCE_1_8,
            8.. => BEFORE_1_8,
        };
        let all = ours.len();
        ours.retain(|name| !other.iter().any(|other| name.ends_with(other)));
        assert_eq!(ours, theirs);
        left_out += all - ours.len();
        needs_no_unwinder(&folder.join(name));
    }
    assert!([2, 13].contains(&left_out), "{left_out}");
}

/// The ends of the names that only libunwind 1.8 has.
const SINCE_1_8: &[&str] = &[
    "get_elf_filename",
    "get_elf_filename_by_ip",
    "get_proc_info_in_range",
    "get_proc_name_by_ip",
    "set_iterate_phdr_function",
    "unw_backtrace2",
];

/// Those that it has no longer.
const BEFORE_1_8: &[&str] = &["add_backing_file_at_segment", "add_backing_file_at_vaddr"];

/// The functions of version 1.8 do what the older ones and the process's maps say, with callbacks
/// of version 1.6, too. libunwind 1.8's own are checked by the same program.
#[test]
fn functions_of_version_1_8() {
    let names = [
        "libunwind.so.8",
        "libunwind-x86_64.so.8",
        "libunwind-ptrace.so.0",
    ];
    let program = programs::compile("since_1_8.c");
    let mut ours = command(&program);
    ours.args(names.map(|name| programs::shared_objects().join(name)));
    assert_eq!(programs::stdout(ours.arg("1.6")), "checked\n");
    if programs::libunwind_minor_version() >= 8 {
        let mut theirs = command(&program);
        theirs.args(names.map(debian));
        assert_eq!(programs::stdout(&mut theirs), "checked\n");
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
