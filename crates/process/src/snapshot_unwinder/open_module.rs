//! An opened module: its file, and its unwind table ready for look-ups.

use std::path::PathBuf;
use std::sync::Arc;

use unspool_elf::ElfFile;
use unspool_rows::LoadBias;
use unspool_table_store::{Store, StoreError, TableBytes, TableForm, TableOrigin};

use unspool_unwind::{EntryCache, FileTables, Module};

/// An opened module of a snapshot.
#[derive(Debug)]
pub struct OpenModule {
    /// The file.
    pub file: Arc<ElfFile>,
    /// Its path in the process, or the kernel's name in brackets.
    pub name: PathBuf,
    tables: FileTables,
    origin: Option<TableOrigin>,
    entry_cache: EntryCache,
}

impl OpenModule {
    pub(super) fn new(
        file: ElfFile,
        name: PathBuf,
        table: Option<(TableBytes, TableOrigin)>,
        store: &Store,
        notices: &mut Vec<StoreError>,
    ) -> Self {
        let file = Arc::new(file);
        let tables = FileTables::new(Arc::clone(&file)).synthesized_on_demand(store);
        let (bytes, origin) = table.unzip();
        if let Some(bytes) = bytes {
            tables.attach(bytes);
        }
        if store.form() == TableForm::Native {
            tables.run_native(store, &name, notices);
        }
        OpenModule {
            file,
            name,
            tables,
            origin,
            entry_cache: EntryCache::new(),
        }
    }

    /// Whether the module has a compiled table.
    #[must_use]
    pub(crate) fn is_compiled(&self) -> bool {
        self.tables.is_compiled()
    }

    /// Stops using the compiled table; yields its origin, the first time.
    pub(super) fn distrust(&self) -> Option<&TableOrigin> {
        let is_new = self.tables.distrust();
        self.origin.as_ref().filter(|_| is_new)
    }

    /// The module with its load bias.
    pub(super) fn module(&self, bias: LoadBias) -> Module<'_> {
        self.tables.module(bias, None, Some(&self.entry_cache))
    }
}
