//! The pairs of `crates/check/corpus`, which gdb has proven right and wrong: a run reports nothing
//! in the right ones, and a finding at the labels of the wrong ones.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::time::Duration;

use unspool_check::Severity;
use unspool_single_step::{ObservedFinding, RowSource, StepReport, StepRequest};
use unspool_table_store::TableSource;
use xtask::corpus::pair::{self, Pair};
use xtask::corpus::program::{PairProgram, Variant};

/// Wrong rows that deny a caller: a run takes them to say nothing.
const WITHOUT_CALLER: &[&str] = &["outermost_in_the_middle"];

const FOLDER: &str = env!("CARGO_TARGET_TMPDIR");

fn build(pair: &Pair, variant: Variant) -> Result<PairProgram, Box<dyn Error>> {
    let built = PairProgram::build(pair, variant, Path::new(FOLDER), &["/usr/bin/as"]);
    Ok(built.map_err(|error| error.to_string())?)
}

/// Runs it with an argument of a given length, which determines the stack's alignment.
fn run(program: &PairProgram, length: usize) -> Result<StepReport, Box<dyn Error>> {
    let request = StepRequest {
        command: vec![program.path.clone().into(), "x".repeat(length).into()],
        functions: Vec::new(),
        modules: Vec::new(),
        rows: RowSource::Table(TableSource::Auto),
        visits: 3,
        time_limit: Duration::from_secs(60),
    };
    let report = unspool_single_step::run(&request)?;
    let is_well = report.status.is_some_and(|status| status.success());
    if is_well {
        Ok(report)
    } else {
        Err(format!("it ends with {:?}", report.status).into())
    }
}

/// The findings by name and message.
fn describe_findings(program: &PairProgram, report: &StepReport) -> String {
    let findings = report.findings.iter();
    let lines = findings.map(|found| {
        let places = found.places.iter().map(|at| program.name(at.0));
        let places: Vec<String> = places.collect();
        format!("\n    {}: {}", places.join(" "), found.finding.message())
    });
    lines.collect()
}

fn problems(pair: &Pair) -> Result<Vec<String>, Box<dyn Error>> {
    let mut problems = Vec::new();
    let program = build(pair, Variant::Right)?;
    let report = run(&program, 1)?;
    if !report.findings.is_empty() {
        problems.push(format!(
            "right: found{}",
            describe_findings(&program, &report)
        ));
    }
    if report.checked == 0 || report.uncertain > 0 {
        problems.push(format!(
            "right: {} checked, {} uncertain",
            report.checked, report.uncertain
        ));
    }
    let program = build(pair, Variant::Wrong)?;
    let mut report = run(&program, 1)?;
    let is_shown = !pair.is_static_only && !WITHOUT_CALLER.contains(&pair.name.as_str());
    for length in [16, 32, 48] {
        // An address may be aligned by chance.
        if report.findings.is_empty() && is_shown {
            report = run(&program, length)?;
        }
    }
    let refuted = |found: &&ObservedFinding| found.finding.severity == Severity::Refuted;
    let refuted = report.findings.iter().filter(refuted);
    let found = refuted.flat_map(|found| &found.places);
    let found: BTreeSet<u64> = found.map(|at| at.0).collect();
    let mut labels = BTreeSet::new();
    for label in &pair.labels {
        labels.insert(program.label(label).map_err(|error| error.to_string())?);
    }
    if !is_shown {
        labels.clear();
    }
    let missed = labels.difference(&found).map(|at| program.name(*at));
    let missed: Vec<String> = missed.collect();
    if !missed.is_empty() {
        problems.push(format!(
            "wrong: nothing at {missed:?}, but{}",
            describe_findings(&program, &report)
        ));
    }
    // The fault begins at a label of the function.
    let function = |at: u64| {
        report
            .functions
            .iter()
            .rfind(|function| function.start.0 <= at)
    };
    let begins = |at: &&u64| {
        let label = labels.range(..=**at).next_back();
        label.is_none_or(|label| {
            function(*label).map(|f| f.start) != function(**at).map(|f| f.start)
        })
    };
    let early: Vec<String> = found
        .iter()
        .filter(begins)
        .map(|at| program.name(*at))
        .collect();
    if !early.is_empty() {
        problems.push(format!(
            "wrong: already at {early:?}{}",
            describe_findings(&program, &report)
        ));
    }
    Ok(problems)
}

#[test]
fn runs_tell_wrong_tables_from_right_ones() {
    let only = std::env::var("CORPUS_ONLY").unwrap_or_default();
    let pairs = pair::all().unwrap();
    let mut reported = Vec::new();
    for pair in pairs.iter().filter(|pair| pair.name.contains(&only)) {
        let problems = problems(pair).unwrap_or_else(|error| vec![error.to_string()]);
        reported.extend(
            problems
                .into_iter()
                .map(|problem| format!("{}: {problem}", pair.name)),
        );
    }
    assert!(
        reported.is_empty(),
        "{} problems:\n{}",
        reported.len(),
        reported.join("\n")
    );
}
