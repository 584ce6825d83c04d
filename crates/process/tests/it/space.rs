//! Walks over copied stacks, and their reports of memory that was not copied.

use std::ffi::OsString;
use std::path::PathBuf;

use unspool_cfi::lookup::HdrTrust;
use unspool_cfi::{CfiSection, Lookup, SectionKind};
use unspool_elf::ElfFile;
use unspool_process::file_provider::{FileProblem, FileProvider};
use unspool_process::maps::{Device, Mapping, Mappings, Permissions};
use unspool_process::snapshot_unwinder::{CallStack, SnapshotUnwinder, WalkDetail};
use unspool_process::{AuxVector, Process, Snapshot};
use unspool_rows::{
    Abi, CodeAddr, LoadBias, Memory, Register, Row, RuntimeAddr, Unreadable, Vaddr,
};
use unspool_table_store::{self as tables, Store, TableSource};
use unspool_testing::RunningProgram;
use unspool_unwind::{End, EntryCache, Evidence, Module, RowRules};

use crate::programs::{compile, start};

const ALL: usize = 1_000_000;

/// Starts `deep.c`, 5,000 calls deep in frames of 100 bytes and more.
fn deep(options: &[&str]) -> RunningProgram {
    let mut running = start(&compile("deep.c", options), &["5000"]);
    assert_eq!(running.line(), "ready");
    running.await_state('S');
    running
}

/// Walks the copied stacks, after the process resumed.
fn walk(
    running: &RunningProgram,
    bytes: u64,
    others: &[RuntimeAddr],
    detail: WalkDetail,
) -> CallStack {
    let process = Process::attach(running.pid()).unwrap();
    process.prefetch_stacks(bytes, others);
    process.resume();
    let store = Store::new(None, None, None);
    let space = SnapshotUnwinder::new(&process, &store);
    space.walk(&process.threads()[0], ALL, detail).unwrap()
}

#[test]
fn a_copy_that_is_too_short_says_so() {
    let running = deep(&[]);
    let short = walk(&running, 100_000, &[], WalkDetail::Frames);
    assert_eq!(short.end.name(), "not-copied", "{}", short.end);
    assert!(matches!(short.end, End::Step(_)), "{}", short.end);
    let missing = short.missing.unwrap();
    assert!(short.frames.len() < 1000);

    let long = walk(&running, 64 << 20, &[], WalkDetail::Frames);
    assert_eq!((long.end, long.missing), (End::Outermost, None));
    assert!(long.frames.len() > 5000);

    // Together with the memory where the short one ended.
    let both = walk(&running, 100_000, &[missing], WalkDetail::Frames);
    assert!(both.frames.len() > short.frames.len());
}

#[test]
fn a_guess_says_that_its_memory_was_not_copied() {
    let options = [
        "-fno-omit-frame-pointer",
        "-fno-asynchronous-unwind-tables",
        "-g0",
        "-DOPAQUE",
    ];
    let running = deep(&options);
    let short = walk(&running, 100_000, &[], WalkDetail::Frames);
    assert_eq!(short.end.name(), "not-copied", "{}", short.end);
    assert!(matches!(short.end, End::Guess { .. }), "{}", short.end);
    assert!(short.missing.is_some());
    assert!(
        short
            .end
            .to_string()
            .ends_with("is unreadable: mapped, but not copied")
    );

    let long = walk(&running, 64 << 20, &[], WalkDetail::Frames);
    assert_eq!((long.end, long.missing), (End::Outermost, None));
    let guessed = |evidence| {
        let frames = long.frames.iter();
        frames
            .filter(|frame| frame.step.is_some_and(|found| found.evidence == evidence))
            .count()
    };
    assert!(guessed(Evidence::FramePointer) > 5000);
}

/// A register saved elsewhere than on the stack, which the walk itself does not need.
#[test]
fn a_register_that_was_not_copied() {
    let mut running = start(&compile("far_register.c", &[]), &[]);
    assert_eq!(running.line(), "ready");
    running.await_state('S');
    let frames = walk(&running, 8 << 10, &[], WalkDetail::Frames);
    assert_eq!((frames.end, frames.missing), (End::Outermost, None));
    let short = walk(&running, 8 << 10, &[], WalkDetail::Registers);
    assert_eq!(short.end, End::Outermost);
    let missing = short.missing.unwrap();
    let all = walk(&running, 8 << 10, &[missing], WalkDetail::Registers);
    assert_eq!((all.end, all.missing), (End::Outermost, None));
    let rbx = |stack: &CallStack| {
        let frame = &stack.frames[stack.frames.len() - 4];
        frame.registers.as_ref().unwrap().get(Register(3))
    };
    assert_eq!(rbx(&short), None);
    assert_eq!(rbx(&all), Some(0x1234));
}

/// A remembered entry yields the same rows as the search, after any earlier look-ups; so does a
/// remembered hole.
#[test]
fn entries_that_were_found_before() {
    let file = ElfFile::open(compile("deep.c", &["-static", "-Wl,--no-eh-frame-hdr"])).unwrap();
    let section = file.eh_frames().unwrap().remove(0);
    let section = CfiSection {
        kind: SectionKind::EhFrame,
        data: section.data,
        address: section.address,
        text_base: file.text_base(),
        data_base: file.data_base(),
        abi: file.abi(),
    };
    let lookup = Lookup::new(section, None, HdrTrust::Suspect);
    let found = EntryCache::new();
    let module = |found| Module {
        slot: None,
        bias: LoadBias(0),
        entry: None,
        compiled: None,
        rules: RowRules::default(),
        code: None,
        cfi: Some(&lookup),
        sframe: None,
        entry_cache: found,
        synthesized: None,
        native: None,
    };
    let table = tables::read(&file, TableSource::EhFrame).unwrap().table;
    let edges = table.fdes().iter().step_by(5);
    let addresses = edges.flat_map(|fde| [fde.start.0, fde.start.0 + 4, fde.end.0 - 1, fde.end.0]);
    let mut addresses: Vec<Vaddr> = addresses.map(Vaddr).collect();
    addresses.push(Vaddr(0));
    let row = |found, pc| {
        let mut row = Row::new(Register(0));
        format!("{:?}", module(found).row(pc, &mut row))
    };
    let searched: Vec<String> = addresses.iter().map(|pc| row(None, *pc)).collect();
    for _ in 0..2 {
        for (pc, expected) in addresses.iter().zip(&searched) {
            for _ in 0..2 {
                assert_eq!(&row(Some(&found), *pc), expected, "{pc}");
            }
        }
    }
    assert!(searched.iter().any(|row| row.contains("Hole")));
}

/// A process with one mapping of a file, on a system with pages of 64 KiB.
struct LargePages {
    mappings: Mappings,
    auxv: AuxVector,
    file: PathBuf,
}

impl Snapshot for LargePages {
    fn abi(&self) -> Abi {
        Abi::X86_64
    }

    fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    fn auxv(&self) -> &AuxVector {
        &self.auxv
    }

    fn memory(&self) -> &dyn Memory {
        self
    }
}

impl Memory for LargePages {
    fn read(&self, addr: RuntimeAddr, _into: &mut [u8]) -> Result<(), Unreadable> {
        Err(Unreadable::unmapped(addr))
    }
}

impl FileProvider for LargePages {
    fn file(&self, _mapping: &Mapping) -> Result<ElfFile, FileProblem> {
        Ok(ElfFile::open(&self.file)?)
    }
}

/// Code is mapped from the start of its first byte's page, which may be far before it. As in a core
/// from gdb's `gcore`, the mapping has no record of execute permission.
#[test]
fn a_mapping_begins_at_a_page_of_the_process() {
    const AT_PAGESZ: u64 = 6;
    let file = compile("deep.c", &["-Wl,-z,separate-code,-z,max-page-size=0x1000"]);
    let entry = ElfFile::open(&file).unwrap().entry();
    let start = RuntimeAddr(0x7000_0000_0000);
    for (page_size, is_found) in [(0x1_0000, true), (0x1000, false)] {
        let auxv: Vec<u8> = [AT_PAGESZ, page_size]
            .iter()
            .flat_map(|word: &u64| word.to_le_bytes())
            .collect();
        let mapping = Mapping {
            start,
            end: RuntimeAddr(start.0 + 0x1_0000),
            offset: 0,
            permissions: Permissions::default(),
            device: Device::default(),
            inode: 0,
            name: Some(OsString::from("/deep")),
            deleted: false,
            by_object: false,
        };
        let process = LargePages {
            mappings: Mappings::from_list(vec![mapping]),
            auxv: AuxVector::parse(&auxv),
            file: file.clone(),
        };
        let store = Store::new(None, None, None);
        let space = SnapshotUnwinder::new(&process, &store);
        let at = CodeAddr::Instruction(RuntimeAddr(start.0 + entry.0));
        let located = space.locate(at).map(|found| found.address);
        assert_eq!(located, is_found.then_some(entry), "{page_size:#x}");
    }
}
