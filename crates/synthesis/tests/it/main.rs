//! Rows made of code against those that compilers wrote, and files that lie.
#![cfg(test)]

mod hostile;
mod tables;
