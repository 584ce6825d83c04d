//! The functions, called by a C program with a known stack.

use std::path::{Path, PathBuf};

use unspool_testing::{command, without_eh_frame};

use crate::programs::{self, stdout, with_library};

/// `api.c` compares with the C library's `backtrace`, with its own registers, and with the
/// registers that the kernel has stored for a handler. Its last line reports success.
#[test]
fn the_functions_do_what_the_header_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
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

/// The archive linked into the program, also with a static C library.
#[test]
fn the_archive_does_the_same() {
    for options in [
        &["-pie"][..],
        &["-no-pie"],
        // `api.c` has its own `malloc`, in addition to the archive's.
        &["-static-pie", "-Wl,-z,muldefs"],
        &["-static", "-Wl,-z,muldefs", "-Wl,--eh-frame-hdr"],
    ] {
        let program = with_archive("api.c", &[&["-std=gnu99"], options].concat());
        assert_eq!(stdout(&mut command(program)), "all is well\n");
    }
}

/// A program of the folder, linked with `libunspool.a`.
fn with_archive(source: &str, options: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let archive = programs::shared_objects().join("libunspool.a");
    let mut cc = programs::cc();
    cc.arg("-O1").arg(programs::include()).args(options);
    programs::build(
        cc,
        &folder.join(source),
        &[archive.to_str().unwrap().to_owned()],
    )
}

/// Neither the end of a thread nor that of the process calls unloaded code; and unused libraries
/// are unloaded.
#[test]
fn the_archive_in_a_plugin_that_is_closed() {
    let plugin = with_archive("plugin.c", &["-shared", "-fPIC"]);
    let host = programs::compile("plugin_host.c", &["-O1"]);
    for statistics in ["0", "1"] {
        let mut command = command(&host);
        let command = command.arg(&plugin).env("UNSPOOL_STATS", statistics);
        assert_eq!(stdout(command), "all is well\n");
    }
}

/// Without a call, a program's memory for rules has the size set in its environment.
#[test]
fn the_environment_says_how_much_memory_rules_have() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let prepare = folder.join("prepare.c");
    let program = programs::build(programs::cc(), &prepare, &programs::pkg_config());
    for (value, expected) in [("64K", 64), ("4M", 4096), ("5M", 1024)] {
        let mut command = with_library(&program);
        let command = command
            // No tables except its own: its output is the number of later ones.
            .env("HOME", "/dev/null")
            .env("XDG_CACHE_HOME", "/dev/null")
            .env("UNSPOOL_RULES", value)
            .env("UNSPOOL_STATS", "1");
        let output = command.output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        let expected = format!(", {expected} KiB for rules\n");
        assert!(text.ends_with(&expected), "{value}: {text}");
    }
}

/// Its word of thread-local storage fits into existing threads; and the destructor called at a
/// thread's end is still loaded.
#[test]
fn the_library_may_be_loaded_at_run_time_and_closed() {
    let program = programs::compile("dlopen.c", &["-O1"]);
    let mut command = command(program);
    command.arg(programs::shared_objects().join("libunspool.so.0"));
    assert_eq!(stdout(&mut command), "all is well\n");
}

/// A program with `.sframe` and without `.eh_frame`, compared with the C library's result with
/// `.eh_frame`.
#[test]
fn a_program_that_has_sframe_only() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let script = without_eh_frame(Path::new(env!("CARGO_TARGET_TMPDIR")));
    let [with, only] = [&[][..], &["-Wa,--gsframe", &script]].map(|options| {
        let mut cc = programs::cc();
        cc.args(["-O1", "-std=gnu99", "-rdynamic"]).args(options);
        programs::build(cc, &folder.join("sframe.c"), &programs::pkg_config())
    });
    let theirs = stdout(with_library(&with).arg("glibc"));
    for program in [with, only] {
        assert_eq!(stdout(&mut with_library(&program)), theirs);
    }
    assert!(theirs.matches("recurse+").count() == 21, "{theirs}");
    assert!(theirs.contains("_start+"), "{theirs}");
}

/// The maximum stack use of each function is in a table of `docs/api.md`: for its first call, and
/// later.
#[test]
fn functions_take_no_more_of_a_stack_than_is_documented() {
    let mut compiler = programs::cc();
    compiler.args(["-O1", "-Wl,-z,now"]);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/stack.c");
    let program = programs::build(compiler, &source, &programs::pkg_config());
    let run = |arguments: &[&str]| {
        let mut command = programs::with_library(&program);
        xtask::programs::stdout(command.args(arguments).env("LD_BIND_NOW", "1"))
    };
    if let Err(error) = xtask::programs::check_stack_table("api.md", run) {
        panic!("{error}");
    }
}
