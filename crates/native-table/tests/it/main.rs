//! Code against the interpreter: at both ends of each row range of real files, and for each
//! operation of expressions, in random frames. A driver in C loads the objects and calls them.
#![cfg(test)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use unspool_elf::ElfFile;
use unspool_native_table::proof::prove;
use unspool_native_table::{BodyStart, ModuleKey, ObjectView, Outline};
use unspool_rows::interpret::{self, FrameContext, RegisterError, StepError};
use unspool_rows::memory::UnreadableReason;
use unspool_rows::{
    LoadBias, Memory, Register, Registers, Row, RuntimeAddr, Table, Unreadable, expression, text,
};
use unspool_table_store::{self as tables, TableSource};
use unspool_testing::{Finish as _, command, tool};

type Outcome<T> = Result<T, xtask::Error>;

const STACK: u64 = 0x6000_0000_0000;
const STACK_BYTES: u64 = 0x1_0000;
const FAR: u64 = 0x70_0000_0000;
const FAR_BYTES: u64 = 0x1_0000;
const BIAS: u64 = 0x5555_0000_0000;

/// The memory of the driver.
struct DriverMemory {
    stack: Vec<u8>,
}

impl DriverMemory {
    fn new(random: &mut Xorshift) -> DriverMemory {
        let mut stack = Vec::new();
        while (stack.len() as u64) < STACK_BYTES {
            // Plausible addresses, now and then.
            stack.extend(random.value().to_le_bytes());
        }
        DriverMemory { stack }
    }
}

impl Memory for DriverMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let size = into.len() as u64;
        let unreadable = Unreadable {
            addr,
            reason: UnreadableReason::Unmapped,
        };
        let within = |start: u64, len: u64| {
            let distance = addr.0.checked_sub(start)?;
            (distance < len && len - distance >= size).then_some(distance)
        };
        if let Some(distance) = within(STACK, STACK_BYTES) {
            let at = usize::try_from(distance).map_err(|_| unreadable)?;
            let bytes = self.stack.get(at..at + into.len()).ok_or(unreadable)?;
            into.copy_from_slice(bytes);
            return Ok(());
        }
        within(FAR, FAR_BYTES).ok_or(unreadable)?;
        for (byte, address) in into.iter_mut().zip(addr.0..) {
            let [low, ..] = (address.wrapping_mul(167) >> 3).to_le_bytes();
            *byte = low;
        }
        Ok(())
    }
}

/// Pseudo-random numbers, the same in each run.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A value for a register or a word of memory: an address of the stack or of memory that only
    /// the callback reads, also near their ends; a small number; or any.
    fn value(&mut self) -> u64 {
        let number = self.next() >> 8;
        match self.next() % 8 {
            0..=3 => STACK + number % STACK_BYTES,
            4 => STACK + STACK_BYTES - number % 64,
            5 => FAR + number % FAR_BYTES,
            6 => number % 70,
            _ => self.next(),
        }
    }

    fn frame(&mut self) -> Registers {
        let mut registers = Registers::new();
        for number in 0..Outline::REGISTERS {
            let value = self.value();
            if !self.next().is_multiple_of(16) {
                registers.set(Register(number), value);
            }
        }
        registers
    }
}

/// A frame after a step, in the header's form.
#[derive(Debug, PartialEq, Eq)]
struct StepOutput {
    status: i64,
    registers: BTreeMap<u16, u64>,
    cfa: Option<u64>,
}

fn expected(
    row: Option<&Row<'_>>,
    registers: &Registers,
    memory: &DriverMemory,
    table: &Table,
) -> StepOutput {
    let frame = FrameContext {
        abi: table.abi(),
        registers,
        memory,
        bias: LoadBias(BIAS),
        pac_mask: 0,
    };
    let known = |registers: &Registers| {
        let known = registers
            .iter()
            .filter(|(register, _)| *register < Register(Outline::REGISTERS));
        known.map(|(register, value)| (register.0, value)).collect()
    };
    let unchanged = |status| StepOutput {
        status,
        registers: known(registers),
        cfa: None,
    };
    let Some(row) = row else {
        return unchanged(-1);
    };
    match interpret::step(row, &frame) {
        Ok(caller) if caller.return_address.is_none() => StepOutput {
            cfa: Some(caller.cfa.0),
            ..unchanged(2)
        },
        Ok(caller) => StepOutput {
            status: row.signal_frame.into(),
            registers: known(&caller.registers),
            cfa: Some(caller.cfa.0),
        },
        Err(error) => unchanged(status(error)),
    }
}

fn status(error: StepError) -> i64 {
    use expression::ExpressionError;
    let of_expression = |error| match error {
        ExpressionError::UnknownRegister(_) => -3,
        ExpressionError::Unreadable(_) => -4,
        ExpressionError::DivisionByZero { .. } => -5,
        _ => -6,
    };
    match error {
        StepError::NoCfa | StepError::NoReturnAddress => -2,
        StepError::UnknownCfaRegister(_) | StepError::UnknownReturnAddress => -3,
        StepError::ReturnAddress(RegisterError::Unreadable(_)) => -4,
        StepError::CfaExpression(error)
        | StepError::ReturnAddress(RegisterError::Expression(error)) => of_expression(error),
        other => panic!("{other}"),
    }
}

/// The driver and the objects that it loads.
struct ObjectDriver {
    folder: TempDir,
}

impl ObjectDriver {
    fn new() -> Outcome<ObjectDriver> {
        let bench = ObjectDriver {
            folder: tempfile::tempdir()?,
        };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/driver.c");
        bench.compile("gcc", &["-O1"], &source, "driver")?;
        Ok(bench)
    }

    fn compile(
        &self,
        compiler: &str,
        flags: &[&str],
        source: &Path,
        out: &str,
    ) -> Outcome<PathBuf> {
        let out = self.folder.path().join(out);
        let strict = ["-Wall", "-Wextra", "-Werror"];
        let mut command = tool(compiler);
        command.args(strict).args(flags).arg(source);
        command.arg("-o").arg(&out).succeed();
        Ok(out)
    }

    /// The object written without a compiler, and a compiler's from the C.
    fn objects(&self, outline: &Outline<'_>) -> Outcome<Vec<PathBuf>> {
        let direct = self.folder.path().join("direct.so");
        std::fs::write(
            &direct,
            unspool_native_table::object(
                outline,
                ModuleKey {
                    build_id: &[1; 20],
                    content: &[0; 20],
                },
            )?,
        )?;
        let source = self.folder.path().join("table.c");
        let mut text = String::new();
        unspool_native_table::c::source(outline, "a table", &mut text)?;
        std::fs::write(&source, text)?;
        let flags = ["-std=c11", "-pedantic", "-shared", "-fPIC", "-O1"];
        let gcc = self.compile("gcc", &flags, &source, "gcc.so")?;
        Ok(vec![direct, gcc])
    }

    /// Steps frames with an object.
    fn step(
        &self,
        object: &Path,
        memory: &DriverMemory,
        frames: &[(u64, Registers)],
    ) -> Outcome<Vec<StepOutput>> {
        let input = input(memory, frames);
        let mut driver = command(self.folder.path().join("driver"))
            .arg(object)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdin = driver.stdin.take().ok_or("no input")?;
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = driver.wait_with_output()?;
        writer.join().map_err(|_| "the writer")??;
        assert!(output.status.success(), "{}", output.status);
        let words: Vec<u64> = output
            .stdout
            .chunks_exact(8)
            .map(|word| word.try_into().map_or(0, u64::from_le_bytes))
            .collect();
        let stepped = words.chunks_exact(20).map(|words| {
            let [status, registers @ .., known, cfa] = words else {
                unreachable!()
            };
            let registers = (0..).zip(registers).filter(|(n, _)| known >> n & 1 != 0);
            StepOutput {
                status: status.cast_signed(),
                registers: registers.map(|(n, value)| (n, *value)).collect(),
                cfa: (*cfa != NO_CFA).then_some(*cfa),
            }
        });
        Ok(stepped.collect())
    }
}

/// The driver's input.
fn input(memory: &DriverMemory, frames: &[(u64, Registers)]) -> Vec<u8> {
    let mut input = Vec::new();
    input.extend(STACK.to_le_bytes());
    input.extend((STACK + STACK_BYTES).to_le_bytes());
    input.extend(&memory.stack);
    for (address, registers) in frames {
        let mut words = vec![*address, BIAS];
        let mut known = 0_u64;
        for number in 0..Outline::REGISTERS {
            let value = registers.get(Register(number));
            known |= u64::from(value.is_some()) << number;
            // Unknown registers are not read.
            words.push(value.unwrap_or(0xdead_dead_dead_dead));
        }
        words.extend([known, NO_CFA]);
        input.extend(words.into_iter().flat_map(u64::to_le_bytes));
    }
    input
}

const NO_CFA: u64 = 0x5a5a_5a5a_5a5a_5a5a;

/// Steps from addresses with each object, and compares.
fn compare(
    table: &Table,
    addresses: &[u64],
    objects: &[PathBuf],
    driver: &ObjectDriver,
) -> Outcome<()> {
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    let memory = DriverMemory::new(&mut random);
    let frames: Vec<_> = addresses
        .iter()
        .map(|address| (*address, random.frame()))
        .collect();
    let spans: Vec<_> = table.spans().collect();
    let row_at = |address: u64| {
        let behind = spans.partition_point(|span| span.start.0 <= address);
        let span = spans.get(behind.checked_sub(1)?)?;
        (address < span.end.0)
            .then(|| table.row(span.row))
            .flatten()
    };
    for object in objects {
        let stepped = driver.step(object, &memory, &frames)?;
        assert_eq!(stepped.len(), frames.len());
        let mut callers = 0;
        for ((address, registers), stepped) in frames.iter().zip(stepped) {
            let row = row_at(*address);
            let expected = expected(row.as_ref(), registers, &memory, table);
            assert_eq!(
                stepped,
                expected,
                "{} at {address:#x}: {row:?}",
                object.display()
            );
            callers += usize::from(stepped.status == 0);
        }
        assert!(callers > frames.len() / 5, "{callers} of {}", frames.len());
    }
    Ok(())
}

/// Addresses where errors are likely: both ends of each range, and their neighbours.
fn ends(table: &Table) -> Vec<u64> {
    let spans = table.spans();
    spans
        .flat_map(|span| {
            [
                span.start.0.wrapping_sub(1),
                span.start.0,
                span.end.0 - 1,
                span.end.0,
            ]
        })
        .collect()
}

#[test]
fn real_files() -> Outcome<()> {
    let bench = ObjectDriver::new()?;
    for name in [
        "/lib64/ld-linux-x86-64.so.2",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    ] {
        let file = ElfFile::open(&unspool_testing::packages::path(name)?)?;
        let table = tables::read(&file, TableSource::Auto)?.table;
        let outline = Outline::from_table(&table)?;
        let mut addresses = ends(&table);
        addresses.extend([0, u64::MAX, 1 << 32, 1 << 63]);
        let direct = bench.folder.path().join("direct.so");
        std::fs::write(
            &direct,
            unspool_native_table::object(
                &outline,
                ModuleKey {
                    build_id: &[1; 20],
                    content: &[0; 20],
                },
            )?,
        )?;
        compare(&table, &addresses, &[direct], &bench)?;
    }
    Ok(())
}

#[test]
fn rules_of_all_kinds() -> Outcome<()> {
    let rows = all_kinds();
    let table = table(&rows)?;
    let bench = ObjectDriver::new()?;
    let objects = bench.objects(&Outline::from_table(&table)?)?;
    let mut addresses = Vec::new();
    for _ in 0..40 {
        addresses.extend(ends(&table));
    }
    compare(&table, &addresses, &objects, &bench)
}

/// Right code is proven, and never as another row.
#[test]
fn proofs_tell_rows_apart() -> Outcome<()> {
    let mut rows = all_kinds();
    let right = table(&rows)?;
    let bytes = unspool_native_table::object(
        &Outline::from_table(&right)?,
        ModuleKey {
            build_id: &[1],
            content: &[0; 20],
        },
    )?;
    let object = ObjectView::parse(&bytes)?;
    let proof = prove(&object, &right)?;
    assert_eq!(proof.unproven, []);
    assert_eq!(proof.rows, rows.len());
    rows.rotate_left(1);
    let proof = prove(&object, &table(&rows)?)?;
    let unproven: Vec<u64> = proof.unproven.iter().map(|(at, _)| at.0).collect();
    for (row, at) in rows.iter().zip((FIRST..).step_by(4)) {
        assert!(unproven.contains(&at), "{row}");
    }
    Ok(())
}

/// Start of the first row of generated tables.
const FIRST: u64 = 0x1_fff0;

/// A table of rows with 3 bytes each, and a hole behind each.
fn table(rows: &[String]) -> Outcome<Table> {
    let mut source = String::from("arch x86-64 little\n");
    for (rules, at) in rows.iter().zip((FIRST..).step_by(4)) {
        source.push_str(&format!("fn {at:#x}..{:#x}\n  {at:#x}  {rules}\n", at + 3));
    }
    Ok(text::parse(&source)?)
}

/// Rows with rules and operations of all kinds; neighbours never mean the same.
fn all_kinds() -> Vec<String> {
    let mut rows = Vec::new();
    let mut put = |rules: &str| rows.push(String::from(rules));
    for rules in [
        "cfa=rsp+8  ra=[cfa-8]",
        "cfa=rbp+16  ra=[cfa-8]  rbp=[cfa-16]",
        "cfa=rsp+8000  ra=[cfa-8]  rbx=[cfa-4096]  r12=[cfa-24]",
        "cfa=rsp+12345678912  ra=[cfa-8]",
        "cfa=rsp-8  ra=[cfa-8]  r15=[cfa+16]",
        "cfa=r10+0  ra=[cfa-8]  rbp=[cfa-16]  rax=[cfa-24]",
        "cfa=rsp+9  ra=[cfa-8]  rbx=[cfa-17]",
        "cfa=rsp+8  ra=undefined",
        "cfa=rsp+8  ra=rdi",
        "cfa=rsp+8  ra=[cfa-16]  rbp=undefined",
        "cfa=rsp+8  ra=[cfa-8]  rbx=rbp  rbp=rbx  rsp=cfa-24",
        "cfa=rsp+8  ra=cfa-8  r13=cfa+1  r14=same  rcx=same",
        "cfa=rsp+8",
        "cfa=undefined  ra=[cfa-8]",
        "cfa=reg17+8  ra=[cfa-8]",
        "cfa=rsp+8  ra=[cfa-8]  reg17=[cfa-16]",
        "cfa=rsp+160  ra=[cfa-8]  signal  rax=[cfa-24]  rbx=[cfa-32]",
        "cfa=rsp+160  signal",
        "cfa=rsp+8  ra=[cfa-8]  return=rdi  rdi=[cfa-24]",
        "cfa={breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus}  ra=[cfa-8]",
        "cfa={breg6 -16; deref}  ra=[{breg7 8}]  rbx=[{breg6 -8}]",
    ] {
        put(rules);
    }
    for operations in [
        "addr 0x1234",
        "const1u 200",
        "const1s -3",
        "const2u 60000",
        "const2s -300",
        "const4u 4000000000",
        "const4s -2000000000",
        "const8u 18446744073709551615",
        "const8s -1",
        "constu 700000",
        "consts -700000",
        "dup; plus",
        "over; over; xor; minus",
        "pick 1; plus",
        "swap; minus",
        "breg6 1; rot; xor; plus",
        "deref",
        "deref_size 1",
        "deref_size 2",
        "deref_size 4",
        "deref_size 8",
        "abs",
        "neg",
        "not",
        "plus_uconst 1000",
        "and",
        "or",
        "xor",
        "plus",
        "minus",
        "mul",
        "div",
        "mod",
        "shl",
        "shr",
        "shra",
        "eq",
        "ge",
        "gt",
        "le",
        "lt",
        "ne",
        "nop",
        "drop",
        "lit0; div",
        "lit0; mod",
        "const1s -1; div",
        "lit31; shl",
        "const1u 64; shl",
        "const1u 64; shr",
        "const1u 64; shra",
        "const1u 63; shra",
        "bregx 12 5; mul",
    ] {
        put(&format!(
            "cfa=rsp+8  ra=[cfa-8]  rbx={{breg3 0; breg12 -8; {operations}}}"
        ));
        put(&format!(
            "cfa=rsp+8  ra=[cfa-8]  rbp=[{{breg3 0; breg12 -8; {operations}}}]  rbx=rbp"
        ));
        put(&format!(
            "cfa={{breg3 0; breg12 -8; {operations}}}  ra=[{{breg7 0; {operations}}}]"
        ));
        put(&format!(
            "cfa=rsp+8  ra={{breg13 0; breg14 1; {operations}}}"
        ));
    }
    rows
}

/// gdb, with only the object's own unwind table, sees the caller from within the code.
#[test]
fn debuggers_see_through_the_code() -> Outcome<()> {
    let table = text::parse(
        "arch x86-64 little\nfn 0x10..0x20\n  0x10  cfa=rsp+8  ra=[cfa-8]  rbx=[cfa-16]\n",
    )?;
    let bench = ObjectDriver::new()?;
    let object = bench.folder.path().join("direct.so");
    std::fs::write(
        &object,
        unspool_native_table::object(
            &Outline::from_table(&table)?,
            ModuleKey {
                build_id: &[1; 20],
                content: &[0; 20],
            },
        )?,
    )?;
    let mut registers = Registers::new();
    registers.set(Register(7), FAR + 64);
    let frames = bench.folder.path().join("frames");
    std::fs::write(
        &frames,
        input(&DriverMemory::new(&mut Xorshift(1)), &[(0x10, registers)]),
    )?;
    let output = command(unspool_testing::packages::path("/usr/bin/gdb")?)
        .args(["-nx", "-batch", "-ex", "break far_bytes", "-ex"])
        .arg(format!(
            "run {} < {} > /dev/null",
            object.display(),
            frames.display()
        ))
        .args(["-ex", "backtrace", "-ex", "continue", "-ex", "backtrace"])
        .arg(bench.folder.path().join("driver"))
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let frames: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!(
        frames.len(),
        6,
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for (line, name) in frames
        .iter()
        .zip(["far_bytes", "unspool_step", "main"].iter().cycle())
    {
        assert!(line.contains(name), "{text}");
    }
    Ok(())
}

/// An object's contents are those that it was made from, and no changed byte goes unnoticed.
#[test]
fn objects_are_read_back() -> Outcome<()> {
    let file = ElfFile::open(&unspool_testing::packages::path(
        "/lib64/ld-linux-x86-64.so.2",
    )?)?;
    let table = tables::read(&file, TableSource::Auto)?.table;
    let outline = Outline::from_table(&table)?;
    let bytes = unspool_native_table::object(
        &outline,
        ModuleKey {
            build_id: &[7; 20],
            content: &[0; 20],
        },
    )?;
    let object = ObjectView::parse(&bytes)?;
    assert_eq!(
        object.key(),
        Some(ModuleKey {
            build_id: &[7; 20],
            content: &[0; 20]
        })
    );
    let (starts, bodies) = object.starts()?;
    assert_eq!(bodies as usize, outline.rows().len() + 1);
    let expected = outline.starts().map(|start| BodyStart {
        address: start.address,
        body: start.row.map_or(0, |row| row.0 + 1),
    });
    assert_eq!(starts, expected.collect::<Vec<_>>());
    assert_eq!(prove(&object, &table)?.unproven, []);
    let mut damaged = bytes.clone();
    for at in 0..bytes.len() {
        for bit in [0, 5] {
            damaged[at] ^= 1 << bit;
            assert!(
                ObjectView::parse(&damaged).is_err(),
                "byte {at:#x} of {:#x}",
                bytes.len()
            );
            damaged[at] = bytes[at];
        }
        assert!(at % 7 != 0 || ObjectView::parse(&bytes[..at]).is_err());
    }
    Ok(())
}
