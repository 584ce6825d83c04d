//! `unspool stack` against gdb and eu-stack, frame by frame, on programs built here; and what it
//! says of commands that crash and of input that it cannot read.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

mod build;
mod command;
mod compare;
mod container;
mod copies;
mod debugger;
mod files;
mod frames;
mod guesses;
mod instructions;
mod options;
mod output;
mod refusals;
mod run;
mod signals;
mod unspool;
