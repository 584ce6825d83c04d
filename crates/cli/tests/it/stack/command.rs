//! `unspool stack -- CMD`: commands that crash, and those that do not.

use unspool_testing::kernel_core;

use crate::harness;
use crate::stack::build::BuiltProgram;
use crate::stack::compare::{compare, has_functions};
use crate::stack::debugger::gdb_core;
use crate::stack::unspool::{Printed, PrintedReport, PrintedStack, parse, printed, stack};

/// The output of `crash` itself.
const OWN_OUTPUT: &str = "from the program\n";

fn crash() -> BuiltProgram {
    BuiltProgram::build("crash.c", &["-O2", "-fno-stack-protector"])
}

/// Runs `crash HOW` under `unspool stack`, in its own directory.
fn run(program: &BuiltProgram, options: &[&str], how: &str) -> Printed {
    let mut arguments = options.to_vec();
    arguments.extend(["--", program.path(), how]);
    stack(&program.directory, &arguments)
}

/// Runs `crash HOW` with small stacks and core files enabled. Compares the reported crashed thread
/// with gdb's view of the core, and returns it. The other threads continued with their system calls
/// in between.
fn check(program: &BuiltProgram, how: &str, status: i32) -> PrintedReport {
    let limits = "ulimit -c unlimited; ulimit -s 1024; exec \"$0\" \"$@\"";
    let mut command = harness::unspool_by(&["sh", "-c", limits], &program.directory);
    command
        .args(["stack", "--format", "json", "--registers", "--"])
        .args([program.path(), how]);
    let printed = printed(&mut command);
    assert_eq!(
        (printed.status, printed.out.as_str()),
        (status, OWN_OUTPUT),
        "{how}"
    );
    let mut report = parse(&printed.err);
    assert_eq!(report.json["subject"]["kind"], "command");
    let pid = report.json["subject"]["pid"].as_u64().unwrap();
    let core = kernel_core(&program.directory, u32::try_from(pid).unwrap());
    let mut gdb = gdb_core(&core, program.path());
    assert!(report.threads.keys().eq(gdb.keys()), "{how}");
    let tid = signalled_tid(&report);
    gdb.retain(|other, _| *other == tid);
    report.threads.retain(|other, _| *other == tid);
    compare(&report, &gdb, how);
    report
}

/// The thread that received the signal.
fn signalled_tid(report: &PrintedReport) -> u32 {
    let tid = report.json["signal"]["tid"].as_u64().unwrap();
    assert_eq!(report.json["threads"][0]["tid"], tid, "it comes first");
    u32::try_from(tid).unwrap()
}

fn signalled(report: &PrintedReport) -> &PrintedStack {
    &report.threads[&signalled_tid(report)]
}

#[test]
fn a_bad_access() {
    let program = crash();
    let report = check(&program, "segv", 139);
    assert_eq!(report.json["threads"].as_array().unwrap().len(), 3);
    assert_eq!(report.json["signal"]["name"], "SIGSEGV");
    assert_eq!(report.json["signal"]["address"], "0x123450");
    assert_eq!(report.json["reliable"], true);
    let functions = ["touches", "ends", "crashes"];
    assert!(has_functions(signalled(&report), &functions));

    let printed = run(&program, &[], "segv");
    assert_eq!((printed.status, printed.out.as_str()), (139, OWN_OUTPUT));
    let lines: Vec<&str> = printed.err.lines().collect();
    assert!(lines[0].ends_with("crash segv): 3 threads"), "{}", lines[0]);
    let signal = "signal SIGSEGV (address not mapped) at address 0x123450, in thread ";
    let tid = lines[1].strip_prefix(signal).unwrap();
    let thread = format!("thread {tid} \"crash\", about to get signal SIGSEGV");
    assert_eq!(lines[3], thread);
    assert!(lines[4].contains("  touches+0x"), "{}", lines[4]);
    let complete = lines.iter().filter(|line| line.starts_with("  complete: "));
    assert_eq!(complete.count(), 3, "{}", printed.err);
}

#[test]
fn an_abort() {
    let report = check(&crash(), "abort", 134);
    let signal = &report.json["signal"];
    assert_eq!(signal["name"], "SIGABRT");
    assert_eq!(signal["sender_pid"], report.json["subject"]["pid"]);
    assert!(has_functions(signalled(&report), &["abort", "crashes"]));
}

#[test]
fn a_fault_in_the_vdso() {
    let report = check(&crash(), "vdso", 139);
    assert_eq!(report.json["signal"]["address"], "0x10");
    let stack = signalled(&report);
    assert_eq!(stack.frames[0].module.as_deref(), Some("[vdso]"));
    assert!(has_functions(stack, &["clock_gettime", "ends", "crashes"]));
    assert_eq!(report.json["reliable"], true);
}

#[test]
fn a_stack_overflow() {
    let report = check(&crash(), "overflow", 139);
    let stack = signalled(&report);
    assert!(stack.frames.len() > 200, "{} frames", stack.frames.len());
    assert!(has_functions(stack, &["overflows", "overflows", "crashes"]));
    assert_eq!(report.json["reliable"], true);
}

#[test]
fn a_call_through_a_null_pointer() {
    let report = check(&crash(), "null", 139);
    assert_eq!(report.json["signal"]["address"], "0x0");
    let stack = signalled(&report);
    assert_eq!(stack.frames[0].pc, 0);
    assert_eq!(stack.evidence[1].as_deref(), Some("bad-call"));
    assert!(has_functions(stack, &["calls", "ends", "crashes"]));
    assert_eq!(report.json["reliable"], false);
}

/// gdb takes the called data for a function, so a comparison is not possible.
#[test]
fn calls_to_where_no_code_is() {
    let program = crash();
    for how in ["data", "nowhere"] {
        let printed = run(&program, &["--format", "json", "--registers"], how);
        assert_eq!((printed.status, printed.out.as_str()), (139, OWN_OUTPUT));
        let report = parse(&printed.err);
        let stack = signalled(&report);
        assert_eq!(stack.evidence[1].as_deref(), Some("bad-call"));
        assert!(has_functions(stack, &["calls", "ends", "crashes"]));
    }
}

/// The walk ends with a reason; the other threads are shown all the same. Where a call leaves the
/// return address in a register, the function returns, and its caller does not.
#[test]
fn a_smashed_stack() {
    let program = crash();
    let printed = run(&program, &[], "smash");
    assert_eq!((printed.status, printed.out.as_str()), (139, OWN_OUTPUT));
    let is_there = printed.err.contains("  smashes+0x");
    assert_eq!(is_there, cfg!(target_arch = "x86_64"), "{}", printed.err);
    let end = "  incomplete: the return address 0x5858585858585858 is not in executable memory\n";
    assert!(printed.err.contains(end), "{}", printed.err);
    let complete = printed.err.matches("\n  complete: ").count();
    assert_eq!(complete, 2, "{}", printed.err);
}

/// Nothing to report: only the command's output and status remain.
#[test]
fn commands_that_no_signal_kills() {
    let program = crash();
    for (how, status) in [("0", 0), ("7", 7), ("handled", 3)] {
        let printed = run(&program, &[], how);
        assert_eq!(
            (printed.status, printed.out.as_str(), printed.err.as_str()),
            (status, OWN_OUTPUT, ""),
            "{how}"
        );
    }
}

/// The kernel does not notify the tracer of that signal.
#[test]
fn a_command_that_is_killed() {
    let printed = run(&crash(), &[], "kill");
    let message = "unspool: signal SIGKILL ended the command and could not be intercepted: there \
                are no stacks\n";
    assert_eq!((printed.status, printed.err.as_str()), (137, message));
}

#[test]
fn commands_that_cannot_be_run() {
    let program = crash();
    let not_executable = harness::source("ready.h");
    for (command, reason) in [
        ("/nonexistent/program", "No such file or directory"),
        (not_executable.as_str(), "Permission denied"),
    ] {
        let printed = stack(&program.directory, &["--", command]);
        assert_eq!((printed.status, printed.out.as_str()), (2, ""));
        let message = format!("unspool: error: cannot run `{command}`: {reason}");
        assert!(printed.err.starts_with(&message), "{}", printed.err);
    }
}
