//! A module that a walk met: its file, and its unwind table ready to be asked.

use std::path::PathBuf;
use std::sync::Arc;

use self_cell::self_cell;
use unspool_cfi::Lookup;
use unspool_compact::Compiled;
use unspool_ir::LoadBias;
use unspool_module::ElfFile;

use crate::modules::{FoundEntries, Module, ModuleId};
use crate::tables::{self, TableBytes};

/// A module of a space, opened.
#[derive(Debug)]
pub struct OpenModule {
    /// The file.
    pub file: Arc<ElfFile>,
    /// The path that the process knows it by, or the kernel's name in brackets.
    pub name: PathBuf,
    id: ModuleId,
    tables: Tables,
    found: FoundEntries,
}

/// What the tables are borrowed from.
#[derive(Debug)]
struct Sources {
    file: Arc<ElfFile>,
    compiled: Option<TableBytes>,
}

/// The compiled table; where there is none, the table of the file.
#[derive(Debug)]
struct Opened<'a> {
    compiled: Option<Compiled<'a>>,
    cfi: Option<Lookup<'a>>,
}

self_cell!(
    struct Tables {
        owner: Sources,
        #[covariant]
        dependent: Opened,
    }

    impl {Debug}
);

impl OpenModule {
    pub(super) fn new(
        id: ModuleId,
        file: ElfFile,
        name: PathBuf,
        compiled: Option<TableBytes>,
    ) -> Self {
        let file = Arc::new(file);
        let sources = Sources {
            file: Arc::clone(&file),
            compiled,
        };
        OpenModule {
            file,
            name,
            id,
            tables: Tables::new(sources, open),
            found: FoundEntries::new(),
        }
    }

    /// Whether the module has a compiled table.
    #[must_use]
    pub fn is_compiled(&self) -> bool {
        self.tables.borrow_dependent().compiled.is_some()
    }

    /// The module as it is mapped.
    pub(super) fn at(&self, bias: LoadBias) -> Module<'_> {
        let Opened { compiled, cfi } = self.tables.borrow_dependent();
        Module {
            id: self.id,
            bias,
            entry: Some(self.file.entry()).filter(|entry| entry.0 != 0),
            compiled: *compiled,
            cfi: *cfi,
            found: Some(&self.found),
        }
    }
}

fn open(sources: &Sources) -> Opened<'_> {
    let compiled = match &sources.compiled {
        None => None,
        Some(TableBytes::Embedded) => tables::embedded(&sources.file),
        Some(TableBytes::Mapped(map)) => Compiled::open(map).ok(),
        Some(TableBytes::Memory(bytes)) => Compiled::open(bytes).ok(),
    };
    let cfi = match compiled {
        Some(_) => None,
        None => tables::lookup(&sources.file),
    };
    Opened { compiled, cfi }
}
