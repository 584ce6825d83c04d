//! Stubs of the procedure linkage table, which have no symbols of their own. Each jumps through a
//! slot, and the dynamic relocation of the slot names the function.
//!
//! The stubs are recognised by their jump instead of counted. Linkers differ in
//! the choice of `.plt`, `.plt.sec` and `.plt.got`, and in the code before the first stub.

use std::collections::HashMap;

use object::elf;
use unspool_rows::Vaddr;

use crate::arch::{self, StubFormat};
use crate::elf::ElfFile;
use crate::error::ModuleError;
use crate::header::Shdr;
use crate::relocate;
use crate::section::Section;
use crate::symbols::SymbolFilter;
use crate::symtab::SymbolTable;

pub(crate) struct Stub {
    pub(crate) address: Vaddr,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// The name of the function that it calls: an offset in the strings of the symbol table.
    pub(crate) name: u32,
}

/// The stubs of a file.
#[derive(Default)]
pub(crate) struct Stubs {
    /// The section of the dynamic symbol table that names them.
    pub(crate) symbols: usize,
    pub(crate) list: Vec<Stub>,
}

const SECTIONS: [&str; 3] = [".plt", ".plt.sec", ".plt.got"];

/// The stubs in the sections that have wanted addresses.
pub(crate) fn stubs(file: &ElfFile, filter: &SymbolFilter) -> Result<Stubs, ModuleError> {
    let dynamic = file.indices(|_, header| header.is(elf::SHT_DYNSYM)).next();
    let format = arch::format(file.abi().arch).stubs.as_ref();
    let (Some(symbols), Some(format)) = (dynamic, format) else {
        return Ok(Stubs::default());
    };
    let mut list = Vec::new();
    let mut slots = None;
    for name in SECTIONS {
        for index in file.indices_named(name) {
            let Some(section) = file.section(index)? else {
                continue;
            };
            let start = section.address.0;
            if !filter.is_any_in(start..start.saturating_add(section.data.len() as u64)) {
                continue;
            }
            let slots = match &mut slots {
                Some(slots) => slots,
                none => none.insert(filled_slots(file, symbols, format)?),
            };
            let entry = file
                .section_header(index)
                .map_or(0, |header| header.entry_size);
            list.extend(in_section(
                &section,
                if entry == 8 { 8 } else { 16 },
                slots,
                format,
            ));
        }
    }
    Ok(Stubs { symbols, list })
}

fn in_section<'a>(
    section: &'a Section<'_>,
    step: usize,
    slots: &'a HashMap<u64, u32>,
    format: &'a StubFormat,
) -> impl Iterator<Item = Stub> + 'a {
    let stubs = (0_u64..).zip(section.data.chunks(step));
    stubs.filter_map(move |(number, code)| {
        let address = section.address.offset(number * step as u64);
        let name = *slots.get(&(format.slot_of)(address, code)?)?;
        Some(Stub {
            address,
            size: code.len() as u64,
            name,
        })
    })
}

/// The slots that the dynamic loader fills with the address of a function in the symbol table of
/// section `symbols`, and the function's name there.
fn filled_slots(
    file: &ElfFile,
    symbols: usize,
    format: &StubFormat,
) -> Result<HashMap<u64, u32>, ModuleError> {
    let mut slots = HashMap::new();
    let table = SymbolTable::from_section(file, symbols)?;
    let is_dynamic = |header: &Shdr| {
        header.is(elf::SHT_RELA)
            && header.has_flag(elf::SHF_ALLOC)
            && usize::try_from(header.link) == Ok(symbols)
    };
    for index in file.indices(|_, header| is_dynamic(header)) {
        let Some(header) = file.section_header(index) else {
            continue;
        };
        for entry in relocate::entries(file, index, header)? {
            let fills = format.slots.contains(&elf::RelocationType(entry.kind));
            let symbol = usize::try_from(entry.symbol)
                .ok()
                .and_then(|index| table.get(index));
            if let (true, Some(symbol)) = (fills, symbol) {
                slots.insert(entry.offset, symbol.name);
            }
        }
    }
    Ok(slots)
}
