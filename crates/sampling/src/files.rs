//! The files that processes have mapped, each opened once.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use unspool_module::{BuildId, ContentKey, ElfFile};
use unspool_unwind::files::FileProblem;
use unspool_unwind::maps::{Device, Mapping, Mappings};
use unspool_unwind::tables::{FileTables, Form, Store};

use crate::arguments::{FileArguments, Wanted};
use crate::compile::Compiler;
use crate::live::Root;
use crate::made::{Dump, Maker};

/// A file that some process has mapped, with its unwind tables.
#[derive(Debug)]
pub struct File {
    /// A number that no other file has.
    pub number: u32,
    /// The path that a process knows it by, or the kernel's name in brackets.
    pub name: PathBuf,
    /// Whether it had been removed or replaced when it was mapped.
    pub is_deleted: bool,
    /// Its unwind tables, and the file itself.
    pub tables: FileTables,
    /// What its process has for `/`, if that is not ours.
    pub root: Option<Arc<Root>>,
    /// What identifies its contents, once that is known: to hash a large file takes longer than rings have
    /// room.
    pub(crate) content: OnceLock<ContentKey>,
    /// What is asked of its functions' arguments, once its table of them is there.
    pub(crate) arguments: OnceLock<FileArguments>,
}

impl File {
    /// Whether it is where somebody would look for it later. If it is not, it can still be read as long as this
    /// has it.
    pub(crate) fn is_in_place(&self) -> bool {
        let file = self.tables.file();
        let path = match self.root {
            Some(_) => &self.name,
            None => file.path(),
        };
        let Some(state) = file.state() else {
            return true;
        };
        let is_same = |found: Metadata| (found.dev(), found.ino()) == (state.device, state.inode);
        fs::metadata(path).is_ok_and(is_same)
    }

    /// Finds out what identifies its contents: the store may remember what they were hashed to.
    fn identify(&self, store: &Store) {
        let file = self.tables.file();
        self.content.get_or_init(|| store.content_key(file));
    }

    /// Looks for a compiled table, and uses it; whether there is one. The contents are known then.
    pub(crate) fn find_table(&self, store: &Store) -> bool {
        self.identify(store);
        // What is found and not used is told by `unspool stack` and `unspool verify`.
        let file = self.tables.file();
        let found = store.find_named(file, &self.name, &mut Vec::new());
        found.is_some_and(|(bytes, _)| self.tables.attach(bytes))
    }

    /// Has walks run on machine code, if tables have that form, made if there is none yet.
    pub(crate) fn run_native(&self, store: &Store) {
        if store.form() == Form::Native {
            // As for compiled tables.
            let notices = &mut Vec::new();
            self.tables.run_native(store, &self.name, notices);
        }
    }
}

/// A file that was found.
#[derive(Debug)]
pub struct Found {
    /// The file.
    pub file: ElfFile,
    /// What its process has for `/`, if that is not ours.
    pub root: Option<Arc<Root>>,
}

/// What tells a mapped file from others.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    name: Option<OsString>,
    device: Device,
    inode: u64,
    build_id: Option<BuildId>,
}

/// Finds what a process has mapped.
pub trait Finder {
    /// Opens the file of a mapping, with its build ID if that was recorded.
    ///
    /// # Errors
    ///
    /// Why there is none, or none that is certain to be the same.
    fn file(
        &mut self,
        pid: u32,
        mapping: &Mapping,
        build_id: Option<BuildId>,
    ) -> Result<Found, FileProblem>;

    /// Opens a file of a process that is no module, at its beginning.
    fn other_file(&mut self, pid: u32, mapping: &Mapping) -> Option<fs::File>;

    /// Where a process that makes code may name it; `None` if nobody knows.
    fn maker(&mut self, pid: u32) -> Option<Maker>;

    /// All that a process has mapped now; `None` if nobody knows.
    fn mappings(&self, pid: u32) -> Option<Mappings>;

    /// Whether all threads of a process have ended; `false` if nobody knows.
    fn has_ended(&self, pid: u32) -> bool;
}

/// The files that processes have mapped, each opened once, with their compiled tables where there are
/// some; the others are compiled meanwhile.
pub struct Files {
    finder: Box<dyn Finder>,
    store: Arc<Store>,
    compiler: Option<Compiler>,
    /// Whose arguments are recorded.
    wanted: Option<Arc<Wanted>>,
    opened: HashMap<Key, Arc<File>>,
    next: u32,
}

impl Files {
    /// Compiled tables come from a store, and missing ones are made and kept there.
    #[must_use]
    pub fn new(finder: Box<dyn Finder>, store: Store) -> Self {
        Files::with_arguments(finder, store, None)
    }

    /// The same; what is asked of functions' arguments is prepared, too.
    pub(crate) fn with_arguments(
        finder: Box<dyn Finder>,
        store: Store,
        wanted: Option<Arc<Wanted>>,
    ) -> Self {
        let files = Files::without_compiler(finder, store);
        Files {
            compiler: Compiler::start(Arc::clone(&files.store), wanted.clone()),
            wanted,
            ..files
        }
    }

    /// Compiled tables come from a store; files that have none there are read as they are, which is
    /// as good for what does not go on for long.
    #[must_use]
    pub fn without_compiler(finder: Box<dyn Finder>, store: Store) -> Self {
        Files {
            finder,
            compiler: None,
            wanted: None,
            store: Arc::new(store),
            opened: HashMap::new(),
            next: 0,
        }
    }

    /// Finds out what identifies the contents of a file, however long that takes.
    pub(crate) fn identify(&self, file: &File) {
        file.identify(&self.store);
    }

    pub(crate) fn mappings(&self, pid: u32) -> Option<Mappings> {
        self.finder.mappings(pid)
    }

    pub(crate) fn has_ended(&self, pid: u32) -> bool {
        self.finder.has_ended(pid)
    }

    pub(crate) fn maker(&mut self, pid: u32) -> Option<Maker> {
        self.finder.maker(pid)
    }

    /// The jitdump that a process has mapped.
    pub(crate) fn dump(&mut self, pid: u32, mapping: &Mapping) -> Option<Dump> {
        Dump::new(self.finder.other_file(pid, mapping)?).ok()
    }

    /// The file of a mapping.
    pub(crate) fn open(
        &mut self,
        pid: u32,
        mapping: &Mapping,
        build_id: Option<BuildId>,
    ) -> Result<Arc<File>, FileProblem> {
        let key = Key {
            name: mapping.name.clone(),
            device: mapping.device,
            inode: mapping.inode,
            build_id,
        };
        if let Some(file) = self.opened.get(&key) {
            return Ok(Arc::clone(file));
        }
        let found = self.finder.file(pid, mapping, build_id)?;
        let (elf, root) = (Arc::new(found.file), found.root);
        let name = mapping.name.clone().unwrap_or_default();
        let tables = FileTables::new(Arc::clone(&elf)).for_walks();
        let tables = match &self.compiler {
            Some(_) => tables,
            None => tables.synthesized_on_demand(&self.store),
        };
        let file = Arc::new(File {
            number: self.next,
            name: PathBuf::from(name),
            is_deleted: mapping.deleted,
            tables,
            root,
            content: OnceLock::new(),
            arguments: OnceLock::new(),
        });
        self.next += 1;
        // Those that have to be hashed are identified by the compiler, which then looks for their tables.
        let looks_now = self.compiler.is_none() || elf.build_id().is_some();
        let has_table = looks_now && file.find_table(&self.store);
        if looks_now && let Some(wanted) = &self.wanted {
            wanted.attach_kept(&file, &self.store);
        }
        if let Some(compiler) = &self.compiler {
            if looks_now && self.store.form() == Form::Native {
                file.tables.find_native(&self.store, &mut Vec::new());
            }
            // Stacks through code without a table would end there until the compiler comes to it.
            if is_small(&elf) {
                file.tables.synthesize(&self.store);
            }
            compiler.compile(&file, has_table);
        } else {
            file.run_native(&self.store);
        }
        self.opened.insert(key, Arc::clone(&file));
        Ok(file)
    }
}

/// Whether a file has so little code that rows can be made of it while samples wait: some milliseconds.
fn is_small(file: &ElfFile) -> bool {
    /// Bytes.
    const SMALL: u64 = 1 << 18;
    let code = file.executable_ranges().into_iter();
    code.map(|range| range.end.0 - range.start.0).sum::<u64>() <= SMALL
}
