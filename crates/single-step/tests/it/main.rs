//! Programs that are stepped and functions that are called, whose tables are known to be right or wrong.
#![cfg(test)]

mod calls;
mod corpus;
mod programs;
