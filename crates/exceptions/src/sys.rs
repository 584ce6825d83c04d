//! The boundary to C: the exported names, foreign functions, and registers.
#![expect(unsafe_code, reason = "a C interface")]

pub mod accessors;
#[cfg(feature = "panics")]
mod address_tree;
#[cfg(feature = "panics")]
pub mod backtrace;
mod entry;
pub(crate) mod personalities;
pub mod phases;
#[cfg(feature = "panics")]
pub(crate) mod registered;
#[cfg(feature = "panics")]
pub mod registration;
#[cfg(feature = "shared-object")]
mod standalone;
#[cfg(feature = "panics")]
mod start;
#[cfg(feature = "panics")]
mod statistics;
