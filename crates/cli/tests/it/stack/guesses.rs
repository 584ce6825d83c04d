//! Code without a table: guessed frames are marked.

use std::fs;

use crate::stack::build::{BuiltProgram, MUSL, MUSL_SHARED};
use crate::stack::compare::{ComparedFrame, REGISTERS, has_functions};
use crate::stack::debugger::{eu_stack, gdb, gdb_process, parse_gdb};
use crate::stack::run::{ready, start};
use unspool_testing::{Finish as _, tool};

use crate::stack::unspool::{PrintedStack, report, report_core, stack};

/// The only thread of a process, which is the program's first.
fn only_stack(program: &BuiltProgram, pid: u32) -> PrintedStack {
    let mut threads = report(&program.directory, &[&pid.to_string()]).threads;
    threads.remove(&pid).unwrap()
}

/// Compares with eu-stack, which on AArch64 repeats frames that it finds by the frame pointer, and
/// goes astray.
fn assert_eq_to_eu_stack(pid: u32, pcs: &[u64]) {
    let eu = &eu_stack(&["-p", &pid.to_string()])[&pid];
    if cfg!(target_arch = "x86_64") {
        assert_eq!(eu, pcs);
    } else {
        assert!(eu.len() > 4 && eu[..4] == pcs[..4], "{eu:x?} {pcs:x?}");
    }
}

/// Where the call in the code of `jit.c` returns to.
const BEHIND_CALL: u64 = if cfg!(target_arch = "x86_64") {
    0xa
} else {
    0xc
};

/// Code generated at run time is in no file. Its bytes show the caller; eu-stack uses the frame
/// pointer, gdb fails.
#[test]
fn code_in_anonymous_memory_shows_its_caller() {
    let program = BuiltProgram::build("jit.c", &["-O2"]);
    let running = ready(&program, &[]);
    let found = only_stack(&program, running.pid());
    assert!(has_functions(&found, &["waits", "calls", "main", "_start"]));
    assert_eq!(found.guesses(), ["synthesized"]);
    assert!(found.is_root);
    let pcs: Vec<u64> = found.frames.iter().map(|frame| frame.pc).collect();
    let pid = running.pid().to_string();
    assert_eq_to_eu_stack(running.pid(), &pcs);
    // The address, the size and the name, as perf reads them.
    let map = format!("/tmp/perf-{pid}.map");
    let made = pcs.iter().find(|pc| *pc & 0xfff == BEHIND_CALL);
    let made = made.unwrap() - BEHIND_CALL;
    fs::write(&map, format!("{made:x} {:x} made code\n", BEHIND_CALL + 1)).unwrap();
    let named = stack(&program.directory, &[&pid]).out;
    fs::remove_file(map).unwrap();
    let line = format!("  made code+{BEHIND_CALL:#x}  [jit]\n");
    assert!(named.contains(&line), "{named}");
    let core = running.dump_core(&program.directory);
    let recorded = report_core(&program.directory, &core, program.path());
    assert_eq!(
        recorded.threads.values().next().unwrap().frames,
        found.frames
    );
}

/// Code of an object file in memory that is registered with debuggers has names, lines and rows: live and in a core.
#[test]
fn registered_code_is_a_module() {
    let program = BuiltProgram::build("registered.c", &["-O2"]);
    // It overwrites its frame pointer.
    let source = "void made(void (*f)(void)) {\n  __asm__ volatile (\"mov $85, %%ebp\" ::: \"rbp\");\n  f();\n  \
                  __asm__ volatile (\"\");\n}\n";
    fs::write(program.directory.join("made.c"), source).unwrap();
    let options = ["-g", "-O1", "-fcf-protection=none", "-c", "made.c"];
    let built = tool("gcc")
        .args(options)
        .current_dir(&program.directory)
        .finish();
    assert!(built.status.success(), "{built}");
    let running = ready(&program, &["made.o"]);
    let found = only_stack(&program, running.pid());
    assert!(has_functions(&found, &["waits", "made", "main", "_start"]));
    assert!(found.guesses().is_empty(), "{found:?}");
    let pid = running.pid().to_string();
    let printed = stack(&program.directory, &[&pid]).out;
    assert!(
        printed.contains(" at ") && printed.contains("made.c:3  [[jit]+0x"),
        "{printed}"
    );
    let core = program.directory.path().join("gdb.core");
    // gdb has other names for glibc's `pause` and what that calls where it has their debugging information.
    let names = |frames: &[ComparedFrame]| -> Vec<String> {
        let names = frames
            .iter()
            .filter_map(|frame| frame.names.last().cloned());
        names.skip_while(|name| name != "waits").take(3).collect()
    };
    let gdb = &gdb_process(running.pid(), &core)[&running.pid()];
    assert_eq!(names(gdb), ["waits", "made", "main"]);
    assert_eq!(names(&found.frames), names(gdb));
    let recorded = report_core(&program.directory, &core, program.path());
    assert_eq!(
        recorded.threads.values().next().unwrap().frames,
        found.frames
    );
}

/// Memory that has a name, but no file.
#[test]
fn code_in_the_heap_shows_its_caller() {
    let program = BuiltProgram::build("jit.c", &["-O2", "-DIN_HEAP"]);
    let running = ready(&program, &[]);
    let found = only_stack(&program, running.pid());
    assert!(has_functions(&found, &["waits", "calls", "main", "_start"]));
    assert_eq!(found.guesses(), ["synthesized"]);
}

/// If its bytes do not show that, its frame pointer is a guess.
#[test]
fn code_in_anonymous_memory() {
    let program = BuiltProgram::build("jit.c", &["-O2"]);
    let running = ready(&program, &["by-vector"]);
    let pid = running.pid().to_string();
    let found = only_stack(&program, running.pid());
    assert!(has_functions(&found, &["waits", "calls", "main", "_start"]));
    assert_eq!(found.guesses(), ["frame-pointer"]);
    assert!(found.is_root);
    let pcs: Vec<u64> = found.frames.iter().map(|frame| frame.pc).collect();
    assert_eq_to_eu_stack(running.pid(), &pcs);

    let printed = stack(&program.directory, &[&pid]);
    assert_eq!((printed.status, printed.err.as_str()), (0, ""));
    let guess = "  <guess: frame-pointer; the address lies in no module>\n";
    assert!(printed.out.contains(guess), "{}", printed.out);
    let end = "  not reliable: outermost frame, but frames were guessed\n";
    assert!(printed.out.ends_with(end), "{}", printed.out);
    let printed = stack(&program.directory, &["--reliable", &pid]);
    assert_eq!((printed.status, printed.err.as_str()), (1, ""));
}

/// Without symbols, it is named as by gdb, and the file is said to be stripped.
#[test]
fn a_trampoline_without_a_name() {
    let program = BuiltProgram::build("trampoline.c", &["-O2", "-static", "-s"]);
    let running = ready(&program, &[]);
    let printed = stack(&program.directory, &[&running.pid().to_string()]);
    let name = "  <signal handler called>  [";
    assert_eq!(printed.out.matches(name).count(), 1, "{}", printed.out);
    assert!(printed.err.contains("it is stripped"), "{}", printed.err);
}

/// musl has no tables, and so none for its trampoline, which is recognized by its code. gdb
/// recognizes it too, but computes the CFA of such frames differently; eu-stack does not.
#[test]
fn a_trampoline_without_a_table() {
    let program = BuiltProgram::build_with(MUSL, "trampoline.c", &["-O2"]);
    let running = ready(&program, &[]);
    let found = only_stack(&program, running.pid());
    let trampoline = if cfg!(target_arch = "x86_64") {
        "__restore_rt"
    } else {
        "__restore"
    };
    let functions = ["on_signal", trampoline, "faults", "main"];
    assert!(has_functions(&found, &functions), "{found:?}");
    assert_eq!(found.guesses()[0], "signal-trampoline");
    assert_eq!(found.evidence[2].as_deref(), Some("signal-trampoline"));

    let core = program.directory.path().join("gdb.core");
    let gdb = &gdb_process(running.pid(), &core)[&running.pid()];
    let abi_info = |frame: &ComparedFrame| (frame.pc, frame.registers, frame.is_trampoline);
    for (number, (ours, theirs)) in found
        .frames
        .iter()
        .zip(gdb)
        .take(functions.len())
        .enumerate()
    {
        assert_eq!(
            abi_info(ours),
            abi_info(theirs),
            "frame {number}, {REGISTERS:?}"
        );
        assert!(
            ours.cfa == theirs.cfa || ours.is_trampoline,
            "frame {number}"
        );
    }

    // Core files do not contain the code.
    let kernel_core = running.dump_core(&program.directory);
    for core in [core, kernel_core] {
        let recorded = report_core(&program.directory, &core, program.path());
        let recorded = recorded.threads.values().next().unwrap();
        assert_eq!(recorded.frames, found.frames);
    }
}

/// In the kernel's `rt_sigreturn`: after the trampoline's last instruction, without an entry. gdb
/// knows AArch64's trampoline at its first of two instructions only.
#[test]
fn in_the_call_that_ends_a_signal_handler() {
    let program = BuiltProgram::build("handler.c", &["-O2"]);
    let core = program.directory.path().join("returning.core");
    let write_core = format!("gcore {}", core.display());
    let (back, set_back) = if cfg!(target_arch = "x86_64") {
        (0, "echo")
    } else {
        (8, "set $pc = $pc - 8")
    };
    let mut arguments = vec![program.path()];
    for command in [
        "handle SIGUSR1 nostop noprint pass",
        "catch syscall rt_sigreturn",
        "run",
        &write_core,
        set_back,
        "frames",
        "kill",
    ] {
        arguments.extend(["-ex", command]);
    }
    let gdb = parse_gdb(&gdb(&arguments));
    let gdb = gdb.values().next().unwrap();
    assert!(gdb[0].is_trampoline);

    let found = report_core(&program.directory, &core, program.path());
    let found = found.threads.values().next().unwrap();
    assert_eq!(found.guesses(), ["signal-trampoline"]);
    assert!(found.is_root);
    assert_eq!(found.frames[0].pc, gdb[0].pc + back);
    let registers = |frame: &ComparedFrame| (frame.pc, frame.registers);
    let ours: Vec<_> = found.frames[1..].iter().map(registers).collect();
    let theirs: Vec<_> = gdb[1..].iter().map(registers).collect();
    assert_eq!(ours, theirs);
    // gdb does not say the CFA of AArch64's outermost frame.
    let frames = found.frames.iter().zip(gdb).skip(1);
    for (ours, theirs) in frames.filter(|(_, theirs)| theirs.cfa.is_some()) {
        assert_eq!(ours.cfa, theirs.cfa);
    }
}

/// glibc's `clone3` has no table between its system call and its return, and there new threads
/// wait for their first turn. On AArch64 its table is wrong there: it has the old thread's caller
/// for the new one.
#[test]
fn threads_that_begin_are_complete() {
    let program = BuiltProgram::build("begins_threads.c", &["-O2"]);
    let running = start(&program, &[]);
    let mut begun = 0;
    for _ in 0..30 {
        let report = report(&program.directory, &[&running.pid().to_string()]);
        for (tid, stack) in &report.threads {
            let is_in_clone = has_functions(stack, &["__GI___clone3", "__clone3_internal"]);
            let is_by_wrong_table = cfg!(target_arch = "aarch64") && is_in_clone;
            assert!(stack.is_root || is_by_wrong_table, "{tid}: {stack:?}");
            begun += usize::from(*tid != running.pid());
        }
    }
    assert!(begun > 0);
}

/// musl has no tables: its threads begin in functions that never return. These have no rows on
/// AArch64, where functions are not looked for.
#[test]
fn threads_of_musl_are_complete() {
    let program = BuiltProgram::build_with(MUSL_SHARED, "waits_in_thread.c", &["-O2"]);
    let running = ready(&program, &[]);
    let report = report(&program.directory, &[&running.pid().to_string()]);
    assert_eq!(report.threads.len(), 2);
    for (tid, stack) in &report.threads {
        let outer = if *tid == running.pid() {
            "main"
        } else {
            "in_thread"
        };
        assert!(
            has_functions(stack, &["waits", "calls", outer]),
            "{stack:?}"
        );
        if cfg!(target_arch = "x86_64") {
            assert!(stack.is_root, "{stack:?}");
            assert!(stack.guesses().iter().all(|how| *how == "synthesized"));
        }
    }
}

#[test]
fn a_reliable_stack() {
    let program = BuiltProgram::build("recursion.c", &["-O2"]);
    let running = ready(&program, &["3"]);
    let printed = stack(
        &program.directory,
        &["--reliable", &running.pid().to_string()],
    );
    assert_eq!((printed.status, printed.err.as_str()), (0, ""));
    assert!(
        printed.out.ends_with("  complete: outermost frame\n"),
        "{}",
        printed.out
    );
}
