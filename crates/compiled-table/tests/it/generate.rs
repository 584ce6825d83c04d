//! Tables and code from a string of choices, shared by proptest and the fuzz target.
//!
//! Every choice takes some bytes of the string. After its end choices are zero, or, if it begins
//! with a seed, pseudo-random: a short string can make a large table.

use unspool_compiled_table::ExecutableCode;
use unspool_rows::arch::AddressSize;
use unspool_rows::table::{FdeHeader, RowStart};
use unspool_rows::{
    Abi, Arch, CfaRule, Endian, Expression, Pointer, RaState, Register, RegisterRule, Row, RowId,
    Table, Vaddr,
};

/// A table, and code of its module.
#[derive(Debug)]
pub(crate) struct GeneratedTable {
    pub(crate) table: Table,
    /// Ascending and disjoint.
    pub(crate) ranges: Vec<(u64, Vec<u8>)>,
}

impl GeneratedTable {
    pub(crate) fn code(&self) -> ExecutableCode<'_> {
        let ranges = self.ranges.iter();
        ExecutableCode {
            ranges: ranges
                .map(|(start, bytes)| (Vaddr(*start), bytes.as_slice()))
                .collect(),
        }
    }
}

/// A string of choices.
pub(crate) struct Choices<'c> {
    bytes: &'c [u8],
    /// Zero, or the state of a generator that continues after the bytes.
    random: u64,
}

impl<'c> Choices<'c> {
    /// The first byte is the seed of the choices after the last byte.
    pub(crate) fn new(bytes: &'c [u8]) -> Self {
        let (seed, bytes) = bytes.split_first().unwrap_or((&0, &[]));
        Choices {
            bytes,
            random: u64::from(*seed),
        }
    }

    /// Without a seed: choices after the last byte are zero.
    pub(crate) fn unseeded(bytes: &'c [u8]) -> Self {
        Choices { bytes, random: 0 }
    }

    pub(crate) fn byte(&mut self) -> u8 {
        if let Some((first, rest)) = self.bytes.split_first() {
            self.bytes = rest;
            return *first;
        }
        // Knuth's MMIX generator; 0 means "no seed" and stays 0.
        if self.random != 0 {
            self.random = self
                .random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
        }
        (self.random >> 56) as u8
    }

    fn number(&mut self, bytes: u32) -> u64 {
        (0..bytes).fold(0, |value, _| value << 8 | u64::from(self.byte()))
    }

    fn half(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// As [`Choices::below`].
    fn signed(&mut self, limit: u64) -> i64 {
        self.below(limit).cast_signed()
    }

    /// A number below `limit`, which must not be 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        let bits = 64 - (limit - 1).leading_zeros();
        self.number(bits.div_ceil(8)) % limit
    }

    /// An index below `len`, which must not be 0.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }
}

/// A table and code.
pub(crate) fn table_and_code(choices: &mut Choices<'_>) -> GeneratedTable {
    let abi = abi(choices);
    let greatest = abi.arch.spec().address_size.mask();
    let origin = choices.one_of(&[
        0,
        0x1000,
        0xffc0,
        0x40_1000,
        0x7fff_fff0,
        0xffff_ffff_8100_0000,
        u64::MAX - 0xffff,
        u64::MAX - 0x1_8000,
        u64::MAX - 0x200,
    ]) & greatest;
    let mut table = Table::new(abi);
    let rows = rows(&mut table, choices);
    let count = choices.below(65);
    let is_wide = choices.below(16) == 1;
    let mut entries = Vec::new();
    let mut at = origin;
    for n in 0..count {
        let gap = match choices.below(8) {
            3 => choices.signed(32),
            4 => 253 + choices.signed(4),
            5 => choices.signed(600),
            6 if is_wide && n == 3 => 0x7000_0000 + choices.signed(0x2000_0000),
            6 => choices.signed(0x2_0000),
            7 => -choices.signed(300),
            _ => 0,
        };
        // Only forward past the end of the address space, only backward past its beginning.
        let start = at.saturating_add_signed(gap);
        let start = if gap < 0 {
            start.max(origin.saturating_sub(0x100))
        } else {
            start
        };
        let length = match choices.below(8) {
            0 => choices.below(2),
            5 => 1 + choices.below(600),
            6 => start.wrapping_neg() % 0x1_0000,
            7 => 1 + choices.below(0x3_0000),
            _ => 1 + choices.below(64),
        };
        let end = start.saturating_add(length).min(greatest);
        if start > end {
            break;
        }
        at = end;
        let header = FdeHeader {
            start: Vaddr(start),
            end: Vaddr(end),
            personality: personality(choices, n),
            lsda: lsda(choices, n),
            origin: n,
        };
        entries.push((header, row_starts(choices, start, end, &rows)));
    }
    match choices.below(3) {
        0 => {}
        1 => entries.reverse(),
        _ => {
            for n in 0..entries.len() {
                let other = choices.index(entries.len());
                entries.swap(n, other);
            }
        }
    }
    for (header, rows) in entries {
        table.push(header, &rows).expect("rows in order");
    }
    let ranges = code(choices, abi.arch, origin);
    GeneratedTable { table, ranges }
}

fn abi(choices: &mut Choices<'_>) -> Abi {
    let other = |machine, address_size| Arch::Other {
        machine,
        address_size,
    };
    let arch = choices.one_of(&[
        Arch::X86_64,
        Arch::X86_64,
        Arch::Aarch64,
        Arch::I386,
        Arch::Arm,
        other(20, AddressSize::W32),
        other(243, AddressSize::W64),
    ]);
    let endian = match choices.below(4) {
        3 => Endian::Big,
        _ => Endian::Little,
    };
    Abi { arch, endian }
}

/// The rows from which entries choose.
fn rows(table: &mut Table, choices: &mut Choices<'_>) -> Vec<RowId> {
    let count = match choices.below(8) {
        0 => 1,
        1..=3 => 4,
        4..=6 => 20,
        _ => 400,
    };
    (0..count).map(|n| row(table, choices, n)).collect()
}

fn row(table: &mut Table, choices: &mut Choices<'_>, n: u64) -> RowId {
    let expressions: Vec<Vec<u8>> = (0..4)
        .map(|_| {
            let length = match choices.below(16) {
                15 => 130,
                length => length,
            };
            (0..length % 5 * 3).map(|_| choices.byte()).collect()
        })
        .collect();
    let mut row = Row::new(register(choices));
    row.signal_frame = choices.below(16) == 15;
    row.ra_state = match choices.below(16) {
        14 => RaState::Signed,
        15 => RaState::SignedWithPc,
        _ => RaState::Plain,
    };
    row.args_size = match choices.below(16) {
        14 => choices.below(200),
        15 => u64::MAX - choices.below(2),
        _ => 0,
    };
    row.cfa = match choices.below(8) {
        6 => CfaRule::Undefined,
        7 => CfaRule::Expression(Expression(&expressions[0])),
        // Different for each row of the table.
        _ => CfaRule::RegisterOffset {
            register: register(choices),
            offset: i64::try_from(8 * n).unwrap(),
        },
    };
    let count = match choices.index(32) {
        30 => 40,
        31 => Row::MAX_RULES,
        count => count % 6,
    };
    for n in 0..count {
        let rule = match choices.below(8) {
            0 => RegisterRule::Undefined,
            1 => RegisterRule::SameValue,
            2 | 3 => RegisterRule::Offset(offset(choices)),
            4 => RegisterRule::ValOffset(offset(choices)),
            5 => RegisterRule::Register(register(choices)),
            6 => RegisterRule::Expression(Expression(&expressions[n % 4])),
            _ => RegisterRule::ValExpression(Expression(&expressions[n % 4])),
        };
        row.set_rule(register(choices), Some(rule)).unwrap();
    }
    table.intern(&row).unwrap()
}

fn register(choices: &mut Choices<'_>) -> Register {
    Register(match choices.below(8) {
        6 => choices.one_of(&[30, 31, 32, 95, 127, 128]),
        7 => choices.half(),
        _ => choices.half() % 32,
    })
}

fn offset(choices: &mut Choices<'_>) -> i64 {
    match choices.below(8) {
        6 => choices.number(8).cast_signed(),
        7 => choices.one_of(&[i64::MIN, i64::MAX, 63, 64, -64, -65, 0]),
        _ => -8 * choices.signed(64),
    }
}

fn personality(choices: &mut Choices<'_>, n: u64) -> Option<Pointer> {
    match choices.below(5) {
        0 | 1 => None,
        2 => Some(Pointer::Direct(Vaddr(0x100 + choices.below(3)))),
        3 => Some(Pointer::Indirect(Vaddr(0x100 + choices.below(3)))),
        _ => Some(Pointer::Direct(Vaddr(u64::MAX - n))),
    }
}

/// The limit in 32 bits of an LSDA's distance above the first.
const FAR: u64 = 0xffff_ffff;

fn lsda(choices: &mut Choices<'_>, n: u64) -> Option<Vaddr> {
    match choices.below(6) {
        0..=2 => None,
        3 => Some(Vaddr(0x5000 + choices.below(0x1000))),
        4 => Some(Vaddr(0x5000 + n * 16)),
        _ => Some(Vaddr(choices.one_of(&[
            0,
            0x5000 + FAR,
            0x5001 + FAR,
            u64::MAX,
        ]))),
    }
}

/// Rows over an entry.
fn row_starts(choices: &mut Choices<'_>, start: u64, end: u64, rows: &[RowId]) -> Vec<RowStart> {
    let mut starts = Vec::new();
    let most = match choices.index(8) {
        0 => 1,
        7 => 100,
        most => most * 2,
    };
    let distances = choices.below(5);
    let mut at = start;
    while at < end && starts.len() < most {
        starts.push(RowStart {
            start: Vaddr(at),
            row: choices.one_of(rows),
        });
        let distance = 1 + match distances {
            0 => choices.below(4),
            1 => choices.below(70),
            2 => 59 + choices.below(6),
            3 => 314 + choices.below(6),
            _ => choices.below(70_000),
        };
        match at.checked_add(distance) {
            Some(next) => at = next,
            None => break,
        }
    }
    starts
}

/// Up to three ranges of code from an address on.
fn code(choices: &mut Choices<'_>, arch: Arch, origin: u64) -> Vec<(u64, Vec<u8>)> {
    let mut at = origin;
    let mut ranges = Vec::new();
    for _ in 0..choices.below(4) {
        at = at.saturating_add(match choices.below(4) {
            0 => 0,
            1 => choices.below(64),
            2 => choices.below(0x1000),
            _ => choices.below(0x2_0000),
        });
        let mut bytes = Vec::new();
        for _ in 0..choices.below(600) {
            match arch {
                Arch::Aarch64 => put_aarch64(&mut bytes, choices),
                _ => put_x86(&mut bytes, choices),
            }
        }
        let room = usize::try_from(u64::MAX - at).unwrap_or(usize::MAX);
        bytes.truncate(room);
        let start = at;
        at += bytes.len() as u64;
        ranges.push((start, bytes));
    }
    ranges
}

/// Bytes that are often a call, or nearly one.
pub(crate) fn put_x86(bytes: &mut Vec<u8>, choices: &mut Choices<'_>) {
    match choices.below(8) {
        0 | 1 => {
            bytes.push(0xe8);
            let distance = i32::from(choices.half() % 0x1000) - 0x800;
            bytes.extend_from_slice(&distance.to_le_bytes());
        }
        2 => bytes.extend_from_slice(&[0xff, choices.byte() & 0xc7 | 0x10]),
        3 => bytes.extend_from_slice(&[0xff, choices.byte(), choices.byte()]),
        4 => bytes.push(0xff),
        5 => bytes.push(0xe8),
        6 => bytes.extend_from_slice(&[0x90; 24]),
        _ => bytes.push(choices.byte()),
    }
}

/// A word that is often a call, or nearly one.
pub(crate) fn put_aarch64(bytes: &mut Vec<u8>, choices: &mut Choices<'_>) {
    let any = u32::from(choices.half()) << 16 | u32::from(choices.half());
    let word = match choices.below(8) {
        0 => 0x9400_0000 | any & 0x03ff_ffff,
        1 => 0xd63f_0000 | any & 0x3e0,
        2 => 0xd73f_0800 | any & 0x7ff,
        3 => 0xd63f_0000 | any & 0x0100_0fff,
        // One bit from a call.
        4 => 0x9400_0000 ^ 1 << (any % 32),
        5 => 0xd63f_0000 ^ 1 << (any % 32),
        6 => 0xd503_201f,
        _ => any,
    };
    bytes.extend_from_slice(&word.to_le_bytes());
    if choices.below(64) == 63 {
        bytes.push(0);
    }
}
