//! Untrusted files and text: opened, mapped, written and shown without trust in their owners.
//!
//! - [`open`] opens a regular file for reading. It never blocks on a FIFO and never opens a device
//!   as a file; the opened descriptor decides, not the path.
//! - [`FileMap`] is the content of a file. With [`guard::install`], truncation of a mapped file
//!   makes [`FileMap::check_intact`] fail, and does not kill the process.
//! - [`output`] writes files. It follows no symbolic link of another user in a sticky folder.
//! - [`EscapedText`] shows untrusted names without characters that control a terminal or start a
//!   new line.
//!
//! `docs/security.md` describes the attackers and the guarantees.

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
