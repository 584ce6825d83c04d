//! `unspool record --args`: values reported as exact are the real arguments of the program's
//! functions.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use unspool_testing::{Finish as _, Folder, tool};

use crate::harness;
use crate::json;

/// The arguments of the functions of `programs/hot.c`.
const PARSE_FILE: [[&str; 2]; 2] = [["\"abc\"", "200000"], ["\"config.txt\"", "100000"]];
const SPIN: [[&str; 2]; 2] = [["200000", "COLD"], ["100000", "WARM"]];
/// Rare arguments of `parse_file`.
const OWN: [&str; 2] = ["\"own\"", "10"];

struct Try {
    folder: Folder,
}

impl Try {
    /// Compiles the program with these options, with CTF if it has no DWARF.
    fn new(options: &[&str]) -> Try {
        let folder = Folder::new();
        let mut gcc = tool("gcc");
        gcc.current_dir(&folder).args(options);
        gcc.args(["-c", "-o", "hot.o", &harness::source("hot.c")])
            .succeed();
        folder.tool("gcc", "-o hot hot.o");
        let made = Try { folder };
        if !options.contains(&"-g") {
            made.unspool()
                .args(["ctf", "link", "hot.o", "--into", "hot"])
                .succeed();
        }
        made
    }

    fn unspool(&self) -> Command {
        harness::unspool_in(&self.folder, &[])
    }

    /// Records the program; returns the messages.
    fn record(&self, args: &[&str]) -> String {
        let mut record = self.unspool();
        record.args(["record", "-e", "cpu-clock"]).args(args);
        record.args(["--", "./hot", "1"]).finish().ended_with(0).err
    }

    fn report(&self, args: &[&str]) -> String {
        self.unspool()
            .args(["report", "unspool.prof"])
            .args(args)
            .succeed()
    }

    /// The arguments of a function's entries in the report: each list of name, value and certainty.
    fn lists(&self, function: &str) -> Vec<Vec<[String; 3]>> {
        let report = json::document(self.report(&["--as", "json"]));
        let functions = report["functions"].as_array().unwrap().iter();
        let own = functions.filter(|entry| entry["function"] == function);
        let lists = own.filter_map(|entry| entry["arguments"].as_array());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let argument =
            |argument: &Value| ["name", "value", "certainty"].map(|field| text(&argument[field]));
        lists
            .map(|list| list.iter().map(argument).collect())
            .collect()
    }
}

/// The lists with only exact values.
fn exact(lists: &[Vec<[String; 3]>]) -> BTreeSet<Vec<&str>> {
    let is_exact = |list: &&Vec<[String; 3]>| list.iter().all(|[_, _, how]| how == "exact");
    let exact = lists.iter().filter(is_exact);
    exact
        .map(|list| list.iter().map(|[_, value, _]| value.as_str()).collect())
        .collect()
}

/// Fails if a value is reported as exact that no call had.
fn check(lists: &[Vec<[String; 3]>], truths: &[[&str; 2]]) {
    for list in lists {
        for (place, [name, value, how]) in list.iter().enumerate() {
            let is_true = truths.iter().any(|truth| truth[place] == value);
            assert!(how != "exact" || is_true, "{name} = {value}: {lists:?}");
        }
    }
}

#[test]
fn exact_recorded_arguments_are_correct() {
    for options in [
        &["-O0", "-g"][..],
        &["-O1", "-g"],
        &["-O2", "-g"],
        &["-Os", "-gctf"],
        &["-O2", "-gctf"],
    ] {
        let made = Try::new(options);
        made.record(&["--args", "parse_file,spin"]);
        let (parse_file, spin) = (made.lists("parse_file"), made.lists("spin"));
        check(&parse_file, &[&PARSE_FILE[..], &[OWN]].concat());
        // The characters of an array are read as they are now.
        let own = parse_file.iter().flatten();
        let mut own = own.filter(|[_, value, _]| value == OWN[0]);
        assert!(own.all(|[_, _, how]| how == "likely"), "{parse_file:?}");
        check(&spin, &[&SPIN[..], &[["10", "COLD"]]].concat());
        if options.contains(&"-O2") {
            for (found, truth) in [(&parse_file, PARSE_FILE), (&spin, SPIN)] {
                let found = exact(found);
                assert!(
                    truth.iter().all(|truth| found.contains(&truth[..])),
                    "{options:?}: {found:?}"
                );
            }
        }
    }
}

/// A program that was just built has its arguments from the first sample on, although no table of it
/// is kept.
#[test]
fn the_first_recording_has_all_arguments() {
    for option in ["--quiet", "--no-cache"] {
        let made = Try::new(&["-O2", "-g"]);
        made.record(&[option, "--args", "spin"]);
        let folded = made.report(&["--as", "folded"]);
        assert!(folded.contains(";spin(times="), "{folded}");
        let is_without = [";spin ", ";spin;"]
            .iter()
            .any(|spin| folded.contains(spin));
        assert!(!is_without, "{folded}");
    }
}

#[test]
fn stacks_are_split_by_what_was_asked_for() {
    let made = Try::new(&["-O2", "-g"]);
    let said = made.record(&[
        "--args",
        "parse_file:path,parse_file:nosuch,spin:#2,spin:#9,nobody",
    ]);
    assert!(
        said.contains("no recorded file has a function named `nobody`"),
        "{said}"
    );
    for (function, parameter) in [("parse_file", "nosuch"), ("spin", "#9")] {
        let message = format!("`{function}` has no parameter `{parameter}`");
        assert!(said.contains(&message), "{said}");
    }
    assert!(
        !said.contains("called `path`") && !said.contains("called `#2`"),
        "{said}"
    );
    let folded = made.report(&["--as", "folded"]);
    for stack in [
        "main;parse_file(path=\"abc\");spin(kind=COLD) ",
        "main;parse_file(path=\"config.txt\");spin(kind=WARM) ",
    ] {
        assert!(folded.contains(stack), "{stack}: {folded}");
    }
    let whole = made.report(&["--as", "folded", "--no-args"]);
    assert!(whole.contains("main;parse_file;spin "), "{whole}");
    assert!(!whole.contains('='), "{whole}");
    let around = made.report(&["--around", "spin", "--function", "^parse_file$"]);
    for value in ["COLD", "WARM"] {
        let title = format!("callers of spin(kind={value})");
        assert!(around.contains(&title), "{around}");
    }
    let mut script = made.unspool();
    let script = script
        .args(["script", "-F", "+args", "unspool.prof"])
        .succeed();
    assert!(
        script.contains("path: const char * = \"abc\"\n"),
        "{script}"
    );
}

#[test]
fn a_function_without_a_type_is_named() {
    let made = Try::new(&["-O2", "-g"]);
    made.folder.tool("objcopy", "--strip-debug hot");
    let said = made.record(&["--args", "spin"]);
    assert!(
        said.contains("the parameters of `spin` are not known"),
        "{said}"
    );
    assert!(made.lists("spin").is_empty());
}

/// A profile recorded without the option has none of this.
#[test]
fn nothing_is_recorded_unasked() {
    let made = Try::new(&["-O2", "-g"]);
    made.record(&[]);
    let folded = made.report(&["--as", "folded"]);
    assert!(folded.contains("main;parse_file;spin "), "{folded}");
}
