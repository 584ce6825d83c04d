//! System calls that a traced thread makes for its tracer.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use unspool_process::maps::{Mapping, Mappings};

use crate::sys::{self, WaitStatus};

/// The instruction `syscall`.
pub(crate) const SYSCALL: [u8; 2] = [0x0f, 0x05];
const PAGE_BYTES: u64 = 4096;
/// The lowest address that programs may map, by the default of `vm.mmap_min_addr`.
pub(crate) const LOWEST: u64 = 1 << 16;
/// Size of the blocks that a mapping is searched in, in bytes.
const CHUNK: usize = 1 << 16;

/// Makes a thread execute a system call by the instruction at `syscall`, and restores its state. It
/// must have stopped outside of any system call.
pub(crate) fn call(tid: i32, syscall: u64, number: i64, arguments: [u64; 6]) -> io::Result<u64> {
    let saved = sys::registers(tid)?;
    let mut regs = saved;
    regs.rip = syscall;
    regs.rax = number.cast_unsigned();
    // No interrupted system call is restarted.
    regs.orig_rax = u64::MAX;
    let [rdi, rsi, rdx, r10, r8, r9] = arguments;
    (regs.rdi, regs.rsi, regs.rdx) = (rdi, rsi, rdx);
    (regs.r10, regs.r8, regs.r9) = (r10, r8, r9);
    sys::set_registers(tid, &regs)?;
    step(tid)?;
    let result = sys::registers(tid)?.rax;
    sys::set_registers(tid, &saved)?;
    match i32::try_from(result.cast_signed()) {
        Ok(error @ -4095..=-1) => Err(io::Error::from_raw_os_error(-error)),
        _ => Ok(result),
    }
}

/// Makes a stopped thread execute one instruction, and waits for it. No handler runs meanwhile:
/// signals arrive later, except a `SIGSTOP`, which is dropped.
pub(crate) fn step(tid: i32) -> io::Result<()> {
    const DONE: WaitStatus = WaitStatus::Stopped {
        signal: libc::SIGTRAP,
        event: 0,
    };
    let blocked = sys::blocked_signals(tid)?;
    // The step itself is reported by a signal.
    let trap = 1 << (libc::SIGTRAP - 1);
    sys::block_signals(tid, !trap)?;
    loop {
        sys::step(tid, 0)?;
        if sys::wait_for(tid)? == DONE {
            break;
        }
    }
    sys::block_signals(tid, blocked)
}

/// Address of a `syscall` instruction in executable memory. The kernel's own code for processes has
/// one, and is mapped last.
pub(crate) fn find_syscall(maps: &Mappings, memory: &File) -> Option<u64> {
    let mut mappings: Vec<&Mapping> = maps.iter().filter(|m| m.permissions.execute).collect();
    mappings.reverse();
    mappings.into_iter().find_map(|mapping| {
        let mut bytes = vec![0; CHUNK];
        let chunks = (mapping.start.0..mapping.end.0).step_by(CHUNK);
        chunks.into_iter().find_map(|start| {
            let length = memory.read_at(&mut bytes, start).unwrap_or(0);
            let end = usize::try_from(mapping.end.0 - start).unwrap_or(CHUNK);
            let read = bytes.get(..length.min(end))?;
            let place = read.windows(SYSCALL.len()).position(|at| at == SYSCALL)?;
            Some(start + u64::try_from(place).ok()?)
        })
    })
}

/// Address of `size` free bytes, as near to an address as possible. They are right below a mapping,
/// where neither the heap nor a stack grows: these grow towards each other.
pub(crate) fn free_near(maps: &Mappings, near: u64, size: u64) -> Option<u64> {
    let mut end = LOWEST;
    let mut nearest = None;
    for mapping in maps {
        let start = mapping.start.0;
        let is_stack = mapping.name.as_ref().is_some_and(|name| name == "[stack]");
        if start >= end.saturating_add(size + PAGE_BYTES) && !is_stack {
            let found = start - size;
            nearest = nearest
                .into_iter()
                .chain([found])
                .min_by_key(|at: &u64| at.abs_diff(near));
        }
        end = mapping.end.0;
    }
    nearest
}

/// Maps private memory of `size` bytes, at an address if that is free, else anywhere.
pub(crate) fn map(tid: i32, syscall: u64, at: u64, size: u64, access: i32) -> io::Result<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let [access, flags] = [access, flags].map(|bits| u64::from(bits.unsigned_abs()));
    let arguments = [at, size, access, flags, u64::MAX, 0];
    call(tid, syscall, libc::SYS_mmap, arguments)
}

/// The entry point of a program (`AT_ENTRY`).
pub(crate) fn entry(tid: i32) -> io::Result<u64> {
    let bytes = std::fs::read(format!("/proc/{tid}/auxv"))?;
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let (pairs, _) = words.as_chunks::<2>();
    let mut values = pairs.iter().filter(|[key, _]| *key == libc::AT_ENTRY);
    let entry = values.next().map(|[_, value]| *value);
    entry.ok_or_else(|| io::ErrorKind::NotFound.into())
}
