//! `unspool verify FILE OUT.so` and `unspool verify --emit native`: compares native tables with the
//! rows that they were compiled from.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;
use serde_json::{Value, json};
use unspool_elf::ElfFile;
use unspool_native_table::OutlineError;
use unspool_table_store::{NativeTableError, SourceError};
use unspool_unwind::native::{
    NativeVerification, NativeVerifyError, verify_compiled, verify_object,
};

use super::super::compile::as_f64;
use super::super::elf_files;
use crate::args::Format;
use crate::output::{self, ExitCodes};

/// Whether a file is a native table, complete or not.
pub(crate) fn is_object(path: &Path) -> bool {
    let file = ElfFile::open(path).ok();
    file.is_some_and(|file| matches!(file.section_named(".note.unspool"), Ok(Some(_))))
}

/// The findings of all files.
#[derive(Default)]
struct ObjectTotals {
    rows: usize,
    pairs: usize,
    steps: u64,
    differences: u64,
}

/// Compares a native table with its file.
pub(crate) fn run(file: &Path, object: &Path, format: Format) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let proof = verify_given(file, object)?;
    match format {
        Format::Text => print(&mut output::text(), object, &proof)?,
        Format::Json => {
            let mut body = as_json(&proof, file);
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
    Ok(ExitCode::from(status(&proof)))
}

/// Compiles native tables of files, and of ELF files in folders, and compares each with its file.
pub(crate) fn run_all(paths: &[PathBuf], format: Format) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let (files, unreadable) = elf_files::find(paths);
    let mut outcomes = unspool_parallel::map(files, unspool_parallel::processors(), |file| {
        let proof = verify_made(&file);
        (file, proof)
    });
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
                status = status.max(self::status(proof));
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
                Ok(proof) => as_json(proof, file),
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
    outcomes: &[(PathBuf, anyhow::Result<NativeVerification>)],
    total: &ObjectTotals,
    seconds: f64,
) -> anyhow::Result<()> {
    let mut out = output::text();
    let proofs = outcomes
        .iter()
        .filter_map(|(file, proof)| Some((file, proof.as_ref().ok()?)));
    let is_alone = outcomes.len() == 1;
    for (file, proof) in proofs.clone() {
        if is_alone || !proof.is_clean() {
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
    verification: &NativeVerification,
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
        writeln!(out, "  at {at}: {what}")?;
    }
    Ok(out.flush()?)
}

impl ObjectTotals {
    fn add(&mut self, verification: &NativeVerification) {
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

/// The exit status of one verification.
fn status(verification: &NativeVerification) -> u8 {
    if verification.is_clean() {
        0
    } else {
        ExitCodes::FINDINGS
    }
}

fn as_json(verification: &NativeVerification, file: &Path) -> Value {
    let mismatches = verification.mismatches();
    let mismatches = mismatches
        .map(|(at, message)| json!({ "address": output::address(at.0), "message": message }))
        .collect::<Vec<_>>();
    json!({
        "file": file.to_string_lossy(),
        "rows": verification.read.rows,
        "distinct_rows": verification.read.pairs,
        "steps": verification.run.as_ref().map(|run| run.steps),
        "bad_entries": verification.bad_entries,
        "differences": verification.differences(),
        "mismatches": mismatches,
    })
}

/// Whether a file has no table that can be compiled to code.
fn has_no_code(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(NativeVerifyError::Table(
            NativeTableError::Source(SourceError::Missing { .. })
                | NativeTableError::Outline(OutlineError::Arch(_) | OutlineError::Empty)
        ))
    )
}

/// An error with the name of the file that it is about.
fn named(error: NativeVerifyError, file: &Path, object: &Path) -> anyhow::Error {
    let about = match &error {
        // These name the file.
        NativeVerifyError::Table(NativeTableError::Source(_)) => return error.into(),
        NativeVerifyError::Table(NativeTableError::Outline(_)) => file,
        _ => object,
    };
    anyhow::Error::from(error).context(about.display().to_string())
}

/// Verifies the given native table of a file.
fn verify_given(path: &Path, object: &Path) -> anyhow::Result<NativeVerification> {
    let bytes = super::read_table(object)?;
    let file = ElfFile::open(path)?;
    verify_object(&file, &bytes).map_err(|error| named(error, path, object))
}

/// Verifies a native table compiled in memory.
fn verify_made(path: &Path) -> anyhow::Result<NativeVerification> {
    let file = ElfFile::open(path)?;
    verify_compiled(&file).map_err(|error| named(error, path, path))
}
