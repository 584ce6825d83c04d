//! Code that processes generate at run time and describe in a perf map or a jitdump.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use unspool_rows::RuntimeAddr;
use unspool_symbols::{JitCode, JitDumpReader, PerfMap, PerfMapLocation};

use crate::live_files::ProcessRoot;

/// A process that generates code and may write a perf map.
#[derive(Debug)]
pub(crate) struct JitProcess {
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

/// The most memory of the code of all processes, in bytes.
const MAX_BYTES: usize = 256 << 20;
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
    readers: HashMap<u32, OwnedReader>,
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
    /// Adds the jitdump of a process, if it is one and may be kept open.
    pub(crate) fn add(&mut self, pid: u32, file: fs::File) {
        let Ok(owner) = file.metadata().map(|metadata| metadata.uid()) else {
            return;
        };
        self.remove(pid);
        let others = self.readers.values().filter(|other| other.owner == owner);
        if self.readers.len() >= MAX_OPEN || others.count() >= MAX_OPEN_OF_OWNER {
            self.cut += 1;
        } else if let Ok(reader) = JitDumpReader::new(file) {
            self.readers.insert(pid, OwnedReader { owner, reader });
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
        let sizes = self.readers.values().map(|owned| owned.reader.size());
        let all: usize = sizes.sum();
        if let Some(OwnedReader { reader, .. }) = self.readers.get_mut(&pid) {
            let others = all - reader.size();
            let room = MAX_BYTES.saturating_sub(others);
            reader.read_more(room, &mut self.budget, each);
        }
    }

    /// All code that a process has described, in the order of its records. Its jitdump is closed.
    pub(crate) fn take(&mut self, pid: u32) -> Vec<JitCode> {
        self.read_more(pid, |_| {});
        let Some(OwnedReader { reader, .. }) = self.readers.remove(&pid) else {
            return Vec::new();
        };
        self.cut += u64::from(!reader.is_at_end());
        reader.into_codes()
    }
}

/// A process's jitdump, with the user ID of the file's owner.
#[derive(Debug)]
struct OwnedReader {
    owner: u32,
    reader: JitDumpReader<fs::File>,
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

    fn dump() -> fs::File {
        let mut dump = tempfile::tempfile().unwrap();
        dump.write_all(&header()).unwrap();
        dump.rewind().unwrap();
        dump
    }

    /// The time for one process's jitdump is not taken from the samples of others.
    #[test]
    fn reading_is_rationed() {
        // 40 records of 8 MiB, which describe nothing: of an unknown kind.
        const RECORD_BYTES: u64 = 8 << 20;
        let file = dump();
        for number in 0..40 {
            let at = header().len() as u64 + number * RECORD_BYTES;
            file.write_all_at(&words(&[RECORD_BYTES << 32 | 99, 0]), at)
                .unwrap();
            file.set_len(at + RECORD_BYTES).unwrap();
        }
        let mut dumps = JitDumps::default();
        dumps.add(1, file);
        let (mut read, mut rounds) = (0, 0);
        while dumps.readers[&1].reader.bytes_read() > read {
            read = dumps.readers[&1].reader.bytes_read();
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
            dumps.add(u32::try_from(pid).unwrap(), dump());
        }
        assert_eq!((dumps.readers.len(), dumps.cut()), (MAX_OPEN_OF_OWNER, 3));
        dumps.remove(0);
        dumps.add(1000, dump());
        assert_eq!((dumps.readers.len(), dumps.cut()), (MAX_OPEN_OF_OWNER, 3));
    }
}
