//! Changed files: refused, or safe to look up in, and always detected by `compare`.

use proptest::prelude::*;
use unspool_compiled_table::{CompiledTable, ExecutableCode, TableOpenError};
use unspool_rows::{Table, Vaddr, text};

use crate::generate::{Choices, table_and_code};
use crate::oracle::{TableOracle, TamperVerdict, check, encode_with, judge};
use crate::parts::{FileParts, change};

/// Everything in the format, in small: whole and odd pieces side by side with equal rows, holes,
/// long gaps, a page boundary, LSDAs near and far, an entry in another.
const TEXT: &str = "arch x86-64 little
fn 0x1ff80..0x1ff90 personality=[0x9000] lsda=0x8000
  0x1ff80 cfa=rsp+8 ra=[cfa-8]
  0x1ff84 cfa=rsp+16 ra=[cfa-8] rbp=[cfa-16]
fn 0x1ff90..0x1ffa0 personality=[0x9000] lsda=0x8010
  0x1ff90 cfa=rsp+8 ra=[cfa-8]
fn 0x1ffa0..0x1ffb0 lsda=0xffffffffff
  0x1ffa0 cfa=rsp+8 ra=[cfa-8]
fn 0x1ffb0..0x1ffd0 personality=0x9100 lsda=0xfffffffff0
  0x1ffb0 cfa=rsp+8 ra=[cfa-8]
fn 0x1ffb8..0x1ffc0
  0x1ffb8 cfa=rsp+8 ra=[cfa-8]
fn 0x1fff0..0x20010
  0x1fff0 cfa=rsp+8 ra=[cfa-8]
  0x20004 cfa={breg7 8; breg16 0; plus} ra=[cfa-8]
  0x20008 cfa=rsp+8 ra=[cfa-8]
fn 0x20200..0x20208 personality=0x9100
  0x20200 cfa=rsp+16 ra=[cfa-8] rbp=[cfa-16]
fn 0x20300..0x20400
  0x20300 cfa=rsp+8 ra=[cfa-8]
  0x20304 cfa=rsp+16 ra=[cfa-8] rbp=[cfa-16]
  0x20346 cfa=rsp+8 ra=[cfa-8]
  0x203f0 cfa=rsp+16 ra=[cfa-8]
";

fn table() -> Table {
    text::parse(TEXT).unwrap()
}

/// Code over most of the table, with a call every few bytes.
fn code_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < 0x480 {
        let distance = u8::try_from(bytes.len() % 0x80).unwrap() | 0x80;
        let call = [0xe8, distance, 0xff, 0xff, 0xff];
        bytes.extend_from_slice(&call);
        bytes.extend_from_slice(&[0xff, 0xd0, 0x90, 0x90]);
    }
    bytes
}

fn code(bytes: &[u8]) -> ExecutableCode<'_> {
    let (first, second) = bytes.split_at(0x80);
    ExecutableCode {
        ranges: vec![(Vaddr(0x1ff80), first), (Vaddr(0x20000), second)],
    }
}

/// Every address in the table, the neighbours, and more.
fn addresses() -> impl Iterator<Item = u64> {
    let pages = (0..6).flat_map(|page| page * 0x1_0000..page * 0x1_0000 + 4);
    let ends = [u64::MAX - 1, u64::MAX, 0xfff_ffff, 0x1_0000_0000];
    (0x1ff00..0x20500).chain(pages).chain(ends)
}

#[test]
fn every_byte_changed() {
    let (table, bytes) = (table(), code_bytes());
    let code = code(&bytes);
    let file = check(&table, &code);
    let source = TableOracle::new(&table);
    assert_eq!(
        judge(&source, &code, &file, addresses()),
        TamperVerdict::Equal
    );
    let mut counts = [0; 3];
    for at in 0..file.len() {
        let old = file[at];
        for new in [
            old ^ 1,
            old ^ 0x80,
            old.wrapping_add(1),
            old.wrapping_sub(1),
            0xff,
            0,
        ] {
            if new != old {
                let mut changed = file.clone();
                changed[at] = new;
                counts[judge(&source, &code, &changed, addresses()) as usize] += 1;
            }
        }
    }
    let [refused, different, equal] = counts;
    // Equal ones: the directory's unused flags, alternative encodings, call-site steps that ask,
    // the key.
    assert!(
        refused > 100 && different > 1000 && equal > 100,
        "{counts:?}"
    );
}

#[test]
fn every_element_changed() {
    // Numbers of two and four bytes, changed as a whole.
    let (table, bytes) = (table(), code_bytes());
    let code = code(&bytes);
    let file = check(&table, &code);
    let source = TableOracle::new(&table);
    for at in 0..file.len() - 4 {
        for size in [2, 4] {
            for new in [0, 1, 0x7fff_ffff, 0xffff_fffe, u32::MAX, 0x1_0000, 0xff00] {
                let mut changed = file.clone();
                changed[at..at + size].copy_from_slice(&u32::to_le_bytes(new)[..size]);
                judge(&source, &code, &changed, addresses().step_by(7));
            }
        }
    }
}

#[test]
fn a_longer_piece_of_the_entry_before_is_seen() {
    // Two entries with equal rows, both in `ODDS`. Moving the start of the second makes the first
    // longer without changing a row.
    let text = "arch x86-64 little
fn 0x1000..0x1010 lsda=0x100
  0x1000 cfa=rsp+8
fn 0x1010..0x1020 lsda=0xf00000000000
  0x1010 cfa=rsp+8
fn 0x1020..0x1030 lsda=0xe00000000000
  0x1020 cfa=rsp+8
";
    let table = text::parse(text).unwrap();
    let source = TableOracle::new(&table);
    let mut parts = FileParts::from_file(&check(&table, &ExecutableCode::default()));
    parts.set(b"STRT", 2, 2, 0x1024);
    let file = parts.build();
    let changed = CompiledTable::open(&file).unwrap();
    let facts = changed.entry(Vaddr(0x1020)).unwrap().unwrap();
    assert_eq!(facts.lsda, Some(Vaddr(0xf000_0000_0000)));
    let verdict = judge(&source, &ExecutableCode::default(), &file, 0x1000..0x1040);
    assert_eq!(verdict, TamperVerdict::Different);
}

#[test]
fn cut_at_every_length() {
    let (table, bytes) = (table(), code_bytes());
    let file = check(&table, &code(&bytes));
    let len = file.len() as u64;
    for (cut, until) in (0..len).zip(0..) {
        let expected = match cut {
            0..8 => TableOpenError::Magic,
            8..64 => TableOpenError::Truncated {
                len: cut,
                expected: 64,
            },
            _ => TableOpenError::Truncated {
                len: cut,
                expected: len,
            },
        };
        let error = CompiledTable::open(&file[..until]).unwrap_err();
        assert_eq!(error, expected);
    }
    // Bytes after the table are not part of it.
    let mut longer = file.clone();
    longer.extend_from_slice(&file);
    let source = TableOracle::new(&table);
    let verdict = judge(&source, &code(&bytes), &longer, addresses());
    assert_eq!(verdict, TamperVerdict::Equal);
}

#[test]
fn every_section_cut_and_lengthened() {
    let (table, bytes) = (table(), code_bytes());
    let code = code(&bytes);
    let parts = FileParts::from_file(&check(&table, &code));
    let source = TableOracle::new(&table);
    for n in 0..parts.sections.len() {
        let length = parts.sections[n].content.len();
        for keep in 0..length {
            let mut changed = parts.clone();
            changed.sections[n].content.truncate(keep);
            judge(&source, &code, &changed.build(), addresses().step_by(3));
            let mut changed = parts.clone();
            changed.sections[n].content.drain(..length - keep);
            judge(&source, &code, &changed.build(), addresses().step_by(3));
        }
        for more in [1, 2, 4, 6, 9, 28, 64, 2000] {
            let mut changed = parts.clone();
            changed.sections[n].content.resize(length + more, 0);
            judge(&source, &code, &changed.build(), addresses().step_by(3));
        }
        let mut missing = parts.clone();
        missing.sections.remove(n);
        judge(&source, &code, &missing.build(), addresses());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 3000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn generated_tables_changed(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        changes in proptest::collection::vec(any::<u8>(), 1..60),
    ) {
        let made = table_and_code(&mut Choices::new(&bytes));
        let code = made.code();
        let mut file = encode_with(&made.table, &code).unwrap().bytes;
        change(&mut file, &mut Choices::unseeded(&changes));
        let source = TableOracle::new(&made.table);
        judge(&source, &code, &file, source.bounds());
    }

    #[test]
    fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), at in any::<u64>()) {
        let magic = b"unspool\0\x01\0\x3e\0\x08\x01\x01\x22";
        let head = bytes.len().min(magic.len());
        bytes[..head].copy_from_slice(&magic[..head]);
        if let Ok(compiled) = CompiledTable::open(&bytes) {
            let _ = (compiled.lookup(Vaddr(at)), compiled.entry(Vaddr(at)));
        }
    }
}
