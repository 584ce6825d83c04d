//! Reading a jitdump within limits: whoever writes it may describe code without end.

use std::io::Read;

use super::{JitCode, JitCollector, JitDump, JitError};

/// The most memory of the code of a process, in bytes.
const MAX_MEMORY_BYTES: usize = 32 << 20;
/// The most bytes that are read of a jitdump.
const MAX_BYTES_READ: u64 = 1 << 30;

/// A jitdump, read as it grows: at most 1 GiB of it, and code that takes at most 32 MiB. Source
/// lines, which are most of a jitdump, are left out.
#[derive(Debug)]
pub struct JitDumpReader<R> {
    records: JitDump<R>,
    collector: JitCollector,
    codes: Vec<JitCode>,
    /// The memory of all of them, in bytes.
    code_bytes: usize,
    is_at_end: bool,
}

impl<R: Read> JitDumpReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// [`JitError`]: it is not a jitdump of version 1.
    pub fn new(input: R) -> Result<JitDumpReader<R>, JitError> {
        Ok(JitDumpReader {
            records: JitDump::new(input)?,
            collector: JitCollector::without_lines(),
            codes: Vec::new(),
            code_bytes: 0,
            is_at_end: false,
        })
    }

    /// The memory of what was read, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.code_bytes + self.collector.pending_size() + self.records.pending_size()
    }

    /// The number of bytes read so far.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.records.bytes_read()
    }

    /// Whether the last read went to the end of the file.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// All code, in the order of its records.
    #[must_use]
    pub fn into_codes(self) -> Vec<JitCode> {
        self.codes
    }

    /// Reads the records appended since the last call, and passes on their code. It stops when
    /// [`JitDumpReader::size`] is at least `max_memory`, and when it has read `budget` bytes, which
    /// it counts down.
    pub fn read_more(
        &mut self,
        max_memory: usize,
        budget: &mut u64,
        mut each: impl FnMut(&JitCode),
    ) {
        self.is_at_end = false;
        while !self.is_at_end
            && *budget > 0
            && self.size() < max_memory.min(MAX_MEMORY_BYTES)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
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

    fn dump(records: &[Vec<u8>]) -> Vec<u8> {
        let header = words(&[0x1_4a69_5444_u64, 62 << 32 | 40, 0, 0, 0]);
        [header, records.concat()].concat()
    }

    #[test]
    fn code_takes_bounded_memory() {
        let records: Vec<_> = (0..64).map(|index| described_code(index, 0)).collect();
        let dump = dump(&records);
        let read = |max_memory| {
            let mut reader = JitDumpReader::new(&*dump).unwrap();
            reader.read_more(max_memory, &mut { u64::MAX }, |_| {});
            assert_eq!(reader.size() >> 20, reader.codes.len());
            assert!(!reader.is_at_end);
            reader.codes.len()
        };
        assert_eq!(read(usize::MAX), MAX_MEMORY_BYTES >> 20);
        assert_eq!(read(4 << 20), 4);
    }

    /// So do parts of code: a table without code, and a record that has not ended.
    #[test]
    fn pending_parts_count() {
        let table = described_code(0, 7 << 20)[..40 + (7 << 20)].to_vec();
        let cut = table[..6 << 20].to_vec();
        let dump = dump(&[table, cut]);
        let mut reader = JitDumpReader::new(&*dump).unwrap();
        reader.read_more(usize::MAX, &mut { u64::MAX }, |_| {});
        assert_eq!(reader.size() >> 20, 13);
        assert!(reader.codes.is_empty() && reader.is_at_end);
    }
}
