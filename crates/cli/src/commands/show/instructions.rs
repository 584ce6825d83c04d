//! `unspool show --instructions`: what CIEs and FDEs say, beside the rows that it makes.
//!
//! Instructions stand in comments, so that the whole still parses as a table.

use std::io::Write;

use unspool_cfi::evaluate::{self, Evaluator};
use unspool_cfi::instruction::{Instruction, InstructionText, Instructions};
use unspool_cfi::{CfiError, Cie, Entry, FdeEntry, Section};
use unspool_ir::Pointer;
use unspool_ir::text::{AbiText, RowText};
use unspool_module::ElfFile;
use unspool_unwind::tables;

use super::Selection;
use crate::args::FromSection;
use crate::output;

pub(super) fn print(
    file: &ElfFile,
    from: FromSection,
    selection: &Selection,
) -> anyhow::Result<()> {
    let mut out = output::results();
    writeln!(out, "{}", AbiText(file.abi()))?;
    for (section, name) in tables::sections(file, from.lower())? {
        writeln!(out, "# section {name} at {}", section.address)?;
        for (_, entry) in section.entries() {
            // Bad entries have been reported when the table was read.
            let Ok(Some((cie, fde))) = entry.and_then(|entry| headers(&section, entry)) else {
                continue;
            };
            if selection.has(fde.start, fde.end) {
                super::print_name(&mut out, file, fde.start)?;
                print_entry(&mut out, &section, &cie, &fde)?;
            }
        }
    }
    out.flush()?;
    Ok(())
}

type Headers<'a> = (Cie<'a>, FdeEntry<'a>);

fn headers<'a>(section: &Section<'a>, entry: Entry<'a>) -> Result<Option<Headers<'a>>, CfiError> {
    let Some(offset) = entry.cie else {
        return Ok(None);
    };
    let cie = Cie::at(section, offset)?;
    let fde = FdeEntry::parse(section, &cie, entry)?;
    Ok(Some((cie, fde)))
}

fn print_entry(
    out: &mut impl Write,
    section: &Section<'_>,
    cie: &Cie<'_>,
    fde: &FdeEntry<'_>,
) -> anyhow::Result<()> {
    write!(out, "fn {:#x}..{:#x}", fde.start.0, fde.end.0)?;
    match cie.personality {
        None => {}
        Some(Pointer::Direct(addr)) => write!(out, " personality={addr}")?,
        Some(Pointer::Indirect(addr)) => write!(out, " personality=[{addr}]")?,
    }
    if let Some(Pointer::Direct(lsda) | Pointer::Indirect(lsda)) = fde.lsda {
        write!(out, " lsda={lsda}")?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "  # FDE at {:#x}, CIE at {:#x}: version {}, augmentation \"{}\", code alignment {}, data alignment {}",
        fde.offset,
        cie.offset,
        cie.version,
        cie.augmentation.escape_ascii(),
        cie.code_alignment,
        cie.data_alignment,
    )?;
    let (offset, len) = (cie.instructions_offset, cie.instructions.len());
    print_instructions(out, section, Instructions::new(section, cie, offset, len))?;
    let initial = evaluate::initial_row(section, cie)?;
    let mut evaluator = Evaluator::new();
    let mut rows = evaluator.rows(section, cie, &initial, fde);
    while let Some(range) = rows.advance()? {
        let (offset, len) = (range.instructions_offset, range.instructions.len());
        print_instructions(out, section, Instructions::new(section, cie, offset, len))?;
        writeln!(
            out,
            "  {:#x}  {}",
            range.start.0,
            RowText(rows.row(), section.abi)
        )?;
    }
    Ok(())
}

/// Prints instructions, one a line. Where the next row begins is not repeated.
fn print_instructions(
    out: &mut impl Write,
    section: &Section<'_>,
    instructions: Instructions<'_, '_>,
) -> anyhow::Result<()> {
    for instruction in instructions {
        let (offset, instruction) = instruction?;
        if instruction != Instruction::Nop {
            let text = InstructionText(instruction, section.abi);
            writeln!(out, "  # {offset:#6x}  DW_CFA_{text}")?;
        }
    }
    Ok(())
}
