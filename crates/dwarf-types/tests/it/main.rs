//! Types and variables from DWARF, and broken DWARF.
#![cfg(test)]

mod dwarf;
mod everything;
mod variables;
