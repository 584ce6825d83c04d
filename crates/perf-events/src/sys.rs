//! The system calls of this crate, and the memory that it shares with the kernel.
#![expect(
    unsafe_code,
    reason = "system calls, and memory that the kernel writes to"
)]

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::{PERF_FLAG_FD_CLOEXEC, perf_event_attr, perf_event_mmap_page};
use perf_event_open_sys::ioctls;

/// Opens an event of a thread (or of all: -1) on a CPU (or on all: -1).
pub(crate) fn open(attr: &mut perf_event_attr, tid: i32, cpu: i32) -> io::Result<OwnedFd> {
    attr.size = u32::try_from(size_of::<perf_event_attr>()).unwrap_or_default();
    let flags = PERF_FLAG_FD_CLOEXEC.into();
    // SAFETY: the attributes are initialized, and contain their size.
    let fd = unsafe { perf_event_open_sys::perf_event_open(attr, tid, cpu, -1, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created the descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn done(result: i32) -> io::Result<()> {
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(crate) fn enable(event: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open; the request takes a number.
    done(unsafe { ioctls::ENABLE(event.as_raw_fd(), 0) })
}

pub(crate) fn disable(event: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: as above.
    done(unsafe { ioctls::DISABLE(event.as_raw_fd(), 0) })
}

/// Redirects an event's records to the ring of another.
pub(crate) fn redirect(event: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are open; the request takes one.
    done(unsafe { ioctls::SET_OUTPUT(event.as_raw_fd(), to.as_raw_fd()) })
}

/// The ID by which records refer to the event.
pub(crate) fn id(event: BorrowedFd<'_>) -> io::Result<u64> {
    let mut id = 0;
    // SAFETY: the descriptor is open, and the number outlives the call.
    done(unsafe { ioctls::ID(event.as_raw_fd(), &raw mut id) })?;
    Ok(id)
}

/// Prefetches memory into the CPU's cache. Does nothing on architectures without such an
/// instruction.
pub(crate) fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has the instruction, which changes no memory and never
        // faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// The size of a page of memory in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: the call takes a number only.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// The mapped ring of an event: a page with the read and write positions, and the records.
#[derive(Debug)]
pub(crate) struct RingMap {
    start: NonNull<u8>,
    /// The size of the first page in bytes.
    page: usize,
    /// The size of the record area in bytes.
    capacity: usize,
}

// SAFETY: it has no state of the creating thread. Shared with the kernel are two atomic numbers,
// and bytes that the kernel does not write while they are borrowed (see `RingMap::bytes`).
unsafe impl Send for RingMap {}

impl RingMap {
    /// Maps the ring of an event: one page and `data_size` bytes, a power of two of pages.
    pub(crate) fn new(event: BorrowedFd<'_>, data_size: usize) -> io::Result<RingMap> {
        let page = page_size();
        let size = data_size.checked_add(page);
        let size = size.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a mapping at an address that the kernel chooses replaces no other memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(RingMap {
            start,
            page,
            capacity: data_size,
        })
    }

    /// A number of the ring's first page.
    fn number(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the mapping, whose first page is a `perf_event_mmap_page`.
        let number = unsafe { self.start.add(offset) };
        // SAFETY: aligned by that page's layout, and valid while the mapping lives, which outlives
        // the borrow. The kernel reads and writes it as a whole.
        unsafe { AtomicU64::from_ptr(number.as_ptr().cast()) }
    }

    fn head(&self) -> &AtomicU64 {
        self.number(offset_of!(perf_event_mmap_page, data_head))
    }

    fn tail(&self) -> &AtomicU64 {
        self.number(offset_of!(perf_event_mmap_page, data_tail))
    }

    /// The total number of bytes that the kernel has written.
    pub(crate) fn written(&self) -> u64 {
        self.head().load(Ordering::Acquire)
    }

    /// Releases the bytes up to a position to the kernel, which may overwrite them.
    ///
    /// Borrows the map mutably, so that none of the released bytes are still borrowed.
    pub(crate) fn read_up_to(&mut self, position: u64) {
        self.tail().store(position, Ordering::Release);
    }

    /// The capacity in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The bytes of the ring from `at` on, where `size` of them are written and not released, and
    /// do not wrap. `None` if that range is not in the ring.
    ///
    /// The caller must ensure that they are written: [`RingMap::written`] is the kernel's write
    /// position. The kernel does not overwrite bytes that were not released.
    pub(crate) fn bytes(&self, at: usize, size: usize) -> Option<&[u8]> {
        let end = at.checked_add(size)?;
        if end > self.capacity {
            return None;
        }
        let from_start = self.page.checked_add(at)?;
        // SAFETY: within the mapping, by the comparison.
        let first = unsafe { self.start.add(from_start) };
        // SAFETY: within the mapping, readable, and initialized by the kernel. The kernel does not
        // overwrite written bytes before their release; `read_up_to` cannot be called during the
        // borrow.
        Some(unsafe { std::slice::from_raw_parts(first.as_ptr(), size) })
    }
}

impl Drop for RingMap {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and none of it is borrowed any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.page + self.capacity) };
    }
}
