//! Guarantees for signal handlers: no system call, no lock, and little stack.

use std::hint::black_box;
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::mpsc;
use std::thread;

use super::frames::below;
use super::*;

/// Runs a function in a child process; yields its exit status. The child does not unwind.
fn in_child(body: impl FnOnce()) -> c_int {
    // SAFETY: the child does only what is allowed after a fork, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        body();
        // SAFETY: ends the child.
        unsafe { libc::_exit(97) };
    }
    let mut status = -1;
    // SAFETY: waits for the own child.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    status
}

/// A new walker, and room for its result.
struct Fresh {
    thread: OwnThread,
    room: Vec<RuntimeAddr>,
}

impl Fresh {
    fn new() -> Self {
        Fresh {
            thread: OwnThread::new(),
            room: vec![RuntimeAddr(0); MAX_FRAMES],
        }
    }

    /// The number of frames up to the outermost, or zero.
    fn depth(&mut self) -> usize {
        let walk = self.thread.walk(&mut self.room);
        match walk.end {
            End::Outermost => walk.frames,
            _ => 0,
        }
    }
}

/// Any system call except exit kills the child. Neither its first walks, which find modules and
/// rules, nor later ones make any.
#[test]
fn no_system_call_on_the_own_stack() {
    let mut fresh = Fresh::new();
    let status = in_child(|| {
        below(300, &mut || {
            // SAFETY: from here on this thread may read, write, and end.
            let failed = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) };
            let depths = [(); 3].map(|()| fresh.depth());
            let is_right = failed == 0 && depths[0] > 300 && depths == [depths[0]; 3];
            // SAFETY: ends the thread: ending the process is not allowed.
            unsafe { libc::syscall(libc::SYS_exit, c_int::from(!is_right)) };
        });
    });
    assert_eq!(status, 0, "{status:#x}");
}

/// The same for a system call, which shows that the filter works.
#[test]
fn the_filter_kills() {
    let status = in_child(|| {
        // SAFETY: as above.
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) };
        // SAFETY: takes nothing.
        unsafe { libc::getppid() };
    });
    assert_eq!(status, libc::SIGKILL);
}

/// Another thread has the loader's lock until the walk is done.
#[test]
fn while_another_thread_loads() {
    struct Turns {
        holds: mpsc::Sender<()>,
        is_done: mpsc::Receiver<()>,
    }
    unsafe extern "C" fn hold(_: *mut libc::dl_phdr_info, _: usize, turns: *mut c_void) -> c_int {
        // SAFETY: what is passed below.
        let turns = unsafe { &*turns.cast::<Turns>() };
        turns.holds.send(()).unwrap();
        turns.is_done.recv().unwrap();
        1
    }
    let mut fresh = Fresh::new();
    let (holds, is_held) = mpsc::channel();
    let (done, is_done) = mpsc::channel();
    let other = thread::spawn(move || {
        let mut turns = Turns { holds, is_done };
        // SAFETY: the function takes what it is given here.
        unsafe { libc::dl_iterate_phdr(Some(hold), (&raw mut turns).cast()) };
    });
    is_held.recv().unwrap();
    for _ in 0..3 {
        assert_ne!(fresh.depth(), 0);
    }
    done.send(()).unwrap();
    other.join().unwrap();
}

/// Other threads held any locks when the process was forked, and are gone.
#[test]
fn after_a_fork_amid_other_threads() {
    static IS_OVER: AtomicU32 = AtomicU32::new(0);
    let threads = [0, 1].map(|_| {
        thread::spawn(|| {
            while IS_OVER.load(Ordering::Relaxed) == 0 {
                black_box(format!("{:p}", &raw const IS_OVER));
                // SAFETY: a library that is loaded anyway.
                let library = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW) };
                // SAFETY: it was just opened.
                unsafe { libc::dlclose(library) };
            }
        })
    });
    let mut fresh = Fresh::new();
    for _ in 0..30 {
        let status = in_child(|| {
            let depths = [(); 3].map(|()| fresh.depth());
            let is_right = depths[0] > 3 && depths == [depths[0]; 3];
            // SAFETY: ends the child.
            unsafe { libc::_exit(c_int::from(!is_right)) };
        });
        assert_eq!(status, 0, "{status:#x}");
    }
    IS_OVER.store(1, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
}

/// The limit of a walk's use of a handler's stack, in bytes, without the kernel's part: with tables
/// read as linked.
const STACK: usize = 24 << 10;

static FRESH: AtomicPtr<Fresh> = AtomicPtr::new(ptr::null_mut());

/// In the handler of a stack overflow: ends the process with the number of KiB of stack used.
extern "C" fn overflown(_: c_int) {
    // SAFETY: set below; the thread has nothing else to do.
    let fresh = unsafe { &mut *FRESH.load(Ordering::Relaxed) };
    let here = black_box([0_u8; 8]);
    let low = here.as_ptr().addr() - STACK - 1024;
    // The alternate stack below this function is not in use.
    for word in (low..here.as_ptr().addr() - 1024).step_by(8) {
        // SAFETY: see above.
        unsafe { ptr::with_exposed_provenance_mut::<u64>(word).write_volatile(PATTERN) };
    }
    let depth = fresh.depth();
    let untouched = (low..).step_by(8).take_while(|word| {
        // SAFETY: written just now.
        unsafe { ptr::with_exposed_provenance::<u64>(*word).read_volatile() == PATTERN }
    });
    let used = here.as_ptr().addr() - low - 8 * untouched.count();
    let code = match depth {
        // More frames than fit.
        0 if fresh.thread.walk(&mut fresh.room).end == End::Limit => used.div_ceil(1024),
        _ => 99,
    };
    // SAFETY: ends the child.
    unsafe { libc::_exit(c_int::try_from(code).unwrap_or(98)) };
}

const PATTERN: u64 = 0x5eed_5eed_5eed_5eed;

/// Recurses until the stack ends.
#[inline(never)]
fn fall(depth: usize) -> usize {
    let locals = black_box([depth; 5]);
    match black_box(depth) {
        usize::MAX => 0,
        _ => fall(depth + 1) + black_box(locals)[0],
    }
}

#[test]
fn a_handler_walks_an_overflowed_stack() {
    let status = in_child(|| {
        FRESH.store(Box::leak(Box::new(Fresh::new())), Ordering::Relaxed);
        let stack = libc::stack_t {
            ss_sp: vec![0_u64; 1 << 12].leak().as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: 8 << 12,
        };
        // SAFETY: memory that is never freed.
        unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) };
        // SAFETY: plain numbers.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = overflown as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        // SAFETY: the handler ends the process.
        unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut()) };
        fall(0);
    });
    let used = libc::WEXITSTATUS(status);
    assert!(libc::WIFEXITED(status) && used > 1, "{status:#x}");
    assert!(usize::try_from(used).unwrap() << 10 <= STACK, "{used} KiB");
}
