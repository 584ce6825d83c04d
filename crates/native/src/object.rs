//! The ELF shared object.
//!
//! It has three segments: what is only read (the notes, the dynamic symbols, the index, the code's own
//! `.eh_frame`), the code, and the dynamic section, which loaders may write to. Nothing in it is relocated.

use sha2::{Digest as _, Sha256};
use unspool_cfi::EhFrame;
use unspool_ir::Vaddr;

use crate::elf::{self, Part, Section, Segment};
use crate::index::Index;
use crate::outline::Outline;
use crate::own::own_table;
use crate::x86_64::{self, Array, Built};

/// What the module is known by that a table is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key<'k> {
    /// Its GNU build ID.
    BuildId(&'k [u8]),
    /// A hash of its bytes, where it has none.
    Content(&'k [u8]),
}

/// Why no object can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NativeError {
    /// Addresses are too far apart, or there are too many different rows.
    #[error(
        "native code can speak of 4 GiB of addresses and of 65,534 different rows, and this table has more; compile \
         it as a table"
    )]
    TooLarge,
    /// The table of the code itself cannot be written.
    #[error("the object cannot be written: {0}")]
    Write(String),
}

impl NativeError {
    pub(crate) fn of(error: impl core::fmt::Display) -> NativeError {
        NativeError::Write(error.to_string())
    }
}

/// The function that is exported.
const NAME: &[u8] = b"\0unspool_step\0";

/// The bytes of the digest, SHA-256, which is the object's own build ID.
const DIGEST: usize = 32;

/// The type of the note that names the module: a byte as in the key of a compiled table (1 build ID, 2 hash), and
/// its bytes.
const NOTE_MODULE: u32 = 1;

/// The sections, in their order.
const BUILD_ID: usize = 0;
const MODULE: usize = 1;
const HASH: usize = 2;
const SYMBOLS: usize = 3;
const STRINGS: usize = 4;
const INDEX: usize = 5;
const HDR: usize = 6;
const EH_FRAME: usize = 7;
const TEXT: usize = 8;
const DYNAMIC: usize = 9;

/// Makes the shared object for an outline.
///
/// # Errors
///
/// [`NativeError`].
pub fn object(outline: &Outline, key: Key<'_>) -> Result<Vec<u8>, NativeError> {
    let index = Index::of(outline).ok_or(NativeError::TooLarge)?;
    let built = x86_64::build(outline, &index);
    let arrays = Arrays::of(&index, built.bodies.len());
    let own = |text| EhFrame::of(&own_table(outline.abi(), &built, text)?).map_err(NativeError::of);
    let sized = own(0)?;
    let module = module_note(key);
    let section = |name, kind, align, size, segment| Section {
        name,
        kind,
        align,
        size,
        segment,
        link: 0,
        entry_size: 0,
    };
    let read = Segment::Read;
    let of_symbols = |section: Section, entry_size| Section {
        link: SYMBOLS + 1,
        entry_size,
        ..section
    };
    let of_strings = |section: Section, entry_size| Section {
        link: STRINGS + 1,
        entry_size,
        ..section
    };
    let sections = [
        section(".note.gnu.build-id", elf::SHT_NOTE, 4, 16 + DIGEST, read),
        section(".note.unspool", elf::SHT_NOTE, 4, module.len(), read),
        of_symbols(section(".hash", elf::SHT_HASH, 4, 20, read), 4),
        of_strings(section(".dynsym", elf::SHT_DYNSYM, 8, 48, read), 24),
        section(".dynstr", elf::SHT_STRTAB, 1, NAME.len(), read),
        section(".rodata", elf::SHT_PROGBITS, 16, arrays.size, read),
        section(".eh_frame_hdr", elf::SHT_PROGBITS, 4, sized.hdr_len(), read),
        section(".eh_frame", elf::SHT_PROGBITS, 8, sized.len(), read),
        section(
            ".text",
            elf::SHT_PROGBITS,
            16,
            built.code.bytes.len(),
            Segment::Code,
        ),
        of_strings(
            section(".dynamic", elf::SHT_DYNAMIC, 8, 6 * 16, Segment::Write),
            16,
        ),
    ];
    let parts = elf::place(&sections);
    let part = |number: usize| parts.get(number).copied().unwrap_or_default();
    let own = own(part(TEXT).address)?;
    let contents = [
        note(elf::NT_GNU_BUILD_ID, b"GNU\0", &[0; DIGEST]),
        module,
        numbers(&[1, 2, 1, 0, 0]),
        symbols(part(TEXT)),
        NAME.to_vec(),
        arrays.contents(&index, &built, part(INDEX), part(TEXT)),
        own.hdr_at(Vaddr(part(HDR).address), Vaddr(part(EH_FRAME).address))
            .map_err(NativeError::of)?,
        own.at(Vaddr(part(EH_FRAME).address))
            .map_err(NativeError::of)?,
        arrays.linked(&built, part(INDEX), part(TEXT)),
        dynamic(part(HASH), part(SYMBOLS), part(STRINGS)),
    ];
    let mut bytes = elf::write(
        &sections,
        &parts,
        &contents,
        &elf::Roles {
            machine: outline.abi().arch.elf_machine(),
            notes: [part(BUILD_ID), part(MODULE)],
            dynamic: part(DYNAMIC),
            eh_frame_hdr: part(HDR),
        },
    );
    let digest = Sha256::digest(&bytes);
    let at = part(BUILD_ID).offset + 16;
    if let Some(slot) = bytes.get_mut(at..at + DIGEST) {
        slot.copy_from_slice(&digest);
    }
    Ok(bytes)
}

fn numbers(numbers: &[u32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

fn note(kind: u32, owner: &[u8], content: &[u8]) -> Vec<u8> {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut note = numbers(&[length(owner), length(content), kind]);
    for bytes in [owner, content] {
        note.extend(bytes);
        note.resize(note.len().next_multiple_of(4), 0);
    }
    note
}

fn module_note(key: Key<'_>) -> Vec<u8> {
    let (kind, id) = match key {
        Key::BuildId(id) => (1, id),
        Key::Content(hash) => (2, hash),
    };
    note(NOTE_MODULE, b"unspool\0", &[&[kind], id].concat())
}

/// The dynamic symbols: none, and the function.
fn symbols(text: Part) -> Vec<u8> {
    let mut symbols = vec![0; 24];
    symbols.extend(1_u32.to_le_bytes());
    // STB_GLOBAL, STT_FUNC; STV_DEFAULT
    symbols.extend([0x12, 0]);
    let section = u16::try_from(TEXT + 1).unwrap_or(0);
    symbols.extend(section.to_le_bytes());
    symbols.extend(text.address.to_le_bytes());
    symbols.extend((text.size as u64).to_le_bytes());
    symbols
}

fn dynamic(hash: Part, symbols: Part, strings: Part) -> Vec<u8> {
    let entries = [
        (elf::DT_HASH, hash.address),
        (elf::DT_STRTAB, strings.address),
        (elf::DT_SYMTAB, symbols.address),
        (elf::DT_STRSZ, NAME.len() as u64),
        (elf::DT_SYMENT, 24),
        (0, 0),
    ];
    let words = entries.into_iter().flat_map(|(tag, value)| [tag, value]);
    words.flat_map(u64::to_le_bytes).collect()
}

/// Where each array is, from the begin of the index.
struct Arrays {
    places: [(Array, usize); 6],
    size: usize,
}

impl Arrays {
    fn of(index: &Index, bodies: usize) -> Arrays {
        let mut size = 0;
        let mut put = |array, len: usize, align| {
            size = usize::next_multiple_of(size, align);
            let place = size;
            size += len;
            (array, place)
        };
        let places = [
            put(Array::Pages, index.pages.len(), 4),
            put(Array::Bodies, bodies * 4, 4),
            put(Array::Buckets, index.buckets.len(), 2),
            put(Array::Wide, index.wide.len(), 2),
            put(Array::Rows, index.rows.len(), 1),
            put(Array::Starts, index.starts.len(), 1),
        ];
        Arrays { places, size }
    }

    fn address(&self, array: Array, index: Part) -> u64 {
        let mut places = self.places.iter();
        let place = places.find(|(other, _)| *other == array);
        index.address + place.map_or(0, |(_, place)| *place as u64)
    }

    fn contents(&self, index: &Index, built: &Built, part: Part, text: Part) -> Vec<u8> {
        let bodies = self.address(Array::Bodies, part);
        let distance = |body: &u32| {
            let distance = (text.address + u64::from(*body)).wrapping_sub(bodies);
            u32::try_from(distance & 0xffff_ffff).unwrap_or(0)
        };
        let distances: Vec<u32> = built.bodies.iter().map(distance).collect();
        let bodies = numbers(&distances);
        let mut contents = Vec::with_capacity(self.size);
        for (array, place) in self.places {
            contents.resize(place, 0);
            contents.extend(match array {
                Array::Pages => &index.pages,
                Array::Buckets => &index.buckets,
                Array::Starts => &index.starts,
                Array::Rows => &index.rows,
                Array::Wide => &index.wide,
                Array::Bodies => &bodies,
            });
        }
        contents
    }

    /// The code, with the distances to the arrays.
    fn linked(&self, built: &Built, part: Part, text: Part) -> Vec<u8> {
        let mut code = built.code.bytes.clone();
        for (at, array) in &built.code.distances {
            let from = text.address + *at as u64 + 4;
            let distance = self.address(*array, part).wrapping_sub(from);
            if let (Some(slot), Some(low)) =
                (code.get_mut(*at..at + 4), distance.to_le_bytes().get(..4))
            {
                slot.copy_from_slice(low);
            }
        }
        code
    }
}
