//! Makes the shared object of a table.

use core::ops::Range;

use sha2::{Digest as _, Sha256};
use unspool_cfi::EhFrame;
use unspool_rows::{Abi, Vaddr};

use crate::elf::SectionPosition;
use crate::index::{self, ArrayCounts, IndexArrays};
use crate::object_layout::{
    EH_FRAME, HDR, INDEX, ModuleKey, ObjectLayout, TEXT, VariableContents, VariableSizes,
    module_note_head,
};
use crate::outline::Outline;
use crate::own_cfi::own_table;
use crate::x86_64::{self, AssembledCode, CodeFrame, GeneratedCode, IndexArray};

/// Why there is no object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NativeError {
    /// The addresses span too much, or there are too many different rows.
    #[error(
        "the table exceeds the limits of native code, 4 GiB of addresses and 65,534 different rows: compile it as a table"
    )]
    TooLarge,
    /// The unwind table of the code itself cannot be written.
    #[error("the object cannot be written: {0}")]
    Write(String),
}

impl NativeError {
    pub(crate) fn from_error(error: impl core::fmt::Display) -> NativeError {
        NativeError::Write(error.to_string())
    }
}

/// Makes the shared object for an outline.
///
/// # Errors
///
/// [`NativeError`].
pub fn object(outline: &Outline<'_>, key: ModuleKey<'_>) -> Result<Vec<u8>, NativeError> {
    let index = IndexArrays::new(outline).ok_or(NativeError::TooLarge)?;
    let built = x86_64::build(outline, &index);
    let arrays = ArrayLayout::new(&index.counts(built.bodies.len()));
    let size = built.code.bytes.len();
    let own = |text| own_frames(outline.abi(), &built.frame, text, size);
    let sized = own(0)?;
    let module = module_note(key);
    let envelope = ObjectLayout::new(&VariableSizes {
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
    // For big modules this is a sixth of all memory.
    drop(index);
    let contents = VariableContents {
        module: &module,
        index: &contents,
        hdr: &own.hdr_at(hdr, eh_frame).map_err(NativeError::from_error)?,
        eh_frame: &own.bytes_at(eh_frame).map_err(NativeError::from_error)?,
        text: &arrays.linked(&built.code, envelope.part(INDEX), text),
    };
    let mut bytes = Vec::with_capacity(text.range().end + HEADERS);
    let machine = outline.abi().arch.elf_machine();
    envelope.write(machine, &contents, &mut |piece| bytes.extend(piece));
    let digest = Sha256::digest(&bytes);
    if let Some(slot) = bytes.get_mut(envelope.digest()) {
        slot.copy_from_slice(&digest);
    }
    Ok(bytes)
}

/// More than the contents behind the code.
const HEADERS: usize = 2048;

fn module_note(key: ModuleKey<'_>) -> Vec<u8> {
    // A build ID has 64 bytes at most.
    let length = u8::try_from(key.build_id.len()).unwrap_or(0);
    let id = key.build_id.get(..usize::from(length)).unwrap_or_default();
    let mut note = Vec::from(module_note_head(1 + id.len() + key.content.len()));
    note.push(length);
    note.extend(id);
    note.extend(key.content);
    note.resize(note.len().next_multiple_of(4), 0);
    note
}

fn numbers(numbers: &[u32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

/// The `.eh_frame` of code of this size, in bytes, at an address.
pub(crate) fn own_frames(
    abi: Abi,
    frame: &CodeFrame,
    text: u64,
    size: usize,
) -> Result<EhFrame, NativeError> {
    EhFrame::from_table(&own_table(abi, frame, text, size)?).map_err(NativeError::from_error)
}

/// Position of each array, relative to the index.
pub(crate) struct ArrayLayout {
    places: [(IndexArray, Range<usize>); 6],
    size: usize,
}

impl ArrayLayout {
    pub(crate) fn new(counts: &ArrayCounts) -> ArrayLayout {
        let mut size = ArrayCounts::SIZE;
        let mut put = |array, len: usize, align| {
            let start = size.next_multiple_of(align);
            size = start + len;
            (array, start..size)
        };
        let places = [
            put(IndexArray::Pages, counts.pages * 4, 4),
            put(IndexArray::Bodies, counts.bodies * 4, 4),
            put(IndexArray::Buckets, counts.pages * index::BUCKETS * 2, 2),
            put(IndexArray::Wide, counts.wide * index::WIDE_SIZE, 2),
            put(IndexArray::Rows, counts.starts, 1),
            put(IndexArray::Starts, counts.starts + index::SLACK, 1),
        ];
        ArrayLayout { places, size }
    }

    /// Position of an array relative to the index.
    pub(crate) fn place(&self, array: IndexArray) -> Range<usize> {
        let mut places = self.places.iter();
        let place = places.find(|(other, _)| *other == array);
        place.map_or(0..0, |(_, place)| place.clone())
    }

    fn address(&self, array: IndexArray, index: SectionPosition) -> u64 {
        index.address + self.place(array).start as u64
    }

    fn contents(
        &self,
        index: &IndexArrays,
        code: &GeneratedCode,
        position: SectionPosition,
        text: SectionPosition,
    ) -> Vec<u8> {
        let bodies = self.address(IndexArray::Bodies, position);
        let distance = |body: &u32| {
            let distance = (text.address + u64::from(*body)).wrapping_sub(bodies);
            u32::try_from(distance & 0xffff_ffff).unwrap_or(0)
        };
        let distances: Vec<u32> = code.bodies.iter().map(distance).collect();
        let bodies = numbers(&distances);
        let mut contents = index.counts(code.bodies.len()).written(index.base);
        contents.reserve_exact(self.size - contents.len());
        for (array, place) in &self.places {
            contents.resize(place.start, 0);
            contents.extend(match array {
                IndexArray::Pages => index.pages.as_slice(),
                IndexArray::Buckets => &index.buckets,
                IndexArray::Starts => &index.starts,
                IndexArray::Rows => &index.rows,
                IndexArray::Wide => &index.wide,
                IndexArray::Bodies => &bodies,
            });
        }
        contents
    }

    /// The code with the distances to the arrays filled in.
    pub(crate) fn linked(
        &self,
        assembled: &AssembledCode,
        position: SectionPosition,
        text: SectionPosition,
    ) -> Vec<u8> {
        let mut code = assembled.bytes.clone();
        for (at, array) in &assembled.distances {
            let from = text.address + *at as u64 + 4;
            let distance = self.address(*array, position).wrapping_sub(from);
            if let (Some(slot), Some(low)) =
                (code.get_mut(*at..at + 4), distance.to_le_bytes().get(..4))
            {
                slot.copy_from_slice(low);
            }
        }
        code
    }
}
