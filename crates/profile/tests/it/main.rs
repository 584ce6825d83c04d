//! Profiles are written and read as a naive model says, whatever becomes of the file.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a test"
)]

mod create;
mod example;
mod file;
mod hostile;
mod model;
