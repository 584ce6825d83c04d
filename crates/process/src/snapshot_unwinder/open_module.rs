//! A module that a walk met: its file, and its unwind table ready to be asked.

use std::path::PathBuf;
use std::sync::Arc;

use unspool_elf::ElfFile;
use unspool_rows::LoadBias;
use unspool_table_store::{Notice, Store, TableBytes, TableForm, TableOrigin};

use unspool_unwind::{EntryCache, FileTables, Module};

/// A module of a space, opened.
#[derive(Debug)]
pub struct OpenModule {
    /// The file.
    pub file: Arc<ElfFile>,
    /// The path that the process knows it by, or the kernel's name in brackets.
    pub name: PathBuf,
    tables: FileTables,
    place: Option<TableOrigin>,
    entry_cache: EntryCache,
}

impl OpenModule {
    pub(super) fn new(
        file: ElfFile,
        name: PathBuf,
        table: Option<(TableBytes, TableOrigin)>,
        store: &Store,
        notices: &mut Vec<Notice>,
    ) -> Self {
        let file = Arc::new(file);
        let tables = FileTables::new(Arc::clone(&file)).synthesized_on_demand(store);
        let (bytes, place) = table.unzip();
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
            place,
            entry_cache: EntryCache::new(),
        }
    }

    /// Whether the module has a compiled table.
    #[must_use]
    pub fn is_compiled(&self) -> bool {
        self.tables.is_compiled()
    }

    /// Does without the compiled table from now on; yields where it is from, the first time.
    pub(super) fn distrust(&self) -> Option<&TableOrigin> {
        let is_new = self.tables.distrust();
        self.place.as_ref().filter(|_| is_new)
    }

    /// The module as it is mapped.
    pub(super) fn module(&self, bias: LoadBias) -> Module<'_> {
        self.tables.module(bias, None, Some(&self.entry_cache))
    }
}
