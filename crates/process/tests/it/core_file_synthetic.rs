//! Core files that no kernel here writes: AArch64, very many segments, overlaps, bad notes.

use unspool_process::core_file::{Core, CoreError, CoreProblem};
use unspool_process::file_provider::{CoreFiles, FileSearch};
use unspool_process::snapshot_unwinder::{SnapshotUnwinder, WalkDetail};
use unspool_process::{NoRegisters, Snapshot, Store};
use unspool_rows::memory::UnreadableReason;
use unspool_rows::{Arch, CodeAddr, Memory, Register, RuntimeAddr};
use unspool_unwind::Evidence;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const X86_64: u16 = 62;
const AARCH64: u16 = 183;

/// A segment: type, flags, address, memory size, contents.
struct TestSegment {
    kind: u32,
    flags: u32,
    vaddr: u64,
    memory_size: u64,
    contents: Vec<u8>,
}

fn load(vaddr: u64, memory_size: u64, contents: &[u8]) -> TestSegment {
    TestSegment {
        kind: PT_LOAD,
        flags: 6,
        vaddr,
        memory_size,
        contents: contents.to_vec(),
    }
}

fn notes(notes: &[Vec<u8>]) -> TestSegment {
    TestSegment {
        kind: PT_NOTE,
        flags: 0,
        vaddr: 0,
        memory_size: 0,
        contents: notes.concat(),
    }
}

fn size(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap()
}

fn note(name: &str, kind: u32, desc: &[u8]) -> Vec<u8> {
    let name = [name.as_bytes(), &[0]].concat();
    let mut bytes = Vec::new();
    for field in [size(&name), size(desc), u64::from(kind)] {
        bytes.extend(u32::try_from(field).unwrap().to_le_bytes());
    }
    for part in [&name[..], desc] {
        bytes.extend(part);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// An ELF64 core. With `extended`, `e_phnum` is `PN_XNUM` and section header 0 has the number.
fn core(machine: u16, segments: &[TestSegment], extended: bool) -> Vec<u8> {
    let count = size(&vec![0; segments.len()]);
    let sections = 64 + 56 * count;
    let mut header = Vec::new();
    header.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    header.extend(4_u16.to_le_bytes());
    header.extend(machine.to_le_bytes());
    header.extend(1_u32.to_le_bytes());
    for field in [0, 64, if extended { sections } else { 0 }] {
        header.extend(field.to_le_bytes());
    }
    header.extend([0; 4]);
    let number = if extended {
        0xffff
    } else {
        u16::try_from(count).unwrap()
    };
    for field in [64, 56, number, 64, u16::from(extended), 0] {
        header.extend(field.to_le_bytes());
    }
    let mut data = vec![0; 64];
    data[44..48].copy_from_slice(&u32::try_from(count).unwrap().to_le_bytes());
    for segment in segments {
        header.extend(segment.kind.to_le_bytes());
        header.extend(segment.flags.to_le_bytes());
        let offset = sections + size(&data);
        for field in [
            offset,
            segment.vaddr,
            0,
            size(&segment.contents),
            segment.memory_size,
            4096,
        ] {
            header.extend(field.to_le_bytes());
        }
        data.extend(&segment.contents);
    }
    header.extend(data);
    header
}

/// An `NT_PRSTATUS` with ascending register values.
fn prstatus(tid: u32, words: u64) -> Vec<u8> {
    prstatus_of(tid, 0..words)
}

/// An `NT_PRSTATUS` with these words in its register block.
fn prstatus_of(tid: u32, words: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut desc = vec![0; 112];
    desc[32..36].copy_from_slice(&tid.to_le_bytes());
    desc.extend(words.flat_map(u64::to_le_bytes));
    desc.extend([0; 8]);
    note("CORE", 1, &desc)
}

fn nt_file(count: u64, page_size: u64, entries: &[[u64; 3]], names: &[u8]) -> Vec<u8> {
    let mut desc: Vec<u8> = [count, page_size]
        .into_iter()
        .flat_map(u64::to_le_bytes)
        .collect();
    desc.extend(entries.iter().flatten().flat_map(|word| word.to_le_bytes()));
    desc.extend(names);
    note("CORE", 0x4649_4c45, &desc)
}

fn read(core: &Core, at: u64, count: usize) -> Result<Vec<u8>, UnreadableReason> {
    let mut bytes = vec![0; count];
    let result = core.memory().read(RuntimeAddr(at), &mut bytes);
    result.map(|()| bytes).map_err(|error| error.reason)
}

#[test]
fn aarch64_registers_and_signature_mask() {
    let mut masks = 0x007f_0000_0000_0000_u64.to_le_bytes().to_vec();
    masks.extend(0x007f_ff80_0000_0000_u64.to_le_bytes());
    let segment = notes(&[prstatus(7, 34), note("LINUX", 0x406, &masks)]);
    let core = Core::from_bytes(core(AARCH64, &[segment], false)).unwrap();
    assert_eq!(core.problems(), []);
    assert_eq!(core.abi().arch, Arch::Aarch64);
    assert_eq!(core.pac_mask(), 0x007f_ff80_0000_0000);
    let registers = core.threads()[0].registers.as_ref().unwrap();
    assert_eq!(registers.get(Register(30)), Some(30));
    assert_eq!(registers.get(Register(32)), Some(32));
    assert_eq!(registers.get(Register(33)), None);
}

/// Code without a table has called a null pointer in a signal handler. Return addresses are signed,
/// in the link register and in the frame record. The trampoline is the kernel's, with its record
/// behind a `siginfo_t` (asm/sigcontext.h).
#[test]
fn aarch64_without_a_table() {
    const CODE: u64 = 0xaaaa_0000_1000;
    const STACK: u64 = 0xffff_0000_2000;
    let signed = |address: u64| address | 0x2a << 48;
    let bytes = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
    // nop; mov x8, #139; svc #0
    let code: Vec<u8> = [0xd503_201f_u32, 0xd280_1168, 0xd400_0001]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    let frame_record = [STACK + 0x1000, signed(CODE + 4)];
    // The context's registers: x0 to x30, sp, pc.
    let saved: Vec<u64> = (1000..1031).chain([STACK + 0x2000, 5]).collect();
    let stack = [&frame_record[..], &[0; 16 + 23], &saved].concat();
    let mut registers = [0; 34];
    (registers[29], registers[30], registers[31]) = (STACK, signed(CODE + 0x100), STACK);
    let mask = [0x007f_u64 << 48; 2].map(u64::to_le_bytes).concat();
    let segments = [
        notes(&[
            prstatus_of(7, registers.into_iter()),
            note("LINUX", 0x406, &mask),
        ]),
        TestSegment {
            flags: 5,
            ..load(CODE, 0x1000, &code)
        },
        load(STACK, 0x4000, &bytes(&stack)),
    ];
    let core = Core::from_bytes(core(AARCH64, &segments, false)).unwrap();
    let store = Store::from_environment().without_cache();
    let search = FileSearch::default();
    let files = CoreFiles::new(&core, &search).unwrap();
    let unwinder = SnapshotUnwinder::with_files(&core, &files, &store);
    let stack = unwinder
        .walk(&core.threads()[0], 9, WalkDetail::Registers)
        .unwrap();
    let found: Vec<_> = stack
        .frames
        .iter()
        .map(|frame| (frame.code, frame.step.map(|step| step.evidence)))
        .collect();
    let address = |at: u64| RuntimeAddr(CODE + at);
    let expected = [
        (CodeAddr::Instruction(RuntimeAddr(0)), None),
        (CodeAddr::Return(address(0x100)), Some(Evidence::BadCall)),
        (
            CodeAddr::Instruction(address(4)),
            Some(Evidence::FramePointer),
        ),
        (
            CodeAddr::Instruction(RuntimeAddr(5)),
            Some(Evidence::SignalTrampoline),
        ),
    ];
    assert_eq!(found, expected, "{:?}", stack.end);
    let interrupted = stack.frames[3].registers.as_ref().unwrap();
    let found: Vec<_> = (0..33)
        .map(|n| interrupted.get(Register(n)).unwrap())
        .collect();
    assert_eq!(found, saved);
}

#[test]
fn more_segments_than_the_header_can_count() {
    let mut segments = vec![notes(&[prstatus(1, 27)])];
    for number in 0..70_000_u64 {
        segments.push(load(0x1000 * (number + 1), 0x1000, &number.to_le_bytes()));
    }
    let whole = core(X86_64, &segments, true);
    let core = Core::from_bytes(whole.clone()).unwrap();
    assert_eq!(core.problems(), []);
    assert_eq!(
        read(&core, 0x1000 * 70_000, 8),
        Ok(69_999_u64.to_le_bytes().to_vec())
    );
    assert_eq!(core.mappings().as_slice().len(), 70_000);
    // Section header 0 is past the end of a truncated file.
    let cut = Core::from_bytes(whole[..64 + 56 * 66_000].to_vec()).unwrap();
    assert!(matches!(cut.problems()[0], CoreProblem::HeaderCount { .. }));
    // A number far too great costs nothing.
    let mut wild = whole;
    let info = 64 + 56 * segments.len() + 44;
    wild[info..info + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let core = Core::from_bytes(wild).unwrap();
    let declared = u32::MAX;
    assert!(core.problems().iter().any(
        |problem| matches!(problem, CoreProblem::ProgramHeaders { declared: d, .. } if *d == declared)
    ));
}

#[test]
fn reasons_for_unreadable_memory() {
    let segments = [
        load(0x1000, 0x100, &[1; 0x80]),
        load(0x1100, 0x40, &[2; 0x40]),
    ];
    let whole = core(X86_64, &segments, false);
    let full = Core::from_bytes(whole.clone()).unwrap();
    assert_eq!(read(&full, 0x107f, 1), Ok(vec![1]));
    assert_eq!(read(&full, 0x107f, 2), Err(UnreadableReason::NotRecorded));
    assert_eq!(read(&full, 0x1100, 0x40), Ok(vec![2; 0x40]));
    assert_eq!(read(&full, 0x1100, 0x41), Err(UnreadableReason::Unmapped));
    assert_eq!(read(&full, 0x1000, 0), Ok(vec![]));
    let cut = Core::from_bytes(whole[..whole.len() - 0x20].to_vec()).unwrap();
    assert_eq!(read(&cut, 0x1100, 0x20), Ok(vec![2; 0x20]));
    assert_eq!(read(&cut, 0x1100, 0x21), Err(UnreadableReason::Truncated));
}

#[test]
fn a_read_may_go_over_several_segments() {
    let segments = [load(0x2000, 4, b"efgh"), load(0x1ffc, 4, b"abcd")];
    let core = Core::from_bytes(core(X86_64, &segments, false)).unwrap();
    assert_eq!(read(&core, 0x1ffd, 6), Ok(b"bcdefg".to_vec()));
}

#[test]
fn overlapping_and_impossible_segments() {
    let segments = [
        load(0x1000, 8, b"abcdefgh"),
        load(0x1004, 8, b"12345678"),
        load(0x1002, 2, b"xy"),
        load(u64::MAX - 3, 100, b"z"),
    ];
    let core = Core::from_bytes(core(X86_64, &segments, false)).unwrap();
    assert_eq!(read(&core, 0x1000, 12), Ok(b"abcdefgh5678".to_vec()));
    let overlaps = core
        .problems()
        .iter()
        .filter(|problem| matches!(problem, CoreProblem::Overlap { .. }));
    assert_eq!(overlaps.count(), 2);
    assert!(core.problems().contains(&CoreProblem::SegmentSize {
        vaddr: u64::MAX - 3
    }));
}

#[test]
fn a_bad_note_is_reported_with_its_place_and_the_rest_is_read() {
    let bad = note("CORE", 1, &[7; 100]);
    let foreign = note("VENDOR", 1, &[1, 2, 3]);
    let segment = notes(&[prstatus(1, 27), bad, foreign, prstatus(3, 27)]);
    let core = Core::from_bytes(core(X86_64, &[segment], false)).unwrap();
    let tids: Vec<u32> = core.threads().iter().map(|thread| thread.tid).collect();
    assert_eq!(tids, [1, 0x0707_0707, 3]);
    assert!(matches!(
        core.threads()[1].registers,
        Err(NoRegisters::Size { expected: 216, .. })
    ));
    let start = 64 + 56 + 64;
    let offset = start + size(&prstatus(1, 27));
    let problem = CoreProblem::BadNote {
        offset,
        kind: "NT_PRSTATUS",
        found: 100,
        expected: 336,
    };
    assert_eq!(core.problems(), [problem]);
}

#[test]
fn mapped_files() {
    let whole = nt_file(
        2,
        4096,
        &[[0x10000, 0x12000, 3], [0x14000, 0x15000, 0]],
        b"/a b\nc\0/lib/x.so (deleted)\0",
    );
    let segments = [
        notes(&[prstatus(1, 27), whole]),
        load(0x10000, 0x5000, b""),
        load(0x20000, 0x1000, b""),
    ];
    let core = Core::from_bytes(core(X86_64, &segments, false)).unwrap();
    let mappings: Vec<_> = core
        .mappings()
        .iter()
        .map(|m| (m.start.0, m.end.0, m.offset, m.name.clone(), m.deleted))
        .collect();
    let expected = [
        (0x10000, 0x12000, 0x3000, Some("/a b\nc".into()), false),
        (0x12000, 0x14000, 0, None, false),
        (0x14000, 0x15000, 0, Some("/lib/x.so".into()), true),
        (0x20000, 0x21000, 0, None, false),
    ];
    assert_eq!(mappings, expected);
    assert!(
        core.mappings()
            .iter()
            .all(|mapping| mapping.permissions.write)
    );
}

#[test]
fn an_nt_file_with_a_wild_count_is_an_error_not_an_allocation() {
    for (count, entries, names) in [
        (u64::MAX, vec![[1, 2, 0]], &b"/a\0"[..]),
        (1 << 40, vec![], b""),
        (3, vec![[0x1000, 0x2000, 0]; 3], b"/a\0/b"),
    ] {
        let segment = notes(&[nt_file(count, 4096, &entries, names), prstatus(1, 27)]);
        let core = Core::from_bytes(core(X86_64, &[segment], false)).unwrap();
        assert_eq!(core.threads().len(), 1);
        assert!(matches!(
            core.problems()[..],
            [CoreProblem::BadNote {
                kind: "NT_FILE",
                ..
            }]
        ));
    }
}

#[test]
fn the_same_notes_named_by_many_segments_are_not_read_again_and_again() {
    let segments = [notes(&[prstatus(1, 27)])];
    let mut bytes = core(X86_64, &segments, false);
    let header = bytes[64..120].to_vec();
    // 60,000 program headers in front of the data, all for the one segment.
    let shift = u64::try_from(56 * 59_999).unwrap();
    let offset = u64::from_le_bytes(header[8..16].try_into().unwrap()) + shift;
    let mut copy = header;
    copy[8..16].copy_from_slice(&offset.to_le_bytes());
    bytes.splice(64..120, copy.repeat(60_000));
    bytes[56..58].copy_from_slice(&60_000_u16.to_le_bytes());
    let core = Core::from_bytes(bytes.clone()).unwrap();
    assert!(core.threads().len() <= bytes.len() / 336);
}

#[test]
fn headers_of_other_kinds_are_refused_by_name() {
    let segments = [notes(&[])];
    let whole = core(X86_64, &segments, false);
    let with = |at: usize, value: u8| {
        let mut bytes = whole.clone();
        bytes[at] = value;
        Core::from_bytes(bytes).unwrap_err()
    };
    assert!(matches!(with(0, 0), CoreError::NotElf));
    assert!(matches!(with(4, 1), CoreError::Class { class: 1 }));
    assert!(matches!(with(5, 2), CoreError::Encoding { encoding: 2 }));
    assert!(matches!(with(16, 3), CoreError::NotCore { found: 3 }));
    assert!(matches!(with(18, 20), CoreError::Machine { machine: 20 }));
    assert!(matches!(
        with(54, 32),
        CoreError::ProgramHeaderSize { found: 32 }
    ));
    let core = Core::from_bytes(whole).unwrap();
    assert_eq!(core.problems(), [CoreProblem::NoThreads]);
}
