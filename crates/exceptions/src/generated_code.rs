//! Code that belongs to no loaded object, and was registered by the program.

use unspool_rows::{Row, RuntimeAddr};
use unspool_unwind::local::SetOnce;

use crate::facts::{BadEntry, EntryFacts};

/// A registry of generated code.
pub trait GeneratedCode: Sync {
    /// Makes `row` the one at an address, and returns the other facts of its entry. `None` if the
    /// address is not registered. Async-signal-safe.
    ///
    /// # Errors
    ///
    /// The entry is bad.
    fn row_and_entry(
        &self,
        pc: RuntimeAddr,
        row: &mut Row<'static>,
    ) -> Result<Option<EntryFacts>, BadEntry>;

    /// The number of times that code was removed, modulo 2^15: code at an address at least, or more.
    /// `None` if that is not counted. Then no facts of its code are kept.
    fn generation(&self, pc: RuntimeAddr) -> Option<u16>;
}

static REGISTRY: SetOnce<&'static dyn GeneratedCode> = SetOnce::new();

/// Names the process's registry. It is asked about addresses that no module's table covers. The
/// first call counts.
pub fn set_registry(registry: &'static dyn GeneratedCode) {
    REGISTRY.set(registry);
}

/// As [`GeneratedCode::row_and_entry`].
pub(crate) fn row_and_entry(
    pc: RuntimeAddr,
    row: &mut Row<'static>,
) -> Result<Option<EntryFacts>, BadEntry> {
    match REGISTRY.get() {
        Some(registry) => registry.row_and_entry(pc, row),
        None => Ok(None),
    }
}

/// As [`GeneratedCode::generation`].
pub(crate) fn generation(pc: RuntimeAddr) -> Option<u16> {
    REGISTRY.get()?.generation(pc)
}
