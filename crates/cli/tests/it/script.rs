//! `unspool script` compared with `perf script`, and with known stacks.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::OnceLock;

use unspool_testing::{Finish as _, command, tool};

use crate::harness::{self, UNSPOOL};

/// Recurses to the depth in its argument, through frames of different sizes, and works there for a
/// while. With a second argument, it does so in a program that its child runs.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
volatile unsigned long sink;
__attribute__((noinline)) void leaf(void) { for (unsigned i = 0; i < 500000000; i++) sink++; }
__attribute__((noinline)) void narrow(int left);
__attribute__((noinline)) void wide(int left) {
    volatile char pad[60];
    pad[left % 60] = 1;
    narrow(left - 1);
    pad[0] = 2;
}
__attribute__((noinline)) void narrow(int left) {
    if (left == 0) leaf();
    else wide(left);
    sink++;
}
int main(int count, char **words) {
    int depth = atoi(words[1]);
    if (count > 2) {
        if (fork() == 0) {
            execl(words[0], words[0], words[1], NULL);
            _exit(1);
        }
        wait(NULL);
        return 0;
    }
    narrow(depth);
    return 0;
}
"#;

fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("scripted", "-fomit-frame-pointer"))
}

fn build(name: &str, option: &str) -> PathBuf {
    let source = folder().join(format!("{name}.c"));
    fs::write(&source, PROGRAM).unwrap();
    let path = folder().join(name);
    let mut gcc = tool("gcc");
    gcc.args(["-O2", "-fno-optimize-sibling-calls", option]);
    gcc.arg("-o").arg(&path).arg(&source).succeed();
    path
}

/// Records a command by perf.
fn record(name: &str, options: &[&str], command: &[&str]) -> PathBuf {
    let path = folder().join(format!("script-{name}.data"));
    let mut perf = tool("perf");
    perf.args(["record", "-q", "-F", "499"])
        .args(options)
        .arg("-o")
        .arg(&path);
    perf.arg("--").args(command).succeed();
    path
}

fn run(program: &str, options: &[&str], file: &Path) -> Output {
    let mut command = command(program);
    command.arg("script").args(options);
    if program == "perf" {
        command.arg("-i");
    } else {
        command.arg("--no-cache");
    }
    command.arg(file).output().unwrap()
}

fn text(output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

fn perf(options: &[&str], file: &Path) -> String {
    comparable(text(run("perf", options, file)))
}

fn ours(options: &[&str], file: &Path) -> String {
    comparable(text(run(UNSPOOL, options, file)))
}

/// A text in the form of perf 6.1. Later versions have wider columns of thread IDs, and addresses in
/// the process in place of those in files: of these the last 12 bits are the same.
fn comparable(text: String) -> String {
    static IS_6_1: OnceLock<bool> = OnceLock::new();
    let is_6_1 = || tool("perf").arg("version").succeed().contains(" 6.1.");
    if *IS_6_1.get_or_init(is_6_1) {
        return text;
    }
    let line = |line: &str| {
        let mut words: Vec<_> = line.split_whitespace().collect();
        let first = words.first_mut();
        if let Some(address) =
            first.filter(|word| line.starts_with('\t') && !word.starts_with("ffff"))
        {
            *address = &address[address.len().saturating_sub(3)..];
        }
        let indent = if line.starts_with('\t') { "\t" } else { "" };
        format!("{indent}{}\n", words.join(" "))
    };
    text.lines().map(line).collect()
}

/// The samples of a text: a line each, and the lines of its frames.
fn samples(text: &str) -> Vec<(&str, Vec<&str>)> {
    let blocks = text.split_terminator("\n\n");
    blocks
        .map(|block| {
            let mut lines = block.lines();
            (lines.next().unwrap_or_default(), lines.collect())
        })
        .collect()
}

/// The functions of the program among a sample's frames.
fn functions(frames: &[&str]) -> Vec<String> {
    let own = frames.iter().filter(|frame| frame.contains("/scripted)"));
    let name = |frame: &&str| {
        let (_, rest) = frame.trim_start().split_once(' ').unwrap();
        rest.split('+').next().unwrap().to_owned()
    };
    own.map(name).collect()
}

/// All samples within the leaf have the program's known stack.
fn assert_known(text: &str, depth: usize) {
    let mut expected = vec!["leaf".to_owned(), "narrow".to_owned()];
    for _ in 0..depth {
        expected.extend(["wide".to_owned(), "narrow".to_owned()]);
    }
    expected.extend(["main".to_owned(), "_start".to_owned()]);
    let samples = samples(text);
    let stacks = samples.iter().map(|(_, frames)| functions(frames));
    let stacks: Vec<_> = stacks
        .filter(|stack| stack.first().is_some_and(|name| name == "leaf"))
        .collect();
    assert!(stacks.len() > 20, "{} samples", stacks.len());
    for stack in stacks {
        assert_eq!(stack, expected);
    }
}

#[test]
fn a_recording_with_copied_stacks_is_printed_as_perf_does() {
    let path = record(
        "dwarf",
        &["--call-graph", "dwarf"],
        &[program().to_str().unwrap(), "10"],
    );
    let (theirs, ours) = (perf(&["--no-inline"], &path), ours(&["--no-inline"], &path));
    assert_known(&ours, 10);
    let (theirs, ours) = (samples(&theirs), samples(&ours));
    assert_eq!(theirs.len(), ours.len());
    let mut equal = 0;
    for ((head, frames), (our_head, our_frames)) in theirs.iter().zip(&ours) {
        assert_eq!(head, our_head);
        // perf does not reach the end of some stacks, and continues past that of others.
        equal += usize::from(frames == our_frames);
    }
    assert!(
        equal * 100 >= theirs.len() * 95,
        "{equal} of {} are equal",
        theirs.len()
    );
}

#[test]
fn programs_that_others_begin_and_deep_stacks_are_right() {
    let command = [program().to_str().unwrap(), "10", "fork"];
    let path = record("forked", &["--call-graph", "dwarf"], &command);
    assert_known(&ours(&["--no-inline"], &path), 10);
    // Deeper than perf's 127 frames.
    let command = [program().to_str().unwrap(), "120"];
    let path = record("deep", &["--call-graph", "dwarf,32768"], &command);
    let text = ours(&["--no-inline"], &path);
    assert_known(&text, 120);
    let cut = ours(&["--no-inline", "--max-frames", "5"], &path);
    assert!(samples(&cut).iter().all(|(_, frames)| frames.len() <= 5));
    let longest = samples(&text).iter().map(|(_, frames)| frames.len()).max();
    assert!(longest.unwrap() > 240);
}

#[test]
fn other_recordings_and_fields_are_printed_as_perf_does() {
    let command = [program().to_str().unwrap(), "5"];
    let plain = record("plain", &[], &command);
    let events = ["-e", "cpu-clock", "-e", "context-switches", "--sample-cpu"];
    let several = record("several", &events, &command);
    let packed = record(
        "packed",
        &["-z", "-e", "cpu-clock", "--sample-cpu"],
        &command,
    );
    for path in [&plain, &several, &packed] {
        for fields in [
            "comm,tid,time,event",
            "comm,pid,tid,cpu,time,period,event",
            "pid,time",
            "comm,tid,time,period,event,ip",
            "comm,ip,dso",
        ] {
            let has_cpu = run("perf", &["-F", "cpu"], path).status.success();
            let fields = if has_cpu {
                fields.to_owned()
            } else {
                fields.replace("cpu,", "")
            };
            let options = ["-F", &fields];
            assert_eq!(ours(&options, path), perf(&options, path), "{fields}");
        }
        let options = ["--ns", "-F", "tid,time"];
        assert_eq!(ours(&options, path), perf(&options, path));
        for changes in ["+pid,-period", "-comm,-time,-symoff", "-ip"] {
            let options = ["-F", changes];
            assert_eq!(
                heads(&ours(&options, path)),
                heads(&perf(&options, path)),
                "{changes}"
            );
        }
    }
    for (fields, why) in [
        ("comm,+pid", "not both at once"),
        ("+addr", "`addr` is not a field"),
        ("hw:comm", "`hw:comm` is not a field"),
        ("-sym", "symoff is the offset from sym"),
    ] {
        let refused = run(UNSPOOL, &["-F", fields], &plain);
        assert_eq!(refused.status.code(), Some(2), "{fields}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains(why), "{said}");
        assert!(refused.stdout.is_empty());
        // perf does not print them either.
        assert!(fields == "hw:comm" || !run("perf", &["-F", fields], &plain).status.success());
    }
}

/// The text of samples before their addresses, without fields that differ between the two readers.
fn heads(text: &str) -> Vec<String> {
    let event = |line: &str| line.rsplit_once(": ").map(|(head, _)| head.to_owned());
    text.lines().filter_map(event).collect()
}

#[test]
fn a_recording_can_be_named_as_perf_has_it() {
    let path = record("named", &[], &[program().to_str().unwrap(), "5"]);
    let unspool = |options: &[&str]| {
        let mut command = harness::unspool();
        command.args(["script", "--no-cache"]).args(options);
        command.stdin(fs::File::open(&path).unwrap());
        command.output().unwrap()
    };
    let name = path.to_str().unwrap();
    let expected = text(unspool(&[name]));
    assert!(!expected.is_empty());
    for options in [["-i", name], ["--input", name], ["-i", "-"]] {
        assert_eq!(text(unspool(&options)), expected, "{options:?}");
    }
    assert_eq!(unspool(&["-i", name, name]).status.code(), Some(2));

    // The description of the recording is perf's, except for its details of events.
    let headed = text(unspool(&["--header", "-i", name]));
    let header = comparable(headed.strip_suffix(&expected).unwrap().to_owned());
    let theirs = perf(&["--header"], &path);
    for line in header.lines() {
        let is_known = theirs.lines().any(|known| {
            if line.contains("event") {
                known.starts_with(&format!("{line},"))
            } else {
                known == line
            }
        });
        assert!(is_known, "{line} is not in {theirs}");
    }
    for known in [
        "hostname",
        "os release",
        "cmdline",
        "event",
        "time of last sample",
    ] {
        let start = format!("# {known} : ");
        assert!(
            header.lines().any(|line| line.starts_with(&start)),
            "{header}"
        );
    }
}

#[test]
fn a_recording_by_frame_pointers_is_printed_as_perf_does() {
    let path = build("scripted-fp", "-fno-omit-frame-pointer");
    let file = record("fp", &["-g"], &[path.to_str().unwrap(), "10"]);
    let (theirs, ours) = (perf(&["--no-inline"], &file), ours(&["--no-inline"], &file));
    let own = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains("/scripted-fp)"));
        lines.map(str::to_owned).collect()
    };
    assert!(own(&ours).len() > 100);
    assert_eq!(own(&ours), own(&theirs));
    // Without frame pointers the kernel finds arbitrary values.
    let file = record(
        "fp-none",
        &["-g"],
        &[
            "sort",
            "-n",
            "-o",
            "/dev/null",
            "/usr/bin/perf",
            "/usr/bin/gdb",
        ],
    );
    let is_unknown = |line: &str| line.ends_with("[unknown] ([unknown])");
    assert!(perf(&["--no-inline"], &file).lines().any(is_unknown));
    let all = self::ours(&["--no-inline"], &file);
    assert!(all.lines().any(is_unknown));
    for line in all
        .lines()
        .filter(|line| line.ends_with(" ([kernel.kallsyms])"))
    {
        assert!(line.starts_with("\tffff"), "{line}");
    }
}

#[test]
fn our_own_recordings_are_printed_too() {
    let path = folder().join("script-own.prof");
    let mut unspool = harness::unspool();
    unspool.args(["record", "--no-cache", "-F", "499", "-o"]);
    let done = unspool.arg(&path).arg("--").arg(program()).arg("10");
    text(done.output().unwrap());
    let all = text(run(UNSPOOL, &["--no-inline"], &path));
    assert_known(&all, 10);
    // Where the function is, by another reader.
    let symbols = tool("nm").arg(program()).succeed();
    let leaf = symbols
        .lines()
        .find(|line| line.ends_with(" T leaf"))
        .unwrap();
    let leaf = u64::from_str_radix(leaf.split(' ').next().unwrap(), 16).unwrap();
    for frame in all.lines().filter(|line| line.contains(" leaf+0x")) {
        let (address, rest) = frame.trim_start().split_once(" leaf+0x").unwrap();
        let offset = rest.split(' ').next().unwrap();
        let number = |digits| u64::from_str_radix(digits, 16).unwrap();
        assert_eq!(number(address), leaf + number(offset), "{frame}");
    }
    let fields = ours(&["-F", "comm,tid,ip,sym", "--max-frames", "2"], &path);
    let (head, frames) = samples(&fields).remove(0);
    assert!(
        head.starts_with("scripted ") && head.split_whitespace().count() == 2,
        "{head}"
    );
    assert!(frames.len() <= 2 && !frames[0].contains('('), "{frames:?}");
    let mut inject = harness::unspool();
    let output = inject
        .arg("script")
        .arg(&path)
        .args(["--inject", "-o", "/dev/null"]);
    assert_eq!(output.output().unwrap().status.code(), Some(2));
}

#[test]
fn reports_are_of_one_event_of_a_recording_of_perf() {
    let events = ["-e", "cpu-clock", "-e", "task-clock"];
    let options = [&events[..], &["--call-graph", "dwarf"]].concat();
    let path = record(
        "report",
        &options,
        &[program().to_str().unwrap(), "10", "fork"],
    );
    let report = |options: &[&str]| {
        let mut unspool = harness::unspool();
        unspool
            .arg("report")
            .args(options)
            .arg(&path)
            .output()
            .unwrap()
    };
    // The weights are perf's, for each event.
    let periods = perf(&["-F", "period,event", "-G"], &path);
    for event in ["cpu-clock", "task-clock"] {
        let lines = periods.lines().filter(|line| line.contains(event));
        let weights = lines.map(|line| line.split_whitespace().next().unwrap());
        let expected: u64 = weights.map(|weight| weight.parse::<u64>().unwrap()).sum();
        let folded = text(report(&["--as", "folded", "--event", event]));
        let weights = folded.lines().map(|line| line.rsplit(' ').next().unwrap());
        let found: u64 = weights.map(|weight| weight.parse::<u64>().unwrap()).sum();
        assert_eq!(found, expected, "{event}");
    }
    let first = report(&["--as", "folded"]);
    let said = String::from_utf8_lossy(&first.stderr).into_owned();
    assert!(said.contains("these are samples of cpu-clock"), "{said}");
    let first = text(first);
    assert!(first.contains("main;narrow;wide;narrow;"), "{first}");
    assert!(first.lines().any(|line| line.contains("wide;narrow;leaf ")));
    let unknown = report(&["--event", "cycles"]);
    assert_eq!(unknown.status.code(), Some(2));
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        said.replace(":u", "").contains("cpu-clock, task-clock"),
        "{said}"
    );
}

#[test]
fn inlined_functions_come_first() {
    let source = folder().join("inlined.c");
    let code = "volatile unsigned long sink;
        static inline __attribute__((always_inline)) void inner(void) { for (int i = 0; i < 500000000; i++) sink++; }
        static inline __attribute__((always_inline)) void middle(void) { inner(); }
        __attribute__((noinline)) void outer(void) { middle(); sink++; }
        int main(void) { outer(); return 0; }";
    fs::write(&source, code).unwrap();
    let path = folder().join("inlined");
    let mut gcc = tool("gcc");
    gcc.args(["-O2", "-g", "-o"])
        .arg(&path)
        .arg(&source)
        .succeed();
    let file = record(
        "inlined",
        &["--call-graph", "dwarf"],
        &[path.to_str().unwrap()],
    );
    // Each function's source line is below it.
    let lines = |text: String| -> Vec<String> {
        let innermost = |sample: &str| {
            sample
                .lines()
                .nth(2)
                .is_some_and(|line| line.trim_start().starts_with("inlined.c:"))
        };
        let samples = text.split("\n\n").filter(|sample| innermost(sample));
        // perf has other names of source files for headers, as the C library's.
        let own = samples.map(|sample| {
            let lines = sample.lines().skip(1);
            lines
                .take_while(|line| !line.contains("libc"))
                .collect::<Vec<_>>()
        });
        own.map(|lines| lines.join("\n")).collect()
    };
    for options in [
        &["-F", "+srcline"][..],
        &["--no-inline", "-F", "comm,ip,sym,dso,srcline"],
    ] {
        let printed = lines(ours(options, &file));
        assert!(printed.len() > 10, "{printed:?}");
        assert_eq!(printed, lines(perf(options, &file)));
    }
    let (theirs, ours) = (perf(&[], &file), ours(&[], &file));
    let tops = |text: &str| -> Vec<Vec<String>> {
        let samples = samples(text);
        let own = samples.into_iter().map(|(_, frames)| frames);
        let own = own.filter(|frames| {
            frames
                .first()
                .is_some_and(|frame| frame.contains(" inner+"))
        });
        own.map(|frames| frames[..3].iter().map(|&f| f.to_owned()).collect())
            .collect()
    };
    let (theirs, ours) = (tops(&theirs), tops(&ours));
    assert!(ours.len() > 10);
    assert_eq!(ours, theirs);
}

/// Writes a recording with finished call chains by unspool.
fn inject(file: &Path) -> PathBuf {
    let path = file.with_extension("injected");
    let mut command = harness::unspool();
    command.args(["script", "--no-cache", "--inject"]).arg(file);
    text(command.arg("-o").arg(&path).output().unwrap());
    path
}

/// perf's output for a recording with finished call chains equals unspool's for the one with copied
/// stacks.
fn assert_injected(file: &Path, options: &[&str]) {
    let injected = inject(file);
    let options = [options, &["--no-inline"]].concat();
    let (before, after) = (ours(&options, file), perf(&options, &injected));
    assert_eq!(before.lines().count(), after.lines().count());
    for (before, after) in before.lines().zip(after.lines()) {
        // Within execve the registers are of the previous program, and perf still uses its files.
        if before.ends_with(" ([unknown])") {
            continue;
        }
        // perf 6.1 takes a linkage table's entries to be in the order of their relocations.
        if after.contains("@plt+") {
            let all_but_name = |line: &str| {
                let (address, rest) = line.trim_start().split_once(' ')?;
                let (_, module) = rest.rsplit_once(" (")?;
                Some(format!("{address} ({module}"))
            };
            assert_eq!(all_but_name(before), all_but_name(after));
            continue;
        }
        assert_eq!(before, after);
    }
    let report = tool("perf")
        .args(["report", "--stdio", "-i"])
        .arg(&injected)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&report.stderr), "");
    assert!(text(report).contains("Children"));
}

#[test]
fn perf_reads_finished_call_chains() {
    let path = program().to_str().unwrap();
    let dwarf = ["--call-graph", "dwarf,32768"];
    let file = record("inject", &dwarf, &[path, "100", "fork"]);
    assert_injected(&file, &["--max-stack", "1000"]);
    let injected = inject(&file);
    assert_known(&perf(&["--max-stack", "1000"], &injected), 100);
    let annotate = tool("perf")
        .args(["annotate", "--stdio", "-s", "leaf", "-i"])
        .arg(&injected)
        .output();
    assert!(text(annotate.unwrap()).contains("<leaf>:"));
    let sizes = [&file, &injected].map(|path| fs::metadata(path).unwrap().len());
    assert!(sizes[1] * 5 < sizes[0], "{sizes:?}");
    // The description of the recording does not change, except for offsets.
    let header = |path: &Path| {
        let text = perf(&["--header-only", "-I"], path);
        let lines = text.lines().filter(|line| {
            ![
                "captured",
                "data offset",
                "data size",
                "feat offset",
                "event :",
            ]
            .iter()
            .any(|moved| line.starts_with(&format!("# {moved}")))
        });
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(header(&injected), header(&file));
}

#[test]
fn recordings_of_any_form_get_call_chains() {
    let command = ["sh", "-c", "gzip -c /proc/self/exe | gzip -d | wc -c"];
    let events = ["-e", "cpu-clock", "-e", "task-clock"];
    let dwarf = ["--call-graph", "dwarf,4096"];
    let options = [&events[..], &dwarf, &["-z"]].concat();
    assert_injected(&record("inject-packed", &options, &command), &[]);
    let options = [
        &events[..],
        &dwarf,
        &["--sample-cpu", "-d", "--buildid-mmap"],
    ]
    .concat();
    assert_injected(&record("inject-several", &options, &command), &[]);
    // Only one of two events has stacks.
    let options = ["-e", "cpu-clock/call-graph=dwarf/", "-e", "task-clock"];
    let path = record("inject-one", &options, &command);
    assert_injected(&path, &["-F", "comm,tid,time,period,event,ip,dso"]);
    // A recording that was written to a pipe.
    let path = folder().join("script-inject-stream.data");
    let out = fs::File::create(&path).unwrap();
    let mut perf = tool("perf");
    perf.args(["record", "-q", "-o", "-"])
        .args(events)
        .args(dwarf);
    perf.args(["--", "sleep", "0.1"]).stdout(out).succeed();
    assert_injected(&path, &[]);
    // Samples without copied stacks do not change.
    let path = record("inject-fp", &["-g"], &["sleep", "0.01"]);
    let injected = inject(&path);
    let options = ["--no-inline", "--ns"];
    let (before, after) = (
        run("perf", &options, &path),
        run("perf", &options, &injected),
    );
    assert_eq!(text(before), text(after));
}

#[test]
fn a_closed_pipe_is_accepted() {
    let path = record(
        "closed",
        &["--call-graph", "dwarf"],
        &[program().to_str().unwrap(), "30"],
    );
    let mut command = harness::unspool();
    command
        .args(["script", "--no-cache", "--no-inline"])
        .arg(&path);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert!(line.contains("-clock") || line.contains("cycles"), "{line}");
    drop(out);
    let done = child.wait_with_output().unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// An output in place of the recording would lose its stacks.
#[test]
fn a_recording_is_not_written_over() {
    let file = record("kept", &["-g"], &["sleep", "0.01"]);
    let before = fs::read(&file).unwrap();
    let link = file.with_extension("link");
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for path in [&file, &link] {
        let mut inject = harness::unspool();
        inject.args(["script", "--inject"]).arg(&file);
        let output = inject.arg("-o").arg(path).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("is the recording itself"), "{said}");
        assert!(fs::read(&file).unwrap() == before);
    }
}

#[test]
fn damaged_recordings_are_reported() {
    let whole = record("whole", &["-g"], &["sleep", "0.01"]);
    let bytes = fs::read(&whole).unwrap();
    let path = folder().join("script-cut.data");
    // The offset of the records, and their size in bytes.
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let end = usize::try_from(word(40) + word(48)).unwrap();
    fs::write(&path, &bytes[..end - 20]).unwrap();
    let output = run(UNSPOOL, &[], &path);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("at offset 0x"), "{said}");
    let mut report = harness::unspool();
    let output = report.arg("report").arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(1));

    // A problem of the attributes is reported once.
    fs::write(&path, &bytes[..150]).unwrap();
    let output = run(UNSPOOL, &[], &path);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.matches("at offset").count(), 1, "{said}");

    fs::write(&path, "no recording").unwrap();
    let output = run(UNSPOOL, &[], &path);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("PERFILE2"), "{said}");
}

#[test]
fn a_file_that_was_replaced_is_not_used() {
    let path = folder().join("replaced");
    fs::copy(program(), &path).unwrap();
    let file = record(
        "replaced",
        &["--call-graph", "dwarf"],
        &[path.to_str().unwrap(), "3"],
    );
    fs::remove_file(&path).unwrap();
    fs::copy("/bin/true", &path).unwrap();
    // perf keeps recorded files in its own cache; here that is disabled.
    let nobody = folder().join("nobody");
    let mut command = harness::unspool();
    command
        .env_remove("XDG_CACHE_HOME")
        .envs(["PERF_BUILDID_DIR", "HOME"].map(|name| (name, &nobody)));
    let output = command
        .args(["script", "--no-cache"])
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("replaced") && said.contains("build ID"),
        "{said}"
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("[unknown] (") && !text.contains("leaf"));
    // The names of the kernel's functions are cached only in an existing home.
    assert!(!nobody.exists());
}
