//! Names of addresses compared with other tools' names, and the files that they come from.
#![cfg(test)]

#[path = "../../../elf/tests/it/common.rs"]
mod common;
mod debuginfod;
mod jit;
mod symbolizer;
