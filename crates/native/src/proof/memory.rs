//! Which memory may be read, and what is read there.

use super::terms::{Given, Node, Operator, Terms};

/// Whether all of so many bytes at an address are of the stack.
pub(super) fn is_near(terms: &mut Terms, address: Node, size: u64) -> Node {
    let [stack, end] = [Given::Stack, Given::StackEnd].map(|given| terms.given(given));
    let [first, last] = [Given::First, Given::Last].map(|given| terms.given(given));
    let outside = match size {
        8 => {
            let below = terms.apply(Operator::Below, address, first);
            let above = terms.apply(Operator::Below, last, address);
            terms.or(below, above)
        }
        _ => {
            let below = terms.apply(Operator::Below, address, stack);
            let above = terms.apply(Operator::Below, end, address);
            let rest = terms.apply(Operator::Sub, end, address);
            let size = terms.number(size);
            let across = terms.apply(Operator::Below, rest, size);
            let above = terms.or(above, across);
            terms.or(below, above)
        }
    };
    terms.not(outside)
}

/// Whether there is a function to ask for memory.
pub(super) fn can_ask(terms: &mut Terms) -> Node {
    let read = terms.given(Given::Read);
    let none = terms.apply(Operator::Equal, read, Terms::NO);
    terms.not(none)
}

/// What that function returns.
pub(super) fn answer(terms: &mut Terms, address: Node, size: u64) -> Node {
    let size = terms.number(size);
    terms.apply(Operator::Answer, address, size)
}

/// Whether so many bytes at an address can be read: directly, or by asking.
pub(super) fn is_readable(terms: &mut Terms, address: Node, size: u64) -> Node {
    let near = is_near(terms, address, size);
    let can_ask = can_ask(terms);
    let answer = answer(terms, address, size);
    let answer = terms.low(answer, 32);
    let is_there = terms.apply(Operator::Equal, answer, Terms::NO);
    let by_asking = terms.and(can_ask, is_there);
    terms.or(near, by_asking)
}

/// What is read there.
pub(super) fn loaded(terms: &mut Terms, address: Node, size: u64) -> Node {
    let size = terms.number(size);
    terms.apply(Operator::Loaded, address, size)
}
