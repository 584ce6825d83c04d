//! Mapping code and calling it; a process for it, and the fence around that.
#![expect(unsafe_code, reason = "mapping, calling machine code, system calls")]

use std::ffi::{c_int, c_void};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::ptr::{self, NonNull};

use unspool_native::Mapped;

use super::{NativeFrame, NativeMemory};

const PAGE: usize = 0x1000;

/// Some pages.
#[derive(Debug)]
pub(super) struct Map {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the pages are this value's, and mapped from wherever it is dropped.
unsafe impl Send for Map {}
// SAFETY: nothing is written to the pages once there is a value, and the code keeps no state.
unsafe impl Sync for Map {}

type Read = unsafe extern "C" fn(*mut c_void, u64, u64, *mut u64) -> c_int;

/// `struct unspool_memory`
#[repr(C)]
struct RawMemory {
    stack: u64,
    stack_end: u64,
    read: Option<Read>,
    argument: *mut c_void,
}

type Step = unsafe extern "C" fn(*mut NativeFrame, u64, u64, *const RawMemory) -> c_int;

/// Answers the code's question for memory.
///
/// # Safety
///
/// `argument` is a [`NativeMemory`] that lives, `value` can be written.
unsafe extern "C" fn read(
    argument: *mut c_void,
    address: u64,
    size: u64,
    value: *mut u64,
) -> c_int {
    // SAFETY: as the caller promises.
    let memory = unsafe { &*argument.cast::<NativeMemory<'_>>() };
    match (memory.read)(address, size) {
        Some(found) => {
            // SAFETY: as the caller promises.
            unsafe { value.write(found) };
            0
        }
        None => 1,
    }
}

impl Map {
    pub(super) fn new(parts: &[Mapped<'_>]) -> io::Result<Map> {
        let end_of = |part: &Mapped<'_>| place(part.address)?.checked_add(part.bytes.len());
        let mut length = 0;
        for part in parts {
            length = length.max(end_of(part).ok_or(io::ErrorKind::InvalidInput)?);
        }
        let length = length.max(1).next_multiple_of(PAGE);
        // SAFETY: a new mapping, at no particular place.
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
        let start = match NonNull::new(start.cast()) {
            Some(pages) if start != libc::MAP_FAILED => pages,
            _ => return Err(io::Error::last_os_error()),
        };
        let map = Map { start, length };
        for part in parts {
            map.fill(part);
        }
        map.protect(0..length, libc::PROT_READ)?;
        for part in parts.iter().filter(|part| part.is_code) {
            let first = place(part.address).unwrap_or(0) / PAGE * PAGE;
            let end = end_of(part).unwrap_or(0).next_multiple_of(PAGE);
            map.protect(first..end, libc::PROT_READ | libc::PROT_EXEC)?;
        }
        Ok(map)
    }

    fn fill(&self, part: &Mapped<'_>) {
        let at = place(part.address).unwrap_or(self.length);
        if at
            .checked_add(part.bytes.len())
            .is_none_or(|end| end > self.length)
        {
            return;
        }
        // SAFETY: inside the mapping, as was just seen.
        let to = unsafe { self.start.add(at) };
        // SAFETY: so many bytes are there, writable, and nobody else knows of them.
        unsafe { ptr::copy_nonoverlapping(part.bytes.as_ptr(), to.as_ptr(), part.bytes.len()) };
    }

    fn protect(&self, pages: std::ops::Range<usize>, protection: c_int) -> io::Result<()> {
        // SAFETY: pages of the mapping.
        let start = unsafe { self.start.add(pages.start.min(self.length)) };
        let length = pages.end.min(self.length).saturating_sub(pages.start);
        // SAFETY: pages of the mapping, which only this value knows of.
        match unsafe { libc::mprotect(start.as_ptr().cast(), length, protection) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn step(
        &self,
        entry: u64,
        frame: &mut NativeFrame,
        address: u64,
        bias: u64,
        memory: &NativeMemory<'_>,
    ) -> c_int {
        let stack = memory.stack.as_ptr_range();
        let raw = RawMemory {
            stack: stack.start.addr() as u64,
            stack_end: stack.end.addr() as u64,
            read: Some(read),
            argument: ptr::from_ref(memory).cast_mut().cast(),
        };
        let entry = place(entry).unwrap_or(0).min(self.length - 1);
        // SAFETY: inside the mapping.
        let code = unsafe { self.start.add(entry) };
        // SAFETY: a function pointer is an address; whether it may be called is said below.
        let step = unsafe { std::mem::transmute::<NonNull<u8>, Step>(code) };
        // SAFETY: the frame and the memory are as the function's contract wants them, and live. That the code
        // keeps to its side, `super::NativeCode` knows from who wrote it: `unspool_native`, for this process or
        // for its user. For `super::Check` it is what is to be found out: that process is behind the fence, does
        // nothing afterwards but say what it found, and nobody believes it if it was killed.
        unsafe { step(frame, address, bias, &raw) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and nothing in it is used any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

fn place(address: u64) -> Option<usize> {
    usize::try_from(address).ok()
}

/// A process gets no more of the processor's time than so many seconds.
const LIMIT: libc::rlim_t = 60;

/// Has a process of its own do some work, behind a fence, and returns what came of it, and how the process ended.
///
/// The process is a copy of this one, of this thread alone, and its work must neither allocate nor make system calls.
/// With nothing open but where its result goes, it can do nothing but compute (`seccomp`(2), strict mode), and is
/// killed when its time is over.
pub(super) fn apart<const N: usize>(
    work: impl FnOnce() -> [u8; N],
) -> io::Result<(Vec<u8>, ExitStatus)> {
    let (output, input) = io::pipe()?;
    // SAFETY: the new process calls nothing but `work`, which is as is said above, and system calls.
    let process = match unsafe { libc::fork() } {
        0 => match fence(input.as_raw_fd()) {
            Ok(()) => end(&work()),
            Err(_) => end(&[]),
        },
        -1 => return Err(io::Error::last_os_error()),
        process => process,
    };
    drop(input);
    let mut bytes = Vec::new();
    let read = output.take(N as u64).read_to_end(&mut bytes);
    let mut status = 0;
    // SAFETY: a child of this process that was not waited for, and a number that can be written.
    while unsafe { libc::waitpid(process, &raw mut status, 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    read?;
    Ok((bytes, ExitStatus::from_raw(status)))
}

/// Where the result goes.
const OUTPUT: c_int = 0;

/// Leaves this process nothing but what it may write its result to, and to compute.
fn fence(output: c_int) -> io::Result<()> {
    let done = |result: c_int| match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    let limit = libc::rlimit {
        rlim_cur: LIMIT,
        rlim_max: LIMIT,
    };
    // SAFETY: reads what it is given.
    done(unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) })?;
    // SAFETY: takes numbers only.
    done(unsafe { libc::dup2(output, OUTPUT) })?;
    // SAFETY: the files are this process's alone, which uses none of them again.
    done(unsafe { libc::close_range(1, u32::MAX, 0) })?;
    // SAFETY: takes numbers only.
    done(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) })
}

/// Ends a process behind the fence; with an error if there is no result.
fn end(mut bytes: &[u8]) -> ! {
    let failed = bytes.is_empty();
    while !bytes.is_empty() {
        // SAFETY: so many bytes are there.
        let written = unsafe { libc::write(OUTPUT, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written) {
            Ok(written @ 1..) => bytes = bytes.get(written..).unwrap_or_default(),
            _ => break,
        }
    }
    loop {
        // SAFETY: ends this thread, which is the only one; `exit_group` is not allowed behind the fence.
        unsafe { libc::syscall(libc::SYS_exit, i64::from(failed || !bytes.is_empty())) };
    }
}
