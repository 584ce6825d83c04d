//! Types in CTF and BTF against what compilers, linkers and other readers say, and against files that lie.
#![cfg(test)]

mod abi;
mod btf;
mod common;
mod hostile;
mod link;
