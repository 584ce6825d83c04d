//! What users of other tools type, and what it is called here.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Other tools' commands.
const COMMANDS: [(&[&str], &str); 10] = [
    (
        &["bt", "pstack", "gstack", "backtrace", "where", "dump"],
        "`unspool stack PID` prints the stacks of a process, `unspool stack --core FILE` of a core file",
    ),
    (
        &["attach"],
        "`unspool stack PID` prints what a process does now, `unspool record -p PID` records it",
    ),
    (
        &["top", "live"],
        "`unspool record --live -p PID` shows the heaviest functions while it records",
    ),
    (
        &["flamegraph", "flame"],
        "`unspool report --format flamegraph -o flame.svg` draws what was recorded",
    ),
    (
        &["load", "open", "serve", "ui"],
        "`unspool view` shows what was recorded in a browser",
    ),
    (
        &["stat", "counters"],
        "unspool takes samples, and counts nothing: `unspool record -e EVENT CMD` shows where events happen",
    ),
    (
        &["list", "events"],
        "`perf list` names the events that `unspool record -e EVENT` takes",
    ),
    (
        &["trace", "strace", "probe"],
        "`unspool record -e SYSTEM:TRACEPOINT CMD` shows the stacks of a tracepoint",
    ),
    (
        &["sched", "lock", "offcpu", "off-cpu"],
        "`unspool record --off-cpu CMD`, then `unspool report --by wait`, shows what threads wait for",
    ),
    (
        &["readelf", "cfi", "fde", "unwind"],
        "`unspool show FILE` prints unwind tables",
    ),
];

/// Other tools' options.
const OPTIONS: [(&[&str], &str); 6] = [
    (
        &["--children"],
        "`--sort total` is the order by functions and what they call",
    ),
    (
        &["--top", "--limit", "--head", "--lines"],
        "`--min-percent PERCENT` leaves out what has less",
    ),
    (&["-s"], "`--by` chooses what is listed, `--sort` the order"),
    (
        &["--caller", "--callers", "--inverted", "--invert"],
        "`--tree callers` has the innermost functions first",
    ),
    (
        &["--symbol", "--symbols", "--symbol-filter", "-S"],
        "`--function REGEX` selects samples by function",
    ),
    (
        &["--dwarf", "--fp", "--lbr"],
        "not needed: every sample has its stack",
    ),
];

/// What perf's `--sort` takes, and ours does not.
const GROUPS: [&str; 7] = ["symbol", "sym", "dso", "comm", "pid", "tid", "srcline"];

/// Puts what is meant into an error about words that another tool has, in place of clap's guess by
/// spelling.
pub(crate) fn explain(error: &mut clap::Error) {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.split(['=', ',']).next(),
        _ => None,
    };
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => meant(context(ContextKind::InvalidSubcommand), &COMMANDS),
        ErrorKind::UnknownArgument => meant(context(ContextKind::InvalidArg), &OPTIONS),
        ErrorKind::InvalidValue => {
            let is_sort =
                context(ContextKind::InvalidArg).is_some_and(|arg| arg == "--sort <SORT>");
            let group = context(ContextKind::InvalidValue).filter(|value| GROUPS.contains(value));
            group.filter(|_| is_sort).map(|_| {
                "`--by` chooses what is listed: function, module, thread, process; `--sort` its order"
            })
        }
        ErrorKind::ArgumentConflict => {
            let is_event = |kind| context(kind) == Some("--event <EVENT>");
            (is_event(ContextKind::InvalidArg) && is_event(ContextKind::PriorArg))
                .then_some("a recording has one event: record each by itself, with -e and -o")
        }
        _ => None,
    };
    if let Some(tip) = tip {
        for guess in [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg] {
            error.remove(guess);
        }
        let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tip);
    }
}

fn meant(typed: Option<&str>, words: &[(&[&str], &'static str)]) -> Option<&'static str> {
    let typed = typed?;
    let known = words.iter().find(|(names, _)| names.contains(&typed));
    known.map(|(_, meant)| *meant)
}
