//! SFrame: CFA, return address and frame pointer of each address, without instructions to run
//! (SFrame specification, versions 1 to 3).
//!
//! # The section
//!
//! ```text
//! header            28 bytes: magic, version, flags, machine, fixed offsets, counts, part offsets
//! auxiliary header  its length is in the header; no known producer writes one
//! entries (FDE)     one for each function, sorted by address: start, size, offset of its rows
//! rows (FRE)        function by function: offset from the start, an info byte, data words
//! ```
//!
//! | | version 1 | 2 | 3 |
//! |---|---|---|---|
//! | bytes of an entry | 17 | 20: and the size of a repeated block | 16, and 5 in front of its rows |
//! | start | 32 bits, from the section's start | the same; or from the field itself (flag 4, first erratum) | 64 bits, either |
//! | a row without data words | – | outermost frame (second erratum) | the same |
//! | an entry without rows | no information | no information | outermost frame |
//! | flexible entries, signal frames | – | – | a bit each |
//!
//! All numbers are in the machine's byte order; the magic number shows it.
//!
//! # In this module
//!
//! [`SubSections`] reads a section in place, without allocating: its parts ([`SubSection`]), their
//! entries ([`SframeFde`]), and their rows ([`FrameRowEntry`]). There is one part, unless a linker
//! has concatenated sections. [`SframeLookup`] makes an `unspool_rows` row for one address, also
//! without allocating. With the feature `alloc`, [`read`] converts sections to [`SframeFunction`]s,
//! and [`table`] converts these to a table of rows. [`functions`] converts a table to functions and
//! reports unrepresentable rows. [`SframeImage`] writes functions as version 2 or 3.

#[cfg(feature = "alloc")]
mod convert;
mod error;
mod frame;
mod lookup;
mod reader;
mod row;
#[cfg(feature = "alloc")]
mod section;
#[cfg(feature = "alloc")]
mod writer;

#[cfg(feature = "alloc")]
pub use convert::{SframeConversion, Unrepresentable, UnrepresentableReason, functions, table};
pub use error::{SframeError, SframeProblem};
pub use frame::{
    FrameRowEntry, FreBase, FreContents, FreRules, FreValue, SframeAbi, SframeVersion,
};
pub use lookup::SframeLookup;
pub use reader::{FdeType, FreIter, SframeFde, SframeHeader, SubSection, SubSections};
#[cfg(feature = "alloc")]
pub use section::{SearchProblem, SframeFunction, SframeSection, SubSectionInfo, read, repair};
#[cfg(feature = "alloc")]
pub use writer::{SframeImage, SframeWriteError, fit};
