//! Recordings by perf and records of the kernel, compared with another reader's results.
#![cfg(test)]

mod file;
mod records;
mod rewrite;
