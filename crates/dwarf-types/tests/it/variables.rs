//! Broken debug information costs variables, and nothing else.

use std::fs;
use std::path::Path;

use unspool_elf::ElfFile;
use unspool_testing::{Finish as _, tool};

use crate::everything::ask;

fn run(folder: &Path, program: &str, words: &[&str]) -> String {
    tool(program).args(words).current_dir(folder).succeed()
}

#[test]
fn wrong_bytes_cost_values() {
    let named = ["scattered", "changes", "many", "recursive", "main"];
    for (format, lists) in [
        ("-gdwarf-5", [".debug_loclists", ".debug_rnglists"]),
        ("-gdwarf-4", [".debug_loc", ".debug_ranges"]),
    ] {
        broken("variables.c", ["-O2", format], &named, &lists);
    }
}

/// The test stack holds huge numbers at the locations of array lengths.
#[test]
fn wrong_bytes_of_arrays_that_are_computed_cost_values() {
    broken(
        "dynamic.c",
        ["-O1", "-gdwarf-5"],
        &["several", "end", "main"],
        &[],
    );
}

/// Breaks each byte of a program's debug information, and evaluates all variables at some of its
/// functions.
fn broken(source: &str, options: [&str; 2], functions: &[&str], lists: &[&str]) {
    let programs = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../display-values/tests/programs"
    );
    let source = format!("{programs}/{source}");
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(
        folder,
        "/usr/bin/gcc",
        &[options[0], options[1], &source, "-o", "program"],
    );
    let listed = run(folder, "/usr/bin/nm", &["-S", "--defined-only", "program"]);
    let mut addresses = Vec::new();
    for function in functions {
        let line = listed
            .lines()
            .find(|line| line.ends_with(&format!(" {function}")));
        let words: Vec<_> = line.unwrap().split_whitespace().collect();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        let (start, size) = (number(words[0]), number(words[1]));
        addresses.extend([start, start + size / 2, start + size - 1]);
    }
    let bytes = fs::read(folder.join("program")).unwrap();
    let whole = ElfFile::from_bytes("whole", bytes.clone()).unwrap();
    let all = ask(&whole, &addresses);
    assert!(all > 30, "{all}");
    let mut worse = 0;
    for section in [".debug_info", ".debug_abbrev"].iter().chain(lists) {
        let data = whole.section_named(section).unwrap().unwrap().data;
        let start = bytes.windows(data.len()).position(|part| part == data);
        let start = start.unwrap();
        for at in start..start + data.len() {
            for value in [0, 0x7f, 0x96, 0xff] {
                let mut broken = bytes.clone();
                broken[at] = value;
                let file = ElfFile::from_bytes("broken", broken).unwrap();
                worse += usize::from(ask(&file, &addresses) < all);
            }
        }
    }
    assert!(worse > 1000, "{worse}");
}
