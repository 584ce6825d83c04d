//! In the own process: called, in a signal's handler, and there on a stack of its own.

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, Ordering};

use unspool_compiled_table::CompiledTable;
use unspool_elf::ElfFile;
use unspool_rows::{Memory, Registers, RuntimeAddr, Unreadable};
use unspool_table_store::{self as tables, TableSource};
use unspool_unwind::local::{self, OwnCursor, OwnThread, SignalRegisters};
use unspool_unwind::{Cursor, End, InnermostFrame as _, RowRules, Step, WalkResult};

use super::*;

const MAX_FRAMES: usize = 4000;

/// The ways to walk: by an [`OwnThread`], once and again, and without its memory; by the thread's
/// recorded state; by a cursor. And from the interrupted frame: by the thread's recorded state,
/// once and again; by a cursor; and by a cursor that reads the kernel's copy.
const CASE_COUNT: usize = 9;

/// The result of a child process, in memory shared with it.
struct WalkReport {
    ways: [WalkMethod; CASE_COUNT],
    errno: Option<c_int>,
}

struct WalkMethod {
    addresses: [RuntimeAddr; MAX_FRAMES],
    /// Nothing, if it was not tried.
    end: Option<(usize, End)>,
}

impl WalkMethod {
    const NONE: WalkMethod = WalkMethod {
        addresses: [RuntimeAddr(0); MAX_FRAMES],
        end: None,
    };

    fn put(&mut self, walk: impl FnOnce(&mut [RuntimeAddr]) -> WalkResult) {
        let walk = walk(&mut self.addresses);
        self.end = Some((walk.frames, walk.end));
    }
}

/// The tools of a child process, made before it starts: it allocates nothing.
struct WalkTools {
    thread: OwnThread,
    report: &'static mut WalkReport,
}

static TOOLS: AtomicPtr<WalkTools> = AtomicPtr::new(std::ptr::null_mut());

/// The own memory, copied by the kernel, which may refuse.
struct ByKernel;

impl Memory for ByKernel {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let unreadable = Unreadable::unmapped(addr);
        let to = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        let from = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(addr.0.try_into().map_err(|_| unreadable)?),
            iov_len: into.len(),
        };
        // SAFETY: takes nothing, cannot fail.
        let own = unsafe { libc::getpid() };
        // SAFETY: the kernel checks where it reads, and writes to the buffer.
        let count = unsafe { libc::process_vm_readv(own, &raw const to, 1, &raw const from, 1, 0) };
        if usize::try_from(count) == Ok(into.len()) {
            Ok(())
        } else {
            Err(unreadable)
        }
    }
}

/// The innermost frame of a bad stack: walks it in all ways.
extern "C" fn stand(context: *mut c_void) {
    // SAFETY: the tools were leaked; this process has one thread, which gets here once.
    let tools = unsafe { &mut *TOOLS.load(Ordering::Relaxed) };
    set_errno(77);
    let [first, again, afresh, by_itself, by_cursor, others @ ..] = &mut tools.report.ways;
    for way in [first, again] {
        way.put(|addresses| tools.thread.walk(addresses));
    }
    afresh.put(|addresses| tools.thread.walk_afresh(addresses));
    by_itself.put(local::walk);
    by_cursor.end = local::with_cursor(|cursor| step_by_step(cursor, &mut by_cursor.addresses));
    // SAFETY: the context that a handler was given, or null.
    if let Some(context) = unsafe { context.cast::<libc::ucontext_t>().as_ref() } {
        from_context(context, others);
    }
    tools.report.errno = std::io::Error::last_os_error().raw_os_error();
}

fn from_context(context: &libc::ucontext_t, ways: &mut [WalkMethod; 4]) {
    let interrupted = SignalRegisters::from(context);
    let [first, again, by_cursor, by_kernel] = ways;
    for way in [first, again] {
        way.put(|addresses| local::walk_from(&interrupted, addresses));
    }
    by_cursor.end = step_by_step(&mut OwnCursor::from(context), &mut by_cursor.addresses);
    let mut registers = Registers::new();
    for (register, value) in interrupted.others() {
        registers.set(register, value);
    }
    let errno = std::io::Error::last_os_error().raw_os_error();
    by_kernel.end = by_copies(registers, &mut by_kernel.addresses);
    set_errno(errno.unwrap_or(0));
}

fn set_errno(value: c_int) {
    // SAFETY: takes nothing, cannot fail.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: a number of the own thread.
    unsafe { errno.write(value) };
}

/// To the end, however far that is.
fn step_by_step(cursor: &mut OwnCursor, addresses: &mut [RuntimeAddr]) -> Option<(usize, End)> {
    let mut count = 0;
    loop {
        if let Some(slot) = addresses.get_mut(count) {
            *slot = cursor.code().address();
        }
        count += 1;
        if !cursor.step() {
            return Some((count, cursor.end()?));
        }
    }
}

/// The same with memory copied by the kernel.
fn by_copies(registers: Registers, addresses: &mut [RuntimeAddr]) -> Option<(usize, End)> {
    let mut cursor = Cursor::new(local::ABI, registers)?;
    let mut count = 0;
    loop {
        if let Some(slot) = addresses.get_mut(count) {
            *slot = cursor.code().address();
        }
        count += 1;
        if let Step::End(end) = cursor.step(local::modules(), &ByKernel) {
            return Some((count, end));
        }
    }
}

type RunScene = unsafe extern "C" fn(*const c_char, c_int, extern "C" fn(*mut c_void)) -> !;

/// A library with scenes.
#[derive(Clone, Copy)]
struct Scenes(*mut c_void);

impl Scenes {
    fn open(path: &Path) -> Scenes {
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: loads a library that has no initializers of its own.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{path:?}");
        Scenes(handle)
    }

    fn symbol(self, name: &str) -> u64 {
        let c_name = CString::new(name).unwrap();
        // SAFETY: the library is open.
        let symbol = unsafe { libc::dlsym(self.0, c_name.as_ptr()) };
        assert!(!symbol.is_null(), "{name}");
        symbol.addr() as u64
    }

    /// Runs a scene in a child process; yields its exit status.
    fn run(self, name: &str, place: c_int) -> c_int {
        let name = CString::new(name).unwrap();
        let run = std::ptr::with_exposed_provenance::<c_void>(
            usize::try_from(self.symbol("run_scene")).unwrap(),
        );
        // SAFETY: it is of this type.
        let run = unsafe { std::mem::transmute::<*const c_void, RunScene>(run) };
        in_child(|| {
            // SAFETY: the scene calls back once, and ends the process.
            unsafe { run(name.as_ptr(), place, stand) }
        })
    }
}

/// Runs a function in a child process with some seconds of processor time; yields its exit status.
fn in_child(body: impl FnOnce()) -> c_int {
    // SAFETY: the child does only what is allowed after a fork, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let limit = libc::rlimit {
            rlim_cur: 20,
            rlim_max: 20,
        };
        // SAFETY: sets a limit of the child.
        unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) };
        // SAFETY: ends the child, should it wait forever.
        unsafe { libc::alarm(200) };
        body();
        // SAFETY: ends the child.
        unsafe { libc::_exit(98) };
    }
    let mut status = -1;
    // SAFETY: waits for the own child.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    status
}

fn tools() -> &'static mut WalkTools {
    local::prepare_thread().unwrap();
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let size = size_of::<WalkReport>();
    // SAFETY: a new mapping, anywhere.
    let report = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0) };
    assert_ne!(report, libc::MAP_FAILED);
    let report = report.cast::<MaybeUninit<WalkReport>>();
    // SAFETY: just mapped for it: zeros.
    let report = unsafe { &mut *report };
    let tools = Box::leak(Box::new(WalkTools {
        thread: OwnThread::new(),
        report: report.write(WalkReport {
            ways: [const { WalkMethod::NONE }; CASE_COUNT],
            errno: None,
        }),
    }));
    TOOLS.store(tools, Ordering::Relaxed);
    tools
}

/// Resets the report.
fn clear(report: &mut WalkReport) {
    report.ways.iter_mut().for_each(|way| way.end = None);
}

fn named(end: End) -> String {
    end.name().to_owned()
}

/// Runs all cases, and appends what is wrong with the results.
fn check_all(scenes: Scenes, tools: &mut WalkTools, tables: &str, complaints: &mut Vec<String>) {
    for (place, where_) in ["called", "in a handler", "on another stack"]
        .iter()
        .enumerate()
    {
        for case in cases::ALL {
            clear(tools.report);
            let status = scenes.run(case.name, c_int::try_from(place).unwrap());
            let what = format!("{tables}, {where_}");
            if status != 0 || tools.report.errno != Some(77) {
                complaints.push(format!("{what}, {}: status {status:#x}", case.name));
                continue;
            }
            for (number, way) in tools.report.ways.iter().enumerate() {
                let Some((count, end)) = way.end else {
                    continue;
                };
                let addresses = &way.addresses[..count.min(MAX_FRAMES)];
                let found = WalkOutput {
                    addresses: addresses.iter().map(|address| address.0).collect(),
                    end: named(end),
                };
                let complaint = complaint(case, &found, |name| scenes.symbol(name));
                complaints.extend(complaint.map(|text| format!("{what}, way {number}: {text}")));
            }
        }
    }
}

#[test]
fn own_stacks() {
    let path = library();
    let scenes = Scenes::open(&path);
    let tools = tools();
    let mut complaints = Vec::new();
    check_all(scenes, tools, "as linked", &mut complaints);
    let file = ElfFile::open(&path).unwrap();
    let made = tables::compile(&file, TableSource::Auto).unwrap();
    let table = CompiledTable::open(made.encoded.bytes.leak()).unwrap();
    let rules = RowRules::make(&table, vec![0; table.distinct_rows()].leak());
    assert!(local::modules().attach(Box::leak(Box::new(table)), rules));
    check_all(scenes, tools, "compiled", &mut complaints);
    // Damaged files too: no crash, no hang.
    for (name, path) in files::damaged(&path) {
        for scene in ["ra_zero", "ra_in_data", "signal_frame", "circle", "wild_pc"] {
            clear(tools.report);
            let status = in_child(|| {
                let scenes = Scenes::open(&path);
                scenes.symbol("run_scene");
                let status = scenes.run(scene, 1);
                // SAFETY: ends the child.
                unsafe { libc::_exit(c_int::from(status != 0)) };
            });
            let walked = tools.report.ways.iter().filter_map(|way| way.end);
            let is_bounded = walked
                .clone()
                .all(|(count, _)| (1..MAX_FRAMES).contains(&count));
            if status != 0 || !is_bounded || walked.count() < CASE_COUNT {
                complaints.push(format!("{name}, {scene}: {status:#x}"));
            }
        }
    }
    assert_none(&complaints);
}
