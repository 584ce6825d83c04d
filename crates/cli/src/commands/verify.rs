//! `unspool verify`.

use std::borrow::Cow;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use unspool_compiled_table::{CompiledTable, SourceComparison, layout};
use unspool_elf::ElfFile;
use unspool_table_store::{self as tables, SourceSection, TableSource};

mod native;

use super::compile::as_f64;
use super::elf_files;
use crate::args::Format;
use crate::args::tables::{VerifiedForm, VerifyArgs};
use crate::output::{self, ExitCodes};

/// The verification of one file.
struct TableVerification {
    path: PathBuf,
    build_id: Option<String>,
    comparison: SourceComparison,
    bad_entries: usize,
    /// The sections of the file's rows.
    sections: Vec<SourceSection>,
    /// Whether the table is embedded in the file.
    is_embedded: bool,
    hashes: Option<Hashes>,
}

/// The subjects of a certificate: the SHA-256 of the file, which has the sections and the code, and
/// of the table.
struct Hashes {
    file: String,
    table: String,
    table_bytes: usize,
}

impl Hashes {
    fn new(file: &ElfFile, table: &[u8]) -> Self {
        let hex = |bytes: &[u8]| {
            let digest = Sha256::digest(bytes);
            digest.iter().map(|byte| format!("{byte:02x}")).collect()
        };
        Hashes {
            file: hex(file.bytes()),
            table: hex(table),
            table_bytes: table.len(),
        }
    }
}

/// The result for a file.
struct VerifyOutcome {
    path: PathBuf,
    verification: anyhow::Result<TableVerification>,
}

/// A given table, to be compared with a file's rows.
struct GivenTable<'a> {
    path: &'a Path,
    bytes: Vec<u8>,
}

pub(crate) fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    match (args.form, args.paths.as_slice()) {
        (VerifiedForm::Native, paths) => return native::run_all(paths, args.format),
        (VerifiedForm::Table, [file, object]) if native::is_object(object) => {
            return native::run(file, object, args.format);
        }
        _ => {}
    }
    let started = Instant::now();
    let outcomes = match args.paths.as_slice() {
        [file, table] if !is_folder(file) && !is_folder(table) && !elf_files::is_elf(table) => {
            vec![prove_table(file, table, args.format)]
        }
        paths => prove_all(paths, args.format),
    };
    if outcomes.is_empty() {
        bail!("no ELF file with an unwind table in the folders given");
    }
    report(&outcomes, started, args.format)
}

fn prove_table(file: &Path, table: &Path, format: Format) -> VerifyOutcome {
    let given = read_table(table).map(|bytes| GivenTable { path: table, bytes });
    VerifyOutcome {
        path: file.to_path_buf(),
        verification: given.and_then(|given| prove(file, Some(&given), format)),
    }
}

fn prove_all(paths: &[PathBuf], format: Format) -> Vec<VerifyOutcome> {
    let (files, unreadable) = elf_files::find(paths);
    let unreadable = unreadable.into_iter().map(|(path, error)| VerifyOutcome {
        path,
        verification: Err(error),
    });
    let mut outcomes: Vec<VerifyOutcome> = unreadable.collect();
    let prove_one = |path: PathBuf| VerifyOutcome {
        verification: prove(&path, None, format),
        path,
    };
    outcomes.extend(unspool_parallel::map(
        files,
        unspool_parallel::processors(),
        prove_one,
    ));
    // Files found in a folder need not have a table; named files must.
    outcomes.retain(|outcome| match &outcome.verification {
        Ok(_) => true,
        Err(error) => !super::is_missing(error) || paths.contains(&outcome.path),
    });
    outcomes
}

fn is_folder(path: &Path) -> bool {
    path.is_dir()
}

/// Reads a regular file.
fn read_table(path: &Path) -> anyhow::Result<Vec<u8>> {
    let read = || {
        let mut bytes = Vec::new();
        unspool_files::open(path)?.read_to_end(&mut bytes)?;
        io::Result::Ok(bytes)
    };
    read().with_context(|| path.display().to_string())
}

/// Compares a file's rows with a compiled table: the given one, the embedded one, or one compiled
/// in memory.
fn prove(
    path: &Path,
    given: Option<&GivenTable<'_>>,
    format: Format,
) -> anyhow::Result<TableVerification> {
    let file = ElfFile::open(path)?;
    let embedded = match given {
        Some(_) => None,
        None => tables::embedded_bytes(&file).context("the table in the file itself")?,
    };
    let (reading, table) = match (given, embedded) {
        (Some(given), _) => {
            given.check(&file)?;
            let reading = tables::read(&file, TableSource::Auto)?;
            (reading, Cow::Borrowed(given.bytes.as_slice()))
        }
        (None, Some(embedded)) => (
            tables::read(&file, TableSource::Auto)?,
            Cow::Borrowed(embedded),
        ),
        (None, None) => {
            let made = tables::compile(&file, TableSource::Auto)?;
            (made.source, Cow::Owned(made.encoded.bytes))
        }
    };
    let checked = given.map_or(path, |given| given.path);
    let comparison = tables::verify(&file, &reading.table, &table);
    Ok(TableVerification {
        path: path.to_path_buf(),
        build_id: file.build_id().map(|id| id.to_string()),
        comparison: comparison.with_context(|| checked.display().to_string())?,
        bad_entries: reading.problems.len(),
        sections: reading.sections,
        is_embedded: embedded.is_some(),
        hashes: (format == Format::Json).then(|| Hashes::new(&file, &table)),
    })
}

impl GivenTable<'_> {
    /// Refuses a file that is not a table, or is the table of another file.
    fn check(&self, file: &ElfFile) -> anyhow::Result<()> {
        let table =
            CompiledTable::open(&self.bytes).with_context(|| self.path.display().to_string())?;
        if !tables::is_table_of(&table, file) {
            bail!(
                "{}: the table of another module than {}, whose key is {}",
                self.path.display(),
                file.path().display(),
                tables::own_key(file)
            );
        }
        Ok(())
    }
}

fn report(
    outcomes: &[VerifyOutcome],
    started: Instant,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let mut total = SourceComparison::default();
    let mut status = 0;
    for outcome in outcomes {
        match &outcome.verification {
            Ok(proof) => {
                total.distinct_rows += proof.comparison.distinct_rows;
                total.add(proof.comparison.clone());
                if !proof.is_clean() {
                    status = status.max(ExitCodes::FINDINGS);
                }
            }
            Err(error) => {
                output::error(&format_args!("{error:#}"));
                status = ExitCodes::COULD_NOT_RUN;
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    match format {
        Format::Text => print_text(outcomes, &total, seconds)?,
        Format::Json => print_json(outcomes, &total, seconds)?,
    }
    Ok(ExitCode::from(status))
}

impl TableVerification {
    fn is_clean(&self) -> bool {
        self.comparison.is_equal() && self.bad_entries == 0
    }
}

/// Of several files, those without differences are only counted.
fn print_text(
    outcomes: &[VerifyOutcome],
    total: &SourceComparison,
    seconds: f64,
) -> anyhow::Result<()> {
    let mut out = output::text();
    let verifications: Vec<&TableVerification> =
        outcomes.iter().flat_map(|o| &o.verification).collect();
    let is_shown =
        |verification: &&&TableVerification| outcomes.len() == 1 || !verification.is_clean();
    for proof in verifications.iter().filter(is_shown) {
        let c = &proof.comparison;
        let of = if proof.is_embedded {
            "the table in the file: "
        } else {
            ""
        };
        writeln!(out, "{}: {of}{}", output::path(&proof.path), counts(c))?;
        if let [_, _, ..] = proof.sections.as_slice() {
            let entries = proof.sections.iter().map(SourceSection::to_string);
            writeln!(out, "  {}", entries.collect::<Vec<_>>().join(", "))?;
        }
        if proof.bad_entries > 0 {
            writeln!(
                out,
                "  {} problems in the source: entries left out, or read in doubt",
                proof.bad_entries
            )?;
        }
        for mismatch in &c.mismatches {
            writeln!(out, "  at {}: {}", mismatch.at, mismatch.what)?;
        }
    }
    if outcomes.len() > 1 && !verifications.is_empty() {
        let rate = as_f64(total.rows) / seconds.max(1e-9) / 1e6;
        writeln!(
            out,
            "{} {}: {}; {rate:.1} million rows/s",
            verifications.len(),
            if verifications.len() == 1 {
                "file"
            } else {
                "files"
            },
            counts(total)
        )?;
    }
    out.flush()?;
    Ok(())
}

fn counts(c: &SourceComparison) -> String {
    format!(
        "{} rows compared, {} distinct, {} holes, {} call sites ({} left to the rows); {} differences",
        c.rows, c.distinct_rows, c.holes, c.call_sites, c.call_sites_asked, c.mismatch_count,
    )
}

fn print_json(
    outcomes: &[VerifyOutcome],
    total: &SourceComparison,
    seconds: f64,
) -> anyhow::Result<()> {
    let file = |outcome: &VerifyOutcome| match &outcome.verification {
        Ok(proof) => as_json(proof),
        Err(error) => super::error_object(&outcome.path, error),
    };
    let body = json!({
        "unspool_version": env!("CARGO_PKG_VERSION"),
        "files": outcomes.iter().map(file).collect::<Vec<_>>(),
        "total": numbers(total),
        "seconds": seconds,
    });
    Ok(output::document("verify", &body)?)
}

fn as_json(verification: &TableVerification) -> Value {
    let mismatches = verification.comparison.mismatches.iter();
    let mismatches: Vec<Value> = mismatches
        .map(|m| json!({ "address": output::address(m.at.0), "message": m.what.to_string() }))
        .collect();
    json!({
        "file": verification.path.to_string_lossy(),
        "build_id": verification.build_id,
        "sha256": verification.hashes.as_ref().map(|hashes| &hashes.file),
        "table": verification.hashes.as_ref().map(|hashes| json!({
            "sha256": hashes.table,
            "bytes": hashes.table_bytes,
            "format_version": layout::VERSION,
            "embedded": verification.is_embedded,
        })),
        "bad_entries": verification.bad_entries,
        "sections": super::sections(&verification.sections),
        "counts": numbers(&verification.comparison),
        "mismatches": mismatches,
    })
}

fn numbers(c: &SourceComparison) -> Value {
    json!({
        "rows": c.rows,
        "distinct_rows": c.distinct_rows,
        "holes": c.holes,
        "pieces": c.entries,
        "call_sites": c.call_sites,
        "call_sites_answered_by_rows": c.call_sites_asked,
        "non_call_addresses": c.other_addresses,
        "differences": c.mismatch_count,
    })
}
