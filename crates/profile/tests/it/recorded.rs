//! Names written during the recording.

use unspool_profile::{
    ANONYMOUS, CodeLocation, FrameEvidence, LocationName, Meta, NameResolver, NamedProfile,
    NoNameResolver, ProcessId, Profile, ProfileProcess, ProfileThread, ProfileWriter, RawFrame,
    RecordedSymbol, SourceFrame, Time,
};
use unspool_rows::{CodeAddr, RuntimeAddr};

/// The names of code at these addresses, given symbols with these starts, sizes and names.
fn names(symbols: &[(u64, u64, &str)], addresses: &[u64]) -> Vec<String> {
    names_with(symbols, addresses, &NoNameResolver)
}

/// The same if `known` has names, too.
fn names_with(
    symbols: &[(u64, u64, &str)],
    addresses: &[u64],
    known: &impl NameResolver,
) -> Vec<String> {
    let mut writer = ProfileWriter::new(Vec::new(), &Meta::default()).unwrap();
    let (start, end, name) = (Time(0), None, String::new());
    let process = writer.process(&ProfileProcess {
        pid: 1,
        parent_pid: 0,
        start,
        end,
        name: name.clone(),
    });
    // A process has its own code, unrelated to other address spaces.
    let other = writer.process(&ProfileProcess {
        pid: 2,
        parent_pid: 0,
        start,
        end,
        name: name.clone(),
    });
    let thread = writer.thread(&ProfileThread {
        process,
        tid: 1,
        start,
        end,
        name,
    });
    let mut symbol = |owner: ProcessId, (start, size, name): (u64, u64, &str)| {
        writer.symbol(&RecordedSymbol {
            start: CodeLocation::Process(owner, RuntimeAddr(start)),
            size,
            name: name.into(),
            module: if name.is_empty() { ANONYMOUS } else { "" }.into(),
        });
    };
    symbol(other, (0, u64::MAX, "another process"));
    symbols.iter().for_each(|it| symbol(process, *it));
    symbol(other, (0, u64::MAX, "another process"));
    let frames: Vec<RawFrame> = (addresses.iter())
        .map(|address| RawFrame {
            code: CodeAddr::Instruction(RuntimeAddr(*address)),
            evidence: FrameEvidence::Registers,
            arguments: None,
        })
        .collect();
    let stack = writer.stack(thread, &frames, |_, at| CodeLocation::Process(process, at));
    let bytes = writer.finish(Time(0)).unwrap();
    let profile = Profile::read(&bytes[..]).unwrap();
    let named = NamedProfile::new(&profile, known);
    let steps = named.steps(stack);
    let names = steps.map(|step| named.function_name(step.function).to_owned());
    names.collect()
}

#[test]
fn a_symbol_covers_its_bytes() {
    let symbols = [(0x100, 0x20, "_ZN3app4mainEv"), (0x200, 0, "empty")];
    let names = names(&symbols, &[0xff, 0x100, 0x11f, 0x120, 0x200]);
    assert_eq!(
        names,
        [
            "[unknown]",
            "app::main()",
            "app::main()",
            "[unknown]",
            "[unknown]"
        ]
    );
}

/// Generated code replaces older code, completely or in part.
#[test]
fn the_later_of_two_symbols_holds() {
    let addresses = [0x120, 0x160, 0x180];
    let old = [(0x100, 0x100, "old"), (0x150, 0x20, "new")];
    assert_eq!(names(&old, &addresses)[..2], ["old", "new"]);
    let over = [old[0], old[1], (0x100, 0x100, "newest")];
    assert_eq!(names(&over, &addresses), ["newest"; 3]);
    let around = [old[1], (0x90, 0x200, "newest")];
    assert_eq!(names(&around, &addresses), ["newest"; 3]);
}

/// The last byte of the address space does not cut a symbol before it.
#[test]
fn symbols_that_go_round_the_address_space_are_passed_over() {
    let names = names(&[(u64::MAX - 1, 10, "round")], &[u64::MAX, 3]);
    assert_eq!(names, ["[unknown]"; 2]);
}

/// Code in memory without a file has the name of its region, if it has no other.
#[test]
fn regions_name_what_has_no_name() {
    let symbols = [(0x100, 0x1000, ""), (0x200, 0x10, "f")];
    let names = names(&symbols, &[0x180, 0x205, 0x300, 0x1100]);
    assert_eq!(names, ["[anon]+0x100", "f", "[anon]+0x100", "[unknown]"]);
}

/// Functions of some files: two of one symbol, two of one readable name, and one without a name.
struct Alike;

impl NameResolver for Alike {
    fn name(&self, location: CodeLocation) -> LocationName {
        let start = location.address() & !0xff;
        let (function, symbol_hash) = match start {
            0x100 | 0x200 => ("init", 7),
            0x300 => ("T::get()", 8),
            0x400 => ("T::get()", 9),
            _ => ("", 0),
        };
        let called = SourceFrame {
            function: function.into(),
            ..SourceFrame::default()
        };
        LocationName {
            functions: Vec::from_iter((!function.is_empty()).then_some(called)),
            start: Some(start),
            symbol_hash: Some(symbol_hash),
        }
    }
}

#[test]
fn functions_of_one_symbol_differ_by_start_address() {
    let addresses = [0x101, 0x202, 0x303, 0x404, 0x505, 0x1ff];
    assert_eq!(
        names_with(&[], &addresses, &Alike),
        [
            "init@0x100",
            "init@0x200",
            "T::get()",
            "T::get()",
            "[unknown]+0x500",
            "init@0x100"
        ]
    );
    assert_eq!(names_with(&[], &[0x101, 0x1ff], &Alike), ["init"; 2]);
}
