//! unspool's own C interface (`unspool.h`), and the crash handler, which uses the same parts.
//!
//! `cargo xtask shared-objects` makes `libunspool.so.0` and `libunspool-crash.so` from it. The C names are in
//! [`sys`], with all unsafe code; the rest is safe code.
//!
//! `no_std`, and without an allocator: everything except preparation may run in a signal handler.
#![no_std]
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[cfg(test)]
extern crate std;

mod arguments;
mod codes;
mod crash;
mod store;
pub mod sys;
