//! libunwind's C interface (its versions 1.6 to 1.8, on x86-64) on unspool's engine.
//!
//! `cargo xtask shared-objects` makes shared objects with the sonames and the symbols of libunwind's own. A
//! program built with libunwind's headers runs on them unchanged. `docs/libunwind.md` lists the
//! supported and the missing parts.
//!
//! The C names are in [`sys`], with all unsafe code; the rest is safe code on values. A step looks
//! up the rule of the frame's address in the address space's [cache](unspool_unwind::steps), or
//! `resolve`s it through the client's callbacks. Then `cursor::ClientCursor::step` applies it.
//!
//! `no_std`: an unwinder must not depend on another unwinder, and Rust's standard library does.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod abi;
pub mod client;
pub mod core_file;
mod cursor;
pub mod debug_frame;
mod dyn_info_list;
mod entries;
mod guess;
pub mod image;
pub mod maps;
mod names;
mod objects;
mod own_process;
mod ptrace_target;
pub mod remote_cfi;
mod resolve;
mod rule;
mod space;
pub mod sys;
