//! A profile: its file, queries on it, and its output formats.
//!
//! A [`Profile`] has the data of a recording: modules, processes, threads, stacks as a tree of
//! frames, and samples. Each sample has the reason why its stack ended. A recorder makes its file
//! with a [`ProfileWriter`], block by block while it runs. [`Profile::read`] reads it, up to its
//! end or its first damaged block. Its addresses have no names: [`ProfileNames`] looks them up.
//!
//! ```
//! use unspool_profile::{Meta, Profile, ProfileProcess, ProfileWriter, Time};
//!
//! let mut writer = ProfileWriter::new(Vec::new(), &Meta::default())?;
//! writer.process(&ProfileProcess {
//!     pid: 300,
//!     parent_pid: 1,
//!     start: Time(0),
//!     end: None,
//!     name: "app".into(),
//! });
//! let bytes = writer.finish(Time(1000))?;
//!
//! let profile = Profile::read(bytes.as_slice())?;
//! assert_eq!(profile.processes()[0].name, "app");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod advice;
pub mod aggregate;
pub mod archive;
mod arguments;
mod code;
mod completeness;
mod error;
mod file;
mod intern;
mod live;
mod model;
mod names;
pub mod output;
mod paths;
mod profile_names;
mod reader;
mod runtime;
mod sampled_code;
mod selection;
mod source_file;
mod stacks;
mod wait;
mod writer;

pub use advice::Advice;
pub use arguments::{Argument, ArgumentCertainty, ArgumentsId};
pub use code::{CodeInstruction, FunctionCode, LineWeight, MissingCode, SourceLines};
pub use completeness::{
    Completeness, CompletenessSummary, GroupedDigits, Headline, IncompleteReason, IncompleteStacks,
    share,
};
pub use error::FileError;
pub use file::MAGIC;
pub use intern::{ModuleInterner, RawFrame};
pub use live::LiveProfile;
pub use model::{
    CodeLocation, CodeSegment, CpuState, FileEnding, FrameEvidence, FrameId, LossOrigin,
    LostSamples, Meta, ModuleId, ModuleKind, ProcessId, Profile, ProfileFrame, ProfileModule,
    ProfileProcess, ProfileRate, ProfileSample, ProfileThread, ProfileUpdate, RecordedSymbol,
    SampledEvent, StackEnd, ThreadId, Time, WeightUnit,
};
pub use names::{
    ANONYMOUS, FrameCertainty, FrameLine, FunctionId, LocationName, NameResolver, NamedProfile,
    NoNameResolver, ProfileFunction, SourceFrame, StackFunction,
};
pub use profile_names::ProfileNames;
pub use reader::ProfileReader;
pub use runtime::Runtime;
pub use sampled_code::{CodeLimits, SampledCode};
pub use selection::{NamePredicate, Selection};
pub use source_file::{SourceExcerpt, SourceFile};
pub use stacks::{StackId, StackNode, Stacks};
pub use wait::{WaitReason, WaitReasons};
pub use writer::ProfileWriter;
