//! `unspool verify` and `unspool compile`, as a user calls them: proofs and refusals.

use std::fs;
use std::path::Path;
use std::process::Command;

use sha2::{Digest as _, Sha256};
use unspool_testing::{Finish as _, Folder, command, run_tool};

use crate::harness;
use crate::json;
use crate::stack::build::BuiltProgram;

fn unspool(directory: &Folder, arguments: &[&str]) -> Command {
    harness::unspool_in(directory, arguments)
}

/// Runs a command that must exit with this status; returns its output.
fn run(directory: &Folder, arguments: &[&str], status: i32) -> (String, String) {
    let output = unspool(directory, arguments).finish().ended_with(status);
    (output.out, output.err)
}

/// The command proves nothing: exit status 2, and an error with these words.
fn refused(directory: &Folder, arguments: &[&str], words: &[&str]) {
    let (out, err) = run(directory, arguments, 2);
    assert_eq!(out, "", "{arguments:?}");
    for word in words {
        assert!(
            err.contains(word),
            "{arguments:?}: `{word}` is not in: {err}"
        );
    }
}

#[test]
fn a_table_is_proven_against_its_own_file_only() {
    let BuiltProgram { directory, path } = BuiltProgram::build("recursion.c", &["-O2"]);
    let program = path.to_str().unwrap();
    run(&directory, &["compile", "-o", "table", program], 0);
    let (out, _) = run(&directory, &["verify", program, "table"], 0);
    assert!(out.contains("; 0 differences"), "{out}");
    let words = ["table: ", "another module", "/bin/true"];
    refused(&directory, &["verify", "/bin/true", "table"], &words);

    // Each byte of the table is changed in turn: the change is detected, or does not affect any
    // lookup.
    let good = fs::read(directory.path().join("table")).unwrap();
    let mut seen = 0;
    for at in (8..good.len()).step_by(7) {
        let mut bad = good.clone();
        bad[at] ^= 0x5a;
        fs::write(directory.path().join("bad"), bad).unwrap();
        let output = unspool(&directory, &["verify", program, "bad"])
            .output()
            .unwrap();
        let status = output.status.code().unwrap();
        assert!(status <= 2, "byte {at}: {output:?}");
        seen += usize::from(status > 0);
    }
    assert!(
        seen * 7 > good.len() / 2,
        "{seen} changes of {} were seen",
        good.len() / 7
    );
}

#[test]
fn named_files_are_never_skipped() {
    let directory = Folder::new();
    let file = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
    file("text", b"no table\n");
    file("empty", b"");
    file("magic", b"unspool\0");
    fs::create_dir(directory.path().join("folder")).unwrap();
    command("mkfifo").arg(directory.join("pipe")).succeed();
    for (second, words) in [
        ("text", &["text", "not a compiled unwind table"][..]),
        ("empty", &["empty", "not a compiled unwind table"]),
        ("magic", &["magic", "truncated"]),
        ("pipe", &["pipe", "not a regular file"]),
        ("missing", &["missing", "No such file"]),
    ] {
        refused(&directory, &["verify", "/bin/true", second], words);
    }
    for alone in ["text", "empty", "pipe", "missing"] {
        refused(&directory, &["verify", alone], &[alone]);
    }
    refused(&directory, &["verify", "folder"], &["no ELF file"]);
    refused(
        &directory,
        &["stack", "--core", "pipe"],
        &["pipe", "not a regular file"],
    );
}

/// Each named file is in the report, and each line of errors names its file once.
#[test]
fn one_bad_file_among_others() {
    let directory = Folder::new();
    fs::write(directory.path().join("text"), "no table\n").unwrap();
    let (_, err) = run(&directory, &["compile", "-o", "of-true", "/bin/true"], 0);
    assert_eq!(err, "");
    for arguments in [
        &["verify", "/bin/true", "missing", "text", "/bin/false"][..],
        &["verify", "text"],
        &["verify", "text", "of-true"],
        &["verify", "/bin/true", "missing"],
        &["verify", "/bin/false", "of-true"],
        &["stats", "/bin/true", "missing", "text"],
        &["stats", "text"],
        &["compile", "/bin/true", "missing", "text"],
        &["compile", "text"],
    ] {
        let (_, err) = run(&directory, arguments, 2);
        for line in err.lines() {
            let named = arguments.iter().map(|name| line.matches(name).count());
            assert!(named.max() == Some(1), "{arguments:?}: {line}");
        }
        let json = [&["--format", "json"], &arguments[1..]].concat();
        let (out, same) = run(&directory, &[&arguments[..1], &json].concat(), 2);
        assert_eq!(same, err, "{arguments:?}");
        let report = json::document(&out);
        let files = report["files"].as_array().unwrap();
        let named = match arguments {
            [_, file, "of-true"] | ["verify", file, "missing"] => vec![*file],
            [_, files @ ..] => files.to_vec(),
            [] => vec![],
        };
        assert_eq!(files.len(), named.len(), "{arguments:?}: {out}");
        for name in named {
            let file = files.iter().find(|file| file["file"] == name).unwrap();
            let error = file["error"].as_str();
            let fails = !name.starts_with("/bin/") || named_with_other(arguments);
            assert_eq!(error.is_some(), fails, "{arguments:?}: {file}");
            assert!(error.is_none_or(|error| err.contains(error)), "{file}");
        }
    }
}

/// Whether the one file of `verify` is reported with a table that is not its own.
fn named_with_other(arguments: &[&str]) -> bool {
    matches!(arguments, ["verify", _, "of-true" | "missing"])
}

/// The hashes equal those of coreutils.
#[test]
fn a_certificate_names_file_and_table_by_hash() {
    let directory = Folder::new();
    run(&directory, &["compile", "-o", "table", "/bin/true"], 0);
    let (out, _) = run(
        &directory,
        &["verify", "--format", "json", "/bin/true", "table"],
        0,
    );
    let certificate = json::document(&out);
    let hash = |path: &Path| {
        let printed = command("sha256sum").arg(path).succeed();
        printed[..64].to_owned()
    };
    let file = &certificate["files"][0];
    assert_eq!(file["sha256"], hash(Path::new("/bin/true")));
    assert_eq!(
        file["table"]["sha256"],
        hash(&directory.path().join("table"))
    );
    assert_eq!(file["counts"]["differences"], 0);
    assert!(file["counts"]["rows"].as_u64().unwrap() > 0);
}

/// The table in the file itself is verified, and not a new one.
#[test]
fn a_table_in_the_file_is_the_one_that_is_proven() {
    let BuiltProgram { directory, path } = BuiltProgram::build("recursion.c", &["-O2"]);
    let own = path.to_str().unwrap();
    run(&directory, &["compile", own, "--into", own], 0);
    let (out, _) = run(&directory, &["verify", own], 0);
    assert!(
        out.starts_with(&format!("{own}: the table in the file: ")),
        "{out}"
    );
    let mut bytes = fs::read(&path).unwrap();
    let table = bytes
        .windows(8)
        .position(|eight| eight == b"unspool\0")
        .unwrap();
    let table = &mut bytes[table..];
    // The first distinct row: its CFA offset, 8, follows flags, column and register.
    let entry = table.windows(4).position(|word| word == b"ROWS").unwrap();
    let rows = u32::from_le_bytes(*table[entry + 8..].first_chunk().unwrap());
    let rows = &mut table[usize::try_from(rows).unwrap()..];
    let offset = rows.iter_mut().take(8).find(|byte| **byte == 8).unwrap();
    *offset = 40;
    fs::write(&path, &bytes).unwrap();
    refused(
        &directory,
        &["verify", own],
        &[own, "its digest does not match"],
    );

    // An attacker who changes a row can change the digest as well.
    let table = bytes.windows(8).position(|eight| eight == b"unspool\0");
    let table = &mut bytes[table.unwrap()..];
    let length = u32::from_le_bytes(*table[24..].first_chunk().unwrap());
    let table = &mut table[..usize::try_from(length).unwrap()];
    table[32..64].fill(0);
    let digest = Sha256::digest(&table);
    table[32..64].copy_from_slice(&digest);
    fs::write(&path, bytes).unwrap();
    let (out, _) = run(&directory, &["verify", own], 1);
    assert!(out.contains(": another row\n"), "{out}");
    let (json, _) = run(&directory, &["verify", "--format", "json", own], 1);
    let json = json::document(json);
    assert_eq!(json["files"][0]["table"]["embedded"], true);
}

/// 32-bit ARM has its own tables, which are not supported: without others, that is reported.
#[test]
fn an_arm_file_without_call_frame_information_says_what_it_has() {
    let directory = Folder::new();
    let code = "f: .fnstart\n push {r4, lr}\n .save {r4, lr}\n pop {r4, pc}\n .fnend\n";
    let terminator = " .section .eh_frame, \"a\"\n .long 0\n";
    for (name, source) in [("none", code), ("empty", &[code, terminator].concat())] {
        let path = |extension| directory.path().join(format!("{name}.{extension}"));
        fs::write(path("s"), source).unwrap();
        let (from, to) = (path("s"), path("o"));
        let arguments = ["-o", to.to_str().unwrap(), from.to_str().unwrap()];
        let assembled = run_tool("arm-linux-gnueabihf-as", &arguments);
        assert!(assembled.status.success(), "{assembled:?}");
    }
    let unread = "ARM exception index (.ARM.exidx) is not read";
    refused(
        &directory,
        &["show", "none.o"],
        &["no unwind table", unread],
    );
    let (out, err) = run(&directory, &["show", "empty.o"], 0);
    assert_eq!(out, "arch arm little\n# section .eh_frame, 4 bytes\n");
    assert!(
        err.contains("the unwind table is empty") && err.contains(unread),
        "{err}"
    );
}

/// An output that cannot be written is an error, however short it is.
#[test]
fn a_full_output_is_an_error() {
    let directory = Folder::new();
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["show", "--help"],
        &["show", "/bin/true"],
        &["show", "--format", "json", "/bin/true"],
        &["stats", "/bin/true"],
        &["verify", "/bin/true"],
        &["compile", "/bin/true"],
        &["cache", "list"],
        &["cache", "clean"],
        &["cache", "clean", "--format", "json"],
        &["completions", "bash"],
    ] {
        let mut command = unspool(&directory, arguments);
        let full = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = command.stdout(full).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        let expected = "unspool: error: cannot write to standard output: No space left";
        assert!(err.starts_with(expected), "{arguments:?}: {err}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

/// A reader that stops reading is not an error; a crashed command's exit status is still passed on.
#[test]
fn a_closed_output_hides_nothing() {
    let directory = Folder::new();
    let script = "\"$0\" \"$@\" | true; echo ${PIPESTATUS[0]}";
    for (arguments, status) in [
        (&["show", "/bin/true"][..], "0\n"),
        (&["completions", "bash"], "0\n"),
        (&["--help"], "0\n"),
        (&["stack", "--", "sh", "-c", "kill -SEGV $$"], "139\n"),
    ] {
        let mut shell = command("bash");
        shell.args(["-c", script, env!("CARGO_BIN_EXE_unspool")]);
        shell
            .args(arguments)
            .env("XDG_CACHE_HOME", directory.path());
        let output = shell.output().unwrap();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            status,
            "{arguments:?}"
        );
    }
}
