//! Packed rows, as caches keep them.

use unspool_rows::PackedRow;
use unspool_rows::packed_row::SavedRegisters;

use crate::modules::ModuleSlot;

/// A packed row, and the module of the own process that it belongs to, if any. In one word: the
/// module's number is above the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedPackedRow(u64);

impl CachedPackedRow {
    /// No row.
    pub const NONE: CachedPackedRow = CachedPackedRow(0);

    /// No caller, in no module of the own process.
    pub const OUTERMOST: CachedPackedRow = CachedPackedRow(PackedRow::OUTERMOST.word());

    const SLOT_SHIFT: u32 = PackedRow::BITS;

    /// A row of the own process, with its module; `None` for a slot number in the upper half.
    #[must_use]
    pub fn new(row: PackedRow, slot: ModuleSlot) -> Option<CachedPackedRow> {
        let word = row.word() | u64::from(slot.0) << CachedPackedRow::SLOT_SHIFT;
        (slot.0 >> 15 == 0).then_some(CachedPackedRow(word))
    }

    /// The reverse of [`CachedPackedRow::word`].
    #[inline(always)]
    #[must_use]
    pub(crate) fn from_word(word: u64) -> CachedPackedRow {
        CachedPackedRow(word)
    }

    /// As a word.
    #[must_use]
    pub fn word(self) -> u64 {
        self.0
    }

    /// The row.
    #[inline(always)]
    #[must_use]
    pub fn row(self) -> PackedRow {
        PackedRow::from_word(self.0 & ((1 << CachedPackedRow::SLOT_SHIFT) - 1))
    }

    /// The row's module in the own process.
    #[inline]
    #[must_use]
    pub fn module_slot(self) -> Option<ModuleSlot> {
        match u16::try_from(self.0 >> CachedPackedRow::SLOT_SHIFT) {
            Ok(0) | Err(_) => None,
            Ok(number) => Some(ModuleSlot(number)),
        }
    }

    /// The saved registers, in frames that have a caller on their stack.
    #[inline(always)]
    #[must_use]
    pub fn saved(self) -> SavedRegisters {
        PackedRow::from_word(self.0).saved()
    }

    /// [`PackedRow::above_stack_pointer`], if the row has no module of the own process: one
    /// comparison decides.
    #[inline(always)]
    #[must_use]
    pub fn above_stack_pointer(self) -> Option<u64> {
        PackedRow::from_word(self.0).above_stack_pointer()
    }

    /// The same for the frame pointer.
    #[inline(always)]
    #[must_use]
    pub fn above_frame_pointer(self) -> Option<u64> {
        PackedRow::from_word(self.0).above_frame_pointer()
    }
}

impl From<PackedRow> for CachedPackedRow {
    fn from(row: PackedRow) -> CachedPackedRow {
        CachedPackedRow(row.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_and_its_module_are_kept_apart() {
        let row = PackedRow::from_word(0x1_fffe_0000_0040);
        assert_eq!(row.above_stack_pointer(), Some(0x7_fff8));
        let alone = CachedPackedRow::from(row);
        let own = CachedPackedRow::new(row, ModuleSlot(0x7edc)).unwrap();
        assert_eq!((alone.row(), alone.module_slot()), (row, None));
        assert_eq!(
            (own.row(), own.module_slot()),
            (row, Some(ModuleSlot(0x7edc)))
        );
        assert_eq!(alone.above_stack_pointer(), Some(0x7_fff8));
        assert_eq!(own.above_stack_pointer(), None);
        assert_eq!(own.saved(), row.saved());
        assert_eq!(CachedPackedRow::new(row, ModuleSlot(0x8000)), None);
    }
}
