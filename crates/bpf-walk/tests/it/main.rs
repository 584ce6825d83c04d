//! Programs in the kernel: look-ups compared with those of `unspool-compiled-table`, and walks
//! compared with the interpreter of `unspool-rows`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::panic,
    reason = "a test"
)]

#[path = "../../../compiled-table/tests/it/generate.rs"]
#[expect(dead_code, reason = "others use more of it")]
mod generate;
mod lookup;
mod own_thread;
mod sys;
mod walk;
