//! `/proc/PID/maps`: the mappings of a process (proc(5)).

use unspool_rows::RuntimeAddr;
use unspool_unwind::maps_text::{Device, MapsLine};

use crate::abi::Error;

/// The mappings listed in a text; lines of another form are skipped.
pub fn mappings(text: &[u8]) -> impl Iterator<Item = MapsLine<'_>> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(MapsLine::parse)
}

/// The mapping of an address, and the start address of its file: that of the last mapping at or
/// before it with the same file, from the file's first byte.
#[must_use]
pub fn find(text: &[u8], address: u64) -> Option<(MapsLine<'_>, u64)> {
    let mut search = MappingSearch::new(RuntimeAddr(address));
    let (mapping, base) = mappings(text).find_map(|line| Some((line, search.next(&line)?)))?;
    Some((mapping, base.ok()?))
}

/// The mapping of an address, if it has a name.
#[must_use]
pub(crate) fn named(text: &[u8], address: RuntimeAddr) -> Option<MapsLine<'_>> {
    let mapping = mappings(text).find(|line| line.contains(address))?;
    (!mapping.name.is_empty()).then_some(mapping)
}

/// A search for the mapping of an address, line by line.
#[derive(Debug)]
pub(crate) struct MappingSearch {
    address: RuntimeAddr,
    /// The last mapping from a file's first byte: its file, and its address.
    first: Option<(Device, u64, u64)>,
}

impl MappingSearch {
    /// A search before the first line.
    #[must_use]
    pub(crate) fn new(address: RuntimeAddr) -> MappingSearch {
        MappingSearch {
            address,
            first: None,
        }
    }

    /// Reads the next line. If it contains the address, returns the start of its file, or an error
    /// if that is not mapped.
    pub(crate) fn next(&mut self, line: &MapsLine<'_>) -> Option<Result<u64, Error>> {
        if line.offset == 0 {
            self.first = Some((line.device, line.inode, line.start.0));
        }
        if !line.contains(self.address) {
            return None;
        }
        let is_file = |(device, inode, _): &(Device, u64, u64)| {
            (*device, *inode) == (line.device, line.inode) && !line.name.is_empty()
        };
        let first = self.first.filter(is_file);
        Some(first.map(|(_, _, start)| start).ok_or(Error::NO_INFO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
1000-2000 r--p 00000000 fe:00 5 /usr/bin/a b
2000-4000 r-xp 00001000 fe:00 5 /usr/bin/a b
4000-5000 rw-p 00000000 00:00 0 \n\
7fff00000000-7fff00002000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
8000-9000 r-xp 00001000 fe:00 6 /usr/lib/later
";

    #[test]
    fn an_address_leads_to_its_mapping_and_file() {
        let found = |address| {
            find(TEXT, address).map(|(mapping, base)| (mapping.name, mapping.offset, base))
        };
        assert_eq!(found(0x0fff), None);
        assert_eq!(found(0x1000), Some((&b"/usr/bin/a b"[..], 0, 0x1000)));
        assert_eq!(found(0x3fff), Some((&b"/usr/bin/a b"[..], 0x1000, 0x1000)));
        // Unnamed, and without the file's start.
        assert_eq!(found(0x4000), None);
        assert_eq!(found(0x8000), None);
        let vdso = 0x7fff_0000_0000;
        assert_eq!(found(vdso + 1), Some((&b"[vdso]"[..], 0, vdso)));
    }
}
