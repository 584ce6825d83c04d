//! The advice of `unspool record` on incomplete stacks, and whether it helps.

use std::fs;
use std::process::Output;

use serde_json::Value;
use unspool_testing::{Finish as _, Folder, command, tool};

use crate::harness;
use crate::json;

struct Built {
    folder: Folder,
}

impl Built {
    /// The program and its library; both say how their code is unwound, or neither does.
    fn new(is_described: bool) -> Built {
        let folder = Folder::new();
        let source = &harness::source("unknown.c");
        let described = is_described.then_some("-DDESCRIBED");
        let build = |arguments: &[&str]| {
            let mut gcc = tool("gcc");
            gcc.args(["-O2", "-fomit-frame-pointer", source]);
            gcc.args(described).args(arguments);
            gcc.current_dir(&folder).succeed();
        };
        // Neither the compiler nor the linker adds a table by default.
        let bare = [
            "-fno-asynchronous-unwind-tables",
            "-Wl,--no-ld-generated-unwind-info",
        ];
        let library = [
            "-shared",
            "-fPIC",
            "-nostdlib",
            "-DLIBRARY",
            "-o",
            "libbare.so",
        ];
        build(&[&bare[..], &library].concat());
        build(&["-o", "unknown", "./libbare.so"]);
        Built { folder }
    }

    fn unspool(&self, arguments: &[&str]) -> Output {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        output
    }

    fn run(&self, arguments: &[&str]) -> Output {
        harness::unspool_in(&self.folder, arguments)
            .output()
            .unwrap()
    }

    /// The summary of a recording of the program in one mode: as a document and as text.
    fn record(&self, way: &str) -> (Value, String) {
        let record = [
            "record",
            "--format",
            "json",
            "-o",
            way,
            "--",
            "./unknown",
            way,
        ];
        let output = self.unspool(&record);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(output.stdout.is_empty());
        let document = json::document(said);
        assert_eq!(document["schema"], "unspool.record");
        assert_eq!(document["profile"], way);
        assert_eq!(document["exit_status"], 0);
        let report = self.unspool(&["report", "--tree", "none", way]);
        (document, String::from_utf8(report.stdout).unwrap())
    }
}

/// The reason, its module, and words in the advice.
type Advised = (&'static str, Option<&'static str>, &'static str);

fn check(built: &Built, way: &str, advised: Option<Advised>) {
    let (document, text) = built.record(way);
    let completeness = &document["completeness"];
    let number = |name: &str| completeness[name].as_u64().unwrap();
    // A sample at the end of a process finds no memory, and so no user stack.
    let samples = number("stacks") + number("samples_without_user_registers");
    assert_eq!(document["samples"], samples, "{document}");
    assert!(number("stacks") > 50, "{document}");
    let advice = completeness["advice"].as_array().unwrap();
    let Some((code, module, words)) = advised else {
        assert!(number("incomplete") * 100 < number("stacks"), "{document}");
        assert!(
            advice.is_empty() && !text.contains(" of stacks: "),
            "{text}"
        );
        return;
    };
    assert!(number("incomplete") * 2 > number("stacks"), "{document}");
    let (reason, advice) = (&completeness["reasons"][0], &advice[0]);
    for said in [reason, advice] {
        assert_eq!(said["code"], code, "{document}");
        assert_eq!(said["samples"], reason["samples"]);
    }
    let path = module.map(|name| built.folder.join(name).to_str().unwrap().to_owned());
    assert_eq!(advice["module"].as_str(), path.as_deref());
    let advice_text = advice["message"].as_str().unwrap();
    assert!(advice_text.contains(words), "{advice_text}");
    let line = text.lines().find(|line| line.contains(" of stacks: "));
    assert!(line.unwrap().ends_with(advice_text), "{text}");
}

#[test]
fn advice_names_what_is_missing() {
    let built = Built::new(false);
    let hole = ("hole", Some("unknown"), ".cfi directives");
    check(&built, "assembler", Some(hole));
    let no_table = (
        "no-table",
        Some("libbare.so"),
        "-fasynchronous-unwind-tables",
    );
    check(&built, "library", Some(no_table));
    let made = ("no-module", None, "frame pointers");
    check(&built, "made", Some(made));
}

/// After following the advice, stacks are complete.
#[test]
fn advice_helps() {
    let built = Built::new(true);
    check(&built, "assembler", None);
    check(&built, "library", None);
    check(&built, "made-with-frame-pointer", None);
}

/// A command that cannot be run does not overwrite the last profile.
#[test]
fn no_command_no_profile() {
    let built = Built::new(true);
    let path = built.folder.join("last");
    fs::write(&path, "the last profile").unwrap();
    for (command, status) in [("/nonexistent", 127), ("/etc/passwd", 126)] {
        let mut unspool = harness::unspool();
        unspool.args(["record", "-o", "last", "--", command]);
        let output = unspool.current_dir(&built.folder).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(&format!("cannot run {command}: ")), "{said}");
        assert!(!said.contains("existed"), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "the last profile");
        assert!(!built.folder.join("last.old").exists());
    }
}

/// Signals that do not end a recording are passed on to the command.
#[test]
fn other_signals_are_passed_on() {
    let built = Built::new(true);
    let script = "trap 'exit 5' USR2; kill -USR2 $PPID; while :; do sleep 0.01; done";
    let output = built.run(&["record", "-o", "signals", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
}

/// If the events are not available, the created command does not run, and prints nothing.
#[test]
fn without_events_nothing_runs() {
    let built = Built::new(true);
    for _ in 0..8 {
        let record = [
            "record",
            "-F",
            "4000000000",
            "-o",
            "none",
            "--",
            "touch",
            "ran",
        ];
        let output = built.run(&record);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("runtime error"), "{said}");
        assert!(!built.folder.join("ran").exists());
    }
}

/// Without a command, the document is on standard output, and includes the notices.
#[test]
fn the_document_of_a_process() {
    let built = Built::new(true);
    let mut running = command("sleep").arg("1000").spawn().unwrap();
    fs::write(built.folder.join("old"), "what was there").unwrap();
    let pid = running.id().to_string();
    let record = [
        "record", "--format", "json", "-d", "0.2", "-o", "old", "-p", &pid,
    ];
    let output = built.unspool(&record);
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    let document = json::document(output.stdout);
    assert_eq!(document["schema"], "unspool.record");
    assert_eq!(
        (&document["exit_status"], &document["lost_records"]),
        (&Value::Null, &0.into())
    );
    assert!(document["duration_seconds"].as_f64().unwrap() >= 0.2);
    assert_eq!(document["command"].as_array().unwrap().len(), 0);
    let notices = document["notices"].as_array().unwrap();
    let stays = "old: this recording is empty: the earlier one stays";
    assert!(notices.iter().any(|notice| notice == stays), "{document}");
    // It is asleep, and has no samples.
    assert_eq!(document["completeness"]["stacks"], 0);
}

/// musl is built without tables, and the program's are stripped: callers are found from the code.
#[test]
fn a_static_program_without_any_table_is_complete() {
    let folder = Folder::new();
    let mut musl_gcc = tool("musl-gcc");
    musl_gcc.args(["-O2", "-static", "-o", "sorts", &harness::source("sorts.c")]);
    musl_gcc.current_dir(&folder).succeed();
    folder.tool("strip", "-R .eh_frame -R .eh_frame_hdr sorts");
    let built = Built { folder };
    let output = built.unspool(&["record", "--format", "json", "-o", "p", "--", "./sorts"]);
    let document = json::document(output.stderr);
    let completeness = &document["completeness"];
    let number = |name: &str| completeness[name].as_u64().unwrap();
    assert!(number("stacks") > 50, "{document}");
    assert!(
        number("complete") * 100 >= number("stacks") * 99,
        "{document}"
    );
    assert_eq!(number("guessed"), 0, "{document}");
    // main, qsort and its callees: most stacks have five frames.
    let synthesized = completeness["frames_by_evidence"]["synthesized"]
        .as_u64()
        .unwrap();
    assert!(synthesized > 3 * number("stacks"), "{document}");
}
