//! The `unsafe` parts: foreign libraries, the descent, and reading the walked stack.
#![allow(unsafe_code, reason = "the one module that may")]

mod clock;
mod descent;
mod library;
mod python;
mod sampler;
mod unwinders;

pub(crate) use clock::{minor_faults, ticks};
pub(crate) use descent::{CallInstruction, DescentPath, OwnStack, WorkFunctions};
pub(crate) use library::{Library, images};
pub(crate) use python::Python;
pub(crate) use sampler::sample;
pub(crate) use unwinders::{
    Backtrace, BacktraceSymbol, CachingPolicy, Dialect, UnwCursor, UnwindBacktrace, frame_pointers,
    read_word, registers, set_cache_size, set_caching_policy,
};

/// Numbers as addresses.
pub(crate) fn addresses(numbers: &mut [u64]) -> &mut [unspool_rows::RuntimeAddr] {
    let data = numbers.as_mut_ptr().cast();
    // SAFETY: an address is a transparent number, and any number is one.
    unsafe { std::slice::from_raw_parts_mut(data, numbers.len()) }
}
