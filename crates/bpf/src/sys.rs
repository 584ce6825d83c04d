//! The system call `bpf(2)`, and the memory that maps share with the kernel.
//!
//! Each command has its own part of `union bpf_attr`. The kernel reads the rest as 0. It opens all
//! descriptors with `O_CLOEXEC`.
#![expect(
    unsafe_code,
    reason = "system calls, and memory that the kernel writes to"
)]

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A part of `union bpf_attr`, with its command's number in `enum bpf_cmd`.
trait Attr {
    const CMD: libc::c_int;
}

/// # Safety
///
/// Each address in `attr` must be that of live memory, as large as the kernel expects. If the
/// kernel writes to it, it must be borrowed mutably.
unsafe fn bpf<A: Attr>(attr: &mut A) -> io::Result<libc::c_long> {
    let attr = ptr::from_mut(attr);
    // SAFETY: a part of `union bpf_attr` with its size. The caller vouches for the addresses.
    let result = unsafe { libc::syscall(libc::SYS_bpf, A::CMD, attr, size_of::<A>()) };
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

/// # Safety
///
/// As for [`bpf`]. The command must open a descriptor.
unsafe fn bpf_open<A: Attr>(attr: &mut A) -> io::Result<OwnedFd> {
    // SAFETY: the caller vouches for the addresses.
    let fd = unsafe { bpf(attr) }?;
    let fd = libc::c_int::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just opened the descriptor, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn fd(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// The address of a slice. 0 if it is empty, which the kernel requires.
fn address<T>(slice: &[T]) -> u64 {
    if slice.is_empty() {
        0
    } else {
        slice.as_ptr().expose_provenance() as u64
    }
}

/// The address of a slice that the kernel writes to. 0 if it is empty.
fn address_mut<T>(slice: &mut [T]) -> u64 {
    if slice.is_empty() {
        0
    } else {
        slice.as_mut_ptr().expose_provenance() as u64
    }
}

fn length<T>(slice: &[T]) -> io::Result<u32> {
    u32::try_from(slice.len()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// A name in the kernel's form: at most 15 bytes.
pub(crate) fn name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (byte, letter) in bytes.iter_mut().take(15).zip(name.bytes()) {
        *byte = letter;
    }
    bytes
}

#[derive(Debug, Default)]
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; 16],
}

impl Attr for MapCreate {
    const CMD: libc::c_int = 0;
}

/// The definition of a map. Sizes are in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MapDef<'a> {
    pub(crate) map_type: u32,
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
    pub(crate) flags: u32,
    pub(crate) name: [u8; 16],
    /// A map with the type and size of the values, in a map of maps.
    pub(crate) inner: Option<BorrowedFd<'a>>,
}

pub(crate) fn map_create(def: MapDef<'_>) -> io::Result<OwnedFd> {
    let mut attr = MapCreate {
        map_type: def.map_type,
        key_size: def.key_size,
        value_size: def.value_size,
        max_entries: def.max_entries,
        map_flags: def.flags,
        inner_map_fd: def.inner.map_or(0, fd),
        numa_node: 0,
        map_name: def.name,
    };
    // SAFETY: there are no addresses. The command opens a descriptor.
    unsafe { bpf_open(&mut attr) }
}

/// An operation on an element of a map.
#[derive(Debug)]
#[repr(C)]
struct Elem<const CMD: libc::c_int> {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl<const CMD: libc::c_int> Attr for Elem<CMD> {
    const CMD: libc::c_int = CMD;
}

impl<const CMD: libc::c_int> Elem<CMD> {
    fn new(map: BorrowedFd<'_>, key: &[u8], value: u64) -> Elem<CMD> {
        Elem {
            map_fd: fd(map),
            padding: 0,
            key: address(key),
            value,
            flags: 0,
        }
    }
}

/// A map, with the sizes of its keys and values in bytes.
#[derive(Debug)]
pub(crate) struct SizedMap {
    pub(crate) fd: OwnedFd,
    key_size: usize,
    value_size: usize,
}

impl SizedMap {
    /// Creates a map. It must not have a value for each processor: system calls then copy more
    /// bytes than `value_size`.
    pub(crate) fn create(def: MapDef<'_>) -> io::Result<SizedMap> {
        let size = |size| usize::try_from(size).map_err(io::Error::other);
        Ok(SizedMap {
            key_size: size(def.key_size)?,
            value_size: size(def.value_size)?,
            fd: map_create(def)?,
        })
    }

    fn check(&self, key: &[u8], value: Option<&[u8]>) -> io::Result<()> {
        let value_size = value.map_or(self.value_size, <[u8]>::len);
        if key.len() == self.key_size && value_size == self.value_size {
            Ok(())
        } else {
            Err(io::ErrorKind::InvalidInput.into())
        }
    }

    pub(crate) fn lookup(&self, key: &[u8], value: &mut [u8]) -> io::Result<()> {
        self.check(key, Some(value))?;
        let value = address_mut(value);
        // SAFETY: key and value have the map's sizes, by the check. The value is borrowed mutably.
        unsafe { bpf(&mut Elem::<1>::new(self.fd.as_fd(), key, value)) }?;
        Ok(())
    }

    pub(crate) fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.check(key, Some(value))?;
        let value = address(value);
        // SAFETY: key and value have the map's sizes, by the check. The kernel only reads them.
        unsafe { bpf(&mut Elem::<2>::new(self.fd.as_fd(), key, value)) }?;
        Ok(())
    }

    pub(crate) fn delete(&self, key: &[u8]) -> io::Result<()> {
        self.check(key, None)?;
        // SAFETY: the key has the map's size, by the check. The command uses no value.
        unsafe { bpf(&mut Elem::<3>::new(self.fd.as_fd(), key, 0)) }?;
        Ok(())
    }
}

#[derive(Debug, Default)]
#[repr(C)]
struct BtfLoad {
    btf: u64,
    btf_log_buf: u64,
    btf_size: u32,
    btf_log_size: u32,
    btf_log_level: u32,
    padding: u32,
}

impl Attr for BtfLoad {
    const CMD: libc::c_int = 18;
}

/// Loads types.
pub(crate) fn btf_load(btf: &[u8]) -> io::Result<OwnedFd> {
    let mut attr = BtfLoad {
        btf: address(btf),
        btf_size: length(btf)?,
        ..BtfLoad::default()
    };
    // SAFETY: address and size are those of a slice that the kernel only reads. The command opens a
    // descriptor.
    unsafe { bpf_open(&mut attr) }
}

#[derive(Debug, Default)]
#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    padding: u32,
}

impl Attr for ProgLoad {
    const CMD: libc::c_int = 5;
}

/// The definition of a program.
#[derive(Debug)]
pub(crate) struct ProgDef<'a> {
    pub(crate) prog_type: u32,
    pub(crate) flags: u32,
    pub(crate) name: [u8; 16],
    pub(crate) insns: &'a [u8],
    pub(crate) btf: BorrowedFd<'a>,
    /// `struct bpf_func_info`
    pub(crate) func_info: &'a [[u32; 2]],
}

/// Verifies and loads a program. The verifier writes its log unless `log` is empty.
pub(crate) fn prog_load(def: &ProgDef<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    let license = c"Dual MIT/GPL".to_bytes_with_nul();
    let mut attr = ProgLoad {
        prog_type: def.prog_type,
        insn_cnt: length(def.insns)? / 8,
        insns: address(def.insns),
        license: address(license),
        log_level: (!log.is_empty()).into(),
        log_size: length(log)?,
        log_buf: address_mut(log),
        prog_flags: def.flags,
        prog_name: def.name,
        prog_btf_fd: fd(def.btf),
        func_info_rec_size: 8,
        func_info: address(def.func_info),
        func_info_cnt: length(def.func_info)?,
        ..ProgLoad::default()
    };
    // SAFETY: each address is that of a slice with its length, or of a string that ends with 0. The
    // kernel writes only to the log, which is borrowed mutably. The command opens a descriptor.
    unsafe { bpf_open(&mut attr) }
}

#[derive(Debug, Default)]
#[repr(C)]
struct ProgTestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    padding: u32,
}

impl Attr for ProgTestRun {
    const CMD: libc::c_int = 10;
}

/// Runs a program once with a context. Returns its result.
pub(crate) fn prog_test_run(prog: BorrowedFd<'_>, ctx: &mut [u8]) -> io::Result<u32> {
    let mut attr = ProgTestRun {
        prog_fd: fd(prog),
        ctx_size_in: length(ctx)?,
        ctx_in: address_mut(ctx),
        ..ProgTestRun::default()
    };
    // SAFETY: address and size are those of the context, which is borrowed mutably. The kernel
    // copies the context of a program of type `syscall` back to `ctx_in`.
    unsafe { bpf(&mut attr) }?;
    Ok(attr.retval)
}

#[derive(Debug)]
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    bpf_cookie: u64,
}

impl Attr for LinkCreate {
    const CMD: libc::c_int = 28;
}

/// Attaches a program to a performance event (`BPF_PERF_EVENT`).
pub(crate) fn link_perf_event(
    prog: BorrowedFd<'_>,
    event: BorrowedFd<'_>,
    bpf_cookie: u64,
) -> io::Result<OwnedFd> {
    let mut attr = LinkCreate {
        prog_fd: fd(prog),
        target_fd: fd(event),
        attach_type: 41,
        flags: 0,
        bpf_cookie,
    };
    // SAFETY: there are no addresses. The command opens a descriptor.
    unsafe { bpf_open(&mut attr) }
}

/// The first fields of `struct bpf_prog_info`. The kernel writes no arrays where addresses are 0.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct ProgInfo {
    prog_type: u32,
    pub(crate) id: u32,
    tag: [u8; 8],
    pub(crate) jited_prog_len: u32,
    xlated_prog_len: u32,
    insns: [u64; 2],
    load_time: u64,
    created_by_uid: u32,
    nr_map_ids: u32,
    map_ids: u64,
    name: [u8; 16],
    ifindex: u32,
    gpl_compatible: u32,
    netns: [u64; 2],
    jited_ksyms: [u64; 3],
    pub(crate) btf_id: u32,
    func_info_rec_size: u32,
    func_info: u64,
    nr_func_info: u32,
    nr_line_info: u32,
    line_info: [u64; 5],
    pub(crate) run_time_ns: u64,
    pub(crate) run_cnt: u64,
    recursion_misses: u64,
    pub(crate) verified_insns: u32,
    attach_btf_obj_id: u32,
}

#[derive(Debug)]
#[repr(C)]
struct InfoByFd {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

impl Attr for InfoByFd {
    const CMD: libc::c_int = 15;
}

/// The kernel's information on a program.
pub(crate) fn prog_info(prog: BorrowedFd<'_>) -> io::Result<ProgInfo> {
    let mut info = [ProgInfo::default()];
    let mut attr = InfoByFd {
        bpf_fd: fd(prog),
        info_len: u32::try_from(size_of::<ProgInfo>()).map_err(io::Error::other)?,
        info: address_mut(&mut info),
    };
    // SAFETY: address and size are those of a structure of numbers, borrowed mutably.
    unsafe { bpf(&mut attr) }?;
    let [info] = info;
    Ok(info)
}

#[derive(Debug)]
#[repr(C)]
struct EnableStats {
    stats_type: u32,
}

impl Attr for EnableStats {
    const CMD: libc::c_int = 32;
}

/// Enables statistics on the runs of all programs (`BPF_STATS_RUN_TIME`), until closed.
pub(crate) fn enable_stats() -> io::Result<OwnedFd> {
    // SAFETY: there are no addresses. The command opens a descriptor.
    unsafe { bpf_open(&mut EnableStats { stats_type: 0 }) }
}

/// The size of a page of memory in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: the argument is a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// A map's memory in this process.
///
/// Programs write to it at any time. So it is accessed as atomic numbers, or by
/// [`MapMemory::stable_bytes`].
#[derive(Debug)]
pub(crate) struct MapMemory {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the memory belongs to no thread, and atomic numbers can be shared between threads.
unsafe impl Send for MapMemory {}
// SAFETY: as above.
unsafe impl Sync for MapMemory {}

impl MapMemory {
    /// Maps `size` bytes of a map from `offset` on. Both are multiples of a page.
    pub(crate) fn new(
        map: BorrowedFd<'_>,
        offset: usize,
        size: usize,
        protection: libc::c_int,
    ) -> io::Result<MapMemory> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        let (any, shared) = (ptr::null_mut(), libc::MAP_SHARED);
        // SAFETY: the kernel chooses the address, so no other mapping is replaced.
        let start = unsafe { libc::mmap(any, size, protection, shared, map.as_raw_fd(), offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(MapMemory { start, size })
    }

    /// The size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The address in this process.
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr().addr() as u64
    }

    /// The address of a number. `None` if it is partly outside, or not aligned.
    fn pointer<T>(&self, offset: usize) -> Option<*mut T> {
        let end = offset.checked_add(size_of::<T>())?;
        let fits = end <= self.size && offset.is_multiple_of(align_of::<T>());
        // SAFETY: inside the mapping, by the comparison.
        fits.then(|| unsafe { self.start.add(offset) }.cast().as_ptr())
    }

    /// A number of 8 bytes.
    pub(crate) fn atomic_u64(&self, offset: usize) -> Option<&AtomicU64> {
        let pointer = self.pointer(offset)?;
        // SAFETY: inside the mapping and aligned, by `pointer`, and live while the mapping is
        // borrowed. Kernel and programs access it as another process does.
        Some(unsafe { AtomicU64::from_ptr(pointer) })
    }

    /// A number of 4 bytes.
    pub(crate) fn atomic_u32(&self, offset: usize) -> Option<&AtomicU32> {
        let pointer = self.pointer(offset)?;
        // SAFETY: as for `atomic_u64`.
        Some(unsafe { AtomicU32::from_ptr(pointer) })
    }

    /// Takes memory for all pages from one offset to another.
    pub(crate) fn populate(&self, start: usize, end: usize) -> io::Result<()> {
        let start = start & !(page_size() - 1);
        if start >= end || end > self.size {
            return Ok(());
        }
        // SAFETY: inside the mapping, by the comparison.
        let first = unsafe { self.start.add(start) };
        // SAFETY: the pages are the mapping's. None of their bytes changes.
        let done = unsafe {
            libc::madvise(
                first.as_ptr().cast(),
                end - start,
                libc::MADV_POPULATE_WRITE,
            )
        };
        if done == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Bytes that do not change while the mapping is borrowed. The caller has to know that.
    pub(crate) fn stable_bytes(&self, offset: usize, size: usize) -> Option<&[u8]> {
        let end = offset.checked_add(size)?;
        if end > self.size {
            return None;
        }
        // SAFETY: inside the mapping, by the comparison.
        let first = unsafe { self.start.add(offset) };
        // SAFETY: inside the mapping and readable. The caller knows that nobody writes to it.
        Some(unsafe { std::slice::from_raw_parts(first.as_ptr(), size) })
    }
}

impl Drop for MapMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no longer borrowed.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.size) };
    }
}
