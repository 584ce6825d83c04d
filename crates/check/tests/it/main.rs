//! Findings for tables with known faults: the corpus, random functions, single rules.
#![cfg(test)]

mod common;
mod conventions;
mod corpus;
mod diagnostics;
mod entries;
mod fix;
mod generated;
mod hostile;
mod instruction_effects;
mod libraries;
mod reports;
mod suppressions;
mod unusual_control_flow;
mod verifier;
