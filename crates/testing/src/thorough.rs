//! Long comparisons, of which every run of the tests makes a part.

use std::env;

/// The variable by which `cargo xtask test --thorough` asks for all of them.
pub const THOROUGH: &str = "UNSPOOL_THOROUGH";

/// Whether comparisons are made in full.
#[must_use]
pub fn is_thorough() -> bool {
    env::var_os(THOROUGH).is_some()
}

/// The number of inputs that a test generates: a few under Miri, where each takes a thousand times
/// as long.
#[must_use]
pub const fn generated(count: u32) -> u32 {
    if cfg!(miri) { 8 } else { count }
}

/// Every `step`th of these, the first among them, or all if [`is_thorough`].
pub fn sample<I: IntoIterator>(all: I, step: usize) -> impl Iterator<Item = I::Item> {
    all.into_iter()
        .step_by(if is_thorough() { 1 } else { step })
}
