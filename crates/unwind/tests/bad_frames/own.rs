//! In the own process: called, in a signal's handler, and there on a stack of its own.

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, Ordering};

use unspool_compact::Compiled;
use unspool_ir::{
    Abi, Arch, CodeAddr, Endian, Memory, Register, Registers, RuntimeAddr, Unreadable,
};
use unspool_module::ElfFile;
use unspool_unwind::local::{self, OwnThread};
use unspool_unwind::tables::{self, From};
use unspool_unwind::{Cursor, End, Memo, RowRules, Rules, Step, Top, Walker};

use super::*;

const ABI: Abi = Abi {
    arch: Arch::X86_64,
    endian: Endian::Little,
};

const MOST: usize = 4000;

/// The ways to walk: the thread's own, once and again, and without a memory of it; from what was
/// interrupted by a walker, once and again, and by a cursor, which read what the kernel copies.
const WAYS: usize = 6;

/// What a child process found. It lies in memory that both share.
struct Report {
    ways: [Way; WAYS],
    errno: Option<c_int>,
}

struct Way {
    addresses: [RuntimeAddr; MOST],
    /// Nothing, if it was not tried.
    end: Option<(usize, End)>,
}

impl Way {
    const NONE: Way = Way {
        addresses: [RuntimeAddr(0); MOST],
        end: None,
    };
}

/// What a child process works with, made before there is one: it allocates nothing.
struct Tools {
    thread: OwnThread,
    memo: Memo,
    rules: &'static Rules,
    report: &'static mut Report,
}

static TOOLS: AtomicPtr<Tools> = AtomicPtr::new(std::ptr::null_mut());

/// What was interrupted, by the kernel's record.
struct Interrupted(Registers);

impl Interrupted {
    /// # Safety
    ///
    /// The context of a signal's handler.
    unsafe fn new(context: *const libc::ucontext_t) -> Self {
        // SAFETY: as the caller promises.
        let record = unsafe { &(*context).uc_mcontext.gregs };
        let mut registers = Registers::new();
        // DWARF numbers, by the kernel's.
        let numbers = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16];
        for (number, value) in numbers.into_iter().zip(record) {
            registers.set(Register(number), value.cast_unsigned());
        }
        Interrupted(registers)
    }

    fn value(&self, number: u16) -> u64 {
        self.0.get(Register(number)).unwrap()
    }
}

impl Top for Interrupted {
    fn code(&self) -> CodeAddr {
        CodeAddr::Instruction(RuntimeAddr(self.value(16)))
    }

    fn stack_pointer(&self) -> u64 {
        self.value(7)
    }

    fn frame_pointer(&self) -> u64 {
        self.value(6)
    }

    fn others(&self) -> impl Iterator<Item = (Register, u64)> {
        self.0.iter()
    }
}

/// The own memory as the kernel copies it, or does not.
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
        match usize::try_from(count) == Ok(into.len()) {
            true => Ok(()),
            false => Err(unreadable),
        }
    }
}

/// The innermost frame of a bad stack: walks it in all ways.
extern "C" fn stand(context: *mut c_void) {
    // SAFETY: the tools were leaked; this process has one thread, which comes here once.
    let tools = unsafe { &mut *TOOLS.load(Ordering::Relaxed) };
    set_errno(77);
    let [first, again, afresh, others @ ..] = &mut tools.report.ways;
    for way in [first, again] {
        let walk = tools.thread.walk(&mut way.addresses);
        way.end = Some((walk.frames, walk.end));
    }
    let walk = tools.thread.walk_afresh(&mut afresh.addresses);
    afresh.end = Some((walk.frames, walk.end));
    tools.report.errno = std::io::Error::last_os_error().raw_os_error();
    // SAFETY: the context that a handler was given, or null.
    let top = (!context.is_null()).then(|| unsafe { Interrupted::new(context.cast()) });
    let [first, again, by_cursor] = others;
    for way in [first, again] {
        let walker = Walker::new(ABI, tools.rules);
        way.end = top.as_ref().map(|top| {
            let modules = local::modules();
            let walk =
                walker.walk_again(&mut tools.memo, top, modules, &ByKernel, &mut way.addresses);
            (walk.frames, walk.end)
        });
    }
    by_cursor.end = top
        .as_ref()
        .and_then(|top| step_by_step(top, &mut by_cursor.addresses));
}

fn set_errno(value: c_int) {
    // SAFETY: takes nothing, cannot fail.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: a number of the own thread.
    unsafe { errno.write(value) };
}

/// To the end, however far that is.
fn step_by_step(top: &Interrupted, addresses: &mut [RuntimeAddr]) -> Option<(usize, End)> {
    let mut cursor = Cursor::new(ABI, top.0)?;
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

    /// Runs a scene in a child process; yields how that ended.
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

/// Runs a function in a child process that has some seconds of processor time; yields how it ended.
fn in_child(body: impl FnOnce()) -> c_int {
    // SAFETY: the child does what may be done after a fork, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let limit = libc::rlimit {
            rlim_cur: 20,
            rlim_max: 20,
        };
        // SAFETY: sets a limit of the child.
        unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) };
        // SAFETY: ends the child, should it wait for ever.
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

fn tools() -> &'static mut Tools {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let size = size_of::<Report>();
    // SAFETY: a new mapping, anywhere.
    let report = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0) };
    assert_ne!(report, libc::MAP_FAILED);
    let report = report.cast::<MaybeUninit<Report>>();
    // SAFETY: just mapped for it: zeros.
    let report = unsafe { &mut *report };
    let tools = Box::leak(Box::new(Tools {
        thread: OwnThread::new(),
        memo: Memo::new(),
        rules: Box::leak(Box::new(Rules::new())),
        report: report.write(Report {
            ways: [const { Way::NONE }; WAYS],
            errno: None,
        }),
    }));
    TOOLS.store(tools, Ordering::Relaxed);
    tools
}

/// Nothing was tried yet.
fn clear(report: &mut Report) {
    report.ways.iter_mut().for_each(|way| way.end = None);
}

fn named(end: End) -> String {
    end.name().to_owned()
}

/// Runs all cases, and appends what is wrong with what is found.
fn check_all(scenes: Scenes, tools: &mut Tools, tables: &str, complaints: &mut Vec<String>) {
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
                let addresses = &way.addresses[..count.min(MOST)];
                let found = Found {
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
    let made = tables::compile(&file, From::Auto).unwrap();
    let table = Compiled::open(made.encoded.bytes.leak()).unwrap();
    let rules = RowRules::make(&table, vec![0; table.distinct_rows()].leak());
    assert!(local::modules().attach(Box::leak(Box::new(table)), rules));
    check_all(scenes, tools, "compiled", &mut complaints);
    // Of files that are damaged, too: no crash, no hang.
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
            let is_bounded = walked.clone().all(|(count, _)| (1..MOST).contains(&count));
            if status != 0 || !is_bounded || walked.count() < 5 {
                complaints.push(format!("{name}, {scene}: {status:#x}"));
            }
        }
    }
    assert_none(&complaints);
}
