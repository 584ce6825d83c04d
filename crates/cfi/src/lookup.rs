//! One address → one FDE → one row, straight from section bytes.
//!
//! Async-signal-safe: fixed storage, no allocation, no lock. The result is the bulk reader's: among
//! the FDEs that cover the address, the one with the greatest start, and among equals the first.
//! FDEs that the bulk reader would refuse do not count.

use core::cmp::Reverse;

use unspool_rows::arch::AddressSize;
use unspool_rows::{Pointer, Register, Row, Vaddr};

use crate::CfiSection;
use crate::entry::{CfiEntry, Cie, ParsedFde};
use crate::error::CfiError;
use crate::evaluate::Evaluator;
use crate::fast_row::{FastRow, FastRowStates};
use crate::hdr::Hdr;
use crate::pointer::PointerEncoding;

/// The degree of trust in the search table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HdrTrust {
    /// The table lists every FDE that covers something, in order, and no two overlap: its result is
    /// final. [`Lookup::check_hdr`] verifies that.
    Complete,
    /// The table is not verified. A listed entry that covers the address is taken. That is wrong
    /// only if the table omits an entry that overlaps it. If no listed entry covers the address,
    /// the look-up scans the whole section.
    Unchecked,
    /// The table may be wrong: every look-up scans the whole section.
    Suspect,
}

/// The maximum number of bad entries covering one address that a scan of the whole section skips:
/// the section is read again for each. The result is then an error, though the bulk reader may have
/// another entry.
pub const MAX_BAD_ENTRIES: usize = 16;

/// Among two entries that cover an address the greater counts: the one with the greater start, and
/// among equals the first.
type Precedence = (Vaddr, Reverse<u64>);

fn precedence(fde: &ParsedFde<'_>) -> Precedence {
    (fde.start, Reverse(fde.offset))
}

/// Looks single addresses up in a section.
#[derive(Debug, Clone, Copy)]
pub struct Lookup<'a> {
    section: CfiSection<'a>,
    hdr: Option<Hdr<'a>>,
    trust: HdrTrust,
    stops_at_row: bool,
}

/// The headers of an entry.
#[derive(Clone, Debug)]
pub struct ParsedEntry<'a> {
    /// Its CIE.
    pub cie: Cie<'a>,
    /// The FDE.
    pub fde: ParsedFde<'a>,
}

impl ParsedEntry<'_> {
    /// An entry that covers nothing.
    pub const EMPTY: Self = ParsedEntry {
        cie: Cie {
            offset: 0,
            version: 1,
            augmentation: b"",
            code_alignment: 1,
            data_alignment: 1,
            return_address: Register(0),
            signal_frame: false,
            b_key: false,
            address_encoding: PointerEncoding::ABSOLUTE,
            lsda_encoding: PointerEncoding::ABSOLUTE,
            personality: None,
            address_size: AddressSize::W64,
            has_augmentation_data: false,
            unknown_letter: None,
            segment_size: 0,
            instructions: b"",
            instructions_offset: 0,
        },
        fde: ParsedFde {
            offset: 0,
            start: Vaddr(0),
            end: Vaddr(0),
            lsda: None,
            instructions: b"",
            instructions_offset: 0,
        },
    };
}

/// The origin of an address's row, and the other facts of its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowInfo {
    /// The first address of the row.
    pub row_start: Vaddr,
    /// One past the last address of the row within its entry.
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
    /// Looks up in `section`, using its search table if that is trusted.
    #[must_use]
    pub fn new(section: CfiSection<'a>, hdr: Option<Hdr<'a>>, trust: HdrTrust) -> Self {
        Lookup {
            section,
            hdr,
            trust,
            stops_at_row: false,
        }
    }

    /// Reads an entry only up to the requested row, in half the time. Otherwise a bad instruction
    /// makes the whole entry bad; with this it does so only up to the row.
    #[must_use]
    pub fn stop_at_row(mut self) -> Self {
        self.stops_at_row = true;
        self
    }

    /// The section.
    #[must_use]
    pub fn section(&self) -> &CfiSection<'a> {
        &self.section
    }

    /// Makes `row` the one that holds at `pc`; `None` if no entry covers it. Then, and after an
    /// error, the content of `row` has no meaning.
    ///
    /// With a complete search table, the time is logarithmic in the number of entries plus the
    /// length of one entry. Otherwise it is linear in the section. Only the entry that counts is
    /// evaluated. If that is bad the next one counts, up to [`MAX_BAD_ENTRIES`] times.
    ///
    /// # Errors
    ///
    /// The entry that covers `pc` is bad, or [`MAX_BAD_ENTRIES`] of them are.
    #[inline(never)]
    pub fn row(&self, pc: Vaddr, row: &mut Row<'a>) -> Result<Option<RowInfo>, CfiError> {
        // A constant is copied as a whole, and not built from parts that also use the stack. This
        // is a function of its own, so that the stack is free again before callers use the row.
        self.row_with(&mut const { Evaluator::new() }, pc, row)
    }

    /// The same in the caller's storage: [`Lookup::row`] takes 8 KB of the stack for that.
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

    /// Makes `row` an entry's row at `pc`, by the entry's offset in the section in bytes
    /// ([`RowInfo::origin`]); `None` if the entry does not cover `pc`. A caller that caches the
    /// offset found by [`Lookup::row`] saves the search.
    ///
    /// # Errors
    ///
    /// The entry is bad, or no entry begins there.
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

    /// The rules of the return address and of `N` more registers at `pc`, many times faster than
    /// [`Lookup::row`]. `None` for unusual entries; then use [`Lookup::row`].
    ///
    /// Only in look-ups that [stop at the row](Lookup::stop_at_row), and through a search table.
    #[must_use]
    pub fn fast_row<const N: usize>(
        &self,
        pc: Vaddr,
        watched: [Register; N],
    ) -> Option<FastRow<'a, N>> {
        if !self.stops_at_row || self.trust == HdrTrust::Suspect {
            return None;
        }
        let (cie, fde) = self.listed(self.hdr.as_ref()?, pc).ok()??;
        let states = &mut FastRowStates::new();
        FastRow::lookup(&self.section, &cie, &fde, pc, watched, states)
    }

    /// Reads the headers of the entry that covers `pc` into the caller's storage. `None` if that is
    /// bad, or not found by a search table. As [`Lookup::fast_row`], for callers with little stack.
    #[inline(never)]
    #[must_use]
    pub fn read_entry(&self, pc: Vaddr, into: &mut ParsedEntry<'a>) -> Option<()> {
        if !self.stops_at_row || self.trust == HdrTrust::Suspect {
            return None;
        }
        let listed = self.hdr.as_ref()?.search(pc).ok()??;
        let origin = listed.fde.0.wrapping_sub(self.section.address.0);
        let entry = self.section.entry(origin).ok()??;
        into.cie = Cie::parse_at(&self.section, entry.cie?).ok()?;
        into.fde = ParsedFde::parse(&self.section, &into.cie, entry).ok()?;
        (into.fde.start..into.fde.end).contains(&pc).then_some(())
    }

    /// The entry that covers `pc`. Its instructions are not read: if one of them is bad,
    /// [`Lookup::row`] may find another entry.
    ///
    /// # Errors
    ///
    /// The search table's entry is bad.
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

    /// The search table's entry, if that covers `pc`.
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
    // Not inlined: what follows does not need its stack.
    #[inline(never)]
    fn covering(
        &self,
        origin: u64,
        pc: Vaddr,
    ) -> Result<Option<(Cie<'a>, ParsedFde<'a>)>, CfiError> {
        let entry = self.section.entry(origin)?;
        let (cie, fde) = self.headers(entry.ok_or(CfiError::NoFde(origin))?)?;
        Ok((fde.start..fde.end).contains(&pc).then_some((cie, fde)))
    }

    /// Looks up in the search table.
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

    /// The row of an entry at the address, if it has one.
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

    /// Scans every entry.
    fn scan(
        &self,
        evaluator: &mut Evaluator<'a>,
        pc: Vaddr,
        row: &mut Row<'a>,
    ) -> Result<Option<RowInfo>, CfiError> {
        let mut before = None;
        let mut bad = Ok(None);
        for _ in 0..MAX_BAD_ENTRIES {
            let Some((cie, fde)) = self.last_before(before, pc) else {
                // The bulk reader drops bad entries: an address that only they cover is a hole.
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

    /// The entry covering `pc` that counts, or that counts next after a given one.
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

    #[inline(always)]
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
        // To the end, because a bad instruction anywhere makes the entry bad.
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
    /// Linear in the section except for a search per entry; allocates nothing.
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
                // The listed offset must be that of the entry itself, not of bytes inside another.
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
