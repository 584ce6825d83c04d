#![expect(
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a measurement prints, and stops at a bug"
)]
//! Walks the own stack: unspool against frame pointers and other walkers, in one process.
//!
//! `cargo bench -p unspool-bench --bench walk [-- --help]`. Needs gcc; missing peers are named.
//! x86-64 only.
//!
//! Each walk is compared, frame by frame, with the return addresses that the walked functions
//! recorded on entry. "fp" is a walk by frame pointers over the same functions built with frame
//! pointers; all other peers walk those built without. One scenario is a real program (`real`);
//! `docs/bench.md` describes all scenarios.

mod cold;
mod options;
mod ours;
mod peers;
mod python;
mod report;
mod scenario;
mod source;
mod sys;
mod threads;
mod visit;
mod workload;

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Context as _;
use unspool_bench::median;

use cold::ColdStart;
use options::{USAGE, WalkBenchOptions};
use peers::{BASE, MakeWalker, Peer};
use report::{Figures, WalkError};
use scenario::Scenario;
use sys::WorkFunctions;
use visit::{Clock, Visitor};
use workload::Build;

fn main() -> anyhow::Result<()> {
    start_again()?;
    let mut args = std::env::args().skip(1).peekable();
    if args.next_if(|arg| arg == cold::ARGUMENT).is_some() {
        let name = args.next().context("no peer")?;
        let number = args.next().context("no number")?.parse()?;
        let mut all = peers::all().into_iter().chain([ours::without_tables()]);
        let peer = all.find(|peer| peer.name == name);
        return cold::run(&peer.context("no such peer")?, number);
    }
    if args.peek().is_some_and(|arg| arg == "--help") {
        print!("{USAGE}");
        return Ok(());
    }
    WalkBench::new(WalkBenchOptions::parse(args)?)?.run()
}

/// Restarts this program with the workload's libraries loaded at its start, since the walked
/// functions are in libraries. It also reserves thread-local storage for libraries that are opened
/// later: libunwind's per-thread cache needs 26 KB of static TLS.
fn start_again() -> anyhow::Result<()> {
    const TUNABLES: &str = "GLIBC_TUNABLES";
    if std::env::var_os(TUNABLES).is_some() {
        return Ok(());
    }
    let mut files = Build::FramePointers.compile()?;
    files.extend(Build::NoFramePointers.compile()?);
    let error = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(TUNABLES, "glibc.rtld.optional_static_tls=262144")
        .env("LD_PRELOAD", std::env::join_paths(files)?)
        .exec();
    Err(error.into())
}

/// A peer that has been opened.
struct OpenedPeer {
    name: &'static str,
    build: Build,
    make: MakeWalker,
}

struct WalkBench {
    options: WalkBenchOptions,
    clock: Clock,
    with: WorkFunctions,
    without: WorkFunctions,
    real: Option<python::PythonProgram>,
    peers: Vec<OpenedPeer>,
}

impl WalkBench {
    fn new(options: WalkBenchOptions) -> anyhow::Result<Self> {
        let with = Build::FramePointers.load()?;
        let without = Build::NoFramePointers.load()?;
        let real = options
            .wants_scenario(python::NAME)
            .then(python::PythonProgram::start);
        if let Some(Err(error)) = &real {
            println!("{}: {error}", python::NAME);
        }
        let mut opened = Vec::new();
        for Peer { name, build, open } in peers::all() {
            if name != BASE && !options.wants_peer(name) {
                continue;
            }
            match open() {
                Ok(make) => opened.push(OpenedPeer { name, build, make }),
                Err(error) => println!("{name}: {error}"),
            }
        }
        Ok(WalkBench {
            options,
            clock: Clock::calibrate(),
            with,
            without,
            real: real.and_then(Result::ok),
            peers: opened,
        })
    }

    fn run(&self) -> anyhow::Result<()> {
        self.introduce();
        let (mut all, mut all_wrong) = (Vec::new(), Vec::new());
        for scenario in &scenario::ALL {
            if self.options.wants_scenario(scenario.name) {
                let (figures, wrong) = self.compare(scenario);
                report::print(scenario.name, scenario.about, &figures, &wrong);
                all.extend(figures);
                all_wrong.extend(wrong);
            }
        }
        if let Some(real) = &self.real {
            let (figures, wrong) = real.compare(&self.peers, self.options.rounds, self.clock)?;
            report::print_table(python::NAME, &figures, &wrong);
            all.extend(figures);
            all_wrong.extend(wrong);
        }
        if self.options.wants_scenario("cold") {
            self.cold()?;
        }
        if self.options.wants_scenario("threads") {
            self.threads()?;
        }
        if !all.is_empty() {
            report::print_all(&all);
        }
        if let Some(path) = &self.options.json {
            std::fs::write(path, report::json(&all)).context(path.clone())?;
        }
        let ours = all_wrong
            .iter()
            .find(|(name, _)| name.starts_with(ours::PREFIX));
        anyhow::ensure!(ours.is_none(), "a walker of ours is wrong");
        Ok(())
    }

    /// Prints the scenario's description.
    fn introduce(&self) {
        let (functions, sites, objects) = (source::FUNCTIONS, source::SITES, source::OBJECTS);
        println!(
            "{functions} functions x {sites} call sites, gcc -O2: frames of 0 to 2,000 bytes, 0 to 6 \
             saved registers, pushed\narguments, lengths known at run time only. Every walk is from \
             within {objects} shared libraries, from one to another\nat most calls. Samples per peer: \
             {} x 200 of one stack (hot), {} x 400 of one walk each; some frames change\n(churn) or \
             all do (2k, 32k). Each sample is compared with the functions' own return addresses.\n\
             unspool's walks share {} KiB of rules.",
            self.options.rounds,
            self.options.rounds,
            ours::rules(),
        );
    }

    fn functions(&self, build: Build) -> &WorkFunctions {
        match build {
            Build::FramePointers => &self.with,
            Build::NoFramePointers => &self.without,
        }
    }

    /// All peers in one scenario. They alternate in each round; the first round is not counted. A
    /// peer that is wrong has no figures.
    fn compare(&self, scenario: &Scenario) -> (Vec<Figures>, Vec<WalkError>) {
        let visitor = |peer: &OpenedPeer| Visitor::new((peer.make)(), self.clock);
        let mut visitors: Vec<Visitor> = self.peers.iter().map(visitor).collect();
        let mut samples = vec![Ok(Vec::new()); self.peers.len()];
        for round in 0..=self.options.rounds {
            for (number, peer) in self.peers.iter().enumerate() {
                let Ok(so_far) = &mut samples[number] else {
                    continue;
                };
                let functions = self.functions(peer.build);
                match scenario.round(round, functions, &mut visitors[number]) {
                    Ok(found) if round > 0 => so_far.extend(found),
                    Ok(_) => {}
                    Err(error) => samples[number] = Err(format!("{error:#}")),
                }
            }
        }
        let (mut figures, mut wrong) = (Vec::new(), Vec::new());
        for (peer, samples) in self.peers.iter().zip(samples) {
            match samples {
                Ok(samples) => {
                    figures.push(Figures::from_samples(scenario.name, peer.name, &samples));
                }
                Err(error) => wrong.push((peer.name, error)),
            }
        }
        (figures, wrong)
    }

    /// First walks in fresh processes. The peers alternate.
    fn cold(&self) -> anyhow::Result<()> {
        let mut names: Vec<&str> = self.peers.iter().map(|peer| peer.name).collect();
        let extra = ours::without_tables().name;
        if self.options.wants_peer(extra) {
            names.push(extra);
        }
        let mut starts = vec![Vec::new(); names.len()];
        for number in 0..self.options.cold {
            for (name, starts) in names.iter().zip(&mut starts) {
                starts.push(cold::start(name, number)?);
            }
        }
        println!("\ncold: the first walk of a fresh process, 64 frames; medians");
        println!(
            "  {:<36}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "µs", "first", "faults", "second", "open", "faults"
        );
        for (name, starts) in names.iter().zip(&starts) {
            let of = |figure: fn(&ColdStart) -> f64| median(starts.iter().map(figure));
            println!(
                "  {name:<36}{:>10.2}{:>10}{:>10.2}{:>10.1}{:>10}",
                of(|start| start.first),
                of(|start| start.faults),
                of(|start| start.second),
                of(|start| start.open),
                of(|start| start.open_faults),
            );
        }
        println!(
            "  open: loading the library, and mapping the tables of what is loaded, if there are any"
        );
        Ok(())
    }

    /// One and two threads.
    fn threads(&self) -> anyhow::Result<()> {
        println!(
            "\nthreads: random stacks over 2,048 call sites; efficiency is one alone / two at once"
        );
        println!(
            "  {:<36}{:>10}{:>10}{:>12}",
            "mean ns per frame", "1", "2", "efficiency"
        );
        let scenario = scenario::ALL.iter().find(|scenario| scenario.name == "2k");
        let scenario = scenario.context("no such scenario")?;
        for peer in &self.peers {
            let functions = self.functions(peer.build);
            let walk =
                |threads| threads::walk(threads, scenario, functions, &peer.make, self.clock);
            let (mut one, mut two) = (Vec::new(), Vec::new());
            for _ in 0..self.options.rounds {
                one.push(walk(1)?);
                two.push(walk(2)?);
            }
            let (one, two) = (median(one), median(two));
            println!(
                "  {:<36}{one:>10.2}{two:>10.2}{:>12.2}",
                peer.name,
                one / two
            );
        }
        Ok(())
    }
}
