//! The tracer: handles the stops of a command's threads.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libc::c_int;
use unspool_check::{Aspect, DeclaredRow, FindingCode, RuleLocation};
use unspool_code_analysis::Lifter;
use unspool_code_analysis::op::Flow;
use unspool_code_analysis::value::MAX_SKIPPED_BYTES;
use unspool_compiled_table::call_test::{CALL_WINDOW_BYTES, CallTest};
use unspool_elf::{ElfFile, SegmentMapping};
use unspool_process::mapped_files;
use unspool_process::maps::{Mapping, Mappings};
use unspool_rows::{Abi, Arch, Endian, Register, Registers, RuntimeAddr, Vaddr};

use crate::compare::{RowComparison, RowFault};
use crate::displaced::DisplacedInstruction;
use crate::instruction::{InstructionKind, SteppedInstruction};
use crate::scope::{MappedModule, ModuleAddress, SteppedFunction, SteppedModule};
use crate::shadow_stack::{
    FunctionId, RunningFunction, ShadowCertainty, ShadowFrame, ShadowLanding, ShadowStack,
};
use crate::sys::{self, Regs, TrapCause, WaitStatus};
use crate::traced_memory::{Breakpoint, BreakpointReason, TracedMemory};
use crate::{RowSource, SingleStepError, StepRequest, StopLocation, remote};

pub(crate) const ABI: Abi = Abi {
    arch: Arch::X86_64,
    endian: Endian::Little,
};

/// Number of successive instructions without anything new that are stepped before a thread runs at
/// full speed.
const MAX_IDLE_STEPS: u32 = 32;
/// Number of successive entries without anything new after which a function is retired.
const MAX_IDLE_ENTRIES: u32 = 100;
/// How often a retired function is reactivated because it did something new.
const MAX_REACTIVATIONS: u32 = 20;
/// How often a thread at full speed is stopped at the same indirect jump.
const MAX_JUMP_STOPS: u32 = 200;

/// Signals that halt threads that should not end: from instructions, `abort`, and the time limit.
const FATAL_SIGNALS: [c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGSYS,
    libc::SIGABRT,
    libc::SIGSTOP,
];

/// What a thread does until its next stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadMode {
    /// It runs at full speed.
    Running,
    /// It executes one instruction in scope.
    Stepping,
    /// It executes one instruction with a breakpoint, and then runs.
    Passing,
}

/// An instruction that a thread executes, and the registers before it.
#[derive(Debug, Clone, Copy)]
struct StepStart {
    regs: Regs,
    instruction: SteppedInstruction,
    function: FunctionId,
}

#[derive(Debug)]
struct TracedThread {
    process: i32,
    space: u32,
    shadow: ShadowStack,
    mode: ThreadMode,
    step_start: Option<StepStart>,
    /// The signal that it was resumed with.
    given: c_int,
    /// The instruction that it executes displaced, or that a new thread begins behind.
    displaced: Option<DisplacedInstruction>,
    /// Number of changes of its memory when it was resumed.
    changes: u64,
    /// Number of successive instructions without anything new.
    idle: u32,
    /// Faults seen in frames that have not ended.
    pending: Vec<PendingFault>,
    /// It has not stopped for the first time yet.
    is_new: bool,
}

/// A mismatch in a frame that has not ended.
#[derive(Debug)]
struct PendingFault {
    cause: FaultCause,
    at: Vaddr,
    /// The value by the row.
    found: Option<u64>,
    /// The actual location, if it was found.
    truth: Option<RuleLocation>,
    frame: ShadowFrame,
}

impl PendingFault {
    /// Whether it concerns the return address.
    fn is_of_return(&self) -> bool {
        let difference = self.cause.2.difference();
        difference.is_some_and(|finding| finding.code == FindingCode::ReturnAddress)
    }
}

/// Faults with one cause.
#[derive(Debug)]
pub(crate) struct FaultRecord {
    pub(crate) places: BTreeSet<Vaddr>,
    pub(crate) times: u64,
    /// The actual location at the first place seen, if it was found.
    pub(crate) truth: Option<RuleLocation>,
}

/// Key of faults with one cause: the module, the function, the fault.
pub(crate) type FaultCause = (usize, usize, RowFault);

/// Traces a command.
///
/// Several can be traced one after another.
pub(crate) struct Tracer<'r> {
    request: &'r StepRequest,
    pub(crate) lifter: Lifter,
    calls: Option<CallTest>,
    pub(crate) modules: Vec<SteppedModule>,
    by_path: HashMap<PathBuf, Option<usize>>,
    spaces: HashMap<u32, TracedMemory>,
    next_space: u32,
    threads: HashMap<i32, TracedThread>,
    /// Threads that stopped before they were announced.
    early: HashSet<i32>,
    /// The program that was executed first.
    first: Option<PathBuf>,
    root: i32,
    pub(crate) root_status: Option<i32>,
    /// Addresses where threads are halted. If there are any, fatal signals also halt them.
    halts: Vec<u64>,
    /// The halted thread.
    pub(crate) halted: Option<HaltedThread>,
    pub(crate) faults: BTreeMap<FaultCause, FaultRecord>,
    pub(crate) steps: u64,
    pub(crate) checked: u64,
    /// Number of instructions in an uncertain frame.
    pub(crate) uncertain: u64,
    /// Number of function entries without a call.
    pub(crate) entries_without_call: u64,
    /// Number of reactivations of functions.
    reactivations: u64,
}

impl<'r> Tracer<'r> {
    pub(crate) fn new(request: &'r StepRequest) -> Result<Tracer<'r>, SingleStepError> {
        Ok(Tracer {
            request,
            lifter: Lifter::new(ABI).ok_or(SingleStepError::Architecture)?,
            calls: CallTest::anywhere(ABI.arch),
            modules: Vec::new(),
            by_path: HashMap::new(),
            spaces: HashMap::new(),
            next_space: 0,
            threads: HashMap::new(),
            early: HashSet::new(),
            first: None,
            root: 0,
            root_status: None,
            halts: Vec::new(),
            halted: None,
            faults: BTreeMap::new(),
            steps: 0,
            checked: 0,
            uncertain: 0,
            entries_without_call: 0,
            reactivations: 0,
        })
    }

    /// The traced processes.
    pub(crate) fn processes(&self) -> BTreeSet<i32> {
        self.threads.values().map(|thread| thread.process).collect()
    }

    /// Attaches to a command at its execution, and keeps it waiting. Returns whether there is one.
    pub(crate) fn begin(&mut self, root: i32) -> Result<bool, SingleStepError> {
        self.root = root;
        self.root_status = None;
        if let (_, WaitStatus::Gone { raw }) = sys::wait().map_err(SingleStepError::Trace)? {
            self.root_status = Some(raw);
            return Ok(false);
        }
        sys::follow(root).map_err(SingleStepError::Trace)?;
        let thread = TracedThread::new(root, 0);
        self.threads.insert(root, thread);
        self.on_exec(root).map_err(SingleStepError::Trace)?;
        Ok(true)
    }

    /// Resumes a waiting command.
    pub(crate) fn release(&mut self, root: i32) -> io::Result<()> {
        self.go_on(root, 0)
    }

    /// Handles one stop or end. A thread that was killed meanwhile is no longer traced: its end is
    /// reported next.
    pub(crate) fn handle(&mut self, tid: i32, status: WaitStatus) -> Result<(), SingleStepError> {
        let done = match status {
            WaitStatus::Gone { raw } => {
                self.on_exit(tid, raw);
                Ok(())
            }
            WaitStatus::Stopped { signal, event } => self.on_stop(tid, signal, event),
        };
        let is_gone = || sys::registers(tid).is_err();
        match done {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) || is_gone() => Ok(()),
            done => done.map_err(SingleStepError::Trace),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.threads.is_empty()
    }

    fn on_exit(&mut self, tid: i32, raw: i32) {
        if tid == self.root {
            self.root_status = Some(raw);
        }
        self.early.remove(&tid);
        if let Some(mut thread) = self.threads.remove(&tid) {
            let pending = std::mem::take(&mut thread.pending);
            pending.into_iter().for_each(|pending| self.note(pending));
            let mut others = self.threads.values();
            if !others.any(|other| other.space == thread.space) {
                self.spaces.remove(&thread.space);
            }
        }
    }

    fn on_stop(&mut self, tid: i32, signal: c_int, event: c_int) -> io::Result<()> {
        let Some(thread) = self.threads.get_mut(&tid) else {
            self.early.insert(tid);
            return Ok(());
        };
        match event {
            libc::PTRACE_EVENT_EXEC => {
                // The system call ends first.
                remote::step(tid)?;
                self.on_exec(tid)?;
                return self.go_on(tid, 0);
            }
            libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
                let child = sys::message(tid)?;
                self.on_clone(tid, child, event)?;
                return self.go_on(tid, 0);
            }
            0 => {}
            _ => return self.go_on(tid, 0),
        }
        match (signal, thread.mode) {
            (libc::SIGSTOP, _) if thread.is_new => {
                thread.is_new = false;
                self.interrupt(tid, 0)
            }
            (libc::SIGTRAP, ThreadMode::Stepping | ThreadMode::Passing) => self.on_step(tid),
            (libc::SIGTRAP, ThreadMode::Running) => self.on_breakpoint(tid),
            _ if !self.halts.is_empty() && FATAL_SIGNALS.contains(&signal) => {
                self.halt(tid, signal)
            }
            _ => self.interrupt(tid, signal),
        }
    }

    /// Resumes a thread, with a signal, that has not executed its instruction.
    fn interrupt(&mut self, tid: i32, signal: c_int) -> io::Result<()> {
        let thread = self.thread(tid)?;
        thread.given = signal;
        if thread.mode == ThreadMode::Passing {
            // It will reach the breakpoint again.
            thread.mode = ThreadMode::Running;
        }
        if thread.displaced.is_some() {
            self.set_back(tid, &mut sys::registers(tid)?)?;
        }
        self.go_on(tid, signal)
    }

    /// Resumes a thread in its mode.
    fn go_on(&mut self, tid: i32, signal: c_int) -> io::Result<()> {
        let changes = self.space_of(tid)?.changes;
        let thread = self.thread(tid)?;
        thread.changes = changes;
        match thread.mode {
            ThreadMode::Running => sys::go_on(tid, signal),
            ThreadMode::Stepping | ThreadMode::Passing => sys::step(tid, signal),
        }
    }

    /// Makes a thread execute its next instruction, with or without a breakpoint there.
    fn step(&mut self, tid: i32, regs: &Regs) -> io::Result<()> {
        let aside = self.space_of(tid)?.aside(tid, regs.rip)?;
        if let Some(aside) = aside {
            sys::set_pc(tid, aside.copy)?;
        }
        let thread = self.thread(tid)?;
        thread.displaced = aside;
        thread.given = 0;
        self.go_on(tid, 0)
    }

    /// Sets a thread that executes a displaced instruction to the program's view: the original
    /// address, or its successor.
    fn set_back(&mut self, tid: i32, regs: &mut Regs) -> io::Result<Option<DisplacedInstruction>> {
        let Some(aside) = self.thread(tid)?.displaced.take() else {
            return Ok(None);
        };
        regs.rip = aside.original_pc(regs.rip);
        sys::set_pc(tid, regs.rip)?;
        if aside.is_call {
            let space = self.space_of(tid)?;
            let pushed = space.memory().word(regs.rsp);
            if let Some(pushed) = pushed.filter(|pushed| aside.is_in_copy(*pushed)) {
                space.set_word(regs.rsp, aside.original_pc(pushed));
            }
        }
        Ok(Some(aside))
    }

    fn space_of(&mut self, tid: i32) -> io::Result<&mut TracedMemory> {
        let number = self.threads.get(&tid).map(|thread| thread.space);
        let space = number.and_then(|number| self.spaces.get_mut(&number));
        space.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
    }

    fn thread(&mut self, tid: i32) -> io::Result<&mut TracedThread> {
        let thread = self.threads.get_mut(&tid);
        thread.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
    }

    /// Another program runs in a process, of which only one thread is left.
    fn on_exec(&mut self, tid: i32) -> io::Result<()> {
        let process = self.threads.get(&tid).map_or(tid, |thread| thread.process);
        let (gone, left) = std::mem::take(&mut self.threads)
            .into_iter()
            .partition(|(_, thread)| thread.process == process);
        self.threads = left;
        let gone: HashMap<i32, TracedThread> = gone;
        let pending = gone.into_values().flat_map(|thread| thread.pending);
        pending.for_each(|pending| self.note(pending));
        self.next_space += 1;
        let number = self.next_space;
        self.spaces.insert(number, TracedMemory::open(tid)?);
        self.threads.insert(
            tid,
            TracedThread {
                is_new: false,
                ..TracedThread::new(process, number)
            },
        );
        let used: HashSet<u32> = self.threads.values().map(|thread| thread.space).collect();
        self.spaces.retain(|number, _| used.contains(number));
        self.find_modules(tid)
    }

    /// A thread or a process was started.
    fn on_clone(&mut self, parent: i32, child: i32, event: c_int) -> io::Result<()> {
        let of_parent = self.thread(parent)?;
        let (process, space) = (of_parent.process, of_parent.space);
        let (aside, changes) = (of_parent.displaced, of_parent.changes);
        let is_thread = Path::new(&format!("/proc/{process}/task/{child}")).exists();
        let shares = is_thread
            || sys::share_memory(parent, child).unwrap_or(event == libc::PTRACE_EVENT_VFORK);
        let space = if shares {
            space
        } else {
            self.next_space += 1;
            let forked = self.space_of(parent)?.forked(child, changes);
            // A killed child does not need memory.
            if let Ok(forked) = forked {
                self.spaces.insert(self.next_space, forked);
            }
            self.next_space
        };
        let process = if is_thread { process } else { child };
        let thread = TracedThread {
            // It begins behind the same instruction.
            displaced: aside,
            ..TracedThread::new(process, space)
        };
        self.threads.insert(child, thread);
        if self.early.remove(&child) {
            self.on_stop(child, libc::SIGSTOP, 0)
        } else {
            Ok(())
        }
    }

    /// Finds newly mapped modules, and their functions in scope.
    fn find_modules(&mut self, tid: i32) -> io::Result<()> {
        let maps = Mappings::parse(&std::fs::read(format!("/proc/{tid}/maps"))?);
        let executable = std::fs::read_link(format!("/proc/{tid}/exe")).unwrap_or_default();
        if self.first.is_none() {
            self.first = Some(executable.clone());
        }
        self.forget_modules(tid, &maps)?;
        let code = |mapping: &&Mapping| mapping.permissions.execute && mapping.path().is_some();
        for mapping in maps.iter().filter(code) {
            let Some(path) = mapping.path() else { continue };
            let is_known = self.space_of(tid)?.site(mapping.start.0).is_some();
            if is_known || !self.is_asked(path, &executable) {
                if !is_known && !self.request.modules.is_empty() {
                    self.watch_loader(tid, mapping)?;
                }
                continue;
            }
            if let Some(module) = self.module(tid, mapping) {
                self.add(tid, mapping, module)?;
            }
        }
        Ok(())
    }

    /// Drops modules that are no longer mapped there.
    fn forget_modules(&mut self, tid: i32, maps: &Mappings) -> io::Result<()> {
        let is_there = |modules: &[SteppedModule], mapped: &MappedModule| {
            let mapping = maps.iter().find(|mapping| mapping.contains(mapped.start));
            let path = mapping.and_then(Mapping::path);
            path.is_some() && path == modules.get(mapped.module).map(|module| &*module.path)
        };
        let mapped = std::mem::take(&mut self.space_of(tid)?.mapped);
        let (there, gone): (Vec<MappedModule>, Vec<MappedModule>) = mapped
            .into_iter()
            .partition(|mapped| is_there(&self.modules, mapped));
        let space = self.space_of(tid)?;
        space.mapped = there;
        gone.iter().for_each(|gone| space.forget(gone));
        Ok(())
    }

    /// Whether functions of a file can be in scope.
    fn is_asked(&self, path: &Path, executable: &Path) -> bool {
        let request = self.request;
        if request.modules.is_empty() {
            let is_first = self.first.as_deref() == Some(path);
            return path == executable && (is_first || !request.functions.is_empty());
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        request.modules.iter().any(|wanted| {
            let rest = name.strip_prefix(wanted.as_str());
            Path::new(wanted) == path
                || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    /// The module of a mapping, which is read once.
    fn module(&mut self, tid: i32, mapping: &Mapping) -> Option<usize> {
        let path = mapping.path()?;
        if let Some(known) = self.by_path.get(path) {
            return *known;
        }
        let opened = mapped_files(tid.unsigned_abs(), mapping).find_map(Result::ok);
        let file = opened.and_then(|opened| ElfFile::from_file(path, &opened.file).ok());
        let file = file.filter(|file| file.abi() == ABI);
        let number = file.map(|file| {
            let module = SteppedModule::read(path, Arc::new(file), self.request, &self.lifter);
            self.modules.push(module);
            self.modules.len() - 1
        });
        self.by_path.insert(path.to_path_buf(), number);
        number
    }

    /// Sets breakpoints in a newly mapped module.
    fn add(&mut self, tid: i32, mapping: &Mapping, number: usize) -> io::Result<()> {
        let Some(module) = self.modules.get(number) else {
            return Ok(());
        };
        let Some(bias) = module.file.load_bias(&segment_mapping(mapping)) else {
            return Ok(());
        };
        let is_awaited = |function: &&SteppedFunction| !function.is_retired && !function.is_part;
        let functions = module.functions.iter().filter(is_awaited);
        let entries: Vec<u64> = functions
            .map(|function| bias.to_runtime(function.start).0)
            .collect();
        let space = self.space_of(tid)?;
        space.mapped.push(MappedModule {
            module: number,
            bias,
            start: mapping.start,
            end: mapping.end,
        });
        for at in entries {
            if mapping.contains(RuntimeAddr(at)) {
                space.stop_at(at, BreakpointReason::Entry);
            }
        }
        if space.has_room(mapping.start.0) {
            Ok(())
        } else {
            space.make_room(tid, mapping.start.0)
        }
    }

    /// Sets a breakpoint where the dynamic linker reports modules to debuggers.
    fn watch_loader(&mut self, tid: i32, mapping: &Mapping) -> io::Result<()> {
        const LOADER_HOOK: &str = "_dl_debug_state";
        let name = mapping.path().and_then(Path::file_name).unwrap_or_default();
        if !name.to_string_lossy().starts_with("ld-") {
            return Ok(());
        }
        let opened = mapped_files(tid.unsigned_abs(), mapping).find_map(Result::ok);
        let file = opened.and_then(|opened| ElfFile::from_file(&opened.path, &opened.file).ok());
        let Some(file) = file else { return Ok(()) };
        let address = file
            .symbols()
            .named(LOADER_HOOK)
            .next()
            .map(|symbol| symbol.address);
        if let (Some(address), Some(bias)) = (address, file.load_bias(&segment_mapping(mapping))) {
            let at = bias.to_runtime(address).0;
            self.space_of(tid)?.stop_at(at, BreakpointReason::Loader);
        }
        Ok(())
    }

    /// The function in scope at an address of a process.
    fn function_at(
        &mut self,
        tid: i32,
        at: u64,
    ) -> io::Result<Option<(ModuleAddress, FunctionId)>> {
        let Some(site) = self.space_of(tid)?.site(at) else {
            return Ok(None);
        };
        let module = self.modules.get(site.module);
        let place = module.and_then(|module| module.function(site.at));
        Ok(place.map(|place| (site, (site.module, place))))
    }

    /// A thread at full speed reached a breakpoint.
    fn on_breakpoint(&mut self, tid: i32) -> io::Result<()> {
        let mut regs = sys::registers(tid)?;
        match sys::trap(tid)? {
            TrapCause::Breakpoint => {}
            // It is a late report of a step.
            TrapCause::Step if regs.eflags & TRAP_FLAG == 0 => return self.go_on(tid, 0),
            // The signal was sent, or the program steps itself.
            TrapCause::Step | TrapCause::Sent => return self.go_on(tid, libc::SIGTRAP),
        }
        let at = regs.rip.wrapping_sub(1);
        let space = self.space_of(tid)?;
        let breakpoint = space.breakpoint(at);
        let is_ours = |known: &Breakpoint| known.is_set() || !known.is_own();
        let Some(breakpoint) = breakpoint.filter(is_ours) else {
            return self.go_on(tid, libc::SIGTRAP);
        };
        regs.rip = at;
        sys::set_pc(tid, at)?;
        if !breakpoint.is_set() {
            // It was removed while this thread stopped there, or after the process was forked.
            space.write(at, &breakpoint);
            return self.run_on(tid, &regs);
        }
        if breakpoint.is_loader {
            self.find_modules(tid)?;
        }
        if self.halts.contains(&at) {
            self.thread(tid)?.shadow.landed(at, regs.rsp, None);
            return self.next(tid, &regs);
        }
        let function = self.function_at(tid, at)?;
        if breakpoint.is_entry
            && let Some((site, id)) = function
            && self.on_entry(tid, &regs, site, id)?
        {
            return self.next(tid, &regs);
        }
        let function = function.map(|(_, id)| id);
        let running = function.map(|id| self.running(id));
        let landed = self.thread(tid)?.shadow.landed(at, regs.rsp, running);
        match landed {
            ShadowLanding::Returned => {
                // The caller may have been visited often enough: then it runs at full speed soon.
                self.has_unvisited(tid, at)?;
                self.next(tid, &regs)
            }
            ShadowLanding::Within if self.has_unvisited(tid, at)? => self.next(tid, &regs),
            _ => {
                if landed == ShadowLanding::Nowhere {
                    self.resolve_pending(tid, &regs)?;
                    self.reactivate(tid, at, function)?;
                }
                self.space_of(tid)?.pass_at(at, BreakpointReason::Resume);
                self.run_on(tid, &regs)
            }
        }
    }

    /// The function that control is in.
    fn running(&self, id: FunctionId) -> RunningFunction {
        let module = self.modules.get(id.0);
        let function = module.and_then(|module| module.functions.get(id.1));
        let seen = function.filter(|function| !function.is_retired);
        RunningFunction {
            id,
            complete_since: seen.map(|function| function.complete_since),
        }
    }

    /// Whether something new may be seen from an instruction on.
    fn has_unvisited(&mut self, tid: i32, at: u64) -> io::Result<bool> {
        let most = self.request.visits;
        let Some((site, _)) = self.function_at(tid, at)? else {
            return Ok(false);
        };
        let Some(module) = self.modules.get_mut(site.module) else {
            return Ok(false);
        };
        let spot = module.visited_instruction(&mut self.lifter, site.at);
        if spot.visits < most {
            return Ok(true);
        }
        spot.stops += 1;
        let is_branch = matches!(spot.instruction.flow, Some(Flow::IndirectJump(_)));
        let is_worth = is_branch && spot.stops < MAX_JUMP_STOPS;
        let thread = self.thread(tid)?;
        thread.idle = thread.idle.max(MAX_IDLE_STEPS - 2);
        Ok(is_worth)
    }

    /// A retired function does something new: its next entry is traced.
    fn reactivate(&mut self, tid: i32, at: u64, function: Option<FunctionId>) -> io::Result<()> {
        let Some((site, _)) = self.function_at(tid, at)? else {
            return Ok(());
        };
        let most = self.request.visits;
        let function = function.and_then(|(module, place)| {
            let module = self.modules.get_mut(module)?;
            let is_known = module
                .visited
                .get(&site.at.0)
                .is_some_and(|spot| spot.visits >= most);
            let function = module.functions.get_mut(place)?;
            let is_wanted = function.is_retired
                && !function.is_part
                && !is_known
                && function.reactivated < MAX_REACTIVATIONS;
            is_wanted.then_some(function)
        });
        let Some(function) = function else {
            return Ok(());
        };
        self.reactivations += 1;
        function.is_retired = false;
        function.reactivated += 1;
        function.complete_since = self.reactivations;
        function.idle = 0;
        let start = function.start;
        let space = self.space_of(tid)?;
        let entries: Vec<u64> = space
            .mapped
            .iter()
            .map(|mapped| mapped.bias.to_runtime(start).0)
            .collect();
        for at in entries {
            if space.site(at).is_some_and(|site| site.at == start) {
                space.stop_at(at, BreakpointReason::Entry);
            }
        }
        Ok(())
    }

    /// A thread at full speed entered a function. Returns whether it is stepped.
    fn on_entry(
        &mut self,
        tid: i32,
        regs: &Regs,
        site: ModuleAddress,
        id: FunctionId,
    ) -> io::Result<bool> {
        let memory = self.space_of(tid)?.memory();
        let caller = memory.word(regs.rsp);
        if let Some(pc) = caller.filter(|pc| self.follows_call(tid, *pc)) {
            self.push_call(tid, regs, pc, Some(id))?;
        } else if is_handler(regs, None) {
            self.push_signal_frame(tid, regs, Some(id))?;
        } else {
            self.entries_without_call += 1;
            return Ok(false);
        }
        let function = self.modules.get_mut(id.0);
        let function = function.and_then(|module| module.functions.get_mut(id.1));
        let Some(function) = function else {
            return Ok(false);
        };
        function.idle += 1;
        if function.idle > MAX_IDLE_ENTRIES {
            function.is_retired = true;
            function.was_retired = true;
            let at = site.bias.to_runtime(site.at).0;
            self.space_of(tid)?.pass_at(at, BreakpointReason::Entry);
        }
        Ok(true)
    }

    /// Whether a call is before an address: in the program's own bytes, without breakpoints.
    fn follows_call(&mut self, tid: i32, pc: u64) -> bool {
        let before = self.space_of(tid).ok().and_then(|space| {
            let start = pc.checked_sub(u64::try_from(CALL_WINDOW_BYTES).ok()?)?;
            space.original(start)?.first_chunk().copied()
        });
        let (Some(before), Some(calls)) = (before, self.calls) else {
            return false;
        };
        calls.passes(Vaddr(pc), before)
    }

    /// A frame begins: the return address is on top of the stack.
    fn push_call(
        &mut self,
        tid: i32,
        regs: &Regs,
        pc: u64,
        id: Option<FunctionId>,
    ) -> io::Result<()> {
        let frame = ShadowFrame {
            key: regs.rsp,
            sp: regs.rsp.wrapping_add(8),
            pc,
            saved: preserved(regs),
            function: id,
            is_interrupted: false,
            began: self.reactivations,
            has_run: false,
        };
        let shadow = &mut self.thread(tid)?.shadow;
        let is_again = shadow.current().is_some_and(|current| {
            let (began, has_run) = (frame.began, frame.has_run);
            let same = ShadowFrame {
                began,
                has_run,
                ..*current
            };
            same == frame
        });
        shadow.push(frame);
        let Some((module, place)) = id else {
            self.space_of(tid)?.stop_at(pc, BreakpointReason::Resume);
            return Ok(());
        };
        let Some(module) = self.modules.get_mut(module) else {
            return Ok(());
        };
        let Some(function) = module.functions.get_mut(place) else {
            return Ok(());
        };
        function.entered += u64::from(!is_again);
        let (pads, entry) = (function.pads.clone(), function.start);
        let space = self.space_of(tid)?;
        let bias = regs.rip.wrapping_sub(entry.0);
        for pad in pads {
            space.stop_at(pad.0.wrapping_add(bias), BreakpointReason::Resume);
        }
        Ok(())
    }

    /// A signal was delivered: the handler begins, with the kernel's saved registers behind its
    /// frame.
    fn push_signal_frame(
        &mut self,
        tid: i32,
        regs: &Regs,
        id: Option<FunctionId>,
    ) -> io::Result<()> {
        /// Offset of the registers in `struct rt_sigframe`, from its start, which is the address of
        /// the return address: `uc.uc_mcontext`. In bytes.
        const SAVED: u64 = 8 + 40;
        /// Their order there: r12, r13, r14, r15, rbp, rbx, rsp, rip.
        const ORDER: [u64; 8] = [4, 5, 6, 7, 10, 11, 15, 16];
        let memory = self.space_of(tid)?.memory();
        let start = regs.rsp.wrapping_add(SAVED);
        let words = ORDER.map(|word| memory.word(start.wrapping_add(8 * word)));
        let [
            Some(r12),
            Some(r13),
            Some(r14),
            Some(r15),
            Some(rbp),
            Some(rbx),
            Some(sp),
            Some(pc),
        ] = words
        else {
            return Ok(());
        };
        let restorer = memory.word(regs.rsp).unwrap_or(0);
        let of_restorer = self.function_at(tid, restorer)?.map(|(_, id)| id);
        let frame = ShadowFrame {
            key: regs.rsp.wrapping_add(8),
            sp,
            pc,
            saved: [rbx, rbp, r12, r13, r14, r15],
            function: of_restorer,
            is_interrupted: true,
            began: self.reactivations,
            has_run: false,
        };
        let thread = self.thread(tid)?;
        thread.shadow.push(frame);
        self.push_call(tid, regs, restorer, id)?;
        if self.function_at(tid, pc)?.is_some() {
            self.space_of(tid)?.stop_at(pc, BreakpointReason::Resume);
        }
        if of_restorer.is_some() {
            self.check_restorer(tid, restorer, &frame)?;
        }
        Ok(())
    }

    /// The row that an unwinder uses for an interrupted frame: that of the byte before the
    /// handler's return address.
    fn check_restorer(&mut self, tid: i32, restorer: u64, truth: &ShadowFrame) -> io::Result<()> {
        let mut registers = Registers::new();
        registers.set(Register(7), truth.key);
        registers.set(Register(16), restorer);
        for (number, value) in [3, 6, 12, 13, 14, 15].into_iter().zip(truth.saved) {
            registers.set(Register(number), value);
        }
        if let Some(site) = self.space_of(tid)?.site(restorer) {
            let looked_up = Vaddr(site.at.0.wrapping_sub(1));
            self.compare(tid, site, looked_up, &registers, truth)?;
            self.check_signal(tid, site, truth)?;
        }
        Ok(())
    }

    /// An unwinder that reaches a frame through a signal frame must look up the interrupted
    /// address, and not the byte before.
    fn check_signal(
        &mut self,
        tid: i32,
        site: ModuleAddress,
        truth: &ShadowFrame,
    ) -> io::Result<()> {
        let module = self.modules.get(site.module);
        let row = module.and_then(|module| module.row(site.at));
        if row.is_none_or(|row| row.signal_frame || row.is_outermost()) {
            Ok(())
        } else {
            self.add_pending_faults(
                tid,
                site,
                truth,
                vec![(RowFault::UndeclaredSignal, None, None)],
            )
        }
    }

    /// A thread has executed one instruction.
    fn on_step(&mut self, tid: i32) -> io::Result<()> {
        let mut regs = clear_trap_flag(tid)?;
        let aside = self.set_back(tid, &mut regs)?;
        let thread = self.thread(tid)?;
        let before = thread.step_start;
        let Some(start) = aside
            .map(|aside| aside.at)
            .or(before.map(|before| before.regs.rip))
        else {
            return self.run_on(tid, &regs);
        };
        match self.stop_cause(tid, &regs, start, aside)? {
            TrapCause::Breakpoint => {
                // It was set there, for another thread, when this one was about to step.
                regs.rip = start;
                sys::set_pc(tid, start)?;
                return self.next(tid, &regs);
            }
            TrapCause::Sent => return self.interrupt(tid, libc::SIGTRAP),
            TrapCause::Step => {}
        }
        self.steps += 1;
        let thread = self.thread(tid)?;
        thread.step_start = None;
        thread.mode = ThreadMode::Running;
        let given = std::mem::take(&mut thread.given);
        if before.is_some() && given != 0 && is_handler(&regs, Some(given)) {
            let function = self.function_at(tid, regs.rip)?.map(|(_, id)| id);
            self.push_signal_frame(tid, &regs, function)?;
            return self.next(tid, &regs);
        }
        let of_before = before.map(|before| before.instruction.kind);
        match aside.map(|aside| aside.kind).or(of_before) {
            Some(InstructionKind::PushesFlags) => self.hide_trap_flag(tid, &regs)?,
            // The program's own stop does not belong to the tracer.
            Some(InstructionKind::Breakpoint) => return self.go_on(tid, libc::SIGTRAP),
            _ => {}
        }
        match before {
            Some(before) => {
                self.follow(tid, &before, &regs)?;
                self.next(tid, &regs)
            }
            None => self.go_on(tid, 0),
        }
    }

    /// Why a thread stopped that should execute the instruction at `start`. It is only asked where
    /// the cause may be another than that step.
    fn stop_cause(
        &mut self,
        tid: i32,
        regs: &Regs,
        start: u64,
        displaced: Option<DisplacedInstruction>,
    ) -> io::Result<TrapCause> {
        let changes = self.thread(tid)?.changes;
        let space = self.space_of(tid)?;
        let is_possible = || {
            let known = space.breakpoint(start);
            space.changes != changes || known.is_some_and(|known| known.is_set())
        };
        match regs.rip.wrapping_sub(start) {
            0 => sys::trap(tid),
            1 if displaced.is_none() && is_possible() => match sys::trap(tid)? {
                TrapCause::Breakpoint => Ok(TrapCause::Breakpoint),
                TrapCause::Sent | TrapCause::Step => Ok(TrapCause::Step),
            },
            _ => Ok(TrapCause::Step),
        }
    }

    /// Clears the trap flag in pushed flags: it is the tracer's.
    fn hide_trap_flag(&mut self, tid: i32, regs: &Regs) -> io::Result<()> {
        let space = self.space_of(tid)?;
        if let Some(flags) = space.memory().word(regs.rsp) {
            space.set_word(regs.rsp, flags & !TRAP_FLAG);
        }
        Ok(())
    }

    /// Whether a call to an address begins a frame. It does at a function's entry. It also does at
    /// a label inside a function if the row is that of a begin, and the code there does not use the
    /// pushed word.
    fn begins_frame(&mut self, site: ModuleAddress) -> bool {
        let module = self.modules.get(site.module);
        module.is_some_and(|module| module.entry(site.at).is_some()) || self.has_row_of_begin(site)
    }

    /// Whether the row at an address is that of a function's begin, and the code there does not use
    /// the word on top.
    fn has_row_of_begin(&mut self, site: ModuleAddress) -> bool {
        let abi_info = self.lifter.abi_info();
        let Some(module) = self.modules.get_mut(site.module) else {
            return false;
        };
        let row = module.row(site.at);
        let is_begin = row
            .is_some_and(|row| DeclaredRow::from_row(&row, abi_info).is_function_entry(abi_info));
        is_begin
            && !module
                .visited_instruction(&mut self.lifter, site.at)
                .instruction
                .takes_top
    }

    /// Updates the shadow stack for an instruction.
    fn follow(&mut self, tid: i32, step_start: &StepStart, regs: &Regs) -> io::Result<()> {
        let following = step_start
            .regs
            .rip
            .wrapping_add(step_start.instruction.length.into());
        let function = self.function_at(tid, regs.rip)?;
        let id = function.map(|(_, id)| id);
        let (old_sp, sp, pc) = (step_start.regs.rsp, regs.rsp, regs.rip);
        match step_start.instruction.flow {
            Some(Flow::Call(_) | Flow::IndirectCall) => {
                let is_entry = function.is_none_or(|(site, _)| self.begins_frame(site));
                // A call to the next instruction, or into the middle, pushes a word and no frame.
                if is_entry && pc != following && sp == old_sp.wrapping_sub(8) {
                    return self.push_call(tid, regs, following, id);
                }
            }
            Some(Flow::Return { .. } | Flow::Resume(_)) => {
                let ended = match self.thread(tid)?.shadow.returned(old_sp, sp) {
                    None if self.has_given_up(tid, pc)? => self.thread(tid)?.shadow.end(),
                    ended => ended,
                };
                match ended {
                    Some(ended) => self.note_return(&ended, regs),
                    // A pushed target: a jump.
                    None => drop(self.on_jump(tid, step_start.function, function, regs)?),
                }
            }
            Some(Flow::IndirectJump(_)) if self.has_given_up(tid, pc)? => {
                if let Some(ended) = self.thread(tid)?.shadow.end() {
                    self.note_return(&ended, regs);
                }
            }
            Some(Flow::Jump(_) | Flow::IndirectJump(_)) => {
                let shadow = &mut self.thread(tid)?.shadow;
                let is_return = shadow
                    .current()
                    .is_some_and(|frame| frame.pc == pc && frame.key < sp);
                if is_return || id != Some(step_start.function) {
                    shadow.leave(sp);
                    if !is_return
                        && !self.on_jump(tid, step_start.function, function, regs)?
                        && id.is_some()
                    {
                        self.thread(tid)?.shadow.becomes(id);
                    }
                }
            }
            None | Some(Flow::Branch { .. })
                if (pc == following || step_start.instruction.flow.is_some())
                    && id.is_some_and(|id| id != step_start.function) =>
            {
                self.thread(tid)?.shadow.becomes(id);
            }
            None | Some(Flow::Trap | Flow::Unknown)
                if pc != following && pc != step_start.regs.rip =>
            {
                let shadow = &mut self.thread(tid)?.shadow;
                if !shadow.resumed(pc, sp) {
                    shadow.leave(sp);
                }
            }
            _ => {}
        }
        if step_start.instruction.loads_stack_pointer && step_start.instruction.flow.is_none() {
            let shadow = &mut self.thread(tid)?.shadow;
            shadow.jumped(old_sp, sp);
            if shadow.certainty == ShadowCertainty::Certain {
                shadow.becomes(id);
            }
        }
        Ok(())
    }

    /// Control went to another function by a jump. With the stack as at a call, the frame of the
    /// previous function is passed on. With an address of that function on top of the stack, it is
    /// a call. Returns whether one of these holds.
    fn on_jump(
        &mut self,
        tid: i32,
        from: FunctionId,
        to: Option<(ModuleAddress, FunctionId)>,
        regs: &Regs,
    ) -> io::Result<bool> {
        let shadow = &mut self.thread(tid)?.shadow;
        let is_call = shadow.current().is_some_and(|frame| frame.key == regs.rsp);
        if !is_call {
            return self.push_call_by_jump(tid, from, to, regs);
        }
        let Some((site, (module, place))) = to else {
            return Ok(false);
        };
        shadow.becomes(Some((module, place)));
        let module = self.modules.get_mut(module);
        let function = module.and_then(|module| module.functions.get_mut(place));
        if let Some(function) = function.filter(|function| function.start == site.at) {
            function.entered += 1;
        }
        Ok(true)
    }

    /// Control went to another function by a jump: if an address of the previous function is on top
    /// of the stack, it was pushed as return address. Returns whether that is so.
    fn push_call_by_jump(
        &mut self,
        tid: i32,
        from: FunctionId,
        to: Option<(ModuleAddress, FunctionId)>,
        regs: &Regs,
    ) -> io::Result<bool> {
        if to.is_some_and(|(site, id)| id == from || !self.has_row_of_begin(site)) {
            return Ok(false);
        }
        let Some(back) = self.space_of(tid)?.memory().word(regs.rsp) else {
            return Ok(false);
        };
        let is_own = (self.function_at(tid, back)?).is_some_and(|(_, id)| id == from);
        if is_own {
            self.push_call(tid, regs, back, to.map(|(_, id)| id))?;
        }
        Ok(is_own)
    }

    /// Whether control goes to the innermost frame's return address, with another word in its place
    /// on the stack: words pushed by an outlined prologue stay there.
    fn has_given_up(&mut self, tid: i32, pc: u64) -> io::Result<bool> {
        let frame = self.thread(tid)?.shadow.current().copied();
        let Some(frame) = frame.filter(|frame| frame.pc == pc && !frame.is_interrupted) else {
            return Ok(false);
        };
        let word = self.space_of(tid)?.memory().word(frame.key);
        Ok(word.is_some_and(|word| word != pc))
    }

    /// Notes the registers that a function has not restored at its return.
    fn note_return(&mut self, ended: &ShadowFrame, regs: &Regs) {
        let function = ended.function.and_then(|(module, place)| {
            let module = self.modules.get_mut(module)?;
            module.functions.get_mut(place)
        });
        let Some(function) = function else { return };
        function.returned += 1;
        let now = preserved(regs);
        for (lost, (now, before)) in function.lost.iter_mut().zip(now.iter().zip(ended.saved)) {
            *lost += u64::from(*now != before);
        }
    }

    /// Compares, and resumes the thread in the mode that fits its address.
    fn next(&mut self, tid: i32, regs: &Regs) -> io::Result<()> {
        if !self.thread(tid)?.pending.is_empty() {
            self.resolve_pending(tid, regs)?;
        }
        if self.halts.contains(&regs.rip) {
            return self.halt(tid, 0);
        }
        let function = self.function_at(tid, regs.rip)?;
        let Some((site, id)) = function else {
            self.leave_scope(tid)?;
            return self.run_on(tid, regs);
        };
        let running = self.running(id);
        let shadow = &mut self.thread(tid)?.shadow;
        shadow.validate(Some(running), regs.rsp);
        let certainty = shadow.certainty;
        let Some(truth) = shadow.current().copied() else {
            return self.run_on(tid, regs);
        };
        if certainty == ShadowCertainty::NewStack
            && self.is_other_context(tid, regs, site, &truth)?
        {
            return self.run_on(tid, regs);
        }
        let is_certain = certainty != ShadowCertainty::Uncertain;
        if is_certain && !truth.is_certainly(running) {
            // The entry of this function was not seen.
            self.reactivate(tid, regs.rip, Some(id))?;
            return self.run_on(tid, regs);
        }
        let most = self.request.visits;
        let Some(module) = self.modules.get_mut(site.module) else {
            return self.run_on(tid, regs);
        };
        let spot = module.visited_instruction(&mut self.lifter, site.at);
        let instruction = spot.instruction;
        let is_new = spot.visits < most;
        if is_new && is_certain {
            spot.visits += 1;
            if let Some(function) = module.functions.get_mut(id.1) {
                function.idle = 0;
            }
            self.checked += 1;
            let registers = self.registers(tid, regs, site)?;
            self.compare(tid, site, site.at, &registers, &truth)?;
        }
        self.uncertain += u64::from(!is_certain);
        let thread = self.thread(tid)?;
        thread.idle = if is_new { 0 } else { thread.idle + 1 };
        if thread.idle > MAX_IDLE_STEPS {
            thread.idle = 0;
            return self.run_to_new(tid, regs, id, site, &truth);
        }
        thread.step_start = Some(StepStart {
            regs: *regs,
            instruction,
            function: id,
        });
        thread.mode = ThreadMode::Stepping;
        self.step(tid, regs)
    }

    /// On a new stack: if the row finds a return address in code that is not the innermost frame's,
    /// this is another context with unknown frames.
    fn is_other_context(
        &mut self,
        tid: i32,
        regs: &Regs,
        site: ModuleAddress,
        truth: &ShadowFrame,
    ) -> io::Result<bool> {
        let registers = self.registers(tid, regs, site)?;
        let found = self.comparison(tid, site, site.at, &registers, truth, |comparison| {
            comparison.return_address()
        });
        let found = found.flatten().filter(|found| *found != truth.pc);
        let is_other = match found {
            Some(pc) => self.space_of(tid)?.site(pc).is_some() || self.follows_call(tid, pc),
            None => false,
        };
        self.thread(tid)?.shadow.settle(is_other);
        if let Some(pc) = found.filter(|_| is_other) {
            // Earlier results of rows may be confirmed there.
            self.space_of(tid)?.stop_at(pc, BreakpointReason::Resume);
        }
        Ok(is_other)
    }

    /// Control left the scope: stepping resumes at the innermost frame's return address.
    fn leave_scope(&mut self, tid: i32) -> io::Result<()> {
        let shadow = &mut self.thread(tid)?.shadow;
        let current = shadow.current().copied();
        if let Some(frame) = current.filter(|frame| frame.function.is_some()) {
            shadow.becomes(None);
            if self.function_at(tid, frame.pc)?.is_some() {
                self.space_of(tid)?
                    .stop_at(frame.pc, BreakpointReason::Resume);
            }
        }
        Ok(())
    }

    /// Makes a thread run at full speed, past a breakpoint at its address.
    fn run_on(&mut self, tid: i32, regs: &Regs) -> io::Result<()> {
        let known = self.space_of(tid)?.breakpoint(regs.rip);
        let is_there = known.is_some_and(|known| known.is_set());
        let thread = self.thread(tid)?;
        thread.shadow.runs();
        thread.step_start = None;
        thread.mode = if is_there {
            ThreadMode::Passing
        } else {
            ThreadMode::Running
        };
        self.step(tid, regs)
    }

    /// Makes a thread run at full speed until it leaves the part of a function that was visited
    /// often enough.
    fn run_to_new(
        &mut self,
        tid: i32,
        regs: &Regs,
        id: FunctionId,
        site: ModuleAddress,
        truth: &ShadowFrame,
    ) -> io::Result<()> {
        let most = self.request.visits;
        let Some(module) = self.modules.get(id.0) else {
            return self.run_on(tid, regs);
        };
        let Some(function) = module.functions.get(id.1) else {
            return self.run_on(tid, regs);
        };
        let is_visited = |at: u64| {
            module
                .visited
                .get(&at)
                .is_some_and(|spot| spot.visits >= most)
        };
        let is_in_scope = |at: u64| module.function(Vaddr(at)).is_some();
        let mut awaited = BTreeSet::new();
        for (at, spot) in module.visited.range(function.start.0..function.end.0) {
            let successors = spot.instruction.successors(*at).into_iter().flatten();
            awaited.extend(successors.filter(|at| !is_visited(*at) && is_in_scope(*at)));
            let is_branch = matches!(spot.instruction.flow, Some(Flow::IndirectJump(_)));
            if is_branch && spot.stops < MAX_JUMP_STOPS && *at != site.at.0 {
                awaited.insert(*at);
            }
        }
        let space = self.space_of(tid)?;
        for at in awaited {
            space.stop_at(site.bias.to_runtime(Vaddr(at)).0, BreakpointReason::Resume);
        }
        space.stop_at(truth.pc, BreakpointReason::Resume);
        self.run_on(tid, regs)
    }

    /// The registers by number; vector registers only if the module has rules for them.
    fn registers(&self, tid: i32, regs: &Regs, site: ModuleAddress) -> io::Result<Registers> {
        let mut registers = Registers::new();
        for (number, value) in (0..).zip(general(regs)) {
            registers.set(Register(number), value);
        }
        let module = self.modules.get(site.module);
        if module.is_some_and(|module| module.has_vectors) {
            for (number, value) in (17..).zip(sys::vectors(tid)?) {
                registers.set(Register(number), value);
            }
        }
        Ok(registers)
    }

    /// Compares the row at an address with the truth.
    fn compare(
        &mut self,
        tid: i32,
        site: ModuleAddress,
        looked_up: Vaddr,
        registers: &Registers,
        truth: &ShadowFrame,
    ) -> io::Result<()> {
        let faults = self.comparison(tid, site, looked_up, registers, truth, |comparison| {
            let differences = comparison.differences().into_iter();
            let findings = differences.map(|(difference, found)| {
                let truth = comparison.truth_of(&difference);
                (RowFault::Mismatch(difference), found, truth)
            });
            findings.collect()
        });
        let faults = faults.unwrap_or_else(|| match self.request.rows {
            RowSource::Table(_) => vec![(RowFault::Missing, None, None)],
            RowSource::Code => Vec::new(),
        });
        self.add_pending_faults(tid, site, truth, faults)
    }

    /// Keeps the faults of an instruction's row, with the values by the row and the actual
    /// locations, until the frame has ended.
    fn add_pending_faults(
        &mut self,
        tid: i32,
        site: ModuleAddress,
        truth: &ShadowFrame,
        faults: Vec<(RowFault, Option<u64>, Option<RuleLocation>)>,
    ) -> io::Result<()> {
        let module = self.modules.get(site.module);
        let function = module.and_then(|module| module.function(site.at));
        let function = function.unwrap_or(usize::MAX);
        let pending = faults
            .into_iter()
            .map(|(fault, found, place)| PendingFault {
                cause: (site.module, function, fault),
                at: site.at,
                found,
                truth: place,
                frame: *truth,
            });
        self.thread(tid)?.pending.extend(pending);
        Ok(())
    }

    /// Decides about faults in frames that have ended. If control went elsewhere than to the
    /// caller, as in `longjmp`, the row need not find the caller: the target of the jump is as
    /// good. A frame on a stack that was left, as in `setcontext`, may continue one day; but a row
    /// that found exactly the current state is done.
    fn resolve_pending(&mut self, tid: i32, regs: &Regs) -> io::Result<()> {
        let thread = self.thread(tid)?;
        let shadow = &thread.shadow;
        let row = |pending: &PendingFault| (pending.frame.key, pending.at);
        let has_arrived = |pending: &&PendingFault| {
            pending.is_of_return()
                && pending.found == Some(regs.rip)
                && shadow.has_left(&pending.frame)
        };
        let arrived = thread.pending.iter().filter(has_arrived);
        let arrived: Vec<(u64, Vaddr)> = arrived.map(row).collect();
        let ended = thread.pending.extract_if(.., |pending| {
            !shadow.has(&pending.frame) || arrived.contains(&row(pending))
        });
        let ended: Vec<PendingFault> = ended.collect();
        for pending in ended {
            if is_behind_data(&pending, regs) {
                continue;
            }
            let is_return = pending.frame.returns_to(regs.rip, regs.rsp);
            if is_return
                || pending
                    .found
                    .is_none_or(|found| found != value_at_target(&pending, regs))
            {
                self.note(pending);
            }
        }
        Ok(())
    }

    fn note(&mut self, pending: PendingFault) {
        let seen = self
            .faults
            .entry(pending.cause)
            .or_insert_with(|| FaultRecord {
                places: BTreeSet::new(),
                times: 0,
                truth: pending.truth,
            });
        seen.places.insert(pending.at);
        seen.times += 1;
    }

    /// Evaluates the row at an address; `None` if there is no row.
    fn comparison<T>(
        &self,
        tid: i32,
        site: ModuleAddress,
        looked_up: Vaddr,
        registers: &Registers,
        truth: &ShadowFrame,
        ask: impl FnOnce(&RowComparison<'_>) -> T,
    ) -> Option<T> {
        let space = self.spaces.get(&self.threads.get(&tid)?.space)?;
        let row = self.modules.get(site.module)?.row(looked_up)?;
        Some(ask(&RowComparison {
            abi: ABI,
            abi_info: self.lifter.abi_info(),
            row: &row,
            registers,
            memory: &space.memory(),
            bias: site.bias,
            truth,
        }))
    }
}

impl TracedThread {
    fn new(process: i32, space: u32) -> TracedThread {
        TracedThread {
            process,
            space,
            shadow: ShadowStack::default(),
            mode: ThreadMode::Running,
            step_start: None,
            given: 0,
            displaced: None,
            changes: 0,
            idle: 0,
            pending: Vec::new(),
            is_new: true,
        }
    }
}

impl Tracer<'_> {
    /// Sets the address where threads halt, in place of the previous ones.
    pub(crate) fn halt_at(&mut self, tid: i32, at: u64) -> io::Result<()> {
        self.space_of(tid)?.stop_at(at, BreakpointReason::Resume);
        self.halts = vec![at];
        self.halted = None;
        Ok(())
    }

    /// Keeps a thread waiting where it is.
    fn halt(&mut self, tid: i32, signal: c_int) -> io::Result<()> {
        let mut regs = sys::registers(tid)?;
        self.set_back(tid, &mut regs)?;
        self.halted = Some(HaltedThread { tid, signal, regs });
        Ok(())
    }

    /// Prepares a process for calls of the function in scope, of which there must be one. A thread
    /// that waits outside of all functions in scope maps memory of `size` bytes, at an address if
    /// that is free. `None` if there is no function.
    pub(crate) fn prepare(
        &mut self,
        tid: i32,
        (at, size): (u64, u64),
    ) -> io::Result<Option<PreparedCall>> {
        self.find_modules(tid)?;
        let mapped = self.space_of(tid)?.mapped.clone();
        let wanted = |name: &str| self.request.functions.iter().any(|wanted| wanted == name);
        let found = mapped.iter().find_map(|mapped| {
            let module = self.modules.get(mapped.module)?;
            let mut functions = module.functions.iter();
            let place = functions.position(|f| f.name.as_deref().is_some_and(wanted))?;
            let start = module.functions.get(place)?.start;
            Some((mapped.bias.to_runtime(start).0, (mapped.module, place)))
        });
        let Some((entry, function)) = found else {
            return Ok(None);
        };
        let space = self.space_of(tid)?;
        let scratch = space.map(tid, at, size, libc::PROT_READ | libc::PROT_WRITE)?;
        let back = space.free_slot().ok_or(io::ErrorKind::OutOfMemory)?;
        self.halt_at(tid, back)?;
        Ok(Some(PreparedCall {
            entry,
            function,
            back,
            scratch,
        }))
    }

    /// Writes words into the memory of a process.
    pub(crate) fn fill(&mut self, tid: i32, at: u64, words: &[u64]) -> io::Result<()> {
        self.space_of(tid)?.fill(at, words)
    }

    /// Sets a waiting thread to the entry of a function, and resumes it there.
    pub(crate) fn call(
        &mut self,
        tid: i32,
        regs: &Regs,
        prepared: &PreparedCall,
    ) -> io::Result<()> {
        sys::set_registers(tid, regs)?;
        self.thread(tid)?.shadow = ShadowStack::default();
        self.push_call(tid, regs, prepared.back, Some(prepared.function))?;
        self.next(tid, regs)
    }

    /// Where a thread was halted.
    pub(crate) fn halt_location(&mut self, halted: &HaltedThread) -> StopLocation {
        let address = halted.regs.rip;
        let space = self.space_of(halted.tid).ok();
        let site = space.and_then(|space| space.site(address));
        let maps = std::fs::read(format!("/proc/{}/maps", halted.tid));
        let maps = maps.map(|text| Mappings::parse(&text));
        let mapping = maps.ok().and_then(|maps| {
            let mut maps = maps.iter();
            let mapping = maps.find(|mapping| mapping.contains(RuntimeAddr(address)))?;
            mapping.path().map(Path::to_path_buf)
        });
        StopLocation {
            address,
            file: mapping,
            vaddr: site.map(|site| site.at),
        }
    }
}

/// A waiting thread, and the reason.
#[derive(Debug)]
pub(crate) struct HaltedThread {
    pub(crate) tid: i32,
    /// The signal that arrived; 0 if it reached its halt address.
    pub(crate) signal: c_int,
    pub(crate) regs: Regs,
}

/// Addresses for a call of a function.
#[derive(Debug)]
pub(crate) struct PreparedCall {
    /// Start of the function.
    pub(crate) entry: u64,
    function: FunctionId,
    /// Its return address.
    pub(crate) back: u64,
    /// Memory for arguments.
    pub(crate) scratch: u64,
}

/// Whether a row has found the return address, or its location while the callee moved it past
/// inline data, and control returned behind that data.
fn is_behind_data(pending: &PendingFault, regs: &Regs) -> bool {
    let moved = regs.rip.saturating_sub(u64::from(MAX_SKIPPED_BYTES))..=regs.rip;
    let way = pending.frame.pc..=regs.rip;
    pending.is_of_return()
        && moved.contains(&pending.frame.pc)
        && pending.found.is_some_and(|found| way.contains(&found))
}

/// The value after a jump that a mismatch concerns.
fn value_at_target(pending: &PendingFault, regs: &Regs) -> u64 {
    let of = pending
        .cause
        .2
        .difference()
        .map(|difference| difference.aspect);
    match of {
        Some(Aspect::Cfa) => regs.rsp,
        Some(Aspect::ReturnAddress) => regs.rip,
        Some(Aspect::Register(number)) => {
            let value = general(regs).get(usize::from(number)).copied();
            value.unwrap_or(0)
        }
        None => 0,
    }
}

/// The general registers by DWARF number; the last is the program counter.
fn general(regs: &Regs) -> [u64; 17] {
    [
        regs.rax, regs.rdx, regs.rcx, regs.rbx, regs.rsi, regs.rdi, regs.rbp, regs.rsp, regs.r8,
        regs.r9, regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15, regs.rip,
    ]
}

/// The trap flag: the processor stops behind each instruction.
const TRAP_FLAG: u64 = 0x100;

/// The registers after a step. The kernel hides the trap flag that it set, except after
/// instructions that load flags: after `popf` and `iretq` it takes it for the program's own.
fn clear_trap_flag(tid: i32) -> io::Result<Regs> {
    let mut regs = sys::registers(tid)?;
    if regs.eflags & TRAP_FLAG != 0 {
        regs.eflags &= !TRAP_FLAG;
        sys::set_registers(tid, &regs)?;
    }
    Ok(regs)
}

/// The registers that calls preserve.
pub(crate) fn preserved(regs: &Regs) -> [u64; 6] {
    [regs.rbx, regs.rbp, regs.r12, regs.r13, regs.r14, regs.r15]
}

/// Whether the kernel has just put a signal frame on the stack: it passes the signal, and the
/// address of the saved registers, which is behind the return address.
fn is_handler(regs: &Regs, signal: Option<c_int>) -> bool {
    let number = signal.map_or(1..=64, |signal| {
        let signal = u64::from(signal.unsigned_abs());
        signal..=signal
    });
    number.contains(&regs.rdi) && regs.rdx == regs.rsp.wrapping_add(8)
}

fn segment_mapping(mapping: &Mapping) -> SegmentMapping {
    SegmentMapping {
        start: mapping.start,
        length: mapping.size(),
        file_offset: mapping.offset,
        executable: mapping.permissions.execute,
        page_size: 4096,
    }
}
