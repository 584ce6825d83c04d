//! A dictionary: a header, and its parts.

use std::borrow::Cow;
use std::ops::Range;

use crate::bytes::{self, Endian, size, wide};
use crate::elf::ElfStrings;
use crate::error::CtfError;
use crate::header::{DictHeader, Flags};
use crate::record::Records;

/// The maximum ratio of deflate (RFC 1951: a length of 258 takes at least two bits).
const MAX_INFLATE_RATIO: u64 = 1032;

/// libctf's text for a name that cannot be found.
pub const UNKNOWN_NAME: &str = "(?)";

/// One dictionary. Its bytes are borrowed, unless they were compressed.
#[derive(Debug, Clone)]
pub struct Dict<'a> {
    header: DictHeader,
    /// The offset of the dictionary in the section.
    base: u64,
    /// The bytes behind the header.
    body: Cow<'a, [u8]>,
    /// The strings of `.dynstr`.
    dynstr: &'a [u8],
}

/// A label: the types up to an id belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DictLabel<'a> {
    /// Its name.
    pub(crate) name: Cow<'a, str>,
    /// The last type of the label.
    pub(crate) last: u32,
}

/// An entry of a symbol or name table with a type; neither is looked up yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TypedName {
    /// Its offset in the section.
    pub(crate) offset: u64,
    pub(crate) name: u32,
    pub(crate) id: u32,
}

impl<'a> Dict<'a> {
    /// Reads a dictionary's header, decompresses the rest if necessary, and checks that its parts
    /// exist. Allocates only for decompression. `base` is the offset of `bytes` in their section;
    /// `strings` are those of the ELF file.
    ///
    /// # Errors
    ///
    /// The bytes are not a dictionary of a known version, its parts do not match the header, or it
    /// cannot be decompressed.
    pub fn parse(
        bytes: &'a [u8],
        base: u64,
        strings: ElfStrings<'a>,
    ) -> Result<Dict<'a>, CtfError> {
        let header = DictHeader::parse(bytes, base)?;
        let start = header.version.header_size();
        let stored = bytes.get(start..).unwrap_or_default();
        let offset = base.saturating_add(wide(start));
        let body = if header.flags.has(Flags::COMPRESSED) {
            Cow::Owned(decompressed(stored, header.body_size(), offset)?)
        } else {
            Cow::Borrowed(stored)
        };
        let dict = Dict {
            dynstr: strings.dynstr,
            header,
            base,
            body,
        };
        dict.check()?;
        Ok(dict)
    }

    fn check(&self) -> Result<(), CtfError> {
        let end = self.header.body_size();
        if self.body.len() < end {
            return Err(CtfError::Truncated {
                what: "CTF dictionary",
                offset: self.base,
                needed: wide(end),
                end: self.offset(self.body.len()),
            });
        }
        Ok(())
    }

    /// Whether it is a child of another dictionary.
    #[must_use]
    pub fn is_child(&self) -> bool {
        self.header.is_child()
    }

    /// The header.
    #[must_use]
    pub(crate) fn header(&self) -> &DictHeader {
        &self.header
    }

    /// The offset of the dictionary in the section, in bytes.
    #[must_use]
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// The offset in the section of a position behind the header.
    pub(crate) fn offset(&self, at: usize) -> u64 {
        let header = wide(self.header.version.header_size());
        self.base.saturating_add(header).saturating_add(wide(at))
    }

    /// The bytes of a part.
    pub(crate) fn part(&self, part: &Range<u32>) -> &[u8] {
        let range = size(u64::from(part.start))..size(u64::from(part.end));
        self.body.get(range).unwrap_or_default()
    }

    pub(crate) fn endian(&self) -> Endian {
        self.header.endian
    }

    /// The name of the source file.
    #[must_use]
    pub(crate) fn unit_name(&self) -> Option<Cow<'_, str>> {
        self.header_name(self.header.unit_name)
    }

    /// The name of a child's parent.
    #[must_use]
    pub fn parent_name(&self) -> Option<Cow<'_, str>> {
        self.header_name(self.header.parent_name)
    }

    /// The parent's label for a child.
    #[must_use]
    pub(crate) fn parent_label(&self) -> Option<Cow<'_, str>> {
        self.header_name(self.header.parent_label)
    }

    fn header_name(&self, name: u32) -> Option<Cow<'_, str>> {
        (name != 0).then(|| {
            self.name(name, "header", self.base)
                .unwrap_or(UNKNOWN_NAME.into())
        })
    }

    /// The name at a reference: bit 31 selects the ELF file's string table. That can only be
    /// `.dynstr`, since other tools write `.strtab` anew. Invalid UTF-8 in it is replaced.
    pub(crate) fn name(
        &self,
        name: u32,
        what: &'static str,
        offset: u64,
    ) -> Result<Cow<'_, str>, CtfError> {
        const EXTERNAL: u32 = 1 << 31;
        let (table, bytes) = match name & EXTERNAL {
            0 => ("dictionary's", self.part(&self.header.strings)),
            _ if self.header.flags.has(Flags::DYNSTR) => ("ELF file's", self.dynstr),
            _ => return Err(CtfError::StrtabNames { offset: self.base }),
        };
        let at = name & !EXTERNAL;
        let rest = bytes.get(size(u64::from(at))..);
        // A missing name is the empty string, even if the table is empty.
        let rest = if name == 0 { rest.or(Some(&[0])) } else { rest };
        match rest.and_then(bytes::name) {
            Some(name) => Ok(name),
            None => Err(CtfError::Name {
                what,
                offset,
                name: at,
                table,
                size: wide(bytes.len()),
            }),
        }
    }

    /// The types, in the order of their ids.
    #[must_use]
    pub(crate) fn records(&self) -> Records<'_> {
        Records::new(self)
    }

    /// The labels. An error concerns one label, and the others follow.
    pub(crate) fn labels(&self) -> impl Iterator<Item = Result<DictLabel<'_>, CtfError>> {
        self.pairs(&self.header.labels).map(|entry| {
            Ok(DictLabel {
                name: self.name(entry.name, "label", entry.offset)?,
                last: entry.id,
            })
        })
    }

    /// The entries of a part with names and ids.
    pub(crate) fn pairs(&self, part: &Range<u32>) -> impl Iterator<Item = TypedName> {
        let start = size(u64::from(part.start));
        let endian = self.endian();
        self.part(part)
            .chunks_exact(8)
            .enumerate()
            .map(move |(index, bytes)| TypedName {
                offset: self.offset(start.saturating_add(index.saturating_mul(8))),
                name: endian.u32(bytes, 0).unwrap_or(0),
                id: endian.u32(bytes, 4).unwrap_or(0),
            })
    }

    /// All strings of the dictionary's own table, each with its offset there. Names may also begin
    /// in the middle of one.
    pub(crate) fn strings(&self) -> impl Iterator<Item = (usize, Cow<'_, str>)> {
        let table = self.part(&self.header.strings);
        let table = table.strip_suffix(&[0]).unwrap_or(table);
        let mut at = 0;
        let is_empty = table.is_empty() && self.header.strings.is_empty();
        table
            .split(|byte| *byte == 0)
            .filter(move |_| !is_empty)
            .map(move |string| {
                let start = at;
                at += string.len() + 1;
                (start, String::from_utf8_lossy(string))
            })
    }
}

/// The decompressed bytes behind a header: exactly the announced size. Allocates no more memory
/// than these bytes can decompress to.
fn decompressed(stored: &[u8], announced: usize, offset: u64) -> Result<Vec<u8>, CtfError> {
    let most = wide(stored.len()).saturating_mul(MAX_INFLATE_RATIO);
    if wide(announced) > most {
        return Err(CtfError::Bomb {
            offset,
            compressed: wide(stored.len()),
            announced: wide(announced),
        });
    }
    let mut body = vec![0; announced];
    let failed = |reason: String| CtfError::Compressed { offset, reason };
    let written = libdeflater::Decompressor::new()
        .zlib_decompress(stored, &mut body)
        .map_err(|error| failed(error.to_string()))?;
    if written == announced {
        Ok(body)
    } else {
        Err(failed(format!(
            "it holds {written} bytes, and the header announces {announced}"
        )))
    }
}
