//! Types and variables that DWARF describes, and DWARF that is broken.
#![cfg(test)]

mod dwarf;
mod everything;
mod variables;
