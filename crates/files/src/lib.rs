//! Files and text of others: opened, mapped, written and shown without trust in their owners.
//!
//! - [`open`] opens a regular file for reading. It never waits for a FIFO and never takes a device
//!   for a file; the opened descriptor decides, not the path.
//! - [`Map`] is the content of a file. With [`guard::install`], a file that is truncated while it is
//!   mapped costs an error of [`Map::check`], not the process.
//! - [`output`] writes files. It follows no link that a stranger has put into a sticky folder.
//! - [`Plain`] shows names of others without anything that steers a terminal or begins a line.
//!
//! `docs/security.md` says who is meant by "others", and what is promised.

pub mod guard;
mod map;
mod open;
pub mod output;
mod plain;
mod registry;
mod sys;

pub use map::{Lost, Map};
pub use open::{
    Input, Kind, MAX_STREAM_BYTES, NotRegular, TooLong, is_our_owner, is_stranger, open,
    open_input, open_no_link,
};
pub use plain::{Plain, PlainJson, PlainLines, plain_bytes};
