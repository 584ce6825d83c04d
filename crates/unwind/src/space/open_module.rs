//! A module that a walk met: its file, and its unwind table ready to be asked.

use std::cell::{Cell, OnceCell};
use std::path::PathBuf;
use std::sync::Arc;

use self_cell::self_cell;
use unspool_cfi::Lookup;
use unspool_compact::Compiled;
use unspool_ir::LoadBias;
use unspool_module::ElfFile;

use crate::modules::{FoundEntries, Module};
use crate::tables::{self, Place, TableBytes};
use crate::walk::RowRules;

/// A module of a space, opened.
#[derive(Debug)]
pub struct OpenModule {
    /// The file.
    pub file: Arc<ElfFile>,
    /// The path that the process knows it by, or the kernel's name in brackets.
    pub name: PathBuf,
    compiled: Option<CompiledTable>,
    place: Option<Place>,
    is_corrupt: Cell<bool>,
    source: OnceCell<SourceTable>,
    found: FoundEntries,
}

type MaybeCompiled<'a> = Option<Compiled<'a>>;
type MaybeLookup<'a> = Option<Lookup<'a>>;

self_cell!(
    struct CompiledTable {
        owner: (Arc<ElfFile>, TableBytes),
        #[covariant]
        dependent: MaybeCompiled,
    }

    impl {Debug}
);

self_cell!(
    struct SourceTable {
        owner: Arc<ElfFile>,
        #[covariant]
        dependent: MaybeLookup,
    }

    impl {Debug}
);

impl OpenModule {
    pub(super) fn new(file: ElfFile, name: PathBuf, table: Option<(TableBytes, Place)>) -> Self {
        let file = Arc::new(file);
        let (compiled, place) = table.unzip();
        let compiled =
            compiled.map(|bytes| CompiledTable::new((Arc::clone(&file), bytes), open_compiled));
        OpenModule {
            file,
            name,
            compiled,
            place,
            is_corrupt: Cell::new(false),
            source: OnceCell::new(),
            found: FoundEntries::new(),
        }
    }

    fn compiled(&self) -> Option<&Compiled<'_>> {
        let table = self.compiled.as_ref().filter(|_| !self.is_corrupt.get());
        table?.borrow_dependent().as_ref()
    }

    /// Whether the module has a compiled table.
    #[must_use]
    pub fn is_compiled(&self) -> bool {
        self.compiled().is_some()
    }

    /// Does without the compiled table from now on; yields where it is from, the first time.
    pub(super) fn distrust(&self) -> Option<&Place> {
        let was = self.is_corrupt.replace(true);
        self.place.as_ref().filter(|_| !was)
    }

    /// The module as it is mapped.
    pub(super) fn at(&self, bias: LoadBias) -> Module<'_> {
        let compiled = self.compiled();
        Module {
            place: None,
            bias,
            entry: Some(self.file.entry()).filter(|entry| entry.0 != 0),
            compiled,
            rules: RowRules::default(),
            code: None,
            cfi: match compiled {
                Some(_) => None,
                None => self.source(),
            },
            found: Some(&self.found),
        }
    }

    /// The table as the file has it.
    fn source(&self) -> Option<&Lookup<'_>> {
        let file = || Arc::clone(&self.file);
        let source = self
            .source
            .get_or_init(|| SourceTable::new(file(), |file| tables::lookup(file)));
        source.borrow_dependent().as_ref()
    }
}

fn open_compiled((file, bytes): &(Arc<ElfFile>, TableBytes)) -> Option<Compiled<'_>> {
    match bytes {
        TableBytes::Embedded => tables::embedded(file),
        TableBytes::Mapped(map) => Compiled::open(map).ok(),
        TableBytes::Memory(bytes) => Compiled::open(bytes).ok(),
    }
}
