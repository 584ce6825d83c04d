//! `unspool verify FILE OUT.so` and `unspool verify --emit native`: compares native tables with the
//! rows that they were compiled from.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, bail};
use rayon::prelude::*;
use serde_json::{Value, json};
use unspool_elf::ElfFile;
use unspool_native_table::{ObjectView, Outline, OutlineError, proof};
use unspool_rows::Vaddr;
use unspool_table_store::{self as tables, TableSource, native_key};
use unspool_unwind::native::{self, RunReport};

use super::super::compile::as_f64;
use super::super::elf_files;
use crate::args::Format;
use crate::output::{self, ExitCodes};

/// Whether a file is a native table, complete or not.
pub(crate) fn is_object(path: &Path) -> bool {
    let file = ElfFile::open(path).ok();
    file.is_some_and(|file| matches!(file.section_named(".note.unspool"), Ok(Some(_))))
}

/// The findings.
struct ObjectVerification {
    /// From reading the code.
    read: proof::ObjectProof,
    /// From running it, if reading found nothing.
    run: Option<RunReport>,
    bad_entries: usize,
}

/// The findings of all files.
#[derive(Default)]
struct ObjectTotals {
    rows: usize,
    pairs: usize,
    steps: u64,
    differences: u64,
}

/// The most locations to report.
const MAX_EXAMPLES: usize = 16;

/// Compares a native table with its file.
pub(crate) fn run(file: &Path, object: &Path, format: Format) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let proof = prove_given(file, object)?;
    match format {
        Format::Text => print(&mut output::text(), object, &proof)?,
        Format::Json => {
            let mut body = proof.as_json(file);
            if let Some(fields) = body.as_object_mut() {
                let more = [
                    ("unspool_version", json!(env!("CARGO_PKG_VERSION"))),
                    ("object", json!(object.to_string_lossy())),
                    ("seconds", json!(started.elapsed().as_secs_f64())),
                ];
                fields.extend(more.map(|(name, value)| (String::from(name), value)));
            }
            output::document("verify", &body)?;
        }
    }
    Ok(ExitCode::from(proof.status()))
}

/// Compiles native tables of files, and of ELF files in folders, and compares each with its file.
pub(crate) fn run_all(paths: &[PathBuf], format: Format) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let (files, unreadable) = elf_files::find(paths);
    let proven = files.into_par_iter().map(|file| {
        let proof = prove_compiled(&file);
        (file, proof)
    });
    let mut outcomes: Vec<_> = proven.collect();
    // Files found in a folder need not have a table; named files must.
    outcomes.retain(|(file, proof)| match proof {
        Ok(_) => true,
        Err(error) => paths.contains(file) || !has_no_code(error),
    });
    let unreadable = unreadable
        .into_iter()
        .map(|(path, error)| (path, Err(error)));
    outcomes.extend(unreadable);
    if outcomes.is_empty() {
        bail!("no ELF file with an unwind table that code can be made of in the folders given");
    }
    let mut total = ObjectTotals::default();
    let mut status = 0;
    for (_, proof) in &outcomes {
        match proof {
            Ok(proof) => {
                total.add(proof);
                status = status.max(proof.status());
            }
            Err(error) => {
                output::error(&format_args!("{error:#}"));
                status = ExitCodes::COULD_NOT_RUN;
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    match format {
        Format::Text => print_all(&outcomes, &total, seconds)?,
        Format::Json => {
            let files = outcomes.iter().map(|(file, proof)| match proof {
                Ok(proof) => proof.as_json(file),
                Err(error) => super::super::error_object(file, error),
            });
            let body = json!({
                "unspool_version": env!("CARGO_PKG_VERSION"),
                "files": files.collect::<Vec<_>>(),
                "total": total.as_json(),
                "seconds": seconds,
            });
            output::document("verify", &body)?;
        }
    }
    Ok(ExitCode::from(status))
}

/// Of several files, those without differences are only counted.
fn print_all(
    outcomes: &[(PathBuf, anyhow::Result<ObjectVerification>)],
    total: &ObjectTotals,
    seconds: f64,
) -> anyhow::Result<()> {
    let mut out = output::text();
    let proofs = outcomes
        .iter()
        .filter_map(|(file, proof)| Some((file, proof.as_ref().ok()?)));
    let is_alone = outcomes.len() == 1;
    for (file, proof) in proofs.clone() {
        if is_alone || proof.status() != 0 {
            print(&mut out, file, proof)?;
        }
    }
    if !is_alone {
        writeln!(
            out,
            "{} files: {total}; {:.1} million rows/s",
            proofs.count(),
            as_f64(total.rows as u64) / seconds.max(1e-9) / 1e6,
        )?;
    }
    Ok(out.flush()?)
}

fn print(
    out: &mut impl Write,
    path: &Path,
    verification: &ObjectVerification,
) -> anyhow::Result<()> {
    let mut total = ObjectTotals::default();
    total.add(verification);
    writeln!(out, "{}: {total}", path.display())?;
    if verification.bad_entries > 0 {
        writeln!(
            out,
            "  {} problems in the source: entries left out, or read in doubt",
            verification.bad_entries
        )?;
    }
    for (at, what) in verification.mismatches() {
        writeln!(out, "  at {}: {what}", Vaddr(at))?;
    }
    Ok(out.flush()?)
}

impl ObjectTotals {
    fn add(&mut self, verification: &ObjectVerification) {
        self.rows += verification.read.rows;
        self.pairs += verification.read.pairs;
        self.steps += verification.run.as_ref().map_or(0, |run| run.steps);
        self.differences += verification.differences();
    }

    fn as_json(&self) -> Value {
        json!({
            "rows": self.rows,
            "distinct_rows": self.pairs,
            "steps": self.steps,
            "differences": self.differences,
        })
    }
}

impl core::fmt::Display for ObjectTotals {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let ObjectTotals {
            rows,
            pairs,
            steps,
            differences,
        } = self;
        write!(
            f,
            "{rows} rows, {pairs} different, compared with the code by reading it; "
        )?;
        match steps {
            0 => f.write_str("it was not run")?,
            _ => write!(f, "{steps} steps run and compared")?,
        }
        write!(f, "; {differences} differences")
    }
}

impl ObjectVerification {
    fn differences(&self) -> u64 {
        let in_run = self.run.as_ref().map_or(0, |run| run.differences);
        self.read.unproven.len() as u64 + in_run
    }

    /// The exit status.
    fn status(&self) -> u8 {
        if self.differences() == 0 && self.bad_entries == 0 {
            0
        } else {
            ExitCodes::FINDINGS
        }
    }

    /// The locations and kinds of differences.
    fn mismatches(&self) -> impl Iterator<Item = (u64, String)> {
        let unproven = self.read.unproven.iter().take(MAX_EXAMPLES);
        let unproven = unproven.map(|(at, why)| (at.0, format!("not proven: {why}")));
        let first = self.run.iter().flat_map(|run| run.first);
        let first = first.take_while(|at| *at != 0);
        let yields = first.map(|at| (at, String::from("run, the code yields another frame")));
        unproven.chain(yields)
    }

    fn as_json(&self, file: &Path) -> Value {
        let mismatches = self.mismatches();
        let mismatches = mismatches
            .map(|(at, message)| json!({ "address": output::address(at), "message": message }))
            .collect::<Vec<_>>();
        json!({
            "file": file.to_string_lossy(),
            "rows": self.read.rows,
            "distinct_rows": self.read.pairs,
            "steps": self.run.as_ref().map(|run| run.steps),
            "bad_entries": self.bad_entries,
            "differences": self.differences(),
            "mismatches": mismatches,
        })
    }
}

/// Whether a file has no table that can be compiled to code.
fn has_no_code(error: &anyhow::Error) -> bool {
    let outline = error.downcast_ref();
    super::super::is_missing(error)
        || matches!(outline, Some(OutlineError::Arch(_) | OutlineError::Empty))
}

/// Verifies the given native table of a file.
fn prove_given(path: &Path, object_path: &Path) -> anyhow::Result<ObjectVerification> {
    let name = || object_path.display().to_string();
    let bytes = super::read_table(object_path)?;
    let object = ObjectView::parse(&bytes).with_context(name)?;
    let file = ElfFile::open(path)?;
    let key = tables::own_key(&file);
    if object.key() != Some(native_key(&key)) {
        bail!(
            "{}: the table of another module than {}, whose key is {key}",
            object_path.display(),
            path.display(),
        );
    }
    let reading = tables::read(&file, TableSource::Auto)?;
    let outline =
        Outline::from_table(&reading.table).with_context(|| path.display().to_string())?;
    prove(&object, &outline, &reading).with_context(name)
}

/// Verifies a native table compiled in memory.
fn prove_compiled(path: &Path) -> anyhow::Result<ObjectVerification> {
    let name = || path.display().to_string();
    let file = ElfFile::open(path)?;
    let reading = tables::read(&file, TableSource::Auto)?;
    let outline = Outline::from_table(&reading.table).with_context(name)?;
    let bytes = unspool_native_table::object(&outline, native_key(&tables::own_key(&file)));
    let bytes = bytes.with_context(name)?;
    let object = ObjectView::parse(&bytes).with_context(name)?;
    prove(&object, &outline, &reading).with_context(name)
}

fn prove(
    object: &ObjectView<'_>,
    outline: &Outline<'_>,
    table: &tables::SourceTable,
) -> anyhow::Result<ObjectVerification> {
    let read = proof::prove(object, &table.table)?;
    // Unproven code is not run.
    let run = if read.unproven.is_empty() {
        Some(native::run_apart(object, outline)?)
    } else {
        None
    };
    Ok(ObjectVerification {
        read,
        run,
        bad_entries: table.problems.len(),
    })
}
