//! Results of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;

use unspool_check::{Aspect, CodeOrigin, Finding, FindingCode, RuleLocation, Severity, wording};
use unspool_code_analysis::arch::AbiInfo;
use unspool_rows::Vaddr;

use crate::compare::{RowFault, RowMismatch, place_of};
use crate::faults::{FaultCause, FaultRecord};
use crate::scope::{SteppedFunction, SteppedModule};
use crate::tracer::Tracer;
use crate::x86_64::ABI;

/// The report of a run.
#[derive(Debug)]
pub struct StepReport {
    /// Exit status of the command; `None` if it is not known.
    pub status: Option<ExitStatus>,
    /// Whether it was killed at the time limit.
    pub timed_out: bool,
    /// The functions in scope, by module and address.
    pub functions: Vec<FunctionRun>,
    /// For modules with functions in scope: the number of compiled functions out of scope.
    pub left_out: BTreeMap<PathBuf, usize>,
    /// Findings, by module and address.
    pub findings: Vec<ObservedFinding>,
    /// Number of instructions stepped.
    pub steps: u64,
    /// Number of instructions at which rows were compared with the truth.
    pub checked: u64,
    /// Number of instructions stepped in an uncertain frame: rows were not compared.
    pub uncertain: u64,
    /// Number of function entries without a call: they were not stepped.
    pub entries_without_call: u64,
}

/// A function in scope.
#[derive(Debug)]
pub struct FunctionRun {
    /// The file that contains it.
    pub module: PathBuf,
    /// Its name.
    pub name: Option<String>,
    /// Its first address.
    pub start: Vaddr,
    /// Number of observed entries.
    pub entered: u64,
    /// Whether it was retired because it showed nothing new for long. From then on it was not
    /// compared, except where it did something new.
    pub was_retired: bool,
    /// Its rows.
    pub rows: RowCoverage,
}

/// Coverage of a function's rows.
#[derive(Debug, Default)]
pub struct RowCoverage {
    /// Number of rows executed.
    pub executed: usize,
    /// Starts of the rows that were not executed.
    pub not_executed: Vec<Vaddr>,
    /// Number of executed instructions without a row.
    pub missing: usize,
}

/// A finding, and where it was observed.
#[derive(Debug)]
pub struct ObservedFinding {
    /// The file.
    pub module: PathBuf,
    /// The finding.
    pub finding: Finding,
    /// All instructions at which it was observed.
    pub places: Vec<Vaddr>,
    /// Number of observations.
    pub times: u64,
}

pub(crate) fn from_tracer(tracer: &Tracer<'_>, is_late: bool) -> StepReport {
    let stepper = &tracer.stepper;
    let (modules, counts) = (stepper.modules.all(), &stepper.counts);
    let mut causes: Vec<(&FaultCause, &FaultRecord)> = stepper.faults.0.iter().collect();
    causes.sort_by_key(|((module, ..), seen)| (*module, seen.places.first().copied()));
    let abi_info = stepper.modules.abi_info();
    let mut mended = BTreeSet::new();
    let findings = causes.into_iter().filter_map(|(cause, seen)| {
        let mut observed = observed(modules.get(cause.0)?, cause, seen, abi_info)?;
        let finding = &mut observed.finding;
        if finding.code == FindingCode::CfaOffset && !mended.insert((cause.0, cause.1)) {
            // The repair of the first fault may change the declared values here.
            finding.fix = match seen.truth {
                Some(RuleLocation::Register(_, real)) => {
                    Some(format!(".cfi_def_cfa_offset {real}"))
                }
                _ => None,
            };
        }
        Some(observed)
    });
    let findings = findings.collect();
    let left_out = modules.iter().filter(|module| module.left_out > 0);
    StepReport {
        status: tracer.root_status.map(ExitStatus::from_raw),
        timed_out: is_late,
        functions: modules.iter().flat_map(functions).collect(),
        left_out: left_out
            .map(|module| (module.path.clone(), module.left_out))
            .collect(),
        findings,
        steps: counts.steps,
        checked: counts.checked,
        uncertain: counts.uncertain,
        entries_without_call: counts.entries_without_call,
    }
}

fn functions(module: &SteppedModule) -> impl Iterator<Item = FunctionRun> {
    module.functions.iter().map(|function| {
        let rows = rows(module, function);
        // A part is not called: it was entered if it was executed.
        let is_executed_part = function.is_part && rows.executed > 0;
        FunctionRun {
            module: module.path.clone(),
            name: function.name.clone(),
            start: function.start,
            entered: function.entered.max(is_executed_part.into()),
            was_retired: function.was_retired,
            rows,
        }
    })
}

fn rows(module: &SteppedModule, function: &SteppedFunction) -> RowCoverage {
    let first = module
        .spans
        .partition_point(|span| span.end <= function.start);
    let spans = module.spans.iter().skip(first);
    let mut rows = RowCoverage::default();
    for span in spans.take_while(|span| span.start < function.end) {
        let start = span.start.max(function.start);
        let end = span.end.min(function.end);
        let mut spots = module.visited.range(start.0..end.0);
        if spots.any(|(_, spot)| spot.visits > 0) {
            rows.executed += 1;
        } else {
            rows.not_executed.push(start);
        }
    }
    let spots = module.visited.range(function.start.0..function.end.0);
    let executed = spots.filter(|(_, spot)| spot.visits > 0);
    rows.missing = executed
        .filter(|(at, _)| module.row(Vaddr(**at)).is_none())
        .count();
    rows
}

fn observed(
    module: &SteppedModule,
    (_, function, fault): &FaultCause,
    fault_record: &FaultRecord,
    abi_info: &AbiInfo,
) -> Option<ObservedFinding> {
    let at = *fault_record.places.first()?;
    let function = module.functions.get(*function);
    let mut finding = Finding {
        code: FindingCode::NoEntry,
        severity: Severity::Refuted,
        address: at,
        occurrences: fault_record.places.len(),
        subject: String::new(),
        declared: String::new(),
        computed: String::new(),
        fix: None,
        hint: None,
        related: Vec::new(),
    };
    match fault {
        RowFault::UndeclaredSignal => finding = Finding::undeclared_signal_frame(at),
        RowFault::Missing => {
            let begins = function.is_some_and(|function| module.row(function.start).is_some());
            if begins {
                finding.code = FindingCode::EntryTooShort;
            }
        }
        RowFault::Mismatch(difference) => {
            finding.code = difference.code;
            finding.subject = wording::aspect(difference.aspect, ABI);
            finding.declared.clone_from(&difference.declared);
            if let Some(truth) = fault_record.truth {
                finding.computed = wording::location_text(truth, difference.aspect, ABI);
            }
            finding.fix = match (difference.code, difference.distance) {
                (FindingCode::CfaOffset, Some(distance)) => {
                    Some(format!(".cfi_adjust_cfa_offset {distance}"))
                }
                // The intention of an expression is not known.
                (FindingCode::Expression, _) if difference.aspect == Aspect::Cfa => None,
                _ => fault_record.truth.and_then(|truth| {
                    wording::directive(difference.aspect, truth, abi_info.return_address, ABI)
                }),
            };
            if is_never_restored(function, difference, abi_info) {
                finding.code = FindingCode::PrivateConvention;
            }
        }
    }
    // Compilers do these on purpose, people seldom.
    let has_reasons = matches!(
        finding.code,
        FindingCode::NoEntry | FindingCode::EntryTooShort | FindingCode::PrivateConvention
    );
    if has_reasons && module.origin == CodeOrigin::Compiler {
        finding.severity = Severity::Note;
    }
    Some(ObservedFinding {
        module: module.path.clone(),
        finding,
        places: fault_record.places.iter().copied().collect(),
        times: fault_record.times,
    })
}

/// Whether a function was seen to return, and never with the register's entry value.
fn is_never_restored(
    function: Option<&SteppedFunction>,
    mismatch: &RowMismatch,
    abi_info: &AbiInfo,
) -> bool {
    let place = place_of(mismatch.aspect, abi_info);
    let lost = function.zip(place).and_then(|(function, place)| {
        let lost = function.lost.get(place)?;
        Some(function.returned > 0 && *lost == function.returned)
    });
    mismatch.code == FindingCode::RegisterLost && lost.unwrap_or(false)
}
