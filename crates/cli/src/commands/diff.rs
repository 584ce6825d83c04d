//! `unspool diff`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use unspool_profile::aggregate::{self, Direction};
use unspool_profile::output::{View, flamegraph, html};
use unspool_profile::{CodeLimits, NamedProfile, Profile, ProfileFunction, ProfileNames};
use unspool_symbols::{NameDetail, Symbolizer};

use super::report::{
    detail, graph, load, look_up_names, page_view, percent, sampled_code, text_width, total, view,
    weight_text, without_files, write_to,
};
use crate::args::profiles::{DiffArgs, DiffFormat, Filters};
use crate::commands::recording::status;
use crate::output::{self, JsonLayout};

pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let default = Path::new("unspool.prof.old");
    let before_path = args.before.as_deref().unwrap_or(default);
    anyhow::ensure!(
        args.before.is_some() || before_path.exists(),
        "no {} here: record twice, or name two profiles",
        default.display()
    );
    let after_path = args.after.as_deref().unwrap_or(Path::new("unspool.prof"));
    let filters = &args.output_args.filters;
    let pair = ProfilePair::load([before_path, after_path], filters)?;
    let [before, after] = pair.named();
    let of = match args.output_args.format() {
        DiffFormat::Html => page_view,
        DiffFormat::Text | DiffFormat::Json | DiffFormat::Flamegraph => view,
    };
    let before = of(before_path, &before, filters)?;
    let after = of(after_path, &after, filters)?;
    let has_samples = !before.samples.is_empty() && !after.samples.is_empty();
    write_to(&args.output_args.output, |out| {
        match args.output_args.format() {
            DiffFormat::Text => {
                amounts(out, &before, &after)?;
                text(out, &before, &changes(&before, &after), args)
            }
            DiffFormat::Json => json(out, &changes(&before, &after)),
            DiffFormat::Html => {
                let (names, limits) = (pair.names_after(), &CodeLimits::PAGE);
                let code = sampled_code(&after, names, &args.source_args, filters, limits);
                html::write_comparison(out, &before, &after, &code)
            }
            DiffFormat::Flamegraph => {
                let graph = graph(&args.output_args, Direction::Callees);
                flamegraph::write_difference(out, &before, &after, graph)
            }
        }
    })?;
    Ok(status(pair.is_whole && has_samples))
}

/// Two profiles of the same event, the one before first, with names that can be compared.
pub(super) struct ProfilePair {
    profiles: [Profile; 2],
    names: [ProfileNames; 2],
    /// Whether no part of either is damaged.
    is_whole: bool,
}

impl ProfilePair {
    pub(super) fn load(paths: [&Path; 2], filters: &Filters) -> anyhow::Result<ProfilePair> {
        let [before_path, after_path] = paths;
        let (before, is_whole_before) = load(before_path, filters)?;
        let (after, is_whole_after) = load(after_path, filters)?;
        let [one, other] = [&before, &after].map(|profile| counted(&profile.meta().event.name));
        anyhow::ensure!(
            one == other,
            "{} counts {one}, {} {other}: they cannot be compared",
            before_path.display(),
            after_path.display()
        );
        Ok(ProfilePair {
            names: comparable_names([&before, &after], detail(filters)),
            profiles: [before, after],
            is_whole: is_whole_before && is_whole_after,
        })
    }

    pub(super) fn named(&self) -> [NamedProfile<'_>; 2] {
        let [before, after] = &self.profiles;
        let [names_before, names_after] = &self.names;
        [
            NamedProfile::new(before, names_before),
            NamedProfile::new(after, names_after),
        ]
    }

    pub(super) fn names_after(&self) -> &ProfileNames {
        let [_, after] = &self.names;
        after
    }
}

/// An event's name without perf's modifiers that change no count: how precise an address is, and
/// whether guests count.
fn counted(event: &str) -> &str {
    match event.rsplit_once(':') {
        Some((name, letters)) if letters.bytes().all(|letter| b"pPHG".contains(&letter)) => name,
        _ => event,
    }
}

/// The names of two profiles, as detailed as both can be. Of a program that was rebuilt, only the names are known
/// that were kept while recording.
fn comparable_names(profiles: [&Profile; 2], detail: NameDetail) -> [ProfileNames; 2] {
    let [before, after] = profiles.map(|profile| look_up_names(profile, detail));
    let is_rebuilt = [&before, &after]
        .iter()
        .zip(profiles)
        .any(|(names, profile)| without_files(profile, names).next().is_some());
    if !is_rebuilt || detail == NameDetail::Functions {
        return [before, after];
    }
    output::notice(
        &"both are compared without inlined functions: the debug information of one is gone",
    );
    let symbolizer = Symbolizer::from_environment(NameDetail::Functions);
    profiles.map(|profile| {
        ProfileNames::look_up_frames(profile, profile.frames(), &symbolizer, &|_| {})
    })
}

/// The shares of a function, in percent of the whole, before and after.
struct ShareChange<'a> {
    function: &'a ProfileFunction,
    own: [f64; 2],
    total: [f64; 2],
    /// The own weight.
    weight: [u64; 2],
}

impl ShareChange<'_> {
    fn change(shares: [f64; 2]) -> f64 {
        let [before, after] = shares;
        after - before
    }
}

/// The functions of both, the largest change of the own weight first.
fn changes<'a>(before: &'a View<'a>, after: &'a View<'a>) -> Vec<ShareChange<'a>> {
    let mut all: BTreeMap<(&str, &str), ShareChange<'a>> = BTreeMap::new();
    for (side, view) in [before, after].into_iter().enumerate() {
        let total = total(view);
        for weight in aggregate::functions(view.named, &view.samples) {
            let Some(function) = view.named.function(weight.key) else {
                continue;
            };
            let change = all
                .entry((&function.name, &function.module))
                .or_insert(ShareChange {
                    function,
                    own: [0.0; 2],
                    total: [0.0; 2],
                    weight: [0; 2],
                });
            if let Some(own) = change.weight.get_mut(side) {
                *own = weight.own;
            }
            for (shares, weight) in [
                (&mut change.own, weight.own),
                (&mut change.total, weight.total),
            ] {
                if let Some(share) = shares.get_mut(side) {
                    *share = percent(weight, total);
                }
            }
        }
    }
    let mut all: Vec<ShareChange<'a>> = all.into_values().collect();
    let size = |change: &ShareChange<'_>| {
        let (own, total) = (
            ShareChange::change(change.own),
            ShareChange::change(change.total),
        );
        (own.abs(), total.abs())
    };
    all.sort_by(|a, b| {
        size(b)
            .partial_cmp(&size(a))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    all
}

/// What both are shares of.
#[expect(
    clippy::cast_precision_loss,
    reason = "a percentage is shown with two digits"
)]
fn amounts(out: &mut dyn Write, before: &View<'_>, after: &View<'_>) -> io::Result<()> {
    let [one, other] = [before, after].map(total);
    let change = (other as f64 - one as f64) * 100.0 / one.max(1) as f64;
    let [one, other] =
        [(before, one), (after, other)].map(|(view, total)| weight_text(view, total));
    writeln!(out, "before {one}, after {other}: {change:+.2} %\n")
}

fn text(
    out: &mut dyn Write,
    view: &View<'_>,
    changes: &[ShareChange<'_>],
    args: &DiffArgs,
) -> io::Result<()> {
    let (least, width) = (args.min_percent, text_width(&args.output_args.output));
    writeln!(
        out,
        "     own  before    after       before        after     total  function"
    )?;
    let mut hidden = 0;
    for change in changes {
        let (own, total) = (
            ShareChange::change(change.own),
            ShareChange::change(change.total),
        );
        if own.abs().max(total.abs()) < least {
            hidden += 1;
            continue;
        }
        let [own_before, own_after] = change.own;
        let [before, after] = change.weight.map(|weight| weight_text(view, weight));
        let shares = format!(
            "{own:+7.2} % {own_before:5.2} % {own_after:6.2} % {before:>12} {after:>12}  {total:+7.2} %  "
        );
        output::line(out, width, &shares, &change.function.to_string())?;
    }
    match hidden {
        0 => Ok(()),
        _ => writeln!(
            out,
            "  and {hidden} more that change by less than {least} %"
        ),
    }
}

fn json(out: &mut dyn Write, changes: &[ShareChange<'_>]) -> io::Result<()> {
    let change = |change: &ShareChange<'_>| {
        let ([own_before, own_after], [before, after]) = (change.own, change.total);
        json!({
            "function": change.function.name, "module": change.function.module,
            "self_weight": { "before": change.weight[0], "after": change.weight[1] },
            "self_percent": { "before": own_before, "after": own_after },
            "total_percent": { "before": before, "after": after },
        })
    };
    let body = json!({ "functions": changes.iter().map(change).collect::<Vec<_>>() });
    output::write_document(out, JsonLayout::Pretty, "diff", &body)
}
