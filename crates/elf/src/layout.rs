//! Section addresses: assigning them in a relocatable file, and finding the section at an address.

use object::elf;
use unspool_rows::arch::AddressSize;

use crate::elf::is_string_at;
use crate::header::Shdr;

/// Addresses stay below this in 64-bit files, so that sums of two never wrap.
const MAX_ADDRESS_64: u64 = 1 << 47;
/// The gap before undefined symbols: large enough that no pc is taken for one of them.
const PAGE_BYTES: u64 = 4096;

/// Gives every allocated section its address: `.text` first at 0, then the others in order. If a
/// loader has placed sections, they keep their addresses, and the others are not loaded. A section
/// that does not fit (its header is wrong) or is not loaded loses `SHF_ALLOC`. Returns the first
/// unused address after all sections.
pub(crate) fn assign_addresses(
    sections: &mut [Shdr],
    names: &[u8],
    address_size: AddressSize,
) -> u64 {
    let limit = match address_size {
        AddressSize::W32 => address_size.mask(),
        AddressSize::W64 => MAX_ADDRESS_64,
    };
    let mut next = 0;
    if sections.iter().any(|s| s.is_allocated() && s.addr != 0) {
        for section in sections.iter_mut().filter(|s| s.is_allocated()) {
            let end = section.addr.checked_add(section.size);
            match end.filter(|end| section.addr != 0 && *end <= limit) {
                Some(end) => next = next.max(end),
                None => section.flags &= !elf::SHF_ALLOC.0,
            }
        }
        return after(next);
    }
    let is_text = |s: &Shdr| is_string_at(names, s.name, b".text");
    if let Some(text) = sections.iter_mut().find(|s| s.is_allocated() && is_text(s)) {
        next = place_one(text, next, limit);
    }
    let mut text_seen = false;
    for section in sections.iter_mut().filter(|s| s.is_allocated()) {
        if !text_seen && is_text(section) {
            text_seen = true;
        } else {
            next = place_one(section, next, limit);
        }
    }
    after(next)
}

/// The first address for undefined symbols.
fn after(sections: u64) -> u64 {
    let end = sections.checked_next_multiple_of(PAGE_BYTES);
    end.unwrap_or(sections).saturating_add(PAGE_BYTES)
}

fn place_one(section: &mut Shdr, next: u64, limit: u64) -> u64 {
    let start = next.checked_next_multiple_of(section.align.max(1));
    let end = start.and_then(|start| start.checked_add(section.size));
    match (start, end) {
        (Some(start), Some(end)) if end <= limit => {
            section.addr = start;
            end
        }
        _ => {
            section.flags &= !elf::SHF_ALLOC.0;
            next
        }
    }
}

/// The allocated sections, sorted by address.
#[derive(Debug, Default)]
pub(crate) struct AddressIndex(Vec<SectionRange>);

#[derive(Debug, Clone, Copy)]
struct SectionRange {
    start: u64,
    end: u64,
    section: usize,
}

impl AddressIndex {
    pub(crate) fn new(sections: &[Shdr]) -> AddressIndex {
        let placed = |(section, header): (usize, &Shdr)| {
            let end = header.addr.checked_add(header.size)?;
            (header.is_allocated() && header.size > 0).then_some(SectionRange {
                start: header.addr,
                end,
                section,
            })
        };
        let mut all: Vec<SectionRange> = sections.iter().enumerate().filter_map(placed).collect();
        all.sort_by_key(|placed| placed.start);
        AddressIndex(all)
    }

    /// The index of the section that contains `addr`.
    pub(crate) fn find(&self, addr: u64) -> Option<usize> {
        let after = self.0.partition_point(|placed| placed.start <= addr);
        let placed = self.0.get(after.checked_sub(1)?)?;
        (addr < placed.end).then_some(placed.section)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(name: u32, size: u64, align: u64) -> Shdr {
        Shdr {
            name,
            kind: elf::SHT_PROGBITS.0,
            flags: elf::SHF_ALLOC.0,
            addr: 0,
            offset: 0,
            size,
            link: 0,
            info: 0,
            align,
            entry_size: 0,
        }
    }

    #[test]
    fn text_is_first_and_the_rest_follows_aligned() {
        let names = b"\0.text\0.other\0";
        let mut sections = [section(7, 3, 1), section(1, 5, 16), section(7, 1, 8)];
        let externals = assign_addresses(&mut sections, names, AddressSize::W64);
        assert_eq!(sections.map(|s| s.addr), [5, 0, 8]);
        assert_eq!(externals, 8192);
        let index = AddressIndex::new(&sections);
        let found: Vec<_> = [4, 5, 7, 8, 9].map(|addr| index.find(addr)).to_vec();
        assert_eq!(found, [Some(1), Some(0), Some(0), Some(2), None]);
    }

    #[test]
    fn a_section_that_lies_about_its_size_is_left_out() {
        let mut sections = [
            section(0, u64::MAX, 1),
            section(0, 4, u64::MAX),
            section(0, 4, 4),
        ];
        assign_addresses(&mut sections, b"\0", AddressSize::W64);
        assert_eq!(sections.map(|s| s.is_allocated()), [false, true, true]);
        assert_eq!(sections[2].addr, 4);
    }

    /// As in the object files that LLVM's JIT compilers register with debuggers.
    #[test]
    fn placed_sections_keep_their_addresses() {
        let names = b"\0.text\0.other\0";
        let mut sections = [section(1, 5, 16), section(7, 3, 1), section(7, 9, 1)];
        sections[0].addr = 0x7000;
        sections[2].addr = u64::MAX - 4;
        let externals = assign_addresses(&mut sections, names, AddressSize::W64);
        let allocated = sections.each_ref().map(Shdr::is_allocated);
        assert_eq!((allocated, externals), ([true, false, false], 0x9000));
        assert_eq!(sections[0].addr, 0x7000);
    }
}
