//! The unwind tables of one file, ready for look-ups.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use self_cell::self_cell;
use unspool_cfi::lookup::HdrTrust;
use unspool_cfi::{CfiSection, Lookup, SectionKind};
use unspool_compiled_table::CompiledTable;
use unspool_elf::ElfFile;
use unspool_files::CacheError;
use unspool_rows::{Abi, CodeAddr, LoadBias, Registers, Row, RuntimeAddr, Vaddr};
use unspool_synthesis::ExitRows;
use unspool_table_store::{
    NativeObject, NativeTableError, Store, StoreError, TableBytes, TableSource, code, compile,
    embedded, embedded_bytes, find_or_synthesize, is_in_two_sections, own_key, section_lookup,
};

use crate::exit_code::{FileCode, SharedExitRows};
use crate::modules::{EntryCache, Module, ModuleSlot, NativeUnwinder, SynthesizedRows};
use crate::native::{NativeCode, NativeTable};
use crate::row_rules::RowRules;

/// The unwind tables of one file: the file's own, and the compiled one once it is attached.
///
/// Any thread may look up while another attaches the compiled table.
#[derive(Debug)]
pub struct FileTables {
    file: Arc<ElfFile>,
    for_walks: bool,
    compiled: OnceLock<OwnedTable>,
    is_corrupt: AtomicBool,
    source: OnceLock<OwnedLookup>,
    /// The store for synthesized rows, if these are made on first use.
    on_demand: Option<Store>,
    synthesized: OnceLock<Option<OwnedTable>>,
    exit_rows: SharedExitRows,
    native: OnceLock<NativeTable>,
    /// The compiled table of a file in whose own sections no address can be looked up alone: made
    /// on first use.
    made: OnceLock<Option<OwnedTable>>,
}

/// A compiled table, opened.
#[derive(Debug)]
struct WalkTable<'a> {
    table: CompiledTable<'a>,
    /// The rules of its rows, if it is for walks.
    rules: Vec<u64>,
    /// The file's code, for the table's call-site part, if it is for walks.
    code: Option<(Vaddr, &'a [u8])>,
}

/// The source of an opened compiled table.
#[derive(Debug)]
struct CompiledSource {
    file: Arc<ElfFile>,
    bytes: TableBytes,
    for_walks: bool,
}

type MaybeWalkTable<'a> = Option<WalkTable<'a>>;
type MaybeLookup<'a> = Option<Lookup<'a>>;

self_cell!(
    struct OwnedTable {
        owner: CompiledSource,
        #[covariant]
        dependent: MaybeWalkTable,
    }

    impl {Debug}
);

self_cell!(
    struct OwnedLookup {
        owner: Arc<ElfFile>,
        #[covariant]
        dependent: MaybeLookup,
    }

    impl {Debug}
);

/// The unwind table of code outside of files: made at run time, and described by its creator.
#[derive(Debug)]
pub struct CodeTable(OwnedSection);

self_cell!(
    struct OwnedSection {
        owner: Box<[u8]>,
        #[covariant]
        dependent: Lookup,
    }

    impl {Debug}
);

impl CodeTable {
    /// The bytes of an `.eh_frame` with addresses of the process, as if it were loaded at
    /// `address`.
    #[must_use]
    pub fn new(eh_frame: Box<[u8]>, address: RuntimeAddr, abi: Abi) -> Self {
        CodeTable(OwnedSection::new(eh_frame, |data| {
            let section = CfiSection {
                kind: SectionKind::EhFrame,
                data,
                address: LoadBias(0).to_vaddr(address),
                text_base: None,
                data_base: None,
                abi,
            };
            Lookup::new(section, None, HdrTrust::Suspect)
        }))
    }

    /// The code's module, for a walk. Rules learned from it hold only while it exists, and are not
    /// kept.
    #[must_use]
    pub fn module(&self) -> Module<'_> {
        Module {
            slot: None,
            bias: LoadBias(0),
            entry: None,
            compiled: None,
            rules: RowRules::default(),
            code: None,
            cfi: Some(self.0.borrow_dependent()),
            sframe: None,
            entry_cache: None,
            synthesized: None,
            native: None,
        }
    }
}

impl FileTables {
    /// The tables of a file, for a cursor. Nothing is read yet.
    #[must_use]
    pub fn new(file: Arc<ElfFile>) -> Self {
        let exit_rows = SharedExitRows::new(file.abi(), ExitRows::MAX_FUNCTION_INSNS);
        FileTables {
            file,
            for_walks: false,
            compiled: OnceLock::new(),
            is_corrupt: AtomicBool::new(false),
            source: OnceLock::new(),
            on_demand: None,
            synthesized: OnceLock::new(),
            exit_rows,
            native: OnceLock::new(),
            made: OnceLock::new(),
        }
    }

    /// Prepares compiled tables for a [`Walker`](crate::Walker), so that it learns rules faster.
    /// Until there is one, addresses missing in `.eh_frame_hdr` count as holes: a walk cannot
    /// search a section of megabytes.
    #[must_use]
    pub fn for_walks(mut self) -> Self {
        self.for_walks = true;
        self
    }

    /// Synthesizes rows when a walk first reaches code that no table covers. They are kept in a
    /// store, and looked up there first. Without this, [`FileTables::synthesize`] must be called.
    #[must_use]
    pub fn synthesized_on_demand(mut self, store: &Store) -> Self {
        self.on_demand = Some(store.clone());
        self
    }

    /// Synthesizes rows for code that no table covers, or finds them in a store; does nothing the
    /// second time.
    pub fn synthesize(&self, store: &Store) {
        let _ = self.synthesized.get_or_init(|| {
            let parts = CompiledSource {
                file: Arc::clone(&self.file),
                bytes: find_or_synthesize(&self.file, store)?,
                for_walks: false,
            };
            Some(OwnedTable::new(parts, open_compiled))
        });
    }

    /// Makes walks run machine code of the table, if a store has some; returns whether it does.
    pub fn find_native(&self, store: &Store, notices: &mut Vec<StoreError>) -> bool {
        if self.native.get().is_none()
            && let Some(object) = store.find_native(&self.file, notices)
        {
            self.attach_native(&object, notices);
        }
        self.native.get().is_some()
    }

    /// Makes walks run machine code of the table: from a store, or else made and kept there. `name`
    /// is the file's name in notices: why existing code is not used, or none can be made.
    pub fn run_native(&self, store: &Store, name: &Path, notices: &mut Vec<StoreError>) {
        if self.find_native(store, notices) {
            return;
        }
        let file = store.stable(&self.file);
        match NativeObject::from_file(&file, &own_key(&file)) {
            Ok(made) => {
                // If it cannot be kept, the only cost is making it again.
                let _ = store.keep_native(&file, &made);
                self.attach_native(&made, notices);
            }
            // Its frames report that.
            Err(NativeTableError::Source(_)) => {}
            Err(error) => notices.push(StoreError::NotNative {
                path: name.to_path_buf(),
                error,
            }),
        }
    }

    fn attach_native(&self, object: &NativeObject, notices: &mut Vec<StoreError>) {
        let module = self.module(LoadBias(0), None, None);
        match NativeCode::from_trusted(object) {
            Some(code) => {
                let _ = self.native.set(NativeTable::new(code, &self.file, &module));
            }
            None => {
                let error = io::Error::last_os_error();
                notices.push(CacheError::new(self.file.path(), error).into());
            }
        }
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Arc<ElfFile> {
        &self.file
    }

    /// Attaches the compiled table. `false` if the bytes are invalid, or there is one already.
    pub fn attach(&self, bytes: TableBytes) -> bool {
        let parts = CompiledSource {
            file: Arc::clone(&self.file),
            bytes,
            for_walks: self.for_walks,
        };
        let table = OwnedTable::new(parts, open_compiled);
        table.borrow_dependent().is_some() && self.compiled.set(table).is_ok()
    }

    /// Whether there is a compiled table.
    #[must_use]
    pub fn is_compiled(&self) -> bool {
        self.opened().is_some()
    }

    /// The bytes of the compiled table. `None` if there is none.
    #[must_use]
    pub fn compiled_bytes(&self) -> Option<&[u8]> {
        self.opened()?;
        let source = self.compiled.get()?.borrow_owner();
        match &source.bytes {
            TableBytes::Embedded => embedded_bytes(&source.file).ok()?,
            TableBytes::Mapped(map) => Some(map),
            TableBytes::Memory(bytes) => Some(bytes),
        }
    }

    /// Whether the compiled table is a section of the file: its maker wrote it, and nobody has
    /// compared it with the file's own table.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        let source = self.compiled.get().map(OwnedTable::borrow_owner);
        source.is_some_and(|source| matches!(source.bytes, TableBytes::Embedded))
    }

    /// Stops using the compiled table; returns whether it was in use.
    pub fn distrust(&self) -> bool {
        !self.is_corrupt.swap(true, Ordering::Relaxed)
    }

    /// The file as a mapped module, for a walk.
    #[must_use]
    pub fn module<'t>(
        &'t self,
        bias: LoadBias,
        slot: Option<ModuleSlot>,
        found: Option<&'t EntryCache>,
    ) -> Module<'t> {
        let opened = self.opened();
        let source = match opened {
            Some(_) => None,
            None => self.source(),
        };
        let opened = match source {
            Some(_) => None,
            None => opened.or_else(|| self.made()),
        };
        Module {
            slot,
            bias,
            entry: Some(self.file.entry()).filter(|entry| entry.0 != 0),
            compiled: opened.map(|opened| &opened.table),
            rules: opened.map_or(RowRules::default(), |opened| {
                RowRules::from_slice(&opened.rules)
            }),
            code: opened.and_then(|opened| opened.code),
            cfi: source,
            sframe: None,
            entry_cache: found,
            synthesized: Some(self),
            native: self.native(),
        }
    }

    fn opened(&self) -> Option<&WalkTable<'_>> {
        if self.is_corrupt.load(Ordering::Relaxed) {
            return None;
        }
        self.compiled.get()?.borrow_dependent().as_ref()
    }

    fn native(&self) -> Option<&dyn NativeUnwinder> {
        Some(self.native.get()?)
    }

    /// The rows of a file that has SFrame and no call frame information, or that has two sections
    /// of this. A walk that must not wait has none until the compiled table is attached.
    fn made(&self) -> Option<&WalkTable<'_>> {
        if self.for_walks {
            return None;
        }
        let make = || {
            let made = compile(&self.file, TableSource::Auto).ok()?;
            let parts = CompiledSource {
                file: Arc::clone(&self.file),
                bytes: TableBytes::Memory(made.encoded.bytes),
                for_walks: false,
            };
            Some(OwnedTable::new(parts, open_compiled))
        };
        let table = self.made.get_or_init(make).as_ref()?;
        table.borrow_dependent().as_ref()
    }

    /// The file's own table.
    fn source(&self) -> Option<&Lookup<'_>> {
        let trust = if self.for_walks {
            HdrTrust::Complete
        } else {
            HdrTrust::Unchecked
        };
        let source = self.source.get_or_init(|| {
            OwnedLookup::new(Arc::clone(&self.file), |file| {
                let is_all = self.for_walks || !is_in_two_sections(file) || self.made().is_none();
                is_all.then(|| section_lookup(file, trust)).flatten()
            })
        });
        source.borrow_dependent().as_ref()
    }
}

impl SynthesizedRows for FileTables {
    fn rows(&self) -> Option<&CompiledTable<'_>> {
        if let Some(store) = &self.on_demand {
            self.synthesize(store);
        }
        let table = self.synthesized.get()?.as_ref()?;
        Some(&table.borrow_dependent().as_ref()?.table)
    }

    fn is_pending(&self) -> bool {
        self.on_demand.is_none() && self.synthesized.get().is_none()
    }

    fn exit_row(
        &self,
        code: CodeAddr,
        bias: LoadBias,
        registers: &Registers,
    ) -> Option<Row<'static>> {
        let module = self.module(LoadBias(0), None, None);
        let text = FileCode::new(&self.file, module);
        self.exit_rows.row(code, bias, registers, &text)
    }
}

fn open_compiled(source: &CompiledSource) -> Option<WalkTable<'_>> {
    let table = match &source.bytes {
        TableBytes::Embedded => embedded(&source.file),
        TableBytes::Mapped(map) => CompiledTable::open(map).ok(),
        TableBytes::Memory(bytes) => CompiledTable::open(bytes).ok(),
    }?;
    if !source.for_walks {
        return Some(WalkTable {
            table,
            rules: Vec::new(),
            code: None,
        });
    }
    let mut rules = vec![0; table.distinct_rows()];
    let _ = RowRules::make(&table, &mut rules);
    let code = match *code(&source.file).ranges.as_slice() {
        [only] => Some(only),
        _ => None,
    };
    Some(WalkTable { table, rules, code })
}
