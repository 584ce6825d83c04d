//! Any bytes as a jitdump: reading ends, a file that is cut has a part of the same records, and the code
//! at an address and a time is the last that was made there by then.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_rows::RuntimeAddr;
use unspool_symbols::{JitCode, JitCollector, JitDump, JitTimeline};

fuzz_target!(|data: &[u8]| {
    let whole = codes(data);
    let part = codes(&data[..data.len() * 2 / 3]);
    assert!(part.len() <= whole.len());
    for (part, whole) in part.iter().zip(&whole) {
        assert_eq!(
            (part.time, part.address, part.size),
            (whole.time, whole.address, whole.size)
        );
        assert_eq!(part.info, whole.info);
    }
    let mut sorted = whole.clone();
    sorted.sort_by_key(|code| code.time);
    let mut timeline = JitTimeline::new(whole);
    for code in sorted.iter().take(32) {
        for address in [
            code.address.0,
            code.address.0.wrapping_add(code.size).wrapping_sub(1),
        ] {
            let covers = |other: &&JitCode| {
                let end = other.address.0.saturating_add(other.size);
                other.time <= code.time && (other.address.0..end).contains(&address)
            };
            let expected = sorted.iter().rev().find(covers);
            let found = timeline.get(RuntimeAddr(address), code.time);
            assert_eq!(
                found.map(|f| (f.time, f.address)),
                expected.map(|e| (e.time, e.address))
            );
            let _ = found.and_then(|found| found.line(RuntimeAddr(address)));
        }
    }
});

fn codes(data: &[u8]) -> Vec<JitCode> {
    let Ok(mut dump) = JitDump::new(data) else {
        return Vec::new();
    };
    let mut collector = JitCollector::new();
    let mut codes = Vec::new();
    loop {
        match dump.next() {
            Ok(Some(record)) => codes.extend(collector.add(&record)),
            Ok(None) => return codes,
            Err(_) => {}
        }
    }
}
