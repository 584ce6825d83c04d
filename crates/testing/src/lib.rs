//! Shared parts of the tests of all crates: folders, tools to compare with, and running programs.
//! The started programs do not depend on the environment or the ignored signals of the caller.
//!
//! Functions panic on failure, with all output of a failed program.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot be set up fails"
)]

mod assemble;
mod browser;
mod callgrind;
mod command;
mod folder;
mod go;
mod moved_headers;
pub mod packages;
mod running;
mod thorough;

pub use assemble::assemble;
pub use browser::Browser;
pub use callgrind::instructions;
pub use command::{
    Finish, TextOutput, alone, alone_by, command, filter, run_tool, this_test, tool,
};
pub use folder::{
    Folder, NOBODY, UserFolder, scratch, scratch_folder, set_age, set_mode, without_eh_frame,
};
pub use go::{STRIPPED, build_go};
pub use moved_headers::move_headers;
pub use running::{
    RunningProgram, await_state, await_that, kernel_core, limitless, send_signal, states,
};
pub use thorough::{THOROUGH, generated, is_thorough, sample};

/// Any error, to be printed.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A number as binutils print it: hexadecimal, with or without `0x`.
#[must_use]
pub fn hex(digits: &str) -> u64 {
    u64::from_str_radix(digits.trim_start_matches("0x"), 16).unwrap()
}
