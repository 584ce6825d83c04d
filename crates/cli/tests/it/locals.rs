//! `unspool stack --locals` and `--args` by debugging information: never fewer values than gdb has
//! for the same core, and the same.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use unspool_testing::{Finish as _, sample, tool};
use xtask::gdb_variables::{self, PrintedVariables, VariableCounts, VariableKey, base_name};

use crate::harness;
use crate::json;

fn test_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

/// A program killed under gdb, with gdb's values, and unspool's values from the core.
struct Killed {
    gdb: Value,
    ours: Value,
}

fn killed(compiler: &str, source: &str, options: &[&str]) -> Killed {
    killed_between(compiler, source, options, |_| {})
}

/// The same with a change to the program's folder in between: after gdb has run, and before unspool
/// runs.
fn killed_between(
    compiler: &str,
    source: &str,
    options: &[&str],
    prepare: impl Fn(&Path),
) -> Killed {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let is_rust = source.ends_with(".rs");
    let mut compile = tool(compiler);
    let source = test_file(&format!("programs/{source}"));
    compile
        .current_dir(folder.path())
        .args(options)
        .arg("-o")
        .arg(path("program"))
        .arg(&source);
    let output = compile.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let mut gdb = tool("gdb");
    gdb.args(["-nx", "-batch", "-x"]);
    gdb.arg(test_file("locals/variables.py"))
        .arg(path("program"));
    gdb.env("CORE", path("core")).env("OUT", path("gdb"));
    if is_rust {
        gdb.env("RUST", &source);
    }
    let output = gdb.output().unwrap();
    let known = fs::read(path("gdb"));
    let known = known.unwrap_or_else(|error| panic!("{error}: {output:?}"));

    prepare(folder.path());
    let mut unspool = harness::unspool();
    unspool.env("XDG_CACHE_HOME", harness::new_cache());
    unspool.args(["stack", "--args", "--locals", "--format", "json", "--core"]);
    unspool.arg(path("core")).arg("--exe").arg(path("program"));
    // gdb shows the elements of slices, but not the targets of pointers.
    unspool.args(is_rust.then_some("--strings"));
    let output = unspool.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Killed {
        gdb: serde_json::from_slice(&known).unwrap(),
        ours: json::document(&output.stdout),
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// gdb's name of the function that contains the code at an address: `__GI_raise`, from debug
/// information, where the report has the symbol's name, `raise`. Functions inlined there precede
/// it.
fn own_function(gdb: &Value, pc: u64) -> Option<String> {
    let frame = gdb.as_array()?.iter().rfind(|frame| frame["pc"] == pc)?;
    text(&frame["function"])
}

/// Unspool's values: for each name the current values, innermost first, and the value at entry.
fn printed(report: &Value, gdb: &Value) -> PrintedVariables {
    let mut variables = PrintedVariables::new();
    for frame in report["threads"][0]["frames"].as_array().unwrap() {
        let pc = frame["pc"].as_str().unwrap().trim_start_matches("0x");
        let pc = u64::from_str_radix(pc, 16).unwrap();
        let functions = frame["functions"].as_array().cloned().unwrap_or_default();
        let own = functions.last().and_then(|own| text(&own["function"]));
        let own = own_function(gdb, pc).or(own);
        let named = |value: &Value, function: Option<String>, is_parameter| VariableKey {
            pc,
            function: base_name(&function.unwrap_or_default()),
            name: text(&value["name"]).unwrap(),
            is_parameter,
        };
        for argument in frame["arguments"].as_array().into_iter().flatten() {
            let known = variables
                .entry(named(argument, own.clone(), true))
                .or_default();
            known.0.extend(text(&argument["current_value"]));
            known.1 = text(&argument["value"]);
        }
        for variable in frame["variables"].as_array().into_iter().flatten() {
            let function = text(&variable["function"]).or_else(|| own.clone());
            let is_parameter = variable["parameter"] == true;
            let known = variables.entry(named(variable, function, is_parameter));
            known.or_default().0.extend(text(&variable["value"]));
        }
    }
    variables
}

/// Compares unspool's values with gdb's.
fn compare(killed: &Killed, what: &str) -> VariableCounts {
    let compared = gdb_variables::compare(&printed(&killed.ours, &killed.gdb), &killed.gdb);
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
        let killed = killed("/usr/bin/clang", "variables.c", &options);
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
        let killed = killed("/usr/bin/g++", "variables.cc", &options);
        let compared = compare(&killed, &format!("{options:?}"));
        assert!(compared.known >= 25, "{options:?}: {}", compared.known);
    }
}

#[test]
fn arrays_of_computed_length_are_reported() {
    let compilers = ["/usr/bin/gcc", "/usr/bin/clang", "/usr/bin/g++"];
    // A step of 5 meets each compiler, level and format.
    for (compiler, options) in sample(ways(&compilers, &["-O0", "-O1", "-O2"]), 5) {
        let killed = killed(compiler, "dynamic.c", &options);
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
    for compiler in ["/usr/bin/gcc", "/usr/bin/clang", "/usr/bin/g++"] {
        for format in ["-gdwarf-5", "-gdwarf-4"] {
            let killed = killed(compiler, "flags.c", &["-O0", format]);
            let what = format!("{compiler} {format}");
            let compared = compare(&killed, &what);
            assert!(compared.known >= 23, "{what}: {}", compared.known);
            let text = killed.ours.to_string();
            for flags in [
                "\"(HOLES_A | HOLES_G | unknown: 0x8)\"",
                "NOTHING, (unknown: 0x1)",
            ] {
                assert!(text.contains(flags), "{what}: {text}");
            }
        }
    }
}

#[test]
fn thread_local_variables_are_reported() {
    let compilers = ["/usr/bin/gcc", "/usr/bin/clang"];
    for (compiler, [level, format]) in sample(ways(&compilers, &["-O0", "-O2"]), 3) {
        let options = [level, format, "-pthread"];
        let killed = killed(compiler, "thread_local.c", &options);
        let what = format!("{compiler} {options:?}");
        let compared = compare(&killed, &what);
        assert!(compared.known >= 3, "{what}: {}", compared.known);
    }
}

/// gdb finds them by glibc's dynamic loader: the expected values are from the source.
#[test]
fn thread_local_variables_of_static_programs_are_reported() {
    let source = test_file("programs/thread_local.c");
    let folder = tempfile::tempdir().unwrap();
    for (compiler, option) in [
        ("/usr/bin/gcc", "-static"),
        ("/usr/bin/gcc", "-static-pie"),
        ("/usr/bin/musl-gcc", "-static"),
        ("/usr/bin/musl-gcc", "-pie"),
    ] {
        let program = folder.path().join("program");
        let mut compile = tool(compiler);
        compile.args(["-g", "-pthread", option, "-o"]);
        compile.arg(&program).arg(&source);
        compile.succeed();
        let variables = printed_variables_of(&program, folder.path());
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
        let killed = killed("rustc", "enumerations.rs", &options);
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
fn pack(packer: &str, folder: &Path) {
    let mut pack = tool(packer);
    pack.args(["-e", "program", "-o", "program.dwp"]);
    pack.current_dir(folder).succeed();
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
    let gcc = "/usr/bin/gcc";
    let clang = ("/usr/bin/clang", Some("/usr/bin/llvm-dwp"));
    for (compiler, format, packer, programs) in [
        (gcc, "-gdwarf-4", Some("/usr/bin/dwp"), &all[..]),
        (gcc, "-gdwarf-5", None, &all),
        (clang.0, "-gdwarf-4", clang.1, &all),
        // In the others, clang has location lists that gdb 13 does not read: with base addresses by
        // index.
        (clang.0, "-gdwarf-5", clang.1, &all[..1]),
    ] {
        for (source, optimization) in sample(programs, 2) {
            let options = ["-gsplit-dwarf", optimization, format];
            let what = format!("{compiler} {source} {options:?}");
            let files = killed_between(compiler, source, &options, |folder| {
                assert_eq!(dwo_files(folder).len(), 1, "{what}");
            });
            let known = compare(&files, &what).known;
            assert!(known >= least(&options), "{what}: {known}");
            let Some(packer) = packer else {
                continue;
            };
            let pack = |folder: &Path| pack(packer, folder);
            let packed = killed_between(compiler, source, &options, pack);
            let what = format!("{what}, packed");
            assert_eq!(compare(&packed, &what).known, known, "{what}");
        }
    }
}

#[test]
fn units_whose_files_are_missing_or_of_another_build_are_named() {
    let source = test_file("programs/variables.c");
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let compile = |options: &[&str]| {
        let mut gcc = tool("gcc");
        gcc.args(["-g", "-gsplit-dwarf", "-o", "program"])
            .args(options);
        let gcc = gcc.arg(&source).current_dir(folder);
        gcc.succeed();
    };
    let errors = || {
        let mut unspool = harness::unspool();
        unspool.env("XDG_CACHE_HOME", folder);
        unspool.args(["stack", "--locals", "--"]);
        let output = unspool.arg(folder.join("program")).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!text.contains("local nested"), "{text}");
        text
    };
    compile(&["-O1"]);
    let other = fs::read(&dwo_files(folder)[0]).unwrap();
    compile(&["-O0"]);
    let file = &dwo_files(folder)[0];
    let name = file.to_str().unwrap();
    fs::write(file, other).unwrap();
    let text = errors();
    let expected = format!("{name} is of another build");
    assert_eq!(text.matches(&expected).count(), 1, "{text}");
    fs::remove_file(file).unwrap();
    let text = errors();
    let expected = format!("program-variables.dwo: {name} is not there");
    assert_eq!(text.matches(&expected).count(), 1, "{text}");
}

/// Unspool's values for a program that runs until it is killed.
fn printed_variables_of(program: &Path, cache: &Path) -> PrintedVariables {
    let mut unspool = harness::unspool();
    unspool.env("XDG_CACHE_HOME", cache);
    unspool.args(["stack", "--locals", "--strings", "--format", "json", "--"]);
    let output = unspool.arg(program).output().unwrap();
    printed(&json::document(&output.stderr), &Value::Null)
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
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for level in ["-Copt-level=0", "-Copt-level=1", "-Copt-level=2"] {
        let mut compile = tool("rustc");
        compile.args(["--edition=2024", "-g", level, "-o"]);
        compile.arg(path("program")).arg(&source);
        compile.succeed();
        let variables = printed_variables_of(&path("program"), folder.path());
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
        let killed = killed("/usr/bin/gcc", "variables.c", &options);
        let compared = compare(&killed, &format!("{options:?}"));
        assert!(compared.known >= 50, "{options:?}: {}", compared.known);
        if options == ["-O2", "-g", "-DTOUCHES_NULL"] {
            assert!(compared.skipped >= 2, "{}", compared.skipped);
        }
    }
}
