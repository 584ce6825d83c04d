//! Tables that are missing are compiled, and proven, beside the recording, by one thread of low priority. Of files
//! without build ID, it also finds out which they are; and it makes their machine code, if stacks are walked by that, and tables of arguments if any are
//! recorded.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;

use unspool_table_store::{Store, TableBytes, TableSource, compile, verify};

use crate::arguments::ArgumentFilter;
use crate::module_files::ModuleFile;

/// Compiles tables, one after the other.
#[derive(Debug)]
pub(crate) struct Compiler {
    queue: Sender<CompileJob>,
}

/// What is to be done for a file.
#[derive(Debug)]
struct CompileJob {
    file: Weak<ModuleFile>,
    /// Whether its table is compiled.
    has_table: bool,
}

impl Compiler {
    /// `None` if there can be no thread for it.
    pub(crate) fn start(
        store: Arc<Store>,
        wanted: Option<Arc<ArgumentFilter>>,
    ) -> Option<Compiler> {
        let (queue, files) = channel();
        let work = move || run(&files, &store, wanted.as_deref());
        let thread = thread::Builder::new()
            .name("compile".to_owned())
            .spawn(work);
        thread.is_ok().then_some(Compiler { queue })
    }

    /// Has the table of a file compiled, if it is not; it is looked for first if the file is not identified yet. Has
    /// rows made of the code that it does not cover.
    pub(crate) fn compile(&self, file: &Arc<ModuleFile>, has_table: bool) {
        let file = Arc::downgrade(file);
        // Only a thread that panicked does not listen; then there is no table.
        let _ = self.queue.send(CompileJob { file, has_table });
    }
}

fn run(queue: &Receiver<CompileJob>, store: &Store, wanted: Option<&ArgumentFilter>) {
    crate::sys::lower_priority();
    for work in queue {
        let Some(file) = work.file.upgrade() else {
            continue;
        };
        if !work.has_table {
            compile_table(&file, store);
        }
        file.run_native(store);
        file.tables.synthesize(store);
        if let Some(wanted) = wanted {
            wanted.attach_made(&file, store);
        }
    }
}

fn compile_table(file: &ModuleFile, store: &Store) {
    // Of those whose hash was known it was looked for when they were opened.
    if file.find_table(store) {
        return;
    }
    let elf = &*store.stable(file.tables.file());
    // A file without tables, or with none that can be compiled, is read as it is.
    let Ok(made) = compile(elf, TableSource::Auto) else {
        return;
    };
    // Nor is a table used that is not proven.
    match verify(elf, &made.source.table, &made.encoded.bytes) {
        Ok(comparison) if comparison.mismatches.is_empty() => {}
        _ => return,
    }
    // That it cannot be kept costs the next recording the same time again.
    let _ = store.keep(elf, &made.encoded.bytes);
    file.tables.attach(TableBytes::Memory(made.encoded.bytes));
}
