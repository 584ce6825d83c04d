//! C types of files and of the own process's modules, for C (`unspool_types.h`).
//!
//! `cargo xtask shared-objects` makes `libunspool-types.so.0` from it. The C names are in [`sys`], with
//! all unsafe code; the rest is safe code.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod handle;
pub mod sys;
