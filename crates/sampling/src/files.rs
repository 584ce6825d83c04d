//! The files that processes have mapped, each opened once.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::{fs, io};

use unspool_module::{BuildId, ElfFile, ModuleError};
use unspool_unwind::files::FileProblem;
use unspool_unwind::maps::{Device, Mapping, Mappings};
use unspool_unwind::process::{Identity, open_mapped_file};
use unspool_unwind::tables::{FileTables, Store};

use crate::compile::Compiler;

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
    build_id: OnceLock<Option<BuildId>>,
}

impl File {
    /// Its build ID.
    pub fn build_id(&self) -> Option<&BuildId> {
        let id = self.build_id.get_or_init(|| self.tables.file().build_id());
        id.as_ref()
    }
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
        &self,
        pid: u32,
        mapping: &Mapping,
        build_id: Option<BuildId>,
    ) -> Result<ElfFile, FileProblem>;

    /// All that a process has mapped now; `None` if nobody knows.
    fn mappings(&self, pid: u32) -> Option<Mappings>;
}

/// Finds what processes of this machine have mapped.
#[derive(Debug, Clone, Copy, Default)]
pub struct Live;

impl Finder for Live {
    fn file(
        &self,
        pid: u32,
        mapping: &Mapping,
        _build_id: Option<BuildId>,
    ) -> Result<ElfFile, FileProblem> {
        if mapping.name.as_deref().is_some_and(|name| name == "[vdso]") {
            return own_vdso()
                .map_err(|error| FileProblem::Open {
                    path: PathBuf::from("[vdso]"),
                    error,
                })?
                .map_err(FileProblem::from);
        }
        let path = || PathBuf::from(mapping.name.clone().unwrap_or_default());
        let opened = open_mapped_file(pid, mapping).map_err(|error| FileProblem::Open {
            path: path(),
            error,
        })?;
        let file = ElfFile::from_file(&opened.path, &opened.file)?;
        match opened.identity {
            // The inode is the same; some file systems number their devices in two ways.
            Identity::Same | Identity::Unverified => Ok(file),
            Identity::Replaced => Err(FileProblem::Replaced {
                path: path(),
                mapped: None,
                on_disk: file.build_id().map(Box::new),
            }),
        }
    }

    fn mappings(&self, pid: u32) -> Option<Mappings> {
        let text = fs::read(format!("/proc/{pid}/maps")).ok()?;
        Some(Mappings::parse(&text))
    }
}

/// The code that the kernel gives to each process: the same for all of one kind.
fn own_vdso() -> io::Result<Result<ElfFile, ModuleError>> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    const MOST: u64 = 1 << 20;
    let maps = Mappings::parse(&fs::read("/proc/self/maps")?);
    let is_vdso = |mapping: &&Mapping| mapping.name.as_deref().is_some_and(|name| name == "[vdso]");
    let mapping = maps.iter().find(is_vdso).ok_or(io::ErrorKind::NotFound)?;
    let mut memory = fs::File::open("/proc/self/mem")?;
    memory.seek(SeekFrom::Start(mapping.start.0))?;
    let mut bytes = Vec::new();
    memory
        .take(mapping.size().min(MOST))
        .read_to_end(&mut bytes)?;
    Ok(ElfFile::from_bytes("[vdso]", bytes.into_boxed_slice()))
}

/// The files that processes have mapped, each opened once, with their compiled tables where there are
/// some; the others are compiled meanwhile.
pub struct Files {
    finder: Box<dyn Finder>,
    store: Arc<Store>,
    compiler: Option<Compiler>,
    opened: HashMap<Key, Arc<File>>,
    next: u32,
}

impl Files {
    /// Compiled tables come from a store, and missing ones are made and kept there.
    #[must_use]
    pub fn new(finder: Box<dyn Finder>, store: Store) -> Self {
        let files = Files::without_compiler(finder, store);
        Files {
            compiler: Compiler::start(Arc::clone(&files.store)),
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
            store: Arc::new(store),
            opened: HashMap::new(),
            next: 0,
        }
    }

    pub(crate) fn mappings(&self, pid: u32) -> Option<Mappings> {
        self.finder.mappings(pid)
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
        let elf = Arc::new(self.finder.file(pid, mapping, build_id)?);
        let name = mapping.name.clone().unwrap_or_default();
        let tables = FileTables::new(Arc::clone(&elf)).for_walks();
        // What is found and not used is told by `unspool stack` and `unspool verify`.
        let found = self
            .store
            .find_named(&elf, Path::new(&name), &mut Vec::new());
        let file = Arc::new(File {
            number: self.next,
            name: PathBuf::from(name),
            is_deleted: mapping.deleted,
            tables,
            build_id: OnceLock::new(),
        });
        self.next += 1;
        let has_table = found.is_some_and(|(bytes, _)| file.tables.attach(bytes));
        if !has_table && let Some(compiler) = &self.compiler {
            compiler.compile(&file);
        }
        self.opened.insert(key, Arc::clone(&file));
        Ok(file)
    }
}
