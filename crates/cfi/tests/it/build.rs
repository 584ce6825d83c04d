//! A builder of sections, byte by byte: it writes any input, right or wrong.

use unspool_cfi::{CfiSection, SectionKind, SectionTable, read_table};
use unspool_rows::arch::AddressSize;
use unspool_rows::leb128::{put_signed, put_unsigned};
use unspool_rows::{Abi, Arch, Endian, Vaddr};

pub(crate) const X86_64: Abi = Abi::X86_64;
pub(crate) const AARCH64: Abi = Abi {
    arch: Arch::Aarch64,
    endian: Endian::Little,
};
/// 32-bit PowerPC: ELF32, big-endian.
pub(crate) const PPC: Abi = Abi {
    arch: Arch::Other {
        machine: 20,
        address_size: AddressSize::W32,
    },
    endian: Endian::Big,
};

/// The address of the section, and the base of its pointers.
pub(crate) const ADDRESS: u64 = 0x40_2003; // odd, so that aligning has an effect
pub(crate) const TEXT: u64 = 0x40_1000;
pub(crate) const DATA: u64 = 0x40_4000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Dwarf32,
    Dwarf64,
}

#[derive(Debug, Clone)]
pub(crate) struct CieSpec {
    pub(crate) format: Format,
    pub(crate) version: u8,
    pub(crate) augmentation: &'static str,
    /// The augmentation data without its length; may be any bytes.
    pub(crate) data: Vec<u8>,
    pub(crate) address_size: u8,
    pub(crate) segment_size: u8,
    pub(crate) code_alignment: u64,
    pub(crate) data_alignment: i64,
    pub(crate) return_address: u64,
    pub(crate) instructions: Vec<u8>,
}

impl CieSpec {
    /// A CIE as gcc writes it for x86-64, without augmentation.
    pub(crate) fn plain() -> Self {
        CieSpec {
            format: Format::Dwarf32,
            version: 1,
            augmentation: "",
            data: Vec::new(),
            address_size: 8,
            segment_size: 0,
            code_alignment: 1,
            data_alignment: -8,
            return_address: 16,
            // def_cfa rsp+8, ra at cfa-8
            instructions: vec![0x0c, 7, 8, 0x90, 1],
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct SectionBuilder {
    pub(crate) kind: SectionKind,
    pub(crate) abi: Abi,
    pub(crate) bytes: Vec<u8>,
}

impl SectionBuilder {
    pub(crate) fn new(kind: SectionKind, abi: Abi) -> Self {
        let bytes = Vec::new();
        SectionBuilder { kind, abi, bytes }
    }

    pub(crate) fn here(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) fn fixed(&mut self, number: u64, size: u8) {
        let size = usize::from(size);
        match self.abi.endian {
            Endian::Little => self.bytes.extend(&number.to_le_bytes()[..size]),
            Endian::Big => self.bytes.extend(&number.to_be_bytes()[8 - size..]),
        }
    }

    pub(crate) fn word(&self) -> u8 {
        self.abi.arch.spec().address_size.bytes()
    }

    /// Writes a length field, what `body` writes, and padding; corrects the length.
    pub(crate) fn entry(&mut self, format: Format, body: impl FnOnce(&mut Self)) -> u64 {
        let offset = self.here();
        match format {
            Format::Dwarf32 => self.fixed(0, 4),
            Format::Dwarf64 => {
                self.fixed(0xffff_ffff, 4);
                self.fixed(0, 8);
            }
        }
        let start = self.bytes.len();
        body(self);
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0); // DW_CFA_nop
        }
        let length = (self.bytes.len() - start) as u64;
        let rest = self.bytes.split_off(start);
        match format {
            Format::Dwarf32 => {
                self.bytes.truncate(start - 4);
                self.fixed(length, 4);
            }
            Format::Dwarf64 => {
                self.bytes.truncate(start - 8);
                self.fixed(length, 8);
            }
        }
        self.bytes.extend(rest);
        offset
    }

    pub(crate) fn cie(&mut self, cie: &CieSpec) -> u64 {
        let id_size = self.id_size(cie.format);
        self.entry(cie.format, |b| {
            let id = match b.kind {
                SectionKind::EhFrame => 0,
                SectionKind::DebugFrame => u64::MAX,
            };
            b.fixed(id, id_size);
            b.bytes.push(cie.version);
            b.bytes.extend(cie.augmentation.as_bytes());
            b.bytes.push(0);
            if cie.augmentation == "eh" {
                b.fixed(0x1234, b.word());
            }
            if cie.version >= 4 {
                b.bytes.extend([cie.address_size, cie.segment_size]);
            }
            put_unsigned(&mut b.bytes, cie.code_alignment);
            put_signed(&mut b.bytes, cie.data_alignment);
            match cie.version {
                1 => b.bytes.push(u8::try_from(cie.return_address).unwrap()),
                _ => put_unsigned(&mut b.bytes, cie.return_address),
            }
            if cie.augmentation.starts_with('z') {
                put_unsigned(&mut b.bytes, cie.data.len() as u64);
            }
            b.bytes.extend(&cie.data);
            b.bytes.extend(&cie.instructions);
        })
    }

    /// An FDE of the CIE at `cie`; `body` writes what follows the CIE pointer.
    pub(crate) fn fde(&mut self, format: Format, cie: u64, body: impl FnOnce(&mut Self)) -> u64 {
        let id_size = self.id_size(format);
        self.entry(format, |b| {
            let pointer = match b.kind {
                SectionKind::EhFrame => b.here().wrapping_sub(cie),
                SectionKind::DebugFrame => cie,
            };
            b.fixed(pointer, id_size);
            body(b);
        })
    }

    /// An FDE with absolute addresses and no augmentation data.
    pub(crate) fn plain_fde(
        &mut self,
        cie: u64,
        start: u64,
        length: u64,
        instructions: &[u8],
    ) -> u64 {
        self.fde(Format::Dwarf32, cie, |b| {
            let word = b.word();
            b.fixed(start, word);
            b.fixed(length, word);
            b.bytes.extend(instructions);
        })
    }

    pub(crate) fn terminator(&mut self) {
        self.bytes.extend([0; 4]);
    }

    fn id_size(&self, format: Format) -> u8 {
        match (self.kind, format) {
            (SectionKind::DebugFrame, Format::Dwarf64) => 8,
            _ => 4,
        }
    }

    /// Writes `target` as a pointer of this encoding, relative to the encoding's base.
    pub(crate) fn pointer(&mut self, encoding: u8, target: u64, function: u64) {
        let word = self.word();
        if encoding == 0x50 {
            while !(ADDRESS + self.here()).is_multiple_of(u64::from(word)) {
                self.bytes.push(0xee);
            }
            return self.fixed(target, word);
        }
        let base = match encoding & 0x70 {
            0x10 => ADDRESS + self.here(),
            0x20 => TEXT,
            0x30 => DATA,
            0x40 => function,
            _ => 0,
        };
        self.number(encoding, target.wrapping_sub(base));
    }

    /// Writes a number in this encoding.
    pub(crate) fn number(&mut self, encoding: u8, number: u64) {
        match encoding & 0x0f {
            0x1 => put_unsigned(&mut self.bytes, number),
            0x9 => put_signed(&mut self.bytes, number.cast_signed()),
            0x2 | 0xa => self.fixed(number, 2),
            0x3 | 0xb => self.fixed(number, 4),
            0x4 | 0xc => self.fixed(number, 8),
            _ => self.fixed(number, self.word()),
        }
    }

    pub(crate) fn section(&self) -> CfiSection<'_> {
        section(self.kind, self.abi, &self.bytes)
    }

    pub(crate) fn read(&self) -> SectionTable {
        read_table(&self.section())
    }
}

/// `data` as a section at [`ADDRESS`].
pub(crate) fn section(kind: SectionKind, abi: Abi, data: &[u8]) -> CfiSection<'_> {
    CfiSection {
        kind,
        data,
        address: Vaddr(ADDRESS),
        text_base: Some(Vaddr(TEXT)),
        data_base: Some(Vaddr(DATA)),
        abi,
    }
}

/// A section of an ordinary program: three CIEs, functions in order, one of them large, one
/// empty, a terminator in the middle.
pub(crate) fn ordinary() -> SectionBuilder {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let cie = b.cie(&CieSpec {
        augmentation: "zR",
        data: vec![0x1b],
        ..CieSpec::plain()
    });
    let fde = |b: &mut SectionBuilder, cie: u64, start: u64, length: u64, instructions: &[u8]| {
        b.fde(Format::Dwarf32, cie, |b| {
            b.pointer(0x1b, start, 0);
            b.number(0x1b, length);
            b.bytes.push(0);
            b.bytes.extend(instructions);
        });
    };
    // push rbp; mov rbp, rsp; …; pop rbp; ret
    let frame_pointer = [0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x50, 0x0c, 7, 8];
    fde(&mut b, cie, 0x1000, 0x20, &frame_pointer);
    fde(&mut b, cie, 0x1020, 0, &[]);
    fde(&mut b, cie, 0x1020, 0x10, &[]);
    // remember, restore, an expression
    let states = [
        0x42, 0x0a, 0x0e, 32, 0x83, 3, 0x02, 0x40, 0x0b, 0x44, 0x0f, 3, 0x77, 8, 0x06, 0x41, 0xc3,
    ];
    fde(&mut b, cie, 0x1040, 0x100, &states);
    b.terminator();
    let handlers = b.cie(&CieSpec {
        augmentation: "zPLR",
        data: vec![0x03, 0x34, 0x12, 0, 0, 0x03, 0x03],
        ..CieSpec::plain()
    });
    b.fde(Format::Dwarf32, handlers, |b| {
        b.number(0x03, 0x2000);
        b.number(0x03, 0x80);
        b.bytes.push(4);
        b.number(0x03, 0x5678);
        b.bytes.extend([0x44, 0x0e, 48, 0x2e, 16, 0x44, 0x2e, 0]);
    });
    let signal = b.cie(&CieSpec {
        augmentation: "zRS",
        data: vec![0x03],
        ..CieSpec::plain()
    });
    b.fde(Format::Dwarf32, signal, |b| {
        b.number(0x03, 0x3000);
        b.number(0x03, 0x10);
        b.bytes.push(0);
        b.bytes
            .extend([0x10, 16, 2, 0x77, 0x10, 0x16, 7, 2, 0x77, 0x20]);
    });
    b.terminator();
    b
}
