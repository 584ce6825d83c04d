//! Shared code of tasks and tests: the corpus' proof can fail, and `unsafe` is only in permitted
//! modules.
#![cfg(test)]

mod corpus;
mod empty_tests;
mod unsafe_code;
