//! Addresses looked up by a program and by this process.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::Ordering;

use object::{Object as _, ObjectSegment as _, SegmentFlags, elf};
use proptest::prelude::{ProptestConfig, any};
use proptest::test_runner::TestRunner;
use unspool_bpf::insn::{AluOp, Cond, Reg, Size};
use unspool_bpf::{Arena, Assembler, ProgType, Program, Subprog};
use unspool_bpf_walk::{
    ArenaWriteError, IS_FIRST_OF_PIECE, IS_LAST_OF_PIECE, ModuleMapping, TableImage,
    lookup_mapping, lookup_row, write_mappings,
};
use unspool_compiled_table::{CompiledTable, ExecutableCode, ModuleKey, encode, layout};
use unspool_rows::{Abi, Arch, Endian, LoadBias, RuntimeAddr, Table, Vaddr};

use crate::generate::{Choices, table_and_code};

use Reg::{R0, R1, R2, R3, R6, R7, R8, R9};
use Size::DW;

/// The number of addresses in one run of a program.
const BATCH: usize = 4096;
/// The offsets in the arena: of these addresses, their rows, and the table.
const ADDRESSES: usize = 64;
const ROWS: usize = ADDRESSES + BATCH * 8;
const TABLE: usize = ROWS + BATCH * 8;

pub(crate) const X86_64: Abi = Abi {
    arch: Arch::X86_64,
    endian: Endian::Little,
};

/// An arena, and programs that look up in it.
struct Lookups {
    arena: Arena,
    rows: Program,
    mappings: Program,
}

impl Lookups {
    fn new() -> Lookups {
        let arena = Arena::new(64 << 20).unwrap_or_else(|error| panic!("{error}"));
        Lookups {
            rows: batch(&arena, "rows", lookup_row),
            mappings: batch(&arena, "mappings", lookup_mapping),
            arena,
        }
    }

    /// Writes a table to the arena, and returns its record. `None` if the bytes are not a table.
    fn write_table(&self, table: &[u8]) -> Option<u64> {
        let image = TableImage::new(table).ok()?;
        Some(image.write(&self.arena, TABLE).unwrap().address())
    }

    /// A program's results for addresses.
    fn run(&self, program: &Program, record: u64, addresses: &[u64]) -> Vec<u64> {
        let batches = addresses.chunks(BATCH);
        let results = batches.flat_map(|batch| {
            let bytes: Vec<u8> = batch.iter().flat_map(|it| it.to_le_bytes()).collect();
            self.arena.write(ADDRESSES, &bytes).unwrap();
            self.arena.write(ROWS, &vec![0xff; bytes.len()]).unwrap();
            let start = self.arena.address();
            let ctx = [
                record,
                start + ADDRESSES as u64,
                start + ROWS as u64,
                batch.len() as u64,
            ];
            let mut ctx: Vec<u8> = ctx.iter().flat_map(|it| it.to_le_bytes()).collect();
            assert_eq!(program.test_run(&mut ctx).unwrap(), 0);
            let word = |n| self.arena.word(ROWS + n * 8).unwrap();
            let rows = (0..batch.len()).map(move |n| word(n).load(Ordering::Acquire));
            rows.collect::<Vec<u64>>()
        });
        results.collect()
    }

    /// Compares all look-ups of some addresses.
    fn check(&self, source: &Table, code: &ExecutableCode<'_>, addresses: &[u64]) {
        let table = compile(source, code);
        let compiled = CompiledTable::open(&table).unwrap();
        let record = self.write_table(&table).unwrap();
        let rows = self.run(&self.rows, record, addresses);
        for (address, row) in addresses.iter().zip(rows) {
            let pc = Vaddr(*address);
            let hit = compiled.lookup(pc).unwrap();
            let number = row & (IS_FIRST_OF_PIECE as u64 - 1);
            assert_eq!(
                number,
                result(hit.map(|hit| hit.row.0)),
                "row at {address:#x}"
            );
            // An entry begins and ends with a piece. Long ones have several.
            if let Some(entry) = compiled.entry(pc).unwrap() {
                let has = |flag: i32| row & u64::from(flag.unsigned_abs()) != 0;
                let (first, last) = (has(IS_FIRST_OF_PIECE), has(IS_LAST_OF_PIECE));
                assert!(first || pc != entry.start, "start {address:#x}");
                assert!(last || pc.0 + 1 != entry.end.0, "end {address:#x}");
            }
        }
    }
}

/// A program's result for a row.
fn result(row: Option<u16>) -> u64 {
    row.map_or(0, |row| u64::from(row) + 1)
}

/// A program that calls a look-up for many addresses. Its context has four words: the table's
/// record, the addresses' address, the results' address, and the number of addresses.
fn batch(arena: &Arena, name: &str, subprog: fn(&mut Assembler<'_>) -> Subprog) -> Program {
    let mut asm = Assembler::new(name);
    let out = asm.new_label();
    // A program must load the address of its arena.
    asm.ld_map_value(R2, arena, 0);
    for (register, offset) in [(R6, 0), (R7, 8), (R8, 16), (R9, 24)] {
        asm.ldx(DW, register, R1, offset);
    }
    let look_up = subprog(&mut asm);
    let again = asm.bind_new_label();
    asm.may_goto(out);
    asm.jmp(Cond::Eq, R9, 0, out);
    asm.cast_kern(R3, R7);
    asm.mov64(R1, R6);
    asm.ldx(DW, R2, R3, 0);
    asm.call_subprog(look_up);
    asm.cast_kern(R1, R8);
    asm.st(DW, R1, 0, R0);
    asm.alu64(AluOp::Add, R7, 8);
    asm.alu64(AluOp::Add, R8, 8);
    asm.alu64(AluOp::Sub, R9, 1);
    asm.ja(again);
    asm.bind(out);
    asm.mov64(R0, 0);
    asm.exit();
    let code = asm.finish().unwrap();
    Program::load(&code, ProgType::Syscall).unwrap_or_else(|error| panic!("{error}\n{code}"))
}

/// Both sides of each address at which a table's row changes, the ends of pages, and addresses in
/// between.
fn addresses(table: &Table) -> Vec<u64> {
    let mut all = BTreeSet::from([0, u64::MAX]);
    for span in table.spans() {
        let (start, end) = (span.start.0, span.end.0);
        let page = end - end % 0x1_0000;
        all.extend([start, start + (end - start) / 2]);
        for bound in [start, end, page, page.wrapping_add(0x1_0000)] {
            all.extend([bound.wrapping_sub(1), bound]);
        }
    }
    all.into_iter().collect()
}

pub(crate) fn compile(table: &Table, code: &ExecutableCode<'_>) -> Vec<u8> {
    let key = ModuleKey {
        build_id: &[],
        content: &[0; 20],
    };
    let calls = code.call_addresses(table.abi().arch);
    encode(table, key, code, &calls).unwrap().bytes
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn generated_tables() {
    let lookups = Lookups::new();
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let choices = proptest::collection::vec(any::<u8>(), 0..400);
    let result = runner.run(&choices, |bytes| {
        let generated = table_and_code(&mut Choices::new(&bytes));
        let mut addresses = addresses(&generated.table);
        for (start, code) in &generated.ranges {
            addresses.extend(*start..start.saturating_add(code.len() as u64));
        }
        lookups.check(&generated.table, &generated.code(), &addresses);
        Ok(())
    });
    result.unwrap();
}

/// Compares all look-ups in a file's table. Returns the number of addresses.
fn check_file(lookups: &Lookups, path: &str) -> usize {
    let path = unspool_testing::packages::path(path).unwrap();
    let data = fs::read(path).unwrap();
    let units = xtask::elf::units(&data).unwrap();
    let [unit] = &units[..] else {
        panic!("one file");
    };
    let section = &unit.sections[0];
    let table = unspool_cfi::read_table(&unit.section(section)).table;
    let file = object::File::parse(&*data).unwrap();
    let segments = file.segments().filter(|segment| match segment.flags() {
        SegmentFlags::Elf { p_flags, .. } => p_flags & elf::PF_X == elf::PF_X,
        _ => false,
    });
    let ranges = segments.map(|segment| (Vaddr(segment.address()), segment.data().unwrap()));
    let code = ExecutableCode {
        ranges: ranges.collect(),
    };
    let mut addresses = addresses(&table);
    addresses.extend(code.call_addresses(unit.abi.arch).iter().map(|it| it.0));
    lookups.check(&table, &code, &addresses);
    addresses.len()
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn tables_of_files() {
    let lookups = Lookups::new();
    for (file, min_addresses) in [
        ("/lib/x86_64-linux-gnu/libc.so.6", 50_000),
        ("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 50_000),
        ("/usr/bin/gdb", 200_000),
    ] {
        let addresses = check_file(&lookups, file);
        assert!(addresses > min_addresses, "{file}: {addresses}");
    }
}

/// Untouched memory reads as 0: a table without rows, a list without mappings.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn untouched_memory_has_no_rows_and_no_mappings() {
    let lookups = Lookups::new();
    let record = lookups.arena.address() + (32 << 20);
    for program in [&lookups.rows, &lookups.mappings] {
        assert_eq!(lookups.run(program, record, &[0, 1, 0x1000]), [0, 0, 0]);
    }
}

/// A program ends with any bytes.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn programs_end_with_damaged_tables() {
    let lookups = Lookups::new();
    let generated = table_and_code(&mut Choices::new(&[9; 300]));
    let table = compile(&generated.table, &generated.code());
    let addresses = addresses(&generated.table);
    for byte in layout::HEADER..table.len() {
        let mut damaged = table.clone();
        damaged[byte] ^= 0xff;
        if let Some(record) = lookups.write_table(&damaged) {
            let rows = lookups.run(&lookups.rows, record, &addresses);
            assert!(
                rows.iter().all(|row| *row & 0x1_ffff <= 0x1_0000),
                "{rows:?}"
            );
        }
    }
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn tables_that_do_not_fit_are_errors() {
    let arena = Arena::new(4096).unwrap_or_else(|error| panic!("{error}"));
    let table = compile(&Table::new(X86_64), &ExecutableCode::default());
    let image = TableImage::new(&table).unwrap();
    let error = image.write(&arena, 4096 - 32).unwrap_err();
    let end = 4096;
    assert!(
        matches!(error, ArenaWriteError::NoRoom { offset: 4064, end: at, .. } if at == end),
        "{error}"
    );
    let rest = arena.read(4064, 32).unwrap();
    assert_eq!(rest, [0; 32], "nothing was written");
    TableImage::new(b"not a table").unwrap_err();
}

/// A mapping of `size` bytes.
fn test_mapping(start: u64, size: u64) -> ModuleMapping {
    ModuleMapping {
        start: RuntimeAddr(start),
        end: RuntimeAddr(start + size),
        bias: LoadBias(start),
        record: 0,
    }
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn an_address_is_found_among_mappings() {
    let lookups = Lookups::new();
    for count in [0, 1, 2, 3, 7, 64, 1000] {
        // Some are adjacent, others are not.
        let mut next = 0x5555_0000_0000;
        let mappings: Vec<ModuleMapping> = (0..count)
            .map(|number| {
                let mapping = test_mapping(next, 0x1000 * (number % 5 + 1));
                next = mapping.end.0 + 0x1000 * (number % 3);
                mapping
            })
            .collect();
        let record = write_mappings(&lookups.arena, TABLE, &mappings).unwrap();
        let bounds = mappings.iter().flat_map(|it| [it.start.0, it.end.0]);
        let mut addresses: Vec<u64> = bounds.flat_map(|at| [at - 1, at, at + 1]).collect();
        addresses.extend([0, 1, next + 0x10_0000, (1 << 56) - 1]);
        let results = lookups.run(&lookups.mappings, record.address(), &addresses);
        for (address, result) in addresses.iter().zip(results) {
            let range = |it: &ModuleMapping| it.start.0..it.end.0;
            let expected = mappings.iter().position(|it| range(it).contains(address));
            // A mapping has 32 bytes. The header has 8.
            let expected = expected.map_or(0, |n| record.address() + 8 + n as u64 * 32);
            assert_eq!(result, expected, "{address:#x} among {count}");
        }
    }
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn a_list_of_mappings_ascends() {
    let arena = Arena::new(4096).unwrap_or_else(|error| panic!("{error}"));
    let (low, high) = (test_mapping(0x1000, 0x2000), test_mapping(0x2000, 0x1000));
    for wrong in [
        vec![high, low],
        vec![low, high],
        vec![test_mapping(0x1000, 0)],
    ] {
        let error = write_mappings(&arena, 64, &wrong).unwrap_err();
        assert_eq!(error, ArenaWriteError::UnsortedMappings { offset: 64 });
    }
    let many: Vec<ModuleMapping> = (1..200).map(|n| test_mapping(n << 12, 0x1000)).collect();
    let error = write_mappings(&arena, 64, &many).unwrap_err();
    assert!(
        matches!(error, ArenaWriteError::NoRoom { offset: 64, .. }),
        "{error}"
    );
}
