//! How to step from a frame: a row of the unwind table in the forms that a cache can keep.

use alloc::vec::Vec;

use unspool_ir::encoding;
use unspool_ir::row::Row;
use unspool_unwind::steps::{self, Simple};

use crate::abi::Error;

/// What a step follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// A row in the short form, or none.
    Simple(Simple),
    /// Any other row, as [`encoding`] has it.
    Encoded(Vec<u8>),
}

impl Rule {
    /// As a cache takes it.
    #[must_use]
    pub fn as_kept(&self) -> steps::Rule<'_> {
        match self {
            Rule::Simple(simple) => steps::Rule::Simple(*simple),
            Rule::Encoded(bytes) => steps::Rule::Encoded(bytes),
        }
    }

    /// The rule of a row.
    ///
    /// # Errors
    ///
    /// [`Error::NO_MEMORY`].
    pub fn from_row(row: &Row<'_>) -> Result<Rule, Error> {
        match Simple::from_row(row) {
            Some(simple) => Ok(Rule::Simple(simple)),
            None => Ok(Rule::Encoded(encoded(row)?)),
        }
    }
}

/// The row as [`encoding`] has it.
///
/// # Errors
///
/// [`Error::NO_MEMORY`].
pub fn encoded(row: &Row<'_>) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    // `encode` cannot report that memory is short: it gets all that a row can take beforehand.
    bytes
        .try_reserve_exact(MAX_ENCODED)
        .map_err(|_| Error::NO_MEMORY)?;
    encoding::encode(row, &mut bytes);
    Ok(bytes)
}

/// More than an encoded row has: its expressions, and 16 bytes for each rule.
const MAX_ENCODED: usize = unspool_cfi::evaluate::MAX_EXPRESSION_BYTES + 16 * (Row::MAX_RULES + 2);
