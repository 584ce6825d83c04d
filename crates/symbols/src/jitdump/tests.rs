use super::*;

/// Writes a jitdump in some byte order.
struct JitDumpWriter {
    bytes: Vec<u8>,
    little: bool,
}

impl JitDumpWriter {
    fn new(little: bool) -> JitDumpWriter {
        let mut writer = JitDumpWriter {
            bytes: Vec::new(),
            little,
        };
        for number in [MAGIC, 1, 48, 62, 0, 77] {
            writer.u32(number);
        }
        // The creation time, the flags, and a field of a later version.
        for number in [1000, 1, 0xdead] {
            writer.u64(number);
        }
        writer
    }

    fn u32(&mut self, number: u32) {
        self.bytes.extend(if self.little {
            number.to_le_bytes()
        } else {
            number.to_be_bytes()
        });
    }

    fn u64(&mut self, number: u64) {
        self.bytes.extend(if self.little {
            number.to_le_bytes()
        } else {
            number.to_be_bytes()
        });
    }

    fn record(&mut self, kind: u32, time: u64, numbers: &[u64], rest: &[u8]) {
        let size = RECORD_HEADER_BYTES + numbers.len() * 8 + rest.len();
        self.u32(kind);
        self.u32(u32::try_from(size).unwrap());
        self.u64(time);
        numbers.iter().for_each(|number| self.u64(*number));
        self.bytes.extend(rest);
    }

    /// The process ID and the thread ID, as one number.
    fn ids(&self) -> u64 {
        if self.little {
            (88 << 32) | 77
        } else {
            (77 << 32) | 88
        }
    }

    fn load(&mut self, time: u64, address: u64, index: u64, name: &str, code: &[u8]) {
        let numbers = [self.ids(), address, address, code.len() as u64, index];
        let mut rest = name.as_bytes().to_vec();
        rest.push(0);
        rest.extend(code);
        self.record(0, time, &numbers, &rest);
    }

    fn lines(&mut self, address: u64, entries: &[(u64, u32, &[u8])]) {
        let mut inner = JitDumpWriter {
            bytes: Vec::new(),
            little: self.little,
        };
        for (address, line, file) in entries {
            inner.u64(*address);
            inner.u32(*line);
            inner.u32(0);
            inner.bytes.extend(*file);
            inner.bytes.push(0);
        }
        self.record(2, 1, &[address, entries.len() as u64], &inner.bytes);
    }

    fn unwinding(&mut self, eh_frame: &[u8], hdr: &[u8]) {
        let (size, hdr_size) = ((eh_frame.len() + hdr.len()) as u64, hdr.len() as u64);
        let bytes: Vec<u8> = eh_frame.iter().chain(hdr).chain(&[0; 4]).copied().collect();
        self.record(4, 1, &[size, hdr_size, 0], &bytes);
    }

    fn moved(&mut self, time: u64, from: u64, to: u64, size: u64, index: u64) {
        let numbers = [self.ids(), to, from, to, size, index];
        self.record(1, time, &numbers, &[]);
    }
}

/// One record of each kind, twice.
fn sample(little: bool) -> Vec<u8> {
    let mut writer = JitDumpWriter::new(little);
    writer.unwinding(b"frame", b"hdr");
    writer.lines(
        0x1000,
        &[
            (0x1000, 3, b"a.js"),
            (0x1004, 5, &[0xff]),
            (0x1008, 7, b"b.js"),
        ],
    );
    writer.load(10, 0x1000, 1, "first", &[0x90; 16]);
    writer.record(99, 11, &[1, 2], b"unknown");
    writer.load(20, 0x1008, 2, "second", &[0xc3; 4]);
    writer.moved(30, 0x1000, 0x2000, 16, 1);
    writer.moved(31, 0x1000, 0x2000, 16, 17);
    writer.record(3, 40, &[], &[]);
    writer.bytes
}

/// The code read from a file, and the errors.
fn read(bytes: &[u8]) -> (Vec<JitCode>, Vec<String>) {
    let mut dump = match JitDump::new(bytes) {
        Ok(dump) => dump,
        Err(error) => return (Vec::new(), vec![error.to_string()]),
    };
    let mut collector = JitCollector::new();
    let (mut codes, mut errors) = (Vec::new(), Vec::new());
    loop {
        match dump.next() {
            Ok(Some(record)) => codes.extend(collector.add(&record)),
            Ok(None) => return (codes, errors),
            Err(error) => errors.push(error.to_string()),
        }
    }
}

#[test]
fn either_byte_order() {
    for little in [true, false] {
        let bytes = sample(little);
        let header = JitDump::new(bytes.as_slice()).unwrap().header();
        let expected = JitHeader {
            machine: 62,
            pid: 77,
            started: 1000,
            has_cpu_time: true,
        };
        assert_eq!(header, expected);
        let (codes, errors) = read(&bytes);
        assert_eq!(errors, [""; 0]);
        let shown: Vec<_> = codes
            .iter()
            .map(|code| {
                (
                    code.time,
                    code.address.0,
                    code.size,
                    code.info.name.as_str(),
                )
            })
            .collect();
        let expected = [
            (10, 0x1000, 16, "first"),
            (20, 0x1008, 4, "second"),
            (30, 0x2000, 16, "first"),
        ];
        assert_eq!(shown, expected);
        let first = &codes[0];
        assert_eq!(first.info.eh_frame, b"frame");
        assert_eq!(first.info.eh_frame_hdr, b"hdr");
        assert_eq!(codes[1].info.eh_frame, b"");
        for (address, expected) in [
            (0xfff, None),
            (0x1003, Some(("a.js", 3))),
            (0x1004, Some(("a.js", 5))),
            (0x100f, Some(("b.js", 7))),
        ] {
            assert_eq!(first.line(RuntimeAddr(address)), expected, "{address:#x}");
        }
        // Its lines move with it.
        assert_eq!(codes[2].line(RuntimeAddr(0x2004)), Some(("a.js", 5)));
    }
}

#[test]
fn the_entries_that_v8_shifts() {
    let mut writer = JitDumpWriter::new(true);
    writer.lines(0x1000, &[(0x1040, 3, b"a.js"), (0x1044, 5, b"a.js")]);
    writer.load(1, 0x1000, 1, "JS:f", &[0; 8]);
    let (codes, _) = read(&writer.bytes);
    assert_eq!(codes[0].line(RuntimeAddr(0x1001)), Some(("a.js", 3)));
    assert_eq!(codes[0].line(RuntimeAddr(0x1004)), Some(("a.js", 5)));
}

#[test]
fn lookups_use_the_code_at_their_time() {
    let mut timeline = JitTimeline::new(read(&sample(true)).0);
    for (time, address, expected) in [
        (9, 0x1000, "-"),
        (10, 0x100a, "first"),
        (20, 0x100a, "second"),
        (20, 0x100c, "first"),
        (29, 0x2000, "-"),
        (1000, 0x2000, "first"),
        // Back in time.
        (10, 0x100a, "first"),
        (9, 0x100a, "-"),
    ] {
        let code = timeline.get(RuntimeAddr(address), time);
        let name = code.map_or("-", |code| code.info.name.as_str());
        assert_eq!(name, expected, "{address:#x} at {time}");
    }
}

#[test]
fn a_bad_record_does_not_lose_the_others() {
    let mut writer = JitDumpWriter::new(true);
    writer.load(1, 0x1000, 1, "before", &[0; 8]);
    writer.record(0, 2, &[0, 0, 0, 100, 0], b"no room\0code");
    writer.record(0, 2, &[0, 0, 0, 0, 0], b"no end");
    writer.record(1, 2, &[1, 2], &[]);
    writer.record(4, 2, &[8, 9, 0], &[0; 8]);
    writer.record(4, 2, &[u64::MAX, 0, 0], &[0; 8]);
    // Lines truncated within an entry are used up to there.
    writer.record(
        2,
        2,
        &[0x2000, u64::MAX, 0x2000],
        &[1, 0, 0, 0, 0, 0, 0, 0, b'a', 0, 9],
    );
    writer.load(3, 0x2000, 2, "after", &[0; 8]);
    let (codes, errors) = read(&writer.bytes);
    let names: Vec<&str> = codes.iter().map(|code| code.info.name.as_str()).collect();
    assert_eq!(names, ["before", "after"]);
    assert_eq!(codes[1].line(RuntimeAddr(0x2007)), Some(("a", 1)));
    assert_eq!(errors.len(), 5, "{errors:?}");
    let second = 48 + RECORD_HEADER_BYTES + 40 + 7 + 8;
    let expected = format!("record 0 at offset {second:#x}: its code does not fit into it");
    assert!(errors[0].ends_with(&expected), "{errors:?}");
}

#[test]
fn a_file_that_is_cut_anywhere_says_less_and_nothing_wrong() {
    for little in [true, false] {
        let bytes = sample(little);
        let (whole, _) = read(&bytes);
        for length in 0..bytes.len() {
            let (codes, errors) = read(&bytes[..length]);
            assert_eq!(errors.is_empty(), length >= 48, "{length}: {errors:?}");
            for (code, expected) in codes.iter().zip(&whole) {
                assert_eq!(code.info, expected.info);
            }
        }
    }
}

#[test]
fn sizes_that_no_record_can_have_end_the_file() {
    for size in [0_u32, 15, MAX_RECORD_BYTES + 1, u32::MAX] {
        let mut bytes = sample(true);
        let at = bytes.len();
        bytes.extend([0; 4]);
        bytes.extend(size.to_le_bytes());
        bytes.extend([0; 100]);
        let (codes, errors) = read(&bytes);
        assert_eq!(codes.len(), 3);
        let expected = format!("record at offset {at:#x} claims {size} bytes");
        assert!(
            errors.len() == 1 && errors[0].contains(&expected),
            "{errors:?}"
        );
    }
    // A large possible size costs no memory before its bytes are read.
    let mut bytes = sample(true);
    bytes.extend([0; 4]);
    bytes.extend(MAX_RECORD_BYTES.to_le_bytes());
    bytes.extend([0; 100]);
    let mut dump = JitDump::new(bytes.as_slice()).unwrap();
    while dump.next().unwrap().is_some() {}
    assert!(dump.buffer.capacity() < 4 * READ_CHUNK_BYTES);
}

#[test]
fn invalid_jitdumps_are_rejected() {
    let mut other = sample(true);
    other[4] = 2;
    for (bytes, expected) in [
        (&b""[..], "not a jitdump"),
        (b"\x7fELF\x02\x01\x01", "0x464c457f"),
        (&other, "version 2"),
        (&sample(true)[..44], "within its header of 48"),
    ] {
        let error = JitDump::new(bytes).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Returns its bytes one by one, and reports an end in between.
struct Growing<'a> {
    bytes: &'a [u8],
    is_pause: bool,
}

impl Read for Growing<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.is_pause = !self.is_pause;
        if self.is_pause {
            return Ok(0);
        }
        let length = self.bytes.len().min(1);
        let (now, later) = self.bytes.split_at(length);
        into[..length].copy_from_slice(now);
        self.bytes = later;
        Ok(length)
    }
}

#[test]
fn a_file_that_grows() {
    let bytes = sample(true);
    let (header, records) = bytes.split_at(48);
    let growing = Growing {
        bytes: records,
        is_pause: false,
    };
    let mut dump = JitDump::new(header.chain(growing)).unwrap();
    let mut collector = JitCollector::new();
    let mut names = Vec::new();
    let mut ends = 0;
    while ends < 2 * bytes.len() {
        match dump.next().unwrap() {
            Some(record) => names.extend(collector.add(&record).map(|code| code.info.name.clone())),
            None => ends += 1,
        }
    }
    assert_eq!(names, ["first", "second", "first"]);
}
