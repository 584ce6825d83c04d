//! Any bytes as `/proc/PID/maps`: nothing panics, a file begins in a mapping of its name, and where
//! mappings do not overlap, `unspool_unwind` reads no other.
#![no_main]

use std::os::unix::ffi::OsStrExt;

use libfuzzer_sys::fuzz_target;
use unspool_libunwind_compat::maps;
use unspool_process::maps::Mappings;
use unspool_rows::RuntimeAddr;
use unspool_unwind::maps_text::{MapsLine, unescaped};

fuzz_target!(|data: &[u8]| {
    let read: Vec<_> = maps::mappings(data).collect();
    for mapping in &read {
        for address in [mapping.start.0, mapping.end.0 - 1] {
            let Some((found, base)) = maps::find(data, address) else {
                continue;
            };
            assert!(found.contains(RuntimeAddr(address)));
            let begins = |first: &MapsLine<'_>| {
                first.start.0 == base && first.name == found.name && first.offset == 0
            };
            assert!(read.iter().any(begins) && !found.name.is_empty());
        }
    }
    let is_overlapping = |at: usize| {
        let [this, rest @ ..] = &read[at..] else {
            return false;
        };
        let apart = |other: &MapsLine<'_>| this.end <= other.start || other.end <= this.start;
        !rest.iter().all(apart)
    };
    if (0..read.len()).any(is_overlapping) {
        return;
    }
    for expected in Mappings::parse(data).iter() {
        let Some(path) = expected.path() else {
            continue;
        };
        let is_it = |mapping: &MapsLine<'_>| {
            (mapping.start, mapping.end) == (expected.start, expected.end)
                && mapping.offset == expected.offset
                && unescaped(mapping.name)
                    .collect::<Vec<_>>()
                    .starts_with(path.as_os_str().as_bytes())
        };
        assert!(read.iter().any(is_it), "{expected:?} is not in {read:?}");
    }
});
