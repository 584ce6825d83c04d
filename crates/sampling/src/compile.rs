//! Tables that are missing are compiled, and proven, beside the recording, by one thread of low priority. Of files
//! without build ID, it also finds out which they are.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;

use unspool_unwind::tables::{From, Store, TableBytes, compile, verify};

use crate::files::File;

/// Compiles tables, one after the other.
#[derive(Debug)]
pub(crate) struct Compiler {
    queue: Sender<Weak<File>>,
}

impl Compiler {
    /// `None` if there can be no thread for it.
    pub(crate) fn start(store: Arc<Store>) -> Option<Compiler> {
        let (queue, files) = channel();
        let work = move || run(&files, &store);
        let thread = thread::Builder::new()
            .name("compile".to_owned())
            .spawn(work);
        thread.is_ok().then_some(Compiler { queue })
    }

    /// Has the table of a file compiled; it is looked for first if the file is not identified yet.
    pub(crate) fn compile(&self, file: &Arc<File>) {
        // Only a thread that panicked does not listen; then there is no table.
        let _ = self.queue.send(Arc::downgrade(file));
    }
}

fn run(files: &Receiver<Weak<File>>, store: &Store) {
    crate::sys::be_patient();
    for file in files {
        let Some(file) = file.upgrade() else { continue };
        // Of those that are identified it was looked for when they were opened.
        if file.content.get().is_none() && file.find_table(store) {
            continue;
        }
        let elf = file.tables.file();
        // A file without tables, or with none that can be compiled, is read as it is.
        let Ok(made) = compile(elf, From::Auto) else {
            continue;
        };
        // Nor is a table used that is not proven.
        match verify(elf, &made.reading.table, &made.encoded.bytes) {
            Ok(comparison) if comparison.mismatches.is_empty() => {}
            _ => continue,
        }
        // That it cannot be kept costs the next recording the same time again.
        if let Some(content) = file.content.get() {
            let _ = store.keep(content, &made.encoded.bytes);
        }
        file.tables.attach(TableBytes::Memory(made.encoded.bytes));
    }
}
