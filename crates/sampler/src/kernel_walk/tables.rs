//! Compiled tables in the arena, once for all processes.

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use unspool_bpf::Arena;
use unspool_bpf_walk::{TableImage, WalkMaps};
use unspool_compiled_table::{check_digest, layout};

use super::directory::LISTS;
use super::free_space::FreeSpace;
use crate::module_files::ModuleFile;
use crate::sys::ThreadPriority;

/// The part of the arena with tables, in bytes. Each takes memory from when it is loaded on.
const TABLES: Range<usize> = LISTS.end..LISTS.end + (256 << 20);

const _: () = assert!(TABLES.end <= WalkMaps::FREE.end);

/// A file's table in the arena, as a number: its record's, or why there is none.
#[derive(Debug, Default)]
pub(crate) struct ArenaTable(AtomicU64);

impl ArenaTable {
    /// It will be loaded.
    const PENDING: u64 = 0;
    /// There is none, or no room for it.
    const NONE: u64 = 1;
    /// It was removed when no process had mapped the file.
    const REMOVED: u64 = 2;

    /// The table's record, in the form of [`unspool_bpf_walk::ModuleMapping::record`].
    pub(crate) fn record(&self) -> Option<u64> {
        let record = self.0.load(Ordering::Relaxed);
        (record > ArenaTable::REMOVED).then_some(record)
    }

    /// Whether it will be loaded.
    pub(crate) fn is_pending(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ArenaTable::PENDING
    }

    /// Whether it was removed; from now on, it will be loaded again.
    pub(crate) fn take_removed(&self) -> bool {
        let (from, to) = (ArenaTable::REMOVED, ArenaTable::PENDING);
        let exchanged = self
            .0
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        exchanged.is_ok()
    }

    fn set(&self, state: u64) {
        self.0.store(state, Ordering::Relaxed);
    }
}

/// The tables in the arena, by their contents.
#[derive(Debug)]
pub(crate) struct ArenaTables {
    arena: Arc<Arena>,
    loaded: Mutex<LoadedTables>,
    /// Whether a file has got a table since [`ArenaTables::take_changed`].
    has_changed: AtomicBool,
    /// The number of files that will be loaded.
    expected: AtomicUsize,
    /// How often a table had no room.
    without_room: AtomicU64,
    /// The thread that compiles tables.
    compile_thread: OnceLock<ThreadPriority>,
    /// Whether that thread has its usual priority, because samples wait.
    is_hurried: AtomicBool,
}

#[derive(Debug)]
struct LoadedTables {
    by_digest: HashMap<Box<[u8]>, LoadedTable>,
    free: FreeSpace,
    /// The version of the last table.
    last_version: u32,
    /// The files whose tables had no room, and the bytes that they need.
    waiting: Vec<(Weak<ModuleFile>, usize)>,
}

#[derive(Debug)]
struct LoadedTable {
    record: u64,
    place: Range<usize>,
    /// The files that have it.
    files: Vec<Weak<ModuleFile>>,
}

/// A table that will be loaded, until this is dropped.
#[derive(Debug)]
pub(crate) struct ExpectedTable(Arc<ArenaTables>);

impl Drop for ExpectedTable {
    fn drop(&mut self) {
        self.0.expected.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ExpectedTable {
    /// Copies a file's compiled table to the arena, if it has one.
    pub(crate) fn load(self, file: &Arc<ModuleFile>) {
        self.0.load(file);
    }
}

impl ArenaTables {
    pub(crate) fn new(arena: Arc<Arena>) -> ArenaTables {
        ArenaTables::in_part(arena, TABLES)
    }

    /// In a part of the arena.
    fn in_part(arena: Arc<Arena>, part: Range<usize>) -> ArenaTables {
        ArenaTables {
            arena,
            loaded: Mutex::new(LoadedTables {
                by_digest: HashMap::new(),
                free: FreeSpace::new(part),
                last_version: 0,
                waiting: Vec::new(),
            }),
            has_changed: AtomicBool::new(false),
            expected: AtomicUsize::new(0),
            without_room: AtomicU64::new(0),
            compile_thread: OnceLock::new(),
            is_hurried: AtomicBool::new(false),
        }
    }

    /// A table will be loaded.
    pub(crate) fn expect(self: &Arc<Self>) -> ExpectedTable {
        self.expected.fetch_add(1, Ordering::Relaxed);
        ExpectedTable(Arc::clone(self))
    }

    /// Whether tables will still be loaded.
    pub(crate) fn is_loading(&self) -> bool {
        self.expected.load(Ordering::Relaxed) != 0
    }

    /// Whether files have got tables since the last call.
    pub(crate) fn take_changed(&self) -> bool {
        self.has_changed.swap(false, Ordering::Acquire)
    }

    /// How often a table had no room.
    pub(crate) fn without_room(&self) -> u64 {
        self.without_room.load(Ordering::Relaxed)
    }

    /// Names the thread that compiles tables, at a low priority.
    pub(crate) fn set_compile_thread(&self, thread: ThreadPriority) {
        // There is one.
        let _ = self.compile_thread.set(thread);
    }

    /// Samples wait for tables: the thread that compiles them gets its usual priority.
    pub(crate) fn hurry(&self) {
        if let Some(thread) = self.compile_thread.get()
            && !self.is_hurried.swap(true, Ordering::Relaxed)
        {
            thread.restore();
        }
    }

    /// No table is to be compiled: the thread gets its low priority back.
    pub(crate) fn rest(&self) {
        if let Some(thread) = self.compile_thread.get()
            && self.is_hurried.swap(false, Ordering::Relaxed)
        {
            thread.lower();
        }
    }

    fn load(&self, file: &Arc<ModuleFile>) {
        let table = proven_table(file);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let record = table.and_then(|table| self.record(&mut loaded, file, &table));
        // Within the lock: the table is not removed in between.
        file.arena_table.set(record.unwrap_or(ArenaTable::NONE));
        if record.is_some() {
            self.has_changed.store(true, Ordering::Release);
        }
    }

    /// The record of a file's table.
    fn record(
        &self,
        loaded: &mut LoadedTables,
        file: &Arc<ModuleFile>,
        table: &[u8],
    ) -> Option<u64> {
        let digest = table.get(layout::DIGEST)?;
        if let Some(known) = loaded.by_digest.get_mut(digest) {
            known.files.push(Arc::downgrade(file));
            return Some(known.record);
        }
        let image = TableImage::new(table).ok()?;
        let Some(place) = loaded.free.reserve(image.size()) else {
            self.without_room.fetch_add(1, Ordering::Relaxed);
            loaded.waiting.push((Arc::downgrade(file), image.size()));
            return None;
        };
        let written = image.write(&self.arena, place.start).ok()?;
        loaded.last_version = loaded.last_version.wrapping_add(1);
        let table = LoadedTable {
            record: written.with_version(loaded.last_version),
            place,
            files: vec![Arc::downgrade(file)],
        };
        let record = table.record;
        loaded.by_digest.insert(digest.into(), table);
        Some(record)
    }

    /// Whether a table has no room.
    pub(super) fn is_full(&self) -> bool {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        !loaded.waiting.is_empty()
    }

    /// Removes all tables that are neither in `listed` records nor of a `mapped` file, by number,
    /// when `wait` has returned. Returns files that had no room and may have some now. Their tables
    /// are expected to be loaded again.
    pub(super) fn make_room(
        &self,
        listed: &HashSet<u64>,
        mapped: &HashSet<u32>,
        wait: impl FnOnce() -> io::Result<()>,
    ) -> Vec<Arc<ModuleFile>> {
        let is_mapped = |file: &Arc<ModuleFile>| mapped.contains(&file.number);
        let is_used = |table: &LoadedTable| {
            let mut files = table.files.iter().filter_map(Weak::upgrade);
            listed.contains(&table.record) || files.any(|file| is_mapped(&file))
        };
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.by_digest.values().all(is_used) || wait().is_err() {
            return Vec::new();
        }
        let mut freed = 0;
        loaded.by_digest.retain(|_, table| {
            let is_used = is_used(table);
            if !is_used {
                freed += table.place.len();
                let files = table.files.iter().filter_map(Weak::upgrade);
                files.for_each(|file| file.arena_table.set(ArenaTable::REMOVED));
            }
            is_used
        });
        let LoadedTables {
            by_digest, free, ..
        } = &mut *loaded;
        free.retain(by_digest.values().map(|table| table.place.clone()));
        let mut again = Vec::new();
        loaded.waiting.retain(|(file, bytes)| {
            let Some(file) = file.upgrade() else {
                return false;
            };
            let has_room = is_mapped(&file) && freed >= *bytes;
            if has_room {
                freed -= bytes;
            } else if is_mapped(&file) {
                return true;
            }
            file.arena_table.set(ArenaTable::REMOVED);
            again.extend(has_room.then_some(file));
            false
        });
        again
    }
}

/// A copy of a file's compiled table, if it has a proven one. A mapped file can change: the copy is
/// checked, and does not.
///
/// A table in the file itself was written by the file's maker, whom the kernel must not trust.
fn proven_table(file: &ModuleFile) -> Option<Vec<u8>> {
    let table = file.tables.compiled_bytes()?;
    let table = (!file.tables.is_embedded()).then(|| table.to_vec())?;
    check_digest(&table).is_ok().then_some(table)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use unspool_elf::ElfFile;
    use unspool_table_store::{TableBytes, TableSource, compile};
    use unspool_unwind::FileTables;

    use super::*;

    /// A file with a compiled table, and the room that it needs.
    fn file(number: u32, path: &str) -> (Arc<ModuleFile>, usize) {
        let elf = Arc::new(ElfFile::open(path).unwrap());
        let table = compile(&elf, TableSource::Auto).unwrap().encoded.bytes;
        let size = TableImage::new(&table).unwrap().size();
        let tables = FileTables::new(elf).for_walks();
        assert!(tables.attach(TableBytes::Memory(table)));
        let file = ModuleFile {
            number,
            name: PathBuf::from(path),
            is_deleted: false,
            tables,
            root: None,
            content: OnceLock::new(),
            arguments: OnceLock::new(),
            arena_table: ArenaTable::default(),
        };
        (Arc::new(file), size)
    }

    /// A table makes room for another one when no process has its file mapped any more.
    #[test]
    #[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
    fn tables_without_a_process_make_room() {
        let (one, one_bytes) = file(1, "/bin/ls");
        let (other, other_bytes) = file(2, "/bin/cat");
        let part = TABLES.start..TABLES.start + one_bytes.max(other_bytes);
        let maps = WalkMaps::new(1).unwrap();
        let tables = Arc::new(ArenaTables::in_part(Arc::clone(maps.arena()), part));
        tables.expect().load(&one);
        assert!(!tables.is_full() && tables.take_changed());
        tables.expect().load(&other);
        assert!(tables.is_full() && !tables.take_changed() && !tables.is_loading());
        assert_eq!(
            (other.arena_table.record(), tables.without_room()),
            (None, 1)
        );
        let first = one.arena_table.record().unwrap();

        let none = HashSet::new();
        let not_needed = || -> io::Result<()> { panic!("nothing is removed") };
        let both = HashSet::from([1, 2]);
        assert!(tables.make_room(&none, &both, not_needed).is_empty());
        let (listed, second) = (HashSet::from([first]), HashSet::from([2]));
        assert!(tables.make_room(&listed, &second, not_needed).is_empty());

        let again = tables.make_room(&none, &second, || maps.wait_for_walks());
        assert!(matches!(&again[..], [file] if Arc::ptr_eq(file, &other)));
        assert_eq!(one.arena_table.record(), None);
        assert!(other.arena_table.take_removed() && other.arena_table.is_pending());
        tables.expect().load(&other);
        // It is at the same place, and rows of the first one may be cached.
        let record = other.arena_table.record().unwrap();
        assert_eq!(record & 0xffff_ffff, first & 0xffff_ffff);
        assert_ne!(record, first);
        assert!(one.arena_table.take_removed());
    }
}
