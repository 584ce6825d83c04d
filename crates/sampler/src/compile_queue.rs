//! Provides tables during the recording, on two threads.
//!
//! One identifies files without a build ID, and looks up tables. Walks in the kernel wait for that,
//! so it has the usual priority then: on a busy machine, a thread of low priority runs late.
//!
//! The other one has a low priority. It compiles and verifies missing tables, for which its
//! priority rises while samples wait. It makes the native tables of files if walks run those,
//! argument tables if arguments are recorded, and synthesizes rows.
//!
//! Tables are copied to the arena of walks in the kernel as soon as they are there.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;

use unspool_table_store::{Store, TableBytes, TableSource, compile, verify};

use crate::arguments::ArgumentFilter;
use crate::kernel_walk::{ArenaTables, ExpectedTable};
use crate::module_files::ModuleFile;
use crate::sys::ThreadPriority;

/// Compiles tables, one after the other.
#[derive(Debug)]
pub(crate) struct Compiler {
    lookups: Sender<TableJob>,
    arena_tables: Option<Arc<ArenaTables>>,
}

/// The work for one file.
#[derive(Debug)]
struct TableJob {
    file: Weak<ModuleFile>,
    /// Whether its table is compiled already.
    has_table: bool,
    /// Whether all is done except that its table is to be loaded.
    is_known: bool,
    /// If its table is to be loaded. Dropped with the job if a thread panics.
    expected: Option<ExpectedTable>,
}

impl Compiler {
    /// `None` if a thread cannot be created.
    pub(crate) fn start(
        store: Arc<Store>,
        filter: Option<Arc<ArgumentFilter>>,
        arena_tables: Option<Arc<ArenaTables>>,
    ) -> Option<Compiler> {
        let (lookups, jobs) = channel::<TableJob>();
        let (compiled, to_compile) = channel();
        let worker = CompileThread {
            store: Arc::clone(&store),
            filter,
            arena_tables: arena_tables.clone(),
        };
        start_thread("compile", move || worker.run(&to_compile))?;
        let is_waited_for = arena_tables.is_some();
        start_thread("look-up", move || {
            if !is_waited_for {
                ThreadPriority::current().lower();
            }
            for mut job in jobs {
                let is_known = job.is_known;
                job.look_up(&store);
                // A send fails only if the thread panicked; then there are no more tables.
                if !is_known && compiled.send(job).is_err() {
                    return;
                }
            }
        })?;
        Some(Compiler {
            lookups,
            arena_tables,
        })
    }

    /// Queues a file: its table is looked up, and compiled if missing. Then rows are synthesized
    /// for code that the table does not cover.
    pub(crate) fn compile(&self, file: &Arc<ModuleFile>, has_table: bool) {
        self.queue(file, has_table, false);
    }

    /// Queues a file whose table was removed from the arena.
    pub(crate) fn load_again(&self, file: &Arc<ModuleFile>) {
        self.queue(file, true, true);
    }

    fn queue(&self, file: &Arc<ModuleFile>, has_table: bool, is_known: bool) {
        // A send fails only if the thread panicked; then there are no more tables.
        let _ = self.lookups.send(TableJob {
            file: Arc::downgrade(file),
            has_table,
            is_known,
            expected: self.arena_tables.as_ref().map(ArenaTables::expect),
        });
    }
}

impl TableJob {
    /// Looks up the table, and loads it if there is one.
    fn look_up(&mut self, store: &Store) {
        let Some(file) = self.file.upgrade() else {
            self.expected = None;
            return;
        };
        self.has_table = self.has_table || file.find_table(store);
        if self.has_table {
            self.load(&file);
        }
    }

    /// Copies the table to the arena, if there are walks in the kernel.
    fn load(&mut self, file: &Arc<ModuleFile>) {
        if let Some(expected) = self.expected.take() {
            expected.load(file);
        }
    }
}

fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Option<()> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.is_ok().then_some(())
}

/// The thread of low priority.
struct CompileThread {
    store: Arc<Store>,
    filter: Option<Arc<ArgumentFilter>>,
    arena_tables: Option<Arc<ArenaTables>>,
}

impl CompileThread {
    fn run(&self, queue: &Receiver<TableJob>) {
        let priority = ThreadPriority::current();
        priority.lower();
        if let Some(tables) = &self.arena_tables {
            tables.set_compile_thread(priority);
        }
        // Walks in the kernel need the tables of all files. So code without rows comes last.
        let mut uncovered = VecDeque::new();
        loop {
            let job = if uncovered.is_empty() {
                queue.recv().ok()
            } else {
                queue.try_recv().ok()
            };
            let Some(mut job) = job else {
                match uncovered.pop_front() {
                    Some(file) => self.cover(&file),
                    None => return,
                }
                continue;
            };
            if !job.has_table
                && let Some(file) = job.file.upgrade()
            {
                compile_table(&file, &self.store);
                job.load(&file);
            }
            if self.arena_tables.is_some() {
                uncovered.push_back(job.file);
            } else {
                self.cover(&job.file);
            }
        }
    }

    /// Makes all that is not a compiled table.
    fn cover(&self, file: &Weak<ModuleFile>) {
        let Some(file) = file.upgrade() else {
            return;
        };
        if let Some(tables) = &self.arena_tables {
            tables.rest();
        }
        file.run_native(&self.store);
        file.tables.synthesize(&self.store);
        if let Some(wanted) = &self.filter {
            wanted.attach_made(&file, &self.store);
        }
    }
}

fn compile_table(file: &ModuleFile, store: &Store) {
    // Another file with the same contents may have been compiled meanwhile.
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
