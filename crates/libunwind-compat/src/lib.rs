//! libunwind's C interface (its version 1.6, on x86-64) on unspool's engine.
//!
//! `cargo xtask capi` makes shared objects of it that have the sonames and the symbols of
//! libunwind's own, so that a program that was built with libunwind's headers runs on them
//! unchanged. What there is and what is missing is in `docs/capi.md`.
//!
//! The C names are in [`sys`], with all that is unsafe about them; the rest is safe code on
//! values. A step is: look up the rule of the frame's address in the address space's
//! [cache](unspool_unwind::steps), or [`resolve`] it through the client's callbacks, and [`cursor::ClientCursor::step`] by it.
//!
//! `no_std`: a library that serves as an unwinder must not need one, and Rust's standard library
//! does.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod abi;
pub mod client;
pub mod core_file;
pub mod cursor;
pub mod debug_frame;
pub mod dyn_info_list;
pub mod entries;
pub mod guess;
pub mod image;
pub mod maps;
pub mod names;
pub mod objects;
pub mod own_process;
pub mod ptrace_target;
pub mod remote_cfi;
pub mod resolve;
pub mod rule;
pub mod space;
pub mod sys;
