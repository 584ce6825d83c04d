//! The call-site part: rows projected on return addresses.
//!
//! Async-signal-safe, like [`crate::reader`].

use unspool_rows::Vaddr;

use crate::buckets::Buckets;
use crate::call_test::{CALL_WINDOW_BYTES, CallTest};
use crate::layout::{BUCKET_BYTES, GRANULE_BYTES, LOOKUP_IN_TABLE, TableHeader, TableSections};
use crate::little_endian::{low_u16, u32_at};
use crate::reader::{RowRef, TableCorruption};

/// The call-site part of a table. Keep it for many look-ups.
#[derive(Debug, Clone, Copy)]
pub struct CallSites<'t> {
    test: CallTest,
    base: Vaddr,
    steps: Buckets<'t>,
}

impl<'t> CallSites<'t> {
    pub(crate) fn new(header: &TableHeader, sections: &TableSections<'t>) -> Self {
        let bound = |n: usize| u32_at(sections.executable, n).unwrap_or(0);
        let at = |n: usize| header.base.offset(bound(n).into());
        CallSites {
            test: CallTest::new(header.call_form, at(0), at(1)),
            base: header.base,
            steps: Buckets::new(sections.step_pages, sections.step_buckets, sections.steps),
        }
    }

    /// Whether the table has no call-site part.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The test that an address must pass.
    #[must_use]
    pub fn test(&self) -> CallTest {
        self.test
    }

    /// The row that holds at the call before `return_address`. `None` if this part has no answer:
    /// use [`crate::CompiledTable::lookup`] with the address minus 1.
    ///
    /// `before` are the module's bytes that end at the address, from the file or from unwritten
    /// memory; zeros stand for bytes before the code. Visits the steps of the same 1 KiB.
    ///
    /// # Errors
    ///
    /// [`TableCorruption`].
    #[inline]
    pub fn row(
        &self,
        return_address: Vaddr,
        before: [u8; CALL_WINDOW_BYTES],
    ) -> Result<Option<RowRef>, TableCorruption> {
        if !self.test.passes(return_address, before) {
            return Ok(None);
        }
        Ok(self.lookup(return_address)?.map(|claim| claim.row))
    }

    /// The answer of [`CallSites::row`] on condition that the test is passed, before the code is
    /// read.
    ///
    /// Code that is far away takes longest to load. A walk can request it, continue with the
    /// claimed row, and check later whether the claim holds. If it does not, the frames from there
    /// on must be walked again.
    ///
    /// # Errors
    ///
    /// [`TableCorruption`].
    #[inline]
    pub fn lookup(&self, return_address: Vaddr) -> Result<Option<CallSiteRow>, TableCorruption> {
        let key = return_address.0.wrapping_sub(1).wrapping_sub(self.base.0);
        let Some(bucket) = self.steps.bucket(key) else {
            return Ok(None);
        };
        // All steps of this granule or an earlier one, for any row.
        let limit =
            (key % BUCKET_BYTES / u64::from(GRANULE_BYTES)) << 9 | u64::from(LOOKUP_IN_TABLE);
        let count = self.steps.count_at_most(bucket, low_u16(limit));
        // If the bucket has no steps, the one before it holds.
        let Some(step) = (bucket.first + count.ok_or(TableCorruption::CallSites)?).checked_sub(1)
        else {
            return Ok(None);
        };
        let row = self.steps.number(step).ok_or(TableCorruption::CallSites)? & LOOKUP_IN_TABLE;
        Ok((row != LOOKUP_IN_TABLE).then_some(CallSiteRow {
            return_address,
            row: RowRef(row),
        }))
    }
}

/// A row that holds if a call ends at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a candidate is not an answer until it is verified"]
pub struct CallSiteRow {
    return_address: Vaddr,
    row: RowRef,
}

impl CallSiteRow {
    /// The claimed row.
    #[must_use]
    pub fn row(&self) -> RowRef {
        self.row
    }

    /// Whether the claim holds: `before` are the bytes that end at the address.
    #[must_use]
    #[inline]
    pub fn holds(&self, test: &CallTest, before: [u8; CALL_WINDOW_BYTES]) -> bool {
        test.passes(self.return_address, before)
    }
}
