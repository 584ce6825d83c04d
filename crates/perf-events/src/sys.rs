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

/// Opens an event of a thread (or of all: -1) on a processor (or on all: -1).
pub(crate) fn open(attr: &mut perf_event_attr, tid: i32, cpu: i32) -> io::Result<OwnedFd> {
    attr.size = u32::try_from(size_of::<perf_event_attr>()).unwrap_or_default();
    let flags = PERF_FLAG_FD_CLOEXEC.into();
    // SAFETY: the attributes are initialized, and say how long they are.
    let fd = unsafe { perf_event_open_sys::perf_event_open(attr, tid, cpu, -1, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made the descriptor, for nobody else.
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

/// Has an event write its records to the ring of another.
pub(crate) fn redirect(event: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are open; the request takes one.
    done(unsafe { ioctls::SET_OUTPUT(event.as_raw_fd(), to.as_raw_fd()) })
}

/// The number by which records name the event.
pub(crate) fn id(event: BorrowedFd<'_>) -> io::Result<u64> {
    let mut id = 0;
    // SAFETY: the descriptor is open, and the number lives through the call.
    done(unsafe { ioctls::ID(event.as_raw_fd(), &raw mut id) })?;
    Ok(id)
}

/// Has the processor bring memory to its cache. Nothing on processors without a way to ask for that.
pub(crate) fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has the instruction, which changes no memory and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// The size of a page of memory in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: takes a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// The ring of an event, mapped: a page that says how far it is written and read, and the
/// records.
#[derive(Debug)]
pub(crate) struct RingMap {
    start: NonNull<u8>,
    /// How many bytes the first page has.
    page: usize,
    /// How many the records have.
    capacity: usize,
}

// SAFETY: nothing of it belongs to the thread that made it. What is shared with the kernel are two
// atomic numbers, and bytes that the kernel leaves alone while they are lent out (see `RingMap::bytes`).
unsafe impl Send for RingMap {}

impl RingMap {
    /// Maps the ring of an event: one page and `data_size` bytes, a power of two of pages.
    pub(crate) fn new(event: BorrowedFd<'_>, data_size: usize) -> io::Result<RingMap> {
        let page = page_size();
        let size = data_size.checked_add(page);
        let size = size.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a mapping at an address that the kernel chooses takes nobody's memory.
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
        // SAFETY: aligned as that page has it, and there for as long as the mapping lives, which is as
        // long as the borrow. The kernel reads and writes it as a whole.
        unsafe { AtomicU64::from_ptr(number.as_ptr().cast()) }
    }

    fn head(&self) -> &AtomicU64 {
        self.number(offset_of!(perf_event_mmap_page, data_head))
    }

    fn tail(&self) -> &AtomicU64 {
        self.number(offset_of!(perf_event_mmap_page, data_tail))
    }

    /// How many bytes the kernel has ever written.
    pub(crate) fn written(&self) -> u64 {
        self.head().load(Ordering::Acquire)
    }

    /// Tells the kernel how many bytes are read: it may write over them.
    ///
    /// Takes the map for itself, so that nothing of what was read is still lent out.
    pub(crate) fn read_up_to(&mut self, position: u64) {
        self.tail().store(position, Ordering::Release);
    }

    /// How many bytes the ring has room for.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The bytes of the ring from `at` on, where `size` of them are neither read nor still to be written,
    /// and do not wrap; `None` if there is no such place in it.
    ///
    /// That they are so is the caller's to see to: [`RingMap::written`] says how far the kernel has come,
    /// and it does not write beyond what it was told is read.
    pub(crate) fn bytes(&self, at: usize, size: usize) -> Option<&[u8]> {
        let end = at.checked_add(size)?;
        if end > self.capacity {
            return None;
        }
        let from_start = self.page.checked_add(at)?;
        // SAFETY: within the mapping, by the comparison.
        let first = unsafe { self.start.add(from_start) };
        // SAFETY: within the mapping, readable, and initialized by the kernel. It does not write to what
        // it has written and was not told to be read; `read_up_to` cannot be called during the borrow.
        Some(unsafe { std::slice::from_raw_parts(first.as_ptr(), size) })
    }
}

impl Drop for RingMap {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing of it is lent out any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.page + self.capacity) };
    }
}
