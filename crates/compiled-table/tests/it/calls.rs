//! The call test, and the part of a table that answers for addresses that pass it.

use proptest::prelude::*;
use unspool_compiled_table::call_test::window;
use unspool_compiled_table::{CompiledTable, ExecutableCode, compare};
use unspool_rows::{CfaRule, Table, Vaddr, text};

use crate::generate::{Choices, put_aarch64, put_x86};
use crate::independent;
use crate::oracle::{check, encode_with};
use crate::parts::FileParts;

const START: u64 = 0x1000;

/// A table with one entry over 4 KiB from `START`.
fn one_entry(arch: &str) -> Table {
    text::parse(&format!(
        "arch {arch} little\nfn 0x1000..0x2000\n  0x1000 cfa=undefined\n"
    ))
    .unwrap()
}

fn code(bytes: &[u8]) -> ExecutableCode<'_> {
    ExecutableCode {
        ranges: vec![(Vaddr(START), bytes)],
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 1500 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Mostly the bytes that decide, so that calls overlap, end together and are truncated.
    #[test]
    fn dense_x86_code(bytes in proptest::collection::vec(
        prop_oneof![
            3 => Just(0xff),
            2 => Just(0xe8),
            3 => Just(0x00),
            2 => 0x10..=0x17_u8,
            1 => 0x50..=0x57_u8,
            1 => 0x90..=0x97_u8,
            1 => 0xd0..=0xd7_u8,
            1 => any::<u8>(),
        ],
        0..120,
    ), i386 in any::<bool>()) {
        let arch = if i386 { "i386" } else { "x86-64" };
        check(&one_entry(arch), &code(&bytes));
    }

    #[test]
    fn made_code(bytes in proptest::collection::vec(any::<u8>(), 0..200), aarch64 in any::<bool>()) {
        let mut choices = Choices::new(&bytes);
        let mut bytes = Vec::new();
        for _ in 0..80 {
            if aarch64 { put_aarch64(&mut bytes, &mut choices) } else { put_x86(&mut bytes, &mut choices) }
        }
        let arch = if aarch64 { "aarch64" } else { "x86-64" };
        check(&one_entry(arch), &code(&bytes));
    }
}

/// The addresses that pass, counted from `START`.
fn passing(arch: &str, bytes: &[u8]) -> Vec<u64> {
    // One certain call, far from the bytes: without any call there is no call test at all.
    let last = [0xff, 0xd0, 0x00, 0x00, 0x94];
    let code = ExecutableCode {
        ranges: vec![(Vaddr(START), bytes), (Vaddr(START + 0x800 - 1), &last)],
    };
    let file = check(&one_entry(arch), &code);
    let compiled = CompiledTable::open(&file).unwrap();
    let mut found = Vec::new();
    compiled
        .call_sites()
        .test()
        .for_each(Vaddr(START), bytes, |address| found.push(address.0 - START));
    found
}

#[test]
fn forms_of_calls_on_x86() {
    for (bytes, ends) in [
        // call rax; call r8; jmp rax; push rax
        (&[0xff, 0xd0][..], &[2][..]),
        (&[0x41, 0xff, 0xd0], &[3]),
        (&[0xff, 0xe0], &[]),
        (&[0xff, 0xf0], &[]),
        // call [rax]; call [rsp]; call [rbp+8]; call [r12+8]
        (&[0xff, 0x10], &[2]),
        (&[0xff, 0x14, 0x24], &[2, 3]),
        (&[0xff, 0x55, 8], &[3]),
        (&[0x41, 0xff, 0x54, 0x24, 8], &[4, 5]),
        // call [rip+0x100]; call [rax+0x100]; call [rsp+0x100]; call [rax*8+0x100]
        (&[0xff, 0x15, 0, 1, 0, 0], &[2, 3, 6]),
        (&[0xff, 0x90, 0, 1, 0, 0], &[6]),
        (&[0xff, 0x94, 0x24, 0, 1, 0, 0], &[6, 7]),
        (&[0xff, 0x14, 0xc5, 0, 1, 0, 0], &[2, 3, 6, 7]),
        // Truncated by the end of the code.
        (&[0xff, 0x94, 0xc5, 0, 1, 0], &[6]),
        (&[0xff, 0x90, 0, 1, 0], &[]),
        (&[0xff], &[]),
        (&[0xe8, 0, 0, 0], &[]),
        // A near call to itself, to the next instruction, to outside, to the byte before.
        (&[0xe8, 0xfb, 0xff, 0xff, 0xff], &[5]),
        (&[0xe8, 0, 0, 0, 0], &[5]),
        (&[0xe8, 0, 0, 0x10, 0], &[]),
        (&[0xe8, 0xfa, 0xff, 0xff, 0xff], &[]),
        // Two that end at one address, and two where the later ends first.
        (&[0xff, 0x94, 0xff, 0xd2, 0xff, 0xff, 0xd0], &[4, 6, 7]),
        (&[0xff, 0x90, 0xff, 0xd0, 0, 0], &[4, 6]),
    ] {
        assert_eq!(passing("x86-64", bytes), ends, "{bytes:x?}");
    }
}

/// The length of `FF` followed by these bytes if it is an `FF /2`, by the tables of the Intel
/// manual (volume 2, 2.1.5, 32- and 64-bit addressing).
fn indirect_call_length(mod_rm: u8, sib: u8) -> Option<usize> {
    let (mode, reg, rm) = (mod_rm >> 6, mod_rm >> 3 & 7, mod_rm & 7);
    let has_sib = mode != 3 && rm == 4;
    let displacement = match mode {
        0 if rm == 5 || (rm == 4 && sib & 7 == 5) => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    (reg == 2).then_some(2 + usize::from(has_sib) + displacement)
}

/// A file with a call test for code of 4 KiB from an address on.
fn file_with_code_at(start: u64) -> Vec<u8> {
    let end = start + 0x1000;
    let text = format!("arch x86-64 little\nfn {start:#x}..{end:#x}\n  {start:#x} cfa=undefined\n");
    let bytes = [[0xff, 0xd0].repeat(2), vec![0; 0xffc]].concat();
    let code = ExecutableCode {
        ranges: vec![(Vaddr(start), &bytes)],
    };
    encode_with(&text::parse(&text).unwrap(), &code)
        .unwrap()
        .bytes
}

#[test]
fn every_call_of_the_instruction_set_passes() {
    let bytes = file_with_code_at(START);
    let compiled = CompiledTable::open(&bytes).unwrap();
    let test = compiled.call_sites().test();
    for mod_rm in 0..=255 {
        for sib in 0..=255 {
            let code = [0xff, mod_rm, sib, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f];
            // `FF FF` may be the opcode of another call after it.
            let is_two = mod_rm == 0xff && indirect_call_length(sib, 0x7f).is_some();
            let length = indirect_call_length(mod_rm, sib);
            let passes = |end| test.passes(Vaddr(START + 0x100), window(&code, end));
            assert!(length.is_none_or(passes), "{mod_rm:x} {sib:x}");
            // Bytes that are not an `FF /2` do not pass at any length.
            let is_call = length.is_some() || is_two;
            assert_eq!(is_call, (2..8).any(passes), "{mod_rm:x} {sib:x}");
        }
    }
}

#[test]
fn every_opcode_and_mod_rm_at_every_place() {
    let bytes = file_with_code_at(START);
    let compiled = CompiledTable::open(&bytes).unwrap();
    let test = compiled.call_sites().test();
    let file = independent::read(&bytes);
    let address = START + 0x800;
    for fill in [0, 0x14, 0x54, 0x7f, 0x90, 0xe8, 0xff] {
        for place in 0..8 {
            let mut passing = [0; 256];
            for opcode in 0..=255_u8 {
                for mod_rm in 0..=255 {
                    let mut before = [fill; 8];
                    before[place] = opcode;
                    if let Some(after) = before.get_mut(place + 1) {
                        *after = mod_rm;
                    }
                    let passes = test.passes(Vaddr(address), before);
                    let expected = file.follows_call(address, &before);
                    assert_eq!(passes, expected, "{before:x?}");
                    passing[usize::from(opcode)] += usize::from(passes);
                }
            }
            // In bytes outside of calls, the number of ModRM bytes for each length.
            if fill == 0x7f {
                let expected = [0, 2, 16, 0, 1, 16, 16, 0][place];
                assert_eq!(passing[0xff], expected, "at {place}");
                assert_eq!(passing.iter().sum::<usize>(), expected, "at {place}");
            }
        }
    }
}

#[test]
fn targets_of_direct_calls() {
    const FAR: u64 = 1 << 31;
    for start in [
        START,
        0x7fff_f000,
        0x7fff_ffff_ffff_f000,
        0x8000_0000_0000_0000,
        0xffff_ffff_8100_0000,
    ] {
        let bytes = file_with_code_at(start);
        let compiled = CompiledTable::open(&bytes).unwrap();
        let test = compiled.call_sites().test();
        let file = independent::read(&bytes);
        let end = start + 0x1000;
        let mut inside = 0;
        for target in [
            start - 1,
            start,
            start + 1,
            end - 1,
            end,
            end + 1,
            start.wrapping_sub(FAR),
            start ^ 1 << 63,
            0,
            u64::MAX,
        ] {
            let near =
                [-1_i64, 0, 5, 0xfff, 0x1000].map(|offset| start.wrapping_add_signed(offset));
            let far = [FAR, FAR - 1, FAR + 1].map(|distance| target.wrapping_add(distance));
            let back = [FAR, FAR - 1, FAR + 1].map(|distance| target.wrapping_sub(distance));
            for address in near.into_iter().chain(far).chain(back) {
                // Within the range of 32 bits, else to another target.
                let distance = target.wrapping_sub(address).to_le_bytes();
                let mut before = [0x90, 0x90, 0x90, 0xe8, 0, 0, 0, 0];
                before[4..].copy_from_slice(&distance[..4]);
                let passes = test.passes(Vaddr(address), before);
                assert_eq!(passes, file.follows_call(address, &before), "{address:#x}");
                let distance = target.wrapping_sub(address).cast_signed();
                if i32::try_from(distance).is_ok() {
                    assert_eq!(passes, (start..end).contains(&target), "{address:#x}");
                }
                inside += usize::from(passes);
            }
        }
        assert!(inside > 10, "{inside}");
    }
}

#[test]
fn windows_at_the_start_of_the_code() {
    let bytes = file_with_code_at(START);
    let compiled = CompiledTable::open(&bytes).unwrap();
    let test = compiled.call_sites().test();
    let file = independent::read(&bytes);
    for opcode in [0xe8, 0xff] {
        for (place, mod_rm) in (0..4).flat_map(|place| (0..=255).map(move |byte| (place, byte))) {
            let mut code = vec![0x90; place];
            code.extend_from_slice(&[opcode, mod_rm, 0, 0, 0, 0, 0, 0]);
            // Every code with this beginning, down to none.
            for length in 0..=code.len() {
                let code = &code[..length];
                let mut expected = Vec::new();
                for end in 0..=length {
                    let mut before = [0; 8];
                    for n in 0..end.min(8) {
                        before[7 - n] = code[end - 1 - n];
                    }
                    assert_eq!(window(code, end), before);
                    let address = START + end as u64;
                    let passes = file.follows_call(address, &before);
                    assert_eq!(test.passes(Vaddr(address), before), passes, "{before:x?}");
                    if passes {
                        expected.push(address);
                    }
                }
                let mut visited = Vec::new();
                test.for_each(Vaddr(START), code, |address| visited.push(address.0));
                assert_eq!(visited, expected, "{code:x?}");
            }
        }
    }
}

#[test]
fn calls_at_every_place_of_longer_code() {
    // Each form at each offset, in code that ends at each later offset: the search may work in
    // blocks.
    let bytes = file_with_code_at(START);
    let compiled = CompiledTable::open(&bytes).unwrap();
    let test = compiled.call_sites().test();
    let file = independent::read(&bytes);
    let forms: [&[u8]; 8] = [
        &[0xff, 0xd0],
        &[0xff, 0x14, 0x24],
        &[0xff, 0x54, 0x24, 8],
        &[0xe8, 0, 0, 0, 0],
        &[0xff, 0x90, 0, 1, 0, 0],
        &[0xff, 0x94, 0x24, 0, 1, 0, 0],
        // Calls that end before an earlier call does.
        &[0xff, 0x94, 0xff, 0xd2, 0xff, 0xff, 0xd0],
        &[0xe8, 0xff, 0xd0, 0, 0, 0xff, 0xff, 0x10],
    ];
    for form in forms {
        for place in 0..70 {
            let mut code = [0x7f; 90];
            code[place..place + form.len()].copy_from_slice(form);
            // A second one, a block further on.
            if let Some(second) = code.get_mut(place + 16..place + 16 + form.len()) {
                second.copy_from_slice(form);
            }
            for length in place..code.len() {
                let code = &code[..length];
                let ends = (0..=length).filter(|end| {
                    let before = window(code, *end);
                    let address = START + *end as u64;
                    let passes = file.follows_call(address, &before);
                    assert_eq!(test.passes(Vaddr(address), before), passes);
                    passes
                });
                let mut expected = ends.map(|end| START + end as u64);
                test.for_each(Vaddr(START), code, |address| {
                    assert_eq!(Some(address.0), expected.next(), "{code:x?}");
                });
                assert_eq!(expected.next(), None, "{code:x?}");
            }
        }
    }
}

#[test]
fn forms_of_calls_on_aarch64() {
    for (word, passes) in [
        (0x9400_0000_u32, true),
        (0x97ff_ffff, true),
        (0x1400_0000, false), // B
        (0xd63f_0000, true),  // BLR x0
        (0xd63f_03e0, true),
        (0xd61f_0000, false), // BR x0
        (0xd65f_03c0, false), // RET
        (0xd63f_081f, true),  // BLRAAZ x0
        (0xd63f_0c1f, true),  // BLRABZ x0
        (0xd73f_0801, true),  // BLRAA x0, x1
        (0xd73f_0c01, true),  // BLRAB x0, x1
        (0xd71f_0801, false), // BRAA x0, x1
        (0xd503_201f, false), // NOP
    ] {
        let ends: &[u64] = if passes { &[4] } else { &[] };
        assert_eq!(passing("aarch64", &word.to_le_bytes()), ends, "{word:x}");
        // Not at a misaligned address.
        let mut shifted = vec![0x1f];
        shifted.extend_from_slice(&word.to_le_bytes());
        assert_eq!(passing("aarch64", &shifted), [0; 0], "{word:x}");
    }
}

#[test]
fn aarch64_code_that_begins_within_a_word() {
    // Zeros stand for the bytes before the code, and complete a `BL` with its first ones.
    for skew in 0..4 {
        let bytes = [[0x94; 8], [0; 8]].concat();
        let code = ExecutableCode {
            ranges: vec![(Vaddr(START + skew), &bytes)],
        };
        check(&one_entry("aarch64"), &code);
    }
}

#[test]
fn every_indirect_call() {
    // All ModRM and SIB bytes, eight bytes apart, whether a call or not.
    for mod_rm in 0..=255_u8 {
        let mut bytes = Vec::new();
        for sib in (0..=255_u8).step_by(2) {
            bytes.extend_from_slice(&[0xff, mod_rm, sib, 0, 0, 0, 0, 0]);
        }
        check(&one_entry("x86-64"), &code(&bytes));
        for pair in bytes.chunks_mut(8) {
            pair[2] |= 1;
        }
        check(&one_entry("x86-64"), &code(&bytes));
    }
}

#[test]
fn a_target_between_first_and_last_range_counts() {
    let many: Vec<_> = (0..40)
        .map(|n| (Vaddr(START + 16 * n), &[0xff, 0xd0][..]))
        .collect();
    // Just before the last range's end, at it, in a hole, in the first byte, before it.
    for (target, passes) in [
        (0x1271, true),
        (0x1272, false),
        (0x1018, true),
        (0x1000, true),
        (0xfff, false),
    ] {
        let mut direct = vec![0xe8];
        direct.extend_from_slice(&(target - 0x1015_i32).to_le_bytes());
        let mut code = ExecutableCode {
            ranges: many.clone(),
        };
        code.ranges[1].1 = &direct;
        let file = check(&one_entry("x86-64"), &code);
        let compiled = CompiledTable::open(&file).unwrap();
        let sites = compiled.call_sites();
        let answer = sites.row(Vaddr(0x1015), window(&direct, 5));
        assert_eq!(answer.unwrap().is_some(), passes, "{target:#x}");
    }
}

#[test]
fn an_empty_range_hides_no_other() {
    let direct = [0xe8, 0xfb, 0xff, 0xff, 0xff];
    let code = ExecutableCode {
        ranges: vec![(Vaddr(START), &[]), (Vaddr(START + 0x100), &direct)],
    };
    let file = check(&one_entry("x86-64"), &code);
    let compiled = CompiledTable::open(&file).unwrap();
    let address = Vaddr(START + 0x105);
    let answer = compiled.call_sites().row(address, window(&direct, 5));
    assert!(answer.unwrap().is_some());
}

/// Entries of 32 bytes, with three calls in two of their granules.
fn many_entries(count: u64, distinct: u64) -> (Table, Vec<u8>) {
    let mut text = String::from("arch x86-64 little\n");
    let mut code = Vec::new();
    for n in 0..count {
        let start = START + 32 * n;
        let (half, end) = (start + 15, start + 32);
        text += &format!(
            "fn {start:#x}..{end:#x}\n  {start:#x} cfa=rsp+{}\n",
            n % distinct
        );
        // In every third entry the two calls of one granule are in two rows.
        if n % 3 == 0 {
            text += &format!("  {half:#x} cfa=rbp+{}\n", n % distinct);
        }
        code.extend_from_slice(&[0x90; 12]);
        code.extend_from_slice(&[0xff, 0xd0, 0xff, 0xd0]);
        code.extend_from_slice(&[0x90; 14]);
        code.extend_from_slice(&[0xff, 0xd0]);
    }
    (text::parse(&text).unwrap(), code)
}

#[test]
fn most_calls_are_answered_and_the_rest_asked() {
    // Few rows: only granules with two rows are asked. Many: also those with rows that no step can
    // name.
    for (distinct, answered) in [(10, 77..78), (1500, 20..40)] {
        let (table, bytes) = many_entries(5000, distinct);
        let file = check(&table, &code(&bytes));
        let compiled = CompiledTable::open(&file).unwrap();
        let comparison = compare(&table, &compiled, &code(&bytes));
        assert_eq!(comparison.call_sites, 15_000);
        let asked = comparison.call_sites_asked;
        let percent = 100 * (comparison.call_sites - asked) / comparison.call_sites;
        assert!(answered.contains(&percent), "{percent}");
        // The bytes of a call do not count at an address outside of the module.
        let sites = compiled.call_sites();
        let elsewhere = Vaddr(START + 0x100_0000);
        assert_eq!(sites.row(elsewhere, window(&[0xff, 0xd0], 2)), Ok(None));
    }
}

/// Entries of 8 bytes and one row each, `calls[n]` calls in those of row `n`, which is in
/// `entries[n]` entries. Rows differ in their CFA offset.
fn rows_with_calls(rows: impl Iterator<Item = (u32, u32)>) -> (Table, Vec<u8>) {
    let mut text = String::from("arch x86-64 little\n");
    let mut code = Vec::new();
    for (row, (entries, calls)) in rows.enumerate() {
        for entry in 0..entries {
            let start = START + code.len() as u64;
            let end = start + 8;
            text += &format!("fn {start:#x}..{end:#x}\n  {start:#x} cfa=rsp+{row}\n");
            let mut bytes = [0x90; 8];
            if entry < calls {
                bytes[..2].copy_from_slice(&[0xff, 0xd0]);
            }
            code.extend_from_slice(&bytes);
        }
    }
    (text::parse(&text).unwrap(), code)
}

/// The number in the file of each row of [`rows_with_calls`].
fn numbers_of_rows(compiled: &CompiledTable<'_>) -> Vec<(i64, u16)> {
    let mut numbers: Vec<_> = (0..compiled.distinct_rows())
        .map(|number| {
            let number = u16::try_from(number).unwrap();
            match compiled
                .row(unspool_compiled_table::RowRef(number))
                .unwrap()
                .cfa
            {
                CfaRule::RegisterOffset { offset, .. } => (offset, number),
                other => panic!("{other:?}"),
            }
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn steps_name_the_rows_with_the_most_calls() {
    // Of 600 rows the last 511 have 2 or 3 calls, the others one; the others are more frequent.
    let frequency = |row| if row < 89 { 9 } else { 3 + row % 5 };
    let calls = |row| if row < 89 { 1 } else { 2 + row % 2 };
    let (table, bytes) = rows_with_calls((0..600).map(|row| (frequency(row), calls(row))));
    let file = check(&table, &code(&bytes));
    let compiled = CompiledTable::open(&file).unwrap();
    let numbers = numbers_of_rows(&compiled);
    let mut by_number = vec![0; 600];
    for (row, number) in numbers {
        let row = u32::try_from(row).unwrap();
        assert_eq!(number < 511, calls(row) > 1, "row {row} is {number}");
        by_number[usize::from(number)] = frequency(row);
    }
    // The most frequent are first, in each group.
    assert!(by_number[..511].is_sorted_by(|a, b| a >= b));
    assert!(by_number[511..].is_sorted_by(|a, b| a >= b));
    let comparison = compare(&table, &compiled, &code(&bytes));
    assert_eq!(comparison.call_sites, 2 * 511 + 256 + 89);
    assert_eq!(comparison.call_sites_asked, 89);
}

#[test]
fn as_many_rows_as_steps_can_name_and_more() {
    for rows in [510_u32, 511, 512, 513] {
        let (table, bytes) = rows_with_calls((0..rows).map(|_| (1, 1)));
        let file = check(&table, &code(&bytes));
        let compiled = CompiledTable::open(&file).unwrap();
        let comparison = compare(&table, &compiled, &code(&bytes));
        assert_eq!(comparison.call_sites, u64::from(rows));
        let asked = u64::from(rows).saturating_sub(511);
        assert_eq!(comparison.call_sites_asked, asked, "of {rows}");
    }
}

#[test]
fn every_number_of_steps_in_a_bucket() {
    // An entry for each granule of four buckets: its row changes in the first ones of the second
    // bucket.
    for steps in 0..=128 {
        let row = |granule: u64| match granule {
            128..256 if granule - 128 < steps => granule % 2,
            _ => 7,
        };
        let mut text = String::from("arch x86-64 little\n");
        let mut bytes = Vec::new();
        for granule in 0..512 {
            let start = START + 8 * granule;
            let end = start + 8;
            text += &format!(
                "fn {start:#x}..{end:#x}\n  {start:#x} cfa=rsp+{}\n",
                row(granule)
            );
            // The last key of every granule.
            bytes.extend_from_slice(&[0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0]);
        }
        let table = text::parse(&text).unwrap();
        // With and without steps after it.
        for until in [0xc00, 0x1000] {
            let file = check(&table, &code(&bytes[..until]));
            let compiled = CompiledTable::open(&file).unwrap();
            let comparison = compare(&table, &compiled, &code(&bytes[..until]));
            assert_eq!(comparison.call_sites, until as u64 / 8);
            assert_eq!(comparison.call_sites_asked, 0);
        }
    }
}

#[test]
fn steps_in_every_granule_of_several_pages() {
    // Pages 1, 3 and 4; no row lies in page 2. Counts go up to 8,192.
    let mut text = String::from("arch x86-64 little\n");
    for start in [0x1_0000_u64, 0x3_0000] {
        let end = if start == 0x1_0000 {
            0x2_0000
        } else {
            0x5_0000
        };
        for at in (start..end).step_by(8) {
            text += &format!(
                "fn {at:#x}..{:#x}\n  {at:#x} cfa=rsp+{}\n",
                at + 8,
                at / 8 % 7
            );
        }
    }
    let table = text::parse(&text).unwrap();
    let call = [0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0, 0x90];
    let bytes = call.repeat(0x4_0000 / 8);
    let code = ExecutableCode {
        ranges: vec![(Vaddr(0x1_0000), &bytes)],
    };
    let file = check(&table, &code);
    let compiled = CompiledTable::open(&file).unwrap();
    let comparison = compare(&table, &compiled, &code);
    assert_eq!(comparison.call_sites, 4 * 8192);
    assert_eq!(comparison.call_sites_asked, 8192);
    let mut parts = FileParts::from_file(&file);
    let pages = parts.numbers(b"CPGS", 4);
    // In the page without rows there is one step, "ask".
    assert_eq!(pages, [0, 8192, 8193, 16385, 24577]);
    let buckets = parts.numbers(b"CBKT", 2);
    let full = (0..=64).map(|bucket| 128 * bucket);
    let one = [0].into_iter().chain([1; 64]);
    let expected = full.clone().chain(one).chain(full.clone()).chain(full);
    assert!(buckets.into_iter().eq(expected));
}

/// A claim that holds is the answer; without a claim there is no answer.
#[test]
fn confirmed_rows_are_the_answers() {
    let (table, bytes) = rows_with_calls((0..300).map(|row| (1 + row % 3, 1)));
    let file = check(&table, &code(&bytes));
    let compiled = CompiledTable::open(&file).unwrap();
    let sites = compiled.call_sites();
    let (mut held, mut fell) = (0, 0);
    for end in 0..=bytes.len() {
        let (address, before) = (Vaddr(START + end as u64), window(&bytes, end));
        let call_site_row = sites.lookup(address).unwrap();
        let holds = call_site_row.filter(|claim| claim.holds(&sites.test(), before));
        assert_eq!(
            holds.map(|call_site_row| call_site_row.row()),
            sites.row(address, before).unwrap(),
            "at {address}"
        );
        held += usize::from(holds.is_some());
        fell += usize::from(call_site_row.is_some() && holds.is_none());
    }
    assert!(held > 100 && fell > 100, "{held} held, {fell} fell");
}

#[test]
fn calls_outside_all_rows_are_asked() {
    let table = text::parse(
        "arch x86-64 little
fn 0x1000..0x1010
  0x1000 cfa=rsp+8
fn 0x21000..0x21010
  0x21000 cfa=rsp+8
",
    )
    .unwrap();
    // In the first entry, in the hole after it, in a page without rows, after all rows.
    let call = [0xff, 0xd0];
    let ranges = [0x1000, 0x1040, 0x1_2000, 0x2_1008, 0x3_0000].map(|at| (Vaddr(at), &call[..]));
    let code = ExecutableCode {
        ranges: ranges.to_vec(),
    };
    let file = check(&table, &code);
    let compiled = CompiledTable::open(&file).unwrap();
    let sites = compiled.call_sites();
    let answers = code.ranges.iter().map(|(at, _)| {
        let answer = sites.row(at.offset(2), window(&call, 2));
        answer.unwrap().is_some()
    });
    assert!(answers.eq([true, false, false, true, false]));
}

#[test]
fn an_architecture_without_a_call_test_has_no_part() {
    let made = code(&[0xff, 0xd0, 0, 0, 0, 0, 0, 0x94]);
    let table = text::parse("arch arm little\nfn 0x1000..0x2000\n  0x1000 cfa=undefined\n");
    let table = table.unwrap();
    check(&table, &made);
    let encoded = encode_with(&table, &made).unwrap();
    let file = independent::read(&encoded.bytes);
    assert!(!file.follows_call(0x1002, &window(&[0xff, 0xd0], 2)));
}
