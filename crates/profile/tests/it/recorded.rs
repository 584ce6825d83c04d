//! Names that were written while recording.

use unspool_ir::{CodeAddr, RuntimeAddr};
use unspool_profile::{
    Evidence, Meta, Named, NoNames, Place, Process, ProcessId, Profile, RawFrame, Symbol, Thread,
    Time, Writer,
};

/// The names of code at these addresses, after symbols of these starts, sizes and names were written.
fn names(symbols: &[(u64, u64, &str)], addresses: &[u64]) -> Vec<String> {
    let mut writer = Writer::new(Vec::new(), &Meta::default()).unwrap();
    let (start, end, name) = (Time(0), None, String::new());
    let process = writer.process(&Process {
        pid: 1,
        parent_pid: 0,
        start,
        end,
        name: name.clone(),
    });
    // A process has its own code, and other addresses say nothing of it.
    let other = writer.process(&Process {
        pid: 2,
        parent_pid: 0,
        start,
        end,
        name: name.clone(),
    });
    let thread = writer.thread(&Thread {
        process,
        tid: 1,
        start,
        end,
        name,
    });
    let mut symbol = |owner: ProcessId, (start, size, name): (u64, u64, &str)| {
        writer.symbol(&Symbol {
            start: Place::Process(owner, RuntimeAddr(start)),
            size,
            name: name.into(),
            module: String::new(),
        });
    };
    symbol(other, (0, u64::MAX, "another process"));
    symbols.iter().for_each(|it| symbol(process, *it));
    symbol(other, (0, u64::MAX, "another process"));
    let frames: Vec<RawFrame> = (addresses.iter())
        .map(|address| RawFrame {
            code: CodeAddr::Instruction(RuntimeAddr(*address)),
            evidence: Evidence::Registers,
            arguments: None,
        })
        .collect();
    let stack = writer.stack(thread, &frames, |_, at| Place::Process(process, at));
    let bytes = writer.finish(Time(0)).unwrap();
    let profile = Profile::read(&bytes[..]).unwrap();
    let named = Named::new(&profile, &NoNames);
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

/// Code that is made at run time takes the place of other code, whole or in part.
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

/// The last byte of the address space ends no symbol before it.
#[test]
fn symbols_that_go_round_the_address_space_are_passed_over() {
    let names = names(&[(u64::MAX - 1, 10, "round")], &[u64::MAX, 3]);
    assert_eq!(names, ["[unknown]"; 2]);
}
