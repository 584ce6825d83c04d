//! Functions in a file's code, and how control enters them.

use core::ops::Range;
use std::collections::BTreeMap;

use unspool_code_analysis::op::{Flow, ScanEvent};
use unspool_code_analysis::{CodeExtent, CodeImage, ExtentKind, Lifter};
use unspool_elf::{Binding, ElfFile, ElfKind, SectionInfo, Symbols};

use crate::elf_code_image::ElfCodeImage;

/// A range of code with a name.
#[derive(Debug, Clone)]
pub struct FunctionExtent {
    /// The symbol's name.
    pub name: String,
    /// The range.
    pub extent: CodeExtent,
    /// Whether the symbol table has its size.
    pub has_size: bool,
}

/// A symbol that may be a function.
struct FunctionCandidate {
    name: String,
    start: u64,
    size: u64,
    is_function: bool,
    is_visible: bool,
}

/// The named functions of a file, ascending: function symbols, global labels, and called labels.
pub fn functions(file: &ElfFile, symbols: &Symbols, lifter: &mut Lifter) -> Vec<FunctionExtent> {
    let sections = code_ranges(file);
    let seen = CodeReferences::scan(file, &sections, lifter);
    named_functions(symbols, &sections, &seen)
}

/// The entry point of a program, which nothing calls. In an object file it is the linker's default
/// entry symbol.
#[must_use]
pub fn entry_point(file: &ElfFile, symbols: &Symbols) -> Option<u64> {
    if file.kind() != ElfKind::Relocatable {
        return Some(file.entry().0);
    }
    let start = symbols.named("_start").next()?;
    Some(start.address.0)
}

/// The code of a file, ascending: its code sections or, without sections, all executable segments.
pub(crate) fn code_ranges(file: &ElfFile) -> Vec<Range<u64>> {
    let is_code = |section: &SectionInfo<'_>| section.executable && section.has_data;
    let sections = file.sections().filter(is_code);
    let sections = sections.filter_map(|section| {
        let start = section.address?.0;
        Some(start..start.checked_add(section.size)?)
    });
    let mut ranges: Vec<Range<u64>> = sections.filter(|range| !range.is_empty()).collect();
    if ranges.is_empty() {
        let segments = file.executable_ranges().into_iter();
        ranges.extend(segments.map(|range| range.start.0..range.end.0));
    }
    ranges.sort_by_key(|range| (range.start, range.end));
    ranges
}

/// The named functions in some ranges of code.
pub(crate) fn named_functions(
    symbols: &Symbols,
    sections: &[Range<u64>],
    seen: &CodeReferences,
) -> Vec<FunctionExtent> {
    let mut found: Vec<FunctionExtent> = Vec::new();
    for candidate in candidates(symbols) {
        let is_called = seen.calls.binary_search(&candidate.start).is_ok();
        let is_inside = found
            .last()
            .is_some_and(|last| last.has_size && candidate.start < last.extent.end);
        let is_wanted = candidate.is_function || candidate.is_visible || is_called;
        let place = sections.partition_point(|section| section.end <= candidate.start);
        let section = sections.get(place);
        let section = section.filter(|section| section.start <= candidate.start);
        let Some(section) = section.filter(|_| is_wanted && !is_inside) else {
            continue;
        };
        if let Some(last) = found.last_mut() {
            last.extent.end = last.extent.end.min(candidate.start);
        }
        let end = match candidate.size {
            0 => section.end,
            size => candidate.start.saturating_add(size).min(section.end),
        };
        // Code reached only by jumps is entered in the jumps' state, whether it is a function or a
        // part. Data may contain its address by chance.
        let jumps = seen.jumps_within(candidate.start..candidate.start.saturating_add(1));
        let is_only_jumped_to =
            !candidate.is_visible && !jumps.is_empty() && !seen.is_taken(candidate.start);
        let is_fragment =
            !is_called && (is_only_jumped_to || parent_of_cold_part(&candidate.name).is_some());
        found.push(FunctionExtent {
            name: candidate.name,
            extent: CodeExtent {
                start: candidate.start,
                end,
                kind: if is_fragment {
                    ExtentKind::Fragment
                } else {
                    ExtentKind::Function
                },
            },
            has_size: candidate.size != 0,
        });
    }
    found.retain(|function| function.extent.start < function.extent.end);
    found
}

/// The function's name if a name is that of a cold part. GCC names the cold part of `f` `f.cold`,
/// older versions `f.cold.3`. LLVM gives such names to functions, which are called.
#[must_use]
pub fn parent_of_cold_part(name: &str) -> Option<&str> {
    let (whole, number) = name.rsplit_once(".cold")?;
    (number.is_empty() || number.starts_with('.')).then_some(whole)
}

/// One candidate for each address: the best that starts there.
fn candidates(symbols: &Symbols) -> Vec<FunctionCandidate> {
    let mut by_start: BTreeMap<u64, FunctionCandidate> = BTreeMap::new();
    for symbol in symbols.iter() {
        let candidate = FunctionCandidate {
            name: symbol.name.into_owned(),
            start: symbol.address.0,
            size: symbol.size,
            is_function: symbol.is_function,
            is_visible: symbol.binding != Binding::Local,
        };
        let known = by_start.entry(candidate.start);
        known
            .and_modify(|known| {
                // Two names of one function share their properties.
                let is_better = candidate.is_function && !known.is_function;
                if is_better {
                    known.name.clone_from(&candidate.name);
                }
                known.size = known.size.max(candidate.size);
                known.is_function |= candidate.is_function;
                known.is_visible |= candidate.is_visible;
            })
            .or_insert(candidate);
    }
    by_start.into_values().collect()
}

/// Targets of calls and jumps, and taken addresses; ascending.
#[derive(Debug, Default)]
pub(crate) struct CodeReferences {
    pub(crate) calls: Vec<u64>,
    /// Each with its number of jumps.
    jumps: Vec<(u64, u32)>,
    taken_addresses: Vec<u64>,
}

impl CodeReferences {
    /// Whether code or data takes an address.
    pub(crate) fn is_taken(&self, address: u64) -> bool {
        self.taken_addresses.binary_search(&address).is_ok()
    }

    /// Jump targets in a range, each with its number of jumps.
    pub(crate) fn jumps_within(&self, range: Range<u64>) -> &[(u64, u32)] {
        let place = |address| self.jumps.partition_point(|(to, _)| *to < address);
        let jumps = self.jumps.get(place(range.start)..place(range.end));
        jumps.unwrap_or_default()
    }

    pub(crate) fn scan(
        file: &ElfFile,
        sections: &[Range<u64>],
        lifter: &mut Lifter,
    ) -> CodeReferences {
        let is_code = |address: &u64| {
            let place = sections.partition_point(|code| code.end <= *address);
            let code = sections.get(place);
            code.is_some_and(|code| code.start <= *address)
        };
        let is_absolute = file.kind() == ElfKind::Executable;
        let mut seen = CodeReferences::default();
        let mut jumps = Vec::new();
        for section in sections {
            let text = ElfCodeImage(file);
            let bytes = text.bytes(section.clone()).unwrap_or_default();
            lifter.scan(bytes, section.start, |_, sight| match sight {
                ScanEvent::Flow(Flow::Call(to)) => seen.calls.push(to),
                ScanEvent::Flow(Flow::Jump(to) | Flow::Branch { to, .. }) => jumps.push(to),
                ScanEvent::AddressTaken(address) => seen.taken_addresses.push(address),
                ScanEvent::Immediate(address) if is_absolute && is_code(&address) => {
                    seen.taken_addresses.push(address);
                }
                ScanEvent::Flow(_) | ScanEvent::Immediate(_) | ScanEvent::FallsThroughEnd => {}
            });
        }
        // About addresses in data nothing is known, except that some bytes look like one.
        for section in file.sections().filter(|section| !section.executable) {
            let Some(start) = section.address.filter(|_| section.has_data) else {
                continue;
            };
            let bytes = file.bytes_at(start, section.size).unwrap_or_default();
            let words = bytes.windows(8).filter_map(|word| word.try_into().ok());
            seen.taken_addresses
                .extend(words.map(u64::from_le_bytes).filter(is_code));
        }
        for list in [&mut seen.calls, &mut seen.taken_addresses] {
            list.sort_unstable();
            list.dedup();
        }
        jumps.sort_unstable();
        let same = jumps.chunk_by(|a, b| a == b);
        let counted =
            same.filter_map(|same| Some((*same.first()?, u32::try_from(same.len()).ok()?)));
        seen.jumps = counted.collect();
        seen
    }
}
