//! The instructions of CIEs and FDEs, beside the rows that they make.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;
use core::iter;

use unspool_rows::{Fde, Table, Vaddr};

use crate::evaluate::Evaluator;
use crate::instruction::{Instruction, InstructionText, Instructions};
use crate::{CfiEntry, CfiError, CfiSection, Cie, ParsedFde};

/// An entry of a section, with the instructions of its CIE and its own. Its text has instructions as
/// comments, so that it still parses as the rows of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryListing {
    /// The offset of the FDE in the section, in bytes.
    pub fde: u64,
    /// The offset of its CIE.
    pub cie: u64,
    /// The CIE's version.
    pub version: u8,
    /// Its augmentation, with escapes.
    pub augmentation: String,
    /// The factor of code distances.
    pub code_alignment: u64,
    /// The factor of data offsets.
    pub data_alignment: i64,
    /// The instructions of the CIE.
    pub initial: Vec<ListedInstruction>,
    /// The rows.
    pub rows: Vec<ListedRow>,
    /// Instructions that would make rows at or past the entry's end.
    pub past_end: Vec<ListedInstruction>,
}

/// An instruction and its offset in the section; a run of padding is one, with its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedInstruction {
    /// The offset, in bytes.
    pub offset: u64,
    /// The instruction, as readelf writes it.
    pub text: String,
    /// The length of the run; 1 for an instruction.
    pub count: usize,
}

/// A row and the instructions that make it from the row before: the first sets its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRow {
    /// The instructions.
    pub instructions: Vec<ListedInstruction>,
    /// The first address.
    pub start: Vaddr,
    /// The rules.
    pub text: String,
}

/// Lists the entries of sections that are in a table read from them, in the table's order: those that
/// `is_wanted` accepts. A wanted entry that cannot be evaluated is an error. Takes memory for one
/// entry at a time.
///
/// ```
/// use unspool_cfi::listing::list_entries;
/// use unspool_cfi::{CfiSection, EhFrame, SectionKind, read_table};
/// use unspool_rows::{Vaddr, text};
///
/// let table = text::parse(text::EXAMPLE)?;
/// let data = EhFrame::from_table(&table)?.bytes_at(Vaddr(0))?;
/// let (address, abi) = (Vaddr(0), table.abi());
/// let kind = SectionKind::EhFrame;
/// let section = CfiSection { kind, data: &data, address, text_base: None, data_base: None, abi };
/// let read = read_table(&section).table;
/// let (fde, listing) = list_entries(&[section], &read, |_| true).next().ok_or("no entry")?;
/// let listing = listing?;
/// assert_eq!(fde.start, listing.rows[0].start);
/// assert!(listing.to_string().contains("# FDE at "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn list_entries<'t>(
    sections: &[CfiSection<'_>],
    table: &'t Table,
    is_wanted: impl Fn(&Fde) -> bool,
) -> impl Iterator<Item = (&'t Fde, Result<EntryListing, CfiError>)> {
    let mut fdes = table.fdes().iter().peekable();
    let entries = sections
        .iter()
        .flat_map(|section| section.entries().map(move |(_, entry)| (section, entry)));
    entries.filter_map(move |(section, entry)| {
        // Bad entries are not in the table, and were reported when it was read.
        let (cie, entry) = headers(section, entry.ok()?).ok()??;
        let is_next =
            |fde: &&Fde| (fde.origin, fde.start, fde.end) == (entry.offset, entry.start, entry.end);
        let fde = fdes.next_if(is_next).filter(|fde| is_wanted(fde))?;
        Some((fde, EntryListing::new(section, &cie, &entry)))
    })
}

type CieAndFde<'a> = (Cie<'a>, ParsedFde<'a>);

fn headers<'a>(
    section: &CfiSection<'a>,
    entry: CfiEntry<'a>,
) -> Result<Option<CieAndFde<'a>>, CfiError> {
    let Some(offset) = entry.cie else {
        return Ok(None);
    };
    let cie = Cie::parse_at(section, offset)?;
    let fde = ParsedFde::parse(section, &cie, entry)?;
    Ok(Some((cie, fde)))
}

impl EntryListing {
    fn new<'a>(
        section: &CfiSection<'a>,
        cie: &Cie<'a>,
        fde: &ParsedFde<'a>,
    ) -> Result<Self, CfiError> {
        let list = |offset, bytes: &[u8]| {
            let all = Instructions::new(section, cie, offset, bytes.len());
            lines(section, all)
        };
        let mut left = list(fde.instructions_offset, fde.instructions)?
            .into_iter()
            .peekable();
        let mut evaluator = Evaluator::new();
        let mut evaluated = evaluator.rows_of(section, cie, fde)?;
        let mut rows = Vec::new();
        while let Some(range) = evaluated.advance()? {
            let end = range.instructions_offset + range.instructions.len() as u64;
            rows.push(ListedRow {
                instructions: iter::from_fn(|| left.next_if(|line| line.offset < end)).collect(),
                start: range.start,
                text: evaluated.row().display(section.abi).to_string(),
            });
        }
        Ok(EntryListing {
            fde: fde.offset,
            cie: cie.offset,
            version: cie.version,
            augmentation: cie.augmentation.escape_ascii().to_string(),
            code_alignment: cie.code_alignment,
            data_alignment: cie.data_alignment,
            initial: list(cie.instructions_offset, cie.instructions)?,
            rows,
            past_end: left.collect(),
        })
    }
}

/// Everything except the line that names the entry.
impl fmt::Display for EntryListing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  # FDE at {:#x}, CIE at {:#x}: version {}, augmentation \"{}\", \
             code alignment {}, data alignment {}",
            self.fde,
            self.cie,
            self.version,
            self.augmentation,
            self.code_alignment,
            self.data_alignment,
        )?;
        let write = |f: &mut fmt::Formatter<'_>, instructions: &[ListedInstruction]| {
            instructions.iter().try_for_each(|one| writeln!(f, "{one}"))
        };
        write(f, &self.initial)?;
        for row in &self.rows {
            write(f, &row.instructions)?;
            writeln!(f, "  {:#x}  {}", row.start.0, row.text)?;
        }
        write(f, &self.past_end)
    }
}

impl fmt::Display for ListedInstruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  # {:#6x}  {}", self.offset, self.text)?;
        match self.count {
            1 => Ok(()),
            count => write!(f, " ×{count}"),
        }
    }
}

/// All instructions, with padding combined.
fn lines(
    section: &CfiSection<'_>,
    instructions: Instructions<'_, '_>,
) -> Result<Vec<ListedInstruction>, CfiError> {
    let mut listed: Vec<ListedInstruction> = Vec::new();
    let mut is_padding = false;
    for instruction in instructions {
        let (offset, instruction) = instruction?;
        let was_padding = is_padding;
        is_padding = instruction == Instruction::Nop;
        match listed.last_mut() {
            Some(padding) if was_padding && is_padding => padding.count += 1,
            _ => listed.push(ListedInstruction {
                offset,
                text: format!("DW_CFA_{}", InstructionText(instruction, section.abi)),
                count: 1,
            }),
        }
    }
    Ok(listed)
}
