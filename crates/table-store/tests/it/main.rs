//! The store of tables, against other users, writers and readers; and tables of Go programs.
#![cfg(test)]

mod go;
mod sections;
mod stats;
mod store;
