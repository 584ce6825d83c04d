//! Counts where exceptions are thrown, how often, how deep, and how long they are on their way, if
//! `UNSPOOL_EH_STATS` names a file. The list is appended to that when the process exits.
//!
//! A site is the return addresses of a throw, up to [`MAX_FRAMES`]. Counting takes no lock and does
//! not allocate. Sites beyond [`MAX_SITES`], and throws at once beyond [`MAX_IN_FLIGHT`], are not
//! counted, but their number is.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt::{self, Write};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

use unspool_files::environment::variable_bytes;
use unspool_files::raw::RawFile;
use unspool_unwind::local::StackTrust;
use unspool_unwind::local::caller_registers::CallerRegisters;

use crate::abi::Exception;
use crate::walk::{LandingFrame, LandingWalk};

const VARIABLE: &CStr = c"UNSPOOL_EH_STATS";

const MAX_SITES: usize = 4096;
const MAX_FRAMES: usize = 32;
const MAX_IN_FLIGHT: usize = 256;
const MAX_PROBES: usize = 64;
const MAX_NAME_BYTES: usize = 128;
const MAX_PATH_BYTES: usize = 4096;

/// Null if nothing is counted.
static COUNTS: AtomicPtr<ThrowCounts> = AtomicPtr::new(ptr::null_mut());

/// All zero, nothing is counted yet.
struct ThrowCounts {
    sites: [ThrowSite; MAX_SITES],
    in_flight: [ThrowInFlight; MAX_IN_FLIGHT],
    lost: AtomicU64,
}

struct ThrowSite {
    /// Of its addresses and the type; zero for a free one.
    hash: AtomicU64,
    addresses: [AtomicU64; MAX_FRAMES],
    throws: AtomicU64,
    frames: AtomicU64,
    max_frames: AtomicU64,
    nanoseconds: AtomicU64,
    /// The thrown type's name, mangled, or zeros.
    name: [AtomicU64; MAX_NAME_BYTES / 8],
}

/// An exception from the end of its first phase to its handler.
struct ThrowInFlight {
    /// Its address; zero for a free one.
    exception: AtomicU64,
    start: AtomicU64,
    site: AtomicPtr<ThrowSite>,
}

fn counts() -> Option<&'static ThrowCounts> {
    // SAFETY: null, or the memory of `begin`, which is never unmapped.
    unsafe { COUNTS.load(Relaxed).as_ref() }
}

/// Gets the memory for counting, if that is wanted. Runs on loading.
pub(super) fn begin() {
    if variable_bytes(VARIABLE).is_none() {
        return;
    }
    let length = size_of::<ThrowCounts>();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory, which is all zero: a value of the type.
    let memory = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
    if memory != libc::MAP_FAILED {
        COUNTS.store(memory.cast(), Relaxed);
    }
}

/// The present time, if anything is counted.
#[inline]
pub(super) fn start() -> Option<u64> {
    counts().map(|_| now())
}

/// Counts a throw that began at `start` in `frame`, and will be handled in the frame with the
/// identity `handling`.
///
/// # Safety
///
/// The exception is valid, and the frames up to the handling one have not returned.
#[cold]
#[inline(never)]
pub(super) unsafe fn count(
    start: u64,
    exception: *mut Exception,
    frame: &CallerRegisters,
    handling: u64,
) {
    let Some(counts) = counts() else {
        return;
    };
    // SAFETY: the caller's promise.
    let trust = unsafe { StackTrust::new() };
    let mut walk = LandingWalk::trusting(LandingFrame::from(frame), trust);
    let mut addresses = [0; MAX_FRAMES];
    let mut frames = 0_usize;
    while let Ok(Some(rule)) = walk.rule() {
        if let Some(address) = addresses.get_mut(frames) {
            *address = walk.frame.registers.code;
        }
        frames += 1;
        if walk.frame.identity() == handling || walk.step(rule).is_err() {
            break;
        }
    }
    // SAFETY: the caller's promise.
    let name = unsafe { type_name(exception) };
    let Some(site) = counts.site(&addresses, name) else {
        counts.lost.fetch_add(1, Relaxed);
        return;
    };
    site.throws.fetch_add(1, Relaxed);
    site.frames.fetch_add(frames as u64, Relaxed);
    site.max_frames.fetch_max(frames as u64, Relaxed);
    let exception = exception.addr() as u64;
    // The same exception, thrown again, or a new one at the address of one that was abandoned.
    let of = |wanted| {
        move |it: &&ThrowInFlight| {
            let exchanged = (it.exception).compare_exchange(wanted, exception, Relaxed, Relaxed);
            exchanged.is_ok()
        }
    };
    let all = || counts.in_flight.iter();
    if let Some(flight) = all().find(of(exception)).or_else(|| all().find(of(0))) {
        flight.site.store(ptr::from_ref(site).cast_mut(), Relaxed);
        flight.start.store(start, Relaxed);
    } else {
        counts.lost.fetch_add(1, Relaxed);
    }
}

/// Counts the time of an exception that enters its handler.
#[inline]
pub(super) fn land(exception: *mut Exception) {
    if let Some(counts) = counts() {
        counts.land(exception.addr() as u64);
    }
}

impl ThrowCounts {
    /// The site of these addresses; `None` if there are too many.
    fn site(&self, addresses: &[u64; MAX_FRAMES], name: &[u8]) -> Option<&ThrowSite> {
        let words = name.iter().map(|byte| u64::from(*byte)).chain(*addresses);
        let mix = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER);
        let hash = words.fold(1, mix) | 1;
        let first = usize::try_from(hash >> 32).unwrap_or(0);
        (0..MAX_PROBES).find_map(|probe| {
            let site = self.sites.get(first.wrapping_add(probe) % MAX_SITES)?;
            match site.hash.compare_exchange(0, hash, Relaxed, Relaxed) {
                Ok(_) => site.set(addresses, name),
                Err(other) if other == hash => {}
                Err(_) => return None,
            }
            Some(site)
        })
    }

    #[cold]
    fn land(&self, exception: u64) {
        let mut flights = self.in_flight.iter();
        let Some(flight) = flights.find(|it| it.exception.load(Relaxed) == exception) else {
            return;
        };
        // SAFETY: null, or a site of `counts`.
        if let Some(site) = unsafe { flight.site.load(Relaxed).as_ref() } {
            let time = now().saturating_sub(flight.start.load(Relaxed));
            site.nanoseconds.fetch_add(time, Relaxed);
        }
        flight.exception.store(0, Relaxed);
    }
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl ThrowSite {
    fn set(&self, addresses: &[u64; MAX_FRAMES], name: &[u8]) {
        for (to, address) in self.addresses.iter().zip(addresses) {
            to.store(*address, Relaxed);
        }
        for (to, bytes) in self.name.iter().zip(name.chunks(8)) {
            let mut word = [0; 8];
            word.iter_mut()
                .zip(bytes)
                .for_each(|(to, byte)| *to = *byte);
            to.store(u64::from_le_bytes(word), Relaxed);
        }
    }

    fn write(&self, out: &mut impl Write) -> fmt::Result {
        let [throws, frames, max, time] = [
            &self.throws,
            &self.frames,
            &self.max_frames,
            &self.nanoseconds,
        ]
        .map(|word| word.load(Relaxed));
        write!(
            out,
            "\nthrows {throws}, nanoseconds {time}, frames {} on average, at most {max}",
            frames / throws.max(1)
        )?;
        let name = self
            .name
            .iter()
            .map(|word| word.load(Relaxed).to_le_bytes());
        let mut name = name.flatten().take_while(|byte| *byte != 0).peekable();
        if name.peek().is_some() {
            out.write_str(", type ")?;
        }
        name.try_for_each(|byte| out.write_char(char::from(byte)))?;
        out.write_char('\n')?;
        let addresses = self.addresses.iter().map(|address| address.load(Relaxed));
        for address in addresses.take_while(|address| *address != 0) {
            write_address(address, out)?;
        }
        Ok(())
    }
}

/// The name of the thrown type, if the exception is one of libstdc++'s (`__cxa_exception`,
/// libstdc++-v3/libsupc++/unwind-cxx.h): the type's information is ten words before the header.
///
/// # Safety
///
/// The exception is valid.
unsafe fn type_name(exception: *mut Exception) -> &'static [u8] {
    const GNU_CXX: u64 = u64::from_be_bytes(*b"GNUCC++\0");
    // SAFETY: the caller's promise.
    if unsafe { (*exception).class } != GNU_CXX {
        return b"";
    }
    let before = exception.cast::<*const *const c_char>().wrapping_sub(10);
    // SAFETY: libstdc++ has its own header there.
    let information = unsafe { before.read() };
    // SAFETY: the type's information begins with two pointers; the second is to its name (Itanium
    // C++ ABI, "RTTI Layout").
    let name = unsafe { information.wrapping_add(1).read() };
    // SAFETY: it ends with a zero byte, and stays as long as the type's module, of which an
    // exception is on its way.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    name.get(..name.len().min(MAX_NAME_BYTES))
        .unwrap_or_default()
}

fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to this function's variable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Appends the list to the file. Runs when the process exits.
pub(super) fn finish() {
    let Some(counts) = counts() else {
        return;
    };
    let mut path = [0; MAX_PATH_BYTES];
    let value = variable_bytes(VARIABLE).unwrap_or_default();
    let Some(start) = path.get_mut(..value.len()) else {
        return;
    };
    start.copy_from_slice(value);
    let path = CStr::from_bytes_until_nul(&path);
    let Some(file) = path.ok().and_then(RawFile::open_log) else {
        return;
    };
    let mut out = BufferedFile {
        file: file.into_descriptor(),
        buffer: [0; 4096],
        used: 0,
    };
    // What cannot be written is lost.
    let _ = counts.write(&mut out);
    out.flush();
}

impl ThrowCounts {
    /// Writes the sites, those that took longest first.
    fn write(&self, out: &mut impl Write) -> fmt::Result {
        // SAFETY: takes nothing, cannot fail.
        let process = unsafe { libc::getpid() };
        let lost = self.lost.load(Relaxed);
        writeln!(out, "process {process}, {lost} throws not counted")?;
        let used = || {
            self.sites
                .iter()
                .filter(|site| site.throws.load(Relaxed) != 0)
        };
        let rank = |site: &ThrowSite| (site.nanoseconds.load(Relaxed), ptr::from_ref(site).addr());
        let mut last = (u64::MAX, usize::MAX);
        while let Some(next) = used()
            .filter(|site| rank(site) < last)
            .max_by_key(|site| rank(site))
        {
            last = rank(next);
            next.write(out)?;
        }
        out.write_char('\n')
    }
}

/// Writes a return address as its module's path and the link-time address, for `addr2line`.
fn write_address(address: u64, out: &mut impl Write) -> fmt::Result {
    let mut found = FoundModule {
        address,
        name: ptr::null(),
        bias: 0,
    };
    // SAFETY: `find_module` takes these arguments.
    unsafe { libc::dl_iterate_phdr(Some(find_module), (&raw mut found).cast()) };
    let vaddr = address.wrapping_sub(found.bias);
    if found.name.is_null() {
        return writeln!(out, "  {address:#x}");
    }
    // SAFETY: the loader's name of a loaded module.
    match unsafe { CStr::from_ptr(found.name) }.to_str() {
        Ok("") => writeln!(out, "  program {vaddr:#x}"),
        Ok(name) => writeln!(out, "  {name} {vaddr:#x}"),
        Err(_) => writeln!(out, "  {address:#x}"),
    }
}

struct FoundModule {
    address: u64,
    name: *const c_char,
    bias: u64,
}

unsafe extern "C" fn find_module(
    object: *mut libc::dl_phdr_info,
    _: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes the pointer that it got.
    let found = unsafe { &mut *found.cast::<FoundModule>() };
    // SAFETY: the loader passes an object that it keeps until this returns.
    let object = unsafe { &*object };
    let count = usize::from(object.dlpi_phnum);
    // SAFETY: these are its program headers.
    let headers = unsafe { core::slice::from_raw_parts(object.dlpi_phdr, count) };
    let is_inside = |header: &libc::Elf64_Phdr| {
        let start = object.dlpi_addr.wrapping_add(header.p_vaddr);
        header.p_type == libc::PT_LOAD && found.address.wrapping_sub(start) < header.p_memsz
    };
    if !headers.iter().any(is_inside) {
        return 0;
    }
    (found.name, found.bias) = (object.dlpi_name, object.dlpi_addr);
    1
}

struct BufferedFile {
    file: c_int,
    buffer: [u8; 4096],
    used: usize,
}

impl BufferedFile {
    fn flush(&mut self) {
        let bytes = self.buffer.get(..self.used).unwrap_or_default();
        // SAFETY: these bytes are readable.
        unsafe { libc::write(self.file, bytes.as_ptr().cast(), bytes.len()) };
        self.used = 0;
    }
}

impl Write for BufferedFile {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.used == self.buffer.len() {
                self.flush();
            }
            if let Some(to) = self.buffer.get_mut(self.used) {
                *to = byte;
                self.used += 1;
            }
        }
        Ok(())
    }
}
