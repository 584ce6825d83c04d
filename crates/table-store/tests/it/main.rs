//! The store of tables, against other users, writers and readers.
#![cfg(test)]

mod store;
