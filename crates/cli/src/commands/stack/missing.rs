//! Tables that a walk lacked: compiled for the next time.

use std::collections::BTreeMap;

use unspool_elf::ElfFile;
use unspool_process::snapshot_unwinder::SnapshotUnwinder;
use unspool_table_store::{
    CompileError, SourceError, Store, StoreError, TableSource, compile_verified,
};

use crate::output::{self, short_name, with_causes};

/// Compiles the missing tables of modules into the cache. Failures are notices: one for each
/// reason, with its modules.
pub(super) fn compile_missing(unwinder: &SnapshotUnwinder<'_>, store: &Store) {
    let mut failed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for module in unwinder.uncompiled() {
        if module.file.path().as_os_str() == "[vdso]" {
            continue;
        }
        if let Err(reason) = keep(store, &module.file) {
            let name = short_name(&module.name);
            failed.entry(reason).or_default().push(name);
        }
    }
    for (reason, names) in failed {
        let names = names.join(", ");
        output::notice(&format_args!("{names}: no compiled table kept: {reason}"));
    }
}

fn keep(store: &Store, file: &ElfFile) -> Result<(), String> {
    let file = &*store.stable(file);
    let made = match compile_verified(file, TableSource::Auto) {
        Ok((made, _)) => made,
        // As its frames report.
        Err(CompileError::Source(SourceError::Missing { .. })) => return Ok(()),
        Err(error) => return Err(without_path(file, &error)),
    };
    match store.keep(file, &made.encoded.bytes) {
        // A large file that another user can change cannot be cached; that needs no message each
        // time.
        Ok(_) | Err(StoreError::Changeable { .. }) => Ok(()),
        Err(error) => Err(format!(
            "{error}; XDG_CACHE_HOME can name another folder, and --no-cache does without"
        )),
    }
}

/// The error without the path that the file was opened by, which may be a link of the kernel's.
fn without_path(file: &ElfFile, error: &CompileError) -> String {
    let text = with_causes(error);
    let path = format!("{}: ", file.path().display());
    text.strip_prefix(&path).unwrap_or(&text).to_owned()
}
