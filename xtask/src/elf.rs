//! The call frame information of an ELF file or an archive of them, by section *name* as `readelf`
//! finds it. It includes stale sections, and a relocatable file's sections are at address 0.

use std::borrow::Cow;

use object::elf::R_X86_64_PC64;
use object::read::archive::ArchiveFile;
use object::{Architecture, RelocationFlags, RelocationKind, RelocationTarget};
use object::{Object, ObjectSection, ObjectSymbol};
use unspool_cfi::{CfiSection, SectionKind};
use unspool_rows::arch::AddressSize;
use unspool_rows::{Abi, Arch, Endian, Vaddr};

use crate::Error;

/// An ELF file, or a member of an archive that is one.
#[derive(Debug)]
pub struct CfiFile<'a> {
    /// The member's name; `None` for a file of its own.
    pub member: Option<String>,
    /// The architecture and byte order.
    pub abi: Abi,
    /// `.eh_frame` and `.debug_frame` sections with bytes, in the order of their headers.
    pub sections: Vec<SectionContents<'a>>,
    /// `.eh_frame_hdr`, and its address.
    pub hdr: Option<(Cow<'a, [u8]>, Vaddr)>,
    /// The address of `.text`.
    pub text_base: Option<Vaddr>,
    /// The address of `.got`.
    pub data_base: Option<Vaddr>,
}

/// A section with call frame information.
#[derive(Debug)]
pub struct SectionContents<'a> {
    /// The format, by its name.
    pub kind: SectionKind,
    /// The bytes: decompressed, and relocated in a relocatable file.
    pub data: Cow<'a, [u8]>,
    /// The address of the first byte.
    pub address: Vaddr,
}

impl CfiFile<'_> {
    /// One of [`CfiFile::sections`], as input of unspool's reader.
    #[must_use]
    pub fn section<'s>(&self, frame: &'s SectionContents<'_>) -> CfiSection<'s> {
        CfiSection {
            kind: frame.kind,
            data: &frame.data,
            address: frame.address,
            text_base: self.text_base,
            data_base: self.data_base,
            abi: self.abi,
        }
    }
}

/// Whether [`units`] supports a file with the first bytes `head`.
#[must_use]
pub fn is_readable(head: &[u8]) -> bool {
    is_elf(head) || is_archive(head)
}

fn is_elf(head: &[u8]) -> bool {
    head.starts_with(b"\x7fELF")
}

fn is_archive(head: &[u8]) -> bool {
    head.starts_with(b"!<arch>\n")
}

/// The ELF files in `data`: itself, or the members of an archive.
///
/// # Errors
///
/// It is neither, or a header is damaged. Members that are not ELF files are left out.
pub fn units(data: &[u8]) -> Result<Vec<CfiFile<'_>>, Error> {
    if !is_archive(data) {
        return Ok(vec![unit(data, None)?]);
    }
    let mut units = Vec::new();
    for member in ArchiveFile::parse(data)?.members() {
        let member = member?;
        let bytes = member.data(data)?;
        if is_elf(bytes) {
            let name = String::from_utf8_lossy(member.name()).into_owned();
            units.push(unit(bytes, Some(name))?);
        }
    }
    Ok(units)
}

fn unit(data: &[u8], member: Option<String>) -> Result<CfiFile<'_>, Error> {
    let file = object::File::parse(data)?;
    let address_of = |name: &str| {
        let section = file.section_by_name(name);
        section.map(|section| Vaddr(section.address()))
    };
    let mut frames = Vec::new();
    let mut hdr = None;
    for section in file.sections() {
        let name = section.name().unwrap_or_default();
        let kind = match name {
            ".eh_frame" => Some(SectionKind::EhFrame),
            ".debug_frame" | ".zdebug_frame" => Some(SectionKind::DebugFrame),
            _ => None,
        };
        // A separate debug file has the header of `.eh_frame`, but not its bytes.
        let is_empty = section.file_range().is_none_or(|(_, size)| size == 0);
        if is_empty {
            continue;
        }
        let address = Vaddr(section.address());
        if name == ".eh_frame_hdr" {
            hdr = Some((section.uncompressed_data()?, address));
        }
        if let Some(kind) = kind {
            frames.push(SectionContents {
                kind,
                data: contents(&file, &section)?,
                address,
            });
        }
    }
    Ok(CfiFile {
        member,
        abi: abi(data, &file)?,
        sections: frames,
        hdr,
        text_base: address_of(".text"),
        data_base: address_of(".got"),
    })
}

fn abi(data: &[u8], file: &object::File<'_>) -> Result<Abi, Error> {
    let machine = data.get(18..20).and_then(|bytes| bytes.try_into().ok());
    let machine: [u8; 2] = machine.ok_or("ELF header is cut short")?;
    let word = if file.is_64() {
        AddressSize::W64
    } else {
        AddressSize::W32
    };
    let (endian, machine) = if file.is_little_endian() {
        (Endian::Little, u16::from_le_bytes(machine))
    } else {
        (Endian::Big, u16::from_be_bytes(machine))
    };
    let arch = Arch::from_elf(machine, word);
    Ok(Abi { arch, endian })
}

fn contents<'a>(
    file: &object::File<'a>,
    section: &object::Section<'a, '_>,
) -> Result<Cow<'a, [u8]>, Error> {
    let data = section.uncompressed_data()?;
    if file.kind() != object::ObjectKind::Relocatable || section.relocations().next().is_none() {
        return Ok(data);
    }
    let mut data = data.into_owned();
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(symbol) = relocation.target() else {
            continue;
        };
        let value = file.symbol_by_index(symbol)?.address();
        let (kind, bits) = match relocation.flags() {
            // `object` 0.40 does not support this one.
            RelocationFlags::Elf {
                r_type: R_X86_64_PC64,
            } if file.architecture() == Architecture::X86_64 => (RelocationKind::Relative, 64),
            _ => (relocation.kind(), relocation.size()),
        };
        let place = match kind {
            RelocationKind::Absolute => 0,
            RelocationKind::Relative => section.address().wrapping_add(offset),
            _ => continue, // Relocations of personality routines, which no row depends on.
        };
        let field = usize::try_from(offset)?..;
        let size = usize::from(bits / 8);
        let field = data.get_mut(field).and_then(|rest| rest.get_mut(..size));
        let field = field.ok_or("relocation lies outside of its section")?;
        let mut number = value
            .wrapping_add_signed(relocation.addend())
            .wrapping_sub(place);
        if relocation.has_implicit_addend() {
            number = number.wrapping_add(stored(field, file.is_little_endian()));
        }
        store(field, number, file.is_little_endian());
    }
    Ok(Cow::Owned(data))
}

fn stored(field: &[u8], little: bool) -> u64 {
    let shift_in = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    if little {
        field.iter().rev().fold(0, shift_in)
    } else {
        field.iter().fold(0, shift_in)
    }
}

fn store(field: &mut [u8], number: u64, little: bool) {
    let bytes = number.to_le_bytes();
    if little {
        field
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, byte)| *to = byte);
    } else {
        field
            .iter_mut()
            .rev()
            .zip(bytes)
            .for_each(|(to, byte)| *to = byte);
    }
}
