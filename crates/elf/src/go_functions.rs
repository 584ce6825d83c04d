//! The functions of a Go program, from the table that Go's runtime walks stacks by (`.gopclntab`).
//!
//! The table survives stripping. It has each function's name, source lines, and the size of its
//! frame at each instruction. Its form is that of Go 1.18 and later (`runtime/symtab.go` and
//! `runtime/runtime2.go`, `_func`); older tables are not read.

use std::ops::Range;

use unspool_rows::Vaddr;

use crate::elf::{ElfFile, load, slice, until_nul};
use crate::lines::InlineFrame;

const MAGIC_1_18: u32 = 0xffff_fff0;
const MAGIC_1_20: u32 = 0xffff_fff1;

/// `funcFlag_TOPFRAME`: a stack ends in it.
const FLAG_TOP_FRAME: u8 = 1;
/// `funcFlag_SPWRITE`: it sets the stack pointer to an arbitrary value.
const FLAG_WRITES_SP: u8 = 2;
/// `PCDATA_InlTreeIndex`: the inlined call that an instruction is of; negative for none.
const PCDATA_INLINED_CALL: u64 = 2;

/// The functions of a Go program.
#[derive(Debug, Clone, Copy)]
pub struct GoFunctions<'a> {
    data: &'a [u8],
    /// Where `data` begins in the file.
    offset: u64,
    is_little_endian: bool,
    /// The unit of code addresses in tables of values.
    quantum: u64,
    text: Vaddr,
    count: u64,
    /// The offset of `funcID` in a function's description; its flags follow.
    id_offset: u64,
    /// The parts of `data`: names, units' files, file names, values by address, functions.
    names: u64,
    unit_files: u64,
    files: u64,
    values: u64,
    functions: u64,
}

/// One function.
#[derive(Debug, Clone)]
pub struct GoFunction<'a> {
    /// Its addresses.
    pub range: Range<Vaddr>,
    /// The offset of its name in [`GoFunctions::names`], in bytes.
    pub(crate) name_offset: u32,
    /// Whether stacks end in it: nothing calls it.
    pub is_root: bool,
    /// Whether it sets the stack pointer to an arbitrary value, as code that switches stacks does.
    pub writes_sp: bool,
    table: GoFunctions<'a>,
    /// Its description, in the table.
    at: u64,
}

impl<'a> GoFunctions<'a> {
    /// The table of a file; `None` if it has none, or one of an unknown form.
    #[must_use]
    pub fn new(file: &'a ElfFile) -> Option<GoFunctions<'a>> {
        let mut sections = file.sections();
        let section = sections.find(|section| section.name.ends_with(".gopclntab"))?;
        let section = file.section(section.index).ok()??;
        let is_little_endian = file.is_little_endian();
        let mut table = GoFunctions {
            data: section.data,
            offset: section.offset,
            is_little_endian,
            quantum: 0,
            text: Vaddr(0),
            count: 0,
            id_offset: 0,
            names: 0,
            unit_files: 0,
            files: 0,
            values: 0,
            functions: 0,
        };
        // The magic number, two zeros, the quantum, and the size of a pointer.
        let [0, 0, quantum, 8] = *section.data.get(4..)?.first_chunk()? else {
            return None;
        };
        table.quantum = quantum.into();
        table.id_offset = match table.u32(0)? {
            MAGIC_1_18 => 36,
            MAGIC_1_20 => 40,
            _ => return None,
        };
        let [count, _, text, names, unit_files, files, values, functions] =
            core::array::from_fn(|index| table.u64(8 + 8 * index as u64));
        table.text = match text? {
            0 => start_of_text(file, section.address.offset(24))?,
            text => Vaddr(text),
        };
        (table.count, table.names, table.unit_files) = (count?, names?, unit_files?);
        (table.files, table.values, table.functions) = (files?, values?, functions?);
        Some(table)
    }

    /// The range of the functions' names in the file, each with a final zero.
    pub(crate) fn names(&self) -> Range<u64> {
        self.offset + self.names.min(self.unit_files)..self.offset + self.unit_files
    }

    /// All functions, ascending.
    pub fn iter(self) -> impl Iterator<Item = GoFunction<'a>> {
        (0..self.count).map_while(move |index| self.function(index))
    }

    /// The function at an address.
    #[must_use]
    pub fn covering(self, addr: Vaddr) -> Option<GoFunction<'a>> {
        let (mut first, mut last) = (0, self.count);
        while first < last {
            let middle = first + (last - first) / 2;
            if self.start(middle)? <= addr {
                first = middle + 1;
            } else {
                last = middle;
            }
        }
        let function = self.function(first.checked_sub(1)?)?;
        function.range.contains(&addr).then_some(function)
    }

    fn function(self, index: u64) -> Option<GoFunction<'a>> {
        let range = self.start(index)?..self.start(index.checked_add(1)?)?;
        let described = self.u32(self.entry(index)?.checked_add(4)?)?;
        let at = self.functions.checked_add(described.into())?;
        let flags = self.byte(at.checked_add(self.id_offset + 1)?)?;
        (range.start <= range.end).then_some(GoFunction {
            range,
            name_offset: self.u32(at + 4)?,
            is_root: flags & FLAG_TOP_FRAME != 0,
            writes_sp: flags & FLAG_WRITES_SP != 0,
            table: self,
            at,
        })
    }

    /// Where a function begins; for `count`, where the last one ends.
    fn start(&self, index: u64) -> Option<Vaddr> {
        let start = self.u32(self.entry(index)?)?;
        Some(self.text.offset(start.into()))
    }

    /// The entry of a function in the index: its start from `text`, and its description.
    fn entry(&self, index: u64) -> Option<u64> {
        self.functions.checked_add(index.checked_mul(8)?)
    }

    fn byte(&self, at: u64) -> Option<u8> {
        self.data.get(usize::try_from(at).ok()?).copied()
    }

    fn u32(&self, at: u64) -> Option<u32> {
        u32::try_from(load(slice(self.data, at, 4)?, self.is_little_endian)).ok()
    }

    fn u64(&self, at: u64) -> Option<u64> {
        Some(load(slice(self.data, at, 8)?, self.is_little_endian))
    }

    fn text_at(&self, part: u64, offset: u32) -> Option<String> {
        let at = usize::try_from(part.checked_add(offset.into())?).ok()?;
        let text = until_nul(self.data.get(at..)?);
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// The function of an address with its source line. `None` for code of an inlined call, whose
    /// line is not the function's.
    pub(crate) fn frame(self, addr: Vaddr) -> Option<InlineFrame> {
        let function = self.covering(addr)?;
        let value = |offset: u64| {
            let table = self.u32(function.at.checked_add(offset)?)?;
            let mut values = function.values(table);
            Some(values.find(|(range, _)| range.contains(&addr))?.1)
        };
        let is_inlined = value(function.pcdata(PCDATA_INLINED_CALL)?).is_some_and(|call| call >= 0);
        let file = value(20).and_then(|number| {
            let unit = self.u32(function.at + 32)?;
            let index = u64::from(unit.checked_add(u32::try_from(number).ok()?)?);
            self.text_at(
                self.files,
                self.u32(self.unit_files.checked_add(index * 4)?)?,
            )
        });
        let line = value(24).and_then(|line| u32::try_from(line).ok());
        (!is_inlined).then(|| InlineFrame {
            function: function.name(),
            file,
            line,
            column: None,
        })
    }
}

impl<'a> GoFunction<'a> {
    /// Its name, with the package's path: `main.(*T).method`.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        self.table.text_at(self.table.names, self.name_offset)
    }

    /// The bytes of its frame between the stack pointer and the return address, each with the
    /// addresses where it holds, ascending.
    pub fn frame_sizes(&self) -> impl Iterator<Item = (Range<Vaddr>, i32)> + use<'a> {
        self.values(self.table.u32(self.at + 16).unwrap_or(0))
    }

    /// The offset in the description of a table of values.
    fn pcdata(&self, number: u64) -> Option<u64> {
        let count = self.table.u32(self.at.checked_add(28)?)?;
        (number < count.into()).then_some(self.table.id_offset + 4 + 4 * number)
    }

    /// The values of a table, each with its addresses.
    fn values(&self, offset: u32) -> GoValues<'a> {
        let at = self.table.values.checked_add(offset.into());
        let rest = at.and_then(|at| self.table.data.get(usize::try_from(at).ok()?..));
        GoValues {
            rest: rest.filter(|_| offset != 0).unwrap_or_default(),
            quantum: self.table.quantum,
            addr: self.range.start,
            end: self.range.end,
            value: -1,
            is_first: true,
        }
    }
}

/// A table of values by address: pairs of differences, of the value and of the address.
struct GoValues<'a> {
    rest: &'a [u8],
    quantum: u64,
    addr: Vaddr,
    end: Vaddr,
    value: i32,
    is_first: bool,
}

impl GoValues<'_> {
    /// A number in groups of seven bits, the lowest first.
    fn number(&mut self) -> Option<u32> {
        let mut number = 0;
        for shift in [0, 7, 14, 21, 28] {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            number |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

impl Iterator for GoValues<'_> {
    type Item = (Range<Vaddr>, i32);

    fn next(&mut self) -> Option<Self::Item> {
        let change = self.number()?;
        if (change == 0 && !self.is_first) || self.addr >= self.end {
            return None;
        }
        self.is_first = false;
        // The sign is the lowest bit.
        let change = (change >> 1).cast_signed() ^ -(change & 1).cast_signed();
        self.value = self.value.wrapping_add(change);
        let length = u64::from(self.number()?).checked_mul(self.quantum)?;
        let start = self.addr;
        self.addr = start.offset(length).min(self.end);
        Some((start..self.addr, self.value))
    }
}

/// The start of Go's code, if the table leaves it to the dynamic loader: the relocation of that
/// field, or else the start of the section.
fn start_of_text(file: &ElfFile, field: Vaddr) -> Option<Vaddr> {
    const R_X86_64_RELATIVE: u64 = 8;
    const R_AARCH64_RELATIVE: u64 = 1027;
    let relocations = file.section_named(".rela.dyn").ok().flatten();
    let entries = relocations.map_or(&[][..], |section| section.data);
    let (entries, _) = entries.as_chunks::<24>();
    let words = entries.iter().map(|entry| {
        let (words, _) = entry.as_chunks::<8>();
        <[[u8; 8]; 3]>::try_from(words).map(|words| words.map(u64::from_le_bytes))
    });
    let relative = words.flatten().find(|[offset, info, _]| {
        *offset == field.0 && [R_X86_64_RELATIVE, R_AARCH64_RELATIVE].contains(info)
    });
    let text = || file.section_named(".text").ok()?.map(|text| text.address);
    relative.map(|[_, _, addend]| Vaddr(addend)).or_else(text)
}
