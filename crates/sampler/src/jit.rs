//! Code that processes generate at run time and describe in a perf map or a jitdump.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
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

/// The most memory of the code of a process, and of all processes, in bytes.
const MAX_PROCESS_BYTES: usize = 32 << 20;
const MAX_BYTES: usize = 256 << 20;
/// The most bytes that are read of a jitdump.
const MAX_BYTES_READ: u64 = 1 << 30;
/// How many bytes of all jitdumps may be read for each [`JitDumps::refill`], and how many are saved
/// up: reading them must not keep samples waiting.
const BUDGET_BYTES: u64 = 32 << 20;
const MAX_BUDGET_BYTES: u64 = 256 << 20;
/// The most jitdumps that are open: of one owner, and all together. Each takes a descriptor.
const MAX_OPEN_OF_OWNER: usize = 64;
const MAX_OPEN: usize = 256;

/// The jitdumps of processes, read as they grow, within limits.
#[derive(Debug)]
pub(crate) struct JitDumps {
    readers: HashMap<u32, JitDumpReader>,
    /// How many bytes may be read.
    budget: u64,
    /// The number of jitdumps that were not read to their ends.
    cut: u64,
}

impl Default for JitDumps {
    fn default() -> Self {
        JitDumps {
            readers: HashMap::new(),
            budget: MAX_BUDGET_BYTES,
            cut: 0,
        }
    }
}

impl JitDumps {
    /// Whether a mapped file is a jitdump: its writer maps it to announce it.
    pub(crate) fn is_meant(path: &[u8]) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next();
        name.is_some_and(|name| name.starts_with(b"jit-") && name.ends_with(b".dump"))
    }

    /// Adds the jitdump of a process, if it is one and may be kept open.
    pub(crate) fn add(&mut self, pid: u32, file: fs::File) {
        let Ok(owner) = file.metadata().map(|metadata| metadata.uid()) else {
            return;
        };
        self.remove(pid);
        let others = self.readers.values().filter(|other| other.owner == owner);
        if self.readers.len() >= MAX_OPEN || others.count() >= MAX_OPEN_OF_OWNER {
            self.cut += 1;
        } else if let Ok(reader) = JitDumpReader::new(file, owner) {
            self.readers.insert(pid, reader);
        }
    }

    /// Closes the jitdump of a process.
    pub(crate) fn remove(&mut self, pid: u32) {
        self.readers.remove(&pid);
    }

    /// Some more bytes may be read.
    pub(crate) fn refill(&mut self) {
        self.budget = MAX_BUDGET_BYTES.min(self.budget + BUDGET_BYTES);
    }

    /// The number of jitdumps that were not read to their ends.
    pub(crate) fn cut(&self) -> u64 {
        self.cut
    }

    /// Reads the records that a process has added, as far as the limits permit.
    pub(crate) fn read_more(&mut self, pid: u32, each: impl FnMut(&JitCode)) {
        let all: usize = self.readers.values().map(JitDumpReader::size).sum();
        if let Some(reader) = self.readers.get_mut(&pid) {
            let others = all - reader.size();
            reader.read_more(others, &mut self.budget, each);
        }
    }

    /// All code that a process has described, in the order of its records. Its jitdump is closed.
    pub(crate) fn take(&mut self, pid: u32) -> Vec<JitCode> {
        self.read_more(pid, |_| {});
        let Some(reader) = self.readers.remove(&pid) else {
            return Vec::new();
        };
        self.cut += u64::from(!reader.is_at_end);
        reader.codes
    }
}

/// A jitdump, read as it grows.
#[derive(Debug)]
struct JitDumpReader {
    /// The user ID of the file's owner.
    owner: u32,
    records: JitDump<fs::File>,
    collector: JitCollector,
    codes: Vec<JitCode>,
    /// The memory of all of them, in bytes.
    code_bytes: usize,
    /// Whether all records were read.
    is_at_end: bool,
}

impl JitDumpReader {
    fn new(file: fs::File, owner: u32) -> Result<JitDumpReader, JitError> {
        Ok(JitDumpReader {
            owner,
            records: JitDump::new(file)?,
            collector: JitCollector::without_lines(),
            codes: Vec::new(),
            code_bytes: 0,
            is_at_end: false,
        })
    }

    /// Its memory in bytes.
    fn size(&self) -> usize {
        self.code_bytes + self.collector.pending_size() + self.records.pending_size()
    }

    /// Reads the records appended since the last call, while there is room for their code: the
    /// `others` take so much memory.
    fn read_more(&mut self, others: usize, budget: &mut u64, mut each: impl FnMut(&JitCode)) {
        self.is_at_end = false;
        while !self.is_at_end
            && *budget > 0
            && self.size() < MAX_PROCESS_BYTES
            && self.size() + others < MAX_BYTES
            && self.records.bytes_read() < MAX_BYTES_READ
        {
            let before = self.records.bytes_read();
            match self.records.next() {
                Ok(Some(record)) => {
                    if let Some(code) = self.collector.add(&record) {
                        // Its tables are copied for walks.
                        let tables = code.info.eh_frame.len();
                        self.code_bytes += size_of::<JitCode>() + code.info.size() + tables;
                        each(&code);
                        self.codes.push(code);
                    }
                }
                // The next record can still be read.
                Err(JitError::Record { .. }) => {}
                Ok(None) | Err(_) => self.is_at_end = true,
            }
            *budget = budget.saturating_sub(self.records.bytes_read() - before);
        }
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
    use std::os::unix::fs::FileExt as _;

    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn header() -> Vec<u8> {
        words(&[0x1_4a69_5444_u64, 62 << 32 | 40, 0, 0, 0])
    }

    /// Code with a name of 1 MiB, and the unwinding information before it.
    fn described_code(index: u64, table_bytes: usize) -> Vec<u8> {
        let name_bytes = 1 << 20;
        let size = 16 + 40 + name_bytes as u64 + 2;
        let table_size = 16 + 24 + table_bytes as u64;
        let mut bytes = words(&[table_size << 32 | 4, 0, table_bytes as u64, 0, 0]);
        bytes.extend(vec![0; table_bytes]);
        bytes.extend(words(&[size << 32, 0, 0, 0x1000, 0x1000, 1, index]));
        bytes.extend(vec![b'f'; name_bytes]);
        bytes.extend([0, 0xc3]);
        bytes
    }

    fn dump(records: &[Vec<u8>]) -> fs::File {
        let mut dump = tempfile::tempfile().unwrap();
        dump.write_all(&header()).unwrap();
        dump.write_all(&records.concat()).unwrap();
        dump.rewind().unwrap();
        dump
    }

    /// Whoever writes a jitdump may describe code without end.
    #[test]
    fn code_takes_bounded_memory() {
        let records: Vec<_> = (0..64).map(|index| described_code(index, 0)).collect();
        let read = |others| {
            let mut reader = JitDumpReader::new(dump(&records), 0).unwrap();
            reader.read_more(others, &mut { u64::MAX }, |_| {});
            assert_eq!(reader.size() >> 20, reader.codes.len());
            assert!(!reader.is_at_end);
            reader.codes.len()
        };
        assert_eq!(read(0), MAX_PROCESS_BYTES >> 20);
        assert_eq!(read(MAX_BYTES - (4 << 20)), 4);
    }

    /// So do parts of code: a table without code, and a record that has not ended.
    #[test]
    fn pending_parts_count() {
        let table = described_code(0, 7 << 20)[..40 + (7 << 20)].to_vec();
        let cut = table[..6 << 20].to_vec();
        let mut reader = JitDumpReader::new(dump(&[table, cut]), 0).unwrap();
        reader.read_more(0, &mut { u64::MAX }, |_| {});
        assert_eq!(reader.size() >> 20, 13);
        assert!(reader.codes.is_empty() && reader.is_at_end);
    }

    /// The time for one process's jitdump is not taken from the samples of others.
    #[test]
    fn reading_is_rationed() {
        // 40 records of 8 MiB, which describe nothing: of an unknown kind.
        const RECORD_BYTES: u64 = 8 << 20;
        let file = dump(&[]);
        for number in 0..40 {
            let at = header().len() as u64 + number * RECORD_BYTES;
            file.write_all_at(&words(&[RECORD_BYTES << 32 | 99, 0]), at)
                .unwrap();
            file.set_len(at + RECORD_BYTES).unwrap();
        }
        let mut dumps = JitDumps::default();
        dumps.add(1, file);
        let (mut read, mut rounds) = (0, 0);
        while dumps.readers[&1].records.bytes_read() > read {
            read = dumps.readers[&1].records.bytes_read();
            dumps.read_more(1, |_| {});
            dumps.refill();
            rounds += 1;
        }
        // 320 MiB: first what is saved up, then the rest.
        assert!((3..=5).contains(&rounds), "{rounds}");
        dumps.take(1);
        assert_eq!(dumps.cut(), 0);
    }

    /// A stranger's processes take no descriptors that others need.
    #[test]
    fn open_files_are_rationed() {
        let mut dumps = JitDumps::default();
        for pid in 0..MAX_OPEN_OF_OWNER + 3 {
            dumps.add(u32::try_from(pid).unwrap(), dump(&[]));
        }
        assert_eq!((dumps.readers.len(), dumps.cut()), (MAX_OPEN_OF_OWNER, 3));
        dumps.remove(0);
        dumps.add(1000, dump(&[]));
        assert_eq!((dumps.readers.len(), dumps.cut()), (MAX_OPEN_OF_OWNER, 3));
    }
}
