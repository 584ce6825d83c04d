//! One step of anything, against the interpreter.

use unspool_rows::expression::ExpressionError;
use unspool_rows::interpret::{self, FrameContext, RegisterError, StepError};
use unspool_rows::{Abi, LoadBias, Register, Registers, Row, Table};

use crate::memory::{self, CaseMemory};
use crate::random::CaseRandom;

/// The load bias of the frames' module.
pub const BIAS: LoadBias = LoadBias(0x5555_0000_0000);

/// A frame to step from.
#[derive(Debug, Clone)]
pub struct CaseFrame<'t> {
    /// The address in the table that selects the row.
    pub address: u64,
    /// The row there.
    pub row: Option<Row<'t>>,
    /// The known registers.
    pub registers: Registers,
}

/// Where a step led.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// To a caller.
    Caller,
    /// From a signal frame to the interrupted frame.
    Interrupted,
    /// Nowhere: the frame is the outermost.
    Outermost,
    /// It failed.
    Failed(StepFailure),
}

/// Why a step failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepFailure {
    /// There is no row.
    NoRow,
    /// The row has no CFA, or no rule for the return address.
    NoRule,
    /// A register is unknown in the frame.
    UnknownRegister,
    /// Memory cannot be read.
    Unreadable,
    /// An expression divides by zero.
    DivisionByZero,
    /// An expression is malformed, or too long.
    BadExpression,
    /// The stepper does not say.
    Unspecified,
}

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseOutcome {
    /// Where it led.
    pub kind: StepKind,
    /// The CFA of the frame that was left.
    pub cfa: Option<u64>,
    /// The known registers of the new frame; after a failure and at the end, those of the old one.
    pub registers: Registers,
}

/// Something that steps from a frame to its caller.
pub trait Stepper {
    /// The registers that it follows.
    fn tracked(&self) -> Vec<Register>;

    /// Steps from each frame. `None` for those that it leaves to the interpreter.
    fn step(&mut self, memory: &CaseMemory, frames: &[CaseFrame<'_>]) -> Vec<Option<CaseOutcome>>;
}

/// What the steps of a comparison came to. A test checks it, so that it does not pass by leaving
/// all frames to the interpreter.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepTally {
    /// The steps taken.
    pub steps: usize,
    /// Those to a caller or an interrupted frame.
    pub callers: usize,
    /// The steps left to the interpreter.
    pub left: usize,
}

/// Frames at these addresses of a table, with random registers.
#[must_use]
pub fn frames<'t>(
    table: &'t Table,
    addresses: &[u64],
    count: u16,
    random: &mut CaseRandom,
) -> Vec<CaseFrame<'t>> {
    let spans: Vec<_> = table.spans().collect();
    let row_at = |address: u64| {
        let behind = spans.partition_point(|span| span.start.0 <= address);
        let span = spans.get(behind.checked_sub(1)?)?;
        (address < span.end.0)
            .then(|| table.row(span.row))
            .flatten()
    };
    let frames = addresses.iter().map(|address| CaseFrame {
        address: *address,
        row: row_at(*address),
        registers: memory::registers(random, count),
    });
    frames.collect()
}

/// Addresses where errors are likely: both ends of each range of a table, and their neighbours.
#[must_use]
pub fn ends(table: &Table) -> Vec<u64> {
    let ends = table.spans().flat_map(|span| {
        let (start, end) = (span.start.0, span.end.0);
        [start.wrapping_sub(1), start, end - 1, end]
    });
    ends.collect()
}

/// Steps from each frame by the stepper and by the interpreter, and compares.
pub fn compare_steps(
    stepper: &mut impl Stepper,
    abi: Abi,
    memory: &CaseMemory,
    frames: &[CaseFrame<'_>],
) -> StepTally {
    let tracked = stepper.tracked();
    let outcomes = stepper.step(memory, frames);
    assert_eq!(outcomes.len(), frames.len());
    let mut tally = StepTally::default();
    for (frame, found) in frames.iter().zip(outcomes) {
        let Some(found) = found else {
            tally.left += 1;
            continue;
        };
        let expected = interpreted(frame, abi, memory);
        let (address, row) = (frame.address, &frame.row);
        assert!(
            agree(&found, &expected, &tracked),
            "at {address:#x}: {row:?}\n{:x?}\nfound    {found:x?}\nexpected {expected:x?}",
            frame.registers,
        );
        tally.steps += 1;
        tally.callers += usize::from(leads_on(found.kind));
    }
    tally
}

fn leads_on(kind: StepKind) -> bool {
    matches!(kind, StepKind::Caller | StepKind::Interrupted)
}

fn agree(found: &CaseOutcome, expected: &CaseOutcome, tracked: &[Register]) -> bool {
    let kinds = match (found.kind, expected.kind) {
        (StepKind::Failed(StepFailure::Unspecified), StepKind::Failed(_)) => true,
        (found, expected) => found == expected,
    };
    let is_same =
        |register: &Register| found.registers.get(*register) == expected.registers.get(*register);
    let needs_cfa = leads_on(found.kind) || found.cfa.is_some();
    kinds && (!needs_cfa || found.cfa == expected.cfa) && tracked.iter().all(is_same)
}

/// The interpreter's result.
fn interpreted(frame: &CaseFrame<'_>, abi: Abi, memory: &CaseMemory) -> CaseOutcome {
    let failed = |failure| CaseOutcome {
        kind: StepKind::Failed(failure),
        cfa: None,
        registers: frame.registers,
    };
    let Some(row) = &frame.row else {
        return failed(StepFailure::NoRow);
    };
    let context = FrameContext {
        abi,
        registers: &frame.registers,
        memory,
        bias: BIAS,
        pac_mask: 0,
    };
    match interpret::step(row, &context) {
        Ok(caller) => {
            let (kind, registers) = match caller.return_address {
                None => (StepKind::Outermost, frame.registers),
                Some(_) if row.signal_frame => (StepKind::Interrupted, caller.registers),
                Some(_) => (StepKind::Caller, caller.registers),
            };
            CaseOutcome {
                kind,
                cfa: Some(caller.cfa.0),
                registers,
            }
        }
        Err(error) => failed(error.into()),
    }
}

impl From<StepError> for StepFailure {
    fn from(error: StepError) -> Self {
        match error {
            StepError::NoCfa | StepError::NoReturnAddress => StepFailure::NoRule,
            StepError::UnknownCfaRegister(_) | StepError::UnknownReturnAddress => {
                StepFailure::UnknownRegister
            }
            StepError::ReturnAddress(RegisterError::Unreadable(_)) => StepFailure::Unreadable,
            StepError::CfaExpression(error)
            | StepError::ReturnAddress(RegisterError::Expression(error)) => error.into(),
            other => panic!("{other}"),
        }
    }
}

impl From<ExpressionError> for StepFailure {
    fn from(error: ExpressionError) -> Self {
        match error {
            ExpressionError::UnknownRegister(_) => StepFailure::UnknownRegister,
            ExpressionError::Unreadable(_) => StepFailure::Unreadable,
            ExpressionError::DivisionByZero { .. } => StepFailure::DivisionByZero,
            _ => StepFailure::BadExpression,
        }
    }
}
