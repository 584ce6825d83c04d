//! The worked example of `docs/formats.md`: its bytes are the file of its table, with the meaning
//! that the document gives them.

use std::fmt::Write as _;

use unspool_compiled_table::call_test::window;
use unspool_compiled_table::{CompiledTable, ExecutableCode, ModuleKey, encode};
use unspool_rows::text;
use unspool_rows::{Pointer, Table, Vaddr};

use crate::independent;
use crate::oracle::check;

const KEY: ModuleKey<'_> = ModuleKey {
    build_id: &[0xc0, 0xff, 0xee, 0x01],
    content: &[
        0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae,
        0xaf, 0xb0, 0xb1, 0xb2, 0xb3,
    ],
};

const DOCUMENT: &str = include_str!("../../../../docs/formats.md");

/// The lines of the fenced block that follows a marker.
fn block(name: &str) -> Vec<&'static str> {
    let (_, rest) = DOCUMENT
        .split_once(&format!("<!-- {name} -->"))
        .unwrap_or_else(|| panic!("a block {name}"));
    let mut lines = rest.lines().skip_while(|line| !line.starts_with("```"));
    lines.next();
    lines.take_while(|line| !line.starts_with("```")).collect()
}

/// The bytes of a dump: `address  bytes  ; meaning`, the addresses without gaps. `× n` after the
/// bytes repeats them n times.
fn dump(name: &str, start: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in block(name) {
        let line = line.split(';').next().unwrap();
        let mut words = line.split_whitespace();
        let Some(address) = words.next() else {
            continue;
        };
        let address = u64::from_str_radix(address, 16).unwrap();
        assert_eq!(address, start + bytes.len() as u64, "{line}");
        let of_line = words.by_ref().take_while(|word| *word != "×");
        let of_line = of_line.map(|word| u8::from_str_radix(word, 16).unwrap());
        let of_line: Vec<u8> = of_line.collect();
        let times = words.next().map_or(1, |times| times.parse().unwrap());
        assert_eq!(words.next(), None, "{line}");
        bytes.extend(of_line.repeat(times));
    }
    bytes
}

fn table() -> Table {
    text::parse(&block("example: table").join("\n")).unwrap()
}

#[test]
fn the_table_makes_these_bytes() {
    let (table, bytes) = (table(), dump("example: code", 0x1000));
    let code = ExecutableCode {
        ranges: vec![(Vaddr(0x1000), &bytes)],
    };
    let calls = code.call_addresses(table.abi().arch);
    let made = encode(&table, KEY, &code, &calls).unwrap().bytes;
    let mut expected = String::new();
    for (n, line) in made.chunks(16).enumerate() {
        write!(expected, "{:04x} ", 16 * n).unwrap();
        line.iter()
            .for_each(|byte| write!(expected, " {byte:02x}").unwrap());
        expected.push('\n');
    }
    let written = dump("example: file", 0);
    assert!(written == made, "the document should have:\n{expected}");
    check(&table, &code);
}

#[test]
fn the_bytes_give_these_answers() {
    let (file, code) = (dump("example: file", 0), dump("example: code", 0x1000));
    let compiled = CompiledTable::open(&file).unwrap();
    let second = independent::read(&file);
    assert_eq!(compiled.key(), KEY);
    let lines = block("example: answers");
    assert!(lines.len() > 10);
    for line in lines {
        let mut words = line.split_whitespace();
        let question = words.next().unwrap();
        let address = words.next().unwrap().strip_prefix("0x").unwrap();
        let address = u64::from_str_radix(address, 16).unwrap();
        let answer = match question {
            "row" => row_and_entry(&compiled, Vaddr(address)),
            "call" => {
                let before = window(&code, usize::try_from(address - 0x1000).unwrap());
                let row = compiled.call_sites().row(Vaddr(address), before).unwrap();
                assert_eq!(row.map(|row| row.0), second.call_site(address, &before));
                row.map_or("ask".to_owned(), |row| row_text(&compiled, row))
            }
            other => panic!("no question: {other}"),
        };
        let expected: Vec<_> = words.collect();
        let answer: Vec<_> = answer.split_whitespace().collect();
        assert_eq!(answer, expected, "{line}");
    }
}

fn row_text(compiled: &CompiledTable<'_>, row: unspool_compiled_table::RowRef) -> String {
    let text = compiled
        .row(row)
        .unwrap()
        .display(compiled.abi())
        .to_string();
    format!("{} {text}", row.0)
}

fn row_and_entry(compiled: &CompiledTable<'_>, pc: Vaddr) -> String {
    let Some(hit) = compiled.lookup(pc).unwrap() else {
        assert_eq!(compiled.entry(pc), Ok(None));
        return "none".to_owned();
    };
    let mut answer = row_text(compiled, hit.row);
    let entry = compiled.entry(pc).unwrap().unwrap();
    write!(answer, " in {}..{}", entry.start, entry.end).unwrap();
    match entry.personality {
        Some(Pointer::Direct(address)) => write!(answer, " personality={address}").unwrap(),
        Some(Pointer::Indirect(address)) => write!(answer, " personality=[{address}]").unwrap(),
        None => {}
    }
    if let Some(lsda) = entry.lsda {
        write!(answer, " lsda={lsda}").unwrap();
    }
    answer
}
