//! The argument tables of the modules of a report.

use unspool_arg_table_builder::find_or_build;
use unspool_elf::{DebugFiles, ElfFile, SearchRoots};
use unspool_table_store::{ArgumentTable, Store};

use crate::commands::report;
use crate::output;

/// The table of a file, built and stored if missing; `None` if nothing describes the parameters of
/// its functions, as its frames report.
pub(in crate::commands) fn table(file: &ElfFile, store: &Store) -> Option<ArgumentTable> {
    let debug = DebugFiles::locate(file, &SearchRoots::from_environment());
    let found = find_or_build(file, &debug, store);
    for notice in &found.unusable {
        output::notice(notice);
    }
    if let Some(error) = &found.build_error {
        output::notice(error);
    }
    report(file.path(), found.missing.iter());
    if let Some(error) = &found.store_error {
        output::notice(error);
    }
    found.table
}
