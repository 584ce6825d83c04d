//! `unspool verify FILE OUT.so`: an object of machine code against the rows that it was made of.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use serde_json::json;
use unspool_ir::Vaddr;
use unspool_module::ElfFile;
use unspool_native::{Object, Outline, proof};
use unspool_unwind::native::{self, Checked};
use unspool_unwind::tables::{self, From, native_key};

use crate::args::Format;
use crate::output::{self, Failure};

/// Whether a file is an object of ours, whole or not.
pub(crate) fn is_object(path: &Path) -> bool {
    let file = ElfFile::open(path).ok();
    file.is_some_and(|file| matches!(file.section_named(".note.unspool"), Ok(Some(_))))
}

/// What was found.
struct Proof {
    /// By reading the code.
    read: proof::Proof,
    /// By running it, if reading has found nothing.
    run: Option<Checked>,
    bad_entries: usize,
}

/// So many places are told.
const SHOWN: usize = 16;

/// The code is not waited for longer than this.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn run(file: &Path, object: &Path, format: Format) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let bytes = fs::read(object).with_context(|| object.display().to_string())?;
    let proof = prove(file, object, &bytes)?;
    let seconds = started.elapsed().as_secs_f64();
    let in_run = proof.run.as_ref().map_or(0, |run| run.differences);
    let differences = proof.read.unproven.len() as u64 + in_run;
    let unproven = proof.read.unproven.iter().take(SHOWN);
    let unproven = unproven.map(|(at, why)| (at.0, format!("not proven: {why}")));
    let first = proof
        .run
        .iter()
        .flat_map(|run| run.first)
        .take_while(|at| *at != 0);
    let yields = first.map(|at| (at, String::from("run, the code yields another frame")));
    let shown = unproven.chain(yields);
    match format {
        Format::Text => {
            let mut out = output::results();
            writeln!(
                out,
                "{}: {} rows, {} different, held against the code by reading it; {}; {differences} differences",
                object.display(),
                proof.read.rows,
                proof.read.pairs,
                match &proof.run {
                    Some(run) => format!("{} steps run and compared", run.steps),
                    None => String::from("it was not run"),
                },
            )?;
            for (at, what) in shown {
                writeln!(out, "  at {}: {what}", Vaddr(at))?;
            }
            out.flush()?;
        }
        Format::Json => {
            let mismatches: Vec<_> = shown
                .map(|(at, what)| json!({ "address": output::address(at), "what": what }))
                .collect();
            let body = json!({
                "unspool": env!("CARGO_PKG_VERSION"),
                "file": file.to_string_lossy(),
                "object": object.to_string_lossy(),
                "rows": proof.read.rows,
                "distinct_rows": proof.read.pairs,
                "steps": proof.run.as_ref().map(|run| run.steps),
                "differences": differences,
                "mismatches": mismatches,
                "seconds": seconds,
            });
            output::document("verify", &body)?;
        }
    }
    Ok(match differences == 0 && proof.bad_entries == 0 {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(Failure::FINDINGS),
    })
}

fn prove(path: &Path, object_path: &Path, bytes: &[u8]) -> anyhow::Result<Proof> {
    let file = ElfFile::open(path)?;
    let object = Object::parse(bytes).with_context(|| object_path.display().to_string())?;
    let key = file.content_key();
    if object.key() != Some(native_key(&key)) {
        bail!(
            "{}: it is of another module than {}, whose key is {key}",
            object_path.display(),
            path.display(),
        );
    }
    let reading = tables::read(&file, From::Auto)?;
    let read = proof::prove(&object, &reading.table);
    let read = read.with_context(|| object_path.display().to_string())?;
    // What is not proven is not run.
    let run = match read.unproven.is_empty() {
        true => Some(run_apart(path, object_path)?),
        false => None,
    };
    Ok(Proof {
        read,
        run,
        bad_entries: reading.problems.len(),
    })
}

/// Runs the code in a process of its own.
fn run_apart(file: &Path, object: &Path) -> anyhow::Result<Checked> {
    let own = std::env::current_exe().context("finding this program")?;
    let mut child = Command::new(own)
        .args(["verify", "--inside"])
        .args([file, object])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("running this program again")?;
    let mut output = Vec::new();
    let ended = wait(&mut child)?;
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_end(&mut output)?;
    }
    let refused = || anyhow!("{}: its code was stopped: {ended}", object.display());
    match ended.success() {
        true => Checked::read(&output).ok_or_else(refused),
        false => Err(refused()),
    }
}

/// Waits for a process, which writes less than a pipe holds, and not for ever.
fn wait(child: &mut Child) -> anyhow::Result<std::process::ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if started.elapsed() > LIMIT {
            child.kill()?;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What the process does that runs the code.
pub(crate) fn inside(file: &Path, object: &Path) -> anyhow::Result<ExitCode> {
    let bytes = fs::read(object)?;
    let object = Object::parse(&bytes)?;
    let file = ElfFile::open(file)?;
    let reading = tables::read(&file, From::Auto)?;
    let outline = Outline::of(&reading.table)?;
    Err(native::run_and_exit(&object, &outline).into())
}
