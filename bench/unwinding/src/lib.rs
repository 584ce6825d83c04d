//! The crate `unwinding` as a shared library: it exports `_Unwind_Backtrace` and its like.

pub use unwinding::abi::*;
