//! Arguments from the code and from debugging information: a value that is certain is the real
//! argument.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use unspool_c_types::{CtfWriter, LinkOptions, link};
use unspool_display_values::{FrameArgument, ValueOrigin};
use unspool_dwarf_types::{CTF_SECTION, TypeLoader, elf_context};
use unspool_elf::{ElfFile, embed_unmapped};
use unspool_testing::{Finish as _, Folder, command, sample, tool};

use crate::killed::{KilledStack, Shown, killed, test_file};

/// The source of a program that is killed.
fn source(name: &str) -> PathBuf {
    test_file(&format!("programs/{name}.c"))
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

/// Compiles `program` in a folder, with these options.
fn build(program: &str, options: &[&str], folder: &Path) {
    let mut gcc = tool("gcc");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../c-api/include");
    gcc.args(["-c", "-o", "program.o", "-I"]).arg(include);
    if !options.contains(&"-g") {
        gcc.arg("-gctf");
    }
    gcc.args(options).arg(source(program));
    gcc.current_dir(folder).succeed();
    let mut link = tool("gcc");
    link.args(["-o", "program", "program.o"]);
    link.args(options.iter().filter(|option| option.contains("pie")));
    link.current_dir(folder).succeed();
    if !options.contains(&"-g") {
        put_types(folder);
    }
}

/// Puts the CTF of an object into its program: the linker's is of exported functions only.
fn put_types(folder: &Path) {
    let loader = TypeLoader::new(&|notice| panic!("{notice}"));
    let objects = loader.open(&folder.join("program.o")).unwrap();
    let input = loader.link_input(&objects[0]).unwrap().unwrap();
    let units = loader.link_units(&input).unwrap().units;
    let program = folder.join("program");
    let file = ElfFile::open(&program).unwrap();
    let writer = CtfWriter {
        elf: elf_context(&file).unwrap(),
        ..CtfWriter::default()
    };
    let ctf = writer.write(&link(&units, LinkOptions::default()));
    let elf = embed_unmapped(&file, CTF_SECTION, &ctf).unwrap();
    fs::write(program, elf).unwrap();
}

/// The stack of the program in a folder, when it is killed.
fn stack(folder: &Path) -> KilledStack {
    let mut program = command(folder.join("program"));
    program.current_dir(folder);
    killed(program, Shown::Arguments)
}

/// The frames of a stack: each with its function's name and arguments, if known.
fn with_arguments(stack: KilledStack) -> Vec<(String, Vec<FrameArgument>)> {
    let frames = stack.frames.into_iter();
    let known = frames.filter_map(|frame| Some((frame.symbol, frame.values.arguments?)));
    known.collect()
}

fn is_certain(argument: &FrameArgument) -> bool {
    let value = argument.value.as_ref();
    value.is_ok_and(|value| value.origin != ValueOrigin::Likely)
}

/// The value of an argument, or why it is lost.
fn text(argument: &FrameArgument) -> String {
    match &argument.value {
        Ok(value) => value.text.clone(),
        Err(lost) => format!("lost: {lost}"),
    }
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

/// Compares all frames of a program's functions; yields those values that were certain.
fn compare(program: &str, options: &[&str]) -> Vec<String> {
    let truth = truth(program);
    let folder = Folder::new();
    build(program, options, &folder);
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut certain = Vec::new();
    for (function, arguments) in with_arguments(stack(&folder)) {
        let Some(calls) = truth.get(&function) else {
            continue;
        };
        let nth = seen.entry(function.clone()).or_default();
        let call = &calls[*nth];
        *nth += 1;
        assert_eq!(call.len(), arguments.len(), "{function}");
        for (index, (argument, truth)) in arguments.iter().zip(call).enumerate() {
            if let Ok(value) = &argument.value
                && is_certain(argument)
            {
                let value = (&*value.text, value.origin);
                assert!(
                    is_right(value.0, truth),
                    "{options:?}: {function}, argument {index}: {value:?}, was {truth}"
                );
                if value.1 == ValueOrigin::Exact {
                    certain.push(format!("{function} {index}"));
                }
            }
        }
    }
    for name in truth.keys() {
        assert!(seen.contains_key(name), "{options:?}: no frame of {name}");
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
    let folder = Folder::new();
    build("arguments", &["-O2", "-g", "-gsplit-dwarf"], &folder);
    let [file, elsewhere] = ["program.dwo", "elsewhere"].map(|name| folder.join(name));
    // The table that is kept is of no use when the file is gone again.
    for (from, to, is_there) in [
        (&file, &elsewhere, false),
        (&elsewhere, &file, true),
        (&file, &elsewhere, false),
    ] {
        fs::rename(from, to).unwrap();
        let mut stack = stack(&folder);
        let problems = std::mem::take(&mut stack.problems).join("\n");
        let frames = with_arguments(stack);
        let is_of_program = frames.iter().any(|(function, _)| function == "forgets");
        assert_eq!(is_of_program, is_there, "{problems}");
        let message = format!("{} is not there", file.display());
        assert_eq!(problems.contains(&message), !is_there, "{problems}");
    }
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

/// Functions for which gdb has no value either: no table has their parameters.
#[test]
fn arguments_without_a_prototype_are_unknown_rather_than_gone() {
    let folder = Folder::new();
    let unknown = "its location at the call is not known";
    let gone = "it is in no known location any more";
    // A function changed by GCC has a clone's name, and C++ functions have no prototypes here.
    for (compiler, of_whole) in [("/usr/bin/gcc", gone), ("/usr/bin/g++", unknown)] {
        let source = source("cloned");
        folder.tool(compiler, &format!("-O2 -g -o program {}", source.display()));
        let symbols = folder.tool("nm", "program");
        assert!(symbols.contains(".constprop."), "{symbols}");
        let mut gdb = tool("gdb");
        gdb.args(["-nx", "-batch", "-ex", "run", "-ex", "backtrace"]);
        let by_gdb = gdb.arg(folder.join("program")).output().unwrap();
        let by_gdb = String::from_utf8(by_gdb.stdout).unwrap();

        let frames = with_arguments(stack(&folder));
        for (function, reason) in [("cloned", unknown), ("whole", of_whole)] {
            let lost = format!("{function} (first=<optimized out>");
            assert!(by_gdb.contains(&lost), "{compiler}: {by_gdb}");
            let frame = frames.iter().find(|(name, _)| name.contains(function));
            let first = &frame.unwrap().1[0];
            assert_eq!(first.name, "first", "{compiler}");
            assert_eq!(text(first), format!("lost: {reason}"), "{compiler}");
        }
    }
}

/// The location of a parameter at the first instruction need not be valid at the call.
#[test]
fn initial_parameter_values_differ_from_passed_values() {
    let folder = Folder::new();
    let truth = truth("arguments_swapped");
    let source = source("arguments_swapped");
    for compiler in ["gcc", "clang"] {
        for options in ["-O2 -g", "-O2 -g -DCOMPUTED"] {
            let words = format!("{options} -o program {}", source.display());
            folder.tool(compiler, &words);
            let frames = with_arguments(stack(&folder));
            let (_, arguments) = frames.iter().find(|(name, _)| name == "swapped").unwrap();
            for (argument, truth) in arguments.iter().zip(&truth["swapped"][0]) {
                let what = format!("{compiler} {options}: {}", text(argument));
                let value = argument.value.as_ref();
                assert!(
                    value.is_ok_and(|value| is_right(&value.text, truth)) || value.is_err(),
                    "{what}"
                );
                // Values that callers compute are not recoverable from clang's code.
                assert!(value.is_ok() || compiler == "clang", "{what}");
            }
        }
    }
}

/// Debugging information gives the name of a call's target. The dynamic linker decides which
/// function that is.
#[test]
fn values_for_another_callee_are_not_reported() {
    let folder = Folder::new();
    let truth = truth("arguments_interposed");
    let source = source("arguments_interposed").display().to_string();
    let gcc = |words: &str| folder.tool("gcc", &format!("-O2 -g {words}"));
    for (object, define) in [("libasked.so", "-DLIBRARY"), ("libbetween.so", "-DBETWEEN")] {
        gcc(&format!("-shared -fPIC {define} -o {object} {source}"));
    }
    for options in ["-Wl,-z,now", "-Wl,-z,lazy", "-fno-plt"] {
        for (is_between, called) in truth["asked"].iter().enumerate() {
            let between = ["", "-Wl,--no-as-needed ./libbetween.so"][is_between];
            gcc(&format!(
                "{options} -o program {source} {between} ./libasked.so"
            ));
            let frames = with_arguments(stack(&folder));
            let (_, arguments) = frames.iter().find(|(name, _)| name == "asked").unwrap();
            for (argument, truth) in arguments.iter().zip(called) {
                let what = format!("{options}, {is_between}: {}", text(argument));
                if is_certain(argument) {
                    assert!(is_right(&text(argument), truth), "{what}");
                }
                let origin = argument.value.as_ref().map(|value| value.origin);
                let is_described = origin.is_ok_and(|it| it == ValueOrigin::FromDebugInfo);
                assert!(is_between == 1 || is_described, "{what}");
            }
        }
    }
}
