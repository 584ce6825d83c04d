//! `unspool stack` compared with gdb and eu-stack, frame by frame, on programs built here; and its
//! messages for commands that crash and for unreadable input.

pub(crate) mod build;
pub(crate) mod command;
pub(crate) mod compare;
pub(crate) mod container;
pub(crate) mod copies;
pub(crate) mod debugger;
pub(crate) mod files;
pub(crate) mod frames;
pub(crate) mod go;
pub(crate) mod guesses;
pub(crate) mod instructions;
pub(crate) mod options;
pub(crate) mod output;
pub(crate) mod refusals;
pub(crate) mod run;
pub(crate) mod signals;
pub(crate) mod unspool;
