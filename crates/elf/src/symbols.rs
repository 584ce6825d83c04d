//! Function symbols, and finding the symbol of an address.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use unspool_demangle::SignatureDetail;
use unspool_rows::Vaddr;

use crate::elf::{ElfFile, MAX_NAME_BYTES, is_string_at, slice, string_at};
use crate::error::ModuleError;
use crate::image::ImageBytes;
use crate::symbol_sources;

/// A symbol that names code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// The name as in the file, mangled; invalid UTF-8 in it is replaced. One longer than 64 KiB is
    /// cut there and ends with `…`.
    pub name: Cow<'a, str>,
    /// The link-time address of its first byte (without the Thumb bit).
    pub address: Vaddr,
    /// Its size in bytes; 0 if the symbol table has none.
    pub size: u64,
    /// Its visibility to other files.
    pub binding: Binding,
    /// Whether its type is that of a function. Assembly labels often have no type.
    pub is_function: bool,
}

/// The visibility of a symbol to other files; the greater is preferred if several name one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Binding {
    /// Visible to no other file.
    Local,
    /// Visible to all, unless another symbol defines the same name.
    Weak,
    /// Visible to all.
    Global,
}

/// The choice among several symbols that start at an address. A symbol with a size always comes
/// before one without, and a function before a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preference {
    /// A global one before a weak one before a local one, then the one with the fewest leading
    /// underscores, then the first by its bytes.
    #[default]
    Visible,
    /// As perf (`choose_best_symbol` in `tools/perf/util/symbol.c` of the kernel's sources): first
    /// a global one before a local one before a weak one. Then the one with the fewest leading
    /// underscores, then the longest. Last the first in its table. Underscores and length are those
    /// of the demangled name ([`SignatureDetail::NameOnly`]).
    Perf,
}

impl Preference {
    /// The rank of a binding: the greatest is preferred.
    fn rank(self, binding: Binding) -> u8 {
        match (self, binding) {
            (Preference::Visible, Binding::Local) | (Preference::Perf, Binding::Weak) => 0,
            (Preference::Visible, Binding::Weak) | (Preference::Perf, Binding::Local) => 1,
            (_, Binding::Global) => 2,
        }
    }
}

/// The function symbols of a module, sorted by address.
///
/// Names stay in the file; a million symbols take about 50 MB beside it. Names may overlap there,
/// so the sum of their lengths is unbounded. So only the first few bytes of each are used.
pub struct Symbols {
    entries: Vec<SymbolEntry>,
    tables: Vec<SymbolStrings>,
    /// Functions with a size, labels with a size, and all symbols without: disjoint, sorted.
    layers: [Vec<SymbolSpan>; 3],
    problems: Vec<ModuleError>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct SymbolEntry {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// Offset in the string table `table`.
    pub(crate) name: u32,
    pub(crate) table: u8,
    pub(crate) is_function: bool,
    pub(crate) binding: Binding,
}

/// A string table of a file, and the suffix of its names.
pub(crate) struct SymbolStrings {
    pub(crate) image: Arc<ImageBytes>,
    /// Where the table is in the image.
    pub(crate) strings: Range<u64>,
    /// `@plt` for stubs, which are named after their target.
    pub(crate) suffix: &'static str,
}

impl SymbolStrings {
    fn strings(&self) -> &[u8] {
        let Range { start, end } = self.strings;
        slice(self.image.bytes(), start, end.saturating_sub(start)).unwrap_or_default()
    }

    /// The start of the name at an offset, cut after `most` bytes.
    fn start(&self, offset: u32, most: usize) -> &[u8] {
        string_at(self.strings(), offset, most).unwrap_or_default()
    }

    fn is(&self, offset: u32, name: &str) -> bool {
        name.strip_suffix(self.suffix)
            .is_some_and(|name| is_string_at(self.strings(), offset, name.as_bytes()))
    }

    fn text(&self, offset: u32) -> Cow<'_, str> {
        let bytes = self.start(offset, MAX_NAME_BYTES + 1);
        let whole = bytes.len() <= MAX_NAME_BYTES;
        let name = String::from_utf8_lossy(bytes.get(..MAX_NAME_BYTES).unwrap_or(bytes));
        match (whole, self.suffix) {
            (true, "") => name,
            (true, suffix) => Cow::Owned(format!("{name}{suffix}")),
            (false, suffix) => Cow::Owned(format!("{name}…{suffix}")),
        }
    }
}

/// Addresses with the symbol `entries[entry]`.
#[derive(Debug, Clone, Copy)]
struct SymbolSpan {
    start: u64,
    end: u64,
    entry: usize,
}

/// Symbols from the symbol tables, unordered.
#[derive(Default)]
pub(crate) struct SymbolCollection {
    pub(crate) entries: Vec<SymbolEntry>,
    pub(crate) tables: Vec<SymbolStrings>,
    pub(crate) problems: Vec<ModuleError>,
    /// The ranges of code sections, sorted: an unsized symbol ends at the latest with its range.
    pub(crate) code: Vec<Range<u64>>,
    /// The first unwind table entry behind each symbol without a size, sorted.
    pub(crate) entry_starts: Vec<u64>,
}

/// The wanted symbols.
pub(crate) enum SymbolFilter {
    /// All.
    All,
    /// Those that matter for some addresses.
    Near {
        /// The addresses, ascending.
        addresses: Vec<u64>,
        /// For each address, the greatest start of a kept symbol that is not above it but above the
        /// previous address.
        starts: Vec<Option<u64>>,
    },
}

impl SymbolFilter {
    fn near(addresses: &[Vaddr]) -> Self {
        let mut addresses: Vec<u64> = addresses.iter().map(|addr| addr.0).collect();
        addresses.sort_unstable();
        addresses.dedup();
        SymbolFilter::Near {
            starts: vec![None; addresses.len()],
            addresses,
        }
    }

    /// Whether a symbol that begins there matters: it covers one of the addresses, or no known
    /// symbol begins closer to the next address.
    pub(crate) fn accepts(&self, start: u64, size: u64) -> bool {
        let SymbolFilter::Near { addresses, starts } = self else {
            return true;
        };
        let next = addresses.partition_point(|addr| *addr < start);
        let (Some(addr), Some(known)) = (addresses.get(next), starts.get(next)) else {
            return false;
        };
        *addr < start.saturating_add(size) || known.is_none_or(|known| start >= known)
    }

    /// Records a kept symbol.
    pub(crate) fn note_kept(&mut self, start: u64) {
        if let SymbolFilter::Near { addresses, starts } = self {
            let next = addresses.partition_point(|addr| *addr < start);
            if let Some(known) = starts.get_mut(next) {
                *known = Some(start).max(*known);
            }
        }
    }

    /// Whether any wanted address can be in the range.
    pub(crate) fn is_any_in(&self, range: Range<u64>) -> bool {
        match self {
            SymbolFilter::All => true,
            SymbolFilter::Near { addresses, .. } => {
                addresses.iter().any(|addr| range.contains(addr))
            }
        }
    }
}

/// The maximum number of bytes of names that are compared.
const MAX_COMPARED_NAME_BYTES: usize = 512;

impl SymbolCollection {
    /// The part of a name by which names of one address are ordered.
    fn start_of_name(&self, entry: &SymbolEntry) -> &[u8] {
        names_of(&self.tables, entry).map_or(&[], |names| {
            names.start(entry.name, MAX_COMPARED_NAME_BYTES)
        })
    }

    /// Orders the names of two symbols of one address and binding.
    fn preferred_last(&self, preference: Preference, a: &SymbolEntry, b: &SymbolEntry) -> Ordering {
        match preference {
            Preference::Visible => {
                let (a, b) = (self.start_of_name(a), self.start_of_name(b));
                underscores(b).cmp(&underscores(a)).then_with(|| b.cmp(a))
            }
            Preference::Perf => {
                let (a, b) = (self.readable(a), self.readable(b));
                let [of_a, of_b] = [&a, &b].map(|name| underscores(name.as_bytes()));
                of_b.cmp(&of_a).then_with(|| a.len().cmp(&b.len()))
            }
        }
    }

    fn readable(&self, entry: &SymbolEntry) -> String {
        let name = names_of(&self.tables, entry).map(|names| names.text(entry.name));
        let name = name.unwrap_or_default();
        SignatureDetail::NameOnly.demangle(&name).into_owned()
    }

    /// Whether two symbols have the same name, by a cheap comparison.
    fn is_same_name(&self, a: &SymbolEntry, b: &SymbolEntry) -> bool {
        let suffix = |entry| names_of(&self.tables, entry).map(|names| names.suffix);
        let (start, other) = (self.start_of_name(a), self.start_of_name(b));
        (a.table, a.name) == (b.table, b.name)
            || (start.len() < MAX_COMPARED_NAME_BYTES && start == other && suffix(a) == suffix(b))
    }
}

fn names_of<'a>(tables: &'a [SymbolStrings], entry: &SymbolEntry) -> Option<&'a SymbolStrings> {
    tables.get(usize::from(entry.table))
}

impl ElfFile {
    /// The function symbols of this file: of `.symtab` and `.dynsym`. Without `.symtab`, also of
    /// the compressed `.gnu_debugdata`. On x86-64, `name@plt` for the stubs that call other
    /// modules. The first call reads them and allocates.
    ///
    /// [`Symbols::new`] includes the symbols in the separate debug file of a stripped file.
    pub fn symbols(&self) -> &Symbols {
        self.symbols.get_or_init(|| Symbols::new(self, None))
    }
}

impl Symbols {
    /// The function symbols of a file and of its separate debug file together.
    #[must_use]
    pub fn new(file: &ElfFile, debug: Option<&ElfFile>) -> Symbols {
        let found = symbol_sources::collect(file, debug, &mut SymbolFilter::All);
        Symbols::from_collected(found, Preference::default())
    }

    /// The symbols that decide the result of [`Symbols::lookup`] for these addresses, and a few
    /// more: for few addresses many times faster than [`Symbols::new`].
    #[must_use]
    pub fn for_addresses(file: &ElfFile, debug: Option<&ElfFile>, addresses: &[Vaddr]) -> Symbols {
        Symbols::for_addresses_preferring(Preference::default(), file, debug, addresses)
    }

    /// The same for another preference.
    #[must_use]
    pub fn for_addresses_preferring(
        preference: Preference,
        file: &ElfFile,
        debug: Option<&ElfFile>,
        addresses: &[Vaddr],
    ) -> Symbols {
        let mut wanted = SymbolFilter::near(addresses);
        let found = symbol_sources::collect(file, debug, &mut wanted);
        Symbols::from_collected(found, preference)
    }

    fn from_collected(mut found: SymbolCollection, preference: Preference) -> Symbols {
        let mut entries = std::mem::take(&mut found.entries);
        if preference == Preference::Perf {
            // The last of equals counts, and the sort is stable.
            entries.reverse();
        }
        entries.sort_by(|a, b| {
            let key = |e: &SymbolEntry| (e.address, preference.rank(e.binding));
            key(a)
                .cmp(&key(b))
                .then_with(|| found.preferred_last(preference, a, b))
        });
        // The dynamic symbols are in the full table as well.
        entries.dedup_by(|a, b| {
            a.address == b.address
                && a.binding == b.binding
                && a.size == b.size
                && found.is_same_name(a, b)
        });
        let layers = [
            flatten(&entries, |e| e.is_function && e.size > 0),
            flatten(&entries, |e| !e.is_function && e.size > 0),
            unsized_spans(&entries, &found),
        ];
        Symbols {
            entries,
            tables: found.tables,
            layers,
            problems: found.problems,
        }
    }

    /// The symbol that `addr` belongs to.
    ///
    /// A sized function that covers the address comes before a sized label, and that before a
    /// symbol without a size. The latter extends to the next symbol, to the next entry of the
    /// unwind tables, or to the end of its section. Among several that cover the address, the one
    /// that starts last is taken. Among several that start there, [`Preference`] decides. An
    /// address between two symbols belongs to neither.
    #[must_use]
    pub fn lookup(&self, addr: Vaddr) -> Option<Symbol<'_>> {
        self.layers.iter().find_map(|layer| {
            let after = layer.partition_point(|span| span.start <= addr.0);
            let span = layer.get(after.checked_sub(1)?)?;
            let entry = self.entries.get(span.entry)?;
            (addr.0 < span.end).then(|| self.symbol(entry))
        })
    }

    /// All symbols, in the order of their addresses. A symbol in several tables of the file is
    /// listed once, unless its name is longer than 511 bytes.
    pub fn iter(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.entries.iter().map(|entry| self.symbol(entry))
    }

    /// The symbols of that name, as in the file. Scans all symbols; does not allocate.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Symbol<'a>> {
        self.entries
            .iter()
            .filter(move |entry| {
                names_of(&self.tables, entry).is_some_and(|names| names.is(entry.name, name))
            })
            .map(|entry| self.symbol(entry))
    }

    /// The number of symbols.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the number of symbols is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The symbol tables that could not be read.
    #[must_use]
    pub fn problems(&self) -> &[ModuleError] {
        &self.problems
    }

    fn symbol(&self, entry: &SymbolEntry) -> Symbol<'_> {
        let names = names_of(&self.tables, entry);
        Symbol {
            name: names.map_or(Cow::Borrowed(""), |names| names.text(entry.name)),
            address: Vaddr(entry.address),
            size: entry.size,
            binding: entry.binding,
            is_function: entry.is_function,
        }
    }
}

impl fmt::Debug for Symbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symbols")
            .field("len", &self.entries.len())
            .field("problems", &self.problems)
            .finish_non_exhaustive()
    }
}

fn underscores(name: &[u8]) -> usize {
    name.iter().take_while(|byte| **byte == b'_').count()
}

/// Cuts overlapping symbols into disjoint spans: each address goes to the symbol that starts
/// last among those covering it, and among equals to the last in order.
fn flatten(entries: &[SymbolEntry], wanted: impl Fn(&SymbolEntry) -> bool) -> Vec<SymbolSpan> {
    let mut cut = SpanFlattener::default();
    for (index, entry) in entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| wanted(entry))
    {
        cut.advance(entry.address);
        cut.open
            .push((entry.address.saturating_add(entry.size), index));
    }
    cut.advance(u64::MAX);
    cut.spans
}

#[derive(Default)]
struct SpanFlattener {
    /// (end, entry) of the symbols that cover `position`, the innermost last; ended ones may remain
    /// below.
    open: Vec<(u64, usize)>,
    position: u64,
    spans: Vec<SymbolSpan>,
}

impl SpanFlattener {
    fn advance(&mut self, to: u64) {
        while let Some((end, entry)) = self.open.last().copied() {
            let until = end.min(to);
            if self.position < until {
                self.spans.push(SymbolSpan {
                    start: self.position,
                    end: until,
                    entry,
                });
                self.position = until;
            }
            if end > to {
                break;
            }
            self.open.pop();
        }
        self.position = to;
    }
}

/// A symbol without a size extends to the next symbol of any kind, but neither into another entry
/// of the unwind tables nor out of its section.
fn unsized_spans(
    entries: &[SymbolEntry],
    SymbolCollection {
        code,
        entry_starts: begins,
        ..
    }: &SymbolCollection,
) -> Vec<SymbolSpan> {
    let mut spans = Vec::new();
    for (index, group) in groups(entries) {
        let Some(best) = group.iter().rposition(|entry| entry.size == 0) else {
            continue;
        };
        let Some(start) = group.first().map(|entry| entry.address) else {
            continue;
        };
        let next = entries
            .get(index + group.len())
            .map_or(u64::MAX, |entry| entry.address);
        let after = begins.partition_point(|begin| *begin <= start);
        let entry = begins.get(after).copied().unwrap_or(u64::MAX);
        let before = code.partition_point(|range| range.start <= start);
        let section = before.checked_sub(1).and_then(|at| code.get(at));
        let Some(section) = section.filter(|range| range.contains(&start)) else {
            continue;
        };
        spans.push(SymbolSpan {
            start,
            end: next.min(section.end).min(entry),
            entry: index + best,
        });
    }
    spans
}

/// Runs of entries with one address, each with the index of its first entry.
fn groups(entries: &[SymbolEntry]) -> impl Iterator<Item = (usize, &[SymbolEntry])> {
    let mut index = 0;
    entries
        .chunk_by(|a, b| a.address == b.address)
        .map(move |group| {
            let first = index;
            index += group.len();
            (first, group)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symbols written as `name start size kind`, with `F` or `N` for the type and `g`, `w` or
    /// `l` for the binding; all in one section from 0x10 to 0x100.
    fn symbols(text: &str) -> Symbols {
        let mut names = vec![0];
        let entry = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            let name = u32::try_from(names.len()).unwrap();
            names.extend(fields[0].as_bytes());
            names.push(0);
            SymbolEntry {
                address: number(fields[1]),
                size: number(fields[2]),
                name,
                table: 0,
                is_function: fields[3].starts_with('F'),
                binding: match fields[3].as_bytes()[1] {
                    b'g' => Binding::Global,
                    b'w' => Binding::Weak,
                    _ => Binding::Local,
                },
            }
        };
        let entries = text.lines().map(entry).collect();
        let found = SymbolCollection {
            entries,
            tables: vec![SymbolStrings {
                strings: 0..names.len() as u64,
                image: Arc::new(ImageBytes::from(names)),
                suffix: "",
            }],
            problems: Vec::new(),
            code: std::iter::once(0x10..0x100).collect(),
            entry_starts: vec![0x30, 0x80],
        };
        Symbols::from_collected(found, Preference::default())
    }

    fn check(text: &str, expected: &[(u64, &str)]) {
        let symbols = symbols(text);
        for (addr, name) in expected {
            let found = symbols.lookup(Vaddr(*addr));
            let found = found.as_ref().map_or("-", |symbol| &symbol.name);
            assert_eq!(found, *name, "at {addr:#x} of\n{text}");
        }
    }

    #[test]
    fn a_gap_belongs_to_nobody() {
        check(
            "a 10 8 Fg\nb 20 8 Fg",
            &[
                (0xf, "-"),
                (0x10, "a"),
                (0x17, "a"),
                (0x18, "-"),
                (0x20, "b"),
                (0x28, "-"),
            ],
        );
    }

    #[test]
    fn the_innermost_function_and_then_the_outer_one_again() {
        check(
            "outer 10 40 Fg\ninner 20 10 Fl\nlast 28 4 Fl",
            &[
                (0x1f, "outer"),
                (0x20, "inner"),
                (0x28, "last"),
                (0x2c, "inner"),
                (0x30, "outer"),
            ],
        );
    }

    #[test]
    fn a_label_does_not_split_a_function() {
        check(
            "f 10 20 Fl\nlabel 18 0 Ng\nsized 1c 10 Ng",
            &[(0x18, "f"), (0x1c, "f"), (0x2f, "f"), (0x30, "-")],
        );
        check(
            "f 10 10 Fl\nsized 1c 10 Ng",
            &[(0x1f, "f"), (0x20, "sized"), (0x2c, "-")],
        );
    }

    #[test]
    fn the_preferred_name_of_one_address() {
        check("a 10 8 Fl\nb 10 8 Fw\nc 10 8 Fg", &[(0x10, "c")]);
        check("__a 10 8 Fg\na 10 8 Fg\n_a 10 8 Fg", &[(0x10, "a")]);
        check(
            "short 10 4 Fg\nlong 10 8 Fl",
            &[(0x13, "short"), (0x14, "long")],
        );
        check("n 10 0 Ng\nf 10 0 Fl", &[(0x10, "n")]);
        check("b 10 8 Fg\na 10 8 Fg", &[(0x10, "a")]);
    }

    #[test]
    fn without_a_size_until_the_next_symbol_or_the_end_of_the_section() {
        check(
            "start 10 0 Ng\nf 20 8 Fg\nend f0 0 Ng\noutside 110 0 Ng",
            &[
                (0x1f, "start"),
                (0x28, "-"),
                (0xff, "end"),
                (0x100, "-"),
                (0x110, "-"),
            ],
        );
    }

    #[test]
    fn without_a_size_until_the_next_entry_of_the_unwind_table() {
        check(
            "a 28 0 Ng\nb 30 0 Fg\nc f0 0 Ng",
            &[
                (0x2f, "a"),
                (0x30, "b"),
                (0x7f, "b"),
                (0x80, "-"),
                (0xff, "c"),
            ],
        );
    }

    #[test]
    fn sizes_that_lie() {
        check(
            "all 10 ffffffffffffffff Fg\nf 20 8 Fg",
            &[
                (0x1f, "all"),
                (0x20, "f"),
                (0x28, "all"),
                (u64::MAX - 1, "all"),
            ],
        );
    }

    #[test]
    fn duplicates_are_listed_once() {
        let symbols = symbols("a 10 8 Fg\na 10 8 Fg\na 20 8 Fg");
        assert_eq!(symbols.len(), 2);
        assert_eq!(symbols.named("a").count(), 2);
        assert_eq!(symbols.named("b").count(), 0);
    }
}
