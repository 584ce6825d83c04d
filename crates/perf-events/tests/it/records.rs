//! Records of real events, and random bytes.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use unspool_perf_events::{
    Counter, EventAttr, EventNameError, EventTarget, MmapFile, OpenRefusal, PerfEvent, Record,
    RecordHeader, Ring, SampleFormat, SampleRate, user_mask,
};
use unspool_rows::{Arch, Register};
use unspool_testing::tool;

/// A busy program, killed on drop.
struct Busy(Child);

impl Busy {
    fn begin() -> Busy {
        let mut command = Command::new("sh");
        command
            .args(["-c", "while :; do :; done"])
            .stdin(Stdio::null());
        Busy(command.spawn().expect("sh runs"))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn setup(event: PerfEvent) -> EventAttr {
    EventAttr {
        event,
        rate: SampleRate::Frequency(999),
        user_registers: user_mask(Arch::X86_64).expect("known"),
        stack_bytes: 8192,
        with_kernel: false,
        with_frame_pointers: false,
        inherits: false,
        from_exec: false,
        with_tasks: true,
        with_switches: false,
        wake_after: 4096,
    }
}

fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).expect("few"))
}

/// Counts an event of a thread on each processor, with a ring for each.
fn count_on_all_cpus(setup: &EventAttr, thread: u32) -> (Vec<Counter>, Vec<Ring>) {
    let open = |cpu| {
        let counter = Counter::open(setup, EventTarget::Thread(thread), cpu);
        counter.expect("perf_event_paranoid is 2 or less")
    };
    let counters: Vec<Counter> = (0..cpus()).map(open).collect();
    let ring = |counter| Ring::new(counter, 64 << 10).expect("a ring");
    let rings = counters.iter().map(ring).collect();
    for counter in &counters {
        counter.enable().expect("counted");
    }
    (counters, rings)
}

/// Records that had no room are noticed before the kernel reports them, which it does with the next
/// one.
#[test]
fn a_full_ring_has_a_gap_after_its_last_record() {
    let attr = EventAttr {
        rate: SampleRate::Period(1),
        user_registers: 0,
        stack_bytes: 0,
        ..setup(PerfEvent::dummy())
    };
    let layout = attr.layout();
    let (_counters, mut rings) = count_on_all_cpus(&attr, 0);
    // Each time, there is a record.
    let rename = |times| {
        (0..times).for_each(|_| fs::write("/proc/thread-self/comm", "renamed").expect("our own"));
    };
    let mut read = || {
        let (mut records, mut gaps) = (0, 0);
        for ring in &mut rings {
            ring.refresh();
            while let Some((header, bytes)) = ring.first() {
                let (_, record) = layout.read(header, bytes).expect("the kernel's own");
                records += usize::from(matches!(record, Record::Comm(_)));
                assert!(!matches!(record, Record::Lost { .. }));
                ring.skip(header);
                if ring.take_gap() {
                    assert!(ring.first().is_none());
                    gaps += 1;
                }
            }
            ring.release();
        }
        (records, gaps)
    };
    rename(100);
    assert_eq!(read(), (100, 0));
    rename(20_000);
    let (records, gaps) = read();
    assert!(records < 20_000 && gaps > 0, "{records} records");
    assert_eq!(read(), (0, 0));
}

#[test]
fn samples_are_of_the_process_and_its_stack() {
    let busy = Busy::begin();
    let setup = setup(PerfEvent::cpu_clock());
    let layout = setup.layout();
    let (_counters, mut rings) = count_on_all_cpus(&setup, busy.pid());
    let maps = fs::read_to_string(format!("/proc/{}/maps", busy.pid())).expect("it runs");
    let range_of = |name: &str| {
        let line = maps
            .lines()
            .find(|line| line.ends_with(name))
            .expect("mapped");
        let (start, end) = line
            .split_once(' ')
            .expect("a range")
            .0
            .split_once('-')
            .expect("two ends");
        let number = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
        number(start)..number(end)
    };
    let stack = range_of("[stack]");
    let begun = Instant::now();
    let mut samples = 0;
    let mut last = 0;
    // Enough to wrap the ring several times.
    while samples < 100 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "only {samples} samples"
        );
        for ring in &mut rings {
            ring.refresh();
            while let Some((header, bytes)) = ring.first() {
                let (origin, record) = layout.read(header, bytes).expect("the kernel's own");
                assert_eq!(layout.time(header, bytes), Some(origin.time));
                if let Record::Sample(sample) = record {
                    samples += 1;
                    last = last.max(origin.time);
                    assert_eq!((origin.pid, origin.tid), (busy.pid(), busy.pid()));
                    let registers = sample.user.known().expect("of a process");
                    let get = |number| {
                        registers
                            .get(Arch::X86_64, Register(number))
                            .expect("asked for")
                    };
                    assert_eq!(get(16), sample.ip);
                    assert!(stack.contains(&get(7)), "{:x} {stack:x?}", get(7));
                    let there = stack.end - get(7);
                    let copied = sample.stack.bytes.len() as u64;
                    // It may end before a page that is not present at the moment.
                    let is_cut = copied < there.min(8192) && (get(7) + copied).is_multiple_of(4096);
                    assert!(is_cut || copied == there.min(8192), "{copied} of {there}");
                    assert_eq!(sample.stack.requested_bytes, 8192);
                }
                ring.skip(header);
            }
            ring.release();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(last > 0);
}

#[test]
fn mappings_of_a_new_program_are_those_that_proc_shows() {
    let mut command = Command::new("sh");
    // `exec` follows after the events are open: `read` waits for it.
    command
        .args(["-c", "read line; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("sh runs");
    let mut setup = setup(PerfEvent::dummy());
    setup.stack_bytes = 0;
    let (_counters, mut rings) = count_on_all_cpus(&setup, child.id());
    let mut stdin = child.stdin.take().expect("piped");
    let mut stdout = child.stdout.take().expect("piped");
    std::io::Write::write_all(&mut stdin, b"\nready").expect("it reads");
    let mut answer = [0; 5];
    std::io::Read::read_exact(&mut stdout, &mut answer).expect("cat runs");
    let maps = fs::read_to_string(format!("/proc/{}/maps", child.id())).expect("it runs");
    let mut found = Vec::new();
    let mut execs = Vec::new();
    for ring in &mut rings {
        ring.refresh();
        while let Some((header, bytes)) = ring.first() {
            let (_, record) = setup
                .layout()
                .read(header, bytes)
                .expect("the kernel's own");
            match record {
                Record::Mmap(mapped) if mapped.is_executable => {
                    let file = match mapped.file {
                        MmapFile::Inode { inode, .. } => inode.to_string(),
                        MmapFile::BuildId(id) => {
                            id.iter().map(|byte| format!("{byte:02x}")).collect()
                        }
                        MmapFile::Unknown => String::new(),
                    };
                    let name = String::from_utf8_lossy(mapped.name).into_owned();
                    let end = mapped.start + mapped.size;
                    found.push((mapped.start, end, mapped.offset, file, name));
                }
                Record::Comm(named) if named.is_exec => execs.push(named.name.to_vec()),
                _ => {}
            }
            ring.skip(header);
        }
    }
    drop((stdin, stdout));
    child.wait().expect("it ends");
    assert_eq!(execs, [b"cat".to_vec()]);
    let mut shown = 0;
    for line in maps.lines() {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let [range, permissions, offset, _, inode, path] = *fields else {
            continue;
        };
        if !permissions.contains('x') || !path.starts_with('/') {
            continue;
        }
        let (start, end) = range.split_once('-').expect("two ends");
        let number = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
        let of = |file: &str| {
            let [start, end, offset] = [start, end, offset].map(number);
            (start, end, offset, file.to_owned(), path.to_owned())
        };
        // Kernels before 5.12 do not report build IDs.
        let is_found = [build_id(path).as_str(), inode]
            .into_iter()
            .any(|file| found.contains(&of(file)));
        assert!(is_found, "{line} is not in {found:x?}");
        shown += 1;
    }
    assert!(shown >= 3, "cat, its loader and its library: {maps}");
}

/// The build ID of a file, in hexadecimal digits.
fn build_id(path: &str) -> String {
    let notes = tool("readelf").args(["-n", path]).output();
    let notes = notes.expect("readelf is there (Debian: binutils)").stdout;
    let notes = String::from_utf8_lossy(&notes);
    let id = notes.split_once("Build ID: ").expect("it has one").1;
    id.lines().next().expect("a line").to_owned()
}

#[test]
fn refusals_say_what_to_do() {
    let no_such = Counter::open(
        &setup(PerfEvent::cpu_clock()),
        EventTarget::Thread(0x3fff_ffff),
        0,
    );
    assert!(matches!(
        no_such.expect_err("nobody has it").reason,
        OpenRefusal::NoProcess
    ));
    let mut often = setup(PerfEvent::cpu_clock());
    often.rate = SampleRate::Frequency(1 << 40);
    let busy = Busy::begin();
    let error = Counter::open(&often, EventTarget::Thread(busy.pid()), 0).expect_err("too often");
    assert!(
        error.to_string().contains("perf_event_max_sample_rate"),
        "{error}"
    );
    assert!(
        "cycels"
            .parse::<PerfEvent>()
            .expect_err("misspelt")
            .to_string()
            .contains("cpu-clock")
    );
    assert!("../x:y".parse::<PerfEvent>().is_err());
    for unknown in ["cycles:", "cycles:x", "cycles:pppp", "nothing:u", ":u"] {
        assert!(unknown.parse::<PerfEvent>().is_err(), "{unknown}");
    }
    assert_eq!(
        "cycles:ppp".parse::<PerfEvent>().unwrap().name(),
        "cycles:ppp"
    );
}

/// perf takes several events, of which some have commas of their own.
#[test]
fn lists_of_events_are_refused_as_lists() {
    for list in ["cycles,faults", "cycles,", "cpu/event=0x3c,umask=0/,faults"] {
        let error = list.parse::<PerfEvent>();
        assert!(matches!(error, Err(EventNameError::List(_))), "{error:?}");
    }
    let error = "cpu/event=0x3c,umask=0/u".parse::<PerfEvent>();
    assert!(matches!(error, Err(EventNameError::Name(_))), "{error:?}");
    assert!("faults".parse::<PerfEvent>().is_ok());
}

fn layouts() -> impl Strategy<Value = SampleFormat> {
    let words = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    (words, any::<bool>(), any::<bool>()).prop_map(
        |((sample_type, read_format, branches, registers), has_origins, has_build_ids)| {
            SampleFormat {
                sample_type,
                read_format,
                branch_sample_type: branches,
                user_registers: registers,
                interrupted_registers: 0,
                has_sample_id: has_origins,
                has_build_ids,
            }
        },
    )
}

/// An MMAP2 record: `named` is the part between its offset and its protection.
fn mapping(misc: u16, named: [u8; 24]) -> Vec<u8> {
    const MMAP2: u32 = 10;
    const PROTECTION: u32 = 5;
    let mut body = [7_u32, 8].map(u32::to_le_bytes).concat();
    body.extend([0x40_0000_u64, 0x1000, 0].map(u64::to_le_bytes).concat());
    body.extend(named);
    body.extend([PROTECTION, 2].map(u32::to_le_bytes).concat());
    body.extend(b"/bin/a\0\0");
    let size = u16::try_from(RecordHeader::SIZE + body.len()).expect("small");
    let mut record = MMAP2.to_le_bytes().to_vec();
    record.extend([misc, size].map(u16::to_le_bytes).concat());
    record.extend(body);
    record
}

/// The bit for build IDs is also in records of events that did not request them, after another
/// event got them for the same mapping.
#[test]
fn a_build_id_is_one_only_where_it_was_asked_for() {
    const BUILD_ID: u16 = 1 << 14;
    let tasks = EventAttr {
        event: PerfEvent::dummy(),
        with_tasks: true,
        ..setup(PerfEvent::cpu_clock())
    };
    let asked = SampleFormat {
        has_sample_id: false,
        ..tasks.layout()
    };
    let not_asked = SampleFormat {
        has_build_ids: false,
        ..asked
    };
    let mut id = [0; 24];
    id[0] = 4;
    id[4..8].copy_from_slice(&[1, 2, 3, 4]);
    let mut place = [0; 24];
    // The device 8:4, as on many machines: read as a build ID, it has 8 bytes.
    place[0] = 8;
    place[4] = 4;
    place[8..10].copy_from_slice(&[0x34, 0x12]);
    let inode = MmapFile::Inode {
        major: 8,
        minor: 4,
        inode: 0x1234,
    };
    for (layout, misc, named, expected) in [
        (asked, BUILD_ID, id, MmapFile::BuildId(&[1, 2, 3, 4])),
        (asked, 0, place, inode),
        (not_asked, BUILD_ID, place, inode),
        (not_asked, 0, place, inode),
    ] {
        let bytes = mapping(misc, named);
        let header = RecordHeader::parse(&bytes).expect("eight bytes");
        let (_, record) = layout.read(header, &bytes).expect("whole");
        let Record::Mmap(mapped) = record else {
            panic!("{record:?} is no mapping");
        };
        assert_eq!(mapped.file, expected);
        // The later fields have the same offsets in both forms.
        assert_eq!((mapped.name, mapped.is_executable), (&b"/bin/a"[..], true));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_record_or_an_error(
        layout in layouts(),
        kind in 0..25_u32,
        misc in any::<u16>(),
        body in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let size = u16::try_from(RecordHeader::SIZE + body.len()).expect("small");
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(misc.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend(&body);
        let header = RecordHeader::parse(&bytes).expect("eight bytes");
        if let Ok((_, Record::Sample(sample))) = layout.read(header, &bytes) {
            prop_assert!(sample.stack.bytes.len() <= body.len());
            prop_assert!(sample.chain.words().len() * 8 <= body.len());
        }
        let _ = layout.time(header, &bytes);
    }
}
