//! The layout of the ELF shared object, without its contents.
//!
//! It has three segments. The first is read-only: the notes, the dynamic symbols, the index, the
//! code's own `.eh_frame`. The second is the code, and the third is the dynamic section, which
//! loaders may write to. There are no relocations.
//!
//! Both the writer and the checker of objects take these bytes from here; the checker needs no
//! memory.

use core::ops::Range;

use crate::elf::{self, SECTIONS, SectionPosition, SectionSpec, SegmentKind};

/// Identifies a table's module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModuleKey<'k> {
    /// Its GNU build ID; empty if it has none.
    pub build_id: &'k [u8],
    /// A hash of its bytes.
    pub content: &'k [u8; 20],
}

/// The exported function.
const NAME: &[u8] = b"\0unspool_step\0";

/// Size of the digest in bytes: SHA-256, which is the object's own build ID.
const DIGEST: usize = 32;

/// Type of the note that identifies the module, in the format of a compiled table's key: a byte
/// with the length of its build ID, the build ID, and 20 bytes of a hash.
const NOTE_MODULE: u32 = 2;

/// The sections, in order.
const BUILD_ID: usize = 0;
pub(crate) const MODULE: usize = 1;
const HASH: usize = 2;
const SYMBOLS: usize = 3;
const STRINGS: usize = 4;
pub(crate) const INDEX: usize = 5;
pub(crate) const HDR: usize = 6;
pub(crate) const EH_FRAME: usize = 7;
pub(crate) const TEXT: usize = 8;
const DYNAMIC: usize = 9;

/// Sizes of the parts that differ from object to object, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VariableSizes {
    pub(crate) module: usize,
    pub(crate) index: usize,
    pub(crate) hdr: usize,
    pub(crate) eh_frame: usize,
    pub(crate) text: usize,
}

/// The contents of these parts.
pub(crate) struct VariableContents<'c> {
    pub(crate) module: &'c [u8],
    pub(crate) index: &'c [u8],
    pub(crate) hdr: &'c [u8],
    pub(crate) eh_frame: &'c [u8],
    pub(crate) text: &'c [u8],
}

/// The parts of an object that only depend on sizes.
pub(crate) struct ObjectLayout {
    sections: [SectionSpec; SECTIONS],
    parts: [SectionPosition; SECTIONS],
}

impl ObjectLayout {
    pub(crate) fn new(sizes: &VariableSizes) -> ObjectLayout {
        let section = |name, kind, align, size, segment| SectionSpec {
            name,
            kind,
            align,
            size,
            segment,
            link: 0,
            entry_size: 0,
        };
        let linked = |section: SectionSpec, link: usize, entry_size| SectionSpec {
            link: link + 1,
            entry_size,
            ..section
        };
        let read = |name, kind, align, size| section(name, kind, align, size, SegmentKind::Read);
        let sections = [
            read(".note.gnu.build-id", elf::SHT_NOTE, 4, 16 + DIGEST),
            read(".note.unspool", elf::SHT_NOTE, 4, sizes.module),
            linked(read(".hash", elf::SHT_HASH, 4, 20), SYMBOLS, 4),
            linked(read(".dynsym", elf::SHT_DYNSYM, 8, 48), STRINGS, 24),
            read(".dynstr", elf::SHT_STRTAB, 1, NAME.len()),
            read(".rodata", elf::SHT_PROGBITS, 16, sizes.index),
            read(".eh_frame_hdr", elf::SHT_PROGBITS, 4, sizes.hdr),
            read(".eh_frame", elf::SHT_PROGBITS, 8, sizes.eh_frame),
            section(
                ".text",
                elf::SHT_PROGBITS,
                16,
                sizes.text,
                SegmentKind::Code,
            ),
            linked(
                section(".dynamic", elf::SHT_DYNAMIC, 8, 6 * 16, SegmentKind::Write),
                STRINGS,
                16,
            ),
        ];
        let parts = elf::place(&sections);
        ObjectLayout { sections, parts }
    }

    pub(crate) fn part(&self, number: usize) -> SectionPosition {
        self.parts.get(number).copied().unwrap_or_default()
    }

    /// Writes the file from begin to end, with a zero digest.
    pub(crate) fn write(
        &self,
        machine: u16,
        contents: &VariableContents<'_>,
        put: &mut dyn FnMut(&[u8]),
    ) {
        let note: [u8; 12] = numbers([4, 32, elf::NT_GNU_BUILD_ID]);
        let build_id: [u8; 16 + DIGEST] = joined(&[&note, b"GNU\0"]);
        let hash: [u8; 20] = numbers([1, 2, 1, 0, 0]);
        let (symbols, dynamic) = (self.symbols(), self.dynamic());
        let contents = [
            &build_id,
            contents.module,
            &hash,
            &symbols,
            NAME,
            contents.index,
            contents.hdr,
            contents.eh_frame,
            contents.text,
            &dynamic,
        ];
        let roles = elf::HeaderTargets {
            machine,
            notes: [self.part(BUILD_ID), self.part(MODULE)],
            dynamic: self.part(DYNAMIC),
            eh_frame_hdr: self.part(HDR),
        };
        elf::write(&self.sections, &self.parts, contents, &roles, put);
    }

    /// The digest's range in the file.
    pub(crate) fn digest(&self) -> Range<usize> {
        let start = self.part(BUILD_ID).offset + 16;
        start..start + DIGEST
    }

    /// The dynamic symbols: the null symbol, and the function.
    fn symbols(&self) -> [u8; 48] {
        let text = self.part(TEXT);
        let section = u16::try_from(TEXT + 1).unwrap_or(0);
        joined(&[
            &[0; 24],
            &1_u32.to_le_bytes(),
            // STB_GLOBAL, STT_FUNC; STV_DEFAULT
            &[0x12, 0],
            &section.to_le_bytes(),
            &text.address.to_le_bytes(),
            &(text.size as u64).to_le_bytes(),
        ])
    }

    fn dynamic(&self) -> [u8; 96] {
        let address = |number| self.part(number).address;
        let entries = [
            [elf::DT_HASH, address(HASH)],
            [elf::DT_STRTAB, address(STRINGS)],
            [elf::DT_SYMTAB, address(SYMBOLS)],
            [elf::DT_STRSZ, NAME.len() as u64],
            [elf::DT_SYMENT, 24],
            [0, 0],
        ];
        let words = entries.as_flattened().iter();
        filled(words.flat_map(|word| word.to_le_bytes()))
    }
}

/// Bytes up to the size of the array, padded with zeros.
fn filled<const N: usize>(bytes: impl Iterator<Item = u8>) -> [u8; N] {
    let mut filled = [0; N];
    filled
        .iter_mut()
        .zip(bytes)
        .for_each(|(slot, byte)| *slot = byte);
    filled
}

fn joined<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    filled(parts.iter().copied().flatten().copied())
}

fn numbers<const N: usize, const B: usize>(numbers: [u32; N]) -> [u8; B] {
    filled(numbers.into_iter().flat_map(u32::to_le_bytes))
}

/// The begin of a module's note with a key of this many bytes, including its kind.
pub(crate) fn module_note_head(length: usize) -> [u8; MODULE_NOTE_HEAD] {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    let numbers: [u8; 12] = numbers([8, length, NOTE_MODULE]);
    joined(&[&numbers, b"unspool\0"])
}

pub(crate) const MODULE_NOTE_HEAD: usize = 20;

/// The key in a module's note, if it is one, in the format of a compiled table.
pub(crate) fn module_of(content: &[u8]) -> Option<&[u8]> {
    let length = content.get(4..)?.first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (head, rest) = content.split_at_checked(MODULE_NOTE_HEAD)?;
    let (key, padding) = rest.split_at_checked(length)?;
    let is_note = head == module_note_head(length)
        && rest.len() == length.next_multiple_of(4)
        && padding.iter().all(|byte| *byte == 0);
    let is_key = |length: &u8| key.len() == 1 + usize::from(*length) + 20;
    (is_note && key.first().is_some_and(is_key)).then_some(key)
}
