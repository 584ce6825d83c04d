//! Walks, against naive models, and the tables of files for walks.
#![cfg(test)]

mod file_tables;
mod memory_checks;
mod native;
mod walks;
