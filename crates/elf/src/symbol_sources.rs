//! Sources of function symbols: the symbol tables of a file, of its debug file, and of the small
//! symbol file that distributions embed.

use std::io::Read;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use object::elf;
use unspool_rows::{Arch, Vaddr};

use crate::dynamic::DynamicSymbols;
use crate::elf::ElfFile;
use crate::error::ModuleError;
use crate::go_functions::GoFunctions;
use crate::image::ImageBytes;
use crate::plt;
use crate::symbols::{Binding, SymbolCollection, SymbolEntry, SymbolFilter, SymbolStrings};
use crate::symtab::{DefiningSection, RawSymbol, SymbolTable};
use crate::unwind_entries::UnwindEntries;

/// The maximum decompressed size of the embedded symbol file, in bytes.
const MAX_DEBUGDATA_BYTES: u64 = 256 << 20;

/// Collects the function symbols of a file and its debug file.
pub(crate) fn collect(
    file: &ElfFile,
    debug: Option<&ElfFile>,
    filter: &mut SymbolFilter,
) -> SymbolCollection {
    let mut found = SymbolCollection {
        code: code_ranges(file),
        ..SymbolCollection::default()
    };
    let mut full = false;
    for file in [Some(file), debug].into_iter().flatten() {
        full |= add_tables(&mut found, filter, file, elf::SHT_SYMTAB);
        add_tables(&mut found, filter, file, elf::SHT_DYNSYM);
    }
    if file.section_headers().is_empty() {
        add_dynamic(&mut found, filter, file);
        found.problems.extend(file.check_section_headers().err());
    }
    if !full {
        match embedded(file) {
            Ok(Some(embedded)) => _ = add_tables(&mut found, filter, &embedded, elf::SHT_SYMTAB),
            Ok(None) => {}
            Err(error) => found.problems.push(error),
        }
        add_go_functions(&mut found, filter, file);
    }
    match plt::stubs(file, filter) {
        Ok(stubs) => add_stubs(&mut found, file, &stubs),
        Err(error) => found.problems.push(error),
    }
    found.entry_starts = begins(file, &found.entries);
    found
}

/// The first unwind table entry behind each symbol without a size.
fn begins(file: &ElfFile, symbols: &[SymbolEntry]) -> Vec<u64> {
    let mut unsized_symbols = symbols.iter().filter(|entry| entry.size == 0).peekable();
    if unsized_symbols.peek().is_none() {
        return Vec::new();
    }
    let table = UnwindEntries::new(file);
    let next = |symbol: &SymbolEntry| table.next(Vaddr(symbol.address)).map(|begin| begin.0);
    let mut begins: Vec<u64> = unsized_symbols.filter_map(next).collect();
    begins.sort_unstable();
    begins.dedup();
    begins
}

/// The ranges of code sections. (Padding between sections has no symbol.)
fn code_ranges(file: &ElfFile) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = file
        .section_headers()
        .iter()
        .filter(|header| crate::section::is_code(header))
        .map(|header| header.addr..header.addr.saturating_add(header.size))
        .collect();
    if ranges.is_empty() {
        ranges = file
            .executable_ranges()
            .iter()
            .map(|r| r.start.0..r.end.0)
            .collect();
    }
    ranges.sort_by_key(|range| range.start);
    ranges
}

/// Adds the symbols of all tables of that type; returns whether the file has one.
fn add_tables(
    found: &mut SymbolCollection,
    filter: &mut SymbolFilter,
    file: &ElfFile,
    kind: elf::SectionType,
) -> bool {
    let mut any = false;
    for index in file.indices(|_, header| header.is(kind)) {
        any = true;
        match SymbolTable::from_section(file, index) {
            Ok(table) => add_table(found, filter, file, &table, strings_of(file, index)),
            Err(error) => found.problems.push(error),
        }
    }
    any
}

fn strings_of(file: &ElfFile, table: usize) -> Range<u64> {
    let link = file.section_header(table).map_or(0, |header| header.link);
    let strings = usize::try_from(link)
        .ok()
        .and_then(|link| file.section_header(link));
    strings.map_or(0..0, |strings| {
        strings.offset..strings.offset.saturating_add(strings.size)
    })
}

fn add_table(
    found: &mut SymbolCollection,
    filter: &mut SymbolFilter,
    file: &ElfFile,
    table: &SymbolTable<'_>,
    strings: Range<u64>,
) {
    // No file has more tables than this; any others would hold duplicates.
    let Ok(number) = u8::try_from(found.tables.len()) else {
        return;
    };
    found.tables.push(SymbolStrings {
        image: Arc::clone(&file.image),
        strings,
        suffix: "",
    });
    for symbol in (0..table.len()).filter_map(|index| table.get(index)) {
        let Some(entry) = entry(file, &symbol, number) else {
            continue;
        };
        // Names are far apart in memory: they are read last.
        if filter.accepts(entry.address, entry.size)
            && names_code(table.name(&symbol, MARKER), &entry, &found.code)
        {
            filter.note_kept(entry.address);
            found.entries.push(entry);
        }
    }
}

/// The symbol as an entry, if its type can name code.
fn entry(file: &ElfFile, symbol: &RawSymbol, table: u8) -> Option<SymbolEntry> {
    let is_function = matches!(symbol.kind, elf::STT_FUNC | elf::STT_GNU_IFUNC);
    if !(is_function || symbol.kind == elf::STT_NOTYPE) {
        return None;
    }
    let DefiningSection::Section(section) = symbol.section else {
        return None;
    };
    let mut address = symbol.value;
    if file.is_relocatable() {
        let header = file
            .section_header(section)
            .filter(|header| header.is_allocated())?;
        address = header.addr.checked_add(address)?;
    }
    if is_function && file.abi().arch == Arch::Arm {
        address &= !1;
    }
    Some(SymbolEntry {
        address,
        size: symbol.size,
        name: symbol.name,
        table,
        is_function,
        binding: match symbol.bind {
            elf::STB_LOCAL => Binding::Local,
            elf::STB_WEAK => Binding::Weak,
            _ => Binding::Global,
        },
    })
}

/// The number of bytes of a name that show whether it is a marker.
const MARKER: usize = 3;

/// Whether a symbol names code, by the start of its name. A function always does; an untyped label
/// does if it is in code and is not a marker.
fn names_code(name: &[u8], entry: &SymbolEntry, code: &[Range<u64>]) -> bool {
    !name.is_empty() && (entry.is_function || (!is_marker(name) && is_in(code, entry.address)))
}

/// Mapping symbols (`$x`, `$d.1`), which separate code from data, and compilers' local labels.
fn is_marker(name: &[u8]) -> bool {
    match name {
        [b'$', b'a' | b'd' | b't' | b'x', rest @ ..] => rest.is_empty() || rest.starts_with(b"."),
        _ => name.starts_with(b".L"),
    }
}

fn is_in(ranges: &[Range<u64>], address: u64) -> bool {
    let after = ranges.partition_point(|range| range.start <= address);
    let range = after.checked_sub(1).and_then(|at| ranges.get(at));
    range.is_some_and(|range| range.contains(&address))
}

/// The dynamic symbols of a file without section headers.
fn add_dynamic(found: &mut SymbolCollection, filter: &mut SymbolFilter, file: &ElfFile) {
    if let Some(DynamicSymbols { symbols, strings }) = file.dynamic_symbols() {
        let offset = file.offset_of_vaddr(strings).unwrap_or_default();
        let bytes = file.rest_at(strings).unwrap_or_default();
        let table = SymbolTable::without_headers(file, symbols, bytes);
        add_table(
            found,
            filter,
            file,
            &table,
            offset..offset.saturating_add(bytes.len() as u64),
        );
    }
}

/// The functions of a stripped Go program.
fn add_go_functions(found: &mut SymbolCollection, filter: &mut SymbolFilter, file: &ElfFile) {
    let (Some(functions), Ok(table)) = (GoFunctions::new(file), u8::try_from(found.tables.len()))
    else {
        return;
    };
    found.tables.push(SymbolStrings {
        image: Arc::clone(&file.image),
        strings: functions.names(),
        suffix: "",
    });
    let entries = functions.iter().map(|function| SymbolEntry {
        address: function.range.start.0,
        size: function.range.end.0 - function.range.start.0,
        name: function.name_offset,
        table,
        is_function: true,
        binding: Binding::Local,
    });
    for entry in entries.filter(|entry| entry.size > 0) {
        if filter.accepts(entry.address, entry.size) {
            filter.note_kept(entry.address);
            found.entries.push(entry);
        }
    }
}

fn add_stubs(found: &mut SymbolCollection, file: &ElfFile, stubs: &plt::Stubs) {
    let Ok(table) = u8::try_from(found.tables.len()) else {
        return;
    };
    found.tables.push(SymbolStrings {
        image: Arc::clone(&file.image),
        strings: strings_of(file, stubs.symbols),
        suffix: "@plt",
    });
    found
        .entries
        .extend(stubs.list.iter().map(|stub| SymbolEntry {
            address: stub.address.0,
            size: stub.size,
            name: stub.name,
            table,
            is_function: true,
            binding: Binding::Local,
        }));
}

/// The ELF file in `.gnu_debugdata`: xz-compressed, with a `.symtab` of the functions that
/// `.dynsym` lacks.
fn embedded(file: &ElfFile) -> Result<Option<ElfFile>, ModuleError> {
    let Some(index) = file.indices_named(".gnu_debugdata").next() else {
        return Ok(None);
    };
    let Some(section) = file.section(index)? else {
        return Ok(None);
    };
    let failed = |reason: String| ModuleError::Compressed {
        file: file.path().to_path_buf(),
        section: ".gnu_debugdata".to_owned(),
        offset: section.offset,
        reason,
    };
    let stream = liblzma::stream::Stream::new_stream_decoder(
        MAX_DEBUGDATA_BYTES,
        liblzma::stream::CONCATENATED,
    )
    .map_err(|error| failed(error.to_string()))?;
    // As for sections: the decoder is in C.
    let packed = section.data.to_vec();
    let mut bytes = Vec::new();
    liblzma::bufread::XzDecoder::new_stream(&*packed, stream)
        .take(MAX_DEBUGDATA_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(error.to_string()))?;
    let size = bytes.len() as u64;
    if size > MAX_DEBUGDATA_BYTES {
        return Err(ModuleError::TooLarge {
            file: file.path().to_path_buf(),
            section: ".gnu_debugdata".to_owned(),
            offset: section.offset,
            stored: section.data.len() as u64,
            size,
            limit: MAX_DEBUGDATA_BYTES,
        });
    }
    let mut name = file.path().as_os_str().to_owned();
    name.push("[.gnu_debugdata]");
    ElfFile::from_image(PathBuf::from(name), ImageBytes::from(bytes)).map(Some)
}
