//! Programs with various uses of their stacks. Their functions in assembly are right, except those
//! with names that say "wrong", and the truth must stay known throughout.

use std::path::{Path, PathBuf};
use std::time::Duration;

use unspool_check::FindingCode;
use unspool_single_step::{FunctionRun, RowSource, SingleStepError, StepReport, StepRequest};
use unspool_table_store::TableSource;
use unspool_testing::tool;
use xtask::programs;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs");
const FOLDER: &str = env!("CARGO_TARGET_TMPDIR");

/// Compiles a program, or a shared object, from a source and functions in assembly.
fn build(compiler: &str, source: &str, assembly: &str, options: &[&str]) -> PathBuf {
    let mut command = tool(compiler);
    command.args(["-O1", "-g", "-pthread"]).args(options);
    let assembly = format!("{SOURCES}/{assembly}");
    let source = Path::new(SOURCES).join(source);
    programs::build(command, &source, &[assembly], Path::new(FOLDER)).unwrap()
}

fn cases() -> PathBuf {
    build("/usr/bin/gcc", "cases.c", "asm.s", &[])
}

fn request(program: &Path, arguments: &[&str]) -> StepRequest {
    let mut command = vec![program.as_os_str().to_owned()];
    command.extend(arguments.iter().map(Into::into));
    StepRequest {
        command,
        functions: Vec::new(),
        modules: Vec::new(),
        rows: RowSource::Table(TableSource::Auto),
        visits: 3,
        time_limit: Duration::from_secs(60),
    }
}

fn run(case: &str) -> StepReport {
    unspool_single_step::run(&request(&cases(), &[case])).unwrap()
}

fn function<'r>(report: &'r StepReport, name: &str) -> &'r FunctionRun {
    let mut functions = report.functions.iter();
    let named = |function: &&FunctionRun| function.name.as_deref() == Some(name);
    functions
        .find(named)
        .unwrap_or_else(|| panic!("no function {name}"))
}

/// The names of the functions with findings.
fn accused(report: &StepReport) -> Vec<&str> {
    let findings = report.findings.iter();
    let names = findings.map(|found| {
        let functions = report.functions.iter();
        let mut functions = functions.rev().filter(|f| f.module == found.module);
        let function = functions.find(|function| function.start <= found.finding.address);
        function
            .and_then(|function| function.name.as_deref())
            .unwrap_or("?")
    });
    names.collect()
}

/// A right program: there are no findings, and each of these functions had all its rows checked.
fn is_right(report: &StepReport, functions: &[&str]) {
    assert_eq!(accused(report), [""; 0], "{:#?}", report.findings);
    assert_eq!(report.status.and_then(|status| status.code()), Some(0));
    assert_eq!(report.uncertain, 0);
    for name in functions {
        let run = function(report, name);
        assert!(
            run.entered > 0 && run.rows.not_executed.is_empty(),
            "{run:?}"
        );
    }
}

#[test]
fn threads() {
    is_right(&run("threads"), &["right", "calls"]);
}

/// The program ends as without a tracer, for any interaction of the threads, and there are no
/// findings.
#[test]
fn threads_at_the_same_breakpoints() {
    let program = build("/usr/bin/gcc", "crowd.c", "crowd.s", &[]);
    for visits in [1, 2, 3] {
        let request = StepRequest {
            visits,
            ..request(&program, &[])
        };
        let report = unspool_single_step::run(&request).unwrap();
        let functions = report.functions.iter();
        let names: Vec<&str> = functions.filter_map(|f| f.name.as_deref()).collect();
        assert_eq!(names.len(), 200);
        is_right(&report, &names);
    }
}

#[test]
fn threads_that_are_interrupted_and_start_processes() {
    for visits in [1, 3, 1000] {
        let request = StepRequest {
            visits,
            ..request(&cases(), &["storm"])
        };
        let report = unspool_single_step::run(&request).unwrap();
        is_right(&report, &["right", "calls", "reads"]);
    }
}

#[test]
fn long_jumps() {
    is_right(&run("longjmps"), &["right"]);
}

#[test]
fn signals() {
    is_right(&run("signals"), &["right", "calls"]);
}

#[test]
fn a_signals_frame_that_is_not_declared() {
    let source = "undeclared_signal";
    let (c, assembly) = (format!("{source}.c"), format!("{source}.s"));
    let program = build("/usr/bin/gcc", &c, &assembly, &[]);
    let report = unspool_single_step::run(&request(&program, &[])).unwrap();
    let findings: Vec<_> = report.findings.iter().map(|it| &it.finding).collect();
    let [finding] = findings[..] else {
        panic!("{findings:#?}");
    };
    assert_eq!(finding.code, FindingCode::SignalFrame);
    assert_eq!(
        finding.message(),
        "the frame is a signal's, and declared a function's"
    );
    assert_eq!(finding.fix.as_deref(), Some(".cfi_signal_frame"));
}

#[test]
fn handlers_that_do_not_return() {
    is_right(&run("faults"), &["right"]);
}

#[test]
fn tail_calls() {
    is_right(&run("tail_calls"), &["right", "jumps"]);
}

#[test]
fn a_return_address_that_lies_about_calls_nothing() {
    is_right(&run("stale_word"), &["stale_word"]);
}

#[test]
fn an_exit_that_functions_share() {
    let report = run("shares");
    assert_eq!(accused(&report), ["wrong_exit"], "{:#?}", report.findings);
    assert_eq!(report.status.and_then(|status| status.code()), Some(0));
    let run = function(&report, "wrong_exit");
    assert!(
        run.entered > 0 && run.rows.not_executed.is_empty(),
        "{run:?}"
    );
}

#[test]
fn callbacks() {
    is_right(&run("callbacks"), &["right", "calls"]);
}

#[test]
fn coroutines() {
    is_right(&run("coroutines"), &["right", "switch_stack"]);
}

#[test]
fn contexts() {
    is_right(&run("contexts"), &["right", "calls"]);
}

/// The C library's rows of `setcontext` describe the target context, even before the stack is
/// switched.
#[test]
fn a_row_that_tells_of_another_context() {
    let request = StepRequest {
        modules: vec!["libc".to_owned()],
        functions: vec!["setcontext".to_owned()],
        ..request(&cases(), &["contexts"])
    };
    let report = unspool_single_step::run(&request).unwrap();
    assert_eq!(report.status.and_then(|status| status.code()), Some(0));
    assert!(function(&report, "setcontext").rows.executed > 2);
    is_unaccused(&report);
}

/// A run compared with rows synthesized from code alone.
fn run_of_code(case: &str) -> StepReport {
    let request = StepRequest {
        rows: RowSource::Code,
        ..request(&cases(), &[case])
    };
    unspool_single_step::run(&request).unwrap()
}

#[test]
fn rows_made_of_code() {
    let cases = ["threads", "longjmps", "signals", "callbacks", "contexts"];
    for case in cases {
        let report = run_of_code(case);
        is_right(&report, &["right"]);
        assert_eq!(function(&report, "right").rows.missing, 0);
    }
    // The synthesized rows are right, whatever is declared.
    let report = run_of_code("wrong");
    is_right(&report, &["wrong"]);
    assert!(function(&report, "wrong").rows.executed > 2);
}

#[test]
fn a_wrong_row_made_of_code() {
    is_right(&run("misleads"), &["misleads", "pops"]);
    let report = run_of_code("misleads");
    assert_eq!(accused(&report), ["misleads"], "{:#?}", report.findings);
    let found = &report.findings[0];
    assert_eq!(
        found.finding.message(),
        "the CFA is rsp+8, and declared rsp+16"
    );
    assert_eq!(found.places.len(), 2);
}

#[test]
fn code_of_which_no_row_is_made() {
    is_right(&run("moves"), &["moves"]);
    let report = run_of_code("moves");
    is_right(&report, &["moves"]);
    // The return has one: functions return.
    assert_eq!(function(&report, "moves").rows.missing, 2);
}

/// All functions of the program, those of C included.
fn all_of(case: &str) -> StepReport {
    let program = cases();
    let name = program.file_name().unwrap().to_string_lossy().into_owned();
    let request = StepRequest {
        modules: vec![name],
        ..request(&program, &[case])
    };
    unspool_single_step::run(&request).unwrap()
}

#[test]
fn compiled_code_is_right_through_all_of_it() {
    for case in [
        "threads",
        "storm",
        "longjmps",
        "signals",
        "faults",
        "tail_calls",
        "callbacks",
        "coroutines",
        "contexts",
    ] {
        let report = all_of(case);
        assert_eq!(accused(&report), [""; 0], "{case}: {:#?}", report.findings);
        assert_eq!(
            report.status.and_then(|status| status.code()),
            Some(0),
            "{case}"
        );
        assert!(function(&report, "main").entered > 0);
    }
}

#[test]
fn exceptions() {
    let program = build("/usr/bin/g++", "throws.cc", "asm.s", &[]);
    let report = unspool_single_step::run(&request(&program, &[])).unwrap();
    is_right(&report, &["right"]);
    // The landing pads, too.
    let name = program.file_name().unwrap().to_string_lossy().into_owned();
    let request = StepRequest {
        modules: vec![name],
        ..request(&program, &[])
    };
    let report = unspool_single_step::run(&request).unwrap();
    is_right(&report, &["right"]);
    let catches = report
        .functions
        .iter()
        .find(|f| f.name.as_deref().is_some_and(|n| n.contains("catches")));
    let catches = catches.unwrap();
    assert!(
        catches.entered > 0 && catches.rows.executed > 3,
        "{catches:?}"
    );
}

#[test]
fn a_child_is_followed() {
    let report = run("forks");
    assert!(!accused(&report).is_empty());
    assert!(accused(&report).iter().all(|name| *name == "wrong"));
    assert_eq!(report.status.and_then(|status| status.code()), Some(0));
    is_right(&run("spawns"), &["right"]);
}

#[test]
fn another_program_is_followed() {
    let report = run("executes");
    assert!(accused(&report).contains(&"wrong"), "{report:#?}");
    assert_eq!(report.status.and_then(|status| status.code()), Some(0));
}

#[test]
fn mismatches_are_reported_with_distances() {
    let report = run("wrong");
    let said: Vec<String> = report
        .findings
        .iter()
        .map(|found| found.finding.message())
        .collect();
    assert_eq!(
        said,
        [
            "the CFA is rsp+16, and declared rsp+8",
            "the caller's rbx is [cfa-16], and declared unchanged",
        ]
    );
    let first = &report.findings[0];
    assert_eq!(first.finding.code, FindingCode::CfaOffset);
    assert_eq!(
        first.finding.fix.as_deref(),
        Some(".cfi_adjust_cfa_offset 8")
    );
    // From behind the push to before the return.
    assert_eq!(first.places.len(), 3);
    assert_eq!(
        first.finding.address.0,
        function(&report, "wrong").start.0 + 1
    );
}

/// A slot is reported although the register was not overwritten yet, and not a register that is
/// near by chance.
#[test]
fn mismatches_are_corrected_for_later_rows() {
    let report = run("wrong_places");
    let said: Vec<_> = report
        .findings
        .iter()
        .map(|found| (found.finding.message(), found.finding.fix.clone()))
        .collect();
    let expected = [
        (
            "the caller's rbx is [cfa-24], and declared [cfa-32]",
            ".cfi_offset %rbx, -24",
        ),
        (
            "the CFA is rsp+8, and declared rbp+16",
            ".cfi_def_cfa %rsp, 8",
        ),
    ];
    let expected = expected.map(|(message, fix)| (message.to_owned(), Some(fix.to_owned())));
    assert_eq!(said, expected);
}

#[test]
fn a_return_address_may_be_moved() {
    let report = run("has_data");
    is_right(&report, &["skips_data", "has_data"]);
    assert_eq!(report.status.and_then(|status| status.code()), Some(0));
}

#[test]
fn a_way_that_is_rarely_taken_is_seen_in_the_end() {
    let report = run("rarely");
    assert_eq!(accused(&report).first(), Some(&"loops"));
    // A thousand million iterations at full speed.
    assert!(report.steps < 100_000, "{} steps", report.steps);
    assert!(function(&report, "loops").rows.not_executed.is_empty());
}

/// A function's frame is not confused with that of an unseen call of the same function.
#[test]
fn frames_of_unseen_recursive_calls_are_distinguished() {
    is_right(&run("recurses"), &["recurses"]);
}

/// A call is recognised by its bytes, which may have a breakpoint on them.
#[test]
fn a_call_on_which_there_is_a_breakpoint() {
    is_right(&run("descends"), &["descends"]);
}

#[test]
fn a_library_that_is_opened_later() {
    let library = build("/usr/bin/gcc", "empty.c", "asm.s", &["-shared", "-fPIC"]);
    let path = library.to_string_lossy().into_owned();
    let request = StepRequest {
        modules: vec![path.clone()],
        functions: vec!["wrong".to_owned()],
        ..request(&cases(), &["opens", &path])
    };
    let report = unspool_single_step::run(&request).unwrap();
    assert_eq!(report.status.and_then(|status| status.code()), Some(0));
    assert!(accused(&report).contains(&"wrong"), "{report:#?}");
    assert!(report.findings.iter().all(|found| found.module == library));
}

#[test]
fn endless_programs_are_killed() {
    let request = StepRequest {
        time_limit: Duration::from_secs(2),
        ..request(&cases(), &["endless"])
    };
    let report = unspool_single_step::run(&request).unwrap();
    assert!(report.timed_out);
    assert_eq!(function(&report, "endless").entered, 1);
    is_unaccused(&report);
}

fn is_unaccused(report: &StepReport) {
    assert_eq!(accused(report), [""; 0], "{:#?}", report.findings);
}

#[test]
fn a_program_that_fights() {
    is_right(&run("fights"), &["right"]);
}

#[test]
fn a_program_that_ends_in_the_middle() {
    let report = run("ends");
    is_unaccused(&report);
    assert_eq!(report.status.and_then(|status| status.code()), Some(7));
    assert!(!function(&report, "calls").rows.not_executed.is_empty());
}

#[test]
fn nothing_is_called() {
    let report = run("nothing");
    assert!(
        report
            .functions
            .iter()
            .all(|function| function.entered == 0)
    );
    assert_eq!((report.steps, report.checked), (0, 0));
}

#[test]
fn unrunnable_requests_are_reported() {
    let program = cases();
    let unknown = StepRequest {
        functions: vec!["no_such_function".to_owned()],
        ..request(&program, &["nothing"])
    };
    let error = unspool_single_step::run(&unknown).unwrap_err();
    assert_eq!(
        error.to_string(),
        "nothing to step: no module has a function no_such_function"
    );
    let error = unspool_single_step::run(&request(Path::new("/dev/null"), &[])).unwrap_err();
    assert!(matches!(error, SingleStepError::Start { .. }), "{error:?}");
}
