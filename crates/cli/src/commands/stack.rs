//! `unspool stack`.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context as _;
use unspool_display_values::{
    ArgTables, DebugInfo, DebugInfoFiles, FrameValues, ValueProblem, ValueQuery, WithFiles,
};
use unspool_dwarf_types::TypesError;
use unspool_elf::ElfFile;
use unspool_process::core_file::{Core, CoreError};
use unspool_process::file_provider::CoreFiles;
use unspool_process::snapshot_unwinder::{
    CallStack, FrameLocation, SnapshotUnwinder, StackFrame, WalkDetail,
};
use unspool_process::{CommandEvent, Process, Snapshot, Thread, TracedCommand};
use unspool_rows::arch::RegisterName;
use unspool_rows::{Arch, Register, RuntimeAddr};
use unspool_symbols::{AddressName, NameDetail, process_root};
use unspool_table_store::Store;

use crate::args::{Format, StackArgs};
use crate::output::{self, ExitCodes, JsonLayout};
use crate::text::words;

mod arguments;
mod json;
mod missing;
mod names;
mod signals;
mod sink;
mod sys;
mod text;

pub(in crate::commands) use arguments::table as table_of_arguments;
use names::FileNames;
use signals::BlockedSignals;
use sink::Sink;

/// What was looked at.
enum StackSubject<'a> {
    Process(u32),
    Command(&'a [OsString], u32),
    Core(&'a std::path::Path),
}

/// One thread and its stack; `None` if its registers are not known.
struct ThreadStack<'a> {
    thread: &'a Thread,
    stack: Option<CallStack>,
}

/// What was seen of one process.
struct ProcessStacks<'a> {
    subject: StackSubject<'a>,
    snapshot: &'a dyn Snapshot,
    space: &'a SnapshotUnwinder<'a>,
    threads: Vec<ThreadStack<'a>>,
    /// The process, if it stands still to be looked at, or did, and how long it has done so before.
    stopped: Option<(&'a Process, Duration)>,
}

/// All that is reported of one process.
struct StackReport<'a> {
    stacks: &'a ProcessStacks<'a>,
    names: FileNames,
    /// What is shown of arguments and variables.
    query: ValueQuery<'a, 'a>,
    /// Of each thread, by its number, what was found out of it before the process went on.
    read: RefCell<HashMap<u32, Vec<FrameValues>>>,
    /// How long the process stood still.
    stopped: Option<Duration>,
    /// Whether registers are shown.
    with_registers: bool,
}

impl StackReport<'_> {
    /// What is shown of the frames of a thread's stack. Asked for once.
    fn values<'s>(
        &'s self,
        tid: u32,
        stack: &'s CallStack,
    ) -> Box<dyn Iterator<Item = FrameValues> + 's> {
        match self.read.borrow_mut().remove(&tid) {
            Some(values) => Box::new(values.into_iter()),
            None => Box::new(self.query.frames(stack, 0..stack.frames.len())),
        }
    }

    /// Finds out what is shown of frames, and lets the process go on.
    fn read_and_resume(&mut self, process: &Process, before: Duration) {
        if self.query.with_locals || self.query.with_strings {
            let asked = &self.query;
            let values = self.stacks.threads.iter().filter_map(|one| {
                let stack = one.stack.as_ref()?;
                let values = asked.frames(stack, 0..stack.frames.len());
                Some((one.thread.tid, values.collect()))
            });
            self.read = RefCell::new(values.collect());
        }
        self.stopped = Some(before + process.resume());
    }
}

impl ProcessStacks<'_> {
    fn stacks(&self) -> impl Iterator<Item = &CallStack> {
        let threads = self.threads.iter();
        threads.filter_map(|thread| thread.stack.as_ref())
    }

    /// The root of the file system that the process sees, if it is another one.
    fn root(&self) -> Option<PathBuf> {
        match self.subject {
            StackSubject::Process(pid) | StackSubject::Command(_, pid) => process_root(pid),
            StackSubject::Core(_) => None,
        }
    }

    /// Whether every stack reaches its root without a guess.
    fn is_reliable(&self) -> bool {
        let reliable =
            |thread: &ThreadStack<'_>| thread.stack.as_ref().is_some_and(CallStack::is_reliable);
        !self.threads.is_empty() && self.threads.iter().all(reliable)
    }
}

impl StackReport<'_> {
    /// Where a frame stands and what that is called.
    fn locate(&self, frame: &StackFrame) -> Option<(FrameLocation, AddressName<'_>)> {
        let at = self.stacks.space.locate(frame.code)?;
        let name = self.names.get(&at.module.file, at.lookup)?;
        Some((at, name))
    }
}

pub(crate) fn run(args: &StackArgs) -> anyhow::Result<ExitCode> {
    let store = super::store(args.no_cache, args.tables)?;
    let sink = match &args.output {
        Some(path) => Sink::named(path),
        // A command may write results of its own to standard output.
        None if !args.cmd.is_empty() => Sink::standard_error(),
        None => Sink::standard_output(),
    };
    let mut stacks = StackCommand {
        args,
        store: &store,
        sink,
    };
    if let Some(core) = &args.core {
        return stacks.core(core);
    }
    if !args.cmd.is_empty() {
        return stacks.command();
    }
    stacks.processes()
}

/// What all ways to a stack share.
struct StackCommand<'a> {
    args: &'a StackArgs,
    store: &'a Store,
    sink: Sink<'a>,
}

impl StackCommand<'_> {
    fn processes(&mut self) -> anyhow::Result<ExitCode> {
        let pids: Vec<u32> = self.args.processes().collect();
        let mut status = 0;
        for pid in &pids {
            match self.process(*pid) {
                Ok(true) => {}
                Ok(false) => status = status.max(ExitCodes::FINDINGS),
                Err(error) if pids.len() == 1 || output::is_closed(&error) => {
                    return Err(error);
                }
                Err(error) => {
                    output::error(&format_args!("{error:#}"));
                    status = ExitCodes::COULD_NOT_RUN;
                }
            }
        }
        Ok(ExitCode::from(status))
    }

    /// Shows a running process; yields whether the result is what was asked for.
    fn process(&mut self, pid: u32) -> anyhow::Result<bool> {
        self.copied(pid, &Process::attach(pid)?, CopyRequest::default())
    }

    /// Copies the stacks of a process that stands still, and walks the copy while it runs again.
    /// Where that is too short, the process is stopped anew for a larger copy.
    fn copied(
        &mut self,
        pid: u32,
        process: &Process,
        mut copying: CopyRequest,
    ) -> anyhow::Result<bool> {
        let copied = process.prefetch_stacks_and(copying.bytes, &copying.others);
        // What values lead to is not among what was copied.
        if !self.args.strings && !self.args.locals {
            process.resume();
        }
        let space = SnapshotUnwinder::new(process, process, self.store);
        let threads = self.walk(process, &space);
        let stacks = threads.iter().filter_map(|thread| thread.stack.as_ref());
        let missing: Vec<RuntimeAddr> = stacks.filter_map(|stack| stack.missing).collect();
        let may_grow = copying.bytes < MAX_COPY_BYTES && copying.copied != Some(copied);
        // A process that is gone has been seen all the same.
        if !missing.is_empty()
            && may_grow
            && let Ok(again) = Process::attach(pid)
        {
            copying.stopped += process.stopped();
            copying.bytes *= COPY_GROWTH_FACTOR;
            copying.copied = Some(copied);
            copying.others.extend(missing);
            return self.copied(pid, &again, copying);
        }
        self.finish(&ProcessStacks {
            subject: StackSubject::Process(pid),
            snapshot: process,
            space: &space,
            threads,
            stopped: Some((process, copying.stopped)),
        })
    }

    fn core(&mut self, path: &std::path::Path) -> anyhow::Result<ExitCode> {
        let core = Core::open(path).map_err(|error| match error {
            CoreError::Open { .. } => anyhow::Error::from(error),
            error => anyhow::Error::from(error).context(path.display().to_string()),
        })?;
        for problem in core.problems() {
            output::notice(&format_args!("{}: {problem}", path.display()));
        }
        let files = CoreFiles::new(&core, self.args.exe.clone());
        files.check_executable()?;
        let space = SnapshotUnwinder::new(&core, &files, self.store);
        let seen = ProcessStacks {
            subject: StackSubject::Core(path),
            snapshot: &core,
            space: &space,
            threads: self.walk(&core, &space),
            stopped: None,
        };
        let is_whole = core.problems().is_empty();
        Ok(status(self.finish(&seen)? && is_whole))
    }

    /// Runs the command; shows its stacks if a signal is about to kill it.
    fn command(&mut self) -> anyhow::Result<ExitCode> {
        let words = &self.args.cmd;
        let [program, arguments @ ..] = words.as_slice() else {
            anyhow::bail!("no command is given");
        };
        self.sink.check()?;
        let mut command = Command::new(program);
        command.args(arguments);
        let signals = BlockedSignals::new().context("cannot block signals")?;
        signals.restore_mask_in(&mut command);
        let mut traced = TracedCommand::spawn(command)?;
        let pid = traced.pid();
        let passed_on = signals.forward_to(pid).context("cannot pass on signals")?;
        let mut is_told = false;
        loop {
            match traced.run_until_fatal_signal()? {
                CommandEvent::Exited(exit) => {
                    if !is_told {
                        signals::report_exit(exit);
                    }
                    signals::die_by_sigint(exit);
                    return Ok(super::pass_on(exit));
                }
                CommandEvent::Unobserved { signal, error } => {
                    let error = anyhow::Error::from(error).context(text::signal_text(&signal));
                    output::error(&format_args!("{error:#}"));
                    is_told = true;
                }
                CommandEvent::Fatal(process) => {
                    is_told = true;
                    passed_on.stop_forwarding(process.signal().map_or(0, |signal| signal.number));
                    let space = SnapshotUnwinder::new(&*process, &*process, self.store);
                    let seen = ProcessStacks {
                        subject: StackSubject::Command(words, pid),
                        snapshot: &*process,
                        space: &space,
                        threads: self.walk(&*process, &space),
                        stopped: None,
                    };
                    // Whatever becomes of the report, the command goes on to its end.
                    if let Err(error) = self.finish(&seen)
                        && !output::is_closed(&error)
                    {
                        output::error(&format_args!("{error:#}"));
                    }
                }
            }
        }
    }

    fn walk<'s>(
        &self,
        snapshot: &'s dyn Snapshot,
        space: &SnapshotUnwinder<'_>,
    ) -> Vec<ThreadStack<'s>> {
        let keep = if self.args.registers || self.shows_values() {
            WalkDetail::Registers
        } else {
            WalkDetail::Frames
        };
        let walk = |thread| space.walk(thread, self.args.max_frames.get(), keep);
        snapshot
            .threads()
            .iter()
            .map(|thread| ThreadStack {
                thread,
                stack: walk(thread),
            })
            .collect()
    }

    /// Whether arguments or variables are shown.
    fn shows_values(&self) -> bool {
        self.args.args || self.args.locals
    }

    /// Prints a report and makes the tables that were missing; yields whether the stacks are
    /// what was asked for.
    fn finish(&mut self, seen: &ProcessStacks<'_>) -> anyhow::Result<bool> {
        let tables = self.args.args.then(|| self.tables(seen));
        let root = seen.root();
        let files = self.shows_values();
        let files = files.then(|| DebugInfoFiles::open(seen.space, seen.stacks(), root.as_deref()));
        let described = files.as_ref().map(DebugInfo::read);
        report_problems(described.as_ref());
        let memory = WithFiles {
            memory: seen.snapshot.memory(),
            space: seen.space,
        };
        let mut report = StackReport {
            stacks: seen,
            read: RefCell::default(),
            stopped: None,
            names: self.names(seen, root.as_ref()),
            query: ValueQuery {
                snapshot: seen.snapshot,
                space: seen.space,
                memory: &memory,
                tables: tables.as_ref(),
                described: described.as_ref(),
                with_locals: self.args.locals,
                with_strings: self.args.strings,
            },
            with_registers: self.args.registers,
        };
        if let Some((process, before)) = seen.stopped {
            report.read_and_resume(process, before);
        }
        let layout = self.layout();
        self.sink.take(|out| match self.args.format {
            Format::Text => text::print(out, &report),
            Format::Json => json::print(out, &report, layout),
        })?;
        report_problems(described.as_ref());
        for notice in seen.space.take_notices() {
            output::notice(&notice);
        }
        if !self.args.no_cache {
            missing::compile_missing(seen.space, self.store);
        }
        Ok(!self.args.reliable || seen.is_reliable())
    }

    /// The tables of arguments of the modules that frames stand in; those that are missing are made.
    fn tables(&self, seen: &ProcessStacks<'_>) -> ArgTables {
        let table = |file: &ElfFile| table_of_arguments(file, self.store);
        let tables = ArgTables::load(seen.space, seen.stacks(), table);
        if tables.is_empty() {
            output::notice(
                &"no module here has the types of its functions: build with -g, or with gcc -gctf and `unspool ctf link --into`",
            );
        }
        tables
    }

    /// One document can be read at leisure; of several each is a line.
    fn layout(&self) -> JsonLayout {
        match self.args.processes().count() {
            0 | 1 => JsonLayout::Pretty,
            _ => JsonLayout::Line,
        }
    }

    /// The names of all frames.
    fn names(&self, seen: &ProcessStacks<'_>, root: Option<&PathBuf>) -> FileNames {
        let frames = seen.stacks().flat_map(|stack| &stack.frames);
        let located: Vec<FrameLocation> = frames
            .filter_map(|frame| seen.space.locate(frame.code))
            .collect();
        let addresses = located.iter().map(|at| (&at.module.file, at.lookup));
        let detail = if self.args.no_lines {
            NameDetail::Functions
        } else {
            NameDetail::Lines
        };
        FileNames::look_up(addresses, detail, root)
    }
}

/// Says why less is told of variables than could be, of each module up to a point.
fn report_problems(described: Option<&DebugInfo<'_>>) {
    let mut by_module: BTreeMap<PathBuf, Vec<TypesError>> = BTreeMap::new();
    for problem in described.into_iter().flat_map(DebugInfo::take_problems) {
        match problem {
            ValueProblem::Types { module, error } => {
                by_module.entry(module).or_default().push(error);
            }
            problem => output::notice(&problem),
        }
    }
    for (module, errors) in by_module {
        super::report(&module, errors.iter());
    }
}

/// How much of each stack is copied first, in bytes: more than nearly all have.
const FIRST_COPY_BYTES: u64 = 1 << 20;
/// How many times as much the next copy takes.
const COPY_GROWTH_FACTOR: u64 = 64;
/// The size of the last copy: whole stacks.
const MAX_COPY_BYTES: u64 = FIRST_COPY_BYTES * COPY_GROWTH_FACTOR * COPY_GROWTH_FACTOR;

/// What is copied of a process, after what earlier copies told.
struct CopyRequest {
    /// How much of each stack, in bytes.
    bytes: u64,
    /// Where memory begins that earlier copies lacked. It need not be on a thread's own stack:
    /// a signal handler can have a stack to itself.
    others: Vec<RuntimeAddr>,
    /// How many bytes the copy before had. One that has no more is as large as can be.
    copied: Option<usize>,
    /// How long the process has stood still for earlier copies.
    stopped: Duration,
}

impl Default for CopyRequest {
    fn default() -> Self {
        CopyRequest {
            bytes: FIRST_COPY_BYTES,
            others: Vec::new(),
            copied: None,
            stopped: Duration::ZERO,
        }
    }
}

fn status(as_asked: bool) -> ExitCode {
    if as_asked {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(ExitCodes::FINDINGS)
    }
}

/// The registers that `--registers` shows: the general ones, by number.
fn shown_registers(arch: Arch) -> impl Iterator<Item = Register> {
    let pc = arch.spec().pc;
    (0..=pc.0)
        .map(Register)
        .filter(move |register| arch.register_name(*register).is_some())
}

/// The name that such a register is shown by. What DWARF calls the return address column of
/// x86-64 is the frame's own address here.
fn shown_name(register: Register, arch: Arch) -> String {
    if register == arch.spec().pc {
        "pc".into()
    } else {
        RegisterName(register, arch).to_string()
    }
}

/// A command as one would type it.
fn display(command: &[OsString]) -> String {
    let words = command
        .iter()
        .map(|word| words::quoted(&word.to_string_lossy()));
    words.collect::<Vec<_>>().join(" ")
}
