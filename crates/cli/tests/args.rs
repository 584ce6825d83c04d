//! `unspool stack --args`: what is told of functions is what they were called with, or is not told as certain.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use xtask::packages;

/// A program that is killed.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"))
}

/// What each function is called with, as the program's comments say: of one that is there several times, from the innermost on.
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

/// The frames of the program, compiled with these options, in which it is killed: each with its function's name and arguments.
fn frames(program: &str, options: &[&str], cache: &Path) -> Vec<(String, Vec<Value>)> {
    let folder = tempfile::tempdir().unwrap();
    let run = |command: &mut Command| {
        let output = command.current_dir(folder.path()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        (output.status, stderr.into_owned())
    };
    let mut gcc = Command::new(packages::path("/usr/bin/gcc").unwrap());
    let has_dwarf = options.contains(&"-g");
    if !has_dwarf {
        gcc.arg("-gctf");
    }
    gcc.args(["-c", "-o", "program.o"]);
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../c/include");
    gcc.arg("-I")
        .arg(include)
        .args(options)
        .arg(source(program));
    let (status, stderr) = run(&mut gcc);
    assert!(status.success(), "{stderr}");
    let mut link = Command::new(packages::path("/usr/bin/gcc").unwrap());
    link.args(["-o", "program", "program.o"]);
    link.args(options.iter().filter(|option| option.contains("pie")));
    let (status, stderr) = run(&mut link);
    assert!(status.success(), "{stderr}");
    if !has_dwarf {
        let mut types = Command::new(env!("CARGO_BIN_EXE_unspool"));
        types.args(["ctf", "link", "program.o", "--into", "program"]);
        let (status, stderr) = run(&mut types);
        assert!(status.success(), "{stderr}");
    }
    let mut stack = Command::new(env!("CARGO_BIN_EXE_unspool"));
    // The C library's table takes longer to make than the program's.
    stack.env("XDG_CACHE_HOME", cache);
    stack.args(["stack", "--args", "--format", "json"]);
    stack.args(["-o", "report", "--", "./program"]);
    run(&mut stack);
    let report = fs::read(folder.path().join("report")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    let frames = report["threads"][0]["frames"].as_array().unwrap().clone();
    let known = frames.into_iter().filter_map(|frame| {
        let arguments = frame["arguments"].as_array()?.clone();
        Some((frame["symbol"].as_str()?.to_owned(), arguments))
    });
    known.collect()
}

/// Whether a value that was told is the one that the program says, or one of them.
fn is_right(told: &str, truth: &str) -> bool {
    truth.split('|').any(|truth| is_this(told, truth))
}

fn is_this(told: &str, truth: &str) -> bool {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let told_number = number(told.split(' ').next().unwrap());
    truth == "*"
        || told.replace([' ', '\n'], "") == truth
        || told
            .strip_suffix('\'')
            .and_then(|told| told.chars().last())
            .map(String::from)
            == Some(truth.to_owned())
        || told_number.is_some() && told_number == number(truth)
        || matches!((told, truth), ("true", "1") | ("false", "0"))
}

/// Compares all frames; yields those values that were told as certain.
fn compare(program: &str, options: &[&str], cache: &Path) -> Vec<String> {
    let truth = truth(program);
    let frames = frames(program, options, cache);
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
            if argument["certainty"] != "exact" {
                continue;
            }
            let told = argument["value"].as_str().unwrap();
            assert!(
                is_right(told, truth),
                "{options:?}: {function}, argument {index}: {told}, was {truth}\n{frames:#?}"
            );
            certain.push(format!("{function} {index}"));
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
fn what_is_told_as_certain_is_right() {
    let cache = tempfile::tempdir().unwrap();
    for optimization in ["-O0", "-O1", "-O2", "-O3", "-Os", "-Og"] {
        for others in [
            &["-fcf-protection=none"][..],
            &["-fno-omit-frame-pointer"],
            &["-fno-pie", "-no-pie"],
            &["-fno-optimize-sibling-calls"],
            &["-maccumulate-outgoing-args"],
            &["-mavx2", "-mstackrealign"],
            &["-g"],
        ] {
            let options: Vec<&str> = [optimization]
                .into_iter()
                .chain(others.iter().copied())
                .collect();
            compare("arguments", &options, cache.path());
            compare("arguments_float", &options, cache.path());
            compare("arguments_doubted", &options, cache.path());
            compare("arguments_written", &options, cache.path());
        }
    }
}

#[test]
fn what_was_passed_in_vector_registers_is_told() {
    let cache = tempfile::tempdir().unwrap();
    for others in [&["-fcf-protection=none"][..], &["-mavx2"], &["-g"]] {
        let options: Vec<&str> = [&["-O2"], others].concat();
        let certain = compare("arguments_float", &options, cache.path());
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
fn what_functions_still_have_is_told() {
    let cache = tempfile::tempdir().unwrap();
    let certain = compare("arguments", &["-O2"], cache.path());
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

#[test]
fn what_functions_keep_on_purpose_is_told() {
    let cache = tempfile::tempdir().unwrap();
    let kept = ["inner 0", "outer 0", "outer 1", "outer 2", "outer 3"];
    for optimization in ["-O0", "-O2", "-O3"] {
        let certain = compare("arguments_kept", &[optimization], cache.path());
        for wanted in kept {
            assert!(
                certain.iter().any(|own| own == wanted),
                "{optimization}: {wanted}: {certain:?}"
            );
        }
    }
    let without = compare("arguments_kept", &["-O2", "-DNOTHING"], cache.path());
    assert!(
        !without.iter().any(|own| kept.contains(&own.as_str())),
        "{without:?}"
    );
}
