//! Tables to files and back.

use proptest::prelude::*;
use unspool_compiled_table::{CompiledTable, EncodeError, ExecutableCode, TablePart};
use unspool_rows::table::{FdeHeader, RowStart};
use unspool_rows::{Abi, Pointer, Register, RegisterRule, Row, Table, Vaddr, text};

use crate::generate::{Choices, table_and_code};
use crate::oracle::{check, encode_with};
use crate::parts::FileParts;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 1500 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn generated_tables(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let made = table_and_code(&mut Choices::new(&bytes));
        check(&made.table, &made.code());
    }
}

const X86_64: Abi = Abi::X86_64;

/// Adds an entry with one row, made unique by a number.
fn push(table: &mut Table, start: u64, end: u64, number: u32) {
    push_with(table, start, end, number, None, None);
}

fn push_with(
    table: &mut Table,
    start: u64,
    end: u64,
    number: u32,
    personality: Option<Pointer>,
    lsda: Option<Vaddr>,
) {
    let mut row = Row::new(Register(16));
    row.set_rule(
        Register(3),
        Some(RegisterRule::ValOffset(i64::from(number))),
    )
    .unwrap();
    let row = table.intern(&row).unwrap();
    let header = FdeHeader {
        start: Vaddr(start),
        end: Vaddr(end),
        personality,
        lsda,
        origin: 0,
    };
    let rows = [RowStart {
        start: Vaddr(start),
        row,
    }];
    table.push(header, &rows).unwrap();
}

fn no_code() -> ExecutableCode<'static> {
    ExecutableCode::default()
}

#[test]
fn the_empty_table() {
    let bytes = check(&Table::new(X86_64), &no_code());
    let compiled = CompiledTable::open(&bytes).unwrap();
    assert_eq!((compiled.pieces(), compiled.distinct_rows()), (0, 0));
    // Code alone makes an empty table, at any address.
    for start in [0, 0x40_1000, u64::MAX - 0x100] {
        let code = ExecutableCode {
            ranges: vec![(Vaddr(start), &[0xff, 0xd0, 0xe8, 0, 0, 0, 0])],
        };
        check(&Table::new(X86_64), &code);
    }
}

#[test]
fn entries_that_cover_nothing() {
    let mut table = Table::new(X86_64);
    push_with(&mut table, 0x10, 0x10, 1, None, Some(Vaddr(0)));
    check(&table, &no_code());
    push_with(&mut table, 0x10, 0x20, 2, None, Some(Vaddr(1 << 40)));
    push(&mut table, 0x20, 0x20, 3);
    push(&mut table, 0x18, 0x18, 4);
    check(&table, &no_code());
}

#[test]
fn the_ends_of_the_address_space() {
    for (start, end) in [
        (0, 1),
        (0, 0x1_0000),
        (u64::MAX - 1, u64::MAX),
        (u64::MAX - 0x1_0000, u64::MAX),
        (u64::MAX - 0x3_0000, u64::MAX),
        (u64::MAX - 0x100, u64::MAX - 0x80),
    ] {
        let mut table = Table::new(X86_64);
        push(&mut table, start, end, 1);
        check(&table, &no_code());
    }
}

#[test]
fn the_widest_table_and_one_too_wide() {
    for (last, fits) in [(0xffff_fffe, true), (0xffff_ffff, false)] {
        let mut table = Table::new(X86_64);
        push(&mut table, 0x7_0000_1234, 0x7_0000_2000, 1);
        push(&mut table, 0x7_0000_0000 + last, 0x7_0000_0001 + last, 2);
        let result = encode_with(&table, &no_code());
        assert_eq!(result.is_ok(), fits);
        if fits {
            check(&table, &no_code());
        } else {
            let too_wide = EncodeError::TooWide {
                start: Vaddr(0x7_0000_1234),
                end: Vaddr(0x8_0000_0000),
            };
            assert_eq!(result.unwrap_err(), too_wide);
        }
    }
    // Code counts too.
    let mut table = Table::new(X86_64);
    push(&mut table, 0x1000, 0x2000, 1);
    let code = ExecutableCode {
        ranges: vec![(Vaddr(0x1_0000_0000), &[0])],
    };
    assert!(matches!(
        encode_with(&table, &code),
        Err(EncodeError::TooWide { .. })
    ));
}

#[test]
fn one_entry_over_whole_pages() {
    let mut table = Table::new(X86_64);
    push(&mut table, 0x1_2345, 0x9_0000, 1);
    push(&mut table, 0xa_0000, 0xb_0000, 2);
    push(&mut table, 0xb_0000, 0xb_0001, 2);
    check(&table, &no_code());
}

/// Adds an entry of one byte at each address.
fn push_bytes(table: &mut Table, addresses: impl IntoIterator<Item = u64>) {
    for (number, at) in (0_u32..).zip(addresses) {
        push(table, at, at + 1, number % 3);
    }
}

#[test]
fn pages_with_a_piece_at_each_address() {
    // A piece at the end of page 0, none in pages 1 and 5. Each address of pages 2 and 4, all but
    // the last of page 3, one at the start of page 6.
    let mut table = Table::new(X86_64);
    push_bytes(&mut table, [0xffff]);
    push_bytes(&mut table, 0x2_0000..0x3_ffff);
    push_bytes(&mut table, 0x4_0000..0x5_0000);
    push_bytes(&mut table, [0x6_0000]);
    let mut parts = FileParts::from_file(&check(&table, &no_code()));
    let pages = parts.numbers(b"PPGS", 4);
    let (full, all) = (65_536, 3 * 65_536 + 1);
    assert_eq!(
        pages,
        [0, 1, 1, 1 + full, 2 * full, 3 * full, 3 * full, all]
    );
    let buckets = parts.numbers(b"PBKT", 2);
    let ascending = || (0..64).map(|bucket| 1024 * bucket);
    let expected: Vec<u64> = [0; 64]
        .into_iter()
        .chain([1])
        .chain([0; 65])
        // A full page has 65,536, which are written as 0.
        .chain(ascending().chain([0]))
        .chain(ascending().chain([65_535]))
        .chain(ascending().chain([0]))
        .chain([0; 65])
        .chain([0].into_iter().chain([1; 64]))
        .collect();
    assert_eq!(buckets, expected);
}

#[test]
fn every_number_of_pieces_in_a_bucket() {
    // In the third bucket of a page, with none or more after it: a look-up may read some of those.
    for count in (0..40).chain([63, 64, 65, 255, 256, 257, 1022, 1023, 1024]) {
        for behind in [0, 1, 14, 15, 16, 17] {
            // At the front of the bucket, at its end, all over it.
            for (from, step) in [(0, 1), (1024 - count, 1), (0, 1024 / count.max(1))] {
                let mut table = Table::new(X86_64);
                push_bytes(&mut table, [0x1_0000, 0x1_0001, 0x1_07ff]);
                push_bytes(&mut table, (0..count).map(|n| 0x1_0800 + from + step * n));
                push_bytes(&mut table, (0..behind).map(|n| 0x1_0c00 + n));
                let file = check(&table, &no_code());
                let compiled = CompiledTable::open(&file).unwrap();
                assert_eq!(compiled.pieces() as u64, 3 + count + behind);
            }
        }
    }
}

#[test]
fn pieces_at_both_sides_of_every_bucket() {
    for first in [0, 0x3ff, 0x400, 0x401] {
        let mut table = Table::new(X86_64);
        let starts = (0..3 * 64).flat_map(|bucket| {
            let bucket = 0x1_0000 + 0x400 * bucket;
            [bucket, bucket + 0x3ff]
                .into_iter()
                .filter(move |_| bucket % 0xc00 != 0)
        });
        push_bytes(
            &mut table,
            starts.filter(|start| *start >= 0x1_0000 + first),
        );
        check(&table, &no_code());
    }
}

#[test]
fn pages_without_pieces_between_others() {
    // Pages 3, 4, 7 and 20 have some. Code lies in all, with some calls in rows and some outside.
    let mut text = String::from("arch x86-64 little\n");
    for (n, start) in [0x3_fff0_u64, 0x4_0400, 0x7_0000, 0x7_fff8, 0x14_8000]
        .into_iter()
        .enumerate()
    {
        let end = start + 0x18;
        text += &format!("fn {start:#x}..{end:#x}\n  {start:#x} cfa=rsp+{n}\n");
    }
    let table = text::parse(&text).unwrap();
    let bytes = [0x90, 0x90, 0xff, 0xd0, 0x90, 0x90, 0x90, 0x90].repeat(0x20_0000 / 8);
    let code = ExecutableCode {
        ranges: vec![(Vaddr(0), &bytes)],
    };
    let mut parts = FileParts::from_file(&check(&table, &code));
    // The table begins with page 0 because the code does.
    let pages = [0, 0, 0, 0, 1, 3, 3, 3, 5]
        .into_iter()
        .chain([6; 12])
        .chain([7]);
    assert!(parts.numbers(b"PPGS", 4).into_iter().eq(pages));
    assert_eq!(parts.numbers(b"PBKT", 2).len(), 21 * 65);
    assert_eq!(parts.numbers(b"CPGS", 4).len(), 22);
    assert_eq!(parts.numbers(b"CBKT", 2).len(), 21 * 65);
}

#[test]
fn every_gap_at_a_page_end_and_between() {
    for gap in (0..600).chain([0xfffe, 0xffff, 0x1_0000, 0x1_0001]) {
        let mut table = Table::new(X86_64);
        push(&mut table, 0x1_0000, 0x1_0001, 1);
        push(&mut table, 0x1_0001 + gap, 0x1_0002 + gap, 1);
        push(
            &mut table,
            0x1_ffff - gap % 0xf000,
            0x2_0000 - gap % 0xf000,
            2,
        );
        check(&table, &no_code());
    }
}

#[test]
fn every_distance_between_rows() {
    let mut all = Table::new(X86_64);
    for distance in (1..330).chain([0xfffe, 0xffff, 0x1_0000]) {
        // The second row is a usual successor in the first two entries, but not in the third.
        let start = 0x14_0000 * (distance % 400);
        let mut text = String::from("arch x86-64 little\n");
        for (n, second) in [8, 8, 16, 24, 32, 40].into_iter().enumerate() {
            let start = start + 0x3_0000 * n as u64;
            let (next, end) = (start + distance, start + distance + 1);
            text += &format!("fn {start:#x}..{end:#x}\n  {start:#x} cfa=rsp+0\n");
            text += &format!("  {next:#x} cfa=rsp+{second}\n");
        }
        check(&text::parse(&text).unwrap(), &no_code());
        push(&mut all, start, start + distance, 1);
    }
    check(&all, &no_code());
}

#[test]
fn rows_up_to_the_last_number() {
    let mut table = Table::new(X86_64);
    for number in 0..65_536 {
        push(
            &mut table,
            8 * u64::from(number),
            8 * u64::from(number) + 7,
            number,
        );
    }
    let bytes = encode_with(&table, &no_code()).unwrap().bytes;
    let compiled = CompiledTable::open(&bytes).unwrap();
    for number in [0, 254, 255, 256, 65_534, 65_535] {
        let hit = compiled.lookup(Vaddr(8 * number)).unwrap().unwrap();
        let rule = compiled.row(hit.row).unwrap().rule(Register(3));
        assert_eq!(rule, Some(RegisterRule::ValOffset(number.cast_signed())));
    }
    assert!(unspool_compiled_table::compare(&table, &compiled, &no_code()).is_equal());
    push(&mut table, 0x80_0000, 0x80_0001, 65_536);
    assert_eq!(
        encode_with(&table, &no_code()).unwrap_err(),
        EncodeError::TooManyRows(65_537)
    );
}

#[test]
fn references_of_three_bytes() {
    // Shapes, sequences and rows of more than 64 KiB each.
    let mut table = Table::new(X86_64);
    let rows: Vec<_> = (0..9000)
        .map(|number| {
            let mut row = Row::new(Register(16));
            for register in [3, 6] {
                row.set_rule(
                    Register(register),
                    Some(RegisterRule::ValOffset(number * 0x1000)),
                )
                .unwrap();
            }
            table.intern(&row).unwrap()
        })
        .collect();
    let mut random = 1_u64;
    let mut next = |limit: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % limit
    };
    let mut at = 0x1000;
    for origin in 0..3000 {
        let start = at;
        let mut starts = Vec::new();
        for _ in 0..20 {
            let row = rows[usize::try_from(next(9000)).unwrap()];
            starts.push(RowStart {
                start: Vaddr(at),
                row,
            });
            at += 1 + next(100);
        }
        let header = FdeHeader {
            start: Vaddr(start),
            end: Vaddr(at),
            personality: None,
            lsda: (origin % 3 == 0).then_some(Vaddr(start)),
            origin,
        };
        table.push(header, &starts).unwrap();
    }
    let file = check(&table, &no_code());
    assert_eq!((file[15], file[30], file[31]), (3, 3, 3));
}

#[test]
fn more_classes_than_a_byte_counts() {
    let mut table = Table::new(X86_64);
    for n in 0..400 {
        let personality = Some(match n % 3 {
            0 => Pointer::Indirect(Vaddr(n)),
            _ => Pointer::Direct(Vaddr(n << 40)),
        });
        let lsda = (n % 5 != 0).then_some(Vaddr(0x9000 + 4 * n));
        push_with(&mut table, 16 * n, 16 * n + 16, 1, personality, lsda);
    }
    check(&table, &no_code());
}

#[test]
fn more_personalities_than_16_bits_count() {
    let mut table = Table::new(X86_64);
    for n in 0..300 {
        push_with(
            &mut table,
            n,
            n + 1,
            1,
            Some(Pointer::Direct(Vaddr(n))),
            None,
        );
    }
    check(&table, &no_code());
}

#[test]
fn lsdas_far_apart() {
    let mut table = Table::new(X86_64);
    let far = u64::from(u32::MAX);
    for (n, lsda) in [0x100, 0x100 + far, 0x101 + far, 0x200, u64::MAX, 0x100]
        .into_iter()
        .enumerate()
    {
        let n = n as u64;
        push_with(&mut table, 16 * n, 16 * n + 16, 1, None, Some(Vaddr(lsda)));
    }
    check(&table, &no_code());
}

#[test]
fn an_entry_in_the_midst_of_another() {
    let text = "arch x86-64 little
fn 0x1000..0x1100 lsda=0x9000
  0x1000 cfa=rsp+8
  0x1050 cfa=rsp+16
fn 0x1040..0x1060 personality=0x8000
  0x1040 cfa=rsp+24
fn 0x1040..0x1048
  0x1040 cfa=rsp+32
fn 0x10f0..0x1110
  0x10f0 cfa=rsp+16
";
    let bytes = check(&text::parse(text).unwrap(), &no_code());
    let compiled = CompiledTable::open(&bytes).unwrap();
    let lsda_at = |pc| compiled.entry(Vaddr(pc)).unwrap().unwrap().lsda;
    assert_eq!(lsda_at(0x103f), Some(Vaddr(0x9000)));
    assert_eq!(lsda_at(0x1047), None);
    assert_eq!(lsda_at(0x1060), Some(Vaddr(0x9000)));
}

#[test]
fn the_parts_add_up() {
    let made = table_and_code(&mut Choices::new(&[77]));
    let encoded = encode_with(&made.table, &made.code()).unwrap();
    let parts = [
        TablePart::Header,
        TablePart::Rows,
        TablePart::Entries,
        TablePart::Calls,
    ];
    let sum: usize = parts.map(|part| encoded.part(part)).iter().sum();
    assert_eq!(sum, encoded.bytes.len());
}
