//! What is wrong with the tables of files, and what else covers their code.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use unspool_check::{CheckReport, CheckSubject, CodeOrigins, DeclaredTable};
use unspool_elf::{DebugFiles, ElfFile, SearchRoots};
use unspool_rows::table::Span;
use unspool_rows::{Table, Vaddr};
use unspool_table_store::{TableSource, read_if_any_from};

/// How long to wait for the check of a file. Then its frames are the debugger's until it is done.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// A file's tables as the code judges them.
#[derive(Debug, Default)]
pub(super) struct JudgedTables {
    /// Entries with refuted rows, repaired; and the entries of the file's table at these addresses.
    repaired: Option<(Rows, Rows)>,
    /// The entries of `.debug_frame`, in the file and in its debug files: debuggers have them, too.
    debug_frames: Vec<Rows>,
}

/// A table that can be searched.
#[derive(Debug)]
struct Rows {
    table: Table,
    spans: Vec<Span>,
}

impl Rows {
    fn new(table: Table) -> Rows {
        Rows {
            spans: table.spans().collect(),
            table,
        }
    }

    fn at(&self, address: Vaddr) -> Option<Span> {
        let after = self.spans.partition_point(|span| span.start <= address);
        let span = self.spans.get(after.checked_sub(1)?)?;
        (address < span.end).then_some(*span)
    }
}

/// A row that the code proves, in place of one that it refutes.
#[derive(Debug)]
pub(super) struct RepairedRow<'t> {
    pub(super) row: unspool_rows::Row<'t>,
    /// The first address of its entry.
    pub(super) entry_start: Vaddr,
}

impl JudgedTables {
    fn new(file: &ElfFile) -> JudgedTables {
        let debug = DebugFiles::locate(file, &SearchRoots::from_environment());
        let files = std::iter::once(file).chain(debug.debug.as_deref());
        let tables = files.filter_map(|file| read_if_any_from(file, TableSource::DebugFrame).ok());
        JudgedTables {
            repaired: repaired(file),
            debug_frames: tables.map(Rows::new).collect(),
        }
    }

    /// The repaired row at an address, if the file's own one is refuted there.
    pub(super) fn repaired(&self, address: Vaddr) -> Option<RepairedRow<'_>> {
        let (repaired, own) = self.repaired.as_ref()?;
        let span = repaired.at(address)?;
        let row = repaired.table.row(span.row)?;
        let declared = own.table.row(own.at(address)?.row)?;
        let entry_start = repaired.table.fde(span.fde)?.start;
        (row != declared).then_some(RepairedRow { row, entry_start })
    }

    /// Whether a table that is for debuggers only covers an address.
    pub(super) fn has_debug_frame(&self, address: Vaddr) -> bool {
        self.debug_frames
            .iter()
            .any(|rows| rows.at(address).is_some())
    }
}

/// The entries of a file that the code refutes, repaired, and the file's table.
fn repaired(file: &ElfFile) -> Option<(Rows, Rows)> {
    let declared = DeclaredTable::read(file).ok()?;
    let mut subject = CheckSubject::new(file, &declared, CodeOrigins::from_file(file)).ok()?;
    let threads = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let report = CheckReport::from_subject(&mut subject, threads, |_, _| {});
    let repaired = subject.repair(&report, |_| false).ok()?.table;
    file.check_unchanged().ok()?;
    if repaired.fdes().is_empty() {
        return None;
    }
    Some((Rows::new(repaired), Rows::new(declared.table)))
}

/// The judged tables of all files so far. Each is made in a thread of its own.
#[derive(Debug, Default)]
pub(super) struct TableJudge {
    files: HashMap<Vec<u8>, Pending>,
}

#[derive(Debug)]
struct Pending {
    done: OnceLock<JudgedTables>,
    results: Receiver<JudgedTables>,
    asked: Instant,
}

impl TableJudge {
    /// The tables of a file; `None` if that takes too long, for now.
    pub(super) fn judge(&mut self, file: &Arc<ElfFile>) -> Option<&JudgedTables> {
        let key = file.state().map(|state| state.bytes()).unwrap_or_default();
        let entry = self.files.entry(key).or_insert_with(|| {
            let (sender, results) = mpsc::channel();
            let file = Arc::clone(file);
            // Nobody waits for it if the debugger has ended.
            thread::spawn(move || drop(sender.send(JudgedTables::new(&file))));
            Pending {
                done: OnceLock::new(),
                results,
                asked: Instant::now(),
            }
        });
        if entry.done.get().is_none() {
            let left = MAX_WAIT.saturating_sub(entry.asked.elapsed());
            let result = entry.results.recv_timeout(left);
            // Without a result there is nothing to say against the file's table.
            let result = match result {
                Err(mpsc::RecvTimeoutError::Timeout) => return None,
                result => result.unwrap_or_default(),
            };
            let _ = entry.done.set(result);
        }
        entry.done.get()
    }
}
