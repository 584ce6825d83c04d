//! `unspool compile --emit native` and `--emit c` as a user calls them: a C program walks its own
//! stack by their output, compared with glibc's backtrace(3).

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Output;

use sha2::{Digest as _, Sha256};
use unspool_elf::ElfFile;
use unspool_table_store::{self as tables, TableSource};
use unspool_testing::{Finish as _, command, tool};

use crate::harness;
use crate::json;

const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

fn unspool(arguments: &[&str], folder: &Path) -> Output {
    harness::unspool_in(folder, arguments).output().unwrap()
}

/// Compiles with gcc or clang.
fn cc(compiler: &str, arguments: &[&str], folder: &Path) {
    tool(compiler).args(arguments).current_dir(folder).succeed();
}

#[test]
fn a_program_walks_its_own_stack() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let root = env!("CARGO_MANIFEST_DIR");
    let source = format!("{root}/tests/programs/walks_native.c");
    let include = format!("-I{root}/../native-table");
    // Without frame pointers, and with some: variable-length arrays need one.
    cc("gcc", &["-O2", &include, &source, "-o", "walks"], folder);
    let libc = unspool_testing::packages::path(LIBC).unwrap();
    for (file, object) in [("walks", "walks.so"), (libc.to_str().unwrap(), "libc.so")] {
        let output = unspool(&["compile", "--as", "native", file, "-o", object], folder);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let output = unspool(&["compile", "--as", "c", "walks", "-o", "walks.c"], folder);
    assert!(output.status.success());
    for (compiler, object) in [("gcc", "gcc.so"), ("clang", "clang.so")] {
        let warnings = ["-std=c11", "-Wall", "-Wextra", "-Werror"];
        let object = ["-O2", "-shared", "-fPIC", "walks.c", "-o", object];
        cc(compiler, &[&warnings[..], &object].concat(), folder);
    }
    for own in ["./walks.so", "./gcc.so", "./clang.so"] {
        let output = command("./walks")
            .args([own, "./libc.so"])
            .current_dir(folder)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(" 0 differences"), "{own}: {text}");
        // Eleven recursive frames, main, two of libc and _start.
        assert!(
            text.starts_with("15 frames, 15 by backtrace"),
            "{own}: {text}"
        );
    }
}

#[test]
fn impossible_requests_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("text"), "no ELF file\n").unwrap();
    for (arguments, message) in [
        (
            &["compile", "--as", "native", LIBC, LIBC, "-o", "o"][..],
            "one file",
        ),
        (&["compile", "--as", "c", LIBC, "--into", "o"], "--into"),
        // From there it is run.
        (&["compile", "--as", "native", LIBC, "--no-verify"], "cache"),
        (&["compile", "--as", "native", "text", "-o", "o"], "text"),
        (&["compile", "--as", "native", "none", "-o", "o"], "none"),
    ] {
        let output = unspool(arguments, folder);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
        assert!(!folder.join("o").exists());
    }
}

/// Proven tables are reported as such, and no others, in the fields of `docs/json.md`.
#[test]
fn code_is_proven_when_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    unspool_testing::packages::path(LOADER).unwrap();
    let rows = |form: &str, more: &[&str]| {
        let compile = ["compile", "--as", form, LOADER, "-o", "o"];
        let output = unspool(&[&compile[..], more].concat(), folder);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success());
        let output = unspool(
            &[&compile[..], &["--format", "json"], more].concat(),
            folder,
        );
        let document = json::document(&output.stdout);
        let file = &document["files"][0];
        assert_eq!(
            (&file["file"], &file["output"]),
            (&LOADER.into(), &"o".into())
        );
        assert_eq!(
            file["bytes"],
            std::fs::metadata(folder.join("o")).unwrap().len()
        );
        assert!(file["rows"].is_u64() && file["distinct_rows"].is_u64());
        assert!(file["bad_entries"] == 0 && file["seconds"].is_f64());
        assert_eq!(
            file["verified_rows"].is_null(),
            text.contains(", not verified;")
        );
        assert_eq!(
            file["verified_rows"] == file["rows"],
            text.contains(", verified;")
        );
        file["verified_rows"].as_u64()
    };
    assert!(rows("native", &[]).is_some());
    assert!(rows("native", &["--no-verify"]).is_none());
    assert!(rows("c", &[]).is_none());
}

/// Makes the object `o.so`.
fn compile(folder: &Path, file: &str) {
    let output = unspool(&["compile", "--as", "native", file, "-o", "o.so"], folder);
    assert!(output.status.success());
}

#[test]
fn objects_are_proven_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let libc = unspool_testing::packages::path(LIBC).unwrap();
    let libc = libc.to_str().unwrap();
    compile(folder, libc);
    let verify = |file: &str, object: &str| {
        let output = unspool(&["verify", file, object], folder);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let text = text + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap(), text)
    };
    let (status, text) = verify(libc, "o.so");
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("; 0 differences"), "{text}");
    // Of another file.
    let other = unspool_testing::packages::path(LOADER).unwrap();
    let (status, text) = verify(other.to_str().unwrap(), "o.so");
    assert_eq!(status, 2, "{text}");
    assert!(text.contains("of another module"), "{text}");
    // The last stub returns another register; it is not run.
    let mut object = std::fs::read(folder.join("o.so")).unwrap();
    let file = ElfFile::from_bytes("o.so", object.clone()).unwrap();
    let code = file.section_named(".text").unwrap().unwrap();
    object[usize::try_from(code.offset).unwrap() + code.data.len() - 1] = 0x90;
    // The digest is after the last note's header and owner.
    let owner = object.windows(4).position(|bytes| bytes == b"GNU\0");
    let at = owner.unwrap() + 4..owner.unwrap() + 36;
    object[at.clone()].fill(0);
    let digest = Sha256::digest(&object);
    object[at].copy_from_slice(&digest);
    std::fs::write(folder.join("changed.so"), object).unwrap();
    let (status, text) = verify(libc, "changed.so");
    assert_eq!(status, 1, "{text}");
    assert!(
        text.contains("not proven") && text.contains("it was not run"),
        "{text}"
    );
}

/// With less time than a run may take, objects are proven as well; if a run is not possible, the
/// reason is reported.
#[test]
fn a_run_is_fenced_or_there_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = unspool_testing::packages::path(LOADER).unwrap();
    compile(folder, file.to_str().unwrap());
    let verify = |before: &[&str]| {
        let mut command = tool(before[0]);
        command.args(&before[1..]);
        command.arg(env!("CARGO_BIN_EXE_unspool"));
        command.arg("verify").arg(&file).arg("o.so");
        let output = command.current_dir(folder).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    // Root could raise the limit again.
    let humble = ["/usr/bin/setpriv", "--bounding-set=-sys_resource"];
    let limited = ["/usr/bin/prlimit", "--cpu=30:30"];
    let (status, text) = match std::fs::metadata("/proc/self").unwrap().uid() {
        0 => verify(&[humble, limited].concat()),
        _ => verify(&limited),
    };
    assert!(status == Some(0) && text.contains(" steps run "), "{text}");
    // Linux before 5.9.
    let inject = ["-e", "inject=close_range:error=ENOSYS"];
    let strace = ["/usr/bin/strace", "-fqq", "-o", "/dev/null"];
    let (status, text) = verify(&[&strace[..], &inject].concat());
    let why = ": no process to run code in: Function not implemented (os error 38)\n";
    assert!(status == Some(2) && text.ends_with(why), "{text}");
}

/// Objects made in memory, of files and of the contents of folders.
#[test]
fn folders_are_proven() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let copied = folder.join("files");
    std::fs::create_dir(&copied).unwrap();
    let files = [LOADER, LIBC].map(|file| unspool_testing::packages::path(file).unwrap());
    let rows = files.iter().map(|file| {
        let file = ElfFile::open(file).unwrap();
        let table = tables::read(&file, TableSource::Auto).unwrap().table;
        table.spans().count()
    });
    let rows: usize = rows.sum();
    std::fs::copy(&files[0], copied.join("loader")).unwrap();
    std::fs::write(copied.join("no-elf"), "none").unwrap();
    let arguments = ["verify", "--as", "native", "--format", "json", "files"];
    let output = unspool(
        &[&arguments[..], &[files[1].to_str().unwrap()]].concat(),
        folder,
    );
    assert_eq!(output.status.code(), Some(0));
    let report = json::document(&output.stdout);
    assert_eq!(report["files"].as_array().unwrap().len(), 2);
    assert_eq!(report["total"]["rows"], rows);
    assert_eq!(report["total"]["differences"], 0);
    // Named files must have a table.
    let output = unspool(
        &["verify", "--as", "native", "files", "files/no-elf"],
        folder,
    );
    assert_eq!(output.status.code(), Some(2));
}
