//! `unspool show --instructions`: what CIEs and FDEs say, beside the rows that it makes.
//!
//! In text, instructions stand in comments, so that the whole still parses as a table.

use std::io::Write;

use serde_json::{Value, json};
use unspool_cfi::evaluate::{self, Evaluator};
use unspool_cfi::instruction::{Instruction, InstructionText, Instructions};
use unspool_cfi::{CfiError, Cie, FdeEntry, Section};
use unspool_ir::text::RowText;
use unspool_ir::{Fde, Table, Vaddr};

use crate::output;

/// An entry of a section, with the instructions of its CIE and its own.
pub(super) struct Listing {
    fde: u64,
    cie: u64,
    version: u8,
    augmentation: String,
    code_alignment: u64,
    data_alignment: i64,
    initial: Vec<Line>,
    rows: Vec<Row>,
}

/// An instruction and its offset in the section.
struct Line(u64, String);

/// A row and the instructions that make it from the row before.
struct Row {
    instructions: Vec<Line>,
    start: Vaddr,
    text: String,
}

/// Visits those entries of the sections that `is_wanted` accepts, in the order of the table that
/// was read from them.
pub(super) fn for_each<'t>(
    sections: &[Section<'_>],
    table: &'t Table,
    is_wanted: impl Fn(&Fde) -> bool,
    mut visit: impl FnMut(&'t Fde, Listing) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut fdes = table.fdes().iter().peekable();
    for section in sections {
        for (_, entry) in section.entries() {
            // Bad entries are not in the table, and have been reported when it was read.
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

type Headers<'a> = (Cie<'a>, FdeEntry<'a>);

fn headers<'a>(
    section: &Section<'a>,
    entry: unspool_cfi::Entry<'a>,
) -> Result<Option<Headers<'a>>, CfiError> {
    let Some(offset) = entry.cie else {
        return Ok(None);
    };
    let cie = Cie::at(section, offset)?;
    let fde = FdeEntry::parse(section, &cie, entry)?;
    Ok(Some((cie, fde)))
}

impl Listing {
    fn new<'a>(section: &Section<'a>, cie: &Cie<'a>, fde: &FdeEntry<'a>) -> Result<Self, CfiError> {
        let list = |offset, bytes: &[u8]| {
            let all = Instructions::new(section, cie, offset, bytes.len());
            lines(section, all)
        };
        let initial_row = evaluate::initial_row(section, cie)?;
        let mut evaluator = Evaluator::new();
        let mut evaluated = evaluator.rows(section, cie, &initial_row, fde);
        let mut rows = Vec::new();
        while let Some(range) = evaluated.advance()? {
            rows.push(Row {
                instructions: list(range.instructions_offset, range.instructions)?,
                start: range.start,
                text: RowText(evaluated.row(), section.abi).to_string(),
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
        })
    }

    /// Prints all but the line that names the entry.
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
        Ok(())
    }

    /// The CIE, and for each row the instructions that make it.
    pub(super) fn json(&self) -> (Value, Vec<Value>) {
        let all = |lines: &[Line]| lines.iter().map(line_json).collect::<Vec<_>>();
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
                "row": row.text,
                "instructions": all(&row.instructions),
            })
        });
        (cie, rows.collect())
    }
}

/// The instructions but for padding. Where the next row begins is not repeated.
fn lines(section: &Section<'_>, instructions: Instructions<'_, '_>) -> Result<Vec<Line>, CfiError> {
    let mut lines = Vec::new();
    for instruction in instructions {
        let (offset, instruction) = instruction?;
        if instruction != Instruction::Nop {
            let text = InstructionText(instruction, section.abi);
            lines.push(Line(offset, format!("DW_CFA_{text}")));
        }
    }
    Ok(lines)
}

fn print_lines(out: &mut impl Write, lines: &[Line]) -> std::io::Result<()> {
    lines
        .iter()
        .try_for_each(|Line(offset, text)| writeln!(out, "  # {offset:#6x}  {text}"))
}

fn line_json(Line(offset, text): &Line) -> Value {
    json!({ "section_offset": offset, "instruction": text })
}
