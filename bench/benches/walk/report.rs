//! Figures, as tables and as JSON.

use std::fmt::Write as _;

use crate::peers::BASE;
use crate::visit::WalkSample;

/// The figures of one peer in one scenario, in nanoseconds per frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) scenario: &'static str,
    pub(crate) peer: &'static str,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Figures {
    pub(crate) fn from_samples(
        scenario: &'static str,
        peer: &'static str,
        samples: &[WalkSample],
    ) -> Self {
        let mut frames: Vec<f64> = samples.iter().map(|sample| sample.frame).collect();
        frames.sort_unstable_by(f64::total_cmp);
        Figures {
            scenario,
            peer,
            p50: percentile(&frames, 50),
            p99: percentile(&frames, 99),
        }
    }
}

/// By nearest rank, of sorted numbers; zero if empty.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// A peer, and its first error.
pub(crate) type WalkError = (&'static str, String);

/// One scenario's table.
pub(crate) fn print(name: &str, about: &str, figures: &[Figures], wrong: &[WalkError]) {
    println!("\n{name}: {about}");
    print_table(name, figures, wrong);
}

/// Its lines.
pub(crate) fn print_table(name: &str, figures: &[Figures], wrong: &[WalkError]) {
    println!(
        "  {:<36}{:>10}{:>10}{:>10}",
        "ns per frame", "p50", "p99", "x fp"
    );
    let base = base(name, figures);
    for one in figures {
        let ratio = base.map_or("-".into(), |base| ratio(one.p50 / base));
        println!(
            "  {:<36}{:>10.2}{:>10.2}{ratio:>10}",
            one.peer, one.p50, one.p99
        );
    }
    for (peer, why) in wrong {
        println!("  {peer}: wrong: {why}");
    }
}

fn base(scenario: &str, figures: &[Figures]) -> Option<f64> {
    let mut of_base = figures.iter().filter(|one| one.peer == BASE);
    of_base
        .find(|one| one.scenario == scenario)
        .map(|one| one.p50)
}

fn ratio(ratio: f64) -> String {
    match ratio {
        ..100.0 => format!("{ratio:.2}"),
        _ => format!("{ratio:.0}"),
    }
}

/// All scenarios next to each other: medians, and their ratios to the base's.
pub(crate) fn print_all(figures: &[Figures]) {
    let mut scenarios: Vec<&str> = figures.iter().map(|one| one.scenario).collect();
    scenarios.dedup();
    let mut peers: Vec<&str> = Vec::new();
    for one in figures {
        if !peers.contains(&one.peer) {
            peers.push(one.peer);
        }
    }
    println!("\n| ns per frame (x fp) | {} |", scenarios.join(" | "));
    println!("|---|{}", "---|".repeat(scenarios.len()));
    for peer in peers {
        let mut line = format!("| {peer} |");
        for scenario in &scenarios {
            let mut here = figures.iter().filter(|one| one.scenario == *scenario);
            let found = here.find(|one| one.peer == peer);
            let text = found.map(|one| {
                let digits = if one.p50 < 100.0 { 2 } else { 0 };
                // Real programs have no frame pointers as a base.
                let times = base(scenario, figures).map(|base| ratio(one.p50 / base));
                let times = times.map_or_else(String::new, |times| format!(" ({times})"));
                format!(" {:.digits$}{times} |", one.p50)
            });
            line.push_str(&text.unwrap_or_else(|| " - |".into()));
        }
        println!("{line}");
    }
}

/// All figures, one object a line.
pub(crate) fn json(figures: &[Figures]) -> String {
    let mut text = String::from("[\n");
    for (number, one) in figures.iter().enumerate() {
        let Figures {
            scenario,
            peer,
            p50,
            p99,
        } = one;
        let comma = if number == 0 { "" } else { ",\n" };
        // Writing to a string does not fail; no name needs an escape.
        let _ = write!(
            text,
            r#"{comma}{{"scenario":"{scenario}","peer":"{peer}","p50_ns":{p50},"p99_ns":{p99}}}"#
        );
    }
    text.push_str("\n]\n");
    text
}
