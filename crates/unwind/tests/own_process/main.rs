//! The own stack in unusual states, against the C library's own `backtrace`; and broken stacks.
#![cfg(test)]
#![cfg(target_arch = "x86_64")]
#![expect(unsafe_code, reason = "calls C")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::{CString, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use unspool_rows::{Memory, Register, Registers, RuntimeAddr};
use unspool_testing::{Finish as _, alone, alone_by, scratch_folder, this_test, tool};
use unspool_unwind::local::{self, OwnCursor, OwnMemory, OwnRegisterLocation, OwnThread};
use unspool_unwind::{Cursor, End, Step, WalkResult};

mod damaged;
mod frames;
mod handlers;
mod memory;
mod own_stack;
mod own_thread;
mod places;
mod plugins;
mod sframe;
mod statistics;

/// Walks and signal handlers allocate nothing: meanwhile any allocation on their thread is an
/// error.
struct Watching;

#[global_allocator]
static ALLOCATOR: Watching = Watching;

thread_local! {
    static MAY_NOT_ALLOCATE: Cell<bool> = const { Cell::new(false) };
}

fn assert_may() {
    if MAY_NOT_ALLOCATE.get() {
        std::process::abort();
    }
}

// SAFETY: memory is the system's.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        assert_may();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        assert_may();
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

unsafe extern "C" {
    fn backtrace(addresses: *mut *mut c_void, size: c_int) -> c_int;
}

const MAX_FRAMES: usize = 6000;

/// `rax` to `r15`, and `rip`.
const REGISTERS: u16 = 17;

/// The callback of the helpers.
type Body = extern "C" fn(*mut Watcher);

/// A function of the helpers.
type CallFn<A> = unsafe extern "C" fn(Body, *mut Watcher, A) -> c_int;

/// Walks the stack of its thread when it is called.
struct Watcher {
    thread: OwnThread,
    /// Whether the C library is used, too.
    asks_glibc: bool,
    expected: Vec<u64>,
    found: Vec<u64>,
    again: Vec<u64>,
    walk: Option<WalkResult>,
    errno: c_int,
    /// The number of frames that a cursor found, each with the registers of the interpreter alone.
    by_cursor: usize,
    /// Reserved in advance: a handler does not allocate.
    room: Vec<RuntimeAddr>,
}

impl Watcher {
    fn new() -> Self {
        let mut watcher = Watcher {
            thread: OwnThread::new(),
            asks_glibc: true,
            expected: Vec::with_capacity(MAX_FRAMES),
            found: Vec::with_capacity(MAX_FRAMES),
            again: Vec::with_capacity(MAX_FRAMES),
            walk: None,
            errno: 0,
            by_cursor: 0,
            room: vec![RuntimeAddr(0); MAX_FRAMES],
        };
        // The first call loads a library.
        watcher.ask_glibc();
        watcher
    }

    /// Return addresses: the first in here.
    #[inline(never)]
    fn ask_glibc(&mut self) {
        let mut addresses = [std::ptr::null_mut(); MAX_FRAMES];
        // SAFETY: the buffer has room for this many.
        let count = unsafe { backtrace(addresses.as_mut_ptr(), 6000) };
        let found = addresses.iter().take(usize::try_from(count).unwrap());
        self.expected.clear();
        self.expected.extend(found.map(|addr| addr.addr() as u64));
    }

    /// The same, by our walk.
    #[inline(never)]
    fn ask_memo(&mut self) {
        let walk = self.thread.walk(&mut self.room);
        self.found.clear();
        let found = self.room[..walk.frames].iter();
        self.found.extend(found.map(|address| address.0));
        self.walk = Some(walk);
    }

    #[inline(never)]
    fn ask_afresh(&mut self) {
        let walk = self.thread.walk_afresh(&mut self.room);
        self.again.clear();
        let found = self.room[..walk.frames].iter();
        self.again.extend(found.map(|address| address.0));
    }

    /// Frame by frame, with all registers.
    #[inline(never)]
    fn ask_cursor(&mut self) {
        let memory = OwnMemory::with_own_stack();
        self.by_cursor = local::with_cursor(|cursor| {
            let mut registers = Registers::new();
            for number in 0..REGISTERS {
                if let Some(value) = cursor.register(number) {
                    registers.set(Register(number), value);
                }
            }
            let mut reference = Cursor::with_code(local::ABI, cursor.code(), registers);
            (0..)
                .take_while(|_| {
                    let step = reference.step(local::modules(), &memory);
                    let evidence = match step {
                        Step::Caller(found) => Some(found.evidence),
                        Step::End(_) => None,
                    };
                    cursor.step() && evidence == cursor.evidence() && is_same(cursor, &reference)
                })
                .count()
        });
    }

    /// The body of a call.
    extern "C" fn watch(this: *mut Watcher) {
        // SAFETY: the caller of the helper waits for it to return.
        let this = unsafe { &mut *this };
        if this.asks_glibc {
            this.ask_glibc();
        }
        // SAFETY: a number of the own thread.
        unsafe { errno().write(77) };
        MAY_NOT_ALLOCATE.set(true);
        // The second time all of it is remembered, except after useless memos.
        for _ in 0..2 {
            this.ask_memo();
        }
        this.ask_afresh();
        this.ask_cursor();
        MAY_NOT_ALLOCATE.set(false);
        // SAFETY: a number of the own thread.
        this.errno = unsafe { errno().read() };
    }

    /// Our result equals the C library's, up to an outermost frame.
    fn assert_same(&self, place: &str) {
        self.assert_same_frames(place);
        assert_eq!(self.walk.unwrap().end, End::Outermost, "{place}");
    }

    fn assert_same_frames(&self, place: &str) {
        // The first frame belongs to the walking function, the second to the body.
        assert_eq!(self.found[2..], self.expected[2..], "{place}");
        assert_eq!(self.again[2..], self.expected[2..], "{place}");
        assert_eq!(self.walk.unwrap().guesses, 0, "{place}");
        // It begins with the walking function, which it does not count.
        assert_eq!(self.by_cursor, self.found.len() - 1, "{place}");
        assert_eq!(self.errno, 77, "{place}");
    }
}

/// Whether a cursor's frame equals the reference, with all registers at their reported locations.
fn is_same(cursor: &OwnCursor, reference: &Cursor) -> bool {
    cursor.code() == reference.code()
        && (0..REGISTERS).all(|number| {
            let value = reference.registers().get(Register(number));
            let stored = match cursor.register_location(number) {
                OwnRegisterLocation::Memory(addr) => {
                    let mut word = [0; 8];
                    let read = OwnMemory::with_own_stack().read(addr, &mut word);
                    read.ok().map(|()| u64::from_le_bytes(word))
                }
                OwnRegisterLocation::SameRegister | OwnRegisterLocation::Value => value,
                OwnRegisterLocation::Unrecoverable => None,
            };
            value == cursor.register(number) && value == stored
        })
}

/// The own thread's.
fn errno() -> *mut c_int {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::__errno_location() }
}

fn directory() -> PathBuf {
    scratch_folder(Path::new(env!("CARGO_TARGET_TMPDIR")), "own-process")
}

/// A shared library from a source beside this file.
fn build(source: &str, to: &Path, options: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/own_process");
    let mut gcc = tool("gcc");
    gcc.args(["-O1", "-shared", "-fPIC", "-o"]).arg(to);
    gcc.arg(folder.join(source)).args(options).succeed();
}

/// A loaded library.
struct Library(*mut c_void);

impl Library {
    fn open(path: &Path) -> Library {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: loads a library that has no initializers of its own.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{path:?}");
        Library(handle)
    }

    fn from_source(source: &str) -> Library {
        let path = directory().join("library.so");
        build(source, &path, &[]);
        Library::open(&path)
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the library is open.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!symbol.is_null(), "{name:?}");
        symbol
    }

    /// Calls a function that takes a body, the body's argument, and one more argument.
    fn call<A>(&self, name: &str, watcher: &mut Watcher, argument: A) -> c_int {
        let symbol = self.symbol(name);
        // SAFETY: the functions of the helpers are of this type, or take fewer arguments.
        let call = unsafe { std::mem::transmute::<*mut c_void, CallFn<A>>(symbol) };
        // SAFETY: the watcher outlives the call.
        unsafe { call(Watcher::watch, watcher, argument) }
    }

    fn close(self) {
        // SAFETY: nothing of it is used any more.
        let failed = unsafe { libc::dlclose(self.0) };
        assert_eq!(failed, 0);
    }
}
