//! `unspool verify`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, bail};
use rayon::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use unspool_compact::{Comparison, Compiled, layout};
use unspool_module::ElfFile;
use unspool_unwind::tables::{self, CompileError, From, SourceError};

use super::compile::as_f64;
use crate::args::{Format, VerifyArgs};
use crate::output::{self, Failure};

/// One file's proof.
struct Proof {
    path: PathBuf,
    build_id: Option<String>,
    comparison: Comparison,
    bad_entries: usize,
    hashes: Option<Hashes>,
}

/// What a certificate speaks of: the SHA-256 of the file, whose sections and code are the source,
/// and of the table.
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

pub(crate) fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    if let [file, table] = args.paths.as_slice()
        && !is_folder(file)
        && !is_folder(table)
        && !is_elf(table)
    {
        let bytes = read_table(table)?;
        let proof = prove(file, Some(&bytes), args.format);
        let proof = proof.with_context(|| table.display().to_string())?;
        return report(&[proof], 0, started, args.format);
    }
    if let [file] = args.paths.as_slice()
        && !is_folder(file)
    {
        return report(&[prove(file, None, args.format)?], 0, started, args.format);
    }
    let files = find_elf_files(&args.paths)?;
    let results: Vec<_> = files
        .par_iter()
        .map(|path| (path, prove(path, None, args.format)))
        .collect();
    let mut proofs = Vec::new();
    let mut failed = 0;
    for (path, result) in results {
        match result {
            Ok(proof) => proofs.push(proof),
            Err(error) if is_missing(&error) && !args.paths.contains(path) => {}
            Err(error) => {
                failed += 1;
                output::error(&format_args!("{error:#}"));
            }
        }
    }
    if proofs.is_empty() && failed == 0 {
        bail!("no ELF file with an unwind table in the folders given");
    }
    report(&proofs, failed, started, args.format)
}

/// Whether a file simply has no unwind table.
fn is_missing(error: &anyhow::Error) -> bool {
    let missing = error.downcast_ref();
    matches!(
        missing,
        Some(CompileError::Source(SourceError::Missing { .. }))
    )
}

fn is_folder(path: &Path) -> bool {
    path.is_dir()
}

fn read_table(path: &Path) -> anyhow::Result<Vec<u8>> {
    let name = || path.display().to_string();
    // A pipe would be waited for.
    if !fs::metadata(path).with_context(name)?.is_file() {
        bail!("{}: not a regular file", path.display());
    }
    fs::read(path).with_context(name)
}

/// Compares a file's rows with a compiled table, or with one that is made in memory.
fn prove(path: &Path, compiled: Option<&[u8]>, format: Format) -> anyhow::Result<Proof> {
    let file = ElfFile::open(path)?;
    let (reading, made) = match compiled {
        Some(_) => (tables::read(&file, From::Auto)?, None),
        None => {
            let made = tables::compile(&file, From::Auto)?;
            (made.reading, Some(made.encoded.bytes))
        }
    };
    let bytes = compiled.or(made.as_deref()).unwrap_or_default();
    if !tables::is_table_of(&Compiled::open(bytes)?, &file) {
        bail!(
            "it is the table of another module than {}, whose key is {}",
            path.display(),
            file.content_key()
        );
    }
    Ok(Proof {
        path: path.to_path_buf(),
        build_id: file.build_id().map(|id| id.to_string()),
        comparison: tables::verify(&file, &reading.table, bytes)?,
        bad_entries: reading.problems.len(),
        hashes: (format == Format::Json).then(|| Hashes::new(&file, bytes)),
    })
}

/// Every ELF file below the paths, each once; symbolic links are not followed.
fn find_elf_files(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    use std::os::unix::fs::MetadataExt as _;
    let mut found = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let mut open: Vec<PathBuf> = paths.to_vec();
    while let Some(path) = open.pop() {
        let metadata = fs::symlink_metadata(&path);
        let named = paths.contains(&path);
        let metadata = match metadata {
            Ok(metadata) if metadata.is_symlink() && named => fs::metadata(&path),
            other => other,
        };
        let metadata = match metadata {
            Ok(metadata) => metadata,
            Err(error) if named => return Err(error).context(path.display().to_string()),
            Err(_) => continue,
        };
        if metadata.is_dir() {
            if let Ok(entries) = fs::read_dir(&path) {
                open.extend(entries.flatten().map(|entry| entry.path()));
            }
        } else if named || (metadata.is_file() && is_elf(&path)) {
            if !seen.insert((metadata.dev(), metadata.ino())) {
                continue;
            }
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn is_elf(path: &Path) -> bool {
    if !path.is_file() {
        return false; // a pipe would be waited for
    }
    let mut magic = [0; 4];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == *b"\x7fELF"
}

fn report(
    proofs: &[Proof],
    failed: usize,
    started: Instant,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let mut total = Comparison::default();
    for proof in proofs {
        total.distinct_rows += proof.comparison.distinct_rows;
        total.add(proof.comparison.clone());
    }
    let seconds = started.elapsed().as_secs_f64();
    match format {
        Format::Text => print_text(proofs, &total, seconds)?,
        Format::Json => print_json(proofs, &total, seconds)?,
    }
    let bad = proofs.iter().any(|proof| proof.bad_entries > 0);
    Ok(match (total.is_equal(), failed > 0 || bad) {
        (true, false) => ExitCode::SUCCESS,
        _ => ExitCode::from(Failure::FINDINGS),
    })
}

fn print_text(proofs: &[Proof], total: &Comparison, seconds: f64) -> anyhow::Result<()> {
    let mut out = output::results();
    for proof in proofs {
        let c = &proof.comparison;
        if proofs.len() > 1 && c.is_equal() && proof.bad_entries == 0 {
            continue;
        }
        writeln!(out, "{}: {}", proof.path.display(), counts(c))?;
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
    if proofs.len() != 1 {
        let rate = as_f64(total.rows) / seconds.max(1e-9) / 1e6;
        writeln!(
            out,
            "{} files: {}; {rate:.1} million rows/s",
            proofs.len(),
            counts(total)
        )?;
    }
    out.flush()?;
    Ok(())
}

fn counts(c: &Comparison) -> String {
    format!(
        "{} rows compared, {} distinct, {} holes, {} call sites ({} left to the rows); {} differences",
        c.rows, c.distinct_rows, c.holes, c.call_sites, c.call_sites_asked, c.mismatch_count,
    )
}

fn print_json(proofs: &[Proof], total: &Comparison, seconds: f64) -> anyhow::Result<()> {
    let numbers = |c: &Comparison| {
        json!({
            "rows": c.rows,
            "distinct_rows": c.distinct_rows,
            "holes": c.holes,
            "pieces": c.entries,
            "call_sites": c.call_sites,
            "call_sites_left_to_rows": c.call_sites_asked,
            "other_addresses": c.other_addresses,
            "differences": c.mismatch_count,
        })
    };
    let files: Vec<Value> = proofs
        .iter()
        .map(|proof| {
            let mismatches: Vec<Value> = proof
                .comparison
                .mismatches
                .iter()
                .map(|m| json!({ "address": output::address(m.at.0), "what": m.what.to_string() }))
                .collect();
            json!({
                "file": proof.path.to_string_lossy(),
                "build_id": proof.build_id,
                "sha256": proof.hashes.as_ref().map(|hashes| &hashes.file),
                "table": proof.hashes.as_ref().map(|hashes| json!({
                    "sha256": hashes.table,
                    "bytes": hashes.table_bytes,
                    "format_version": layout::VERSION,
                })),
                "bad_entries": proof.bad_entries,
                "counts": numbers(&proof.comparison),
                "mismatches": mismatches,
            })
        })
        .collect();
    let body = json!({
        "unspool": env!("CARGO_PKG_VERSION"),
        "files": files,
        "total": numbers(total),
        "seconds": seconds,
    });
    Ok(output::document("verify", &body)?)
}
