//! Recordings of perf and records of the kernel, against another reader.
#![cfg(test)]

mod file;
mod records;
mod rewrite;
