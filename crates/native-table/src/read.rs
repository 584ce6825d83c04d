//! Reads an object back: is it entirely this crate's output, and what does its index say?
//!
//! Nothing is trusted. Headers, notes and symbols must be byte for byte those of an object with
//! parts of these sizes. Allocates nothing, except for the contents of the index.

use core::ops::Range;

use sha2::{Digest as _, Sha256};
use unspool_rows::Arch;

use crate::elf::{self, SECTIONS, SectionPosition};
use crate::object_layout::{self, ModuleKey, ObjectLayout, VariableContents, VariableSizes};

#[cfg(feature = "std")]
mod index;

#[cfg(feature = "std")]
pub use index::BodyStart;

/// Why bytes are not a usable object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// Its headers, notes or symbols differ from those of objects.
    #[error("not an object that `unspool compile --emit native` wrote: byte {0:#x} differs")]
    Foreign(usize),
    /// It is too short, or its sections are outside.
    #[error("not an object that `unspool compile --emit native` wrote, or truncated")]
    Short,
    /// The digest does not match its bytes.
    #[error("it was changed or damaged since it was written: its digest does not match")]
    Digest,
    /// The index is invalid.
    #[error("its index is damaged: {0}")]
    Index(&'static str),
    /// The code that finds a row in the index, or its own `.eh_frame`, differs from those of
    /// objects with such an index.
    #[error("{0} differs from what `unspool compile --emit native` writes")]
    Changed(&'static str),
}

/// An object with a valid form.
#[derive(Debug)]
pub struct ObjectView<'b> {
    bytes: &'b [u8],
    parts: [SectionPosition; SECTIONS],
    module: &'b [u8],
}

/// A part of an object that is mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectSegment<'b> {
    /// Its address relative to the object.
    pub address: u64,
    /// Its first bytes; zeros follow.
    pub bytes: &'b [u8],
    /// Whether it is code.
    pub is_code: bool,
}

impl<'b> ObjectView<'b> {
    /// Reads an object.
    ///
    /// # Errors
    ///
    /// [`ObjectError`].
    pub fn parse(bytes: &'b [u8]) -> Result<ObjectView<'b>, ObjectError> {
        let parts = elf::parts(bytes).ok_or(ObjectError::Short)?;
        let part = |number: usize| parts.get(number).copied().unwrap_or_default();
        let content = |number| {
            let content = bytes.get(part(number).range());
            content.ok_or(ObjectError::Short)
        };
        let contents = VariableContents {
            module: content(object_layout::MODULE)?,
            index: content(object_layout::INDEX)?,
            hdr: content(object_layout::HDR)?,
            eh_frame: content(object_layout::EH_FRAME)?,
            text: content(object_layout::TEXT)?,
        };
        let envelope = ObjectLayout::new(&VariableSizes {
            module: contents.module.len(),
            index: contents.index.len(),
            hdr: contents.hdr.len(),
            eh_frame: contents.eh_frame.len(),
            text: contents.text.len(),
        });
        let mut expected = ExpectedBytes {
            bytes,
            digest: Sha256::new(),
            digest_at: envelope.digest(),
            length: 0,
            differs: None,
        };
        let machine = Arch::X86_64.elf_machine();
        envelope.write(machine, &contents, &mut |piece| expected.put(piece));
        if let Some(at) = expected.differs {
            return Err(ObjectError::Foreign(at));
        }
        if expected.length != bytes.len() {
            return Err(ObjectError::Short);
        }
        let digest = expected.digest.finalize();
        if bytes.get(envelope.digest()) != Some(&digest[..]) {
            return Err(ObjectError::Digest);
        }
        let module = object_layout::module_of(contents.module).ok_or(ObjectError::Short)?;
        Ok(ObjectView {
            bytes,
            parts,
            module,
        })
    }

    /// Identifies the module of its table.
    #[must_use]
    pub fn key(&self) -> Option<ModuleKey<'b>> {
        let (length, rest) = self.module.split_first()?;
        let (build_id, content) = rest.split_at_checked(usize::from(*length))?;
        Some(ModuleKey {
            build_id,
            content: content.try_into().ok()?,
        })
    }

    fn part(&self, number: usize) -> SectionPosition {
        self.parts.get(number).copied().unwrap_or_default()
    }

    /// The segments that must be mapped for the code to run.
    #[must_use]
    pub fn mapped(&self) -> [ObjectSegment<'b>; 2] {
        let read = 0..self.part(object_layout::EH_FRAME).range().end;
        let text = self.part(object_layout::TEXT);
        let of = |address, range: Range<usize>, is_code| ObjectSegment {
            address,
            bytes: self.bytes.get(range).unwrap_or_default(),
            is_code,
        };
        [of(0, read, false), of(text.address, text.range(), true)]
    }

    /// Address of the function relative to the object.
    #[must_use]
    pub fn entry(&self) -> u64 {
        self.part(object_layout::TEXT).address
    }

    #[cfg(feature = "std")]
    fn content(&self, number: usize) -> &'b [u8] {
        let content = self.bytes.get(self.part(number).range());
        content.unwrap_or_default()
    }
}

/// Compares the expected bytes of an object, piece by piece, with the given ones.
struct ExpectedBytes<'b> {
    bytes: &'b [u8],
    digest: Sha256,
    /// The digest's range, which the digest does not cover.
    digest_at: Range<usize>,
    /// Number of bytes so far.
    length: usize,
    /// Offset of the first byte that differs.
    differs: Option<usize>,
}

impl ExpectedBytes<'_> {
    fn put(&mut self, piece: &[u8]) {
        self.digest.update(piece);
        let start = self.length;
        self.length += piece.len();
        let bytes = self.bytes.get(start..).unwrap_or_default();
        // Mostly all are equal.
        if self.differs.is_none() && !bytes.starts_with(piece) {
            let mut pairs = (start..).zip(piece.iter().zip(bytes));
            let differs = pairs.find(|(at, (a, b))| a != b && !self.digest_at.contains(at));
            self.differs = differs.map(|(at, _)| at);
        }
    }
}
