//! Throwing and catching with unspool's unwinder against libgcc's, LLVM's and nongnu's: processes
//! that alternate, instructions by callgrind, and time.
//!
//! `cargo xtask shared-objects && cargo bench -p unspool-bench --bench exceptions`. With
//! `--instructions`, only those are counted: no other load on the machine changes them.
#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use unspool_bench::Scratch;
use unspool_testing::instructions;

/// The number of throws between two measurements; the first throws are not measured.
const THROWS: u32 = 50;
const FIRST: u32 = 10;
/// Runs of each, alternating, and throws of a run, for time.
const ROUNDS: usize = 15;
const TIMED_THROWS: u32 = 20_000;

const KINDS: [&str; 3] = ["plain", "destructors", "handlers"];
const DEPTHS: [u32; 3] = [1, 10, 100];

/// An unwinder by preloading.
struct PreloadedUnwinder {
    name: &'static str,
    library: Option<PathBuf>,
}

fn unwinders() -> anyhow::Result<Vec<PreloadedUnwinder>> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let ours = target
        .context("no target folder")?
        .join("shared-object/libunwind/libunspool-eh.so");
    ensure!(ours.exists(), "not there: run cargo xtask shared-objects");
    let peers = [
        ("LLVM", "/usr/lib/llvm-16/lib/libunwind.so.1"),
        ("nongnu", "/usr/lib/x86_64-linux-gnu/libunwind.so.8"),
    ];
    let mut all = vec![
        PreloadedUnwinder {
            name: "libgcc",
            library: None,
        },
        PreloadedUnwinder {
            name: "unspool",
            library: Some(ours),
        },
    ];
    for (name, path) in peers {
        if Path::new(path).exists() {
            all.push(PreloadedUnwinder {
                name,
                library: Some(path.into()),
            });
        } else {
            println!("{name}: {path} is not there");
        }
    }
    Ok(all)
}

fn main() -> anyhow::Result<()> {
    let only_instructions = std::env::args().any(|argument| argument == "--instructions");
    let folder = Scratch::new()?;
    let program = compile(&folder)?;
    let unwinders = unwinders()?;
    println!("instructions a throw, and how many times fewer than libgcc's");
    table(&unwinders, |kind, depth| {
        let of = |unwinder: &PreloadedUnwinder| {
            let count = |throws: u32| {
                let arguments = [kind, &depth.to_string(), &throws.to_string()];
                instructions(&program, &arguments, unwinder.library.as_deref())
            };
            (count(FIRST + THROWS) - count(FIRST)) as f64 / f64::from(THROWS)
        };
        Ok(unwinders.iter().map(of).collect())
    })?;
    if only_instructions {
        return Ok(());
    }
    println!("nanoseconds a throw: the least of {ROUNDS} runs, without the least of short ones");
    table(&unwinders, |kind, depth| {
        let mut least = vec![[Duration::MAX; 2]; unwinders.len()];
        for _ in 0..ROUNDS {
            for (unwinder, least) in unwinders.iter().zip(&mut least) {
                for (least, throws) in least.iter_mut().zip([FIRST + TIMED_THROWS, FIRST]) {
                    *least = (*least).min(time(&program, kind, depth, throws, unwinder)?);
                }
            }
        }
        let of_one = |[whole, start]: &[Duration; 2]| {
            whole.saturating_sub(*start).as_nanos() as f64 / f64::from(TIMED_THROWS)
        };
        Ok(least.iter().map(of_one).collect())
    })
}

/// Prints a row for each kind and depth, of what `measure` yields for each unwinder.
fn table(
    unwinders: &[PreloadedUnwinder],
    measure: impl Fn(&str, u32) -> anyhow::Result<Vec<f64>>,
) -> anyhow::Result<()> {
    print!("{:20}", "");
    unwinders
        .iter()
        .for_each(|unwinder| print!("{:>16}", unwinder.name));
    println!();
    for kind in KINDS {
        for depth in DEPTHS {
            let measured = measure(kind, depth)?;
            let libgcc = measured.first().context("libgcc is always there")?;
            print!("{:20}", format!("{kind} {depth}"));
            for one in &measured {
                print!("{:>16}", format!("{one:.0} ({:.2})", libgcc / one));
            }
            println!();
        }
    }
    Ok(())
}

/// The time of a process with so many throws.
fn time(
    program: &Path,
    kind: &str,
    depth: u32,
    throws: u32,
    unwinder: &PreloadedUnwinder,
) -> anyhow::Result<Duration> {
    let mut command = Command::new(program);
    command.args([kind, &depth.to_string(), &throws.to_string()]);
    if let Some(library) = &unwinder.library {
        command.env("LD_PRELOAD", library);
    }
    let start = Instant::now();
    let output = command.output()?;
    let time = start.elapsed();
    // The loader only warns of a library that it cannot preload.
    let is_clean = output.status.success() && output.stderr.is_empty();
    ensure!(is_clean, "{command:?}: {output:?}");
    Ok(time)
}

fn compile(folder: &Scratch) -> anyhow::Result<PathBuf> {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/exceptions/tests/programs/throws.cc");
    let program = folder.join("throws");
    let status = Command::new("g++")
        .args(["-O2", "-o"])
        .args([&program, &source])
        .status()
        .context("g++")?;
    ensure!(status.success(), "throws.cc does not compile");
    Ok(program)
}
