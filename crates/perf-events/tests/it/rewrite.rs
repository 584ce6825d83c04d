//! Rewritten recordings, as another reader reads them.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use linux_perf_data::linux_perf_event_reader::EventRecord;
use linux_perf_data::{PerfFileReader, PerfFileRecord};
use unspool_perf_events::{DataFile, PerfFileError, PerfRewriteError, Record, Rewriter};
use unspool_testing::{Finish, tool};

const USER: u64 = (-512_i64).cast_unsigned();

fn record(name: &str, options: &[&str]) -> Vec<u8> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rewrite-{name}.data"));
    let mut perf = tool("perf");
    perf.args(["record", "-q", "-e", "cpu-clock", "-o"])
        .arg(&path);
    let done = perf
        .args(options)
        .args(["--", "gzip", "-c", "/proc/self/exe"]);
    let done = done.output().expect("perf is there (Debian: linux-perf)");
    assert!(done.status.success());
    fs::read(&path).unwrap()
}

/// Rewrites a recording, each sample with this many addresses; also returns the number of addresses
/// left out of each.
fn rewrite(file: &DataFile, addresses: u64) -> Result<(Vec<u8>, Vec<usize>), PerfRewriteError> {
    let mut rewriter = Rewriter::new(file, Cursor::new(Vec::new()))?;
    let mut left_out = Vec::new();
    file.read_all(|item| match item.record {
        Record::Sample(_) => {
            let user = (0..usize::try_from(addresses).unwrap()).map(|number| number as u64);
            left_out.push(rewriter.sample(&item, user)?);
            Ok(())
        }
        _ => rewriter.copy(&item),
    })?;
    Ok((rewriter.finish()?.into_inner(), left_out))
}

/// A sample: its time, address, call chain, raw tracepoint data, and whether it has a stack.
type SampleContent = (u64, u64, Vec<u64>, bool);

fn samples(bytes: Vec<u8>) -> Vec<SampleContent> {
    let PerfFileReader {
        mut perf_file,
        mut record_iter,
    } = PerfFileReader::parse_file(Cursor::new(bytes)).unwrap();
    let mut seen = Vec::new();
    while let Some(record) = record_iter.next_record(&mut perf_file).unwrap() {
        let PerfFileRecord::EventRecord { record, .. } = record else {
            continue;
        };
        if let EventRecord::Sample(sample) = record.parse().unwrap() {
            let chain = sample.callchain.unwrap();
            let chain = (0..chain.len()).map(|at| chain.get(at).unwrap());
            let has_stack = sample.user_regs.is_some() || sample.user_stack.is_some();
            seen.push((
                sample.timestamp.unwrap(),
                sample.ip.unwrap(),
                chain.collect(),
                has_stack,
            ));
        }
    }
    seen
}

#[test]
fn call_chains_take_the_place_of_copied_stacks() {
    let before = record("plain", &["--call-graph", "dwarf,512"]);
    let file = DataFile::from_bytes(before.clone()).unwrap();
    for count in [0, 3] {
        let (after, left_out) = rewrite(&file, count).unwrap();
        assert!(left_out.len() > 5 && left_out.iter().all(|count| *count == 0));
        let mark = (count > 0).then_some(USER);
        let expected = samples(before.clone()).into_iter();
        let expected: Vec<_> = expected
            .map(|(time, ip, kernel, has_stack)| {
                assert!(has_stack);
                let chain = kernel.into_iter().chain(mark).chain(0..count);
                (time, ip, chain.collect::<Vec<_>>(), false)
            })
            .collect();
        assert_eq!(samples(after), expected);
    }
}

#[test]
fn oversized_data_is_dropped_and_counted() {
    let file = DataFile::from_bytes(record("long", &["--call-graph", "dwarf,512"])).unwrap();
    let (after, left_out) = rewrite(&file, 10_000).unwrap();
    for ((_, _, chain, _), left_out) in samples(after).iter().zip(left_out) {
        let last = usize::try_from(*chain.last().unwrap()).unwrap();
        assert_eq!(last + 1 + left_out, 10_000);
        assert!(chain.len() > 8000, "{}", chain.len());
    }
}

/// A record of perf's own that starts AUX trace data.
const AUXTRACE_INFO: [u8; 16] = [70, 0, 0, 0, 0, 0, 16, 0, 1, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn unsupported_recordings_are_rejected() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rewrite-stream.data");
    let out = fs::File::create(&path).unwrap();
    let mut perf = tool("perf");
    perf.args(["record", "-q", "-e", "cpu-clock", "-o", "-", "--", "true"]);
    perf.stdout(out).succeed();
    let mut bytes = fs::read(path).unwrap();
    let file = DataFile::from_bytes(bytes.clone()).unwrap();
    assert!(rewrite(&file, 0).is_ok());
    bytes.extend(AUXTRACE_INFO);
    let file = DataFile::from_bytes(bytes).unwrap();
    assert!(matches!(rewrite(&file, 0), Err(PerfRewriteError::Trace)));
    // The feature bit for a recording in several files.
    let mut bytes = record("one-of-several", &[]);
    bytes[72 + 3] |= 1;
    assert!(matches!(
        DataFile::from_bytes(bytes),
        Err(PerfFileError::OneOfSeveral)
    ));
}
