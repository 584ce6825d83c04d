//! Calls one function with generated arguments.
//!
//! Each call is made in a process of its own. The process runs until its own code would begin, with
//! all modules mapped and relocated; instead of that code the function is called.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use libc::c_int;
use unspool_rows::{RuntimeAddr, Vaddr};

use crate::remote::{self, LOWEST};
use crate::report::{self, StepReport};
use crate::shadow_stack::{FunctionId, ShadowStack};
use crate::stepper::HaltedThread;
use crate::sys::{self, Regs, WaitStatus};
use crate::traced_memory::mappings;
use crate::tracer::Tracer;
use crate::watchdog::Watchdog;
use crate::x86_64::preserved;
use crate::{HostProgram, RowSource, SingleStepError, StepRequest};

/// The function to call, and how.
#[derive(Debug)]
pub struct CallRequest {
    /// A program that maps the file with the function.
    pub host: HostProgram,
    /// The function's name.
    pub function: String,
    /// Values of the argument registers, from `rdi` on; the others get [`ArgumentInput::Pointer`].
    pub arguments: Vec<ArgumentInput>,
    /// Number of calls.
    pub calls: u32,
    /// Seed of the generated values: equal seeds make equal calls.
    pub seed: u64,
    /// The rows that are compared with the run.
    pub rows: RowSource,
    /// How often each instruction is checked.
    pub visits: u32,
    /// Time after which a call is given up.
    pub time_limit: Duration,
}

/// The value of an argument register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentInput {
    /// The address of readable and writable memory, a multiple of 64. Where the kernel allows it,
    /// this is a number between 68 Ki and 192 Ki, so that it also works as a size: more than 3 MiB
    /// follow each address. The words in that memory are such addresses, too.
    Pointer,
    /// A number between two bounds, inclusive.
    Between(u64, u64),
}

/// Result of the calls.
#[derive(Debug)]
pub struct CallReport {
    /// All calls made; none follow one that did not return in time.
    pub calls: Vec<CallResult>,
    /// The report on the unwind table over all of them.
    pub report: StepReport,
}

/// Result of a call.
#[derive(Debug)]
pub struct CallResult {
    /// The argument registers: `rdi`, `rsi`, `rdx`, `rcx`, `r8`, `r9`.
    pub arguments: [u64; 6],
    /// How it ended.
    pub end: CallEnd,
}

/// How a call ended.
#[derive(Debug)]
pub enum CallEnd {
    /// It returned. Registers that should have their old values, but do not.
    Returned(Vec<ClobberedRegister>),
    /// A fatal signal arrived, with its number.
    Signal(c_int, StopLocation),
    /// It did not return in time; where it was then, if known.
    TimedOut(Option<StopLocation>),
    /// The process ended.
    Ended(ExitStatus),
}

/// A register with a wrong value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClobberedRegister {
    /// Its name; `df` is the direction flag.
    pub register: &'static str,
    /// The required value.
    pub expected: u64,
    /// The actual value.
    pub found: u64,
}

/// Where control was.
#[derive(Debug)]
pub struct StopLocation {
    /// The address in the process.
    pub address: u64,
    /// The file mapped there.
    pub file: Option<PathBuf>,
    /// The address in that file, if it is the one with the function.
    pub vaddr: Option<Vaddr>,
    /// The address in the process that could not be read, written or executed, if one of these was
    /// the reason.
    pub faulted: Option<u64>,
}

/// Size of the memory for arguments, in bytes. It ends before programs with fixed addresses begin.
const SCRATCH_BYTES: u64 = 0x3d_0000;
/// Range of argument addresses in it, in lines of 64 bytes from its start.
const LINES: (u64, u64) = (0x40, 0x7ff);
/// Distance of the call's frame below the process's own stack contents, in bytes.
const SCRATCH_MARGIN_BYTES: u64 = 4096;
/// Number of words above the return address that look like arguments.
const STACK_ARGUMENT_WORDS: usize = 32;
/// The direction flag: string instructions count down. It is clear before and after a call.
const DIRECTION: u64 = 0x400;

/// Addresses for a call of a function.
#[derive(Debug)]
struct PreparedCall {
    /// Start of the function.
    entry: u64,
    function: FunctionId,
    /// Its return address.
    back: u64,
    /// Memory for arguments.
    scratch: u64,
}

/// Calls a function several times, or until a call does not return in time. Its standard output
/// goes to standard error.
///
/// Must be called by a thread without other children: it waits for all of them.
///
/// # Errors
///
/// The program cannot be started or traced, or the file does not have the function.
pub fn call(request: &CallRequest) -> Result<CallReport, SingleStepError> {
    let scope = StepRequest {
        command: vec![request.host.program.clone()],
        functions: vec![request.function.clone()],
        modules: vec![request.host.file.to_string_lossy().into_owned()],
        rows: request.rows,
        visits: request.visits,
        time_limit: request.time_limit,
    };
    let mut tracer = Tracer::new(&scope)?;
    let mut values = ValueGenerator(request.seed);
    let mut calls = Vec::new();
    for _ in 0..request.calls {
        let mut command = Command::new(&request.host.program);
        command.envs(request.host.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(std::io::stderr());
        sys::place_alike(&mut command);
        let root = crate::start(&mut command)?;
        let limit = Watchdog::start(request.time_limit, root, libc::SIGSTOP);
        let called = one(request, &mut tracer, root, &limit, &mut values);
        end(&mut tracer, root)?;
        let is_late = limit.stop();
        let mut called = called?;
        if is_late && matches!(called.end, CallEnd::Ended(_)) {
            called.end = CallEnd::TimedOut(None);
        }
        let is_last = matches!(called.end, CallEnd::TimedOut(_));
        calls.push(called);
        // The others would most likely not return, either.
        if is_last {
            break;
        }
    }
    let report = report::from_tracer(&tracer, false);
    Ok(CallReport { calls, report })
}

/// Makes one call in a process that was just started.
fn one(
    request: &CallRequest,
    tracer: &mut Tracer<'_>,
    root: i32,
    watchdog: &Watchdog,
    values: &mut ValueGenerator,
) -> Result<CallResult, SingleStepError> {
    let halt = if tracer.begin(root)? {
        let entry = remote::entry(root)?;
        tracer.halt_at(root, entry)?;
        tracer.release(root)?;
        until_halt(tracer, watchdog)?
    } else {
        None
    };
    let Some(halt) = halt.filter(|halt| halt.signal == 0) else {
        return Err(SingleStepError::NothingInScope(unstarted(&request.host)));
    };
    let tid = halt.tid;
    let Some(prepared) = prepare(tracer, tid)? else {
        let (file, function) = (request.host.file.display(), &request.function);
        let mut modules = tracer.stepper.modules.all().iter();
        return Err(SingleStepError::NothingInScope(
            if modules.any(|module| module.path == request.host.file) {
                format!("{file} has no function {function}")
            } else {
                format!("{file} was not loaded")
            },
        ));
    };
    let arguments = [0, 1, 2, 3, 4, 5].map(|number: usize| match request.arguments.get(number) {
        None | Some(ArgumentInput::Pointer) => values.pointer(&prepared),
        Some(ArgumentInput::Between(least, most)) => values.between(*least, *most),
    });
    let regs = values.registers(&halt.regs, &prepared, arguments);
    enter(tracer, tid, &regs, &prepared, values)?;
    let end = match until_halt(tracer, watchdog)? {
        None => CallEnd::Ended(ExitStatus::from_raw(tracer.root_status.unwrap_or(0))),
        Some(halt) => match halt.signal {
            0 => CallEnd::Returned(clobbered(&regs, &halt.regs)),
            libc::SIGSTOP => CallEnd::TimedOut(Some(stop_location(tracer, &halt))),
            signal => CallEnd::Signal(signal, stop_location(tracer, &halt)),
        },
    };
    Ok(CallResult { arguments, end })
}

/// Why a program's own code was never reached. The dynamic linker itself has said more.
fn unstarted(host: &HostProgram) -> String {
    let (file, program) = (host.file.display(), host.program.display());
    if host.program == host.file.as_os_str() {
        return format!("{program} ended before its own code began");
    }
    format!(
        "{file} was not loaded into {program}: if a symbol is undefined, link {file} with what defines it"
    )
}

/// Prepares a process for a call. A thread that waits outside of all functions in scope maps memory
/// for arguments. `None` if the function is not there.
fn prepare(tracer: &mut Tracer<'_>, tid: i32) -> io::Result<Option<PreparedCall>> {
    let tracee = tracer.threads.get(tid)?;
    let modules = &mut tracer.stepper.modules;
    modules.find(tid, tracee.memory)?;
    let Some((entry, function)) = modules.requested_function(tracee.memory) else {
        return Ok(None);
    };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let scratch = tracee.memory.map(tid, LOWEST, SCRATCH_BYTES, access)?;
    let back = tracee.memory.free_slot();
    let back = back.ok_or(io::ErrorKind::OutOfMemory)?;
    tracer.halt_at(tid, back)?;
    Ok(Some(PreparedCall {
        entry,
        function,
        back,
        scratch,
    }))
}

/// Fills the stack and the memory for arguments, and resumes a waiting thread at the entry of the
/// function.
fn enter(
    tracer: &mut Tracer<'_>,
    tid: i32,
    regs: &Regs,
    prepared: &PreparedCall,
    values: &mut ValueGenerator,
) -> io::Result<()> {
    let mut tracee = tracer.threads.get(tid)?;
    let mut words = vec![prepared.back];
    words.extend((0..STACK_ARGUMENT_WORDS).map(|_| values.pointer(prepared)));
    tracee.memory.fill(regs.rsp, &words)?;
    let words = (0..SCRATCH_BYTES / 8).map(|_| values.pointer(prepared));
    let words: Vec<u64> = words.collect();
    tracee.memory.fill(prepared.scratch, &words)?;
    sys::set_registers(tid, regs)?;
    tracee.thread.shadow = ShadowStack::default();
    let function = Some(prepared.function);
    tracee.push_call(&mut tracer.stepper.modules, regs, prepared.back, function);
    tracer.stepper.next(tracee, regs)
}

/// Where a thread was halted.
fn stop_location(tracer: &mut Tracer<'_>, halted: &HaltedThread) -> StopLocation {
    let address = halted.regs.rip;
    let tracee = tracer.threads.get(halted.tid).ok();
    let site = tracee.and_then(|tracee| tracee.memory.site(address));
    let file = mappings(halted.tid).ok().and_then(|maps| {
        let mut maps = maps.iter();
        let mapping = maps.find(|mapping| mapping.contains(RuntimeAddr(address)))?;
        mapping.path().map(Path::to_path_buf)
    });
    StopLocation {
        address,
        file,
        vaddr: site.map(|site| site.at),
        faulted: sys::fault_address(halted.tid).ok().flatten(),
    }
}

/// Traces a process until a thread is halted; `None` if it ends before.
fn until_halt(tracer: &mut Tracer<'_>, watchdog: &Watchdog) -> io::Result<Option<HaltedThread>> {
    loop {
        if let Some(halt) = tracer.stepper.halted.take() {
            return Ok(Some(halt));
        }
        if !crate::follow_one(tracer, watchdog)? {
            return Ok(None);
        }
    }
}

/// Ends a process and everything that it started.
fn end(tracer: &mut Tracer<'_>, root: i32) -> io::Result<()> {
    sys::kill(root);
    tracer.processes().into_iter().for_each(sys::kill);
    loop {
        match sys::wait() {
            Ok((tid, status @ WaitStatus::Gone { .. })) => tracer.handle(tid, status)?,
            Ok((tid, WaitStatus::Stopped { .. })) => sys::kill(tid),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Registers that must be preserved across a call, and are not.
fn clobbered(before: &Regs, after: &Regs) -> Vec<ClobberedRegister> {
    let names = ["rbx", "rbp", "r12", "r13", "r14", "r15"];
    let saved = preserved(before).into_iter().zip(preserved(after));
    let saved = names.into_iter().zip(saved);
    let popped = ("rsp", (before.rsp.wrapping_add(8), after.rsp));
    let flags = ("df", (0, after.eflags & DIRECTION));
    let all = saved.chain([popped, flags]);
    let lost = all.filter(|(_, (expected, found))| expected != found);
    lost.map(|(register, (expected, found))| ClobberedRegister {
        register,
        expected,
        found,
    })
    .collect()
}

/// Generates values (splitmix64).
struct ValueGenerator(u64);

impl ValueGenerator {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number between two bounds, inclusive.
    fn between(&mut self, least: u64, most: u64) -> u64 {
        match most.wrapping_sub(least).checked_add(1) {
            Some(count) => least.wrapping_add(self.next().checked_rem(count).unwrap_or(0)),
            None => self.next(),
        }
    }

    fn pointer(&mut self, prepared: &PreparedCall) -> u64 {
        prepared.scratch + 64 * self.between(LINES.0, LINES.1)
    }

    /// The registers at the function's entry. Registers that calls preserve, or that have no
    /// meaning, have recognisable values that are not addresses.
    fn registers(&mut self, at_entry: &Regs, prepared: &PreparedCall, arguments: [u64; 6]) -> Regs {
        let mut odd = |tag: u64| tag << 48 | self.next() >> 16;
        let [rdi, rsi, rdx, rcx, r8, r9] = arguments;
        // Number of vector registers with arguments.
        let rax = 0;
        Regs {
            rbx: odd(0x5ab0),
            rbp: odd(0x5ab1),
            r12: odd(0x5a12),
            r13: odd(0x5a13),
            r14: odd(0x5a14),
            r15: odd(0x5a15),
            r10: odd(0x5a10),
            r11: odd(0x5a11),
            rax,
            rdi,
            rsi,
            rdx,
            rcx,
            r8,
            r9,
            rsp: (at_entry.rsp.wrapping_sub(SCRATCH_MARGIN_BYTES) & !15).wrapping_sub(8),
            rip: prepared.entry,
            eflags: at_entry.eflags & !DIRECTION,
            orig_rax: u64::MAX,
            ..*at_entry
        }
    }
}
