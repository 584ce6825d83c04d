//! The ELF shared object.
//!
//! It has three segments: what is only read (the notes, the dynamic symbols, the index, the code's own
//! `.eh_frame`), the code, and the dynamic section, which loaders may write to. Nothing in it is relocated.

use core::ops::Range;

use sha2::{Digest as _, Sha256};
use unspool_cfi::EhFrame;
use unspool_ir::{Abi, Vaddr};

use crate::elf::{self, Part, Section, Segment};
use crate::index::{self, Counts, Index};
use crate::outline::Outline;
use crate::own::own_table;
use crate::x86_64::{self, Array, Assembled, Built, OwnFrame};

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
pub(crate) const MODULE: usize = 1;
const HASH: usize = 2;
const SYMBOLS: usize = 3;
const STRINGS: usize = 4;
pub(crate) const INDEX: usize = 5;
pub(crate) const HDR: usize = 6;
pub(crate) const EH_FRAME: usize = 7;
pub(crate) const TEXT: usize = 8;
const DYNAMIC: usize = 9;

/// Makes the shared object for an outline.
///
/// # Errors
///
/// [`NativeError`].
pub fn object(outline: &Outline<'_>, key: Key<'_>) -> Result<Vec<u8>, NativeError> {
    let index = Index::of(outline).ok_or(NativeError::TooLarge)?;
    let built = x86_64::build(outline, &index);
    let arrays = Arrays::of(&index.counts(built.bodies.len()));
    let size = built.code.bytes.len();
    let own = |text| own_frames(outline.abi(), &built.frame, text, size);
    let sized = own(0)?;
    let module = module_note(key);
    let envelope = Envelope::new(&Sizes {
        module: module.len(),
        index: arrays.size,
        hdr: sized.hdr_len(),
        eh_frame: sized.len(),
        text: size,
    });
    let (text, hdr, eh_frame) = (
        envelope.part(TEXT),
        Vaddr(envelope.part(HDR).address),
        Vaddr(envelope.part(EH_FRAME).address),
    );
    let own = own(text.address)?;
    let contents = arrays.contents(&index, &built, envelope.part(INDEX), text);
    // With big modules this is a sixth of all memory.
    drop(index);
    let mut bytes = envelope.write(
        outline.abi().arch.elf_machine(),
        Contents {
            module,
            index: contents,
            hdr: own.hdr_at(hdr, eh_frame).map_err(NativeError::of)?,
            eh_frame: own.at(eh_frame).map_err(NativeError::of)?,
            text: arrays.linked(&built.code, envelope.part(INDEX), text),
        },
    );
    envelope.sign(&mut bytes);
    Ok(bytes)
}

/// The `.eh_frame` of so many bytes of code, which are at an address.
pub(crate) fn own_frames(
    abi: Abi,
    frame: &OwnFrame,
    text: u64,
    size: usize,
) -> Result<EhFrame, NativeError> {
    EhFrame::of(&own_table(abi, frame, text, size)?).map_err(NativeError::of)
}

/// The bytes of what differs from object to object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) module: usize,
    pub(crate) index: usize,
    pub(crate) hdr: usize,
    pub(crate) eh_frame: usize,
    pub(crate) text: usize,
}

/// The same, itself.
pub(crate) struct Contents {
    pub(crate) module: Vec<u8>,
    pub(crate) index: Vec<u8>,
    pub(crate) hdr: Vec<u8>,
    pub(crate) eh_frame: Vec<u8>,
    pub(crate) text: Vec<u8>,
}

/// All of an object that is the same whatever it is of, but for sizes.
pub(crate) struct Envelope {
    sections: [Section; 10],
    parts: Vec<Part>,
}

impl Envelope {
    pub(crate) fn new(sizes: &Sizes) -> Envelope {
        let section = |name, kind, align, size, segment| Section {
            name,
            kind,
            align,
            size,
            segment,
            link: 0,
            entry_size: 0,
        };
        let linked = |section: Section, link: usize, entry_size| Section {
            link: link + 1,
            entry_size,
            ..section
        };
        let read = |name, kind, align, size| section(name, kind, align, size, Segment::Read);
        let sections = [
            read(".note.gnu.build-id", elf::SHT_NOTE, 4, 16 + DIGEST),
            read(".note.unspool", elf::SHT_NOTE, 4, sizes.module),
            linked(read(".hash", elf::SHT_HASH, 4, 20), SYMBOLS, 4),
            linked(read(".dynsym", elf::SHT_DYNSYM, 8, 48), STRINGS, 24),
            read(".dynstr", elf::SHT_STRTAB, 1, NAME.len()),
            read(".rodata", elf::SHT_PROGBITS, 16, sizes.index),
            read(".eh_frame_hdr", elf::SHT_PROGBITS, 4, sizes.hdr),
            read(".eh_frame", elf::SHT_PROGBITS, 8, sizes.eh_frame),
            section(".text", elf::SHT_PROGBITS, 16, sizes.text, Segment::Code),
            linked(
                section(".dynamic", elf::SHT_DYNAMIC, 8, 6 * 16, Segment::Write),
                STRINGS,
                16,
            ),
        ];
        let parts = elf::place(&sections);
        Envelope { sections, parts }
    }

    pub(crate) fn part(&self, number: usize) -> Part {
        self.parts.get(number).copied().unwrap_or_default()
    }

    /// The file, its digest 0.
    pub(crate) fn write(&self, machine: u16, contents: Contents) -> Vec<u8> {
        let contents = [
            note(elf::NT_GNU_BUILD_ID, b"GNU\0", &[0; DIGEST]),
            contents.module,
            numbers(&[1, 2, 1, 0, 0]),
            symbols(self.part(TEXT)),
            NAME.to_vec(),
            contents.index,
            contents.hdr,
            contents.eh_frame,
            contents.text,
            dynamic(self.part(HASH), self.part(SYMBOLS), self.part(STRINGS)),
        ];
        elf::write(
            &self.sections,
            &self.parts,
            contents,
            &elf::Roles {
                machine,
                notes: [self.part(BUILD_ID), self.part(MODULE)],
                dynamic: self.part(DYNAMIC),
                eh_frame_hdr: self.part(HDR),
            },
        )
    }

    /// Where the digest is in the file.
    pub(crate) fn digest(&self) -> Range<usize> {
        let start = self.part(BUILD_ID).offset + 16;
        start..start + DIGEST
    }

    /// Puts the digest in.
    fn sign(&self, bytes: &mut [u8]) {
        let digest = Sha256::digest(&*bytes);
        if let Some(slot) = bytes.get_mut(self.digest()) {
            slot.copy_from_slice(&digest);
        }
    }
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

/// What [`module_note`] says, if it is one: the kind of the key, and its bytes.
pub(crate) fn module_of(content: &[u8]) -> Option<&[u8]> {
    let length = content.get(4..)?.first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let key = content.get(20..)?.get(..length)?;
    let (kind, id) = key.split_first()?;
    let key_of = match kind {
        1 => Key::BuildId(id),
        2 => Key::Content(id),
        _ => return None,
    };
    (module_note(key_of) == content).then_some(key)
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
pub(crate) struct Arrays {
    places: [(Array, Range<usize>); 6],
    size: usize,
}

impl Arrays {
    pub(crate) fn of(counts: &Counts) -> Arrays {
        let mut size = Counts::SIZE;
        let mut put = |array, len: usize, align| {
            let start = size.next_multiple_of(align);
            size = start + len;
            (array, start..size)
        };
        let places = [
            put(Array::Pages, counts.pages * 4, 4),
            put(Array::Bodies, counts.bodies * 4, 4),
            put(Array::Buckets, counts.pages * index::BUCKETS * 2, 2),
            put(Array::Wide, counts.wide * index::WIDE_SIZE, 2),
            put(Array::Rows, counts.starts, 1),
            put(Array::Starts, counts.starts + index::SLACK, 1),
        ];
        Arrays { places, size }
    }

    /// Where an array is from the begin of the index.
    pub(crate) fn place(&self, array: Array) -> Range<usize> {
        let mut places = self.places.iter();
        let place = places.find(|(other, _)| *other == array);
        place.map_or(0..0, |(_, place)| place.clone())
    }

    fn address(&self, array: Array, index: Part) -> u64 {
        index.address + self.place(array).start as u64
    }

    fn contents(&self, index: &Index, built: &Built, part: Part, text: Part) -> Vec<u8> {
        let bodies = self.address(Array::Bodies, part);
        let distance = |body: &u32| {
            let distance = (text.address + u64::from(*body)).wrapping_sub(bodies);
            u32::try_from(distance & 0xffff_ffff).unwrap_or(0)
        };
        let distances: Vec<u32> = built.bodies.iter().map(distance).collect();
        let bodies = numbers(&distances);
        let mut contents = index.counts(built.bodies.len()).written(index.base);
        contents.reserve_exact(self.size - contents.len());
        for (array, place) in &self.places {
            contents.resize(place.start, 0);
            contents.extend(match array {
                Array::Pages => index.pages.as_slice(),
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
    pub(crate) fn linked(&self, assembled: &Assembled, part: Part, text: Part) -> Vec<u8> {
        let mut code = assembled.bytes.clone();
        for (at, array) in &assembled.distances {
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
