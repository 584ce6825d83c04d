//! The variables of the frames of the own stack, as debug information has them, for C (`unspool_variables.h`).
//!
//! `cargo xtask capi` makes `libunspool-variables.so.0` of it. It allocates and opens files, which `libunspool.so.0` does not: so it is another library, which
//! asks that one for the registers of frames. The C names are in [`sys`], with all that is unsafe about them; the rest is safe code.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

pub mod report;
pub mod sys;
