//! Compiles and verifies missing tables during the recording, on one thread of low priority. For
//! files without a build ID, it also computes their identity. It makes their native tables if walks
//! run those, and argument tables if arguments are recorded.
//!
//! Tables are copied to the arena of walks in the kernel as soon as they are there. Those that need
//! not be compiled are copied by a thread of normal priority: on a busy machine, the other one runs
//! late.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;

use unspool_table_store::{Store, TableBytes, TableSource, compile, verify};

use crate::arguments::ArgumentFilter;
use crate::kernel_walk::ArenaTables;
use crate::module_files::ModuleFile;

/// Compiles tables, one after the other.
#[derive(Debug)]
pub(crate) struct Compiler {
    queue: Sender<CompileJob>,
    arena: Option<ArenaQueue>,
}

/// The work for one file.
#[derive(Debug)]
struct CompileJob {
    file: Weak<ModuleFile>,
    /// Whether its table is compiled already.
    has_table: bool,
}

/// Copies tables to the arena, one after the other.
#[derive(Debug)]
struct ArenaQueue {
    tables: Arc<ArenaTables>,
    queue: Sender<Weak<ModuleFile>>,
}

impl Compiler {
    /// `None` if a thread cannot be created.
    pub(crate) fn start(
        store: Arc<Store>,
        filter: Option<Arc<ArgumentFilter>>,
        arena_tables: Option<Arc<ArenaTables>>,
    ) -> Option<Compiler> {
        let (queue, files) = channel();
        let tables = arena_tables.clone();
        let work = move || run(&files, &store, filter.as_deref(), tables.as_deref());
        start_thread("compile", work)?;
        let arena = match arena_tables {
            Some(tables) => Some(ArenaQueue::start(tables)?),
            None => None,
        };
        Some(Compiler { queue, arena })
    }

    /// Queues a file: its table is compiled if missing, and first looked up if the file is not
    /// identified yet. Then rows are synthesized for code that the table does not cover.
    pub(crate) fn compile(&self, file: &Arc<ModuleFile>, has_table: bool) {
        let file = Arc::downgrade(file);
        if let Some(arena) = &self.arena {
            arena.tables.expect();
            // A send fails only if the thread panicked; then there is no table.
            if has_table && arena.queue.send(Weak::clone(&file)).is_err() {
                arena.tables.load(None);
            }
        }
        let sent = self.queue.send(CompileJob { file, has_table });
        if let (Err(_), false, Some(arena)) = (sent, has_table, &self.arena) {
            arena.tables.load(None);
        }
    }
}

impl ArenaQueue {
    fn start(tables: Arc<ArenaTables>) -> Option<ArenaQueue> {
        let (queue, files) = channel::<Weak<ModuleFile>>();
        let loaded = Arc::clone(&tables);
        start_thread("arena", move || {
            for file in files {
                loaded.load(file.upgrade().as_deref());
            }
        })?;
        Some(ArenaQueue { tables, queue })
    }
}

fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Option<()> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.is_ok().then_some(())
}

fn run(
    queue: &Receiver<CompileJob>,
    store: &Store,
    filter: Option<&ArgumentFilter>,
    arena_tables: Option<&ArenaTables>,
) {
    crate::sys::lower_priority();
    let cover = |file: Weak<ModuleFile>| {
        let Some(file) = file.upgrade() else {
            return;
        };
        file.run_native(store);
        file.tables.synthesize(store);
        if let Some(wanted) = filter {
            wanted.attach_made(&file, store);
        }
    };
    // Walks in the kernel need the tables of all files. So code without rows comes last.
    let mut uncovered = VecDeque::new();
    loop {
        let work = if uncovered.is_empty() {
            queue.recv().ok()
        } else {
            queue.try_recv().ok()
        };
        let Some(CompileJob { file, has_table }) = work else {
            match uncovered.pop_front() {
                Some(file) => cover(file),
                None => return,
            }
            continue;
        };
        if !has_table {
            let file = file.upgrade();
            if let Some(file) = &file {
                compile_table(file, store);
            }
            if let Some(tables) = arena_tables {
                tables.load(file.as_deref());
            }
        }
        if arena_tables.is_some() {
            uncovered.push_back(file);
        } else {
            cover(file);
        }
    }
}

fn compile_table(file: &ModuleFile, store: &Store) {
    // Files with a known hash were looked up when they were opened.
    if file.find_table(store) {
        return;
    }
    let elf = &*store.stable(file.tables.file());
    // A file without tables, or without any that can be compiled, is read directly.
    let Ok(made) = compile(elf, TableSource::Auto) else {
        return;
    };
    // An unproven table is not used either.
    match verify(elf, &made.source.table, &made.encoded.bytes) {
        Ok(comparison) if comparison.mismatches.is_empty() => {}
        _ => return,
    }
    // If it cannot be stored, the next recording compiles it again.
    let _ = store.keep(elf, &made.encoded.bytes);
    file.tables.attach(TableBytes::Memory(made.encoded.bytes));
}
