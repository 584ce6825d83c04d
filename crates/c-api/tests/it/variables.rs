//! Variables of the own stack: at least as many values as gdb has at the same place of the same
//! process, and the same ones.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use unspool_arg_table_builder::build_table;
use unspool_elf::{DebugFiles, SearchRoots};
use unspool_table_store::Store;
use unspool_testing::{sample, tool};
use xtask::gdb_variables::{PrintedVariables, VariableCounts, VariableKey, compare};

use crate::programs::{self, stdout, with_library, with_std};

fn test_file(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../display-values/tests");
    tests.join(name)
}

/// A line of a program's output about its own variables.
#[derive(Debug)]
struct PrintedVariable {
    frame: usize,
    key: VariableKey,
    inlined: usize,
    block: usize,
    type_name: String,
    value: Option<String>,
    lost: Option<String>,
    entry: Option<String>,
    certainty: u32,
}

impl PrintedVariable {
    fn parse(line: &str) -> Option<PrintedVariable> {
        let fields: Vec<&str> = line.split('\t').collect();
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let [
            frame,
            address,
            function,
            inlined,
            is_parameter,
            block,
            name,
            type_name,
            value,
            lost,
            entry,
            certainty,
        ] = fields[..]
        else {
            return None;
        };
        Some(PrintedVariable {
            frame: frame.parse().unwrap(),
            key: VariableKey {
                pc: u64::from_str_radix(address.strip_prefix("0x")?, 16).unwrap(),
                function: function.to_owned(),
                name: name.to_owned(),
                is_parameter: is_parameter == "1",
            },
            inlined: inlined.parse().unwrap(),
            block: block.parse().unwrap(),
            type_name: type_name.to_owned(),
            value: some(value),
            lost: some(lost),
            entry: some(entry),
            certainty: certainty.parse().unwrap(),
        })
    }
}

/// A program's output, with the problems and the final status last.
struct PrintedOutput(Vec<PrintedVariable>, Vec<String>);

impl PrintedOutput {
    fn read(path: &Path) -> PrintedOutput {
        let text = fs::read_to_string(path).unwrap();
        let mut others = Vec::new();
        let lines = text.lines().filter_map(|line| {
            let parsed = PrintedVariable::parse(line);
            others.extend(parsed.is_none().then(|| line.to_owned()));
            parsed
        });
        PrintedOutput(lines.collect(), others)
    }

    fn variables(&self) -> PrintedVariables {
        let mut variables: PrintedVariables = HashMap::new();
        for line in &self.0 {
            let known = variables.entry(line.key.clone()).or_default();
            known.0.extend(line.value.clone());
            if line.key.is_parameter && line.inlined == 0 {
                known.1.clone_from(&line.entry);
            }
        }
        variables
    }

    fn named<'l>(
        &'l self,
        function: &'l str,
        name: &'l str,
    ) -> impl Iterator<Item = &'l PrintedVariable> {
        let is_named = move |variable: &&PrintedVariable| {
            variable.key.function == function && variable.key.name == name
        };
        self.0.iter().filter(is_named)
    }
}

/// A program of the command's tests that reports its variables in place of its final abort or
/// signal.
fn telling(compiler: &str, source: &str, options: &[&str]) -> PathBuf {
    let folder = with_std();
    let flags = programs::pkg_config_of("unspool-variables");
    let mut cc = programs::cc();
    cc.args(["-c", "-O1"]).args(&flags[..1]);
    let teller = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/tells.c");
    let teller = programs::build(cc, &teller, &[]);
    let mut compile = tool(compiler);
    compile.args(options).args(["-Dabort=tell", "-pthread"]);
    compile.arg(format!("-Wl,-rpath,{}", folder.display()));
    let behind: Vec<String> = std::iter::once(teller.to_str().unwrap().to_owned())
        .chain(flags)
        .collect();
    programs::build(compile, &test_file(&format!("programs/{source}")), &behind)
}

/// A program's output, and gdb's values when it has reached `stop`.
fn variables_in_gdb(program: &Path, stop: &str) -> (PrintedOutput, Value) {
    let output_path = programs::scratch("values");
    let known = programs::scratch("gdb");
    let mut gdb = tool("gdb");
    gdb.args(["-nx", "-batch", "-x"]);
    gdb.arg(test_file("variables.py")).arg(program);
    gdb.env("STOP", stop)
        .env("OUT", &known)
        .env("VALUES", &output_path);
    gdb.env("XDG_CACHE_HOME", "/dev/null");
    let output = gdb.output().unwrap();
    let known = fs::read(&known).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (
        PrintedOutput::read(&output_path),
        serde_json::from_slice(&known).unwrap(),
    )
}

fn compared(
    compiler: &str,
    source: &str,
    options: &[&str],
    stop: &str,
) -> (PrintedOutput, VariableCounts) {
    let program = telling(compiler, source, options);
    let (lines, gdb) = variables_in_gdb(&program, stop);
    let what = format!("{compiler} {source} {options:?}");
    let count = lines.0.len();
    assert_eq!(lines.1, [format!("ended 0 {count}")], "{what}");
    let compared = compare(&lines.variables(), &gdb);
    (
        lines,
        compared.unwrap_or_else(|error| panic!("{what}: {error}")),
    )
}

const HERE: &str = "unspool_cursor_here";

#[test]
fn variables_equal_gdbs() {
    let levels = ["-O0", "-O1", "-O2", "-O3"].into_iter();
    // Values that gdb has at least: clang 19 leaves it 18 of the second with -O3.
    let sources = [("variables.c", 40), ("dynamic.c", 15)];
    let ways = levels.flat_map(|level| sources.map(|source| (level, source)));
    let compilers = ["/usr/bin/gcc", "/usr/bin/clang"].into_iter();
    let all = compilers.flat_map(|compiler| ways.clone().map(move |way| (compiler, way)));
    // A step of 3 meets each compiler with each source, and each level.
    for (compiler, (level, (source, least))) in sample(all, 3) {
        let options = ["-g", level];
        let (_, compared) = compared(compiler, source, &options, HERE);
        let known = compared.known;
        assert!(known >= least, "{compiler} {source} {options:?}: {known}");
    }
}

#[test]
fn flags_and_thread_local_variables_are_reported() {
    for compiler in ["/usr/bin/gcc", "/usr/bin/clang"] {
        let (_, flags) = compared(compiler, "flags.c", &["-g", "-O0"], HERE);
        assert!(flags.known >= 23, "{compiler}: {}", flags.known);
        let (_, own) = compared(compiler, "thread_local.c", &["-g", "-O2"], HERE);
        assert!(own.known >= 3, "{compiler}: {}", own.known);
    }
}

/// The innermost frame was interrupted: its callers' values in registers that it has not changed
/// are compared, too.
#[test]
fn variables_of_interrupted_frames_equal_gdbs() {
    for optimization in ["-O0", "-O2"] {
        let options = ["-g", optimization, "-DTOUCHES_NULL"];
        let (lines, compared) = compared(
            "/usr/bin/gcc",
            "variables.c",
            &options,
            "unspool_cursor_from",
        );
        assert!(compared.known >= 40, "{options:?}: {}", compared.known);
        assert!(lines.named("end", "why").all(|why| why.frame == 0));
    }
}

#[test]
fn variables_have_source_locations() {
    let (optimized, _) = compared("/usr/bin/gcc", "variables.c", &["-g", "-O2"], HERE);
    let (plain, _) = compared("/usr/bin/gcc", "variables.c", &["-g", "-O0"], HERE);
    let one = |output: &PrintedOutput, function, name, is_parameter| {
        let mut all = output.named(function, name);
        let own = all.find(|own| own.key.is_parameter == is_parameter);
        let own = own.unwrap_or_else(|| panic!("{function} {name}"));
        (own.inlined, own.block)
    };
    // As in the source: `inner` has a block with another `given`, `main` a loop with a body, and a
    // variable in that.
    assert_eq!(one(&plain, "inner", "given", true), (0, 0));
    assert_eq!(one(&plain, "inner", "sum", false), (0, 0));
    assert_eq!(one(&plain, "inner", "given", false), (0, 1));
    assert_eq!(one(&plain, "main", "before", false), (0, 2));
    // `inner` is inlined in `outer`, and that in `changes`.
    assert_eq!(one(&optimized, "inner", "given", true), (2, 0));
    assert_eq!(one(&optimized, "outer", "pair", true), (1, 0));
    assert_eq!(one(&optimized, "changes", "colour", true), (0, 0));
    let (inlined, block) = one(&optimized, "inner", "given", false);
    assert_eq!(inlined, 2);
    assert_eq!(block, one(&optimized, "inner", "sum", false).1 + 1);
}

#[test]
fn available_and_unavailable_values_are_reported() {
    let (lines, _) = compared("/usr/bin/gcc", "variables.c", &["-g", "-O2"], HERE);
    let one = |function, name| lines.named(function, name).next().unwrap();
    // As in the source.
    let colour = one("changes", "colour");
    assert_eq!(colour.type_name, "enum colour");
    assert_eq!(colour.value.as_deref(), Some("GREEN"));
    // It was changed; the caller's call site gives a value that is not certain.
    let number = one("changes", "number");
    assert_eq!(
        (number.value.as_deref(), number.entry.as_deref()),
        (Some("116"), Some("16"))
    );
    assert_eq!(number.certainty, 3);
    // It is no longer needed.
    let result = one("changes", "result");
    assert_eq!(
        (&result.value, result.lost.as_deref()),
        (&None, Some("optimized out here"))
    );
    // Frames are numbered from the cursor's, which has no debug information here.
    assert_eq!(one("end", "why").frame, 1);
}

/// With an argument table in the cache, values proven by the code are reported, too.
#[test]
fn tables_of_arguments_are_used() {
    let program = telling("/usr/bin/gcc", "variables.c", &["-g", "-O2"]);
    let file = crate::arguments::settled(&program);
    let debug = DebugFiles::locate(&file, &SearchRoots::default());
    let table = build_table(&file, &debug).unwrap();
    let home = programs::scratch("cache");
    fs::create_dir(&home).unwrap();
    let store = Store::new(None, Some(home.clone().into()), None);
    store.keep_arguments(&file, &debug, &table.bytes).unwrap();
    let output_path = programs::scratch("values");
    let mut command = with_library(&program);
    command
        .env("XDG_CACHE_HOME", &home)
        .env("VALUES", &output_path);
    stdout(&mut command);
    let lines = PrintedOutput::read(&output_path);
    // The caller's code shows the value passed.
    let letter = lines.named("changes", "letter").next().unwrap();
    assert_eq!(
        (letter.entry.as_deref(), letter.certainty),
        (Some("120 'x'"), 2)
    );
}

/// The output of a program without a debugger.
fn variables_printed_by(program: &Path) -> PrintedOutput {
    let output_path = programs::scratch("values");
    let mut command = with_library(program);
    command.env("XDG_CACHE_HOME", "/dev/null");
    stdout(command.env("VALUES", &output_path));
    PrintedOutput::read(&output_path)
}

#[test]
fn files_without_debug_information_have_no_variables() {
    let lines = variables_printed_by(&telling("/usr/bin/gcc", "variables.c", &["-O2"]));
    let is_own =
        |variable: &&PrintedVariable| ["end", "many", "main"].contains(&&*variable.key.function);
    assert_eq!(lines.0.iter().filter(is_own).count(), 0);
}

#[test]
fn missing_split_debug_information_is_reported() {
    let program = telling("/usr/bin/gcc", "variables.c", &["-g", "-gsplit-dwarf"]);
    assert!(variables_printed_by(&program).named("many", "a").count() == 1);
    // gcc puts it beside the program, with a name made of the program's and the source's.
    let rest = format!("{}-variables.dwo", program.display());
    fs::remove_file(&rest).unwrap();
    let lines = variables_printed_by(&program);
    assert_eq!(lines.named("many", "a").count(), 0);
    let said = |line: &&String| line.ends_with(&format!("{rest} is not there"));
    assert_eq!(lines.1.iter().filter(said).count(), 1, "{:?}", lines.1);
}
