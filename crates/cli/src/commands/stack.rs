//! `unspool stack`.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context as _;
use unspool_display_values::{
    ArgTables, DebugInfo, DebugInfoFiles, FrameValues, ValueProblem, ValueQuery, WithFiles,
};
use unspool_dwarf_types::TypesError;
use unspool_elf::ElfFile;
use unspool_process::file_provider::{CoreFiles, FileSearch};
use unspool_process::snapshot_unwinder::{
    CallStack, FrameLocation, SnapshotUnwinder, StackFrame, WalkDetail,
};
use unspool_process::{
    CommandEvent, FutexOwner, ModuleFolders, ProcessError, ProcessStacks, Snapshot as _,
    StackOptions, ThreadStack, TracedCommand, walk_stacks,
};
use unspool_rows::arch::RegisterName;
use unspool_rows::{Arch, Register};
use unspool_symbols::{
    AddressName, FileNames, JitSymbol, ModuleFinder, NameDetail, PerfMap, SymbolProblem,
    Symbolizer, process_root,
};
use unspool_table_store::{ArgumentTable, Store};

use crate::args::Format;
use crate::args::programs::StackArgs;
use crate::output::{self, ExitCodes, JsonLayout};
use crate::text::words;

mod arguments;
mod core_source;
mod found_files;
mod json;
mod missing;
mod mutexes;
mod signals;
mod sink;
mod sys;
mod text;

pub(in crate::commands) use arguments::table as table_of_arguments;
use found_files::FoundFiles;
use signals::BlockedSignals;
use sink::Sink;

/// The subject of a report.
enum StackSubject<'a> {
    Process(u32),
    Command(&'a [OsString], u32),
    Core(CoreSubject<'a>),
}

/// A core file.
#[derive(Clone, Copy)]
struct CoreSubject<'a> {
    path: &'a Path,
    /// A copy of the file system that its process saw.
    sysroot: Option<&'a Path>,
    /// The beginning of the command line, if recorded.
    command_line: Option<&'a str>,
}

impl StackSubject<'_> {
    /// The root directory of the process, if it differs from ours.
    fn root(&self) -> Option<PathBuf> {
        match self {
            StackSubject::Process(pid) | StackSubject::Command(_, pid) => process_root(*pid),
            StackSubject::Core(core) => core.sysroot.map(Path::to_path_buf),
        }
    }

    /// The perf map of a process with frames in memory without a file.
    fn perf_map(&self, stacks: &ProcessStacks<'_>) -> Option<PerfMap> {
        let pid = match self {
            StackSubject::Process(pid) | StackSubject::Command(_, pid) => *pid,
            StackSubject::Core(_) => return None,
        };
        let mut frames = stacks.stacks().flat_map(|stack| &stack.frames);
        let is_unnamed = |frame: &StackFrame| stacks.unwinder.locate(frame.code).is_none();
        let is_any = frames.any(is_unnamed);
        is_any.then(|| PerfMap::from_process(pid).ok()).flatten()
    }
}

/// The report on one process.
struct StackReport<'a> {
    subject: &'a StackSubject<'a>,
    stacks: &'a ProcessStacks<'a>,
    names: FileNames,
    /// The names of code that the process has made, if a frame needs some.
    perf_map: Option<PerfMap>,
    /// The requested arguments and variables.
    query: ValueQuery<'a, 'a>,
    /// By thread ID, the values that were read before the process resumed.
    read: RefCell<HashMap<u32, Vec<FrameValues>>>,
    /// How long the process was stopped.
    stopped: Option<Duration>,
    /// Whether registers are shown.
    with_registers: bool,
    /// Whether equal stacks are shown once.
    is_grouped: bool,
    /// Whether all frames are shown, however many.
    is_whole: bool,
}

impl StackReport<'_> {
    /// The numbers of the frames that are shown of a stack: of a deep one, those at both ends.
    fn shown(&self, stack: &CallStack) -> [Range<usize>; 2] {
        /// As many frames are shown at each end.
        const MAX_FRAMES_AT_AN_END: usize = 500;
        let count = stack.frames.len();
        let inner = if self.is_whole {
            count
        } else {
            count.min(MAX_FRAMES_AT_AN_END)
        };
        let outer = inner.max(count.saturating_sub(MAX_FRAMES_AT_AN_END));
        [0..inner, outer..count]
    }

    /// The values of the frames that are shown.
    fn query_values<'s>(&'s self, stack: &'s CallStack) -> impl Iterator<Item = FrameValues> {
        let shown = self.shown(stack).into_iter();
        shown.flat_map(move |numbers| self.query.frames(stack, numbers))
    }

    /// The values of the frames that are shown of a thread's stack. Must be called only once.
    fn values<'s>(
        &'s self,
        tid: u32,
        stack: &'s CallStack,
    ) -> Box<dyn Iterator<Item = FrameValues> + 's> {
        match self.read.borrow_mut().remove(&tid) {
            Some(values) => Box::new(values.into_iter()),
            None => Box::new(self.query_values(stack)),
        }
    }

    /// Reads the values shown for frames of a running process, and resumes it.
    fn read_and_resume(&mut self) {
        let is_running = matches!(self.subject, StackSubject::Process(_));
        if is_running && (self.query.with_locals || self.query.with_strings) {
            let values = self.stacks.threads.iter().filter_map(|one| {
                let stack = one.stack.as_ref()?;
                Some((one.thread.tid, self.query_values(stack).collect()))
            });
            let values = values.collect();
            self.read = RefCell::new(values);
        }
        self.stopped = self.stacks.resume();
    }

    /// The module and address of a frame, and its name.
    fn locate(&self, frame: &StackFrame) -> Option<(FrameLocation, AddressName<'_>)> {
        let at = self.stacks.unwinder.locate(frame.code)?;
        let name = self.names.get(at.in_file())?;
        Some((at, name))
    }

    /// The mutex that a thread waits for, and the thread that holds it.
    fn mutex_owner(&self, thread: &ThreadStack<'_>) -> Option<FutexOwner> {
        /// The frames from the system call to the function that locks.
        const MAX_WAITING_FRAMES: usize = 6;
        let owner = thread.futex_owner?;
        let mut frames = thread.stack.iter().flat_map(|stack| &stack.frames);
        let waits = |frame: &StackFrame| {
            let located = self.locate(frame);
            located.is_some_and(|(_, name)| mutexes::waits_for_mutex(&name))
        };
        frames
            .by_ref()
            .take(MAX_WAITING_FRAMES)
            .any(waits)
            .then_some(owner)
    }

    /// The files of the frames that are shown without a function's name.
    fn files_without_names(&self) -> HashSet<PathBuf> {
        let mut files = HashSet::new();
        for stack in self.stacks.stacks() {
            for number in self.shown(stack).into_iter().flatten() {
                let caller = stack.frames.get(number + 1).and_then(|caller| caller.step);
                // It is shown as what returns from a signal handler.
                if caller.is_some_and(|step| step.signal_frame) {
                    continue;
                }
                let frame = stack.frames.get(number);
                if let Some((at, name)) = frame.and_then(|frame| self.locate(frame))
                    && name
                        .frames()
                        .last()
                        .is_none_or(|own| own.function.is_none())
                {
                    files.insert(at.module.file.path().to_path_buf());
                }
            }
        }
        files
    }

    /// The name of code that is in no file.
    fn generated(&self, frame: &StackFrame) -> Option<JitSymbol<'_>> {
        let listed = || self.perf_map.as_ref()?.get(frame.code.lookup());
        let described = self.stacks.unwinder.generated_code(frame.code);
        described.map(|code| code.symbol()).or_else(listed)
    }
}

pub(crate) fn run(args: &StackArgs) -> anyhow::Result<ExitCode> {
    let store = super::store(args.no_cache, args.tables)?;
    let sink = match &args.output {
        Some(path) => Sink::named(path),
        // A command may write its own results to standard output.
        None if !args.cmd.is_empty() => Sink::standard_error(),
        None => Sink::standard_output(),
    };
    let mut stacks = StackCommand {
        args,
        store: &store,
        sink,
        argument_tables: RefCell::default(),
    };
    if let Some(core) = &args.core {
        return stacks.core(core);
    }
    if !args.cmd.is_empty() {
        return stacks.command();
    }
    stacks.processes()
}

/// The longest time for which a process stands still.
const MAX_STOP: Duration = Duration::from_secs(2);

/// The state shared by all kinds of reports.
struct StackCommand<'a> {
    args: &'a StackArgs,
    store: &'a Store,
    sink: Sink<'a>,
    /// By path.
    argument_tables: RefCell<HashMap<PathBuf, Option<Rc<ArgumentTable>>>>,
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

    /// Shows a running process; returns whether the result is as requested.
    fn process(&mut self, pid: u32) -> anyhow::Result<bool> {
        let (store, options) = (self.store, self.options());
        if self.shows_arguments() && options.stays_stopped {
            // They may have to be built: that is done before the process stands still.
            let moving = StackOptions {
                stays_stopped: false,
                ..options
            };
            walk_stacks(pid, store, &moving, |stacks| drop(self.tables(stacks)))?;
        }
        let subject = StackSubject::Process(pid);
        walk_stacks(pid, store, &options, |stacks| self.finish(&subject, stacks))?
    }

    fn core(&mut self, path: &Path) -> anyhow::Result<ExitCode> {
        let search = FileSearch {
            executable: self.args.exe.clone(),
            sysroot: self.args.sysroot.clone(),
            folders: ModuleFolders::new(self.args.modules.clone()),
        };
        let mut core = core_source::open(path)?;
        for problem in core.problems() {
            output::notice(&format_args!("{}: {problem}", path.display()));
        }
        core.find_objects(&search)?;
        let files = FoundFiles {
            core: &core,
            files: CoreFiles::new(&core, &search)?,
            finder: ModuleFinder::from_environment(),
        };
        let unwinder = SnapshotUnwinder::with_files(&core, &files, self.store);
        let stacks = ProcessStacks::walk(&unwinder, &self.options());
        let subject = StackSubject::Core(CoreSubject {
            path,
            sysroot: search.sysroot.as_deref(),
            command_line: core.process().map(|process| process.arguments.as_str()),
        });
        let is_whole = core.problems().is_empty();
        let is_as_asked = self.finish(&subject, &stacks)?;
        Ok(status(is_as_asked && is_whole))
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
        let mut traced = TracedCommand::spawn(command).map_err(|error| {
            let (error, remedy) = match error {
                ProcessError::Spawn { program, source } => {
                    let source = super::launch_error(&program, source);
                    let remedy = super::launch_remedy(&program, &source);
                    (ProcessError::Spawn { program, source }, remedy)
                }
                error => (error, None),
            };
            match remedy {
                Some(remedy) => anyhow::anyhow!("{}: {remedy}", output::with_causes(&error)),
                None => error.into(),
            }
        })?;
        let pid = traced.pid();
        let passed_on = signals.forward_to(pid).context("cannot pass on signals")?;
        let mut is_reported = false;
        loop {
            match traced.run_until_fatal_signal()? {
                CommandEvent::Exited(exit) => {
                    if !is_reported {
                        signals::report_exit(exit);
                    }
                    signals::die_by_sigint(exit);
                    return Ok(super::pass_on(exit));
                }
                CommandEvent::Unobserved { signal, error } => {
                    let error = anyhow::Error::from(error).context(text::signal_text(&signal));
                    output::error(&format_args!("{error:#}"));
                    is_reported = true;
                }
                CommandEvent::Fatal(process) => {
                    is_reported = true;
                    passed_on.stop_forwarding(process.signal().map_or(0, |signal| signal.number));
                    let unwinder = SnapshotUnwinder::new(&*process, self.store);
                    let stacks = ProcessStacks::walk(&unwinder, &self.options());
                    // Whether or not the report succeeds, the command runs to its end.
                    if let Err(error) = self.finish(&StackSubject::Command(words, pid), &stacks)
                        && !output::is_closed(&error)
                    {
                        output::error(&format_args!("{error:#}"));
                    }
                }
            }
        }
    }

    fn options(&self) -> StackOptions {
        StackOptions {
            max_frames: self.args.max_frames.get(),
            detail: if self.args.registers || self.shows_values() {
                WalkDetail::Registers
            } else {
                WalkDetail::Frames
            },
            // The targets of pointers are not copied.
            stays_stopped: self.args.strings || self.args.locals,
            max_stop: Some(MAX_STOP),
        }
    }

    /// Whether arguments are shown: texts alone are theirs.
    fn shows_arguments(&self) -> bool {
        self.args.args || self.args.strings && !self.args.locals
    }

    /// Whether arguments or variables are shown.
    fn shows_values(&self) -> bool {
        self.shows_arguments() || self.args.locals
    }

    /// Prints a report and builds missing tables; returns whether the stacks are as requested.
    fn finish(
        &mut self,
        subject: &StackSubject<'_>,
        stacks: &ProcessStacks<'_>,
    ) -> anyhow::Result<bool> {
        let tables = self.shows_arguments().then(|| self.tables(stacks));
        let root = subject.root();
        let files = self.shows_values();
        let files = files.then(|| {
            let finder = self.finder(subject);
            let finder = if stacks.is_stopped() {
                finder.offline()
            } else {
                finder
            };
            DebugInfoFiles::open_by(&finder, stacks.unwinder, stacks.stacks(), root.as_deref())
        });
        let described = files.as_ref().map(DebugInfo::read);
        report_problems(described.as_ref());
        let memory = WithFiles {
            memory: stacks.snapshot.memory(),
            unwinder: stacks.unwinder,
        };
        let mut report = StackReport {
            subject,
            stacks,
            read: RefCell::default(),
            stopped: None,
            perf_map: None,
            names: FileNames::default(),
            query: ValueQuery {
                snapshot: stacks.snapshot,
                unwinder: stacks.unwinder,
                memory: &memory,
                tables: tables.as_ref(),
                debug_info: described.as_ref(),
                with_locals: self.args.locals,
                with_strings: self.args.strings,
            },
            with_registers: self.args.registers,
            is_grouped: self.args.group,
            is_whole: self.args.whole || self.args.format == Format::Json,
        };
        report.read_and_resume();
        report.perf_map = subject.perf_map(stacks);
        report.names = self.names(stacks, self.finder(subject), root.as_deref());
        if self.args.format == Format::Text {
            let files = report.files_without_names();
            let problems = report.names.problems();
            let stripped = problems.filter_map(|problem| match problem {
                SymbolProblem::Stripped { unnamed, file, .. } if files.contains(file) => {
                    Some((unnamed, problem))
                }
                _ => None,
            });
            super::report::notice_stripped(stripped.collect());
        }
        if let Some(process) = stacks.released() {
            output::notice(&format_args!(
                "process {}: let go after {} s: what was not read by then is not shown",
                process.pid(),
                MAX_STOP.as_secs()
            ));
        }
        let layout = self.layout();
        self.sink.take(|out| match self.args.format {
            Format::Text => text::print(out, &report),
            Format::Json => json::print(out, &report, layout),
        })?;
        report_problems(described.as_ref());
        for notice in stacks.unwinder.take_notices() {
            output::notice(&notice);
        }
        if !self.args.no_cache {
            missing::compile_missing(stacks.unwinder, self.store);
        }
        Ok(!self.args.reliable || stacks.is_reliable())
    }

    /// The argument tables of the modules of frames; missing ones are built.
    fn tables(&self, stacks: &ProcessStacks<'_>) -> ArgTables {
        let table = |file: &ElfFile| {
            let mut known = self.argument_tables.borrow_mut();
            let table = known.entry(file.path().to_path_buf());
            table
                .or_insert_with(|| table_of_arguments(file, self.store).map(Rc::new))
                .clone()
        };
        let tables = ArgTables::load(stacks.unwinder, stacks.stacks(), table);
        if tables.is_empty() {
            output::notice(
                &"no module here has the types of its functions: build with -g, or with gcc -gctf and `unspool ctf link --into`",
            );
        }
        tables
    }

    /// A single document is pretty-printed; of several, each is a line.
    fn layout(&self) -> JsonLayout {
        match self.args.processes().count() {
            0 | 1 => JsonLayout::Pretty,
            _ => JsonLayout::Line,
        }
    }

    /// Finds debug files. Nothing is downloaded while a command stands still at its fatal signal.
    fn finder(&self, subject: &StackSubject<'_>) -> ModuleFinder {
        let finder = ModuleFinder::from_environment();
        match subject {
            StackSubject::Command(..) => finder.offline(),
            StackSubject::Process(_) | StackSubject::Core(_) => finder,
        }
    }

    /// The names of all frames.
    fn names(
        &self,
        stacks: &ProcessStacks<'_>,
        finder: ModuleFinder,
        root: Option<&Path>,
    ) -> FileNames {
        let frames = stacks.stacks().flat_map(|stack| &stack.frames);
        let location: Vec<FrameLocation> = frames
            .filter_map(|frame| stacks.unwinder.locate(frame.code))
            .collect();
        let addresses = location.iter().map(FrameLocation::in_file);
        let detail = if self.args.no_lines {
            NameDetail::Functions
        } else {
            NameDetail::Lines
        };
        let symbolizer = Symbolizer::new(finder, detail);
        symbolizer.look_up_in_files(addresses, root)
    }
}

/// Reports why variables are incomplete, for each module up to a limit.
fn report_problems(debug_info: Option<&DebugInfo<'_>>) {
    let mut by_module: BTreeMap<PathBuf, Vec<TypesError>> = BTreeMap::new();
    for problem in debug_info.into_iter().flat_map(DebugInfo::take_problems) {
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

fn status(as_asked: bool) -> ExitCode {
    if as_asked {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(ExitCodes::FINDINGS)
    }
}

/// The registers shown by `--registers`: the general ones, by number, and others that calls
/// preserve. Of vector registers they preserve the low 8 bytes.
fn shown_registers(arch: Arch) -> impl Iterator<Item = Register> {
    let spec = arch.spec();
    let others = spec.preserved.iter().copied();
    (0..=spec.pc.0)
        .chain(others.filter(|number| *number > spec.pc.0))
        .map(Register)
        .filter(move |register| arch.register_name(*register).is_some())
}

/// The shown name of such a register. DWARF's return address column of x86-64 is the frame's own
/// address here.
fn shown_name(register: Register, arch: Arch) -> String {
    if register == arch.spec().pc {
        "pc".into()
    } else {
        RegisterName(register, arch).to_string()
    }
}

/// A command as a user would type it.
fn display(command: &[OsString]) -> String {
    let words = command
        .iter()
        .map(|word| words::quoted(&word.to_string_lossy()));
    words.collect::<Vec<_>>().join(" ")
}
