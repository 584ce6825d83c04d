//! Frames, stacks and contexts of many kinds.

use super::*;

/// `int f(body *, void *, int, int)`.
type InHandler = unsafe extern "C" fn(Body, *mut Watcher, c_int, c_int) -> c_int;

/// `void f(body *, void *, void *, size_t)`.
type InCoroutine = unsafe extern "C" fn(Body, *mut Watcher, *mut c_void, usize);

fn in_handler(helpers: &Library, watcher: &mut Watcher, alternate: c_int, timer: c_int) {
    let symbol = helpers.symbol("in_handler");
    // SAFETY: it is of this type.
    let call = unsafe { std::mem::transmute::<*mut c_void, InHandler>(symbol) };
    // SAFETY: the watcher outlives the call.
    let failed = unsafe { call(Watcher::watch, watcher, alternate, timer) };
    assert_eq!(failed, 0);
}

pub(super) fn in_coroutine(
    helpers: &Library,
    body: Body,
    watcher: *mut Watcher,
    stack: *mut c_void,
    size: usize,
) {
    let symbol = helpers.symbol("in_coroutine");
    // SAFETY: it is of this type.
    let call = unsafe { std::mem::transmute::<*mut c_void, InCoroutine>(symbol) };
    // SAFETY: the stack and the watcher outlive the call.
    unsafe { call(body, watcher, stack, size) };
}

fn in_all_frames(helpers: &Library, watcher: &mut Watcher) {
    for (name, argument) in [
        ("frame_of_10_kb", 0_usize),
        ("frame_of_100_kb", 0),
        ("with_alloca", 100),
        ("with_alloca", 20_000),
        ("aligned_to_256", 0),
        ("aligned_with_alloca", 3000),
        ("deep", 10),
        ("deep", 700),
        ("deep", 5000),
        ("deep", 300),
    ] {
        // Again with the memo.
        for _ in 0..3 {
            helpers.call(name, watcher, argument);
            watcher.assert_same(name);
        }
    }
    helpers.call("deep", watcher, 5000_usize);
    assert!(watcher.found.len() > 5000);
}

#[test]
fn in_a_handler_of_a_raised_signal() {
    let helpers = Library::from_source("helpers.c");
    let mut watcher = Watcher::new();
    for alternate in [0, 1, 0, 1, 1] {
        in_handler(&helpers, &mut watcher, alternate, 0);
        watcher.assert_same(&format!("alternate {alternate}"));
        // The signal frame and the interrupted frame are stepped by rules, from the first walk on.
        assert_eq!(watcher.walk.unwrap().stats.by_cursor, 0);
    }
}

#[test]
fn in_frames_of_many_kinds() {
    let helpers = Library::from_source("helpers.c");
    in_all_frames(&helpers, &mut Watcher::new());
}

/// Frames that align their stack are remembered like all others.
#[test]
fn realigned_frames_are_remembered() {
    let helpers = Library::from_source("helpers.c");
    let mut watcher = Watcher::new();
    // After walks with useless memos some are not remembered.
    for _ in 0..20 {
        helpers.call("aligned_with_alloca", &mut watcher, 3000_usize);
    }
    watcher.assert_same("aligned_with_alloca");
    let walk = watcher.walk.unwrap();
    let remembered = usize::try_from(walk.stats.remembered).unwrap();
    assert!(remembered + 2 >= walk.frames, "{walk:?}");
}

#[test]
fn in_coroutines() {
    let helpers = Library::from_source("helpers.c");
    let mut watcher = Watcher::new();
    let mut stack = vec![0_u64; 1 << 17];
    for _ in 0..3 {
        let (at, size) = (stack.as_mut_ptr().cast(), 8 * stack.len());
        in_coroutine(&helpers, Watcher::watch, &raw mut watcher, at, size);
        // A return to glibc's `__start_context` is to its first byte: the row may or may not be
        // found.
        watcher.assert_same_frames("coroutine");
        assert!(watcher.found.len() < 8, "the coroutine's frames only");
        helpers.call("deep", &mut watcher, 10_usize);
        watcher.assert_same("back");
    }
}

#[test]
fn after_a_fork() {
    alone(in_a_child);
}

fn in_a_child() {
    let helpers = Library::from_source("helpers.c");
    let mut watcher = Watcher::new();
    helpers.call("deep", &mut watcher, 10_usize);
    // SAFETY: the child walks, compares and exits; no other thread has a lock.
    let child = unsafe { libc::fork() };
    if child == 0 {
        helpers.call("deep", &mut watcher, 12_usize);
        let is_same = watcher.found[2..] == watcher.expected[2..];
        // SAFETY: ends the child.
        unsafe { libc::_exit(c_int::from(!is_same || watcher.found.len() < 14)) };
    }
    let mut status = -1;
    // SAFETY: waits for the own child.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0));
}

/// The timer counts the process's time, and its signal goes to any thread that does not block it.
#[test]
fn in_a_timers_handler() {
    alone(|| {
        let helpers = Library::from_source("helpers.c");
        let mut watcher = Watcher::new();
        for alternate in [0, 1, 0, 1] {
            in_handler(&helpers, &mut watcher, alternate, 1);
            watcher.assert_same(&format!("alternate {alternate}"));
        }
    });
}
