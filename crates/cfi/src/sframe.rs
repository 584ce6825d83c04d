//! SFrame: CFA, return address and frame pointer of each address, without instructions to run (SFrame specification,
//! versions 1 to 3).
//!
//! # The section
//!
//! ```text
//! header            28 bytes: magic, version, flags, machine, fixed offsets, counts, where the two parts are
//! auxiliary header  its length is in the header; nobody writes one
//! entries (FDE)     one for each function, sorted by address: start, size, where its rows are
//! rows (FRE)        of one function behind those of another: offset from the start, a byte of facts, data words
//! ```
//!
//! | | version 1 | 2 | 3 |
//! |---|---|---|---|
//! | bytes of an entry | 17 | 20: and the size of a repeated block | 16, and 5 in front of its rows |
//! | start | 32 bits, from the section's start | the same; or from the field itself (flag 4, first erratum) | 64 bits, either |
//! | a row without data words | – | outermost frame (second erratum) | the same |
//! | an entry without rows | says nothing | says nothing | outermost frame |
//! | flexible entries, signal frames | – | – | a bit each |
//!
//! All numbers are in the byte order of the machine, which the magic number tells.
//!
//! # In this module
//!
//! [`SubSections`] reads a section in place, without allocating: its parts ([`SubSection`]; one, unless a linker has put sections
//! one behind the other), their entries ([`SframeFde`]), their rows ([`FrameRowEntry`]). [`SframeLookup`] makes the project's row of one
//! address, without allocating either. With the feature `alloc`, [`read`]
//! makes them [`SframeFunction`]s, [`table`] makes the project's rows of these, [`functions`] makes functions of rows and says
//! what it cannot, and [`SframeImage`] writes functions as version 2 or 3.

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
