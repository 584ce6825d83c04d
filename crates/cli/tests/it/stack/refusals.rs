//! Input that is unreadable, completely or partly: the messages, and the exit status.

use std::fs;

use unspool_testing::{Folder, await_that, command};

use crate::stack::build::BuiltProgram;
use crate::stack::run::ready;
use crate::stack::unspool::{Printed, printed, stack, unspool};

/// The arguments are refused with exit status 2, nothing on standard output, and a message
/// with these words.
fn check(directory: &Folder, arguments: &[&str], words: &[&str]) {
    let Printed { status, out, err } = stack(directory, arguments);
    assert_eq!((status, out.as_str()), (2, ""), "{arguments:?}: {err}");
    for word in words {
        assert!(
            err.contains(word),
            "{arguments:?}: `{word}` is not in: {err}"
        );
    }
}

#[test]
fn usage() {
    let directory = Folder::new();
    check(&directory, &[], &["Usage: "]);
    check(&directory, &["pid"], &["'pid'", "[PID]"]);
    let remedy = "`unspool stack -- ./app` runs a command";
    check(&directory, &["./app"], &["not a process ID", remedy]);
    let app = directory.write("app", "");
    let app = app.to_str().unwrap();
    let core_of_app = format!("`unspool stack --core CORE --exe {app}` shows its core file");
    check(&directory, &[app, "core"], &["is a program", &core_of_app]);
    let mut command = unspool(&directory);
    command.args(["stack", "--", "app"]);
    let said = printed(command.current_dir(directory.path()));
    assert!(
        said.err.ends_with(": ./app is in this folder\n"),
        "{}",
        said.err
    );
    check(&directory, &["-p", "999999999"], &["no such process"]);
    check(&directory, &["--exe", "/bin/true", "1"], &["--core"]);
    check(
        &directory,
        &["--core", "core", "1"],
        &["cannot be used with"],
    );
    check(&directory, &["1", "--", "true"], &["cannot be used with"]);
}

#[test]
fn processes() {
    let directory = Folder::new();
    check(
        &directory,
        &["2147483647"],
        &["2147483647", "no such process"],
    );
    check(
        &directory,
        &["4294967295"],
        &["4294967295", "no such process"],
    );
    check(&directory, &["0"], &["no such process"]);
}

#[test]
fn a_process_that_has_ended() {
    let directory = Folder::new();
    let mut child = command("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    await_that("the end", || {
        fs::read_to_string(&stat).unwrap().contains(") Z ")
    });
    check(
        &directory,
        &[&child.id().to_string()],
        &["has ended", "zombie"],
    );
    child.wait().unwrap();
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_32_bit_process() {
    // Needs no 32-bit library.
    let program = BuiltProgram::build("wait32.S", &["-m32", "-nostdlib", "-static", "-no-pie"]);
    let running = ready(&program, &[]);
    let pid = running.pid().to_string();
    check(
        &program.directory,
        &[&pid],
        &[&pid, "32-bit process", "not supported"],
    );
    let core = running.dump_core(&program.directory);
    let path = core.to_str().unwrap();
    check(
        &program.directory,
        &["--core", path],
        &[path, "32-bit", "not supported"],
    );
}

#[test]
fn files_that_are_no_cores() {
    let program = BuiltProgram::build("recursion.c", &["-O2"]);
    let file = |name: &str, contents: &[u8]| {
        let path = program.directory.path().join(name);
        fs::write(&path, contents).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let text = file(
        "text",
        b"A text that is long enough to hold a header of an ELF file.\n",
    );
    let empty = file("empty", b"");
    let cut = file("cut", b"\x7fELF\x02\x01\x01");
    let folder = program.directory.path().to_str().unwrap();
    for (path, words) in [
        (text.as_str(), "not an ELF file"),
        (&empty, "the file is empty"),
        (&cut, "truncated"),
        (program.path(), "not a core file"),
        (folder, folder),
        ("/nonexistent/core", "No such file or directory"),
    ] {
        check(&program.directory, &["--core", path], &[path, words]);
    }
}

/// A core file truncated by a limit or a full disk: the existing part is shown, and the missing
/// part is reported.
#[test]
fn a_truncated_core() {
    let program = BuiltProgram::build("recursion.c", &["-O2"]);
    let core = ready(&program, &["50"]).dump_core(&program.directory);
    let whole = fs::read(&core).unwrap();
    let path = core.to_str().unwrap();
    for size in [
        64,
        1000,
        whole.len() / 2,
        whole.len() - 40_000,
        whole.len() - 1,
    ] {
        fs::write(&core, &whole[..size]).unwrap();
        let printed = stack(&program.directory, &["--core", path]);
        let said = printed.err.contains("truncated") || printed.err.contains("the file ends");
        assert!(said, "{size} bytes: {}", printed.err);
        // Without program headers there is nothing to show.
        let expected = if size == 64 { 2 } else { 1 };
        assert_eq!(printed.status, expected, "{size} bytes");
        // The last byte is not part of the stack.
        if size == whole.len() - 1 {
            assert!(
                printed.out.contains(" small+0x"),
                "{size} bytes: {}",
                printed.out
            );
        }
    }
}
