//! The rule to step from a frame: a row of the unwind table in a cacheable form.

use alloc::vec::Vec;

use unspool_rows::encoding;
use unspool_rows::row::Row;
use unspool_rows::{PackedRow, RegisterScope};
use unspool_unwind::steps::{self, CachedPackedRow};

use crate::abi::Error;
use crate::remote_cfi::ABI;

/// The rule of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnedStepRule {
    /// A row in the short form, or none.
    Simple(CachedPackedRow),
    /// Any other row, in the form of [`encoding`].
    Encoded(Vec<u8>),
}

impl OwnedStepRule {
    /// The form for a cache.
    #[must_use]
    pub(crate) fn as_cached(&self) -> steps::StepRule<'_> {
        match self {
            OwnedStepRule::Simple(simple) => steps::StepRule::Simple(*simple),
            OwnedStepRule::Encoded(bytes) => steps::StepRule::Encoded(bytes),
        }
    }

    /// The rule of a row.
    ///
    /// # Errors
    ///
    /// [`Error::NO_MEMORY`].
    pub(crate) fn from_row(row: &Row<'_>) -> Result<OwnedStepRule, Error> {
        match PackedRow::from_row(row, ABI.arch, RegisterScope::All) {
            Some(packed) => Ok(OwnedStepRule::Simple(packed.into())),
            None => Ok(OwnedStepRule::Encoded(encoded(row)?)),
        }
    }
}

/// The row in the form of [`encoding`].
///
/// # Errors
///
/// [`Error::NO_MEMORY`].
pub(crate) fn encoded(row: &Row<'_>) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    // `encode` cannot report that memory is short: room for any row is reserved first.
    bytes
        .try_reserve_exact(MAX_ENCODED_BYTES)
        .map_err(|_| Error::NO_MEMORY)?;
    encoding::encode(row, &mut bytes);
    Ok(bytes)
}

/// An upper bound of an encoded row's size: its expressions, and 16 bytes for each rule.
const MAX_ENCODED_BYTES: usize =
    unspool_cfi::evaluate::MAX_EXPRESSION_BYTES + 16 * (Row::MAX_RULES + 2);
