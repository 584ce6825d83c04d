//! Broken stacks: no crash, no hang, and the frames before the damage are kept.

use std::sync::atomic::AtomicBool;

use super::*;

const PAGE_BYTES: usize = 4096;

fn map(pages: usize, protection: c_int) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, at any address.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            pages * PAGE_BYTES,
            protection,
            flags,
            -1,
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    at.addr()
}

/// The frames below a function with wrong unwind information: those of the function that walks, of
/// the body, and of itself.
fn walk(lies: &Library, function: &str, watcher: &mut Watcher, value: usize) {
    lies.call(function, watcher, value);
    let own = lies.symbol(function).addr() as u64;
    for found in [&watcher.found, &watcher.again] {
        assert!(found.len() >= 3, "{function} {value:#x}");
        assert!((own..own + 64).contains(&found[2]), "{function} {value:#x}");
    }
    // The first two depend on the walking function.
    assert_eq!(
        watcher.found[2..],
        watcher.again[2..],
        "{function} {value:#x}"
    );
    assert_eq!(watcher.errno, 77);
}

const FUNCTIONS: [&str; 2] = ["by_frame_pointer", "by_expression"];

#[test]
fn a_cfa_that_is_none() {
    let lies = Library::from_source("lies.S");
    let mut watcher = Watcher::new();
    watcher.asks_glibc = false;
    let none = map(4, libc::PROT_NONE);
    let (low, high) = (
        map(2, libc::PROT_READ | libc::PROT_WRITE),
        none + 4 * PAGE_BYTES,
    );
    // SAFETY: the second of the two pages just mapped.
    unsafe {
        libc::munmap(
            std::ptr::with_exposed_provenance_mut(low + PAGE_BYTES),
            PAGE_BYTES,
        )
    };
    let local = 0_u64;
    let here = (&raw const local).addr();
    for function in FUNCTIONS {
        for value in [
            0,
            1,
            8,
            16,
            none,
            none + PAGE_BYTES,
            high - 8,
            // Across the end of the mapping.
            low + PAGE_BYTES - 8,
            low + PAGE_BYTES - 4,
            low + PAGE_BYTES,
            low + PAGE_BYTES + 4,
            1 << 47,
            (1 << 47) - 16,
            (1 << 47) - 8,
            0xffff_8000_0000_0000,
            0xffff_ffff_ff60_0000,
            usize::MAX - 16,
            usize::MAX - 15,
            usize::MAX - 7,
            usize::MAX,
            // Below the stack pointer, and misaligned.
            here - (1 << 16),
            here + 1,
            here + 13,
        ] {
            for _ in 0..2 {
                walk(&lies, function, &mut watcher, value);
            }
            assert!(watcher.found.len() < MAX_FRAMES, "{function} {value:#x}");
        }
    }
}

/// A caller's frame pointer and an invalid return address, at any position.
#[test]
fn a_return_address_that_is_none() {
    let lies = Library::from_source("lies.S");
    let mut watcher = Watcher::new();
    watcher.asks_glibc = false;
    let mut heap = vec![0_usize; 64];
    let mut stack = [0_usize; 64];
    let data = (&raw const heap).addr();
    for words in [&mut heap[..], &mut stack[..]] {
        let base = words.as_ptr().addr();
        for return_address in [0, 1, 8, data, 1 << 47, base, usize::MAX, 0x40_0000] {
            for saved in [0, base + 32, usize::MAX - 15, 1 << 63] {
                words[..2].copy_from_slice(&[saved, return_address]);
                for (function, value) in FUNCTIONS.into_iter().zip([base, base + 16]) {
                    walk(&lies, function, &mut watcher, value);
                    let walk = watcher.walk.unwrap();
                    if return_address == 0 {
                        assert_eq!((walk.frames, walk.end), (3, End::ZeroReturnAddress));
                    }
                }
            }
        }
    }
}

/// A frame that is its own caller, and two that are each other's.
#[test]
fn circles() {
    let lies = Library::from_source("lies.S");
    let mut watcher = Watcher::new();
    watcher.asks_glibc = false;
    let code = lies.symbol("behind_call").addr();
    let mut heap = vec![0_usize; 64];
    let mut stack = [0_usize; 64];
    for words in [&mut heap[..], &mut stack[..]] {
        let base = words.as_ptr().addr();
        for other in [0, 4, 32] {
            words[..2].copy_from_slice(&[base + 8 * other, code]);
            words[other..other + 2].copy_from_slice(&[base, code]);
            walk(&lies, "by_frame_pointer", &mut watcher, base);
            assert_eq!(watcher.walk.unwrap().end, End::Loop);
            assert!(watcher.found.len() < 16);
        }
    }
}

/// There is unreadable memory between another stack and the thread's.
#[test]
fn on_another_stack() {
    // The first thread's stack is too far away.
    std::thread::spawn(below_the_stack_of_a_thread)
        .join()
        .unwrap();
}

fn below_the_stack_of_a_thread() {
    let local = 0_u64;
    let here = (&raw const local).addr();
    // A stack of 64 pages below an unreadable page, both below this thread's stack. Where threads
    // have ended, there is room above first.
    let mut stacks = std::iter::repeat_with(|| map(65, libc::PROT_READ | libc::PROT_WRITE));
    let is_below = |stack: &usize| stack + 64 * PAGE_BYTES < here;
    let stack = stacks.by_ref().take(10_000).find(is_below).unwrap();
    let guard = stack + 64 * PAGE_BYTES;
    // SAFETY: the last of the pages just mapped.
    unsafe {
        libc::mprotect(
            std::ptr::with_exposed_provenance_mut(guard),
            PAGE_BYTES,
            libc::PROT_NONE,
        )
    };
    leads_to_from(guard + 256, stack, &mut Watcher::new());
}

/// A main stack without a limit may grow to the heap, according to the C library. But the heap
/// grows, too.
#[test]
fn on_another_stack_below_one_without_limit() {
    let shell = ["sh", "-c", "ulimit -s unlimited; exec \"$0\" \"$@\""];
    alone_by(&shell, || on_main_thread(below_the_main_stack));
}

extern "C" fn below_the_main_stack(_: c_int) {
    let mut watcher = Watcher::new();
    // SAFETY: more memory for this test; the allocator copes with a break that has moved.
    let stack = unsafe { libc::sbrk(65 * 4096) };
    let stack = stack.addr().next_multiple_of(PAGE_BYTES);
    // Nothing is mapped there.
    leads_to_from(stack + (1 << 30), stack, &mut watcher);
    IS_DONE.store(true, Ordering::Release);
}

static IS_DONE: AtomicBool = AtomicBool::new(false);

/// Makes the first thread, which waits for this one, handle a signal.
fn on_main_thread(handler: extern "C" fn(c_int)) {
    // SAFETY: the handler may do anything: the thread waits in a system call.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    // SAFETY: takes nothing, cannot fail.
    let process = unsafe { libc::getpid() };
    // SAFETY: sends a signal.
    let failed = unsafe { libc::syscall(libc::SYS_tgkill, process, process, libc::SIGUSR1) };
    assert_eq!(failed, 0);
    while !IS_DONE.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

/// On a stack of 64 pages, a CFA that is elsewhere.
fn leads_to_from(cfa: usize, stack: usize, watcher: &mut Watcher) {
    struct DamagedWalk<'w> {
        lies: Library,
        watcher: &'w mut Watcher,
        value: usize,
    }
    extern "C" fn body(job: *mut Watcher) {
        // SAFETY: this is what is passed below.
        let job = unsafe { &mut *job.cast::<DamagedWalk<'_>>() };
        walk(&job.lies, "by_frame_pointer", job.watcher, job.value);
    }
    watcher.asks_glibc = false;
    let helpers = Library::from_source("helpers.c");
    let stack = std::ptr::with_exposed_provenance_mut(stack);
    let mut job = DamagedWalk {
        lies: Library::from_source("lies.S"),
        watcher,
        value: cfa,
    };
    let job = (&raw mut job).cast();
    places::in_coroutine(&helpers, body, job, stack, 64 * PAGE_BYTES);
}
