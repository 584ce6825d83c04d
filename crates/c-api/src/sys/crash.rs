//! The crash handler: signals, stacks for their handlers, and system calls.
//!
//! [`unspool_crash_load`] runs when the library is loaded, [`stacks::pthread_create`] gives each
//! thread a stack for handlers. `on_signal` and all its callees are async-signal-safe.

use core::ffi::{c_int, c_void};
use core::mem;
use core::ptr;

use unspool_files::environment::is_privileged;
use unspool_unwind::local::SignalRegisters;

use crate::crash::reporter_lock::{LockAttempt, ReporterLock};
use crate::crash::signals::{HANDLED_SIGNALS, Signal};
use crate::crash::text::TextBuffer;
use crate::crash::{self, CrashSignal};
use crate::store;
use crate::sys::{context, files};

use output::{Output, OutputTargets};

pub(crate) mod guard;
pub(crate) mod maps;
mod output;
pub mod stacks;

/// Facts found when the library is loaded; read-only from then on.
struct LoadState {
    program: [u8; 256],
    outputs: OutputTargets,
}

struct LoadStateCell(core::cell::UnsafeCell<LoadState>);

// SAFETY: only `unspool_crash_load` writes it, before the program's own code runs.
unsafe impl Sync for LoadStateCell {}

static LOAD_STATE: LoadStateCell = LoadStateCell(core::cell::UnsafeCell::new(LoadState {
    program: [0; 256],
    outputs: OutputTargets::NONE,
}));

fn load_state() -> &'static LoadState {
    // SAFETY: it is read-only now; see `LoadStateCell`.
    unsafe { &*LOAD_STATE.0.get() }
}

/// The path of the program, padded with zero bytes.
pub(crate) fn program_path() -> &'static [u8] {
    &load_state().program
}

/// Installs the handlers. The linker makes it the library's initializer.
///
/// # Safety
///
/// Call this once, before there are other threads.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_crash_load() {
    stacks::find_pthread_create();
    // A report has registers, arguments and addresses. The user who started a setuid program would
    // read them, and must not see them.
    if is_privileged() {
        return;
    }
    // SAFETY: the caller's promise: it has no readers yet.
    let at_load = unsafe { &mut *LOAD_STATE.0.get() };
    let [room @ .., _] = &mut at_load.program;
    let link = c"/proc/self/exe".as_ptr();
    // SAFETY: the path ends with a zero byte; the buffer has that length, and was zero.
    unsafe { libc::readlink(link, room.as_mut_ptr().cast(), room.len()) };
    at_load.outputs = OutputTargets::find();
    stacks::install_for_thread();
    stacks::make_reserve();
    store::find_argument_tables();
    for (signal, _) in HANDLED_SIGNALS {
        install(signal);
    }
}

/// Signals that end a reporting process, unless the program has handlers for them.
const TERMINATION_SIGNALS: [c_int; 2] = [libc::SIGTERM, libc::SIGINT];

/// Whether the signal has its default action.
fn has_default_action(signal: c_int) -> bool {
    // SAFETY: plain data.
    let mut now: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: only a query; `now` is this function's.
    let failed = unsafe { libc::sigaction(signal, ptr::null(), &raw mut now) };
    failed == 0 && now.sa_sigaction == libc::SIG_DFL
}

/// Installs the handler for a signal, unless the program has set an action.
fn install(signal: c_int) {
    if !has_default_action(signal) {
        return;
    }
    // SAFETY: plain data.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_signal;
    action.sa_sigaction = handler as usize;
    // Faults of the handler itself must be caught, too.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: the mask is the action's.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    // And the user may end the process without waiting for the report.
    let wanted = HANDLED_SIGNALS.map(|(signal, _)| signal);
    for wanted in wanted.into_iter().chain(TERMINATION_SIGNALS) {
        // SAFETY: as above.
        unsafe { libc::sigdelset(&raw mut action.sa_mask, wanted) };
    }
    // SAFETY: the handler has the signature for these flags.
    unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
}

static REPORTER: ReporterLock = ReporterLock::new();

extern "C" fn on_signal(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let signal = signal(number, info);
    // The program's own handler might jump out of the report.
    for wanted in TERMINATION_SIGNALS {
        if !has_default_action(wanted) {
            block(wanted);
        }
    }
    match REPORTER.try_acquire(process_id(), thread_id()) {
        LockAttempt::Acquired => {
            guard::reset();
            let mut fault = fault(signal, context);
            // SAFETY: the context of a handler that has not returned.
            let own = unsafe { &context::context(context).uc_stack };
            // SAFETY: `report` takes a fault.
            unsafe { stacks::call_with_room(own, report, (&raw mut fault).cast()) };
        }
        // The report continues, and the process ends after it in any case.
        LockAttempt::Reentered if signal.is_sent() => return,
        LockAttempt::Reentered => guard::resume_after_fault(),
        LockAttempt::HeldByOther => wait_for_the_end(),
    }
    // Pending until this returns. Then the process ends at the original place, as a core file
    // shows.
    block(number);
    end(number, info);
}

unsafe extern "C" fn report(fault: *mut c_void) {
    // SAFETY: `on_signal` passes one.
    let fault = unsafe { &*fault.cast::<CrashSignal>() };
    let output = load_state().outputs.open();
    let mut text = TextBuffer::new(&output);
    if guard::catch_fault(|| crash::report(fault, &mut text)).is_none() {
        text.put(b"\nunspool: the report ends here: a fault of its own\n");
        text.flush();
    }
}

fn signal(number: c_int, info: *const libc::siginfo_t) -> Signal {
    // SAFETY: the kernel's, valid while the handler runs.
    let info = unsafe { &*info };
    // SAFETY: for a sent signal it has no meaning, and `Signal` does not use it then.
    let address = unsafe { info.si_addr() };
    // SAFETY: the same for a fault.
    let process = unsafe { info.si_pid() };
    // SAFETY: as above.
    let user = unsafe { info.si_uid() };
    Signal {
        number,
        code: info.si_code,
        address: address.addr() as u64,
        sender: (process, user),
    }
}

fn fault(signal: Signal, context: *const c_void) -> CrashSignal {
    // SAFETY: the context of a handler that has not returned.
    let context = unsafe { context::context(context) };
    let mut name = [0; 16];
    // SAFETY: the kernel writes at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    CrashSignal {
        signal,
        registers: SignalRegisters::from(context).0,
        process: process_id(),
        thread: thread_id(),
        name,
    }
}

fn process_id() -> i32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::getpid() }
}

/// By the system call: glibc only has a function for it since 2.30.
fn thread_id() -> i32 {
    // SAFETY: takes nothing, cannot fail.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    i32::try_from(thread).unwrap_or_default()
}

/// Waits while another thread reports and ends the process. If that fails, this thread ends it.
fn wait_for_the_end() {
    let until = files::nanoseconds().saturating_add(2 * Output::WRITE_TIMEOUT_NS);
    loop {
        let left = until.saturating_sub(files::nanoseconds());
        if left == 0 {
            return;
        }
        let time = c_int::try_from(left.div_ceil(1_000_000)).unwrap_or(c_int::MAX);
        // SAFETY: waits for the timeout only.
        unsafe { libc::poll(ptr::null_mut(), 0, time) };
    }
}

fn block(signal: c_int) {
    // SAFETY: plain data.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: the set is this function's.
    unsafe { libc::sigaddset(&raw mut set, signal) };
    // SAFETY: as above.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) };
}

/// Signals from processes do not end the first process of a system or container.
const FIRST_PROCESS: c_int = 1;

/// Restores the signal's default action and sends it again to this thread, with the kernel's
/// original information.
fn end(signal: c_int, info: *const libc::siginfo_t) {
    // SAFETY: plain data.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = libc::SIG_DFL;
    // SAFETY: the default action takes nothing.
    unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    let process = process_id();
    if process == FIRST_PROCESS {
        // SAFETY: takes a number.
        unsafe { libc::_exit(128 + signal) };
    }
    let number = libc::SYS_rt_tgsigqueueinfo;
    // SAFETY: `info` is the kernel's own, valid while the handler runs.
    let failed = unsafe { libc::syscall(number, process, thread_id(), signal, info) };
    if failed != 0 {
        // A seccomp filter may forbid only one of the two.
        // SAFETY: takes numbers.
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread_id(), signal) };
    }
}
