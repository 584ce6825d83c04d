//! What the program has registered with `_U_dyn_register`: unwind information of code that it has
//! made itself.
//!
//! Reading the list is async-signal-safe. As with libunwind, code is cancelled only when no
//! thread walks through it.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use unspool_ir::RuntimeAddr;
use unspool_unwind::local::Known;

use crate::abi::{DynInfo, Word};

/// `unw_dyn_info_list_t`. Debuggers read it from outside.
#[repr(C)]
struct DynInfoList {
    version: u32,
    generation: UnsafeCell<u32>,
    first: AtomicPtr<DynInfo>,
}

// SAFETY: `generation` is changed by `_U_dyn_register` and `_U_dyn_cancel` only, whose callers see to it
// that they do not run at the same time.
unsafe impl Sync for DynInfoList {}

static REGISTERED: DynInfoList = DynInfoList {
    version: 1,
    generation: UnsafeCell::new(0),
    first: AtomicPtr::new(ptr::null_mut()),
};

impl DynInfoList {
    /// # Safety
    ///
    /// No other thread registers or cancels now.
    unsafe fn next_generation(&self) {
        let generation = self.generation.get();
        // SAFETY: the caller's promise.
        let before = unsafe { generation.read() };
        // SAFETY: as above.
        unsafe { generation.write(before.wrapping_add(1)) };
    }
}

/// `_U_dyn_info_list_addr`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_U_dyn_info_list_addr")
)]
pub extern "C" fn dyn_info_list_addr() -> Word {
    (&raw const REGISTERED).addr() as Word
}

/// `_U_dyn_register`: puts unwind information at the head of the list.
///
/// # Safety
///
/// `info` stays until it is cancelled; no other thread registers or cancels now.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_U_dyn_register"))]
pub unsafe extern "C" fn dyn_register(info: &mut DynInfo) {
    // SAFETY: the caller's promise.
    unsafe { REGISTERED.next_generation() };
    info.next = REGISTERED.first.load(Ordering::Relaxed);
    info.prev = ptr::null_mut();
    // SAFETY: null, or registered and not cancelled.
    if let Some(next) = unsafe { info.next.as_mut() } {
        next.prev = ptr::from_mut(info);
    }
    // Whoever sees it sees what it says.
    REGISTERED.first.store(info, Ordering::Release);
}

/// `_U_dyn_cancel`: takes it out of the list.
///
/// # Safety
///
/// `info` was registered; no other thread registers or cancels now, or walks through its code.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_U_dyn_cancel"))]
pub unsafe extern "C" fn dyn_cancel(info: &mut DynInfo) {
    // SAFETY: the caller's promise.
    unsafe { REGISTERED.next_generation() };
    // SAFETY: null, or registered and not cancelled.
    match unsafe { info.prev.as_mut() } {
        Some(before) => before.next = info.next,
        None => REGISTERED.first.store(info.next, Ordering::Release),
    }
    // SAFETY: as above.
    if let Some(next) = unsafe { info.next.as_mut() } {
        next.prev = info.prev;
    }
    info.next = ptr::null_mut();
    info.prev = ptr::null_mut();
}

/// Whether anything is registered.
#[inline]
pub(crate) fn is_any_registered() -> bool {
    !REGISTERED.first.load(Ordering::Relaxed).is_null()
}

/// What is registered for an address.
pub(crate) fn registered(ip: u64) -> Option<DynInfo> {
    let mut next = REGISTERED.first.load(Ordering::Acquire);
    while !next.is_null() {
        // SAFETY: it is registered, and was written before it was.
        let info = unsafe { next.read() };
        if (info.start_ip..info.end_ip).contains(&ip) {
            return Some(info);
        }
        next = info.next;
    }
    None
}

const PAGE: u64 = 4096;

/// Bytes of a registered table, which nobody writes to until it is cancelled. The kernel is asked
/// whether they are there.
pub(crate) fn bytes(addr: u64, length: u64) -> Option<&'static [u8]> {
    let last = addr.checked_add(length.checked_sub(1)?)?;
    for page in addr / PAGE..=last / PAGE {
        Known::around(RuntimeAddr(page * PAGE)).word(RuntimeAddr(page * PAGE))?;
    }
    let from = ptr::with_exposed_provenance(usize::try_from(addr).ok()?);
    // SAFETY: all of it was readable just now, and stays as it is, as above.
    Some(unsafe { core::slice::from_raw_parts(from, usize::try_from(length).ok()?) })
}

/// A string of a registered table, without its zero byte.
pub(crate) fn string(addr: u64) -> Option<&'static [u8]> {
    /// No name is in more pages.
    const MOST: u64 = 16;
    (1..=MOST).find_map(|pages| {
        let end = (addr / PAGE).checked_add(pages)?.checked_mul(PAGE)?;
        let until_page = bytes(addr, end - addr)?;
        until_page
            .split(|byte| *byte == 0)
            .next()
            .filter(|name| name.len() < until_page.len())
    })
}
