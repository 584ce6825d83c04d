//! Writing ELF headers in the class and byte order of a file.

use unspool_rows::arch::AddressSize;

use crate::elf::ElfFile;
use crate::header::{Phdr, Shdr};

/// Offsets of the ELF header fields that change.
pub(super) struct HeaderFields {
    pub(super) section_offset: u64,
    pub(super) program_count: u64,
    pub(super) section_count: u64,
}

/// The encoding of numbers in a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Encoding {
    address_size: AddressSize,
    little: bool,
}

impl Encoding {
    pub(super) fn from_file(file: &ElfFile) -> Encoding {
        Encoding {
            address_size: file.word(),
            little: file.is_little_endian(),
        }
    }

    /// The size of an address in bytes.
    pub(super) fn word_size(self) -> usize {
        usize::from(self.address_size.bytes())
    }

    /// The maximum address or file offset.
    pub(super) fn limit(self) -> u64 {
        match self.address_size {
            AddressSize::W32 => u64::from(u32::MAX),
            AddressSize::W64 => u64::MAX,
        }
    }

    pub(super) fn header_size(self) -> u64 {
        match self.address_size {
            AddressSize::W32 => 52,
            AddressSize::W64 => 64,
        }
    }

    pub(super) fn header_fields(self) -> HeaderFields {
        let (section_offset, program_count, section_count) = match self.address_size {
            AddressSize::W32 => (32, 44, 48),
            AddressSize::W64 => (40, 56, 60),
        };
        HeaderFields {
            section_offset,
            program_count,
            section_count,
        }
    }

    pub(super) fn program_size(self) -> u64 {
        match self.address_size {
            AddressSize::W32 => 32,
            AddressSize::W64 => 56,
        }
    }

    pub(super) fn section_size(self) -> u64 {
        match self.address_size {
            AddressSize::W32 => 40,
            AddressSize::W64 => 64,
        }
    }

    /// The last `size` bytes of a number; the others must be zero.
    pub(super) fn number(self, value: u64, size: usize) -> Vec<u8> {
        let mut bytes = value.to_le_bytes().to_vec();
        bytes.truncate(size);
        if !self.little {
            bytes.reverse();
        }
        bytes
    }

    pub(super) fn word(self, value: u64) -> Vec<u8> {
        self.number(value, self.word_size())
    }

    pub(super) fn program(self, header: &Phdr) -> Vec<u8> {
        let (kind, flags) = (
            self.number(header.kind.into(), 4),
            self.number(header.flags.into(), 4),
        );
        let place = [header.offset, header.vaddr, header.paddr];
        let sizes = [header.file_size, header.mem_size];
        let words = place.into_iter().chain(sizes);
        let words = words.flat_map(|value| self.word(value));
        let align = self.word(header.align);
        match self.address_size {
            AddressSize::W32 => kind
                .into_iter()
                .chain(words)
                .chain(flags)
                .chain(align)
                .collect(),
            AddressSize::W64 => kind
                .into_iter()
                .chain(flags)
                .chain(words)
                .chain(align)
                .collect(),
        }
    }

    pub(super) fn section(self, header: &Shdr) -> Vec<u8> {
        let half = |value: u32| self.number(value.into(), 4);
        [
            half(header.name),
            half(header.kind),
            self.word(header.flags),
            self.word(header.addr),
            self.word(header.offset),
            self.word(header.size),
            half(header.link),
            half(header.info),
            self.word(header.align),
            self.word(header.entry_size),
        ]
        .concat()
    }
}
