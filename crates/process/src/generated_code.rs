//! Code that a process has generated and described in a jitdump.

use std::collections::BTreeMap;
use std::sync::Arc;

use unspool_rows::{Abi, RuntimeAddr};
use unspool_symbols::{JitCode, JitDumpReader, JitTimeline};
use unspool_unwind::CodeTable;
use unspool_unwind::modules::Module;

use crate::Snapshot;
use crate::file_provider::FileProvider;
use crate::maps::Mapping;

/// Whether a mapping is that of a jitdump: its writer maps it to announce it.
#[must_use]
pub fn is_jitdump(mapping: &Mapping) -> bool {
    let name = mapping.path().and_then(|path| path.file_name());
    let name = name.unwrap_or_default().as_encoded_bytes();
    name.starts_with(b"jit-") && name.ends_with(b".dump")
}

/// The unwind tables of code that a process has generated, by address. Later code at the same
/// addresses replaces the earlier one.
#[derive(Debug, Clone, Default)]
pub struct JitTables(BTreeMap<u64, JitTable>);

#[derive(Debug, Clone)]
struct JitTable {
    end: u64,
    table: Arc<CodeTable>,
}

impl JitTables {
    /// Adds code that was generated or moved.
    pub fn add(&mut self, code: &JitCode, abi: Abi) {
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

    /// The code at an address, as a module.
    #[must_use]
    pub fn module(&self, addr: RuntimeAddr) -> Option<Module<'_>> {
        let (_, made) = self.0.range(..=addr.0).next_back()?;
        (addr.0 < made.end).then(|| made.table.module())
    }
}

/// The code of a process as it is now.
#[derive(Debug, Default)]
pub(crate) struct CurrentJitCode {
    pub(crate) codes: JitTimeline,
    pub(crate) tables: JitTables,
}

impl CurrentJitCode {
    /// Reads the jitdump of a process, if it has one.
    pub(crate) fn read(snapshot: &dyn Snapshot, files: &dyn FileProvider) -> CurrentJitCode {
        let mut tables = JitTables::default();
        let mut mappings = snapshot.mappings().iter();
        let codes = mappings
            .find(|mapping| is_jitdump(mapping))
            .and_then(|mapping| {
                let mut reader = JitDumpReader::new(files.other_file(mapping)?).ok()?;
                reader.read_more(usize::MAX, &mut { u64::MAX }, |code| {
                    tables.add(code, snapshot.abi());
                });
                Some(reader.into_codes())
            });
        let mut codes = JitTimeline::new(codes.unwrap_or_default());
        codes.move_to(u64::MAX);
        CurrentJitCode { codes, tables }
    }
}
