//! The bits of [`PackedRow`] that walks read, for the stack pointer and the frame pointer.

use unspool_compiled_table::{CompiledTable, RowRef};
use unspool_rows::{PackedRow, RegisterScope};

/// The frame pointer's field of the saved registers.
pub(crate) const SAVED_SHIFT: i32 = 5;
pub(crate) const SAVED_MASK: i32 = 31;
/// The form.
pub(crate) const FORM_SHIFT: i32 = 30;
pub(crate) const FORM_FRAME_POINTER: i32 = 1;
pub(crate) const FORM_REALIGNED: i32 = 2;
pub(crate) const FORM_OTHER: i32 = 3;
/// The distance, and the number in the last form.
pub(crate) const DISTANCE_SHIFT: i32 = 33;
pub(crate) const OUTERMOST: i32 = 1;
pub(crate) const SIGNAL: i32 = 2;
pub(crate) const LINKAGE_TABLE: i32 = 3;
pub(crate) const PUSHED_SHIFT: i32 = 36;

/// The offsets of the registers in the kernel's signal record (Linux: `ucontext_t`), in bytes.
pub(crate) const RECORD_FRAME_POINTER: i16 = 120;
pub(crate) const RECORD_STACK_POINTER: i16 = 160;
pub(crate) const RECORD_CODE: i16 = 168;

/// A table's row in one word; 0 if it has another form.
pub(crate) fn packed_row(table: &CompiledTable<'_>, row: RowRef) -> u64 {
    let (arch, scope) = (table.abi().arch, RegisterScope::StackAndFramePointer);
    let row = table.encoded_row(row).ok();
    let packed = row.and_then(|row| PackedRow::from_encoded(row, arch, scope));
    packed.map_or(0, PackedRow::word)
}
