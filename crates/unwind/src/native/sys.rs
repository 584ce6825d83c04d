//! Mapping code and calling it. Async-signal-safe.
#![expect(unsafe_code, reason = "mapping and calling machine code")]

#[cfg(feature = "std")]
pub(super) mod fence;

use core::ffi::{c_int, c_void};
use core::mem;
use core::ops::Range;
use core::ptr::{self, NonNull};

use unspool_native_table::{ObjectSegment, ObjectView};

use super::{NativeCode, NativeFrame, NativeMemory};

const PAGE_BYTES: usize = 0x1000;

/// Mapped pages.
#[derive(Debug)]
pub(super) struct CodeMap {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the pages belong to this value, and are mapped for every thread that may drop it.
unsafe impl Send for CodeMap {}
// SAFETY: nothing is written to the pages once there is a value, and the code keeps no state.
unsafe impl Sync for CodeMap {}

type ReadFn = unsafe extern "C" fn(*mut c_void, u64, u64, *mut u64) -> c_int;

/// `struct unspool_memory`
#[repr(C)]
struct RawMemory {
    stack: u64,
    stack_end: u64,
    read: Option<ReadFn>,
    argument: *mut c_void,
}

type StepFn = unsafe extern "C" fn(*mut NativeFrame, u64, u64, *const RawMemory) -> c_int;

/// Serves the code's reads of memory.
///
/// # Safety
///
/// `argument` is a [`NativeMemory`] of this type without other users, `value` is writable.
unsafe extern "C" fn read<R: FnMut(u64, u64) -> Option<u64>>(
    argument: *mut c_void,
    address: u64,
    size: u64,
    value: *mut u64,
) -> c_int {
    // SAFETY: as the caller promises.
    let memory = unsafe { &mut *argument.cast::<NativeMemory<'_, R>>() };
    match (memory.read)(address, size) {
        Some(found) => {
            // SAFETY: as the caller promises.
            unsafe { value.write(found) };
            0
        }
        None => 1,
    }
}

impl CodeMap {
    /// Maps segments; `None` if the system refuses.
    pub(super) fn new(parts: &[ObjectSegment<'_>]) -> Option<CodeMap> {
        let end_of = |part: &ObjectSegment<'_>| place(part.address)?.checked_add(part.bytes.len());
        let mut length = 0;
        for part in parts {
            length = length.max(end_of(part)?);
        }
        let length = length.max(1).next_multiple_of(PAGE_BYTES);
        // SAFETY: a new mapping, at any address.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let start = NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED)?;
        let map = CodeMap { start, length };
        for part in parts {
            map.fill(part);
        }
        map.protect(0..length, libc::PROT_READ)?;
        for part in parts.iter().filter(|part| part.is_code) {
            let first = place(part.address).unwrap_or(0) / PAGE_BYTES * PAGE_BYTES;
            let end = end_of(part).unwrap_or(0).next_multiple_of(PAGE_BYTES);
            map.protect(first..end, libc::PROT_READ | libc::PROT_EXEC)?;
        }
        Some(map)
    }

    fn fill(&self, part: &ObjectSegment<'_>) {
        let at = place(part.address).unwrap_or(self.length);
        if at
            .checked_add(part.bytes.len())
            .is_none_or(|end| end > self.length)
        {
            return;
        }
        // SAFETY: inside the mapping, as was just checked.
        let to = unsafe { self.start.add(at) };
        // SAFETY: this many bytes are mapped and writable, and have no other user.
        unsafe { ptr::copy_nonoverlapping(part.bytes.as_ptr(), to.as_ptr(), part.bytes.len()) };
    }

    fn protect(&self, pages: Range<usize>, protection: c_int) -> Option<()> {
        // SAFETY: pages of the mapping.
        let start = unsafe { self.start.add(pages.start.min(self.length)) };
        let length = pages.end.min(self.length).saturating_sub(pages.start);
        // SAFETY: pages of the mapping, used only by this value.
        let failed = unsafe { libc::mprotect(start.as_ptr().cast(), length, protection) };
        (failed == 0).then_some(())
    }

    #[inline]
    pub(super) fn step<R: FnMut(u64, u64) -> Option<u64>>(
        &self,
        entry: u64,
        frame: &mut NativeFrame,
        address: u64,
        bias: u64,
        memory: &mut NativeMemory<'_, R>,
    ) -> c_int {
        let stack = memory.stack.as_ptr_range();
        let raw = RawMemory {
            stack: stack.start.addr() as u64,
            stack_end: stack.end.addr() as u64,
            read: Some(read::<R>),
            argument: ptr::from_mut(memory).cast(),
        };
        let entry = place(entry).unwrap_or(0).min(self.length - 1);
        // SAFETY: inside the mapping.
        let code = unsafe { self.start.add(entry) };
        // SAFETY: a function pointer is an address; the reason why it may be called is below.
        let step = unsafe { mem::transmute::<NonNull<u8>, StepFn>(code) };
        // SAFETY: the frame and the memory fulfil the function's contract, and are live. The code
        // fulfils its side: the caller of `map` knows that from its author, `unspool_native_table`,
        // for this process or for its user. For `run_apart` this is unproven: its process is behind
        // the fence, only reports its result afterwards, and the result is discarded if the process
        // was killed.
        unsafe { step(frame, address, bias, &raw) }
    }
}

impl Drop for CodeMap {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and no longer in use.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

fn place(address: u64) -> Option<usize> {
    usize::try_from(address).ok()
}

impl NativeCode {
    /// Maps the code of an object; `None` if the system refuses. Async-signal-safe.
    ///
    /// # Safety
    ///
    /// Its code does what `unspool_native.h` says, and nothing else: it is an object that
    /// `unspool_native_table` has made for this user or root, and that nobody else could have
    /// written.
    #[must_use]
    pub unsafe fn map_trusted(object: &ObjectView<'_>) -> Option<NativeCode> {
        NativeCode::map(object)
    }
}
