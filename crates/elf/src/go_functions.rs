//! The functions of a Go program, from the table that Go's runtime walks stacks by (`.gopclntab`).
//!
//! The table survives stripping. It has each function's name, source lines, and the size of its
//! frame at each instruction. Its form is that of Go 1.18 and later (`runtime/symtab.go` and
//! `runtime/runtime2.go`, `_func`); older tables are not read.

use std::ops::Range;

use unspool_rows::Vaddr;

use crate::elf::{ElfFile, MAX_NAME_BYTES, load, slice, string_at};
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
        let (index, text) = (*file.go_functions.get_or_init(|| find(file)))?;
        let table = GoFunctions::read(file, index)?;
        Some(GoFunctions { text, ..table })
    }

    /// The table in a section. The start of the code is that in its header, which can be 0.
    fn read(file: &'a ElfFile, index: usize) -> Option<GoFunctions<'a>> {
        let section = file.section(index).ok()??;
        let mut table = GoFunctions {
            data: section.data,
            offset: section.offset,
            is_little_endian: file.is_little_endian(),
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
        (table.count, table.names, table.unit_files) = (count?, names?, unit_files?);
        (table.files, table.values, table.functions) = (files?, values?, functions?);
        table.text = Vaddr(text?);
        Some(table)
    }

    /// The range of the functions' names in the file, each with a final zero.
    pub(crate) fn names(&self) -> Range<u64> {
        let start = self.names.min(self.unit_files);
        self.offset.saturating_add(start)..self.offset.saturating_add(self.unit_files)
    }

    /// All functions, ascending. They do not overlap.
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
        let texts = self.data.get(usize::try_from(part).ok()?..)?;
        let text = string_at(texts, offset, MAX_NAME_BYTES)?;
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
        // Functions without inlined calls do not have that table.
        let inlined_call = function.pcdata(PCDATA_INLINED_CALL).and_then(value);
        let is_inlined = inlined_call.is_some_and(|call| call >= 0);
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

    /// Whether that is its name. Allocates nothing.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        let start = self.table.names.checked_add(self.name_offset.into());
        let found = start.and_then(|at| slice(self.table.data, at, name.len() as u64 + 1));
        found.and_then(|found| found.strip_suffix(&[0])) == Some(name.as_bytes())
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
        // Go's linker writes none. So a function has no more values than bytes.
        if length == 0 {
            return None;
        }
        let start = self.addr;
        self.addr = start.offset(length).min(self.end);
        Some((start..self.addr, self.value))
    }
}

/// The section with the table, and the start of Go's code.
fn find(file: &ElfFile) -> Option<(usize, Vaddr)> {
    let mut sections = file.sections();
    let section = sections.find(|section| section.name.ends_with(".gopclntab"))?;
    let mut table = GoFunctions::read(file, section.index)?;
    if table.text == Vaddr(0) {
        table.text = start_of_text(file, section.address?, &table)?;
    }
    // The functions are in code of the file. So there are no more than it has bytes.
    let (start, end) = (table.start(0)?, table.start(table.count)?);
    let is_code = |range: &Range<Vaddr>| range.start <= start && end <= range.end;
    let is_in_file = file.bytes_at(start, end.0.checked_sub(start.0)?).is_some();
    let is_valid = is_in_file && file.executable_ranges().iter().any(is_code);
    is_valid.then_some((section.index, table.text))
}

/// The start of Go's code, if the table's header lacks it: from the relocation of that field, or from
/// the runtime's description of the program (`moduledata` of `runtime/symtab.go`).
fn start_of_text(file: &ElfFile, header: Vaddr, table: &GoFunctions<'_>) -> Option<Vaddr> {
    /// The offset of `textStart` in the header.
    const TEXT_FIELD: u64 = 24;
    /// The offsets of `minpc`, `maxpc` and `text` in `moduledata`, which begins with the header's
    /// address.
    const BOUNDS: [u64; 3] = [160, 168, 176];
    const MAX_CANDIDATES: usize = 16;
    let relocations = RelativeRelocations::new(file);
    if let Some(text) = relocations.addend(header.offset(TEXT_FIELD)) {
        return Some(Vaddr(text));
    }
    let word = |addr: Vaddr| {
        let stored = || Some(load(file.bytes_at(addr, 8)?, table.is_little_endian));
        relocations.addend(addr).or_else(stored)
    };
    let [first, last] = [0, table.count].map(|index| table.u32(table.entry(index)?));
    let (first, last) = (u64::from(first?), u64::from(last?));
    let text = |module: Vaddr| {
        let [start, end, text] = BOUNDS.map(|field| word(module.offset(field)));
        let text = text?;
        let is_module = start? == text.checked_add(first)? && end? == text.checked_add(last)?;
        is_module.then_some(Vaddr(text))
    };
    let is_little_endian = table.is_little_endian;
    let relocated = relocations.iter().filter(|(_, addend)| *addend == header.0);
    let data = file.segments().filter(|segment| !segment.executable);
    let stored = data.flat_map(|segment| {
        let bytes = file.rest_at(segment.vaddr).unwrap_or_default();
        let words = bytes.chunks_exact(8).zip((0..).step_by(8));
        let found = words.filter(move |(word, _)| load(word, is_little_endian) == header.0);
        found.map(move |(_, at)| segment.vaddr.offset(at))
    });
    let candidates = relocated.map(|(addr, _)| addr).chain(stored);
    candidates.take(MAX_CANDIDATES).find_map(text)
}

/// The relocations of a file that add its load bias to an address (`R_*_RELATIVE`).
struct RelativeRelocations<'a> {
    entries: &'a [[u8; 24]],
    is_little_endian: bool,
}

impl<'a> RelativeRelocations<'a> {
    fn new(file: &'a ElfFile) -> RelativeRelocations<'a> {
        let section = file.section_named(".rela.dyn").ok().flatten();
        let (entries, _) = section.map_or(&[][..], |section| section.data).as_chunks();
        RelativeRelocations {
            entries,
            is_little_endian: file.is_little_endian(),
        }
    }

    /// The relocated places, and the addresses to store there.
    fn iter(&self) -> impl Iterator<Item = (Vaddr, u64)> {
        const R_X86_64_RELATIVE: u64 = 8;
        const R_AARCH64_RELATIVE: u64 = 1027;
        self.entries.iter().filter_map(|entry| {
            let (words, _) = entry.as_chunks::<8>();
            let words = <[[u8; 8]; 3]>::try_from(words).ok()?;
            let [place, info, addend] = words.map(|word| load(&word, self.is_little_endian));
            let is_relative = [R_X86_64_RELATIVE, R_AARCH64_RELATIVE].contains(&info);
            is_relative.then_some((Vaddr(place), addend))
        })
    }

    fn addend(&self, place: Vaddr) -> Option<u64> {
        let mut all = self.iter();
        all.find_map(|(found, addend)| (found == place).then_some(addend))
    }
}
