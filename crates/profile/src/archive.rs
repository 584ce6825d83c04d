//! A profile to take along: with the names, lines, sources and code of what was sampled.
//!
//! An archive is a profile with more tables (`docs/formats.md`). Where it is read, its names are
//! asked, and no file and no server. What it does not have is unknown.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use unspool_rows::Vaddr;

use crate::code::{CodeInstruction, FunctionCode};
use crate::file;
use crate::file::block::BlockWriter;
use crate::file::column::MAX_STRING_BYTES;
use crate::file::rows::{
    ArchivedFrame, ArchivedInstruction, ArchivedSource, ArchivedString, CodeBounds, EndRecord,
    FrameArguments, FrameName, StackRun,
};
use crate::file::table::{TableRow, TableWriter};
use crate::intern::number;
use crate::model::{
    CodeLocation, FileEnding, FrameId, ModuleId, ProcessId, Profile, ProfileUpdate, ThreadId,
};
use crate::names::{LocationName, NameResolver, SourceFrame};
use crate::output::{StringInterner, View};
use crate::reader::RowCheck;
use crate::sampled_code::SampledCode;
use crate::source_file::{SourceExcerpt, SourceFile};
use crate::stacks::StackId;
use crate::writer::facts;

/// The most bytes of names of all frames together: a small file could repeat a long one.
const MAX_NAMES_BYTES: usize = 1 << 30;

/// The names, sources and code that are kept with a profile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProfileArchive {
    strings: Vec<String>,
    locations: Vec<Vec<ArchivedFrame>>,
    frames: HashMap<FrameId, FrameName>,
    names_bytes: usize,
    code: Vec<ArchivedCode>,
    /// The code at each start, by module.
    code_by_start: BTreeMap<(ModuleId, Vaddr), usize>,
    sources: BTreeMap<String, SourceFile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ArchivedCode {
    bounds: CodeBounds,
    instructions: Vec<ArchivedInstruction>,
}

impl ProfileArchive {
    pub(crate) fn add_string(&mut self, ArchivedString(text): ArchivedString) -> RowCheck {
        self.strings.push(text);
        Ok(())
    }

    pub(crate) fn add_location(&mut self, frames: Vec<ArchivedFrame>) -> RowCheck {
        let is_known = |string: u32| (string as usize) < self.strings.len();
        let are_known = frames
            .iter()
            .all(|it| is_known(it.function) && it.file.is_none_or(is_known));
        are_known.then_some(()).ok_or("its strings are not known")?;
        self.locations.push(frames);
        Ok(())
    }

    pub(crate) fn add_frame(&mut self, frames: usize, name: FrameName) -> RowCheck {
        let is_known = (name.frame.0 as usize) < frames;
        is_known.then_some(()).ok_or("its frame is not known")?;
        let location = self.check_location(name.location)?;
        let names = location
            .into_iter()
            .flatten()
            .flat_map(|it| [Some(it.function), it.file]);
        let bytes: usize = names.flatten().map(|it| self.string(it).len()).sum();
        self.names_bytes = self.names_bytes.saturating_add(bytes);
        if self.names_bytes > MAX_NAMES_BYTES {
            return Err("the names are too long together");
        }
        self.frames.insert(name.frame, name);
        Ok(())
    }

    pub(crate) fn add_code(&mut self, modules: usize, bounds: CodeBounds) -> RowCheck {
        let is_known = (bounds.module.0 as usize) < modules;
        is_known.then_some(()).ok_or("its module is not known")?;
        let start = (bounds.module, bounds.range.start);
        self.code_by_start.insert(start, self.code.len());
        self.code.push(ArchivedCode {
            bounds,
            instructions: Vec::new(),
        });
        Ok(())
    }

    pub(crate) fn add_instruction(&mut self, instruction: ArchivedInstruction) -> RowCheck {
        self.check_location(instruction.location)?;
        let code = self.code.get_mut(instruction.code as usize);
        let code = code.ok_or("its function is not known")?;
        let is_later = |last: &ArchivedInstruction| last.address < instruction.address;
        if !code.bounds.range.contains(&instruction.address)
            || !code.instructions.last().is_none_or(is_later)
        {
            return Err("it is not in its function");
        }
        code.instructions.push(instruction);
        Ok(())
    }

    pub(crate) fn add_source(&mut self, source: &ArchivedSource) -> RowCheck {
        let file = self.strings.get(source.file as usize).cloned();
        let file = file.ok_or("its file is not known")?;
        self.sources
            .entry(file.clone())
            .or_default()
            .add(&SourceExcerpt {
                file,
                first_line: source.first_line,
                lines: source.text.split('\n').map(str::to_owned).collect(),
                is_newer: source.is_newer,
            });
        Ok(())
    }

    /// A location, if a row has one.
    fn check_location(&self, id: Option<u32>) -> Result<Option<&Vec<ArchivedFrame>>, &'static str> {
        let known = |id| {
            self.locations
                .get(id as usize)
                .ok_or("its location is not known")
        };
        id.map(known).transpose()
    }

    fn string(&self, id: u32) -> &str {
        self.strings.get(id as usize).map_or("", String::as_str)
    }

    fn source_frames(&self, location: Option<u32>) -> Vec<SourceFrame> {
        let location = location.and_then(|id| self.locations.get(id as usize));
        let frames = location.into_iter().flatten().map(|frame| SourceFrame {
            function: self.string(frame.function).to_owned(),
            file: frame.file.map(|file| self.string(file).to_owned()),
            line: frame.line,
        });
        frames.collect()
    }

    /// The name of a frame's code.
    pub(crate) fn name(&self, frame: FrameId) -> LocationName {
        let name = self.frames.get(&frame);
        name.map_or_else(LocationName::default, |name| LocationName {
            functions: self.source_frames(name.location),
            start: name.start,
            symbol_hash: name.symbol_hash,
        })
    }

    /// The text of a source file.
    pub(crate) fn source(&self, name: &str) -> Option<SourceFile> {
        self.sources.get(name).cloned()
    }

    /// The bounds of the function with the code at an address.
    pub(crate) fn bounds(&self, module: ModuleId, address: Vaddr) -> Option<&CodeBounds> {
        let code = self.code_by_start.range(..=(module, address)).next_back();
        let bounds = &self.code.get(*code?.1)?.bounds;
        (bounds.module == module && bounds.range.contains(&address)).then_some(bounds)
    }

    /// The code of a function in a module, without samples.
    pub(crate) fn code(&self, bounds: &CodeBounds) -> FunctionCode {
        let code = self.code_by_start.get(&(bounds.module, bounds.range.start));
        let code = code.and_then(|code| self.code.get(*code));
        let archived = code.map_or(&[][..], |code| code.instructions.as_slice());
        let mut numbers = HashMap::new();
        let mut locations = Vec::new();
        let instruction = |instruction: &ArchivedInstruction| CodeInstruction {
            address: instruction.address,
            length: instruction.length,
            text: instruction.text.clone(),
            target: instruction.target.map(|target| target as usize),
            location: instruction.location.map(|id| {
                *numbers.entry(id).or_insert_with(|| {
                    locations.push(self.source_frames(Some(id)));
                    locations.len() - 1
                })
            }),
            weight: 0,
            samples: 0,
        };
        FunctionCode {
            module: bounds.module,
            range: bounds.range.clone(),
            instructions: archived.iter().map(instruction).collect(),
            locations,
        }
    }
}

/// Writes a profile with the names of its frames and the code of its functions.
///
/// # Errors
///
/// It cannot be written.
pub fn write(
    out: &mut dyn Write,
    view: &View<'_>,
    names: &dyn NameResolver,
    code: &SampledCode,
) -> io::Result<()> {
    let mut blocks = BlockWriter::new()?;
    blocks.blocks.extend_from_slice(&file::header());
    let profile = view.named.profile;
    put_profile(&mut blocks, profile)?;
    ArchiveTables::new(profile, names, code).write(&mut blocks)?;
    if let FileEnding::Proper { time } = profile.ending {
        let samples = profile.samples.len() as u64;
        put_all(&mut blocks, [EndRecord { time, samples }])?;
    }
    out.write_all(&blocks.blocks)
}

fn put_all<R: TableRow<N>, const N: usize>(
    blocks: &mut BlockWriter,
    rows: impl IntoIterator<Item = R>,
) -> io::Result<()> {
    let mut table = TableWriter::default();
    rows.into_iter().for_each(|row| table.push(&row));
    table.write_blocks(blocks)
}

/// The tables of the recording.
fn put_profile(blocks: &mut BlockWriter, profile: &Profile) -> io::Result<()> {
    put_all(blocks, facts(&profile.meta))?;
    put_all(blocks, profile.processes.iter().cloned())?;
    put_all(blocks, profile.threads.iter().cloned())?;
    put_all(blocks, profile.modules.iter().cloned())?;
    let processes = (0..).map(ProcessId).zip(&profile.processes);
    let ends = processes.filter_map(|(id, it)| Some(ProfileUpdate::ProcessEnd(id, it.end?)));
    put_all(blocks, ends)?;
    let threads = (0..).map(ThreadId).zip(&profile.threads);
    let ends = threads.filter_map(|(id, it)| Some(ProfileUpdate::ThreadEnd(id, it.end?)));
    put_all(blocks, ends)?;
    put_all(blocks, profile.frames.iter().copied())?;
    put_all(blocks, profile.arguments.iter().cloned())?;
    let called = (0..).map(FrameId).zip(&profile.frames);
    let called = called.filter_map(|(frame, it)| {
        let arguments = it.arguments?;
        Some(FrameArguments { frame, arguments })
    });
    put_all(blocks, called)?;
    put_all(blocks, profile.symbols.iter().cloned())?;
    put_all(blocks, stack_runs(profile))?;
    put_all(blocks, profile.samples.iter().copied())?;
    put_all(blocks, profile.lost.iter().copied())
}

/// The stacks, each with those that continue it.
fn stack_runs(profile: &Profile) -> Vec<StackRun> {
    let mut runs: Vec<StackRun> = Vec::new();
    for (previous, node) in (0..).map(StackId).zip(profile.stacks.nodes()) {
        match runs.last_mut().filter(|_| node.parent == previous) {
            Some(run) => run.frames.push(node.frame),
            None => runs.push(StackRun {
                parent: node.parent,
                frames: vec![node.frame],
            }),
        }
    }
    runs
}

/// The further tables of an archive.
#[derive(Default)]
struct ArchiveTables {
    strings: StringInterner,
    location_ids: HashMap<Vec<ArchivedFrame>, u32>,
    locations: Vec<Vec<ArchivedFrame>>,
    frames: Vec<FrameName>,
    code: Vec<CodeBounds>,
    instructions: Vec<ArchivedInstruction>,
    sources: Vec<ArchivedSource>,
}

impl ArchiveTables {
    fn new(profile: &Profile, names: &dyn NameResolver, code: &SampledCode) -> ArchiveTables {
        let mut tables = ArchiveTables::default();
        for (id, frame) in (0..).map(FrameId).zip(&profile.frames) {
            let name = match frame.lookup {
                CodeLocation::Module(..) => names.name(frame.lookup),
                CodeLocation::Kernel(_) | CodeLocation::Process(..) => continue,
            };
            let location = tables.location(&name.functions);
            tables.frames.push(FrameName {
                frame: id,
                location,
                start: name.start,
                symbol_hash: name.symbol_hash,
            });
        }
        for part in code
            .functions
            .iter()
            .flat_map(|(_, parts)| parts.iter().flatten())
        {
            tables.add_code(part);
        }
        for excerpt in &code.sources {
            tables.add_source(excerpt);
        }
        tables
    }

    fn location(&mut self, frames: &[SourceFrame]) -> Option<u32> {
        if frames.is_empty() {
            return None;
        }
        let frames = frames.iter().map(|frame| ArchivedFrame {
            function: self.strings.id(&frame.function),
            file: frame.file.as_ref().map(|file| self.strings.id(file)),
            line: frame.line,
        });
        let frames: Vec<ArchivedFrame> = frames.collect();
        let next = number(self.locations.len());
        Some(
            *self
                .location_ids
                .entry(frames)
                .or_insert_with_key(|frames| {
                    self.locations.push(frames.clone());
                    next
                }),
        )
    }

    fn add_code(&mut self, part: &FunctionCode) {
        let code = number(self.code.len());
        self.code.push(CodeBounds {
            module: part.module,
            range: part.range.clone(),
        });
        let locations: Vec<_> = part.locations.iter().map(|it| self.location(it)).collect();
        let instructions = part.instructions.iter().map(|it| ArchivedInstruction {
            code,
            address: it.address,
            length: it.length,
            text: it.text.clone(),
            target: it.target.map(number),
            location: it
                .location
                .and_then(|id| locations.get(id).copied().flatten()),
        });
        self.instructions.extend(instructions);
    }

    /// Adds an excerpt, in parts that fit into a row.
    fn add_source(&mut self, excerpt: &SourceExcerpt) {
        let file = self.strings.id(&excerpt.file);
        let mut text: Option<String> = None;
        let mut first_line = excerpt.first_line;
        let mut put = |first_line, text| {
            self.sources.push(ArchivedSource {
                file,
                first_line,
                is_newer: excerpt.is_newer,
                text,
            });
        };
        for (number, line) in (excerpt.first_line..).zip(&excerpt.lines) {
            match text.take() {
                Some(before) if before.len() + line.len() < MAX_STRING_BYTES => {
                    text = Some(format!("{before}\n{line}"));
                }
                Some(before) => {
                    put(first_line, before);
                    (first_line, text) = (number, Some(line.clone()));
                }
                None => text = Some(line.clone()),
            }
        }
        text.into_iter().for_each(|text| put(first_line, text));
    }

    fn write(self, blocks: &mut BlockWriter) -> io::Result<()> {
        put_all(blocks, self.strings.all.into_iter().map(ArchivedString))?;
        put_all(blocks, self.locations)?;
        put_all(blocks, self.frames)?;
        put_all(blocks, self.code)?;
        put_all(blocks, self.instructions)?;
        put_all(blocks, self.sources)
    }
}
