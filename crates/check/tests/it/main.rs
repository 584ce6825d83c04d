//! What is found of tables, by what is known of them: the corpus, functions made at random, single rules.
#![cfg(test)]

mod common;
mod corpus;
mod diagnostics;
mod generated;
mod hostile;
mod instruction_effects;
mod libraries;
mod unusual_control_flow;
mod verifier;
