//! `unspool gdb`: it finds the frames that plain gdb loses, and changes no others.
#![cfg(target_arch = "x86_64")]

use unspool_testing::{Finish as _, RunningProgram, TextOutput, command, sample, tool};
use xtask::bad_frames::{BadFramesProgram, cases};

use crate::harness::{self, TestFolder, source};

/// The program has no variables of its environment: with others its stack would be elsewhere.
const PLAIN: &[&str] = &[
    "-batch",
    "-nx",
    "-iex",
    "set debuginfod enabled off",
    "-iex",
    "set exec-wrapper env -i",
];

/// The output of plain gdb, and that of `unspool gdb`, for the same arguments.
fn both(folder: &TestFolder, arguments: &[&str]) -> [TextOutput; 2] {
    let mut plain = tool("gdb");
    plain.args(PLAIN).args(arguments).current_dir(folder.path());
    let mut ours = harness::unspool();
    ours.arg("gdb").args(PLAIN).args(arguments);
    ours.current_dir(folder.path());
    [plain.finish(), ours.finish()]
}

/// The function of each frame of the longest stack that is printed, and its mark.
fn functions(output: &TextOutput) -> Vec<&str> {
    let (mut longest, mut stack) = (Vec::new(), Vec::new());
    for line in output.out.lines().filter(|line| line.starts_with('#')) {
        if line.starts_with("#0 ") {
            stack.clear();
        }
        if line.starts_with(&format!("#{} ", stack.len())) {
            stack.push(line);
        }
        if stack.len() > longest.len() {
            longest.clone_from(&stack);
        }
    }
    let function = longest.into_iter().map(|line| {
        let rest = line.split_once(" in ").map_or(line, |(_, rest)| rest);
        let rest = rest.trim_start_matches(|c: char| c == '#' || c == ' ' || c.is_ascii_digit());
        rest.split_once(" (").map_or(rest, |(name, _)| name)
    });
    function.collect()
}

/// The same from a function on, whatever its mark.
fn functions_from<'o>(first: &str, output: &'o TextOutput) -> Vec<&'o str> {
    let chain = functions(output).into_iter();
    chain.skip_while(|name| !name.starts_with(first)).collect()
}

/// The addresses of all frames.
fn addresses(output: &TextOutput) -> Vec<&str> {
    let lines = output.out.lines();
    lines.filter(|line| line.starts_with("frame ")).collect()
}

/// Stops in `stopped`, and shows the stack, two registers that `main` had set, and the counts.
const STOPPED: &[&str] = &[
    "-ex",
    "break stopped",
    "-ex",
    "run",
    "-ex",
    "bt",
    "-ex",
    "frame function main",
    "-ex",
    "print $rbx",
    "-ex",
    "print $r12",
    "-ex",
    "unspool status",
    "program",
];

#[test]
fn rows_are_made_for_nasm_without_a_table() {
    let folder = TestFolder::new();
    folder.tool(
        "nasm",
        &format!("-felf64 {} -o outer.o", source("no_table.asm")),
    );
    let main = source("keeps_registers.c");
    folder.tool(
        "gcc",
        &format!("-O1 -mno-red-zone {main} outer.o -o program"),
    );
    let [plain, ours] = both(&folder, STOPPED);
    let expected = [
        "stopped",
        "inner",
        "middle [synthesized]",
        "outer [synthesized]",
        "main [synthesized]",
    ];
    assert_eq!(functions(&ours), expected, "{ours}");
    assert!(ours.out.contains("= 4369\n$2 = 8738\n"), "{ours}");
    assert!(
        ours.out
            .contains("unspool is on\n  frames by synthesized: 3\n"),
        "{ours}"
    );
    let names = functions(&plain);
    assert_ne!(
        names,
        ["stopped", "inner", "middle", "outer", "main"],
        "{plain}"
    );
}

#[test]
fn refuted_rows_are_repaired() {
    let folder = TestFolder::new();
    let sources = format!("{} {}", source("keeps_registers.c"), source("wrong_rows.s"));
    folder.tool("gcc", &format!("-O1 -mno-red-zone {sources} -o program"));
    let [plain, ours] = both(&folder, STOPPED);
    assert_eq!(
        functions(&ours),
        ["stopped", "outer", "main [repaired]"],
        "{ours}"
    );
    assert!(ours.out.contains("= 4369\n$2 = 8738\n"), "{ours}");
    assert_ne!(functions(&plain), ["stopped", "outer", "main"], "{plain}");
    // Each can be switched off.
    let mut off = vec!["-ex", "unspool off"];
    off.extend(STOPPED);
    let [_, off] = both(&folder, &off);
    assert_eq!(functions(&off), functions(&plain), "{off}");
}

/// Code in memory without a file, and its name in a perf map; in the process and in its core.
#[test]
fn code_made_at_run_time_has_callers_and_names() {
    let folder = TestFolder::new();
    folder.tool("gcc", &format!("-O1 {} -o program", source("jit.c")));
    let mut program = RunningProgram::start(&mut command(folder.path().join("program")));
    program.await_ready();
    program.await_state('S');
    let pid = program.pid().to_string();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let made = maps
        .lines()
        .find(|line| line.contains(" rwxp 00000000 00:00 0"))
        .unwrap();
    let start = made.split('-').next().unwrap();
    let map = format!("/tmp/perf-{pid}.map");
    std::fs::write(&map, format!("{start} 16 made::here\n")).unwrap();
    let [plain, ours] = both(&folder, &["-p", &pid, "-ex", "bt", "-ex", "gcore core"]);
    std::fs::remove_file(&map).unwrap();
    assert_eq!(
        functions_from("waits", &ours),
        ["waits", "made::here", "calls [exit path]", "main"],
        "{ours}"
    );
    assert!(!functions(&plain).contains(&"made::here"), "{plain}");
    let [_, core] = both(&folder, &["program", "core", "-ex", "bt"]);
    assert_eq!(
        functions_from("waits", &core),
        ["waits", "??", "calls [exit path]", "main"],
        "{core}"
    );
}

/// Wherever a damaged stack leads, gdb's own frames stay. Where a table lies, the code's row leads on.
#[test]
fn damaged_stacks_are_those_of_gdb() {
    let folder = TestFolder::new();
    let program = BadFramesProgram::build(folder.path().join("program")).unwrap();
    let script = "python\nf = gdb.newest_frame()\nfor _ in range(40):\n  if f is None: break\n  \
                  print('frame', hex(f.pc()))\n  f = f.older()\nend\n";
    folder.write("addresses.gdb", script);
    let mut repaired = 0;
    // gdb 13 itself never ends where an expression does not, and dies of an entry that goes back.
    let is_bad = |name: &str| name.contains("endless") || name == "entry_goes_back";
    let all = cases::ALL.iter().filter(|case| !is_bad(case.name));
    for case in sample(all, 4) {
        let run = format!("run {} die", case.name);
        // Some of the addresses are of the stack, which begins with the environment.
        let arguments = [
            "-ex",
            "unset environment",
            "-ex",
            &run,
            "-x",
            "addresses.gdb",
            "-ex",
            "bt 40",
            "program",
        ];
        let [plain, ours] = both(&folder, &arguments);
        assert!(!addresses(&plain).is_empty(), "{}: {plain}", case.name);
        // gdb gives up where it cannot evaluate a row.
        let gives_up = plain.err.contains("gdb.error");
        let goes_on = gives_up && addresses(&ours).starts_with(&addresses(&plain));
        if addresses(&plain) != addresses(&ours) && !goes_on {
            assert!(
                ours.out.contains(" [repaired]") && ours.out.contains(" main "),
                "{}: {plain}{ours}",
                case.name
            );
            repaired += 1;
        }
    }
    assert!(repaired < cases::ALL.len() / 4, "{repaired}");
    drop(program);
}

/// Where tables are right, stacks are printed as without us.
#[test]
fn stacks_with_right_tables_are_the_same() {
    let folder = TestFolder::new();
    let programs = [
        ("handler", "pause", "handler.c"),
        ("realigned", "pause", "realigned.c"),
        ("recursion", "pause", "recursion.c"),
    ];
    for (name, at, file) in programs {
        folder.tool("gcc", &format!("-O1 -g -w {} -o {name}", source(file)));
        let stop = format!("break {at}");
        let [plain, ours] = both(
            &folder,
            &["-ex", &stop, "-ex", "run", "-ex", "bt 100", name],
        );
        assert!(functions(&plain).len() > 2, "{plain}");
        assert_eq!(plain.out, ours.out, "{name}");
        assert_eq!(plain.err, ours.err, "{name}");
    }
}

#[test]
fn other_front_ends_load_the_file() {
    let folder = TestFolder::new();
    let unwinder = folder.done("gdb --print-unwinder");
    folder.write("unspool_gdb.py", &unwinder);
    let mut gdb = tool("gdb");
    gdb.args([
        "-batch",
        "-nx",
        "-x",
        "unspool_gdb.py",
        "-ex",
        "unspool status",
    ]);
    let said = gdb.current_dir(folder.path()).finish();
    assert_eq!(said.out, "unspool is on\n", "{said}");
    // A child that cannot be started is reported once, and frames are gdb's.
    let main = source("keeps_registers.c");
    let sources = format!("{main} {}", source("wrong_rows.s"));
    folder.tool("gcc", &format!("-O1 -mno-red-zone {sources} -o program"));
    let mut gdb = tool("gdb");
    gdb.args([
        "-batch",
        "-nx",
        "-ex",
        "python unspool_program = '/none/such'",
    ]);
    gdb.args(["-x", "unspool_gdb.py"]).args(STOPPED);
    let said = gdb.current_dir(folder.path()).finish();
    assert_eq!(said.err.matches("unspool: ").count(), 1, "{said}");
    assert!(said.out.contains("unspool is off: "), "{said}");
}
