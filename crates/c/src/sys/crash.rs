//! The crash handler: signals, stacks for their handlers, and what the kernel is asked.
//!
//! [`unspool_crash_load`] runs when the library is loaded, [`pthread_create`] gives each thread a stack for
//! handlers. `on_signal` and all that it calls is async-signal-safe.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use unspool_unwind::local::Interrupted;

use crate::crash::signals::CAUGHT;
use crate::crash::text::{Sink, Text};
use crate::crash::{self, Fault};
use crate::store::Path;
use crate::sys::context;

/// What is found out when the library is loaded, and only read from then on.
struct AtLoad {
    program: [u8; 256],
    log: Option<Path>,
}

struct Loaded(core::cell::UnsafeCell<AtLoad>);

// SAFETY: written by `unspool_crash_load` only, before the program's own code runs.
unsafe impl Sync for Loaded {}

static AT_LOAD: Loaded = Loaded(core::cell::UnsafeCell::new(AtLoad {
    program: [0; 256],
    log: None,
}));

fn at_load() -> &'static AtLoad {
    // SAFETY: nobody writes it any more; see `Loaded`.
    unsafe { &*AT_LOAD.0.get() }
}

/// The path of the program, with zero bytes behind it.
pub(crate) fn program_path() -> &'static [u8] {
    &at_load().program
}

/// Installs the handlers. The linker makes it the library's initializer.
///
/// # Safety
///
/// To be called once, before there are other threads.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_crash_load() {
    // SAFETY: the caller's promise: nobody reads it yet.
    let at_load = unsafe { &mut *AT_LOAD.0.get() };
    let [room @ .., _] = &mut at_load.program;
    let link = c"/proc/self/exe".as_ptr();
    // SAFETY: the path ends with a zero byte; the room is as long as that, and was zero.
    unsafe { libc::readlink(link, room.as_mut_ptr().cast(), room.len()) };
    at_load.log = super::files::variable(c"UNSPOOL_CRASH_LOG").and_then(|log| {
        let mut path = Path::new();
        path.push(log).filter(|()| !log.is_empty())?;
        Some(path)
    });
    let _ = real_pthread_create();
    // Without memory there is no stack for handlers: they run where the program does.
    if let Some(stack) = HandlerStack::map() {
        stack.use_here();
    }
    for (signal, _) in CAUGHT {
        install(signal);
    }
}

/// Catches a signal, unless somebody has already said what it is to do.
fn install(signal: c_int) {
    // SAFETY: plain data.
    let mut before: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: asks only; `before` is this function's.
    let failed = unsafe { libc::sigaction(signal, ptr::null(), &raw mut before) };
    if failed != 0 || before.sa_sigaction != libc::SIG_DFL {
        return;
    }
    // SAFETY: plain data.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_signal;
    action.sa_sigaction = handler as usize;
    // A fault of the handler itself is to be caught, too.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: the mask is the action's.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    for (caught, _) in CAUGHT {
        // SAFETY: as above.
        unsafe { libc::sigdelset(&raw mut action.sa_mask, caught) };
    }
    // SAFETY: the handler takes what such handlers are given.
    unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
}

/// The thread that reports, or 0.
static REPORTING: AtomicI32 = AtomicI32::new(0);

/// What it reports.
static REPORTED: AtomicPtr<libc::siginfo_t> = AtomicPtr::new(ptr::null_mut());

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let thread = thread_id();
    match REPORTING.compare_exchange(0, thread, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            REPORTED.store(info, Ordering::Relaxed);
            let fault = fault(signal, thread, info, context);
            let output = Output::open();
            crash::report(&fault, &mut Text::new(&output));
            drop(output);
            REPORTING.store(0, Ordering::Release);
            // Pending until this returns: the process then ends where it was, and a core file
            // shows that.
            block(signal);
            end(signal, info);
        }
        Err(reporting) if reporting == thread => {
            nested(signal, info);
            let first = REPORTED.load(Ordering::Relaxed);
            // SAFETY: the kernel's, in the frame of the handler that was interrupted.
            end(unsafe { (*first).si_signo }, first);
        }
        Err(_) => {
            wait_for_the_end();
            block(signal);
            end(signal, info);
        }
    }
}

fn nested(signal: c_int, info: *mut libc::siginfo_t) {
    let output = Output::open();
    let mut text = Text::new(&output);
    text.put(b"\nunspool: the report ends here: signal ");
    crash::signals::name(signal, &mut text);
    text.put(b" in the handler, at ");
    // SAFETY: the kernel's, as long as the handler runs.
    let info = unsafe { &*info };
    // SAFETY: a signal that was sent has other numbers there, which do no harm.
    let address = unsafe { info.si_addr() };
    text.address(address.addr() as u64);
    text.put(b"\n");
    text.flush();
}

fn fault(
    signal: c_int,
    thread: i32,
    info: *const libc::siginfo_t,
    context: *const c_void,
) -> Fault {
    // SAFETY: the kernel's, as long as the handler runs.
    let info = unsafe { &*info };
    // SAFETY: a handler's, which has not returned.
    let context = unsafe { context::context(context) };
    // SAFETY: of a signal that was sent, these are not meaningful, and are not printed.
    let address = unsafe { info.si_addr() };
    // SAFETY: of a fault, these are not meaningful, and are not printed.
    let process = unsafe { info.si_pid() };
    // SAFETY: as above.
    let user = unsafe { info.si_uid() };
    let mut name = [0; 16];
    // SAFETY: the kernel writes 16 bytes at most.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    Fault {
        signal,
        code: info.si_code,
        address: address.addr() as u64,
        sender: (process, user),
        registers: Interrupted::from(context).0,
        // SAFETY: takes nothing, cannot fail.
        process: unsafe { libc::getpid() },
        thread,
        name,
    }
}

fn thread_id() -> i32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::gettid() }
}

/// Another thread reports, and ends the process. Should it be unable to, this one does.
fn wait_for_the_end() {
    let a_while = libc::timespec {
        tv_sec: 10,
        tv_nsec: 0,
    };
    // SAFETY: the time is this function's.
    unsafe { libc::nanosleep(&raw const a_while, ptr::null_mut()) };
}

fn block(signal: c_int) {
    // SAFETY: plain data.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: the set is this function's.
    unsafe { libc::sigaddset(&raw mut set, signal) };
    // SAFETY: as above.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) };
}

/// Gives the signal its default action and sends it again, to this thread, with all that the kernel
/// said of it.
fn end(signal: c_int, info: *const libc::siginfo_t) {
    // SAFETY: plain data.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = libc::SIG_DFL;
    // SAFETY: the default action takes nothing.
    unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    // SAFETY: takes nothing, cannot fail.
    let process = unsafe { libc::getpid() };
    let number = libc::SYS_rt_tgsigqueueinfo;
    // SAFETY: `info` is the kernel's own, as long as the handler runs.
    let failed = unsafe { libc::syscall(number, process, thread_id(), signal, info) };
    if failed != 0 {
        // A filter may forbid the one and not the other.
        // SAFETY: takes numbers.
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread_id(), signal) };
    }
}

/// Where the report goes: the file that `UNSPOOL_CRASH_LOG` names, or else standard error.
struct Output(c_int);

impl Output {
    fn open() -> Output {
        let path = at_load().log.as_ref().and_then(Path::terminated);
        let Some(path) = path else {
            return Output(libc::STDERR_FILENO);
        };
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
        // SAFETY: the path ends with a zero byte.
        let file = unsafe { libc::open(path.as_ptr(), flags, 0o600) };
        Output(match file {
            0.. => file,
            _ => libc::STDERR_FILENO,
        })
    }
}

impl Sink for Output {
    fn write(&self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            // SAFETY: the bytes are there.
            let written = unsafe { libc::write(self.0, rest.as_ptr().cast(), rest.len()) };
            match usize::try_from(written) {
                Ok(1..) => {
                    let written = usize::try_from(written).unwrap_or(0);
                    rest = rest.get(written..).unwrap_or_default();
                }
                // Nobody reads it any more, or there is no room: there is nothing to be done.
                _ => return,
            }
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.0 != libc::STDERR_FILENO {
            // SAFETY: opened above, and nobody else has it.
            unsafe { libc::close(self.0) };
        }
    }
}

/// The file of a module, open for reading.
pub(crate) struct ModuleFile(c_int);

impl ModuleFile {
    pub(crate) fn open(path: &[u8]) -> Option<ModuleFile> {
        let mut terminated = [0_u8; 257];
        terminated.get_mut(..path.len())?.copy_from_slice(path);
        let path = CStr::from_bytes_until_nul(&terminated).ok()?;
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the path ends with a zero byte.
        let file = unsafe { libc::open(path.as_ptr(), flags) };
        (file >= 0).then_some(ModuleFile(file))
    }

    /// Reads bytes from an offset on; yields how many there were.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Option<usize> {
        let offset = i64::try_from(offset).ok()?;
        // SAFETY: the room is the caller's.
        let length = unsafe { libc::pread(self.0, into.as_mut_ptr().cast(), into.len(), offset) };
        usize::try_from(length).ok()
    }

    /// Reads as many bytes as there is room for.
    pub(crate) fn read_exactly(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        let length = self.read(offset, into)?;
        (length == into.len()).then_some(())
    }
}

impl Drop for ModuleFile {
    fn drop(&mut self) {
        // SAFETY: opened above, and nobody else has it.
        unsafe { libc::close(self.0) };
    }
}

/// A stack for handlers, with a page below it that nobody can touch.
struct HandlerStack {
    at: *mut c_void,
}

/// At its low end, what a new thread is to do.
#[repr(C)]
struct Task {
    start: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
}

impl HandlerStack {
    const GUARD: usize = 4096;
    /// For the handler: the report takes less than 48 KiB. What is not touched costs nothing.
    const ROOM: usize = 128 << 10;

    /// How much there is: beside the handler's, what the kernel stores of the registers.
    fn length() -> usize {
        // SAFETY: reads a value that the kernel gave the process at its start; cannot fail.
        let kernels = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) };
        let kernels = usize::try_from(kernels).unwrap_or(0);
        (Self::GUARD + Self::ROOM + kernels).next_multiple_of(Self::GUARD)
    }

    fn map() -> Option<HandlerStack> {
        // SAFETY: a new mapping, at no particular place.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                Self::length(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the first page of the mapping above.
        unsafe { libc::mprotect(at, Self::GUARD, libc::PROT_NONE) };
        Some(HandlerStack { at })
    }

    fn unmap(&self) {
        // SAFETY: mapped by `map` with this length, and no handler runs on it.
        unsafe { libc::munmap(self.at, Self::length()) };
    }

    fn low(&self) -> *mut c_void {
        self.at.map_addr(|at| at + Self::GUARD)
    }

    /// Makes it this thread's.
    fn use_here(&self) {
        let stack = libc::stack_t {
            ss_sp: self.low(),
            ss_flags: 0,
            ss_size: Self::length() - Self::GUARD,
        };
        // SAFETY: the stack stays mapped until `give_back`.
        unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) };
    }

    /// Unmaps it, at the end of its thread.
    fn give_back(&self) {
        // SAFETY: plain data.
        let mut now: libc::stack_t = unsafe { mem::zeroed() };
        // SAFETY: asks only.
        unsafe { libc::sigaltstack(ptr::null(), &raw mut now) };
        if now.ss_sp == self.low() {
            now.ss_flags = libc::SS_DISABLE;
            // SAFETY: the thread does without from now on.
            unsafe { libc::sigaltstack(&raw const now, ptr::null_mut()) };
        }
        self.unmap();
    }
}

type PthreadCreate = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    extern "C" fn(*mut c_void) -> *mut c_void,
    *mut c_void,
) -> c_int;

/// The C library's.
fn real_pthread_create() -> Option<PthreadCreate> {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    let mut address = REAL.load(Ordering::Relaxed);
    if address == 0 {
        let name: *const c_char = c"pthread_create".as_ptr();
        // SAFETY: the name ends with a zero byte.
        address = unsafe { libc::dlsym(libc::RTLD_NEXT, name) }.expose_provenance();
        REAL.store(address, Ordering::Relaxed);
    }
    // SAFETY: null, or the function of this name, which has this type.
    unsafe { mem::transmute::<usize, Option<PthreadCreate>>(address) }
}

/// `pthread_create`, for threads that have a stack for handlers.
///
/// # Safety
///
/// As the C library's.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    let Some(real) = real_pthread_create() else {
        return libc::EAGAIN;
    };
    let stack = key().and_then(|_| HandlerStack::map());
    let Some(stack) = stack else {
        // SAFETY: the caller's promise.
        return unsafe { real(thread, attributes, start, argument) };
    };
    let task = stack.low().cast::<Task>();
    // SAFETY: fresh memory, aligned to a page.
    unsafe { task.write(Task { start, argument }) };
    // SAFETY: the caller's promise; `begin` takes a stack's low end that has a task.
    let failed = unsafe { real(thread, attributes, begin, task.cast()) };
    if failed != 0 {
        stack.unmap();
    }
    failed
}

/// What a thread begins with: takes its stack for handlers, and leaves no frame behind.
#[unsafe(naked)]
extern "C" fn begin(low: *mut c_void) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {take}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "mov rdi, rdx",
        "jmp rax",
        ".cfi_endproc",
        take = sym take,
    )
}

/// Makes a stack this thread's; yields what the thread is to do, in two registers.
unsafe extern "C" fn take(low: *mut c_void) -> Task {
    // SAFETY: `pthread_create` has put it there.
    let task = unsafe { low.cast::<Task>().read() };
    let stack = HandlerStack {
        at: low.map_addr(|low| low - HandlerStack::GUARD),
    };
    stack.use_here();
    if let Some(key) = key() {
        // SAFETY: the key is there for good; the value is for `release`.
        unsafe { libc::pthread_setspecific(key, stack.at) };
    }
    task
}

/// The end of a thread, by its key.
unsafe extern "C" fn release(at: *mut c_void) {
    HandlerStack { at }.give_back();
}

/// The key whose destructor gives stacks back. Made when it is first asked for.
fn key() -> Option<libc::pthread_key_t> {
    /// The key and one, or 0.
    static KEY: AtomicUsize = AtomicUsize::new(0);
    let known = |word: usize| libc::pthread_key_t::try_from(word.wrapping_sub(1)).ok();
    if let Some(key) = known(KEY.load(Ordering::Acquire)) {
        return Some(key);
    }
    let mut key = 0;
    // SAFETY: `key` is this function's; `release` takes what `take` sets.
    let failed = unsafe { libc::pthread_key_create(&raw mut key, Some(release)) };
    if failed != 0 {
        return None;
    }
    let made = usize::try_from(key).ok()?.checked_add(1)?;
    match KEY.compare_exchange(0, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(key),
        Err(theirs) => {
            // SAFETY: made above, and nobody has seen it.
            unsafe { libc::pthread_key_delete(key) };
            known(theirs)
        }
    }
}
