//! What a recording knows.

use std::path::PathBuf;

use unspool_elf::{BuildId, ContentKey};
use unspool_rows::{CodeAddr, RuntimeAddr, Vaddr};

use crate::arguments::{Argument, ArgumentsId};
use crate::intern::RawFrame;
use crate::stacks::{StackId, Stacks};

/// A time in nanoseconds, of the clock that stamps samples (the kernel's `CLOCK_MONOTONIC`, unless
/// the recorder chose another).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

/// The number of a module in its profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub u32);

/// The number of a process in its profile. The kernel gives a pid to another process when its owner
/// is gone; this number it never does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

/// The number of a thread in its profile, as lasting as [`ProcessId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub u32);

/// The number of a frame in its profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u32);

/// What was recorded, where and how.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meta {
    /// The command and its arguments; empty if the recording was of something that ran already.
    pub command: Vec<String>,
    /// The name of the machine.
    pub host: String,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: String,
    /// The machine's architecture, as `uname -m` prints it.
    pub arch: String,
    /// What recorded it, with its version.
    pub tool: String,
    /// When samples on a CPU were taken.
    pub event: SampledEvent,
    /// The wall clock at the start, in nanoseconds since 1970 (UTC).
    pub started: u64,
    /// The clock of samples at that moment.
    pub clock: Time,
}

/// What samples on a CPU count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SampledEvent {
    /// The name that `perf list` has for it: `cycles`, `cpu-clock`.
    pub name: String,
    /// How often samples are taken.
    pub rate: Rate,
    /// What the weight of a sample on a CPU counts.
    pub unit: WeightUnit,
}

/// How often samples are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rate {
    /// It is not known.
    #[default]
    Unknown,
    /// About so many times a second of each CPU.
    Frequency(u64),
    /// Each time that so many events have happened.
    Period(u64),
}

impl Rate {
    /// What has fewer samples taken, by the options of `record`.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Rate::Period(_) => "take fewer samples (a greater -c)",
            Rate::Frequency(_) | Rate::Unknown => "take fewer samples (a lower -F)",
        }
    }
}

/// What the weight of a sample on a CPU counts. Off it, that is always nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WeightUnit {
    /// Events.
    #[default]
    Events,
    /// Nanoseconds.
    Nanoseconds,
}

/// Code that frames stand in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProfileModule {
    /// Where it comes from.
    pub kind: ModuleKind,
    /// The path as the process knew it, without a ` (deleted)`; the kernel's name in brackets for
    /// what has none.
    pub path: PathBuf,
    /// What identifies what was mapped: its build ID, or a hash if it has none. It need not be that of the
    /// file there now.
    pub content: Option<ContentKey>,
    /// Whether the file had been deleted or replaced when it was mapped.
    pub is_deleted: bool,
    /// Where its code is, in memory and in the file.
    pub code: Option<CodeSegment>,
}

impl ProfileModule {
    /// The build ID of what was mapped.
    #[must_use]
    pub fn build_id(&self) -> Option<BuildId> {
        self.content.and_then(ContentKey::build_id)
    }
}

/// A part of a module that is mapped from its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CodeSegment {
    /// The address of its first byte, as linked.
    pub address: Vaddr,
    /// Where that byte is in the file.
    pub offset: u64,
    /// How many bytes it has.
    pub size: u64,
}

/// Where a module comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModuleKind {
    /// An ELF file.
    File,
    /// The code that the kernel gives to each process.
    Vdso,
    /// The kernel.
    Kernel,
    /// A module of the kernel.
    KernelModule,
    /// Code made at run time, described by a file of its maker (jitdump).
    Jit,
}

/// A process, from its start or the last `execve` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileProcess {
    /// The kernel's number.
    pub pid: u32,
    /// The process that started it; 0 if that is not known.
    pub parent_pid: u32,
    /// When it started, or when it was first seen.
    pub start: Time,
    /// When it ended; `None` if it outlived the recording.
    pub end: Option<Time>,
    /// The name of its first thread, the last that was seen.
    pub name: String,
}

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileThread {
    /// Of this process.
    pub process: ProcessId,
    /// The kernel's number.
    pub tid: u32,
    /// When it started, or when it was first seen.
    pub start: Time,
    /// When it ended; `None` if it outlived the recording.
    pub end: Option<Time>,
    /// Its name (`comm`), the last that was seen.
    pub name: String,
}

/// News of a process, thread or module that was told before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileUpdate {
    /// It ended then.
    ProcessEnd(ProcessId, Time),
    /// It ended then.
    ThreadEnd(ThreadId, Time),
    /// It has a new name.
    ProcessName(ProcessId, String),
    /// It has a new name.
    ThreadName(ThreadId, String),
    /// The hash of a file without build ID, as [`ContentKey::Hash`] has it.
    ModuleHash(ModuleId, [u8; 20]),
}

/// Where in which code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CodeLocation {
    /// In a module, at an address as linked.
    Module(ModuleId, Vaddr),
    /// In the kernel, whose modules are not known.
    Kernel(RuntimeAddr),
    /// In no module of a process: code made at run time, or no code at all.
    Process(ProcessId, RuntimeAddr),
}

impl CodeLocation {
    /// The place `bytes` further on, wrapping.
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

    /// The address, whatever it is of.
    #[must_use]
    pub fn address(self) -> u64 {
        match self {
            CodeLocation::Module(_, address) => address.0,
            CodeLocation::Kernel(address) | CodeLocation::Process(_, address) => address.0,
        }
    }
}

/// One frame of a stack. Frames are equal if all that is known of them is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProfileFrame {
    /// The instruction, or of a return address the byte before it, which belongs to the call
    /// ([`CodeAddr::lookup`]). This is what to look a name up for.
    pub lookup: CodeLocation,
    /// Whether it is a return address.
    pub is_return: bool,
    /// How it was found.
    pub evidence: FrameEvidence,
    /// What its function was called with, if that was recorded.
    pub arguments: Option<ArgumentsId>,
}

impl ProfileFrame {
    /// The instruction or the return address itself, as debuggers show it.
    #[must_use]
    pub fn location(&self) -> CodeLocation {
        self.lookup.offset(u64::from(self.is_return))
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

/// How a frame was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameEvidence {
    /// It is where the thread was interrupted.
    Registers,
    /// By a row of its callee's unwind table.
    Cfi,
    /// By a row made from the callee's instructions.
    Synthesized,
    /// The callee is a signal trampoline by its bytes.
    SignalTrampoline,
    /// By a call through a bad pointer, which had just been made.
    BadCall,
    /// By the frame pointer.
    FramePointer,
    /// It lies beyond the copied stack: in an earlier copy, or in the thread's memory later on, whose stack
    /// is taken to be the same.
    Spliced,
    /// By the kernel, of its own stack.
    Kernel,
}

impl FrameEvidence {
    /// All of them, from the most to the least trustworthy, but for the kernel's.
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

    /// Whether it was not told by registers, a row or the kernel. Such a frame is marked wherever
    /// it is shown.
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

/// Why a sample's stack has no more frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StackEnd {
    /// The row says that the return address is undefined: the outermost frame.
    Outermost,
    /// The outermost frame runs entry code, which nothing calls.
    EntryPoint,
    /// A thread of the kernel, which has no other stack.
    KernelThread,
    /// The kernel gave no registers of the user's code; or there is no stack for them, since the
    /// program is just being replaced by another.
    NoUserRegisters,
    /// The address lies in no module.
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
    /// What was copied of the stack ends before the next frame.
    NotCopied,
    /// The row leads to memory that cannot be read, or to no caller for another reason.
    StepFailed,
    /// The return address is zero, in a frame that is not declared the outermost.
    ZeroReturnAddress,
    /// The walk came back to a frame that it had left.
    Loop,
    /// The walk went from stack to stack too often.
    TooManyStacks,
    /// The limit of frames was reached.
    Limit,
    /// The recorder fell behind and did not unwind this sample.
    NotUnwound,
}

impl StackEnd {
    /// All of them.
    pub const ALL: [StackEnd; 17] = [
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
        StackEnd::NotUnwound,
    ];

    /// Whether the stack reached its root.
    #[must_use]
    pub fn is_root(self) -> bool {
        matches!(self, StackEnd::Outermost | StackEnd::EntryPoint)
    }

    /// Whether there was a user's stack to be unwound.
    #[must_use]
    pub fn has_user_stack(self) -> bool {
        !matches!(self, StackEnd::KernelThread | StackEnd::NoUserRegisters)
    }

    /// The same in words.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
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
            StackEnd::NotUnwound => "recorder fell behind",
        }
    }

    /// The name used in reports, which is that of `unspool stack` for the same end.
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
            StackEnd::Limit => "limit",
            StackEnd::NotUnwound => "not-unwound",
        }
    }
}

/// One sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileSample {
    /// When.
    pub time: Time,
    /// Of which thread.
    pub thread: ThreadId,
    /// On which CPU.
    pub cpu: u32,
    /// The stack: its innermost frame, from which the others follow.
    pub stack: StackId,
    /// How much the sample stands for: on a CPU in the unit of the event, off it in nanoseconds.
    pub weight: u64,
    /// Whether the thread was running.
    pub state: CpuState,
    /// Why the stack has no more frames.
    pub end: StackEnd,
}

/// Whether a thread was running when it was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CpuState {
    /// It was.
    OnCpu,
    /// It was blocked, or had to wait for a CPU.
    OffCpu,
}

/// Samples that were taken and are not in the profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostSamples {
    /// When that was noticed.
    pub time: Time,
    /// On which CPU.
    pub cpu: u32,
    /// How many.
    pub count: u64,
    /// By whom.
    pub by: LossOrigin,
}

/// Who lost samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LossOrigin {
    /// The kernel: its ring buffer was full, or it throttled the event.
    Kernel,
    /// The recorder: it had no room for more.
    Recorder,
}

/// A name that could only be known while recording: of the kernel, or of code made at run time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedSymbol {
    /// Where it starts.
    pub start: CodeLocation,
    /// How many bytes it has.
    pub size: u64,
    /// The name, not demangled; empty if only `module` is known.
    pub name: String,
    /// What it is of, where that is no [`Module`]: the kernel's module, in brackets, or the name of a file that could
    /// not be read. Else empty.
    pub module: String,
}

/// How the reading of a profile's file ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileEnding {
    /// The recording ended properly, and nothing is missing.
    Proper {
        /// When.
        time: Time,
    },
    /// The file ends without that, between two blocks: the recorder was killed, or goes on.
    Open,
    /// What follows cannot be used. What comes before is whole.
    Cut {
        /// Where the first unusable block starts, in bytes from the start of the file.
        offset: u64,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl FileEnding {
    /// Whether some of the file cannot be used.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        matches!(self, FileEnding::Cut { .. })
    }
}

/// A profile, as read from its file. All numbers in it lead to something in it.
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
    pub(crate) ending: FileEnding,
}

impl Profile {
    /// What was recorded, where and how.
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

    /// What the function of a frame was called with; nothing if the number is of another profile.
    #[must_use]
    pub fn arguments(&self, id: ArgumentsId) -> &[Argument] {
        let arguments = self.arguments.get(id.index() as usize);
        arguments.map_or(&[], Vec::as_slice)
    }

    /// Forgets what functions were called with.
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

    /// The samples, in the order in which they were written: of each CPU by time.
    #[must_use]
    pub fn samples(&self) -> &[ProfileSample] {
        &self.samples
    }

    /// The samples that were lost.
    #[must_use]
    pub fn lost(&self) -> &[LostSamples] {
        &self.lost
    }

    /// The names that were written while recording, in that order: of two for one address, the
    /// later holds.
    #[must_use]
    pub fn symbols(&self) -> &[RecordedSymbol] {
        &self.symbols
    }

    /// How the reading of the file ended.
    #[must_use]
    pub fn ending(&self) -> &FileEnding {
        &self.ending
    }

    /// A module; `None` if the number is of another profile.
    #[must_use]
    pub fn module(&self, id: ModuleId) -> Option<&ProfileModule> {
        self.modules.get(id.0 as usize)
    }

    /// A process; `None` if the number is of another profile.
    #[must_use]
    pub fn process(&self, id: ProcessId) -> Option<&ProfileProcess> {
        self.processes.get(id.0 as usize)
    }

    /// A thread; `None` if the number is of another profile.
    #[must_use]
    pub fn thread(&self, id: ThreadId) -> Option<&ProfileThread> {
        self.threads.get(id.0 as usize)
    }

    /// A frame; `None` if the number is of another profile.
    #[must_use]
    pub fn frame(&self, id: FrameId) -> Option<&ProfileFrame> {
        self.frames.get(id.0 as usize)
    }
}
