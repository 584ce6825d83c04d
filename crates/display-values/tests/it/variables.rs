//! Variables by debugging information: never fewer values than gdb has for the same core, and the
//! same.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use unspool_display_values::VariableText;
use unspool_testing::{Folder, command, sample, tool};
use xtask::gdb_variables::{self, PrintedVariables, VariableCounts, VariableKey, base_name};

use crate::killed::{KilledStack, Shown, killed, stack_of_core, test_file};

/// A program killed under gdb, with gdb's values, and unspool's values from the core.
struct KilledProgram {
    gdb: Value,
    ours: KilledStack,
}

fn compared(compiler: &str, source: &str, options: &[&str]) -> KilledProgram {
    compared_after(compiler, source, options, |_| {})
}

/// The same with a change to the program's folder in between: after gdb has run, and before unspool
/// runs.
fn compared_after(
    compiler: &str,
    source: &str,
    options: &[&str],
    prepare: impl Fn(&Folder),
) -> KilledProgram {
    let folder = Folder::new();
    let source = test_file(&format!("programs/{source}"));
    let is_rust = source.extension().is_some_and(|end| end == "rs");
    let words = format!("{} -o program {}", options.join(" "), source.display());
    folder.tool(compiler, &words);
    let mut gdb = tool("gdb");
    gdb.args(["-nx", "-batch", "-x"]);
    gdb.arg(test_file("variables.py"))
        .arg(folder.join("program"));
    gdb.env("CORE", folder.join("core"));
    gdb.env("OUT", folder.join("gdb"));
    if is_rust {
        gdb.env("RUST", &source);
        fs::copy(&source, folder.join("program.rs")).unwrap();
    }
    let output = gdb.output().unwrap();
    let known = fs::read(folder.join("gdb"));
    let known = known.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    prepare(&folder);
    KilledProgram {
        gdb: serde_json::from_slice(&known).unwrap(),
        ours: stack_of_core(&folder.join("core"), &folder.join("program")),
    }
}

/// gdb's name of the function that contains the code at an address: `__GI_raise`, from debug
/// information, where the report has the symbol's name, `raise`. Functions inlined there precede
/// it.
fn own_function(gdb: &Value, pc: u64) -> Option<String> {
    let frame = gdb.as_array()?.iter().rfind(|frame| frame["pc"] == pc)?;
    frame["function"].as_str().map(str::to_owned)
}

/// Unspool's values: for each name the current values, innermost first, and the value at entry.
fn printed(stack: &KilledStack, gdb: &Value) -> PrintedVariables {
    let mut variables = PrintedVariables::new();
    for frame in &stack.frames {
        let (pc, values) = (frame.pc, &frame.values);
        let own = own_function(gdb, pc).or_else(|| values.function.clone());
        let own = own.unwrap_or_default();
        let named = |name: &str, function: &str, is_parameter| VariableKey {
            pc,
            function: base_name(function),
            name: name.to_owned(),
            is_parameter,
        };
        for argument in values.arguments.iter().flatten() {
            let known = variables
                .entry(named(&argument.name, &own, true))
                .or_default();
            let current = argument.current.as_ref();
            known
                .0
                .extend(current.and_then(|now| Some(now.as_ref().ok()?.text.clone())));
            known.1 = argument.value.as_ref().ok().map(|value| value.text.clone());
        }
        let mut add = |function: &str, one: &VariableText, is_parameter| {
            let known = variables.entry(named(&one.name, function, is_parameter));
            let now = one.current.as_ref().ok().map(|now| now.text.clone());
            known.or_default().0.extend(now);
        };
        for level in &values.inlined {
            level
                .parameters
                .iter()
                .for_each(|one| add(&level.function, one, true));
            level
                .locals
                .iter()
                .for_each(|one| add(&level.function, one, false));
        }
        values.locals.iter().for_each(|one| add(&own, one, false));
    }
    variables
}

/// Compares unspool's values with gdb's.
fn compare(program: &KilledProgram, what: &str) -> VariableCounts {
    let ours = printed(&program.ours, &program.gdb);
    let compared = gdb_variables::compare(&ours, &program.gdb);
    compared.unwrap_or_else(|error| panic!("{what}: {error}"))
}

const FORMATS: [&str; 2] = ["-gdwarf-5", "-gdwarf-4"];

/// The values that gdb has at least, so that something is compared. New compilers' optimized
/// programs leave it few.
fn least(options: &[&str]) -> usize {
    if options.contains(&"-O0") { 40 } else { 25 }
}

/// All compilers, each with all levels of optimization, each with both formats.
fn ways<'w>(
    compilers: &[&'w str],
    levels: &[&'w str],
) -> impl Iterator<Item = (&'w str, [&'w str; 2])> {
    compilers.iter().flat_map(move |compiler| {
        let options = levels
            .iter()
            .flat_map(|level| FORMATS.map(|format| [*level, format]));
        options.map(move |options| (*compiler, options))
    })
}

#[test]
fn variables_of_clang_programs_equal_gdbs() {
    let levels = ["-O0", "-O1", "-O2", "-Os"].into_iter();
    let all = levels.flat_map(|level| FORMATS.map(|format| [level, format]));
    for options in sample(all, 3) {
        let killed = compared("clang", "variables.c", &options);
        let compared = compare(&killed, &format!("clang {options:?}"));
        assert!(
            compared.known >= least(&options),
            "{options:?}: {}",
            compared.known
        );
    }
}

#[test]
fn variables_of_cpp_programs_equal_gdbs() {
    for options in [["-O0", "-g"], ["-O1", "-g"], ["-O2", "-gdwarf-4"]] {
        let killed = compared("g++", "variables.cc", &options);
        let compared = compare(&killed, &format!("{options:?}"));
        assert!(compared.known >= 25, "{options:?}: {}", compared.known);
    }
}

#[test]
fn arrays_of_computed_length_are_reported() {
    let compilers = ["gcc", "clang", "g++"];
    // A step of 5 meets each compiler, level and format.
    for (compiler, options) in sample(ways(&compilers, &["-O0", "-O1", "-O2"]), 5) {
        let killed = compared(compiler, "dynamic.c", &options);
        let what = format!("{compiler} {options:?}");
        let compared = compare(&killed, &what);
        assert!(
            compared.known >= least(&options),
            "{what}: {}",
            compared.known
        );
    }
}

/// 32 values of 18 enumerations, some in bit-fields and parameters.
#[test]
fn values_of_enumerations_are_those_of_gdb() {
    for compiler in ["gcc", "clang", "g++"] {
        for format in ["-gdwarf-5", "-gdwarf-4"] {
            let killed = compared(compiler, "flags.c", &["-O0", format]);
            let what = format!("{compiler} {format}");
            let compared = compare(&killed, &what);
            assert!(compared.known >= 23, "{what}: {}", compared.known);
            let ours = printed(&killed.ours, &killed.gdb);
            let text: String = ours.values().flat_map(|(now, _)| now.clone()).collect();
            for flags in [
                "(HOLES_A | HOLES_G | unknown: 0x8)",
                "NOTHING, (unknown: 0x1)",
            ] {
                assert!(text.contains(flags), "{what}: {text}");
            }
        }
    }
}

#[test]
fn thread_local_variables_are_reported() {
    let compilers = ["gcc", "clang"];
    for (compiler, [level, format]) in sample(ways(&compilers, &["-O0", "-O2"]), 3) {
        let options = [level, format, "-pthread"];
        let killed = compared(compiler, "thread_local.c", &options);
        let what = format!("{compiler} {options:?}");
        let compared = compare(&killed, &what);
        assert!(compared.known >= 3, "{what}: {}", compared.known);
    }
}

/// gdb finds them by glibc's dynamic loader: the expected values are from the source.
#[test]
fn thread_local_variables_of_static_programs_are_reported() {
    let source = test_file("programs/thread_local.c");
    let folder = Folder::new();
    for (compiler, option) in [
        ("gcc", "-static"),
        ("gcc", "-static-pie"),
        ("musl-gcc", "-static"),
        ("musl-gcc", "-pie"),
    ] {
        let words = format!("-g -pthread {option} -o program {}", source.display());
        folder.tool(compiler, &words);
        let variables = variables_of(&folder.join("program"));
        let values = |name: &str| {
            let of_name = variables.iter().filter(|(named, _)| named.name == name);
            of_name.flat_map(|(_, (now, _))| now.clone()).collect()
        };
        let known: [Vec<_>; 3] = ["calls", "pair", "zeroes"].map(values);
        let expected = ["45", "{.first = 7, .second = -95}", "{0, -190}"];
        assert_eq!(
            known,
            expected.map(|value| vec![value.to_owned()]),
            "{compiler} {option}"
        );
    }
}

#[test]
fn variables_of_rust_programs_equal_gdbs() {
    for version in ["-Cdwarf-version=4", "-Cdwarf-version=5"] {
        let options = ["--edition=2024", "-g", version];
        let killed = compared("rustc", "enumerations.rs", &options);
        let compared = compare(&killed, version);
        assert!(compared.known >= 45, "{version}: {}", compared.known);
    }
}

fn dwo_files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    files
        .filter(|file| file.extension().is_some_and(|end| end == "dwo"))
        .collect()
}

/// Makes a package of the `.dwo` files in a folder, and removes these.
fn pack(packer: &str, folder: &Folder) {
    folder.tool(packer, "-e program -o program.dwp");
    for file in dwo_files(folder) {
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn variables_of_split_units_are_reported() {
    // Of DWARF 5, binutils' dwp 2.40 makes no package, llvm-dwp 14 none of gcc's files, and gdb 13 reads none: it has the files.
    let all = [
        ("variables.c", "-O0"),
        ("variables.c", "-O2"),
        ("dynamic.c", "-O2"),
    ];
    let gcc = "gcc";
    let clang = ("clang", Some("llvm-dwp"));
    for (compiler, format, packer, programs) in [
        (gcc, "-gdwarf-4", Some("dwp"), &all[..]),
        (gcc, "-gdwarf-5", None, &all),
        (clang.0, "-gdwarf-4", clang.1, &all),
        // In the others, clang has location lists that gdb 13 does not read: with base addresses by
        // index.
        (clang.0, "-gdwarf-5", clang.1, &all[..1]),
    ] {
        for (source, optimization) in sample(programs, 2) {
            let options = ["-gsplit-dwarf", optimization, format];
            let what = format!("{compiler} {source} {options:?}");
            let files = compared_after(compiler, source, &options, |folder| {
                assert_eq!(dwo_files(folder).len(), 1, "{what}");
            });
            let known = compare(&files, &what).known;
            assert!(known >= least(&options), "{what}: {known}");
            let Some(packer) = packer else {
                continue;
            };
            let pack = |folder: &Folder| pack(packer, folder);
            let packed = compared_after(compiler, source, &options, pack);
            let what = format!("{what}, packed");
            assert_eq!(compare(&packed, &what).known, known, "{what}");
        }
    }
}

#[test]
fn units_whose_files_are_missing_or_of_another_build_are_named() {
    let source = test_file("programs/variables.c");
    let folder = Folder::new();
    let compile = |level: &str| {
        let words = format!("-g -gsplit-dwarf {level} -o program {}", source.display());
        folder.tool("gcc", &words);
    };
    let problems = || {
        let stack = killed(command(folder.join("program")), Shown::Variables);
        let mut functions = stack.frames.iter().flat_map(|frame| &frame.values.locals);
        assert!(!functions.any(|local| local.name == "nested"));
        stack.problems.join("\n")
    };
    compile("-O1");
    let other = fs::read(&dwo_files(&folder)[0]).unwrap();
    compile("-O0");
    let file = &dwo_files(&folder)[0];
    let name = file.to_str().unwrap();
    fs::write(file, other).unwrap();
    let text = problems();
    assert!(
        text.contains(&format!("{name} is of another build")),
        "{text}"
    );
    fs::remove_file(file).unwrap();
    let text = problems();
    let expected = format!("program-variables.dwo: {name} is not there");
    assert!(text.contains(&expected), "{text}");
}

/// Unspool's values for a program that runs until it is killed.
fn variables_of(program: &Path) -> PrintedVariables {
    printed(&killed(command(program), Shown::Variables), &Value::Null)
}

/// gdb 13 fails with an internal error at an enumeration that is optimized out: the expected values
/// are from the source.
#[test]
fn rust_enums_in_optimized_code_are_reported() {
    let expected = [
        ("negative", "enumerations::Signed::Less(1)"),
        (
            "card",
            "enumerations::Kind::Card{number: 4, name: \"visa\"}",
        ),
        ("none", "core::option::Option<i32>::None"),
    ];
    let source = test_file("programs/enumerations.rs");
    let folder = Folder::new();
    for level in [0, 1, 2] {
        let words = format!("--edition=2024 -g -Copt-level={level} -o program");
        folder.tool("rustc", &format!("{words} {}", source.display()));
        let variables = variables_of(&folder.join("program"));
        for (name, value) in expected {
            let of_name = variables.iter().filter(|(named, _)| named.name == name);
            let values: Vec<_> = of_name.flat_map(|(_, (now, _))| now).collect();
            assert_eq!(values, [value], "{level}: {name}");
        }
    }
}

#[test]
fn variables_of_c_programs_equal_gdbs() {
    let levels = ["-O2", "-O0", "-Og", "-O1", "-O3", "-Os"].into_iter();
    // With the first, the innermost function has values in vector registers, and its caller counts on registers that it leaves alone.
    let others = [&["-g", "-DTOUCHES_NULL"][..], &["-g"], &["-gdwarf-4"]];
    let all = levels.flat_map(|level| others.map(|others| [&[level], others].concat()));
    for options in sample(all, 4) {
        let killed = compared("gcc", "variables.c", &options);
        let compared = compare(&killed, &format!("{options:?}"));
        assert!(compared.known >= 50, "{options:?}: {}", compared.known);
        if options == ["-O2", "-g", "-DTOUCHES_NULL"] {
            assert!(compared.skipped >= 2, "{}", compared.skipped);
        }
    }
}
