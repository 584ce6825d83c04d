//! `unspool check --fix` and `--diff` on assembly source.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use unspool_assembly::AssemblySource;
use unspool_check::{CodeOrigin, FixOptions, FixResult, LocatedFinding, Severity, fix_source};
use unspool_elf::ElfFile;

use crate::args::check::CheckArgs;
use crate::commands::cc::CcAssembler;
use crate::output::{self, ExitCodes};

/// Prints what `--fix` would change, and changes nothing.
pub(super) fn print_diffs(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let mut status = 0;
    for path in &args.files {
        match edit(path, args) {
            Ok(diff) if diff.is_empty() => {}
            Ok(diff) => {
                output::print(diff.as_bytes())?;
                status = status.max(ExitCodes::FINDINGS);
            }
            Err(error) => {
                output::error(&format_args!("{error:#}"));
                status = ExitCodes::COULD_NOT_RUN;
            }
        }
    }
    Ok(ExitCode::from(status))
}

/// Writes the fixes into a file's text; for a preview, returns the diff.
pub(super) fn edit(path: &Path, args: &CheckArgs) -> anyhow::Result<String> {
    if !AssemblySource::is_assembly_path(path) {
        bail!(
            "{}: --diff shows edits of assembly source (.s, .S) only: --fix a copy, and compare what `unspool show` prints",
            path.display()
        );
    }
    let fixed = fix(path, args, usize::MAX)?;
    for refused in &fixed.refused {
        let line = refused.line;
        let line = line.map_or_else(String::new, |line| format!(":{line}"));
        output::notice(&format_args!("{}{line}: {refused}", path.display()));
    }
    if fixed.fixed > 0 || !fixed.refused.is_empty() {
        let (gone, stay) = (fixed.fixed, fixed.refused.len());
        let (fixed, stay) = if args.fix {
            ("fixed", format!("{stay} stay"))
        } else {
            ("would be fixed", format!("{stay} would stay"))
        };
        output::notice(&format_args!(
            "{}: {gone} findings {fixed}, {stay}",
            path.display()
        ));
    }
    if args.fix && fixed.source.is_changed() {
        let permissions = fs::metadata(path)?.permissions();
        crate::commands::write(path, fixed.source.to_string().as_bytes(), Some(permissions))?;
    }
    Ok(fixed.source.diff(&path.to_string_lossy()))
}

/// Adds to the findings of an assembly source file what `--fix` would do about them.
pub(super) fn advise(
    path: &Path,
    args: &CheckArgs,
    file: &ElfFile,
    findings: &mut [LocatedFinding],
) -> anyhow::Result<()> {
    /// Each is a run of the assembler.
    const MAX_DRAFTS: usize = 100;
    if findings.iter().any(|finding| finding.suppression.is_none()) {
        fix(path, args, MAX_DRAFTS)?.advise(file, findings);
    }
    Ok(())
}

fn fix(path: &Path, args: &CheckArgs, max_drafts: usize) -> anyhow::Result<FixResult> {
    let text = crate::commands::read_text(path)?;
    let strictness = args.options().strictness;
    let minimum_severity = strictness.minimum_severity(CodeOrigin::HandWritten);
    let options = FixOptions {
        // Notes are not faults.
        minimum_severity: minimum_severity.max(Severity::Unproven),
        max_drafts,
    };
    let assembler = CcAssembler::from_environment();
    Ok(fix_source(path, &text, options, &assembler)?)
}
