//! Executes every instruction of the decoder library, in each form, on this processor from several
//! states. The results are compared with what the analysis and the verifier claim to be preserved.
//! `cargo xtask effects` prints what was executed, and asks a second decoder about the rest.

pub(crate) mod child;
pub(crate) mod comparison;
pub(crate) mod forms;
#[allow(
    clippy::match_same_arms,
    reason = "what manuals say, in the order of manuals"
)]
pub(crate) mod second_decoder;
pub(crate) mod sequences;
pub(crate) mod sys;

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Code, FlowControl};
use unspool_rows::{Abi, Arch, Endian};

use child::{StepEnd, TraceeProcess};
use comparison::{Checker, Executed};
use forms::{InsnForm, InsnForms};
use sequences::SequencePool;

/// Number of states that a form is tried from in a normal test, until one executes it.
const STATES: u64 = 4;

/// Outcomes of all forms.
#[derive(Default)]
struct FormOutcomes {
    executed: usize,
    /// Opcodes with an executed form.
    codes: BTreeSet<String>,
    /// Forms that faulted in every state, and those that this processor does not have.
    faulted: Vec<InsnForm>,
    unknown: Vec<InsnForm>,
    differences: BTreeMap<String, Vec<String>>,
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Executes all forms, each from the first state that works, or from all.
fn execute(forms: Vec<InsnForm>, checker: &mut Checker, states: Option<u64>) -> FormOutcomes {
    let mut traced = TraceeProcess::start().expect("this process can trace another");
    let mut outcome = FormOutcomes::default();
    let mut settings: Vec<_> = (0..states.unwrap_or(STATES))
        .map(|kind| {
            comparison::setting(kind, &traced.registers, &traced.extended, checker.abi_info)
        })
        .collect();
    for form in forms {
        let mut is_executed = false;
        let mut is_unknown = true;
        for before in &mut settings {
            let rax = before.registers.rax;
            // Excludes system calls.
            if matches!(
                form.insn.flow_control(),
                FlowControl::Interrupt | FlowControl::Call
            ) {
                before.registers.rax = 0x7fff_fff0;
            }
            let (end, after) = traced.execute(&form.bytes, before);
            is_unknown &= end == StepEnd::Unknown;
            if end == StepEnd::Done {
                is_executed = true;
                let bytes = &form.bytes;
                let it = Executed {
                    code: form.insn.code(),
                    bytes,
                    before,
                    after: &after,
                };
                for difference in checker.differences(&it) {
                    let said = format!("{}: {difference}", hexadecimal(bytes));
                    outcome
                        .differences
                        .entry(format!("{:?}", form.insn.code()))
                        .or_default()
                        .push(said);
                }
            }
            before.registers.rax = rax;
            if is_executed && states.is_none() {
                break;
            }
        }
        match (is_executed, is_unknown) {
            (true, _) => {
                outcome.executed += 1;
                outcome.codes.insert(format!("{:?}", form.insn.code()));
            }
            (false, true) => outcome.unknown.push(form),
            (false, false) => outcome.faulted.push(form),
        }
    }
    outcome
}

fn checker() -> Checker {
    let abi = Abi {
        arch: Arch::X86_64,
        endian: Endian::Little,
    };
    Checker::new(unspool_code_analysis::Lifter::new(abi).expect("x86-64"))
}

/// Opcodes, each once, with their description.
fn codes<'f>(forms: impl Iterator<Item = &'f InsnForm>) -> BTreeSet<String> {
    forms
        .map(|form| format!("{:?}", form.insn.code()))
        .collect()
}

#[test]
fn no_instruction_changes_what_is_said_to_be_left() {
    let states = std::env::var("UNSPOOL_EFFECTS_STATES").ok();
    let states = states.map(|states| states.parse().expect("a number of states"));
    let forms = match states {
        Some(_) => InsnForms::all(),
        None => InsnForms::some(),
    };
    let known: BTreeSet<Code> = forms.iter().map(|form| form.insn.code()).collect();
    let missing = Code::values().filter(|code| {
        let info = code.op_code();
        info.mode64() && info.is_instruction() && !known.contains(code)
    });
    let missing: Vec<Code> = missing.collect();
    let count = forms.len();
    let mut checker = checker();
    let outcome = execute(forms, &mut checker, states);
    println!(
        "{count} forms of {} opcodes: {} executed",
        known.len(),
        outcome.executed
    );
    println!("opcodes that the analysis does not have decoded: {missing:?}");
    let mut differences = outcome.differences;
    if states.is_some() {
        let rest = || outcome.unknown.iter().chain(&outcome.faulted);
        let mut without = Vec::new();
        let [mut compared, mut by_manual] = [0, 0];
        for (form, answer) in rest().zip(second_decoder::ask(rest())) {
            let flow = second_decoder::flow_difference(&mut checker, form, answer.as_ref());
            let mut said = match (second_decoder::by_manual(&mut checker, form), answer) {
                (Some(said), _) => {
                    by_manual += 1;
                    said
                }
                (None, Some(answer)) => {
                    compared += 1;
                    second_decoder::differences(&mut checker, form, &answer)
                }
                (None, None) if flow.is_some() => Vec::new(),
                (None, None) => {
                    without.push(form);
                    continue;
                }
            };
            said.extend(flow);
            for difference in said {
                let said = format!("{}: {difference}", hexadecimal(&form.bytes));
                let code = format!("{:?}", form.insn.code());
                differences.entry(code).or_default().push(said);
            }
        }
        println!("{compared} forms compared with a second decoder only, {by_manual} with manuals");
        let is_executed = |code: &String| outcome.codes.contains(code);
        for (why, mut codes) in [
            ("unknown to this processor", codes(outcome.unknown.iter())),
            ("no state was right", codes(outcome.faulted.iter())),
            ("known to no other decoder", codes(without.into_iter())),
        ] {
            codes.retain(|code| !is_executed(code));
            println!("{} opcodes not executed, {why}: {codes:?}", codes.len());
        }
    }
    for (code, said) in &differences {
        println!("{code}: {}", said.first().expect("there is one"));
    }
    assert!(outcome.executed > 5_000, "{}", outcome.executed);
    assert!(
        differences.is_empty(),
        "{} opcodes do something else",
        differences.len()
    );
}

/// A row that says where a saved value is must not be refuted if an instruction leaves it there, or
/// moves it there.
#[test]
fn no_saved_value_is_said_to_be_lost() {
    let states = std::env::var("UNSPOOL_EFFECTS_STATES").is_ok();
    let forms = if states {
        InsnForms::all()
    } else {
        InsnForms::some()
    };
    let mut checker = checker();
    let mut traced = TraceeProcess::start().expect("this process can trace another");
    let (ready, extended) = (traced.registers, traced.extended.clone());
    let (mut executed, mut found) = (0, BTreeMap::new());
    for kind in 0..comparison::KEPT_KINDS {
        let setting = |kind| comparison::kept_setting(kind, &ready, &extended, checker.abi_info);
        let mut before = setting(kind);
        let mut inverted = setting(kind + comparison::KEPT_KINDS);
        for form in forms
            .iter()
            .filter(|form| form.insn.flow_control() == FlowControl::Next)
        {
            let (StepEnd::Done, after) = traced.execute(&form.bytes, &mut before) else {
                continue;
            };
            executed += 1;
            let it = Executed {
                code: form.insn.code(),
                bytes: &form.bytes,
                before: &before,
                after: &after,
            };
            let lost = checker.false_losses(&it);
            if lost.is_empty() {
                continue;
            }
            // What one value survives by chance, its inverse does not.
            let (end, after) = traced.execute(&form.bytes, &mut inverted);
            let it = Executed {
                before: &inverted,
                after: &after,
                ..it
            };
            if end == StepEnd::Done && checker.false_losses(&it).is_empty() {
                continue;
            }
            for lost in lost {
                let code = format!("{kind} {:?}", form.insn.code());
                let said = format!("{}: {lost}", hexadecimal(&form.bytes));
                found.entry(code).or_insert(said);
            }
        }
    }
    println!("{executed} executions from states with saved values");
    assert!(executed > 20_000, "{executed}");
    assert!(found.is_empty(), "{}: {found:#?}", found.len());
}

#[test]
fn sequences_change_what_is_said() {
    let count: u64 = match std::env::var("UNSPOOL_EFFECTS_STATES") {
        Ok(states) => 10_000 * states.parse::<u64>().expect("a number of states"),
        Err(_) => 500,
    };
    let forms = InsnForms::some();
    let mut checker = checker();
    let pool = SequencePool::new(&forms, &mut checker);
    let mut traced = TraceeProcess::start().expect("this process can trace another");
    let (mut executed, mut found) = (0, Vec::new());
    for seed in 0..count {
        let (insns, said) = sequences::execute(seed, &pool, &mut traced, &mut checker);
        executed += insns;
        found.extend(said);
    }
    println!("{count} sequences, {executed} instructions executed");
    assert!(executed as u64 > 8 * count, "{executed}");
    assert!(
        found.is_empty(),
        "{}: {:#?}",
        found.len(),
        &found[..found.len().min(20)]
    );
}
