//! The proof of a pair's declarations: its right variant is right at every executed instruction,
//! and its wrong one is wrong from its labels on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::pair::Pair;
use super::program::{GdbRun, PairProgram, Variant};
use crate::Error;

/// Instructions that are not real code: they fill gaps, or must never be reached.
const PADDING_MNEMONICS: [&str; 6] = ["nop", "nopl", "nopw", "int3", "ud2", "hlt"];

/// Differences from a pair's declarations; empty if there are none.
///
/// # Errors
///
/// It cannot be built or run.
pub fn problems(pair: &Pair, folder: &Path) -> Result<Vec<String>, Error> {
    let right = PairProgram::build(pair, Variant::Right, folder, &["/usr/bin/as"])?;
    let wrong = PairProgram::build(pair, Variant::Wrong, folder, &["/usr/bin/as"])?;
    let mut problems = Vec::new();
    if (right.code == wrong.code) == pair.has_two_codes {
        problems.push(if pair.has_two_codes {
            "the code is the same, against `# code: differs`".to_owned()
        } else {
            "the code differs, without `# code: differs`".to_owned()
        });
    }
    let run = right.step(pair)?;
    problems.extend(ends_well(&run, "right"));
    problems.extend(unreached(pair, &right, &run)?);
    for (address, text) in falsehoods(&right, &run) {
        let name = right.name(address);
        problems.push(format!("the right table is false at {name}: {text}"));
    }
    let run = wrong.step(pair)?;
    problems.extend(ends_well(&run, "wrong"));
    problems.extend(misplaced(pair, &wrong, &run)?);
    Ok(problems)
}

fn ends_well(run: &GdbRun, variant: &str) -> Option<String> {
    let exit = &run.exit;
    (exit != "0").then(|| format!("the {variant} variant ends with {exit}"))
}

/// Addresses where a table is wrong, and how.
#[must_use]
pub fn falsehoods(program: &PairProgram, run: &GdbRun) -> BTreeMap<u64, String> {
    let mut found = split(program, run);
    found.extend(false_rows(program, run));
    found
}

/// Wrong rows in a run: according to gdb's unwinder, and where there is no row.
fn false_rows(program: &PairProgram, run: &GdbRun) -> BTreeMap<u64, String> {
    let mut found = run.differences.clone();
    for address in &run.executed {
        if !program.entries.iter().any(|entry| entry.contains(address)) {
            found.insert(*address, "no entry".to_owned());
        }
    }
    found
}

/// The instructions in the middle of which a row starts.
fn split(program: &PairProgram, run: &GdbRun) -> BTreeMap<u64, String> {
    let mut found = BTreeMap::new();
    for row in &program.rows {
        let before = run.instructions.range(..row).next_back();
        if let Some((start, instruction)) = before
            && *row < instruction.end
        {
            found.insert(*start, format!("a row starts inside, at {row:#x}"));
        }
    }
    found
}

/// Whether the ranges of wrong rows start elsewhere than at the labels.
fn misplaced(pair: &Pair, program: &PairProgram, run: &GdbRun) -> Result<Option<String>, Error> {
    let found = falsehoods(program, run);
    let code = run.instructions.keys().copied();
    let code: Vec<u64> = code
        .filter(|at| run.executed.contains(at) || found.contains_key(at))
        .collect();
    let starts = starts(&code, |at| found.contains_key(&at));
    if pair.is_static_only != false_rows(program, run).is_empty() {
        return Ok(Some(
            "what runs show is not as `static-only` says".to_owned(),
        ));
    }
    if starts == addresses(program, &pair.labels)? {
        return Ok(None);
    }
    let mut text = "the wrong table is false from other places on:".to_owned();
    for start in starts {
        let reason = found.get(&start).map_or("", String::as_str);
        write!(text, " {} ({reason})", program.name(start))?;
    }
    Ok(Some(text))
}

/// Whether code other than that of the labels was not executed.
fn unreached(pair: &Pair, program: &PairProgram, run: &GdbRun) -> Result<Option<String>, Error> {
    let code = run.instructions.iter();
    let code: Vec<u64> = code
        .filter(|(at, instruction)| {
            run.executed.contains(at) || !PADDING_MNEMONICS.contains(&instruction.mnemonic.as_str())
        })
        .map(|(at, _)| *at)
        .collect();
    let starts = starts(&code, |at| !run.executed.contains(&at));
    if starts == addresses(program, &pair.never_runs)? {
        return Ok(None);
    }
    let names: Vec<String> = starts.iter().map(|start| program.name(*start)).collect();
    Ok(Some(format!("what never runs is {names:?}")))
}

fn addresses(program: &PairProgram, labels: &[String]) -> Result<Vec<u64>, Error> {
    let addresses = labels.iter().map(|label| program.label(label));
    let mut addresses = addresses.collect::<Result<Vec<u64>, Error>>()?;
    addresses.sort_unstable();
    Ok(addresses)
}

/// The first of each range of neighbours with a property.
fn starts(sorted: &[u64], holds: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut starts = Vec::new();
    let mut held = false;
    for at in sorted {
        let holds = holds(*at);
        if holds && !held {
            starts.push(*at);
        }
        held = holds;
    }
    starts
}
