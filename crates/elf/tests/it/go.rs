//! Functions and lines of stripped Go programs, compared with Go's own tools.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use unspool_elf::{DebugFiles, ElfFile, GoFunctions, InlineFrame, Lines};
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
            // Of types in functions, nm has a dot where the table has a middle dot.
            let ours = symbol.name.trim_end_matches(".abi0").replace('·', ".");
            // The table shortens the names of functions that compare types.
            if ours.starts_with("type..") {
                continue;
            }
            assert!(theirs.contains(&ours), "{ours} {theirs:?}");
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
        let lines = |file: &Arc<ElfFile>| Lines::new(Arc::clone(file), &DebugFiles::default(), &[]);
        let (stripped, whole) = (
            lines(&file),
            lines(&Arc::new(ElfFile::open(whole).unwrap())),
        );
        let of_whole = |file: String| file.replace("/stripped.go", "/whole.go");
        let (mut compared, mut inlined) = (0, 0);
        for (address, theirs) in addresses.iter().zip(output.lines().skip(1).step_by(2)) {
            let frames = stripped.frames(Vaddr(*address)).unwrap();
            let described = whole.frames(Vaddr(*address)).unwrap();
            match &*described {
                [] => continue,
                [only] => {
                    // Debug information has the file in a folder, ".".
                    let place = |frame: &InlineFrame| {
                        let file = frame
                            .file
                            .as_deref()
                            .map(|file| file.trim_start_matches("./"));
                        (file.map(str::to_owned), frame.line)
                    };
                    let found = frames.first().map(place);
                    // Each program has a source of its name.
                    let found = found.map(|(file, line)| (file.map(of_whole), line));
                    assert_eq!(found, Some(place(only)), "{address:#x} {frames:?}");
                }
                _ => {
                    assert_eq!(frames, [], "{address:#x} {described:?}");
                    inlined += 1;
                    continue;
                }
            }
            // Both have none.
            let Some((path, line)) = frames[0].file.clone().map(of_whole).zip(frames[0].line)
            else {
                continue;
            };
            // Go's tool knows no lines of position-independent programs.
            assert!(
                theirs == "?:0" || theirs == format!("{path}:{line}"),
                "{address:#x} {theirs}"
            );
            compared += 1;
        }
        assert!(
            compared > 1000 && inlined > 10,
            "{compared} {inlined} of {}",
            addresses.len()
        );
    }
}

/// Go 1.26 leaves the start of the code out of the table: it is where the runtime has it.
#[test]
fn the_start_of_the_code_can_be_missing() {
    for options in [&[][..], &["-buildmode=pie"]] {
        let folder = Folder::new();
        let program = build_go(&folder, SOURCE, "p", &[options, &[STRIPPED]].concat());
        let mut bytes = fs::read(&program).unwrap();
        let file = ElfFile::open(&program).unwrap();
        let table = file
            .sections()
            .find(|one| one.name.ends_with(".gopclntab"))
            .unwrap();
        let header = table.address.unwrap();
        let at = usize::try_from(table.offset).unwrap() + 24;
        bytes[at..at + 8].fill(0);
        if let Some(relocations) = file.section_named(".rela.dyn").unwrap() {
            let field = (header.0 + 24).to_le_bytes();
            let mut entries = relocations.data.chunks(24);
            let entry = entries.position(|entry| entry[..8] == field).unwrap();
            let at = usize::try_from(relocations.offset).unwrap() + entry * 24;
            bytes[at..at + 24].fill(0);
        }
        let names = |file: &ElfFile| {
            let symbols = file.symbols().iter();
            let names = symbols.map(|one| (one.address, one.name.into_owned()));
            names.collect::<Vec<_>>()
        };
        let expected = names(&file);
        assert!(expected.len() > 1000, "{}", expected.len());
        let changed = folder.write("changed", &bytes);
        assert_eq!(
            names(&ElfFile::open(changed).unwrap()),
            expected,
            "{options:?}"
        );
        // Without that, nothing is guessed.
        let header = header.0.to_le_bytes();
        for at in 0..bytes.len() - 8 {
            if bytes[at..at + 8] == header {
                bytes[at..at + 8].fill(0);
            }
        }
        let unknown = folder.write("unknown", &bytes);
        assert_eq!(names(&ElfFile::open(unknown).unwrap()), [], "{options:?}");
    }
}

/// The code of functions is in the file: their number and their rows are bounded by it.
#[test]
fn functions_outside_of_code_are_not_read() {
    let folder = Folder::new();
    let program = build_go(&folder, SOURCE, "p", &[STRIPPED]);
    let file = ElfFile::open(&program).unwrap();
    let mut bytes = fs::read(&program).unwrap();
    let table = file
        .sections()
        .find(|one| one.name.ends_with(".gopclntab"))
        .unwrap();
    let at = usize::try_from(table.offset).unwrap() + 24;
    bytes[at + 5] = 1;
    let changed = folder.write("changed", &bytes);
    assert!(GoFunctions::new(&file).is_some());
    assert!(GoFunctions::new(&ElfFile::open(changed).unwrap()).is_none());
}
