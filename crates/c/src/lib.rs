//! unspool's own C interface (`unspool.h`).
//!
//! `cargo xtask capi` makes `libunspool.so.0` of it. The C names are in
//! [`sys`], with all that is unsafe about them; the rest is safe code.
//!
//! `no_std`, and without an allocator: everything but preparation may run in a signal handler.
#![no_std]
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[cfg(test)]
extern crate std;

pub mod codes;
pub mod frame;
pub mod store;
pub mod sys;
