//! Stacks for handlers, one for each thread.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Gives this thread a stack for handlers, unless it has one. Without memory it gets none: then
/// handlers run on the thread's own stack.
pub(super) fn install_for_thread() {
    if current().ss_flags & libc::SS_DISABLE != 0
        && let Some(stack) = HandlerStack::map()
    {
        stack.use_here();
    }
}

/// The reserve stack for a report on a stack that is too small: its high end, or null if it is
/// taken.
static RESERVE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Makes the reserve in advance.
pub(super) fn make_reserve() {
    if let Some(stack) = HandlerStack::map() {
        let end = stack.at.map_addr(|at| at + HandlerStack::length());
        RESERVE.store(end, Ordering::Relaxed);
    }
}

type HandlerFn = unsafe extern "C" fn(*mut c_void);

/// Calls a function with enough stack for a report: on the reserve, if this is the program's own
/// small handler stack. `own` is that stack, as the kernel has stored it for this handler.
///
/// # Safety
///
/// The function can be called with the argument.
pub(super) unsafe fn call_with_room(
    own: &libc::stack_t,
    handler: HandlerFn,
    argument: *mut c_void,
) {
    // The reserve is never given back, even by a process that shares this one's memory.
    let reserve = if has_room(own) {
        ptr::null_mut()
    } else {
        RESERVE.swap(ptr::null_mut(), Ordering::AcqRel)
    };
    if reserve.is_null() {
        // SAFETY: the caller's promise.
        unsafe { handler(argument) }
    } else {
        let mut moved = ReserveCall { handler, argument };
        // SAFETY: the reserve has no other user; the function takes this.
        unsafe { call_on(reserve, run_on_reserve, (&raw mut moved).cast()) }
    }
}

/// The arguments of the call on the reserve.
struct ReserveCall {
    handler: HandlerFn,
    argument: *mut c_void,
}

unsafe extern "C" fn run_on_reserve(moved: *mut c_void) {
    // SAFETY: `call_with_room` passes it.
    let moved = unsafe { &*moved.cast::<ReserveCall>() };
    // A handler that interrupts this would begin at the high end of the old handler stack, and
    // overwrite the frames that this returns to. The kernel sets that stack again after this
    // handler.
    use_none();
    // SAFETY: the promise of `call_with_room`'s caller.
    unsafe { (moved.handler)(moved.argument) }
}

/// # Safety
///
/// `stack_end` is the high end of an unused stack; the function can be called with the argument.
#[unsafe(naked)]
unsafe extern "C" fn call_on(stack_end: *mut c_void, handler: HandlerFn, argument: *mut c_void) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbp, 0",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        ".cfi_def_cfa_register rsp",
        "pop rbp",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
    )
}

/// Whether a report has enough stack here. A thread's own stack is assumed to have it.
///
/// While a handler runs, the kernel may have cleared the handler stack in use (`SS_AUTODISARM`).
fn has_room(own: &libc::stack_t) -> bool {
    let here = 0_u8;
    let is_left = (&raw const here).addr().wrapping_sub(own.ss_sp.addr());
    is_left >= own.ss_size || is_left >= MAX_REPORT_BYTES
}

/// The maximum stack use of a report, in bytes.
const MAX_REPORT_BYTES: usize = 64 << 10;

/// This thread's stack for handlers.
fn current() -> libc::stack_t {
    // SAFETY: plain data.
    let mut now: libc::stack_t = unsafe { mem::zeroed() };
    // SAFETY: only a query.
    unsafe { libc::sigaltstack(ptr::null(), &raw mut now) };
    now
}

/// Makes handlers of this thread run on its current stack.
fn use_none() {
    let none = libc::stack_t {
        ss_sp: ptr::null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: 0,
    };
    // SAFETY: the thread does without from now on.
    unsafe { libc::sigaltstack(&raw const none, ptr::null_mut()) };
}

/// A stack for handlers, with an inaccessible page below it.
struct HandlerStack {
    at: *mut c_void,
}

/// At its low end, the start routine of a new thread.
#[repr(C)]
struct ThreadStart {
    start: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
}

impl HandlerStack {
    const GUARD_BYTES: usize = 4096;
    /// [`MAX_REPORT_BYTES`] is less. But the program's own handlers with `SA_ONSTACK` now run here,
    /// too. They had the thread's whole stack if the program made no handler stacks. Untouched
    /// pages cost nothing.
    const STACK_BYTES: usize = 1 << 20;

    /// The total size: in addition to the handler's, the kernel's saved registers.
    fn length() -> usize {
        // SAFETY: reads a constant of the process; cannot fail.
        let kernels = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) };
        let kernels = usize::try_from(kernels).unwrap_or(0);
        (Self::GUARD_BYTES + Self::STACK_BYTES + kernels).next_multiple_of(Self::GUARD_BYTES)
    }

    fn map() -> Option<HandlerStack> {
        // SAFETY: a new mapping, at no fixed address.
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
        unsafe { libc::mprotect(at, Self::GUARD_BYTES, libc::PROT_NONE) };
        Some(HandlerStack { at })
    }

    fn unmap(&self) {
        // SAFETY: mapped by `map` with this length, and no handler runs on it.
        unsafe { libc::munmap(self.at, Self::length()) };
    }

    fn low(&self) -> *mut c_void {
        self.at.map_addr(|at| at + Self::GUARD_BYTES)
    }

    /// Installs it in this thread, which has none.
    fn use_here(&self) {
        let stack = libc::stack_t {
            ss_sp: self.low(),
            ss_flags: 0,
            ss_size: Self::length() - Self::GUARD_BYTES,
        };
        // SAFETY: the stack stays mapped until `free`.
        unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) };
    }

    /// Unmaps it at the end of its thread.
    fn free(&self) {
        if current().ss_sp == self.low() {
            use_none();
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

/// Looks up the C library's function in advance.
pub(super) fn find_pthread_create() {
    let _ = real_pthread_create();
}

/// The C library's function.
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

/// `pthread_create`, for threads with a stack for handlers.
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
    let task = stack.low().cast::<ThreadStart>();
    // SAFETY: fresh memory, aligned to a page.
    unsafe { task.write(ThreadStart { start, argument }) };
    // SAFETY: the caller's promise; `thread_entry` takes a stack's low end that has a task.
    let failed = unsafe { real(thread, attributes, thread_entry, task.cast()) };
    if failed != 0 {
        stack.unmap();
    }
    failed
}

/// A thread's entry point: installs its stack for handlers, and leaves no frame.
#[unsafe(naked)]
extern "C" fn thread_entry(low: *mut c_void) -> *mut c_void {
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

/// Installs the stack in this thread; returns the thread's start routine and argument, in two
/// registers.
unsafe extern "C" fn take(low: *mut c_void) -> ThreadStart {
    // SAFETY: `pthread_create` has put it there.
    let task = unsafe { low.cast::<ThreadStart>().read() };
    let stack = HandlerStack {
        at: low.map_addr(|low| low - HandlerStack::GUARD_BYTES),
    };
    stack.use_here();
    if let Some(key) = key() {
        // SAFETY: the key is never deleted; the value is for `release`.
        unsafe { libc::pthread_setspecific(key, stack.at) };
    }
    task
}

/// Called by the key at the end of a thread.
unsafe extern "C" fn release(at: *mut c_void) {
    HandlerStack { at }.free();
}

/// The key with the destructor that releases stacks. Made on first use.
fn key() -> Option<libc::pthread_key_t> {
    /// The key plus one, or 0.
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
            // SAFETY: made above, and not published.
            unsafe { libc::pthread_key_delete(key) };
            known(theirs)
        }
    }
}
