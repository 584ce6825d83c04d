//! The output of gdb and eu-stack.

use std::collections::BTreeMap;
use std::path::Path;

use unspool_testing::run_tool;

use crate::stack::compare::{ComparedFrame, REGISTERS};

/// The frames of each thread by its ID.
pub(crate) type Threads = BTreeMap<u32, Vec<ComparedFrame>>;

/// Runs gdb with the command `frames` defined.
pub(crate) fn gdb(arguments: &[&str]) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stack/frames.py");
    let mut all = vec!["-nx", "-batch", "-iex", "set debuginfod enabled off"];
    all.extend(["-iex", "set backtrace past-main on"]);
    all.extend(["-iex", "set backtrace past-entry on"]);
    all.extend(["-x", script]);
    all.extend(arguments);
    let output = run_tool("gdb", &all);
    let errors = output.err;
    assert!(
        !errors.contains("Python scripting is not supported"),
        "gdb without Python; install the Debian package gdb, not gdb-minimal"
    );
    let text = output.out;
    assert!(
        !errors.contains("Error occurred in Python"),
        "gdb failed after: {text}{errors}"
    );
    assert!(
        text.contains("\nframe "),
        "gdb printed no frame: {text}{errors}"
    );
    text
}

/// gdb's threads of a process; it also writes a core file.
pub(crate) fn gdb_process(pid: u32, core: &Path) -> Threads {
    let write_core = format!("gcore {}", core.display());
    let text = gdb(&["-p", &pid.to_string(), "-ex", "frames", "-ex", &write_core]);
    parse_gdb(&text)
}

/// gdb's threads of a core file.
pub(crate) fn gdb_core(core: &Path, program: &str) -> Threads {
    parse_gdb(&gdb(&[program, core.to_str().unwrap(), "-ex", "frames"]))
}

/// See `frames.py`.
pub(crate) fn parse_gdb(text: &str) -> Threads {
    let mut threads = Threads::new();
    let mut current = 0;
    for line in text.lines() {
        if let Some(id) = line.strip_prefix("thread ") {
            current = id.parse().unwrap();
            threads.insert(current, Vec::new());
        }
        if let Some(frame) = line.strip_prefix("frame ") {
            threads.get_mut(&current).unwrap().push(parse_frame(frame));
        }
    }
    threads
}

fn parse_frame(line: &str) -> ComparedFrame {
    let mut words = line.splitn(4 + REGISTERS.len(), ' ');
    let mut next = || words.next().unwrap();
    let is_trampoline = next() == "signal";
    let pc = number(next()).unwrap();
    // gdb prints 0 for an unknown caller.
    let cfa = number(next()).filter(|cfa| *cfa != 0);
    let registers = REGISTERS.map(|name| {
        let (found, value) = next().split_once('=').unwrap();
        assert_eq!(found, name);
        number(value)
    });
    let name = next();
    ComparedFrame {
        pc,
        cfa,
        registers,
        names: (name != "??")
            .then(|| name.to_owned())
            .into_iter()
            .collect(),
        module: None,
        symbol_start: None,
        is_trampoline,
    }
}

fn number(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x")?;
    u64::from_str_radix(digits, 16).ok()
}

/// eu-stack's addresses of the frames of each thread; `-n 0` lifts its limit.
pub(crate) fn eu_stack(arguments: &[&str]) -> BTreeMap<u32, Vec<u64>> {
    let mut all = vec!["-n", "0"];
    all.extend(arguments);
    // It exits with 1 if it finds no root of any stack, so the status is ignored.
    let output = run_tool("eu-stack", &all);
    let text = output.out;
    let mut threads = BTreeMap::new();
    let mut current = 0;
    for line in text.lines() {
        if let Some(id) = line.strip_prefix("TID ") {
            current = id.trim_end_matches(':').parse().unwrap();
            threads.insert(current, Vec::new());
        } else if line.starts_with('#') {
            let pc = line.split_whitespace().nth(1).and_then(number).unwrap();
            threads.get_mut(&current).unwrap().push(pc);
        }
    }
    let errors = output.err;
    assert!(!threads.is_empty(), "eu-stack printed no stack: {errors}");
    threads
}

/// The other names of an address: the symbols of a file and of its debug file, from eu-readelf. gdb
/// prints the name from debug information, `__GI_raise`, where unspool prints the exported one.
pub(crate) fn names_of(file: &str, address: u64) -> Vec<String> {
    let listed = run_tool("eu-unstrip", &["-n", "-e", file]);
    let listed = listed.out;
    // Range BuildId File DebugFile Name; `.` or `-` without a debug file.
    let debug_file = listed.split_whitespace().nth(3);
    let debug_file = debug_file.filter(|path| path.starts_with('/'));
    let arguments: Vec<&str> = ["-s", file].into_iter().chain(debug_file).collect();
    let output = run_tool("eu-readelf", &arguments);
    let text = output.out;
    // Num: Value Size Type Bind Vis Ndx Name
    let symbol = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = u64::from_str_radix(words.get(1)?, 16).ok()?;
        let name = words.get(7)?.split('@').next()?;
        (value == address).then(|| name.to_owned())
    };
    text.lines().filter_map(symbol).collect()
}
