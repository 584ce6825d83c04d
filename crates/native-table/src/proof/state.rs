//! The symbolic state of a body: registers, stack and frame, in terms.

use core::cmp::Reverse;

use hashbrown::HashMap;

use super::ProofFault;
use super::meaning::{BITS, REGISTERS};
use super::memory;
use super::terms::{InputTerm, TermId, Terms};
use crate::x86_64::{BIAS, CFA, KNOWN, MEMORY, OLD};

/// Machine registers, by encoding.
pub(super) const RAX: usize = 0;
pub(super) const RCX: usize = 1;
pub(super) const RDX: usize = 2;
const RBX: usize = 3;
pub(super) const RSP: usize = 4;
const RBP: usize = 5;
pub(super) const RSI: usize = 6;
pub(super) const RDI: usize = 7;
pub(super) const R8: usize = 8;
/// Once there is a CFA: the CFA, and the word of the caller's known registers.
const R12: usize = 12;
const R13: usize = 13;
const R14: usize = 14;
const R15: usize = 15;

/// Registers that a function preserves, without the stack pointer; and those that it does not.
const PRESERVED: [usize; 6] = [RBX, RBP, R12, R13, R14, R15];
const SCRATCH: [usize; 9] = [RAX, RCX, RDX, RSI, RDI, R8, 9, 10, 11];

/// Bytes from the saved frame pointer up to the caller's stack: that slot and the return address.
const TOP: i64 = 16;

/// Words of stack that one step may use.
const MAX_STACK_WORDS: usize = 512;

/// A word in a register or in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SymbolicWord {
    Value(TermId),
    /// The low byte is known; the others are unspecified.
    Byte(TermId),
    /// The word of known registers, bit for bit: by its number in [`RegisterMasks`].
    Bits(u32),
}

impl SymbolicWord {
    const UNKNOWN: SymbolicWord = SymbolicWord::Value(Terms::UNKNOWN);

    pub(super) fn node(self) -> TermId {
        match self {
            SymbolicWord::Value(node) => node,
            SymbolicWord::Byte(_) | SymbolicWord::Bits(_) => Terms::UNKNOWN,
        }
    }
}

/// Words with a condition for each bit, like [`BITS`].
#[derive(Default)]
pub(super) struct RegisterMasks {
    words: Vec<[TermId; BITS]>,
    numbers: HashMap<[TermId; BITS], u32>,
}

impl RegisterMasks {
    pub(super) fn put(&mut self, bits: [TermId; BITS]) -> SymbolicWord {
        let next = u32::try_from(self.words.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(bits).or_insert(next);
        if number == next {
            self.words.push(bits);
        }
        SymbolicWord::Bits(number)
    }

    pub(super) fn get(&self, word: SymbolicWord) -> Option<[TermId; BITS]> {
        match word {
            SymbolicWord::Bits(number) => self.words.get(number as usize).copied(),
            _ => None,
        }
    }
}

/// The flags after the last instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flags {
    /// A condition.
    pub(super) carry: TermId,
    /// The compared values, if any.
    pub(super) compared: Option<(TermId, TermId)>,
    /// Whether the highest bits of both are their signs: that is not so for 32-bit numbers.
    pub(super) has_sign: bool,
}

impl Flags {
    pub(super) const UNKNOWN: Flags = Flags::with_carry(Terms::UNKNOWN);

    /// Everything else is unknown.
    pub(super) const fn with_carry(carry: TermId) -> Flags {
        Flags {
            carry,
            compared: None,
            has_sign: false,
        }
    }
}

/// Location of a memory operand.
#[derive(Debug, Clone, Copy)]
pub(super) enum MemoryLocation {
    /// The own stack: a word's index, counted down from the caller's stack.
    Stack(usize),
    /// The part of the stack that begins at a multiple of 16 bytes.
    Aligned(usize),
    /// A word of the frame.
    Frame(usize),
    /// Another input.
    Given(InputTerm),
    /// The unwound stack, if a condition holds.
    Unwound(TermId),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct AlignedStack {
    base: TermId,
    /// From the base down.
    words: Vec<SymbolicWord>,
}

/// The path condition: a conjunction, with the first decision first.
#[derive(Debug, Clone, Default)]
pub(super) struct PathCondition(Vec<TermId>);

impl PathCondition {
    /// A node without the choices that these conditions decide, each by itself.
    pub(super) fn assume(&self, terms: &mut Terms, node: TermId) -> TermId {
        let conditions = self.0.iter().rev();
        conditions.fold(node, |node, condition| terms.assume(node, *condition))
    }

    /// Whether these imply a condition.
    pub(super) fn implies(&self, terms: &mut Terms, condition: TermId) -> bool {
        let mut so_far = Terms::YES;
        self.0.iter().rev().any(|last| {
            so_far = terms.and(*last, so_far);
            terms.implies(so_far, condition)
        })
    }

    pub(super) fn add(&mut self, condition: TermId) {
        if condition != Terms::YES {
            self.0.push(condition);
        }
    }

    /// All of these, without the first ones.
    fn behind(&self, terms: &mut Terms, first: usize) -> TermId {
        let conditions = self.0.iter().skip(first).rev();
        conditions.fold(Terms::YES, |all, condition| terms.and(*condition, all))
    }

    /// These as one condition.
    pub(super) fn all(&self, terms: &mut Terms) -> TermId {
        self.behind(terms, 0)
    }

    /// The disjunction with other conditions. Returns a condition that separates both, where either
    /// holds.
    fn or(&mut self, terms: &mut Terms, other: &PathCondition) -> TermId {
        let both = self.0.iter().zip(&other.0);
        let common = both.take_while(|(own, other)| own == other).count();
        let [own, other] = [&*self, other].map(|when| when.behind(terms, common));
        let either = terms.or(own, other);
        self.0.truncate(common);
        self.add(either);
        terms.assume(own, either)
    }
}

/// A state and its path condition.
#[derive(Debug, Clone)]
pub(super) struct SymbolicState {
    /// The address of the next instruction.
    pub(super) at: u64,
    /// Whether a call has just returned there, on all paths.
    pub(super) is_behind_call: bool,
    pub(super) path_condition: PathCondition,
    registers: [SymbolicWord; 16],
    pub(super) flags: Flags,
    /// From the caller's stack down to the stack pointer, or to the aligned part.
    stack: Vec<SymbolicWord>,
    aligned: Option<AlignedStack>,
    /// `struct unspool_frame`.
    frame: [SymbolicWord; REGISTERS + 2],
}

/// The registers known in a state with a CFA.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallerRegisters {
    pub(super) cfa: TermId,
    /// Which registers of the caller are known so far, and their values.
    pub(super) known: [TermId; BITS],
    pub(super) registers: [TermId; REGISTERS],
}

/// The shared context of a proof's states.
pub(super) struct ProofContext<'c> {
    pub(super) terms: &'c mut Terms,
    pub(super) masks: &'c mut RegisterMasks,
}

impl ProofContext<'_> {
    /// A word without the choices that conditions decide.
    fn assume(&mut self, word: SymbolicWord, condition: &PathCondition) -> SymbolicWord {
        match word {
            SymbolicWord::Value(node) => SymbolicWord::Value(condition.assume(self.terms, node)),
            SymbolicWord::Byte(node) => SymbolicWord::Byte(condition.assume(self.terms, node)),
            SymbolicWord::Bits(_) => word,
        }
    }

    fn choose(&mut self, condition: TermId, yes: SymbolicWord, no: SymbolicWord) -> SymbolicWord {
        match (yes, no) {
            _ if yes == no => yes,
            (SymbolicWord::Value(yes), SymbolicWord::Value(no)) => {
                SymbolicWord::Value(self.terms.choose(condition, yes, no))
            }
            (SymbolicWord::Byte(yes), SymbolicWord::Byte(no)) => {
                SymbolicWord::Byte(self.terms.choose(condition, yes, no))
            }
            (SymbolicWord::Bits(_), SymbolicWord::Bits(_)) => {
                let (Some(mut bits), Some(no)) = (self.masks.get(yes), self.masks.get(no)) else {
                    return SymbolicWord::UNKNOWN;
                };
                for (yes, no) in bits.iter_mut().zip(no) {
                    *yes = self.terms.choose(condition, *yes, no);
                }
                self.masks.put(bits)
            }
            _ => SymbolicWord::UNKNOWN,
        }
    }
}

/// Index of a stack word, counted down from the caller's stack, by its distance from
/// [`InputTerm::Base`].
fn word_below(distance: i64) -> Option<usize> {
    let below = TOP.checked_sub(distance)?;
    (below > 0 && below % 8 == 0).then_some(())?;
    usize::try_from(below / 8 - 1).ok()
}

impl SymbolicState {
    /// The same state at another address.
    pub(super) fn with_address(&self, at: u64) -> SymbolicState {
        SymbolicState { at, ..self.clone() }
    }

    /// The state at a body's begin.
    pub(super) fn body_entry(context: &mut ProofContext<'_>) -> SymbolicState {
        let known = core::array::from_fn(|bit| context.terms.known(number(bit)));
        let cfa = SymbolicWord::Value(context.terms.input_term(InputTerm::OldCfa));
        let registers = core::array::from_fn(|register| InputTerm::Register(number(register)));
        let known = context.masks.put(known);
        SymbolicState::within(registers, known, cfa, context)
    }

    /// The state at the begin of a part, once there is a CFA.
    pub(super) fn part_entry(context: &mut ProofContext<'_>) -> SymbolicState {
        let mut known = core::array::from_fn(|bit| context.terms.known_at_part_start(number(bit)));
        // Not a register.
        known[REGISTERS] = Terms::NO;
        let cfa = SymbolicWord::Value(context.terms.input_term(InputTerm::Cfa));
        let registers = core::array::from_fn(|register| InputTerm::Now(number(register)));
        let mut state = SymbolicState::within(registers, SymbolicWord::UNKNOWN, cfa, context);
        state.registers[R12] = cfa;
        state.registers[R13] = context.masks.put(known);
        state
    }

    /// The parts that are the same in all bodies.
    fn within(
        input: [InputTerm; REGISTERS],
        known: SymbolicWord,
        cfa: SymbolicWord,
        context: &mut ProofContext<'_>,
    ) -> SymbolicState {
        let terms = &mut *context.terms;
        let mut frame = [SymbolicWord::UNKNOWN; REGISTERS + 2];
        for (slot, given) in frame.iter_mut().zip(input) {
            *slot = SymbolicWord::Value(terms.input_term(given));
        }
        for (offset, word) in [(KNOWN, known), (CFA, cfa)] {
            let slot = usize::try_from(offset / 8).ok();
            if let Some(slot) = slot.and_then(|slot| frame.get_mut(slot)) {
                *slot = word;
            }
        }
        let mut registers = [SymbolicWord::UNKNOWN; 16];
        let base = terms.input_term(InputTerm::Base);
        registers[RBX] = SymbolicWord::Value(terms.input_term(InputTerm::Frame));
        registers[RSP] = SymbolicWord::Value(terms.add(base, OLD.into()));
        registers[RBP] = SymbolicWord::Value(base);
        registers[R14] = SymbolicWord::Value(terms.input_term(InputTerm::First));
        registers[R15] = SymbolicWord::Value(terms.input_term(InputTerm::Last));
        let size = word_below(OLD.into()).map_or(0, |last| last + 1);
        let mut stack = vec![SymbolicWord::UNKNOWN; size];
        let saved = (-40_i64..).step_by(8).zip([R15, R14, R13, R12, RBX, RBP]);
        let saved = saved.map(|(at, register)| (at, InputTerm::Callee(number(register))));
        let others = [
            (8, InputTerm::Return),
            (BIAS.into(), InputTerm::Bias),
            (MEMORY.into(), InputTerm::Memory),
        ];
        for (distance, given) in saved.chain(others) {
            let slot = word_below(distance).and_then(|word| stack.get_mut(word));
            if let Some(slot) = slot {
                *slot = SymbolicWord::Value(terms.input_term(given));
            }
        }
        SymbolicState {
            at: 0,
            is_behind_call: false,
            path_condition: PathCondition::default(),
            registers,
            flags: Flags::UNKNOWN,
            stack,
            aligned: None,
            frame,
        }
    }

    /// The known registers at a part's begin, if a part may begin in this state: everything matches
    /// `pattern`, a [`SymbolicState::part_entry`], for some CFA and some frame. Parts that it
    /// leaves open may be anything.
    pub(super) fn as_part(
        &self,
        pattern: &SymbolicState,
        context: &ProofContext<'_>,
    ) -> Option<CallerRegisters> {
        let as_there = |own: &[SymbolicWord], pattern: &[SymbolicWord]| {
            let mut both = own.iter().zip(pattern);
            own.len() == pattern.len()
                && both.all(|(own, pattern)| *pattern == SymbolicWord::UNKNOWN || own == pattern)
        };
        let others = |state: &SymbolicState| {
            let mut registers = state.registers;
            (registers[R12], registers[R13]) = (SymbolicWord::UNKNOWN, SymbolicWord::UNKNOWN);
            registers
        };
        let by_frame = self.caller_registers(context);
        let known = CallerRegisters {
            known: context.masks.get(self.registers[R13])?,
            ..by_frame
        };
        let terms = &*context.terms;
        let is_part = self.aligned.is_none()
            && as_there(&self.stack, &pattern.stack)
            && as_there(&others(self), &others(pattern))
            && self.registers[R12] == SymbolicWord::Value(known.cfa)
            && known.known[REGISTERS] == Terms::NO
            && known.known.iter().all(|bit| terms.is_known(*bit))
            // The unwound stack has none of the code's own addresses: [`SymbolicState::place`]
            // relies on it.
            && !terms.is_own(known.cfa)
            && !known.registers.iter().any(|node| terms.is_own(*node));
        is_part.then_some(known)
    }

    /// The contents of a register, simplified by the path condition.
    pub(super) fn register(
        &mut self,
        context: &mut ProofContext<'_>,
        register: usize,
    ) -> SymbolicWord {
        let Some(slot) = self.registers.get_mut(register) else {
            return SymbolicWord::UNKNOWN;
        };
        *slot = context.assume(*slot, &self.path_condition);
        *slot
    }

    pub(super) fn set(
        &mut self,
        context: &mut ProofContext<'_>,
        register: usize,
        word: SymbolicWord,
    ) -> Result<(), ProofFault> {
        if let Some(slot) = self.registers.get_mut(register) {
            *slot = word;
        }
        match register {
            RSP => self.move_stack(context, word.node()),
            _ => Ok(()),
        }
    }

    /// The stack pointer changes: everything below it is lost.
    fn move_stack(&mut self, context: &mut ProofContext<'_>, to: TermId) -> Result<(), ProofFault> {
        let (base, distance) = context.terms.as_base_offset(to).ok_or(ProofFault::Stack)?;
        if let Some(aligned) = &mut self.aligned
            && aligned.base == base
        {
            let below = usize::try_from(-distance / 8).map_err(|_| ProofFault::Stack)?;
            let fits = distance % 8 == 0 && below <= MAX_STACK_WORDS;
            fits.then_some(()).ok_or(ProofFault::Stack)?;
            aligned.words.resize(below, SymbolicWord::UNKNOWN);
            return Ok(());
        }
        if context.terms.as_input_term(base) == Some(InputTerm::Base) {
            self.aligned = None;
            let word = word_below(distance).filter(|word| *word < MAX_STACK_WORDS);
            self.stack
                .resize(word.ok_or(ProofFault::Stack)? + 1, SymbolicWord::UNKNOWN);
            return Ok(());
        }
        Err(ProofFault::Stack)
    }

    /// The stack pointer is rounded down to a multiple of 16.
    pub(super) fn align(&mut self, base: TermId) {
        if let Some(slot) = self.registers.get_mut(RSP) {
            *slot = SymbolicWord::Value(base);
        }
        self.aligned = Some(AlignedStack {
            base,
            words: Vec::new(),
        });
    }

    /// Location of this many bytes at an address.
    pub(super) fn place(
        &self,
        context: &mut ProofContext<'_>,
        address: TermId,
        size: u64,
    ) -> Result<MemoryLocation, ProofFault> {
        let Some((base, distance)) = context.terms.as_base_offset(address) else {
            return unwound(context, address, size);
        };
        let word = |distance: i64| {
            let word = usize::try_from(distance / 8).ok();
            word.filter(|_| distance % 8 == 0 && size == 8)
        };
        if let Some(aligned) = &self.aligned
            && aligned.base == base
        {
            let at = distance.checked_neg().and_then(word);
            let at = at
                .and_then(|at| at.checked_sub(1))
                .ok_or(ProofFault::Address)?;
            return Ok(MemoryLocation::Aligned(at));
        }
        let place = match context.terms.as_input_term(base) {
            Some(InputTerm::Base) => word_below(distance).map(MemoryLocation::Stack),
            Some(InputTerm::Frame) => word(distance).map(MemoryLocation::Frame),
            Some(InputTerm::Memory) => word(distance)
                .and_then(|word| {
                    let given = [
                        InputTerm::Stack,
                        InputTerm::StackEnd,
                        InputTerm::Read,
                        InputTerm::Argument,
                    ];
                    given.get(word).copied()
                })
                .map(MemoryLocation::Given),
            _ => return unwound(context, address, size),
        };
        place.filter(|_| size == 8).ok_or(ProofFault::Address)
    }

    fn slot(&mut self, location: MemoryLocation) -> Option<&mut SymbolicWord> {
        match location {
            MemoryLocation::Stack(word) => self.stack.get_mut(word),
            MemoryLocation::Aligned(word) => self.aligned.as_mut()?.words.get_mut(word),
            MemoryLocation::Frame(word) => self.frame.get_mut(word),
            MemoryLocation::Given(_) | MemoryLocation::Unwound(_) => None,
        }
    }

    /// Reads this many bytes.
    pub(super) fn load(
        &mut self,
        context: &mut ProofContext<'_>,
        address: TermId,
        size: u64,
    ) -> Result<SymbolicWord, ProofFault> {
        let place = self.place(context, address, size)?;
        match place {
            MemoryLocation::Given(given) => {
                Ok(SymbolicWord::Value(context.terms.input_term(given)))
            }
            MemoryLocation::Unwound(near) => {
                if self.path_condition.implies(context.terms, near) {
                    Ok(SymbolicWord::Value(memory::loaded(
                        context.terms,
                        address,
                        size,
                    )))
                } else {
                    Err(ProofFault::Load)
                }
            }
            _ => {
                let word = *self.slot(place).ok_or(ProofFault::Address)?;
                Ok(context.assume(word, &self.path_condition))
            }
        }
    }

    /// Writes 8 bytes: to the own stack, or the frame.
    pub(super) fn store(
        &mut self,
        context: &mut ProofContext<'_>,
        address: TermId,
        word: SymbolicWord,
    ) -> Result<(), ProofFault> {
        let place = self.place(context, address, 8)?;
        *self.slot(place).ok_or(ProofFault::Store)? = word;
        Ok(())
    }

    pub(super) fn push(
        &mut self,
        context: &mut ProofContext<'_>,
        word: SymbolicWord,
    ) -> Result<(), ProofFault> {
        let sp = self.register(context, RSP).node();
        let sp = context.terms.add(sp, -8);
        self.set(context, RSP, SymbolicWord::Value(sp))?;
        self.store(context, sp, word)
    }

    pub(super) fn pop(
        &mut self,
        context: &mut ProofContext<'_>,
    ) -> Result<SymbolicWord, ProofFault> {
        let sp = self.register(context, RSP).node();
        let word = self.load(context, sp, 8)?;
        let sp = context.terms.add(sp, 8);
        // The function owns nothing above the return address.
        match context.terms.as_base_offset(sp) {
            Some((base, TOP)) if context.terms.as_input_term(base) == Some(InputTerm::Base) => {
                self.stack.clear();
                self.registers[RSP] = SymbolicWord::Value(sp);
            }
            _ => self.set(context, RSP, SymbolicWord::Value(sp))?,
        }
        Ok(word)
    }

    /// Effect of a call of an external function on registers.
    pub(super) fn called(&mut self, answer: TermId) {
        for register in SCRATCH {
            if let Some(slot) = self.registers.get_mut(register) {
                *slot = SymbolicWord::UNKNOWN;
            }
        }
        self.registers[RAX] = SymbolicWord::Value(answer);
        self.flags = Flags::UNKNOWN;
    }

    /// Whether the stack pointer is a multiple of 16.
    pub(super) fn is_aligned(&self) -> bool {
        let words = self.aligned.as_ref().map(|aligned| aligned.words.len());
        words.is_some_and(|words| words.is_multiple_of(2))
    }

    /// Order of execution: the deepest in calls first, and of those the first in the code. So a
    /// state waits where others can join it.
    pub(super) fn order(&self) -> (Reverse<usize>, u64) {
        (Reverse(self.depth()), self.at)
    }

    /// Size of the stack.
    fn depth(&self) -> usize {
        let aligned = self.aligned.as_ref();
        self.stack.len() + aligned.map_or(0, |aligned| aligned.words.len() + 1)
    }

    /// Whether two states are at the same address, and can be joined.
    pub(super) fn can_join(&self, other: &SymbolicState) -> bool {
        let base = |state: &SymbolicState| state.aligned.as_ref().map(|aligned| aligned.base);
        self.at == other.at && self.depth() == other.depth() && base(self) == base(other)
    }

    /// Joins another state.
    pub(super) fn join(&mut self, context: &mut ProofContext<'_>, other: &SymbolicState) {
        let condition = self.path_condition.or(context.terms, &other.path_condition);
        let mut merge = |own: &mut SymbolicWord, other: &SymbolicWord| {
            *own = context.choose(condition, *own, *other);
        };
        let words = |state: &mut SymbolicState| {
            let aligned = state.aligned.take();
            (core::mem::take(&mut state.stack), aligned)
        };
        let (mut stack, mut aligned) = words(self);
        for (own, other) in stack.iter_mut().zip(&other.stack) {
            merge(own, other);
        }
        if let (Some(own), Some(other)) = (&mut aligned, &other.aligned) {
            for (own, other) in own.words.iter_mut().zip(&other.words) {
                merge(own, other);
            }
        }
        (self.stack, self.aligned) = (stack, aligned);
        for (own, other) in self.registers.iter_mut().zip(&other.registers) {
            merge(own, other);
        }
        for (own, other) in self.frame.iter_mut().zip(&other.frame) {
            merge(own, other);
        }
        self.is_behind_call &= other.is_behind_call;
        let terms = &mut *context.terms;
        self.flags = Flags {
            carry: terms.choose(condition, self.flags.carry, other.flags.carry),
            compared: self
                .flags
                .compared
                .filter(|compared| other.flags.compared == Some(*compared)),
            has_sign: self.flags.has_sign && other.flags.has_sign,
        };
    }

    /// Whether preserved registers have their old values after the return.
    pub(super) fn preserves(&mut self, context: &mut ProofContext<'_>) -> bool {
        let mut is_as_it_was = |state: &mut SymbolicState, register| {
            let word = state.register(context, register).node();
            let given = context.terms.as_input_term(word);
            given == Some(InputTerm::Callee(number(register)))
        };
        let registers = PRESERVED
            .into_iter()
            .all(|register| is_as_it_was(self, register));
        let sp = self.registers[RSP].node();
        let sp = context.terms.as_base_offset(sp);
        let has_stack = sp.is_some_and(|(base, distance)| {
            distance == TOP && context.terms.as_input_term(base) == Some(InputTerm::Base)
        });
        registers && has_stack
    }

    /// The returned 32 bits.
    pub(super) fn status(&self, context: &mut ProofContext<'_>) -> TermId {
        let status = context
            .assume(self.registers[RAX], &self.path_condition)
            .node();
        context.terms.low(status, 32)
    }

    /// The caller's registers in the frame.
    pub(super) fn caller_registers(&self, context: &ProofContext<'_>) -> CallerRegisters {
        let mut words = self.frame.iter();
        let registers =
            core::array::from_fn(|_| words.next().map_or(Terms::UNKNOWN, |word| word.node()));
        let [.., known, cfa] = self.frame;
        CallerRegisters {
            cfa: cfa.node(),
            known: context.masks.get(known).unwrap_or([Terms::UNKNOWN; BITS]),
            registers,
        }
    }

    /// Whether the frame equals another state's.
    pub(super) fn has_frame_of(&self, other: &SymbolicState) -> bool {
        self.frame == other.frame
    }
}

/// The location of an address that must be derived from the unwound stack alone.
fn unwound(
    context: &mut ProofContext<'_>,
    address: TermId,
    size: u64,
) -> Result<MemoryLocation, ProofFault> {
    if context.terms.is_own(address) {
        return Err(ProofFault::Address);
    }
    let is_near = memory::is_near(context.terms, address, size);
    Ok(MemoryLocation::Unwound(is_near))
}

fn number(register: usize) -> u8 {
    u8::try_from(register).unwrap_or(u8::MAX)
}
