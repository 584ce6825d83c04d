//! Recordings by perf, compared with another reader's results.

use std::fs::{self, File};
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use linux_perf_data::{PerfFileReader, PerfFileRecord};
use proptest::prelude::*;
use unspool_perf_events::{DataFile, MmapFile, PerfFileError, Record, UserRegisters};
use unspool_rows::{Arch, Register};
use unspool_testing::{Finish, command, tool};

/// Records two events of some programs with perf: such as happen to programs, not in the kernel
/// only, which not every user may count.
fn record(name: &str, options: &[&str]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.data"));
    let mut perf = tool("perf");
    perf.args(["record", "-q", "-e", "cpu-clock", "-e", "page-faults"]);
    let perf = perf.args(options).arg("-o").arg(&path);
    let work = "for i in 1 2 3 4 5; do gzip -c /proc/self/exe | gzip -d | wc -c; done";
    let done = perf.args(["--", "sh", "-c", work]).output();
    let done = done.expect("perf is there (Debian: linux-perf)");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    path
}

/// A record from either reader: its kind, thread, time and event.
type RecordKey = (u32, u32, u64, usize);

fn ours(file: &DataFile) -> Vec<RecordKey> {
    let mut seen = Vec::new();
    let reading = file.read(|item| -> Result<(), ()> {
        let tid = match item.record {
            Record::Sample(_) => item.sample_id.tid,
            _ => 0,
        };
        seen.push((item.header.kind, tid, item.sample_id.time, item.event));
        Ok(())
    });
    let reading = reading.unwrap();
    assert_eq!(reading.cut, None);
    assert_eq!((reading.bad, reading.first_bad), (0, None));
    assert_eq!(reading.records, seen.len() as u64);
    seen
}

fn theirs(path: &Path) -> Vec<RecordKey> {
    let reader = BufReader::new(File::open(path).unwrap());
    let PerfFileReader {
        mut perf_file,
        mut record_iter,
    } = PerfFileReader::parse_file(reader).unwrap();
    let mut seen = Vec::new();
    while let Some(record) = record_iter.next_record(&mut perf_file).unwrap() {
        let PerfFileRecord::EventRecord { attr_index, record } = record else {
            continue;
        };
        let common = record.common_data().unwrap();
        let kind = record.record_type.0;
        let tid = match kind {
            9 => common.tid.unwrap().cast_unsigned(),
            _ => 0,
        };
        seen.push((kind, tid, common.timestamp.unwrap_or(0), attr_index));
    }
    seen
}

/// What the recordings count first.
const EVENTS: [&str; 2] = ["cpu-clock", "page-faults"];
/// perf adds this to the names of events of users who may not count in the kernel.
const USER_ONLY: &str = ":u";

fn names(file: &DataFile) -> Vec<&str> {
    let events = file.events().iter();
    events
        .map(|event| event.name.trim_end_matches(USER_ONLY))
        .collect()
}

#[test]
fn all_records_are_read_in_the_order_of_their_times() {
    for (name, options) in [
        ("plain", &["--call-graph", "dwarf,4096"][..]),
        ("build-ids", &["--buildid-mmap"]),
    ] {
        let path = record(name, options);
        let file = DataFile::open(&path).unwrap();
        assert_eq!(file.damaged(), []);
        assert_eq!(names(&file)[..2], EVENTS);
        let mut seen = ours(&file);
        let times: Vec<_> = seen
            .iter()
            .map(|seen| seen.2)
            .filter(|time| *time > 0)
            .collect();
        assert!(times.is_sorted(), "{name}");
        let count = |event| {
            seen.iter()
                .filter(|seen| seen.0 == 9 && seen.3 == event)
                .count()
        };
        assert!(count(0) > 10 && count(1) > 10, "{name}");
        let mut expected = theirs(&path);
        // Records of the same time may be in any order.
        seen.sort_unstable();
        expected.sort_unstable();
        assert_eq!(seen.len(), expected.len(), "{name}");
        assert_eq!(seen, expected, "{name}");
    }
}

/// The mappings of a file in a recording that have a build ID, or an inode; and the first of these
/// IDs.
fn named(bytes: Vec<u8>, path: &str) -> (usize, usize, Vec<u8>) {
    let (mut ids, mut inodes, mut first) = (0, 0, Vec::new());
    let reading = DataFile::from_bytes(bytes).unwrap().read(|item| {
        if let Record::Mmap(mapped) = item.record
            && mapped.name == path.as_bytes()
        {
            match mapped.file {
                MmapFile::BuildId(id) => {
                    ids += 1;
                    first = id.to_vec();
                }
                MmapFile::Inode { .. } => inodes += 1,
                MmapFile::Unknown => {}
            }
        }
        Ok::<(), ()>(())
    });
    assert_eq!(reading.unwrap().bad, 0);
    (ids, inodes, first)
}

/// perf requests build IDs with one of its events, and synthesizes them for earlier mappings.
#[test]
fn build_ids_are_read_if_recorded() {
    const ASKED: u64 = 1 << 34;
    const FLAGS: usize = 40;
    let path = record("asked", &["--buildid-mmap"]);
    let sh = fs::canonicalize("/bin/sh").unwrap();
    let sh = sh.to_str().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let notes = tool("readelf").args(["-n", sh]).output();
    let notes = String::from_utf8(notes.expect("readelf is there (Debian: binutils)").stdout);
    let notes = notes.unwrap();
    let expected = notes.split_once("Build ID: ").unwrap().1;
    let (ids, inodes, id) = named(bytes.clone(), sh);
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(id, expected.lines().next().unwrap());
    assert!(ids > 0 && inodes == 0, "{ids} {inodes}");

    // The same records, as of events that did not request them.
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let [size, start, length] = [16, 24, 32].map(|at| usize::try_from(word(&bytes, at)).unwrap());
    for attr in (start..start + length).step_by(size) {
        let flags = word(&bytes, attr + FLAGS) & !ASKED;
        bytes[attr + FLAGS..attr + FLAGS + 8].copy_from_slice(&flags.to_le_bytes());
    }
    let (no_ids, inodes, _) = named(bytes, sh);
    assert_eq!((no_ids, inodes), (0, ids));
}

#[test]
fn compressed_records_are_those_that_perf_has_itself() {
    let path = record("packed", &["-z", "-g"]);
    let plain = fs::read(&path).unwrap();
    let packed = plain.windows(4).filter(|kind| *kind == [81, 0, 0, 0]);
    assert!(packed.count() > 0, "nothing is compressed");
    let seen = ours(&DataFile::open(&path).unwrap());
    let mut perf = tool("perf");
    perf.args(["script", "--ns", "-F", "tid,time,event", "-G", "-i"]);
    let said = perf.arg(&path).output().unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    let samples = seen.into_iter().filter(|(kind, ..)| *kind == 9);
    let samples = samples.map(|(_, tid, time, event)| {
        let name = EVENTS[event];
        let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
        format!("{tid} {seconds}.{rest:09}: {name}:")
    });
    let words = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.join(" ").replace(USER_ONLY, "")
    };
    assert_eq!(
        samples.collect::<Vec<_>>(),
        said.lines().map(words).collect::<Vec<_>>()
    );
}

#[test]
fn the_header_describes_the_recording() {
    let path = record("about", &[]);
    let file = DataFile::open(&path).unwrap();
    let about = file.info();
    let uname = |option| {
        let done = command("uname").arg(option).output().unwrap();
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    };
    assert_eq!((&about.host, &about.kernel), (&uname("-n"), &uname("-r")));
    assert_eq!(about.arch, uname("-m"));
    assert_eq!(about.command[1..3], ["record", "-q"]);
    assert!(about.cpus.unwrap() > 0);
    let times = about.times.clone().unwrap();
    let samples = ours(&file).into_iter().filter(|seen| seen.0 == 9);
    let samples: Vec<_> = samples.map(|seen| seen.2).collect();
    assert_eq!(samples.first(), Some(&times.start));
    assert_eq!(samples.last(), Some(&times.end));
    let listed = tool("perf")
        .args(["buildid-list", "-i"])
        .arg(&path)
        .output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let hex = |id: &[u8]| {
        id.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let found = file.build_ids().iter();
    let found =
        found.map(|file| format!("{} {}", hex(&file.id), String::from_utf8_lossy(&file.name)));
    let found: Vec<_> = found.collect();
    let expected: Vec<_> = listed.lines().collect();
    assert_eq!(found.len(), expected.len());
    for line in expected {
        assert!(
            found.iter().any(|found| found == line),
            "{line} is not in {found:?}"
        );
    }
}

#[test]
fn a_stream_is_read_like_a_file() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stream.data");
    let perf = format!(
        "perf record -q -e cpu-clock -e page-faults -g -o - -- sleep 0.05 > {}",
        path.display()
    );
    command("sh").args(["-c", &perf]).succeed();
    let file = DataFile::open(&path).unwrap();
    assert_eq!(file.damaged(), []);
    assert_eq!(names(&file)[..2], EVENTS);
    let reader = File::open(&path).unwrap();
    let PerfFileReader {
        mut perf_file,
        mut record_iter,
    } = PerfFileReader::parse_pipe(reader).unwrap();
    let mut expected = 0;
    while let Some(record) = record_iter.next_record(&mut perf_file).unwrap() {
        expected += usize::from(matches!(record, PerfFileRecord::EventRecord { .. }));
    }
    assert_eq!(ours(&file).len(), expected);
}

/// A small, complete recording.
fn small() -> Vec<u8> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("small.data");
    let mut perf = tool("perf");
    perf.args(["record", "-q", "-z", "-e", "cpu-clock", "-g", "-o"]);
    let done = perf.arg(&path).args(["--", "sleep", "0.01"]).output();
    assert!(
        done.expect("perf is there (Debian: linux-perf)")
            .status
            .success()
    );
    let mut bytes = Vec::new();
    File::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_file_that_ends_anywhere_is_read_up_to_there() {
    let whole = small();
    let all = ours(&DataFile::from_bytes(whole.clone()).unwrap());
    let mut last = 0;
    for end in (0..whole.len()).step_by(29) {
        let Ok(file) = DataFile::from_bytes(whole[..end].to_vec()) else {
            continue;
        };
        let mut count = 0;
        let reading = file.read(|_| {
            count += 1;
            Ok::<(), ()>(())
        });
        let reading = reading.unwrap();
        assert!(
            count <= all.len() && count >= last,
            "{count} records of {end} bytes"
        );
        assert!(
            count == all.len() || reading.cut.is_some(),
            "{end}: {reading:?}"
        );
        last = count;
    }
    assert_eq!(last, all.len());
}

/// A record of a recording's stream.
fn raw_record(kind: u32, words: &[u64]) -> Vec<u8> {
    let size = u16::try_from(8 + 8 * words.len()).unwrap();
    let mut bytes = kind.to_le_bytes().to_vec();
    // Samples are of user code.
    bytes.extend(2_u16.to_le_bytes());
    bytes.extend(size.to_le_bytes());
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

/// Instruction pointer, thread, time, call chain.
const CHAIN: u64 = 0x27;

/// The marker of a user call chain in a later record.
const DEFERRED: u64 = (-640_i64).cast_unsigned();

fn task(tid: u64) -> u64 {
    100 | tid << 32
}

/// A stream with these records of an event whose samples have some fields.
fn stream(fields: u64, records: &[Vec<u8>]) -> Vec<u8> {
    /// `PERF_RECORD_HEADER_ATTR`.
    const ATTRIBUTES: u32 = 64;
    // Software event 0, `PERF_ATTR_SIZE_VER3`; every 1000th.
    let mut attributes = vec![1 | 96 << 32, 0, 1000, fields, 0];
    // `sample_id_all`, one user register, and the ID after the other fields.
    attributes.extend([1 << 18, 0, 0, 0, 0, 1, 0, 7]);
    let mut bytes = b"PERFILE2".to_vec();
    bytes.extend(16_u64.to_le_bytes());
    bytes.extend(raw_record(ATTRIBUTES, &attributes));
    bytes.extend(records.concat());
    bytes
}

/// Linux 6.19 and later records the user's part of call chains when the thread returns from the
/// kernel (`perf_event_open(2)`, PERF_RECORD_CALLCHAIN_DEFERRED).
#[test]
fn deferred_call_chains_are_joined_with_their_samples() {
    let sample = |tid, time, cookie| raw_record(9, &[0xabc, task(tid), time, 2, DEFERRED, cookie]);
    let chain = |tid, time, cookie, address| raw_record(22, &[cookie, 1, address, task(tid), time]);
    let exit = |tid, time| raw_record(4, &[100 | 1 << 32, tid | 1 << 32, time, task(tid), time]);
    let records = [
        sample(1, 10, 71),
        sample(1, 11, 71),
        sample(2, 12, 80),
        chain(1, 13, 71, 0x100),
        // The chain of the first one is missing.
        sample(2, 14, 81),
        chain(2, 15, 81, 0x200),
        // The thread exits without a chain.
        sample(2, 16, 82),
        exit(2, 17),
        // Both have one time, in any order.
        chain(3, 18, 90, 0x300),
        sample(3, 18, 90),
        // The recording ends.
        sample(4, 19, 95),
    ];
    let file = DataFile::from_bytes(stream(CHAIN, &records)).unwrap();
    let mut samples = Vec::new();
    let reading = file.read(|item| -> Result<(), ()> {
        if let Record::Sample(sample) = item.record {
            let user: Vec<u64> = sample.chain.user().collect();
            assert_eq!((sample.ip, item.sample_id.pid), (0xabc, 100));
            samples.push((item.sample_id.tid, item.sample_id.time, user));
        }
        Ok(())
    });
    let reading = reading.unwrap();
    assert_eq!((reading.bad, reading.cut), (0, None));
    let expected = [
        (1, 10, vec![0x100]),
        (1, 11, vec![0x100]),
        (2, 12, vec![]),
        (2, 14, vec![0x200]),
        (2, 16, vec![]),
        (3, 18, vec![0x300]),
        (4, 19, vec![]),
    ];
    assert_eq!(samples, expected);
}

#[test]
fn deferred_samples_keep_their_registers_and_stacks() {
    const REGISTERS_AND_STACK: u64 = 3 << 12;
    let sample = |tid, rest: &[u64]| {
        raw_record(
            9,
            &[&[0xabc, task(tid), 10, 2, DEFERRED, 71], rest].concat(),
        )
    };
    let records = [
        // A register of 64 bits, and a stack of 8 bytes.
        sample(1, &[2, 0x55, 8, 0x66, 8]),
        raw_record(22, &[71, 1, 0x100, task(1), 13]),
        // A thread of the kernel has neither.
        sample(2, &[0, 0]),
    ];
    let stream = stream(CHAIN | REGISTERS_AND_STACK, &records);
    let mut samples = Vec::new();
    let read = DataFile::from_bytes(stream)
        .unwrap()
        .read(|item| -> Result<(), ()> {
            if let Record::Sample(sample) = item.record {
                let register = sample
                    .user
                    .known()
                    .and_then(|user| user.get(Arch::X86_64, Register(0)));
                let is_of_kernel = sample.user == UserRegisters::NoUser;
                samples.push((register, is_of_kernel, sample.stack.bytes.to_vec()));
            }
            Ok(())
        });
    assert_eq!(read.unwrap().bad, 0);
    let stack = 0x66_u64.to_le_bytes().to_vec();
    assert_eq!(samples, [(Some(0x55), false, stack), (None, true, vec![])]);
}

/// Whoever makes a file may defer large samples without end.
#[test]
fn deferred_samples_wait_in_bounded_memory() {
    let sample = |time| {
        let chain = [vec![8002], vec![0x100; 8000], vec![DEFERRED, 71]].concat();
        raw_record(9, &[vec![0xabc, task(1), time], chain].concat())
    };
    let records: Vec<_> = (0..300).map(sample).collect();
    let mut times = Vec::new();
    let file = DataFile::from_bytes(stream(CHAIN, &records)).unwrap();
    let read = file.read(|item| -> Result<(), ()> {
        times.extend(matches!(item.record, Record::Sample(_)).then_some(item.sample_id.time));
        Ok(())
    });
    assert_eq!(read.unwrap().bad, 0);
    // Those for which there was no room came first, and the others at the end.
    assert!((100..200).contains(&times[0]), "{times:?}");
    times.sort_unstable();
    assert!(times.into_iter().eq(0..300));
}

/// The same for chains of ever new threads: the oldest are forgotten.
#[test]
fn last_chains_are_kept_in_bounded_memory() {
    const THREADS: u64 = 400;
    let sample = |tid| raw_record(9, &[0xabc, task(tid), 9, 2, DEFERRED, 71]);
    let chain = |tid| {
        let words = [vec![71, 8000], vec![0x100; 8000], vec![task(tid), 9]];
        raw_record(22, &words.concat())
    };
    let mut records: Vec<_> = (1..=THREADS).map(chain).collect();
    records.extend([sample(1), sample(THREADS)]);
    let mut lengths = Vec::new();
    let file = DataFile::from_bytes(stream(CHAIN, &records)).unwrap();
    let read = file.read(|item| -> Result<(), ()> {
        if let Record::Sample(sample) = item.record {
            lengths.push((item.sample_id.tid, sample.chain.user().count()));
        }
        Ok(())
    });
    assert_eq!(read.unwrap().bad, 0);
    lengths.sort_unstable();
    assert_eq!(lengths, [(1, 0), (u32::try_from(THREADS).unwrap(), 8000)]);
}

#[test]
fn other_files_are_rejected() {
    let refused = |bytes: &[u8]| DataFile::from_bytes(bytes.to_vec()).unwrap_err();
    assert!(matches!(refused(b""), PerfFileError::NotPerf));
    assert!(matches!(
        refused(b"\x7fELF...................."),
        PerfFileError::NotPerf
    ));
    assert!(matches!(
        refused(b"2ELIFREP\0\0\0\0"),
        PerfFileError::BigEndian
    ));
    assert!(matches!(refused(b"PERFILE2"), PerfFileError::Damaged(_)));
    assert!(matches!(
        refused(&[&b"PERFILE2"[..], &[16, 0, 0, 0, 0, 0, 0, 0]].concat()),
        PerfFileError::Damaged(_)
    ));
    let missing = DataFile::open(Path::new("/nonexistent"));
    assert!(matches!(missing, Err(PerfFileError::Io(_))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damaged_files_do_not_panic(places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        static SMALL: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let mut bytes = SMALL.get_or_init(small).clone();
        for (place, value) in places {
            let at = place.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(file) = DataFile::from_bytes(bytes) {
            let _ = file.read(|_| Ok::<(), ()>(()));
        }
    }
}
