//! `unspool compile --emit native` and `--emit c`.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use unspool_elf::ElfFile;
use unspool_native_table::Outline;
use unspool_table_store::{self as tables, NativeObject, Store, native_key};

use crate::args::Format;
use crate::args::tables::{CompileArgs, CompiledForm};
use crate::output::{self, ExitCodes};

pub(crate) fn run(args: &CompileArgs) -> anyhow::Result<ExitCode> {
    let [path] = args.files.as_slice() else {
        bail!("--emit native and --emit c take one file");
    };
    if args.into.is_some() {
        bail!("--into takes a table: leave out --emit, or write the code to a file with --output");
    }
    let started = Instant::now();
    let (opened, store) = (super::super::open(path)?, Store::from_environment());
    let file = &*store.stable(&opened);
    let reading = tables::read(file, args.from.to_library())?;
    super::super::report_problems(file, &reading);
    let name = || path.display().to_string();
    let outline = Outline::from_table(&reading.table).with_context(name)?;
    let say = |output: &Path, bytes: &[u8], is_verified| {
        let report = NativeReport {
            path,
            output,
            bytes: bytes.len(),
            is_verified,
            outline: &outline,
            table: &reading,
            started,
        };
        report.print(args.format)
    };
    let key = tables::own_key(file);
    match (args.form, &args.output) {
        (CompiledForm::C, output) => {
            let text = c(file, &outline)?;
            put(output.as_deref(), &text, |output| say(output, &text, false))?;
        }
        (_, Some(output)) if args.no_verify => {
            let object =
                unspool_native_table::object(&outline, native_key(&key)).with_context(name)?;
            put(Some(output), &object, |output| say(output, &object, false))?;
        }
        (_, None) if args.no_verify => bail!(
            "code in the cache is run, so it must be proven: leave out --no-verify, or write it to a file with --output"
        ),
        (_, output) => {
            let object = NativeObject::from_table(&reading.table, &key).with_context(name)?;
            match output {
                Some(output) => put(Some(output), object.bytes(), |output| {
                    say(output, object.bytes(), true)
                })?,
                None => {
                    let kept = store.keep_native(file, &object);
                    let kept = kept.with_context(|| super::no_cache(path))?;
                    say(&kept, object.bytes(), true)?;
                }
            }
        }
    }
    Ok(if reading.problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(ExitCodes::FINDINGS)
    })
}

/// Writes bytes to their destination and reports it; without one, to standard output.
fn put(
    output: Option<&Path>,
    bytes: &[u8],
    say: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    match output.filter(|output| output.as_os_str() != "-") {
        Some(output) => {
            super::super::write(output, bytes, None)?;
            say(output)
        }
        None => {
            let mut out = output::text();
            out.write_all(bytes)?;
            Ok(out.flush()?)
        }
    }
}

fn c(file: &ElfFile, outline: &Outline<'_>) -> anyhow::Result<Vec<u8>> {
    let about = match file.build_id() {
        Some(id) => format!("Unwind table of {}, build ID {id}", file.path().display()),
        None => format!("Unwind table of {}", file.path().display()),
    };
    let mut text = String::new();
    unspool_native_table::c::source(outline, &about, &mut text)?;
    Ok(text.into_bytes())
}

/// The compiled object.
struct NativeReport<'r> {
    path: &'r Path,
    output: &'r Path,
    bytes: usize,
    is_verified: bool,
    outline: &'r Outline<'r>,
    table: &'r tables::SourceTable,
    started: Instant,
}

impl NativeReport<'_> {
    fn print(&self, format: Format) -> anyhow::Result<()> {
        match format {
            Format::Text => self.print_text(),
            Format::Json => Ok(output::document(
                "compile",
                &json!({ "files": [self.as_json()] }),
            )?),
        }
    }

    fn source(&self) -> u64 {
        self.table.sections.iter().map(|origin| origin.size).sum()
    }

    fn print_text(&self) -> anyhow::Result<()> {
        let mut out = output::text();
        writeln!(
            out,
            "{}: {} rows, {} different{}; {} bytes, of {} bytes of source\n  {}",
            self.path.display(),
            self.outline.source_rows(),
            self.outline.rows().len(),
            if self.is_verified {
                ", verified"
            } else {
                ", not verified"
            },
            self.bytes,
            self.source(),
            self.output.display(),
        )?;
        Ok(out.flush()?)
    }

    fn as_json(&self) -> Value {
        let rows = self.outline.source_rows();
        json!({
            "file": self.path.to_string_lossy(),
            "output": self.output.to_string_lossy(),
            "bytes": self.bytes,
            "source_bytes": self.source() + self.table.hdr_size,
            "rows": rows,
            "verified_rows": self.is_verified.then_some(rows),
            "distinct_rows": self.outline.rows().len(),
            "bad_entries": self.table.problems.len(),
            "seconds": self.started.elapsed().as_secs_f64(),
        })
    }
}
