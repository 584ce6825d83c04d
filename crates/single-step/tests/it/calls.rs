//! Functions called with generated arguments. Those in assembly check the promised values
//! themselves.

use std::path::{Path, PathBuf};
use std::time::Duration;

use unspool_single_step::{
    ArgumentInput, CallEnd, CallReport, CallRequest, HostProgram, RowSource, SingleStepError,
};
use unspool_table_store::TableSource;
use unspool_testing::tool;
use xtask::programs;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs");

/// A program with the functions. It begins with one of them, which its own code never does.
fn program() -> PathBuf {
    let mut compiler = tool("gcc");
    compiler.args(["-g", "-nostartfiles", "-no-pie", "-Wl,--entry=turns"]);
    let source = Path::new(SOURCES).join("called.s");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let other = format!("{SOURCES}/asm.s");
    let built = programs::build(compiler, &source, &[other], folder).unwrap();
    built.canonicalize().unwrap()
}

fn request(function: &str) -> CallRequest {
    CallRequest {
        host: HostProgram::itself(program()),
        function: function.to_owned(),
        arguments: Vec::new(),
        calls: 4,
        seed: 1,
        rows: RowSource::Table(TableSource::Auto),
        visits: 3,
        time_limit: Duration::from_secs(60),
    }
}

fn call(function: &str) -> CallReport {
    unspool_single_step::call(&request(function)).unwrap()
}

#[test]
fn the_values_are_as_promised() {
    let arguments = vec![
        ArgumentInput::Pointer,
        ArgumentInput::Between(7, 7),
        ArgumentInput::Between(u64::MAX - 1, u64::MAX),
    ];
    let mut request = CallRequest {
        arguments,
        calls: 8,
        ..request("expects")
    };
    for third in [(u64::MAX - 1, u64::MAX), (0, 9)] {
        request.arguments.pop();
        request
            .arguments
            .push(ArgumentInput::Between(third.0, third.1));
        let report = unspool_single_step::call(&request).unwrap();
        for called in &report.calls {
            let is_kept = matches!(&called.end, CallEnd::Returned(lost) if lost.is_empty());
            assert!(is_kept, "{called:x?}");
        }
        assert!(report.report.findings.is_empty());
    }
    // The function does check.
    request.arguments.truncate(1);
    let report = unspool_single_step::call(&request).unwrap();
    assert!(matches!(
        report.calls[0].end,
        CallEnd::Signal(libc::SIGILL, _)
    ));
}

#[test]
fn the_same_number_makes_the_same_values() {
    let arguments = |seed: u64| {
        let request = CallRequest {
            seed,
            ..request("right")
        };
        let calls = unspool_single_step::call(&request).unwrap().calls;
        calls
            .iter()
            .map(|called| called.arguments)
            .collect::<Vec<_>>()
    };
    let first = arguments(5);
    assert_eq!(first, arguments(5));
    assert_ne!(first, arguments(6));
    assert_ne!(first[0], first[1]);
}

#[test]
fn rows_are_compared_with_the_call() {
    let report = call("right").report;
    assert!(report.findings.is_empty());
    let [function] = report.functions.as_slice() else {
        panic!("{:?}", report.functions);
    };
    assert_eq!((function.entered, function.rows.executed), (4, 3));
    let report = call("wrong").report;
    let said: Vec<String> = report
        .findings
        .iter()
        .map(|f| f.finding.message())
        .collect();
    assert_eq!(
        said,
        [
            "the CFA is rsp+16, and declared rsp+8",
            "the caller's rbx is [cfa-16], and declared unchanged",
        ]
    );
}

#[test]
fn registers_that_are_not_preserved() {
    for called in call("loses").calls {
        let CallEnd::Returned(lost) = &called.end else {
            panic!("{called:?}");
        };
        let [rbp, r12, direction] = lost.as_slice() else {
            panic!("{lost:x?}");
        };
        assert_eq!((rbp.register, rbp.found), ("rbp", !rbp.expected));
        assert_eq!((r12.register, r12.found), ("r12", 1));
        assert_eq!((direction.expected, direction.found), (0, 0x400));
        // They are easy to tell apart.
        assert_ne!(rbp.expected >> 48, r12.expected >> 48);
        assert_eq!(direction.register, "df");
    }
}

#[test]
fn a_crash_is_reported_with_its_location() {
    let report = call("crashes");
    assert!(report.report.findings.is_empty());
    let [function] = report.report.functions.as_slice() else {
        panic!("{:?}", report.report.functions);
    };
    for called in &report.calls {
        let CallEnd::Signal(libc::SIGSEGV, spot) = &called.end else {
            panic!("{called:?}");
        };
        // Behind the push, which is one byte.
        assert_eq!(spot.vaddr.map(|at| at.0), Some(function.start.0 + 1));
    }
    // The row behind the pop.
    assert_eq!(
        (function.rows.executed, function.rows.not_executed.len()),
        (2, 1)
    );
}

#[test]
fn calls_may_exit_or_time_out() {
    for called in call("leaves").calls {
        assert!(matches!(called.end, CallEnd::Ended(status) if status.code() == Some(7)));
    }
    let request = CallRequest {
        calls: 1,
        time_limit: Duration::from_secs(1),
        ..request("turns")
    };
    let report = unspool_single_step::call(&request).unwrap();
    let CallEnd::TimedOut(spot) = &report.calls[0].end else {
        panic!("{:?}", report.calls);
    };
    let start = report.report.functions[0].start;
    let at = spot.as_ref().and_then(|spot| spot.vaddr);
    assert!(at.is_none_or(|at| at == start), "{at:?}");
}

#[test]
fn no_such_function() {
    let error = unspool_single_step::call(&request("no_such_function")).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("has no function no_such_function")
    );
    let request = CallRequest {
        host: HostProgram {
            program: "/bin/true".into(),
            ..request("right").host
        },
        ..request("right")
    };
    let error = unspool_single_step::call(&request).unwrap_err();
    assert!(matches!(error, SingleStepError::NothingInScope(_)));
    assert!(error.to_string().ends_with("was not loaded"));
}
