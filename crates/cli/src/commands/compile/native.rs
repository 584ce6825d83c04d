//! `unspool compile --as native` and `--as c`.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use unspool_module::ElfFile;
use unspool_native::Outline;
use unspool_unwind::tables::{self, NativeObject, Store, native_key};

use crate::args::{CompileArgs, CompiledForm, Format};
use crate::output::{self, Failure};

pub(crate) fn run(args: &CompileArgs) -> anyhow::Result<ExitCode> {
    let [path] = args.files.as_slice() else {
        bail!("--as native and --as c take one file");
    };
    if args.into.is_some() {
        bail!("--into takes a table: leave out --as, or write the code to a file with --output");
    }
    let file = super::super::open(path)?;
    let reading = tables::read(&file, args.from.lower())?;
    super::super::report_problems(&file, &reading);
    let outline = Outline::of(&reading.table).with_context(|| path.display().to_string())?;
    let source: u64 = reading.origins.iter().map(|origin| origin.size).sum();
    let say = |output: &Path, bytes: &[u8]| {
        report(path, output, &outline, bytes.len(), source, args.format)
    };
    match (args.form, &args.output) {
        (CompiledForm::C, output) => {
            let text = c(&file, &outline)?;
            put(output.as_deref(), &text, say)?;
        }
        (_, Some(output)) => {
            let object = unspool_native::object(&outline, native_key(&file.content_key()));
            let object = object.with_context(|| path.display().to_string())?;
            put(Some(output), &object, say)?;
        }
        (_, None) => {
            // It is run from there, and so it is proven.
            let key = file.content_key();
            let object = NativeObject::of(&reading.table, &key);
            let object = object.with_context(|| path.display().to_string())?;
            let kept = Store::from_environment().keep_native(&key, &object);
            say(
                &kept.with_context(|| super::no_cache(path))?,
                object.bytes(),
            )?;
        }
    }
    Ok(match reading.problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(Failure::FINDINGS),
    })
}

/// Writes bytes where they should go, and says so; to standard output if nobody says where.
fn put(
    output: Option<&Path>,
    bytes: &[u8],
    say: impl FnOnce(&Path, &[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    match output.filter(|output| output.as_os_str() != "-") {
        Some(output) => {
            super::super::write(output, bytes, None)?;
            say(output, bytes)
        }
        None => {
            let mut out = output::results();
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
    unspool_native::c::source(outline, &about, &mut text)?;
    Ok(text.into_bytes())
}

fn report(
    path: &Path,
    output: &Path,
    outline: &Outline<'_>,
    bytes: usize,
    source: u64,
    format: Format,
) -> anyhow::Result<()> {
    let bodies = outline.rows().len();
    match format {
        Format::Text => {
            let mut out = output::results();
            writeln!(
                out,
                "{}: {} rows, {bodies} different; {bytes} bytes, of {source} bytes of source\n  {}",
                path.display(),
                outline.source_rows(),
                output.display(),
            )?;
            out.flush()?;
        }
        Format::Json => {
            let file: Value = json!({
                "file": path.to_string_lossy(),
                "output": output.to_string_lossy(),
                "bytes": bytes,
                "source_bytes": source,
                "rows": outline.source_rows(),
                "distinct_rows": bodies,
            });
            output::document("compile", &json!({ "files": [file] }))?;
        }
    }
    Ok(())
}
