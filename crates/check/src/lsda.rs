//! Call-site tables of language-specific data areas: where exceptions out of calls land (Itanium C++ ABI,
//! "Exception Handling Tables"; the same for C, C++, Rust and others).

use unspool_cfi::cursor::Cursor;
use unspool_cfi::pointer::{Bases, Encoding};
use unspool_cfi::{CfiError, Section, SectionKind};
use unspool_ir::Vaddr;
use unspool_module::ElfFile;
use unspool_synth::Landing;

/// Reads where exceptions land that leave calls of the function at `start`, whose data is at `lsda`; ends at the
/// first damage.
pub fn landings(file: &ElfFile, lsda: Vaddr, start: Vaddr, into: &mut Vec<Landing>) {
    let Some(data) = file.rest_at(lsda) else {
        return;
    };
    // Nothing in these areas is relative to text or data.
    let area = Section {
        kind: SectionKind::EhFrame,
        data,
        address: lsda,
        text_base: None,
        data_base: None,
        abi: file.abi(),
    };
    let _ = read(&area, start, into);
}

fn read(area: &Section<'_>, start: Vaddr, into: &mut Vec<Landing>) -> Result<(), CfiError> {
    let mut cursor = Cursor::new(area.data, 0, area.data.len() as u64, area.abi.endian);
    let bases = Bases {
        section: area,
        word: area.abi.arch.spec().word,
        function: Some(start),
    };
    let encoding = Encoding(cursor.u8()?);
    let base = match encoding.is_omitted() {
        true => start,
        false => bases.address(&mut cursor, encoding)?,
    };
    if !Encoding(cursor.u8()?).is_omitted() {
        cursor.uleb()?;
    }
    let encoding = Encoding(cursor.u8()?);
    let length = cursor.uleb()?;
    let mut table = cursor.split(length)?;
    while !table.is_empty() {
        let from = start.offset(bases.address(&mut table, encoding)?.0).0;
        let length = bases.address(&mut table, encoding)?.0;
        let pad = bases.address(&mut table, encoding)?.0;
        table.uleb()?;
        if pad != 0 {
            into.push(Landing {
                start: from,
                end: from.saturating_add(length),
                pad: base.offset(pad).0,
            });
        }
    }
    Ok(())
}
