//! What tasks and tests share: the corpus' proof can fail, and `unsafe` is where it may be.
#![cfg(test)]

mod corpus;
mod empty_tests;
mod unsafe_code;
