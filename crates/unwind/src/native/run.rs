//! Machine code, run against the rows of its source.

use std::io;
use std::process::ExitStatus;

use unspool_native_table::{ObjectView, Outline, OutlineStart, StepStatus};
use unspool_rows::interpret::{self, FrameContext};
use unspool_rows::memory::UnreadableReason;
use unspool_rows::{LoadBias, Memory, Register, Registers, Row, RuntimeAddr, Unreadable, Vaddr};

use super::sys::fence;
use super::{NativeCode, NativeFrame, NativeMemory};

/// The result of running code against the rows of its source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunReport {
    /// The number of compared steps.
    pub steps: u64,
    /// Those that differ.
    pub differences: u64,
    /// The first addresses with differences, 0 after the last.
    pub first: [u64; RunReport::MAX_SHOWN],
}

impl RunReport {
    /// The limit of reported differences.
    pub const MAX_SHOWN: usize = 16;

    /// Reads what [`RunReport::written`] yields; `None` if bytes are missing.
    fn read(bytes: &[u8]) -> Option<RunReport> {
        let mut words = bytes
            .chunks_exact(8)
            .map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let mut checked = RunReport {
            steps: words.next()?,
            differences: words.next()?,
            ..RunReport::default()
        };
        for slot in &mut checked.first {
            *slot = words.next()?;
        }
        Some(checked)
    }

    fn written(&self) -> [u8; 8 * (2 + RunReport::MAX_SHOWN)] {
        let mut bytes = [0; 8 * (2 + RunReport::MAX_SHOWN)];
        let words = [self.steps, self.differences].into_iter().chain(self.first);
        for (slot, word) in bytes.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn note(&mut self, address: u64, is_same: bool) {
        self.steps += 1;
        if !is_same {
            let place = usize::try_from(self.differences).unwrap_or(usize::MAX);
            if let Some(slot) = self.first.get_mut(place) {
                *slot = address;
            }
            self.differences += 1;
        }
    }
}

/// The number of states in which each end of each range is stepped.
const STATES: usize = 2;

/// The number of further states in which each distinct row is stepped.
const ROW_STATES: usize = 64;

const STACK_WORDS: usize = 1 << 14;

/// Memory that only the callback reads: its bytes follow from their addresses.
const FAR: u64 = 0x70_0000_0000;
const FAR_BYTES: u64 = 1 << 16;

/// Synthetic frames and memory, and the plain interpreter's results for them.
struct CodeCheck<'o> {
    outline: &'o Outline<'o>,
    starts: Vec<OutlineStart>,
    stack: Vec<u64>,
    /// In the interpreter's form, and in the code's.
    frames: Vec<(Registers, NativeFrame)>,
    /// For each row the results in the first [`STATES`] states.
    expected: Vec<[StepOutcome; STATES]>,
    holes: [StepOutcome; STATES],
    /// For each row an address where it holds.
    samples: Vec<u64>,
}

/// The result of a step: the value returned by `unspool_step`, and the frame.
#[derive(Debug, Clone, Copy)]
struct StepOutcome {
    status: StepStatus,
    frame: NativeFrame,
}

impl StepOutcome {
    fn is_same(&self, status: Option<StepStatus>, frame: &NativeFrame) -> bool {
        let mut registers =
            (0..Outline::REGISTERS).map(|register| (self.frame.get(register), frame.get(register)));
        let has_cfa = matches!(
            status,
            Some(StepStatus::Caller | StepStatus::Interrupted | StepStatus::Outermost)
        );
        status == Some(self.status)
            && self.frame.known == frame.known
            && registers.all(|(expected, found)| expected == found)
            && (!has_cfa || self.frame.cfa == frame.cfa)
    }
}

impl<'o> CodeCheck<'o> {
    /// Prepares everything that needs memory.
    fn new(outline: &'o Outline<'o>) -> CodeCheck<'o> {
        let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
        let mut stack = vec![0; STACK_WORDS];
        let from = stack.as_ptr().addr() as u64;
        for word in &mut stack {
            *word = random.value(from);
        }
        let first = (0..STATES).map(|_| random.known(from)).collect::<Vec<_>>();
        let more = (0..ROW_STATES).map(|_| random.some(from));
        let starts: Vec<OutlineStart> = outline.starts().collect();
        let mut samples = vec![0; outline.rows().len()];
        for start in &starts {
            let row = start.row.and_then(|row| samples.get_mut(row.0 as usize));
            if let Some(sample) = row {
                *sample = start.address;
            }
        }
        let nothing = StepOutcome {
            status: StepStatus::NoRow,
            frame: NativeFrame::from_registers(&Registers::new()),
        };
        let frames = first.into_iter().chain(more);
        let frames = frames.map(|registers| (registers, NativeFrame::from_registers(&registers)));
        let mut check = CodeCheck {
            outline,
            starts,
            frames: frames.collect(),
            stack,
            expected: Vec::new(),
            holes: [nothing; STATES],
            samples,
        };
        let of = |row: Option<&Row<'_>>| {
            let mut results = check.holes;
            for (result, (registers, _)) in results.iter_mut().zip(&check.frames) {
                *result = check.interpreted(row, registers);
            }
            results
        };
        let holes = of(None);
        let expected = outline.rows().map(|row| of(Some(&row))).collect();
        check.holes = holes;
        check.expected = expected;
        check
    }

    /// The plain interpreter's result for a frame.
    fn interpreted(&self, row: Option<&Row<'_>>, registers: &Registers) -> StepOutcome {
        let unchanged = |status: StepStatus| StepOutcome {
            status,
            frame: NativeFrame::from_registers(registers),
        };
        let Some(row) = row else {
            return unchanged(StepStatus::NoRow);
        };
        let memory = SyntheticMemory { stack: &self.stack };
        let frame = FrameContext {
            abi: self.outline.abi(),
            registers,
            memory: &memory,
            bias: BIAS,
            pac_mask: 0,
        };
        match interpret::step(row, &frame) {
            Ok(caller) => {
                let (status, registers) = match caller.return_address {
                    Some(_) if row.signal_frame => (StepStatus::Interrupted, &caller.registers),
                    Some(_) => (StepStatus::Caller, &caller.registers),
                    None => (StepStatus::Outermost, registers),
                };
                let frame = NativeFrame {
                    cfa: caller.cfa.0,
                    ..NativeFrame::from_registers(registers)
                };
                StepOutcome { status, frame }
            }
            Err(error) => unchanged(StepStatus::from_step_error(&error)),
        }
    }

    /// Steps with the code at both ends of each range, and for each distinct row in many states.
    /// Allocates nothing, and makes no system calls.
    fn run(&self, code: &NativeCode) -> RunReport {
        let mut checked = RunReport::default();
        let mut memory = NativeMemory {
            stack: &self.stack,
            read: far,
        };
        let mut step = |address, frame: &NativeFrame| {
            let mut frame = *frame;
            let status = code.step(&mut frame, Vaddr(address), BIAS, &mut memory);
            (status, frame)
        };
        let ends = self.starts.iter().skip(1).map(|start| start.address);
        for (start, end) in self.starts.iter().zip(ends.chain([u64::MAX])) {
            let expected = match start.row {
                Some(row) => self.expected.get(row.0 as usize).unwrap_or(&self.holes),
                None => &self.holes,
            };
            for (result, (_, frame)) in expected.iter().zip(&self.frames) {
                for address in [start.address, end - 1] {
                    let (status, frame) = step(address, frame);
                    checked.note(address, result.is_same(status, &frame));
                }
            }
        }
        for (row, address) in self.outline.rows().zip(&self.samples) {
            for (registers, frame) in &self.frames {
                let expected = self.interpreted(Some(&row), registers);
                let (status, frame) = step(*address, frame);
                checked.note(*address, expected.is_same(status, &frame));
            }
        }
        checked
    }
}

const BIAS: LoadBias = LoadBias(0x5555_0000_0000);

/// The memory that the callback reads.
fn far(address: u64, size: u64) -> Option<u64> {
    let distance = address.checked_sub(FAR)?;
    if distance >= FAR_BYTES || FAR_BYTES - distance < size {
        return None;
    }
    let byte = |n: u64| ((address + n).wrapping_mul(167) >> 3 & 0xff) << (8 * n);
    Some((0..size.min(8)).map(byte).sum())
}

/// The same memory for the interpreter.
struct SyntheticMemory<'s> {
    stack: &'s [u64],
}

impl Memory for SyntheticMemory<'_> {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> core::result::Result<(), Unreadable> {
        let unreadable = Unreadable {
            addr,
            reason: UnreadableReason::Unmapped,
        };
        let start = self.stack.as_ptr().addr() as u64;
        for (byte, distance) in into.iter_mut().zip(0..) {
            let at = addr.0.checked_add(distance).ok_or(unreadable)?;
            let word = at.checked_sub(start).and_then(|distance| {
                let place = usize::try_from(distance / 8).ok()?;
                Some(self.stack.get(place)? >> (8 * (distance % 8)))
            });
            let word = word.or_else(|| far(at, 1)).ok_or(unreadable)?;
            let [low, ..] = word.to_le_bytes();
            *byte = low;
        }
        Ok(())
    }
}

/// Numbers that look random, the same in each run.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A value for a register or a word: an address on the stack, at its ends, or in the callback's
    /// memory; a small number; or any number.
    fn value(&mut self, stack: u64) -> u64 {
        let number = self.next() >> 8;
        let bytes = 8 * STACK_WORDS as u64;
        match self.next() % 8 {
            0..=3 => stack + number % bytes,
            4 => stack + bytes - number % 64,
            5 => FAR + number % FAR_BYTES,
            6 => number % 70,
            _ => self.next(),
        }
    }

    /// All registers known, and pointing into the middle of the stack: saved words near there can
    /// be read.
    fn known(&mut self, stack: u64) -> Registers {
        let mut registers = Registers::new();
        let quarter = 2 * STACK_WORDS as u64;
        for number in 0..Outline::REGISTERS {
            let value = stack + quarter + self.next() % (2 * quarter);
            registers.set(Register(number), value);
        }
        registers
    }

    /// Any values, and some registers unknown.
    fn some(&mut self, stack: u64) -> Registers {
        let mut registers = Registers::new();
        for number in 0..Outline::REGISTERS {
            let value = self.value(stack);
            if !self.next().is_multiple_of(16) {
                registers.set(Register(number), value);
            }
        }
        registers
    }
}

/// Steps with an object's code at both ends of each range of an outline, and from each distinct row
/// in many states, and compares with the plain interpreter.
///
/// The code runs in its own process, a copy of this one without open files. While it runs it can
/// only compute (`seccomp`(2), strict mode). The system kills it otherwise, or after a minute of
/// processor time.
///
/// # Errors
///
/// [`RunError`].
pub fn run_apart(
    object: &ObjectView<'_>,
    outline: &Outline<'_>,
) -> core::result::Result<RunReport, RunError> {
    let check = CodeCheck::new(outline);
    let code = NativeCode::map(object).ok_or_else(io::Error::last_os_error)?;
    let (output, ended) = fence::apart(|| check.run(&code).written())?;
    let checked = RunReport::read(&output).filter(|_| ended.success());
    checked.ok_or(RunError::Stopped(ended))
}

/// Why code did not run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// No process or memory was available.
    #[error("no process to run code in")]
    Process(#[from] io::Error),
    /// It did something forbidden, or took too long.
    #[error("its code was stopped: {0}")]
    Stopped(ExitStatus),
}
