//! `unspool annotate`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use unspool_assembly::{AnnotateRefusal, AssemblySource, annotate};

use super::cc::{self, CcAssembler};
use crate::args::check::AnnotateArgs;
use crate::output::{self, ExitCodes};

pub(crate) fn run(args: &AnnotateArgs) -> anyhow::Result<ExitCode> {
    let path = args.file.as_path();
    if !AssemblySource::is_assembly_path(path) {
        bail!(
            "{path}: not an assembly source file (expected .s or .S): `unspool report --disasm {path}` \
             shows the samples of a function",
            path = path.display()
        );
    }
    cc::check_exists(path)?;
    let text = super::read_text(path)?;
    let annotated = annotate(path, &text, &CcAssembler::from_environment())?;
    let plan = &annotated.plan;
    for refusal in plan.refusals.iter().chain(annotated.proof.as_ref().err()) {
        say(path, refusal);
    }
    if annotated.proof.is_err() {
        return Ok(ExitCode::from(ExitCodes::FINDINGS));
    }
    match &args.output {
        Some(output) => super::write(output, annotated.text.as_bytes(), None)?,
        None if args.diff => output::print(annotated.diff.as_bytes())?,
        None => output::print(annotated.text.as_bytes())?,
    }
    output::notice(&format_args!(
        "{}: {} functions annotated, {} have directives, {} refused",
        path.display(),
        plan.annotated_count(),
        plan.already_described,
        plan.refusals.len()
    ));
    Ok(if plan.refusals.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(ExitCodes::FINDINGS)
    })
}

fn say(path: &Path, refusal: &AnnotateRefusal) {
    match refusal.line {
        Some(line) => output::error(&format_args!("{}:{line}: {refusal}", path.display())),
        None => output::error(&format_args!("{}: {refusal}", path.display())),
    }
}
