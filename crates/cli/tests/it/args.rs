//! `unspool stack --args`: a value reported as certain is the real argument.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use unspool_elf::ElfFile;
use unspool_testing::{sample, tool};

use crate::harness;
use crate::json;

/// The source of a program that is killed.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"))
}

/// The arguments of each function, from the program's comments: for repeated calls, from the
/// innermost on.
fn truth(program: &str) -> HashMap<String, Vec<Vec<String>>> {
    let text = fs::read_to_string(source(program)).unwrap();
    let mut calls: HashMap<String, Vec<Vec<String>>> = HashMap::new();
    for line in text.lines() {
        let Some((_, frame)) = line.split_once("frame: ") else {
            continue;
        };
        let frame = frame.trim_end_matches("*/").trim();
        let mut words = frame.split_whitespace().map(str::to_owned);
        let Some(name) = words.next().filter(|name| name != "NAME") else {
            continue;
        };
        calls.entry(name).or_default().push(words.collect());
    }
    calls
}

/// Runs a command in a folder; returns whether it succeeded, and its standard error.
fn run_in(folder: &Path, command: &mut Command) -> (bool, String) {
    let output = command.current_dir(folder).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    (output.status.success(), stderr.into_owned())
}

/// Compiles `program` in a folder, with these options.
fn build(program: &str, options: &[&str], folder: &Path) {
    let run = |command: &mut Command| {
        let (is_done, stderr) = run_in(folder, command);
        assert!(is_done, "{stderr}");
    };
    let mut gcc = tool("gcc");
    let has_dwarf = options.contains(&"-g");
    if !has_dwarf {
        gcc.arg("-gctf");
    }
    gcc.args(["-c", "-o", "program.o"]);
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../c-api/include");
    gcc.arg("-I")
        .arg(include)
        .args(options)
        .arg(source(program));
    run(&mut gcc);
    let mut link = tool("gcc");
    link.args(["-o", "program", "program.o"]);
    link.args(options.iter().filter(|option| option.contains("pie")));
    run(&mut link);
    if !has_dwarf {
        let mut types = harness::unspool();
        types.args(["ctf", "link", "program.o", "--into", "program"]);
        run(&mut types);
    }
}

/// The report on `program` in a folder, in which it is killed, and the messages.
fn report(folder: &Path, cache: &Path) -> (Value, String) {
    let mut stack = harness::unspool();
    stack.env("XDG_CACHE_HOME", cache);
    stack.args(["stack", "--args", "--format", "json"]);
    stack.args(["-o", "report", "--", "./program"]);
    let (_, stderr) = run_in(folder, &mut stack);
    let report = fs::read(folder.join("report")).unwrap();
    (json::document(report), stderr)
}

/// The first thread's frames of a report: each with its function's name and arguments, if known.
fn with_arguments(report: &Value) -> Vec<(String, Vec<Value>)> {
    let frames = report["threads"][0]["frames"].as_array().unwrap();
    let known = frames.iter().filter_map(|frame| {
        let arguments = frame["arguments"].as_array()?.clone();
        Some((frame["symbol"].as_str()?.to_owned(), arguments))
    });
    known.collect()
}

/// The frames of the program, compiled with these options, in which it is killed.
fn frames(program: &str, options: &[&str]) -> Vec<(String, Vec<Value>)> {
    let folder = tempfile::tempdir().unwrap();
    build(program, options, folder.path());
    let (report, _) = report(folder.path(), harness::new_cache());
    with_arguments(&report)
}

/// Whether a reported value is the program's value, or one of them.
fn is_right(value: &str, truth: &str) -> bool {
    truth.split('|').any(|truth| is_this(value, truth))
}

fn is_this(value: &str, truth: &str) -> bool {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let value_number = number(value.split(' ').next().unwrap());
    truth == "*"
        || value.replace([' ', '\n'], "") == truth
        || value
            .strip_suffix('\'')
            .and_then(|value| value.chars().last())
            .map(String::from)
            == Some(truth.to_owned())
        || value_number.is_some() && value_number == number(truth)
        || matches!((value, truth), ("true", "1") | ("false", "0"))
}

/// Compares all frames with debugging information; yields those values that were certain.
fn compare(program: &str, options: &[&str]) -> Vec<String> {
    let truth = truth(program);
    let frames = frames(program, options);
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut certain = Vec::new();
    for (function, arguments) in &frames {
        let Some(calls) = truth.get(function) else {
            continue;
        };
        let nth = seen.entry(function.clone()).or_default();
        let call = &calls[*nth];
        *nth += 1;
        assert_eq!(call.len(), arguments.len(), "{function}");
        for (index, (argument, truth)) in arguments.iter().zip(call).enumerate() {
            let certainty = argument["certainty"].as_str().unwrap();
            if !["exact", "debug-info"].contains(&certainty) {
                continue;
            }
            let value = argument["value"].as_str().unwrap();
            assert!(
                is_right(value, truth),
                "{options:?}: {function}, argument {index}: {value}, was {truth}\n{frames:#?}"
            );
            if certainty == "exact" {
                certain.push(format!("{function} {index}"));
            }
        }
    }
    for name in truth.keys() {
        assert!(
            seen.contains_key(name),
            "{options:?}: no frame of {name}: {frames:#?}"
        );
    }
    certain
}

#[test]
fn certain_values_are_correct() {
    let levels = ["-O0", "-O1", "-O2", "-O3", "-Os", "-Og"];
    let others = [
        &["-fcf-protection=none"][..],
        &["-fno-omit-frame-pointer"],
        &["-fno-pie", "-no-pie"],
        &["-fno-optimize-sibling-calls"],
        &["-maccumulate-outgoing-args"],
        &["-mavx2", "-mstackrealign"],
        &["-g"],
    ];
    let all = levels
        .into_iter()
        .flat_map(|level| others.map(|others| [&[level], others].concat()));
    // A step of 5 meets each level and each of the others.
    for options in sample(all, 5) {
        compare("arguments", &options);
        compare("arguments_float", &options);
        compare("arguments_doubted", &options);
        compare("arguments_written", &options);
        compare("arguments_types", &options);
    }
}

/// Functions without types make no other value wrong, nor needlessly unknown.
#[test]
fn incomplete_types_have_no_certain_values() {
    for others in [&["-fcf-protection=none"][..], &["-g"]] {
        let certain = compare("arguments_types", &[&["-O2"], others].concat());
        for wanted in ["old_kept 1", "old_kept 2", "transparent 0"] {
            let is_reported = certain.iter().any(|own| own == wanted);
            assert!(is_reported, "{others:?}: {wanted}: {certain:?}");
        }
        let is_right_by_luck = |own: &str| own.starts_with("is_apart") || own == "transparent 2";
        assert!(
            !certain.iter().any(|own| is_right_by_luck(own)),
            "{certain:?}"
        );
    }
}

#[test]
fn vector_register_arguments_are_reported() {
    for others in [&["-fcf-protection=none"][..], &["-mavx2"], &["-g"]] {
        let options: Vec<&str> = [&["-O2"], others].concat();
        let certain = compare("arguments_float", &options);
        for wanted in [
            "ends 0",
            "ends 1",
            "ends 2",
            "keeps 0",
            "keeps 1",
            "moves 0",
            "moves 1",
            "moves 2",
            "structures 0",
            "structures 1",
            "structures 2",
            "many 0",
            "many 7",
            "many 9",
            "counts 1",
            "begins 0",
        ] {
            assert!(
                certain.iter().any(|own| own == wanted),
                "{options:?}: {wanted}: {certain:?}"
            );
        }
    }
}

#[test]
fn values_still_in_the_frame_are_reported() {
    let certain = compare("arguments", &["-O2"]);
    // What is read behind the call, and what the caller knows by heart.
    for wanted in [
        "ends 0",
        "ends 1",
        "ends 2",
        "ends 3",
        "forgets 0",
        "forgets 1",
        "structures 0",
        "structures 2",
        "structures 3",
        "many 0",
        "many 1",
        "many 2",
        "many 3",
        "many 4",
        "many 5",
        "many 6",
        "many 7",
        "exposed 1",
        "jumped_to 0",
        "jumped_to 1",
        "indirect 0",
        "recursive 1",
        "grows 0",
        "truth 0",
        "truth 1",
    ] {
        assert!(
            certain.iter().any(|own| own == wanted),
            "{wanted}: {certain:?}"
        );
    }
}

/// Prototypes are read from units with split debug information. Missing files are reported: they
/// may be available the next time.
#[test]
fn arguments_of_split_units_are_reported() {
    let whole = compare("arguments", &["-O2", "-g"]);
    assert!(whole.len() > 25, "{whole:?}");
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let options = ["-O2", "-g", version, "-gsplit-dwarf"];
        assert_eq!(compare("arguments", &options), whole);
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    build("arguments", &["-O2", "-g", "-gsplit-dwarf"], folder);
    let [file, elsewhere] = ["program.dwo", "elsewhere"].map(|name| folder.join(name));
    fs::rename(&file, &elsewhere).unwrap();
    let is_of_program = |(function, _): &(String, Vec<Value>)| function == "forgets";
    let (without, said) = report(folder, harness::new_cache());
    assert!(!with_arguments(&without).iter().any(is_of_program));
    let message = format!("{} is not there", file.display());
    let lines: Vec<_> = said
        .lines()
        .filter(|line| line.contains(&message))
        .collect();
    assert!(
        matches!(&*lines, [line] if line.contains("the unit at 0x0 is in program.dwo")),
        "{said}"
    );
    fs::rename(&elsewhere, &file).unwrap();
    let (with, said) = report(folder, harness::new_cache());
    assert!(with_arguments(&with).iter().any(is_of_program), "{said}");
    // The table that is kept is of no use when the file is gone again.
    fs::rename(&file, &elsewhere).unwrap();
    let (gone, said) = report(folder, harness::new_cache());
    assert!(!with_arguments(&gone).iter().any(is_of_program), "{said}");
    assert!(said.contains(&message), "{said}");
}

#[test]
fn deliberately_kept_arguments_are_reported() {
    let kept = ["inner 0", "outer 0", "outer 1", "outer 2", "outer 3"];
    for optimization in ["-O0", "-O2", "-O3"] {
        let certain = compare("arguments_kept", &[optimization]);
        for wanted in kept {
            assert!(
                certain.iter().any(|own| own == wanted),
                "{optimization}: {wanted}: {certain:?}"
            );
        }
    }
    let without = compare("arguments_kept", &["-O2", "-DNOTHING"]);
    assert!(
        !without.iter().any(|own| kept.contains(&own.as_str())),
        "{without:?}"
    );
}

/// A cache may be older than the program that reads it.
#[test]
fn tables_of_another_version_in_the_cache_are_made_anew_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let cache = tempfile::tempdir().unwrap();
    build("arguments", &["-O2"], folder.path());
    // A table of a file that was just written is not stored.
    let program = folder.path().join("program");
    while ElfFile::open(&program).unwrap().stamp().is_none() {
        std::thread::yield_now();
    }
    // Addresses differ in each run.
    let certainties = |report: &Value| -> Vec<(String, Vec<Value>)> {
        let frames = with_arguments(report).into_iter();
        let certainty = |argument: &Value| argument["certainty"].clone();
        frames
            .map(|(function, arguments)| (function, arguments.iter().map(certainty).collect()))
            .collect()
    };
    let (first, said) = report(folder.path(), cache.path());
    assert!(!said.contains("version"), "{said}");
    let tables = || -> Vec<PathBuf> {
        let files = fs::read_dir(cache.path().join("unspool")).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let name = |path: &PathBuf| {
            path.to_str().unwrap().ends_with(".args.unspool") && !path.is_symlink()
        };
        let mut tables: Vec<PathBuf> = files.filter(name).collect();
        tables.sort();
        tables
    };
    let made: Vec<_> = tables().iter().map(|at| fs::read(at).unwrap()).collect();
    assert!(!made.is_empty());
    // The version follows eight magic bytes.
    for (flawed, words) in [(8, ""), (0, "; another is made")] {
        for (path, bytes) in tables().iter().zip(&made) {
            let mut other = bytes.clone();
            other[flawed] ^= 0x7f;
            fs::write(path, other).unwrap();
        }
        let (again, said) = report(folder.path(), cache.path());
        assert_eq!(certainties(&again), certainties(&first));
        let about: Vec<_> = said.lines().filter(|l| l.contains(".args.")).collect();
        assert_eq!(about.is_empty(), words.is_empty(), "{said}");
        assert!(about.iter().all(|line| line.ends_with(words)), "{said}");
        let now: Vec<_> = tables().iter().map(|at| fs::read(at).unwrap()).collect();
        assert!(now == made, "byte {flawed}: not as they were");
    }
}

/// Functions for which gdb has no value either: no table has their parameters.
#[test]
fn arguments_without_a_prototype_are_unknown_rather_than_gone() {
    let folder = tempfile::tempdir().unwrap();
    let unknown = "its location at the call is not known";
    let gone = "it is in no known location any more";
    // A function changed by GCC has a clone's name, and C++ functions have no prototypes here.
    for (compiler, of_whole) in [("/usr/bin/gcc", gone), ("/usr/bin/g++", unknown)] {
        let mut compile = tool(compiler);
        compile.args(["-O2", "-g", "-o", "program"]);
        let (is_done, stderr) = run_in(folder.path(), compile.arg(source("cloned")));
        assert!(is_done, "{stderr}");
        let mut nm = tool("nm");
        let symbols = nm.arg(folder.path().join("program")).output().unwrap();
        let symbols = String::from_utf8(symbols.stdout).unwrap();
        assert!(symbols.contains(".constprop."), "{symbols}");
        let mut gdb = tool("gdb");
        gdb.args(["-nx", "-batch", "-ex", "run", "-ex", "backtrace"]);
        let by_gdb = gdb.arg(folder.path().join("program")).output().unwrap();
        let by_gdb = String::from_utf8(by_gdb.stdout).unwrap();

        let (report, _) = report(folder.path(), harness::new_cache());
        let frames = with_arguments(&report);
        for (function, reason) in [("cloned", unknown), ("whole", of_whole)] {
            let lost = format!("{function} (first=<optimized out>");
            assert!(by_gdb.contains(&lost), "{compiler}: {by_gdb}");
            let frame = frames.iter().find(|(name, _)| name.contains(function));
            let first = &frame.unwrap().1[0];
            assert_eq!(first["name"], "first", "{compiler}: {frames:#?}");
            assert_eq!(first["certainty"], "lost", "{compiler}: {frames:#?}");
            assert_eq!(first["reason"], reason, "{compiler}: {frames:#?}");
        }
        let mut stack = harness::unspool();
        stack.env("XDG_CACHE_HOME", harness::new_cache());
        stack.args(["stack", "--args", "-o", "text", "--", "./program"]);
        run_in(folder.path(), &mut stack);
        let text = fs::read_to_string(folder.path().join("text")).unwrap();
        let lost = format!("first: int  <lost: {unknown}>");
        let expected = 1 + usize::from(of_whole == unknown);
        assert_eq!(text.matches(&lost).count(), expected, "{text}");
    }
}

/// The location of a parameter at the first instruction need not be valid at the call.
#[test]
fn initial_parameter_values_differ_from_passed_values() {
    let folder = tempfile::tempdir().unwrap();
    let truth = truth("arguments_swapped");
    for compiler in ["/usr/bin/gcc", "/usr/bin/clang"] {
        for options in [&["-O2", "-g"][..], &["-O2", "-g", "-DCOMPUTED"]] {
            let mut compile = tool(compiler);
            compile.args(options).args(["-o", "program"]);
            let compile = compile.arg(source("arguments_swapped"));
            let (is_done, stderr) = run_in(folder.path(), compile);
            assert!(is_done, "{stderr}");
            let (report, _) = report(folder.path(), harness::new_cache());
            let frames = with_arguments(&report);
            let (_, arguments) = frames.iter().find(|(name, _)| name == "swapped").unwrap();
            for (argument, truth) in arguments.iter().zip(&truth["swapped"][0]) {
                let value = argument["value"].as_str();
                let what = format!("{compiler} {options:?}: {argument}");
                assert!(value.is_none_or(|value| is_right(value, truth)), "{what}");
                // Values that callers compute are not recoverable from clang's code.
                assert!(value.is_some() || compiler.ends_with("clang"), "{what}");
            }
        }
    }
}

/// Debugging information gives the name of a call's target. The dynamic linker decides which
/// function that is.
#[test]
fn values_for_another_callee_are_not_reported() {
    let folder = tempfile::tempdir().unwrap();
    let truth = truth("arguments_interposed");
    let gcc = |words: &[&str]| {
        let mut gcc = tool("gcc");
        let (is_done, stderr) = run_in(folder.path(), gcc.args(["-O2", "-g"]).args(words));
        assert!(is_done, "{stderr}");
    };
    let source = source("arguments_interposed");
    let source = source.to_str().unwrap();
    for (object, define) in [("libasked.so", "-DLIBRARY"), ("libbetween.so", "-DBETWEEN")] {
        gcc(&["-shared", "-fPIC", define, "-o", object, source]);
    }
    for options in [&["-Wl,-z,now"][..], &["-Wl,-z,lazy"], &["-fno-plt"]] {
        for (is_between, called) in truth["asked"].iter().enumerate() {
            let between = ["-Wl,--no-as-needed", "./libbetween.so"];
            let between = &between[..2 * is_between];
            let all = [
                options,
                &["-o", "program", source],
                between,
                &["./libasked.so"],
            ];
            gcc(&all.concat());
            let (report, _) = report(folder.path(), harness::new_cache());
            let frames = with_arguments(&report);
            let (_, arguments) = frames.iter().find(|(name, _)| name == "asked").unwrap();
            for (argument, truth) in arguments.iter().zip(called) {
                let what = format!("{options:?}, {is_between}: {argument}");
                let value = argument["value"].as_str().unwrap_or_default();
                let certainty = argument["certainty"].as_str().unwrap();
                if ["exact", "debug-info"].contains(&certainty) {
                    assert!(is_right(value, truth), "{what}");
                }
                assert!(is_between == 1 || certainty == "debug-info", "{what}");
            }
        }
    }
}
