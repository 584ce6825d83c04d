//! Walks, against naive models, and the tables of files as walks use them.
#![cfg(test)]

mod file_tables;
mod walks;
