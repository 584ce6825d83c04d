//! Synthesized rows against compilers' rows, and corrupt files.
#![cfg(test)]

mod exit_rows;
mod hostile;
mod tables;
