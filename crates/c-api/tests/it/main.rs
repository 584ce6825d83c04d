//! `libunspool.so.0` and `libunspool-crash.so`, used by C programs.
#![cfg(test)]
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod api;
mod arguments;
mod crash;
mod crash_output;
mod examples;
mod privileges;
mod programs;
mod shared_objects;
mod tables;
mod types;
mod variables;
