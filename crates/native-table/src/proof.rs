//! A proof by symbolic execution that code does what rows mean.
//!
//! Each body is executed on terms instead of numbers, from the first instruction to the return,
//! along every path. Where paths join, their states become one state with choices. In the end the
//! frame, its words for known registers, and the status must be the same terms as the row's, in
//! every case. On no path may the code read or write memory, call or jump where it should not.
//!
//! The proof assumes: the look-up and the prologue before the bodies, which must be byte for byte
//! this crate's output for an index of these sizes; that the function that reads other memory
//! follows the psABI and writes nothing except its result; and the effects of instructions
//! (`execute.rs`).

use core::num::NonZero;
use std::panic::resume_unwind;

use hashbrown::{HashMap, HashSet};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use unspool_rows::{Abi, Row, RowId, Table, Vaddr};

use crate::read::{ObjectError, ObjectView};
use crate::status::StepStatus;

mod execute;
mod meaning;
mod memory;
mod parts;
mod state;
mod terms;

use execute::{Execution, Successor};
use meaning::{BITS, REGISTERS, StepTerms, element};
use parts::CodeParts;
use state::{CallerRegisters, ProofContext, RegisterMasks, SymbolicState};
use terms::{TermId, Terms};

/// Why code is not proven to do what a row means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofFault {
    /// An instruction that bodies do not use.
    #[error("such objects have no such instruction")]
    Instruction,
    /// A branch on an unknown condition.
    #[error("it branches on an unknown value")]
    Condition,
    /// A jump out of the code, or to an unexpected place in it.
    #[error("it branches where unspool's code never does")]
    Branch,
    /// The stack pointer was moved.
    #[error("it moves the stack pointer where it must not")]
    Stack,
    /// An address that is not derived from the inputs.
    #[error("it uses an address outside of the frame, the stack and the given memory")]
    Address,
    /// A load from memory that may not be readable.
    #[error("it reads memory that may be unreadable")]
    Load,
    /// A store to other memory than the own stack or the frame.
    #[error("it writes where it must not")]
    Store,
    /// A division that may trap.
    #[error("it divides by a value that may be 0")]
    Trap,
    /// A register that is not restored.
    #[error("it does not preserve all registers that calls preserve")]
    Preserved,
    /// More steps or paths than the limits allow.
    #[error("it takes too many steps, or too many paths")]
    TooLong,
    /// The wrong result.
    #[error("its result is not the row's: {0}")]
    Result(ResultPart),
}

/// A part of a step's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultPart {
    /// The returned status.
    Status,
    /// A register of the frame, by its DWARF number.
    Register(u8),
    /// Whether a register is known.
    Known(u8),
    /// The CFA.
    Cfa,
}

impl core::fmt::Display for ResultPart {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ResultPart::Status => f.write_str("another status"),
            ResultPart::Register(number) => write!(f, "another value of register {number}"),
            ResultPart::Known(number) => write!(f, "register {number} known or not"),
            ResultPart::Cfa => f.write_str("another CFA"),
        }
    }
}

/// Where and why a proof ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("at {at:#x} of the object: {fault}")]
pub struct ProofFailure {
    /// The address of the instruction, relative to the object.
    pub at: u64,
    /// What is wrong.
    pub fault: ProofFault,
}

/// Result of a proof of an object against a table.
#[derive(Debug, Default)]
pub struct ObjectProof {
    /// Number of rows of the table, with all of their addresses compared.
    pub rows: usize,
    /// Number of different pairs of a row, or none, and a body.
    pub pairs: usize,
    /// Pairs that are not proven: the first address of each, and the reason.
    pub unproven: Vec<(Vaddr, ProofFailure)>,
}

/// Proves that an object does at each address what a table says.
///
/// # Errors
///
/// The index is not one that the code stays inside of, or the code that uses it is not this crate's
/// output.
pub fn prove(object: &ObjectView<'_>, table: &Table) -> Result<ObjectProof, ObjectError> {
    object.check_frame(table.abi())?;
    let (starts, _) = object.starts()?;
    let places = object.bodies()?;
    let mut pairs = RowBodies::default();
    let mut starts = starts.iter().peekable();
    let mut body = 0;
    let mut rows = 0;
    for (start, end, row) in covered(table) {
        rows += usize::from(row.is_some());
        while let Some(next) = starts.next_if(|next| next.address <= start) {
            body = next.body;
        }
        pairs.insert(row, body, start);
        while let Some(next) = starts.next_if(|next| end.is_none_or(|end| next.address < end)) {
            body = next.body;
            pairs.insert(row, body, next.address);
        }
    }
    let part = |bodies: &[RowBody]| {
        let (code, start) = object.code();
        let mut prover = Prover::new(code, start, table.abi());
        let mut unproven = Vec::new();
        for pair in bodies {
            let row = pair.row.and_then(|row| table.row(row));
            let place = places.get(pair.body as usize).copied().unwrap_or(0);
            if let Err(error) = prover.prove(row.as_ref(), place) {
                unproven.push((pair.at, error));
            }
        }
        unproven
    };
    // The proofs are independent.
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let share = pairs
        .bodies
        .len()
        .div_ceil(threads)
        .max(MIN_PROOFS_PER_THREAD);
    let unproven = std::thread::scope(|scope| {
        let mut parts = pairs.bodies.chunks(share);
        let first = parts.next().unwrap_or_default();
        let others: Vec<_> = parts.map(|pairs| scope.spawn(|| part(pairs))).collect();
        let mut unproven = part(first);
        for other in others {
            unproven.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        unproven
    });
    Ok(ObjectProof {
        rows,
        pairs: pairs.bodies.len(),
        unproven,
    })
}

/// Number of proofs that justify a thread.
const MIN_PROOFS_PER_THREAD: usize = 256;

/// All addresses from 0 on, in ranges with one row or none; the last range has no end.
fn covered(table: &Table) -> impl Iterator<Item = (u64, Option<u64>, Option<RowId>)> {
    let mut end = 0;
    let spans = table.spans().flat_map(move |span| {
        let hole = (end < span.start.0).then_some((end, Some(span.start.0), None));
        end = span.end.0;
        let piece = (span.start.0, Some(span.end.0), Some(span.row));
        hole.into_iter().chain([piece])
    });
    let last = table.spans().last().map_or(0, |span| span.end.0);
    spans.chain([(last, None, None)])
}

/// A row, or none, and the body that the index selects where it holds.
struct RowBody {
    row: Option<RowId>,
    body: u32,
    /// The first such address.
    at: Vaddr,
}

/// The bodies of rows, each pair once.
#[derive(Default)]
struct RowBodies {
    bodies: Vec<RowBody>,
    known: HashSet<(Option<RowId>, u32)>,
}

impl RowBodies {
    fn insert(&mut self, row: Option<RowId>, body: u32, at: u64) {
        if self.known.insert((row, body)) {
            let at = Vaddr(at);
            self.bodies.push(RowBody { row, body, at });
        }
    }
}

/// Steps for one body, and states at one time.
const MAX_STEPS: usize = 100_000;
const MAX_STATES: usize = 256;

/// Proves one body after another.
struct Prover<'b> {
    code: &'b [u8],
    /// The address of the code.
    start: u64,
    abi: Abi,
    decoded: HashMap<u64, Instruction>,
    terms: Terms,
    masks: RegisterMasks,
    parts: CodeParts,
}

/// Results of running code.
struct FinalStates {
    /// The states after its return.
    returned: Vec<SymbolicState>,
    /// The state left where a part begins, and the registers known there.
    left: Option<(SymbolicState, CallerRegisters)>,
}

impl<'b> Prover<'b> {
    fn new(code: &'b [u8], start: u64, abi: Abi) -> Prover<'b> {
        let (mut terms, mut bits) = (Terms::new(), RegisterMasks::default());
        Prover {
            code,
            start,
            abi,
            decoded: HashMap::new(),
            parts: CodeParts::new(&mut ProofContext {
                terms: &mut terms,
                masks: &mut bits,
            }),
            terms,
            masks: bits,
        }
    }

    /// Proves that the code at an address does what a row means or, without one, that it returns
    /// "no row".
    fn prove(&mut self, row: Option<&Row<'_>>, at: u64) -> Result<(), ProofFailure> {
        if self.terms.is_nearly_full() {
            let decoded = core::mem::take(&mut self.decoded);
            *self = Prover {
                decoded,
                ..Prover::new(self.code, self.start, self.abi)
            };
        }
        if row.is_some_and(|row| self.is_proven_in_parts(row, at)) {
            return Ok(());
        }
        let expected = match row {
            Some(row) => meaning::row_terms(&mut self.terms, row, self.abi),
            None => meaning::fails(&mut self.terms, StepStatus::NoRow),
        };
        let ways = self.run(self.parts.body.with_address(at), false)?;
        let found = self.outcome(ways);
        self.compare(&found, &expected)
            .map_err(|fault| ProofFailure { at, fault })
    }

    fn context(&mut self) -> ProofContext<'_> {
        ProofContext {
            terms: &mut self.terms,
            masks: &mut self.masks,
        }
    }

    /// Runs all paths through the code from a state on until the return. If it may be left there,
    /// runs until the first place where a part begins.
    fn run(&mut self, from: SymbolicState, may_leave: bool) -> Result<FinalStates, ProofFailure> {
        let mut open = vec![from];
        let mut ways = FinalStates {
            returned: Vec::new(),
            left: None,
        };
        let mut steps = 0;
        while let Some(place) = first(&open) {
            let count = open.len();
            let Some(state) = open.get_mut(place) else {
                break;
            };
            let at = state.at;
            let unproven = |fault| ProofFailure { at, fault };
            steps += 1;
            if steps > MAX_STEPS || count > MAX_STATES || self.terms.is_full() {
                return Err(unproven(ProofFault::TooLong));
            }
            let mut context = ProofContext {
                terms: &mut self.terms,
                masks: &mut self.masks,
            };
            if may_leave
                && ways.left.is_none()
                && core::mem::take(&mut state.is_behind_call)
                && let Some(known) = state.as_part(&self.parts.part, &context)
            {
                ways.left = Some((open.swap_remove(place), known));
                continue;
            }
            let instruction = decode(&mut self.decoded, (self.code, self.start), at);
            let execution = Execution {
                context: &mut context,
                state,
                instruction: &instruction.ok_or(unproven(ProofFault::Branch))?,
            };
            let next = execution.run().map_err(unproven)?;
            match next {
                Successor::Address(to) | Successor::Back(to) => {
                    state.at = to;
                    state.is_behind_call = matches!(next, Successor::Back(_));
                    // Mostly there is no state to join with.
                    if count > 1 {
                        let state = open.swap_remove(place);
                        put(&mut open, state, &mut context);
                    }
                }
                Successor::Either { condition, yes, no } => {
                    let state = open.swap_remove(place);
                    let not = context.terms.not(condition);
                    for (condition, at) in [(condition, yes), (not, no)] {
                        if condition != Terms::NO {
                            let mut state = state.clone();
                            state.at = at;
                            state.path_condition.add(condition);
                            put(&mut open, state, &mut context);
                        }
                    }
                }
                Successor::Returns => {
                    if !state.preserves(&mut context) {
                        return Err(unproven(ProofFault::Preserved));
                    }
                    ways.returned.push(open.swap_remove(place));
                }
            }
        }
        Ok(ways)
    }

    /// The joined result of all paths that have returned.
    fn outcome(&mut self, final_states: FinalStates) -> StepTerms {
        let mut outcome = StepTerms {
            status: Terms::UNKNOWN,
            known: [Terms::UNKNOWN; BITS],
            registers: [Terms::UNKNOWN; REGISTERS],
            cfa: Terms::UNKNOWN,
        };
        for state in final_states.returned {
            add(&mut outcome, &state, &mut self.context());
        }
        outcome
    }

    /// Whether code has the expected result in all cases.
    fn compare(&mut self, found: &StepTerms, expected: &StepTerms) -> Result<(), ProofFault> {
        let terms = &mut self.terms;
        let same = |terms: &Terms, found: TermId, expected: TermId, part| {
            let is_same = found == expected && terms.is_known(found);
            is_same.then_some(()).ok_or(ProofFault::Result(part))
        };
        same(terms, found.status, expected.status, ResultPart::Status)?;
        same(terms, found.cfa, expected.cfa, ResultPart::Cfa)?;
        for bit in 0..BITS {
            let part = ResultPart::Known(u8::try_from(bit).unwrap_or(u8::MAX));
            same(
                terms,
                element(&found.known, bit),
                element(&expected.known, bit),
                part,
            )?;
        }
        for register in 0..REGISTERS {
            let known = element(&expected.known, register);
            let [found, expected] = [found, expected].map(|outcome| {
                let value = element(&outcome.registers, register);
                terms.choose(known, value, Terms::NO)
            });
            let part = ResultPart::Register(u8::try_from(register).unwrap_or(u8::MAX));
            same(terms, found, expected, part)?;
        }
        Ok(())
    }
}

/// The instruction at an address of code that starts at another.
fn decode(
    decoded: &mut HashMap<u64, Instruction>,
    (code, start): (&[u8], u64),
    at: u64,
) -> Option<Instruction> {
    if let Some(instruction) = decoded.get(&at) {
        return Some(*instruction);
    }
    let offset = usize::try_from(at.checked_sub(start)?).ok()?;
    let bytes = code.get(offset..).filter(|bytes| !bytes.is_empty())?;
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    let instruction = if has_size_prefix(bytes) {
        // No instruction.
        Instruction::default()
    } else {
        decoder.decode()
    };
    decoded.insert(at, instruction);
    Some(instruction)
}

/// Whether an instruction begins with a prefix that changes the size of operands or addresses
/// (Intel SDM, volume 2, 2.1.1). Generated code has none, and AMD's and Intel's processors
/// interpret them differently for branches.
fn has_size_prefix(bytes: &[u8]) -> bool {
    let is_prefix = |byte: &u8| {
        matches!(
            byte,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
        )
    };
    let mut prefixes = bytes.iter().copied().take_while(is_prefix);
    prefixes.any(|byte| matches!(byte, 0x66 | 0x67))
}

/// Index of the state that continues first.
fn first(open: &[SymbolicState]) -> Option<usize> {
    if let [_] = open {
        return Some(0);
    }
    let states = open.iter().enumerate();
    let (place, _) = states.min_by_key(|(_, state)| state.order())?;
    Some(place)
}

/// Adds a state, or joins it with one at the same place.
fn put(open: &mut Vec<SymbolicState>, state: SymbolicState, context: &mut ProofContext<'_>) {
    match open.iter_mut().find(|other| other.can_join(&state)) {
        Some(other) => other.join(context, &state),
        None => open.push(state),
    }
}

/// Joins the result of a state that has returned.
fn add(step_terms: &mut StepTerms, state: &SymbolicState, context: &mut ProofContext<'_>) {
    let condition = state.path_condition.all(context.terms);
    let status = state.status(context);
    let found = state.caller_registers(context);
    let terms = &mut *context.terms;
    let mut add = |slot: &mut TermId, node| *slot = terms.choose(condition, node, *slot);
    add(&mut step_terms.status, status);
    add(&mut step_terms.cfa, found.cfa);
    for (slot, node) in step_terms.registers.iter_mut().zip(found.registers) {
        add(slot, node);
    }
    for (slot, node) in step_terms.known.iter_mut().zip(found.known) {
        add(slot, node);
    }
}

#[cfg(test)]
mod tests;
