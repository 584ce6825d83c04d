//! Synthesized rows against compilers' rows, and corrupt files.
#![cfg(test)]

mod hostile;
mod tables;
