//! unspool's own C interface (`unspool.h`), and the crash handler that is built on the same parts.
//!
//! `cargo xtask capi` makes `libunspool.so.0` and `libunspool-crash.so` of it. The C names are in
//! [`sys`], with all that is unsafe about them; the rest is safe code.
//!
//! `no_std`, and without an allocator: everything but preparation may run in a signal handler.
#![no_std]
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[cfg(test)]
extern crate std;

pub mod arguments;
pub mod codes;
pub mod crash;
pub mod store;
pub mod sys;
