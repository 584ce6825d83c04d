//! The boundary to C: the exported names.
#![expect(unsafe_code, reason = "a C interface")]

pub mod export;
