//! `unspool ctf show`: values are those that gdb prints, by CTF and by DWARF.
#![cfg(target_arch = "x86_64")]

use std::fs;

use serde_json::Value;
use unspool_testing::{Finish as _, RunningProgram, command, send_signal, tool};

use crate::harness::{self, TestFolder, source};
use crate::json;

/// The program, with CTF or with DWARF.
fn program(option: &str) -> TestFolder {
    let folder = TestFolder::new();
    folder.tool(
        "gcc",
        &format!("-O0 {option} -c {} -o shown.o", source("shown.c")),
    );
    folder.tool("gcc", "shown.o -o shown");
    if option == "-gctf" {
        folder.done("ctf link shown.o --into shown");
    }
    folder
}

fn start(folder: &TestFolder) -> RunningProgram {
    let mut program = RunningProgram::start(&mut command(folder.path().join("shown")));
    program.await_ready();
    program.await_state('S');
    program
}

/// The value in a document.
fn shown(folder: &TestFolder, words: &[&str]) -> Value {
    let mut unspool = harness::unspool_in(folder.path(), &["ctf", "show"]);
    let text = unspool.args(words).args(["--format", "json"]).succeed();
    let document = json::document(&text);
    assert_eq!(document["schema"], "unspool.ctf-value");
    document["value"].clone()
}

/// Each leaf of a value: its path in gdb's form, and the number in it.
fn leaves(value: &Value, path: &str, into: &mut Vec<(String, Value)>) {
    for member in value["members"].as_array().into_iter().flatten() {
        let name = member["name"].as_str();
        let inner = name.map_or_else(|| path.to_owned(), |name| format!("{path}.{name}"));
        leaves(member, &inner, into);
    }
    for (index, element) in value["elements"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        leaves(element, &format!("{path}[{index}]"), into);
    }
    if let Some(number) = value.get("number") {
        into.push((path.to_owned(), number.clone()));
    } else if let Some(pointer) = value.get("pointer") {
        let hex = pointer.as_str().unwrap().trim_start_matches("0x");
        into.push((
            path.to_owned(),
            u64::from_str_radix(hex, 16).unwrap().into(),
        ));
    }
}

const SYMBOLS: &[&str] = &[
    "root", "last", "tight", "wide", "wides", "part", "large", "grid", "many", "text", "function",
    "counter", "small", "fixed",
];

/// All numbers, pointers and enumerations, read by gdb from the same process.
#[test]
fn numbers_are_those_of_gdb() {
    for option in ["-gctf", "-g"] {
        let folder = program(option);
        let program = start(&folder);
        let pid = program.pid().to_string();
        let mut all = Vec::new();
        for symbol in SYMBOLS {
            leaves(&shown(&folder, &[&pid, symbol]), symbol, &mut all);
        }
        assert!(all.len() > 1500, "{}", all.len());
        // gdb needs DWARF.
        let debug = if option == "-g" {
            None
        } else {
            Some(self::program("-g"))
        };
        let debug = debug
            .as_ref()
            .map_or("shown".into(), |folder| folder.path().join("shown"));
        let symbols = format!("symbol-file {} -o {:#x}", debug.display(), bias(&pid));
        assert_gdb_prints(&folder, &pid, &all, &["-ex", &symbols]);
    }
}

/// Of the C library and the loader, by their debug files (libc6-dbg, which valgrind needs, too).
#[test]
fn variables_of_libraries_are_those_of_gdb() {
    let folder = program("-g");
    let program = start(&folder);
    let pid = program.pid().to_string();
    for symbols in [
        &["_IO_2_1_stdout_", "main_arena", "mp_"][..],
        &["_rtld_global", "_rtld_global_ro"],
    ] {
        let mut all = Vec::new();
        for symbol in symbols {
            leaves(&shown(&folder, &[&pid, symbol]), symbol, &mut all);
        }
        assert!(all.len() > 200, "{}", all.len());
        assert_gdb_prints(&folder, &pid, &all, &[]);
    }
}

/// Reads the same numbers by gdb, after other commands.
#[track_caller]
fn assert_gdb_prints(folder: &TestFolder, pid: &str, all: &[(String, Value)], commands: &[&str]) {
    let paths: Vec<_> = all.iter().map(|(path, _)| path).collect();
    let script = format!(
        "python\nfor path in {paths:?}:\n  it = gdb.parse_and_eval(path)\n  \
         is_float = it.type.strip_typedefs().code == gdb.TYPE_CODE_FLT\n  \
         print('value', float(it) if is_float else int(it))\nend\n"
    );
    folder.write("print.gdb", script);
    let mut gdb = tool("gdb");
    gdb.args(["-batch", "-nx", "-p", pid]).args(commands);
    let said = gdb
        .args(["-x", "print.gdb"])
        .current_dir(folder.path())
        .finish();
    let numbers = (said.out.lines()).filter_map(|line| line.strip_prefix("value "));
    let numbers: Vec<_> = numbers.collect();
    assert_eq!(numbers.len(), all.len(), "{said}");
    for ((path, number), gdb) in all.iter().zip(numbers) {
        let is_same = match number.as_f64().filter(|_| number.is_f64()) {
            Some(number) => gdb.parse() == Ok(number),
            None => gdb == number.to_string().as_str(),
        };
        assert!(is_same, "{path}: {number}, gdb: {gdb}\n{}", said.err);
    }
}

/// The load address of the program.
fn bias(pid: &str) -> u64 {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let line = maps.lines().find(|line| line.ends_with("/shown")).unwrap();
    u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
}

#[test]
fn values_are_written_as_in_c() {
    let folder = program("-g");
    let program = start(&folder);
    let pid = program.pid().to_string();
    let text = |words: &str| folder.done(&format!("ctf show {pid} {words}"));
    assert_eq!(
        text("root.next.colour"),
        "enum colour root.next.colour = GREEN\n"
    );
    assert_eq!(
        text("tight.flags"),
        "enum flags tight.flags = (READ | RUN)\n"
    );
    assert_eq!(text("grid"), "int grid[2][3] = {{1, 2, 3}, {4, 5, 6}}\n");
    assert_eq!(text("grid[1][2]"), "int grid[1][2] = 6\n");
    assert_eq!(text("turn"), "complex double turn = 3 + 4i\n");
    assert_eq!(text("wide"), "long double wide = 2.5\n");
    assert_eq!(text("tiny"), "float tiny = 1e-44\n");
    assert_eq!(text("large"), "double large = -1e300\n");
    assert_eq!(text("parts"), "char parts[6] = \"a\\000b\\\"c\"\n");
    assert!(
        text("text").ends_with(r#" "a \"text\"\n""#.to_owned().as_str())
            || text("text").contains(r#""a \"text\"\n""#)
    );
    assert_eq!(text("huge"), format!("__int128 huge = {}\n", 1_i128 << 100));
    assert!(text("many --elements 2").ends_with("    ... 298 more\n}\n"));
    let root = text("root --follow 3");
    assert!(
        root.contains(".name = \"last\",") && root.contains("-> above"),
        "{root}"
    );
    // A core has the same values, and a file those at the start.
    let live = text("tight");
    folder.tool("gcore", &format!("-o core {pid}"));
    assert_eq!(folder.done(&format!("ctf show core.{pid} tight")), live);
    assert_eq!(folder.done("ctf show shown tight"), live);
    assert!(folder.done("ctf show shown last.next").contains("= 0x0\n"));
    for (words, message) in [
        ("nothing", "no data is named \"nothing\""),
        ("*last", "write \"last\"; --follow 1 shows what a pointer"),
        (
            "root.none",
            "has no member `none`; it has next, name, low, high, sign, colour, real, first, second",
        ),
        ("grid[2]", "has no element 2"),
        ("counter.x", "has no members"),
        ("root->", "is not `.member`"),
        (
            "last.next.next.next.name --write 1",
            "write characters in quotes",
        ),
    ] {
        let refused = folder.unspool(&format!("ctf show {pid} {words}"));
        assert_eq!(refused.status.code(), Some(2), "{words}");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains(message), "{words}: {said}");
    }
}

/// What is written is seen by the program itself; what is refused changes nothing.
#[test]
fn values_are_written_into_a_process() {
    let folder = program("-gctf");
    let mut program = start(&folder);
    let pid = program.pid();
    let print = |program: &mut RunningProgram| {
        send_signal(pid, "USR1");
        program.line()
    };
    assert_eq!(print(&mut program).trim_end(), "root 2 -3 -1 1");
    let write = |path: &str, value: &str| {
        let pid = pid.to_string();
        let mut unspool = harness::unspool_in(folder.path(), &["ctf", "show", &pid, path]);
        unspool.args(["--write", value]).finish()
    };
    let said = write("root.high", "1234").ended_with(0);
    assert_eq!(said.out, "unsigned int root.high = 1234 (was 2)\n");
    for (path, value) in [
        ("root.name", "\"other\""),
        ("root.next.sign", "-16"),
        ("counter", "0x7fffffffffffffff"),
        ("tight.is_set", "false"),
        ("root.colour", "GREEN"),
    ] {
        let _ = write(path, value).ended_with(0);
    }
    let expected = format!("other 1234 -16 {} 0", i64::MAX);
    assert_eq!(print(&mut program).trim_end(), expected);
    // Neighbours in the same word stay.
    let pid_text = pid.to_string();
    let low = shown(&folder, &[&pid_text, "root.low"]);
    assert_eq!(low["number"], 1);
    for (path, value, message) in [
        ("fixed", "8", "may not write to"),
        ("root.low", "8", "it can be from 0 to 7"),
        ("root.next.sign", "16", "it can be from -16 to 15"),
        ("root", "1", "name a member"),
        ("root.colour", "PURPLE", "is not a number"),
        ("tight.is_set", "2", "0 or 1"),
        ("root.name", "\"123456789\"", "do not fit"),
    ] {
        let refused = write(path, value).ended_with(2);
        assert!(refused.err.contains(message), "{path}: {refused}");
    }
    assert_eq!(print(&mut program).trim_end(), expected);
    // A program's file gets other initial values, and keeps its mode.
    let said = folder.done("ctf show shown counter --write 42");
    assert_eq!(said, "volatile int64_t counter = 42 (was -1)\n");
    let mut changed = RunningProgram::start(&mut command(folder.path().join("shown")));
    changed.await_ready();
    send_signal(changed.pid(), "USR1");
    assert_eq!(changed.line().trim_end(), "root 2 -3 42 1");
}

/// Threads that read a word meanwhile see the old value or the new one, whatever its bytes are.
#[test]
fn a_written_word_is_seen_whole() {
    let folder = TestFolder::new();
    let source = source("threads_read.c");
    folder.tool("gcc", &format!("-O2 -g -pthread {source} -o reads"));
    let mut program = RunningProgram::start(&mut command(folder.path().join("reads")));
    assert_eq!(program.line(), "ready");
    let pid = program.pid();
    for _ in 0..20 {
        for value in ["0x2222222222222222", "0x1111111111111111"] {
            folder.done(&format!("ctf show {pid} word --write {value}"));
        }
    }
    send_signal(pid, "USR1");
    let line = program.line();
    let counts: Vec<u64> = line
        .split_whitespace()
        .map(|it| it.parse().unwrap())
        .collect();
    let [first, second, other] = counts[..] else {
        panic!("{line}")
    };
    assert!(
        first > 0 && second > 0 && first + second > 1_000_000,
        "{line}"
    );
    assert_eq!(other, 0);
}

/// The kernel's memory is a core file of all address space: gdb reads the same values from it.
#[test]
fn values_of_a_kernel() {
    const START: u64 = 0xffff_ffff_8260_0000;
    let folder = TestFolder::new();
    folder.write(
        "kernel.c",
        "struct list { struct list *next; };\n\
         struct task { unsigned flags : 5; int prio; struct list all; char comm[16]; } any;\n",
    );
    folder.tool("gcc", "-g -c kernel.c -o kernel.o");
    let mut bytes = Vec::new();
    bytes.extend(0xab_u32.to_le_bytes());
    bytes.extend((-20_i32).to_le_bytes());
    bytes.extend((START + 8).to_le_bytes());
    bytes.extend(*b"swapper/0\0\0\0\0\0\0\0");
    folder.write("kcore", core_of_segment(START, &bytes));
    folder.write(
        "kallsyms",
        format!(
            "{START:016x} D init_task\n{:016x} d far\t[module]\n",
            START + 0x10_0000
        ),
    );
    let options = ["--type", "struct task", "--types", "kernel.o"];
    let options = [
        &options[..],
        &["--kcore", "kcore", "--kallsyms", "kallsyms"],
    ]
    .concat();
    let mut all = Vec::new();
    let value = shown(&folder, &[&["kernel", "init_task"], &options[..]].concat());
    leaves(&value, "task", &mut all);
    assert_eq!(all.len(), 3);
    let mut gdb = tool("gdb");
    gdb.args(["-batch", "-nx", "kernel.o", "-ex", "core-file kcore"]);
    gdb.current_dir(folder.path());
    for (path, _) in &all {
        let place = path.replacen("task", &format!("((struct task *) {START:#x})[0]"), 1);
        gdb.args([
            "-ex",
            &format!("printf \"value %lld\\n\", (long long) {place}"),
        ]);
    }
    let said = gdb.finish();
    let numbers = said
        .out
        .lines()
        .filter_map(|line| line.strip_prefix("value "));
    let numbers: Vec<i64> = numbers.map(|text| text.parse().unwrap()).collect();
    let ours = all.iter().map(|(_, number)| match number.as_i64() {
        Some(number) => number,
        None => number.as_u64().unwrap().cast_signed(),
    });
    let ours: Vec<i64> = ours.collect();
    assert_eq!(numbers, ours, "{said}");
    let show = |words: &[&str]| {
        let mut unspool = harness::unspool_in(folder.path(), &["ctf", "show", "kernel"]);
        unspool.args(words).args(&options).finish()
    };
    let said = show(&["init_task.comm"]).ended_with(0);
    assert_eq!(said.out, "char init_task.comm[16] = \"swapper/0\"\n");
    for (words, status, message) in [
        (&["nothing"][..], 2, "the kernel has no variable named"),
        (&["init_task.prio", "--write", "1"], 2, "is not written to"),
        (&["far.prio"], 1, ""),
    ] {
        let said = show(words).ended_with(status);
        assert!(said.err.contains(message), "{said}");
    }
}

/// An ELF core file (gABI) with one segment.
fn core_of_segment(start: u64, content: &[u8]) -> Vec<u8> {
    const CONTENT: u64 = 64 + 56;
    let size = content.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // ET_CORE, EM_X86_64, EV_CURRENT.
    file.extend([4, 0, 62, 0, 1, 0, 0, 0]);
    for number in [0, 64, 0_u64] {
        file.extend(number.to_le_bytes());
    }
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    // PT_LOAD, readable and writable.
    file.extend([1, 0, 0, 0, 6, 0, 0, 0]);
    for number in [CONTENT, start, 0, size, size, 1] {
        file.extend(number.to_le_bytes());
    }
    file.extend(content);
    file
}
