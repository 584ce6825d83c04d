//! A profile as a value: its file, what can be asked of it, and the forms it can be written in.
//!
//! A [`Profile`] is what a recording knows: modules, processes, threads, stacks as a tree of frames,
//! and samples, each with the reason why its stack ended. A recorder makes its file with a
//! [`Writer`], block by block while it runs; [`Profile::read`] reads it, as far as it goes. Addresses
//! in it have no names: those are looked up when they are asked for.

#![forbid(unsafe_code)]

mod advice;
pub mod aggregate;
mod arguments;
mod completeness;
mod error;
mod file;
mod intern;
mod model;
mod names;
pub mod output;
mod paths;
mod reader;
mod selection;
mod stacks;
mod writer;

pub use advice::Advice;
pub use arguments::{Argument, ArgumentsId, Known};
pub use completeness::{Completeness, Grouped, Headline, Incomplete, Reason, Summary, share};
pub use error::FileError;
pub use file::MAGIC;
pub use intern::{Modules, RawFrame};
pub use model::{
    Change, End, Ending, Event, Evidence, Frame, FrameId, Lost, LostBy, Meta, Module, ModuleId,
    ModuleKind, Place, Process, ProcessId, Profile, Rate, Sample, Segment, State, Symbol, Thread,
    ThreadId, Time, Unit,
};
pub use names::{
    ANONYMOUS, Called, Function, FunctionId, Line, Mark, Name, Named, Names, NoNames, Step,
};
pub use reader::Reader;
pub use selection::{Selection, Test};
pub use stacks::{Node, StackId, Stacks};
pub use writer::Writer;
