//! `unspool compile --as native` and `--as c`.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use unspool_module::{ContentKey, ElfFile};
use unspool_native::{Key, Outline};
use unspool_unwind::tables;

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
    let bytes = match args.form {
        CompiledForm::C => c(&file, &outline)?,
        _ => object(&file, &outline)?,
    };
    let source: u64 = reading.origins.iter().map(|origin| origin.size).sum();
    match &args.output {
        Some(output) if output.as_os_str() != "-" => {
            super::super::write(output, &bytes, None)?;
            report(path, output, &outline, bytes.len(), source, args.format)?;
        }
        None if args.form == CompiledForm::Native => {
            bail!("--as native writes a shared object: name it with --output OUT.so");
        }
        _ => {
            let mut out = output::results();
            out.write_all(&bytes)?;
            out.flush()?;
        }
    }
    Ok(match reading.problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(Failure::FINDINGS),
    })
}

fn object(file: &ElfFile, outline: &Outline<'_>) -> anyhow::Result<Vec<u8>> {
    let key = file.content_key();
    let (id, hash);
    let key = match key {
        ContentKey::BuildId(own) => {
            id = own;
            Key::BuildId(id.as_bytes())
        }
        ContentKey::Hash(own) => {
            hash = own;
            Key::Content(&hash)
        }
    };
    unspool_native::object(outline, key).with_context(|| file.path().display().to_string())
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
