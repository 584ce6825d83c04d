//! The kernel's performance events (`perf_event_open(2)`): opening them, their ring buffers, and
//! their records.
//!
//! An [`PerfEvent`] says what is counted, a [`EventAttr`] what a record of it holds and whom it is of. A
//! [`Counter`] is such an event, open; a [`Ring`] is the memory that the kernel writes its records to.
//! A [`SampleFormat`] reads records ([`Record`]), from a ring or from a file that somebody else wrote.
//!
//! A [`DataFile`] is what `perf record` wrote: events, and their records in the order of their times. A
//! [`Rewriter`] writes it anew, with call chains in place of copied stacks.
//!
//! Records and files are untrusted input: whatever the bytes, reading them yields a record or an error.

mod counter;
mod error;
mod event;
mod file;
mod record;
mod registers;
mod ring;
mod sys;

pub use counter::{Counter, EventAttr, EventTarget, Rate};
pub use error::{OpenError, OpenRefusal};
pub use event::{PerfEvent, UnknownEvent};
pub use file::{
    DataFile, FileBuildId, FileDamage, FileError, FileEvent, FileRecord, ReadSummary,
    RecordingInfo, RewriteError, Rewriter,
};
pub use record::{
    BadRecord, CallChain, CommRecord, CpuMode, MmapFile, MmapRecord, Record, RecordHeader,
    SampleFormat, SampleId, SampleRecord, TaskRecord, UserStackDump,
};
pub use registers::{SampledRegisters, user_mask};
pub use ring::{Ring, RingError};
