//! Functions and lines of stripped Go programs, compared with Go's own tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use unspool_elf::{DebugFiles, ElfFile, Lines};
use unspool_rows::Vaddr;
use unspool_testing::{Folder, STRIPPED, build_go, filter, hex, run_tool, tool};

const SOURCE: &str = "package main\nfunc main() { println(len(\"x\")) }\n";

#[test]
fn functions_and_lines_of_a_stripped_program() {
    for options in [&[][..], &["-buildmode=pie"]] {
        let folder = Folder::new();
        let whole = build_go(&folder, SOURCE, "whole", options);
        let whole = whole.to_str().unwrap();
        let stripped = build_go(
            &folder,
            SOURCE,
            "stripped",
            &[options, &[STRIPPED]].concat(),
        );
        let file = Arc::new(ElfFile::open(stripped).unwrap());
        // ADDRESS TYPE NAME. Two names of one function differ by their calling convention.
        let output = run_tool("go", &["tool", "nm", whole]);
        let symbols = output.out.lines().filter_map(|line| {
            // A name may have spaces: `type:.eq.struct { … }`.
            let mut words = line.trim_start().splitn(3, ' ');
            let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
            let name = name.trim_end_matches(".abi0").to_owned();
            ["T", "t"].contains(&kind).then(|| (hex(address), name))
        });
        let mut names: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        symbols.for_each(|(address, name)| names.entry(address).or_default().push(name));
        let mut found = 0;
        for symbol in file.symbols().iter().filter(|symbol| symbol.size > 0) {
            let Some(theirs) = names.get(&symbol.address.0) else {
                continue;
            };
            let ours = symbol.name.trim_end_matches(".abi0");
            // The table shortens the names of functions that compare types.
            if ours.starts_with("type..") {
                continue;
            }
            assert!(theirs.iter().any(|name| name == ours), "{ours} {theirs:?}");
            found += 1;
        }
        assert!(found > 1000, "{found} of {}", names.len());

        let addresses: Vec<u64> = names.keys().flat_map(|start| [*start, start + 8]).collect();
        let asked: String = addresses.iter().map(|at| format!("{at:#x}\n")).collect();
        let output = filter(
            tool("go").args(["tool", "addr2line", whole]),
            asked.as_bytes(),
        );
        let output = String::from_utf8(output).unwrap();
        let theirs: Vec<&str> = output.lines().collect();
        let lines = Lines::new(Arc::clone(&file), &DebugFiles::default(), &[]);
        let mut compared = 0;
        for (address, theirs) in addresses.iter().zip(theirs.chunks(2)) {
            let frames = lines.frames(Vaddr(*address)).unwrap();
            let Some((path, line)) = frames.first().and_then(|at| at.file.clone().zip(at.line))
            else {
                continue;
            };
            // Go's tool knows no lines of position-independent programs.
            if theirs[1] == "?:0" {
                continue;
            }
            assert_eq!(
                format!("{path}:{line}"),
                theirs[1],
                "{address:#x} {frames:?}"
            );
            compared += 1;
        }
        assert!(
            compared > 1000 || !options.is_empty(),
            "{compared} of {}",
            addresses.len()
        );
    }
}
