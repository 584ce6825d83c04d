//! The argument tables of the modules of a report.

use unspool_arg_table_builder::{BuildError, build_table};
use unspool_elf::{DebugFiles, ElfFile, SearchRoots};
use unspool_table_store::{ArgumentTable, Store};

use crate::commands::report;
use crate::output;

/// The table of a file, built and stored if missing; `None` if nothing describes the parameters of
/// its functions.
pub(in crate::commands) fn table(file: &ElfFile, store: &Store) -> Option<ArgumentTable> {
    let debug = DebugFiles::locate(file, &SearchRoots::from_environment());
    let mut notices = Vec::new();
    let found = store.find_arguments(file, &debug, &mut notices);
    for notice in notices {
        output::notice(&notice);
    }
    if found.is_some() {
        return found;
    }
    let (made, missing) = match build_table(file, &debug) {
        Ok(made) => (Some(made.bytes), made.missing),
        // As its frames report.
        Err(BuildError::NoTypes { missing, .. }) => (None, missing),
        Err(error) => {
            output::notice(&error);
            (None, Vec::new())
        }
    };
    report(file.path(), missing.iter());
    // Missing files may be available the next time. Files that others can write to need no message
    // here.
    let is_certain = missing.is_empty() && file.check_unchanged().is_ok();
    let is_kept = is_certain && store.cache_folder().is_some() && debug.key(file).is_some();
    if let Some(bytes) = made.as_ref().filter(|_| is_kept)
        && let Err(error) = store.keep_arguments(file, &debug, bytes)
    {
        output::notice(&error);
    }
    made.map(ArgumentTable::from_bytes)
}
