//! Files and text of others: opened, mapped, written and shown without trust in their owners.
//!
//! - [`open`] opens a regular file for reading. It never waits for a FIFO and never takes a device
//!   for a file; the opened descriptor decides, not the path.
//! - [`FileMap`] is the content of a file. With [`guard::install`], a file that is truncated while it is
//!   mapped costs an error of [`FileMap::check`], not the process.
//! - [`output`] writes files. It follows no link that a stranger has put into a sticky folder.
//! - [`EscapedText`] shows names of others without anything that steers a terminal or begins a line.
//!
//! `docs/security.md` says who is meant by "others", and what is promised.

mod escape;
pub mod guard;
mod map;
mod map_registry;
mod open;
pub mod output;
mod sys;

pub use escape::{EscapedLines, EscapedText, PlainJson, escape_bytes};
pub use map::{FileMap, MapTruncated};
pub use open::{
    FileKind, Input, MAX_STREAM_BYTES, NotRegularFile, StreamTooLong, is_our_owner, is_untrusted,
    open, open_input, open_no_link,
};
