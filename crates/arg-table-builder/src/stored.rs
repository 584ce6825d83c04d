//! Tables of arguments that are kept.

use unspool_elf::{DebugFiles, ElfFile};
use unspool_table_store::{ArgumentTable, Store, StoreError};

use crate::build::{BuildError, build_table};
use crate::prototype_sources::MissingPrototypes;

/// The table of a file's arguments, and what is wrong with it.
#[derive(Debug, Default)]
pub struct FoundArgumentTable {
    /// The table; `None` if nothing describes the parameters of its functions.
    pub table: Option<ArgumentTable>,
    /// Why a stored table is not used.
    pub unusable: Vec<StoreError>,
    /// Why none can be built.
    pub build_error: Option<BuildError>,
    /// The missing or unusable types: functions have no parameters in the table because of them.
    pub missing: Vec<MissingPrototypes>,
    /// Why the table that was built is not kept.
    pub store_error: Option<StoreError>,
}

/// Finds the table of a file in a store, or builds one and keeps it there. `debug` are the file's
/// separate debug files.
///
/// A table with missing parts is not kept, since they may be available the next time; nor is one of
/// a file that others can write to.
#[must_use]
pub fn find_or_build(file: &ElfFile, debug: &DebugFiles, store: &Store) -> FoundArgumentTable {
    let mut found = FoundArgumentTable::default();
    found.table = store.find_arguments(file, debug, &mut found.unusable);
    if found.table.is_some() {
        return found;
    }
    let key = debug.key(file);
    let made = match build_table(file, debug) {
        Ok(made) => made,
        Err(BuildError::NoTypes { missing, .. }) => return FoundArgumentTable { missing, ..found },
        Err(error) => {
            found.build_error = Some(error);
            return found;
        }
    };
    found.missing = made.missing;
    let is_certain = found.missing.is_empty() && file.check_unchanged().is_ok();
    // A compiler may have written the debug files meanwhile.
    let is_same = || key.is_some() && debug.key(file) == key;
    if is_certain && store.cache_folder().is_some() && is_same() {
        found.store_error = store.keep_arguments(file, debug, &made.bytes).err();
    }
    found.table = Some(ArgumentTable::from_bytes(made.bytes));
    found
}
