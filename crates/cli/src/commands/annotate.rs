//! `unspool annotate`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use unspool_assembly::{AnnotateRefusal, DirectivePlan, RegisterSyntax};
use unspool_elf::{DebugFiles, ElfFile, Lines, SearchRoots};
use unspool_rows::Vaddr;
use unspool_table_store as tables;

use super::check::source;
use crate::args::AnnotateArgs;
use crate::output::{self, ExitCodes};

pub(crate) fn run(args: &AnnotateArgs) -> anyhow::Result<ExitCode> {
    let path = args.file.as_path();
    let Some(object) = source::assemble(path)? else {
        bail!(
            "{}: not an assembly source file (expected .s or .S)",
            path.display()
        );
    };
    let text = super::read_text(path)?;
    let before = Arc::new(ElfFile::from_bytes(path, object)?);
    let lines = Lines::new(
        Arc::clone(&before),
        &DebugFiles::locate(&before, &SearchRoots::from_environment()),
        &[],
    );
    let mut source = source::parsed(path, &text);
    let plan = DirectivePlan::new(
        &before,
        &tables::read_if_any(&before)?,
        &source,
        RegisterSyntax::detect(&text),
        |address| line_of(&lines, path, address),
    );
    for refusal in &plan.refusals {
        say(path, refusal);
    }
    plan.write_into(&mut source);
    let annotated = source.to_string();
    let object = source::assemble_text(&annotated, path).context("with directives")?;
    let after = ElfFile::from_bytes(path, object)?;
    if let Err(refusal) = plan.verify(&after, &tables::read_if_any(&after)?) {
        say(path, &refusal);
        return Ok(ExitCode::from(ExitCodes::FINDINGS));
    }
    match &args.output {
        Some(output) => super::write(output, annotated.as_bytes(), None)?,
        None => output::print(annotated.as_bytes())?,
    }
    output::notice(&format_args!(
        "{}: {} functions annotated, {} have directives, {} refused",
        path.display(),
        plan.annotated_count(),
        plan.already_described,
        plan.refusals.len()
    ));
    Ok(match plan.refusals.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(ExitCodes::FINDINGS),
    })
}

fn say(path: &Path, refusal: &AnnotateRefusal) {
    match refusal.line {
        Some(line) => output::error(&format_args!("{}:{line}: {refusal}", path.display())),
        None => output::error(&format_args!("{}: {refusal}", path.display())),
    }
}

/// The line of the file for the instruction at an address; `None` if it is from another file.
pub(super) fn line_of(lines: &Lines, path: &Path, address: Vaddr) -> Option<u32> {
    let (file, line) = lines.line(address)?;
    let is_own = Path::new(&file).file_name() == path.file_name();
    is_own.then_some(line)
}
