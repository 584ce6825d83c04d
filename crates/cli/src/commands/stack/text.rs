//! A report as text.

use std::io::{self, Write};

use unspool_module::name_of_unnamed;
use unspool_process::space::{KnownRegisters, Stack, WalkedFrame};
use unspool_process::{Signal, Thread, ThreadState, signal_name};
use unspool_symbols::Frame;
use unspool_values::{Argument, Label, Level, Values, Variable};

use super::{Report, Subject, ThreadStack, display};
use crate::output::{self, Plain, short_name};

pub(super) fn print(out: &mut dyn Write, report: &Report<'_>) -> io::Result<()> {
    header(out, report)?;
    for thread in &report.seen.threads {
        writeln!(out)?;
        print_thread(out, report, thread)?;
    }
    let space = &report.seen.space;
    let unusable = space.problems().into_iter();
    let unusable = unusable.map(|problem| output::with_causes(problem));
    let changed = space.changed_files().into_iter();
    let changed = changed.map(|problem| output::with_causes(&problem));
    let problems: Vec<_> = unusable.chain(changed).collect();
    if !problems.is_empty() {
        writeln!(out, "\nfiles that cannot be used:")?;
    }
    for problem in problems {
        writeln!(out, "  {}", Plain(&problem))?;
    }
    Ok(())
}

fn header(out: &mut dyn Write, report: &Report<'_>) -> io::Result<()> {
    let count = report.seen.threads.len();
    let threads = if count == 1 {
        "1 thread".into()
    } else {
        format!("{count} threads")
    };
    match &report.seen.subject {
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
    match report.seen.snapshot.signal() {
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
    let values = report.values(thread.tid, stack);
    for ((number, frame), values) in stack.frames.iter().enumerate().zip(values) {
        print_frame(out, report, number, frame, &values)?;
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
    values: &Values,
) -> io::Result<()> {
    let located = report.locate(frame);
    let name = located.as_ref().map(|(_, name)| *name);
    let mut inlined: Vec<_> = name.into_iter().flat_map(|name| name.frames()).collect();
    let outer = inlined.pop();
    // Without lines, or if symbols say otherwise, they are shown below the frame.
    let has_lines = inlined.len() == values.inlined.len();
    for (nth, inline) in inlined.iter().enumerate() {
        let function = Plain(inline.function.unwrap_or("??"));
        let place = place(*inline);
        writeln!(out, "  {number:>3}  {:18}  {function} (inlined){place}", "")?;
        if let Some(level) = values.inlined.get(nth).filter(|_| has_lines) {
            print_level(out, level, "")?;
        }
    }
    write!(out, "  {number:>3}  {:#018x}  ", frame.code.address().0)?;
    let begin = name.and_then(|name| name.begin);
    let function = outer.and_then(|outer| outer.function);
    match (function, &located, begin) {
        (Some(function), ..) => write!(out, "{}", Plain(function))?,
        (None, Some((at, _)), Some(begin)) => {
            let module = short_name(&at.module.name);
            write!(out, "{}", Plain(&name_of_unnamed(&module, begin.0)))?;
        }
        _ => write!(out, "??")?,
    }
    if let (Some((at, _)), Some(begin)) = (&located, begin) {
        write!(out, "+{:#x}", at.address.0.wrapping_sub(begin.0))?;
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
        && let Some(file) = report.seen.space.unusable(frame.code.lookup())
    {
        let name = short_name(file.name);
        write!(out, "  [{}, offset {:#x}]", Plain(&name), file.offset)?;
    }
    write!(out, "{}", how(frame))?;
    writeln!(out)?;
    if let Some(registers) = frame.registers.as_ref().filter(|_| report.with_registers) {
        print_registers(out, report, frame, registers)?;
    }
    for argument in values.arguments.iter().flatten() {
        print_argument(out, argument)?;
    }
    for variable in &values.locals {
        print_variable(out, variable, "local ", "")?;
    }
    for level in values.inlined.iter().filter(|_| !has_lines) {
        print_level(out, level, &level.function)?;
    }
    Ok(())
}

/// Shows what is known of a function that is inlined.
fn print_level(out: &mut dyn Write, level: &Level, function: &str) -> io::Result<()> {
    for parameter in &level.parameters {
        print_variable(out, parameter, "", function)?;
    }
    for local in &level.locals {
        print_variable(out, local, "local ", function)?;
    }
    Ok(())
}

fn print_variable(
    out: &mut dyn Write,
    variable: &Variable,
    kind: &str,
    function: &str,
) -> io::Result<()> {
    let (name, type_name) = (Plain(&variable.name), Plain(&variable.type_name));
    write!(out, "{INDENT}")?;
    if !function.is_empty() {
        write!(out, "{}, inlined: ", Plain(function))?;
    }
    match &variable.now {
        Ok(now) => writeln!(out, "{kind}{name}: {type_name} = {}", Plain(&now.text)),
        Err(absent) => writeln!(out, "{kind}{name}: {type_name} <lost: {absent}>"),
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
    let now = argument.now.as_ref().and_then(|now| now.as_ref().ok());
    match (&argument.value, now.map(|now| now.text.as_str())) {
        (Ok(found), now) => {
            write!(out, " = {}", Plain(&found.text))?;
            match (found.label, found.by_caller) {
                (Label::Exact, 0) => {}
                (Label::Exact, _) => write!(out, "  <from the caller>")?,
                (Label::Described, _) => write!(out, "  <from the caller, by debug information>")?,
                (Label::Likely, 0) => write!(out, "  <likely>")?,
                (Label::Likely, _) => write!(out, "  <likely, from the caller>")?,
            }
            match now {
                Some(now) if now != found.text => {
                    write!(out, "  <now {}, by debug information>", Plain(now))?;
                }
                Some(_) if found.label == Label::Likely => {
                    write!(out, "  <now, too, by debug information>")?;
                }
                _ => {}
            }
        }
        (Err(_), Some(now)) => write!(out, " = {}  <now, by debug information>", Plain(now))?,
        (Err(lost), None) => write!(out, "  <lost: {lost}>")?,
    }
    writeln!(out)
}

fn print_registers(
    out: &mut dyn Write,
    report: &Report<'_>,
    frame: &WalkedFrame,
    registers: &KnownRegisters,
) -> io::Result<()> {
    let arch = report.seen.snapshot.abi().arch;
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
