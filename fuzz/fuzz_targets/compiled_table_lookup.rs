//! Any bytes as a compiled table: nothing panics, and every look-up ends. And tables that are
//! made, written and changed: whatever answer a changed file gives, `compare` sees if it is not
//! the table's.
//!
//! The first byte chooses: the bytes as they are, sections made of them, a table that is made of
//! them and read back, or one whose file is changed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_compiled_table::call_test::window;
use unspool_compiled_table::{CompiledTable, RowRef};
use unspool_rows::Vaddr;

#[path = "../../crates/compiled-table/tests/it/generate.rs"]
mod generate;
#[path = "../../crates/compiled-table/tests/it/independent.rs"]
mod independent;
#[path = "../../crates/compiled-table/tests/it/oracle.rs"]
mod oracle;
#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../crates/compiled-table/tests/it/parts.rs"]
mod parts;

use generate::{Choices, table_and_code};
use oracle::{TableOracle, check, encode_with, judge};
use parts::{FileParts, FileSection, change};

fuzz_target!(|data: &[u8]| {
    let [choice, rest @ ..] = data else { return };
    match choice % 4 {
        0 => look_up_everywhere(rest, rest),
        1 => look_up_everywhere(&sections(rest), rest),
        2 => {
            let generated = table_and_code(&mut choices(*choice, rest));
            check(&generated.table, &generated.code());
        }
        _ => {
            // The changes are chosen first: what is left of the bytes makes the table.
            let (changes, rest) = rest.split_at(rest.len().min(24));
            let generated = table_and_code(&mut choices(*choice, rest));
            let code = generated.code();
            let mut file = encode_with(&generated.table, &code)
                .expect("a table that fits")
                .bytes;
            change(&mut file, &mut Choices::unseeded(changes));
            let oracle = TableOracle::new(&generated.table);
            judge(&oracle, &code, &file, oracle.bounds());
        }
    }
});

/// Seeded, a few bytes make a large table, which takes long: seldom.
fn choices(choice: u8, bytes: &[u8]) -> Choices<'_> {
    match choice {
        0xf0.. => Choices::new(bytes),
        _ => Choices::unseeded(bytes),
    }
}

/// A file with a good header and directory, and sections with these bytes.
fn sections(mut rest: &[u8]) -> Vec<u8> {
    let mut take = |count: usize| {
        let (head, tail) = rest.split_at(rest.len().min(count));
        rest = tail;
        head
    };
    let mut parts = FileParts {
        head: *b"unspool\0\x01\0\x3e\0\x08\x01\x01\x02\0\0\0\0\0\0\0\0",
        widths: [2, 2],
        sections: Vec::new(),
    };
    if let [machine, test, base] = take(3) {
        parts.head[10] = *machine;
        parts.head[14] = test % 3;
        parts.head[16 + 2] = *base;
        parts.head[23] = *base;
    }
    parts.section(b"KEY ").push(1);
    while let [tag, length] = take(2) {
        let content = take(usize::from(*length));
        let tag = independent::TAGS[usize::from(*tag) % independent::TAGS.len()];
        parts.section(tag).extend_from_slice(content);
    }
    // As many pages as either of the two begins, each with all of its buckets.
    for (pages, buckets) in [(b"PPGS", b"PBKT"), (b"CPGS", b"CBKT")] {
        let of_pages = (parts.section(pages).len() / 4).saturating_sub(1);
        let count = of_pages.max(parts.section(buckets).len().div_ceil(130));
        parts.section(pages).resize(4 * (count + 1), 0);
        parts.section(buckets).resize(130 * count, 0);
    }
    let pieces = parts.section(b"STRT").len() / 2;
    parts.section(b"PIEC").resize(4 * pieces, 0);
    parts.section(b"LSDX").resize(4 * pieces.div_ceil(64), 0);
    parts.sections.push(FileSection {
        tag: *b"NEW ",
        flags: 0,
        content: Vec::new(),
    });
    parts.build()
}

/// Asks everything that can be asked, at addresses that the bytes name and at others.
fn look_up_everywhere(file: &[u8], bytes: &[u8]) {
    let Ok(compiled) = CompiledTable::open(file) else {
        return;
    };
    let base = file.get(16..24).map_or(0, |base| {
        u64::from_le_bytes(base.try_into().expect("8 bytes"))
    });
    let sites = compiled.call_sites();
    let near = (0..64).map(|n| n * 0x211);
    let named = bytes
        .chunks_exact(2)
        .map(|two| u64::from(u16::from_le_bytes([two[0], two[1]])));
    let pages = [0, 0x1_0000, 0x2_0000, 0xffff_0000, u64::MAX - 0xffff];
    for offset in near.chain(named).take(400) {
        for page in pages {
            let pc = Vaddr(base.wrapping_add(page).wrapping_add(offset));
            if let Ok(Some(hit)) = compiled.lookup(pc) {
                let _ = compiled.row(hit.row);
            }
            let _ = compiled.entry(pc);
            let before = window(bytes, (offset % 0x100) as usize);
            if let Ok(Some(row)) = sites.row(pc, before) {
                let _ = compiled.row(row);
            }
        }
    }
    for row in 0..=300 {
        let _ = (compiled.row(RowRef(row)), compiled.encoded_row(RowRef(row)));
    }
    let _ = (compiled.key(), compiled.abi(), compiled.pieces());
    let mut last = None;
    sites.test().for_each(Vaddr(base), bytes, |address| {
        let end = (address.0.wrapping_sub(base)) as usize;
        assert!(last < Some(end), "ascending");
        assert!(sites.test().passes(address, window(bytes, end)));
        last = Some(end);
    });
}
