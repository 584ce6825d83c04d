//! The defects of the system that this project starts from (frdwarf, 2018 and 2019), each as a test
//! that it would fail: its compiler, its table look-up, and its steps from frame to frame.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use unspool_compiled_table::{CompiledTable, ExecutableCode, ModuleKey, encode};
use unspool_elf::ElfFile;
use unspool_process::Process;
use unspool_rows::{
    Abi, CodeAddr, LoadBias, Memory, Register, Registers, Row, RuntimeAddr, Table, Unreadable,
    Vaddr, text,
};
use unspool_table_store::{self as tables, Store, TableSource};
use unspool_testing::{Finish, command, tool};
use unspool_unwind::{Cursor, End, Evidence, Module, Modules, NoRow, RowRules, Step};

const RBX: Register = Register(3);
const RSP: Register = Register(7);
const RIP: Register = Register(16);

fn table(rows: &str) -> Table {
    text::parse(&format!("arch x86-64 little\n{rows}")).unwrap()
}

fn compiled(table: &Table) -> Vec<u8> {
    encode(
        table,
        ModuleKey {
            build_id: &[1; 20],
            content: &[0; 20],
        },
        &ExecutableCode::default(),
        &[],
    )
    .unwrap()
    .bytes
}

fn row_at<'t>(bytes: &'t [u8], pc: u64) -> Option<Row<'t>> {
    let compiled: CompiledTable<'t> = CompiledTable::open(bytes).unwrap();
    compiled.row_at(Vaddr(pc)).unwrap()
}

/// A stack of words at [`STACK`], and one module per table, loaded at its link-time address.
struct StackFixture {
    stack: Vec<u64>,
    modules: Vec<(u64, u64, Option<Vec<u8>>)>,
}

const STACK: u64 = 0x7000;

impl Memory for StackFixture {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let bytes: Vec<u8> = self
            .stack
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let at = addr
            .0
            .checked_sub(STACK)
            .and_then(|at| usize::try_from(at).ok());
        let found = at.and_then(|at| bytes.get(at..at + into.len()));
        into.copy_from_slice(found.ok_or(Unreadable::unmapped(addr))?);
        Ok(())
    }
}

/// Opens a table for the rest of the test.
fn opened(bytes: &[u8]) -> &'static CompiledTable<'static> {
    let bytes = bytes.to_vec().leak();
    Box::leak(Box::new(CompiledTable::open(bytes).unwrap()))
}

impl Modules for StackFixture {
    fn module(&self, addr: RuntimeAddr) -> Option<Module<'_>> {
        let inside = |(start, end, _): &&(u64, u64, _)| (*start..*end).contains(&addr.0);
        let (_, _, table) = self.modules.iter().find(inside)?;
        Some(Module {
            slot: None,
            bias: LoadBias(0),
            entry: None,
            compiled: table.as_deref().map(opened),
            rules: RowRules::default(),
            code: None,
            cfi: None,
            sframe: None,
            entry_cache: None,
            synthesized: None,
            native: None,
        })
    }

    fn is_code(&self, addr: RuntimeAddr) -> bool {
        self.module(addr).is_some()
    }
}

fn cursor(pc: u64, sp: u64) -> Cursor {
    let mut registers = Registers::new();
    registers.set(RIP, pc);
    registers.set(RSP, sp);
    Cursor::new(Abi::X86_64, registers).unwrap()
}

/// 1: with `--keep-holes` entries were never sorted, but the look-up searched as if they were.
#[test]
fn entries_out_of_order_are_found() {
    let bytes = compiled(&table(
        "fn 0x3000..0x3010\n 0x3000 cfa=rsp+24\nfn 0x1000..0x1010\n 0x1000 cfa=rsp+8\n\
         fn 0x2000..0x2010\n 0x2000 cfa=rsp+16\n",
    ));
    for (pc, offset) in [(0x1008, 8), (0x2008, 16), (0x3008, 24)] {
        let expected = unspool_rows::CfaRule::RegisterOffset {
            register: RSP,
            offset,
        };
        assert_eq!(row_at(&bytes, pc).unwrap().cfa, expected);
    }
}

/// 2: an entry was assumed to extend to the next one, so holes were unwound by its last row.
#[test]
fn holes_between_entries_stay_holes() {
    let bytes = compiled(&table(
        "fn 0x1000..0x1010\n 0x1000 cfa=rsp+8\nfn 0x1020..0x1030\n 0x1020 cfa=rsp+16\n",
    ));
    assert!(row_at(&bytes, 0x100f).is_some());
    for hole in [0x1010, 0x101f, 0x1030] {
        assert_eq!(row_at(&bytes, hole), None);
    }
}

/// 3: equal rows were shared only if their addresses were equal too, which they never are.
#[test]
fn equal_neighbours_are_one_row() {
    let table =
        table("fn 0x1000..0x1030\n 0x1000 cfa=rsp+8\n 0x1010 cfa=rsp+8\n 0x1020 cfa=rsp+16\n");
    assert_eq!(table.spans().count(), 2);
}

/// 4: expressions were refused, except one with built-in bytes.
#[test]
fn expressions_have_values() {
    // The PLT row of a linker that pushes at another offset than the built-in one.
    let plt = "fn 0x1000..0x1020\n 0x1000 cfa={breg7 8; breg16 0; lit15; and; lit9; ge; lit3; \
               shl; plus} ra=[cfa-8]\n";
    let world = StackFixture {
        stack: vec![0, 0x1111, 0x2222],
        modules: vec![(0x1000, 0x2000, Some(compiled(&table(plt))))],
    };
    for (pc, caller) in [(0x1008, 0x1111), (0x1009, 0x2222)] {
        let mut cursor = cursor(pc, STACK + 8);
        assert!(matches!(cursor.step(&world, &world), Step::Caller(_)));
        assert_eq!(cursor.code(), CodeAddr::Return(RuntimeAddr(caller)));
    }
}

/// 5: return addresses were looked up unchanged. After a call that ends a function because it never
/// returns, that is the next function.
#[test]
fn a_return_address_belongs_to_the_function_that_called() {
    let rows = "fn 0x1000..0x1010\n 0x1000 cfa=rsp+32 ra=[cfa-8]\n\
                fn 0x1010..0x1020\n 0x1010 cfa=rsp+8 ra=[cfa-8]\n\
                fn 0x1100..0x1110\n 0x1100 cfa=rsp+8 ra=[cfa-8]\n";
    let world = StackFixture {
        stack: vec![0x1010, 1, 2, 3, 0x1105],
        modules: vec![(0x1000, 0x2000, Some(compiled(&table(rows))))],
    };
    let mut cursor = cursor(0x1100, STACK);
    assert!(matches!(cursor.step(&world, &world), Step::Caller(_)));
    assert_eq!(cursor.code(), CodeAddr::Return(RuntimeAddr(0x1010)));
    let Step::Caller(found) = cursor.step(&world, &world) else {
        panic!("no caller")
    };
    assert_eq!(found.cfa, RuntimeAddr(STACK + 8 + 32));
    assert_eq!(cursor.code(), CodeAddr::Return(RuntimeAddr(0x1105)));
}

/// 6: every inspection of a process left a descriptor open, until none were left.
#[test]
fn looking_often_leaves_nothing_open() {
    let mut child = command("sleep")
        .arg("60")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let look = || drop(Process::attach(child.id()).unwrap());
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    look();
    let before = open();
    (0..50).for_each(|_| look());
    let after = open();
    child.kill().unwrap();
    child.wait().unwrap();
    // Other tests of this program run in parallel and have a few files open.
    assert!(
        after < before + 40,
        "{before} descriptors before, {after} after 50 looks"
    );
}

/// 7: one module without a table made all look-ups fail, forever and silently.
#[test]
fn a_module_without_a_table_spoils_no_other() {
    let rows = "fn 0x1000..0x1010\n 0x1000 cfa=rsp+8 ra=[cfa-8]\n";
    let world = StackFixture {
        stack: vec![0x5005, 7],
        modules: vec![
            (0x5000, 0x6000, None),
            (0x1000, 0x2000, Some(compiled(&table(rows)))),
        ],
    };
    let mut cursor = cursor(0x1000, STACK);
    let Step::Caller(found) = cursor.step(&world, &world) else {
        panic!("no caller")
    };
    assert_eq!(found.evidence, Evidence::Cfi);
    let Step::End(end) = cursor.step(&world, &world) else {
        panic!("a caller from nowhere")
    };
    assert_eq!(end, End::NoRow(NoRow::NoTable));
    assert!(!end.is_root());
}

/// 8: tables were found by base name, so a table of another build could be used.
#[test]
fn a_table_is_found_by_build_id_not_by_name() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("origin-build-id");
    let _ = fs::remove_dir_all(&folder);
    let store = Store::new(None, Some(OsString::from(folder.join("cache"))), None);
    let build = |sub: &str, id: &str| -> PathBuf {
        let out = folder.join(sub);
        fs::create_dir_all(&out).unwrap();
        fs::write(out.join("a.c"), "int answer(void) { return 42; }").unwrap();
        tool("gcc")
            .args(["-shared", "-fPIC", &format!("-Wl,--build-id=0x{id}"), "-o"])
            .arg(out.join("liba.so"))
            .arg(out.join("a.c"))
            .succeed();
        out.join("liba.so")
    };
    let first = ElfFile::open(build("one", &"11".repeat(20))).unwrap();
    let second = ElfFile::open(build("two", &"22".repeat(20))).unwrap();
    let made = tables::compile(&first, TableSource::Auto).unwrap();
    store
        .keep(&store.stable(&first), &made.encoded.bytes)
        .unwrap();
    let mut notices = Vec::new();
    assert!(store.find(&first, &mut notices).is_some());
    assert!(store.find(&second, &mut notices).is_none());
    assert!(notices.is_empty(), "{notices:?}");
}

/// 9: signal frames were not recognized: the interrupted frame was looked up one byte too early,
/// and registers of failed reads were returned unchecked.
#[test]
fn an_interrupted_frame_stands_at_its_instruction() {
    let rows = "fn 0x1000..0x1010\n 0x1000 cfa=rsp+16 signal ra=[cfa-16] rbx=[cfa+4096]\n\
                fn 0x1020..0x1030\n 0x1020 cfa=rsp+8 ra=[cfa-8]\n";
    let world = StackFixture {
        stack: vec![0x1020, 0, 0x4444],
        modules: vec![(0x1000, 0x2000, Some(compiled(&table(rows))))],
    };
    let mut cursor = cursor(0x1004, STACK);
    let Step::Caller(found) = cursor.step(&world, &world) else {
        panic!("no caller")
    };
    assert!(found.signal_frame);
    // The first instruction of a function: one byte earlier there is a hole.
    assert_eq!(cursor.code(), CodeAddr::Instruction(RuntimeAddr(0x1020)));
    assert_eq!(
        cursor.registers().get(RBX),
        None,
        "its place cannot be read"
    );
    assert!(matches!(cursor.step(&world, &world), Step::Caller(_)));
}
