//! The programs of the folder `examples`, built by the commands in their first lines.

use std::path::{Path, PathBuf};

use unspool_elf::ElfFile;
use unspool_testing::{command, packages};

use crate::programs::{self, stdout, with_library};

fn source(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("examples").join(name)
}

fn build_c(name: &str, options: &[&str]) -> PathBuf {
    let mut cc = programs::cc();
    cc.args(options);
    programs::build(cc, &source(name), &programs::pkg_config())
}

/// The lines with one of these words, each reduced to that word.
fn words<'w>(text: &str, words: &[&'w str]) -> Vec<&'w str> {
    let word = |line: &str| words.iter().find(|word| line.ends_with(**word)).copied();
    text.lines().filter_map(word).collect()
}

fn backtrace_of(program: &Path) {
    let text = stdout(&mut with_library(program));
    let names = words(&text, &[" recurse", " main", " _start"]);
    assert_eq!(
        names,
        [
            " recurse", " recurse", " recurse", " recurse", " main", " _start"
        ]
    );
    assert!(text.ends_with("outermost frame, 0 guessed\n"), "{text}");
}

#[test]
fn backtrace() {
    backtrace_of(&build_c("backtrace.c", &["-rdynamic"]));
}

/// The C library only knows the segments of such a program.
#[test]
fn backtrace_of_a_program_with_holes_between_its_segments() {
    packages::path("/usr/bin/ld.lld").unwrap();
    let large_pages = ["-rdynamic", "-fuse-ld=lld", "-Wl,-z,max-page-size=0x200000"];
    let program = build_c("backtrace.c", &large_pages);

    let file = ElfFile::open(&program).unwrap();
    let segments: Vec<_> = file.segments().map(|segment| segment.range()).collect();
    let holes = segments.iter().zip(segments.iter().skip(1));
    assert!(
        holes.clone().any(|(a, b)| b.start.0 - a.end.0 > 0x1000),
        "{segments:x?}"
    );
    backtrace_of(&program);
}

/// The function at an address of a program's file, by addr2line.
fn function(program: &Path, address: u64) -> String {
    let addr2line = packages::path("/usr/bin/addr2line").unwrap();
    let mut command = command(addr2line);
    command.arg("-f").arg("-e").arg(program);
    let text = stdout(command.arg(format!("{address:#x}")));
    text.lines().next().unwrap().to_owned()
}

#[test]
fn segv() {
    use std::os::unix::process::ExitStatusExt;
    let program = build_c("segv.c", &["-g", "-no-pie"]);
    let output = with_library(&program).output().unwrap();
    assert_eq!(output.status.signal(), Some(11));
    let text = String::from_utf8(output.stderr).unwrap();
    let addresses = text.lines().filter_map(|line| line.strip_prefix("0x"));
    let addresses = addresses.map(|digits| u64::from_str_radix(digits, 16).unwrap());
    // The first is an instruction's address, the others are behind calls.
    let names = addresses.take(3).enumerate();
    let names: Vec<_> = names
        .map(|(number, address)| function(&program, address - u64::from(number != 0)))
        .collect();
    assert_eq!(names, ["crash", "middle", "main"]);
    assert!(text.ends_with("outermost frame\n"), "{text}");
}

#[test]
fn cursor() {
    let program = build_c("cursor.c", &["-O1", "-std=c99"]);
    let text = stdout(&mut with_library(&program));
    let frames = text.lines().filter(|line| line.starts_with("0x"));
    let by_table = frames.filter(|line| line.ends_with(" unwind table"));
    // `main`, two functions of the C library, `_start`.
    assert_eq!(by_table.count(), 4);
    assert!(text.contains("  rbx=") && text.contains(" saved at 0x"));
    assert!(text.ends_with("outermost frame\n"), "{text}");
}

#[test]
fn terminate() {
    let mut cxx = programs::cxx();
    cxx.arg("-rdynamic");
    let program = programs::build(cxx, &source("terminate.cc"), &programs::pkg_config());
    let output = with_library(&program).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let names = words(
        &text,
        &["Account::withdraw(int)", "business(Account&)", "  main"],
    );
    assert_eq!(
        names,
        ["Account::withdraw(int)", "business(Account&)", "  main"]
    );
}

#[test]
fn own_stack() {
    // With the features that it has when all tests are built.
    let mut build = command(std::env::var_os("CARGO").unwrap());
    build
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--workspace", "--example=own_stack"])
        .args(["--quiet", "--message-format=json-render-diagnostics"]);
    let messages = stdout(&mut build);
    let program = messages
        .split('"')
        .rfind(|word| word.ends_with("/own_stack"));
    let text = stdout(&mut command(program.unwrap()));
    let program = Path::new(program.unwrap());
    let vaddrs = text.lines().filter_map(|line| line.split_once(" at 0x"));
    let vaddrs = vaddrs.filter_map(|(_, at)| at.strip_suffix(" of its file"));
    // All but those of the C library are of the program.
    let own: Vec<_> = vaddrs
        .map(|digits| function(program, u64::from_str_radix(digits, 16).unwrap()))
        .collect();
    assert!(own[0].contains("own_stack"), "{own:?}");
    assert_eq!(own.last().unwrap(), "_start");
    assert!(text.ends_with("outermost frame, 0 guessed\n"), "{text}");
}

#[test]
fn variables() {
    let mut cc = programs::cc();
    cc.args(["-O2", "-g"]);
    programs::with_std();
    let libraries = programs::pkg_config_of("unspool-variables");
    let program = programs::build(cc, &source("variables.c"), &libraries);
    let text = stdout(&mut with_library(&program));
    // As in the source.
    for line in [
        "1 discounted (inlined): percent: int = 90\n",
        "1 pay: kind: enum kind = CARD <called with CARD>\n",
        "1 pay: times: int = 1 <called with 1>\n",
        "1 pay: local round: int = 0\n",
        "2 main: local pot: struct item = {.price = 50, .name = 0x",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(
        text.contains(" \"teapot\"}\n") && text.ends_with("paid\n"),
        "{text}"
    );
}
