//! The header of a dictionary.

use std::ops::Range;

use crate::bytes::{Endian, size, wide};
use crate::error::CtfError;

/// The first two bytes of every dictionary, as a number in the byte order of its writer.
pub const MAGIC: u16 = 0xdff2;

/// The first two bytes of the CTF of FreeBSD, illumos and other heirs of Solaris, which is another
/// format.
pub const ILLUMOS_MAGIC: u16 = 0xcff1;

/// The format version of a dictionary. From version 2 on, the byte in the header is the version
/// plus one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CtfVersion {
    /// Byte 1: types of 16 bits, up to 1023 members, neither unit name nor symbol indexes.
    V1,
    /// Byte 2: version 3, with the boundary of version 1 between the ids of parents and children.
    V1Upgraded,
    /// Byte 3: version 3 without unit name and symbol indexes.
    V2,
    /// Byte 4: GNU tools write it.
    V3,
}

impl CtfVersion {
    /// The byte in the header.
    #[must_use]
    pub(crate) fn byte(self) -> u8 {
        match self {
            CtfVersion::V1 => 1,
            CtfVersion::V1Upgraded => 2,
            CtfVersion::V2 => 3,
            CtfVersion::V3 => 4,
        }
    }

    fn from_byte(byte: u8) -> Option<CtfVersion> {
        [
            CtfVersion::V1,
            CtfVersion::V1Upgraded,
            CtfVersion::V2,
            CtfVersion::V3,
        ]
        .into_iter()
        .find(|version| version.byte() == byte)
    }

    /// The size of the header in bytes.
    pub(crate) fn header_size(self) -> usize {
        match self {
            CtfVersion::V1 | CtfVersion::V2 => 40,
            CtfVersion::V1Upgraded | CtfVersion::V3 => 52,
        }
    }

    /// The bit that marks a child's type ids.
    pub(crate) fn child_bit(self) -> u32 {
        match self {
            CtfVersion::V1 | CtfVersion::V1Upgraded => 0x8000,
            CtfVersion::V2 | CtfVersion::V3 => 0x8000_0000,
        }
    }
}

/// The flags of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flags(pub(crate) u8);

impl Flags {
    /// The bytes behind the header are one zlib stream.
    pub(crate) const COMPRESSED: Flags = Flags(1);
    /// The function part holds a type for each symbol, like the object part.
    pub(crate) const NEW_FUNCTION_INFO: Flags = Flags(2);
    /// The symbol indexes are sorted by name.
    pub(crate) const INDEX_SORTED: Flags = Flags(4);
    /// External strings are in `.dynstr`, and symbols are those of `.dynsym`.
    pub(crate) const DYNSTR: Flags = Flags(8);

    /// Whether all these flags are set.
    #[must_use]
    pub(crate) fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// The union of two sets of flags.
    #[must_use]
    pub(crate) fn with(self, flags: Flags) -> Flags {
        Flags(self.0 | flags.0)
    }
}

/// A dictionary header. Parts are ranges of bytes behind the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DictHeader {
    /// The version.
    pub(crate) version: CtfVersion,
    /// The byte order of numbers.
    pub(crate) endian: Endian,
    /// The flags.
    pub(crate) flags: Flags,
    /// The name of the parent's label for this dictionary.
    pub(crate) parent_label: u32,
    /// The parent's name, in a child.
    pub(crate) parent_name: u32,
    /// The name of the unit (source file).
    pub(crate) unit_name: u32,
    /// Names of groups of types.
    pub(crate) labels: Range<u32>,
    /// The types of data symbols.
    pub(crate) objects: Range<u32>,
    /// The types of function symbols.
    pub(crate) functions: Range<u32>,
    /// The names of the data symbols, if their order is not that of the ELF file's symbols.
    pub(crate) object_index: Range<u32>,
    /// The names of the function symbols.
    pub(crate) function_index: Range<u32>,
    /// Other names with a type.
    pub(crate) variables: Range<u32>,
    /// The types.
    pub(crate) types: Range<u32>,
    /// The strings.
    pub(crate) strings: Range<u32>,
}

impl DictHeader {
    /// Reads a header. `base` is the offset of `bytes`, for errors.
    pub(crate) fn parse(bytes: &[u8], base: u64) -> Result<DictHeader, CtfError> {
        let truncated = |needed: usize| CtfError::Truncated {
            what: "CTF header",
            offset: base,
            needed: wide(needed),
            end: base.saturating_add(wide(bytes.len())),
        };
        let found = Endian::Little.u16(bytes, 0).unwrap_or(0);
        let endian = match (found, found.swap_bytes()) {
            (MAGIC, _) => Endian::Little,
            (_, MAGIC) => Endian::Big,
            (ILLUMOS_MAGIC, _) | (_, ILLUMOS_MAGIC) => {
                return Err(CtfError::Illumos { offset: base });
            }
            _ => {
                return Err(CtfError::Magic {
                    offset: base,
                    found,
                });
            }
        };
        let [_, _, version, flags] = *bytes.first_chunk().ok_or_else(|| truncated(4))?;
        let version = CtfVersion::from_byte(version).ok_or(CtfError::Version {
            offset: base.saturating_add(2),
            version,
        })?;
        let header_size = version.header_size();
        let fields = bytes
            .get(4..header_size)
            .ok_or_else(|| truncated(header_size))?;
        let field = |index: usize| endian.u32(fields, index * 4).unwrap_or(0);
        let header = match header_size {
            40 => DictHeader::from_fields(version, endian, Flags(flags), |index| match index {
                0 | 1 => field(index),
                2 => 0,
                3..=5 => field(index - 1),
                6 | 7 => field(5), // no indexes: they are empty, where variables begin
                _ => field(index - 3),
            }),
            _ => DictHeader::from_fields(version, endian, Flags(flags), field),
        };
        header.check(base)?;
        Ok(header)
    }

    /// Builds it from the twelve fields behind the preamble of version 3.
    fn from_fields(
        version: CtfVersion,
        endian: Endian,
        flags: Flags,
        field: impl Fn(usize) -> u32,
    ) -> DictHeader {
        DictHeader {
            version,
            endian,
            flags,
            parent_label: field(0),
            parent_name: field(1),
            unit_name: field(2),
            labels: field(3)..field(4),
            objects: field(4)..field(5),
            functions: field(5)..field(6),
            object_index: field(6)..field(7),
            function_index: field(7)..field(8),
            variables: field(8)..field(9),
            types: field(9)..field(10),
            strings: field(10)..field(10).saturating_add(field(11)),
        }
    }

    /// Checks the order of the parts. Their sizes are not known here.
    fn check(&self, base: u64) -> Result<(), CtfError> {
        for (part, range, entry) in self.parts() {
            let is_whole = range
                .end
                .checked_sub(range.start)
                .is_some_and(|size| size % entry == 0);
            if !is_whole {
                return Err(CtfError::Part {
                    offset: base,
                    part,
                    start: range.start,
                    end: range.end,
                });
            }
        }
        let indexed = [
            ("object index", &self.object_index, &self.objects),
            ("function index", &self.function_index, &self.functions),
        ];
        for (part, index, table) in indexed {
            if !index.is_empty() && index.len() != table.len() {
                return Err(CtfError::Part {
                    offset: base,
                    part,
                    start: index.start,
                    end: index.end,
                });
            }
        }
        Ok(())
    }

    /// The parts in order, each with its name and the size of its entries.
    pub(crate) fn parts(&self) -> [(&'static str, Range<u32>, u32); 8] {
        let word = if self.has_symbol_types() { 4 } else { 1 };
        let objects = if self.version == CtfVersion::V1 { 2 } else { 4 };
        [
            ("label section", self.labels.clone(), 8),
            ("data object section", self.objects.clone(), objects),
            ("function info section", self.functions.clone(), word),
            ("object index section", self.object_index.clone(), 4),
            ("function index section", self.function_index.clone(), 4),
            ("variable section", self.variables.clone(), 8),
            ("type section", self.types.clone(), 1),
            ("string section", self.strings.clone(), 1),
        ]
    }

    /// Whether the function part has a type for each symbol only. The older form repeats the
    /// function's arguments, and no tool reads it.
    #[must_use]
    pub(crate) fn has_symbol_types(&self) -> bool {
        self.version >= CtfVersion::V3 && self.flags.has(Flags::NEW_FUNCTION_INFO)
    }

    /// Whether this is the header of a child.
    #[must_use]
    pub(crate) fn is_child(&self) -> bool {
        self.parent_name != 0
    }

    /// The decompressed size of the bytes behind the header.
    #[must_use]
    pub(crate) fn body_size(&self) -> usize {
        size(u64::from(self.strings.end))
    }
}
