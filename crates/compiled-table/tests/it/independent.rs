//! A second reader of the format, written from its description alone, and as simple as possible.
//!
//! It reads a whole file from front to back into a list of ranges, and does not use
//! `CompiledTable`. It is for valid files; on others it panics. Redundant parts of a file (indices,
//! ranks) are checked as they are read.

use std::collections::BTreeMap;
use std::ops::Range;

/// A parsed file.
#[derive(Debug)]
pub(crate) struct ParsedFile {
    pub(crate) machine: u16,
    pub(crate) word: u8,
    pub(crate) byte_order: u8,
    pub(crate) key: Vec<u8>,
    /// Ascending and disjoint; one per row of a piece.
    pub(crate) ranges: Vec<CoveredRange>,
    /// The distinct rows, encoded.
    pub(crate) rows: Vec<Vec<u8>>,
    call_test: u8,
    base: u64,
    executable: Range<u64>,
    /// Granules of 8 bytes from `base` where the answer changes: a row, or 511 for "ask".
    steps: BTreeMap<u64, u16>,
    /// From this granule on the call-site part has no answer.
    granules: u64,
}

/// A range of addresses with its row and the fields of its entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CoveredRange {
    pub(crate) start: u64,
    /// The last address; one past it may not fit in a number.
    pub(crate) last: u64,
    pub(crate) row: u16,
    pub(crate) entry: ParsedEntry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParsedEntry {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// 0 direct or 1 indirect, and the address.
    pub(crate) personality: Option<(u8, u64)>,
    pub(crate) lsda: Option<u64>,
}

/// Bytes, read from the front.
struct FrontReader<'b>(&'b [u8]);

impl FrontReader<'_> {
    /// A little-endian number of `size` bytes.
    fn number(&mut self, size: usize) -> u64 {
        let (field, rest) = self.0.split_at(size);
        self.0 = rest;
        field
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.number(1)).unwrap()
    }

    fn half(&mut self) -> u16 {
        u16::try_from(self.number(2)).unwrap()
    }

    fn word(&mut self) -> u32 {
        u32::try_from(self.number(4)).unwrap()
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

fn half(number: u64) -> u16 {
    u16::try_from(number).unwrap()
}

fn numbers(bytes: &[u8], size: usize) -> Vec<u64> {
    assert_eq!(bytes.len() % size, 0, "an array of whole elements");
    bytes
        .chunks(size)
        .map(|element| FrontReader(element).number(size))
        .collect()
}

pub(crate) const TAGS: [&[u8; 4]; 19] = [
    b"KEY ", b"PPGS", b"PBKT", b"STRT", b"PIEC", b"GAPS", b"SHAP", b"SEQS", b"ROWX", b"ROWS",
    b"CLAS", b"PERS", b"LSDX", b"LSDA", b"ODDS", b"EXEC", b"CPGS", b"CBKT", b"CSTP",
];

/// Reads a file.
pub(crate) fn read(file: &[u8]) -> ParsedFile {
    let mut head = FrontReader(file);
    assert_eq!(&head.number(8).to_le_bytes(), b"unspool\0");
    assert_eq!(head.half(), 2, "version");
    let machine = head.half();
    let (word, byte_order, call_test) = (head.byte(), head.byte(), head.byte());
    let shape_width = usize::from(head.byte());
    let base = head.number(8);
    assert_eq!(base % 65_536, 0);
    let length = head.word() as usize;
    assert_eq!(length, file.len(), "nothing follows");
    let count = head.half();
    assert!(count <= 64);
    let (sequence_width, row_width) = (usize::from(head.byte()), usize::from(head.byte()));
    head.0 = &head.0[32..]; // the digest
    let mut sections: BTreeMap<[u8; 4], &[u8]> = BTreeMap::new();
    for _ in 0..count {
        let tag = head.word().to_le_bytes();
        let (flags, offset, size) = (head.word(), head.word() as usize, head.word() as usize);
        assert_eq!(flags, 1);
        assert!(TAGS.contains(&&tag));
        let content = &file[offset..offset + size];
        assert!(sections.insert(tag, content).is_none(), "a tag once");
    }
    let section = |tag: &[u8; 4]| sections.get(tag).copied().unwrap_or_default();

    // Distinct rows.
    let mut rows = Vec::new();
    let mut at = 0;
    for end in numbers(section(b"ROWX"), row_width) {
        rows.push(section(b"ROWS")[at..index(end)].to_vec());
        at = index(end);
    }
    assert_eq!(at, section(b"ROWS").len());

    let pieces = pieces(&section, base, shape_width, sequence_width);
    let entries = entries(&section, base, &pieces);
    let mut ranges = Vec::new();
    for (piece, entry) in pieces.iter().zip(entries) {
        for (n, (start, row)) in piece.rows.iter().enumerate() {
            let next = piece.rows.get(n + 1).map(|(start, _)| start - 1);
            ranges.push(CoveredRange {
                start: *start,
                last: next.unwrap_or(piece.last),
                row: *row,
                entry,
            });
        }
    }

    let bounds = numbers(section(b"EXEC"), 4);
    assert!(matches!(bounds.len(), 0 | 2));
    let executable = match bounds.as_slice() {
        [start, end] => *start..*end,
        _ => 0..0,
    };
    let (steps, granules) = steps(&section);
    let has_row = |row: &u16| *row == 511 || usize::from(*row) < rows.len();
    assert!(
        steps.values().all(has_row),
        "steps name rows that there are"
    );
    ParsedFile {
        machine,
        word,
        byte_order,
        key: section(b"KEY ").to_vec(),
        ranges,
        rows,
        call_test,
        base,
        executable,
        steps,
        granules,
    }
}

struct ParsedPiece {
    class: u8,
    start: u64,
    last: u64,
    /// First address and number of each row.
    rows: Vec<(u64, u16)>,
}

/// The elements of each bucket of an array by address. Checks that each is in one.
fn buckets(pages: &[u8], buckets: &[u8], elements: usize) -> Vec<Range<usize>> {
    let (pages, counts) = (numbers(pages, 4), numbers(buckets, 2));
    assert_eq!(counts.len(), 65 * pages.len().saturating_sub(1));
    let mut all = Vec::new();
    let mut next = 0;
    for (page, counts) in pages.iter().zip(counts.chunks(65)) {
        assert_eq!(counts[0], 0, "none of the page lie before it");
        for pair in counts.windows(2) {
            let first = page + pair[0];
            let count = (pair[1] + 65_536 - pair[0]) % 65_536;
            assert_eq!(first, next, "buckets follow each other");
            assert!(count <= 1024);
            next = first + count;
            all.push(index(first)..index(next));
        }
    }
    assert_eq!(pages.last().copied().unwrap_or(0), next);
    assert_eq!(next, elements as u64);
    all
}

fn pieces<'s>(
    section: &impl Fn(&[u8; 4]) -> &'s [u8],
    base: u64,
    shape_width: usize,
    sequence_width: usize,
) -> Vec<ParsedPiece> {
    let starts = numbers(section(b"STRT"), 2);
    let mut gaps = FrontReader(section(b"GAPS"));
    let mut long_gaps = BTreeMap::new();
    while !gaps.0.is_empty() {
        long_gaps.insert(gaps.word() as usize, gaps.number(2));
    }

    let mut records = FrontReader(section(b"PIEC"));
    let mut pieces: Vec<ParsedPiece> = Vec::new();
    let buckets = buckets(section(b"PPGS"), section(b"PBKT"), starts.len());
    for (bucket, elements) in buckets.iter().enumerate() {
        let page_start = base + 65_536 * (bucket as u64 / 64);
        // One past the last piece of the page.
        let page_end = buckets[bucket - bucket % 64 + 63].end;
        for n in elements.clone() {
            let start = starts[n];
            assert_eq!(start / 1024, bucket as u64 % 64, "a piece in its bucket");
            let next = if n + 1 < page_end {
                starts[n + 1]
            } else {
                65_536
            };
            let gap = match records.number(1) {
                255 => long_gaps.remove(&n).expect("a long gap"),
                short => short,
            };
            let class = records.byte();
            let shape = index(records.number(shape_width));
            assert!(start + gap < next, "a piece covers something");
            let mut shape = FrontReader(&section(b"SHAP")[shape..]);
            let sequence = index(shape.number(sequence_width));
            let start = page_start + start;
            let last = page_start + (next - gap - 1);
            let rows = piece_rows(start, &mut shape, &section(b"SEQS")[sequence..]);
            assert!(rows.iter().all(|(at, _)| *at <= last));
            if let Some(before) = pieces.last() {
                assert!(before.last < start, "pieces ascend");
            }
            pieces.push(ParsedPiece {
                class,
                start,
                last,
                rows,
            });
        }
    }
    assert!(records.0.is_empty() && long_gaps.is_empty());
    pieces
}

/// First address and number of each row of a piece, from the sequence and the shape after its
/// sequence reference.
fn piece_rows(start: u64, distances: &mut FrontReader<'_>, sequence: &[u8]) -> Vec<(u64, u16)> {
    let mut sequence = FrontReader(sequence);
    let head = sequence.byte();
    let size = if head & 0x80 != 0 { 2 } else { 1 };
    let count = head & 0x7f;
    assert!((1..=32).contains(&count));
    let mut at = start;
    let mut rows = Vec::new();
    for n in 0..count {
        if n > 0 {
            let distance = match distances.number(1) {
                255 => distances.number(2),
                short => short + 1,
            };
            assert!(distance > 0, "rows ascend");
            at += distance;
        }
        rows.push((at, half(sequence.number(size))));
    }
    rows
}

fn entries<'s>(
    section: &impl Fn(&[u8; 4]) -> &'s [u8],
    base: u64,
    pieces: &[ParsedPiece],
) -> Vec<ParsedEntry> {
    let classes = numbers(section(b"CLAS"), 2);
    let mut rest = FrontReader(section(b"PERS"));
    let mut personalities = Vec::new();
    while !rest.0.is_empty() {
        personalities.push((rest.byte(), rest.number(8)));
    }
    let personality = |index: u16| match index {
        65_535 => None,
        index => Some(personalities[usize::from(index)]),
    };
    let ranks = numbers(section(b"LSDX"), 4);
    let mut lsdas = FrontReader(section(b"LSDA"));
    let lsda_base = if lsdas.0.is_empty() {
        0
    } else {
        lsdas.number(8)
    };
    let mut lsdas_read = 0;

    // For each piece in a record of `ODDS`, the record's entry.
    let mut odd: BTreeMap<usize, ParsedEntry> = BTreeMap::new();
    let mut odds = FrontReader(section(b"ODDS"));
    while !odds.0.is_empty() {
        let (first, count) = (odds.word() as usize, odds.word() as usize);
        let (start, end) = (base + odds.number(4), base + odds.number(4));
        let lsda = odds.number(8);
        let personality = personality(odds.half());
        let lsda = (odds.half() & 1 != 0).then_some(lsda);
        let entry = ParsedEntry {
            start,
            end,
            personality,
            lsda,
        };
        for piece in first..first + count {
            assert!(odd.insert(piece, entry).is_none());
        }
    }

    let mut entries = Vec::new();
    for (n, piece) in pieces.iter().enumerate() {
        if n % 64 == 0 {
            assert_eq!(ranks[n / 64], lsdas_read, "the rank of block {}", n / 64);
        }
        if piece.class == 255 {
            entries.push(odd.remove(&n).expect("an odd piece has its facts"));
            continue;
        }
        let class = usize::from(piece.class);
        let has_lsda = classes[2 * class + 1] & 1 != 0;
        entries.push(ParsedEntry {
            start: piece.start,
            end: piece.last + 1,
            personality: personality(half(classes[2 * class])),
            lsda: has_lsda.then(|| lsda_base + lsdas.number(4)),
        });
        lsdas_read += u64::from(has_lsda);
    }
    assert!(odd.is_empty() && lsdas.0.is_empty());
    assert_eq!(ranks.len(), pieces.len().div_ceil(64));
    entries
}

/// All steps by granule, and the number of granules of all buckets.
fn steps<'s>(section: &impl Fn(&[u8; 4]) -> &'s [u8]) -> (BTreeMap<u64, u16>, u64) {
    let words = numbers(section(b"CSTP"), 2);
    let mut steps = BTreeMap::new();
    let buckets = buckets(section(b"CPGS"), section(b"CBKT"), words.len());
    for (bucket, elements) in buckets.iter().enumerate() {
        for word in &words[elements.clone()] {
            let granule = 128 * bucket as u64 + (word >> 9);
            let greatest = steps.last_key_value().map(|(granule, _)| *granule);
            assert!(greatest < Some(granule), "steps ascend");
            steps.insert(granule, half(word & 511));
        }
    }
    (steps, 128 * buckets.len() as u64)
}

impl ParsedFile {
    /// Adjacent equal ranges joined.
    pub(crate) fn merged(&self) -> Vec<CoveredRange> {
        let mut merged: Vec<CoveredRange> = Vec::new();
        for range in &self.ranges {
            match merged.last_mut() {
                Some(before)
                    if before.last + 1 == range.start
                        && before.row == range.row
                        && before.entry == range.entry =>
                {
                    before.last = range.last;
                }
                _ => merged.push(range.clone()),
            }
        }
        merged
    }

    /// The row at the call before a return address; `None`: ask the full table.
    pub(crate) fn call_site(&self, address: u64, before: &[u8; 8]) -> Option<u16> {
        if !self.follows_call(address, before) {
            return None;
        }
        let key = address.wrapping_sub(1).wrapping_sub(self.base);
        if key / 8 >= self.granules {
            return None;
        }
        let (_, row) = self.steps.range(..=key / 8).next_back()?;
        (*row != 511).then_some(*row)
    }

    /// The call test.
    pub(crate) fn follows_call(&self, address: u64, before: &[u8; 8]) -> bool {
        match self.call_test {
            0 => false,
            1 => self.follows_call_x86(address, before),
            2 => {
                let word = FrontReader(&before[4..]).word();
                address.is_multiple_of(4)
                    && (word >> 26 == 0x25 || word & 0xfeff_f000 == 0xd63f_0000)
            }
            other => panic!("call test {other}"),
        }
    }

    /// Line by line as in the description's table.
    fn follows_call_x86(&self, address: u64, before: &[u8; 8]) -> bool {
        let [_, b7, b6, b5, b4, b3, b2, b1] = *before;
        if b5 == 0xe8 {
            let distance = i64::from(FrontReader(&before[4..]).word().cast_signed());
            let target = address.wrapping_add_signed(distance);
            if self.executable.contains(&target.wrapping_sub(self.base)) {
                return true;
            }
        }
        (b2 == 0xff && matches!(b1, 0xd0..=0xd7 | 0x10..=0x17))
            || (b3 == 0xff && matches!(b2, 0x10..=0x17 | 0x50..=0x57))
            || (b4 == 0xff && b3 == 0x54)
            || (b6 == 0xff && matches!(b5, 0x10..=0x17 | 0x90..=0x97))
            || (b7 == 0xff && matches!(b6, 0x14 | 0x94))
    }
}

/// The content of an encoded row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PlainRow {
    pub(crate) return_address: u64,
    pub(crate) signal: bool,
    /// 0 plain, 1 signed, 2 signed with pc.
    pub(crate) ra_state: u8,
    pub(crate) args_size: u64,
    pub(crate) cfa: ParsedCfa,
    pub(crate) rules: Vec<(u64, ParsedRule)>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ParsedCfa {
    Nothing,
    Offset(u64, i64),
    Expression(Vec<u8>),
}

/// A rule by the number of its kind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ParsedRule {
    Plain(u8),
    Number(u8, i64),
    Register(u64),
    Expression(u8, Vec<u8>),
}

/// Reads the encoding of a row.
pub(crate) fn read_row(encoded: &[u8]) -> PlainRow {
    let mut rest = FrontReader(encoded);
    let flags = rest.byte();
    assert_eq!(flags >> 6, 0);
    let return_address = unsigned(&mut rest);
    let args_size = if flags & 8 != 0 {
        unsigned(&mut rest)
    } else {
        0
    };
    let cfa = match flags >> 4 & 3 {
        0 => ParsedCfa::Nothing,
        1 => ParsedCfa::Offset(unsigned(&mut rest), signed(&mut rest)),
        2 => ParsedCfa::Expression(block(&mut rest)),
        kind => panic!("CFA kind {kind}"),
    };
    let mut rules: Vec<(u64, ParsedRule)> = Vec::new();
    while !rest.0.is_empty() {
        let head = rest.byte();
        let register = match head & 31 {
            31 => unsigned(&mut rest),
            short => u64::from(short),
        };
        let rule = match head >> 5 {
            kind @ 0..=1 => ParsedRule::Plain(kind),
            kind @ 2..=3 => ParsedRule::Number(kind, signed(&mut rest)),
            4 => ParsedRule::Register(unsigned(&mut rest)),
            kind @ 5..=6 => ParsedRule::Expression(kind, block(&mut rest)),
            kind => panic!("rule kind {kind}"),
        };
        assert!(rules.last().is_none_or(|(before, _)| *before < register));
        rules.push((register, rule));
    }
    PlainRow {
        return_address,
        signal: flags & 1 != 0,
        ra_state: flags >> 1 & 3,
        args_size,
        cfa,
        rules,
    }
}

fn block(rest: &mut FrontReader<'_>) -> Vec<u8> {
    let length = index(unsigned(rest));
    let (block, tail) = rest.0.split_at(length);
    rest.0 = tail;
    block.to_vec()
}

fn leb128(rest: &mut FrontReader<'_>) -> (u128, u32) {
    let (mut value, mut bits) = (0, 0);
    loop {
        let byte = rest.byte();
        value |= u128::from(byte & 0x7f) << bits;
        bits += 7;
        if byte & 0x80 == 0 {
            return (value, bits);
        }
    }
}

fn unsigned(rest: &mut FrontReader<'_>) -> u64 {
    u64::try_from(leb128(rest).0).unwrap()
}

fn signed(rest: &mut FrontReader<'_>) -> i64 {
    let (value, bits) = leb128(rest);
    let unused = 128 - bits;
    i64::try_from((value << unused).cast_signed() >> unused).unwrap()
}
