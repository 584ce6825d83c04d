//! System V, AMD64.

use std::ops::Range;

use super::{Passing, PassingLocation, PassingPiece, Scalar, ScalarClass, on_stack};
use crate::graph::{Graph, TypeId};

/// rdi rsi rdx rcx r8 r9
const INTEGER: [u8; 6] = [5, 4, 1, 2, 8, 9];

/// The DWARF number of xmm0.
const FIRST_VECTOR_REGISTER: u8 = 17;

/// The number of vector registers that arguments are passed in.
const VECTORS: u8 = 8;

/// The class of eight bytes of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Eightbyte {
    /// No part of the value is in it.
    Empty,
    Integer,
    Sse,
}

/// The passing of parameters of these types, and whether any is passed in memory.
pub(super) fn pass(
    graph: &Graph<'_>,
    returns: TypeId,
    types: impl Iterator<Item = TypeId>,
) -> (Vec<Option<Passing>>, bool) {
    let mut integers = INTEGER.into_iter();
    // The address for a value returned in memory is passed before all parameters.
    let mut is_known = true;
    match returned_in_memory(graph, returns) {
        Some(true) => drop(integers.next()),
        Some(false) => {}
        None => is_known = false,
    }
    let (mut vectors, mut next) = (0, 0_u32);
    let mut passed = Vec::new();
    for ty in types {
        let one = if is_known {
            pass_one(graph, ty, &mut integers, &mut vectors, &mut next)
        } else {
            None
        };
        is_known = one.is_some();
        passed.push(one);
    }
    (passed, next != 0)
}

fn pass_one(
    graph: &Graph<'_>,
    ty: TypeId,
    integers: &mut core::array::IntoIter<u8, 6>,
    vectors: &mut u8,
    next: &mut u32,
) -> Option<Passing> {
    let bytes = graph.size(ty)?;
    if bytes == 0 {
        return Some(Passing::by_value(Vec::new()));
    }
    let classes = classes(graph, ty, bytes)?;
    let is_aggregate = graph.is_aggregate(ty);
    // Compilers differ in passing a structure with an unsized array at its end in registers.
    if is_aggregate && graph.ends_without_size(ty) {
        return None;
    }
    let count = |class| classes.iter().filter(|own| **own == class).count();
    let vectors_needed = u8::try_from(count(Eightbyte::Sse)).ok()?;
    let is_in_registers = !classes.is_empty()
        && count(Eightbyte::Integer) <= integers.len()
        && vectors_needed <= VECTORS - *vectors;
    if !is_in_registers {
        let align = graph.align(ty)?;
        let place = |align| on_stack(*next, bytes, align);
        // The types lack an alignment requested by the source; the size is a multiple of it.
        let asked = 1 << bytes.trailing_zeros();
        // LLVM before version 20 can pass a number of two registers half in the last free one, and
        // aligns it as one half.
        let is_number = count(Eightbyte::Integer) == 2 && !is_aggregate;
        let is_known = match (is_aggregate, is_number) {
            (true, _) => place(align.max(asked)) == place(align),
            (_, true) => place(8) == place(align) && integers.len() != 1,
            _ => true,
        };
        let (passing, end) = place(align).filter(|_| is_known)?;
        *next = end;
        return Some(passing);
    }
    let mut pieces = Vec::new();
    for (offset, class) in (0_u32..).step_by(8).zip(classes) {
        let location = match class {
            Eightbyte::Empty => continue,
            Eightbyte::Integer => PassingLocation::Register(integers.next()?),
            Eightbyte::Sse => {
                *vectors += 1;
                PassingLocation::Vector(FIRST_VECTOR_REGISTER + *vectors - 1)
            }
        };
        let rest = u32::try_from(bytes).ok()?.checked_sub(offset)?;
        pieces.push(PassingPiece {
            offset,
            bytes: rest.min(8),
            location,
        });
    }
    Some(Passing::by_value(pieces))
}

/// The classes of a value's eightbytes; empty if it is passed in memory; `None` if that is unknown.
fn classes(graph: &Graph<'_>, ty: TypeId, bytes: u64) -> Option<Vec<Eightbyte>> {
    if bytes > 16 {
        return Some(Vec::new());
    }
    let leaves = graph.scalars(ty)?;
    let is_x87 = leaves
        .iter()
        .any(|leaf| leaf.class == ScalarClass::LongDouble);
    if is_x87 || Graph::is_packed(&leaves) {
        return Some(Vec::new());
    }
    let unexplained = Graph::unknown_bytes(&leaves, bytes);
    let count = usize::try_from(bytes.div_ceil(8)).ok()?;
    let mut classes = vec![Eightbyte::Empty; count];
    for Scalar {
        offset,
        bytes,
        class,
    } in leaves
    {
        let first = usize::try_from(offset / 8).ok()?;
        let end = usize::try_from((offset + bytes).div_ceil(8)).ok()?;
        for eightbyte in classes.get_mut(first..end.min(count))? {
            *eightbyte = match (*eightbyte, class) {
                (Eightbyte::Integer, _) | (_, ScalarClass::Integer) => Eightbyte::Integer,
                _ => Eightbyte::Sse,
            };
        }
    }
    // An unknown part may be a number, or nothing.
    let is_known = |(class, start): (&Eightbyte, u64)| {
        let is_in = |hole: &Range<u64>| hole.start < start + 8 && start < hole.end;
        *class == Eightbyte::Integer || !unexplained.iter().any(is_in)
    };
    let mut placed = classes.iter().zip((0..).step_by(8));
    placed.all(is_known).then_some(classes)
}

/// Whether a function with this return type is passed the address of the result; `None` if that is
/// unknown.
fn returned_in_memory(graph: &Graph<'_>, returns: TypeId) -> Option<bool> {
    if returns == TypeId::NONE || !graph.is_aggregate(returns) {
        return Some(false);
    }
    let bytes = graph.size(returns)?;
    if bytes == 0 {
        return Some(false);
    }
    if graph.ends_without_size(returns) {
        return None;
    }
    // `struct { long double x; }` is returned in a register of the x87, and is passed in memory.
    let leaves = graph.scalars(returns);
    if bytes == 16
        && let Some([leaf]) = leaves.as_deref()
        && leaf.class == ScalarClass::LongDouble
    {
        return Some(false);
    }
    Some(classes(graph, returns, bytes)?.is_empty())
}
