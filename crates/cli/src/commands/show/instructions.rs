//! `unspool show --instructions`: the instructions of CIEs and FDEs, beside the rows that they
//! make.
//!
//! In text, instructions are comments, so that the output still parses as a table.

use std::io::Write;
use std::iter;

use serde_json::{Value, json};
use unspool_cfi::evaluate::Evaluator;
use unspool_cfi::instruction::{Instruction, InstructionText, Instructions};
use unspool_cfi::{CfiError, CfiSection, Cie, ParsedFde};
use unspool_rows::{Fde, Table, Vaddr};

use crate::output;

/// An entry of a section, with the instructions of its CIE and its own.
pub(super) struct Listing {
    fde: u64,
    cie: u64,
    version: u8,
    augmentation: String,
    code_alignment: u64,
    data_alignment: i64,
    initial: Vec<ListedInstruction>,
    rows: Vec<ListedRow>,
    /// Instructions that would make rows at or past the entry's end.
    past_end: Vec<ListedInstruction>,
}

/// An instruction and its offset in the section; a run of padding is one, with its length.
struct ListedInstruction {
    offset: u64,
    text: String,
    count: usize,
}

/// A row and the instructions that make it from the row before: the first sets its address.
struct ListedRow {
    instructions: Vec<ListedInstruction>,
    start: Vaddr,
    text: String,
}

/// Visits the entries of the sections that `is_wanted` accepts, in the table's order.
pub(super) fn for_each<'t>(
    sections: &[CfiSection<'_>],
    table: &'t Table,
    is_wanted: impl Fn(&Fde) -> bool,
    mut visit: impl FnMut(&'t Fde, Listing) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut fdes = table.fdes().iter().peekable();
    for section in sections {
        for (_, entry) in section.entries() {
            // Bad entries are not in the table, and were reported when it was read.
            let Ok(Some((cie, entry))) = entry.and_then(|entry| headers(section, entry)) else {
                continue;
            };
            let is_next = |fde: &&Fde| {
                (fde.origin, fde.start, fde.end) == (entry.offset, entry.start, entry.end)
            };
            if let Some(fde) = fdes.next_if(is_next)
                && is_wanted(fde)
            {
                visit(fde, Listing::new(section, &cie, &entry)?)?;
            }
        }
    }
    Ok(())
}

type CieAndFde<'a> = (Cie<'a>, ParsedFde<'a>);

fn headers<'a>(
    section: &CfiSection<'a>,
    entry: unspool_cfi::CfiEntry<'a>,
) -> Result<Option<CieAndFde<'a>>, CfiError> {
    let Some(offset) = entry.cie else {
        return Ok(None);
    };
    let cie = Cie::parse_at(section, offset)?;
    let fde = ParsedFde::parse(section, &cie, entry)?;
    Ok(Some((cie, fde)))
}

impl Listing {
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
        Ok(Listing {
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

    /// Prints everything except the line that names the entry.
    pub(super) fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(
            out,
            "  # FDE at {:#x}, CIE at {:#x}: version {}, augmentation \"{}\", \
             code alignment {}, data alignment {}",
            self.fde,
            self.cie,
            self.version,
            self.augmentation,
            self.code_alignment,
            self.data_alignment,
        )?;
        print_lines(out, &self.initial)?;
        for row in &self.rows {
            print_lines(out, &row.instructions)?;
            writeln!(out, "  {:#x}  {}", row.start.0, row.text)?;
        }
        print_lines(out, &self.past_end)
    }

    /// The CIE, the instructions of each row, and those past the entry's end.
    pub(super) fn json(&self) -> (Value, Vec<Value>, Vec<Value>) {
        let all = |instructions: &[ListedInstruction]| {
            instructions.iter().map(line_json).collect::<Vec<_>>()
        };
        let cie = json!({
            "section_offset": self.cie,
            "version": self.version,
            "augmentation": self.augmentation,
            "code_alignment": self.code_alignment,
            "data_alignment": self.data_alignment,
            "instructions": all(&self.initial),
        });
        let rows = self.rows.iter().map(|row| {
            json!({
                "address": output::address(row.start.0),
                "rules": row.text,
                "instructions": all(&row.instructions),
            })
        });
        (cie, rows.collect(), all(&self.past_end))
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

fn print_lines(out: &mut impl Write, instructions: &[ListedInstruction]) -> std::io::Result<()> {
    for line in instructions {
        write!(out, "  # {:#6x}  {}", line.offset, line.text)?;
        if line.count > 1 {
            write!(out, " ×{}", line.count)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn line_json(instruction: &ListedInstruction) -> Value {
    json!({ "section_offset": instruction.offset, "instruction": instruction.text, "count": instruction.count })
}
