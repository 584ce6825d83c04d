//! Attacks through our libraries on programs with more rights than the attacker. These tests need
//! root, to be two users.

use std::fs;
use std::os::unix::fs::{chown, lchown, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Output;

use crate::crash::{errors, library, program};
use crate::programs;
use unspool_testing::{Finish, NOBODY, UserFolder, command, tool};

fn assert_crashed(output: &Output) {
    assert_eq!(output.status.signal(), Some(11), "{}", errors(output));
}

/// If root logs to another user's folder, nothing is written to that user's files, or through that
/// user's links. The user would read it, or root's files elsewhere would be destroyed.
#[test]
#[ignore = "needs root: cargo xtask root"]
fn a_log_of_others_is_not_written_to() {
    let (mine, theirs) = (UserFolder::new(0), UserFolder::new(NOBODY));
    let victim = mine.join("victim");
    fs::write(&victim, "precious").unwrap();
    let log = |name: &str| theirs.join(name);
    symlink(&victim, log("link")).unwrap();
    lchown(log("link"), Some(NOBODY), Some(NOBODY)).unwrap();
    fs::hard_link(&victim, log("name")).unwrap();
    fs::write(log("file"), "").unwrap();
    command("mkfifo").arg(log("pipe")).succeed();
    for name in ["file", "pipe"] {
        chown(log(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let program = program();
    let crash = |log: &Path| {
        let mut command = command(&program);
        command.arg("write").env("LD_PRELOAD", library());
        let output = command.env("UNSPOOL_CRASH_LOG", log).output().unwrap();
        assert_crashed(&output);
        errors(&output)
    };
    // The pipe has a reader, so that it can be opened.
    let _reader = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(log("pipe"));
    for name in ["link", "name", "file", "pipe"] {
        let report = crash(&log(name));
        assert!(
            report.ends_with("unspool: end of the report\n"),
            "{name}: {report}"
        );
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(fs::read_to_string(log("file")).unwrap(), "");
    // Root's own file is written to, also through root's own link.
    symlink(mine.join("log"), log("of-root")).unwrap();
    assert_eq!(crash(&log("of-root")), "");
    assert_eq!(crash(&log("new")), "");
    for path in [mine.join("log"), log("new")] {
        let report = fs::read_to_string(path).unwrap();
        assert!(report.ends_with("unspool: end of the report\n"), "{report}");
    }
}

/// In a setuid program the environment has no effect, and there is no report: it would reveal the
/// program's data to the user who started it.
#[test]
#[ignore = "needs root: cargo xtask root"]
fn a_setuid_program_does_not_listen_to_its_caller() {
    let (mine, theirs) = (UserFolder::new(0), UserFolder::new(NOBODY));
    let libraries = programs::shared_objects();
    for name in ["libunspool.so.0", "libunspool-crash.so"] {
        mine.copy(&libraries.join(name), name, 0o755);
    }
    let crash = mine.join("libunspool-crash.so");
    let rpath = format!("-Wl,--no-as-needed,-rpath,{}", mine.display());
    let built = {
        let mut linked = programs::pkg_config();
        linked.extend([rpath, crash.to_str().unwrap().to_owned()]);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/privileged.c");
        programs::build(programs::cc(), &source, &linked)
    };
    let run = |mode: u32| {
        let program = mine.copy(&built, &format!("program-{mode:o}"), mode);
        let trace = mine.join("trace");
        let mut strace = tool("strace");
        strace.args(["-u", "nobody", "-f", "-o"]).arg(&trace);
        strace.arg(&program).env_clear();
        for name in [
            "UNSPOOL_CRASH_LOG",
            "UNSPOOL_TABLE_PATH",
            "XDG_CACHE_HOME",
            "HOME",
        ] {
            strace.env(name, theirs.join(name));
        }
        strace.env("UNSPOOL_STATS", "1").env("UNSPOOL_RULES", "64M");
        let output = strace.current_dir("/").output().unwrap();
        assert_crashed(&output);
        let trace = fs::read_to_string(trace).unwrap();
        (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            errors(&output),
            trace,
        )
    };
    let is_named = |trace: &str| trace.contains(theirs.to_str().unwrap());

    let (said, errors, trace) = run(0o755);
    assert_eq!((&*said, &*errors), ("ordinary walks\n", ""));
    assert!(is_named(&trace), "{trace}");
    let log = theirs.join("UNSPOOL_CRASH_LOG");
    assert!(
        fs::read_to_string(&log)
            .unwrap()
            .ends_with("unspool: end of the report\n")
    );
    fs::remove_file(&log).unwrap();

    let (said, errors, trace) = run(0o4755);
    assert_eq!((&*said, &*errors), ("privileged walks\n", ""));
    assert!(!is_named(&trace), "{trace}");
    assert_eq!(fs::read_dir(&*theirs).unwrap().count(), 0);
}
