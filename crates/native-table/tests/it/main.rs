//! Code against the interpreter: at both ends of each row range of real files, and for each
//! operation of expressions, in random frames. A driver in C loads the objects and calls them.
#![cfg(test)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use unspool_elf::ElfFile;
use unspool_native_table::proof::prove;
use unspool_native_table::{BodyStart, ModuleKey, ObjectView, Outline};
use unspool_rows::{Register, Registers, Table, text};
use unspool_table_store::{self as tables, TableSource};
use unspool_testing::{Finish as _, command, tool};
use unspool_walk_testing::memory::CaseMemory;
use unspool_walk_testing::random::CaseRandom;
use unspool_walk_testing::rows_of::{FIRST, all_kinds, table};
use unspool_walk_testing::step::{
    BIAS, CaseFrame, CaseOutcome, StepFailure, StepKind, Stepper, compare_steps, ends, frames,
};

type Outcome<T> = Result<T, xtask::Error>;

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

    fn stepper<'d>(&'d self, object: &'d Path) -> ObjectStepper<'d> {
        ObjectStepper {
            driver: self,
            object,
        }
    }
}

/// Steps by the code of an object.
struct ObjectStepper<'d> {
    driver: &'d ObjectDriver,
    object: &'d Path,
}

impl ObjectStepper<'_> {
    fn run(&self, memory: &CaseMemory, frames: &[CaseFrame<'_>]) -> Outcome<Vec<CaseOutcome>> {
        let input = input(memory, frames);
        let mut driver = command(self.driver.folder.path().join("driver"))
            .arg(self.object)
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
            let [status, values @ .., known, cfa] = words else {
                unreachable!()
            };
            let mut registers = Registers::new();
            for (number, value) in (0..).zip(values).filter(|(n, _)| known >> n & 1 != 0) {
                registers.set(Register(number), *value);
            }
            CaseOutcome {
                kind: kind(status.cast_signed()),
                registers,
                cfa: (*cfa != NO_CFA).then_some(*cfa),
            }
        });
        Ok(stepped.collect())
    }
}

impl Stepper for ObjectStepper<'_> {
    fn tracked(&self) -> Vec<Register> {
        (0..Outline::REGISTERS).map(Register).collect()
    }

    fn step(&mut self, memory: &CaseMemory, frames: &[CaseFrame<'_>]) -> Vec<Option<CaseOutcome>> {
        let outcomes = self.run(memory, frames).unwrap();
        outcomes.into_iter().map(Some).collect()
    }
}

/// The meaning of a status in the header.
fn kind(status: i64) -> StepKind {
    match status {
        0 => StepKind::Caller,
        1 => StepKind::Interrupted,
        2 => StepKind::Outermost,
        -1 => StepKind::Failed(StepFailure::NoRow),
        -2 => StepKind::Failed(StepFailure::NoRule),
        -3 => StepKind::Failed(StepFailure::UnknownRegister),
        -4 => StepKind::Failed(StepFailure::Unreadable),
        -5 => StepKind::Failed(StepFailure::DivisionByZero),
        _ => StepKind::Failed(StepFailure::BadExpression),
    }
}

/// The driver's input.
fn input(memory: &CaseMemory, frames: &[CaseFrame<'_>]) -> Vec<u8> {
    let mut input = Vec::new();
    input.extend(CaseMemory::STACK.to_le_bytes());
    input.extend((CaseMemory::STACK + CaseMemory::STACK_BYTES).to_le_bytes());
    input.extend(&memory.stack);
    for CaseFrame {
        address, registers, ..
    } in frames
    {
        let mut words = vec![*address, BIAS.0];
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
    let mut random = CaseRandom::default();
    let memory = CaseMemory::new(&mut random);
    let frames = frames(table, addresses, Outline::REGISTERS, &mut random);
    for object in objects {
        let stepper = &mut driver.stepper(object);
        let tally = compare_steps(stepper, table.abi(), &memory, &frames);
        assert!(tally.callers > frames.len() / 5, "{tally:?}");
    }
    Ok(())
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
    let table = table(&all_kinds());
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
    let right = table(&rows);
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
    let proof = prove(&object, &table(&rows))?;
    let unproven: Vec<u64> = proof.unproven.iter().map(|(at, _)| at.0).collect();
    for (row, at) in rows.iter().zip((FIRST..).step_by(4)) {
        assert!(unproven.contains(&at), "{row}");
    }
    Ok(())
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
    registers.set(Register(7), CaseMemory::FAR + 64);
    let frame = CaseFrame {
        address: 0x10,
        row: None,
        registers,
    };
    let frames = bench.folder.path().join("frames");
    std::fs::write(
        &frames,
        input(&CaseMemory::new(&mut CaseRandom(1)), &[frame]),
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
