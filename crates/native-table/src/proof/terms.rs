//! Values as terms, in each case.
//!
//! A *node* is a value: a term over a step's inputs, or a choice between two nodes by a *question*
//! about the inputs: "is rbx known", "is this address below that". Choices are reduced and their
//! questions ordered, as in a binary decision diagram. Two nodes with the same value in all cases
//! are the same node, within the arithmetic that is implemented. Conditions are nodes with the
//! terms 0 and 1.

use hashbrown::HashMap;

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TermId(u32);

/// Inputs of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum InputTerm {
    /// A register of the frame.
    Register(u8),
    /// The old value of the CFA's word.
    OldCfa,
    Bias,
    /// The bounds of the stack: its first byte, and the one behind its last.
    Stack,
    StackEnd,
    /// The first and the last address from which 8 bytes of the stack can be read. If there is
    /// none, no address is at or above the first and at or below the last.
    First,
    Last,
    /// The callback that reads other memory, and its argument.
    Read,
    Argument,
    /// The address of the frame.
    Frame,
    /// The address of the memory description.
    Memory,
    /// The return address.
    Return,
    /// The stack pointer 8 bytes below the frame's first word; the caller's frame pointer is saved
    /// there.
    Base,
    /// A machine register that must be preserved, by encoding.
    Callee(u8),
    /// An address in the code.
    Code(u64),
    /// At the begin of a part: the CFA, and the current contents of the frame.
    Cfa,
    Now(u8),
}

impl InputTerm {
    /// Whether it is an address of the code, of its stack or of its arguments, and so not one of
    /// the unwound stack.
    fn is_own(self) -> bool {
        match self {
            InputTerm::Read
            | InputTerm::Argument
            | InputTerm::Frame
            | InputTerm::Memory
            | InputTerm::Return
            | InputTerm::Base
            | InputTerm::Callee(_)
            | InputTerm::Code(_) => true,
            InputTerm::Register(_)
            | InputTerm::OldCfa
            | InputTerm::Bias
            | InputTerm::Stack
            | InputTerm::StackEnd
            | InputTerm::First
            | InputTerm::Last
            | InputTerm::Cfa
            | InputTerm::Now(_) => false,
        }
    }
}

/// An operation on two 64-bit words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum TermOperator {
    Add,
    Sub,
    Mul,
    And,
    Or,
    Xor,
    /// By less than 64 bits.
    Shl,
    Shr,
    Sar,
    /// By neither 0 nor -1.
    DivSigned,
    /// Not by 0.
    Rem,
    /// Conditions.
    Below,
    Less,
    Equal,
    /// Contents of this many bytes at an address, if readable.
    Loaded,
    /// Return value of the callback for this many bytes at an address.
    Answer,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Term {
    /// An unspecified value.
    Unknown,
    Number(u64),
    Given(InputTerm),
    /// A node that is not itself such a sum, plus a number.
    Plus(TermId, u64),
    /// Nodes times numbers, in the order of nodes: neither a single one times 1, nor one times 0.
    Products(Box<[(TermId, u64)]>),
    Apply(TermOperator, TermId, TermId),
    Choice(DecisionId, TermId, TermId),
}

/// A question, by number: those inside a choice have greater numbers than its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct DecisionId(u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Decision {
    /// Whether a register of the frame is known, or another bit of that word is set.
    Known(u8),
    /// The same at the begin of a part.
    KnownAtPartStart(u8),
    Compared(TermOperator, TermId, TermId),
}

struct TermEntry {
    term: Term,
    /// Whether it is specified in all cases.
    is_known: bool,
    /// Whether any term in it is the code's own: see [`InputTerm::is_own`].
    is_own: bool,
}

/// Greatest number of nodes and questions in one proof; a proof that needs more is given up.
/// Recursion on a node is as deep as its questions.
const MAX_TERMS: usize = 1 << 20;
const MAX_DECISIONS: usize = 1 << 12;

/// All nodes.
pub(super) struct Terms {
    entries: Vec<TermEntry>,
    nodes: HashMap<Term, TermId>,
    questions: HashMap<Decision, DecisionId>,
    chosen: HashMap<(TermId, TermId, TermId), TermId>,
    applied: HashMap<(TermOperator, TermId, TermId), TermId>,
    assumed: HashMap<(TermId, TermId), TermId>,
}

impl Terms {
    pub(super) const UNKNOWN: TermId = TermId(0);
    /// 0, and no.
    pub(super) const NO: TermId = TermId(1);
    /// 1, and yes.
    pub(super) const YES: TermId = TermId(2);

    pub(super) fn new() -> Terms {
        let mut terms = Terms {
            entries: Vec::new(),
            nodes: HashMap::new(),
            questions: HashMap::new(),
            chosen: HashMap::new(),
            applied: HashMap::new(),
            assumed: HashMap::new(),
        };
        for shape in [Term::Unknown, Term::Number(0), Term::Number(1)] {
            terms.node(shape);
        }
        terms
    }

    /// Whether there are too many nodes to continue; everything is unknown then.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= MAX_TERMS || self.questions.len() >= MAX_DECISIONS
    }

    /// Whether a fresh start is better.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.entries.len() >= MAX_TERMS / 2 || self.questions.len() >= MAX_DECISIONS / 2
    }

    fn node(&mut self, term: Term) -> TermId {
        if let Some(node) = self.nodes.get(&term) {
            return *node;
        }
        let Some(next) = u32::try_from(self.entries.len())
            .ok()
            .filter(|_| !self.is_full())
        else {
            return Terms::UNKNOWN;
        };
        let is_known = match &term {
            Term::Unknown => false,
            Term::Choice(_, yes, no) => self.is_known(*yes) && self.is_known(*no),
            _ => true,
        };
        let is_own = match &term {
            Term::Unknown => true,
            Term::Number(_) => false,
            Term::Given(given) => given.is_own(),
            Term::Plus(base, _) => self.is_own(*base),
            Term::Products(products) => products.iter().any(|(node, _)| self.is_own(*node)),
            Term::Apply(_, a, b) | Term::Choice(_, a, b) => self.is_own(*a) || self.is_own(*b),
        };
        let node = TermId(next);
        self.entries.push(TermEntry {
            term: term.clone(),
            is_known,
            is_own,
        });
        self.nodes.insert(term, node);
        node
    }

    fn shape(&self, node: TermId) -> &Term {
        let entry = self.entries.get(node.0 as usize);
        entry.map_or(&Term::Unknown, |entry| &entry.term)
    }

    /// Whether it is specified in all cases.
    pub(super) fn is_known(&self, node: TermId) -> bool {
        let entry = self.entries.get(node.0 as usize);
        entry.is_some_and(|entry| entry.is_known)
    }

    pub(super) fn number(&mut self, number: u64) -> TermId {
        self.node(Term::Number(number))
    }

    pub(super) fn input_term(&mut self, input: InputTerm) -> TermId {
        self.node(Term::Given(input))
    }

    /// Whether a register of the frame is known.
    pub(super) fn known(&mut self, bit: u8) -> TermId {
        self.ask(Decision::Known(bit))
    }

    /// Whether a register is known at the begin of a part.
    pub(super) fn known_at_part_start(&mut self, bit: u8) -> TermId {
        self.ask(Decision::KnownAtPartStart(bit))
    }

    fn ask(&mut self, decision: Decision) -> TermId {
        let next = DecisionId(u32::try_from(self.questions.len()).unwrap_or(u32::MAX));
        let question = *self.questions.entry(decision).or_insert(next);
        self.node(Term::Choice(question, Terms::YES, Terms::NO))
    }

    /// The number, if a node is the same number in all cases.
    pub(super) fn as_number(&self, node: TermId) -> Option<u64> {
        match self.shape(node) {
            Term::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn as_input_term(&self, node: TermId) -> Option<InputTerm> {
        match self.shape(node) {
            Term::Given(given) => Some(*given),
            _ => None,
        }
    }

    /// A node as another plus a number.
    pub(super) fn as_base_offset(&self, node: TermId) -> Option<(TermId, i64)> {
        match self.shape(node) {
            Term::Plus(base, number) => Some((*base, number.cast_signed())),
            Term::Unknown | Term::Number(_) | Term::Choice(..) => None,
            _ => Some((node, 0)),
        }
    }

    /// Whether it is derived from addresses of the code, its stack or its arguments; or is unknown.
    pub(super) fn is_own(&self, node: TermId) -> bool {
        let entry = self.entries.get(node.0 as usize);
        entry.is_none_or(|entry| entry.is_own)
    }

    fn question(&self, node: TermId) -> Option<DecisionId> {
        match self.shape(node) {
            Term::Choice(question, ..) => Some(*question),
            _ => None,
        }
    }

    /// The first question of some nodes.
    fn first(&self, nodes: &[TermId]) -> Option<DecisionId> {
        nodes.iter().filter_map(|node| self.question(*node)).min()
    }

    /// A node, given this answer to a question that is at or before its first.
    fn answered(&self, node: TermId, decision: DecisionId, answer: bool) -> TermId {
        match self.shape(node) {
            Term::Choice(own, yes, no) if *own == decision => {
                if answer {
                    *yes
                } else {
                    *no
                }
            }
            _ => node,
        }
    }

    fn choice(&mut self, decision: DecisionId, yes: TermId, no: TermId) -> TermId {
        if yes == no {
            yes
        } else {
            self.node(Term::Choice(decision, yes, no))
        }
    }

    /// One node where a condition holds, and another where it does not.
    pub(super) fn choose(&mut self, condition: TermId, yes: TermId, no: TermId) -> TermId {
        match condition {
            Terms::YES => return yes,
            Terms::NO => return no,
            _ if yes == no => return yes,
            _ if (yes, no) == (Terms::YES, Terms::NO) => return condition,
            _ => {}
        }
        if let Some(node) = self.chosen.get(&(condition, yes, no)) {
            return *node;
        }
        let Some(question) = self
            .question(condition)
            .and_then(|_| self.first(&[condition, yes, no]))
            .filter(|_| !self.is_full())
        else {
            return Terms::UNKNOWN;
        };
        let part = |terms: &mut Terms, answer| {
            let [condition, yes, no] =
                [condition, yes, no].map(|node| terms.answered(node, question, answer));
            terms.choose(condition, yes, no)
        };
        let (of_yes, of_no) = (part(self, true), part(self, false));
        let node = self.choice(question, of_yes, of_no);
        self.chosen.insert((condition, yes, no), node);
        node
    }

    pub(super) fn not(&mut self, condition: TermId) -> TermId {
        self.choose(condition, Terms::NO, Terms::YES)
    }

    pub(super) fn and(&mut self, a: TermId, b: TermId) -> TermId {
        self.choose(a, b, Terms::NO)
    }

    pub(super) fn or(&mut self, a: TermId, b: TermId) -> TermId {
        self.choose(a, Terms::YES, b)
    }

    /// Whether one condition implies another.
    pub(super) fn implies(&mut self, condition: TermId, other: TermId) -> bool {
        let exception = self.not(other);
        self.and(condition, exception) == Terms::NO
    }

    /// An equal node wherever a condition holds, without the choices that the condition decides.
    pub(super) fn assume(&mut self, node: TermId, condition: TermId) -> TermId {
        let (Some(own), Some(other)) = (self.question(node), self.question(condition)) else {
            return node;
        };
        if let Some(node) = self.assumed.get(&(node, condition)) {
            return *node;
        }
        let question = own.min(other);
        let [if_yes, if_no] =
            [true, false].map(|answer| self.answered(condition, question, answer));
        let [yes, no] = [true, false].map(|answer| self.answered(node, question, answer));
        let result = match (if_yes, if_no) {
            (Terms::NO, _) => self.assume(no, if_no),
            (_, Terms::NO) => self.assume(yes, if_yes),
            _ if own > question => {
                let either = self.or(if_yes, if_no);
                self.assume(node, either)
            }
            _ => {
                let (yes, no) = (self.assume(yes, if_yes), self.assume(no, if_no));
                self.choice(question, yes, no)
            }
        };
        self.assumed.insert((node, condition), result);
        result
    }

    /// An operation on two nodes, in each case.
    pub(super) fn apply(&mut self, operation: TermOperator, a: TermId, b: TermId) -> TermId {
        if a == Terms::UNKNOWN || b == Terms::UNKNOWN || self.is_full() {
            return Terms::UNKNOWN;
        }
        let Some(question) = self.first(&[a, b]) else {
            return self.apply_terms(operation, a, b);
        };
        if let Some(node) = self.applied.get(&(operation, a, b)) {
            return *node;
        }
        let part = |terms: &mut Terms, answer| {
            let [a, b] = [a, b].map(|node| terms.answered(node, question, answer));
            terms.apply(operation, a, b)
        };
        let (yes, no) = (part(self, true), part(self, false));
        // The parts may be conditions on earlier questions.
        let condition = self.node(Term::Choice(question, Terms::YES, Terms::NO));
        let node = self.choose(condition, yes, no);
        self.applied.insert((operation, a, b), node);
        node
    }

    pub(super) fn add(&mut self, node: TermId, number: i64) -> TermId {
        let number = self.number(number.cast_unsigned());
        self.apply(TermOperator::Add, node, number)
    }

    pub(super) fn negate(&mut self, node: TermId) -> TermId {
        self.apply(TermOperator::Sub, Terms::NO, node)
    }

    pub(super) fn invert(&mut self, node: TermId) -> TermId {
        let all = self.number(u64::MAX);
        self.apply(TermOperator::Sub, all, node)
    }

    /// The low bits of a node.
    pub(super) fn low(&mut self, node: TermId, bits: u32) -> TermId {
        let mask = self.number(u64::MAX >> 64_u32.saturating_sub(bits).min(63));
        self.apply(TermOperator::And, node, mask)
    }

    fn apply_terms(&mut self, operation: TermOperator, a: TermId, b: TermId) -> TermId {
        if let (Some(a), Some(b)) = (self.as_number(a), self.as_number(b))
            && let Some(number) = computed(operation, a, b)
        {
            return self.number(number);
        }
        let one = |number: Option<u64>| number == Some(1);
        match operation {
            TermOperator::Add => self.sum(a, b, 1),
            TermOperator::Sub => self.sum(a, b, u64::MAX),
            TermOperator::Mul => match (self.as_number(a), self.as_number(b)) {
                (Some(factor), _) => self.sum(Terms::NO, b, factor),
                (_, Some(factor)) => self.sum(Terms::NO, a, factor),
                _ => self.node(Term::Apply(operation, a.min(b), a.max(b))),
            },
            TermOperator::Shl => match self.as_number(b) {
                Some(bits) => self.sum(Terms::NO, a, 1 << (bits & 63)),
                None => self.node(Term::Apply(operation, a, b)),
            },
            TermOperator::And if self.is_within(a, b) => a,
            TermOperator::And if self.is_within(b, a) => b,
            TermOperator::And | TermOperator::Or | TermOperator::Xor => {
                self.node(Term::Apply(operation, a.min(b), a.max(b)))
            }
            TermOperator::Below | TermOperator::Less if a == b => Terms::NO,
            TermOperator::Equal if a == b => Terms::YES,
            // Nothing is below 0.
            TermOperator::Below if b == Terms::NO => Terms::NO,
            TermOperator::Below | TermOperator::Less => {
                self.ask(Decision::Compared(operation, a, b))
            }
            TermOperator::Equal => self.ask(Decision::Compared(operation, a.min(b), a.max(b))),
            TermOperator::Sar | TermOperator::Shr if b == Terms::NO => a,
            TermOperator::DivSigned if one(self.as_number(b)) => a,
            _ => self.node(Term::Apply(operation, a, b)),
        }
    }

    /// Whether a number has all bits that a load can have.
    fn is_within(&self, loaded: TermId, mask: TermId) -> bool {
        let (Term::Apply(TermOperator::Loaded, _, size), Some(mask)) =
            (self.shape(loaded), self.as_number(mask))
        else {
            return false;
        };
        let bits = self.as_number(*size).map_or(64, |size| size * 8);
        u64::from(mask.trailing_ones()) >= bits
    }

    /// `a + factor * b`
    fn sum(&mut self, a: TermId, b: TermId, factor: u64) -> TermId {
        let (mut products, mut number) = self.linear(a);
        let (others, other) = self.linear(b);
        number = number.wrapping_add(other.wrapping_mul(factor));
        for (node, times) in others {
            let times = times.wrapping_mul(factor);
            match products.binary_search_by_key(&node, |(node, _)| *node) {
                Ok(at) => {
                    if let Some((_, own)) = products.get_mut(at) {
                        *own = own.wrapping_add(times);
                    }
                }
                Err(at) => products.insert(at, (node, times)),
            }
        }
        products.retain(|(_, times)| *times != 0);
        let base = match products.as_slice() {
            [] => return self.number(number),
            [(node, 1)] => *node,
            _ => self.node(Term::Products(products.into())),
        };
        match number {
            0 => base,
            _ => self.node(Term::Plus(base, number)),
        }
    }

    /// A term as products plus a number.
    fn linear(&self, node: TermId) -> (Vec<(TermId, u64)>, u64) {
        match self.shape(node) {
            Term::Number(number) => (Vec::new(), *number),
            Term::Plus(base, number) => (self.linear(*base).0, *number),
            Term::Products(products) => (products.to_vec(), 0),
            _ => (vec![(node, 1)], 0),
        }
    }
}

/// An operation on two numbers.
fn computed(operation: TermOperator, a: u64, b: u64) -> Option<u64> {
    let bits = u32::try_from(b).ok().filter(|bits| *bits < 64);
    Some(match operation {
        TermOperator::Add => a.wrapping_add(b),
        TermOperator::Sub => a.wrapping_sub(b),
        TermOperator::Mul => a.wrapping_mul(b),
        TermOperator::And => a & b,
        TermOperator::Or => a | b,
        TermOperator::Xor => a ^ b,
        TermOperator::Shl => a << bits?,
        TermOperator::Shr => a >> bits?,
        TermOperator::Sar => (a.cast_signed() >> bits?).cast_unsigned(),
        TermOperator::DivSigned => a
            .cast_signed()
            .checked_div(b.cast_signed())?
            .cast_unsigned(),
        TermOperator::Rem => a.checked_rem(b)?,
        TermOperator::Below => u64::from(a < b),
        TermOperator::Less => u64::from(a.cast_signed() < b.cast_signed()),
        TermOperator::Equal => u64::from(a == b),
        TermOperator::Loaded | TermOperator::Answer => return None,
    })
}
