//! What needs `unsafe`.
#![allow(unsafe_code, reason = "the one module that may")]

/// Asks the processor for the line of a byte, without waiting for it.
#[inline]
pub fn prefetch(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let pointer = bytes.as_ptr().wrapping_add(at).cast::<i8>();
        // SAFETY: a prefetch reads nothing that the program sees and does not fault, whatever
        // the address (Intel SDM, PREFETCHh).
        unsafe { _mm_prefetch::<_MM_HINT_T0>(pointer) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at);
}
