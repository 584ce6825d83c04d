//! Single instructions that are difficult for a walk: gdb stops a program at each of them, prints
//! the frames and writes a core file for unspool.

use std::collections::BTreeSet;

use crate::stack::build::BuiltProgram;
use crate::stack::compare::{VDSO_CLOCK, base, compare, known_addresses};
use crate::stack::debugger::{eu_stack, gdb, parse_gdb};
use crate::stack::unspool::report_core;

/// Where to stop a program: `count` times, each `stride` instructions after the previous one.
struct Stops<'a> {
    /// The gdb commands to reach the first location.
    commands: &'a [&'a str],
    count: usize,
    stride: usize,
    /// Functions that some stop must be in.
    functions: &'a [&'a str],
}

fn check(program: &BuiltProgram, stops: &Stops<'_>) {
    let prefix = program.directory.path().join("step.core");
    let prefix = prefix.to_str().unwrap();
    let steps = format!("steps {} {} {prefix}", stops.count, stops.stride);
    let mut arguments = vec![program.path()];
    for command in stops.commands.iter().chain(&[steps.as_str()]) {
        arguments.extend(["-ex", command]);
    }
    let text = gdb(&arguments);
    let parts: Vec<&str> = text.split("\nstop ").skip(1).collect();
    assert_eq!(parts.len(), stops.count, "{text}");
    let mut innermost = BTreeSet::new();
    let mut cut = 0;
    for (number, part) in parts.iter().enumerate() {
        let core = format!("{prefix}.{number}");
        let ours = report_core(&program.directory, core.as_ref(), program.path());
        compare(&ours, &parse_gdb(part), &core);
        let eu = eu_stack(&["--core", &core, "-e", program.path()]);
        let (known, eu) = known_addresses(&ours, &eu);
        // eu-stack 0.188 stops at a caller if its CFA depends on a register that the innermost
        // function has not saved yet.
        let agrees = |(tid, pcs): (&u32, &Vec<u64>)| known[tid].starts_with(pcs);
        assert!(
            eu.iter().all(agrees),
            "{core}: {known:x?}, eu-stack's: {eu:x?}"
        );
        cut += usize::from(known != eu);
        std::fs::remove_file(&core).unwrap();
        for stack in ours.threads.values() {
            assert!(stack.is_root, "{core}: {}", stack.end);
            innermost.extend(stack.frames[0].names.iter().map(|name| base(name)));
            if stack.frames[0].is_trampoline {
                innermost.insert("(a trampoline)".into());
            }
        }
    }
    assert!(cut <= stops.count / 4, "eu-stack stopped early {cut} times");
    for function in stops.functions {
        assert!(
            innermost.contains(*function),
            "no stop is in {function}: {innermost:?}"
        );
    }
}

/// The two or three instructions of a PLT stub, the common PLT entry, and the dynamic linker's code
/// after it.
#[test]
fn stubs_of_the_procedure_linkage_table() {
    let marked: &[&str] = if cfg!(target_arch = "x86_64") {
        &["-O2", "-Wl,-z,lazy", "-fcf-protection", "-Wl,-z,ibtplt"]
    } else {
        &["-O2", "-Wl,-z,lazy,-z,force-bti,-z,pac-plt"]
    };
    for options in [&["-O2", "-Wl,-z,lazy"], marked, &["-O2", "-Wl,-z,now"]] {
        let program = BuiltProgram::build("plt.c", options);
        let stops = Stops {
            commands: &["break *calls", "run"],
            count: 24,
            stride: 1,
            functions: &["calls", "rand@plt"],
        };
        check(&program, &stops);
    }
}

#[test]
fn in_the_vdso() {
    let program = BuiltProgram::build("clock.c", &["-O2"]);
    let stop = format!("break *{VDSO_CLOCK}");
    let commands = ["break main", "run", &stop, "continue"];
    let stops = Stops {
        commands: &commands,
        count: 40,
        stride: 1,
        functions: &[VDSO_CLOCK],
    };
    check(&program, &stops);
}

/// From the handler's first instruction into the trampoline and back.
#[test]
fn a_signal_handler_and_its_return() {
    let program = BuiltProgram::build("handler.c", &["-O2"]);
    let stops = Stops {
        commands: &[
            "handle SIGUSR1 nostop noprint pass",
            "break *on_signal",
            "run",
        ],
        count: 16,
        stride: 1,
        functions: &["on_signal", "(a trampoline)"],
    };
    check(&program, &stops);
}

#[test]
fn prologues_and_epilogues() {
    let program = BuiltProgram::build("recursion.c", &["-O2"]);
    let stops = Stops {
        commands: &["break *small", "run 3 return"],
        count: 100,
        stride: 1,
        functions: &["small", "large", "variable"],
    };
    check(&program, &stops);
    for options in [&["-O2", "-Wl,-z,now"], &["-O0", "-Wl,-z,now"]] {
        let program = BuiltProgram::build("realigned.c", options);
        for (commands, functions) in [
            (["break *variadic", "run return"], ["variadic"]),
            (["break *aligned", "run return"], ["aligned"]),
        ] {
            let stops = Stops {
                commands: &commands,
                count: 30,
                stride: 1,
                functions: &functions,
            };
            check(&program, &stops);
        }
    }
    let program = BuiltProgram::build("cold.c", &["-O2"]);
    let stops = Stops {
        commands: &["break *'parted.cold'", "run"],
        count: 8,
        stride: 1,
        functions: &["parted.cold", "rare"],
    };
    check(&program, &stops);
}

/// Before `main`: from the first instruction of the dynamic linker, possibly without symbols, or of
/// the program itself.
#[test]
fn from_the_first_instruction() {
    for (options, functions) in [
        (&["-O2"] as &[&str], &[] as &[&str]),
        (&["-O2", "-static"], &["_start"]),
        (&["-O2", "-static-pie"], &["_start"]),
    ] {
        let program = BuiltProgram::build("plt.c", options);
        for stride in [1, 1009] {
            let stops = Stops {
                commands: &["starti"],
                count: 12,
                stride,
                functions,
            };
            check(&program, &stops);
        }
    }
}

/// At arbitrary points in the C library.
#[test]
fn anywhere() {
    let program = BuiltProgram::build("busy.c", &["-O2", "-lm"]);
    let stops = Stops {
        commands: &["break main", "run"],
        count: 60,
        stride: 1999,
        functions: &["main"],
    };
    check(&program, &stops);
}
