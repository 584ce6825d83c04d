//! Any bytes as `/proc/PID/maps`: nothing panics, a file begins in a mapping of its name, and where
//! mappings do not overlap, `unspool_unwind` reads no other.
#![no_main]

use std::os::unix::ffi::OsStrExt;

use libfuzzer_sys::fuzz_target;
use unspool_capi::maps;
use unspool_unwind::maps::Mappings;

fuzz_target!(|data: &[u8]| {
    let read: Vec<_> = maps::mappings(data).collect();
    for mapping in &read {
        for address in [mapping.range.start, mapping.range.end.wrapping_sub(1)] {
            let Some((found, base)) = maps::find(data, address) else { continue };
            assert!(found.range.contains(&address));
            let begins = |first: &maps::Mapping<'_>| {
                first.range.start == base && first.name == found.name && first.offset == 0
            };
            assert!(read.iter().any(begins) && !found.name.is_empty());
        }
    }
    let is_overlapping = |at: usize| {
        let [this, rest @ ..] = &read[at..] else { return false };
        let apart = |other: &maps::Mapping<'_>| {
            this.range.end <= other.range.start || other.range.end <= this.range.start
        };
        !rest.iter().all(apart)
    };
    if (0..read.len()).any(is_overlapping) {
        return;
    }
    for expected in Mappings::parse(data).iter() {
        let Some(path) = expected.path() else { continue };
        let is_it = |mapping: &maps::Mapping<'_>| {
            (mapping.range.start, mapping.range.end) == (expected.start.0, expected.end.0)
                && mapping.offset == expected.offset
                && name(mapping).starts_with(path.as_os_str().as_bytes())
        };
        assert!(read.iter().any(is_it), "{expected:?} is not in {read:?}");
    }
});

fn name(mapping: &maps::Mapping<'_>) -> Vec<u8> {
    let mut name = mapping.name.to_vec();
    maps::unescape(&mut name);
    name
}
