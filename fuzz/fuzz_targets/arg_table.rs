//! Any bytes as a table of arguments: nothing panics, and every question ends.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/arg-table-builder/tests/it/everything.rs"]
mod everything;

fuzz_target!(|data: &[u8]| {
    let [low, high, table @ ..] = data else {
        return;
    };
    everything::use_all(table, u64::from(u16::from_le_bytes([*low, *high])));
});
