//! Which ranges of an object file's code are functions, and how they are come into.

use core::ops::Range;
use std::collections::BTreeMap;

use unspool_ir::Vaddr;
use unspool_module::{Binding, ElfFile, Symbols};
use unspool_synth::op::{Flow, Seen};
use unspool_synth::{Extent, Image, Machine, Part};

/// The bytes of a file as they are loaded.
pub(crate) struct Bytes<'f>(pub(crate) &'f ElfFile);

impl Image for Bytes<'_> {
    fn bytes_from(&self, address: u64) -> Option<&[u8]> {
        self.0.rest_at(Vaddr(address))
    }
}

/// A range of code with a name.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) extent: Extent,
    /// Whether the symbol table says where it ends.
    pub(crate) has_size: bool,
}

/// A symbol that may be a function.
struct Candidate {
    name: String,
    start: u64,
    size: u64,
    is_function: bool,
    is_visible: bool,
}

/// The functions of a file, ascending: symbols of that type, labels that other files see, and labels that are called.
pub(crate) fn functions(file: &ElfFile, machine: &mut Machine) -> Vec<Function> {
    let sections: Vec<Range<u64>> = file
        .executable_ranges()
        .into_iter()
        .map(|range| range.start.0..range.end.0)
        .collect();
    let seen = Sightings::of(file, &sections, machine);
    let mut found: Vec<Function> = Vec::new();
    for candidate in candidates(file) {
        let is_called = seen.calls.binary_search(&candidate.start).is_ok();
        let is_inside = found
            .last()
            .is_some_and(|last| last.has_size && candidate.start < last.extent.end);
        let is_wanted = candidate.is_function || candidate.is_visible || is_called;
        let section = sections
            .iter()
            .find(|section| section.contains(&candidate.start));
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
        // What only jumps lead to is what they bring there, be it a function or a part of one.
        let is_fragment = !candidate.is_visible
            && !is_called
            && seen.jumps.binary_search(&candidate.start).is_ok()
            && seen.taken.binary_search(&candidate.start).is_err();
        found.push(Function {
            name: candidate.name,
            extent: Extent {
                start: candidate.start,
                end,
                part: if is_fragment {
                    Part::Fragment
                } else {
                    Part::Function
                },
            },
            has_size: candidate.size != 0,
        });
    }
    found.retain(|function| function.extent.start < function.extent.end);
    found
}

/// One for each address: the best that starts there.
fn candidates(file: &ElfFile) -> Vec<Candidate> {
    let mut by_start: BTreeMap<u64, Candidate> = BTreeMap::new();
    for symbol in Symbols::new(file, None).iter() {
        let candidate = Candidate {
            name: symbol.name.into_owned(),
            start: symbol.address.0,
            size: symbol.size,
            is_function: symbol.is_function,
            is_visible: symbol.binding != Binding::Local,
        };
        let known = by_start.entry(candidate.start);
        known
            .and_modify(|known| {
                // Two names of one function: what is true of one is true of the other.
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

/// Where code leads, and whose address somebody has; ascending.
#[derive(Default)]
struct Sightings {
    calls: Vec<u64>,
    jumps: Vec<u64>,
    taken: Vec<u64>,
}

impl Sightings {
    fn of(file: &ElfFile, sections: &[Range<u64>], machine: &mut Machine) -> Sightings {
        let mut seen = Sightings::default();
        for section in sections {
            let bytes = Bytes(file);
            let bytes = bytes.bytes(section.clone()).unwrap_or_default();
            machine.scan(bytes, section.start, |sight| match sight {
                Seen::Flow(Flow::Call(to)) => seen.calls.push(to),
                Seen::Flow(Flow::Jump(to) | Flow::Branch { to, .. }) => seen.jumps.push(to),
                Seen::Taken(address) => seen.taken.push(address),
                Seen::Flow(_) | Seen::End => {}
            });
        }
        // Of addresses in data nothing is known but that some bytes are one.
        for section in file.sections().filter(|section| !section.executable) {
            let Some(start) = section.address.filter(|_| section.has_data) else {
                continue;
            };
            let bytes = file.bytes_at(start, section.size).unwrap_or_default();
            let words = bytes.windows(8).filter_map(|word| word.try_into().ok());
            let is_code = |address: &u64| sections.iter().any(|code| code.contains(address));
            seen.taken
                .extend(words.map(u64::from_le_bytes).filter(is_code));
        }
        for list in [&mut seen.calls, &mut seen.jumps, &mut seen.taken] {
            list.sort_unstable();
            list.dedup();
        }
        seen
    }
}
