//! The crate `unwinding` as a shared library: it exports `_Unwind_Backtrace` and related functions.

pub use unwinding::abi::*;
