//! Compiled tables for the modules of the own process, from a store.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use unspool_compiled_table::CompiledTable;
use unspool_elf::ElfFile;
use unspool_table_store::{self as tables, Store, StoreError, TableBytes};

use super::{modules, sys};
use crate::row_rules::RowRules;

/// The result of mapping tables.
#[derive(Debug, Default)]
pub struct MappedTables {
    /// The number of modules that newly have a table.
    pub tables: usize,
    /// The files of modules without a table.
    pub without: Vec<PathBuf>,
    /// Notices about tables that were found and not used.
    pub notices: Vec<StoreError>,
}

/// Maps the compiled tables of all loaded modules that have none yet. They stay mapped.
///
/// Not async-signal-safe: takes the loader's lock, opens files, allocates. Until a module has its
/// table, walks read the unwind table that it was linked with, a row at a time.
#[must_use]
pub fn map_tables(store: &Store) -> MappedTables {
    let mut mapped = MappedTables::default();
    for path in loaded_files() {
        // The vDSO and deleted files cannot be opened.
        let Ok(file) = ElfFile::open(&path) else {
            continue;
        };
        let build_id = file.build_id();
        if build_id.is_some_and(|id| modules().has_table(id.as_bytes())) {
            continue;
        }
        match store.find(&file, &mut mapped.notices) {
            Some((bytes, _)) => mapped.tables += usize::from(attach(file, bytes)),
            None => mapped.without.push(path),
        }
    }
    mapped
}

/// The files of the loaded objects, by the loader's names.
fn loaded_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    sys::for_each_object(|object| {
        files.push(match object.name {
            b"" => PathBuf::from("/proc/self/exe"),
            name => Path::new(OsStr::from_bytes(name)).to_path_buf(),
        });
        true
    });
    files
}

fn attach(file: ElfFile, bytes: TableBytes) -> bool {
    // Both stay forever: a walk may be using them at any time.
    let bytes: Option<&'static [u8]> = match Box::leak(Box::new(bytes)) {
        TableBytes::Embedded => tables::embedded_bytes(Box::leak(Box::new(file)))
            .ok()
            .flatten(),
        TableBytes::Mapped(map) => Some(map),
        TableBytes::Memory(bytes) => Some(bytes),
    };
    let table = bytes.and_then(|bytes| {
        sys::populate_bytes(bytes);
        CompiledTable::open(bytes).ok()
    });
    table.is_some_and(|table| {
        let rules = Box::leak(vec![0; table.distinct_rows()].into_boxed_slice());
        let rules = RowRules::make(&table, rules);
        modules().attach(Box::leak(Box::new(table)), rules)
    })
}
