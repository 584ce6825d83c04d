//! Proves bodies in parts.
//!
//! Bodies find the CFA, each in its own way, and then share the code that restores registers
//! ([`crate::x86_64`]). Behind each call within the code a *part* may begin. There the code's own
//! registers and its stack are as at the body's begin, except for the CFA and the word of known
//! registers. A part is executed once, with symbols for the CFA, the frame and its known registers,
//! and without assumptions about them. So its effect holds for all values, and for each body that
//! reaches it. An effect only consists of the registers that the part sets, in terms of the CFA,
//! and of its successor: another part, or the code's caller.
//!
//! A row's body is then its code up to the first part, and the parts that follow. A body of another
//! kind, or one that seems not to do what the row means, is proven as a whole.

use hashbrown::HashMap;
use unspool_rows::Row;

use super::meaning::{REGISTERS, RowMeaning};
use super::state::{CallerRegisters, ProofContext, SymbolicState};
use super::terms::{InputTerm, TermId, Terms};
use super::{FinalStates, Prover};

/// Number of parts that one body may have.
const MAX_PARTS: usize = 64;

/// The parts of an object's code.
pub(super) struct CodeParts {
    /// Begin states of bodies, and of parts.
    pub(super) body: SymbolicState,
    pub(super) part: SymbolicState,
    /// By address; `None` is code that is not a part.
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

/// The effect of a part.
#[derive(Debug, Clone)]
struct CodePart {
    /// The registers that it sets, by number, with their values and conditions.
    sets: Vec<(usize, RegisterEffect)>,
    end: PartEnd,
}

/// A register of the caller after the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RegisterEffect {
    value: TermId,
    is_known: TermId,
}

impl CallerRegisters {
    fn found(&self) -> impl Iterator<Item = RegisterEffect> {
        let registers = self.registers.into_iter().zip(self.known);
        registers.map(|(value, is)| RegisterEffect {
            value,
            is_known: is,
        })
    }
}

#[derive(Debug, Clone, Copy)]
enum PartEnd {
    Part(u64),
    /// With a status.
    Returns(TermId),
}

/// The effect of all parts that follow one another.
struct CombinedEffect {
    /// The final value of each register that is set.
    sets: [Option<RegisterEffect>; REGISTERS],
    status: TermId,
}

impl Prover<'_> {
    /// Whether the code at an address can be proven in parts, and does what the row means.
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

    /// Whether a row means this: only a status where the code has returned, and the effect of the
    /// rest on the frame where it was left.
    fn means(
        &mut self,
        row: &Row<'_>,
        returned: &[SymbolicState],
        (left, known): (&SymbolicState, &CallerRegisters),
        effect: &CombinedEffect,
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
        if !is_same_where(terms, Terms::YES, when, caller.has_caller)
            || !is_same_where(terms, when, effect.status, caller.success)
            || !is_same_where(terms, otherwise, failure, caller.failure)
            || !is_same_where(terms, when, known.cfa, caller.cfa.value)
        {
            return Some(false);
        }
        let any_cfa = terms.input_term(InputTerm::Cfa);
        for (number, (so_far, set)) in known.found().zip(&effect.sets).enumerate() {
            let (found, cfa, when) = match set {
                // For any CFA.
                Some(set) => (*set, any_cfa, Terms::YES),
                None => (so_far, caller.cfa.value, when),
            };
            let expected = meaning.register_of(&caller, number, cfa).ok()?;
            let terms = &mut *meaning.terms;
            // Unknown registers have no claims about their value.
            let [value, expected_value] = [found.value, expected.value]
                .map(|value| terms.choose(expected.is_some, value, Terms::NO));
            if !is_same_where(terms, when, found.is_known, expected.is_some)
                || !is_same_where(terms, when, value, expected_value)
            {
                return Some(false);
            }
        }
        Some(true)
    }

    /// The effect of the parts from an address on.
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
            match part.end {
                PartEnd::Part(next) => at = next,
                PartEnd::Returns(status) => return Some(CombinedEffect { sets, status }),
            }
        }
        None
    }

    /// The effect of the code at an address, if that is a part.
    fn part(&mut self, at: u64) -> Option<CodePart> {
        let FinalStates { returned, left } =
            self.run(self.parts.part.with_address(at), true).ok()?;
        let pattern = &self.parts.part;
        let mut context = ProofContext {
            terms: &mut self.terms,
            masks: &mut self.masks,
        };
        // It has exactly one successor.
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
        let end = match left {
            Some(_) => PartEnd::Part(state.at),
            None => PartEnd::Returns(state.status(&mut context)),
        };
        is_part.then_some(CodePart { sets, end })
    }
}

/// Whether two nodes are equal and known wherever a condition holds.
fn is_same_where(terms: &mut Terms, condition: TermId, found: TermId, expected: TermId) -> bool {
    let is_same =
        |terms: &Terms, [found, expected]: [TermId; 2]| found == expected && terms.is_known(found);
    is_same(terms, [found, expected]) || {
        let there = [found, expected].map(|node| terms.choose(condition, node, Terms::NO));
        is_same(terms, there)
    }
}
