//! `unspool frames`: answers a debugger's questions for callers, by two pipes.
//!
//! Each line is a value of JSON. The debugger says which process it debugs, and asks for the caller
//! of a frame. The answer reads the process's memory by questions of its own. It is a caller only
//! where the debugger has no row, or one that the code refutes. Guesses are the debugger's.

use std::cell::RefCell;
use std::io::{self, BufRead as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use unspool_compiled_table::call_test::{CALL_WINDOW_BYTES, CallTest};
use unspool_process::UnstoppedProcess;
use unspool_process::core_file::Core;
use unspool_process::file_provider::{CoreFiles, FileSearch};
use unspool_process::snapshot_unwinder::{FrameLocation, SnapshotUnwinder};
use unspool_rows::interpret::{self, FrameContext};
use unspool_rows::memory::Unreadable;
use unspool_rows::{Abi, CodeAddr, LoadBias, Memory, Register, Registers, Row, RuntimeAddr, Vaddr};
use unspool_symbols::PerfMap;
use unspool_table_store::Store;
use unspool_unwind::{Cursor, Evidence, Modules as _, NoRow, Step};

use super::judged_tables::{JudgedTables, TableJudge};
use crate::commands;
use crate::output::EscapedText;

/// The architecture of the debugged processes.
const ABI: Abi = Abi::X86_64;

/// A line of the debugger.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    /// A running process, with the text of its `/proc/PID/maps`.
    Process { pid: u32, maps: String },
    /// A core file.
    Core {
        path: PathBuf,
        program: Option<PathBuf>,
    },
    /// Which frame called this one?
    Caller(FrameQuestion),
    /// What is the name of the code at an address, as its maker says?
    Name(u64),
    /// Memory, in hexadecimal; `None` if it is unreadable.
    Bytes(Option<String>),
}

/// A frame.
#[derive(Debug, Deserialize)]
struct FrameQuestion {
    is_innermost: bool,
    /// The registers up to the code address, by DWARF number.
    registers: Vec<Option<u64>>,
}

/// A line to the debugger.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    /// Which bytes are in memory? The debugger answers before anything else.
    Read { address: u64, count: usize },
    /// The debugger's own answer stands.
    Leave(LeaveReason),
    /// The caller.
    Caller(CallerAnswer),
    /// A name.
    Name(Option<String>),
}

/// Why the debugger's own answer stands.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum LeaveReason {
    /// A table covers the address, and the code does not refute its row: this holds for all frames
    /// at the address.
    Table,
    /// Nothing is known of the caller but what can be guessed.
    Guess,
    /// The file is being checked.
    Checking,
}

/// A caller.
#[derive(Debug, Serialize)]
struct CallerAnswer {
    evidence: &'static str,
    /// The CFA of the frame asked for.
    cfa: u64,
    /// Where its function begins, if that is known.
    function: Option<u64>,
    registers: Vec<Option<u64>>,
}

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let channel = Channel(RefCell::new(io::stdin().lock()));
    let store = commands::store(false, None)?;
    let mut judge = TableJudge::default();
    let mut request = channel.receive()?;
    while let Some(subject) = request {
        request = match subject {
            Request::Process { pid, maps } => {
                let memory = DebuggerMemory(&channel);
                let process = UnstoppedProcess::new(pid, maps.as_bytes(), memory);
                let unwinder = SnapshotUnwinder::new(&process, &store);
                serve(&channel, &unwinder, Some(pid), &mut judge)?
            }
            Request::Core { path, program } => {
                serve_core(&channel, path, program, &store, &mut judge)?
            }
            _ => bail!("the debugger asked about no process"),
        };
    }
    Ok(ExitCode::SUCCESS)
}

fn serve_core(
    channel: &Channel,
    path: PathBuf,
    executable: Option<PathBuf>,
    store: &Store,
    judge: &mut TableJudge,
) -> anyhow::Result<Option<Request>> {
    let search = FileSearch {
        executable,
        ..FileSearch::default()
    };
    let mut core = Core::open(path)?;
    core.find_objects(&search)?;
    let files = CoreFiles::new(&core, &search)?;
    let unwinder = SnapshotUnwinder::with_files(&core, &files, store);
    serve(channel, &unwinder, None, judge)
}

/// Answers about one state of a process; yields the first request about another.
fn serve(
    channel: &Channel,
    unwinder: &SnapshotUnwinder<'_>,
    pid: Option<u32>,
    judge: &mut TableJudge,
) -> anyhow::Result<Option<Request>> {
    loop {
        let reply = match channel.receive()? {
            Some(Request::Caller(question)) => answer(unwinder, &question, judge),
            Some(Request::Name(address)) => {
                let map = pid.and_then(|pid| PerfMap::from_process(pid).ok());
                let symbol = map.as_ref().and_then(|map| map.get(RuntimeAddr(address)));
                Reply::Name(symbol.map(|symbol| EscapedText(symbol.name).to_string()))
            }
            other => return Ok(other),
        };
        channel.send(&reply)?;
    }
}

/// The answer for a frame.
fn answer(
    unwinder: &SnapshotUnwinder<'_>,
    question: &FrameQuestion,
    judge: &mut TableJudge,
) -> Reply {
    let mut registers = Registers::new();
    for (number, value) in (0..).zip(&question.registers) {
        if let Some(value) = value {
            registers.set(Register(number), *value);
        }
    }
    let spec = ABI.arch.spec();
    let Some(pc) = registers.get(spec.pc).map(RuntimeAddr) else {
        return Reply::Leave(LeaveReason::Guess);
    };
    let memory = unwinder.snapshot().memory();
    let code = if question.is_innermost || !follows_call(memory, pc) {
        CodeAddr::Instruction(pc)
    } else {
        CodeAddr::Return(pc)
    };
    let mut cursor = Cursor::with_code(ABI, code, registers);
    let location = unwinder.locate(code).filter(|location| !location.differs);
    let judged = match &location {
        Some(location) => match judge.judge(&location.module.file) {
            Some(judged) => Some((location, judged)),
            None => return Reply::Leave(LeaveReason::Checking),
        },
        None => None,
    };
    let mut row = Row::new(Register(0));
    let found = cursor.locate(unwinder, &mut row);
    let function = match (&found.row, judged) {
        (Ok(entry), judged) if entry.evidence == Evidence::Cfi => {
            let caller = judged.and_then(|(location, judged)| {
                repaired_caller(unwinder, &cursor, location, judged)
            });
            return caller.map_or(Reply::Leave(LeaveReason::Table), Reply::Caller);
        }
        (_, Some((location, judged))) if judged.has_debug_frame(location.lookup) => {
            return Reply::Leave(LeaveReason::Table);
        }
        (Ok(entry), Some((location, _))) => {
            Some(bias(code, location).to_runtime(entry.entry_start))
        }
        (Err(NoRow::Hole | NoRow::NoTable | NoRow::NoModule), _) => None,
        _ => return Reply::Leave(LeaveReason::Guess),
    };
    let evidence = if found.row.is_ok() {
        "synthesized"
    } else {
        "exit path"
    };
    match cursor.step_by(&found, unwinder, memory) {
        Step::Caller(step)
            if step.evidence == Evidence::Synthesized
                && unwinder.is_code(cursor.code().lookup()) =>
        {
            Reply::Caller(CallerAnswer {
                evidence,
                cfa: step.cfa.0,
                function: function.map(|start| start.0),
                registers: up_to_pc(cursor.registers()),
            })
        }
        _ => Reply::Leave(LeaveReason::Guess),
    }
}

/// The caller by a repaired row, if the row of the frame's table is refuted.
fn repaired_caller(
    unwinder: &SnapshotUnwinder<'_>,
    cursor: &Cursor,
    location: &FrameLocation,
    judged: &JudgedTables,
) -> Option<CallerAnswer> {
    let repaired = judged.repaired(location.lookup)?;
    let bias = bias(cursor.code(), location);
    let frame = FrameContext {
        abi: ABI,
        registers: cursor.registers(),
        memory: unwinder.snapshot().memory(),
        bias,
        pac_mask: 0,
    };
    let caller = interpret::step(&repaired.row, &frame).ok()?;
    let code = CodeAddr::Return(caller.return_address?);
    unwinder.is_code(code.lookup()).then(|| CallerAnswer {
        evidence: "repaired",
        cfa: caller.cfa.0,
        function: Some(bias.to_runtime(repaired.entry_start).0),
        registers: up_to_pc(&caller.registers),
    })
}

/// The load bias of the module at a code address.
fn bias(code: CodeAddr, location: &FrameLocation) -> LoadBias {
    LoadBias(code.lookup().0.wrapping_sub(location.lookup.0))
}

fn up_to_pc(registers: &Registers) -> Vec<Option<u64>> {
    let numbers = 0..=ABI.arch.spec().pc.0;
    numbers
        .map(|number| registers.get(Register(number)))
        .collect()
}

/// Whether an address follows a call. The frame of an interrupted function mostly does not, and the
/// row at its address holds, not the row before it.
fn follows_call(memory: &dyn Memory, address: RuntimeAddr) -> bool {
    let mut before = [0; CALL_WINDOW_BYTES];
    let start = RuntimeAddr(address.0.wrapping_sub(CALL_WINDOW_BYTES as u64));
    let read = memory.read(start, &mut before);
    let test = CallTest::anywhere(ABI.arch);
    read.is_ok() && test.is_some_and(|test| test.passes(Vaddr(address.0), before))
}

/// Memory that the debugger reads.
struct DebuggerMemory<'c>(&'c Channel);

impl Memory for DebuggerMemory<'_> {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let bytes = self.0.memory(addr.0, into.len());
        match bytes
            .ok()
            .flatten()
            .filter(|bytes| bytes.len() == into.len())
        {
            Some(bytes) => {
                into.copy_from_slice(&bytes);
                Ok(())
            }
            None => Err(Unreadable::unmapped(addr)),
        }
    }
}

/// Lines to and from the debugger.
struct Channel(RefCell<io::StdinLock<'static>>);

impl Channel {
    /// The next line; `None` if the debugger has ended.
    fn receive(&self) -> anyhow::Result<Option<Request>> {
        let mut line = String::new();
        if self.0.borrow_mut().read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let request = serde_json::from_str(&line);
        Ok(Some(request.context("not a line of unspool_gdb.py")?))
    }

    fn send(&self, reply: &Reply) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, reply)?;
        out.write_all(b"\n")?;
        Ok(out.flush()?)
    }

    fn memory(&self, address: u64, count: usize) -> anyhow::Result<Option<Vec<u8>>> {
        self.send(&Reply::Read { address, count })?;
        match self.receive()? {
            Some(Request::Bytes(bytes)) => Ok(bytes.as_deref().and_then(from_hex)),
            _ => bail!("the debugger did not answer"),
        }
    }
}

/// The bytes of hexadecimal digits.
fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}
