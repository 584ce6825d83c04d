//! Why no sample passes the filters of a report.

use std::collections::BTreeSet;

use clap::ValueEnum;
use unspool_profile::{CpuState, NamedProfile, Profile, ProfileSample};

use super::selection;
use crate::args::profiles::{Filters, OnOff};

/// The most suggested names.
const MAX_NAMES: usize = 5;

/// Why no sample passes, and which values would.
pub(super) fn why(named: &NamedProfile<'_>, filters: &Filters) -> anyhow::Result<String> {
    let profile = named.profile;
    if profile.samples().is_empty() && profile.ending().is_cut() {
        return Ok("no samples: the file ends before the first".to_owned());
    }
    if profile.samples().is_empty() {
        return Ok(
                        "no samples: what was recorded did not use the processor: `unspool record --off-cpu` shows where it waits"
                .to_owned(),
        );
    }
    let is_off = |sample: &ProfileSample| sample.state == CpuState::OffCpu;
    let is_of_waits = filters.state == OnOff::Off || !filters.wait.is_empty();
    if is_of_waits && !profile.samples().iter().any(is_off) {
        return Ok("no sample is off a CPU: `unspool record --off-cpu` records them".to_owned());
    }
    for (state, name) in [(OnOff::On, "on"), (OnOff::Off, "off")] {
        if passes(named, filters, state)? {
            return Ok(format!(
                "no sample passes the filters: `--state {name}` shows those {name} a CPU"
            ));
        }
    }
    let each = each(profile, filters);
    for (option, filter, remedy) in &each {
        if !passes(named, filter, OnOff::On)? && !passes(named, filter, OnOff::Off)? {
            return Ok(format!("no sample passes {option}{remedy}"));
        }
    }
    let options: Vec<_> = each.iter().map(|(option, ..)| option.as_str()).collect();
    Ok(format!(
        "no sample passes all of {}: leave one out",
        options.join(", ")
    ))
}

fn passes(named: &NamedProfile<'_>, filters: &Filters, state: OnOff) -> anyhow::Result<bool> {
    let filters = Filters {
        state,
        ..filters.clone()
    };
    Ok(!selection(named, &filters, None)?.samples(named).is_empty())
}

/// Each given filter alone: its option, and values that would pass.
fn each(profile: &Profile, filters: &Filters) -> Vec<(String, Filters, String)> {
    let mut each = Vec::new();
    let option = |name: &str, values: &[String]| format!("--{name} {}", values.join(" "));
    if !filters.thread.is_empty() {
        let names = profile.threads().iter().map(|t| (&*t.name, t.tid));
        let filter = Filters {
            thread: filters.thread.clone(),
            ..Filters::default()
        };
        each.push((option("thread", &filters.thread), filter, list_names(names)));
    }
    if !filters.process.is_empty() {
        let names = profile.processes().iter().map(|p| (&*p.name, p.pid));
        let filter = Filters {
            process: filters.process.clone(),
            ..Filters::default()
        };
        each.push((
            option("process", &filters.process),
            filter,
            list_names(names),
        ));
    }
    if filters.since.is_some() || filters.until.is_some() {
        let filter = Filters {
            since: filters.since,
            until: filters.until,
            ..Filters::default()
        };
        each.push(("--since, --until".to_owned(), filter, times(profile)));
    }
    if let Some(module) = &filters.module {
        let filter = Filters {
            module: Some(module.clone()),
            ..Filters::default()
        };
        let remedy = ": name a file without its folder, as in `report --by module`";
        each.push((format!("--module {module}"), filter, remedy.to_owned()));
    }
    if !filters.wait.is_empty() {
        let filter = Filters {
            wait: filters.wait.clone(),
            ..Filters::default()
        };
        let names = filters.wait.iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<_> = names.map(|wait| wait.get_name().to_owned()).collect();
        let remedy = ": `report --by wait` lists what threads wait for";
        each.push((
            format!("--wait {}", names.join(",")),
            filter,
            remedy.to_owned(),
        ));
    }
    if let Some(function) = &filters.function {
        let filter = Filters {
            function: Some(function.clone()),
            ..Filters::default()
        };
        each.push((format!("--function {function}"), filter, String::new()));
    }
    each
}

fn list_names<'n>(names: impl Iterator<Item = (&'n str, u32)>) -> String {
    let names: BTreeSet<_> = names.collect();
    let more = names.len().saturating_sub(MAX_NAMES);
    let names = names.iter().take(MAX_NAMES);
    let shown = |(name, id): &(&str, u32)| match *name {
        "" => format!("({id})"),
        name => format!("{name} ({id})"),
    };
    let names: Vec<_> = names.map(shown).collect();
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(": there are {}{more}", names.join(", "))
}

/// The time of the samples, in seconds after the start.
#[expect(clippy::cast_precision_loss, reason = "it is shown with three digits")]
fn times(profile: &Profile) -> String {
    let start = profile.meta().clock.0;
    let times = profile.samples().iter().map(|sample| sample.time.0);
    let seconds = |time: u64| time.saturating_sub(start) as f64 / 1e9;
    let (first, last) = (times.clone().min(), times.max());
    let (first, last) = (first.map_or(0.0, seconds), last.map_or(0.0, seconds));
    format!(": the samples are from {first:.3} s to {last:.3} s")
}
