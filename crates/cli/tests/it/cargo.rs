//! `cargo unspool check`, and the hook of docs/checking.md.

use std::fs;
use std::path::Path;

use unspool_testing::{Finish as _, command, tool};

use crate::harness;

const LIBRARY: &str = r#"
use std::arch::{global_asm, naked_asm};

global_asm!(
    ".globl wrong", ".type wrong, @function", "wrong:", ".cfi_startproc",
    "push rbx", "mov rax, rdi", "pop rbx", "ret",
    ".cfi_endproc", ".size wrong, . - wrong",
    ".globl bare", ".type bare, @function", "bare:", "lea rax, [rdi+1]", "ret", ".size bare, . - bare",
);

unsafe extern "C" {
    pub fn wrong(x: u64) -> u64;
    pub fn bare(x: u64) -> u64;
}

#[unsafe(naked)]
pub extern "C" fn naked_wrong(x: u64) -> u64 {
    naked_asm!(".cfi_startproc", "push rdi", "call {}", "pop rdi", "ret", ".cfi_endproc", sym helper)
}

#[unsafe(naked)]
pub extern "C" fn naked_right(x: u64) -> u64 {
    naked_asm!(
        ".cfi_startproc", "push rdi", ".cfi_adjust_cfa_offset 8", "call {}", "pop rdi", ".cfi_adjust_cfa_offset -8", "ret",
        ".cfi_endproc", sym helper
    )
}

extern "C" fn helper(x: u64) -> u64 {
    x * 3
}
"#;

const PROGRAM: &str = "fn main() { println!(\"{}\", unsafe { kernels::wrong(3) + kernels::bare(4) } + kernels::naked_wrong(5) \
                       + kernels::naked_right(6)); }\n";

/// A crate with a library and a program.
fn kernels(library: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let manifest =
        "[package]\nname = \"kernels\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    fs::write(folder.path().join("src/lib.rs"), library).unwrap();
    fs::write(folder.path().join("src/main.rs"), PROGRAM).unwrap();
    folder
}

/// The status, results and messages of `cargo unspool`.
fn cargo_unspool(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = command(env!("CARGO_BIN_EXE_cargo-unspool"))
        .arg("unspool")
        .args(arguments)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .finish();
    (output.status.code(), output.out, output.err)
}

#[test]
fn assembly_in_rust_is_checked() {
    let folder = kernels(LIBRARY);
    let all = [
        ("refuted CFI001", "in wrong+0x1"),
        ("refuted CFI001", "in kernels::naked_wrong+0x1"),
        ("refuted CFI005", "in bare+0x0"),
    ];
    // Without line numbers only the library is checked, and compilers may leave functions without
    // an entry.
    for (profile, expected) in [(&[][..], &all[..]), (&["--", "--release"], &all[..2])] {
        let (status, out, err) = cargo_unspool(folder.path(), &[&["check"], profile].concat());
        assert_eq!(status, Some(1), "{out}{err}");
        for (code, function) in expected {
            let is_it = |line: &&str| line.contains(code) && line.ends_with(function);
            assert_eq!(
                out.lines().filter(is_it).count(),
                1,
                "{code} {function}: {out}{err}"
            );
        }
        // Nothing from the standard library or the C library, and nothing that is right.
        assert_eq!(out.matches(" CFI").count(), expected.len(), "{out}{err}");
    }
}

/// Code in the program itself, and not in its library, is reported as well.
#[test]
fn naked_functions_and_labels_of_programs_are_checked() {
    let folder = kernels("pub fn used() {}\n");
    let program = r#"
use std::arch::{global_asm, naked_asm};
global_asm!(".globl bare", "bare:", "push rbx", "pop rbx", "ret");
unsafe extern "C" { fn bare(); }
#[unsafe(naked)]
extern "C" fn naked() { naked_asm!("push rbx", "pop rbx", "ret") }
fn main() { unsafe { bare() }; naked(); println!("{:?}", std::thread::spawn(|| 1).join()); }
"#;
    fs::write(folder.path().join("src/main.rs"), program).unwrap();
    let (status, out, err) = cargo_unspool(folder.path(), &["check"]);
    assert_eq!(status, Some(1), "{out}{err}");
    for function in ["in bare+0x0", "in kernels::naked+0x0"] {
        let is_it = |line: &str| line.contains("refuted CFI005") && line.ends_with(function);
        assert!(out.lines().any(is_it), "{out}");
    }
    assert_eq!(out.matches(" CFI").count(), 2, "{out}{err}");
}

#[test]
fn a_crate_without_findings_is_clean() {
    let right = LIBRARY
        .replace(
            "\"push rbx\",",
            "\"push rbx\", \".cfi_adjust_cfa_offset 8\",",
        )
        .replace(
            "\"pop rbx\",",
            "\"pop rbx\", \".cfi_adjust_cfa_offset -8\",",
        )
        .replace("\"lea rax", "\".cfi_startproc\", \"lea rax")
        .replace(
            "\"ret\", \".size bare",
            "\"ret\", \".cfi_endproc\", \".size bare",
        )
        .replace(
            "\"push rdi\", \"call {}\"",
            "\"push rdi\", \".cfi_adjust_cfa_offset 8\", \"call {}\"",
        )
        .replace(
            "\"pop rdi\", \"ret\"",
            "\"pop rdi\", \".cfi_adjust_cfa_offset -8\", \"ret\"",
        );
    let folder = kernels(&right);
    let (status, out, err) = cargo_unspool(folder.path(), &["check", "--", "--all-targets"]);
    assert_eq!(status, Some(0), "{out}{err}");
    assert!(
        out.contains("libkernels.rlib: ") && out.contains("debug/kernels: "),
        "{out}"
    );
}

#[test]
fn build_failures_and_bad_requests_are_reported() {
    let folder = kernels("fn broken( {\n");
    let (status, _, err) = cargo_unspool(folder.path(), &["check"]);
    assert_eq!(status, Some(2), "{err}");
    assert!(err.contains("cargo failed"), "{err}");
    let (status, _, err) = cargo_unspool(folder.path(), &["synth"]);
    assert_eq!(status, Some(2), "{err}");
    assert!(err.contains("`synth` is not a command"), "{err}");
    let (status, out, _) = cargo_unspool(folder.path(), &["check", "--help"]);
    assert_eq!(status, Some(0));
    assert!(out.contains("usage: cargo unspool check"), "{out}");
    let empty = tempfile::tempdir().unwrap();
    let (status, _, err) = cargo_unspool(empty.path(), &["check"]);
    assert_eq!(status, Some(2), "{err}");
    assert!(err.contains("Cargo.toml"), "{err}");
}

/// The script in docs/checking.md prevents commits of wrong tables, and nothing else.
#[test]
fn the_hook_in_the_documentation_works() {
    let page = include_str!("../../../../docs/checking.md");
    let script = page
        .split("```sh\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    assert!(script.starts_with("#!/bin/sh\n"), "{script}");
    let folder = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str]| {
        let programs = Path::new(env!("CARGO_BIN_EXE_unspool")).parent().unwrap();
        tool("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@example.org"])
            .args(arguments)
            .current_dir(folder.path())
            .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap()
    };
    assert!(git(&["init", "-q"]).status.success());
    let hook = folder.path().join(".git/hooks/pre-commit");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, script).unwrap();
    command("chmod").arg("+x").arg(&hook).succeed();
    let wrong = "\t.globl f\nf:\n\t.cfi_startproc\n\tpush %rdi\n\tcall g\n\tpop %rdi\n\tret\n\t.cfi_endproc\n";
    fs::write(folder.path().join("notes"), "no code\n").unwrap();
    fs::write(folder.path().join("a file.S"), wrong).unwrap();
    assert!(git(&["add", "notes"]).status.success());
    let commit = git(&["commit", "-q", "-m", "notes"]);
    assert!(commit.status.success(), "{commit:?}");
    assert!(git(&["add", "."]).status.success());
    let commit = git(&["commit", "-q", "-m", "wrong"]);
    assert!(!commit.status.success(), "{commit:?}");
    // git prints the output of hooks to standard error.
    assert!(
        String::from_utf8_lossy(&commit.stderr).contains("CFI001"),
        "{commit:?}"
    );
    let fixing = harness::unspool()
        .args(["check", "--fix", "a file.S"])
        .current_dir(folder.path())
        .output();
    assert!(fixing.unwrap().status.success());
    assert!(git(&["add", "."]).status.success());
    let commit = git(&["commit", "-q", "-m", "right"]);
    assert!(commit.status.success(), "{commit:?}");
}
