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

    /// The part of its perf map that names these addresses, if it writes one.
    pub(crate) fn perf_map(&self, addresses: impl Iterator<Item = RuntimeAddr>) -> Option<PerfMap> {
        self.location.read_for(addresses).ok()
    }
}

/// A jitdump, read as it grows.
#[derive(Debug)]
pub(crate) struct JitDumpReader {
    records: JitDump<fs::File>,
    collector: JitCollector,
    codes: Vec<JitCode>,
    /// The memory of all of them, in bytes.
    size: usize,
}

/// The most memory of the code of a process, and of all processes, in bytes.
const MAX_PROCESS_BYTES: usize = 32 << 20;
const MAX_BYTES: usize = 256 << 20;

impl JitDumpReader {
    /// Whether a mapped file is a jitdump: its writer maps it to announce it.
    pub(crate) fn is_meant(path: &[u8]) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next();
        name.is_some_and(|name| name.starts_with(b"jit-") && name.ends_with(b".dump"))
    }

    pub(crate) fn new(file: fs::File) -> Result<JitDumpReader, JitError> {
        Ok(JitDumpReader {
            records: JitDump::new(file)?,
            collector: JitCollector::without_lines(),
            codes: Vec::new(),
            size: 0,
        })
    }

    /// The memory of its code, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Reads the records appended since the last call, while there is room for their code: the
    /// `others` take so much memory.
    pub(crate) fn read_more(&mut self, others: usize, mut each: impl FnMut(&JitCode)) {
        while self.size < MAX_PROCESS_BYTES && self.size + others < MAX_BYTES {
            match self.records.next() {
                Ok(Some(record)) => {
                    if let Some(code) = self.collector.add(&record) {
                        // Its tables are copied for walks.
                        let tables = code.info.eh_frame.len();
                        self.size += size_of::<JitCode>() + code.info.size() + tables;
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
    pub(crate) fn into_codes(mut self, others: usize) -> Vec<JitCode> {
        self.read_more(others, |_| {});
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

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use super::*;

    /// Whoever writes a jitdump may describe code without end.
    #[test]
    fn code_takes_bounded_memory() {
        let header = [0x1_4a69_5444_u64, 62 << 32 | 40, 0, 0, 0];
        let name_bytes = 1 << 20;
        let size = 16 + 40 + name_bytes as u64 + 2;
        let mut dump = tempfile::tempfile().unwrap();
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut bytes: Vec<u8> = words(&header);
        for index in 0..64 {
            let load: Vec<u8> = words(&[size << 32, 0, 0, 0x1000, 0x1000, 1, index]);
            bytes.extend(load);
            bytes.extend(vec![b'f'; name_bytes]);
            bytes.extend([0, 0xc3]);
        }
        dump.write_all(&bytes).unwrap();
        let read = |others| {
            let mut dump = dump.try_clone().unwrap();
            dump.rewind().unwrap();
            let mut reader = JitDumpReader::new(dump).unwrap();
            reader.read_more(others, |_| {});
            assert_eq!(reader.size() >> 20, reader.codes.len());
            reader.into_codes(others).len()
        };
        assert_eq!(read(0), MAX_PROCESS_BYTES / name_bytes);
        assert_eq!(read(MAX_BYTES - (4 << 20)), 4);
    }
}
