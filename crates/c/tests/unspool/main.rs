//! `libunspool.so.0` and `libunspool-crash.so`, as C programs see them.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

mod api;
mod arguments;
mod crash;
mod crash_output;
mod examples;
mod privileges;
mod programs;
mod shared_objects;
mod tables;
mod variables;
