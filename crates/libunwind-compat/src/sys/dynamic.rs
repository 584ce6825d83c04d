//! The unwind information that the program has registered with `_U_dyn_register` for generated
//! code.
//!
//! Writers of the list take a lock; readers take none and never wait. Each link changes by one
//! store, so that readers see the list before or after a change. If the reader's current entry is
//! cancelled, the list ends there and its generation has changed; then the reader starts again. As
//! with libunwind, an entry may only be freed when no thread can be reading the list.
//!
//! Reading the list is async-signal-safe.

use core::ffi::{c_char, c_void};
use core::mem::offset_of;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use unspool_rows::RuntimeAddr;
use unspool_unwind::local::ReadableMemory;
use unspool_unwind::local::fork_safe_lock::ForkSafeLock;

use crate::abi::{DynInfo, UnwWord};

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// The search order of the calling library.
const RTLD_DEFAULT: *mut c_void = ptr::null_mut();

/// `unw_dyn_info_list_t`. Debuggers read it from outside.
#[repr(C)]
struct DynInfoList {
    version: u32,
    generation: AtomicU32,
    first: AtomicPtr<DynInfo>,
}

static REGISTERED: DynInfoList = DynInfoList {
    version: 1,
    generation: AtomicU32::new(0),
    first: AtomicPtr::new(ptr::null_mut()),
};

/// The list to read: that of the `libunwind.so.8` with which the program registers.
/// `libunwind-x86_64.so.8` has no functions to fill its own.
static LIST: AtomicPtr<DynInfoList> = AtomicPtr::new((&raw const REGISTERED).cast_mut());

/// Finds [`LIST`], as libunwind does by a weak reference. Not async-signal-safe.
pub(super) fn find_list() {
    let name = c"_U_dyn_info_list_addr";
    // SAFETY: the name ends with a zero byte.
    let found = unsafe { dlsym(RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: null, or the function of that name, which has this type. Its library is not unloaded
    // before the calling one.
    let found =
        unsafe { core::mem::transmute::<*mut c_void, Option<extern "C" fn() -> UnwWord>>(found) };
    if let Some(list) = found.and_then(|address| usize::try_from(address()).ok()) {
        LIST.store(ptr::with_exposed_provenance_mut(list), Ordering::Release);
    }
}

fn list() -> &'static DynInfoList {
    // SAFETY: our own, or one of another libunwind, with the interface's type.
    unsafe { &*LIST.load(Ordering::Relaxed) }
}

static LOCK: ForkSafeLock = ForkSafeLock::new();

/// Runs `change` under the lock. A child that was forked during another change has the list in its
/// state at that moment.
fn change(change: impl FnOnce()) {
    LOCK.with(|| REGISTERED.link_backwards(), change);
}

impl DynInfoList {
    /// Puts an entry at the head.
    ///
    /// # Safety
    ///
    /// The entry is valid, and not in the list. The caller has the lock.
    unsafe fn register(&self, info: *mut DynInfo) {
        let first = self.first.load(Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { next_of(info) }.store(first, Ordering::Relaxed);
        for (entry, previous) in [(info, ptr::null_mut()), (first, info)] {
            // SAFETY: the caller's entry, null, or registered.
            unsafe { set_previous(entry, previous) };
        }
        self.generation.fetch_add(1, Ordering::Relaxed);
        // Release: readers that see the entry see its content.
        self.first.store(info, Ordering::Release);
    }

    /// Takes an entry out.
    ///
    /// # Safety
    ///
    /// The entry is in the list. The caller has the lock.
    unsafe fn cancel(&self, info: *mut DynInfo) {
        // SAFETY: the caller's promise.
        let own_link = unsafe { next_of(info) };
        let next = own_link.load(Ordering::Relaxed);
        // SAFETY: only holders of the lock write to it.
        let previous = unsafe { (*info).prev };
        let link = if previous.is_null() {
            &self.first
        } else {
            // SAFETY: registered.
            unsafe { next_of(previous) }
        };
        link.store(next, Ordering::Release);
        for (entry, previous) in [(next, previous), (info, ptr::null_mut())] {
            // SAFETY: null, registered, or the caller's entry.
            unsafe { set_previous(entry, previous) };
        }
        // Release: readers that see the cleared link see this, too.
        self.generation.fetch_add(1, Ordering::Release);
        own_link.store(ptr::null_mut(), Ordering::Release);
    }

    /// Sets the back links of all entries: an aborted change may have left them undone. The caller
    /// has the lock.
    fn link_backwards(&self) {
        let mut previous = ptr::null_mut();
        let mut entry = self.first.load(Ordering::Acquire);
        while !entry.is_null() {
            // SAFETY: registered.
            unsafe { set_previous(entry, previous) };
            previous = entry;
            // SAFETY: as above.
            entry = unsafe { next_of(entry) }.load(Ordering::Acquire);
        }
    }

    /// The first entry for an address.
    fn find(&self, ip: u64) -> Option<DynInfo> {
        let mut next = self.first.load(Ordering::Acquire);
        while !next.is_null() {
            let info = next;
            // SAFETY: it was registered just now, so it is valid, and was initialised before.
            next = unsafe { next_of(info) }.load(Ordering::Acquire);
            // SAFETY: as above.
            let info = unsafe { described(info) };
            if (info.start_ip..info.end_ip).contains(&ip) {
                return Some(info);
            }
        }
        None
    }
}

/// The link to the next entry.
///
/// # Safety
///
/// `info` is valid while the link is used, and all other users access the link atomically, too.
unsafe fn next_of<'a>(info: *mut DynInfo) -> &'a AtomicPtr<DynInfo> {
    // SAFETY: the caller's promise.
    let link = unsafe { &raw mut (*info).next };
    // SAFETY: aligned, as the entry is; the caller's promise.
    unsafe { AtomicPtr::from_ptr(link) }
}

/// # Safety
///
/// `info` is null or registered, and the caller has the lock.
unsafe fn set_previous(info: *mut DynInfo, previous: *mut DynInfo) {
    if !info.is_null() {
        // SAFETY: the caller's promise; readers do not look at it.
        unsafe { (*info).prev = previous };
    }
}

/// A copy of an entry without its links, which others may be changing.
///
/// # Safety
///
/// `info` is valid and was registered: nobody writes to the rest.
unsafe fn described(info: *const DynInfo) -> DynInfo {
    const LINKS: usize = offset_of!(DynInfo, start_ip);
    let mut copy = DynInfo::NONE;
    let from = info.cast::<u8>().wrapping_add(LINKS);
    let to = (&raw mut copy).cast::<u8>().wrapping_add(LINKS);
    // SAFETY: the caller's promise; both are the part of a `DynInfo` behind its links.
    unsafe { ptr::copy_nonoverlapping(from, to, size_of::<DynInfo>() - LINKS) };
    copy
}

/// The address of the list to read.
pub(super) fn list_addr() -> UnwWord {
    LIST.load(Ordering::Relaxed).addr() as UnwWord
}

/// `_U_dyn_info_list_addr`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_U_dyn_info_list_addr")
)]
pub extern "C" fn dyn_info_list_addr() -> UnwWord {
    (&raw const REGISTERED).addr() as UnwWord
}

/// `_U_dyn_register`: puts unwind information at the head of the list.
///
/// # Safety
///
/// `info` is not registered, and is not changed until it is cancelled.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_U_dyn_register"))]
pub unsafe extern "C" fn dyn_register(info: *mut DynInfo) {
    // SAFETY: the caller's promise, and the lock.
    change(|| unsafe { REGISTERED.register(info) });
}

/// `_U_dyn_cancel`: takes it out of the list.
///
/// # Safety
///
/// `info` is registered, and stays valid as long as a thread may be reading the list.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_U_dyn_cancel"))]
pub unsafe extern "C" fn dyn_cancel(info: *mut DynInfo) {
    // SAFETY: the caller's promise, and the lock.
    change(|| unsafe { REGISTERED.cancel(info) });
}

/// Whether anything is registered.
#[inline]
pub(crate) fn is_any_registered() -> bool {
    !list().first.load(Ordering::Relaxed).is_null()
}

/// The registered entry for an address.
pub(crate) fn registered(ip: u64) -> Option<DynInfo> {
    /// The retry limit under constant changes of the list.
    const MAX_TRIES: usize = 3;
    let list = list();
    for _ in 0..MAX_TRIES {
        let before = list.generation.load(Ordering::Acquire);
        let found = list.find(ip);
        if found.is_some() || list.generation.load(Ordering::Relaxed) == before {
            return found;
        }
    }
    None
}

const PAGE_BYTES: u64 = 4096;

/// Bytes of a registered table. Nobody writes to them until it is cancelled. The kernel is asked
/// whether they are readable.
pub(crate) fn bytes(addresses: Range<u64>) -> Option<&'static [u8]> {
    let Range { start, end } = addresses;
    let length = end.checked_sub(start)?;
    for page in start / PAGE_BYTES..end.div_ceil(PAGE_BYTES) {
        ReadableMemory::around(RuntimeAddr(page * PAGE_BYTES))
            .word(RuntimeAddr(page * PAGE_BYTES))?;
    }
    let from = ptr::with_exposed_provenance(usize::try_from(start).ok()?);
    // SAFETY: all of it was readable just now, and does not change, as above.
    Some(unsafe { core::slice::from_raw_parts(from, usize::try_from(length).ok()?) })
}

/// A string of a registered table, without its zero byte.
pub(crate) fn string(addr: u64) -> Option<&'static [u8]> {
    /// The maximum number of pages of a name.
    const MAX_NAME_PAGES: u64 = 16;
    (1..=MAX_NAME_PAGES).find_map(|pages| {
        let end = (addr / PAGE_BYTES)
            .checked_add(pages)?
            .checked_mul(PAGE_BYTES)?;
        let until_page = bytes(addr..end)?;
        until_page
            .split(|byte| *byte == 0)
            .next()
            .filter(|name| name.len() < until_page.len())
    })
}
