//! Call frame information: the bytes of `.eh_frame`, `.debug_frame` and `.eh_frame_hdr`, read
//! into rows.
//!
//! There are two entry points with equal results. [`read_table`] reads a whole section into an
//! [`unspool_rows::Table`] and reports every bad entry without losing the others. [`Lookup`] finds
//! the row of *one* address straight from the bytes, in fixed storage, without allocating: an
//! unwinder uses it until a compiled table exists.
//!
//! The decoder is not gimli's: gimli's section iterator ends at the first bad entry. gimli's reader
//! refuses the `B` and `G` augmentations of AArch64, aligned pointers, and two GNU instructions.
//! The tests compare with gimli and `readelf`.
//!
//! It takes bytes and returns values: no file access, no allocation without the `alloc` feature, no
//! `unsafe`.
//!
//! ```
//! use unspool_cfi::{CfiSection, EhFrame, SectionKind, read_table};
//! use unspool_rows::{Vaddr, text};
//!
//! let table = text::parse(text::EXAMPLE)?;
//! let address = Vaddr(0x2000);
//! let data = EhFrame::from_table(&table)?.bytes_at(address)?;
//! let reading = read_table(&CfiSection {
//!     kind: SectionKind::EhFrame,
//!     data: &data,
//!     address,
//!     text_base: None,
//!     data_base: None,
//!     abi: table.abi(),
//! });
//! assert_eq!(reading.table.to_string(), text::EXAMPLE);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod byte_reader;
pub mod entry;
mod error;
#[cfg(feature = "alloc")]
pub mod escape;
pub mod evaluate;
mod fast_row;
mod hdr;
pub mod instruction;
#[cfg(feature = "alloc")]
pub mod listing;
pub mod lookup;
pub mod lsda;
#[cfg(feature = "alloc")]
mod opcode;
#[cfg(feature = "alloc")]
pub mod orc;
mod pointer;
#[cfg(feature = "alloc")]
mod rewrite;
pub mod sframe;
#[cfg(feature = "alloc")]
mod table;
#[cfg(feature = "alloc")]
mod write;

pub use entry::{CfiEntries, CfiEntry, Cie, ParsedFde};
pub use error::{CfiError, CfiProblem};
pub use fast_row::{FastRow, FastRowStates};
pub use hdr::{Hdr, HdrEntry};
pub use instruction::{Instruction, Instructions};
pub use lookup::{Lookup, ParsedEntry, RowInfo};
pub use pointer::{PointerBases, PointerEncoding};
#[cfg(feature = "alloc")]
pub use rewrite::{RewriteError, RewrittenSection, rewrite};
#[cfg(feature = "alloc")]
pub use table::{EntryCounts, SectionTable, read_table, read_tables};
#[cfg(feature = "alloc")]
pub use write::{EhFrame, SizeOptimization, WriteError};

use unspool_rows::{Abi, Vaddr};

/// The CFI format of a section (Linux Standard Base, "Exception Frames", and DWARF 5 §6.4.1). The
/// two formats differ in how an entry refers to its CIE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SectionKind {
    /// `.eh_frame`: CIE id 0, CIE pointers relative to themselves.
    EhFrame,
    /// `.debug_frame`: CIE id -1, CIE pointers relative to the section.
    DebugFrame,
}

impl core::fmt::Display for SectionKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            SectionKind::EhFrame => ".eh_frame",
            SectionKind::DebugFrame => ".debug_frame",
        })
    }
}

/// A CFI section, and the bases of its encoded pointers.
#[derive(Debug, Clone, Copy)]
pub struct CfiSection<'a> {
    /// The format.
    pub kind: SectionKind,
    /// The bytes.
    pub data: &'a [u8],
    /// The address of the first byte, as linked.
    pub address: Vaddr,
    /// The base of `DW_EH_PE_textrel` pointers: the address of `.text`.
    pub text_base: Option<Vaddr>,
    /// The base of `DW_EH_PE_datarel` pointers: the address of `.got`, or of `.eh_frame_hdr` in
    /// that section.
    pub data_base: Option<Vaddr>,
    /// The architecture and byte order.
    pub abi: Abi,
}

impl<'a> CfiSection<'a> {
    /// Drops what follows the first zero length, which ends `.eh_frame` for libgcc: without the
    /// section's size, other data follows it.
    pub fn end_at_terminator(&mut self) {
        let mut at = 0;
        while let Ok(Some(entry)) = self.entry(at) {
            at = entry.end();
        }
        self.data = self.bytes(0, at);
    }

    /// The bytes between two offsets, cut off at the ends of the section.
    pub(crate) fn bytes(&self, from: u64, to: u64) -> &'a [u8] {
        let at = |offset: u64| {
            usize::try_from(offset)
                .unwrap_or(usize::MAX)
                .min(self.data.len())
        };
        self.data.get(at(from)..at(to)).unwrap_or_default()
    }
}
