//! A report as text.

use std::collections::HashMap;
use std::io::{self, Write};

use unspool_display_values::{
    FrameArgument, FrameValues, FunctionValues, ValueOrigin, VariableText,
};
use unspool_elf::fallback_name;
use unspool_process::snapshot_unwinder::{CallStack, SparseRegisters, StackFrame};
use unspool_process::{Signal, Thread, ThreadStack, ThreadState, signal_name, syscall_name};
use unspool_rows::Arch;
use unspool_symbols::InlineFrameRef;

use super::{StackReport, StackSubject, display, mutexes};
use crate::output::{self, EscapedText, short_name};
use crate::text::cycle::Cycle;

pub(super) fn print(out: &mut dyn Write, report: &StackReport<'_>) -> io::Result<()> {
    header(out, report)?;
    mutexes::print(out, report)?;
    for group in groups(report) {
        writeln!(out)?;
        for thread in &group {
            print_heading(out, report, thread)?;
        }
        if let Some(thread) = group.first() {
            print_stack(out, report, thread)?;
        }
    }
    let space = &report.stacks.unwinder;
    let unusable = space.problems().into_iter();
    let unusable = unusable.map(|problem| output::with_causes(problem));
    let changed = space.changed_files().into_iter();
    let changed = changed.map(|problem| output::with_causes(&problem));
    let problems: Vec<_> = unusable.chain(changed).collect();
    if !problems.is_empty() {
        writeln!(out, "\nfiles that cannot be used:")?;
    }
    for problem in &problems {
        writeln!(out, "  {}", EscapedText(problem))?;
    }
    if !problems.is_empty() && matches!(report.subject, StackSubject::Core(_)) {
        writeln!(
            out,
            "  --exe FILE names the program, --modules DIR a folder with these files"
        )?;
    }
    Ok(())
}

fn header(out: &mut dyn Write, report: &StackReport<'_>) -> io::Result<()> {
    let count = report.stacks.threads.len();
    let threads = if count == 1 {
        "1 thread".into()
    } else {
        format!("{count} threads")
    };
    match report.subject {
        StackSubject::Process(pid) => write!(out, "process {pid}: {threads}")?,
        StackSubject::Command(command, pid) => {
            write!(
                out,
                "process {pid} ({}): {threads}",
                EscapedText(&display(command))
            )?;
        }
        StackSubject::Core(core) => {
            let path = core.path.to_string_lossy();
            write!(out, "core {}: {threads}", EscapedText(&path))?;
        }
    }
    if let Some(stopped) = report.stopped {
        write!(out, ", stopped for {:.2} ms", stopped.as_secs_f64() * 1e3)?;
    }
    writeln!(out)?;
    match report.stacks.snapshot.signal() {
        Some(signal) => writeln!(out, "{}", signal_text(signal)),
        None => Ok(()),
    }
}

pub(super) fn signal_text(signal: &Signal) -> String {
    let mut text = format!("signal {}", name_or_number(signal.number));
    if let Some(cause) = signal.cause() {
        text.push_str(&format!(" ({cause})"));
    }
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

/// The threads that are shown with one stack, in the order of the first of each.
fn groups<'a>(report: &StackReport<'a>) -> Vec<Vec<&'a ThreadStack<'a>>> {
    let threads = report.stacks.threads.iter();
    if !report.is_grouped {
        return threads.map(|thread| vec![thread]).collect();
    }
    let mut groups: Vec<Vec<&ThreadStack<'_>>> = Vec::new();
    let mut by_stack = HashMap::new();
    for thread in threads {
        let frames = |stack: &CallStack| {
            let frames = stack.frames.iter();
            let frames: Vec<_> = frames.map(|frame| (frame.code, how(frame))).collect();
            (frames, end_text(stack))
        };
        let next = groups.len();
        let group = match &thread.stack {
            Some(stack) => *by_stack.entry(frames(stack)).or_insert(next),
            None => next,
        };
        match groups.get_mut(group) {
            Some(group) => group.push(thread),
            None => groups.push(vec![thread]),
        }
    }
    groups
}

fn print_heading(
    out: &mut dyn Write,
    report: &StackReport<'_>,
    thread: &ThreadStack<'_>,
) -> io::Result<()> {
    let owner = report.mutex_owner(thread).map(|owner| owner.tid);
    let thread = thread.thread;
    write!(out, "thread {}", thread.tid)?;
    if let Some(name) = &thread.name {
        write!(out, " \"{}\"", EscapedText(name))?;
    }
    write!(
        out,
        "{}",
        state_text(thread, report.stacks.snapshot.abi().arch)
    )?;
    if owner == Some(thread.tid) {
        write!(out, ", waits for a mutex that it holds itself")?;
    } else if let Some(owner) = owner {
        write!(out, ", waits for a mutex of thread {owner}")?;
    }
    writeln!(out)
}

fn print_stack(
    out: &mut dyn Write,
    report: &StackReport<'_>,
    thread: &ThreadStack<'_>,
) -> io::Result<()> {
    let ThreadStack { thread, stack, .. } = thread;
    let Some(stack) = stack else {
        return match &thread.registers {
            Err(error) => writeln!(out, "  no stack: {error}"),
            Ok(_) => writeln!(out, "  no stack: the registers have no code address"),
        };
    };
    let mut values = report.values(thread.tid, stack);
    // Frames of a recursion differ in these.
    let has_values = report.query.tables.is_some() || report.query.debug_info.is_some();
    let is_folded = !report.is_whole && !report.with_registers && !has_values;
    let mut next = 0;
    for number in report.shown(stack).into_iter().flatten() {
        let (Some(frame), Some(own)) = (stack.frames.get(number), values.next()) else {
            break;
        };
        if number < next {
            continue;
        }
        if number > next {
            let last = number - 1;
            writeln!(
                out,
                "  frames {next} to {last}: left out: --whole shows them"
            )?;
        }
        let caller = stack.frames.get(number + 1).and_then(|caller| caller.step);
        let is_signal_return = caller.is_some_and(|step| step.signal_frame);
        print_frame(out, report, (number, frame), is_signal_return, &own)?;
        next = number + 1;
        let repeats = stack.frames.get(next..).filter(|_| is_folded);
        let shown = stack.frames.get(..next).unwrap_or_default();
        if let Some(cycle) = repeats.and_then(|rest| Cycle::at(shown, rest, is_same)) {
            let last = next + cycle.items() - 1;
            let Cycle { length, repeats } = cycle;
            writeln!(
                out,
                "  frames {next} to {last}: the last {length} frames, {repeats} times more"
            )?;
            next = last + 1;
        }
    }
    writeln!(out, "  {}", end_text(stack))
}

/// Whether a frame repeats another.
fn is_same(one: &StackFrame, other: &StackFrame) -> bool {
    let how = |frame: &StackFrame| frame.step.map(|step| (step.evidence, step.signal_frame));
    one.code == other.code && how(one) == how(other)
}

fn state_text(thread: &Thread, arch: Arch) -> String {
    match thread.state {
        ThreadState::JobStopped => ", stopped by job control".into(),
        ThreadState::Signalled(signal) => {
            format!(", about to get signal {}", name_or_number(signal))
        }
        ThreadState::Exited => ", exited".into(),
        ThreadState::NotStopped(state) => format!(", did not stop (state {state})"),
        _ => thread.syscall.map_or_else(String::new, |number| {
            let name = syscall_name(number).filter(|_| arch == Arch::HOST);
            let name = name.map_or_else(|| number.to_string(), Into::into);
            format!(", in system call {name}")
        }),
    }
}

fn end_text(stack: &CallStack) -> String {
    match (stack.end.is_root(), stack.is_reliable()) {
        (true, true) => format!("complete: {}", stack.end),
        (true, false) => format!("not reliable: {}, but frames were guessed", stack.end),
        (false, _) => format!("incomplete: {}", stack.end),
    }
}

fn print_frame(
    out: &mut dyn Write,
    report: &StackReport<'_>,
    (number, frame): (usize, &StackFrame),
    is_signal_return: bool,
    values: &FrameValues,
) -> io::Result<()> {
    let located = report.locate(frame);
    let name = located.as_ref().map(|(_, name)| *name);
    let mut inlined: Vec<_> = name.into_iter().flat_map(|name| name.frames()).collect();
    let outer = inlined.pop();
    // Without line numbers, or if symbols disagree, they are shown below the frame.
    let has_lines = inlined.len() == values.inlined.len();
    for (nth, inline) in inlined.iter().enumerate() {
        let function = EscapedText(inline.function.unwrap_or("??"));
        let place = place(*inline);
        writeln!(out, "  {number:>3}  {:18}  {function} (inlined){place}", "")?;
        if let Some(level) = values.inlined.get(nth).filter(|_| has_lines) {
            print_level(out, level, "")?;
        }
    }
    write!(out, "  {number:>3}  {:#018x}  ", frame.code.address().0)?;
    let function = outer.and_then(|outer| outer.function);
    // As gdb says, in place of the C library's code without a name to which handlers return.
    let is_unnamed = is_signal_return && function.is_none();
    let begin = name.and_then(|name| name.begin).filter(|_| !is_unnamed);
    match (function, &located, begin) {
        (Some(function), ..) => write!(out, "{}", EscapedText(function))?,
        _ if is_unnamed => write!(out, "<signal handler called>")?,
        (None, Some((at, _)), Some(begin)) => {
            let module = short_name(&at.module.name);
            write!(out, "{}", EscapedText(&fallback_name(&module, begin.0)))?;
        }
        _ => match report.generated(frame).filter(|_| located.is_none()) {
            Some(made) => {
                let into = frame.code.address().0.wrapping_sub(made.address.0);
                write!(out, "{}+{into:#x}  [jit]", EscapedText(made.name))?;
            }
            None => write!(out, "??")?,
        },
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
            EscapedText(&short_name(&at.module.name)),
            at.address.0
        )?;
        if at.differs {
            write!(out, "  <the code in memory differs from the file>")?;
        }
    }
    if located.is_none()
        && let Some(file) = report.stacks.unwinder.unusable(frame.code.lookup())
    {
        let name = short_name(file.name);
        write!(out, "  [{}, offset {:#x}]", EscapedText(&name), file.offset)?;
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

/// Prints the values of an inlined function.
fn print_level(
    out: &mut dyn Write,
    function_values: &FunctionValues,
    function: &str,
) -> io::Result<()> {
    for parameter in &function_values.parameters {
        print_variable(out, parameter, "", function)?;
    }
    for local in &function_values.locals {
        print_variable(out, local, "local ", function)?;
    }
    Ok(())
}

fn print_variable(
    out: &mut dyn Write,
    variable: &VariableText,
    kind: &str,
    function: &str,
) -> io::Result<()> {
    let (name, type_name) = (
        EscapedText(&variable.name),
        EscapedText(&variable.type_name),
    );
    write!(out, "{INDENT}")?;
    if !function.is_empty() {
        write!(out, "{}, inlined: ", EscapedText(function))?;
    }
    match &variable.current {
        Ok(now) => writeln!(
            out,
            "{kind}{name}: {type_name} = {}",
            EscapedText(&now.text)
        ),
        Err(absent) => writeln!(out, "{kind}{name}: {type_name} <lost: {absent}>"),
    }
}

/// The source location of a frame.
fn place(frame: InlineFrameRef<'_>) -> String {
    match (frame.file, frame.line) {
        (Some(file), Some(line)) => format!(" at {}:{line}", EscapedText(file)),
        (Some(file), None) => format!(" at {}", EscapedText(file)),
        _ => String::new(),
    }
}

/// What is unusual about how a frame was found.
fn how(frame: &StackFrame) -> String {
    let Some(found) = frame.step else {
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

fn print_argument(out: &mut dyn Write, argument: &FrameArgument) -> io::Result<()> {
    let (name, type_name) = (
        EscapedText(&argument.name),
        EscapedText(&argument.type_name),
    );
    write!(out, "{INDENT}{name}: {type_name}")?;
    let now = argument.current.as_ref().and_then(|now| now.as_ref().ok());
    match (&argument.value, now.map(|now| now.text.as_str())) {
        (Ok(found), now) => {
            write!(out, " = {}", EscapedText(&found.text))?;
            match (found.origin, found.caller_depth) {
                (ValueOrigin::Exact, 0) => {}
                (ValueOrigin::Exact, _) => write!(out, "  <from the caller>")?,
                (ValueOrigin::FromDebugInfo, _) => {
                    write!(out, "  <from the caller, by debug information>")?;
                }
                (ValueOrigin::Likely, 0) => write!(out, "  <likely>")?,
                (ValueOrigin::Likely, _) => write!(out, "  <likely, from the caller>")?,
            }
            match now {
                Some(now) if now != found.text => {
                    write!(out, "  <now {}, by debug information>", EscapedText(now))?;
                }
                Some(_) if found.origin == ValueOrigin::Likely => {
                    write!(out, "  <now, too, by debug information>")?;
                }
                _ => {}
            }
        }
        (Err(_), Some(now)) => write!(out, " = {}  <now, by debug information>", EscapedText(now))?,
        (Err(lost), None) => write!(out, "  <lost: {lost}>")?,
    }
    writeln!(out)
}

fn print_registers(
    out: &mut dyn Write,
    report: &StackReport<'_>,
    frame: &StackFrame,
    registers: &SparseRegisters,
) -> io::Result<()> {
    let arch = report.stacks.snapshot.abi().arch;
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
