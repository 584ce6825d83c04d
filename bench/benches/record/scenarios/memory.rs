//! The recorder's memory, with a target of many modules.

use std::process::Command;

use anyhow::Context as _;
use unspool_bench::median;

use crate::options::RecordBenchOptions;
use crate::programs::{Programs, Workload};
use crate::tools::{TOOLS, Tool};

const MODULES: usize = 100;
const ROUNDS: usize = 1_000_000;
const RATE: u32 = 999;

pub(crate) fn measure(programs: &Programs, options: &RecordBenchOptions) -> anyhow::Result<()> {
    let line = build(programs)?;
    let workload = Workload::new("many modules", "many", &line);
    let rounds = options.rounds.unwrap_or(3);
    println!(
        "\nmost memory of the recorder, {MODULES} modules of 900 functions, {RATE} Hz: medians of {rounds}, MiB"
    );
    for tool in TOOLS {
        if !options.wants_tool(&tool.name()) || tool == Tool::Samply && !programs.has_samply {
            continue;
        }
        let mut peaks = Vec::new();
        let mut whole = Vec::new();
        for _ in 0..rounds {
            // These modules have no cached tables: they are compiled meanwhile.
            let _ = std::fs::remove_dir_all(programs.path("cache"));
            let run = tool.record(programs, &workload, RATE)?;
            let stacks = tool.contents(programs, &workload)?.stacks;
            #[expect(clippy::cast_precision_loss, reason = "figures that are printed")]
            {
                peaks.push(run.peak as f64 / f64::from(1 << 20));
                whole.push(stacks.whole as f64 * 100.0 / stacks.all.max(1) as f64);
            }
        }
        println!(
            "  {:<20}{:>8.1}   {:.2} % complete",
            tool.name(),
            median(peaks),
            median(whole)
        );
    }
    Ok(())
}

/// Builds the modules, which differ by their build IDs, and the program that loads them; returns
/// its command line.
fn build(programs: &Programs) -> anyhow::Result<Vec<String>> {
    let many = programs
        .folder
        .compile("many", "many.c", include_str!("../many.c"), &[])?;
    let object = programs.folder.compile(
        "module.o",
        "module.c",
        include_str!("../module.c"),
        &["-c", "-fPIC"],
    )?;
    for number in 0..MODULES {
        let linked = Command::new("cc")
            .args(["-shared", &format!("-Wl,--build-id=0x{number:040x}")])
            .arg(&object)
            .arg("-o")
            .arg(programs.path(&format!("module-{number}.so")))
            .status()
            .context("cannot run cc (Debian package gcc)")?;
        anyhow::ensure!(linked.success(), "cannot link a module");
    }
    let folder = many
        .parent()
        .context("no folder")?
        .to_string_lossy()
        .into_owned();
    Ok(vec![
        many.to_string_lossy().into_owned(),
        folder,
        MODULES.to_string(),
        ROUNDS.to_string(),
    ])
}
