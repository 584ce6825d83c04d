//! Memory of a live process, read in large pieces and cached.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Weak};

use unspool_rows::memory::UnreadableReason;
use unspool_rows::{Memory, RuntimeAddr, Unreadable};

use super::copies::{CopiedRanges, fair_share};
use super::pages::{PAGE_BYTES, Page, PageCache};
use super::sys::peek;
use super::tracer::Tracer;
use crate::maps::{Mapping, Mappings};
use crate::{procfs, sys};

/// The bytes that a read in a thread's stack fetches at once.
pub const STACK_WINDOW_BYTES: u64 = 64 << 10;
/// The bytes that any other read fetches at once.
const LINE: u64 = 16 << 10;
/// The limit of cached pages, without prefetched ones: 8 MiB.
const MAX_CACHED_PAGES: usize = 2048;
/// The limit of prefetched bytes of all stacks together.
const MAX_COPY_BYTES: u64 = 512 << 20;
/// The number of stacks read in one system call.
const STACKS_PER_CALL: usize = 64;
/// Reads of at least this size, in bytes, are not cached.
const MIN_UNCACHED_BYTES: usize = 64 << 10;

/// The memory of a process: see [`Process::memory`](crate::Process::memory).
///
/// A read fetches the surrounding 16 KiB, or 64 KiB upwards in the stack of a thread, in one system
/// call. Up to 8 MiB are cached besides prefetched memory. Only mapped addresses are tried. The
/// methods are, in this order, `process_vm_readv`, `/proc/PID/mem`, and `PTRACE_PEEKDATA`. The
/// later ones serve if a sandbox forbids the first, or if a page is not readable for the process
/// itself.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: i32,
    mappings: Arc<Mappings>,
    /// The stack pointers of the stopped threads, ascending.
    stack_pointers: Vec<u64>,
    /// Empty after the process was resumed: from then on only unchanging memory is read.
    tracer: Weak<Tracer>,
    tracee: Option<i32>,
    state: RefCell<ReadState>,
}

#[derive(Debug)]
struct ReadState {
    copies: CopiedRanges,
    pages: PageCache,
    buffer: Vec<u8>,
    direct: ReadMethod<()>,
    file: ReadMethod<File>,
}

/// Whether one method of reading is open.
#[derive(Debug)]
enum ReadMethod<T> {
    Untried,
    Open(T),
    Closed,
}

impl ProcessMemory {
    pub(super) fn new(
        pid: i32,
        mappings: Arc<Mappings>,
        mut stack_pointers: Vec<u64>,
        tracer: &Arc<Tracer>,
        tracee: Option<i32>,
    ) -> ProcessMemory {
        stack_pointers.sort_unstable();
        ProcessMemory {
            pid,
            mappings,
            stack_pointers,
            tracer: Arc::downgrade(tracer),
            tracee,
            state: RefCell::new(ReadState {
                copies: CopiedRanges::default(),
                pages: PageCache::new(MAX_CACHED_PAGES),
                buffer: Vec::new(),
                direct: ReadMethod::Untried,
                file: ReadMethod::Untried,
            }),
        }
    }

    /// Reads up to `bytes` upwards from each thread's stack pointer and from each address of
    /// `others`, in as few system calls as possible. Replaces the result of an earlier call.
    /// Returns how many bytes it read.
    pub(super) fn prefetch(&self, bytes: u64, others: &[RuntimeAddr]) -> usize {
        let mut state = self.state.borrow_mut();
        state.copies = CopiedRanges::default();
        let ranges = self.ranges_above(bytes, others);
        let batches = ranges.chunks(STACKS_PER_CALL);
        batches.map(|batch| self.copy(&mut state, batch)).sum()
    }

    /// The whole pages from the stack pointers and the other addresses upwards. They are ascending,
    /// without overlap, each within its mapping, and all together at most [`MAX_COPY_BYTES`].
    fn ranges_above(&self, bytes: u64, others: &[RuntimeAddr]) -> Vec<sys::RemoteRange> {
        let others = others.iter().map(|addr| addr.0);
        let mut starts: Vec<u64> = self.stack_pointers.iter().copied().chain(others).collect();
        starts.sort_unstable();
        let mut covered = 0;
        let range = |addr: u64| {
            let mapping = self.mappings.find(RuntimeAddr(addr))?;
            let start = (addr / PAGE_BYTES * PAGE_BYTES).max(covered);
            let end = addr.saturating_add(bytes).min(mapping.end.0);
            covered = end.next_multiple_of(PAGE_BYTES).max(covered);
            (start < covered).then(|| (start, covered - start))
        };
        let ranges: Vec<(u64, u64)> = starts.into_iter().filter_map(range).collect();
        let sizes = ranges.iter().map(|(_, size)| *size).collect();
        let share = fair_share(sizes, MAX_COPY_BYTES) / PAGE_BYTES * PAGE_BYTES;
        let as_usize = |n: u64| usize::try_from(n).ok();
        ranges
            .into_iter()
            .filter_map(|(start, size)| Some((as_usize(start)?, as_usize(size.min(share))?)))
            .collect()
    }

    /// Copies ranges of whole pages: in one system call, unless part of them is unreadable.
    fn copy(&self, state: &mut ReadState, ranges: &[sys::RemoteRange]) -> usize {
        let mut bytes = vec![0; ranges.iter().map(|(_, size)| size).sum()];
        let mut at_once = state.read_by_syscall(self.pid, ranges, &mut bytes);
        if !self.is_stopped() {
            return 0;
        }
        let mut rest = bytes.as_mut_slice();
        let mut taken = Vec::with_capacity(ranges.len());
        for (start, size) in ranges {
            let (own, after) = rest.split_at_mut(*size);
            rest = after;
            taken.push(if at_once >= *size {
                *size
            } else {
                self.read_directly(state, *start as u64, own) / size_of::<Page>()
                    * size_of::<Page>()
            });
            at_once = at_once.saturating_sub(*size);
        }
        let total = taken.iter().sum();
        state.copies.add(bytes, ranges, &taken);
        total
    }

    /// Fails unless `addr` may be read now: it is mapped, and the process is stopped or cannot
    /// change its content.
    fn readable_mapping(&self, addr: RuntimeAddr) -> Result<&Mapping, Unreadable> {
        let mapping = self.mappings.find(addr).ok_or(Unreadable::unmapped(addr))?;
        let constant = !mapping.permissions.write;
        if constant || self.is_stopped() {
            Ok(mapping)
        } else {
            Err(Unreadable {
                addr,
                reason: UnreadableReason::NotRecorded,
            })
        }
    }

    fn is_stopped(&self) -> bool {
        let tracer = self.tracer.upgrade();
        tracer.is_some_and(|tracer| !tracer.has_released())
    }

    /// Ensures that the page with `addr` is in the cache.
    fn load_page(&self, addr: RuntimeAddr) -> Result<(), Unreadable> {
        if self.state.borrow_mut().kept(addr.0).is_some() {
            return Ok(());
        }
        let mapping = self.readable_mapping(addr)?;
        let (start, end) = self.window(mapping, addr);
        if self.fetch(start, end) > addr.0 {
            return Ok(());
        }
        // Something before `addr` in the window is unreadable: try its own page alone.
        let page = addr.0 / PAGE_BYTES * PAGE_BYTES;
        if self.fetch(page, page.saturating_add(PAGE_BYTES)) > addr.0 {
            return Ok(());
        }
        Err(Unreadable {
            addr,
            reason: UnreadableReason::Refused,
        })
    }

    /// The range to fetch for a read at `addr`: upwards from the page in a stack, the aligned line
    /// elsewhere, within the mapping.
    fn window(&self, mapping: &Mapping, addr: RuntimeAddr) -> (u64, u64) {
        let first_above = self
            .stack_pointers
            .partition_point(|sp| *sp < mapping.start.0);
        let page = addr.0 / PAGE_BYTES * PAGE_BYTES;
        let in_stack = self
            .stack_pointers
            .get(first_above)
            .is_some_and(|sp| sp / PAGE_BYTES * PAGE_BYTES <= addr.0 && *sp < mapping.end.0);
        let (start, size) = if in_stack {
            (page, STACK_WINDOW_BYTES)
        } else {
            (addr.0 / LINE * LINE, LINE)
        };
        (
            start.max(mapping.start.0),
            start.saturating_add(size).min(mapping.end.0),
        )
    }

    /// Reads the pages from `start` to `end` into the cache; returns the end of the bytes read.
    fn fetch(&self, start: u64, end: u64) -> u64 {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let size = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
        let mut buffer = core::mem::take(&mut state.buffer);
        buffer.resize(size, 0);
        let mut got = self.read_directly(state, start, &mut buffer);
        // It may have resumed meanwhile.
        if self.readable_mapping(RuntimeAddr(start)).is_err() {
            got = 0;
        }
        state
            .pages
            .insert_run(start / PAGE_BYTES, buffer.get(..got).unwrap_or(&[]));
        state.buffer = buffer;
        let whole = u64::try_from(got).unwrap_or(0) / PAGE_BYTES * PAGE_BYTES;
        start.saturating_add(whole)
    }

    /// Fills as much of `into` as can be read, by the first working method; returns its size.
    fn read_directly(&self, state: &mut ReadState, start: u64, into: &mut [u8]) -> usize {
        if let Ok(start) = usize::try_from(start) {
            let first = state.read_by_syscall(self.pid, &[(start, into.len())], into);
            if first > 0 {
                return first;
            }
        }
        let second = state.read_by_proc_mem(self.pid, start, into);
        if second > 0 {
            return second;
        }
        self.read_by_ptrace(start, into)
    }

    /// Requests words from the tracing thread; the last resort.
    fn read_by_ptrace(&self, start: u64, into: &mut [u8]) -> usize {
        let (Some(tracer), Some(tracee)) = (self.tracer.upgrade(), self.tracee) else {
            return 0;
        };
        let size = into.len();
        let bytes = tracer
            .run(move |_| peek_words(tracee, start, size))
            .unwrap_or_default();
        for (to, from) in into.iter_mut().zip(&bytes) {
            *to = *from;
        }
        bytes.len().min(size)
    }

    /// A read of many bytes, bypassing the cache.
    fn read_uncached(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let mut bytes = vec![0; into.len()];
        let mut done = 0;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = advance(addr, done)?;
            let mapping = self.readable_mapping(at)?;
            let size = usize::try_from(mapping.end.0 - at.0).unwrap_or(usize::MAX);
            let size = size.min(rest.len());
            let (rest, _) = rest.split_at_mut(size);
            let got = self.read_directly(&mut self.state.borrow_mut(), at.0, rest);
            self.readable_mapping(at)?;
            if got == 0 {
                return Err(Unreadable {
                    addr: at,
                    reason: UnreadableReason::Refused,
                });
            }
            done += got;
        }
        into.copy_from_slice(&bytes);
        Ok(())
    }

    /// Copies from the cache; returns the first missing address.
    fn copy_kept(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), RuntimeAddr> {
        let mut state = self.state.borrow_mut();
        let mut at = addr.0;
        let mut rest = into;
        while !rest.is_empty() {
            let missing = RuntimeAddr(at);
            let from = state.kept(at).ok_or(missing)?;
            let size = from.len().min(rest.len());
            let (to, after) = rest.split_at_mut(size);
            to.copy_from_slice(from.get(..size).ok_or(missing)?);
            rest = after;
            at = at.wrapping_add(u64::try_from(size).unwrap_or(0));
        }
        Ok(())
    }
}

impl Memory for ProcessMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let Some(last) = into.len().checked_sub(1) else {
            return Ok(());
        };
        let last = advance(addr, last)?;
        if into.len() >= MIN_UNCACHED_BYTES {
            return self.read_uncached(addr, into);
        }
        for number in addr.0 / PAGE_BYTES..=last.0 / PAGE_BYTES {
            let first_in_page = RuntimeAddr(addr.0.max(number * PAGE_BYTES));
            self.load_page(first_in_page)?;
        }
        let reason = UnreadableReason::Refused;
        self.copy_kept(addr, into)
            .map_err(|addr| Unreadable { addr, reason })
    }
}

/// The address `bytes` after `addr`.
fn advance(addr: RuntimeAddr, bytes: usize) -> Result<RuntimeAddr, Unreadable> {
    let wraps = Unreadable {
        addr,
        reason: UnreadableReason::Wraps,
    };
    let bytes = u64::try_from(bytes).map_err(|_| wraps)?;
    addr.0.checked_add(bytes).map(RuntimeAddr).ok_or(wraps)
}

fn peek_words(tid: i32, start: u64, size: usize) -> Vec<u8> {
    const WORD: usize = size_of::<usize>();
    let Ok(start) = usize::try_from(start) else {
        return Vec::new();
    };
    let words = (start..start.saturating_add(size)).step_by(WORD);
    words
        .map_while(|addr| peek(tid, addr).ok())
        .flatten()
        .collect()
}

impl ReadState {
    /// The cached bytes from `addr` on, at least to the end of the page.
    fn kept(&mut self, addr: u64) -> Option<&[u8]> {
        if let Some(bytes) = self.copies.from(addr) {
            return Some(bytes);
        }
        let page = self.pages.get(addr / PAGE_BYTES)?;
        page.get(usize::try_from(addr % PAGE_BYTES).ok()?..)
    }

    /// Reads ranges one after another into `into`, up to the first unreadable byte.
    fn read_by_syscall(&mut self, pid: i32, ranges: &[sys::RemoteRange], into: &mut [u8]) -> usize {
        let (ReadMethod::Untried | ReadMethod::Open(())) = self.direct else {
            return 0;
        };
        match sys::read_memory(pid, into, ranges) {
            Ok(size) => size,
            Err(error) => {
                // `EFAULT` concerns this page only; a refusal concerns all.
                if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) {
                    self.direct = ReadMethod::Closed;
                }
                0
            }
        }
    }

    fn read_by_proc_mem(&mut self, pid: i32, start: u64, into: &mut [u8]) -> usize {
        if let ReadMethod::Untried = self.file {
            let file = File::open(procfs::path(pid, "mem"));
            self.file = file.map_or(ReadMethod::Closed, ReadMethod::Open);
        }
        match &self.file {
            ReadMethod::Open(file) => file.read_at(into, start).unwrap_or(0),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests;
