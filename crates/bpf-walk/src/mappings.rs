//! A process' mappings, and the look-up of an address in them.

use unspool_bpf::insn::{AluOp, Cond, Reg, Size};
use unspool_bpf::{Arena, Assembler, Subprog};
use unspool_rows::{LoadBias, RuntimeAddr};

use crate::search::{read, upper_bound};
use crate::table::{ArenaRecord, ArenaWriteError};

use Reg::{R0, R1, R2, R3, R5, R8};
use Size::{DW, W};

/// A range of a process' addresses, and the table of its module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModuleMapping {
    /// The first address.
    pub start: RuntimeAddr,
    /// The address after the last one.
    pub end: RuntimeAddr,
    /// The difference from the module's addresses as linked.
    pub bias: LoadBias,
    /// The record of the module's table: [`ArenaRecord::address`] or [`ArenaRecord::with_version`].
    /// Rows are cached by it.
    pub record: u64,
}

/// The size of the header: the number of mappings.
const HEADER_BYTES: usize = 8;
/// The size of a mapping: four fields of 8 bytes.
const MAPPING_BYTES: i32 = 32;
/// The offset of `end` in a mapping.
const END_OFFSET: i16 = 8;

/// Writes a list of mappings to an offset in the arena, a multiple of 8.
///
/// Programs must not get the list's address before this returns, nor may the list change then. To
/// change the mappings, write a new list elsewhere, and publish its address.
///
/// # Errors
///
/// The mappings are unsorted, overlapping or empty, or the list does not fit.
pub fn write_mappings(
    arena: &Arena,
    offset: usize,
    mappings: &[ModuleMapping],
) -> Result<ArenaRecord, ArenaWriteError> {
    let is_empty = |mapping: &ModuleMapping| mapping.start >= mapping.end;
    let is_before = |one: &ModuleMapping, other: &ModuleMapping| one.end <= other.start;
    if mappings.iter().any(is_empty) || !mappings.is_sorted_by(is_before) {
        return Err(ArenaWriteError::UnsortedMappings { offset });
    }
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend((mappings.len() as u64).to_le_bytes());
    for mapping in mappings {
        let ModuleMapping {
            start,
            end,
            bias,
            record,
        } = *mapping;
        let words = [start.0, end.0, bias.0, record];
        bytes.extend(words.into_iter().flat_map(u64::to_le_bytes));
    }
    let no_room = ArenaWriteError::no_room(arena, offset, bytes.len());
    arena.write(offset, &bytes).ok_or(no_room)?;
    Ok(ArenaRecord::new(arena, offset, bytes.len()))
}

/// Assembles `u64 lookup_mapping(list, address)`: finds the mapping of a process' address.
///
/// The result is the mapping's address in the arena, or 0 if there is none.
pub fn lookup_mapping(asm: &mut Assembler<'_>) -> Subprog {
    asm.subprog("lookup_mapping", 2, |asm| {
        let none = asm.new_label();
        let (first, address) = (R3, R8);
        asm.mov64(address, R2);
        read(asm, W, R5, R1, 0);
        asm.alu64(AluOp::Add, R1, 8);
        asm.mov64(first, R1);
        upper_bound(asm, DW, MAPPING_BYTES, address);
        asm.jmp(Cond::Eq, R1, first, none);
        asm.alu64(AluOp::Sub, R1, MAPPING_BYTES);
        read(asm, DW, R0, R1, END_OFFSET);
        asm.jmp(Cond::Ge, address, R0, none);
        asm.mov64(R0, R1);
        asm.exit();
        asm.bind(none);
        asm.mov64(R0, 0);
        asm.exit();
    })
}
