//! Compiled tables in the arena, once for all processes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use unspool_bpf::Arena;
use unspool_bpf_walk::{TableParts, WalkMaps, write_table};
use unspool_compiled_table::{check_digest, layout};

use super::directory::LISTS;
use crate::module_files::ModuleFile;

/// The tables in the arena, by their contents. None is ever removed: walks cache their rows.
#[derive(Debug)]
pub(crate) struct ArenaTables {
    arena: Arc<Arena>,
    loaded: Mutex<LoadedTables>,
    /// Whether a file has got a record since [`ArenaTables::take_changed`].
    has_changed: AtomicBool,
    /// The number of files that will be loaded.
    expected: AtomicUsize,
}

#[derive(Debug)]
struct LoadedTables {
    /// The addresses of records, by the tables' digests.
    records: HashMap<Box<[u8]>, u64>,
    /// Where the arena is free, in bytes.
    free: usize,
}

impl ArenaTables {
    pub(crate) fn new(arena: Arc<Arena>) -> ArenaTables {
        ArenaTables {
            arena,
            loaded: Mutex::new(LoadedTables {
                records: HashMap::new(),
                free: LISTS.end,
            }),
            has_changed: AtomicBool::new(false),
            expected: AtomicUsize::new(0),
        }
    }

    /// A file will be loaded.
    pub(crate) fn expect(&self) {
        self.expected.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether files are still to be loaded.
    pub(crate) fn is_loading(&self) -> bool {
        self.expected.load(Ordering::Relaxed) != 0
    }

    /// Loads an expected file, unless it is not needed any more.
    pub(crate) fn load(&self, file: Option<&ModuleFile>) {
        if let Some(file) = file {
            self.copy(file);
        }
        self.expected.fetch_sub(1, Ordering::Relaxed);
    }

    /// Copies a file's compiled table to the arena, if it has one. Without a record, walks through
    /// the file's code are handed over; so a full arena is not an error.
    ///
    /// A table in the file itself was written by the file's maker, whom the kernel must not trust.
    fn copy(&self, file: &ModuleFile) {
        let Some(mapped) = file.tables.compiled_bytes() else {
            return;
        };
        if file.tables.is_embedded() {
            return;
        }
        // A mapped file can change. The copy is checked, and does not.
        let table = mapped.to_vec();
        if check_digest(&table).is_err() {
            return;
        }
        if let Some(record) = self.record(&table) {
            let _ = file.arena_record.set(record);
            self.has_changed.store(true, Ordering::Release);
        }
    }

    /// The address of a table's record.
    fn record(&self, table: &[u8]) -> Option<u64> {
        let digest = table.get(layout::DIGEST)?;
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = loaded.records.get(digest) {
            return Some(*record);
        }
        let written = write_table(&self.arena, loaded.free, table, TableParts::Rows).ok()?;
        loaded.free = written.end();
        loaded.records.insert(digest.into(), written.address());
        Some(written.address())
    }

    /// Whether files have got records since the last call.
    pub(crate) fn take_changed(&self) -> bool {
        self.has_changed.swap(false, Ordering::Acquire)
    }
}

const _: () = assert!(LISTS.end < WalkMaps::FREE.end);
