//! The command, as a user calls it.
#![cfg(test)]

mod annotate;
mod args;
mod cache;
mod cargo;
mod check;
mod check_call;
mod check_run;
mod code;
mod completeness;
mod convert;
mod ctf;
mod ctf_diff;
mod ctf_show;
mod debug_files;
mod doctor;
mod expr;
mod fix;
mod gdb;
mod harness;
mod json;
mod man;
mod native;
mod objects;
mod record;
mod record_args;
mod report;
mod script;
mod show;
mod stack;
mod stats;
mod synth;
mod tables;
mod terminal;
#[path = "../../src/text/mod.rs"]
mod text;
mod verify;
mod view;
