//! The data of a recording.

use std::fmt;
use std::path::PathBuf;

use unspool_elf::{BuildId, ContentKey};
use unspool_rows::{CodeAddr, RuntimeAddr, Vaddr};

use crate::archive::ProfileArchive;
use crate::arguments::{Argument, ArgumentsId};
use crate::intern::RawFrame;
use crate::stacks::{StackId, Stacks};

/// A time in nanoseconds, of the clock that stamps samples (the kernel's `CLOCK_MONOTONIC`, unless
/// the recorder chose another).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

/// The index of a module in its profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub u32);

/// The index of a process in its profile. The kernel reuses a PID after its process exits; this
/// index is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

/// The index of a thread in its profile, never reused, like [`ProcessId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub u32);

/// The index of a frame in its profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u32);

/// Metadata of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meta {
    /// The command and its arguments; empty if the target was already running.
    pub command: Vec<String>,
    /// The host name of the machine.
    pub host: String,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: String,
    /// The machine's architecture, as `uname -m` prints it.
    pub arch: String,
    /// The recording program, with its version.
    pub tool: String,
    /// The event of on-CPU samples.
    pub event: SampledEvent,
    /// The wall clock at the start, in nanoseconds since 1970 (UTC).
    pub started: u64,
    /// The clock of samples at that time.
    pub clock: Time,
}

/// The event of on-CPU samples.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SampledEvent {
    /// Its name in `perf list`: `cycles`, `cpu-clock`.
    pub name: String,
    /// The sampling rate.
    pub rate: ProfileRate,
    /// The unit of an on-CPU sample's weight.
    pub unit: WeightUnit,
}

/// The sampling rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProfileRate {
    /// Unknown.
    #[default]
    Unknown,
    /// Approximate samples per second of each CPU.
    Frequency(u64),
    /// Events per sample.
    Period(u64),
}

impl ProfileRate {
    /// The options of `record` for fewer samples.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            ProfileRate::Period(_) => "take fewer samples (a greater -c)",
            ProfileRate::Frequency(_) | ProfileRate::Unknown => "take fewer samples (a lower -F)",
        }
    }
}

/// The unit of an on-CPU sample's weight. Off-CPU weights are always nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WeightUnit {
    /// Events.
    #[default]
    Events,
    /// Nanoseconds.
    Nanoseconds,
}

/// Code of frames.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProfileModule {
    /// Its origin.
    pub kind: ModuleKind,
    /// The path in the process, without a ` (deleted)`; the kernel's name in brackets for a module
    /// without a path.
    pub path: PathBuf,
    /// The identity of the mapped contents: the build ID, or a hash without one. The file there now
    /// may have another one.
    pub content: Option<ContentKey>,
    /// Whether the file had been deleted or replaced when it was mapped.
    pub is_deleted: bool,
    /// The location of its code, in memory and in the file.
    pub code: Option<CodeSegment>,
}

impl ProfileModule {
    /// The build ID of the mapped contents.
    #[must_use]
    pub fn build_id(&self) -> Option<BuildId> {
        self.content.and_then(ContentKey::build_id)
    }
}

/// A mapped part of a module's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CodeSegment {
    /// The address of its first byte, as linked.
    pub address: Vaddr,
    /// The file offset of that byte.
    pub offset: u64,
    /// Its size in bytes.
    pub size: u64,
}

/// The origin of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModuleKind {
    /// An ELF file.
    File,
    /// Code that the kernel maps into each process.
    Vdso,
    /// The kernel.
    Kernel,
    /// A kernel module.
    KernelModule,
    /// Code generated at run time, described by a file of its process (jitdump).
    Jit,
}

/// A process, from its start or its last `execve` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileProcess {
    /// The kernel's process ID.
    pub pid: u32,
    /// The PID of its parent; 0 if unknown.
    pub parent_pid: u32,
    /// When it started, or was first seen.
    pub start: Time,
    /// When it exited; `None` if it outlived the recording.
    pub end: Option<Time>,
    /// The latest name of its first thread.
    pub name: String,
}

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileThread {
    /// Its process.
    pub process: ProcessId,
    /// The kernel's thread ID.
    pub tid: u32,
    /// When it started, or was first seen.
    pub start: Time,
    /// When it exited; `None` if it outlived the recording.
    pub end: Option<Time>,
    /// Its latest name (`comm`).
    pub name: String,
}

/// An update of an earlier process, thread or module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileUpdate {
    /// It exited at this time.
    ProcessEnd(ProcessId, Time),
    /// It exited at this time.
    ThreadEnd(ThreadId, Time),
    /// It has a new name.
    ProcessName(ProcessId, String),
    /// It has a new name.
    ThreadName(ThreadId, String),
    /// The hash of a file without build ID, as [`ContentKey::Hash`] has it.
    ModuleHash(ModuleId, [u8; 20]),
}

/// A code location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CodeLocation {
    /// In a module, at an address as linked.
    Module(ModuleId, Vaddr),
    /// In the kernel, without a known module.
    Kernel(RuntimeAddr),
    /// In a process but in no module: code generated at run time, or not code at all.
    Process(ProcessId, RuntimeAddr),
}

impl CodeLocation {
    /// The location `bytes` further on, wrapping.
    #[must_use]
    pub fn offset(self, bytes: u64) -> CodeLocation {
        let further = |address: RuntimeAddr| RuntimeAddr(address.0.wrapping_add(bytes));
        match self {
            CodeLocation::Module(module, address) => {
                CodeLocation::Module(module, address.offset(bytes))
            }
            CodeLocation::Kernel(address) => CodeLocation::Kernel(further(address)),
            CodeLocation::Process(process, address) => {
                CodeLocation::Process(process, further(address))
            }
        }
    }

    /// The address, in either space.
    #[must_use]
    pub fn address(self) -> u64 {
        match self {
            CodeLocation::Module(_, address) => address.0,
            CodeLocation::Kernel(address) | CodeLocation::Process(_, address) => address.0,
        }
    }
}

/// A frame of a stack. Frames are equal if all their data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProfileFrame {
    /// The location for lookup: the instruction, or for a return address the byte before it, which
    /// belongs to the call ([`CodeAddr::lookup`]). Names are looked up by it.
    pub lookup: CodeLocation,
    /// Whether it is a return address.
    pub is_return: bool,
    /// Its evidence.
    pub evidence: FrameEvidence,
    /// The arguments of its function, if recorded.
    pub arguments: Option<ArgumentsId>,
}

impl ProfileFrame {
    /// The instruction or the return address itself, as debuggers show it.
    #[must_use]
    pub fn location(&self) -> CodeLocation {
        self.lookup.offset(u64::from(self.is_return))
    }

    /// Its module; `None` for code in no module.
    pub(crate) fn module(&self) -> Option<ModuleId> {
        match self.lookup {
            CodeLocation::Module(module, _) => Some(module),
            CodeLocation::Kernel(_) | CodeLocation::Process(..) => None,
        }
    }

    pub(crate) fn new(raw: RawFrame, lookup: CodeLocation) -> ProfileFrame {
        ProfileFrame {
            lookup,
            is_return: matches!(raw.code, CodeAddr::Return(_)),
            evidence: raw.evidence,
            arguments: raw.arguments,
        }
    }
}

/// The evidence for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameEvidence {
    /// The interrupted registers.
    Registers,
    /// A row of the callee's unwind table.
    Cfi,
    /// A row synthesized from the callee's instructions.
    Synthesized,
    /// The callee is a signal trampoline, recognized by its bytes.
    SignalTrampoline,
    /// The preceding call through a bad pointer.
    BadCall,
    /// The frame pointer.
    FramePointer,
    /// Memory beyond the stack copy: an earlier copy, or the thread's later memory, which is taken
    /// for the same stack.
    Spliced,
    /// The kernel's walk of its own stack.
    Kernel,
}

impl FrameEvidence {
    /// All of them, from the most to the least trustworthy, except for the kernel's.
    pub const ALL: [FrameEvidence; 8] = [
        FrameEvidence::Registers,
        FrameEvidence::Cfi,
        FrameEvidence::Synthesized,
        FrameEvidence::SignalTrampoline,
        FrameEvidence::BadCall,
        FrameEvidence::FramePointer,
        FrameEvidence::Spliced,
        FrameEvidence::Kernel,
    ];

    /// Whether it is not from registers, a row or the kernel. Such a frame is marked in every
    /// output.
    #[must_use]
    pub fn is_guess(self) -> bool {
        use FrameEvidence::{Cfi, Kernel, Registers, Synthesized};
        !matches!(self, Registers | Cfi | Synthesized | Kernel)
    }

    /// The name used in reports: `cfi`, `frame-pointer`, …
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FrameEvidence::Registers => "registers",
            FrameEvidence::Cfi => "cfi",
            FrameEvidence::Synthesized => "synthesized",
            FrameEvidence::SignalTrampoline => "signal-trampoline",
            FrameEvidence::BadCall => "bad-call",
            FrameEvidence::FramePointer => "frame-pointer",
            FrameEvidence::Spliced => "spliced",
            FrameEvidence::Kernel => "kernel",
        }
    }
}

/// Why a sample's stack ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StackEnd {
    /// The row marks the return address as undefined: the outermost frame.
    Outermost,
    /// The outermost frame is in entry code, which nothing calls.
    EntryPoint,
    /// A kernel thread, which has no user stack.
    KernelThread,
    /// The kernel provided no user registers; or there is no user stack, in the middle of `exec`.
    NoUserRegisters,
    /// The address is in no module.
    NoModule,
    /// The module's file cannot be used.
    NoFile,
    /// The module has no unwind table.
    NoTable,
    /// The module's table does not cover the address.
    Hole,
    /// The entry that covers the address is bad.
    BadEntry,
    /// The module's compiled table is damaged.
    CorruptTable,
    /// The stack copy ends before the next frame.
    NotCopied,
    /// The row leads to unreadable memory, or to no caller for another reason.
    StepFailed,
    /// The return address is zero, in a frame that is not marked as the outermost.
    ZeroReturnAddress,
    /// The walk returned to an earlier frame.
    Loop,
    /// The walk switched stacks too often.
    TooManyStacks,
    /// The frame limit was reached.
    Limit,
    /// The process replaced code while the kernel walked its stack: the walk is not used.
    CodeReplaced,
    /// The sample was recorded without callers: its address is the only frame.
    NoCallers,
    /// The same for a 32-bit process.
    ThirtyTwoBit,
    /// The call chain that the kernel found by frame pointers ends: whether the stack does is
    /// unknown.
    CallChain,
    /// No table covers the address, and its rows were still being made.
    Pending,
    /// The return address is not in executable memory.
    NotCode,
}

impl StackEnd {
    /// All of them.
    pub const ALL: [StackEnd; 22] = [
        StackEnd::Outermost,
        StackEnd::EntryPoint,
        StackEnd::KernelThread,
        StackEnd::NoUserRegisters,
        StackEnd::NoModule,
        StackEnd::NoFile,
        StackEnd::NoTable,
        StackEnd::Hole,
        StackEnd::BadEntry,
        StackEnd::CorruptTable,
        StackEnd::NotCopied,
        StackEnd::StepFailed,
        StackEnd::ZeroReturnAddress,
        StackEnd::Loop,
        StackEnd::TooManyStacks,
        StackEnd::Limit,
        StackEnd::CodeReplaced,
        StackEnd::NoCallers,
        StackEnd::ThirtyTwoBit,
        StackEnd::CallChain,
        StackEnd::Pending,
        StackEnd::NotCode,
    ];

    /// Whether the stack reached its root.
    #[must_use]
    pub fn is_root(self) -> bool {
        matches!(self, StackEnd::Outermost | StackEnd::EntryPoint)
    }

    /// Whether there was a user stack to unwind.
    #[must_use]
    pub fn has_user_stack(self) -> bool {
        use StackEnd::{KernelThread, NoCallers, NoUserRegisters, ThirtyTwoBit};
        !matches!(
            self,
            KernelThread | NoUserRegisters | NoCallers | ThirtyTwoBit
        )
    }

    /// The name used in reports; `unspool stack` has the same names.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StackEnd::Outermost => "outermost",
            StackEnd::EntryPoint => "entry-point",
            StackEnd::KernelThread => "kernel-thread",
            StackEnd::NoUserRegisters => "no-user-registers",
            StackEnd::NoModule => "no-module",
            StackEnd::NoFile => "no-file",
            StackEnd::NoTable => "no-table",
            StackEnd::Hole => "hole",
            StackEnd::BadEntry => "bad-entry",
            StackEnd::CorruptTable => "corrupt-table",
            StackEnd::NotCopied => "not-copied",
            StackEnd::StepFailed => "step-failed",
            StackEnd::ZeroReturnAddress => "zero-return-address",
            StackEnd::Loop => "loop",
            StackEnd::TooManyStacks => "too-many-stacks",
            StackEnd::Limit => "frame-limit",
            StackEnd::CodeReplaced => "code-replaced",
            StackEnd::NoCallers => "no-callers",
            StackEnd::ThirtyTwoBit => "32-bit",
            StackEnd::CallChain => "call-chain",
            StackEnd::Pending => "pending",
            StackEnd::NotCode => "not-code",
        }
    }
}

/// A phrase: `outermost frame`.
impl fmt::Display for StackEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StackEnd::Outermost => "outermost frame",
            StackEnd::EntryPoint => "entry code",
            StackEnd::KernelThread => "kernel thread",
            StackEnd::NoUserRegisters => "no user stack",
            StackEnd::NoModule => "address in no module",
            StackEnd::NoFile => "module's file cannot be used",
            StackEnd::NoTable => "no unwind table",
            StackEnd::Hole => "hole in the unwind table",
            StackEnd::BadEntry => "bad unwind table entry",
            StackEnd::CorruptTable => "corrupt compiled table",
            StackEnd::NotCopied => "stack copy too short",
            StackEnd::StepFailed => "unwind table leads to no caller",
            StackEnd::ZeroReturnAddress => "return address is zero",
            StackEnd::Loop => "stack leads in a circle",
            StackEnd::TooManyStacks => "stack changed too often",
            StackEnd::Limit => "limit of frames",
            StackEnd::CodeReplaced => "code replaced during the walk",
            StackEnd::NoCallers => "recorded without callers",
            StackEnd::ThirtyTwoBit => "32-bit process, recorded without callers",
            StackEnd::CallChain => "end of the kernel's call chain",
            StackEnd::Pending => "rows still being made",
            StackEnd::NotCode => "return address is not code",
        })
    }
}

/// A sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileSample {
    /// Its time.
    pub time: Time,
    /// Its thread.
    pub thread: ThreadId,
    /// Its CPU.
    pub cpu: u32,
    /// Its stack, given by the innermost frame.
    pub stack: StackId,
    /// Its weight: on a CPU in the unit of the event, off it in nanoseconds.
    pub weight: u64,
    /// Whether the thread was running.
    pub state: CpuState,
    /// Why the stack ends.
    pub end: StackEnd,
}

/// Whether a thread was running when it was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CpuState {
    /// It was running.
    OnCpu,
    /// It was blocked or waiting for a CPU.
    OffCpu,
}

/// Samples that were taken and are missing in the profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostSamples {
    /// When the loss was noticed.
    pub time: Time,
    /// Their CPU.
    pub cpu: u32,
    /// Their number.
    pub count: u64,
    /// The component that lost them.
    pub origin: LossOrigin,
}

/// The component that lost samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LossOrigin {
    /// The kernel: its ring buffer was full, or it throttled the event.
    Kernel,
    /// The recorder: it was out of space.
    Recorder,
}

/// A name that was only available during the recording: of the kernel, or of generated code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedSymbol {
    /// Its start.
    pub start: CodeLocation,
    /// Its size in bytes.
    pub size: u64,
    /// The name, mangled; empty if only `module` is known.
    pub name: String,
    /// Its module, if that is not a [`ProfileModule`]: the kernel module, in brackets, or the name
    /// of an unreadable file. Otherwise empty.
    pub module: String,
}

/// How the reading of a profile's file ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileEnding {
    /// The recording ended properly, and the profile is complete.
    Proper {
        /// The time of the end.
        time: Time,
    },
    /// The file ends without an end record, between two blocks: the recorder was killed, or is
    /// still running.
    Open,
    /// The rest cannot be used. The part before it is valid.
    Cut {
        /// Where the first unusable block starts, in bytes from the start of the file.
        offset: u64,
        /// Why it cannot be used.
        reason: &'static str,
    },
}

impl FileEnding {
    /// Whether part of the file cannot be used.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        matches!(self, FileEnding::Cut { .. })
    }
}

/// A profile, read from its file. All its indices are valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub(crate) meta: Meta,
    pub(crate) modules: Vec<ProfileModule>,
    pub(crate) processes: Vec<ProfileProcess>,
    pub(crate) threads: Vec<ProfileThread>,
    pub(crate) frames: Vec<ProfileFrame>,
    pub(crate) arguments: Vec<Vec<Argument>>,
    pub(crate) stacks: Stacks,
    pub(crate) samples: Vec<ProfileSample>,
    pub(crate) lost: Vec<LostSamples>,
    pub(crate) symbols: Vec<RecordedSymbol>,
    pub(crate) archive: Option<Box<ProfileArchive>>,
    pub(crate) ending: FileEnding,
}

impl Profile {
    /// The metadata.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The modules, by [`ModuleId`].
    #[must_use]
    pub fn modules(&self) -> &[ProfileModule] {
        &self.modules
    }

    /// The processes, by [`ProcessId`].
    #[must_use]
    pub fn processes(&self) -> &[ProfileProcess] {
        &self.processes
    }

    /// The threads, by [`ThreadId`].
    #[must_use]
    pub fn threads(&self) -> &[ProfileThread] {
        &self.threads
    }

    /// The frames, by [`FrameId`].
    #[must_use]
    pub fn frames(&self) -> &[ProfileFrame] {
        &self.frames
    }

    /// The arguments of a frame's function; empty if the ID is of another profile.
    #[must_use]
    pub fn arguments(&self, id: ArgumentsId) -> &[Argument] {
        let arguments = self.arguments.get(id.index() as usize);
        arguments.map_or(&[], Vec::as_slice)
    }

    /// Discards the arguments of functions.
    pub fn forget_arguments(&mut self) {
        for frame in &mut self.frames {
            frame.arguments = None;
        }
    }

    /// The stacks.
    #[must_use]
    pub fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// The samples in the order of writing: sorted by time for each CPU.
    #[must_use]
    pub fn samples(&self) -> &[ProfileSample] {
        &self.samples
    }

    /// The lost samples.
    #[must_use]
    pub fn lost(&self) -> &[LostSamples] {
        &self.lost
    }

    /// The names written during the recording, in that order: of two for one address, the later is
    /// valid.
    #[must_use]
    pub fn symbols(&self) -> &[RecordedSymbol] {
        &self.symbols
    }

    /// The names, sources and code that are kept with it, if it is an archive.
    #[must_use]
    pub fn archive(&self) -> Option<&ProfileArchive> {
        self.archive.as_deref()
    }

    /// How the reading of the file ended.
    #[must_use]
    pub fn ending(&self) -> &FileEnding {
        &self.ending
    }

    /// A module; `None` if the index is of another profile.
    #[must_use]
    pub fn module(&self, id: ModuleId) -> Option<&ProfileModule> {
        self.modules.get(id.0 as usize)
    }

    /// A process; `None` if the index is of another profile.
    #[must_use]
    pub fn process(&self, id: ProcessId) -> Option<&ProfileProcess> {
        self.processes.get(id.0 as usize)
    }

    /// A thread; `None` if the index is of another profile.
    #[must_use]
    pub fn thread(&self, id: ThreadId) -> Option<&ProfileThread> {
        self.threads.get(id.0 as usize)
    }

    /// A frame; `None` if the index is of another profile.
    #[must_use]
    pub fn frame(&self, id: FrameId) -> Option<&ProfileFrame> {
        self.frames.get(id.0 as usize)
    }
}
