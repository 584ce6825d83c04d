//! The columns of each table: the code that writes a row, beside the code that reads it.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use unspool_elf::{BuildId, ContentKey};
use unspool_rows::{RuntimeAddr, Vaddr};

use super::column::{ColumnReader, ColumnWriter};
use super::table::TableRow;
use crate::arguments::{Argument, ArgumentCertainty, ArgumentsId};
use crate::model::{
    CodeLocation, CodeSegment, CpuState, FrameEvidence, FrameId, LossOrigin, LostSamples, ModuleId,
    ModuleKind, ProcessId, ProfileFrame, ProfileModule, ProfileProcess, ProfileSample,
    ProfileThread, ProfileUpdate, RecordedSymbol, StackEnd, ThreadId, Time,
};
use crate::stacks::StackId;

/// The kinds of block.
pub(crate) mod kind {
    pub(crate) const META: u16 = 1;
    pub(crate) const MODULES: u16 = 2;
    pub(crate) const PROCESSES: u16 = 3;
    pub(crate) const THREADS: u16 = 4;
    pub(crate) const CHANGES: u16 = 5;
    pub(crate) const FRAMES: u16 = 6;
    pub(crate) const SYMBOLS: u16 = 7;
    pub(crate) const STACKS: u16 = 8;
    pub(crate) const SAMPLES: u16 = 9;
    pub(crate) const LOST: u16 = 10;
    pub(crate) const END: u16 = 11;
    pub(crate) const ARGUMENTS: u16 = 12;
    pub(crate) const CALLED_WITH: u16 = 13;
    pub(crate) const STRINGS: u16 = 14;
    pub(crate) const LOCATIONS: u16 = 15;
    pub(crate) const FRAME_NAMES: u16 = 16;
    pub(crate) const FUNCTION_CODE: u16 = 17;
    pub(crate) const INSTRUCTIONS: u16 = 18;
    pub(crate) const SOURCES: u16 = 19;
}

/// One fact about the recording.
#[derive(Debug)]
pub(crate) struct MetaEntry {
    pub(crate) key: String,
    pub(crate) value: String,
}

impl TableRow<2> for MetaEntry {
    const NAME: &'static str = "META";
    const KIND: u16 = kind::META;

    fn put(&self, [key, value]: &mut [ColumnWriter; 2]) {
        key.string(self.key.as_bytes());
        value.string(self.value.as_bytes());
    }

    fn take([key, value]: &mut [ColumnReader<'_>; 2]) -> Option<Self> {
        Some(MetaEntry {
            key: key.text()?,
            value: value.text()?,
        })
    }
}

impl TableRow<7> for ProfileModule {
    const NAME: &'static str = "MODULES";
    const KIND: u16 = kind::MODULES;

    fn put(&self, [kind, path, build_id, address, offset, size, hash]: &mut [ColumnWriter; 7]) {
        kind.number(2 * code_of(&MODULE_KINDS, &self.kind) + u64::from(self.is_deleted));
        path.string(self.path.as_os_str().as_bytes());
        match &self.content {
            Some(ContentKey::BuildId(id)) => build_id.string(id.as_bytes()),
            _ => build_id.string(&[]),
        }
        // A segment without bytes means "none".
        let code = self.code.filter(|code| code.size > 0);
        address.number(code.map_or(0, |code| code.address.0));
        offset.number(code.map_or(0, |code| code.offset));
        size.number(code.map_or(0, |code| code.size));
        match &self.content {
            Some(ContentKey::Hash(bytes)) => hash.string(bytes),
            _ => hash.string(&[]),
        }
    }

    fn take(
        [kind, path, build_id, address, offset, size, hash]: &mut [ColumnReader<'_>; 7],
    ) -> Option<Self> {
        let kind = kind.number()?;
        let content = match (build_id.string()?, hash.string()?) {
            ([], []) => None,
            ([], bytes) => Some(ContentKey::Hash(bytes.try_into().ok()?)),
            (bytes, _) => Some(ContentKey::BuildId(BuildId::new(bytes)?)),
        };
        let code = CodeSegment {
            address: Vaddr(address.number()?),
            offset: offset.number()?,
            size: size.number()?,
        };
        Some(ProfileModule {
            kind: with_code(&MODULE_KINDS, kind / 2)?,
            is_deleted: kind % 2 == 1,
            path: PathBuf::from(OsStr::from_bytes(path.string()?)),
            content,
            code: (code.size > 0).then_some(code),
        })
    }
}

impl TableRow<4> for ProfileProcess {
    const NAME: &'static str = "PROCESSES";
    const KIND: u16 = kind::PROCESSES;

    fn put(&self, [pid, parent_pid, start, name]: &mut [ColumnWriter; 4]) {
        pid.number(self.pid);
        parent_pid.number(self.parent_pid);
        start.delta(self.start.0);
        name.string(self.name.as_bytes());
    }

    fn take([pid, parent_pid, start, name]: &mut [ColumnReader<'_>; 4]) -> Option<Self> {
        Some(ProfileProcess {
            pid: pid.small()?,
            parent_pid: parent_pid.small()?,
            start: Time(start.delta()?),
            end: None,
            name: name.text()?,
        })
    }
}

impl TableRow<4> for ProfileThread {
    const NAME: &'static str = "THREADS";
    const KIND: u16 = kind::THREADS;

    fn put(&self, [process, tid, start, name]: &mut [ColumnWriter; 4]) {
        process.number(self.process.0);
        tid.number(self.tid);
        start.delta(self.start.0);
        name.string(self.name.as_bytes());
    }

    fn take([process, tid, start, name]: &mut [ColumnReader<'_>; 4]) -> Option<Self> {
        Some(ProfileThread {
            process: ProcessId(process.small()?),
            tid: tid.small()?,
            start: Time(start.delta()?),
            end: None,
            name: name.text()?,
        })
    }
}

impl TableRow<4> for ProfileUpdate {
    const NAME: &'static str = "CHANGES";
    const KIND: u16 = kind::CHANGES;

    fn put(&self, [what, id, time, name]: &mut [ColumnWriter; 4]) {
        let hash;
        let (code, number, at, called) = match self {
            ProfileUpdate::ProcessEnd(process, at) => (0_u64, process.0, *at, ""),
            ProfileUpdate::ThreadEnd(thread, at) => (1, thread.0, *at, ""),
            ProfileUpdate::ProcessName(process, name) => (2, process.0, Time(0), name.as_str()),
            ProfileUpdate::ThreadName(thread, name) => (3, thread.0, Time(0), name.as_str()),
            ProfileUpdate::ModuleHash(module, bytes) => {
                hash = ContentKey::Hash(*bytes).to_string();
                (4, module.0, Time(0), hash.as_str())
            }
        };
        what.number(code);
        id.number(number);
        time.delta(at.0);
        name.string(called.as_bytes());
    }

    fn take([what, id, time, name]: &mut [ColumnReader<'_>; 4]) -> Option<Self> {
        let id = id.small()?;
        let time = Time(time.delta()?);
        let name = name.text()?;
        match what.number()? {
            0 => Some(ProfileUpdate::ProcessEnd(ProcessId(id), time)),
            1 => Some(ProfileUpdate::ThreadEnd(ThreadId(id), time)),
            2 => Some(ProfileUpdate::ProcessName(ProcessId(id), name)),
            3 => Some(ProfileUpdate::ThreadName(ThreadId(id), name)),
            4 => match ContentKey::hash_from_text(&name)? {
                ContentKey::Hash(bytes) => Some(ProfileUpdate::ModuleHash(ModuleId(id), bytes)),
                ContentKey::BuildId(_) => None,
            },
            _ => None,
        }
    }
}

impl TableRow<3> for ProfileFrame {
    const NAME: &'static str = "FRAMES";
    const KIND: u16 = kind::FRAMES;

    fn put(&self, [space, address, how]: &mut [ColumnWriter; 3]) {
        put_location(self.lookup, space, address);
        how.number(2 * code_of(&FrameEvidence::ALL, &self.evidence) + u64::from(self.is_return));
    }

    fn take([space, address, how]: &mut [ColumnReader<'_>; 3]) -> Option<Self> {
        let how = how.number()?;
        Some(ProfileFrame {
            lookup: take_location(space, address)?,
            is_return: how % 2 == 1,
            evidence: with_code(&FrameEvidence::ALL, how / 2)?,
            arguments: None,
        })
    }
}

/// The arguments of a function: at least one.
impl TableRow<5> for Vec<Argument> {
    const NAME: &'static str = "ARGUMENTS";
    const KIND: u16 = kind::ARGUMENTS;

    fn put(&self, [count, name, type_name, value, known]: &mut [ColumnWriter; 5]) {
        count.number(self.len() as u64);
        for argument in self {
            name.string(argument.name.as_bytes());
            type_name.string(argument.type_name.as_bytes());
            value.string(argument.value.as_bytes());
            known.number(code_of(&ArgumentCertainty::ALL, &argument.certainty));
        }
    }

    fn take([count, name, type_name, value, known]: &mut [ColumnReader<'_>; 5]) -> Option<Self> {
        let argument = |_| {
            Some(Argument {
                name: name.text()?,
                type_name: type_name.text()?,
                value: value.text()?,
                certainty: with_code(&ArgumentCertainty::ALL, known.number()?)?,
            })
        };
        (0..count.number()?).map(argument).collect()
    }
}

/// The arguments of a frame's function.
#[derive(Debug)]
pub(crate) struct FrameArguments {
    pub(crate) frame: FrameId,
    pub(crate) arguments: ArgumentsId,
}

impl TableRow<2> for FrameArguments {
    const NAME: &'static str = "CALLED_WITH";
    const KIND: u16 = kind::CALLED_WITH;

    fn put(&self, [frame, arguments]: &mut [ColumnWriter; 2]) {
        frame.number(self.frame.0);
        arguments.number(self.arguments.index());
    }

    fn take([frame, arguments]: &mut [ColumnReader<'_>; 2]) -> Option<Self> {
        Some(FrameArguments {
            frame: FrameId(frame.small()?),
            arguments: ArgumentsId::from_index(arguments.small::<u32>()? as usize),
        })
    }
}

impl TableRow<5> for RecordedSymbol {
    const NAME: &'static str = "SYMBOLS";
    const KIND: u16 = kind::SYMBOLS;

    fn put(&self, [space, address, size, name, module]: &mut [ColumnWriter; 5]) {
        put_location(self.start, space, address);
        size.number(self.size);
        name.string(self.name.as_bytes());
        module.string(self.module.as_bytes());
    }

    fn take([space, address, size, name, module]: &mut [ColumnReader<'_>; 5]) -> Option<Self> {
        Some(RecordedSymbol {
            start: take_location(space, address)?,
            size: size.number()?,
            name: name.text()?,
            module: module.text()?,
        })
    }
}

/// New stacks, each the previous one and one more frame.
#[derive(Debug, Default)]
pub(crate) struct StackRun {
    /// The parent of the first.
    pub(crate) parent: StackId,
    /// The frames, from the outermost on.
    pub(crate) frames: Vec<FrameId>,
}

impl TableRow<3> for StackRun {
    const NAME: &'static str = "STACKS";
    const KIND: u16 = kind::STACKS;

    fn put(&self, [parent, count, frames]: &mut [ColumnWriter; 3]) {
        parent.delta(self.parent.0);
        count.number(self.frames.len() as u64);
        for frame in &self.frames {
            frames.number(frame.0);
        }
    }

    fn take([parent, count, frames]: &mut [ColumnReader<'_>; 3]) -> Option<Self> {
        Some(StackRun {
            parent: StackId(parent.small_delta()?),
            frames: (0..count.number()?)
                .map(|_| frames.small().map(FrameId))
                .collect::<Option<_>>()?,
        })
    }
}

impl TableRow<7> for ProfileSample {
    const NAME: &'static str = "SAMPLES";
    const KIND: u16 = kind::SAMPLES;

    fn put(&self, [time, thread, cpu, stack, weight, state, end]: &mut [ColumnWriter; 7]) {
        time.delta(self.time.0);
        thread.number(self.thread.0);
        cpu.number(self.cpu);
        stack.delta(self.stack.0);
        weight.delta(self.weight);
        state.number(code_of(&STATES, &self.state));
        end.number(code_of(&StackEnd::ALL, &self.end));
    }

    fn take(
        [time, thread, cpu, stack, weight, state, end]: &mut [ColumnReader<'_>; 7],
    ) -> Option<Self> {
        Some(ProfileSample {
            time: Time(time.delta()?),
            thread: ThreadId(thread.small()?),
            cpu: cpu.small()?,
            stack: StackId(stack.small_delta()?),
            weight: weight.delta()?,
            state: with_code(&STATES, state.number()?)?,
            end: with_code(&StackEnd::ALL, end.number()?)?,
        })
    }
}

impl TableRow<4> for LostSamples {
    const NAME: &'static str = "LOST";
    const KIND: u16 = kind::LOST;

    fn put(&self, [time, cpu, count, by]: &mut [ColumnWriter; 4]) {
        time.delta(self.time.0);
        cpu.number(self.cpu);
        count.number(self.count);
        by.number(code_of(&LOSS_ORIGINS, &self.origin));
    }

    fn take([time, cpu, count, by]: &mut [ColumnReader<'_>; 4]) -> Option<Self> {
        Some(LostSamples {
            time: Time(time.delta()?),
            cpu: cpu.small()?,
            count: count.number()?,
            origin: with_code(&LOSS_ORIGINS, by.number()?)?,
        })
    }
}

/// A name of a function or of a source file.
#[derive(Debug)]
pub(crate) struct ArchivedString(pub(crate) String);

impl TableRow<1> for ArchivedString {
    const NAME: &'static str = "STRINGS";
    const KIND: u16 = kind::STRINGS;

    fn put(&self, [text]: &mut [ColumnWriter; 1]) {
        text.string(self.0.as_bytes());
    }

    fn take([text]: &mut [ColumnReader<'_>; 1]) -> Option<Self> {
        Some(ArchivedString(text.text()?))
    }
}

/// A function of a source location: strings by index, and the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ArchivedFrame {
    pub(crate) function: u32,
    pub(crate) file: Option<u32>,
    pub(crate) line: Option<u32>,
}

/// A source location: the functions inlined there, the innermost first.
impl TableRow<4> for Vec<ArchivedFrame> {
    const NAME: &'static str = "LOCATIONS";
    const KIND: u16 = kind::LOCATIONS;

    fn put(&self, [count, function, file, line]: &mut [ColumnWriter; 4]) {
        count.number(self.len() as u64);
        for frame in self {
            function.number(frame.function);
            put_optional(file, frame.file);
            put_optional(line, frame.line);
        }
    }

    fn take([count, function, file, line]: &mut [ColumnReader<'_>; 4]) -> Option<Self> {
        let frame = |_| {
            Some(ArchivedFrame {
                function: function.small()?,
                file: take_optional(file)?,
                line: take_optional(line)?,
            })
        };
        (0..count.number()?).map(frame).collect()
    }
}

/// The name of a frame's code location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameName {
    pub(crate) frame: FrameId,
    pub(crate) location: Option<u32>,
    pub(crate) start: Option<u64>,
    pub(crate) symbol_hash: Option<u32>,
}

impl TableRow<4> for FrameName {
    const NAME: &'static str = "FRAME_NAMES";
    const KIND: u16 = kind::FRAME_NAMES;

    fn put(&self, [frame, location, start, hash]: &mut [ColumnWriter; 4]) {
        frame.delta(self.frame.0);
        put_optional(location, self.location);
        put_optional(start, self.start);
        put_optional(hash, self.symbol_hash);
    }

    fn take([frame, location, start, hash]: &mut [ColumnReader<'_>; 4]) -> Option<Self> {
        Some(FrameName {
            frame: FrameId(frame.small_delta()?),
            location: take_optional(location)?,
            start: take_optional(start)?,
            symbol_hash: take_optional(hash)?,
        })
    }
}

/// The bounds of a function's code in a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CodeBounds {
    pub(crate) module: ModuleId,
    pub(crate) range: Range<Vaddr>,
}

impl CodeBounds {
    /// The number of bytes.
    pub(crate) fn size(&self) -> u64 {
        self.range.end.0.saturating_sub(self.range.start.0)
    }
}

impl TableRow<3> for CodeBounds {
    const NAME: &'static str = "FUNCTION_CODE";
    const KIND: u16 = kind::FUNCTION_CODE;

    fn put(&self, [module, start, size]: &mut [ColumnWriter; 3]) {
        module.number(self.module.0);
        start.delta(self.range.start.0);
        size.number(CodeBounds::size(self));
    }

    fn take([module, start, size]: &mut [ColumnReader<'_>; 3]) -> Option<Self> {
        let module = ModuleId(module.small()?);
        let start = start.delta()?;
        let end = start.checked_add(size.number()?)?;
        Some(CodeBounds {
            module,
            range: Vaddr(start)..Vaddr(end),
        })
    }
}

/// An instruction of a function's code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArchivedInstruction {
    pub(crate) code: u32,
    pub(crate) address: Vaddr,
    pub(crate) length: u8,
    pub(crate) text: String,
    pub(crate) target: Option<u32>,
    pub(crate) location: Option<u32>,
}

impl TableRow<6> for ArchivedInstruction {
    const NAME: &'static str = "INSTRUCTIONS";
    const KIND: u16 = kind::INSTRUCTIONS;

    fn put(&self, [code, address, length, text, target, location]: &mut [ColumnWriter; 6]) {
        code.delta(self.code);
        address.delta(self.address.0);
        length.number(self.length);
        text.string(self.text.as_bytes());
        put_optional(target, self.target);
        put_optional(location, self.location);
    }

    fn take(
        [code, address, length, text, target, location]: &mut [ColumnReader<'_>; 6],
    ) -> Option<Self> {
        Some(ArchivedInstruction {
            code: code.small_delta()?,
            address: Vaddr(address.delta()?),
            length: length.small()?,
            text: text.text()?,
            target: take_optional(target)?,
            location: take_optional(location)?,
        })
    }
}

/// Lines of a source file.
#[derive(Debug)]
pub(crate) struct ArchivedSource {
    pub(crate) file: u32,
    pub(crate) first_line: u32,
    pub(crate) is_newer: bool,
    pub(crate) text: String,
}

impl TableRow<4> for ArchivedSource {
    const NAME: &'static str = "SOURCES";
    const KIND: u16 = kind::SOURCES;

    fn put(&self, [file, first_line, newer, text]: &mut [ColumnWriter; 4]) {
        file.number(self.file);
        first_line.number(self.first_line);
        newer.number(u64::from(self.is_newer));
        text.string(self.text.as_bytes());
    }

    fn take([file, first_line, newer, text]: &mut [ColumnReader<'_>; 4]) -> Option<Self> {
        Some(ArchivedSource {
            file: file.small()?,
            first_line: first_line.small()?,
            is_newer: newer.number()? != 0,
            text: text.text()?,
        })
    }
}

/// A number plus 1, or 0 for none.
fn put_optional(column: &mut ColumnWriter, value: Option<impl Into<u64>>) {
    column.number(value.map_or(0, |value| value.into().saturating_add(1)));
}

/// `None` if it cannot be read or does not fit the type.
#[expect(clippy::option_option, reason = "the inner one is the value")]
fn take_optional<T: TryFrom<u64>>(column: &mut ColumnReader<'_>) -> Option<Option<T>> {
    match column.number()? {
        0 => Some(None),
        number => Some(Some(T::try_from(number - 1).ok()?)),
    }
}

/// The proper end of a recording, with its totals.
#[derive(Debug)]
pub(crate) struct EndRecord {
    pub(crate) time: Time,
    pub(crate) samples: u64,
}

impl TableRow<2> for EndRecord {
    const NAME: &'static str = "END";
    const KIND: u16 = kind::END;

    fn put(&self, [time, samples]: &mut [ColumnWriter; 2]) {
        time.number(self.time.0);
        samples.number(self.samples);
    }

    fn take([time, samples]: &mut [ColumnReader<'_>; 2]) -> Option<Self> {
        Some(EndRecord {
            time: Time(time.number()?),
            samples: samples.number()?,
        })
    }
}

/// A code location: 0 for the kernel, or the doubled index of a module or process plus 1 or 2; and
/// the address.
fn put_location(location: CodeLocation, space: &mut ColumnWriter, address: &mut ColumnWriter) {
    space.number(match location {
        CodeLocation::Kernel(_) => 0,
        CodeLocation::Module(module, _) => 1 + 2 * u64::from(module.0),
        CodeLocation::Process(process, _) => 2 + 2 * u64::from(process.0),
    });
    address.delta(location.address());
}

fn take_location(
    space: &mut ColumnReader<'_>,
    address: &mut ColumnReader<'_>,
) -> Option<CodeLocation> {
    let address = address.delta()?;
    let Some(owner) = space.number()?.checked_sub(1) else {
        return Some(CodeLocation::Kernel(RuntimeAddr(address)));
    };
    let number = u32::try_from(owner / 2).ok()?;
    Some(match owner % 2 {
        0 => CodeLocation::Module(ModuleId(number), Vaddr(address)),
        _ => CodeLocation::Process(ProcessId(number), RuntimeAddr(address)),
    })
}

// A value is stored as its index in these lists, or in `FrameEvidence::ALL`, `StackEnd::ALL` and
// `ArgumentCertainty::ALL`. New values are added at the end.
const MODULE_KINDS: [ModuleKind; 5] = [
    ModuleKind::File,
    ModuleKind::Vdso,
    ModuleKind::Kernel,
    ModuleKind::KernelModule,
    ModuleKind::Jit,
];
const STATES: [CpuState; 2] = [CpuState::OnCpu, CpuState::OffCpu];
const LOSS_ORIGINS: [LossOrigin; 2] = [LossOrigin::Kernel, LossOrigin::Recorder];

fn code_of<T: PartialEq>(all: &[T], value: &T) -> u64 {
    all.iter().take_while(|other| *other != value).count() as u64
}

fn with_code<T: Copy>(all: &[T], code: u64) -> Option<T> {
    all.get(usize::try_from(code).ok()?).copied()
}
