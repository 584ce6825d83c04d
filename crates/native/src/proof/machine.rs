//! The machine's state while a body runs: what is in its registers, on its stack and in the frame, in terms.

use core::cmp::Reverse;

use hashbrown::HashMap;

use super::Fault;
use super::meaning::{BITS, REGISTERS};
use super::memory;
use super::terms::{Given, Node, Terms};
use crate::x86_64::{BIAS, CFA, KNOWN, MEMORY, OLD};

/// A machine's registers, by their numbers in instructions.
pub(super) const RAX: usize = 0;
pub(super) const RCX: usize = 1;
pub(super) const RDX: usize = 2;
const RBX: usize = 3;
pub(super) const RSP: usize = 4;
const RBP: usize = 5;
pub(super) const RSI: usize = 6;
pub(super) const RDI: usize = 7;
pub(super) const R8: usize = 8;
/// Once there is a CFA: that, and which registers of the caller are known.
const R12: usize = 12;
const R13: usize = 13;
const R14: usize = 14;
const R15: usize = 15;

/// Those that a function preserves, but the stack pointer; and those that it does not.
const PRESERVED: [usize; 6] = [RBX, RBP, R12, R13, R14, R15];
const SCRATCH: [usize; 9] = [RAX, RCX, RDX, RSI, RDI, R8, 9, 10, 11];

/// From the place of the caller's frame pointer up to what belongs to the caller: itself and the return address.
const TOP: i64 = 16;

/// Words of the stack that one step may take.
const MOST_WORDS: usize = 512;

/// A word in a register or in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Is(Node),
    /// The low byte is; nothing is said of the others.
    Byte(Node),
    /// The word that says which registers are known, bit for bit: by its number in [`Bits`].
    Bits(u32),
}

impl Word {
    const UNKNOWN: Word = Word::Is(Terms::UNKNOWN);

    pub(super) fn node(self) -> Node {
        match self {
            Word::Is(node) => node,
            Word::Byte(_) | Word::Bits(_) => Terms::UNKNOWN,
        }
    }
}

/// Words of which each bit is a condition, as [`BITS`] has them.
#[derive(Default)]
pub(super) struct Bits {
    words: Vec<[Node; BITS]>,
    numbers: HashMap<[Node; BITS], u32>,
}

impl Bits {
    pub(super) fn put(&mut self, bits: [Node; BITS]) -> Word {
        let next = u32::try_from(self.words.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(bits).or_insert(next);
        if number == next {
            self.words.push(bits);
        }
        Word::Bits(number)
    }

    pub(super) fn get(&self, word: Word) -> Option<[Node; BITS]> {
        match word {
            Word::Bits(number) => self.words.get(number as usize).copied(),
            _ => None,
        }
    }
}

/// What the last instruction left in the flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flags {
    /// A condition.
    pub(super) carry: Node,
    /// What was compared, if anything.
    pub(super) compared: Option<(Node, Node)>,
    /// Whether the signs of both are their highest bits: numbers of 32 bits have others.
    pub(super) has_sign: bool,
}

impl Flags {
    pub(super) const UNKNOWN: Flags = Flags::of_carry(Terms::UNKNOWN);

    /// Of nothing else is anything known.
    pub(super) const fn of_carry(carry: Node) -> Flags {
        Flags {
            carry,
            compared: None,
            has_sign: false,
        }
    }
}

/// Where memory is that an instruction reads or writes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// The own stack: so many words below what belongs to the caller, counted from 0.
    Stack(usize),
    /// The part of the stack that begins at a multiple of 16 bytes.
    Aligned(usize),
    /// A word of the frame.
    Frame(usize),
    /// What is given beside it.
    Given(Given),
    /// Of the stack that is unwound, if a condition holds.
    Unwound(Node),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Aligned {
    base: Node,
    /// From the base down.
    words: Vec<Word>,
}

/// The conditions under which a state is met, all of them: what was decided first is first.
#[derive(Debug, Clone, Default)]
pub(super) struct When(Vec<Node>);

impl When {
    /// A node without the choices that these conditions decide, each by itself.
    pub(super) fn assume(&self, terms: &mut Terms, node: Node) -> Node {
        let conditions = self.0.iter().rev();
        conditions.fold(node, |node, condition| terms.assume(node, *condition))
    }

    /// Whether a condition follows from these.
    pub(super) fn implies(&self, terms: &mut Terms, condition: Node) -> bool {
        let mut so_far = Terms::YES;
        self.0.iter().rev().any(|last| {
            so_far = terms.and(*last, so_far);
            terms.implies(so_far, condition)
        })
    }

    pub(super) fn add(&mut self, condition: Node) {
        if condition != Terms::YES {
            self.0.push(condition);
        }
    }

    /// All of these, but the first ones.
    fn behind(&self, terms: &mut Terms, first: usize) -> Node {
        let conditions = self.0.iter().skip(first).rev();
        conditions.fold(Terms::YES, |all, condition| terms.and(*condition, all))
    }

    /// These as one condition.
    pub(super) fn all(&self, terms: &mut Terms) -> Node {
        self.behind(terms, 0)
    }

    /// These or others. Returns what tells these from the others, where one of both holds.
    fn or(&mut self, terms: &mut Terms, other: &When) -> Node {
        let both = self.0.iter().zip(&other.0);
        let common = both.take_while(|(own, other)| own == other).count();
        let [own, other] = [&*self, other].map(|when| when.behind(terms, common));
        let either = terms.or(own, other);
        self.0.truncate(common);
        self.add(either);
        terms.assume(own, either)
    }
}

/// A state, and when it is met.
#[derive(Debug, Clone)]
pub(super) struct State {
    /// The address of the next instruction.
    pub(super) at: u64,
    /// Whether a call has just come back there, on all ways.
    pub(super) is_behind_call: bool,
    pub(super) when: When,
    registers: [Word; 16],
    pub(super) flags: Flags,
    /// From what belongs to the caller down to the stack pointer, or to the aligned part.
    stack: Vec<Word>,
    aligned: Option<Aligned>,
    /// `struct unspool_frame`.
    frame: [Word; REGISTERS + 2],
}

/// What is known in a state in which there is a CFA.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) cfa: Node,
    /// Which registers of the caller are known so far, and what they are.
    pub(super) known: [Node; BITS],
    pub(super) registers: [Node; REGISTERS],
}

/// What all states of a proof share.
pub(super) struct Context<'c> {
    pub(super) terms: &'c mut Terms,
    pub(super) bits: &'c mut Bits,
}

impl Context<'_> {
    /// A word without the choices that conditions decide.
    fn assume(&mut self, word: Word, when: &When) -> Word {
        match word {
            Word::Is(node) => Word::Is(when.assume(self.terms, node)),
            Word::Byte(node) => Word::Byte(when.assume(self.terms, node)),
            Word::Bits(_) => word,
        }
    }

    fn choose(&mut self, condition: Node, yes: Word, no: Word) -> Word {
        match (yes, no) {
            _ if yes == no => yes,
            (Word::Is(yes), Word::Is(no)) => Word::Is(self.terms.choose(condition, yes, no)),
            (Word::Byte(yes), Word::Byte(no)) => Word::Byte(self.terms.choose(condition, yes, no)),
            (Word::Bits(_), Word::Bits(_)) => {
                let (Some(mut bits), Some(no)) = (self.bits.get(yes), self.bits.get(no)) else {
                    return Word::UNKNOWN;
                };
                for (yes, no) in bits.iter_mut().zip(no) {
                    *yes = self.terms.choose(condition, *yes, no);
                }
                self.bits.put(bits)
            }
            _ => Word::UNKNOWN,
        }
    }
}

/// A word of the stack, counted from what belongs to the caller down, by its distance from [`Given::Base`].
fn word_below(distance: i64) -> Option<usize> {
    let below = TOP.checked_sub(distance)?;
    (below > 0 && below % 8 == 0).then_some(())?;
    usize::try_from(below / 8 - 1).ok()
}

impl State {
    /// The same state at another place.
    pub(super) fn placed(&self, at: u64) -> State {
        State { at, ..self.clone() }
    }

    /// The state in which a body begins.
    pub(super) fn at_body(context: &mut Context<'_>) -> State {
        let known = core::array::from_fn(|bit| context.terms.known(number(bit)));
        let cfa = Word::Is(context.terms.given(Given::OldCfa));
        let registers = core::array::from_fn(|register| Given::Register(number(register)));
        let known = context.bits.put(known);
        State::within(registers, known, cfa, context)
    }

    /// The state in which a part of a body begins, once there is a CFA.
    pub(super) fn at_part(context: &mut Context<'_>) -> State {
        let mut known = core::array::from_fn(|bit| context.terms.known_now(number(bit)));
        // Of what is no register.
        known[REGISTERS] = Terms::NO;
        let cfa = Word::Is(context.terms.given(Given::Cfa));
        let registers = core::array::from_fn(|register| Given::Now(number(register)));
        let mut state = State::within(registers, Word::UNKNOWN, cfa, context);
        state.registers[R12] = cfa;
        state.registers[R13] = context.bits.put(known);
        state
    }

    /// What is the same in all bodies.
    fn within(
        given: [Given; REGISTERS],
        known: Word,
        cfa: Word,
        context: &mut Context<'_>,
    ) -> State {
        let terms = &mut *context.terms;
        let mut frame = [Word::UNKNOWN; REGISTERS + 2];
        for (slot, given) in frame.iter_mut().zip(given) {
            *slot = Word::Is(terms.given(given));
        }
        for (offset, word) in [(KNOWN, known), (CFA, cfa)] {
            let slot = usize::try_from(offset / 8).ok();
            if let Some(slot) = slot.and_then(|slot| frame.get_mut(slot)) {
                *slot = word;
            }
        }
        let mut registers = [Word::UNKNOWN; 16];
        let base = terms.given(Given::Base);
        registers[RBX] = Word::Is(terms.given(Given::Frame));
        registers[RSP] = Word::Is(terms.add(base, OLD.into()));
        registers[RBP] = Word::Is(base);
        registers[R14] = Word::Is(terms.given(Given::First));
        registers[R15] = Word::Is(terms.given(Given::Last));
        let size = word_below(OLD.into()).map_or(0, |last| last + 1);
        let mut stack = vec![Word::UNKNOWN; size];
        let saved = (-40_i64..).step_by(8).zip([R15, R14, R13, R12, RBX, RBP]);
        let saved = saved.map(|(at, register)| (at, Given::Callee(number(register))));
        let others = [
            (8, Given::Return),
            (BIAS.into(), Given::Bias),
            (MEMORY.into(), Given::Memory),
        ];
        for (distance, given) in saved.chain(others) {
            let slot = word_below(distance).and_then(|word| stack.get_mut(word));
            if let Some(slot) = slot {
                *slot = Word::Is(terms.given(given));
            }
        }
        State {
            at: 0,
            is_behind_call: false,
            when: When::default(),
            registers,
            flags: Flags::UNKNOWN,
            stack,
            aligned: None,
            frame,
        }
    }

    /// What is known where a part of a body begins, if this state is one in which a part may begin: all is as
    /// `pattern`, a [`State::at_part`], has it, for some CFA and some frame; what that says nothing of may be anything.
    pub(super) fn as_part(&self, pattern: &State, context: &Context<'_>) -> Option<Known> {
        let as_there = |own: &[Word], pattern: &[Word]| {
            let mut both = own.iter().zip(pattern);
            own.len() == pattern.len()
                && both.all(|(own, pattern)| *pattern == Word::UNKNOWN || own == pattern)
        };
        let others = |state: &State| {
            let mut registers = state.registers;
            (registers[R12], registers[R13]) = (Word::UNKNOWN, Word::UNKNOWN);
            registers
        };
        let by_frame = self.by_frame(context);
        let known = Known {
            known: context.bits.get(self.registers[R13])?,
            ..by_frame
        };
        let terms = &*context.terms;
        let is_part = self.aligned.is_none()
            && as_there(&self.stack, &pattern.stack)
            && as_there(&others(self), &others(pattern))
            && self.registers[R12] == Word::Is(known.cfa)
            && known.known[REGISTERS] == Terms::NO
            && known.known.iter().all(|bit| terms.is_known(*bit))
            // What is unwound is none of the code's own addresses: [`State::place`] relies on it.
            && !terms.is_own(known.cfa)
            && !known.registers.iter().any(|node| terms.is_own(*node));
        is_part.then_some(known)
    }

    /// What is in a register, as far as the condition says more of it.
    pub(super) fn register(&mut self, context: &mut Context<'_>, register: usize) -> Word {
        let Some(slot) = self.registers.get_mut(register) else {
            return Word::UNKNOWN;
        };
        *slot = context.assume(*slot, &self.when);
        *slot
    }

    pub(super) fn set(
        &mut self,
        context: &mut Context<'_>,
        register: usize,
        word: Word,
    ) -> Result<(), Fault> {
        if let Some(slot) = self.registers.get_mut(register) {
            *slot = word;
        }
        match register {
            RSP => self.move_stack(context, word.node()),
            _ => Ok(()),
        }
    }

    /// The stack pointer is another: what is below it is lost.
    fn move_stack(&mut self, context: &mut Context<'_>, to: Node) -> Result<(), Fault> {
        let (base, distance) = context.terms.as_place(to).ok_or(Fault::Stack)?;
        if let Some(aligned) = &mut self.aligned
            && aligned.base == base
        {
            let below = usize::try_from(-distance / 8).map_err(|_| Fault::Stack)?;
            let fits = distance % 8 == 0 && below <= MOST_WORDS;
            fits.then_some(()).ok_or(Fault::Stack)?;
            aligned.words.resize(below, Word::UNKNOWN);
            return Ok(());
        }
        if context.terms.as_given(base) == Some(Given::Base) {
            self.aligned = None;
            let word = word_below(distance).filter(|word| *word < MOST_WORDS);
            self.stack
                .resize(word.ok_or(Fault::Stack)? + 1, Word::UNKNOWN);
            return Ok(());
        }
        Err(Fault::Stack)
    }

    /// The stack pointer is rounded down to a multiple of 16.
    pub(super) fn align(&mut self, base: Node) {
        if let Some(slot) = self.registers.get_mut(RSP) {
            *slot = Word::Is(base);
        }
        self.aligned = Some(Aligned {
            base,
            words: Vec::new(),
        });
    }

    /// Where so many bytes at an address are.
    pub(super) fn place(
        &self,
        context: &mut Context<'_>,
        address: Node,
        size: u64,
    ) -> Result<Place, Fault> {
        let Some((base, distance)) = context.terms.as_place(address) else {
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
            let at = at.and_then(|at| at.checked_sub(1)).ok_or(Fault::Address)?;
            return Ok(Place::Aligned(at));
        }
        let place = match context.terms.as_given(base) {
            Some(Given::Base) => word_below(distance).map(Place::Stack),
            Some(Given::Frame) => word(distance).map(Place::Frame),
            Some(Given::Memory) => word(distance)
                .and_then(|word| {
                    let given = [Given::Stack, Given::StackEnd, Given::Read, Given::Argument];
                    given.get(word).copied()
                })
                .map(Place::Given),
            _ => return unwound(context, address, size),
        };
        place.filter(|_| size == 8).ok_or(Fault::Address)
    }

    fn slot(&mut self, place: Place) -> Option<&mut Word> {
        match place {
            Place::Stack(word) => self.stack.get_mut(word),
            Place::Aligned(word) => self.aligned.as_mut()?.words.get_mut(word),
            Place::Frame(word) => self.frame.get_mut(word),
            Place::Given(_) | Place::Unwound(_) => None,
        }
    }

    /// Reads so many bytes.
    pub(super) fn load(
        &mut self,
        context: &mut Context<'_>,
        address: Node,
        size: u64,
    ) -> Result<Word, Fault> {
        let place = self.place(context, address, size)?;
        match place {
            Place::Given(given) => Ok(Word::Is(context.terms.given(given))),
            Place::Unwound(near) => match self.when.implies(context.terms, near) {
                true => Ok(Word::Is(memory::loaded(context.terms, address, size))),
                false => Err(Fault::Load),
            },
            _ => {
                let word = *self.slot(place).ok_or(Fault::Address)?;
                Ok(context.assume(word, &self.when))
            }
        }
    }

    /// Writes 8 bytes: to the own stack, or the frame.
    pub(super) fn store(
        &mut self,
        context: &mut Context<'_>,
        address: Node,
        word: Word,
    ) -> Result<(), Fault> {
        let place = self.place(context, address, 8)?;
        *self.slot(place).ok_or(Fault::Store)? = word;
        Ok(())
    }

    pub(super) fn push(&mut self, context: &mut Context<'_>, word: Word) -> Result<(), Fault> {
        let sp = self.register(context, RSP).node();
        let sp = context.terms.add(sp, -8);
        self.set(context, RSP, Word::Is(sp))?;
        self.store(context, sp, word)
    }

    pub(super) fn pop(&mut self, context: &mut Context<'_>) -> Result<Word, Fault> {
        let sp = self.register(context, RSP).node();
        let word = self.load(context, sp, 8)?;
        let sp = context.terms.add(sp, 8);
        // Above the return address there is nothing of the function's own.
        match context.terms.as_place(sp) {
            Some((base, TOP)) if context.terms.as_given(base) == Some(Given::Base) => {
                self.stack.clear();
                self.registers[RSP] = Word::Is(sp);
            }
            _ => self.set(context, RSP, Word::Is(sp))?,
        }
        Ok(word)
    }

    /// What a call of a function of others does to registers.
    pub(super) fn called(&mut self, answer: Node) {
        for register in SCRATCH {
            if let Some(slot) = self.registers.get_mut(register) {
                *slot = Word::UNKNOWN;
            }
        }
        self.registers[RAX] = Word::Is(answer);
        self.flags = Flags::UNKNOWN;
    }

    /// Whether the stack pointer is a multiple of 16.
    pub(super) fn is_aligned(&self) -> bool {
        let words = self.aligned.as_ref().map(|aligned| aligned.words.len());
        words.is_some_and(|words| words.is_multiple_of(2))
    }

    /// What goes on first: what is deepest in calls, and of that what comes first in the code. So it is where it can
    /// meet others before they go on.
    pub(super) fn order(&self) -> (Reverse<usize>, u64) {
        (Reverse(self.depth()), self.at)
    }

    /// How much there is on the stack.
    fn depth(&self) -> usize {
        let aligned = self.aligned.as_ref();
        self.stack.len() + aligned.map_or(0, |aligned| aligned.words.len() + 1)
    }

    /// Whether two states are at the same place, and can be one.
    pub(super) fn meets(&self, other: &State) -> bool {
        let base = |state: &State| state.aligned.as_ref().map(|aligned| aligned.base);
        self.at == other.at && self.depth() == other.depth() && base(self) == base(other)
    }

    /// Becomes the state that is this one or another, which it meets.
    pub(super) fn merge(&mut self, context: &mut Context<'_>, other: &State) {
        let condition = self.when.or(context.terms, &other.when);
        let mut merge = |own: &mut Word, other: &Word| {
            *own = context.choose(condition, *own, *other);
        };
        let words = |state: &mut State| {
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

    /// Whether registers that must be preserved are, behind the return.
    pub(super) fn preserves(&mut self, context: &mut Context<'_>) -> bool {
        let mut is_as_it_was = |state: &mut State, register| {
            let word = state.register(context, register).node();
            let given = context.terms.as_given(word);
            given == Some(Given::Callee(number(register)))
        };
        let registers = PRESERVED
            .into_iter()
            .all(|register| is_as_it_was(self, register));
        let sp = self.registers[RSP].node();
        let sp = context.terms.as_place(sp);
        let has_stack = sp.is_some_and(|(base, distance)| {
            distance == TOP && context.terms.as_given(base) == Some(Given::Base)
        });
        registers && has_stack
    }

    /// What is returned, of 32 bits.
    pub(super) fn status(&self, context: &mut Context<'_>) -> Node {
        let status = context.assume(self.registers[RAX], &self.when).node();
        context.terms.low(status, 32)
    }

    /// What the frame says of the caller.
    pub(super) fn by_frame(&self, context: &Context<'_>) -> Known {
        let mut words = self.frame.iter();
        let registers =
            core::array::from_fn(|_| words.next().map_or(Terms::UNKNOWN, |word| word.node()));
        let [.., known, cfa] = self.frame;
        Known {
            cfa: cfa.node(),
            known: context.bits.get(known).unwrap_or([Terms::UNKNOWN; BITS]),
            registers,
        }
    }

    /// Whether the frame is the same as in another state.
    pub(super) fn has_frame_of(&self, other: &State) -> bool {
        self.frame == other.frame
    }
}

/// The place of an address that must have been made of what is unwound alone.
fn unwound(context: &mut Context<'_>, address: Node, size: u64) -> Result<Place, Fault> {
    match context.terms.is_own(address) {
        false => Ok(Place::Unwound(memory::is_near(
            context.terms,
            address,
            size,
        ))),
        true => Err(Fault::Address),
    }
}

fn number(register: usize) -> u8 {
    u8::try_from(register).unwrap_or(u8::MAX)
}
