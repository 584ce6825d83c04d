//! Reading a profile.

use std::io::Read;

use unspool_elf::ContentKey;

use crate::archive::ProfileArchive;
use crate::arguments::Argument;
use crate::error::FileError;
use crate::file::block::{Block, BlockReader, NextBlock, read_up_to};
use crate::file::rows::{ArchivedSource, EndRecord, FrameArguments, MetaEntry, StackRun, kind};
use crate::file::table::{TableReader, TableRow};
use crate::file::{HEADER, MAGIC, VERSION};
use crate::model::{
    CodeLocation, FileEnding, Meta, Profile, ProfileFrame, ProfileModule, ProfileProcess,
    ProfileRate, ProfileSample, ProfileThread, ProfileUpdate, SampledEvent, Time, WeightUnit,
};
use crate::stacks::{StackNode, Stacks};

/// Reads a profile, also while it is being written.
pub struct ProfileReader<R> {
    blocks: BlockReader<R>,
    profile: Profile,
    /// The number of samples taken out of it.
    taken_samples: usize,
}

impl<R> std::fmt::Debug for ProfileReader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut reader = f.debug_struct("ProfileReader");
        reader.field("profile", &self.profile);
        reader.finish_non_exhaustive()
    }
}

impl<R: Read> ProfileReader<R> {
    /// Starts to read.
    ///
    /// # Errors
    ///
    /// It cannot be read, is not a profile, or has another version.
    pub fn new(mut from: R) -> Result<ProfileReader<R>, FileError> {
        check_header(&mut from)?;
        Ok(ProfileReader {
            blocks: BlockReader::new(from, HEADER as u64)?,
            profile: empty(),
            taken_samples: 0,
        })
    }

    /// Reads all available blocks. It can be called again when there is more, unless it has reached
    /// a [`FileEnding::Cut`]. The writer must have written complete blocks each time.
    ///
    /// # Errors
    ///
    /// As for [`Profile::read`].
    pub fn read_more(&mut self) -> Result<(), FileError> {
        loop {
            match self.blocks.next()? {
                NextBlock::Block(block) => self.profile.take(&block, self.taken_samples)?,
                NextBlock::End => return Ok(()),
                NextBlock::Cut(offset, reason) => {
                    self.profile.ending = FileEnding::Cut { offset, reason };
                    return Ok(());
                }
            }
        }
    }

    /// The underlying reader.
    pub fn source(&mut self) -> &mut R {
        self.blocks.source()
    }

    /// The profile so far, except for the samples taken out.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Takes out the samples read since the last call.
    pub fn take_samples(&mut self) -> Vec<ProfileSample> {
        self.taken_samples += self.profile.samples.len();
        std::mem::take(&mut self.profile.samples)
    }
}

impl Profile {
    /// Reads a profile: all of it, or up to the first unusable block. A cut or damaged file is no
    /// error: [`Profile::ending`] says so. Blocks of unknown kinds are skipped. Blocks are read
    /// whole, so `from` needs no buffer.
    ///
    /// Takes memory in proportion to the size of the file, at most a few thousand times as much
    /// for a malicious one.
    ///
    /// # Errors
    ///
    /// It cannot be read, is not a profile, has another version, or has a complete block that is
    /// invalid.
    pub fn read(mut from: impl Read) -> Result<Profile, FileError> {
        Profile::read_from(&mut from)
    }

    /// The same, compiled in this crate.
    fn read_from(from: &mut dyn Read) -> Result<Profile, FileError> {
        let mut reader = ProfileReader::new(from)?;
        reader.read_more()?;
        Ok(reader.profile)
    }

    /// Adds the content of a block; `taken` samples were taken out before.
    fn take(&mut self, block: &Block, taken: usize) -> Result<(), FileError> {
        match block.kind {
            kind::META => each(block, |entry: MetaEntry| note(&mut self.meta, entry)),
            kind::MODULES => each(block, |module: ProfileModule| {
                add(&mut self.modules, module)
            }),
            kind::PROCESSES => each(block, |process: ProfileProcess| {
                add(&mut self.processes, process)
            }),
            kind::THREADS => each(block, |thread: ProfileThread| {
                let process = self.process(thread.process);
                process.ok_or("its process is not known")?;
                add(&mut self.threads, thread)
            }),
            kind::CHANGES => each(block, |change| self.apply(change)),
            kind::FRAMES => each(block, |frame: ProfileFrame| {
                self.check_location(frame.lookup)?;
                add(&mut self.frames, frame)
            }),
            kind::ARGUMENTS => each(block, |list: Vec<Argument>| add(&mut self.arguments, list)),
            kind::CALLED_WITH => each(block, |called| self.note_arguments(&called)),
            kind::SYMBOLS => each(block, |symbol: crate::model::RecordedSymbol| {
                self.check_location(symbol.start)?;
                add(&mut self.symbols, symbol)
            }),
            kind::STACKS => each(block, |chain| self.add_stack_run(&chain)),
            kind::SAMPLES => each(block, |sample: ProfileSample| {
                self.thread(sample.thread)
                    .ok_or("its thread is not known")?;
                let is_known = sample.stack.0 < self.stacks.count();
                is_known.then_some(()).ok_or("its stack is not known")?;
                add(&mut self.samples, sample)
            }),
            kind::LOST => each(block, |lost| add(&mut self.lost, lost)),
            kind::END => each(block, |totals| self.end(&totals, taken)),
            kind::STRINGS => self.take_archived(block, ProfileArchive::add_string),
            kind::LOCATIONS => self.take_archived(block, ProfileArchive::add_location),
            kind::FRAME_NAMES => {
                let frames = self.frames.len();
                self.take_archived(block, |archive, name| archive.add_frame(frames, name))
            }
            kind::FUNCTION_CODE => {
                let modules = self.modules.len();
                self.take_archived(block, |archive, code| archive.add_code(modules, code))
            }
            kind::INSTRUCTIONS => self.take_archived(block, ProfileArchive::add_instruction),
            kind::SOURCES => self.take_archived(block, |archive, source: ArchivedSource| {
                archive.add_source(&source)
            }),
            _ => Ok(()),
        }
    }

    /// Adds the rows of a block to what is kept with the profile.
    fn take_archived<R: TableRow<N>, const N: usize>(
        &mut self,
        block: &Block,
        mut add: impl FnMut(&mut ProfileArchive, R) -> RowCheck,
    ) -> Result<(), FileError> {
        let archive = self.archive.get_or_insert_default();
        each(block, |row| add(archive, row))
    }

    fn check_location(&self, location: CodeLocation) -> RowCheck {
        match location {
            CodeLocation::Kernel(_) => Ok(()),
            CodeLocation::Module(module, _) => self
                .module(module)
                .map(drop)
                .ok_or("its module is not known"),
            CodeLocation::Process(process, _) => self
                .process(process)
                .map(drop)
                .ok_or("its process is not known"),
        }
    }

    fn apply(&mut self, update: ProfileUpdate) -> RowCheck {
        match update {
            ProfileUpdate::ProcessEnd(id, time) => {
                let process = self.processes.get_mut(id.0 as usize);
                process.ok_or("its process is not known")?.end = Some(time);
            }
            ProfileUpdate::ThreadEnd(id, time) => {
                let thread = self.threads.get_mut(id.0 as usize);
                thread.ok_or("its thread is not known")?.end = Some(time);
            }
            ProfileUpdate::ProcessName(id, name) => {
                let process = self.processes.get_mut(id.0 as usize);
                process.ok_or("its process is not known")?.name = name;
            }
            ProfileUpdate::ThreadName(id, name) => {
                let thread = self.threads.get_mut(id.0 as usize);
                thread.ok_or("its thread is not known")?.name = name;
            }
            ProfileUpdate::ModuleHash(id, bytes) => {
                let module = self.modules.get_mut(id.0 as usize);
                module.ok_or("its module is not known")?.content = Some(ContentKey::Hash(bytes));
            }
        }
        Ok(())
    }

    fn note_arguments(&mut self, called: &FrameArguments) -> RowCheck {
        let is_known = (called.arguments.index() as usize) < self.arguments.len();
        is_known
            .then_some(())
            .ok_or("what it was called with is not known")?;
        let frame = self.frames.get_mut(called.frame.0 as usize);
        frame.ok_or("its frame is not known")?.arguments = Some(called.arguments);
        Ok(())
    }

    fn add_stack_run(&mut self, run: &StackRun) -> RowCheck {
        let mut parent = run.parent;
        for frame in &run.frames {
            self.frame(*frame).ok_or("a frame of it is not known")?;
            let frame = *frame;
            let stack = self.stacks.push(StackNode { parent, frame });
            parent = stack.ok_or("it comes before its callers")?;
        }
        Ok(())
    }

    fn end(&mut self, end: &EndRecord, taken: usize) -> RowCheck {
        if end.samples != (taken + self.samples.len()) as u64 {
            return Err("the profile has not as many samples as it says");
        }
        self.ending = FileEnding::Proper { time: end.time };
        Ok(())
    }
}

/// Whether a row is valid, or why not.
pub(crate) type RowCheck = Result<(), &'static str>;

/// Calls a function with each row of a block.
fn each<R: TableRow<N>, const N: usize>(
    block: &Block,
    mut take: impl FnMut(R) -> RowCheck,
) -> Result<(), FileError> {
    let offset = block.offset;
    let mut rows =
        TableReader::<N>::new(&block.content).map_err(|what| FileError::Block { offset, what })?;
    let mut number = 0;
    while let Some(row) = rows.next::<R>() {
        row.and_then(&mut take).map_err(|what| FileError::Row {
            offset,
            table: R::NAME,
            row: number,
            what,
        })?;
        number += 1;
    }
    Ok(())
}

fn add<T>(all: &mut Vec<T>, row: T) -> RowCheck {
    match u32::try_from(all.len()) {
        Ok(_) => {
            all.push(row);
            Ok(())
        }
        Err(_) => Err("there are too many"),
    }
}

/// Adds an entry of the metadata. Unknown ones are of a later version.
fn note(meta: &mut Meta, MetaEntry { key, value }: MetaEntry) -> RowCheck {
    let number = || value.parse().map_err(|_| "it should be a number");
    match key.as_str() {
        "started" => meta.started = number()?,
        "clock" => meta.clock = Time(number()?),
        "frequency" => meta.event.rate = ProfileRate::Frequency(number()?),
        "period" => meta.event.rate = ProfileRate::Period(number()?),
        "unit" if value == "ns" => meta.event.unit = WeightUnit::Nanoseconds,
        "command" => meta.command.push(value),
        "host" => meta.host = value,
        "kernel" => meta.kernel = value,
        "arch" => meta.arch = value,
        "tool" => meta.tool = value,
        "event" => meta.event.name = value,
        _ => {}
    }
    Ok(())
}

fn check_header(from: &mut impl Read) -> Result<(), FileError> {
    let mut header = [0; HEADER];
    let length = read_up_to(from, &mut header)?;
    let read = header.get(..length).unwrap_or_default();
    let version = read.strip_prefix(&MAGIC).and_then(<[u8]>::first_chunk);
    match version.map(|version| u16::from_le_bytes(*version)) {
        Some(VERSION) if length == HEADER => Ok(()),
        Some(found) if length == HEADER => Err(FileError::Version { found }),
        _ => Err(FileError::NotAProfile {
            start: read.iter().copied().take(MAGIC.len()).collect(),
        }),
    }
}

fn empty() -> Profile {
    Profile {
        meta: Meta {
            event: SampledEvent::default(),
            ..Meta::default()
        },
        modules: Vec::new(),
        processes: Vec::new(),
        threads: Vec::new(),
        frames: Vec::new(),
        arguments: Vec::new(),
        stacks: Stacks::default(),
        samples: Vec::new(),
        lost: Vec::new(),
        symbols: Vec::new(),
        archive: None,
        ending: FileEnding::Open,
    }
}
