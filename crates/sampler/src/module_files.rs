//! The files that processes have mapped, each opened once.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use unspool_elf::{BuildId, ContentKey, ElfFile, GoFunctions};
use unspool_files::{FileId, FileState, metadata};
use unspool_process::file_provider::FileProblem;
use unspool_process::maps::{Device, Mapping, Mappings};
use unspool_table_store::{Store, TableForm};
use unspool_unwind::FileTables;

use crate::arguments::{ArgumentFilter, FileArguments};
use crate::compile_queue::Compiler;
use crate::jit::JitProcess;
use crate::kernel_walk::{ArenaTable, ArenaTables};
use crate::live_files::{LiveMemory, ProcessRoot};

/// A file that some process has mapped, with its unwind tables.
#[derive(Debug)]
pub(crate) struct ModuleFile {
    /// A number unique to this file.
    pub(crate) number: u32,
    /// The path by which a process has it, or the kernel's name in brackets.
    pub(crate) name: PathBuf,
    /// Whether it had been removed or replaced when it was mapped.
    pub(crate) is_deleted: bool,
    /// Its unwind tables, and the file itself.
    pub(crate) tables: FileTables,
    /// The root directory of its process, if it differs from ours.
    pub(crate) root: Option<Arc<ProcessRoot>>,
    /// Identifies its contents, once known: hashing a large file takes longer than the rings last.
    pub(crate) content: OnceLock<Option<ContentKey>>,
    /// The requests for its functions' arguments, once its argument table is available.
    pub(crate) arguments: OnceLock<FileArguments>,
    /// Its compiled table for walks in the kernel.
    pub(crate) arena_table: ArenaTable,
}

impl ModuleFile {
    /// Whether a later lookup by its path would find it. If not, it stays readable while this holds
    /// it.
    pub(crate) fn is_in_place(&self) -> bool {
        let file = self.tables.file();
        let path = match self.root {
            Some(_) => &self.name,
            None => file.path(),
        };
        let Some(state) = file.state() else {
            return true;
        };
        metadata(path).is_ok_and(|found| FileId::new(&found) == state.id)
    }

    /// Computes the identity of its contents; the store may remember their hash.
    fn identify(&self, store: &Store) {
        let file = self.tables.file();
        self.content.get_or_init(|| store.content_key(file));
    }

    /// Looks up a compiled table and uses it; `true` if there is one. Its contents are identified
    /// afterwards.
    pub(crate) fn find_table(&self, store: &Store) -> bool {
        self.identify(store);
        // `unspool stack` and `unspool verify` report tables that are not used.
        let file = self.tables.file();
        let found = store.find_named(file, &self.name, &mut Vec::new());
        found.is_some_and(|(bytes, _)| self.tables.attach(bytes))
    }

    /// Makes walks run the native table, if tables have that form; builds it if missing.
    pub(crate) fn run_native(&self, store: &Store) {
        if store.form() == TableForm::Native {
            // As for compiled tables.
            let notices = &mut Vec::new();
            self.tables.run_native(store, &self.name, notices);
        }
    }
}

/// A file that a finder has located.
#[derive(Debug)]
pub(crate) struct LocatedFile {
    /// The file.
    pub(crate) file: ElfFile,
    /// The root directory of its process, if it differs from ours.
    pub(crate) root: Option<Arc<ProcessRoot>>,
}

/// What identifies a mapped file. Its name and build ID alone do not: a process may have other
/// mounts, with another file that has both.
///
/// One file has several keys: the kernel's records have its build ID, `/proc` its device and inode.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FileKey {
    name: Option<OsString>,
    device: Device,
    inode: u64,
    build_id: Option<BuildId>,
    /// `None` for the vDSO, which is not a file.
    distinction: Option<Distinction>,
}

/// Distinguishes files of one name and build ID.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) enum Distinction {
    /// The name only: a recording has no more information.
    Name,
    /// The file's device, inode and times.
    State(FileState),
}

/// Finds what a process has mapped.
pub(crate) trait MappedFileFinder {
    /// Opens the file of a mapping, with its build ID if that was recorded.
    ///
    /// # Errors
    ///
    /// Why there is none, or none that is certainly the same.
    fn file(
        &mut self,
        pid: u32,
        mapping: &Mapping,
        build_id: Option<BuildId>,
    ) -> Result<LocatedFile, FileProblem>;

    /// Distinguishes a mapping's file from others of its name. `None` if only opening it can show
    /// that.
    fn distinction(&self, pid: u32, mapping: &Mapping) -> Option<Distinction>;

    /// Opens a file of a process that is not a module, at its beginning.
    fn other_file(&mut self, pid: u32, mapping: &Mapping) -> Option<fs::File>;

    /// Where a process that generates code may describe it; `None` if unknown.
    fn jit_process(&mut self, pid: u32) -> Option<JitProcess>;

    /// All current mappings of a process; `None` if unknown.
    fn mappings(&self, pid: u32) -> Option<Mappings>;

    /// The memory of a process; `None` if it cannot be read.
    fn memory(&self, pid: u32) -> Option<LiveMemory>;

    /// Whether all threads of a process have exited; `false` if unknown.
    fn has_ended(&self, pid: u32) -> bool;
}

/// The files that processes have mapped, each opened once, with their compiled tables. Missing
/// tables are compiled meanwhile.
pub(crate) struct ModuleFiles {
    finder: Box<dyn MappedFileFinder>,
    store: Arc<Store>,
    compiler: Option<Compiler>,
    /// The functions whose arguments are recorded.
    filter: Option<Arc<ArgumentFilter>>,
    opened: HashMap<FileKey, Arc<ModuleFile>>,
    /// The same files, by their names and what was opened.
    by_state: HashMap<(Option<OsString>, FileState), Arc<ModuleFile>>,
    next: u32,
}

impl ModuleFiles {
    /// Takes compiled tables from a store, and compiles missing ones into it. Prepares argument
    /// tables, and copies compiled tables to an arena.
    pub(crate) fn for_recording(
        finder: Box<dyn MappedFileFinder>,
        store: Store,
        filter: Option<Arc<ArgumentFilter>>,
        arena_tables: Option<Arc<ArenaTables>>,
    ) -> Self {
        let files = ModuleFiles::without_compiler(finder, store);
        ModuleFiles {
            compiler: Compiler::start(Arc::clone(&files.store), filter.clone(), arena_tables),
            filter,
            ..files
        }
    }

    /// Takes compiled tables from a store. Files without one there are read directly, which is as
    /// fast for short work.
    #[must_use]
    pub(crate) fn without_compiler(finder: Box<dyn MappedFileFinder>, store: Store) -> Self {
        ModuleFiles {
            finder,
            compiler: None,
            filter: None,
            store: Arc::new(store),
            opened: HashMap::new(),
            by_state: HashMap::new(),
            next: 0,
        }
    }

    /// Computes the identity of a file's contents, however long that takes.
    pub(crate) fn identify(&self, file: &ModuleFile) {
        file.identify(&self.store);
    }

    pub(crate) fn mappings(&self, pid: u32) -> Option<Mappings> {
        self.finder.mappings(pid)
    }

    pub(crate) fn memory(&self, pid: u32) -> Option<LiveMemory> {
        self.finder.memory(pid)
    }

    pub(crate) fn has_ended(&self, pid: u32) -> bool {
        self.finder.has_ended(pid)
    }

    pub(crate) fn jit_process(&mut self, pid: u32) -> Option<JitProcess> {
        self.finder.jit_process(pid)
    }

    /// Opens a file of a process that is not a module, at its beginning.
    pub(crate) fn other_file(&mut self, pid: u32, mapping: &Mapping) -> Option<fs::File> {
        self.finder.other_file(pid, mapping)
    }

    /// Loads a table for walks in the kernel that was removed.
    pub(crate) fn load_table(&self, file: &Arc<ModuleFile>) {
        if let Some(compiler) = &self.compiler
            && file.arena_table.take_removed()
        {
            compiler.load_again(file);
        }
    }

    /// The file of a mapping.
    pub(crate) fn open(
        &mut self,
        pid: u32,
        mapping: &Mapping,
        build_id: Option<BuildId>,
    ) -> Result<Arc<ModuleFile>, FileProblem> {
        let key = FileKey {
            name: mapping.name.clone(),
            device: mapping.device,
            inode: mapping.inode,
            build_id,
            distinction: self.finder.distinction(pid, mapping),
        };
        if let Some(file) = self.opened.get(&key) {
            self.load_table(file);
            return Ok(Arc::clone(file));
        }
        let found = self.finder.file(pid, mapping, build_id)?;
        let state = found.file.state();
        let key = FileKey {
            distinction: key
                .distinction
                .filter(|known| *known == Distinction::Name)
                .or(state.map(Distinction::State)),
            ..key
        };
        let by_state = state.map(|state| (mapping.name.clone(), state));
        if let Some(file) = by_state.as_ref().and_then(|same| self.by_state.get(same)) {
            self.load_table(file);
            self.opened.insert(key, Arc::clone(file));
            return Ok(Arc::clone(file));
        }
        let (elf, root) = (Arc::new(found.file), found.root);
        let name = mapping.name.clone().unwrap_or_default();
        let tables = FileTables::new(Arc::clone(&elf)).for_walks();
        let tables = match &self.compiler {
            Some(_) => tables,
            None => tables.synthesized_on_demand(&self.store),
        };
        let file = Arc::new(ModuleFile {
            number: self.next,
            name: PathBuf::from(name),
            is_deleted: mapping.deleted,
            tables,
            root,
            content: OnceLock::new(),
            arguments: OnceLock::new(),
            arena_table: ArenaTable::default(),
        });
        self.next += 1;
        if elf.build_id().is_some() {
            file.identify(&self.store);
        }
        // For files that must be hashed first, another thread looks for the tables.
        let looks_now = self.compiler.is_none() || self.store.has_content_hash(&elf);
        let has_table = looks_now && file.find_table(&self.store);
        if let Some(wanted) = &self.filter
            && !wanted.attach_prepared(&file)
            && looks_now
        {
            wanted.attach_cached(&file, &self.store);
        }
        if let Some(compiler) = &self.compiler {
            if looks_now && self.store.form() == TableForm::Native {
                file.tables.find_native(&self.store, &mut Vec::new());
            }
            // Stacks through code without a table would end there until the compiler reaches it.
            if is_small(&elf) || is_small_go_program(&elf) {
                file.tables.synthesize(&self.store);
            }
            compiler.compile(&file, has_table);
        } else {
            file.run_native(&self.store);
        }
        self.opened.insert(key, Arc::clone(&file));
        self.by_state
            .extend(by_state.map(|same| (same, Arc::clone(&file))));
        Ok(file)
    }
}

/// Whether a file has Go's own table of frames, and few enough functions to make rows of it while
/// samples wait: a tenth of a second at most.
fn is_small_go_program(file: &ElfFile) -> bool {
    const MAX_SMALL_GO_FILE_BYTES: usize = 8 << 20;
    file.bytes().len() <= MAX_SMALL_GO_FILE_BYTES && GoFunctions::new(file).is_some()
}

/// Whether a file is small enough to hash it and synthesize its rows while samples wait: some
/// milliseconds.
fn is_small(file: &ElfFile) -> bool {
    const MAX_SMALL_CODE_BYTES: u64 = 1 << 18;
    const MAX_SMALL_FILE_BYTES: usize = 1 << 20;
    if file.bytes().len() > MAX_SMALL_FILE_BYTES {
        return false;
    }
    let code = file.executable_ranges().into_iter();
    code.map(|range| range.end.0 - range.start.0).sum::<u64>() <= MAX_SMALL_CODE_BYTES
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process;

    use super::*;

    /// The content that each process has under the same name.
    struct Processes {
        files: Vec<PathBuf>,
    }

    impl Processes {
        fn path(&self, pid: u32) -> &PathBuf {
            &self.files[usize::try_from(pid).unwrap()]
        }
    }

    impl MappedFileFinder for Processes {
        fn file(
            &mut self,
            pid: u32,
            _: &Mapping,
            build_id: Option<BuildId>,
        ) -> Result<LocatedFile, FileProblem> {
            let file = ElfFile::open(self.path(pid))?;
            assert!(build_id.is_none_or(|id| file.build_id() == Some(id)));
            Ok(LocatedFile { file, root: None })
        }

        fn distinction(&self, pid: u32, _: &Mapping) -> Option<Distinction> {
            // Every third file is gone when it is requested.
            let state = || FileState::new(&fs::metadata(self.path(pid)).unwrap());
            (!pid.is_multiple_of(3)).then(state).map(Distinction::State)
        }

        fn other_file(&mut self, _: u32, _: &Mapping) -> Option<fs::File> {
            None
        }

        fn jit_process(&mut self, _: u32) -> Option<JitProcess> {
            None
        }

        fn mappings(&self, _: u32) -> Option<Mappings> {
            None
        }

        fn memory(&self, _: u32) -> Option<LiveMemory> {
            None
        }

        fn has_ended(&self, _: u32) -> bool {
            false
        }
    }

    /// An ELF file of a header, a segment with a build ID, and a byte.
    fn elf(id: u8, content: u8) -> Vec<u8> {
        let mut bytes = vec![0; 144];
        bytes[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x00");
        bytes[16..24].copy_from_slice(&[3, 0, 62, 0, 1, 0, 0, 0]); // ET_DYN, x86-64
        bytes[32] = 64; // e_phoff
        bytes[52..58].copy_from_slice(&[64, 0, 56, 0, 1, 0]);
        bytes[64] = 4; // PT_NOTE
        for size in [72, 96, 104] {
            // p_offset 120, p_filesz and p_memsz 20
            bytes[size] = if size == 72 { 120 } else { 20 };
        }
        let note = [
            4, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0, id, 1, 2, 3,
        ];
        bytes[120..140].copy_from_slice(&note);
        bytes[143] = content;
        bytes
    }

    /// Each process gets the file that it has mapped, whatever names, build IDs and order other
    /// users' processes choose.
    #[test]
    fn processes_share_a_file_only_if_it_is_the_same() {
        let folder = env::temp_dir().join(format!("unspool-files-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut state = 11_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            u8::try_from((state >> 33) % below).unwrap()
        };
        let map = b"7f0000000000-7f0000001000 r-xp 00000000 00:00 0 /usr/lib/libc.so.6\n";
        let maps = Mappings::parse(map);
        let mapping = maps.iter().next().unwrap();
        for _ in 0..50 {
            let contents: Vec<(u8, u8)> = (0..9).map(|_| (random(2), random(3))).collect();
            let write = |(pid, (id, content)): (usize, &(u8, u8))| {
                let path = folder.join(pid.to_string());
                fs::write(&path, elf(*id, *content)).unwrap();
                path
            };
            let processes = Processes {
                files: contents.iter().enumerate().map(write).collect(),
            };
            let store = Store::new(None, None, None);
            let mut files = ModuleFiles::without_compiler(Box::new(processes), store);
            let mut opened = HashMap::new();
            for _ in 0..30 {
                let pid = random(9);
                let (id, content) = contents[usize::from(pid)];
                // Records have the build ID, `/proc` has not.
                let known = [None, BuildId::new(&[id, 1, 2, 3])][usize::from(random(2))];
                let file = files.open(u32::from(pid), mapping, known).unwrap();
                assert_eq!(file.tables.file().bytes(), elf(id, content));
                let first = opened.entry(pid).or_insert_with(|| Arc::clone(&file));
                assert!(Arc::ptr_eq(first, &file));
            }
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
