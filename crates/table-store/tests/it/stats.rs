//! The counts of a file's table, and the instructions in it, are those of binutils.

use std::collections::BTreeMap;

use unspool_cfi::listing::{ListedInstruction, list_entries};
use unspool_elf::ElfFile;
use unspool_table_store::{FileStats, TableSource, compile, native_key, own_key};
use unspool_testing::{Finish as _, Folder, tool};

/// From C compilers and assembly, from C++ compilers, and from assembly alone.
const FILES: [&str; 3] = [
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/lib64/ld-linux-x86-64.so.2",
];

fn stats(path: &str) -> FileStats {
    let file = ElfFile::open(path).unwrap();
    let compiled = compile(&file, TableSource::Auto).unwrap();
    FileStats::from_file(&file, &compiled.source, Some(&compiled.encoded)).unwrap()
}

/// readelf's number of CIEs and FDEs, and of each instruction.
fn by_readelf(path: &str) -> (u64, u64, BTreeMap<String, u64>) {
    let text = tool("readelf").args(["-wNf", "-W", path]).succeed();
    let count = |what| text.lines().filter(|line| line.contains(what)).count() as u64;
    let mut opcodes = BTreeMap::new();
    for line in text.lines() {
        if let Some(instruction) = line.strip_prefix("  DW_CFA_") {
            let name = instruction.split([':', ' ']).next().unwrap();
            *opcodes.entry(name.to_owned()).or_default() += 1;
        }
    }
    (count(" CIE"), count(" FDE "), opcodes)
}

/// The size of `.eh_frame` by readelf.
fn section_bytes(path: &str) -> u64 {
    let text = tool("readelf").args(["-SW", path]).succeed();
    let line = text.lines().find(|line| line.contains(" .eh_frame "));
    let size = line.unwrap().split_whitespace().rev().nth(5).unwrap();
    u64::from_str_radix(size, 16).unwrap()
}

#[test]
fn counts_are_those_of_readelf() {
    let counts = |stats: &FileStats| -> BTreeMap<String, u64> {
        let counts = stats.opcodes.iter();
        counts
            .map(|(name, count)| (name.to_owned(), count))
            .collect()
    };
    let mut sum = BTreeMap::<String, u64>::new();
    let mut total: Option<FileStats> = None;
    for path in FILES {
        let stats = stats(path);
        let (cies, fdes, opcodes) = by_readelf(path);
        assert!(fdes > 200 && opcodes.len() > 10, "{path}: {opcodes:?}");
        assert_eq!((stats.cies, stats.fdes), (cies, fdes), "{path}");
        assert_eq!(counts(&stats), opcodes, "{path}");
        assert_eq!(stats.section_bytes, section_bytes(path), "{path}");
        for (name, count) in opcodes {
            *sum.entry(name).or_default() += count;
        }
        match &mut total {
            Some(total) => total.add(&stats),
            None => total = Some(stats),
        }
    }
    let total = total.unwrap();
    assert_eq!((counts(&total), total.file_count), (sum, 3));
}

#[test]
fn native_bytes_are_those_that_are_loaded() {
    let path = FILES[2];
    let file = ElfFile::open(path).unwrap();
    let source = unspool_table_store::read(&file, TableSource::Auto).unwrap();
    let outline = unspool_native_table::Outline::from_table(&source.table).unwrap();
    let object = unspool_native_table::object(&outline, native_key(&own_key(&file))).unwrap();
    let folder = Folder::new();
    folder.write("native.so", object);
    let size = folder.tool("size", "native.so");
    let columns = size.lines().last().unwrap().split_whitespace();
    let loaded = columns.take(3).map(|word| word.parse::<u64>().unwrap());
    let stats = stats(path);
    assert_eq!(stats.native_bytes, loaded.sum::<u64>());
    assert_eq!(stats.native_section_bytes, stats.section_bytes);
}

/// The least value that a share of all do not exceed.
#[test]
fn quantiles_are_values_that_occur() {
    let numbers: unspool_table_store::Distribution = [5, 1, 1, 9].into_iter().collect();
    assert_eq!(
        [0, 50, 51, 75, 100].map(|it| numbers.quantile(it)),
        [1, 1, 5, 5, 9]
    );
    assert_eq!(numbers.sum, 16);
    assert_eq!(numbers.to_string(), "median 1, 90 % 9, 99 % 9, greatest 9");
}

/// The instructions of each CIE and FDE, by its offset in `.eh_frame`.
type NamesByOffset = BTreeMap<u64, Vec<String>>;

/// The names as readelf has them.
fn names_by_readelf(path: &str) -> NamesByOffset {
    let text = tool("readelf").args(["-wNf", path]).succeed();
    let mut names = NamesByOffset::new();
    let mut entry = 0;
    for line in text.lines() {
        if let Some(instruction) = line.strip_prefix("  DW_CFA_") {
            let name = instruction.split([':', ' ']).next().unwrap();
            // How its operand is stored is not listed.
            let name = match name.strip_prefix("advance_loc") {
                Some(_) => "advance_loc",
                None => name.trim_end_matches("_sf").trim_end_matches("_extended"),
            };
            names.entry(entry).or_default().push(name.to_owned());
        } else if line.contains(" CIE") || line.contains(" FDE ") {
            entry = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
        }
    }
    names
}

/// All instructions are listed, as fields and as text.
#[test]
fn every_instruction_is_listed() {
    let path = FILES[0];
    let file = ElfFile::open(path).unwrap();
    let source = unspool_table_store::read(&file, TableSource::Auto).unwrap();
    let sections = unspool_table_store::sections(&file, TableSource::Auto).unwrap();
    let sections: Vec<_> = sections.into_iter().map(|(section, _)| section).collect();
    let names = |instructions: &[ListedInstruction]| -> Vec<String> {
        let repeated = instructions.iter().flat_map(|one| {
            let name = one.text.strip_prefix("DW_CFA_").unwrap();
            let name = name.split(' ').next().unwrap().to_owned();
            std::iter::repeat_n(name, one.count)
        });
        repeated.collect()
    };
    let mut listed = NamesByOffset::new();
    for (_, listing) in list_entries(&sections, &source.table, |_| true) {
        let listing = listing.unwrap();
        let mut all: Vec<_> = listing
            .rows
            .iter()
            .flat_map(|row| names(&row.instructions))
            .collect();
        all.extend(names(&listing.past_end));
        let text = listing.to_string();
        let lines = text.lines().filter(|line| line.contains("  DW_CFA_"));
        let runs = listing
            .rows
            .iter()
            .map(|row| row.instructions.len())
            .sum::<usize>();
        let expected = listing.initial.len() + runs + listing.past_end.len();
        assert_eq!(lines.count(), expected, "{text}");
        listed.insert(listing.cie, names(&listing.initial));
        listed.insert(listing.fde, all);
    }
    let by_readelf = names_by_readelf(path);
    assert!(by_readelf.len() > 1000, "{}", by_readelf.len());
    for (offset, expected) in &by_readelf {
        assert_eq!(listed.get(offset), Some(expected), "entry at {offset:#x}");
    }
}
