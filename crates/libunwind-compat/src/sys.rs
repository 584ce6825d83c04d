//! The boundary to C: the exported names, the client's callbacks, and memory.
#![expect(unsafe_code, reason = "a C interface")]

mod blob;
pub(crate) mod callbacks;
pub mod context;
pub mod coredump;
pub mod debug_frame_entry;
pub mod dynamic;
pub mod exceptions;
pub mod export;
#[cfg(test)]
pub(crate) mod fake_target;
pub(crate) mod heap;
mod name;
pub(crate) mod objects;
pub mod os;
pub mod own;
pub mod ptrace;
pub mod setjmp;
#[cfg(feature = "shared-object")]
mod standalone;
