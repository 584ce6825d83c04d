//! Any bytes as a recording of perf: reading ends, and each record is whole and of an event of the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_perf::DataFile;

fuzz_target!(|data: &[u8]| {
    let Ok(file) = DataFile::from_bytes(data.to_vec()) else {
        return;
    };
    let mut count = 0;
    let reading = file.read(|item| {
        count += 1;
        // All that a record says can be asked for.
        assert!(file.events().get(item.event).is_some());
        assert_eq!(usize::from(item.header.size), item.bytes.len());
        let _ = format!("{:?}", item.record);
        Ok::<(), ()>(())
    });
    let reading = reading.expect("nobody stopped it");
    assert_eq!(reading.records, count);
});
