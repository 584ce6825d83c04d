//! Recordings of programs whose stacks are known beforehand.
#![cfg(test)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use unspool_elf::{ElfFile, embed};
use unspool_files::output::create;
use unspool_perf_events::{DataFile, PerfEvent, SampleRate};
use unspool_profile::{
    CodeLocation, Completeness, CpuState, FrameEvidence, Meta, Profile, ProfileFrame,
    ProfileSample, StackEnd,
};
use unspool_sampler::{
    HandOver, RecordError, RecordOptions, RecordSummary, RecordTarget, Recording, UnwindEngine,
    WalkCounts, import,
};
use unspool_table_store::{EMBEDDED_SECTION, Store, TableSource, compile};
use unspool_testing::{Finish as _, command, tool};

/// Recurses to the depth in its argument, through frames of different sizes. It stays there until
/// an alarm kills it, or until it has called itself by `exec`.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#ifndef SECONDS
#define SECONDS 1
#endif
volatile unsigned long sink;
__attribute__((noinline)) void leaf(void) { for (;;) sink++; }
__attribute__((noinline)) void narrow(int left);
__attribute__((noinline)) void wide(int left) {
    volatile char pad[600];
    pad[left % 600] = 1;
    narrow(left - 1);
    pad[0] = 2;
}
__attribute__((noinline)) void narrow(int left) {
    if (left == 0) leaf();
    wide(left);
    sink++;
}
int main(int count, char **words) {
    int depth = atoi(words[1]);
    if (count > 2) {
        if (fork() == 0) {
            execl(words[0], words[0], words[1], NULL);
            _exit(1);
        }
        sleep(1);
        return 0;
    }
#ifdef MAPPINGS
    int file = open("/proc/self/exe", O_RDONLY);
    for (int n = 0; n < MAPPINGS; n++)
        if (mmap((char *)0x100000000000 + n * 8192, 4096, PROT_READ | PROT_EXEC,
                 MAP_PRIVATE | MAP_FIXED, file, 4096) == MAP_FAILED) return 2;
#endif
    alarm(SECONDS);
    narrow(depth);
    return 0;
}
"#;

/// Spends most of its time just after a register was popped. Its unwind table still says that the
/// register is on the stack, as compilers' tables do in epilogues.
const AT_AN_END: &str = r#"
#include <unistd.h>
void leaf(char *buffer, int unused, int unused_too, unsigned long count);
__asm__(".text; .globl leaf; .type leaf,%function; leaf: .cfi_startproc\n"
#ifdef __aarch64__
        "stp x29, x30, [sp, #-16]!; .cfi_def_cfa_offset 16; .cfi_offset 29, -16; .cfi_offset 30, -8\n"
        "mov x29, #0x55\n"
        "ldp x29, x30, [sp], #16; .cfi_def_cfa_offset 0\n"
        "1: .rept 8; nop; .endr; b 1b\n"
#else
        "push %rbp; .cfi_def_cfa_offset 16; .cfi_offset %rbp, -16\n"
        "mov $0x55, %ebp; xor %eax, %eax\n"
        "pop %rbp; .cfi_def_cfa_offset 8\n"
        "rep stosb; .cfi_restore %rbp\n"
#endif
        "ret; .cfi_endproc; .size leaf, . - leaf");
char buffer[1 << 16];
__attribute__((noinline, optimize("no-omit-frame-pointer"))) void narrow(void) {
    for (;;) leaf(buffer, 0, 0, sizeof buffer);
}
int main(void) {
    alarm(1);
    narrow();
    return 0;
}
"#;

/// Loads libraries in turn that differ only in the size of their frames. Each is loaded at the
/// address of the last one. For most of its time it is 22 frames deep in one of them.
const CHURN: &str = r#"
#include <dlfcn.h>
#include <unistd.h>
#ifndef STAYS
#define STAYS(n) 0
#endif
int main(int count, char **paths) {
    alarm(SECONDS);
    for (int n = 0;; n++) {
        void *library = dlopen(paths[1 + n % (count - 1)], RTLD_NOW);
        if (library == NULL) return 1;
        void (*down)(int) = (void (*)(int))dlsym(library, "down");
        do down(20); while (STAYS(n));
        dlclose(library);
    }
}
"#;

const LIBRARY: &str = r#"
volatile unsigned long sink;
static __attribute__((noinline)) void deeper(int left) {
    volatile char pad[PAD];
    pad[0] = 1;
    if (left) { deeper(left - 1); sink++; }
    else for (int i = 0; i < 300000; i++) sink += i;
}
void down(int left) { deeper(left); sink++; }
"#;

/// Maps a file's code again and again, for as long as it is not killed.
const FLOOD: &str = r#"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int count, char **paths) {
    alarm(20);
    int file = open(paths[1], O_RDONLY);
    for (;;)
        if (mmap((char *)0x100000000000, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, 0)
            == MAP_FAILED) return 1;
}
"#;

struct TestProgram {
    path: PathBuf,
    /// Its functions by address: the start, and one past the end.
    functions: BTreeMap<u64, (u64, String)>,
}

impl TestProgram {
    fn build(name: &str, flags: &[&str]) -> TestProgram {
        TestProgram::from_text(PROGRAM, name, flags)
    }

    fn from_text(text: &str, name: &str, flags: &[&str]) -> TestProgram {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let source = folder.join(format!("{name}.c"));
        fs::write(&source, text).unwrap();
        let path = folder.join(name);
        let mut gcc = tool("gcc");
        gcc.args([
            "-O2",
            "-fno-optimize-sibling-calls",
            "-fomit-frame-pointer",
            "-fno-inline",
        ]);
        gcc.args(flags).arg("-o").arg(&path).arg(&source).succeed();
        let nm = tool("nm")
            .args(["-S", "--defined-only"])
            .arg(&path)
            .output();
        let listed = String::from_utf8(nm.expect("nm is there (Debian: binutils)").stdout).unwrap();
        let function = |line: &str| {
            let fields: Vec<_> = line.split(' ').collect();
            let [start, size, _, name] = *fields else {
                return None;
            };
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some((
                number(start)?,
                (number(start)? + number(size)?, name.to_owned()),
            ))
        };
        TestProgram {
            path,
            functions: listed.lines().filter_map(function).collect(),
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(words);
        command
    }

    /// The names of a sample's functions, from the innermost on; `?` for those of other files.
    fn names(&self, profile: &Profile, sample: &ProfileSample) -> Vec<String> {
        let frames = profile.stacks().frames(sample.stack);
        let frames = frames.map(|id| profile.frame(id).unwrap());
        let name = |location: CodeLocation| {
            let CodeLocation::Module(module, address) = location else {
                return None;
            };
            let module = profile.module(module).unwrap();
            if module.path != self.path {
                return None;
            }
            let (_, (end, name)) = self.functions.range(..=address.0).next_back()?;
            (address.0 < *end).then(|| name.clone())
        };
        frames
            .map(|frame| name(frame.lookup).unwrap_or_else(|| "?".to_owned()))
            .collect()
    }
}

fn options() -> RecordOptions {
    RecordOptions {
        event: Some(PerfEvent::cpu_clock()),
        rate: SampleRate::Frequency(999),
        inherits: true,
        off_cpu: false,
        duration: None,
        arguments: None,
        unwind: UnwindEngine::Copy,
    }
}

fn in_kernel() -> RecordOptions {
    RecordOptions {
        unwind: UnwindEngine::Kernel,
        ..options()
    }
}

fn record(name: &str, target: RecordTarget, options: RecordOptions) -> (RecordSummary, Profile) {
    record_with(
        Store::from_environment().without_cache(),
        name,
        target,
        options,
    )
}

/// A store that has the tables of a program and of the C library: walks in the kernel need them,
/// and compiling can take longer than the program runs.
fn store_for(program: &TestProgram) -> Store {
    store_with(&[program.path.as_path()])
}

fn store_with(paths: &[&Path]) -> Store {
    // A cache is its owner's, and some of these tests run as another user than the rest.
    let owner = fs::metadata("/proc/self").unwrap().uid();
    let folder = std::env::temp_dir().join(format!("unspool-kernel-tables-{owner}"));
    let store = Store::new(None, Some(folder.into()), None);
    let libraries = [
        Path::new("/lib/x86_64-linux-gnu/libc.so.6"),
        Path::new("/lib64/ld-linux-x86-64.so.2"),
    ];
    for path in paths.iter().chain(&libraries) {
        let file = ElfFile::open(path).unwrap();
        let file = store.stable(&file);
        let compiled = compile(&file, TableSource::Auto).unwrap();
        store.keep(&file, &compiled.encoded.bytes).unwrap();
    }
    store
}

/// An ordinary user may lock little memory for rings in one process: one recording has it all.
fn alone() -> MutexGuard<'static, ()> {
    static RECORDING: Mutex<()> = Mutex::new(());
    RECORDING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn record_with(
    store: Store,
    name: &str,
    target: RecordTarget,
    options: RecordOptions,
) -> (RecordSummary, Profile) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.prof"));
    let _alone = alone();
    let recording = Recording::prepare(target, options).expect("perf_event_paranoid is 2 or less");
    let (file, _) = create(&path).unwrap();
    let summary = recording.run(file, store, Meta::default(), |_| {}).unwrap();
    let profile = Profile::read(fs::File::open(&path).unwrap()).unwrap();
    (summary, profile)
}

/// All samples at the bottom have the program's known stack.
fn assert_stacks(program: &TestProgram, profile: &Profile, depth: usize) {
    let mut expected = vec!["leaf".to_owned(), "narrow".to_owned()];
    for _ in 0..depth {
        expected.extend(["wide".to_owned(), "narrow".to_owned()]);
    }
    expected.push("main".to_owned());
    let mut count = 0;
    for sample in profile.samples() {
        let names = program.names(profile, sample);
        if names.first().is_none_or(|name| name != "leaf") {
            continue;
        }
        count += 1;
        let (program, outer) = names.split_at(expected.len().min(names.len()));
        assert_eq!(program, expected);
        // The C library's two functions, and `_start`.
        assert_eq!(outer.len(), 3, "{outer:?}");
        assert_eq!(outer.last().map(String::as_str), Some("_start"));
        assert!(sample.end.is_root(), "{:?}", sample.end);
    }
    // A second of its time has about a thousand, on an idle CPU; none is missing.
    assert!(count > 20, "{count} samples of {}", profile.samples().len());
}

#[test]
fn every_stack_of_a_command_is_the_one_that_it_has() {
    let program = TestProgram::build("plain", &["-Wl,--build-id=none"]);
    let target = RecordTarget::Command(program.command(&["30"]));
    let (summary, profile) = record("plain", target, options());
    let mut modules = profile.modules().iter();
    let module = modules.find(|module| module.path == program.path).unwrap();
    let hash = command("sha256sum").arg(&program.path).output();
    let hash = String::from_utf8(hash.expect("sha256sum (Debian: coreutils)").stdout).unwrap();
    let content = module.content.unwrap().to_string();
    assert_eq!(content, format!("sha256-{}", &hash[..40]));
    assert_eq!(summary.status.unwrap().signal(), Some(libc::SIGALRM));
    assert_eq!(
        summary.completeness.samples(),
        profile.samples().len() as u64
    );
    assert_stacks(&program, &profile, 30);
}

/// Nine of ten walks are complete, but for those that the machine was too slow for.
fn assert_walked(counts: &WalkCounts) {
    assert!(counts.complete > 20, "{counts:?}");
    assert!(
        counts.complete * 10 >= (counts.all() - too_slow(counts)) * 9,
        "{counts:?}"
    );
}

/// The number of samples before the process was known, and of walks that took too long.
fn too_slow(counts: &WalkCounts) -> u64 {
    counts.count(HandOver::UnknownProcess) + counts.count(HandOver::Deadline)
}

/// 786 frames, of which the copied part of the stack has fewer than half.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn stacks_are_walked_in_the_kernel() {
    let program = TestProgram::build("walked", &["-DSECONDS=3"]);
    for depth in [0, 30, 390] {
        let target = RecordTarget::Command(program.command(&[&depth.to_string()]));
        let (summary, profile) = record_with(store_for(&program), "walked", target, in_kernel());
        assert_stacks(&program, &profile, depth);
        let walks = summary.walks.unwrap();
        assert_walked(&walks.counts);
        let spliced = summary.completeness.spliced;
        assert!(
            spliced.saturating_sub(too_slow(&walks.counts)) * 50 <= walks.counts.all(),
            "{walks:?}"
        );
        // Beside the BPF programs of others, the kernel leaves out some.
        assert!(walks.missed * 50 <= walks.counts.all(), "{walks:?}");
        assert_eq!(walks.outdated, 0, "{walks:?}");
    }
}

/// The frames are those of walks of copies, in the same samples.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn walks_in_the_kernel_have_the_frames_of_walks_of_copies() {
    let program = TestProgram::build("walked_both", &["-DSECONDS=3"]);
    let script = "import json\ndef f(n): return f(n - 1) + 1 if n else len(json.dumps([1] * 9999))\n\
                  for i in range(2000): f(50)";
    let messaging = ["bench", "sched", "messaging", "-g", "1", "-l", "3000"];
    let python_path = fs::canonicalize("/usr/bin/python3").unwrap();
    let mut python = tool(python_path.to_str().unwrap());
    let mut perf = tool("/usr/bin/perf");
    perf.args(messaging);
    python.args(["-c", script]);
    let paths = [&*program.path, &*python_path, Path::new("/usr/bin/perf")];
    for command in [program.command(&["390"]), python, perf] {
        let mut options = in_kernel();
        options.unwind = UnwindEngine::Both;
        options.rate = SampleRate::Frequency(9973);
        let target = RecordTarget::Command(command);
        let (summary, _) = record_with(store_with(&paths), "walked_both", target, options);
        let walks = summary.walks.unwrap();
        let comparison = &walks.comparison;
        assert!(comparison.compared > 50, "{walks:?}");
        assert!(
            comparison.compared * 10 > walks.counts.complete * 9,
            "{walks:?}"
        );
        let described = comparison.described.join("\n");
        assert_eq!(comparison.different, 0, "{described}");
    }
}

/// A thread that waits is walked when it stops running.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn waiting_threads_are_walked_in_the_kernel() {
    let text = PROGRAM.replace("for (;;) sink++;", "for (;;) usleep(1000);");
    let program = TestProgram::from_text(&text, "walked_waiting", &[]);
    let target = RecordTarget::Command(program.command(&["20"]));
    let mut options = in_kernel();
    options.off_cpu = true;
    let (summary, profile) = record_with(store_for(&program), "walked_waiting", target, options);
    let is_waiting = |sample: &&ProfileSample| sample.state != CpuState::OnCpu;
    let waiting: Vec<_> = profile.samples().iter().filter(is_waiting).collect();
    assert!(waiting.len() > 60, "{}", waiting.len());
    for sample in waiting.iter().skip(20) {
        let names = program.names(&profile, sample);
        let own = names.iter().filter(|name| *name != "?").count();
        // `leaf`, 41 functions of the recursion, `main` and `_start`.
        assert_eq!(own, 44, "{names:?}");
        assert!(sample.end.is_root(), "{:?}", sample.end);
    }
    let counts = summary.walks.unwrap().counts;
    assert_walked(&counts);
    assert!(counts.samples * 2 < counts.all(), "{counts:?}");
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn processes_with_a_thousand_mappings_are_walked_in_the_kernel() {
    let program = TestProgram::build("walked_mappings", &["-DMAPPINGS=2000", "-DSECONDS=2"]);
    let target = RecordTarget::Command(program.command(&["5"]));
    let name = "walked_mappings";
    let (summary, profile) = record_with(store_for(&program), name, target, in_kernel());
    assert_stacks(&program, &profile, 5);
    assert_walked(&summary.walks.unwrap().counts);
}

/// `u` and `k` after an event's name, for a command that works in both modes.
#[test]
#[ignore = "needs CAP_PERFMON: cargo xtask root"]
fn events_count_in_one_mode() {
    let both = "dd if=/dev/zero of=/dev/null bs=64k count=40000 2>/dev/null; \
                i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    for (event, in_kernel) in [("cpu-clock:u", false), ("cpu-clock:k", true)] {
        let mut command = command("sh");
        command.args(["-c", both]);
        let options = RecordOptions {
            event: Some(event.parse().unwrap()),
            ..options()
        };
        let (_, profile) = record(event, RecordTarget::Command(command), options);
        assert_eq!(profile.meta().event.name, event);
        let samples = profile.samples();
        assert!(samples.len() > 20, "{event}: {}", samples.len());
        for sample in samples {
            let frames = profile.stacks().frames(sample.stack);
            let frames: Vec<_> = frames.map(|id| profile.frame(id).unwrap()).collect();
            let is_kernel = frames[0].evidence == FrameEvidence::Kernel;
            assert_eq!(
                is_kernel, in_kernel,
                "{event}: {frames:x?} {:?}",
                sample.end
            );
        }
    }
}

/// The kernel follows the frame pointer through words that the process wrote: here to a return
/// address that has the value of the mark of kernel addresses, and on.
const FORGED_MARK: &str = r#"
int main(void) {
    static long frames[3][2];
    frames[0][0] = (long)frames[1];
    frames[0][1] = -128;
    frames[1][0] = (long)frames[2];
    frames[1][1] = 0x123450;
    frames[2][1] = 0x123456;
    __asm__ volatile("push %%rbp\n"
                     ".cfi_adjust_cfa_offset 8\n"
                     "mov %0, %%rbp\n"
                     "mov $1000000000, %%rcx\n"
                     "1: dec %%rcx\n"
                     "jnz 1b\n"
                     "pop %%rbp\n"
                     ".cfi_adjust_cfa_offset -8\n"
                     : : "r"(frames[0]) : "rcx", "memory");
}
"#;

/// The event counts in user mode only: no frame can be the kernel's.
#[test]
fn a_process_cannot_forge_frames_of_the_kernel() {
    let program = TestProgram::from_text(FORGED_MARK, "forged_mark", &["-mno-red-zone"]);
    let options = RecordOptions {
        event: Some("cpu-clock:u".parse().unwrap()),
        ..options()
    };
    let target = RecordTarget::Command(program.command(&[]));
    let (_, profile) = record("forged_mark", target, options);
    assert!(profile.samples().len() > 20, "{}", profile.samples().len());
    for sample in profile.samples() {
        let frames = profile.stacks().frames(sample.stack);
        let frames: Vec<_> = frames.map(|id| profile.frame(id).unwrap()).collect();
        let is_kernel = |frame: &&ProfileFrame| frame.evidence == FrameEvidence::Kernel;
        assert!(!frames.iter().any(is_kernel), "{frames:x?}");
    }
}

/// Its maker has embedded it, and nobody has compared it with the file's own table.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn tables_in_files_are_not_used_in_the_kernel() {
    let program = TestProgram::build("walked_embedded", &["-Wl,--build-id"]);
    let file = ElfFile::open(&program.path).unwrap();
    let compiled = compile(&file, TableSource::Auto).unwrap().encoded.bytes;
    let embedded = embed(&file, EMBEDDED_SECTION, &compiled, 64).unwrap();
    fs::write(&program.path, embedded).unwrap();
    let target = RecordTarget::Command(program.command(&["5"]));
    let name = "walked_embedded";
    let (summary, profile) = record_with(store_for(&program), name, target, in_kernel());
    assert_stacks(&program, &profile, 5);
    let counts = summary.walks.unwrap().counts;
    assert_eq!(counts.complete, 0, "{counts:?}");
    assert!(counts.count(HandOver::NoMapping) > 20, "{counts:?}");
}

/// Fills a map for most of its time. The kernel takes no sample then.
const MAP_UPDATES: &str = r#"
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    union bpf_attr map, update;
    unsigned key = 0;
    memset(&map, 0, sizeof map);
    memset(&update, 0, sizeof update);
    map.map_type = BPF_MAP_TYPE_ARRAY;
    map.key_size = 4;
    map.value_size = 4 << 20;
    map.max_entries = 1;
    update.map_fd = syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof map);
    update.key = (unsigned long)&key;
    update.value = (unsigned long)calloc(1, 4 << 20);
    alarm(2);
    while (syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &update, sizeof update) == 0);
    return 1;
}
"#;

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn samples_that_the_kernel_does_not_take_are_counted() {
    let program = TestProgram::from_text(MAP_UPDATES, "walked_missed", &[]);
    let target = RecordTarget::Command(program.command(&[]));
    let (summary, _) = record_with(store_for(&program), "walked_missed", target, in_kernel());
    assert_eq!(summary.status.unwrap().signal(), Some(libc::SIGALRM));
    let walks = summary.walks.unwrap();
    let all = walks.counts.all();
    assert!(walks.missed * 10 > all && all > 20, "{walks:?}");
}

/// A process that replaces code is not walked in the kernel, and one that forks or calls `exec` is.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn processes_whose_mappings_change_have_right_stacks() {
    let program = TestProgram::build("walked_forked", &[]);
    let target = RecordTarget::Command(program.command(&["12", "fork"]));
    let (summary, profile) = record_with(store_for(&program), "walked_forked", target, in_kernel());
    assert_stacks(&program, &profile, 12);
    let counts = summary.walks.unwrap().counts;
    assert!(counts.complete > 20, "{counts:?}");
    let flags = ["-DSECONDS=2"];
    let (summary, samples) = check_replaced_libraries("walked_churn", &flags, in_kernel());
    assert!(samples.iter().all(|count| *count > 20), "{samples:?}");
    let counts = summary.walks.unwrap().counts;
    assert!(
        counts.count(HandOver::ReplacedCode) * 2 > counts.all(),
        "{counts:?}"
    );
    // The last library stays. After a second, it is walked in the kernel.
    let flags = ["-DSECONDS=4", "-DSTAYS(n)=(n == 3)"];
    let (summary, samples) = check_replaced_libraries("walked_replaced", &flags, in_kernel());
    assert!(samples[1] > 20, "{samples:?}");
    let counts = summary.walks.unwrap().counts;
    assert!(counts.complete > 50, "{counts:?}");
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn running_processes_are_walked_in_the_kernel() {
    let program = TestProgram::build("walked_attached", &["-static", "-DSECONDS=60"]);
    let mut child = program.command(&["20"]).spawn().unwrap();
    let mut options = in_kernel();
    options.duration = Some(Duration::from_secs(4));
    let target = RecordTarget::Processes(vec![child.id()]);
    let (summary, profile) = record_with(store_for(&program), "walked_attached", target, options);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_stacks(&program, &profile, 20);
    let counts = summary.walks.unwrap().counts;
    assert!(counts.complete > 20, "{counts:?}");
}

#[test]
fn libraries_that_are_unloaded_and_replaced() {
    let (_, samples) = check_replaced_libraries("churn", &["-DSECONDS=2"], options());
    assert!(samples.iter().all(|count| *count > 20), "{samples:?}");
}

/// Returns the numbers of samples in each library, too.
fn check_replaced_libraries(
    name: &str,
    flags: &[&str],
    options: RecordOptions,
) -> (RecordSummary, [usize; 2]) {
    let program = TestProgram::from_text(CHURN, name, &[flags, &["-ldl"]].concat());
    let libraries = [("256", "-DPAD=240"), ("512", "-DPAD=496")].map(|(suffix, pad)| {
        let name = format!("{name}{suffix}");
        TestProgram::from_text(LIBRARY, &name, &["-fPIC", "-shared", pad])
    });
    let mut command = program.command(&[]);
    command.args(libraries.iter().map(|library| &library.path));
    let target = RecordTarget::Command(command);
    let (summary, profile) = record_with(store_for(&program), name, target, options);
    assert_eq!(summary.status.unwrap().signal(), Some(libc::SIGALRM));
    let mut counts = [0, 0];
    for sample in profile.samples() {
        for (library, count) in libraries.iter().zip(&mut counts) {
            let names = library.names(&profile, sample);
            if names.first().is_some_and(|name| name == "deeper") {
                *count += 1;
                // The program's function, the C library's two, and `_start`.
                let outer = ["down", "?", "?", "?", "?"].map(str::to_owned);
                let whole = [vec!["deeper".to_owned(); 21], outer.to_vec()].concat();
                // It may be on its way down or up.
                assert!(whole.ends_with(&names), "{names:?}");
                assert!(sample.end.is_root(), "{:?}", sample.end);
            }
        }
    }
    (summary, counts)
}

#[test]
fn programs_that_are_begun_by_others_are_followed() {
    let program = TestProgram::build("forked", &[]);
    let target = RecordTarget::Command(program.command(&["12", "fork"]));
    let (summary, profile) = record("forked", target, options());
    assert_eq!(summary.status.unwrap().code(), Some(0));
    assert_stacks(&program, &profile, 12);
    // The command, the child before and after `exec`; not one of them twice.
    let pids: Vec<_> = profile
        .processes()
        .iter()
        .map(|process| process.pid)
        .collect();
    assert!((2..=4).contains(&pids.len()), "{pids:?}");
}

/// Whoever maps files without end makes the kernel lose records of others' programs.
#[test]
fn mappings_without_records_are_read_again() {
    let program = TestProgram::build("flooded", &[]);
    let flood = TestProgram::from_text(FLOOD, "flood", &[]);
    // A record has the path.
    let names = vec!["x".repeat(240); 15].join("/");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(names);
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("file");
    fs::write(&file, [0; 4096]).unwrap();
    let script = "\"$0\" \"$1\" & one=$!; \"$0\" \"$1\" & other=$!
        for time in 1 2 3; do \"$2\" 12 fork; done; kill $one $other";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(&flood.path);
    command.arg(&file).arg(&program.path);
    let (summary, profile) = record("flooded", RecordTarget::Command(command), options());
    assert!(summary.lost_task_records > 0);
    assert_stacks(&program, &profile, 12);
    let (mut own, mut known) = (0, 0);
    for sample in profile.samples() {
        let process = profile.thread(sample.thread).unwrap().process;
        if profile.process(process).unwrap().name == "flooded" {
            own += 1;
            let names = program.names(&profile, sample);
            known += usize::from(names.iter().any(|name| name != "?"));
        }
    }
    // The others were taken before: how many depends on the machine.
    assert!(known * 4 > own * 3, "{known} of {own}");
}

#[test]
fn processes_that_run_are_attached_to() {
    let program = TestProgram::build("attached", &["-static", "-DSECONDS=60"]);
    let mut child = program.command(&["20"]).spawn().unwrap();
    let mut options = options();
    options.duration = Some(Duration::from_secs(1));
    // Named twice, it is recorded once.
    let pids = vec![child.id(), child.id()];
    let (summary, profile) = record("attached", RecordTarget::Processes(pids), options);
    assert!(summary.status.is_none());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_stacks(&program, &profile, 20);
    let weights = profile.samples().iter().map(|sample| sample.weight);
    let ran = Duration::from_nanos(weights.sum());
    assert!(ran < summary.elapsed * 3 / 2, "one thread: {ran:?}");
}

#[test]
fn a_register_that_was_just_popped_is_known() {
    let program = TestProgram::from_text(AT_AN_END, "at_an_end", &[]);
    let (_, profile) = record(
        "at_an_end",
        RecordTarget::Command(program.command(&[])),
        options(),
    );
    assert_stacks(&program, &profile, 0);
}

/// Spends most of its time in a function that no unwind table covers.
fn without_table(instructions: &str) -> String {
    format!(
        r#"
#include <unistd.h>
void leaf(char *buffer, int unused, int unused_too, unsigned long count);
__asm__(".text; .globl leaf; .type leaf,%function; leaf: {instructions}; .size leaf, . - leaf;"
        ".globl last; .type last,%function; last: .cfi_startproc; ret; .cfi_endproc; .size last, . - last");
char buffer[1 << 16];
__attribute__((noinline)) void narrow(void) {{
    for (;;) leaf(buffer, 0, 0, sizeof buffer);
}}
int main(void) {{
    alarm(1);
    narrow();
    return 0;
}}
"#
    )
}

#[test]
fn exit_paths_of_code_without_a_table() {
    #[cfg(target_arch = "aarch64")]
    let bodies = [
        "1: strb wzr, [x0], #1; subs x3, x3, #1; b.ne 1b; ret",
        "stp x29, x30, [sp, #-32]!; mov x29, #7; str x19, [sp, #16]; sub sp, sp, #32; \
         1: strb wzr, [x0], #1; subs x3, x3, #1; b.ne 1b; \
         add sp, sp, #32; ldr x19, [sp, #16]; ldp x29, x30, [sp], #32; ret",
        "paciasp; stp x29, x30, [sp, #-64]!; mov x29, sp; \
         1: strb wzr, [x0], #1; subs x3, x3, #1; b.ne 1b; \
         mov sp, x29; ldp x29, x30, [sp], #64; autiasp; ret",
        "stp x29, x30, [sp, #-32]!; mov x29, sp; str x20, [sp, #16]; \
         1: strb wzr, [x0], #1; subs x3, x3, #1; b.ne 1b; \
         cbz x0, 2f; ldr x20, [sp, #16]; ldp x29, x30, [sp], #32; b last; 2: bl abort",
    ];
    #[cfg(target_arch = "x86_64")]
    let bodies = [
        "rep stosb; ret",
        "push %rbp; mov $7, %ebp; push %rbx; sub $24, %rsp; rep stosb; \
         add $24, %rsp; pop %rbx; pop %rbp; ret",
        "push %rbp; mov %rsp, %rbp; sub $64, %rsp; rep stosb; leave; ret",
        "push %rbp; mov %rsp, %rbp; push %r12; rep stosb; \
         test %rdi, %rdi; je 1f; pop %r12; pop %rbp; jmp last; 1: call abort",
        "lea -200(%rsp), %rsp; 1: rep stosb; test %rcx, %rcx; jne 1b; lea 200(%rsp), %rsp; ret",
    ];
    for (number, body) in bodies.into_iter().enumerate() {
        let name = format!("without_table_{number}");
        let program = TestProgram::from_text(&without_table(body), &name, &[]);
        let (_, profile) = record(
            &name,
            RecordTarget::Command(program.command(&[])),
            options(),
        );
        assert_stacks(&program, &profile, 0);
        let is_synthesized = |sample: &&ProfileSample| {
            let frames = profile.stacks().frames(sample.stack);
            let mut evidence = frames.map(|id| profile.frame(id).unwrap().evidence);
            evidence.any(|evidence| evidence == FrameEvidence::Synthesized)
        };
        let synthesized = profile.samples().iter().filter(is_synthesized).count();
        assert!(synthesized > 20, "{body}: {synthesized}");
    }
}

/// Recurses through trampolines made at run time, as CPython does for perf.
const TRAMPOLINES: &str = r#"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __aarch64__
/* stp x29, x30, [sp, #-16]!; blr x3; ldp x29, x30, [sp], #16; ret */
static const unsigned CODE[] = {0xa9bf7bfd, 0xd63f0060, 0xa8c17bfd, 0xd65f03c0};
#else
/* sub $8, %rsp; call *%rcx; add $8, %rsp; ret */
static const unsigned char CODE[] = {0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3};
#endif
enum { DEPTH = 20 };
typedef int function(int left, long, long, void *callee);
static unsigned char *code;
volatile unsigned long sink;
__attribute__((noinline)) void leaf(void) { for (;;) sink++; }
__attribute__((noinline)) int narrow(int left, long a, long b, void *callee) {
    if (left == 0) leaf();
    function *trampoline = (function *)(code + 16 * (left % 8));
    int result = trampoline(left - 1, a, b, callee);
    sink++;
    return result;
}
int main(void) {
    code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int n = 0; n < 8; n++) memcpy(code + 16 * n, CODE, sizeof CODE);
    __builtin___clear_cache((char *)code, (char *)code + 128);
    /* The recorder reads the trampolines of a running process. */
    alarm(3);
    return narrow(DEPTH, 0, 0, (void *)narrow);
}
"#;

#[test]
fn trampolines_in_anonymous_memory_show_their_callers() {
    let program = TestProgram::from_text(TRAMPOLINES, "trampolines", &[]);
    let target = RecordTarget::Command(program.command(&[]));
    let (_, profile) = record("trampolines", target, options());
    let mut expected = vec!["leaf".to_owned(), "narrow".to_owned()];
    expected.extend(["?", "narrow"].repeat(20).iter().map(ToString::to_string));
    expected.push("main".to_owned());
    let mut checked = 0;
    for sample in profile.samples() {
        let names = program.names(&profile, sample);
        if names.first().is_none_or(|name| name != "leaf") {
            continue;
        }
        assert!(
            names.starts_with(&expected) && sample.end.is_root(),
            "{names:?}"
        );
        let frames = profile.stacks().frames(sample.stack);
        let evidence: Vec<_> = frames
            .map(|id| profile.frame(id).unwrap().evidence)
            .collect();
        let synthesized = evidence
            .iter()
            .filter(|how| **how == FrameEvidence::Synthesized);
        assert_eq!(synthesized.count(), 20);
        assert!(!evidence.iter().any(|how| how.is_guess()));
        checked += 1;
    }
    assert!(checked > 10, "{checked}");
}

/// The number of frames found in copies, and of spliced frames.
fn count_spliced(profile: &Profile) -> [usize; 2] {
    let frames = profile.samples().iter().flat_map(|sample| {
        let frames = profile.stacks().frames(sample.stack);
        frames.map(|id| profile.frame(id).unwrap().evidence)
    });
    let (spliced, copied): (Vec<_>, Vec<_>) =
        frames.partition(|evidence| *evidence == FrameEvidence::Spliced);
    [copied.len(), spliced.len()]
}

#[test]
fn a_stack_larger_than_a_copy_is_completed_from_memory() {
    let program = TestProgram::build("large", &[]);
    // Each of `wide` takes more than 600 bytes.
    let target = RecordTarget::Command(program.command(&["1000"]));
    let (_, profile) = record("large", target, options());
    assert_stacks(&program, &profile, 1000);
    let [copied, spliced] = count_spliced(&profile);
    // 64 KiB of about 630.
    assert!(
        spliced > 7 * copied && spliced < 11 * copied,
        "{copied} {spliced}"
    );
    let samples: Vec<_> = profile.samples().iter().collect();
    let completeness = Completeness::new(&profile, &samples);
    let has_spliced = |sample: &&ProfileSample| {
        let mut frames = profile.stacks().frames(sample.stack);
        frames.any(|id| profile.frame(id).unwrap().evidence == FrameEvidence::Spliced)
    };
    let expected = profile.samples().iter().filter(has_spliced).count();
    assert_eq!(completeness.spliced, expected as u64);
}

/// Recurses through functions in a random-looking order, and returns, again and again.
const MOVING: &str = r#"
#include <time.h>
enum { DEPTH = 2000 };
typedef unsigned long function(unsigned long at);
function f0, f1, f2;
static unsigned long seconds(void) { return clock() / CLOCKS_PER_SEC; }
__attribute__((noinline)) unsigned long work(unsigned long at) {
    for (int i = 0; i < 5000; i++) at = at * 6364136223846793005u + 1;
    return at;
}
static inline __attribute__((always_inline)) unsigned long down(unsigned long at, unsigned long size) {
    volatile char pad[size];
    function *const functions[] = {f0, f1, f2};
    pad[at % size] = 1;
    unsigned long sum = work(at);
    if (at < DEPTH) sum += functions[(unsigned)(at * 2654435761u) >> 13 & 1 ? 2 : at % 2](at + 1);
    return sum + work(at) + pad[at % size];
}
unsigned long f0(unsigned long at) { return down(at, 40); }
unsigned long f1(unsigned long at) { return down(at, 120); }
unsigned long f2(unsigned long at) { return down(at, 200); }
int main(void) {
    unsigned long sum = 0;
    while (seconds() < 2) sum += f0(0);
    return sum == 1;
}
"#;

#[test]
fn spliced_stacks_equal_the_real_stack() {
    let program = TestProgram::from_text(MOVING, "moving", &[]);
    let (_, profile) = record(
        "moving",
        RecordTarget::Command(program.command(&[])),
        options(),
    );
    let callee = |at: u32| match at.wrapping_mul(2_654_435_761) >> 13 & 1 {
        1 => 2,
        _ => at % 2,
    };
    let expected: Vec<_> = (0..2000).map(|at| format!("f{}", callee(at))).collect();
    let [_, spliced] = count_spliced(&profile);
    assert!(spliced > 0);
    let mut checked = 0;
    for sample in profile
        .samples()
        .iter()
        .filter(|sample| sample.end.is_root())
    {
        let names = program.names(&profile, sample);
        let Some(main) = names.iter().position(|name| name == "main") else {
            continue;
        };
        let inner: Vec<_> = names[..main]
            .iter()
            .rev()
            .filter(|name| name.starts_with('f'))
            .collect();
        let Some((first, inner)) = inner.split_first() else {
            continue;
        };
        assert_eq!(*first, "f0");
        assert!(
            inner.iter().copied().eq(expected.iter().take(inner.len())),
            "{inner:?}"
        );
        checked += 1;
    }
    assert!(checked > 20, "{checked}");
}

#[test]
fn a_recording_of_perf_becomes_a_profile() {
    let program = TestProgram::build("imported", &[]);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("imported.data");
    let mut perf = tool("perf");
    perf.args(["record", "-q", "-e", "cpu-clock", "-F", "999"]);
    perf.args(["--call-graph", "dwarf,16384", "-o"]).arg(&path);
    // Its exit status is that of the command, which an alarm kills.
    let done = perf.arg(&program.path).arg("10").output();
    done.expect("perf is there (Debian: linux-perf)");
    let file = DataFile::open(&path).unwrap();
    let finder = unspool_symbols::ModuleFinder::from_environment();
    let store = Store::from_environment().without_cache();
    let mut bytes = Vec::new();
    let imported = import(&file, 0, &mut bytes, finder, store).unwrap();
    assert_eq!((imported.summary.cut, imported.other_events), (None, 0));
    let profile = Profile::read(bytes.as_slice()).unwrap();
    assert_eq!(
        imported.completeness.samples(),
        profile.samples().len() as u64
    );
    // perf says so where it may not sample the kernel.
    assert_eq!(
        profile.meta().event.name.trim_end_matches(":u"),
        "cpu-clock"
    );
    assert_stacks(&program, &profile, 10);
}

/// The profile imported from a recording by perf.
fn imported(path: &Path) -> Profile {
    let file = DataFile::open(path).unwrap();
    let finder = unspool_symbols::ModuleFinder::from_environment();
    let store = Store::from_environment().without_cache();
    let mut bytes = Vec::new();
    import(&file, 0, &mut bytes, finder, store).unwrap();
    Profile::read(bytes.as_slice()).unwrap()
}

/// The addresses of samples in a recording, sorted, as perf prints them.
fn printed_addresses(path: &Path) -> Vec<u64> {
    let script = tool("perf")
        .args(["script", "-F", "ip", "-i"])
        .arg(path)
        .output();
    let printed = String::from_utf8(script.unwrap().stdout).unwrap();
    let address = |line: &str| u64::from_str_radix(line.trim(), 16).unwrap();
    let mut addresses: Vec<u64> = printed.lines().map(address).collect();
    addresses.sort_unstable();
    addresses
}

/// Without call chains, a sample is the address that it was taken at.
#[test]
fn samples_without_callers_are_samples() {
    let program = TestProgram::build("without_callers", &["-static", "-no-pie"]);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("without_callers.data");
    let record = |options: &[&str]| {
        let mut perf = tool("perf");
        perf.args(["record", "-q", "-e", "cpu-clock", "-F", "999"]);
        perf.args(options).arg("-o").arg(&path);
        perf.arg(&program.path).arg("10").output().unwrap();
        imported(&path)
    };
    let profile = record(&[]);
    // The program is not relocated: its addresses are those of its file.
    let mut addresses: Vec<u64> = Vec::new();
    for sample in profile.samples() {
        let mut frames = profile.stacks().frames(sample.stack);
        let frame = profile.frame(frames.next().unwrap()).unwrap();
        addresses.push(frame.location().address());
        assert_eq!((frames.next(), sample.end), (None, StackEnd::NoCallers));
    }
    addresses.sort_unstable();
    assert!(addresses.len() > 20, "{}", addresses.len());
    assert_eq!(addresses, printed_addresses(&path));
    let samples: Vec<_> = profile.samples().iter().collect();
    let completeness = Completeness::new(&profile, &samples);
    let count = samples.len() as u64;
    assert_eq!(
        (completeness.no_callers, completeness.samples()),
        (count, count)
    );

    // Nothing was copied that could be too short.
    let profile = record(&["--call-graph", "fp"]);
    let mut ends = profile.samples().iter().map(|sample| sample.end);
    assert!(ends.any(|end| end == StackEnd::CallChain));
    assert!(!ends.any(|end| end == StackEnd::NotCopied));
}

/// Runs forever, as a 32-bit program.
#[cfg(target_arch = "x86_64")]
const BUSY_32: &str = r#"
__asm__(".globl _start; _start: 1: incl %eax; jmp 1b; .size _start, . - _start");
"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn a_32_bit_process_is_recorded_without_callers() {
    let flags = ["-m32", "-nostdlib", "-static", "-no-pie"];
    let program = TestProgram::from_text(BUSY_32, "busy_32", &flags);
    let mut child = program.command(&[]).spawn().unwrap();
    let options = RecordOptions {
        duration: Some(Duration::from_millis(500)),
        ..options()
    };
    let target = RecordTarget::Processes(vec![child.id()]);
    let (_, profile) = record("busy_32", target, options);
    child.kill().unwrap();
    child.wait().unwrap();
    let is_user = |sample: &&ProfileSample| sample.end == StackEnd::ThirtyTwoBit;
    let samples: Vec<_> = profile.samples().iter().filter(is_user).collect();
    assert!(samples.len() > 10, "{}", samples.len());
    // The program is not relocated; files of 32-bit programs are not read.
    for sample in samples {
        let mut frames = profile.stacks().frames(sample.stack);
        let frame = profile.frame(frames.next().unwrap()).unwrap();
        // In the kernel, only its own frames are known.
        if frame.evidence == FrameEvidence::Kernel {
            continue;
        }
        let address = frame.location().address();
        let (_, (_, name)) = program.functions.range(..=address).next_back().unwrap();
        assert_eq!(name, "_start");
        assert_eq!(frames.next(), None);
    }
}

/// A process has the name in the recording, not that of a current process with the same ID.
#[test]
fn an_imported_process_is_not_looked_for_in_this_system() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("renamed.data");
    let mut perf = tool("perf");
    perf.args(["record", "-q", "-e", "cpu-clock", "-e", "task-clock", "-o"]);
    // The shell forks, and the fork continues as the shell, with its name.
    let forks = "i=0; (while [ $i -lt 200000 ]; do i=$((i+1)); done); exec sleep 0.01";
    let done = perf.arg(&path).args(["--", "sh", "-c", forks]).output();
    done.expect("perf is there (Debian: linux-perf)");
    let file = DataFile::open(&path).unwrap();
    let mut samples = 0;
    for event in 0..2 {
        let finder = unspool_symbols::ModuleFinder::from_environment();
        let store = Store::from_environment().without_cache();
        let mut bytes = Vec::new();
        let imported = import(&file, event, &mut bytes, finder, store).unwrap();
        let profile = Profile::read(bytes.as_slice()).unwrap();
        samples += imported.completeness.samples();
        assert!(imported.completeness.samples() > 0 && imported.other_events > 0);
        assert_eq!(profile.meta().event.name, file.events()[event].name);
        if event > 0 {
            continue;
        }
        let names = profile.threads().iter().map(|thread| thread.name.as_str());
        let names: Vec<_> = names.filter(|name| *name == "sh").collect();
        assert!(names.len() >= 2, "{:?}", profile.threads());
        let processes = profile.processes().iter();
        let known: Vec<u32> = processes.clone().map(|process| process.pid).collect();
        assert!(
            processes
                .into_iter()
                .any(|process| known.contains(&process.parent_pid))
        );
    }
    let mut all = 0;
    let counted = file.read(|item| -> Result<(), ()> {
        all += u64::from(matches!(
            item.record,
            unspool_perf_events::Record::Sample(_)
        ));
        Ok(())
    });
    counted.unwrap();
    assert_eq!(samples, all);
}

#[test]
fn unrunnable_commands_are_errors() {
    let _alone = alone();
    let target = RecordTarget::Command(Command::new("/nonexistent/program"));
    let recording =
        Recording::prepare(target, options()).expect("it is begun, and does not run yet");
    let error = recording.run(
        Vec::new(),
        Store::from_environment().without_cache(),
        Meta::default(),
        |_| {},
    );
    assert!(
        matches!(error, Err(RecordError::Launch(error)) if error.kind() == std::io::ErrorKind::NotFound)
    );
    let nobody = Recording::prepare(RecordTarget::Processes(vec![0x3fff_ffff]), options());
    assert!(matches!(nobody, Err(RecordError::NoProcess { .. })));
}

/// Sleeps for most of its time, ten times, in one place.
const SLEEPER: &str = r#"
#include <unistd.h>
__attribute__((noinline)) void narrow(void) { usleep(50000); __asm__ volatile(""); }
int main(void) {
    for (int i = 0; i < 10; i++) narrow();
    return 0;
}
"#;

#[test]
#[ignore = "needs root: cargo xtask root"]
fn time_off_the_processor_has_the_stack_where_it_was_spent() {
    let program = TestProgram::from_text(SLEEPER, "sleeper", &[]);
    let mut options = options();
    options.off_cpu = true;
    let (_, profile) = record(
        "sleeper",
        RecordTarget::Command(program.command(&[])),
        options,
    );
    let off = profile
        .samples()
        .iter()
        .filter(|sample| sample.state == CpuState::OffCpu);
    // It may not wake early. A thread that waits for a CPU, at the same address, mostly waits for
    // less.
    let long = off.filter(|sample| sample.weight >= 50_000_000);
    let asleep = long.filter(|sample| {
        let names = program.names(&profile, sample);
        names
            .windows(3)
            .any(|names| names == ["?", "narrow", "main"])
    });
    let asleep: Vec<_> = asleep.collect();
    assert!(asleep.len() >= 10, "{} of 10", asleep.len());
    for sample in asleep {
        assert!(sample.end.is_root(), "{:?}", sample.end);
    }
}

/// Works on stacks that it has made: of a coroutine of the C library, or with a hand-made base, as
/// Go does for its goroutines.
const OWN_STACKS: &str = r#"
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>
volatile unsigned long sink;
__attribute__((noinline)) void leaf(void) { for (;;) sink++; }
__attribute__((noinline)) void narrow(void) { leaf(); sink++; }
void base(void);
#ifdef __aarch64__
#define CALL "bl"
#else
#define CALL "call"
#endif
__asm__(".text; .globl base; .type base,%function; .balign 16; base: .cfi_startproc\n"
        "nop; " CALL " abort; nop; .cfi_endproc; .size base, . - base");
static char stack[1 << 16];
int main(int count, char **words) {
    alarm(1);
    if (count > 1) {
        uintptr_t *top = (uintptr_t *)(stack + sizeof stack) - 4;
#ifdef __aarch64__
        __asm__ volatile("mov sp, %0; mov x30, %1; b narrow" : : "r"(top), "r"(base + 4) : "memory", "x30");
#else
        top[1] = (uintptr_t)base + 1;
        __asm__ volatile("lea 8(%0), %%rsp; jmp narrow" : : "r"(top) : "memory");
#endif
        __builtin_unreachable();
    }
    ucontext_t back, there;
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = sizeof stack;
    there.uc_link = &back;
    makecontext(&there, narrow, 0);
    swapcontext(&back, &there);
    return 0;
}
"#;

#[test]
fn stacks_that_a_program_makes_are_complete() {
    let program = TestProgram::from_text(OWN_STACKS, "own_stacks", &[]);
    for (name, words, base) in [
        ("coroutine", &[][..], "?"),
        ("by_hand", &["by hand"], "base"),
    ] {
        let target = RecordTarget::Command(program.command(words));
        let (_, profile) = record(name, target, options());
        let mut count = 0;
        for sample in profile.samples() {
            let names = program.names(&profile, sample);
            if names.first().is_some_and(|name| name == "leaf") {
                assert_eq!(names, ["leaf", "narrow", base], "{name}");
                assert_eq!(sample.end, StackEnd::EntryPoint, "{name}");
                count += 1;
            }
        }
        let all = profile.samples().len();
        assert!(count > 20, "{name}: {count} samples of {all}");
    }
}

/// Its first thread ends, and another one works.
const LEADERLESS: &str = r#"
#include <pthread.h>
#include <unistd.h>
volatile unsigned long sink;
__attribute__((noinline)) void leaf(void) { for (;;) sink++; }
__attribute__((noinline)) void *narrow(void *is_long) {
    alarm(is_long ? 60 : 1);
    leaf();
    sink++;
    return is_long;
}
int main(int argc, char **argv) {
    pthread_t thread;
    pthread_create(&thread, NULL, narrow, argc > 1 ? argv[1] : NULL);
    pthread_exit(NULL);
}
"#;

#[test]
fn threads_may_outlive_the_first() {
    let program = TestProgram::from_text(LEADERLESS, "leaderless", &["-pthread"]);
    let target = RecordTarget::Command(program.command(&[]));
    let (_, profile) = record("leaderless", target, options());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("leaderless.data");
    let mut perf = tool("perf");
    perf.args(["record", "-q", "-e", "cpu-clock", "--call-graph", "dwarf"]);
    let done = perf
        .arg("-o")
        .arg(&path)
        .arg("--")
        .arg(&program.path)
        .output();
    done.expect("perf is there (Debian: linux-perf)");
    let mut child = program.command(&["long"]).spawn().unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    while !fs::read_to_string(&stat).unwrap().contains(") Z ") {}
    let target = RecordTarget::Processes(vec![child.id()]);
    let options = RecordOptions {
        duration: Some(Duration::from_secs(1)),
        ..options()
    };
    let (_, attached) = record("leaderless_attached", target, options);
    child.kill().unwrap();
    child.wait().unwrap();
    for profile in [profile, imported(&path), attached] {
        let stacks = profile
            .samples()
            .iter()
            .map(|sample| program.names(&profile, sample));
        let stacks = stacks.filter(|names| names.first().is_some_and(|name| name == "leaf"));
        // The names of the C library's functions are not looked up.
        let is_whole =
            |names: &Vec<String>| names.starts_with(&["leaf", "narrow", "?"].map(String::from));
        let [there, all] = [stacks.clone().filter(is_whole).count(), stacks.count()];
        let others = profile.samples().len() - all;
        assert!(
            there == all && all > 20 && others < all / 5,
            "{there} of {all}, {others} others"
        );
    }
}
