//! `unspool record` and `unspool report`, for programs whose files are elsewhere, or gone, at the
//! time of the report.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use unspool_profile::Profile;
use unspool_testing::{Finish as _, Folder, command, tool};

use crate::harness;
use crate::json;

/// Changes its own file, and then works in `inner`, called by `outer`, until an alarm.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <unistd.h>
volatile unsigned long sink;
__attribute__((noinline)) void INNER(void) { for (;;) sink++; }
__attribute__((noinline)) void OUTER(void) { INNER(); sink++; }
int main(int count, char **words) {
    alarm(1);
    if (count == 2 && remove(words[1]) != 0) return 1;
    if (count == 3 && rename(words[2], words[1]) != 0) return 1;
    OUTER();
    return 0;
}
"#;

/// Works in `spin`, called by code that it has made at run time, and writes what that is called: into a perf map; or
/// into a jitdump, with the unwind table of code that overwrites its frame pointer.
const MAKER: &str = r#"
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
volatile unsigned long sink;
__attribute__((noinline)) void spin(void) {
    while (clock() < CLOCKS_PER_SEC)
        for (int i = 0; i < 1000000; i++) sink++;
}
/* push %rbp; mov %rsp, %rbp; sub $32, %rsp; call *%rdi; leave; ret */
static const unsigned char WITH[] = { 0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0xff, 0xd7, 0xc9, 0xc3 };
/* push %rbp; mov $85, %ebp; sub $32, %rsp; call *%rdi; add $32, %rsp; pop %rbp; ret */
static const unsigned char WITHOUT[] = { 0x55, 0xbd, 0x55, 0, 0, 0, 0x48, 0x83, 0xec, 0x20, 0xff, 0xd7,
                                         0x48, 0x83, 0xc4, 0x20, 0x5d, 0xc3 };
/* A CIE, an FDE whose function starts 56 bytes before that is said, at the code 24 bytes before the table, and
   an end. */
static const unsigned char TABLE[] = {
    0x14, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 0x10, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
    0x1c, 0, 0, 0, 0x1c, 0, 0, 0, 0xc8, 0xff, 0xff, 0xff, sizeof WITHOUT, 0, 0, 0, 0,
    0x41, 0x0e, 16, 0x86, 2, 0x49, 0x0e, 48, 0x46, 0x0e, 16, 0x41, 0x0e, 8, 0xc6, 0, 0, 0, 0 };
struct record { uint32_t kind, size; uint64_t time; };
static void dump(FILE *file, void *code) {
    struct { uint32_t magic, version, size, machine, pad, pid; uint64_t time, flags; } header =
        { 0x4a695444, 1, sizeof header, 62, 0, getpid(), 0, 0 };
    struct { struct record record; uint64_t size, hdr_size, mapped; } table =
        { { 4, sizeof table + sizeof TABLE, 0 }, sizeof TABLE, 0, 0 };
    char name[] = "made code";
    struct { struct record record; uint32_t pid, tid; uint64_t vma, address, size, index; } load =
        { { 0, sizeof load + sizeof name + sizeof WITHOUT, 0 }, getpid(), getpid(), (uintptr_t)code,
          (uintptr_t)code, sizeof WITHOUT, 1 };
    fwrite(&header, sizeof header, 1, file);
    fwrite(&table, sizeof table, 1, file);
    fwrite(TABLE, sizeof TABLE, 1, file);
    fwrite(&load, sizeof load, 1, file);
    fwrite(name, sizeof name, 1, file);
    fwrite(WITHOUT, sizeof WITHOUT, 1, file);
    fflush(file);
    mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(file), 0);
}
int main(int count, char **words) {
    char path[999];
    void *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (count > 1) snprintf(path, sizeof path, "%s/jit-%d.dump", words[1], getpid());
    else snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *file = fopen(path, "w+");
    if (count > 1) dump(file, made);
    else fprintf(file, "%lx %zx made code\n", (long)made, sizeof WITH);
    memcpy(made, count > 1 ? WITHOUT : WITH, count > 1 ? sizeof WITHOUT : sizeof WITH);
    fclose(file);
    ((void (*)(void (*)(void)))made)(spin);
    if (count > 1) remove(path);
    return 0;
}
"#;

/// Calls `first`, and then `second`, by code in memory. The code of the second call overwrites that
/// of the first, and makes a frame of another size. With an argument, calls `first` only, in the
/// child of a process that has made the code and ended.
const REMAKER: &str = r#"
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
volatile unsigned long sink;
static void spin(long seconds) {
    clock_t end = clock() + seconds * CLOCKS_PER_SEC;
    while (clock() < end)
        for (int i = 0; i < 1000000; i++) sink++;
}
void first(void) { spin(1); sink++; }
void second(void) { spin(2); sink++; }
static void make(unsigned char *made, unsigned char size) {
    /* sub $SIZE, %rsp; call *%rdi; add $SIZE, %rsp; ret */
    unsigned char code[] = { 0x48, 0x83, 0xec, size, 0xff, 0xd7, 0x48, 0x83, 0xc4, size, 0xc3 };
    memcpy(made, code, sizeof code);
}
int main(int count, char **words) {
    void *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void (*call)(void (*)(void)) = (void (*)(void (*)(void)))made;
    int ends[2];
    if (pipe(ends) != 0) return 1;
    if (count > 1 && fork() != 0) {
        char none;
        close(ends[1]);
        return read(ends[0], &none, 1) != 0;
    }
    make(made, 24);
    if (count > 1) {
        if (fork() != 0) _exit(0);
        usleep(100000);
    }
    call(first);
    if (count > 1) return 0;
    make(made, 72);
    call(second);
    return 0;
}
"#;

/// Builds the program, with these names for its two functions.
fn build(path: &Path, [outer, inner]: [&str; 2], flags: &[&str]) {
    let names = [format!("-DOUTER={outer}"), format!("-DINNER={inner}")];
    let names = names.each_ref().map(String::as_str);
    compile(PROGRAM, path, &[flags, &names].concat());
}

fn compile(text: &str, path: &Path, flags: &[&str]) {
    let source = path.with_extension("c");
    fs::write(&source, text).unwrap();
    let mut gcc = tool("gcc");
    gcc.args(["-O1", "-fno-inline"]).args(flags);
    gcc.arg("-o").arg(path).arg(&source).succeed();
}

fn unspool() -> Command {
    let mut command = harness::unspool();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("record_cache");
    command
        .env("XDG_CACHE_HOME", cache)
        .env_remove("DEBUGINFOD_URLS");
    command
}

/// Records a command; returns the profile, and the messages.
fn record(folder: &Path, command: &[&str]) -> (PathBuf, String) {
    let profile = folder.join("unspool.prof");
    let mut record = unspool();
    record.args(["record", "-e", "cpu-clock", "-o"]);
    let output = record.arg(&profile).arg("--").args(command).output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(profile.exists(), "{said}");
    (profile, said)
}

/// The folded stacks of a profile, and the messages.
fn report(profile: &Path) -> (String, String) {
    let mut report = unspool();
    let report = report.args(["report", "--as", "folded"]).arg(profile);
    let output = report.finish().ended_with(0);
    (output.out, output.err)
}

/// Nearly all of the program's time is in `inner`, called by `outer`. None of its stacks has a
/// function of another program, or one without a name.
fn assert_stacks(folded: &str, [outer, inner]: [&str; 2]) {
    let lines = || folded.lines().filter(|line| line.starts_with("program;"));
    let weight = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    // Between `_start` and `main` are functions of glibc, which only its debug information names.
    let is_meant = |line: &&str| {
        let (stack, _) = line.rsplit_once(' ').unwrap();
        stack.contains(";_start;") && stack.ends_with(&format!(";main;{outer};{inner}"))
    };
    let there: u64 = lines().filter(is_meant).map(weight).sum();
    let all: u64 = lines().map(weight).sum();
    assert!(all > 0 && there * 10 > all * 8, "{folded}");
    for foreign in ["foreign_", "[program]", "[unknown]"] {
        assert!(lines().all(|line| !line.contains(foreign)), "{folded}");
    }
}

const OURS: [&str; 2] = ["our_outer", "our_inner"];
const FOREIGN: [&str; 2] = ["foreign_outer", "foreign_inner"];
/// Without build ID a file is identified by its inode, and later by its hash.
const BUILD_IDS: [&str; 2] = ["-Wl,--build-id=sha1", "-Wl,--build-id=none"];

/// The kernel reports the page as memory without a file.
#[test]
fn a_program_that_moves_its_code() {
    let folder = Folder::new();
    let program = folder.path().join("program");
    let source = include_str!("../programs/moves_text.c");
    let headers = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/tests/programs");
    compile(source, &program, &["-O2", headers]);
    let (profile, said) = record(folder.path(), &[program.to_str().unwrap(), "page"]);
    let (folded, _) = report(&profile);
    let weight = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    let is_meant = |line: &&str| line.contains(";_start;") && line.contains(";main;spins ");
    let meant: u64 = folded.lines().filter(is_meant).map(weight).sum();
    let all: u64 = folded.lines().map(weight).sum();
    assert!(meant * 10 > all * 9, "{said}{folded}");
}

#[test]
fn a_program_that_removes_itself() {
    for flag in BUILD_IDS {
        let folder = Folder::new();
        let program = folder.join("program");
        build(&program, OURS, &[flag]);
        let path = program.to_str().unwrap();
        let (profile, said) = record(&folder, &[path, path]);
        assert!(!program.exists(), "{said}");
        let (folded, said) = report(&profile);
        assert_stacks(&folded, OURS);
        assert!(
            said.contains("program: the recorded file is gone"),
            "{said}"
        );
        // Nor is another file at its path taken for it.
        build(&program, FOREIGN, &[flag]);
        let (folded, _) = report(&profile);
        assert_stacks(&folded, OURS);
    }
}

#[test]
fn a_program_that_is_replaced() {
    for flag in BUILD_IDS {
        let folder = Folder::new();
        let [program, other] = ["program", "other"].map(|name| folder.join(name));
        build(&program, OURS, &[flag]);
        build(&other, FOREIGN, &[flag]);
        let [path, by] = [&program, &other].map(|path| path.to_str().unwrap());
        let (profile, said) = record(&folder, &[path, path, by]);
        assert!(!other.exists(), "{said}");
        let (folded, _) = report(&profile);
        assert_stacks(&folded, OURS);
    }
}

/// A program that is replaced between the recording and the report: its names were kept.
#[test]
fn a_program_that_is_built_anew() {
    for flag in BUILD_IDS {
        let folder = Folder::new();
        let program = folder.join("program");
        build(&program, OURS, &[flag]);
        let (profile, _) = record(&folder, &[program.to_str().unwrap()]);
        assert_stacks(&report(&profile).0, OURS);
        build(&program, FOREIGN, &[flag]);
        let (folded, said) = report(&profile);
        assert_stacks(&folded, OURS);
        assert!(!folded.contains("foreign_"), "{folded}");
        assert!(said.contains("names kept while recording"), "{said}");
        let before = folder.join("before");
        fs::rename(&profile, &before).unwrap();
        let (after, _) = record(&folder, &[program.to_str().unwrap()]);
        let difference = unspool().arg("diff").args([&before, &after]).finish().out;
        assert!(difference.contains("our_inner  [") && difference.contains("foreign_inner  ["));
    }
}

/// Puts a program into a file system that only it sees, where another is outside: once at a path of
/// the same name, once as the root.
const CONTAINER: &str = r#"
set -e
root=$1 program=$2
mount -t tmpfs none "$root"
cp "$program" "$root/program"
case $3 in
    mount) exec "$root/program" ;;
    root) exec chroot "$root" /program ;;
esac
"#;

#[test]
fn a_program_in_a_container() {
    for kind in ["mount", "root"] {
        for flag in BUILD_IDS {
            let folder = Folder::new();
            let root = folder.join("root");
            fs::create_dir(&root).unwrap();
            let [inside, outside] = [folder.join("inside"), root.join("program")];
            build(&inside, OURS, &["-static", flag]);
            build(&outside, FOREIGN, &["-static", flag]);
            let [root, inside] = [&root, &inside].map(|path| path.to_str().unwrap());
            let command = [
                "unshare",
                "--map-root-user",
                "--mount",
                "sh",
                "-c",
                CONTAINER,
                "start",
            ];
            let (profile, _) = record(&folder, &[&command[..], &[root, inside, kind]].concat());
            assert_stacks(&report(&profile).0, OURS);
        }
    }
}

/// All of the time in `spin` is below the generated code and its caller.
fn assert_made(folded: &str) {
    let spinning = folded.lines().filter(|line| line.contains(";spin "));
    let spinning: Vec<&str> = spinning.collect();
    assert!(!spinning.is_empty(), "{folded}");
    let (mut all, mut guessed) = (0.0, 0.0);
    for line in spinning {
        let weight: f64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
        all += weight;
        // While rows of the code are made anew, its caller is guessed.
        let certain = line.replace(";main_[g];", ";main;");
        guessed += weight * f64::from(u8::from(certain != line));
        assert!(certain.contains(";main;made code;spin "), "{folded}");
        assert!(
            certain.contains(";_start;") || certain.contains(";_start_[g];"),
            "{folded}"
        );
    }
    assert!(guessed < all / 50.0, "{folded}");
}

/// The names of generated code are gone at the time of the report.
#[test]
fn code_that_a_program_makes() {
    let folder = Folder::new();
    let program = folder.join("program");
    compile(MAKER, &program, &[]);
    let path = program.to_str().unwrap();
    let (profile, _) = record(&folder, &[path]);
    let map = format!("/tmp/perf-{}.map", pid_of(&profile));
    fs::remove_file(map).unwrap();
    // No table has a row for it: the code that it has yet to run leads to its caller.
    assert_made(&report(&profile).0);

    let (profile, _) = record(&folder, &[path, folder.to_str().unwrap()]);
    assert_made(&report(&profile).0);

    // `stack` reads the jitdump, too. The process has mapped it when its code runs.
    let mut running = Command::new(&program).arg(folder.path()).spawn().unwrap();
    let pid = running.id().to_string();
    let stack = loop {
        let stack = unspool().args(["stack", &pid]).finish();
        if stack.out.contains("spin") {
            break stack.out;
        }
    };
    running.wait().unwrap();
    assert!(stack.contains("  made code+0xc  [jit]\n"), "{stack}");
    assert!(stack.contains("  complete: outermost frame\n"), "{stack}");
}

/// The part of a function's samples whose stacks have `main`, and not the other of the two functions
/// above it.
fn right_part(folded: &str, function: &str) -> f64 {
    let (mut all, mut right) = (0.0, 0.0);
    for (stack, weight) in folded.lines().filter_map(|line| line.rsplit_once(' ')) {
        let names: Vec<&str> = stack.split(';').collect();
        let called = names
            .iter()
            .rfind(|name| ["first", "second"].contains(name));
        if called == Some(&function) {
            let weight: f64 = weight.parse().unwrap();
            let both = names.contains(&"first") && names.contains(&"second");
            all += weight;
            right += weight * f64::from(u8::from(names.contains(&"main") && !both));
        }
    }
    assert!(all > 0.0, "{function}: {folded}");
    right / all
}

/// Code in memory without a table shows its callers, as it is at the time, in the process that runs it.
#[test]
fn code_that_a_program_makes_anew() {
    let folder = Folder::new();
    let program = folder.join("program");
    compile(REMAKER, &program, &[]);
    let program = program.to_str().unwrap();
    let (folded, _) = report(&record(&folder, &[program]).0);
    assert!(right_part(&folded, "first") > 0.9, "{folded}");
    // What has changed is noticed within half a second.
    assert!(right_part(&folded, "second") > 0.6, "{folded}");
    let (folded, _) = report(&record(&folder, &[program, "in-child"]).0);
    assert!(right_part(&folded, "first") > 0.9, "{folded}");
}

/// The process ID of the recorded process.
fn pid_of(profile: &Path) -> u32 {
    let profile = Profile::read(fs::File::open(profile).unwrap()).unwrap();
    profile.processes().first().unwrap().pid
}

/// Runs a program in a file system that only it sees, with another PID there.
const NUMBERED: &str = r#"
set -e
root=$1 program=$2
mount -t tmpfs none "$root"
mkdir "$root/tmp"
cp "$program" "$root/program"
exec chroot "$root" /program
"#;

#[test]
fn code_that_a_program_makes_in_a_container() {
    let folder = Folder::new();
    let [root, program] = ["root", "program"].map(|name| folder.join(name));
    fs::create_dir(&root).unwrap();
    compile(MAKER, &program, &["-static"]);
    let [root, program] = [&root, &program].map(|path| path.to_str().unwrap());
    let command = [
        "unshare",
        "--map-root-user",
        "--mount",
        "--pid",
        "--fork",
        "sh",
        "-c",
        NUMBERED,
    ];
    let (profile, _) = record(&folder, &[&command[..], &["start", root, program]].concat());
    assert_made(&report(&profile).0);
}

/// The messages about processes that still run at the end of a recording.
fn recorded(options: &[&str], script: &str) -> Output {
    let folder = Folder::new();
    let mut record = unspool();
    record.args(["record", "-e", "cpu-clock", "-o"]);
    record.arg(folder.join("unspool.prof")).args(options);
    record.args(["--", "sh", "-c", script]).output().unwrap()
}

/// Starts a process that keeps running, and prints its PID once its name is `sleep`.
const DAEMON: &str = "sleep 100 </dev/null >/dev/null 2>&1 &
    until grep -q sleep /proc/$!/comm; do :; done
    echo $!";

#[test]
fn background_processes_of_a_command_are_named() {
    for (options, is_named) in [(&[][..], true), (&["--no-inherit"], false)] {
        let output = recorded(options, DAEMON);
        let pid = String::from_utf8(output.stdout).unwrap();
        let pid = pid.trim();
        let said = String::from_utf8(output.stderr).unwrap();
        let named = format!(
            "goes on, and is not recorded any more: sleep ({pid}): record it with -p {pid}\n"
        );
        command("kill").arg(pid).succeed();
        assert_eq!(said.contains(&named), is_named, "{said}");
    }
    let output = recorded(&[], "sleep 0 & sleep 0; wait");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains("any more"), "{said}");
}

/// Works for a while, writes `done`, and exits with a status.
const WORK: &str = "timeout 2 sh -c 'while :; do :; done'; echo done; exit $0";

#[test]
fn a_command_goes_on_when_its_profile_cannot_be_written() {
    let folder = Folder::new();
    let fifo = folder.join("fifo");
    command("mkfifo").arg(&fifo).succeed();
    // The recording failed, whatever the command did.
    for (status, expected) in [("7", 7), ("0", 1)] {
        let mut record = unspool();
        record.args(["record", "-e", "cpu-clock", "--format", "json", "-o"]);
        record.arg(&fifo).args(["--", "sh", "-c", WORK, status]);
        record.stdout(Stdio::piped()).stderr(Stdio::piped());
        let record = record.spawn().unwrap();
        // The reader closes the FIFO after the start.
        let mut reader = fs::File::open(&fifo).unwrap();
        reader.read_exact(&mut [0]).unwrap();
        drop(reader);
        let output = record.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(expected), "{said}");
        assert_eq!(output.stdout, b"done\n", "{said}");
        assert!(said.contains("cannot write the profile"), "{said}");
        let document = json::document(said.lines().last().unwrap());
        assert_eq!(document["exit_status"].to_string(), status);
        assert!(document["error"].as_str().unwrap().contains("Broken pipe"));
        assert!(document["samples"].as_u64().unwrap() > 0);
        let notices = document["notices"].to_string();
        assert!(notices.contains("the command continues"), "{notices}");
    }
}

#[test]
fn a_command_is_not_begun_for_a_profile_that_cannot_be() {
    let mut record = unspool();
    record.args(["record", "-e", "cpu-clock", "-o", "/dev/full", "--"]);
    let output = record.args(["echo", "begun"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty());
    assert!(
        said.contains("/dev/full: cannot write the profile"),
        "{said}"
    );
}

/// A recording in a folder, without a name for the profile.
fn typed(folder: &Path, arguments: &[&str]) -> (Output, String) {
    let mut command = unspool();
    command.args(["record", "-e", "cpu-clock"]).args(arguments);
    let output = command.current_dir(folder).output().unwrap();
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    (output, said)
}

/// Arguments after the command are its own; perf's options are accepted.
#[test]
fn a_command_without_dashes_before_it() {
    let work = "timeout 0.3 sh -c 'while :; do :; done'; echo \"$@\"; exit 3";
    let arguments = ["-g", "sh", "-c", work, "name", "-p", "--all", "-g", "--"];
    let folder = Folder::new();
    let (output, said) = typed(&folder, &arguments);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert_eq!(output.stdout, b"-p --all -g --\n");
    assert_eq!(said.matches("not needed").count(), 1, "{said}");
    assert!(said.ends_with("next: unspool report\n"), "{said}");
    // The kernel lowers it if sampling takes too long.
    let most = || {
        let most = fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").unwrap();
        unspool_profile::ProfileRate::Frequency(most.trim().parse().unwrap())
    };
    let before = most();
    let arguments = [
        "--call-graph",
        "dwarf,65528",
        "-F",
        "max",
        "-o",
        "a b",
        "--",
        "sh",
        "-c",
        work,
    ];
    let (_, said) = typed(&folder, &arguments);
    assert_eq!(said.matches("not needed").count(), 1, "{said}");
    assert!(said.ends_with("next: unspool report 'a b'\n"), "{said}");
    let profile = fs::read(folder.join("a b")).unwrap();
    let profile = Profile::read(profile.as_slice()).unwrap();
    let rate = profile.meta().event.rate;
    assert!(rate == before || rate == most(), "{rate:?}");
}

#[test]
fn recordings_that_cannot_be() {
    let here = Folder::new();
    let (output, said) = typed(&here, &["1234567"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(
        said.ends_with("`unspool record -p 1234567` records a process\n"),
        "{said}"
    );
    // What shells do not look for in the current folder.
    here.write("app", "");
    let mut command = unspool();
    let output = command.args(["record", "app"]).current_dir(&here).output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(said.ends_with(": ./app is in this folder\n"), "{said}");
    // What perf takes, or does not take either.
    let explained: [(&[&str], u8, &str); 5] = [
        (
            &["-g", "dwarf,8192", "true"],
            127,
            "so dwarf,8192 is taken for the command: leave it out",
        ),
        (
            &["-o", "x.svg", "true"],
            2,
            "`unspool report -o x.svg x.prof`",
        ),
        (
            &["-o", "a/x.pb.gz", "true"],
            2,
            "`unspool report -o a/x.pb.gz a/x.prof`",
        ),
        (
            &["-e", "page-faults", "true"],
            2,
            "a recording has one event",
        ),
        (&["--", "fp", "true"], 127, "cannot run fp: No such file"),
    ];
    for (arguments, status, meant) in explained {
        let (output, said) = typed(&here, arguments);
        assert_eq!(output.status.code(), Some(status.into()), "{said}");
        assert!(said.contains(meant), "{said}");
        assert_eq!(
            said.contains("-g has no argument"),
            arguments[0] == "-g",
            "{said}"
        );
        assert!(output.stdout.is_empty());
    }
    assert!(!here.join("x.svg").exists());
}

/// With `-p`, a command says how long; its status is passed on.
#[test]
fn a_process_for_as_long_as_a_command_runs() {
    let folder = Folder::new();
    let mut target = command("sh").args(["-c", "while :; do :; done"]).spawn();
    let target = target.as_mut().unwrap();
    let pid = target.id().to_string();
    let spin = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exit 3";
    let (output, said) = typed(&folder, &["-p", &pid, "sh", "-c", spin]);
    target.kill().unwrap();
    target.wait().unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    let profile = fs::read(folder.join("unspool.prof")).unwrap();
    let profile = Profile::read(profile.as_slice()).unwrap();
    let processes: Vec<_> = profile
        .processes()
        .iter()
        .map(|process| process.pid)
        .collect();
    assert_eq!(processes, [target.id()]);
    // Without a command, the report names the process.
    let mut report = unspool();
    let report = report.arg("report").current_dir(&folder).succeed();
    assert!(
        report.starts_with(&format!("sh ({pid}): cpu-clock")),
        "{report}"
    );
    assert!(profile.samples().len() > 20 && profile.meta().command.is_empty());
}

/// Five libraries without symbols have two notices fewer, and one remedy.
#[test]
fn stripped_files_are_named_up_to_three() {
    let folder = Folder::new();
    let library = "volatile int n; static __attribute__((noinline)) void spin(void) {
        for (n = 0; n < 60000000; n++); } void SPIN(void) { spin(); n++; }";
    folder.write("library.c", library);
    let (mut main, mut libraries) = (String::new(), String::new());
    for n in 0..5 {
        let words = format!("-s -O1 -shared -fPIC -DSPIN=spin{n} -o lib{n}.so library.c");
        folder.tool("gcc", &words);
        main += &format!("void spin{n}(void); ");
        libraries += &format!(" ./lib{n}.so");
    }
    let calls: String = (0..5).map(|n| format!("spin{n}(); ")).collect();
    folder.write("main.c", format!("{main} int main(void) {{ {calls} }}"));
    folder.tool("gcc", &format!("-o program main.c{libraries}"));
    typed(&folder, &["./program"]);
    let mut command = unspool();
    let report = command.arg("report").env_remove("DEBUGINFOD_URLS");
    let said = report.current_dir(&folder).finish().err;
    assert_eq!(said.matches("so: it is stripped").count(), 3, "{said}");
    assert!(said.contains("2 more files are stripped\n"), "{said}");
    assert_eq!(said.matches("set DEBUGINFOD_URLS").count(), 1, "{said}");
}

/// A command that exits before a sample is taken.
#[test]
fn a_brief_command() {
    let folder = Folder::new();
    let mut command = unspool();
    command.args(["record", "-c", "1000000000", "true"]);
    let output = command.current_dir(&folder).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let why = "no samples: the command used the processor too briefly, in 0.";
    assert!(said.contains(why) && !said.contains("PID"), "{said}");
}

/// A recording without samples does not replace one that has some; a crash is reported.
#[test]
fn an_empty_recording_is_not_kept() {
    let folder = Folder::new();
    let run = |arguments: &[&str]| {
        let mut command = unspool();
        let output = command
            .arg("record")
            .args(arguments)
            .current_dir(&folder)
            .finish();
        (output.err, fs::read(folder.join("unspool.prof")).unwrap())
    };
    let spin = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; kill -SEGV $$";
    let (said, first) = run(&["sh", "-c", spin]);
    assert!(
        said.contains("killed by SIGSEGV: `unspool stack -- CMD` shows where\n"),
        "{said}"
    );
    let (said, second) = run(&["-c", "1000000000", "true"]);
    assert!(
        said.contains("unspool.prof: this recording is empty: the earlier one stays\n"),
        "{said}"
    );
    assert!(first == second && !folder.join("unspool.prof.old").exists());
}

/// A process that does not run has no samples, and the recording names a remedy.
#[test]
fn an_idle_process() {
    let mut idle = command("sleep").arg("100").spawn().unwrap();
    let folder = Folder::new();
    let pid = idle.id().to_string();
    let mut command = unspool();
    command.args(["record", "-d", "0.2", "-p", &pid]);
    let output = command.current_dir(&folder).output().unwrap();
    idle.kill().unwrap();
    idle.wait().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let why = "no samples: it did not run while it was recorded: --off-cpu shows where it waits";
    assert!(said.contains(why) && !said.contains("next:"), "{said}");
    let output = unspool()
        .arg("report")
        .current_dir(&folder)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("`unspool record --off-cpu` shows where it waits"),
        "{said}"
    );
}
