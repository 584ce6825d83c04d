//! ELF notes: name, type and descriptor, one after the other (gABI, "Note Section"). Linux
//! writes 4-byte sizes in ELF64 too.

/// One note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ElfNote<'a> {
    /// The note's offset, in bytes from the start of the notes.
    pub(crate) offset: u64,
    /// The name, without its final zero.
    pub(crate) name: &'a [u8],
    /// The type, which depends on the name.
    pub(crate) kind: u32,
    /// The descriptor.
    pub(crate) desc: &'a [u8],
}

/// A note that extends past the end of the notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TruncatedNote {
    /// The note's offset, in bytes from the start of the notes.
    pub(crate) offset: u64,
    /// The type, if its header is complete.
    pub(crate) kind: Option<u32>,
    /// The bytes that the note needs.
    pub(crate) size: u64,
}

/// Iterates over notes; ends after the first truncated one.
#[derive(Debug)]
pub(crate) struct ElfNotes<'a> {
    bytes: &'a [u8],
    at: usize,
    align: usize,
}

const HEADER: usize = 12;

impl<'a> ElfNotes<'a> {
    /// `align` is the segment's `p_align`: 8 for 8-byte alignment, any other value means 4.
    pub(crate) fn new(bytes: &'a [u8], align: u64) -> ElfNotes<'a> {
        let align = if align == 8 { 8 } else { 4 };
        ElfNotes {
            bytes,
            at: 0,
            align,
        }
    }

    fn read(&mut self) -> Result<ElfNote<'a>, TruncatedNote> {
        let offset = u64::try_from(self.at).unwrap_or(u64::MAX);
        let bytes = self.bytes.get(self.at..).unwrap_or(&[]);
        let cut_header = TruncatedNote {
            offset,
            kind: None,
            size: 12,
        };
        let [name_size, desc_size, kind] = header(bytes).ok_or(cut_header)?;
        let name_end = HEADER.saturating_add(size(name_size));
        let desc_start = name_end.saturating_add(self.align - 1) / self.align * self.align;
        let desc_end = desc_start.saturating_add(size(desc_size));
        let cut = TruncatedNote {
            offset,
            kind: Some(kind),
            size: u64::try_from(desc_end).unwrap_or(0),
        };
        let name = bytes.get(HEADER..name_end).ok_or(cut)?;
        let desc = bytes.get(desc_start..desc_end).ok_or(cut)?;
        let next = desc_end.saturating_add(self.align - 1) / self.align * self.align;
        self.at = self.at.saturating_add(next);
        Ok(ElfNote {
            offset,
            name: name.strip_suffix(&[0]).unwrap_or(name),
            kind,
            desc,
        })
    }
}

impl<'a> Iterator for ElfNotes<'a> {
    type Item = Result<ElfNote<'a>, TruncatedNote>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let note = self.read();
        if note.is_err() {
            self.at = self.bytes.len();
        }
        Some(note)
    }
}

fn header(bytes: &[u8]) -> Option<[u32; 3]> {
    let (words, _) = bytes.get(..HEADER)?.as_chunks::<4>();
    let [name_size, desc_size, kind] = words else {
        return None;
    };
    Some([*name_size, *desc_size, *kind].map(u32::from_le_bytes))
}

fn size(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn note(name: &[u8], kind: u32, desc: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in [name.len(), desc.len()] {
            bytes.extend(u32::try_from(field).unwrap().to_le_bytes());
        }
        bytes.extend(kind.to_le_bytes());
        for part in [name, desc] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn notes_follow_each_other_with_padding() {
        let bytes = [note(b"CORE\0", 1, b"abcde"), note(b"GNU\0", 3, b"")].concat();
        let found: Vec<_> = ElfNotes::new(&bytes, 4).map(Result::unwrap).collect();
        assert_eq!(
            (found[0].name, found[0].kind, found[0].desc),
            (&b"CORE"[..], 1, &b"abcde"[..])
        );
        assert_eq!(
            (found[1].name, found[1].kind, found[1].desc),
            (&b"GNU"[..], 3, &b""[..])
        );
    }

    #[test]
    fn every_cut_is_an_error_that_ends_the_walk() {
        let bytes = note(b"CORE\0", 1, b"abcd");
        for end in 1..bytes.len() {
            let found: Vec<_> = ElfNotes::new(&bytes[..end], 4).collect();
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].unwrap_err().offset, 0);
        }
    }

    #[test]
    fn greatest_sizes_do_not_overflow() {
        let bytes = [0xff; 64];
        assert!(ElfNotes::new(&bytes, 4).next().unwrap().is_err());
    }
}
