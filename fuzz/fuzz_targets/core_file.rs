//! Any bytes as a core file: opening it, reading its memory and walking its stacks ends without
//! panic; mappings ascend without overlap, and a long read is what short reads are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_elf::{ElfFile, ModuleError};
use unspool_process::Snapshot;
use unspool_process::core_file::Core;
use unspool_process::file_provider::{FileProblem, FileProvider};
use unspool_process::maps::Mapping;
use unspool_process::snapshot_unwinder::{SnapshotUnwinder, WalkDetail};
use unspool_rows::RuntimeAddr;
use unspool_table_store::Store;

/// The paths in the input are not this machine's: no file is opened.
struct NoFileProvider;

impl FileProvider for NoFileProvider {
    fn file(&self, mapping: &Mapping) -> Result<ElfFile, FileProblem> {
        let error: ModuleError = match ElfFile::from_bytes("none", Vec::<u8>::new()) {
            Err(error) => error,
            Ok(_) => {
                return Err(FileProblem::NoSegment {
                    path: mapping.path().unwrap_or("".as_ref()).into(),
                });
            }
        };
        Err(error.into())
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(core) = Core::from_bytes(data.to_vec()) else {
        return;
    };
    let mappings = core.mappings().as_slice();
    for pair in mappings.windows(2) {
        assert!(pair[0].end <= pair[1].start, "mappings overlap");
    }
    for mapping in mappings.iter().take(64) {
        assert!(mapping.start < mapping.end, "a mapping of nothing");
        compare_reads(&core, mapping.start);
        compare_reads(&core, RuntimeAddr(mapping.end.0.wrapping_sub(12)));
    }
    let store = Store::new(None, None, None);
    let unwinder = SnapshotUnwinder::with_files(&core, &NoFileProvider, &store);
    for thread in core.threads().iter().take(64) {
        if let Some(stack) = unwinder.walk(thread, 1000, WalkDetail::Frames) {
            assert!(!stack.frames.is_empty() && stack.frames.len() <= 1000);
        }
    }
});

/// Sixteen bytes at once, or one after the other: the same bytes, or the first one that fails.
fn compare_reads(core: &Core, start: RuntimeAddr) {
    let memory = Snapshot::memory(core);
    let mut together = [0; 16];
    let whole = memory.read(start, &mut together);
    for (n, expected) in (0..).zip(together) {
        let mut one = [0];
        let read = memory.read(RuntimeAddr(start.0.wrapping_add(n)), &mut one);
        match &whole {
            Ok(()) => assert_eq!((read, one), (Ok(()), [expected])),
            Err(whole) if read.is_err() => {
                assert_eq!(
                    read.unwrap_err().addr,
                    whole.addr,
                    "another byte fails first"
                );
                return;
            }
            Err(_) => {}
        }
    }
    assert!(whole.is_ok(), "each byte can be read, and not all");
}
