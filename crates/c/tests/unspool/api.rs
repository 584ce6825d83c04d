//! The functions, called by a C program that knows its own stack.

use std::path::Path;
use std::process::Command;

use crate::programs::{self, stdout, with_library};

/// `api.c` compares with the C library's `backtrace`, with its own registers, and with what the
/// kernel has stored for a handler; it ends with a line that says so.
#[test]
fn the_functions_do_what_the_header_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unspool/programs");
    for options in [
        &["-O0", "-std=gnu99"][..],
        &["-O2", "-std=gnu99"],
        &["-O2", "-fno-omit-frame-pointer", "-std=gnu99"],
    ] {
        let mut cc = programs::cc();
        cc.args(options);
        let program = programs::build(cc, &folder.join("api.c"), &programs::pkg_config());
        assert_eq!(stdout(&mut with_library(&program)), "all is well\n");
    }
}

/// The archive, in the program itself.
#[test]
fn the_archive_does_the_same() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unspool/programs");
    let include = format!("-I{}", programs::shared_objects().join("include").display());
    let archive = programs::shared_objects().join("libunspool.a");
    let archive = archive.to_str().unwrap().to_owned();
    for options in [&["-pie"], &["-no-pie"]] {
        let mut cc = programs::cc();
        cc.args(["-O1", "-std=gnu99", &include]).args(options);
        let program = programs::build(cc, &folder.join("api.c"), std::slice::from_ref(&archive));
        assert_eq!(stdout(&mut Command::new(program)), "all is well\n");
    }
}

/// Its word of thread-local storage has room in threads that were there before; and what the end of
/// a thread calls is still there.
#[test]
fn the_library_may_be_loaded_at_run_time_and_closed() {
    let program = programs::compile("dlopen.c", &["-O1"]);
    let mut command = Command::new(program);
    command.arg(programs::shared_objects().join("libunspool.so.0"));
    assert_eq!(stdout(&mut command), "all is well\n");
}
