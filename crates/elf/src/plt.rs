//! Stubs of the procedure linkage table, which have no symbols of their own. Each jumps through a
//! slot, and the dynamic relocation of the slot names the function.
//!
//! Only x86-64 so far. The stubs are recognised by their jump instead of counted. Linkers differ in
//! the choice of `.plt`, `.plt.sec` and `.plt.got`, and in the code before the first stub.

use std::collections::HashMap;

use object::elf;
use unspool_rows::{Arch, Vaddr};

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
    let Some(symbols) = dynamic.filter(|_| file.abi().arch == Arch::X86_64) else {
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
                none => none.insert(filled_slots(file, symbols)?),
            };
            let entry = file
                .section_header(index)
                .map_or(0, |header| header.entry_size);
            list.extend(in_section(&section, if entry == 8 { 8 } else { 16 }, slots));
        }
    }
    Ok(Stubs { symbols, list })
}

fn in_section<'a>(
    section: &'a Section<'_>,
    step: usize,
    slots: &'a HashMap<u64, u32>,
) -> impl Iterator<Item = Stub> + 'a {
    let stubs = (0_u64..).zip(section.data.chunks(step));
    stubs.filter_map(move |(number, code)| {
        let address = section.address.offset(number * step as u64);
        let name = *slots.get(&slot_of(address, code)?)?;
        Some(Stub {
            address,
            size: code.len() as u64,
            name,
        })
    })
}

/// The address of the slot that the stub jumps through: `jmp *slot(%rip)`, optionally after
/// `endbr64` and with a `bnd` prefix.
fn slot_of(address: Vaddr, code: &[u8]) -> Option<u64> {
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let rest = code.strip_prefix(&ENDBR64).unwrap_or(code);
    let rest = rest.strip_prefix(&[0xf2]).unwrap_or(rest);
    let (displacement, behind) = rest.strip_prefix(&[0xff, 0x25])?.split_first_chunk()?;
    let next = address.offset((code.len() - behind.len()) as u64);
    Some(
        next.0
            .wrapping_add_signed(i64::from(i32::from_le_bytes(*displacement))),
    )
}

/// The slots that the dynamic loader fills with the address of a function in the symbol table of
/// section `symbols`, and the function's name there.
fn filled_slots(file: &ElfFile, symbols: usize) -> Result<HashMap<u64, u32>, ModuleError> {
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
            let kind = elf::RelocationType(entry.kind);
            let fills = matches!(kind, elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT);
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
