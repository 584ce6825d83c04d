//! The entries of `.eh_frame` and `.debug_frame` make one table. readelf knows both sections.

use std::collections::BTreeMap;
use std::path::Path;

use unspool_elf::ElfFile;
use unspool_table_store::{FileStats, SourceTable, TableSource, compile, read, verify};
use unspool_testing::{Finish as _, Folder, tool};

/// A library with functions in either section, and one in both.
fn library(folder: &Folder, options: &str) -> ElfFile {
    folder.write("first.c", "int first(int n) { return n + 1; }");
    folder.write("second.c", "int second(int (*f)(int)) { return f(1) + 1; }");
    let both = ".cfi_sections .eh_frame, .debug_frame\n.globl both\nboth: .cfi_startproc\n\
                push %rbx\n.cfi_adjust_cfa_offset 8\npop %rbx\n.cfi_adjust_cfa_offset -8\nret\n\
                .cfi_endproc\n";
    folder.write("both.s", both);
    folder.tool("gcc", "-c -g -O2 -fPIC first.c both.s");
    folder.tool(
        "gcc",
        "-c -g -O2 -fPIC -fno-asynchronous-unwind-tables -fno-unwind-tables second.c",
    );
    let link = format!("-shared -nostdlib {options} -o library.so first.o second.o both.o");
    folder.tool("gcc", &link);
    ElfFile::open(folder.join("library.so")).unwrap()
}

/// The section and the bounds of each entry. Of two with the same bounds, the first counts.
fn by_readelf(path: &Path) -> BTreeMap<(u64, u64), String> {
    let text = tool("readelf").args(["-wNf", "-W"]).arg(path).succeed();
    let (mut section, mut entries) = (String::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("Contents of the ") {
            section = name.split(' ').next().unwrap().replace(".zdebug", ".debug");
        }
        if let Some((_, bounds)) = line.split_once(" pc=") {
            let (start, end) = bounds.split_once("..").unwrap();
            let address = |hex| u64::from_str_radix(hex, 16).unwrap();
            let bounds = (address(start), address(end));
            entries.entry(bounds).or_insert_with(|| section.clone());
        }
    }
    entries
}

fn entries(table: &SourceTable) -> BTreeMap<(u64, u64), String> {
    let entry = |fde| {
        let section = table.section(fde).unwrap();
        ((fde.start.0, fde.end.0), section.name.clone())
    };
    table.table.fdes().iter().map(entry).collect()
}

#[test]
fn entries_of_both_sections_count() {
    let folder = Folder::new();
    for options in ["", "-Wl,--compress-debug-sections=zlib"] {
        let file = library(&folder, options);
        let theirs = by_readelf(file.path());
        let read = |source| read(&file, source).unwrap();
        let all = read(TableSource::Auto);
        assert_eq!(entries(&all), theirs, "{options}");
        assert_eq!(all.table.fdes().len(), 3);
        let sections = theirs.values().filter(|section| *section == ".debug_frame");
        assert_eq!(sections.count(), 1, "{theirs:?}");
        assert_eq!(read(TableSource::First).table.fdes().len(), 2);
        assert_eq!(read(TableSource::DebugFrame).table.fdes().len(), 2);

        let made = compile(&file, TableSource::Auto).unwrap();
        let compared = verify(&file, &all.table, &made.encoded.bytes).unwrap();
        assert!(compared.is_equal() && compared.rows >= 5, "{compared:?}");
        let stats = FileStats::from_file(&file, &all, None).unwrap();
        let fdes: Vec<_> = stats.fdes_by_section.into_iter().collect();
        let expected = [(".debug_frame", 1), (".eh_frame", 2)];
        assert_eq!(fdes, expected.map(|(name, fdes)| (name.to_owned(), fdes)));
    }
}
