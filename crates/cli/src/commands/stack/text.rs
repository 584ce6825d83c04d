//! A report as text.

use std::io::{self, Write};

use unspool_args::Certainty;
use unspool_symbols::Frame;
use unspool_unwind::process::{Signal, Thread, ThreadState, signal_name};
use unspool_unwind::space::{KnownRegisters, Stack, WalkedFrame};

use super::arguments::Argument;
use super::{Report, Subject, ThreadStack, display};
use crate::output::{self, Plain, short_name};

pub(super) fn print(out: &mut dyn Write, report: &Report<'_>) -> io::Result<()> {
    header(out, report)?;
    for thread in &report.threads {
        writeln!(out)?;
        print_thread(out, report, thread)?;
    }
    let problems = report.space.problems();
    if !problems.is_empty() {
        writeln!(out, "\nfiles that cannot be used:")?;
    }
    for problem in problems {
        writeln!(out, "  {}", Plain(&output::with_causes(problem)))?;
    }
    Ok(())
}

fn header(out: &mut dyn Write, report: &Report<'_>) -> io::Result<()> {
    let count = report.threads.len();
    let threads = if count == 1 {
        "1 thread".into()
    } else {
        format!("{count} threads")
    };
    match &report.subject {
        Subject::Process(pid) => write!(out, "process {pid}: {threads}")?,
        Subject::Command(command, pid) => {
            write!(
                out,
                "process {pid} ({}): {threads}",
                Plain(&display(command))
            )?;
        }
        Subject::Core(path) => {
            let path = path.to_string_lossy();
            write!(out, "core {}: {threads}", Plain(&path))?;
        }
    }
    if let Some(stopped) = report.stopped {
        write!(out, ", stopped for {:.2} ms", stopped.as_secs_f64() * 1e3)?;
    }
    writeln!(out)?;
    match report.snapshot.signal() {
        Some(signal) => writeln!(out, "{}", signal_text(signal)),
        None => Ok(()),
    }
}

pub(super) fn signal_text(signal: &Signal) -> String {
    let mut text = format!("signal {}", name_or_number(signal.number));
    if let Some(address) = signal.address {
        text.push_str(&format!(" at address {address}"));
    }
    if let Some(sender) = signal.sender {
        text.push_str(&format!(
            ", sent by process {} (user {})",
            sender.pid, sender.uid
        ));
    }
    text.push_str(&format!(", in thread {}", signal.tid));
    text
}

pub(super) fn name_or_number(signal: i32) -> String {
    signal_name(signal).map_or_else(|| signal.to_string(), Into::into)
}

fn print_thread(
    out: &mut dyn Write,
    report: &Report<'_>,
    thread: &ThreadStack<'_>,
) -> io::Result<()> {
    let ThreadStack { thread, stack } = thread;
    write!(out, "thread {}", thread.tid)?;
    if let Some(name) = &thread.name {
        write!(out, " \"{}\"", Plain(name))?;
    }
    writeln!(out, "{}", state_text(thread))?;
    let Some(stack) = stack else {
        return match &thread.registers {
            Err(error) => writeln!(out, "  no stack: {error}"),
            Ok(_) => writeln!(out, "  no stack: the registers have no code address"),
        };
    };
    let mut arguments = report.arguments_of(stack).into_iter();
    for (number, frame) in stack.frames.iter().enumerate() {
        print_frame(out, report, number, frame)?;
        for argument in arguments.next().flatten().into_iter().flatten() {
            print_argument(out, &argument)?;
        }
    }
    writeln!(out, "  {}", end_text(stack))
}

fn state_text(thread: &Thread) -> String {
    match thread.state {
        ThreadState::JobStopped => ", stopped by job control".into(),
        ThreadState::Signalled(signal) => {
            format!(", about to get signal {}", name_or_number(signal))
        }
        ThreadState::Exited => ", exited".into(),
        ThreadState::NotStopped(state) => format!(", did not stop (state {state})"),
        _ => thread
            .syscall
            .map_or_else(String::new, |n| format!(", in system call {n}")),
    }
}

fn end_text(stack: &Stack) -> String {
    match (stack.end.is_root(), stack.is_reliable()) {
        (true, true) => format!("complete: {}", stack.end),
        (true, false) => format!("not reliable: {}, but frames were guessed", stack.end),
        (false, _) => format!("incomplete: {}", stack.end),
    }
}

fn print_frame(
    out: &mut dyn Write,
    report: &Report<'_>,
    number: usize,
    frame: &WalkedFrame,
) -> io::Result<()> {
    let located = report.locate(frame);
    let name = located.as_ref().map(|(_, name)| *name);
    let mut inlined = name.into_iter().flat_map(|name| name.debug_frames());
    let outer = inlined.next_back();
    for inline in inlined {
        let function = Plain(inline.function.unwrap_or("??"));
        let place = place(inline);
        writeln!(out, "  {number:>3}  {:18}  {function} (inlined){place}", "")?;
    }
    write!(out, "  {number:>3}  {:#018x}  ", frame.code.address().0)?;
    let symbol = name.and_then(|name| name.function);
    let function = outer.and_then(|outer| outer.function);
    match function.or(symbol.map(|symbol| symbol.name)) {
        Some(function) => write!(out, "{}", Plain(function))?,
        None => write!(out, "??")?,
    }
    if let (Some((at, _)), Some(symbol)) = (&located, symbol) {
        write!(out, "+{:#x}", at.address.0.wrapping_sub(symbol.address.0))?;
    }
    if let Some(outer) = outer {
        write!(out, "{}", place(outer))?;
    }
    if let Some((at, _)) = &located {
        write!(
            out,
            "  [{}+{:#x}]",
            Plain(&short_name(&at.module.name)),
            at.address.0
        )?;
    }
    if located.is_none()
        && let Some(file) = report.space.unusable(frame.code.lookup())
    {
        let name = short_name(file.name);
        write!(out, "  [{}, offset {:#x}]", Plain(&name), file.offset)?;
    }
    write!(out, "{}", how(frame))?;
    writeln!(out)?;
    match frame.registers.as_ref().filter(|_| report.with_registers) {
        Some(registers) => print_registers(out, report, frame, registers),
        None => Ok(()),
    }
}

/// Where a frame is in the source.
fn place(frame: Frame<'_>) -> String {
    match (frame.file, frame.line) {
        (Some(file), Some(line)) => format!(" at {}:{line}", Plain(file)),
        (Some(file), None) => format!(" at {}", Plain(file)),
        _ => String::new(),
    }
}

/// What is unusual about how a frame was found.
fn how(frame: &WalkedFrame) -> String {
    let Some(found) = frame.found else {
        return String::new();
    };
    let mut text = String::new();
    if found.signal_frame {
        text.push_str("  <interrupted by a signal>");
    }
    if found.evidence.is_guess() {
        text.push_str(&format!("  <guess: {}", found.evidence.name()));
        if let Some(reason) = found.instead_of {
            text.push_str(&format!("; {reason}"));
        }
        text.push('>');
    }
    text
}

const INDENT: &str = "                           ";

fn print_argument(out: &mut dyn Write, argument: &Argument) -> io::Result<()> {
    let (name, type_name) = (Plain(&argument.name), Plain(&argument.type_name));
    write!(out, "{INDENT}{name}: {type_name}")?;
    match &argument.value {
        Ok(shown) => {
            write!(out, " = {}", Plain(&shown.text))?;
            match (shown.certainty, shown.by_caller) {
                (Certainty::Exact, 0) => {}
                (Certainty::Exact, _) => write!(out, "  <from the caller>")?,
                (Certainty::Likely, 0) => write!(out, "  <likely>")?,
                (Certainty::Likely, _) => write!(out, "  <likely, from the caller>")?,
            }
        }
        Err(lost) => write!(out, "  <lost: {lost}>")?,
    }
    writeln!(out)
}

fn print_registers(
    out: &mut dyn Write,
    report: &Report<'_>,
    frame: &WalkedFrame,
    registers: &KnownRegisters,
) -> io::Result<()> {
    let arch = report.snapshot.abi().arch;
    match frame.cfa {
        Some(cfa) if frame.cfa_is_guess => {
            writeln!(out, "{INDENT}cfa    {:#018x} <guess>", cfa.0)?;
        }
        Some(cfa) => writeln!(out, "{INDENT}cfa    {:#018x}", cfa.0)?,
        None => writeln!(out, "{INDENT}cfa    unknown")?,
    }
    for register in super::shown_registers(arch) {
        let name = super::shown_name(register, arch);
        match registers.get(register) {
            Some(value) => writeln!(out, "{INDENT}{name:<6} {value:#018x}")?,
            None => writeln!(out, "{INDENT}{name:<6} unknown")?,
        }
    }
    Ok(())
}
