//! The one crate that opens, maps, keeps and shows files and text without trust in their owners.
//!
//! - [`trust`] is the rule who may have written a file, and [`environment`] what the caller of the
//!   program may choose.
//! - [`open`] opens a regular file for reading. It never blocks on a FIFO and never opens a device
//!   as a file; the opened descriptor decides, not the path.
//! - [`FileMap`] is the content of a file. With [`guard::install`], truncation of a mapped file
//!   makes [`FileMap::check_intact`] fail, and does not kill the process.
//! - [`CacheFolder`] keeps files that this user finds again: trusted, whole, and bounded.
//! - [`output`] writes files. It follows no symbolic link of another user in a sticky folder.
//! - [`EscapedText`] shows untrusted names without characters that control a terminal or start a
//!   new line.
//! - [`raw`] does what a signal handler or an unwinder needs of this.
//!
//! Without the feature `std`, [`trust`], [`environment`] and [`raw`] remain. They are `no_std` and
//! allocate nothing.
//!
//! `docs/security.md` describes the attackers and the guarantees.
//!
//! ```
//! use std::path::Path;
//! use unspool_files::{EscapedText, FileMap};
//!
//! let file = unspool_files::open(Path::new("/bin/true"))?;
//! assert!(FileMap::new(&file)?.starts_with(b"\x7fELF"));
//! assert!(unspool_files::open(Path::new("/dev/zero")).is_err());
//! assert_eq!(EscapedText("a\x1b[31mname").to_string(), r"a\u{1b}[31mname");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(feature = "std"), no_std)]

pub mod environment;
mod file_id;
mod sys;
pub mod trust;

#[cfg(feature = "std")]
mod cache;
#[cfg(feature = "std")]
mod escape;
#[cfg(feature = "std")]
pub mod guard;
#[cfg(feature = "std")]
mod map;
#[cfg(feature = "std")]
mod map_registry;
#[cfg(feature = "std")]
mod new_file;
#[cfg(feature = "std")]
mod open;
#[cfg(feature = "std")]
pub mod output;
#[cfg(feature = "std")]
mod state;

pub use file_id::FileId;
pub use sys::raw;

#[cfg(feature = "std")]
pub use {
    cache::{
        CacheEntry, CacheError, CacheErrorReason, CacheFolder, RemovedFiles, TrustedFile,
        open_trusted,
    },
    escape::{EscapedLines, EscapedText, PlainJson, escape_bytes, with_causes},
    map::{FileMap, MapTruncated},
    open::{
        FileKind, Input, MAX_STREAM_BYTES, NotRegularFile, metadata, open, open_input,
        open_no_link, read,
    },
    state::{FileOrigin, FileState},
};
