//! Code that processes generate at run time and describe in a perf map or a jitdump.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use unspool_rows::{Abi, RuntimeAddr};
use unspool_symbols::{JitCode, JitCollector, JitDump, JitError, PerfMap, PerfMapLocation};
use unspool_unwind::CodeTable;
use unspool_unwind::modules::Module;

use crate::live_files::ProcessRoot;

/// A process that generates code and may write a perf map.
#[derive(Debug)]
pub struct JitProcess {
    location: PerfMapLocation,
    /// Keeps the root directory open that the path is under.
    _root: Option<Arc<ProcessRoot>>,
}

impl JitProcess {
    /// A running process with this root, if it is not ours.
    pub(crate) fn from_pid(pid: u32, root: Option<Arc<ProcessRoot>>) -> Option<JitProcess> {
        let path = root.as_ref().map_or("/".as_ref(), |root| root.path());
        Some(JitProcess {
            location: PerfMapLocation::from_process(pid, path).ok()?,
            _root: root,
        })
    }

    /// Its perf map, if it writes one.
    pub(crate) fn perf_map(&self) -> Option<PerfMap> {
        self.location.read().ok()
    }
}

/// A jitdump, read as it grows.
#[derive(Debug)]
pub(crate) struct JitDumpReader {
    records: JitDump<fs::File>,
    collector: JitCollector,
    codes: Vec<JitCode>,
}

impl JitDumpReader {
    /// Whether a mapped file is a jitdump: its writer maps it to announce it.
    pub(crate) fn is_meant(path: &[u8]) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next();
        name.is_some_and(|name| name.starts_with(b"jit-") && name.ends_with(b".dump"))
    }

    pub(crate) fn new(file: fs::File) -> Result<JitDumpReader, JitError> {
        Ok(JitDumpReader {
            records: JitDump::new(file)?,
            collector: JitCollector::new(),
            codes: Vec::new(),
        })
    }

    /// Reads the records appended since the last call.
    pub(crate) fn read_more(&mut self, mut each: impl FnMut(&JitCode)) {
        loop {
            match self.records.next() {
                Ok(Some(record)) => {
                    if let Some(code) = self.collector.add(&record) {
                        each(&code);
                        self.codes.push(code);
                    }
                }
                // The next record can still be read.
                Err(JitError::Record { .. }) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// All code that it describes, in the order of its records.
    pub(crate) fn into_codes(mut self) -> Vec<JitCode> {
        self.read_more(|_| {});
        self.codes
    }
}

/// The unwind tables of code that a process has generated, by address. Later code at the same
/// addresses replaces the earlier one.
#[derive(Debug, Clone, Default)]
pub(crate) struct JitTables(BTreeMap<u64, JitTable>);

#[derive(Debug, Clone)]
struct JitTable {
    end: u64,
    table: Arc<CodeTable>,
}

impl JitTables {
    /// Adds code that was generated or moved.
    pub(crate) fn add(&mut self, code: &JitCode, abi: Abi) {
        let (start, end) = (code.address.0, code.address.0.saturating_add(code.size));
        let overlapped = self.0.range(..end).rev();
        let overlapped: Vec<u64> = overlapped
            .take_while(|(_, made)| made.end > start)
            .map(|(start, _)| *start)
            .collect();
        for start in overlapped {
            self.0.remove(&start);
        }
        if code.info.eh_frame.is_empty() || start == end {
            return;
        }
        // Its addresses are relative to a position after the code.
        let at = RuntimeAddr(end.next_multiple_of(8));
        let table = CodeTable::new(code.info.eh_frame.clone().into(), at, abi);
        let table = Arc::new(table);
        self.0.insert(start, JitTable { end, table });
    }

    /// The code at an address.
    pub(crate) fn module(&self, addr: RuntimeAddr) -> Option<Module<'_>> {
        let (_, made) = self.0.range(..=addr.0).next_back()?;
        (addr.0 < made.end).then(|| made.table.module())
    }
}
