//! The comparison, frame by frame.
//!
//! For every frame of every thread, the address, the canonical frame address and the callee-saved
//! registers must be gdb's, and the addresses eu-stack's. Permitted differences:
//!
//! - A part of a function, `f.cold`, has its own symbol; gdb prints `f`.
//! - Names are compared without scopes, parameters and generic arguments, which gdb and unspool
//!   print in different forms; and another symbol of the same address is accepted.
//! - A Rust function whose symbol has another name ([`RENAMED`]).
//! - gdb makes up a name, `*ABS*+0x…@plt`, for the stub of an indirect function; unspool prints
//!   none.
//! - gdb makes up frames for inlined functions and tail calls, which are not frames here.
//! - Where no table covers an address, gdb and eu-stack continue by guessing, each differently. The
//!   test expects such an end ([`ExpectedStack::ends`]), and their later frames are not compared.
//!   Nor are their frames past entry code.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use unspool_testing::{RunningProgram, await_state};

use crate::stack::build::BuiltProgram;
use crate::stack::debugger::{self, Threads, eu_stack, gdb_core, gdb_process};
use crate::stack::run::ready;
use crate::stack::unspool::{PrintedReport, PrintedStack, report};

/// The registers that are compared, in addition to the program counter: those that calls preserve.
#[cfg(target_arch = "x86_64")]
pub(crate) const REGISTERS: [&str; 7] = ["rbx", "rbp", "rsp", "r12", "r13", "r14", "r15"];
#[cfg(target_arch = "aarch64")]
pub(crate) const REGISTERS: [&str; 20] = [
    "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "sp", "v8", "v9",
    "v10", "v11", "v12", "v13", "v14", "v15",
];

/// The vDSO's function that reads a clock.
pub(crate) const VDSO_CLOCK: &str = if cfg!(target_arch = "aarch64") {
    "__kernel_clock_gettime"
} else {
    "__vdso_clock_gettime"
};

/// The symbol and the debug information's name of one function; gdb prefers the latter.
const RENAMED: [(&str, &str); 1] = [("rust_begin_unwind", "panic_handler")];

/// A frame, from gdb or unspool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ComparedFrame {
    pub(crate) pc: u64,
    pub(crate) cfa: Option<u64>,
    pub(crate) registers: [Option<u64>; REGISTERS.len()],
    /// The function's names by debug information and by symbol.
    pub(crate) names: Vec<String>,
    /// Unspool's module, and the address in it where its symbol starts.
    pub(crate) module: Option<String>,
    pub(crate) symbol_start: Option<u64>,
    /// The frame is a signal trampoline's.
    pub(crate) is_trampoline: bool,
}

/// How a program is inspected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Live,
    GdbCore,
    KernelCore,
}

pub(crate) const ALL: [How; 3] = [How::Live, How::GdbCore, How::KernelCore];

/// Expectations of a program in addition to agreement.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ExpectedStack<'a> {
    /// Each must occur in some thread: names of functions, innermost first, not necessarily
    /// adjacent.
    pub(crate) stacks: &'a [&'a [&'a str]],
    /// The ends of incomplete stacks, by name, sorted.
    pub(crate) ends: &'a [&'a str],
    /// The evidence of frames found without a table, sorted.
    pub(crate) guesses: &'a [&'a str],
}

/// Starts a program, and compares it in each of the ways.
pub(crate) fn check(
    program: &BuiltProgram,
    arguments: &[&str],
    how: &[How],
    expected: ExpectedStack<'_>,
) {
    let running = ready(program, arguments);
    check_running(program, running, how, expected);
}

/// The same for a running, blocked program; it is killed.
pub(crate) fn check_running(
    program: &BuiltProgram,
    running: RunningProgram,
    how: &[How],
    expected: ExpectedStack<'_>,
) {
    let core = program.directory.path().join("gdb.core");
    let live = check_live(program, running.pid(), &core, expected);
    if how.contains(&How::GdbCore) {
        let recorded = check_core(program, &core, How::GdbCore, expected);
        assert_same_frames(&live, &recorded);
    }
    if how.contains(&How::KernelCore) {
        let core = running.dump_core(&program.directory);
        let recorded = check_core(program, &core, How::KernelCore, expected);
        assert_same_frames(&live, &recorded);
    }
}

/// Compares a blocked process; gdb writes a core file of it.
///
/// Inspecting a process makes its threads restart their system calls, so each inspection waits
/// until they have.
pub(crate) fn check_live(
    program: &BuiltProgram,
    pid: u32,
    core: &Path,
    expected: ExpectedStack<'_>,
) -> PrintedReport {
    let id = pid.to_string();
    // The first run finds no compiled tables and leaves them to the second.
    let cold = report(&program.directory, &[&id]);
    await_state(pid, 'S');
    let gdb = gdb_process(pid, core);
    await_state(pid, 'S');
    let eu = eu_stack(&["-p", &id]);
    await_state(pid, 'S');
    let warm = report(&program.directory, &[&id]);
    await_state(pid, 'S');
    for (ours, title) in [
        (&cold, "live, no compiled tables"),
        (&warm, "live, compiled tables"),
    ] {
        compare(ours, &gdb, title);
        compare_addresses(ours, &eu, title);
        assert_expected(ours, expected, title);
    }
    compare_native(program, &[&id], &warm);
    warm
}

fn check_core(
    program: &BuiltProgram,
    core: &Path,
    how: How,
    expected: ExpectedStack<'_>,
) -> PrintedReport {
    let arguments = ["--core", core.to_str().unwrap(), "--exe", program.path()];
    let ours = report(&program.directory, &arguments);
    compare_native(program, &arguments, &ours);
    let title = format!("{how:?}");
    compare(&ours, &gdb_core(core, program.path()), &title);
    let eu = eu_stack(&["--core", core.to_str().unwrap(), "-e", program.path()]);
    compare_addresses(&ours, &eu, &title);
    assert_expected(&ours, expected, &title);
    ours
}

/// The frames of a core file are those of the process that it was made from.
pub(crate) fn assert_same_frames(live: &PrintedReport, recorded: &PrintedReport) {
    let frames = |report: &PrintedReport| -> BTreeMap<u32, Vec<ComparedFrame>> {
        let stacks = report.threads.iter();
        stacks
            .map(|(tid, stack)| (*tid, stack.frames.clone()))
            .collect()
    };
    assert_eq!(frames(live), frames(recorded));
}

/// Machine code, where unspool makes some, leads to the same frames, evidence and ends.
fn compare_native(program: &BuiltProgram, arguments: &[&str], ours: &PrintedReport) {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let arguments = [&["--tables", "native"], arguments].concat();
    let native = report(&program.directory, &arguments);
    assert_same_frames(ours, &native);
    for (tid, stack) in &ours.threads {
        let other = &native.threads[tid];
        assert_eq!(stack.evidence, other.evidence);
        assert_eq!(stack.end, other.end);
    }
}

/// Compares a report with gdb's output.
pub(crate) fn compare(ours: &PrintedReport, gdb: &Threads, title: &str) {
    assert!(
        ours.threads.keys().eq(gdb.keys()),
        "{title}: threads {:?}, gdb's {:?}",
        ours.threads.keys(),
        gdb.keys()
    );
    let mut differences = String::new();
    for (tid, stack) in &ours.threads {
        let found = compare_stack(stack, &gdb[tid]);
        if !found.is_empty() {
            writeln!(differences, "thread {tid}:\n{found}").unwrap();
        }
    }
    assert!(differences.is_empty(), "{title}: {differences}");
}

fn compare_stack(ours: &PrintedStack, gdb: &[ComparedFrame]) -> String {
    let mut text = String::new();
    for (number, (a, b)) in ours.frames.iter().zip(gdb).enumerate() {
        let is_last = number + 1 == ours.frames.len();
        // gdb does not say the CFA of AArch64's outermost frame, and has no rows of its trampolines.
        let is_unknown = is_last && b.cfa.is_none() || b.is_trampoline;
        let is_unknown = cfg!(target_arch = "aarch64") && is_unknown;
        let differs = difference(a, b, is_unknown || is_last && gdb_may_go_on(ours));
        if !differs.is_empty() {
            writeln!(
                text,
                "  frame {number}: {differs}\n    we:  {a:x?}\n    gdb: {b:x?}"
            )
            .unwrap();
        }
    }
    let (count, theirs) = (ours.frames.len(), gdb.len());
    if count > theirs || (count < theirs && !gdb_may_go_on(ours)) {
        writeln!(text, "  {count} frames ({}), gdb has {theirs}", ours.end).unwrap();
    }
    text
}

/// Whether unspool's stack ends without a table saying so: without a row, and in entry code, which
/// is described as if it had a caller.
fn gdb_may_go_on(ours: &PrintedStack) -> bool {
    !ours.is_root || ours.end == "entry-point"
}

/// The difference of two frames. The CFA may not count.
fn difference(ours: &ComparedFrame, gdb: &ComparedFrame, has_other_cfa: bool) -> String {
    let mut found = Vec::new();
    if ours.pc != gdb.pc {
        found.push("pc");
    }
    if ours.cfa != gdb.cfa && !has_other_cfa {
        found.push("cfa");
    }
    if ours.is_trampoline != gdb.is_trampoline {
        found.push("signal frame");
    }
    let registers = ours.registers.iter().zip(&gdb.registers).zip(REGISTERS);
    found.extend(registers.filter(|((a, b), _)| a != b).map(|(_, name)| name));
    if !is_same_function(ours, gdb) {
        found.push("name");
    }
    found.join(", ")
}

fn is_same_function(ours: &ComparedFrame, gdb: &ComparedFrame) -> bool {
    let is_made_up = |name: &&String| name.starts_with("*ABS*");
    let Some(theirs) = gdb.names.first().filter(|name| !is_made_up(name)) else {
        return ours.names.is_empty();
    };
    let is_theirs = |name: &String| {
        let (ours, theirs) = (base(name), base(theirs));
        // Each function of the vDSO has two names.
        let ours = ours.strip_prefix("__vdso_").unwrap_or(&ours);
        let suffix = ours.strip_prefix(&*theirs);
        suffix.is_some_and(is_part) || RENAMED.contains(&(ours, &theirs))
    };
    let aliases = match (&ours.module, ours.symbol_start) {
        (Some(module), Some(start)) if !ours.names.iter().any(is_theirs) => {
            debugger::names_of(module, start)
        }
        _ => Vec::new(),
    };
    ours.names.iter().chain(&aliases).any(is_theirs)
}

/// Whether a suffix is one of gcc's for parts and clones of functions: `.cold`, `.part.0`. For
/// these, debug information, and gdb, have the function's name.
fn is_part(suffix: &str) -> bool {
    let mut words = suffix.split('.');
    let is_known = |word: &str| {
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        ["cold", "part", "constprop", "isra"].contains(&word) || is_number
    };
    words.next() == Some("") && words.all(is_known)
}

/// A function's own name: without scope, parameters and generic arguments. Only some forms of a
/// name number closures, and mark the shim of a virtual call to one.
pub(crate) fn base(name: &str) -> String {
    // v0 mangling's suffix for the shim of a virtual call; DWARF does not have it.
    let (name, _) = name.split_once("::{shim:").unwrap_or((name, ""));
    let name = name.replace("{{vtable.shim}}", "").replace("::<", "<");
    let (mut last, mut with_parameters) = (String::new(), String::new());
    let mut depth = 0;
    for letter in name.chars() {
        match letter {
            '<' | '(' | '{' => {
                match letter {
                    '(' if depth == 0 && !last.is_empty() => with_parameters.clone_from(&last),
                    '{' if depth == 0 => last.push('{'),
                    _ => {}
                }
                depth += 1;
            }
            '>' | ')' | '}' if depth > 0 => depth -= 1,
            ' ' if depth == 0 => last.clear(),
            // The part before was a scope.
            ':' if depth == 0 => {
                last.clear();
                with_parameters.clear();
            }
            _ if depth == 0 => last.push(letter),
            _ => {}
        }
    }
    let own = if with_parameters.is_empty() {
        last
    } else {
        with_parameters
    };
    let is_closure = own.starts_with('{');
    if is_closure { "{closure}".into() } else { own }
}

/// Compares the addresses of a report with eu-stack's, which stops outside of known modules.
pub(crate) fn compare_addresses(ours: &PrintedReport, eu: &BTreeMap<u32, Vec<u64>>, title: &str) {
    let (known, eu) = known_addresses(ours, eu);
    assert_eq!(known, eu, "{title}: eu-stack's addresses are on the right");
}

/// The addresses of each stack up to the first outside of modules, and eu-stack's. On AArch64 it
/// goes astray in code without a table, behind which neither counts.
pub(crate) fn known_addresses(
    ours: &PrintedReport,
    eu: &BTreeMap<u32, Vec<u64>>,
) -> (BTreeMap<u32, Vec<u64>>, BTreeMap<u32, Vec<u64>>) {
    let (mut known, mut eu) = (addresses_in_modules(ours), eu.clone());
    for (tid, stack) in &ours.threads {
        let mut evidence = stack.evidence.iter().skip(1);
        let without_table = evidence.position(|how| how.as_deref() != Some("cfi"));
        if let Some(at) = without_table.filter(|_| cfg!(target_arch = "aarch64")) {
            let both = [known.get_mut(tid), eu.get_mut(tid)];
            both.into_iter()
                .flatten()
                .for_each(|pcs| pcs.truncate(at + 1));
        }
    }
    (known, eu)
}

fn addresses_in_modules(ours: &PrintedReport) -> BTreeMap<u32, Vec<u64>> {
    let addresses = |stack: &PrintedStack| {
        let known = stack
            .frames
            .iter()
            .take_while(|frame| frame.module.is_some());
        known.map(|frame| frame.pc).collect()
    };
    let threads = ours.threads.iter();
    threads
        .map(|(tid, stack)| (*tid, addresses(stack)))
        .collect()
}

fn assert_expected(report: &PrintedReport, expected: ExpectedStack<'_>, title: &str) {
    let (mut ends, mut guesses) = (Vec::new(), Vec::new());
    for stack in report.threads.values() {
        ends.extend((!stack.is_root).then_some(stack.end.as_str()));
        guesses.extend(stack.guesses());
    }
    ends.sort_unstable();
    guesses.sort_unstable();
    assert_eq!(ends, expected.ends, "{title}: ends that are no roots");
    assert_eq!(guesses, expected.guesses, "{title}: guesses");
    for functions in expected.stacks {
        let found = report
            .threads
            .values()
            .any(|stack| has_functions(stack, functions));
        let names: Vec<_> = report.threads.values().map(names).collect();
        assert!(found, "{title}: no thread is in {functions:?}: {names:#?}");
    }
}

fn names(stack: &PrintedStack) -> String {
    let name = |frame: &ComparedFrame| frame.names.first().map_or("??".into(), |name| base(name));
    stack.frames.iter().map(name).collect::<Vec<_>>().join(" ")
}

/// Whether a stack has these functions in this order, adjacent or not.
pub(crate) fn has_functions(stack: &PrintedStack, functions: &[&str]) -> bool {
    let mut frames = stack.frames.iter();
    let is_found = |function: &&str| {
        frames.any(|frame| frame.names.iter().any(|name| base(name) == *function))
    };
    functions.iter().all(is_found)
}

#[test]
fn names_without_scopes_and_arguments() {
    for (name, expected) in [
        ("pause", "pause"),
        (
            "work::Box<float>::wait(int, std::vector<double> const&) const",
            "wait",
        ),
        (
            "long work::descend<3>(work::Shape const&, double, long)",
            "descend",
        ),
        ("work::descend<3>", "descend"),
        ("work::Guard::~Guard()", "~Guard"),
        (
            "std::State<std::tuple<main()::<lambda()> > >::_M_run(void)",
            "_M_run",
        ),
        ("<threads::Parks as core::ops::drop::Drop>::drop", "drop"),
        ("threads::{impl#2}::drop", "drop"),
        ("backtrace::end::<hook::{closure#0}, !>", "end"),
        ("threads::main::{{closure}}", "{closure}"),
        ("threads::main::{closure#0}", "{closure}"),
        ("core::ops::FnOnce::call_once{{vtable.shim}}", "call_once"),
        (
            "<a::main::{closure#2} as core::ops::FnOnce<(&Barrier,)>>::call_once::{shim:vtable#0}",
            "call_once",
        ),
        (
            "core::ops::FnOnce::call_once<threads::main::{closure_env#5}, (&Barrier)>",
            "call_once",
        ),
        ("parted.cold", "parted.cold"),
        (
            "app::a(int)::{lambda(int)#1}::operator()(int) const",
            "operator",
        ),
        ("app::<lambda(int)>::operator()(int) const", "operator"),
        ("app::a(int) const::Local::go(int) const", "go"),
    ] {
        assert_eq!(base(name), expected, "{name}");
    }
}
