//! Names and numbers of the format, version 2, and the checks on opening a table.
//!
//! `docs/formats.md` specifies the format, with a worked example that is a test
//! (`tests/it/example.rs`). A second reader, written from that text, is compared with this crate
//! (`tests/it/independent.rs`). In short: a header, a directory, and arrays of little-endian
//! numbers, packed and unaligned.
//!
//! - Rows: `PPGS` and `PBKT` lead from 1 KiB of addresses to the *pieces* that start there (`STRT`,
//!   `PIEC`, `GAPS`), a piece to its *shape* (`SHAP`: a sequence, and distances), a sequence
//!   (`SEQS`) to row numbers, a row number (`ROWX`) to the row's encoding (`ROWS`,
//!   [`unspool_rows::encoding`]).
//! - Entries: a piece has a class (`CLAS`), which gives the personality routine (`PERS`) and
//!   whether there is an LSDA (`LSDX`, `LSDA`). Entries that do not fit this scheme are in `ODDS`.
//! - Call sites: `CPGS` and `CBKT` lead from 1 KiB of addresses to the *steps* there (`CSTP`), a
//!   step to a row number, for addresses that pass the call test ([`crate::call_test`], `EXEC`).
//!
//! Nothing in a table is trusted. Every index is checked where it is used, and a search visits a
//! bounded number of elements. So wrong bytes cost at worst a wrong answer or
//! [`crate::TableCorruption`].

use unspool_rows::arch::AddressSize;
use unspool_rows::{Abi, Arch, Endian, Vaddr};

use crate::little_endian::{u16_at, u32_at, u64_from};

/// The first bytes of a table.
pub const MAGIC: [u8; 8] = *b"unspool\0";

/// The version: written, and required when reading.
pub const VERSION: u16 = 2;

/// Bytes of a page: the unit in which pieces and steps are indexed.
pub(crate) const PAGE_BYTES: u64 = 1 << 16;

/// The limit of pages in a table: 4 GiB of address space.
pub(crate) const MAX_PAGES: u64 = 1 << 16;

/// The limit of rows in a piece.
pub(crate) const MAX_PIECE_ROWS: usize = 32;

/// The limit of sections in a table.
pub(crate) const MAX_SECTIONS: u16 = 64;

/// Bytes of the header without the directory.
pub const HEADER: usize = 64;

/// The digest's position in the header: SHA-256 of the table with zeros in its place.
pub const DIGEST: core::ops::Range<usize> = 32..64;

/// Bytes of one entry of the directory.
pub(crate) const DIRECTORY_ENTRY: usize = 16;

/// Directory flag: a reader that does not know the section must refuse the table.
pub(crate) const REQUIRED: u32 = 1;

pub(crate) const ESCAPE_CLASS: u8 = 255;
pub(crate) const ESCAPED_ENTRY_BYTES: usize = 28;
pub(crate) const NO_PERSONALITY: u16 = u16::MAX;
pub(crate) const HAS_LSDA: u16 = 1;
/// The byte of a gap that does not fit in a byte; it is listed apart.
pub const LONG_GAP: u8 = 255;
/// The byte of a distance that does not fit in a byte; two bytes with it follow.
pub const LONG_DISTANCE: u8 = 255;
pub(crate) const WIDE_SEQUENCE: u8 = 0x80;
/// Bytes of a bucket: the unit in which pieces and steps are searched.
pub(crate) const BUCKET_BYTES: u64 = 1 << 10;
pub(crate) const BUCKETS_PER_PAGE: u64 = PAGE_BYTES / BUCKET_BYTES;
pub(crate) const GRANULE_BYTES: u32 = 8;
/// The row number of a step that refers to the full table.
pub(crate) const LOOKUP_IN_TABLE: u16 = 511;
pub(crate) const LSDA_BLOCK: usize = 64;

/// The bytes of a hash of a file.
pub(crate) const CONTENT_HASH_BYTES: usize = 20;

/// The module that a table was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModuleKey<'t> {
    /// The GNU build ID of the module; empty if it has none.
    pub build_id: &'t [u8],
    /// SHA-256 of the module's file, cut to 20 bytes.
    pub content: &'t [u8; CONTENT_HASH_BYTES],
}

impl<'t> ModuleKey<'t> {
    fn parse(bytes: &'t [u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first()?;
        let (build_id, content) = rest.split_at_checked(usize::from(*length))?;
        Some(ModuleKey {
            build_id,
            content: content.try_into().ok()?,
        })
    }
}

/// Why bytes cannot be used as a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableOpenError {
    /// It does not begin with [`MAGIC`].
    #[error("not a compiled unwind table")]
    Magic,
    /// Another version.
    #[error("version {0} of compiled tables is not supported; {VERSION} is: compile it again")]
    Version(u16),
    /// The bytes end before the length in the header, or before the directory ends.
    #[error("table is truncated: {len:#x} bytes of {expected:#x}")]
    Truncated {
        /// The number of bytes.
        len: u64,
        /// The required number of bytes.
        expected: u64,
    },
    /// A field of the header has an invalid value.
    #[error("field at offset {offset:#x} of the header has the bad value {value:#x}")]
    Header {
        /// The field's offset.
        offset: u64,
        /// Its value.
        value: u64,
    },
    /// A required section is unknown, missing, repeated, or out of bounds, or its length does not
    /// fit.
    #[error("section `{}` is unknown, missing, repeated, or has a bad offset or length", tag_text(.0))]
    Section([u8; 4]),
    /// The bytes were changed since they were written; only from [`crate::check_digest`].
    #[error(
        "the table was changed or damaged since it was written: its digest does not match; compile it again"
    )]
    Digest,
}

/// The tag as text, for messages.
fn tag_text(tag: &[u8; 4]) -> &str {
    core::str::from_utf8(tag).unwrap_or("?").trim_end()
}

macro_rules! sections {
    ($($field:ident = $tag:literal $what:literal;)*) => {
        /// The sections of a table, each empty where it is absent.
        #[derive(Debug, Clone, Copy, Default)]
        pub(crate) struct TableSections<'t> {
            $(#[doc = $what] pub(crate) $field: &'t [u8],)*
        }

        impl<'t> TableSections<'t> {
            /// The section with this tag.
            fn section_mut(&mut self, tag: [u8; 4]) -> Option<&mut &'t [u8]> {
                match &tag {
                    $($tag => Some(&mut self.$field),)*
                    _ => None,
                }
            }

            /// Tags and contents, in the order of the file.
            #[cfg(feature = "alloc")]
            pub(crate) fn all(&self) -> impl Iterator<Item = ([u8; 4], &'t [u8])> {
                [$((*$tag, self.$field)),*].into_iter()
            }
        }
    };
}

sections! {
    key = b"KEY " "What the table is keyed by.";
    piece_pages = b"PPGS" "How many pieces start before each page.";
    piece_buckets = b"PBKT" "How many pieces of its page start before each bucket.";
    starts = b"STRT" "The start of each piece.";
    pieces = b"PIEC" "Gap, class and shape of each piece.";
    gaps = b"GAPS" "Long gaps.";
    shapes = b"SHAP" "Shapes.";
    sequences = b"SEQS" "Sequences of rows.";
    row_ends = b"ROWX" "The end of each row's encoding.";
    rows = b"ROWS" "Encoded rows.";
    classes = b"CLAS" "Classes.";
    personalities = b"PERS" "Personality routines.";
    lsda_index = b"LSDX" "Ranks of LSDAs.";
    lsdas = b"LSDA" "LSDAs.";
    odds = b"ODDS" "Odd entries.";
    executable = b"EXEC" "The executable code.";
    step_pages = b"CPGS" "How many steps lie before each page.";
    step_buckets = b"CBKT" "How many steps of its page lie before each bucket.";
    steps = b"CSTP" "Call-site steps.";
    synthesized = b"SYNT" "The version of the synthesis, if it made the rows.";
}

/// The call instructions of the call test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallForm {
    /// The table has no call-site part.
    None,
    /// x86 and x86-64.
    X86,
    /// AArch64.
    Aarch64,
}

impl CallForm {
    /// Its number in the header.
    #[cfg(feature = "alloc")]
    pub(crate) const fn code(self) -> u8 {
        match self {
            CallForm::None => 0,
            CallForm::X86 => 1,
            CallForm::Aarch64 => 2,
        }
    }

    /// The test for an architecture.
    pub(crate) const fn from_arch(arch: Arch) -> Self {
        match arch {
            Arch::X86_64 | Arch::I386 => CallForm::X86,
            Arch::Aarch64 => CallForm::Aarch64,
            _ => CallForm::None,
        }
    }
}

/// The sizes of a table's refs in bytes, 2 to 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefWidths {
    /// A ref of a shape.
    pub shape: usize,
    /// A ref of a sequence.
    pub sequence: usize,
    /// A ref of a row.
    pub row: usize,
}

/// The header's fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableHeader {
    pub(crate) abi: Abi,
    pub(crate) call_form: CallForm,
    pub(crate) shape_width: usize,
    pub(crate) sequence_width: usize,
    pub(crate) row_width: usize,
    pub(crate) base: Vaddr,
}

/// Whether a table is bit for bit as written, including bytes that look-ups do not read: its header
/// has the digest. Reads the whole table, unlike opening.
///
/// # Errors
///
/// [`TableOpenError::Digest`], or that of a header that does not give the table's end.
#[cfg(feature = "alloc")]
pub fn check_digest(bytes: &[u8]) -> Result<(), TableOpenError> {
    let (head, table) = start(bytes)?;
    if head.get(DIGEST) == Some(&digest(table)) {
        Ok(())
    } else {
        Err(TableOpenError::Digest)
    }
}

/// SHA-256 of a table, with zeros in place of the header's digest.
#[cfg(feature = "alloc")]
pub(crate) fn digest(table: &[u8]) -> [u8; 32] {
    use sha2::{Digest as _, Sha256};
    let mut digest = Sha256::new();
    digest.update(table.get(..DIGEST.start).unwrap_or_default());
    digest.update([0; 32]);
    digest.update(table.get(DIGEST.end..).unwrap_or_default());
    digest.finalize().into()
}

/// The header of a table, and the whole table.
fn start(bytes: &[u8]) -> Result<(&[u8; HEADER], &[u8]), TableOpenError> {
    if bytes.first_chunk::<8>() != Some(&MAGIC) {
        return Err(TableOpenError::Magic);
    }
    let len = bytes.len() as u64;
    let truncated = |expected: u64| TableOpenError::Truncated { len, expected };
    // Of another version, nothing after it is known, not even the header's length.
    let version = u16_at(bytes, 4).ok_or(truncated(HEADER as u64))?;
    if version != VERSION {
        return Err(TableOpenError::Version(version));
    }
    let head: &[u8; HEADER] = bytes.first_chunk().ok_or(truncated(HEADER as u64))?;
    let total = u32_at(head, 6).unwrap_or_default();
    let table = usize::try_from(total)
        .ok()
        .and_then(|total| bytes.get(..total))
        .ok_or(truncated(u64::from(total)))?;
    Ok((head, table))
}

/// Reads and checks header and directory. Takes constant time.
pub(crate) fn open(
    bytes: &[u8],
) -> Result<(TableHeader, TableSections<'_>, ModuleKey<'_>), TableOpenError> {
    let (head, table) = start(bytes)?;
    let header = header(head)?;
    let sections = directory(table, u16_at(head, 14).unwrap_or_default())?;
    check_lengths(&header, &sections)?;
    let key = ModuleKey::parse(sections.key).ok_or(TableOpenError::Section(*b"KEY "))?;
    Ok((header, sections, key))
}

fn header(head: &[u8; HEADER]) -> Result<TableHeader, TableOpenError> {
    let byte = |offset: usize| head.get(offset).copied().unwrap_or_default();
    let bad = |offset: usize| TableOpenError::Header {
        offset: offset as u64,
        value: u64::from(byte(offset)),
    };
    let word = match byte(12) {
        4 => AddressSize::W32,
        8 => AddressSize::W64,
        _ => return Err(bad(12)),
    };
    let endian = match byte(13) {
        1 => Endian::Little,
        2 => Endian::Big,
        _ => return Err(bad(13)),
    };
    let call_form = match byte(14) {
        0 => CallForm::None,
        1 => CallForm::X86,
        2 => CallForm::Aarch64,
        _ => return Err(bad(14)),
    };
    let width = |offset: usize| match byte(offset) {
        width @ 2..=4 => Ok(usize::from(width)),
        _ => Err(bad(offset)),
    };
    let (shape_width, sequence_width, row_width) = (width(15)?, width(30)?, width(31)?);
    let base = u64_from(head, 16).unwrap_or_default();
    if !base.is_multiple_of(PAGE_BYTES) {
        return Err(TableOpenError::Header {
            offset: 16,
            value: base,
        });
    }
    let arch = Arch::from_elf(u16_at(head, 5).unwrap_or_default(), word);
    Ok(TableHeader {
        abi: Abi { arch, endian },
        call_form,
        shape_width,
        sequence_width,
        row_width,
        base: Vaddr(base),
    })
}

fn directory(table: &[u8], count: u16) -> Result<TableSections<'_>, TableOpenError> {
    if count > MAX_SECTIONS {
        return Err(TableOpenError::Header {
            offset: 28,
            value: u64::from(count),
        });
    }
    let mut sections = TableSections::default();
    for index in 0..usize::from(count) {
        let at = HEADER + index * DIRECTORY_ENTRY;
        let entry = table
            .get(at..)
            .and_then(|rest| rest.first_chunk::<DIRECTORY_ENTRY>());
        let entry = entry.ok_or(TableOpenError::Truncated {
            len: table.len() as u64,
            expected: (at + DIRECTORY_ENTRY) as u64,
        })?;
        let tag = *entry.first_chunk::<4>().unwrap_or(&[0; 4]);
        let field = |n: usize| u32_at(entry, n).unwrap_or_default();
        let place = usize::try_from(field(2))
            .ok()
            .zip(usize::try_from(field(3)).ok());
        let content = place
            .and_then(|(offset, len)| table.get(offset..)?.get(..len))
            .ok_or(TableOpenError::Section(tag))?;
        let is_tag_at = |n: usize| {
            let before = table.get(HEADER + n * DIRECTORY_ENTRY..);
            before.and_then(|before| before.first_chunk::<4>()) == Some(&tag)
        };
        match sections.section_mut(tag) {
            Some(_) if (0..index).any(is_tag_at) => return Err(TableOpenError::Section(tag)),
            Some(section) => *section = content,
            None if field(1) & REQUIRED != 0 => return Err(TableOpenError::Section(tag)),
            None => {}
        }
    }
    Ok(sections)
}

/// A section's range in a table that [`crate::CompiledTable::open`] accepts, in bytes from the
/// table's start. `None` if the section is absent. For readers in other languages.
#[must_use]
pub fn section(table: &[u8], tag: [u8; 4]) -> Option<core::ops::Range<usize>> {
    let directory = table.get(HEADER..)?.chunks_exact(DIRECTORY_ENTRY);
    let mut entries = directory.take(u16_at(table, 14)?.into());
    let entry = entries.find(|entry| entry.first_chunk() == Some(&tag))?;
    let start = usize::try_from(u32_at(entry, 2)?).ok()?;
    let size = usize::try_from(u32_at(entry, 3)?).ok()?;
    Some(start..start.checked_add(size)?)
}

/// Parallel arrays must be equally long, and pages must lie in the address space.
fn check_lengths(header: &TableHeader, sections: &TableSections<'_>) -> Result<(), TableOpenError> {
    let pieces = sections.starts.len() / 2;
    if sections.pieces.len() != pieces * (2 + header.shape_width) {
        return Err(TableOpenError::Section(*b"PIEC"));
    }
    if sections.lsda_index.len() != pieces.div_ceil(LSDA_BLOCK) * 4 {
        return Err(TableOpenError::Section(*b"LSDX"));
    }
    let pages = page_count(
        sections.piece_pages,
        *b"PPGS",
        sections.piece_buckets,
        *b"PBKT",
    )?;
    let last_page = pages.saturating_sub(1) * PAGE_BYTES;
    if header.base.0.checked_add(last_page).is_none() {
        return Err(TableOpenError::Section(*b"PPGS"));
    }
    page_count(
        sections.step_pages,
        *b"CPGS",
        sections.step_buckets,
        *b"CBKT",
    )?;
    Ok(())
}

/// The pages of an index. Each has all of its buckets: more would belong to a page past the last.
fn page_count(
    pages: &[u8],
    pages_tag: [u8; 4],
    buckets: &[u8],
    buckets_tag: [u8; 4],
) -> Result<u64, TableOpenError> {
    let count = (pages.len() / 4).saturating_sub(1) as u64;
    if count > MAX_PAGES {
        return Err(TableOpenError::Section(pages_tag));
    }
    if buckets.len() as u64 != count * (BUCKETS_PER_PAGE + 1) * 2 {
        return Err(TableOpenError::Section(buckets_tag));
    }
    Ok(count)
}
