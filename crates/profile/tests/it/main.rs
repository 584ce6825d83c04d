//! Profiles are written and read as in a naive model, even if the file is damaged.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    clippy::panic,
    reason = "a test"
)]

mod archive;
mod example;
mod file;
mod hostile;
mod large;
mod made;
mod model;
mod outputs;
mod page;
mod recorded;
mod sums;
