//! Look-ups in every file of a small model, right and wrong ones: none reads outside of a section,
//! overflows or runs on. A wrong file may yield wrong answers.
//!
//! The model is one page with two pieces of one entry each, and the smallest other sections. Each
//! field that a look-up reads has its least and greatest values, those on both sides of each
//! section's end, and those with a meaning of their own. A look-up is two functions in a row: from
//! the address to a piece's record, and from the record to a row and an entry. All combinations of
//! the fields of each are tried, with the fields of the other as they were written.
//!
//! Overflow and wrong indices panic in tests. Loops are over counts that are checked first: the
//! greatest counts are among the values.

use unspool_compiled_table::CompiledTable;
use unspool_compiled_table::layout::section;
use unspool_rows::Vaddr;

use crate::hostile::written;

/// A field of the file, and its values in the model.
struct ModelField {
    tag: [u8; 4],
    /// Its offset in the section, in bytes.
    offset: usize,
    size: usize,
    values: &'static [u64],
}

const fn field(tag: &[u8; 4], offset: usize, size: usize, values: &'static [u64]) -> ModelField {
    ModelField {
        tag: *tag,
        offset,
        size,
        values,
    }
}

/// Writes every combination of the fields' values into a file, and asks for some addresses in each.
fn ask_all(file: &[u8], fields: &[ModelField], addresses: &[u64]) -> usize {
    let mut file = file.to_vec();
    let places: Vec<_> = fields
        .iter()
        .map(|field| {
            let start = section(&file, field.tag).unwrap().start + field.offset;
            start..start + field.size
        })
        .collect();
    let mut chosen = vec![0; fields.len()];
    let mut found = 0;
    loop {
        for ((field, place), choice) in fields.iter().zip(&places).zip(&chosen) {
            let value: u64 = field.values[*choice];
            file[place.clone()].copy_from_slice(&value.to_le_bytes()[..field.size]);
        }
        found += ask(&file, addresses);
        // The next combination, as the digits of a number.
        let mut carry = 0;
        while let Some(choice) = chosen.get_mut(carry) {
            *choice = (*choice + 1) % fields[carry].values.len();
            if *choice > 0 {
                break;
            }
            carry += 1;
        }
        if carry == chosen.len() {
            return found;
        }
    }
}

/// The number of rows and entries found.
fn ask(file: &[u8], addresses: &[u64]) -> usize {
    let table = CompiledTable::open(file).unwrap();
    let sites = table.call_sites();
    let mut found = 0;
    for pc in addresses.iter().copied().map(Vaddr) {
        let hit = table.lookup(pc);
        if let Ok(Some(hit)) = hit {
            assert!(pc < hit.end, "{hit:?} at {pc:?}");
            found += usize::from(table.row(hit.row).is_ok());
        }
        let entry = table.entry(pc);
        assert!(
            entry != Ok(None) || hit.is_err() || hit == Ok(None),
            "{pc:?}"
        );
        found += usize::from(matches!(entry, Ok(Some(_))));
        found += usize::from(matches!(sites.lookup(pc), Ok(Some(_))));
    }
    found
}

/// The addresses: the first of each piece and those beside, and the ends of bucket and page.
const ADDRESSES: [u64; 8] = [
    0xfff, 0x1000, 0x1001, 0x1004, 0x101f, 0x1020, 0x13ff, 0xffff,
];

/// How many numbers lie before a page.
const COUNTS: &[u64] = &[0, 1, 2, 3, 0xffff_ffff];

/// How many of a page's numbers lie before a bucket.
const BOUNDS: &[u64] = &[0, 1, 2, 3, 0x400, 0xffff];

/// Both bounds of the bucket at 0x1000: two bytes for each of the buckets before.
const BUCKET: usize = 4 * 2;

#[test]
fn from_every_index_to_a_record() {
    const STARTS: &[u64] = &[0, 0x1000, 0x1004, 0x1020, 0xffff];
    let fields = [
        field(b"PPGS", 0, 4, COUNTS),
        field(b"PPGS", 4, 4, COUNTS),
        field(b"PBKT", BUCKET, 2, BOUNDS),
        field(b"PBKT", BUCKET + 2, 2, BOUNDS),
        field(b"STRT", 0, 2, STARTS),
        field(b"STRT", 2, 2, STARTS),
        field(b"PIEC", 0, 1, &[0, 1, 0xfe, 0xff]),
        field(b"PIEC", 4, 1, &[0, 1, 0xff]),
    ];
    let found = ask_all(&written(), &fields, &ADDRESSES);
    assert!(found > 100_000, "{found}");
}

#[test]
fn from_every_record_to_a_row_and_an_entry() {
    const REFS: &[u64] = &[0, 1, 4, 7, 8, 0xffff];
    let fields = [
        field(b"PIEC", 1, 1, &[0, 1, 2, 0xfe, 0xff]),
        field(b"PIEC", 2, 2, REFS),
        field(b"SHAP", 0, 2, REFS),
        field(b"SHAP", 2, 1, &[0, 3, 0xff]),
        field(b"SEQS", 0, 1, &[0, 1, 2, 0x20, 0x21, 0x80, 0x82, 0xff]),
        field(b"SEQS", 1, 1, &[0, 1, 2, 0xff]),
        field(b"ROWX", 0, 2, &[0, 1, 0xffff]),
        field(b"ROWX", 2, 2, &[0, 0xffff]),
        field(b"LSDX", 0, 4, &[0, 1, 0xffff_ffff]),
        field(b"CLAS", 0, 2, &[0, 1, 0xffff]),
    ];
    let found = ask_all(&written(), &fields, &[0x1000, 0x1004, 0x100f]);
    assert!(found > 100_000, "{found}");
}

#[test]
fn from_every_index_to_a_step() {
    const STEPS: &[u64] = &[0, 1, 511, 512, 0x7fff, 0xffff];
    let fields = [
        field(b"CPGS", 0, 4, COUNTS),
        field(b"CPGS", 4, 4, COUNTS),
        field(b"CBKT", BUCKET, 2, BOUNDS),
        field(b"CBKT", BUCKET + 2, 2, BOUNDS),
        field(b"CSTP", 0, 2, STEPS),
        field(b"CSTP", 2, 2, STEPS),
    ];
    let found = ask_all(&written(), &fields, &ADDRESSES);
    assert!(found > 10_000, "{found}");
}
