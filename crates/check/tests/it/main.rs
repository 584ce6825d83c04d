//! What is found of tables, by what is known of them: the corpus, functions made at random, single rules.
#![cfg(test)]

mod common;
mod corpus;
mod diagnostics;
mod effects;
mod generated;
mod hostile;
mod libraries;
mod odd_ways;
mod one_look;
