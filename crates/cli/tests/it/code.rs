//! `unspool report --disasm` and `--source`, compared with objdump's instructions, addr2line's
//! lines and the counts of `perf annotate`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use unspool_profile::FrameEvidence;
use unspool_testing::{Finish as _, Folder, hex, tool};

use crate::harness;
use crate::json;
use crate::report::{clean, record_frames, recorded, run_tool, symbol, unspool};

/// The addresses of a function's instructions, by objdump.
fn instructions(program: &Path, function: &str) -> Vec<u64> {
    let only = format!("--disassemble={function}");
    let text = run_tool(
        "objdump",
        &["-d", "--no-show-raw-insn", &only, program.to_str().unwrap()],
    );
    let lines = text
        .lines()
        .filter_map(|line| line.trim().split_once(":\t"));
    lines.map(|(address, _)| hex(address)).collect()
}

/// The lines at an address by addr2line: function and line, the innermost first.
fn lines(program: &Path, address: u64) -> Vec<(String, u64)> {
    let address = format!("{address:#x}");
    let text = run_tool(
        "addr2line",
        &["-f", "-i", "-e", program.to_str().unwrap(), &address],
    );
    let text: Vec<&str> = text.lines().collect();
    let line = |place: &str| {
        let line = place.rsplit(':').next().unwrap().split(' ').next().unwrap();
        line.parse().unwrap()
    };
    text.chunks(2)
        .map(|pair| (pair[0].to_owned(), line(pair[1])))
        .collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

/// A profile with a different number of samples at each third instruction of `leaf`, called by
/// `work`, and the sampled addresses.
fn sampled(folder: &Folder, program: &Path) -> (String, BTreeMap<u64, u64>) {
    let all = instructions(program, "leaf");
    let sampled: BTreeMap<u64, u64> = all.iter().copied().step_by(3).zip(1..).collect();
    let call = symbol(program, "work").0 + 12;
    let stacks: Vec<_> = (sampled.iter())
        .flat_map(|(address, count)| std::iter::repeat_n(*address, index(*count)))
        .map(|address| {
            let frames = [
                (address, FrameEvidence::Registers),
                (call, FrameEvidence::Cfi),
            ];
            (frames.to_vec(), 1_000_000)
        })
        .collect();
    let path = folder.join("leaf.prof");
    record_frames(&path, program, &stacks);
    (path.to_str().unwrap().to_owned(), sampled)
}

#[test]
fn instructions_are_those_of_objdump_with_the_samples() {
    let (folder, program, _) = recorded();
    let (profile, sampled) = sampled(&folder, &program);
    let report = clean(&["report", "--format", "json", "--disasm", "leaf", &profile]);
    let report = json::document(report);
    let [function] = report["functions"].as_array().unwrap().as_slice() else {
        panic!("{report}");
    };
    let listed = function["instructions"].as_array().unwrap();
    let address = |instruction: &Value| hex(instruction["address"].as_str().unwrap());
    let addresses: Vec<u64> = listed.iter().map(address).collect();
    assert_eq!(addresses, instructions(&program, "leaf"));
    let (start, size) = symbol(&program, "leaf");
    assert_eq!(hex(function["start"].as_str().unwrap()), start);
    assert_eq!(hex(function["end"].as_str().unwrap()), start + size);
    for instruction in listed {
        let at = address(instruction);
        let samples = sampled.get(&at).copied().unwrap_or(0);
        assert_eq!(number(&instruction["samples"]), samples, "{at:#x}");
        assert_eq!(
            number(&instruction["self_weight"]),
            samples * 1_000_000,
            "{at:#x}"
        );
        let frames = &function["locations"][index(number(&instruction["location"]))];
        let frames = frames.as_array().unwrap().iter().map(|frame| {
            (
                frame["function"].as_str().unwrap().to_owned(),
                number(&frame["line"]),
            )
        });
        assert_eq!(frames.collect::<Vec<_>>(), lines(&program, at), "{at:#x}");
        if let Some(target) = instruction["target"].as_u64() {
            let to = format!(" {:#x}", addresses[index(target)]);
            assert!(instruction["text"].as_str().unwrap().ends_with(&to));
        }
    }
    assert!(
        listed
            .iter()
            .any(|instruction| instruction["target"].is_u64())
    );

    let text = clean(&["report", "--disasm", "leaf", &profile]);
    let (first, count) = sampled.first_key_value().unwrap();
    let of_first = text
        .lines()
        .find(|line| line.contains(&format!("  {first:>7x} ")));
    assert_eq!(
        of_first.unwrap().split_whitespace().nth(2),
        Some(&*count.to_string())
    );
    for part in ["profiled.c:11  sink++;", "(inlined: inlined)", "▸", "└─"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // A call has the callee's name. `work` has no own samples, so all of it is shown.
    let text = clean(&["report", "--disasm", "work", &profile]);
    assert!(
        text.contains("call leaf") && !text.contains("without samples"),
        "{text}"
    );
    let inlined = unspool(&["report", "--disasm", "inlined", &profile]);
    let said = String::from_utf8(inlined.stderr).unwrap();
    assert!(said.contains("inlined into `leaf`"), "{said}");
}

#[test]
fn source_lines_have_the_samples_of_their_instructions() {
    let (folder, program, _) = recorded();
    let (profile, sampled) = sampled(&folder, &program);
    for function in ["leaf", "inlined", "work"] {
        // Own and total weight of each line, in samples.
        let mut expected: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (address, count) in &sampled {
            let mut stack = lines(&program, *address);
            stack.extend(lines(&program, symbol(&program, "work").0 + 11));
            for (at, (_, line)) in stack.iter().enumerate().filter(|(_, it)| it.0 == function) {
                let weight = expected.entry(*line).or_default();
                weight.0 += if at == 0 { *count } else { 0 };
                weight.1 += count;
            }
        }
        let report = clean(&["report", "--format", "json", "--source", function, &profile]);
        let report = json::document(report);
        let source = fs::read_to_string(harness::source("profiled.c")).unwrap();
        let source: Vec<&str> = source.lines().collect();
        let listed = report["functions"][0]["lines"].as_array().unwrap();
        let listed = listed.iter().map(|line| {
            let number_of = number(&line["line"]);
            assert_eq!(line["text"], source[index(number_of) - 1]);
            let weight = |field: &str| number(&line[field]) / 1_000_000;
            assert_eq!(weight("self_weight"), number(&line["samples"]));
            (number_of, (weight("self_weight"), weight("total_weight")))
        });
        assert_eq!(listed.collect::<BTreeMap<_, _>>(), expected, "{function}");
    }
    let text = clean(&["report", "--source", "work", &profile]);
    let source = fs::read_to_string(harness::source("profiled.c")).unwrap();
    let (_, line) = lines(&program, symbol(&program, "work").0 + 11).remove(0);
    let call = source.lines().nth(index(line) - 1).unwrap();
    let row = format!("100.00 % {line:>8}  {call}");
    assert!(text.contains(&row), "{row}: {text}");
}

/// Builds a program whose debug information names this file for its lines, and profiles it.
fn naming(folder: &Folder, source: &str) -> (PathBuf, String) {
    let text = format!("# 1 \"{source}\"\nint main(void) {{ return 0; }}\n");
    let path = folder.write("named.c", text);
    let program = folder.join("named");
    run_tool(
        "gcc",
        &[
            "-g",
            path.to_str().unwrap(),
            "-o",
            program.to_str().unwrap(),
        ],
    );
    let profile = folder.join("named.prof");
    let at = symbol(&program, "main").0 + 4;
    let stacks = [(vec![(at, FrameEvidence::Registers)], 1)];
    record_frames(&profile, &program, &stacks);
    (program, profile.to_str().unwrap().to_owned())
}

#[test]
fn sources_are_found_elsewhere_and_secrets_are_not_shown() {
    let folder = Folder::new();
    let (_, profile) = naming(&folder, "/build/there/main.c");
    let shown = |map: &[&str]| {
        let arguments = [&["report", "--source", "main", &profile], map].concat();
        let output = harness::unspool().args(arguments).finish().ended_with(0);
        (output.out, output.err)
    };
    let (out, err) = shown(&[]);
    assert!(!out.contains("return 0"), "{out}");
    assert!(
        err.contains("/build/there/main.c: not found: --source-map FROM=TO"),
        "{err}"
    );
    folder.write("main.c", "int main(void) { return 0; } // moved\n");
    let map = format!("--source-map=/build/there={}", folder.display());
    let (out, err) = shown(&["--source-map=/build=/nowhere", &map]);
    assert!(out.contains("// moved"), "{out}");
    assert!(
        err.contains("main.c: it was changed after the program was built"),
        "{err}"
    );

    // What servers have is taken if asked for: here from debuginfod's cache.
    let (program, profile) = naming(&folder, "/build/there/main.c");
    let notes = tool("readelf").arg("-n").arg(&program).succeed();
    let id = notes.split_once("Build ID: ").unwrap().1;
    let cached = folder.join(format!("cache/{}", id.lines().next().unwrap()));
    fs::create_dir_all(&cached).unwrap();
    let text = "int main(void) { return 0; } // downloaded\n";
    fs::write(cached.join("source##build##there##main.c"), text).unwrap();
    for (option, is_found) in [(None, false), (Some("--download-sources"), true)] {
        let archive = folder.join("named.archive");
        let mut report = harness::unspool();
        report.env("DEBUGINFOD_URLS", "http://127.0.0.1:1");
        report.env("DEBUGINFOD_CACHE_PATH", folder.join("cache"));
        report.args(["report", "--format", "archive", &profile, "-o"]);
        let _ = report.arg(&archive).args(option).finish().ended_with(0);
        let archive = archive.to_str().unwrap();
        let mut report = harness::unspool();
        report.args(["report", "--source", "main", archive]);
        let said = report.finish().ended_with(0);
        assert_eq!(said.out.contains("// downloaded"), is_found, "{said}");
    }

    let (fifo, large) = (folder.join("fifo.c"), folder.join("large.c"));
    tool("mkfifo").arg(&fifo).succeed();
    let file = fs::File::create(&large).unwrap();
    file.write_all_at(b"x", 1 << 30).unwrap();
    let binary = folder.write("binary.c", "a\0b");
    for (name, why) in [
        ("/etc/passwd", "its name is not one of a source file"),
        (fifo.to_str().unwrap(), "not a regular file"),
        (large.to_str().unwrap(), "file too large"),
        (binary.to_str().unwrap(), "not a text"),
    ] {
        let (_, profile) = naming(&folder, name);
        let mut report = harness::unspool();
        report.args(["report", "--source", "main", &profile]);
        let output = report.finish().ended_with(0);
        assert!(output.err.contains(why), "{name}: {}", output.err);
    }
}

/// Samples of each instruction, by address, of a function in a file: those that have any.
fn by_perf_annotate(recording: &Path, file: &str, function: &str) -> BTreeMap<u64, u64> {
    let mut perf = tool("perf");
    perf.args(["annotate", "--stdio", "--stdio-color", "never", "-n", "-i"]);
    perf.arg(recording).args(["-d", file, "-s", function]);
    let text = perf.succeed();
    let row = |line: &str| {
        let (count, rest) = line.split_once(':')?;
        let (address, _) = rest.trim_start().split_once(":  ")?;
        let address = u64::from_str_radix(address, 16).ok()?;
        let count = count.trim().parse().ok()?;
        (count > 0).then_some((address, count))
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn counts_are_those_of_perf_annotate() {
    let folder = Folder::new();
    for (source, options) in [
        ("hot.c", &["-g", "-O2"][..]),
        ("sorts.c", &["-g", "-O1"]),
        ("hashes.c", &["-g", "-O2"]),
    ] {
        let name = source.split('.').next().unwrap();
        let program = folder.join(name);
        let source = harness::source(source);
        let mut build = tool("gcc");
        build.args(options).args([&*source, "-o"]).arg(&program);
        build.succeed();
        compare_with_perf_annotate(&folder, &program, name);
    }
}

/// Each instruction has the samples that perf counts, and each line those of its instructions.
fn compare_with_perf_annotate(folder: &Folder, program: &Path, module: &str) {
    let recording = folder.join("perf.data");
    let mut perf = tool("perf");
    perf.args(["record", "-q", "-F", "4999", "-e", "cpu-clock:u", "-o"]);
    perf.arg(&recording).arg("--").arg(program).succeed();
    let path = recording.to_str().unwrap();
    let report = json::document(clean(&["report", "--format", "json", path]));
    let functions = report["functions"].as_array().unwrap();
    let symbols = run_tool("nm", &[program.to_str().unwrap()]);
    let has_code = |name: &str| {
        symbols
            .lines()
            .any(|line| line.ends_with(&format!(" {name}")))
    };
    let own = functions.iter().filter(|function| {
        function["module"] == module && has_code(function["function"].as_str().unwrap())
    });
    let mut compared = 0;
    for function in own.take(5) {
        let name = function["function"].as_str().unwrap();
        let ask = |option: &str| {
            json::document(clean(&["report", "--format", "json", option, name, path]))
        };
        let report = ask("--disasm");
        let listed = report["functions"][0]["instructions"].as_array().unwrap();
        let sampled = |it: &&Value| number(&it["samples"]) > 0;
        let sampled: Vec<&Value> = listed.iter().filter(sampled).collect();
        let ours = sampled.iter().map(|instruction| {
            let address = hex(instruction["address"].as_str().unwrap());
            (address, number(&instruction["samples"]))
        });
        let ours: BTreeMap<u64, u64> = ours.collect();
        let theirs = by_perf_annotate(&recording, program.to_str().unwrap(), name);
        assert_eq!(ours, theirs, "{name}");
        // The lines of the function's own instructions, by addr2line.
        let mut of_lines: BTreeMap<u64, u64> = BTreeMap::new();
        for (address, samples) in &theirs {
            let (innermost, line) = lines(program, *address).remove(0);
            if innermost == name {
                *of_lines.entry(line).or_default() += samples;
            }
        }
        let report = ask("--source");
        let listed = report["functions"][0]["lines"].as_array().unwrap();
        let listed = listed
            .iter()
            .map(|line| (number(&line["line"]), number(&line["samples"])));
        let listed: BTreeMap<u64, u64> = listed.filter(|(_, samples)| *samples > 0).collect();
        assert_eq!(listed, of_lines, "{name}");
        compared += ours.values().sum::<u64>();
    }
    assert!(compared > 0, "{module}");
}

/// An archive says the same where the program, its sources and the servers are gone.
#[test]
fn an_archive_needs_nothing_else() {
    let (folder, program, _) = recorded();
    let source = folder.write("leaf.c", fs::read(harness::source("profiled.c")).unwrap());
    let built = folder.join("built");
    let paths = [&source, &built].map(|path| path.to_str().unwrap());
    run_tool("gcc", &["-g", "-O1", paths[0], "-o", paths[1]]);
    fs::rename(&built, &program).unwrap();
    let (profile_of_leaf, _) = sampled(&folder, &program);
    let archive = folder.join("archive.prof");
    let archive = archive.to_str().unwrap();
    let questions = |file: &str| {
        let forms: [&[&str]; 8] = [
            &[],
            &["--format", "json"],
            &["--format", "html"],
            &["--format", "perf-script"],
            &["--disasm", "leaf"],
            &["--disasm", "leaf", "--format", "json"],
            &["--source", "leaf"],
            &["--source", "inlined"],
        ];
        let mut answers = forms
            .map(|form| clean(&[&["report"], form, &[file]].concat()))
            .to_vec();
        answers.push(clean(&["diff", file, file]));
        answers
    };
    let before = questions(&profile_of_leaf);
    clean(&[
        "report",
        "--format",
        "archive",
        "-o",
        archive,
        &profile_of_leaf,
    ]);
    for file in [&program, &source, &folder.join("leaf.prof")] {
        fs::remove_file(file).unwrap();
    }
    for (answer, expected) in questions(archive).iter().zip(&before) {
        assert_eq!(answer, expected);
    }
    // An archive of an archive is the same one.
    let again = folder.join("again.prof");
    clean(&[
        "report",
        "--format",
        "archive",
        "-o",
        again.to_str().unwrap(),
        archive,
    ]);
    assert_eq!(fs::read(&again).unwrap(), fs::read(archive).unwrap());
    let unknown = unspool(&["report", "--disasm", "work", archive]);
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert!(said.contains("its code is not in the archive"), "{said}");
}

/// The program knows what its threads wait for: they are named after it.
#[test]
#[ignore = "needs kernel.perf_event_paranoid 1: cargo xtask root"]
fn threads_wait_for_what_they_say() {
    let folder = Folder::new();
    let (program, profile) = (folder.join("waits"), folder.join("waits.prof"));
    let source = harness::source("waits.c");
    run_tool(
        "gcc",
        &["-O1", "-pthread", &source, "-o", program.to_str().unwrap()],
    );
    let mut record = harness::unspool();
    record
        .args(["record", "--off-cpu", "-o"])
        .args([&profile, &program]);
    assert_eq!(record.finish().ended_with(0).out, "");
    for (thread, expected) in [
        ("lock", "a lock or another thread"),
        ("time", "a time"),
        ("events", "events (poll)"),
        ("pipe", "a pipe"),
        ("socket", "a socket"),
        ("process", "another process"),
        ("signal", "a signal"),
    ] {
        let by = [
            "report", "--by", "wait", "--tree", "none", "--thread", thread,
        ];
        let report = clean(&[&by[..], &[profile.to_str().unwrap()]].concat());
        let mut rows = report
            .lines()
            .skip_while(|line| !line.contains("waits for"));
        let first = rows.nth(1).unwrap_or_default();
        assert!(
            first.ends_with(&format!("  {expected}")),
            "{thread}: {report}"
        );
    }
    // The filter has their names, and selects by what a sample waits for.
    let threads = |wait: &str| {
        let words = [
            "report",
            "--by",
            "thread",
            "--tree",
            "none",
            "--min-percent",
            "0",
        ];
        let report = clean(&[&words[..], &["--wait", wait, profile.to_str().unwrap()]].concat());
        let is_listed = |name: &&str| report.contains(&format!("  {name} ("));
        let names = ["lock", "time", "events", "pipe", "socket", "signal"];
        names.into_iter().filter(is_listed).collect::<Vec<_>>()
    };
    assert_eq!(threads("pipe"), ["pipe"]);
    assert_eq!(threads("socket,signal"), ["socket", "signal"]);
    let words = ["report", "--wait", "terminal", profile.to_str().unwrap()];
    let said = String::from_utf8(unspool(&words).stderr).unwrap();
    assert!(
        said.contains("no sample passes --wait terminal: `report --by wait`"),
        "{said}"
    );
    let (_folder, _, without) = recorded();
    for words in [["--by", "wait"], ["--wait", "disk"]] {
        let output = unspool(&[&["report"], &words[..], &[&*without]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("no sample is off a CPU"), "{said}");
    }
}
