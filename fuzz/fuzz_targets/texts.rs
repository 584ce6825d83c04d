//! Any text as a table of rows, as suppressions, as a baseline and as assembly source: nothing panics.
//! A table that is printed and read again is the same, and source that is not changed as well.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_assembly::AssemblySource;
use unspool_check::{Baseline, Suppressions};
use unspool_rows::text;

fuzz_target!(|data: &str| {
    if let Ok(table) = text::parse(data) {
        let printed = table.to_string();
        let again = text::parse(&printed).expect("the text form parses back");
        assert_eq!(again.to_string(), printed);
    }
    let _ = Suppressions::parse(data);
    let _ = Baseline::from_json(data);
    for source in [
        AssemblySource::new(data),
        AssemblySource::preprocessed(data),
    ] {
        assert_eq!(source.to_string(), data);
        let _ = source.condition_around(1);
    }
});
