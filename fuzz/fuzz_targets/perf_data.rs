//! Any bytes as a recording of perf: reading ends, and each record is whole and of an event of the
//! file. What is written anew of it is read like it.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use unspool_perf_events::{DataFile, PerfRewriteError, ReadSummary, Record, Rewriter};

fuzz_target!(|data: &[u8]| {
    let Ok(file) = DataFile::from_bytes(data.to_vec()) else {
        return;
    };
    let mut count = 0;
    let summary = file.read(|item| {
        count += 1;
        // All that a record says can be asked for.
        assert!(file.events().get(item.event).is_some());
        assert_eq!(usize::from(item.header.size), item.bytes.len());
        let _ = format!("{:?}", item.record);
        Ok::<(), ()>(())
    });
    let summary = summary.expect("nobody stopped it");
    assert_eq!(summary.records, count);
    if let Ok(bytes) = rewrite(&file) {
        let again = DataFile::from_bytes(bytes).expect("it was written whole");
        let again = again.read(|_| Ok::<(), ()>(())).expect("nobody stopped it");
        let expected = ReadSummary {
            records: count,
            ..ReadSummary::default()
        };
        assert_eq!(again, expected);
    }
});

/// Writes it anew, each copied stack with three addresses instead.
fn rewrite(file: &DataFile) -> Result<Vec<u8>, PerfRewriteError> {
    let mut rewriter = Rewriter::new(file, Cursor::new(Vec::new()))?;
    file.read_all(|item| match item.record {
        Record::Sample(_) => rewriter.sample(&item, [1, 2, 3].into_iter()).map(drop),
        _ => rewriter.copy(&item),
    })?;
    Ok(rewriter.finish()?.into_inner())
}
