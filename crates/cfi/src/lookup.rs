//! One address → one FDE → one row, straight from section bytes.
//!
//! Async-signal-safe: fixed storage, no allocation, no lock. The answer is the bulk reader's:
//! the FDE with the greatest start among those that cover the address, among equals the first,
//! and none that the bulk reader would refuse.

use core::cmp::Reverse;

use unspool_rows::{Pointer, Register, Row, Vaddr};

use crate::Section;
use crate::entry::{CfiEntry, Cie, ParsedFde};
use crate::error::CfiError;
use crate::evaluate::Evaluator;
use crate::fast_row::FastRow;
use crate::hdr::Hdr;

/// How far the search table is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HdrTrust {
    /// The table lists every FDE that covers something, in order, and no two overlap: its
    /// answer is the answer. [`Lookup::check_hdr`] finds out.
    Complete,
    /// Nobody has looked. An entry that the table leads to and that covers the address is taken,
    /// which is wrong only where a table leaves out an entry that overlaps it; where the table
    /// leads to none, the look-up goes through the whole section.
    Unchecked,
    /// The table may be wrong: every look-up goes through the whole section.
    Suspect,
}

/// How many bad entries that cover one address are passed over where the whole section is looked
/// through: each time it is read again. The answer is then an error, though the bulk reader may
/// know another entry.
pub const MAX_BAD: usize = 16;

/// Of two entries that cover an address the greater counts: the one with the greater start, and
/// among equals the first.
type Precedence = (Vaddr, Reverse<u64>);

fn precedence(fde: &ParsedFde<'_>) -> Precedence {
    (fde.start, Reverse(fde.offset))
}

/// Looks single addresses up in a section.
#[derive(Debug, Clone, Copy)]
pub struct Lookup<'a> {
    section: Section<'a>,
    hdr: Option<Hdr<'a>>,
    trust: HdrTrust,
    stops_at_row: bool,
}

/// Where the row of an address is from, and what its entry says beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowInfo {
    /// The first address that the row holds for.
    pub row_start: Vaddr,
    /// One past the last address that the row holds for within its entry.
    pub row_end: Vaddr,
    /// The entry's first address.
    pub start: Vaddr,
    /// One past the entry's last address.
    pub end: Vaddr,
    /// The personality routine.
    pub personality: Option<Pointer>,
    /// The language-specific data area.
    pub lsda: Option<Vaddr>,
    /// The offset of the entry in the section, in bytes.
    pub origin: u64,
}

impl<'a> Lookup<'a> {
    /// Looks up in `section`, with the help of its search table if that is trusted.
    #[must_use]
    pub fn new(section: Section<'a>, hdr: Option<Hdr<'a>>, trust: HdrTrust) -> Self {
        Lookup {
            section,
            hdr,
            trust,
            stops_at_row: false,
        }
    }

    /// Reads an entry no further than to the row that is asked for: half of the time. An entry with a
    /// bad instruction is bad as a whole otherwise; so only where it is behind the row.
    #[must_use]
    pub fn stop_at_row(mut self) -> Self {
        self.stops_at_row = true;
        self
    }

    /// The section.
    #[must_use]
    pub fn section(&self) -> &Section<'a> {
        &self.section
    }

    /// Makes `row` the one that holds at `pc`; `None` where no entry covers it. What it is then, or
    /// after an error, means nothing.
    ///
    /// Takes time logarithmic in the number of entries plus the length of one entry where the
    /// search table is complete. Where it is not, linear in the section: of the entries that cover
    /// `pc` only the one that counts is evaluated. If that is bad the next one counts, up to
    /// [`MAX_BAD`] times.
    ///
    /// # Errors
    ///
    /// The entry that covers `pc` is bad, or [`MAX_BAD`] of them are.
    #[inline(never)]
    pub fn row(&self, pc: Vaddr, row: &mut Row<'a>) -> Result<Option<RowInfo>, CfiError> {
        // Copied as a whole, not made of parts that lie on the stack as well. Not part of callers: it is given back before anybody uses the row.
        self.row_with(&mut const { Evaluator::new() }, pc, row)
    }

    /// The same in storage of the caller's: [`Lookup::row`] takes 8 KB of the stack for that.
    ///
    /// # Errors
    ///
    /// As for [`Lookup::row`].
    pub fn row_with(
        &self,
        evaluator: &mut Evaluator<'a>,
        pc: Vaddr,
        row: &mut Row<'a>,
    ) -> Result<Option<RowInfo>, CfiError> {
        match (&self.hdr, self.trust) {
            (Some(hdr), HdrTrust::Complete) => self.search(hdr, evaluator, pc, row),
            (Some(hdr), HdrTrust::Unchecked) => match self.search(hdr, evaluator, pc, row) {
                Ok(Some(found)) => Ok(Some(found)),
                _ => self.scan(evaluator, pc, row),
            },
            _ => self.scan(evaluator, pc, row),
        }
    }

    /// Makes `row` the one that an entry has at `pc`, by the entry's offset in the section in bytes
    /// ([`RowInfo::origin`]); `None` where it does not cover `pc`. Whoever remembers which entry
    /// [`Lookup::row`] found for an address saves the search.
    ///
    /// # Errors
    ///
    /// The entry is bad, or none begins there.
    #[inline(never)]
    pub fn row_in(
        &self,
        origin: u64,
        pc: Vaddr,
        row: &mut Row<'a>,
    ) -> Result<Option<RowInfo>, CfiError> {
        let entry = self.covering(origin, pc)?;
        self.row_of(&mut const { Evaluator::new() }, entry, pc, row)
    }

    /// What the row at `pc` says of the return address and of two more registers, many times faster
    /// than [`Lookup::row`], where that is nothing unusual; `None` says nothing of what is there.
    ///
    /// Only in look-ups that [stop at the row](Lookup::stop_at_row), and through a search table.
    #[must_use]
    pub fn fast_row(&self, pc: Vaddr, watched: [Register; 2]) -> Option<FastRow<'a>> {
        if !self.stops_at_row || self.trust == HdrTrust::Suspect {
            return None;
        }
        let (cie, fde) = self.listed(self.hdr.as_ref()?, pc).ok()??;
        FastRow::lookup(&self.section, &cie, &fde, pc, watched)
    }

    /// The entry that covers `pc`, whose instructions are not looked at: where one of them is bad,
    /// [`Lookup::row`] may know another entry.
    ///
    /// # Errors
    ///
    /// The entry that the search table leads to is bad.
    pub fn entry(&self, pc: Vaddr) -> Result<Option<(Cie<'a>, ParsedFde<'a>)>, CfiError> {
        match (&self.hdr, self.trust) {
            (Some(hdr), HdrTrust::Complete) => self.listed(hdr, pc),
            (Some(hdr), HdrTrust::Unchecked) => match self.listed(hdr, pc) {
                Ok(Some(found)) => Ok(Some(found)),
                _ => Ok(self.last_before(None, pc)),
            },
            _ => Ok(self.last_before(None, pc)),
        }
    }

    /// The entry that the search table leads to, if that covers `pc`.
    fn listed(
        &self,
        hdr: &Hdr<'a>,
        pc: Vaddr,
    ) -> Result<Option<(Cie<'a>, ParsedFde<'a>)>, CfiError> {
        let Some(listed) = hdr.search(pc)? else {
            return Ok(None);
        };
        self.covering(listed.fde.0.wrapping_sub(self.section.address.0), pc)
    }

    /// The entry at an offset in the section, if it covers `pc`.
    fn covering(
        &self,
        origin: u64,
        pc: Vaddr,
    ) -> Result<Option<(Cie<'a>, ParsedFde<'a>)>, CfiError> {
        let entry = self.section.entry(origin)?;
        let (cie, fde) = self.headers(entry.ok_or(CfiError::NoFde(origin))?)?;
        Ok((fde.start..fde.end).contains(&pc).then_some((cie, fde)))
    }

    /// Follows the search table.
    fn search(
        &self,
        hdr: &Hdr<'a>,
        evaluator: &mut Evaluator<'a>,
        pc: Vaddr,
        row: &mut Row<'a>,
    ) -> Result<Option<RowInfo>, CfiError> {
        let entry = self.listed(hdr, pc)?;
        self.row_of(evaluator, entry, pc, row)
    }

    /// The row of an entry, if there is one.
    fn row_of(
        &self,
        evaluator: &mut Evaluator<'a>,
        entry: Option<(Cie<'a>, ParsedFde<'a>)>,
        pc: Vaddr,
        row: &mut Row<'a>,
    ) -> Result<Option<RowInfo>, CfiError> {
        match entry {
            Some((cie, fde)) => self.evaluate(evaluator, &cie, &fde, pc, row),
            None => Ok(None),
        }
    }

    /// Looks through every entry.
    fn scan(
        &self,
        evaluator: &mut Evaluator<'a>,
        pc: Vaddr,
        row: &mut Row<'a>,
    ) -> Result<Option<RowInfo>, CfiError> {
        let mut before = None;
        let mut bad = Ok(None);
        for _ in 0..MAX_BAD {
            let Some((cie, fde)) = self.last_before(before, pc) else {
                // The bulk reader has no bad entries: an address that only they cover is a hole.
                return Ok(None);
            };
            bad = self.evaluate(evaluator, &cie, &fde, pc, row);
            if let Ok(Some(_)) = bad {
                return bad;
            }
            before = Some(precedence(&fde));
        }
        bad
    }

    /// Of the entries that cover `pc`, the one that counts, or that counts next after one.
    fn last_before(
        &self,
        bound: Option<Precedence>,
        pc: Vaddr,
    ) -> Option<(Cie<'a>, ParsedFde<'a>)> {
        let entries = self.section.entries();
        let read = entries.filter_map(|(_, entry)| self.headers(entry.ok()?).ok());
        let covers = |fde: &ParsedFde<'a>| fde.start <= pc && pc < fde.end;
        read.filter(|(_, fde)| covers(fde) && bound.is_none_or(|bound| precedence(fde) < bound))
            .max_by_key(|(_, fde)| precedence(fde))
    }

    fn headers(&self, entry: CfiEntry<'a>) -> Result<(Cie<'a>, ParsedFde<'a>), CfiError> {
        let cie = entry.cie.ok_or(CfiError::NoFde(entry.offset))?;
        let cie = Cie::parse_at(&self.section, cie)?;
        let fde = ParsedFde::parse(&self.section, &cie, entry)?;
        Ok((cie, fde))
    }

    fn evaluate(
        &self,
        evaluator: &mut Evaluator<'a>,
        cie: &Cie<'a>,
        fde: &ParsedFde<'a>,
        pc: Vaddr,
        row: &mut Row<'a>,
    ) -> Result<Option<RowInfo>, CfiError> {
        let mut rows = evaluator.rows_of(&self.section, cie, fde)?;
        let mut found = None;
        // To the end, or nobody knows whether the entry is bad.
        while let Some(range) = rows.advance()? {
            if range.start <= pc && pc < range.end {
                row.assign(rows.row());
                found = Some(RowInfo {
                    row_start: range.start,
                    row_end: range.end,
                    start: fde.start,
                    end: fde.end,
                    personality: cie.personality,
                    lsda: fde
                        .lsda
                        .map(|(Pointer::Direct(addr) | Pointer::Indirect(addr))| addr),
                    origin: fde.offset,
                });
                if self.stops_at_row {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Compares the search table with the section: [`HdrTrust::Complete`] if it lists exactly
    /// the readable entries that cover something, ascending and disjoint.
    ///
    /// Linear in the section but for a search per entry; allocates nothing.
    #[must_use]
    pub fn check_hdr(&self) -> HdrTrust {
        match &self.hdr {
            Some(hdr) if self.is_complete(hdr) => HdrTrust::Complete,
            _ => HdrTrust::Suspect,
        }
    }

    fn is_complete(&self, hdr: &Hdr<'a>) -> bool {
        let mut end = Vaddr(0);
        let mut listed = 0_u64;
        for index in 0..hdr.count {
            let Ok(entry) = hdr.entry(index) else {
                return false;
            };
            let offset = entry.fde.0.wrapping_sub(self.section.address.0);
            let Ok(Some(raw)) = self.section.entry(offset) else {
                return false;
            };
            let Ok((_, fde)) = self.headers(raw) else {
                return false;
            };
            if fde.start != entry.start || fde.start < end {
                return false;
            }
            end = fde.end;
            listed += u64::from(fde.start < fde.end);
        }
        let mut present = 0_u64;
        for (_, entry) in self.section.entries() {
            let Ok(entry) = entry else { return false };
            if entry.cie.is_none() {
                continue;
            }
            let Ok((_, fde)) = self.headers(entry) else {
                return false;
            };
            if fde.start < fde.end {
                present += 1;
                // What is listed must be the entry itself, not bytes inside another.
                let found = hdr.search(fde.start).ok().flatten();
                let offset = found.map(|entry| entry.fde.0.wrapping_sub(self.section.address.0));
                if offset != Some(fde.offset) {
                    return false;
                }
            }
        }
        listed == present
    }
}
