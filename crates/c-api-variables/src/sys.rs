//! The boundary to C: the exported name, and what is asked of `libunspool.so.0`.
#![expect(unsafe_code, reason = "a C interface")]

mod cursor;
pub mod export;
