//! The bits of [`PackedRow`] that walks read, for the stack pointer and the frame pointer.

use unspool_compiled_table::{CompiledTable, RowRef};
use unspool_rows::packed_row::layout;
use unspool_rows::{Arch, PackedRow, RegisterScope};

/// The architecture whose stacks the program walks.
pub const ARCH: Arch = Arch::X86_64;

/// The parts of a word, as operands of instructions.
pub(crate) const SAVED_SHIFT: i32 = layout::FRAME_POINTER_SHIFT.cast_signed();
pub(crate) const SAVED_MASK: i32 = (1 << layout::SAVED_BITS) - 1;
pub(crate) const FORM_SHIFT: i32 = layout::FORM_SHIFT.cast_signed();
pub(crate) const FORM_FRAME_POINTER: i32 = layout::ON_FRAME_POINTER.cast_signed();
pub(crate) const FORM_REALIGNED: i32 = layout::REALIGNED.cast_signed();
pub(crate) const FORM_OTHER: i32 = layout::OTHER.cast_signed();
pub(crate) const DISTANCE_SHIFT: i32 = layout::DISTANCE_SHIFT.cast_signed();
pub(crate) const OUTERMOST: i32 = layout::OUTERMOST.cast_signed();
pub(crate) const SIGNAL: i32 = layout::SIGNAL.cast_signed();
pub(crate) const LINKAGE_TABLE: i32 = layout::LINKAGE_TABLE.cast_signed();
pub(crate) const PUSHED_SHIFT: i32 = layout::PUSHED_SHIFT.cast_signed();

/// The offsets of the registers in the kernel's signal record, in bytes.
pub(crate) const RECORD_FRAME_POINTER: i32 = record_offset(6);
pub(crate) const RECORD_STACK_POINTER: i32 = record_offset(7);
pub(crate) const RECORD_CODE: i32 = record_offset(16);

#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a panic would be an error of compilation"
)]
const fn record_offset(register: usize) -> i32 {
    let offsets: &[u64] = match ARCH.spec().signal_record {
        Some(record) => record.offsets,
        None => &[],
    };
    offsets[register] as i32
}

/// A table's row in one word; 0 if it has another form.
pub(crate) fn packed_row(table: &CompiledTable<'_>, row: RowRef) -> u64 {
    let (arch, scope) = (table.abi().arch, RegisterScope::StackAndFramePointer);
    let row = table.encoded_row(row).ok();
    let packed = row.and_then(|row| PackedRow::from_encoded(row, arch, scope));
    packed.map_or(0, PackedRow::word)
}
