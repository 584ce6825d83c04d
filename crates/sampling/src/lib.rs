//! Samples of running programs: the address spaces of processes followed, stacks unwound, and all of
//! it recorded.
//!
//! The kernel says what processes map, begin and end ([`unspool_perf::Record`]); [`Processes`] keeps what
//! is mapped where, with the tables of each file, which are opened once ([`Files`]). An [`Unwinder`]
//! unwinds the copied stack of a sample with that. A [`Recording`] puts it together: it opens the
//! events, launches a command or attaches to what runs, and writes a profile.
//!
//! What perf recorded ([`unspool_perf::DataFile`]) is unwound by a [`Replay`], becomes a profile by
//! [`import`], or a recording with finished call chains by [`inject`]; the files of such a recording are found
//! by [`Recorded`].

mod arguments;
mod beyond;
mod compile;
mod files;
mod live;
mod made;
mod processes;
mod record;
mod recorded;
mod space;
mod stack_copy;
mod sys;
mod unwind;
mod way_out;

pub use arguments::{FindTable, NothingOf, Wanted};
pub use files::{Distinction, File, Files, Finder, Found};
pub use live::{Live, Root};
pub use made::Maker;
pub use processes::Processes;
pub use record::{Begun, News, Notice, Options, Progress, RecordError, Recording, Summary, Target};
pub use recorded::{ImportError, Imported, Injected, Recorded, Replay, import, inject};
pub use space::Space;
pub use unwind::{Unwinder, Unwound};
