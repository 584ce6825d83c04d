//! `unspool script --inject`.

use std::fs::Permissions;
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use unspool_files::FileId;
use unspool_perf_events::DataFile;
use unspool_profile::GroupedDigits;
use unspool_sampler::InjectSummary;
use unspool_symbols::ModuleFinder;
use unspool_table_store::Store;

use crate::commands;
use crate::commands::recording::{is_complete, report_problems, status};
use crate::output;

pub(super) fn run(
    recording: &Path,
    file: &DataFile,
    path: &Path,
    store: Store,
) -> anyhow::Result<ExitCode> {
    let metadata = path.metadata();
    anyhow::ensure!(
        !metadata.is_ok_and(|metadata| !metadata.is_file()),
        "cannot write {}: not a regular file",
        path.display()
    );
    anyhow::ensure!(
        !is_same(recording, path),
        "cannot write {}: it is the recording itself: name another file",
        path.display()
    );
    // Only the user may read the stacks, as with perf.
    let permissions = Permissions::from_mode(0o600);
    let (injected, reading) = commands::write_by(path, Some(permissions), |out| {
        let out = BufWriter::new(out.try_clone()?);
        let injected = unspool_sampler::inject(file, out, ModuleFinder::from_environment(), store);
        let (out, injected, reading) = injected.with_context(|| recording.display().to_string())?;
        out.into_inner()?;
        Ok((injected, reading))
    })?;
    report_problems(recording, file, &reading);
    report(path, &injected);
    Ok(status(is_complete(file, &reading)))
}

/// Whether both paths name one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| path.metadata().map(|metadata| FileId::new(&metadata)).ok();
    id(one).is_some_and(|one| Some(one) == id(other))
}

fn report(path: &Path, summary: &InjectSummary) {
    let path = path.display();
    let stacks = summary.stacks - summary.without_stack;
    if summary.stacks == 0 {
        output::notice(&format_args!(
            "{path}: no sample has a copied stack (perf record --call-graph dwarf): all are as they were"
        ));
        return;
    }
    output::notice(&format_args!(
        "{path}: {} of {} stacks are complete",
        GroupedDigits(summary.complete),
        GroupedDigits(stacks)
    ));
    if summary.cut > 0 {
        output::notice(&format_args!(
            "{} stacks have more frames than a record of perf can hold, and are without the outermost",
            GroupedDigits(summary.cut)
        ));
    }
}
