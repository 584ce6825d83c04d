//! Compares the arguments in backtraces with the real arguments of functions.
//!
//! `cargo bench -p unspool-bench --bench args -- PROGRAM OBJECTS… -- ARGUMENTS…`: runs a program
//! with types in the `.ctf` of its object files (`gcc -gctf`). It has a breakpoint at the entry of
//! each function of known type. There it records the argument registers, general-purpose and vector
//! ones, with the address of the return address. At intervals, some instructions later, it stops
//! all threads and walks the stack. Each value reported for a frame is compared with the recorded
//! one. Wrong values are printed; wrong likely values only if the variable `LIKELY` is set. The
//! stack is walked at each seventh entry, or as the variable `EVERY` says: for programs with a long
//! startup, a larger interval is better.
//!
//! `everything.lua` is a script for Lua. `… --bench args -- --made N` does the same with N random
//! programs, each compiled in several ways.
#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::num::NonZeroU64;
use std::ops::AddAssign;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use unspool_arg_table::{ArgSource, ArgTable, ParameterPiece, ValueCertainty};
use unspool_arg_table_builder::{analyze_file, encode, prototypes_of_ctf};
use unspool_bench::{Scratch, Tid, Tracee, TraceeStop};
use unspool_check::{CheckSubject, CodeOrigin, DeclaredTable};
use unspool_display_values::StackArguments;
use unspool_elf::ElfFile;
use unspool_process::file_provider::{FileProblem, FileProvider};
use unspool_process::maps::{Mapping, Mappings};
use unspool_process::snapshot_unwinder::{SnapshotUnwinder, WalkDetail};
use unspool_process::{AuxVector, Snapshot, Thread, ThreadState};
use unspool_rows::{Abi, Memory, Register, Registers, RuntimeAddr, Unreadable};
use unspool_table_store::Store;

mod random_programs;

/// The interval of walks in entries, unless the variable `EVERY` sets it.
const WALK_INTERVAL: NonZeroU64 = NonZeroU64::new(7).unwrap();

/// The most instructions between an entry and the walk.
const MAX_STEPS_BEFORE_WALK: u64 = 97;

/// The number of frames to collect.
const MIN_FRAMES: u64 = 100_000;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    if let [option, number] = &*words
        && option == "--made"
    {
        return random_programs(number.parse()?);
    }
    let mut parts = words.split(|word| word == "--");
    let (Some([program, objects @ ..]), arguments) = (parts.next(), parts.next()) else {
        bail!("PROGRAM OBJECTS... -- ARGUMENTS..., or --made N");
    };
    let objects: Vec<_> = objects.iter().map(PathBuf::from).collect();
    let arguments = arguments.unwrap_or_default();
    measure(Path::new(program), &objects, arguments)?.print();
    Ok(())
}

/// The compiler options for random programs.
const OPTIONS: [&str; 5] = ["-O0", "-O1", "-O2", "-Os", "-O2 -mavx2"];

fn random_programs(programs: u64) -> anyhow::Result<()> {
    let folder = Scratch::new()?;
    let mut counts = ArgCounts::default();
    for seed in 1..=programs {
        for options in OPTIONS {
            let options: Vec<_> = ["-c", "-gctf"]
                .into_iter()
                .chain(options.split(' '))
                .collect();
            let object = folder.compile(
                "program.o",
                "program.c",
                &random_programs::program(seed),
                &options,
            )?;
            let program = folder.join("program");
            let mut link = Command::new("cc");
            let linked = link.arg(&object).arg("-o").arg(&program).status()?;
            ensure!(linked.success(), "cannot link program {seed}");
            println!("program {seed}, {}:", options.join(" "));
            counts += measure(&program, &[object], &[])?;
        }
    }
    counts.print();
    Ok(())
}

fn measure(program: &Path, objects: &[PathBuf], arguments: &[String]) -> anyhow::Result<ArgCounts> {
    let path = || program.display().to_string();
    let program = &fs::canonicalize(program).with_context(path)?;
    let file = ElfFile::open(program)?;
    let started = Instant::now();
    let objects = objects.iter().map(ElfFile::open);
    let objects = objects.collect::<Result<Vec<_>, _>>()?;
    let prototypes = prototypes_of_ctf(objects.iter().chain([&file]));
    let declarations = DeclaredTable::read(&file)?;
    let subject = CheckSubject::new(&file, &declarations, CodeOrigin::Compiler)?;
    let made = analyze_file(&subject, file.symbols(), &prototypes);
    let bytes = encode(
        &made,
        prototypes.types(),
        &unspool_table_store::own_key(&file),
    )?;
    let table = ArgTable::open(&bytes)?;
    let eh_frame = file
        .section_named(".eh_frame")?
        .map_or(0, |section| section.data.len());
    println!(
        "table of arguments: {} bytes, {:.2} of .eh_frame, made in {:.2} s",
        bytes.len(),
        bytes.len() as f64 / eh_frame.max(1) as f64,
        started.elapsed().as_secs_f64()
    );
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null());
    BreakpointRun::start(&file, table, command)?.run()
}

/// The arguments of a function.
#[derive(Debug, Clone, Copy)]
struct EntryRecord {
    function: u64,
    registers: libc::user_regs_struct,
    /// The low halves of xmm0 and the following registers.
    vectors: [u64; 16],
    /// The words above the return address.
    words: [u64; 8],
}

/// The DWARF number of xmm0.
const XMM0: u8 = 17;

impl EntryRecord {
    fn value(&self, source: ArgSource) -> Option<u64> {
        let registers = &self.registers;
        Some(match source {
            ArgSource::Register(1) => registers.rdx,
            ArgSource::Register(2) => registers.rcx,
            ArgSource::Register(4) => registers.rsi,
            ArgSource::Register(5) => registers.rdi,
            ArgSource::Register(8) => registers.r8,
            ArgSource::Register(9) => registers.r9,
            ArgSource::Register(register) => {
                let index = register.checked_sub(XMM0)?;
                *self.vectors.get(usize::from(index))?
            }
            ArgSource::Stack(word) => *self.words.get(usize::from(word))?,
        })
    }
}

/// The number of reported values, and of wrong ones.
#[derive(Debug, Default, Clone, Copy)]
struct ValueCounts {
    all: u64,
    exact: u64,
    likely: u64,
    wrong_exact: u64,
    wrong_likely: u64,
}

impl AddAssign for ValueCounts {
    fn add_assign(&mut self, other: ValueCounts) {
        self.all += other.all;
        self.exact += other.exact;
        self.likely += other.likely;
        self.wrong_exact += other.wrong_exact;
        self.wrong_likely += other.wrong_likely;
    }
}

#[derive(Debug, Default)]
struct ArgCounts {
    frames: u64,
    unknown: u64,
    /// In frames that have called another.
    returns: ValueCounts,
    /// In innermost frames.
    innermost: ValueCounts,
    /// Values in vector registers, in frames that have called another.
    vectors: ValueCounts,
    /// The same in innermost frames.
    vectors_innermost: ValueCounts,
    /// Values in memory, in all frames.
    memory: ValueCounts,
}

impl AddAssign for ArgCounts {
    fn add_assign(&mut self, other: ArgCounts) {
        self.frames += other.frames;
        self.unknown += other.unknown;
        self.returns += other.returns;
        self.innermost += other.innermost;
        self.vectors += other.vectors;
        self.vectors_innermost += other.vectors_innermost;
        self.memory += other.memory;
    }
}

impl ArgCounts {
    fn print(&self) {
        println!(
            "{} frames, {} of functions that are not known",
            self.frames, self.unknown
        );
        let print = |name: &str, count: &ValueCounts| {
            let share = |part: u64| 100.0 * part as f64 / count.all.max(1) as f64;
            println!(
                "{name}: {} values, {:.1} % exact ({} wrong), {:.1} % likely ({} wrong), {:.1} % lost",
                count.all,
                share(count.exact),
                count.wrong_exact,
                share(count.likely),
                count.wrong_likely,
                share(count.all - count.exact - count.likely),
            );
        };
        print("in registers, at return addresses", &self.returns);
        print("in registers, innermost frames", &self.innermost);
        print("in vector registers, at return addresses", &self.vectors);
        print(
            "in vector registers, innermost frames",
            &self.vectors_innermost,
        );
        print("in memory", &self.memory);
    }
}

/// A process that is stopped whenever it is inspected.
struct StoppedProcess {
    mem: File,
    abi: Abi,
    mappings: Mappings,
    auxv: AuxVector,
}

impl Memory for StoppedProcess {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let read = self.mem.read_exact_at(into, addr.0);
        read.map_err(|_| Unreadable::unmapped(addr))
    }
}

impl Snapshot for StoppedProcess {
    fn abi(&self) -> Abi {
        self.abi
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

impl FileProvider for StoppedProcess {
    fn file(&self, mapping: &Mapping) -> Result<ElfFile, FileProblem> {
        let path = mapping.name.clone().unwrap_or_default();
        Ok(ElfFile::open(Path::new(&path))?)
    }
}

/// A program with breakpoints.
struct BreakpointRun<'t> {
    tracee: Tracee,
    program: PathBuf,
    process: StoppedProcess,
    table: ArgTable<'t>,
    bias: u64,
    /// The bytes that breakpoints replace.
    breakpoints: HashMap<u64, u8>,
    /// The arguments of functions, by the address of their return address, for each thread.
    entries: HashMap<Tid, BTreeMap<u64, EntryRecord>>,
    counts: ArgCounts,
    printed: Cell<u32>,
}

const TRAP: u8 = 0xcc;

/// The system call instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

impl<'t> BreakpointRun<'t> {
    fn start(
        file: &ElfFile,
        table: ArgTable<'t>,
        mut command: Command,
    ) -> anyhow::Result<BreakpointRun<'t>> {
        let mut tracee = Tracee::start(&mut command)?;
        let pid = tracee.pid();
        let auxv = AuxVector::parse(&fs::read(format!("/proc/{pid}/auxv"))?);
        let entry = auxv.entry().context("no AT_ENTRY")?;
        let bias = entry.0.wrapping_sub(file.entry().0);
        let mem = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))?;
        // Runs to the program's entry point: the dynamic linker maps the libraries.
        let begin = insert_breakpoint(&mem, entry.0)?;
        tracee.cont()?;
        mem.write_all_at(&[begin], entry.0)?;
        let mut registers = tracee.registers(tracee.first())?;
        registers.rip = entry.0;
        tracee.set_registers(tracee.first(), &registers)?;
        let mut breakpoints = HashMap::new();
        for index in 0..table.len() {
            let Some(function) = table.get(index) else {
                continue;
            };
            if function.entry == function.start && function.parameters().is_some() {
                let at = function.entry.wrapping_add(bias);
                breakpoints.insert(at, insert_breakpoint(&mem, at)?);
            }
        }
        let process = StoppedProcess {
            mem,
            abi: file.abi(),
            mappings: Mappings::parse(&fs::read(format!("/proc/{pid}/maps"))?),
            auxv,
        };
        Ok(BreakpointRun {
            tracee,
            program: fs::read_link(format!("/proc/{pid}/exe"))?,
            process,
            table,
            bias,
            breakpoints,
            entries: HashMap::new(),
            counts: ArgCounts::default(),
            printed: Cell::new(0),
        })
    }

    fn run(mut self) -> anyhow::Result<ArgCounts> {
        let store = Store::new(None, None, None);
        let every = match std::env::var("EVERY") {
            Ok(every) => every.parse().context("EVERY is not a number above 0")?,
            Err(_) => WALK_INTERVAL,
        };
        let mut hits = 0_u64;
        while self.counts.frames < MIN_FRAMES {
            let Some((thread, signal)) = self.tracee.cont()? else {
                break;
            };
            if signal != libc::SIGTRAP {
                self.tracee.inject_signal(thread, signal);
                continue;
            }
            let mut registers = self.tracee.registers(thread)?;
            registers.rip -= 1;
            if !self.breakpoints.contains_key(&registers.rip) {
                continue;
            }
            self.tracee.set_registers(thread, &registers)?;
            let mut is_going = self.step(thread)?;
            hits += 1;
            if hits.is_multiple_of(every.get()) {
                // A random number of instructions later.
                let steps = (hits / every).wrapping_mul(0x9e37_79b9) % MAX_STEPS_BEFORE_WALK;
                for _ in 0..steps {
                    is_going = is_going && !self.is_at_syscall(thread)? && self.step(thread)?;
                }
                self.walk_and_compare(thread, &store)?;
            }
        }
        Ok(self.counts)
    }

    /// Whether a thread is about to make a system call, which may wait for stopped threads.
    fn is_at_syscall(&self, thread: Tid) -> anyhow::Result<bool> {
        let mut code = [0; 2];
        let at = RuntimeAddr(self.tracee.registers(thread)?.rip);
        let is_read = self.process.read(at, &mut code).is_ok();
        Ok(is_read && code == SYSCALL)
    }

    /// Executes one instruction, and records the call if it is the first of a function; returns
    /// whether nothing else happened.
    fn step(&mut self, thread: Tid) -> anyhow::Result<bool> {
        let registers = self.tracee.registers(thread)?;
        let replaced = self.breakpoints.get(&registers.rip).copied();
        if let Some(byte) = replaced {
            self.record_entry(thread, &registers)?;
            self.process.mem.write_all_at(&[byte], registers.rip)?;
        }
        let stop = self.tracee.step(thread)?;
        if replaced.is_some() && stop != TraceeStop::Ended {
            self.process.mem.write_all_at(&[TRAP], registers.rip)?;
        }
        match stop {
            TraceeStop::Signal(libc::SIGTRAP) => Ok(true),
            TraceeStop::Signal(other) => {
                self.tracee.inject_signal(thread, other);
                Ok(false)
            }
            TraceeStop::Ended => bail!("the program was killed"),
        }
    }

    /// Records the arguments of a function, before its first instruction.
    fn record_entry(&mut self, thread: Tid, now: &libc::user_regs_struct) -> anyhow::Result<()> {
        let mut words = [0; 8];
        for (at, word) in (1_u64..).zip(&mut words) {
            let mut bytes = [0; 8];
            let address = RuntimeAddr(now.rsp + at * 8);
            if self.process.read(address, &mut bytes).is_ok() {
                *word = u64::from_le_bytes(bytes);
            }
        }
        // Deeper calls have returned.
        let entries = self.entries.entry(thread).or_default();
        *entries = entries.split_off(&now.rsp);
        let entry = EntryRecord {
            function: now.rip.wrapping_sub(self.bias),
            registers: *now,
            vectors: self.tracee.vectors(thread)?,
            words,
        };
        entries.insert(now.rsp, entry);
        Ok(())
    }

    /// Walks the stack and compares the values.
    fn walk_and_compare(&mut self, own: Tid, store: &Store) -> anyhow::Result<()> {
        let now = self.tracee.registers(own)?;
        if self.breakpoints.contains_key(&now.rip) {
            self.record_entry(own, &now)?;
        }
        let pid = self.tracee.pid();
        self.process.mappings = Mappings::parse(&fs::read(format!("/proc/{pid}/maps"))?);
        let thread = Thread {
            tid: own.number(),
            name: None,
            state: ThreadState::Stopped,
            syscall: None,
            registers: Ok(dwarf(&now)),
        };
        let space = SnapshotUnwinder::new(&self.process, store);
        let Some(stack) = space.walk(&thread, 4096, WalkDetail::Registers) else {
            return Ok(());
        };
        let arguments = StackArguments::new(
            &stack,
            &self.process,
            |code| space.locate(code),
            |at| (at.module.name == self.program).then_some(self.table),
        );
        let mut counts = std::mem::take(&mut self.counts);
        for (number, walked) in stack.frames.iter().enumerate() {
            let function = arguments
                .frame(number)
                .and_then(unspool_arg_table::ArgFrame::function);
            let (Some(function), Some(cfa)) = (function, walked.cfa) else {
                continue;
            };
            let Some(parameters) = function.parameters() else {
                continue;
            };
            let entries = self.entries.get(&own);
            let entry = entries.and_then(|entries| entries.get(&(cfa.0.wrapping_sub(8))));
            let Some(entry) = entry.filter(|entry| entry.function == function.entry) else {
                counts.unknown += 1;
                continue;
            };
            counts.frames += 1;
            for piece in parameters.flat_map(|parameter| parameter.pieces()) {
                self.compare(&arguments, number, piece, entry, &mut counts);
            }
        }
        self.counts = counts;
        Ok(())
    }

    fn compare(
        &self,
        arguments: &StackArguments<'_>,
        number: usize,
        piece: ParameterPiece,
        entry: &EntryRecord,
        counts: &mut ArgCounts,
    ) {
        let Some(source) = piece.source else { return };
        let bits = piece.bytes * 8;
        let Some(whole) = entry.value(source) else {
            return;
        };
        let truth = match bits {
            64 => whole,
            bits => whole & ((1 << bits) - 1),
        };
        let count = match (source, number) {
            (ArgSource::Stack(_), _) => &mut counts.memory,
            (ArgSource::Register(XMM0..), 0) => &mut counts.vectors_innermost,
            (ArgSource::Register(XMM0..), _) => &mut counts.vectors,
            (_, 0) => &mut counts.innermost,
            _ => &mut counts.returns,
        };
        count.all += 1;
        let Some(value) = arguments.value(number, source, bits) else {
            return;
        };
        let is_wrong = u64::from(value.number != truth);
        match value.certainty {
            ValueCertainty::Exact => {
                count.exact += 1;
                count.wrong_exact += is_wrong;
            }
            ValueCertainty::Likely => {
                count.likely += 1;
                count.wrong_likely += is_wrong;
            }
        }
        let is_reported =
            value.certainty == ValueCertainty::Exact || std::env::var_os("LIKELY").is_some();
        if is_wrong == 1 && is_reported && self.printed.get() < 20 {
            self.printed.set(self.printed.get() + 1);
            let at = arguments.frame(number).map_or(0, |frame| frame.address);
            println!(
                "wrong: frame {number} at {at:#x} in {:#x}, {source:?} of {bits} bits: {:#x}, was {truth:#x} (by caller {})",
                entry.function, value.number, value.caller_depth
            );
        }
    }
}

/// Inserts a breakpoint at an address; returns the byte that it replaces.
fn insert_breakpoint(mem: &File, at: u64) -> anyhow::Result<u8> {
    let mut byte = [0];
    mem.read_exact_at(&mut byte, at)?;
    mem.write_all_at(&[TRAP], at)?;
    let [byte] = byte;
    Ok(byte)
}

/// Registers by their DWARF numbers.
fn dwarf(now: &libc::user_regs_struct) -> Registers {
    let values = [
        now.rax, now.rdx, now.rcx, now.rbx, now.rsi, now.rdi, now.rbp, now.rsp, now.r8, now.r9,
        now.r10, now.r11, now.r12, now.r13, now.r14, now.r15, now.rip,
    ];
    let mut registers = Registers::default();
    for (number, value) in (0_u16..).zip(values) {
        registers.set(Register(number), value);
    }
    registers
}
