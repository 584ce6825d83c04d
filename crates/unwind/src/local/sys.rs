//! The `unsafe` parts of walking the own stack: registers, raw memory, the loader.
#![expect(
    unsafe_code,
    reason = "registers, raw memory, and the loader's functions"
)]

use core::arch::{asm, global_asm};
use core::cell::{Cell, UnsafeCell};
use core::ffi::{CStr, c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use core::{ptr, slice};

use unspool_rows::{AscendingAddresses, Register, RuntimeAddr, Vaddr};

use super::elf::{HEADER, HeaderTable, ObjectImage, VaddrRange, bias_by_own_header};
use crate::walk::RuleCache;

use pool::PooledBuffer;

pub mod caller_registers;
pub mod fork_safe_lock;
pub mod pool;
mod process_epoch;
mod readable_memory;

pub(super) use process_epoch::begin as begin_process_epoch;
pub use readable_memory::{ReadableBlocks, ReadableMemory, StackTrust, WordBlock};

/// The registers of a function at one of its instructions.
#[derive(Debug, Clone, Copy)]
pub(super) struct CapturedRegisters {
    /// The address of an instruction of the function that follows another: rows that hold there
    /// hold at the byte before it, too.
    pub(super) code: u64,
    pub(super) stack_pointer: u64,
    pub(super) frame_pointer: u64,
    /// `rbx`, `r12` to `r15`.
    pub(super) others: [u64; 5],
}

impl CapturedRegisters {
    /// The DWARF numbers of `others`.
    pub(super) const OTHERS: [Register; 5] = [
        Register(3),
        Register(12),
        Register(13),
        Register(14),
        Register(15),
    ];

    /// All zero.
    pub(super) const EMPTY: Self = CapturedRegisters {
        code: 0,
        stack_pointer: 0,
        frame_pointer: 0,
        others: [0; 5],
    };

    /// Captures the registers of the function that this is inlined into.
    ///
    /// Into place: copying words that were just written is slow.
    #[inline(always)]
    pub(super) fn fill(&mut self) {
        let (code, stack_pointer, frame_pointer);
        // SAFETY: writes to `others`, and changes nothing else.
        unsafe {
            asm!(
                "mov qword ptr [{others}], rbx",
                "mov qword ptr [{others} + 8], r12",
                "mov qword ptr [{others} + 16], r13",
                "mov qword ptr [{others} + 24], r14",
                "mov qword ptr [{others} + 32], r15",
                "mov {stack_pointer}, rsp",
                "mov {frame_pointer}, rbp",
                "lea {code}, [rip]",
                others = in(reg) self.others.as_mut_ptr(),
                stack_pointer = out(reg) stack_pointer,
                frame_pointer = out(reg) frame_pointer,
                code = lateout(reg) code,
                options(nostack, preserves_flags),
            );
        }
        (self.code, self.stack_pointer, self.frame_pointer) = (code, stack_pointer, frame_pointer);
    }
}

/// Memory of the own stack that is certainly mapped: from the stack pointer of a function that has
/// not returned to the end of the thread's stack.
#[derive(Debug, Clone, Copy)]
pub(super) struct StackWindow {
    /// The end of the first word.
    first: u64,
    /// The number of addresses from there on that are ends of words.
    count: u64,
}

impl StackWindow {
    /// No memory.
    pub(super) const EMPTY: StackWindow = StackWindow { first: 0, count: 0 };

    /// The bytes below the stack pointer that a function may use.
    const RED_ZONE: u64 = 128;

    /// The part above the frame of a waiting function, if that is on this thread's `stack`. On
    /// other stacks, of signal handlers and coroutines, the kernel is asked for everything.
    #[inline]
    pub(super) fn new(captured: &CapturedRegisters, stack: &Range<u64>) -> Self {
        let low = captured.stack_pointer;
        if stack.contains(&low) {
            StackWindow::between(low, stack.end)
        } else {
            StackWindow::EMPTY
        }
    }

    /// The part above the frame that this is inlined into, if it is on this thread's own stack. The
    /// kernel is asked about unknown parts.
    #[inline(always)]
    pub(super) fn here() -> Self {
        let low = stack_pointer();
        match ReadableMemory::above(low).end_around(low) {
            Some(end) => StackWindow::between(low, end),
            None => StackWindow::EMPTY,
        }
    }

    #[inline]
    fn between(low: u64, end: u64) -> Self {
        StackWindow {
            first: low.wrapping_add(8),
            count: end.saturating_sub(low).saturating_sub(7),
        }
    }

    /// The word that ends at an address.
    #[inline(always)]
    pub(super) fn word_below(self, end: u64) -> Option<[u8; 8]> {
        if !self.has_word_below(end) {
            return None;
        }
        // SAFETY: the eight bytes below lie between the stack pointer of a frame that has not
        // returned and the end of the same stack, which is mapped.
        Some(unsafe { load_below(end) }.to_le_bytes())
    }

    /// The word that ends at an address, and the one that ends `below` bytes lower.
    #[inline(always)]
    pub(super) fn pair_below(self, end: u64, below: u64) -> Option<[[u8; 8]; 2]> {
        if below >= StackWindow::RED_ZONE || !self.has_word_below(end) {
            return None;
        }
        // SAFETY: as in `word_below`.
        let upper = unsafe { load_below(end) };
        // SAFETY: it begins less than 128 bytes below the stack pointer of a frame that has not
        // returned. Every function may use those (System V psABI, "The Stack Frame").
        let lower = unsafe { load_below(end - below) };
        Some([upper.to_le_bytes(), lower.to_le_bytes()])
    }

    /// Whether the words that end at these addresses equal `words`. An address without a word, or a
    /// word without an address, does not count.
    #[inline]
    pub(super) fn all_below_are(self, ends: AscendingAddresses<'_>, words: &[u64]) -> bool {
        let Some((lowest, highest)) = ends.bounds() else {
            return true;
        };
        if !self.has_word_below(lowest) || !self.has_word_below(highest) {
            return false;
        }
        // SAFETY: the first and the last of the words are in the window, and so are all that end
        // between them: ends ascend.
        let difference = |(end, word): (&u64, &u64)| unsafe { load_below(*end) } ^ word;
        let length = ends.get().len().min(words.len());
        let (ends, words) = (ends.get().split_at(length).0, words.split_at(length).0);
        // Eight at a time: otherwise half of the instructions would count iterations.
        let (ends, last_ends) = ends.as_chunks::<8>();
        let (words, last_words) = words.as_chunks::<8>();
        let mut all = 0;
        for (ends, words) in ends.iter().zip(words) {
            ends.iter()
                .zip(words)
                .for_each(|pair| all |= difference(pair));
        }
        let rest = last_ends.iter().zip(last_words);
        rest.for_each(|pair| all |= difference(pair));
        all == 0
    }

    /// Whether the eight bytes that end at an address are in the window.
    #[inline(always)]
    fn has_word_below(self, end: u64) -> bool {
        end.wrapping_sub(self.first) < self.count
    }
}

/// Reads the eight bytes that end at an address.
///
/// # Safety
///
/// They must be mapped and readable.
#[inline(always)]
unsafe fn load_below(end: u64) -> u64 {
    let value;
    // SAFETY: a load of readable memory, whatever its content: the bytes are not read as a Rust
    // value.
    unsafe {
        asm!(
            "mov {value}, qword ptr [{end} - 8]",
            value = out(reg) value,
            end = in(reg) end,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    value
}

#[inline(always)]
fn stack_pointer() -> u64 {
    let value;
    // SAFETY: copies a register.
    unsafe {
        asm!("mov {}, rsp", out(reg) value, options(nomem, nostack, preserves_flags));
    }
    value
}

/// Whether the page of an address is readable: by the program headers for a loaded module, by the
/// kernel for all else.
fn is_readable(addr: u64) -> bool {
    super::modules().is_readable(RuntimeAddr(addr)) || is_mapped(addr & !(ReadablePages::SIZE - 1))
}

/// Whether the kernel can read eight bytes at an address.
///
/// `rt_sigprocmask` reads its new mask before it checks the operation. So it fails with `EFAULT` if
/// the address is unreadable, and with `EINVAL` for an operation that does not exist. It changes
/// nothing. `errno` is not touched: the call goes to the kernel directly.
fn is_mapped(addr: u64) -> bool {
    const NO_OPERATION: u64 = 0xffff;
    let result: i64;
    // SAFETY: the kernel checks the address; it writes nothing. Clobbered are rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") libc::SYS_rt_sigprocmask => result,
            in("rdi") NO_OPERATION,
            in("rsi") addr,
            in("rdx") 0_u64,
            in("r10") 8_u64,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == -i64::from(libc::EINVAL)
}

/// Pages outside of the known stack that were found readable during one walk.
///
/// Between the check and the read another thread may unmap them: only the kernel could do both at
/// once. No memory of a valid stack is unmapped like that.
#[derive(Debug)]
pub(super) struct ReadablePages {
    known: [Cell<u64>; ReadablePages::COUNT],
    next: Cell<usize>,
    /// Whether the program headers of loaded modules are trusted.
    trusts_modules: bool,
}

impl ReadablePages {
    const COUNT: usize = 8;
    const SIZE: u64 = 4096;
    /// A number that no page has.
    const NONE: u64 = u64::MAX;

    #[inline]
    pub(super) const fn new() -> Self {
        ReadablePages {
            known: [const { Cell::new(ReadablePages::NONE) }; ReadablePages::COUNT],
            next: Cell::new(0),
            trusts_modules: true,
        }
    }

    /// The same if modules may have changed.
    pub(super) const fn without_program_headers() -> Self {
        ReadablePages {
            trusts_modules: false,
            ..ReadablePages::new()
        }
    }

    /// Copies bytes, or yields the first unreadable address.
    pub(super) fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), u64> {
        let Some(last) = (into.len() as u64).checked_sub(1) else {
            return Ok(());
        };
        let end = addr.checked_add(last).ok_or(addr)?;
        for page in addr / ReadablePages::SIZE..=end / ReadablePages::SIZE {
            let first = addr.max(page * ReadablePages::SIZE);
            if !self.is_known(page, first) {
                return Err(first);
            }
        }
        let from = ptr::with_exposed_provenance::<u8>(addr_of(addr));
        // SAFETY: all of these pages were readable just now; see above.
        unsafe { ptr::copy(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Whether a page is readable; `addr` is in it.
    fn is_known(&self, page: u64, addr: u64) -> bool {
        if self.known.iter().any(|known| known.get() == page) {
            return true;
        }
        let is_readable = if self.trusts_modules {
            is_readable(addr)
        } else {
            is_mapped(page * ReadablePages::SIZE)
        };
        let at = self.next.get();
        if let Some(slot) = self.known.get(at)
            && is_readable
        {
            slot.set(page);
            self.next.set((at + 1) % ReadablePages::COUNT);
        }
        is_readable
    }
}

/// A cell for permanent rules.
#[derive(Debug)]
pub(super) struct RuleCacheCell(AtomicPtr<RuleCache<'static>>);

impl RuleCacheCell {
    /// Empty.
    pub(super) const fn none() -> RuleCacheCell {
        RuleCacheCell(AtomicPtr::new(ptr::null_mut()))
    }

    /// Async-signal-safe.
    #[inline]
    pub(super) fn get(&self) -> Option<&'static RuleCache<'static>> {
        let rules = self.0.load(Ordering::Acquire);
        // SAFETY: null, or a reference that is valid forever and was made before it was stored.
        unsafe { rules.as_ref() }
    }

    pub(super) fn set(&self, rules: &'static RuleCache<'static>) {
        let rules = ptr::from_ref(rules).cast_mut();
        self.0.store(rules, Ordering::Release);
    }

    /// Sets the rules unless they are set; yields the stored ones.
    pub(super) fn set_first(
        &self,
        rules: &'static RuleCache<'static>,
    ) -> &'static RuleCache<'static> {
        let new = ptr::from_ref(rules).cast_mut();
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let set = self
            .0
            .compare_exchange(ptr::null_mut(), new, success, failure);
        match set {
            Ok(_) => rules,
            // SAFETY: not null, so as in `get`.
            Err(before) => unsafe { &*before },
        }
    }
}

unsafe extern "C" {
    /// `atexit` is not a function of the shared library, this is.
    fn __cxa_atexit(
        function: extern "C" fn(*mut c_void),
        data: *mut c_void,
        library: *mut c_void,
    ) -> c_int;
}

/// Has the counts printed when the process ends, or when this library is unloaded. Not
/// async-signal-safe.
pub(super) fn print_at_exit() {
    extern "C" fn print(_: *mut c_void) {
        super::stats::print();
    }
    // SAFETY: the function accepts any argument, and stays loaded until then. If there is no room
    // it is not called.
    unsafe { __cxa_atexit(print, ptr::null_mut(), own_handle()) };
}

// The compiler's own files (crtbegin.o) define it in every program and library. Weak: a library
// linked without them has none, and must not be unloaded.
global_asm!(".weak __dso_handle", ".hidden __dso_handle");

/// The handle of this library or program for calls at its unloading, or null.
fn own_handle() -> *mut c_void {
    let address;
    // SAFETY: reads an entry of the own global offset table, which the loader has filled.
    unsafe {
        asm!(
            "mov {}, qword ptr [rip + __dso_handle@GOTPCREL]",
            out(reg) address,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    address
}

/// A monotonic time in nanoseconds.
pub(super) fn nanoseconds() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to this function's value.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Writes to standard error, as much as possible.
pub(super) fn write_error(bytes: &[u8]) {
    // SAFETY: `bytes.len()` bytes are readable.
    unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
}

/// Addresses are as wide as pointers here.
#[expect(clippy::cast_possible_truncation, reason = "x86-64")]
fn addr_of(addr: u64) -> usize {
    addr as usize
}

/// The assumed limit of a stack, in bytes. If the main thread's stack is unlimited, the C library
/// assumes that it begins at the heap, which grows. The kernel keeps everything else this far away
/// from it (`MIN_GAP`, arch/x86/mm/mmap.c).
const MAX_STACK_BYTES: u64 = 128 << 20;

/// The possible extent of this thread's stack: of a longer one, the outermost part. Not
/// async-signal-safe.
pub(super) fn stack() -> Option<Range<u64>> {
    // SAFETY: an attribute object is plain data, filled in below before it is read.
    let mut attributes: libc::pthread_attr_t = unsafe { mem::zeroed() };
    // SAFETY: takes nothing, cannot fail.
    let this = unsafe { libc::pthread_self() };
    // SAFETY: asks about the calling thread, into an object of the right type.
    let failed = unsafe { libc::pthread_getattr_np(this, &raw mut attributes) };
    if failed != 0 {
        return None;
    }
    let (mut low, mut length) = (ptr::null_mut(), 0);
    // SAFETY: the attributes were filled in; both outputs are variables of this function.
    let failed = unsafe {
        libc::pthread_attr_getstack(&raw const attributes, &raw mut low, &raw mut length)
    };
    // SAFETY: the attributes were filled in, and are not used again.
    unsafe { libc::pthread_attr_destroy(&raw mut attributes) };
    let (low, length) = (low.addr() as u64, length as u64);
    let end = low.checked_add(length).filter(|_| failed == 0)?;
    Some(low.max(end.saturating_sub(MAX_STACK_BYTES))..end)
}

/// A loaded object, from `_dl_find_object`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LoadedObject {
    pub(super) start: u64,
    pub(super) end: u64,
    /// The loader's record of it (link.h), or zero.
    pub(super) link_map: u64,
    /// `.eh_frame_hdr` in memory, or zero.
    pub(super) hdr: u64,
    /// Its program headers in memory, if it is known where they are.
    pub(super) headers: MappedHeaders,
}

/// Program headers in an object's mapping: none if the address is zero.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MappedHeaders {
    address: u64,
    bytes: usize,
}

/// `struct dl_find_object` of glibc 2.35 (dlfcn.h).
#[repr(C)]
struct DlFindObject {
    flags: u64,
    map_start: *const c_void,
    map_end: *const c_void,
    link_map: *const c_void,
    eh_frame: *const c_void,
    reserved: [u64; 7],
}

// Weak: other C libraries and older glibcs have none.
global_asm!(".weak _dl_find_object");

type FindObject = unsafe extern "C" fn(*const c_void, *mut DlFindObject) -> c_int;

fn find_object_function() -> Option<FindObject> {
    let address: usize;
    // SAFETY: reads an entry of the own global offset table, which the loader has filled.
    unsafe {
        asm!(
            "mov {}, qword ptr [rip + _dl_find_object@GOTPCREL]",
            out(reg) address,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    // SAFETY: it is null, or the address of the function with this type.
    unsafe { mem::transmute::<usize, Option<FindObject>>(address) }
}

/// The loaded object at an address. Async-signal-safe with glibc 2.35 and later, which guarantees
/// that for its function. Before, the loader's list is searched, under its lock.
pub(super) fn find_object(addr: u64) -> Option<LoadedObject> {
    let MainProgram {
        object: program,
        is_static,
    } = program();
    let in_program = |start, end| program.start <= start && end <= program.end && start < end;
    if is_static && in_program(addr, addr.saturating_add(1)) {
        return Some(program);
    }
    let found = match find_object_function() {
        Some(find) => found_by(find, addr)?,
        None => listed_at(addr)?,
    };
    if in_program(found.start, found.end) {
        return Some(LoadedObject {
            link_map: found.link_map,
            hdr: found.hdr,
            ..program
        });
    }
    Some(found)
}

fn found_by(find: FindObject, addr: u64) -> Option<LoadedObject> {
    // SAFETY: plain numbers and pointers that are not followed.
    let mut found: DlFindObject = unsafe { mem::zeroed() };
    let address = ptr::without_provenance(addr_of(addr));
    // SAFETY: any address is allowed; the result is written to this function's object.
    let failed = unsafe { find(address, &raw mut found) };
    (failed == 0).then(|| LoadedObject {
        start: found.map_start.addr() as u64,
        end: found.map_end.addr() as u64,
        link_map: found.link_map.addr() as u64,
        hdr: found.eh_frame.addr() as u64,
        headers: MappedHeaders::default(),
    })
}

// Not inlined: with glibc's function, its use of the stack is not needed.
#[cold]
#[inline(never)]
fn listed_at(addr: u64) -> Option<LoadedObject> {
    let mut found = None;
    for_each_object(|ListedObject { object, .. }| {
        let is_here = object.start <= addr && addr < object.end;
        found = is_here.then_some(object);
        !is_here
    });
    found
}

/// The program, as the kernel has mapped it; an empty object if that is unknown.
///
/// glibc's function knows the code of a statically linked program, but not its headers and tables.
/// A program can have pages between its segments: linkers leave them if a segment ends within a few
/// bytes of a page's end and the next has a greater alignment. For such a program it reports each
/// segment as the object (`_dlfo_process_initial`, elf/dl-find_object.c).
#[derive(Debug, Clone, Copy, Default)]
struct MainProgram {
    object: LoadedObject,
    /// Whether it runs without a loader.
    is_static: bool,
}

fn program() -> MainProgram {
    static PROGRAM: SetOnce<MainProgram> = SetOnce::new();
    if let Some(known) = PROGRAM.get() {
        return *known;
    }
    let program = find_program().unwrap_or_default();
    PROGRAM.set(program);
    program
}

#[cold]
#[inline(never)]
fn find_program() -> Option<MainProgram> {
    // SAFETY: reads a value that the kernel gave the process at its start; cannot fail.
    let loader = unsafe { libc::getauxval(libc::AT_BASE) };
    // SAFETY: as above.
    let address = unsafe { libc::getauxval(libc::AT_PHDR) };
    // SAFETY: as above.
    let count = unsafe { libc::getauxval(libc::AT_PHNUM) };
    if address == 0 {
        return None;
    }
    let headers = MappedHeaders {
        address,
        bytes: HEADER.checked_mul(usize::try_from(count).ok()?)?,
    };
    let table = headers.get()?;
    let start = match bias_by_own_header(table, address) {
        Some(bias) => bias.to_runtime(ObjectImage::start(table)?).0,
        // Without a header that names them, they are in the first page.
        None => address & !(ReadablePages::SIZE - 1),
    };
    let is_there = start == address & !(ReadablePages::SIZE - 1) || is_mapped(start);
    if !is_there {
        return None;
    }
    // SAFETY: that can be read, as was checked, or as the headers' page.
    let page = unsafe { bytes(start, ReadablePages::SIZE) };
    HeaderTable::parse(page)?;
    let image = ObjectImage::parse(table, page, start)?;
    Some(MainProgram {
        object: LoadedObject {
            start,
            end: image.end(),
            headers,
            ..LoadedObject::default()
        },
        is_static: loader == 0,
    })
}

impl MappedHeaders {
    fn get(&self) -> Option<&'static [u8]> {
        let length = self.bytes as u64;
        // SAFETY: the kernel or the loader has named these bytes, or they were checked. They are in
        // the object's mapping.
        (self.address != 0).then(|| unsafe { bytes(self.address, length) })
    }

    /// The headers that a rewriter of the file has moved out of the first page, as BOLT does: at an
    /// address as far behind the first page as they are in the file. The kernel is asked whether
    /// that can be read, and one of them must say the same.
    #[cold]
    #[inline(never)]
    fn moved(object: &LoadedObject, table: HeaderTable) -> MappedHeaders {
        let address = object.start.wrapping_add(table.offset);
        let last = address.wrapping_add(table.bytes as u64).wrapping_sub(1);
        let pages = address / ReadablePages::SIZE..=last / ReadablePages::SIZE;
        let is_there = object.start < address
            && last < object.end
            && pages
                .into_iter()
                .all(|page| is_mapped(page * ReadablePages::SIZE));
        let headers = MappedHeaders {
            address,
            bytes: table.bytes,
        };
        let is_named = is_there
            && headers.get().is_some_and(|headers| {
                let bias = bias_by_own_header(headers, address);
                let start = bias.zip(ObjectImage::start(headers));
                start.is_some_and(|(bias, first)| bias.to_runtime(first).0 == object.start)
            });
        if is_named {
            headers
        } else {
            MappedHeaders::default()
        }
    }
}

impl LoadedObject {
    /// At no address.
    pub(super) const NONE: LoadedObject = LoadedObject {
        start: 0,
        end: 0,
        link_map: 0,
        hdr: 0,
        headers: MappedHeaders {
            address: 0,
            bytes: 0,
        },
    };

    /// An object in the loader's list.
    fn from_phdr_info(listed: &libc::dl_phdr_info) -> LoadedObject {
        if listed.dlpi_phdr.is_null() {
            return LoadedObject::default();
        }
        // SAFETY: the loader passes its object's headers, with their number.
        let headers = unsafe { slice::from_raw_parts(listed.dlpi_phdr, listed.dlpi_phnum.into()) };
        let at = |vaddr: u64| listed.dlpi_addr.wrapping_add(vaddr);
        let mut object = LoadedObject {
            start: u64::MAX,
            ..LoadedObject::default()
        };
        for header in headers {
            let start = at(header.p_vaddr);
            match header.p_type {
                libc::PT_LOAD => {
                    object.start = object.start.min(start & !(ReadablePages::SIZE - 1));
                    object.end = object.end.max(start.wrapping_add(header.p_memsz));
                }
                libc::PT_GNU_EH_FRAME => object.hdr = start,
                _ => {}
            }
        }
        // The loader's copy of others goes with the object.
        let address = listed.dlpi_phdr.addr() as u64;
        if object.start <= address && address < object.end {
            let bytes = HEADER * usize::from(listed.dlpi_phnum);
            object.headers = MappedHeaders { address, bytes };
        }
        object
    }

    /// Whether both are at the same address. The loader's record may have changed since.
    pub(super) fn is_where(&self, other: &LoadedObject) -> bool {
        (self.start, self.end, self.hdr) == (other.start, other.end, other.hdr)
    }

    /// The first page: the ELF header and the bytes after it.
    pub(super) fn first_page(&self) -> &'static [u8] {
        // SAFETY: the loader has mapped the object from here on, beginning with the header, and no
        // one writes there. Every object is assumed to have a readable first segment.
        unsafe { bytes(self.start, ReadablePages::SIZE) }
    }

    /// Its program headers.
    pub(super) fn program_headers(&self) -> Option<&'static [u8]> {
        if let Some(known) = self.headers.get() {
            return Some(known);
        }
        let table = HeaderTable::parse(self.first_page())?;
        let moved = || MappedHeaders::moved(self, table).get();
        table.within(self.first_page()).or_else(moved)
    }

    /// What its headers say of it. `None` if they are invalid, or nowhere.
    pub(super) fn image(&self) -> Option<ObjectImage> {
        let headers = self.program_headers()?;
        let mut image = ObjectImage::parse(headers, self.first_page(), self.start)?;
        image.find_build_id(headers, |image, notes| self.bytes(image, notes));
        Some(image)
    }

    /// Bytes of the object, if readable by its program headers, which `image` was made from.
    pub(super) fn bytes(&self, image: &ObjectImage, of: VaddrRange) -> Option<&'static [u8]> {
        let start = Vaddr(of.start);
        let is_readable = image
            .readable_from(start)
            .is_some_and(|rest| of.length <= rest);
        let addr = image.bias.to_runtime(start).0;
        let is_inside = self.start <= addr && addr.checked_add(of.length)? <= self.end;
        // SAFETY: the loader has mapped the object, and these bytes as part of a readable segment.
        // They are unwind tables and code, which no one writes to.
        (is_readable && is_inside).then(|| unsafe { bytes(addr, of.length) })
    }
}

/// Bytes that no one writes to while they are mapped.
///
/// # Safety
///
/// They must be mapped and readable.
unsafe fn bytes(addr: u64, length: u64) -> &'static [u8] {
    let from = ptr::with_exposed_provenance::<u8>(addr_of(addr));
    // SAFETY: as the caller promises.
    unsafe { core::slice::from_raw_parts(from, addr_of(length)) }
}

/// Has the kernel provide the memory of rules now, and not page by page on first use, which takes
/// ten times as long. If the kernel cannot (before Linux 5.14), nothing is lost.
pub(super) fn populate(rules: &'static RuleCache<'static>) {
    for part in rules.memory() {
        let part = part.start.addr() as u64..part.end.addr() as u64;
        // SAFETY: it changes no byte of these pages.
        unsafe { advise(part, libc::MADV_POPULATE_WRITE) };
    }
}

/// Does the same for bytes that are only read, even a file's.
#[cfg(feature = "std")]
pub(super) fn populate_bytes(bytes: &'static [u8]) {
    let range = bytes.as_ptr_range();
    let range = range.start.addr() as u64..range.end.addr() as u64;
    // SAFETY: it changes no byte of these pages.
    unsafe { advise(range, libc::MADV_POPULATE_READ) };
}

/// Advises the kernel about the pages of some memory. It may refuse.
///
/// # Safety
///
/// The advice must not change anything for users of the pages.
unsafe fn advise(memory: Range<u64>, advice: c_int) {
    let first = memory.start & !(ReadablePages::SIZE - 1);
    let pages = ptr::with_exposed_provenance_mut(addr_of(first));
    // SAFETY: as the caller promises.
    unsafe { libc::madvise(pages, addr_of(memory.end - first), advice) };
}

/// An object in the loader's list.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListedObject<'n> {
    /// The path that it was loaded from; empty for the program.
    #[cfg_attr(
        not(feature = "std"),
        expect(dead_code, reason = "only `map_tables` opens files")
    )]
    pub(super) name: &'n [u8],
    /// An address in it.
    pub(super) addr: u64,
    /// By its program headers.
    pub(super) object: LoadedObject,
    /// Whether it is the loader itself or, in a static program, the only object.
    pub(super) is_loader: bool,
}

/// Visits the objects in the order in which they were loaded, until `visit` yields `false`. Not
/// async-signal-safe: takes the loader's lock.
pub(super) fn for_each_object<V: FnMut(ListedObject<'_>) -> bool>(visit: V) {
    struct Visitor<V> {
        visit: V,
        loader: u64,
    }
    unsafe extern "C" fn next<V: FnMut(ListedObject<'_>) -> bool>(
        object: *mut libc::dl_phdr_info,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes the pointer that it got below, once for each object.
        let visitor = unsafe { &mut *data.cast::<Visitor<V>>() };
        // SAFETY: the loader passes an object that it keeps until this returns.
        let object = unsafe { &*object };
        let name = if object.dlpi_name.is_null() {
            c""
        } else {
            // SAFETY: the loader keeps the name as long as the object.
            unsafe { CStr::from_ptr(object.dlpi_name) }
        };
        let listed = LoadedObject::from_phdr_info(object);
        let listed = ListedObject {
            name: name.to_bytes(),
            addr: listed.start,
            object: listed,
            is_loader: visitor.loader == 0 || object.dlpi_addr == visitor.loader,
        };
        c_int::from(!(visitor.visit)(listed))
    }
    // SAFETY: reads a value that the kernel gave the process at its start; cannot fail.
    let loader = unsafe { libc::getauxval(libc::AT_BASE) };
    let mut visitor = Visitor { visit, loader };
    // SAFETY: `next` takes the arguments of `dl_iterate_phdr`, and this data.
    unsafe { libc::dl_iterate_phdr(Some(next::<V>), (&raw mut visitor).cast()) };
}

/// A value that is set once, by the first caller; no caller waits. Async-signal-safe.
#[derive(Debug)]
pub struct SetOnce<T> {
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value is written by the one thread that changed the state from `EMPTY`, before any
// other can see `SET`, and only shared from then on.
unsafe impl<T: Send + Sync> Sync for SetOnce<T> {}

impl<T> Default for SetOnce<T> {
    fn default() -> Self {
        SetOnce::new()
    }
}

impl<T> SetOnce<T> {
    const EMPTY: u8 = 0;
    const BEING_SET: u8 = 1;
    const SET: u8 = 2;

    /// Not set: all zero.
    #[must_use]
    pub const fn new() -> Self {
        SetOnce {
            state: AtomicU8::new(Self::EMPTY),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// The value, if it is set.
    #[must_use]
    pub fn get(&self) -> Option<&T> {
        let is_set = self.state.load(Ordering::Acquire) == Self::SET;
        // SAFETY: it was written before the state became `SET`, and is not written again.
        is_set.then(|| unsafe { &*self.value.get().cast::<T>() })
    }

    /// Sets the value unless another caller has begun to.
    pub fn set(&self, value: T) -> Option<&T> {
        self.begin()?;
        // SAFETY: only the caller that changed the state from `EMPTY` writes, and no one reads
        // before it is `SET`.
        unsafe { self.value.get().cast::<T>().write(value) };
        self.state.store(Self::SET, Ordering::Release);
        self.get()
    }

    fn begin(&self) -> Option<()> {
        let (from, to) = (Self::EMPTY, Self::BEING_SET);
        let begun = self
            .state
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        begun.ok().map(|_| ())
    }
}

impl<T: PooledBuffer> SetOnce<T> {
    /// The same for a large value: `fill` changes the empty one in its place, without a copy on the
    /// stack.
    pub(super) fn fill(&self, fill: impl FnOnce(&mut T)) -> Option<&T> {
        self.begin()?;
        // SAFETY: as in `set`.
        let place = unsafe { &mut *self.value.get() };
        fill(place.write(const { T::EMPTY }));
        self.state.store(Self::SET, Ordering::Release);
        self.get()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    /// Before glibc 2.35 the loader's list is used.
    #[test]
    fn listed_objects_are_where_glibc_finds_them() {
        let find = find_object_function().unwrap();
        let mut addresses = Vec::new();
        for_each_object(|listed| {
            addresses.push(listed.addr);
            true
        });
        assert!(addresses.len() > 3, "{addresses:x?}");
        for address in addresses {
            let found = found_by(find, address).unwrap();
            for address in [found.start, address, found.end - 1] {
                let listed = listed_at(address).unwrap();
                assert!(listed.is_where(&found), "{listed:x?} {found:x?}");
            }
        }
        assert!(listed_at(0).is_none());
    }

    /// The loader's opinion on functions of the C library, of this program, and of no one.
    #[test]
    fn exported_functions_are_where_the_loader_finds_them() {
        let within = RuntimeAddr(libc::malloc as *const () as usize as u64);
        for (name, is_there) in [
            (c"malloc", true),
            (c"qsort", true),
            (c"pthread_cancel", true),
            (c"mallo", false),
            (c"unspool", false),
        ] {
            let found = super::super::modules().symbol(within, name.to_bytes());
            assert_eq!(found.is_some(), is_there, "{name:?}");
            // SAFETY: the name ends with a zero byte.
            let loaders = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_eq!(found.map_or(0, |found| found.0), loaders.addr() as u64);
        }
        let nowhere = super::super::modules().symbol(RuntimeAddr(8), b"malloc");
        assert_eq!(nowhere, None);
    }
}
