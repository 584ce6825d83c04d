//! AAPCS64.

use super::{Passing, PassingLocation, PassingPiece, ScalarClass, on_stack};
use crate::graph::{Graph, TypeId};

/// x0 to x7, and v0 to v7.
const REGISTERS: u8 = 8;

/// The DWARF number of v0.
const FIRST_VECTOR_REGISTER: u8 = 64;

/// The allocated registers (the standard's NGRN and NSRN), and the memory (NSAA).
#[derive(Debug, Default)]
struct RegisterAllocation {
    registers: u8,
    vectors: u8,
    stack: u32,
}

/// The passing of parameters of these types, and whether any is passed in memory.
pub(super) fn pass(
    graph: &Graph<'_>,
    types: impl Iterator<Item = TypeId>,
) -> (Vec<Option<Passing>>, bool) {
    let mut taken = RegisterAllocation::default();
    let mut is_known = true;
    let mut passed = Vec::new();
    for ty in types {
        let one = if is_known {
            pass_one(graph, ty, &mut taken)
        } else {
            None
        };
        is_known = one.is_some();
        passed.push(one);
    }
    (passed, taken.stack != 0)
}

fn pass_one(graph: &Graph<'_>, ty: TypeId, allocation: &mut RegisterAllocation) -> Option<Passing> {
    let bytes = graph.size(ty)?;
    if bytes == 0 {
        return Some(Passing::by_value(Vec::new()));
    }
    let is_aggregate = graph.is_aggregate(ty);
    if is_aggregate && !is_known(graph, ty, bytes) {
        return None;
    }
    if let Some(elements) = homogeneous(graph, ty) {
        return in_vectors(graph, ty, bytes, elements, allocation);
    }
    if is_aggregate && bytes > 16 {
        // Rule B.4: the caller makes a copy and passes its address.
        let passing = in_registers(8, 8, allocation)?;
        return Some(Passing {
            is_by_reference: true,
            ..passing
        });
    }
    in_registers(bytes, graph.align(ty)?, allocation)
}

/// Whether all parts of a structure, union or array that decide its passing are known. Unknown
/// contents of holes between floating-point numbers do not matter: a value with such holes is
/// passed in general-purpose registers in any case. But a value of 16 bytes may be aligned to 16
/// because of an unknown part.
fn is_known(graph: &Graph<'_>, ty: TypeId, bytes: u64) -> bool {
    match graph.scalars(ty) {
        Some(leaves) if bytes == 16 => Graph::unknown_bytes(&leaves, bytes).is_empty(),
        Some(leaves) => !leaves.is_empty(),
        None => bytes > 16,
    }
}

/// Rules C.1 to C.6.
fn in_vectors(
    graph: &Graph<'_>,
    ty: TypeId,
    bytes: u64,
    elements: u8,
    allocation: &mut RegisterAllocation,
) -> Option<Passing> {
    if allocation.vectors + elements > REGISTERS {
        allocation.vectors = REGISTERS;
        let (passing, end) = on_stack(allocation.stack, bytes, graph.align(ty)?.min(16))?;
        allocation.stack = end;
        return Some(passing);
    }
    let size = u32::try_from(bytes).ok()? / u32::from(elements);
    let pieces = (0..elements).map(|element| PassingPiece {
        offset: u32::from(element) * size,
        bytes: size,
        location: PassingLocation::Vector(FIRST_VECTOR_REGISTER + allocation.vectors + element),
    });
    let passing = Passing::by_value(pieces.collect());
    allocation.vectors += elements;
    Some(passing)
}

/// Rules C.9 to C.17.
fn in_registers(bytes: u64, align: u64, allocation: &mut RegisterAllocation) -> Option<Passing> {
    let needed = u8::try_from(bytes.div_ceil(8)).ok()?;
    if align >= 16 {
        allocation.registers = allocation.registers.next_multiple_of(2);
    }
    if allocation.registers + needed > REGISTERS {
        allocation.registers = REGISTERS;
        let (passing, end) = on_stack(allocation.stack, bytes, align.min(16))?;
        allocation.stack = end;
        return Some(passing);
    }
    let bytes = u32::try_from(bytes).ok()?;
    let pieces = (0..needed).map(|register| {
        let offset = u32::from(register) * 8;
        PassingPiece {
            offset,
            bytes: (bytes - offset).min(8),
            location: PassingLocation::Register(allocation.registers + register),
        }
    });
    let passing = Passing::by_value(pieces.collect());
    allocation.registers += needed;
    Some(passing)
}

/// The number of elements of a value that is one to four floating-point numbers of the same size: a
/// number, or a homogeneous floating-point aggregate.
fn homogeneous(graph: &Graph<'_>, ty: TypeId) -> Option<u8> {
    let mut leaves = graph.scalars(ty)?;
    // The members of a union have equal offsets.
    leaves.sort_by_key(|leaf| leaf.offset);
    leaves.dedup_by_key(|leaf| (leaf.offset, leaf.bytes, leaf.class == ScalarClass::Integer));
    let first = *leaves.first()?;
    let count = u8::try_from(leaves.len())
        .ok()
        .filter(|count| *count <= 4)?;
    let are_alike = leaves
        .iter()
        .all(|leaf| leaf.class == first.class && leaf.bytes == first.bytes);
    let is_full = graph.size(ty)? == first.bytes * u64::from(count);
    (first.class != ScalarClass::Integer && are_alike && is_full).then_some(count)
}
