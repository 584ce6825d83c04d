//! Programs compared with LLVM's assembler, and run by the kernel. Tests that load programs need
//! privileges, and run by `cargo xtask root`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test"
)]

mod kernel;
mod llvm;
mod maps;
mod perf_event;
mod run;
