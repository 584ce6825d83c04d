//! Walks with each thread's state, in threads and in signal handlers, against the C library's own
//! `backtrace`.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use unspool_rows::{CodeAddr, Register, Registers, RuntimeAddr};
use unspool_testing::alone;
use unspool_unwind::local::{self, OwnCursor, OwnRegisterLocation, SignalRegisters};
use unspool_unwind::{Cursor, End, Evidence, WalkResult};

use crate::MAY_NOT_ALLOCATE;
use crate::frames::{below, by_glibc};

const MAX_FRAMES: usize = 600;

/// Every frame except the innermost, where the two walks differ.
fn assert_same_as_glibc() {
    let expected = by_glibc();
    let mut addresses = [RuntimeAddr(0); MAX_FRAMES];
    let walk = local::walk(&mut addresses);
    let found: Vec<u64> = addresses[..walk.frames].iter().map(|a| a.0).collect();
    assert_eq!(found[1..], expected[1..]);
    assert_eq!((walk.end, walk.guesses), (End::Outermost, 0));
}

#[test]
fn any_thread_may_walk() {
    let walks = || {
        for depth in [0, 3, 60, 300, 60, 60, 2] {
            below(depth, &mut assert_same_as_glibc);
        }
    };
    let first_without = move || {
        walks();
        local::prepare_thread().unwrap();
        walks();
        local::prepare_thread().unwrap();
        walks();
    };
    thread::spawn(first_without).join().unwrap();
    thread::spawn(walks).join().unwrap();
}

/// A cursor finds the same frames; registers reported in memory are there.
#[test]
fn frame_by_frame() {
    let check = || {
        let expected = by_glibc();
        let found = local::with_cursor(|cursor| {
            let mut found = Vec::new();
            let mut saved = 0;
            assert_eq!(cursor.evidence(), None);
            loop {
                found.push(cursor.code().address().0);
                for register in [3, 6, 12, 13, 14, 15] {
                    let OwnRegisterLocation::Memory(at) = cursor.register_location(register) else {
                        continue;
                    };
                    let at = usize::try_from(at.0).unwrap();
                    let at = std::ptr::with_exposed_provenance::<u64>(at);
                    // SAFETY: a frame that has not returned has saved a register there.
                    let word = unsafe { at.read() };
                    assert_eq!(cursor.register(register), Some(word));
                    saved += 1;
                }
                if !cursor.step() {
                    break;
                }
                assert_eq!(cursor.evidence(), Some(Evidence::Cfi));
            }
            assert_eq!(cursor.end(), Some(End::Outermost));
            assert!(saved > 10, "{saved}");
            found
        });
        assert_eq!(found[1..], expected[1..]);
    };
    below(30, &mut || check());
}

// Two adjacent functions. The first ends in a call that never returns: its return address is the
// second's first instruction.
std::arch::global_asm!(
    ".text",
    "unspool_test_never_returns:",
    ".cfi_startproc",
    ".cfi_def_cfa_offset 32",
    "call unspool_test_behind",
    ".cfi_endproc",
    ".globl unspool_test_behind",
    "unspool_test_behind:",
    ".cfi_startproc",
    "ret",
    ".cfi_endproc",
);

unsafe extern "C" {
    fn unspool_test_behind();
}

/// A return address has another row than the instruction at the same address.
#[test]
fn an_address_that_is_returned_to_and_interrupted() {
    let address = unspool_test_behind as *const () as u64;
    let stack: [u64; 8] = [0x1111, 0, 0, 0x2222, 0, 0, 0, 0];
    let mut registers = Registers::new();
    let top = black_box(&stack).as_ptr().expose_provenance();
    registers.set(Register(7), top as u64);
    let mut places = [OwnRegisterLocation::Unrecoverable; 17];
    places[7] = OwnRegisterLocation::SameRegister;
    for _ in 0..3 {
        for (code, caller) in [
            (CodeAddr::Return(RuntimeAddr(address)), 0x2222),
            (CodeAddr::Instruction(RuntimeAddr(address)), 0x1111),
        ] {
            let mut cursor = OwnCursor::new(Cursor::with_code(local::ABI, code, registers), places);
            assert!(cursor.step());
            assert_eq!(cursor.code(), CodeAddr::Return(RuntimeAddr(caller)));
        }
    }
}

/// A handler's result, in preallocated memory.
struct HandlerWalk {
    addresses: [RuntimeAddr; MAX_FRAMES],
    walk: Option<WalkResult>,
}

thread_local! {
    static FOUND: RefCell<HandlerWalk> = const {
        RefCell::new(HandlerWalk { addresses: [RuntimeAddr(0); MAX_FRAMES], walk: None })
    };
}

fn install(signal: c_int, handler: extern "C" fn(c_int, *mut c_void, *mut c_void), flags: c_int) {
    // SAFETY: plain data, zero is the default.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | flags;
    // SAFETY: the handler takes the arguments of such handlers.
    let failed = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    assert_eq!(failed, 0);
}

extern "C" fn walk_what_was_interrupted(_: c_int, _: *mut c_void, context: *mut c_void) {
    // SAFETY: the kernel's, until the handler returns.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    FOUND.with_borrow_mut(|found| {
        found.walk = Some(local::walk_from(
            &SignalRegisters::from(context),
            &mut found.addresses,
        ));
    });
}

/// From the context of a handler on the same stack, and on its own: the interrupted address and
/// every caller.
#[test]
fn a_handler_walks_the_interrupted_frames() {
    let check = |on_stack: bool| {
        let flags = if on_stack { libc::SA_ONSTACK } else { 0 };
        let signal = if on_stack { libc::SIGIO } else { libc::SIGURG };
        install(signal, walk_what_was_interrupted, flags);
        below(20, &mut || {
            let expected = by_glibc();
            // SAFETY: its handler is the one above.
            unsafe { libc::raise(signal) };
            FOUND.with_borrow(|found| {
                let walk = found.walk.unwrap();
                assert_eq!((walk.end, walk.guesses), (End::Outermost, 0));
                let addresses: Vec<u64> =
                    found.addresses[..walk.frames].iter().map(|a| a.0).collect();
                let outer = expected.len() - 1;
                // `raise` and its callees, this closure, and all outer frames.
                assert!(addresses.len() > outer + 1);
                assert_eq!(addresses[addresses.len() - outer..], expected[1..]);
            });
        });
    };
    thread::spawn(move || {
        let mut stack = vec![0_u8; 1 << 16];
        let alternate = libc::stack_t {
            ss_sp: stack.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: stack.len(),
        };
        // Rust's own is small.
        // SAFETY: the stack stays mapped for as long as the thread.
        let failed = unsafe { libc::sigaltstack(&raw const alternate, std::ptr::null_mut()) };
        assert_eq!(failed, 0);
        check(true);
        check(false);
        local::prepare_thread().unwrap();
        check(true);
        check(false);
        // Before the stack is freed.
        let none = libc::stack_t {
            ss_flags: libc::SS_DISABLE,
            ..alternate
        };
        // SAFETY: no handler runs.
        unsafe { libc::sigaltstack(&raw const none, std::ptr::null_mut()) };
        drop(stack);
    })
    .join()
    .unwrap();
}

/// The frames outside of the signal storm: the last of every walk in it.
static OUTER: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
static HANDLED: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);

fn is_right(addresses: &[RuntimeAddr], walk: WalkResult) -> bool {
    let outer = OUTER.iter().map(|a| a.load(Ordering::Relaxed));
    let outer = outer.take_while(|address| *address != 0);
    let mut pairs = addresses[..walk.frames].iter().rev().zip(outer);
    (walk.end, walk.guesses) == (End::Outermost, 0)
        && pairs.all(|(found, expected)| found.0 == expected)
}

extern "C" fn walk_in_the_storm(_: c_int, _: *mut c_void, _: *mut c_void) {
    MAY_NOT_ALLOCATE.set(true);
    // SAFETY: takes nothing, cannot fail.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the own thread's.
    unsafe { errno.write(55) };
    let mut addresses = [RuntimeAddr(0); MAX_FRAMES];
    let walk = local::walk(&mut addresses);
    // SAFETY: the own thread's.
    let errno = unsafe { errno.read() };
    if !is_right(&addresses, walk) || errno != 55 {
        WRONG.fetch_add(1, Ordering::Relaxed);
    }
    HANDLED.fetch_add(1, Ordering::Relaxed);
    MAY_NOT_ALLOCATE.set(false);
}

/// Signals arrive as fast as possible while the thread walks: at any instruction of a walk.
#[test]
fn a_storm_of_signals() {
    const SIGNALS: u64 = 2_000;
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    install(libc::SIGPROF, walk_in_the_storm, 0);
    let target = thread::spawn(|| {
        local::prepare_thread().unwrap();
        for (slot, address) in OUTER.iter().zip(by_glibc().iter().skip(1).rev()) {
            slot.store(*address, Ordering::Relaxed);
        }
        // SAFETY: takes nothing.
        let this = unsafe { libc::pthread_self() };
        let sender = thread::spawn(move || {
            while HANDLED.load(Ordering::Relaxed) < SIGNALS {
                // SAFETY: the thread waits for this one.
                unsafe { libc::pthread_kill(this, libc::SIGPROF) };
            }
            IS_OVER.store(true, Ordering::Relaxed);
        });
        let mut depth = 0;
        while !IS_OVER.load(Ordering::Relaxed) {
            depth = (depth + 7) % 200;
            below(depth, &mut || {
                let mut addresses = [RuntimeAddr(0); MAX_FRAMES];
                let walk = local::walk(&mut addresses);
                assert!(is_right(&addresses, walk), "{walk:?}");
            });
        }
        sender.join().unwrap();
    });
    target.join().unwrap();
    assert_eq!(WRONG.load(Ordering::Relaxed), 0);
}

/// In pages.
fn mapped() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').next().unwrap().parse().unwrap()
}

/// A thread's state is freed when it ends. In its own process, where no other thread maps anything.
#[test]
fn a_thread_leaves_nothing_behind() {
    alone(|| {
        let prepared = || {
            local::prepare_thread().unwrap();
            assert_same_as_glibc();
        };
        thread::spawn(prepared).join().unwrap();
        let before = mapped();
        for _ in 0..100 {
            thread::spawn(prepared).join().unwrap();
        }
        let pages = mapped() - before;
        // A hundred times 60 KiB would be 1500 pages.
        assert!(pages < 300, "{pages} pages");
    });
}

/// State freed at a thread's end is not mapped again by later destructors: the thread's end would
/// not be reported again.
#[test]
fn a_thread_is_not_prepared_at_its_end() {
    static ANSWER: AtomicU64 = AtomicU64::new(0);
    unsafe extern "C" fn prepare_again(_: *mut c_void) {
        let answer = match local::prepare_thread() {
            Ok(()) => 1,
            Err(local::PrepareError(libc::ESRCH)) => 2,
            Err(_) => 3,
        };
        ANSWER.store(answer, Ordering::Relaxed);
    }
    let mut key = 0;
    // SAFETY: the key is this test's.
    let failed = unsafe { libc::pthread_key_create(&raw mut key, Some(prepare_again)) };
    assert_eq!(failed, 0);
    let thread = thread::spawn(move || {
        local::prepare_thread().unwrap();
        // SAFETY: any value except null has the destructor called.
        unsafe { libc::pthread_setspecific(key, std::ptr::dangling::<c_void>()) };
    });
    thread.join().unwrap();
    assert_eq!(ANSWER.load(Ordering::Relaxed), 2);
}
