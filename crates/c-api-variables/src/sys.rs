//! The boundary to C: the exported name, and the functions used from `libunspool.so.0`.
#![expect(unsafe_code, reason = "a C interface")]

mod cursor;
pub mod export;
