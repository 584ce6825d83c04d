//! Performance events of the Linux kernel (`perf_event_open(2)`): opening them, their ring buffers,
//! and their records.
//!
//! A [`PerfEvent`] is an event to count. An [`EventAttr`] describes its records' fields, an
//! [`EventTarget`] its target. A [`Counter`] is an open event; a [`Ring`] is the memory to which
//! the kernel writes its records. A [`SampleFormat`] reads records ([`Record`]), from a ring or
//! from a file by another program.
//!
//! A [`DataFile`] is the output of `perf record`: events, and their records in the order of their
//! times. A [`Rewriter`] rewrites it with call chains in place of copied stacks.
//!
//! Records and files are untrusted input: for any bytes, reading them returns a record or an error.
//!
//! ```
//! use unspool_perf_events::PerfEvent;
//!
//! let event: PerfEvent = "cpu-clock".parse()?;
//! assert_eq!(event, PerfEvent::cpu_clock());
//! let unknown: Result<PerfEvent, _> = "cpu-watch".parse();
//! assert!(unknown.is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod counter;
mod error;
mod event;
mod file;
mod record;
mod registers;
mod ring;
mod sys;

pub use counter::{Counter, EventAttr, EventTarget, SampleRate};
pub use error::{OpenError, OpenRefusal};
pub use event::{EventNameError, PerfEvent};
pub use file::{
    DataFile, FileBuildId, FileDamage, FileEvent, FileRecord, PerfFileError, PerfRewriteError,
    ReadSummary, RecordingInfo, Rewriter,
};
pub use record::{
    BadRecord, CallChain, CommRecord, CpuMode, MmapFile, MmapRecord, Record, RecordHeader,
    SampleFormat, SampleId, SampleRecord, TaskRecord, UserRegisters, UserStackDump,
};
pub use registers::{SampledRegisters, user_mask};
pub use ring::{Ring, RingError};
