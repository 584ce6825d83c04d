//! Stepped programs and called functions with tables known to be right or wrong.
#![cfg(test)]

mod calls;
mod corpus;
mod programs;
