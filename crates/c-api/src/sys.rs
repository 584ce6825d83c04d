//! The boundary to C: the exported names, the kernel, and registers.
#![expect(unsafe_code, reason = "a C interface")]

mod context;
pub mod crash;
pub mod export;
pub(crate) mod files;
#[cfg(feature = "shared-object")]
mod standalone;
