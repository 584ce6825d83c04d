//! The variables of the own stack's frames, by debug information, for C (`unspool_variables.h`).
//!
//! `cargo xtask shared-objects` makes `libunspool-variables.so.0` from it. Unlike `libunspool.so.0` it
//! allocates and opens files, so it is a separate library. It gets the registers of frames from
//! that one. The C names are in [`sys`], with all unsafe code; the rest is safe code.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod report;
pub mod sys;
