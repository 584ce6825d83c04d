//! `unspool verify FILE OUT.so`: an object of machine code against the rows that it was made of.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use serde_json::json;
use unspool_ir::Vaddr;
use unspool_module::{ContentKey, ElfFile};
use unspool_native::{Key, Object, Outline};
use unspool_unwind::native::{self, Checked};
use unspool_unwind::tables::{self, From};

use crate::args::Format;
use crate::output::{self, Failure};

/// Whether a file is an object of ours, whole or not.
pub(crate) fn is_object(path: &Path) -> bool {
    let file = ElfFile::open(path).ok();
    file.is_some_and(|file| matches!(file.section_named(".note.unspool"), Ok(Some(_))))
}

/// What was found.
struct Proof {
    rows: usize,
    distinct: usize,
    /// Where the object has another row, or none.
    elsewhere: Vec<u64>,
    checked: Checked,
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
    let differences = proof.elsewhere.len() as u64 + proof.checked.differences;
    let shown = proof
        .elsewhere
        .iter()
        .take(SHOWN)
        .map(|at| (*at, "another row, or none"));
    let first = proof.checked.first.iter().take_while(|at| **at != 0);
    let shown = shown.chain(first.map(|at| (*at, "the code yields another frame")));
    match format {
        Format::Text => {
            let mut out = output::results();
            writeln!(
                out,
                "{}: {} rows, {} distinct; {} steps of the code compared; {differences} differences",
                object.display(),
                proof.rows,
                proof.distinct,
                proof.checked.steps,
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
                "rows": proof.rows,
                "distinct_rows": proof.distinct,
                "steps": proof.checked.steps,
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
    let is_own = match (object.key(), file.content_key()) {
        (Some(Key::BuildId(id)), ContentKey::BuildId(own)) => own.as_bytes() == id,
        (Some(Key::Content(hash)), ContentKey::Hash(own)) => own == hash,
        _ => false,
    };
    if !is_own {
        bail!(
            "{}: it is of another module than {}, whose key is {}",
            object_path.display(),
            path.display(),
            file.content_key()
        );
    }
    let reading = tables::read(&file, From::Auto)?;
    let outline = Outline::of(&reading.table).with_context(|| path.display().to_string())?;
    let elsewhere =
        elsewhere(&object, &outline).with_context(|| object_path.display().to_string())?;
    let checked = run_apart(path, object_path)?;
    Ok(Proof {
        rows: outline.source_rows(),
        distinct: outline.rows().len(),
        elsewhere,
        checked,
        bad_entries: reading.problems.len(),
    })
}

/// Where an object does not have the same rows from the same addresses on.
fn elsewhere(object: &Object<'_>, outline: &Outline) -> anyhow::Result<Vec<u64>> {
    let (found, _) = object.starts()?;
    let wanted = outline.starts();
    let differs = found.iter().zip(wanted).filter(|(found, wanted)| {
        let body = wanted.row.map_or(0, |row| row.0 + 1);
        (found.address, found.body) != (wanted.address, body)
    });
    let mut elsewhere: Vec<u64> = differs.map(|(_, wanted)| wanted.address).collect();
    let both = found.len().min(wanted.len());
    elsewhere.extend(found.iter().skip(both).map(|start| start.address));
    elsewhere.extend(wanted.iter().skip(both).map(|start| start.address));
    Ok(elsewhere)
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
    let outline = Outline::of(&tables::read(&file, From::Auto)?.table)?;
    Err(native::run_and_exit(&object, &outline).into())
}
