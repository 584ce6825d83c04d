//! The target of a procedure's `unwind_info`, if its entry is in the memory of its finder and not
//! in the target's. Finder and reader may be different libraries.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr;

use crate::abi::{self, ProcInfo};

/// An entry of a section. It is valid until the next one is found. (In the interface,
/// `put_unwind_info` ends the use of an entry.)
#[repr(C)]
#[derive(Debug)]
pub struct DebugFrameEntry {
    /// [`MARK`], first.
    mark: u64,
    section: Cell<*const u8>,
    length: Cell<usize>,
    offset: Cell<u64>,
}

/// Neither an address, nor a value that another library would put there.
const MARK: u64 = u64::from_ne_bytes(*b"unspool1");

impl DebugFrameEntry {
    /// Without an entry.
    #[must_use]
    pub const fn empty() -> DebugFrameEntry {
        DebugFrameEntry {
            mark: MARK,
            section: Cell::new(ptr::null()),
            length: Cell::new(0),
            offset: Cell::new(0),
        }
    }

    /// Stores the entry at an offset of a section; returns a pointer to it.
    pub(crate) fn set(&self, section: &[u8], offset: u64) -> *mut c_void {
        self.section.set(section.as_ptr());
        self.length.set(section.len());
        self.offset.set(offset);
        ptr::from_ref(self).cast_mut().cast()
    }

    /// The section and the offset of the entry that a procedure's information points at; `None` if
    /// it is not ours.
    pub(crate) fn from_proc_info(info: &ProcInfo) -> Option<(&[u8], u64)> {
        let is_it = info.has(abi::FLAG_DEBUG_FRAME) && info.format == abi::FORMAT_TABLE;
        let found: *const DebugFrameEntry = info.unwind_info.cast();
        if !is_it || found.is_null() || !found.is_aligned() {
            return None;
        }
        // SAFETY: with this flag it points to a structure in the own memory, which begins with more
        // than a word, in any library.
        let mark = unsafe { found.cast::<u64>().read() };
        if mark != MARK {
            return None;
        }
        // SAFETY: it has our mark. Its finder keeps it and the section until its next look-up.
        let found = unsafe { &*found };
        let (section, length) = (found.section.get(), found.length.get());
        // SAFETY: as above; pointer and length are a slice's.
        let section = unsafe { core::slice::from_raw_parts(section, length) };
        Some((section, found.offset.get()))
    }
}
