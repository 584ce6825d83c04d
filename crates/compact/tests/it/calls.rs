//! The call test, and the part of a table that answers for addresses that pass it.

use proptest::prelude::*;
use unspool_compact::call::window;
use unspool_compact::{Code, Compiled, compare};
use unspool_ir::{Table, Vaddr, text};

use crate::generate::{Choices, put_aarch64, put_x86};
use crate::independent;
use crate::oracle::{check, encode_with};

const START: u64 = 0x1000;

/// A table with one entry over 4 KiB, which begin at `START`.
fn one_entry(arch: &str) -> Table {
    text::parse(&format!(
        "arch {arch} little\nfn 0x1000..0x2000\n  0x1000 cfa=undefined\n"
    ))
    .unwrap()
}

fn code(bytes: &[u8]) -> Code<'_> {
    Code {
        ranges: vec![(Vaddr(START), bytes)],
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Mostly the bytes that decide, so that calls overlap, end together and are cut off.
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
            match aarch64 {
                true => put_aarch64(&mut bytes, &mut choices),
                false => put_x86(&mut bytes, &mut choices),
            }
        }
        let arch = if aarch64 { "aarch64" } else { "x86-64" };
        check(&one_entry(arch), &code(&bytes));
    }
}

/// Where the addresses pass, counted from `START`.
fn passing(arch: &str, bytes: &[u8]) -> Vec<u64> {
    // One call for certain, far from the bytes: without any there is no call test at all.
    let last = [0xff, 0xd0, 0x00, 0x00, 0x94];
    let code = Code {
        ranges: vec![(Vaddr(START), bytes), (Vaddr(START + 0x800 - 1), &last)],
    };
    let file = check(&one_entry(arch), &code);
    let compiled = Compiled::open(&file).unwrap();
    let mut found = Vec::new();
    compiled
        .call_sites()
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
        (&[0xff, 0x14, 0x24], &[3]),
        (&[0xff, 0x55, 8], &[3]),
        (&[0x41, 0xff, 0x54, 0x24, 8], &[5]),
        // call [rip+0x100]; call [rax+0x100]; call [rsp+0x100]; call [rax*8+0x100]
        (&[0xff, 0x15, 0, 1, 0, 0], &[6]),
        (&[0xff, 0x90, 0, 1, 0, 0], &[6]),
        (&[0xff, 0x94, 0x24, 0, 1, 0, 0], &[7]),
        (&[0xff, 0x14, 0xc5, 0, 1, 0, 0], &[7]),
        // Cut off by the end of the code.
        (&[0xff, 0x14, 0xc5, 0, 1, 0], &[]),
        (&[0xff], &[]),
        (&[0xe8, 0, 0, 0], &[]),
        // A near call to itself, to what follows, to outside, to the byte before.
        (&[0xe8, 0xfb, 0xff, 0xff, 0xff], &[5]),
        (&[0xe8, 0, 0, 0, 0], &[5]),
        (&[0xe8, 0, 0, 0x10, 0], &[]),
        (&[0xe8, 0xfa, 0xff, 0xff, 0xff], &[]),
        // Two that end at one address, and two of which the later ends first.
        (&[0xff, 0x94, 0xff, 0xd2, 0xff, 0xff, 0xd0], &[4, 7]),
        (&[0xff, 0x90, 0xff, 0xd0, 0, 0], &[4, 6]),
    ] {
        assert_eq!(passing("x86-64", bytes), ends, "{bytes:x?}");
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
        // Not at an address that no instruction has.
        let mut shifted = vec![0x1f];
        shifted.extend_from_slice(&word.to_le_bytes());
        assert_eq!(passing("aarch64", &shifted), [0; 0], "{word:x}");
    }
}

#[test]
fn aarch64_code_that_begins_within_a_word() {
    // Zeros stand for the bytes before the code, and make a `BL` of its first ones.
    for skew in 0..4 {
        let bytes = [[0x94; 8], [0; 8]].concat();
        let code = Code {
            ranges: vec![(Vaddr(START + skew), &bytes)],
        };
        check(&one_entry("aarch64"), &code);
    }
}

#[test]
fn every_indirect_call() {
    // All ModRM and SIB bytes, eight bytes apart, a call each or not.
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
        let mut code = Code {
            ranges: many.clone(),
        };
        code.ranges[1].1 = &direct;
        let file = check(&one_entry("x86-64"), &code);
        let compiled = Compiled::open(&file).unwrap();
        let sites = compiled.call_sites();
        let answer = compiled.call_site(&sites, Vaddr(0x1015), window(&direct, 5));
        assert_eq!(answer.unwrap().is_some(), passes, "{target:#x}");
    }
}

#[test]
fn an_empty_range_hides_no_other() {
    let direct = [0xe8, 0xfb, 0xff, 0xff, 0xff];
    let code = Code {
        ranges: vec![(Vaddr(START), &[]), (Vaddr(START + 0x100), &direct)],
    };
    let file = check(&one_entry("x86-64"), &code);
    let compiled = Compiled::open(&file).unwrap();
    let address = Vaddr(START + 0x105);
    let answer = compiled.call_site(&compiled.call_sites(), address, window(&direct, 5));
    assert!(answer.unwrap().is_some());
}

/// Entries of 32 bytes, a call at the end of each of their granules.
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
        // In every third entry both granules have calls in two rows.
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
    // Few rows: only granules with two rows are asked. Many: also those without a slot.
    for (distinct, answered) in [(10, 77..78), (1500, 20..40)] {
        let (table, bytes) = many_entries(5000, distinct);
        let file = check(&table, &code(&bytes));
        let compiled = Compiled::open(&file).unwrap();
        let comparison = compare(&table, &compiled, &code(&bytes));
        assert_eq!(comparison.call_sites, 15_000);
        let asked = comparison.call_sites_asked;
        let percent = 100 * (comparison.call_sites - asked) / comparison.call_sites;
        assert!(answered.contains(&percent), "{percent}");
        // A call to the address itself is none, nor is one in the bytes of another module.
        let sites = compiled.call_sites();
        let elsewhere = Vaddr(START + 0x100_0000);
        assert_eq!(
            compiled.call_site(&sites, elsewhere, window(&[0xff, 0xd0], 2)),
            Ok(None)
        );
    }
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
    // In the first entry, in the hole behind it, in a page without rows, behind all rows.
    let call = [0xff, 0xd0];
    let ranges = [0x1000, 0x1040, 0x1_2000, 0x2_1008, 0x3_0000].map(|at| (Vaddr(at), &call[..]));
    let code = Code {
        ranges: ranges.to_vec(),
    };
    let file = check(&table, &code);
    let compiled = Compiled::open(&file).unwrap();
    let sites = compiled.call_sites();
    let answers = code.ranges.iter().map(|(at, _)| {
        let answer = compiled.call_site(&sites, at.offset(2), window(&call, 2));
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
