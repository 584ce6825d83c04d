//! Samples at random addresses of threads that throw, jump, switch stacks, load and unload
//! libraries. Every stack has all frames of its thread's shadow stack, and reaches its root.
//!
//! `cargo xtask soak` takes more of them.
#![cfg(test)]
#![cfg(target_arch = "x86_64")]
#![expect(unsafe_code, reason = "signals and C++")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests panic on failure"
)]

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use unspool_rows::RuntimeAddr;
use unspool_testing::{Finish as _, scratch, tool};
use unspool_unwind::WalkResult;
use unspool_unwind::local::{OwnThread, modules};

/// The number of samples, unless the environment sets it.
const SAMPLES: u64 = 20_000;

/// Depths are at most 60 calls of `go_on`, each with a function or two between.
const MAX_FRAMES: usize = 1000;

/// A thread's shadow stack: see `workload.cc`.
#[repr(C)]
struct Shadow {
    depth: usize,
    base: usize,
    is_valid: usize,
    addresses: [u64; 4096],
}

/// A sampled thread. Used by itself and its handler.
struct SampledThread {
    thread: OwnThread,
    shadow: *mut Shadow,
    timer: libc::timer_t,
    random: u64,
    installers: [u64; INSTALLERS.len()],
    addresses: [RuntimeAddr; MAX_FRAMES],
    tally: Tally,
    failures: [SampleFailure; 8],
    noted: usize,
}

/// The counts of samples.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    samples: u64,
    /// While stacks were switched: checked only that the walk ends.
    switching: u64,
    in_coroutines: u64,
    /// While libgcc returned to a frame, and its caller was unknown.
    installing: u64,
    frames: u64,
    shadowed: u64,
    bad: u64,
}

/// A wrong sample.
#[derive(Clone, Copy)]
struct SampleFailure {
    walk: Option<WalkResult>,
    found: [u64; SHOWN],
    expected: [u64; SHOWN],
}

/// The limit of frames shown for a failure.
const SHOWN: usize = 40;

static TAKEN: AtomicU64 = AtomicU64::new(0);
static WANTED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SAMPLED: Cell<*mut SampledThread> = const { Cell::new(ptr::null_mut()) };
}

extern "C" fn is_over() -> c_int {
    c_int::from(TAKEN.load(Ordering::Relaxed) >= WANTED.load(Ordering::Relaxed))
}

/// Takes a sample, and sets the time of the next.
extern "C" fn handle(_: c_int) {
    let sampled = SAMPLED.with(Cell::get);
    if sampled.is_null() {
        return;
    }
    // SAFETY: the thread's own, which only this handler uses while the timer runs.
    let sampled = unsafe { &mut *sampled };
    sampled.take();
    TAKEN.fetch_add(1, Ordering::Relaxed);
    sampled.set_timer();
}

impl SampledThread {
    fn choose(&mut self, of: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = self.random.wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % of
    }

    fn set_timer(&mut self) {
        // SAFETY: plain numbers.
        let mut time: libc::itimerspec = unsafe { mem::zeroed() };
        time.it_value.tv_nsec = i64::try_from(10_000 + self.choose(100_000)).unwrap_or(0);
        // SAFETY: the thread's own timer, and just a system call.
        unsafe { libc::timer_settime(self.timer, 0, &raw const time, ptr::null_mut()) };
    }

    /// Whether an address is in one of [`INSTALLERS`]; none of these is longer than 1 KiB.
    fn installs(&self, address: u64) -> bool {
        let mut starts = self.installers.iter();
        starts.any(|start| (*start..*start + 0x400).contains(&address))
    }

    fn take(&mut self) {
        let walk = match self.choose(4) {
            0 => self.thread.walk_afresh(&mut self.addresses),
            _ => self.thread.walk(&mut self.addresses),
        };
        self.tally.samples += 1;
        self.tally.frames += walk.frames as u64;
        // SAFETY: the thread that writes to it is the interrupted one.
        let shadow = unsafe { &*self.shadow };
        if shadow.is_valid == 0 {
            self.tally.switching += 1;
            return;
        }
        let is_inside = shadow.base != 0;
        self.tally.in_coroutines += u64::from(is_inside);
        let expected = &shadow.addresses[shadow.base..shadow.depth];
        self.tally.shadowed += expected.len() as u64;
        let mut found = self.addresses[..walk.frames].iter();
        let is_there = expected
            .iter()
            .rev()
            .all(|expected| found.any(|found| found.0 == *expected));
        // The caller of a coroutine's first function is not recorded.
        let is_complete = is_inside || walk.end.is_root() && walk.guesses == 0;
        if !is_there || !is_complete {
            // The handler, its trampoline, and the interrupted frame, with its caller.
            let interrupted = self.addresses[..walk.frames].get(2..4).unwrap_or_default();
            if interrupted.iter().any(|address| self.installs(address.0)) {
                self.tally.installing += 1;
                return;
            }
            self.tally.bad += 1;
            if let Some(slot) = self.failures.get_mut(self.noted) {
                slot.note(walk, &self.addresses[..walk.frames], expected);
                self.noted += 1;
            }
        }
    }
}

/// The functions of libgcc that leave frames for the one that catches, or cleans up. Meanwhile they
/// put its registers over the saved ones of their own caller (`uw_install_context_1` in
/// libgcc/unwind-dw2.c). So that caller cannot be found.
const INSTALLERS: [&str; 4] = [
    "_Unwind_RaiseException",
    "_Unwind_Resume",
    "_Unwind_Resume_or_Rethrow",
    "_Unwind_ForcedUnwind",
];

impl SampleFailure {
    const NONE: SampleFailure = SampleFailure {
        walk: None,
        found: [0; SHOWN],
        expected: [0; SHOWN],
    };

    /// In reserved memory: a handler allocates nothing.
    fn note(&mut self, walk: WalkResult, found: &[RuntimeAddr], expected: &[u64]) {
        self.walk = Some(walk);
        for (slot, address) in self.found.iter_mut().zip(found) {
            *slot = address.0;
        }
        for (slot, address) in self.expected.iter_mut().zip(expected.iter().rev()) {
            *slot = *address;
        }
    }
}

/// Loads a library, and yields this function.
fn function(path: &Path, name: &str) -> *mut c_void {
    let path = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: loads a library that has no initializers of its own.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null(), "{path:?}");
    let name = CString::new(name).unwrap();
    // SAFETY: the library is open.
    let function = unsafe { libc::dlsym(handle, name.as_ptr()) };
    assert!(!function.is_null(), "{name:?}");
    function
}

fn build(compiler: &str, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/soak");
    let to = scratch(Path::new(env!("CARGO_TARGET_TMPDIR")), name);
    let fixed = ["-O2", "-shared", "-fPIC", "-fno-optimize-sibling-calls"];
    let mut compiler = tool(compiler);
    compiler
        .args(fixed)
        .arg("-o")
        .arg(&to)
        .arg(folder.join(source));
    compiler.args(options).succeed();
    to
}

type RunFn = unsafe extern "C" fn(*mut Shadow, u64, extern "C" fn() -> c_int, *const *const c_char);

/// A kind of thread: its code, the libraries that it loads, and its handler's stack.
#[derive(Clone, Copy)]
struct ThreadKind {
    run: RunFn,
    seed: u64,
    loads: bool,
    on_alternate_stack: bool,
}

fn run(kind: ThreadKind, plugins: &[CString; 2]) -> Box<SampledThread> {
    let shadow = Box::leak(Box::new(Shadow {
        depth: 0,
        base: 0,
        is_valid: 0,
        addresses: [0; 4096],
    }));
    let mut sampled = Box::new(SampledThread {
        thread: OwnThread::new(),
        shadow,
        timer: new_timer(),
        random: kind.seed,
        installers: INSTALLERS
            .map(|name| function(Path::new("libgcc_s.so.1"), name).expose_provenance() as u64),
        addresses: [RuntimeAddr(0); MAX_FRAMES],
        tally: Tally::default(),
        failures: [SampleFailure::NONE; 8],
        noted: 0,
    });
    // The standard library's one is small: it is only for messages.
    let stack = libc::stack_t {
        ss_sp: vec![0_u8; 1 << 18].leak().as_mut_ptr().cast(),
        ss_flags: if kind.on_alternate_stack {
            0
        } else {
            libc::SS_DISABLE
        },
        ss_size: 1 << 18,
    };
    // SAFETY: memory that is never freed.
    let failed = unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) };
    assert_eq!(failed, 0);
    let shadow = sampled.shadow;
    let names = plugins.each_ref().map(|path| path.as_ptr());
    let names = if kind.loads {
        names.as_ptr()
    } else {
        ptr::null()
    };
    SAMPLED.with(|cell| cell.set(&raw mut *sampled));
    sampled.set_timer();
    // SAFETY: all its arguments stay valid, and its data is its own.
    unsafe { (kind.run)(shadow, kind.seed, is_over, names) };
    SAMPLED.with(|cell| cell.set(ptr::null_mut()));
    // SAFETY: the thread's own; a signal still pending finds no sample to take.
    unsafe { libc::timer_delete(sampled.timer) };
    sampled
}

/// A timer that sends its signal to this thread.
fn new_timer() -> libc::timer_t {
    // SAFETY: plain numbers.
    let mut event: libc::sigevent = unsafe { mem::zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = libc::SIGPROF;
    // SAFETY: takes nothing, cannot fail.
    event.sigev_notify_thread_id = unsafe { libc::gettid() };
    let mut timer = ptr::null_mut();
    // SAFETY: the event is filled in, and the timer is written to a variable of this function.
    let failed =
        unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
    assert_eq!(failed, 0);
    timer
}

#[test]
fn every_sample_is_complete() {
    let wanted = std::env::var("UNSPOOL_SOAK_SAMPLES");
    let wanted = wanted.map_or(SAMPLES, |text| text.parse().unwrap());
    WANTED.store(wanted, Ordering::Relaxed);
    let runs = ["-fomit-frame-pointer", "-fno-omit-frame-pointer"].map(|option| {
        let path = build(
            "g++",
            &format!("workload{option}.so"),
            "workload.cc",
            &[option],
        );
        // SAFETY: the function is of this type.
        unsafe { mem::transmute::<*mut c_void, RunFn>(function(&path, "run")) }
    });
    let plugins = ["200", "1000"].map(|size| {
        let size = format!("-DSIZE={size}");
        let path = build(
            "gcc",
            &format!("plugin{size}.so"),
            "../own_process/plugin.c",
            // Functions of start files have no tables.
            &["-nostartfiles", &size],
        );
        CString::new(path.to_str().unwrap()).unwrap()
    });
    // SAFETY: plain numbers.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler does only what handlers may.
    let failed = unsafe { libc::sigaction(libc::SIGPROF, &raw const action, ptr::null_mut()) };
    assert_eq!(failed, 0);
    let kinds = [
        (0, false, false),
        (1, false, true),
        (0, true, true),
        (1, true, false),
    ];
    let tally = thread::scope(|scope| {
        let threads = kinds.map(|(variant, loads, on_alternate_stack)| {
            let kind = ThreadKind {
                run: runs[variant],
                seed: 1 + variant as u64 + 2 * u64::from(loads),
                loads,
                on_alternate_stack,
            };
            let plugins = &plugins;
            scope.spawn(move || {
                let sampled = run(kind, plugins);
                report(kind, &sampled);
                sampled.tally
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    for tally in tally {
        assert_eq!(tally.bad, 0);
        assert!(
            tally.in_coroutines > 0 && tally.shadowed > tally.samples,
            "{tally:?}"
        );
        let excused = tally.switching + tally.installing;
        assert!(excused < tally.samples / 10, "{tally:?}");
    }
}

fn report(kind: ThreadKind, sampled: &SampledThread) {
    println!(
        "loads {}, alternate stack {}: {:?}",
        kind.loads, kind.on_alternate_stack, sampled.tally
    );
    for failure in &sampled.failures[..sampled.noted] {
        let SampleFailure {
            walk,
            found,
            expected,
        } = failure;
        println!("{walk:?}\n  found {found:x?}\n  expected {expected:x?}");
    }
    if sampled.noted > 0 {
        let own = RuntimeAddr(report as *const () as u64);
        println!("this program: {:x?}", modules().loaded(own));
        for module in modules().discovered() {
            println!("met {module:x?}");
        }
    }
}
