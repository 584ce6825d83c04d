//! Types in CTF and BTF compared with compilers, linkers and other readers, and damaged files.
#![cfg(test)]

mod abi;
mod btf;
mod common;
mod hostile;
mod link;
