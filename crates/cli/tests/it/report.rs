//! `unspool report` and `unspool diff`, on profiles of a program that is built here; names and
//! lines are compared with addr2line's.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::Value;
use unspool_elf::ElfFile;
use unspool_profile::{
    CodeLocation, CpuState, FrameEvidence, Meta, ModuleKind, ProfileModule, ProfileProcess,
    ProfileRate, ProfileSample, ProfileThread, ProfileWriter, RawFrame, SampledEvent, StackEnd,
    Time, WeightUnit,
};
use unspool_rows::{CodeAddr, RuntimeAddr, Vaddr};
use unspool_testing::{Finish as _, Folder, RunningProgram, await_that, tool};

use crate::harness;
use crate::json;

/// What a tool prints.
pub(crate) fn run_tool(program: &str, arguments: &[&str]) -> String {
    tool(program).args(arguments).succeed()
}

fn build(folder: &Path) -> PathBuf {
    let program = folder.join("profiled");
    let source = &harness::source("profiled.c");
    let output = program.to_str().unwrap();
    let arguments = ["-g", "-O1", "-Wl,--build-id", source, "-o", output];
    run_tool("gcc", &arguments);
    program
}

/// The start of a function and its size in bytes.
pub(crate) fn symbol(program: &Path, name: &str) -> (u64, u64) {
    let table = run_tool("nm", &["-S", program.to_str().unwrap()]);
    let line = table
        .lines()
        .find(|line| line.ends_with(&format!(" {name}")));
    let mut words = line.unwrap().split(' ');
    let mut number = || u64::from_str_radix(words.next().unwrap(), 16).unwrap();
    (number(), number())
}

/// A profile of the program: for each stack, its functions from the innermost on, and its weight.
/// Each frame is a few bytes after the start of its function; one with a name ending in `_[s]` is
/// spliced.
fn record(path: &Path, program: &Path, stacks: &[(&[&str], u64)]) {
    let frame = |(n, name): (usize, &&str)| {
        let function = name.trim_end_matches("_[s]");
        let at = symbol(program, function).0 + 8;
        let evidence = match n {
            0 => FrameEvidence::Registers,
            _ if function == *name => FrameEvidence::Cfi,
            _ => FrameEvidence::Spliced,
        };
        (at, evidence)
    };
    let frames = |functions: &[&str]| functions.iter().enumerate().map(frame).collect();
    let stacks = stacks.iter();
    let stacks: Vec<_> = stacks
        .map(|(functions, weight)| (frames(functions), *weight))
        .collect();
    record_frames(path, program, &stacks);
}

/// The address and the evidence of each frame of a stack. Those after the first are return
/// addresses.
pub(crate) type RecordedStack = Vec<(u64, FrameEvidence)>;

/// The same with stacks of addresses, and their weights.
pub(crate) fn record_frames(path: &Path, program: &Path, stacks: &[(RecordedStack, u64)]) {
    let stacks = stacks.iter();
    let stacks = stacks.map(|(frames, weight)| (frames.clone(), *weight, CpuState::OnCpu));
    record_states(path, program, &stacks.collect::<Vec<_>>());
}

/// The same with the state of each sample.
pub(crate) fn record_states(
    path: &Path,
    program: &Path,
    stacks: &[(RecordedStack, u64, CpuState)],
) {
    let meta = Meta {
        command: vec!["./profiled".into()],
        host: "here".into(),
        kernel: "6.1".into(),
        arch: "x86_64".into(),
        tool: "a test".into(),
        event: SampledEvent {
            name: "cpu-clock".into(),
            rate: ProfileRate::Frequency(999),
            unit: WeightUnit::Nanoseconds,
        },
        started: 1_700_000_000_000_000_000,
        clock: Time(0),
    };
    let mut writer = ProfileWriter::new(fs::File::create(path).unwrap(), &meta).unwrap();
    let process = writer.process(&ProfileProcess {
        pid: 7,
        parent_pid: 1,
        start: Time(0),
        end: None,
        name: "profiled".into(),
    });
    let thread = writer.thread(&ProfileThread {
        process,
        tid: 7,
        start: Time(0),
        end: None,
        name: "profiled".into(),
    });
    let module = ProfileModule {
        kind: ModuleKind::File,
        path: program.into(),
        content: ElfFile::open(program).unwrap().content_key(),
        is_deleted: false,
        code: None,
    };
    for (time, (frames, weight, state)) in (0..).zip(stacks) {
        let frame = |(n, (at, evidence)): (usize, &(u64, FrameEvidence))| RawFrame {
            code: match n {
                0 => CodeAddr::Instruction(RuntimeAddr(*at)),
                _ => CodeAddr::Return(RuntimeAddr(*at)),
            },
            evidence: *evidence,
            arguments: None,
        };
        let frames: Vec<_> = frames.iter().enumerate().map(frame).collect();
        let stack = writer.stack(thread, &frames, |modules, at| {
            CodeLocation::Module(modules.id(&module), Vaddr(at.0))
        });
        let sample = ProfileSample {
            time: Time(time * 1_000_000),
            thread,
            cpu: 0,
            stack,
            weight: *weight,
            state: *state,
            end: StackEnd::EntryPoint,
        };
        writer.sample(&sample).unwrap();
    }
    writer.finish(Time(1_000_000_000)).unwrap();
}

const STACKS: [(&[&str], u64); 3] = [
    (&["leaf", "work", "work", "main"], 60_000_000),
    (&["leaf", "work", "main"], 30_000_000),
    (&["work", "main"], 10_000_000),
];

pub(crate) fn unspool(arguments: &[&str]) -> Output {
    harness::unspool().args(arguments).output().unwrap()
}

/// The standard output of a run that prints nothing to standard error.
pub(crate) fn clean(arguments: &[&str]) -> String {
    let output = harness::unspool().args(arguments).finish().ended_with(0);
    assert_eq!(output.err, "", "{arguments:?}");
    output.out
}

pub(crate) fn recorded() -> (Folder, PathBuf, String) {
    let folder = Folder::new();
    let program = build(&folder);
    let profile = folder.join("unspool.prof");
    record(&profile, &program, &STACKS);
    let path = profile.to_str().unwrap().to_owned();
    (folder, program, path)
}

/// 200 turns of two functions that call each other.
#[test]
fn recursion_is_folded_in_trees() {
    let folder = Folder::new();
    let program = build(&folder);
    let mut stack = ["leaf", "work"].repeat(200);
    stack.push("main");
    let profile = folder.join("deep.prof");
    record(&profile, &program, &[(&stack, 1_000_000)]);
    let text = clean(&["report", "--no-lines", profile.to_str().unwrap()]);
    let (_, tree) = text.split_once("callees\n").unwrap();
    let expected = "\
100.00 %           main  [profiled]
100.00 %           work  [profiled]
100.00 %           leaf  [profiled]
                   (the last 2 functions, 198 times more)
100.00 %           work  [profiled]
100.00 % 100.00 %  leaf  [profiled]
";
    assert_eq!(tree, expected);
}

#[test]
fn text_for_people() {
    let (_folder, _, profile) = recorded();
    let text = clean(&["report", "--no-lines", &profile]);
    let expected = "\
./profiled: cpu-clock at 999 Hz, on here (Linux 6.1 x86_64)
3 samples, 0.100 s
100 % of 3 stacks are complete

     own    total                function
 90.00 %  90.00 %  ███████████   leaf  [profiled]
 10.00 % 100.00 %  █             work  [profiled]
  0.00 % 100.00 %                main  [profiled]
";
    assert!(text.starts_with(expected), "{text}");
    let tree = "
   total      own  callees
100.00 %           main  [profiled]
100.00 %  10.00 %  work  [profiled]
 60.00 %             work  [profiled]
 60.00 %  60.00 %    leaf  [profiled]
 30.00 %  30.00 %    leaf  [profiled]
";
    assert!(text.ends_with(tree), "{text}");
    let callers = clean(&["report", "--no-lines", "--tree", "callers", &profile]);
    let tree = "
   total           callers
 90.00 %           leaf  [profiled]
 90.00 %           work  [profiled]
 60.00 %             work  [profiled]
 60.00 %             main  [profiled]
 30.00 %             main  [profiled]
 10.00 %           work  [profiled]
 10.00 %           main  [profiled]
";
    assert!(callers.ends_with(tree), "{callers}");
    let around = clean(&["report", "--no-lines", "--around", "work", &profile]);
    assert!(
        around.contains(
            "callers of work\n100.00 %           work  [profiled]\n100.00 %           main"
        ),
        "{around}"
    );
    assert!(
        around.contains(
            "callees of work\n100.00 %  10.00 %  work  [profiled]\n 60.00 %             work"
        ),
        "{around}"
    );
}

#[test]
fn lists_in_the_order_that_is_asked_for() {
    let (_folder, _, profile) = recorded();
    let names = |more: &[&str]| -> Vec<String> {
        let arguments = [
            &["report", "--no-lines", "--tree", "none"],
            more,
            &[&profile],
        ]
        .concat();
        let text = clean(&arguments);
        let rows = text
            .lines()
            .skip_while(|line| !line.contains("own    total"))
            .skip(1);
        rows.map(|row| row.split_whitespace().rev().nth(1).unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&[]), ["leaf", "work", "main"]);
    assert_eq!(names(&["--sort", "total"]), ["work", "main", "leaf"]);
    assert_eq!(names(&["--sort", "name"]), ["leaf", "main", "work"]);
    assert_eq!(names(&["--sort", "module"]), ["leaf", "work", "main"]);
    assert_eq!(names(&["--by", "process"]), ["profiled"]);
}

/// perf's words mean what they mean there, or a message says what is meant.
#[test]
fn what_users_of_perf_type() {
    let (folder, _, profile) = recorded();
    let report = |words: &[&str]| clean(&[&["report"], words, &[&*profile]].concat());
    let accepted = report(&["-g", "--stdio", "--no-children", "--percent-limit", "2"]);
    assert_eq!(accepted, report(&["--min-percent", "2"]));
    assert_eq!(report(&["--by", "dso"]), report(&["--by", "module"]));
    assert_eq!(
        report(&["--comm", "profiled"]),
        report(&["--thread", "profiled"])
    );
    let svg = folder.join("flame.svg");
    report(&["-o", svg.to_str().unwrap()]);
    let as_flamegraph = report(&["--format", "flamegraph"]);
    assert_eq!(fs::read_to_string(svg).unwrap(), as_flamegraph);
    let explained = [
        ("top", "`unspool record --live -p PID`"),
        ("bt", "`unspool stack PID`"),
        (
            "flamegraph",
            "`unspool report --format flamegraph -o flame.svg`",
        ),
        ("report --children", "`--sort total`"),
        ("report --sort symbol,dso", "`--by` chooses what is listed"),
        ("report --top=5", "`--min-percent PERCENT`"),
    ];
    let other = unspool(&["report", "--by", "module", "--format", "folded", &profile]);
    let said = String::from_utf8(other.stderr).unwrap();
    assert!(
        said.contains("other forms have stacks of functions"),
        "{said}"
    );
    for (typed, meant) in explained {
        let output = unspool(&typed.split(' ').collect::<Vec<_>>());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(said.matches("tip: ").count(), 1, "{said}");
        assert!(said.contains(&format!("tip: {meant}")), "{said}");
    }
}

/// An interpreter's functions have names only if it is told to give them frames.
#[test]
fn how_functions_of_python_get_names() {
    let (folder, program, profile) = recorded();
    let hint = "python3 -X perf";
    assert!(!clean(&["report", &profile]).contains(hint));
    // The file's name says what it is.
    let interpreter = folder.join("python3.99");
    fs::copy(program, &interpreter).unwrap();
    let profile = folder.join("python.prof");
    record(&profile, &interpreter, &STACKS);
    let report = clean(&["report", profile.to_str().unwrap()]);
    assert_eq!(report.matches(hint).count(), 1, "{report}");
}

/// Without a named file, the recordings in the folder are used, unspool's first.
#[test]
fn recordings_that_are_not_named() {
    let (folder, _, profile) = recorded();
    let run = |arguments: &[&str]| {
        harness::unspool()
            .args(arguments)
            .current_dir(&folder)
            .output()
            .unwrap()
    };
    for command in ["report", "script"] {
        let output = run(&[command]);
        assert_eq!(output.stdout, unspool(&[command, &profile]).stdout);
        assert!(
            output.status.success() && !output.stdout.is_empty(),
            "{output:?}"
        );
    }
    fs::copy(&profile, folder.join("unspool.prof.old")).unwrap();
    for arguments in [&["diff"][..], &["diff", "unspool.prof.old"]] {
        let output = run(arguments);
        assert!(
            output.status.success() && !output.stdout.is_empty(),
            "{output:?}"
        );
    }
    fs::rename(&profile, folder.join("perf.data")).unwrap();
    assert!(run(&["report"]).status.success());
    fs::remove_file(folder.join("perf.data")).unwrap();
    for command in ["report", "script"] {
        let output = run(&[command]);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.contains("record one with `unspool record CMD`"),
            "{said}"
        );
    }
}

/// The graph has the same root as the tree.
#[test]
fn flame_graphs_of_callers() {
    let (_folder, _, profile) = recorded();
    let graph = |tree: &str| {
        let arguments = [
            "--no-lines",
            "--format",
            "flamegraph",
            "--tree",
            tree,
            &profile,
        ];
        clean(&[&["report"], &arguments[..]].concat())
    };
    // inferno writes the frames of a path one after another, with their positions.
    let row = |svg: &str, title: &str| -> Vec<f64> {
        let groups = svg.split("<title>").skip(1);
        let of_title = groups.filter(|group| group.starts_with(title));
        let rows = of_title.map(|group| group.split(" y=\"").nth(1).unwrap().split('"').next());
        rows.map(|row| row.unwrap().parse().unwrap()).collect()
    };
    let (callees, callers) = (graph("callees"), graph("callers"));
    assert!(row(&callees, "leaf (")[0] < row(&callees, "main (")[0]);
    // 60 and 30 of 100 have different callers further out.
    assert!(
        callers.contains("<title>leaf (90,000,000 ns, 90.00%)"),
        "{callers}"
    );
    assert!(row(&callers, "leaf (")[0] < row(&callers, "main (")[0]);
    assert!(callers.contains("inverted = true"));
}

/// Names and lines are those of addr2line, inlined functions included.
#[test]
fn names_and_lines_are_those_of_addr2line() {
    let (folder, program, _) = recorded();
    let (start, size) = symbol(&program, "leaf");
    let (profile, out) = (folder.join("leaf.prof"), folder.join("speedscope.json"));
    let meta = Meta::default();
    let mut writer = ProfileWriter::new(fs::File::create(&profile).unwrap(), &meta).unwrap();
    let process = ProfileProcess {
        pid: 1,
        parent_pid: 0,
        start: Time(0),
        end: None,
        name: "p".into(),
    };
    let process = writer.process(&process);
    let thread = ProfileThread {
        process,
        tid: 1,
        start: Time(0),
        end: None,
        name: "p".into(),
    };
    let thread = writer.thread(&thread);
    let module = ProfileModule {
        kind: ModuleKind::File,
        path: program.clone(),
        content: None,
        is_deleted: false,
        code: None,
    };
    for address in start..start + size {
        let code = CodeAddr::Instruction(RuntimeAddr(address));
        let frame = RawFrame {
            code,
            evidence: FrameEvidence::Registers,
            arguments: None,
        };
        let place = |modules: &mut unspool_profile::ModuleInterner, at: RuntimeAddr| {
            CodeLocation::Module(modules.id(&module), Vaddr(at.0))
        };
        let stack = writer.stack(thread, &[frame], place);
        let (time, state, end) = (Time(address), CpuState::OnCpu, StackEnd::Outermost);
        writer
            .sample(&ProfileSample {
                time,
                thread,
                cpu: 0,
                stack,
                weight: 1,
                state,
                end,
            })
            .unwrap();
    }
    writer.finish(Time(0)).unwrap();
    let text = clean(&["report", "--as", "perf-script", profile.to_str().unwrap()]);
    let names = |sample: &str| -> Vec<String> {
        let lines = sample.lines().skip(1);
        lines
            .map(|line| {
                line.split_whitespace()
                    .nth(1)
                    .unwrap()
                    .split('+')
                    .next()
                    .unwrap()
                    .to_owned()
            })
            .collect()
    };
    let ours: Vec<Vec<String>> = text.split_terminator("\n\n").map(names).collect();
    let addresses: Vec<String> = (start..start + size).map(|a| format!("{a:#x}")).collect();
    let mut arguments = vec!["-f", "-i", "-a", "-e", program.to_str().unwrap()];
    arguments.extend(addresses.iter().map(String::as_str));
    let theirs = run_tool("addr2line", &arguments);
    let theirs = theirs.split("0x00").skip(1).map(|address| {
        let lines = address.lines().skip(1).step_by(2);
        lines.map(str::to_owned).collect::<Vec<_>>()
    });
    assert_eq!(ours, theirs.collect::<Vec<_>>());
    assert!(ours.iter().any(|names| names == &["inlined", "leaf"]));

    // speedscope has the file, too.
    let path = out.to_str().unwrap();
    clean(&[
        "report",
        "--as",
        "speedscope",
        "-o",
        path,
        profile.to_str().unwrap(),
    ]);
    let file: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    let frames = file["shared"]["frames"].as_array().unwrap();
    assert!(
        frames
            .iter()
            .all(|f| f["file"].as_str().unwrap().ends_with("profiled.c"))
    );
}

#[test]
fn filters_and_forms() {
    let (folder, program, profile) = recorded();
    let folded = clean(&["report", "--as", "folded", "--no-lines", &profile]);
    let all = "profiled;main;work 10000000\nprofiled;main;work;leaf 30000000\n\
               profiled;main;work;work;leaf 60000000\n";
    assert_eq!(folded, all);
    let folded = |more: &[&str]| {
        let arguments = [
            &["report", "--as", "folded", "--no-lines"],
            more,
            &[&profile],
        ]
        .concat();
        clean(&arguments)
    };
    assert_eq!(
        folded(&["--function", "^le.f$", "--to", "0.001"]),
        "profiled;main;work;work;leaf 60000000\n"
    );
    assert_eq!(
        folded(&["--from", "0.002"]),
        "profiled;main;work 10000000\n"
    );
    assert_eq!(
        folded(&[
            "--thread",
            "profiled",
            "--process",
            "7",
            "--module",
            "profiled"
        ]),
        all
    );
    // The older spellings are accepted.
    assert_eq!(folded(&["--since", "0.002"]), folded(&["--from", "0.002"]),);
    for (nothing, why) in [
        (
            &["--thread", "8"][..],
            "no sample passes --thread 8: there are profiled (7)",
        ),
        (
            &["--process", "init", "--module", "profiled"],
            "no sample passes --process init: there are profiled (7)",
        ),
        (
            &["--since", "0.5"],
            "no sample passes --since, --until: the samples are from 0.000 s to 0.002 s",
        ),
        (
            &["--module", "libc.so.6"],
            "no sample passes --module libc.so.6: name a file without its folder",
        ),
        (&["--function", "^x"], "no sample passes --function ^x\n"),
        (
            &["--function", "leaf", "--since", "0.002"],
            "no sample passes all of --since, --until, --function leaf: leave one out",
        ),
        (
            &["--state", "off"],
            "no sample is off a CPU: `unspool record --off-cpu` records them",
        ),
    ] {
        let arguments = [&["report", "--format", "folded"], nothing, &[&profile]].concat();
        let output = unspool(&arguments);
        assert_eq!(output.status.code(), Some(1), "{nothing:?}");
        assert!(output.stdout.is_empty());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(why), "{said}");
        let differ = [&["diff"], nothing, &[&profile, &profile]].concat();
        assert_eq!(unspool(&differ).status.code(), Some(1), "{nothing:?}");
    }
    let empty = folder.join("empty.prof");
    record(&empty, &program, &[]);
    let output = unspool(&["report", empty.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.ends_with("`unspool record --off-cpu` shows where it waits\n"),
        "{said}"
    );
    let json = json::document(clean(&["report", "--as", "json", "--no-lines", &profile]));
    assert_eq!(json["schema"], "unspool.report");
    assert_eq!(json["weight"], 100_000_000);
    assert_eq!(json["completeness"]["complete"], 3);
    let leaf = &json["functions"][0];
    assert_eq!(
        (&leaf["function"], &leaf["self_weight"]),
        (&"leaf".into(), &90_000_000.into())
    );
    assert_eq!(folded_of(&json), all);
    let tree = json["tree"].as_array().unwrap();
    assert_eq!(tree.len(), 4, "the root, main and work, two ways to leaf");
    for form in [
        "html",
        "flamegraph",
        "pprof",
        "firefox",
        "speedscope",
        "perf-script",
    ] {
        let out = folder.join(form);
        clean(&[
            "report",
            "--as",
            form,
            "-o",
            out.to_str().unwrap(),
            &profile,
        ]);
        assert!(fs::metadata(out).unwrap().len() > 100, "{form}");
    }
}

/// The folded stacks of a JSON report's call tree, with samples of the thread `profiled`.
fn folded_of(json: &Value) -> String {
    let tree = json["tree"].as_array().unwrap();
    let place = |number: &Value| usize::try_from(number.as_u64().unwrap()).unwrap();
    let mut lines: Vec<String> = Vec::new();
    let mut folded = Vec::new();
    for node in tree {
        let mut line = match &node["parent"] {
            Value::Null => "profiled".to_owned(),
            parent => lines[place(parent)].clone(),
        };
        for function in node["functions"].as_array().unwrap() {
            let function = &json["functions"][place(function)];
            line.push(';');
            line.push_str(function["function"].as_str().unwrap());
            match node["certainty"].as_str().unwrap() {
                "spliced" => line.push_str("_[s]"),
                certainty => assert_eq!(certainty, "certain"),
            }
        }
        if node["self_weight"] != 0 {
            folded.push(format!("{line} {}\n", node["self_weight"]));
        }
        lines.push(line);
    }
    folded.sort();
    folded.concat()
}

/// All functions of a tree node have the same mark.
#[test]
fn the_tree_of_a_json_report_has_the_folded_stacks() {
    let folder = Folder::new();
    let program = build(&folder);
    let profile = folder.join("profile");
    let stacks: [(&[&str], u64); 5] = [
        (&["leaf", "work", "work_[s]", "main_[s]"], 70),
        (&["work", "main_[s]"], 5),
        (&["leaf", "main"], 20),
        (&["main"], 3),
        (&[], 1),
    ];
    record(&profile, &program, &stacks);
    let profile = profile.to_str().unwrap();
    let report = |form: &str| clean(&["report", "--as", form, "--no-lines", profile]);
    let json = json::document(report("json"));
    assert_eq!(folded_of(&json), report("folded"));
    let tree = json["tree"].as_array().unwrap();
    let totals: Vec<_> = tree
        .iter()
        .map(|node| node["total_weight"].as_u64())
        .collect();
    // The root, `main` spliced with `work` spliced and its callees, `work`; `main`, `leaf`.
    assert_eq!(totals, [99, 75, 70, 70, 5, 23, 20].map(Some));
    // The text has a function once below its caller: once in the list, and once in the tree.
    let text = report("text");
    assert_eq!(text.matches("  main  [").count(), 2, "{text}");
    assert!(
        !text.contains("_[s]") && text.contains(" 98.99 %   3.03 %  main  ["),
        "{text}"
    );
    let text = report("json");
    let rows = text.lines().filter(|line| line.contains("\"parent\""));
    assert_eq!(rows.count(), tree.len(), "a line for each");
}

#[test]
fn differences() {
    let (folder, program, before) = recorded();
    let after = folder.join("after.prof");
    record(
        &after,
        &program,
        &[
            (&["leaf", "work", "main"], 500_000),
            (&["work", "main"], 500_000),
        ],
    );
    let after = after.to_str().unwrap();
    let text = clean(&["diff", "--no-lines", &before, after]);
    let expected = "before 0.100 s, after 0.001 s: -99.00 %

     own  before    after       before        after     total  function
 -40.00 % 90.00 %  50.00 %      0.090 s      0.000 s   -40.00 %  leaf  [profiled]
 +40.00 % 10.00 %  50.00 %      0.010 s      0.000 s    +0.00 %  work  [profiled]
  and 1 more that change by less than 0.1 %
";
    assert_eq!(text, expected);
    let json = clean(&["diff", "--as", "json", "--no-lines", &before, after]);
    let json = json::document(json);
    assert_eq!(json["functions"][0]["self_percent"]["after"], 50.0);
    let svg = clean(&["diff", "--as", "flamegraph", "--no-lines", &before, after]);
    // `leaf` below the first `work` had 30 % and has 50; `work` itself had 10.
    assert!(svg.contains("leaf (500,000 ns, 50.00%; +20.00%)"), "{svg}");
    assert!(
        svg.contains("work (1,000,000 ns, 100.00%; +40.00%)"),
        "{svg}"
    );
}

#[test]
fn unusable_files_are_reported() {
    let (folder, program, profile) = recorded();
    let fails = |arguments: &[&str]| {
        let output = unspool(arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    let text = folder.join("text");
    fs::write(&text, "no profile at all").unwrap();
    let error = fails(&["report", text.to_str().unwrap()]);
    assert!(
        error.contains("nor a recording of perf (PERFILE2): it starts with \"no profi\""),
        "{error}"
    );
    assert!(
        error.ends_with("name the recording itself (perf.data)\n"),
        "{error}"
    );
    fs::write(&text, "").unwrap();
    let empty = fails(&["report", text.to_str().unwrap()]);
    assert!(empty.ends_with("text: the file is empty\n"), "{empty}");
    let directory = fails(&["report", folder.to_str().unwrap()]);
    assert!(
        directory.ends_with(": a folder, not a regular file\n"),
        "{directory}"
    );
    assert!(fails(&["report", "/nonexistent"]).contains("/nonexistent: No such file"));
    assert!(fails(&["report", "--function", "(", &profile]).contains("--function"));
    assert!(fails(&["report", "--around", "nobody", &profile]).ends_with("named `nobody`\n"));
    let near = fails(&["report", "--around", "WOR", &profile]);
    assert!(near.ends_with("named `WOR`; there is `work`\n"), "{near}");

    // Truncated: the valid part is shown, with a notice.
    let bytes = fs::read(&profile).unwrap();
    let cut = folder.join("cut");
    fs::write(&cut, &bytes[..bytes.len() - 3]).unwrap();
    let output = unspool(&["report", "--as", "folded", cut.to_str().unwrap()]);
    assert!(output.status.code() == Some(1) && !output.stdout.is_empty());
    let notice = String::from_utf8(output.stderr).unwrap();
    assert!(notice.contains("is whole up to offset"), "{notice}");
    let cut = cut.to_str().unwrap();
    for arguments in [["diff", &profile, cut], ["diff", cut, &profile]] {
        assert_eq!(unspool(&arguments).status.code(), Some(1));
    }

    // Another program at the same path provides no names.
    let source = folder.join("other.c");
    fs::write(&source, "int main(void) { return 0; }").unwrap();
    let paths = [source.to_str().unwrap(), "-o", program.to_str().unwrap()];
    run_tool("gcc", &paths);
    let output = unspool(&["report", "--as", "folded", &profile]);
    let notice = String::from_utf8(output.stderr).unwrap();
    assert!(notice.contains("was mapped; it is not used"), "{notice}");
    let folded = String::from_utf8(output.stdout).unwrap();
    assert!(
        folded.starts_with("profiled;[profiled];[profiled]"),
        "{folded}"
    );
}

/// On a terminal, a name is cut if its line would be too long.
#[test]
fn lines_fit_the_terminal() {
    let (folder, _, profile) = recorded();
    let unspool = env!("CARGO_BIN_EXE_unspool");
    let run = |columns: u32| {
        let command =
            format!("stty rows 24 cols {columns}; exec {unspool} report --no-lines {profile}");
        let output = tool("script")
            .args(["--quiet", "--return", "--command", &command, "/dev/null"])
            .current_dir(&folder)
            .output()
            .unwrap_or_else(|error| {
                panic!("cannot run script: {error}; install the Debian package bsdutils")
            });
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let rows = |text: &str| -> Vec<String> {
        let rows = text
            .lines()
            .map(str::trim_end)
            .filter(|line| line.ends_with(['…', ']']));
        rows.map(ToOwned::to_owned).collect()
    };
    let (wide, narrow) = (rows(&run(200)), rows(&run(42)));
    assert_eq!(wide.len(), narrow.len());
    assert!(
        wide.iter().any(|line| line.chars().count() > 42),
        "{wide:?}"
    );
    for (wide, narrow) in wide.iter().zip(&narrow) {
        if wide.chars().count() <= 42 {
            assert_eq!(wide, narrow);
        } else {
            // The middle is left out, not the module.
            assert!(
                narrow.contains('…') && narrow.ends_with(']') && narrow.chars().count() == 42,
                "{narrow}"
            );
        }
    }
}

/// `unspool report … | head -1` is not an error.
#[test]
fn a_closed_pipe_is_accepted() {
    let (_folder, _, profile) = recorded();
    let mut child = harness::unspool()
        .args(["report", "--as", "firefox", &profile])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty());
}

/// Functions whose symbols differ from their short names in debug information.
const HIDDEN: &str = "\
namespace app {
int a(int n) { auto f = [](int n) { return n + 1; }; return f(n); }
int b(int n) { auto f = [](int n) { return n + 2; }; return f(n); }
namespace { struct Worker { int run(int n) const { return n; } }; }
int work(int n) { return Worker().run(n); }
}
int main() { return app::a(1) + app::b(2) + app::work(3); }
";

#[test]
fn a_function_has_one_name_whatever_is_known_of_it() {
    const FUNCTIONS: [&str; 3] = [
        "_ZZN3app1aEiENKUliE_clEi",
        "_ZZN3app1bEiENKUliE_clEi",
        "_ZNK3app12_GLOBAL__N_16Worker3runEi",
    ];
    let folder = Folder::new();
    let (source, program) = (folder.join("hidden.cpp"), folder.join("hidden"));
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    fs::write(&source, HIDDEN).unwrap();
    let (input, output) = (path(&source), path(&program));
    let arguments = ["-g", "-O0", "-Wl,--build-id", &input, "-o", &output];
    run_tool("g++", &arguments);
    let starts = FUNCTIONS.map(|name| symbol(&program, name).0);
    let profile = path(&folder.join("unspool.prof"));
    let stacks = FUNCTIONS.each_ref().map(|name| [*name, "main"]);
    let stacks = stacks.each_ref().map(|stack| (&stack[..], 10));
    record(Path::new(&profile), &program, &stacks);
    let functions = |arguments: &[&str]| {
        let arguments = [&["report", &profile, "--format", "json"], arguments].concat();
        let printed = unspool(&arguments).stdout;
        let json = json::document(printed);
        let all = json["functions"].as_array().unwrap().iter();
        let mut names: Vec<_> = (all.map(|one| one["function"].as_str().unwrap().to_owned()))
            .filter(|name| name != "main")
            .collect();
        names.sort();
        names
    };
    let mut expected = FUNCTIONS.map(|name| {
        let readable = run_tool("c++filt", &[name]);
        readable.trim().to_owned()
    });
    expected.sort();
    assert_eq!(functions(&[]), expected);
    assert_eq!(functions(&["--no-lines"]), expected);

    // Without symbols, there are as many.
    run_tool("strip", &[&output]);
    let unnamed = starts.map(|start| format!("hidden+{start:#x}"));
    let without = functions(&[]);
    assert!(
        unnamed.iter().all(|name| without.contains(name)),
        "{without:?}"
    );
}

/// Whoever made a recording gains nothing of root's from a fault of its reader.
/// Root names files of other users' processes, which are open to root only by a capability.
#[test]
fn files_of_processes_can_be_named() {
    let mut sleep = tool("sleep");
    sleep.arg("60");
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        sleep.uid(65_533);
    }
    let sleep = RunningProgram::start(&mut sleep);
    let executable = format!("/proc/{}/exe", sleep.pid());
    let library = format!(
        "/proc/{}/root/usr/lib/x86_64-linux-gnu/libdl.so.2",
        sleep.pid()
    );
    for command in ["show", "stats", "check"] {
        for file in [&executable, &library] {
            let output = harness::unspool().args([command, file]).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert_ne!(output.status.code(), Some(2), "{command} {file}: {text}");
        }
    }
}

#[test]
fn recordings_are_read_without_privileges() {
    // CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_SYSLOG.
    const KEPT: u64 = 0xe | 1 << 34;
    let folder = Folder::new();
    folder.tool("mkfifo", "pipe");
    // Never ends, since it is also open for writing.
    let pipe = folder.join("pipe");
    let _pipe = File::options().read(true).write(true).open(pipe).unwrap();
    for command in ["report", "script"] {
        let mut reader = harness::unspool_in(&folder, &[command, "pipe"]);
        let reader = RunningProgram::start(&mut reader);
        await_that("a reader without privileges", || {
            let status = fs::read_to_string(format!("/proc/{}/status", reader.pid())).unwrap();
            let field = |name| {
                status
                    .lines()
                    .find_map(|line| line.strip_prefix(name))
                    .unwrap()
            };
            let held = u64::from_str_radix(field("CapPrm:").trim(), 16).unwrap();
            field("NoNewPrivs:").trim() == "1" && held & !KEPT == 0
        });
    }
}
