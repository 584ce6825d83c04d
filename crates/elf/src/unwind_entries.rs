//! Function ranges from the entries of unwind tables, for functions without symbols.

use std::ops::Range;

use gimli::{
    BaseAddresses, CieOrFde, DebugFrame, EhFrame, EndianSlice, RunTimeEndian, UnwindSection,
};
use unspool_rows::Vaddr;

use crate::elf::ElfFile;
use crate::section::Section;

/// The ranges that the entries of a linked file's unwind tables cover.
///
/// Looks entries up in `.eh_frame_hdr`; if that is missing or cannot be searched, and for
/// `.debug_frame`, all entries are read once.
pub struct UnwindEntries<'a> {
    table: Option<SearchTable<'a>>,
    /// Sorted by start.
    list: Vec<Range<u64>>,
}

/// The pairs of `.eh_frame_hdr` (LSB Core §10.6.2), in the encoding that linkers use.
struct SearchTable<'a> {
    /// The base of its pointers.
    base: u64,
    pairs: &'a [[u8; 8]],
    is_little_endian: bool,
    entries: EhFrame<EndianSlice<'a, RunTimeEndian>>,
    bases: BaseAddresses,
}

impl<'a> UnwindEntries<'a> {
    /// The entries of a file. None if it is not linked, or its tables cannot be read.
    #[must_use]
    pub fn new(file: &'a ElfFile) -> UnwindEntries<'a> {
        if file.is_relocatable() {
            return UnwindEntries {
                table: None,
                list: Vec::new(),
            };
        }
        let mut list = Vec::new();
        let table = SearchTable::new(file);
        if table.is_none() {
            for section in file.eh_frames().unwrap_or_default() {
                let entries = EhFrame::new(section.data, file.gimli_endian());
                add_entries(&mut list, &entries, &bases(file, &section));
            }
        }
        for section in file.debug_frames().unwrap_or_default() {
            let mut entries = DebugFrame::new(section.data, file.gimli_endian());
            entries.set_address_size(file.word().bytes());
            add_entries(&mut list, &entries, &bases(file, &section));
        }
        list.sort_by_key(|range| (range.start, range.end));
        UnwindEntries { table, list }
    }

    /// The range of the entry that covers an address.
    #[must_use]
    pub fn covering(&self, addr: Vaddr) -> Option<Range<Vaddr>> {
        let listed = || {
            let after = self.list.partition_point(|range| range.start <= addr.0);
            self.list.get(after.checked_sub(1)?).cloned()
        };
        let found = self.table.as_ref().and_then(|table| table.covering(addr.0));
        let range = found.or_else(|| listed().filter(|range| range.contains(&addr.0)))?;
        Some(Vaddr(range.start)..Vaddr(range.end))
    }

    /// The start of the first entry behind an address.
    #[must_use]
    pub fn next(&self, addr: Vaddr) -> Option<Vaddr> {
        let after = self.list.partition_point(|range| range.start <= addr.0);
        let listed = self.list.get(after).map(|range| range.start);
        let found = self.table.as_ref().and_then(|table| table.next(addr.0));
        [listed, found].into_iter().flatten().min().map(Vaddr)
    }
}

impl<'a> SearchTable<'a> {
    fn new(file: &'a ElfFile) -> Option<SearchTable<'a>> {
        let header = file.eh_frame_hdr().ok()??;
        let [section] = <[Section<'a>; 1]>::try_from(file.eh_frames().ok()?).ok()?;
        let is_little_endian = file.is_little_endian();
        let (head, rest) = header.data.split_first_chunk::<12>()?;
        // Version 1, a pointer of four bytes, a count of four bytes, pairs relative to the section.
        let [1, pointer, 0x03, 0x3b, ..] = *head else {
            return None;
        };
        if ![0x03, 0x0b].contains(&(pointer & 0x0f)) {
            return None;
        }
        let count = head
            .last_chunk()
            .map(|bytes| number(*bytes, is_little_endian))?;
        let (pairs, _) = rest.as_chunks::<8>();
        Some(SearchTable {
            base: header.address.0,
            pairs: pairs.get(..usize::try_from(count).ok()?)?,
            is_little_endian,
            bases: bases(file, &section).set_eh_frame_hdr(header.address.0),
            entries: EhFrame::new(section.data, file.gimli_endian()),
        })
    }

    /// The start of the code of a pair's entry, and the address of the entry.
    fn pair(&self, pair: &[u8; 8]) -> (u64, u64) {
        let (begin, entry) = pair.split_at(4);
        let address = |bytes: &[u8]| {
            let bytes = bytes.first_chunk().copied().unwrap_or_default();
            let distance = number(bytes, self.is_little_endian).cast_signed();
            self.base.wrapping_add_signed(distance.into())
        };
        (address(begin), address(entry))
    }

    fn covering(&self, addr: u64) -> Option<Range<u64>> {
        let after = self.pairs.partition_point(|pair| self.pair(pair).0 <= addr);
        let (_, entry) = self.pair(self.pairs.get(after.checked_sub(1)?)?);
        let offset = entry.checked_sub(self.bases.eh_frame.section?)?;
        let offset = gimli::EhFrameOffset(usize::try_from(offset).ok()?);
        let entry = self
            .entries
            .fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset);
        let range = range_of(&entry.ok()?);
        range.contains(&addr).then_some(range)
    }

    fn next(&self, addr: u64) -> Option<u64> {
        let after = self.pairs.partition_point(|pair| self.pair(pair).0 <= addr);
        self.pairs.get(after).map(|pair| self.pair(pair).0)
    }
}

fn number(bytes: [u8; 4], is_little_endian: bool) -> u32 {
    if is_little_endian {
        u32::from_le_bytes(bytes)
    } else {
        u32::from_be_bytes(bytes)
    }
}

fn bases(file: &ElfFile, section: &Section<'_>) -> BaseAddresses {
    let mut bases = BaseAddresses::default().set_eh_frame(section.address.0);
    if let Some(text) = file.text_base() {
        bases = bases.set_text(text.0);
    }
    if let Some(data) = file.data_base() {
        bases = bases.set_got(data.0);
    }
    bases
}

fn range_of<R: gimli::Reader>(entry: &gimli::FrameDescriptionEntry<R>) -> Range<u64> {
    entry.initial_address()..entry.initial_address().saturating_add(entry.len())
}

/// Adds the ranges of a section's entries, up to the first unreadable one.
fn add_entries<'a, S>(list: &mut Vec<Range<u64>>, section: &S, bases: &BaseAddresses)
where
    S: UnwindSection<EndianSlice<'a, RunTimeEndian>>,
{
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        if let CieOrFde::Fde(partial) = entry
            && let Ok(entry) = partial.parse(S::cie_from_offset)
        {
            list.push(range_of(&entry));
        }
    }
}

/// The name shown for a function without a symbol: its module's name, and its start, as linked.
#[must_use]
pub fn fallback_name(module: &str, begin: u64) -> String {
    format!("{module}+{begin:#x}")
}
