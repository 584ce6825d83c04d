//! Compiles and verifies missing tables during the recording, on one thread of low priority. For
//! files without a build ID, it also computes their identity. It makes their native tables if walks
//! run those, and argument tables if arguments are recorded. It copies tables to the arena of walks
//! in the kernel.

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
    arena_tables: Option<Arc<ArenaTables>>,
}

/// The work for one file.
#[derive(Debug)]
struct CompileJob {
    file: Weak<ModuleFile>,
    /// Whether its table is compiled already.
    has_table: bool,
}

impl Compiler {
    /// `None` if the thread cannot be created.
    pub(crate) fn start(
        store: Arc<Store>,
        filter: Option<Arc<ArgumentFilter>>,
        arena_tables: Option<Arc<ArenaTables>>,
    ) -> Option<Compiler> {
        let (queue, files) = channel();
        let tables = arena_tables.clone();
        let work = move || run(&files, &store, filter.as_deref(), tables.as_deref());
        let thread = thread::Builder::new()
            .name("compile".to_owned())
            .spawn(work);
        thread.is_ok().then_some(Compiler {
            queue,
            arena_tables,
        })
    }

    /// Queues a file: its table is compiled if missing, and first looked up if the file is not
    /// identified yet. Then rows are synthesized for code that the table does not cover.
    pub(crate) fn compile(&self, file: &Arc<ModuleFile>, has_table: bool) {
        let file = Arc::downgrade(file);
        if let Some(tables) = &self.arena_tables {
            tables.expect();
        }
        // The send fails only if the thread panicked; then there is no table.
        let _ = self.queue.send(CompileJob { file, has_table });
    }
}

fn run(
    queue: &Receiver<CompileJob>,
    store: &Store,
    filter: Option<&ArgumentFilter>,
    arena_tables: Option<&ArenaTables>,
) {
    crate::sys::lower_priority();
    for work in queue {
        let file = work.file.upgrade();
        if let Some(file) = file.as_deref().filter(|_| !work.has_table) {
            compile_table(file, store);
        }
        if let Some(tables) = arena_tables {
            tables.load(file.as_deref());
        }
        let Some(file) = file else {
            continue;
        };
        file.run_native(store);
        file.tables.synthesize(store);
        if let Some(wanted) = filter {
            wanted.attach_made(&file, store);
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
