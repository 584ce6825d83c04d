//! `/proc/PID/maps`: what a process has mapped where (proc(5)).

use alloc::vec::Vec;
use core::ops::Range;

/// A mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping<'t> {
    /// Its addresses.
    pub range: Range<u64>,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// The file, or a name in brackets, or nothing, as the kernel prints it: see [`unescape`].
    pub name: &'t [u8],
}

/// The mappings that a text lists; lines of another form are passed over.
pub fn mappings(text: &[u8]) -> impl Iterator<Item = Mapping<'_>> {
    text.split(|byte| *byte == b'\n').filter_map(mapping)
}

/// The mapping of an address, and the address where the file that it is of begins: that of the
/// last mapping before it, of the same name, from the file's first byte.
#[must_use]
pub fn find(text: &[u8], address: u64) -> Option<(Mapping<'_>, u64)> {
    let mut first: Option<Mapping<'_>> = None;
    for mapping in mappings(text) {
        if mapping.offset == 0 {
            first = Some(mapping.clone());
        }
        if mapping.range.contains(&address) {
            let first = first.filter(|first| first.name == mapping.name && !first.name.is_empty());
            return Some((mapping, first?.range.start));
        }
    }
    None
}

/// Undoes what the kernel does to names: it prints a newline as `\\012`, and nothing else.
pub fn unescape(name: &mut Vec<u8>) {
    const NEWLINE: &[u8; 4] = b"\\012";
    let mut from = 0;
    while let Some(at) = name
        .get(from..)
        .and_then(|rest| rest.windows(4).position(|bytes| bytes == NEWLINE))
    {
        from += at;
        name.splice(from..from + 4, [b'\n']);
        from += 1;
    }
}

fn mapping(line: &[u8]) -> Option<Mapping<'_>> {
    let (range, rest) = field(line);
    let (_access, rest) = field(rest);
    let (offset, rest) = field(rest);
    let (_device, rest) = field(rest);
    let (_inode, rest) = field(rest);
    let mut ends = range.splitn(2, |byte| *byte == b'-');
    let (start, end) = (hexadecimal(ends.next()?)?, hexadecimal(ends.next()?)?);
    Some(Mapping {
        range: start..end,
        offset: hexadecimal(offset)?,
        name: rest.trim_ascii_start(),
    })
}

/// What stands before the next space, and what behind it.
fn field(line: &[u8]) -> (&[u8], &[u8]) {
    let at = line.iter().position(|byte| *byte == b' ');
    let (field, rest) = line.split_at(at.unwrap_or(line.len()));
    (field, rest.get(1..).unwrap_or_default())
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
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
    fn a_name_may_have_newlines() {
        for (printed, expected) in [
            (&b""[..], &b""[..]),
            (b"/a\\012b\\0123", b"/a\nb\n3"),
            (b"\\012\\012", b"\n\n"),
            (b"/\\\\012", b"/\\\n"),
            (b"/\\01", b"/\\01"),
        ] {
            let mut name = printed.to_vec();
            unescape(&mut name);
            assert_eq!(name, expected);
        }
    }

    #[test]
    fn an_address_leads_to_its_mapping_and_file() {
        let found = |address| {
            find(TEXT, address).map(|(mapping, base)| (mapping.name, mapping.offset, base))
        };
        assert_eq!(found(0x0fff), None);
        assert_eq!(found(0x1000), Some((&b"/usr/bin/a b"[..], 0, 0x1000)));
        assert_eq!(found(0x3fff), Some((&b"/usr/bin/a b"[..], 0x1000, 0x1000)));
        // Nameless, and without its beginning.
        assert_eq!(found(0x4000), None);
        assert_eq!(found(0x8000), None);
        let vdso = 0x7fff_0000_0000;
        assert_eq!(found(vdso + 1), Some((&b"[vdso]"[..], 0, vdso)));
    }
}
