//! Bodies, proven in parts.
//!
//! Bodies find the CFA, each in its own way, and then share what restores registers ([`crate::x86_64`]). Behind each
//! call of a function of their own a *part* may begin: the code's own registers and its stack are as they were when the
//! body began, but for the CFA and for which registers of the caller are known. A part is run once, with symbols for
//! the CFA, for the frame and for what is known of it, and with nothing assumed of them: what it does, it does whatever
//! they are, and so for each body that comes there. All that may be said of a part is which registers it sets, to what
//! in terms of the CFA, and where it goes on: to another part, or back to the code's caller.
//!
//! A row's body is then what runs up to the first part, and the parts that follow. If it is of any other kind, or seems
//! not to do what the row means, it is proven as a whole.

use hashbrown::HashMap;
use unspool_rows::Row;

use super::meaning::{REGISTERS, RowMeaning};
use super::state::{CallerRegisters, ProofContext, SymbolicState};
use super::terms::{InputTerm, TermId, Terms};
use super::{FinalStates, Prover};

/// Parts that one body may have.
const MAX_PARTS: usize = 64;

/// The parts of an object's code.
pub(super) struct CodeParts {
    /// As what bodies begin, and parts.
    pub(super) body: SymbolicState,
    pub(super) part: SymbolicState,
    /// By their addresses; `None` is code that is no part.
    found: HashMap<u64, Option<CodePart>>,
}

impl CodeParts {
    pub(super) fn new(context: &mut ProofContext<'_>) -> CodeParts {
        CodeParts {
            body: SymbolicState::body_entry(context),
            part: SymbolicState::part_entry(context),
            found: HashMap::new(),
        }
    }
}

/// What a part does.
#[derive(Debug, Clone)]
struct CodePart {
    /// The registers that it sets, by their numbers, to what, and when they are known.
    sets: Vec<(usize, RegisterEffect)>,
    then: PartEnd,
}

/// A register of the caller, as code leaves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RegisterEffect {
    value: TermId,
    is: TermId,
}

impl CallerRegisters {
    fn found(&self) -> impl Iterator<Item = RegisterEffect> {
        let registers = self.registers.into_iter().zip(self.known);
        registers.map(|(value, is)| RegisterEffect { value, is })
    }
}

#[derive(Debug, Clone, Copy)]
enum PartEnd {
    Part(u64),
    /// With a status.
    Returns(TermId),
}

/// What all parts do that follow one another.
struct CombinedEffect {
    /// For each register that is set, what it is in the end.
    sets: [Option<RegisterEffect>; REGISTERS],
    status: TermId,
}

impl Prover<'_> {
    /// Whether the code at an address is of a kind that can be proven in parts, and does what the row means.
    pub(super) fn is_proven_in_parts(&mut self, row: &Row<'_>, at: u64) -> bool {
        let Ok(FinalStates { returned, left }) = self.run(self.parts.body.with_address(at), true)
        else {
            return false;
        };
        let Some((left, known)) = left else {
            return false;
        };
        let Some(rest) = self.rest(left.at) else {
            return false;
        };
        let is_unchanged = |state: &SymbolicState| state.has_frame_of(&self.parts.body);
        returned.iter().all(is_unchanged)
            && self.means(row, &returned, (&left, &known), &rest) == Some(true)
    }

    /// Whether a row means that: a status and nothing else where it has returned, and what the rest does to the frame
    /// where it was left.
    fn means(
        &mut self,
        row: &Row<'_>,
        returned: &[SymbolicState],
        (left, known): (&SymbolicState, &CallerRegisters),
        rest: &CombinedEffect,
    ) -> Option<bool> {
        let when = left.path_condition.all(&mut self.terms);
        let mut failure = Terms::UNKNOWN;
        for state in returned {
            let status = state.status(&mut self.context());
            let condition = state.path_condition.all(&mut self.terms);
            failure = self.terms.choose(condition, status, failure);
        }
        let mut meaning = RowMeaning {
            terms: &mut self.terms,
            row,
            abi: self.abi,
        };
        let caller = meaning.caller().ok()?;
        let terms = &mut *meaning.terms;
        let otherwise = terms.not(when);
        if !is_same_where(terms, Terms::YES, when, caller.is)
            || !is_same_where(terms, when, rest.status, caller.success)
            || !is_same_where(terms, otherwise, failure, caller.failure)
            || !is_same_where(terms, when, known.cfa, caller.cfa.value)
        {
            return Some(false);
        }
        let any_cfa = terms.input_term(InputTerm::Cfa);
        for (number, (so_far, set)) in known.found().zip(&rest.sets).enumerate() {
            let (found, cfa, when) = match set {
                // Whatever the CFA is.
                Some(set) => (*set, any_cfa, Terms::YES),
                None => (so_far, caller.cfa.value, when),
            };
            let expected = meaning.register_of(&caller, number, cfa).ok()?;
            let terms = &mut *meaning.terms;
            // Of the value of what is not known nothing is said.
            let [value, expected_value] = [found.value, expected.value]
                .map(|value| terms.choose(expected.is, value, Terms::NO));
            if !is_same_where(terms, when, found.is, expected.is)
                || !is_same_where(terms, when, value, expected_value)
            {
                return Some(false);
            }
        }
        Some(true)
    }

    /// What the parts do that begin at an address.
    fn rest(&mut self, mut at: u64) -> Option<CombinedEffect> {
        let mut sets = [None; REGISTERS];
        for _ in 0..MAX_PARTS {
            if !self.parts.found.contains_key(&at) {
                let part = self.part(at);
                self.parts.found.insert(at, part);
            }
            let part = self.parts.found.get(&at)?.as_ref()?;
            for (number, found) in &part.sets {
                *sets.get_mut(*number)? = Some(*found);
            }
            match part.then {
                PartEnd::Part(next) => at = next,
                PartEnd::Returns(status) => return Some(CombinedEffect { sets, status }),
            }
        }
        None
    }

    /// What the code at an address does, if that is a part.
    fn part(&mut self, at: u64) -> Option<CodePart> {
        let FinalStates { returned, left } =
            self.run(self.parts.part.with_address(at), true).ok()?;
        let pattern = &self.parts.part;
        let mut context = ProofContext {
            terms: &mut self.terms,
            bits: &mut self.bits,
        };
        // It goes on in one way, always.
        let (state, after) = match (&left, returned.as_slice()) {
            (Some((state, after)), []) => (state, *after),
            (None, [state]) => (state, state.caller_registers(&context)),
            _ => return None,
        };
        let before = pattern.as_part(pattern, &context)?;
        let is_part = state.path_condition.all(context.terms) == Terms::YES
            && after.cfa == before.cfa
            && after.known.last() == before.known.last();
        let both = before.found().zip(after.found()).enumerate();
        let sets = both.filter(|(_, (before, after))| before != after);
        let sets = sets.map(|(number, (_, found))| (number, found)).collect();
        let then = match left {
            Some(_) => PartEnd::Part(state.at),
            None => PartEnd::Returns(state.status(&mut context)),
        };
        is_part.then_some(CodePart { sets, then })
    }
}

/// Whether two nodes are the same wherever a condition holds, and say something there.
fn is_same_where(terms: &mut Terms, condition: TermId, found: TermId, expected: TermId) -> bool {
    let is_same =
        |terms: &Terms, [found, expected]: [TermId; 2]| found == expected && terms.is_known(found);
    is_same(terms, [found, expected]) || {
        let there = [found, expected].map(|node| terms.choose(condition, node, Terms::NO));
        is_same(terms, there)
    }
}
