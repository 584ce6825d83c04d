//! Which memory is readable, and its contents.

use super::terms::{InputTerm, TermId, TermOperator, Terms};

/// Whether all of this many bytes at an address are on the stack.
pub(super) fn is_near(terms: &mut Terms, address: TermId, size: u64) -> TermId {
    let [stack, end] = [InputTerm::Stack, InputTerm::StackEnd].map(|given| terms.input_term(given));
    let [first, last] = [InputTerm::First, InputTerm::Last].map(|given| terms.input_term(given));
    let outside = match size {
        8 => {
            let below = terms.apply(TermOperator::Below, address, first);
            let above = terms.apply(TermOperator::Below, last, address);
            terms.or(below, above)
        }
        _ => {
            let below = terms.apply(TermOperator::Below, address, stack);
            let above = terms.apply(TermOperator::Below, end, address);
            let rest = terms.apply(TermOperator::Sub, end, address);
            let size = terms.number(size);
            let across = terms.apply(TermOperator::Below, rest, size);
            let above = terms.or(above, across);
            terms.or(below, above)
        }
    };
    terms.not(outside)
}

/// Whether there is a callback for memory.
pub(super) fn can_ask(terms: &mut Terms) -> TermId {
    let read = terms.input_term(InputTerm::Read);
    let none = terms.apply(TermOperator::Equal, read, Terms::NO);
    terms.not(none)
}

/// The callback's return value.
pub(super) fn answer(terms: &mut Terms, address: TermId, size: u64) -> TermId {
    let size = terms.number(size);
    terms.apply(TermOperator::Answer, address, size)
}

/// Whether this many bytes at an address are readable: directly, or by the callback.
pub(super) fn is_readable(terms: &mut Terms, address: TermId, size: u64) -> TermId {
    let near = is_near(terms, address, size);
    let can_ask = can_ask(terms);
    let answer = answer(terms, address, size);
    let answer = terms.low(answer, 32);
    let is_there = terms.apply(TermOperator::Equal, answer, Terms::NO);
    let by_asking = terms.and(can_ask, is_there);
    terms.or(near, by_asking)
}

/// The contents there.
pub(super) fn loaded(terms: &mut Terms, address: TermId, size: u64) -> TermId {
    let size = terms.number(size);
    terms.apply(TermOperator::Loaded, address, size)
}
