//! Which instructions and source lines were sampled.
//!
//! [`FunctionCode`] is the code of a function, with its samples: those whose innermost frame is at
//! an instruction. [`SourceLines`] is the same for source lines, which also have the samples whose
//! stacks pass through them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use unspool_code_analysis::Disassembler;
use unspool_elf::{ElfFile, UnwindEntries};
use unspool_rows::Vaddr;
use unspool_symbols::{AddressName, FileNames, ModuleFinder, Symbolizer};

use crate::aggregate::{StackWeight, innermost_weights, stack_weights};
use crate::file::rows::CodeBounds;
use crate::model::{CodeLocation, FrameId, ModuleId, ModuleKind, Profile, ProfileModule};
use crate::names::{FrameLine, FunctionId, NamedProfile, SourceFrame};
use crate::output::View;
use crate::profile_names::ProfileNames;

/// The size of the largest function that is disassembled, in bytes.
const MAX_FUNCTION_BYTES: u64 = 4 << 20;

/// The code of a function in one module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionCode {
    /// The module.
    pub module: ModuleId,
    /// The function's addresses, as linked.
    pub range: Range<Vaddr>,
    /// All its instructions, in order.
    pub instructions: Vec<CodeInstruction>,
    /// The source locations of instructions. Each has the functions inlined there, innermost
    /// first, and last the function that contains the code.
    pub locations: Vec<Vec<SourceFrame>>,
}

/// An instruction and its samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeInstruction {
    /// Its address, as linked.
    pub address: Vaddr,
    /// The number of its bytes.
    pub length: u8,
    /// Its text in GNU assembler syntax. A target outside the function has its name.
    pub text: String,
    /// The index of the instruction that it jumps to.
    pub target: Option<usize>,
    /// The index of its source location.
    pub location: Option<usize>,
    /// The weight of samples whose innermost frame is here.
    pub weight: u64,
    /// The number of these samples.
    pub samples: u64,
}

/// Why a function's instructions cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MissingCode {
    /// It is in the kernel: its code is in no file that is read.
    #[error("it is in the kernel, whose code is not read")]
    Kernel,
    /// It was made at run time.
    #[error("it was made at run time, and its code is not recorded")]
    Generated,
    /// It is inlined everywhere.
    #[error("it has no code of its own: it is inlined into `{0}`")]
    Inlined(String),
    /// The module's file was not found.
    #[error("{}: its file was not found", .0.display())]
    NoFile(PathBuf),
    /// The file has no code there: only the debug file was found.
    #[error("{}: this file does not have its code", .0.display())]
    NotInFile(PathBuf),
    /// The end of the function is unknown.
    #[error("{}: neither a symbol nor an unwind table says where it begins and ends", .0.display())]
    NoBounds(PathBuf),
    /// It is too large.
    #[error("it has {0} bytes: too many to be shown")]
    TooLarge(u64),
    /// Functions before it have reached the limit.
    #[error("other functions have a larger own weight: `report --disasm` shows it")]
    Limit,
    /// The profile is an archive without it.
    #[error("its code is not in the archive: no sample is in it, or there was none to keep")]
    NotArchived,
    /// The architecture's instructions are unknown.
    #[error("{}: there is no disassembler for its architecture", .0.display())]
    NoDisassembler(PathBuf),
}

/// A function's code, before its names are known.
struct FoundCode {
    bounds: CodeBounds,
    /// The file with it; `None` if the profile is an archive, which has all of it.
    file: Option<Arc<ElfFile>>,
}

impl FunctionCode {
    /// The code of some functions, each in every module that has it, or why it is missing.
    ///
    /// `names` are the names of the view's profile. `symbolizer` looks up the lines of all
    /// instructions, and the names of what they call. Functions that would have more than
    /// `max_bytes` of machine code with those before them are left out.
    #[must_use]
    pub fn look_up(
        view: &View<'_>,
        names: &ProfileNames,
        symbolizer: &Symbolizer,
        functions: &[FunctionId],
        max_bytes: u64,
    ) -> Vec<Result<Vec<FunctionCode>, MissingCode>> {
        let hits = CodeHits::new(view);
        let mut finder = CodeFinder::new(view.named, names);
        let mut bytes = 0;
        let mut limited = |found: Vec<FoundCode>| {
            let more: u64 = found.iter().map(|code| code.bounds.size()).sum();
            if bytes + more > max_bytes {
                return Err(MissingCode::Limit);
            }
            bytes += more;
            Ok(found)
        };
        let found = functions
            .iter()
            .map(|id| finder.find(*id).and_then(&mut limited));
        let found: Vec<_> = found.collect();
        let addresses = found
            .iter()
            .flatten()
            .flatten()
            .flat_map(FoundCode::addresses);
        let names = symbolizer.look_up_in_files(addresses.collect::<Vec<_>>(), None);
        let read = |code: &FoundCode| {
            let mut function = match &code.file {
                Some(file) => code.read(file, &names),
                None => view.named.profile.archive()?.code(&code.bounds),
            };
            function.count(&hits);
            Some(function)
        };
        let with_code =
            |found: Result<Vec<FoundCode>, _>| Ok(found?.iter().filter_map(read).collect());
        found.into_iter().map(with_code).collect()
    }

    /// Adds the samples.
    fn count(&mut self, hits: &CodeHits) {
        for (address, hit) in hits.within(self.module, &self.range) {
            let at = instruction_at(&self.instructions, address);
            if let Some(instruction) = at.and_then(|at| self.instructions.get_mut(at)) {
                instruction.weight = instruction.weight.saturating_add(hit.weight);
                instruction.samples += hit.samples;
            }
        }
    }
}

/// The index of the instruction that contains an address.
fn instruction_at(instructions: &[CodeInstruction], address: Vaddr) -> Option<usize> {
    let after = instructions.partition_point(|instruction| instruction.address <= address);
    let index = after.checked_sub(1)?;
    let instruction = instructions.get(index)?;
    (address.0 - instruction.address.0 < u64::from(instruction.length)).then_some(index)
}

impl FoundCode {
    /// Each instruction: its address, its length, and the target of its jump or call.
    fn instructions(&self) -> impl Iterator<Item = (Vaddr, u8, Option<u64>)> {
        let file = self.file.as_deref();
        let mut address = self.bounds.range.start;
        let bytes = file.and_then(|file| file.bytes_at(address, self.bounds.size()));
        let mut bytes = bytes.unwrap_or_default();
        let mut disassembler = file.and_then(|file| Disassembler::new(file.abi()));
        std::iter::from_fn(move || {
            let found = disassembler
                .as_mut()?
                .disassemble(bytes, address.0, |_| None)?;
            let instruction = (address, found.length, found.target);
            bytes = bytes.get(usize::from(found.length)..).unwrap_or_default();
            address = address.offset(u64::from(found.length));
            Some(instruction)
        })
    }

    /// The addresses whose names are needed.
    fn addresses(&self) -> impl Iterator<Item = (&Arc<ElfFile>, Vaddr)> {
        let of_instruction = |(address, _, target): (Vaddr, u8, Option<u64>)| {
            let target = target
                .map(Vaddr)
                .filter(|target| !self.bounds.range.contains(target));
            std::iter::once(address).chain(target)
        };
        let addresses = self.instructions().flat_map(of_instruction);
        addresses.filter_map(|address| Some((self.file.as_ref()?, address)))
    }

    fn read(&self, file: &Arc<ElfFile>, names: &FileNames) -> FunctionCode {
        let range = &self.bounds.range;
        let mut disassembler = Disassembler::new(file.abi());
        let name_of = |target: u64| {
            let target = Some(Vaddr(target)).filter(|target| !range.contains(target))?;
            target_name(&names.get((file, target))?, target)
        };
        let mut locations = Locations::default();
        let mut instructions = Vec::new();
        let mut targets = Vec::new();
        for (address, length, target) in self.instructions() {
            let bytes = file
                .bytes_at(address, u64::from(length))
                .unwrap_or_default();
            let disassembled = disassembler
                .as_mut()
                .and_then(|disassembler| disassembler.disassemble(bytes, address.0, name_of));
            let name = names.get((file, address));
            targets.push(target.map(Vaddr).filter(|target| range.contains(target)));
            instructions.push(CodeInstruction {
                address,
                length,
                text: disassembled.map_or_else(String::new, |instruction| instruction.text),
                target: None,
                location: name.and_then(|name| locations.id(&name)),
                weight: 0,
                samples: 0,
            });
        }
        for (at, target) in targets.into_iter().enumerate() {
            let target = target.and_then(|target| instruction_at(&instructions, target));
            if let Some(instruction) = instructions.get_mut(at) {
                instruction.target = target;
            }
        }
        FunctionCode {
            module: self.bounds.module,
            range: range.clone(),
            instructions,
            locations: locations.all,
        }
    }
}

/// The name of a target: its symbol, with the distance from its start.
fn target_name(name: &AddressName<'_>, target: Vaddr) -> Option<String> {
    let symbol = name.symbol?;
    Some(match target.0.wrapping_sub(symbol.address.0) {
        0 => symbol.name.to_owned(),
        distance => format!("{}+{distance:#x}", symbol.name),
    })
}

/// Distinct source locations, in the order of their first use.
#[derive(Default)]
struct Locations {
    ids: HashMap<Vec<SourceFrame>, usize>,
    all: Vec<Vec<SourceFrame>>,
}

impl Locations {
    /// The index of an address's location; `None` without debug information.
    fn id(&mut self, name: &AddressName<'_>) -> Option<usize> {
        let frames = name.debug_frames().map(|frame| SourceFrame {
            function: frame.function.unwrap_or("??").to_owned(),
            file: frame.file.map(str::to_owned),
            line: frame.line,
        });
        let frames: Vec<SourceFrame> = frames.collect();
        if frames.is_empty() {
            return None;
        }
        let next = self.all.len();
        Some(*self.ids.entry(frames).or_insert_with_key(|frames| {
            self.all.push(frames.clone());
            next
        }))
    }
}

/// The samples at each instruction of modules.
struct CodeHits(BTreeMap<(ModuleId, Vaddr), StackWeight>);

impl CodeHits {
    fn new(view: &View<'_>) -> CodeHits {
        let mut hits: BTreeMap<_, StackWeight> = BTreeMap::new();
        for (frame, weight) in view
            .named
            .profile
            .frames()
            .iter()
            .zip(innermost_weights(view))
        {
            if let CodeLocation::Module(module, address) = frame.lookup
                && weight.samples > 0
            {
                hits.entry((module, address)).or_default().add(weight);
            }
        }
        CodeHits(hits)
    }

    fn within(
        &self,
        module: ModuleId,
        range: &Range<Vaddr>,
    ) -> impl Iterator<Item = (Vaddr, StackWeight)> {
        let hits = self.0.range((module, range.start)..(module, range.end));
        hits.map(|((_, address), hit)| (*address, *hit))
    }
}

/// Finds the code of functions.
struct CodeFinder<'a> {
    named: &'a NamedProfile<'a>,
    names: &'a ProfileNames,
    finder: ModuleFinder,
    /// For each function, the frames that are in its code.
    frames: HashMap<FunctionId, Vec<FrameId>>,
    /// For each function that is inlined, one that it is inlined into.
    inlined: HashMap<FunctionId, FunctionId>,
    /// The files with the code of modules, by module.
    files: HashMap<ModuleId, Option<Arc<ElfFile>>>,
}

impl<'a> CodeFinder<'a> {
    fn new(named: &'a NamedProfile<'a>, names: &'a ProfileNames) -> CodeFinder<'a> {
        let mut frames: HashMap<_, Vec<FrameId>> = HashMap::new();
        let mut inlined = HashMap::new();
        for (id, _) in (0..).map(FrameId).zip(named.profile.frames()) {
            if let [within @ .., outermost] = named.lines_of(id) {
                frames.entry(outermost.function).or_default().push(id);
                inlined.extend(
                    within
                        .iter()
                        .map(|line| (line.function, outermost.function)),
                );
            }
        }
        CodeFinder {
            named,
            names,
            finder: ModuleFinder::from_environment(),
            frames,
            inlined,
            files: HashMap::new(),
        }
    }

    /// The code of a function in each module; an error if none has it.
    fn find(&mut self, function: FunctionId) -> Result<Vec<FoundCode>, MissingCode> {
        let frames = self.frames.get(&function).cloned().unwrap_or_default();
        let mut missing = match self.inlined.get(&function) {
            Some(outer) => MissingCode::Inlined(self.named.function_name(*outer).to_owned()),
            None => MissingCode::Generated,
        };
        let mut all_bounds = Vec::new();
        for frame in frames {
            match self.bounds(frame) {
                Ok(bounds) => all_bounds.push(bounds),
                Err(error) => missing = error,
            }
        }
        all_bounds.sort_by_key(|bounds| (bounds.module, bounds.range.start, bounds.range.end));
        all_bounds.dedup();
        let mut found = Vec::new();
        for bounds in all_bounds {
            match self.code(bounds) {
                Ok(code) => found.push(code),
                Err(error) => missing = error,
            }
        }
        if found.is_empty() {
            Err(missing)
        } else {
            Ok(found)
        }
    }

    /// The addresses of the function that has a frame's code.
    fn bounds(&self, frame: FrameId) -> Result<CodeBounds, MissingCode> {
        let profile = self.named.profile;
        let location = profile.frame(frame).map(|frame| frame.lookup);
        let (module, address) = match location {
            Some(CodeLocation::Module(module, address)) => (module, address),
            Some(CodeLocation::Kernel(_)) => return Err(MissingCode::Kernel),
            Some(CodeLocation::Process(..)) | None => return Err(MissingCode::Generated),
        };
        match profile.module(module).map(|module| module.kind) {
            Some(ModuleKind::Kernel | ModuleKind::KernelModule) => return Err(MissingCode::Kernel),
            Some(ModuleKind::Jit) => return Err(MissingCode::Generated),
            Some(ModuleKind::File | ModuleKind::Vdso) | None => {}
        }
        if let Some(archive) = profile.archive() {
            let bounds = archive.bounds(module, address).cloned();
            return bounds.ok_or(MissingCode::NotArchived);
        }
        let path = path_of(profile, module);
        let names = self.names.modules().get(module.0 as usize);
        let file = names.and_then(|names| names.file());
        let file = file.ok_or_else(|| MissingCode::NoFile(path.clone()))?;
        let name = names.and_then(|names| names.get(address));
        let symbol = name.and_then(|name| name.symbol);
        let entries = || UnwindEntries::new(file);
        let range = match symbol {
            Some(symbol) if symbol.size > 0 => {
                Some(symbol.address..symbol.address.offset(symbol.size))
            }
            Some(symbol) => {
                let entries = entries();
                let next = entries.next(address);
                next.map(|next| symbol.address..next)
                    .or_else(|| entries.covering(address))
            }
            None => entries().covering(address),
        };
        let range = range.filter(|range| range.contains(&address));
        let range = range.ok_or(MissingCode::NoBounds(path))?;
        Ok(CodeBounds { module, range })
    }

    fn code(&mut self, bounds: CodeBounds) -> Result<FoundCode, MissingCode> {
        let profile = self.named.profile;
        let path = path_of(profile, bounds.module);
        if bounds.size() > MAX_FUNCTION_BYTES {
            return Err(MissingCode::TooLarge(bounds.size()));
        }
        if profile.archive().is_some() {
            return Ok(FoundCode { bounds, file: None });
        }
        let has_code =
            |file: &Arc<ElfFile>| file.bytes_at(bounds.range.start, bounds.size()).is_some();
        let names = self.names.modules().get(bounds.module.0 as usize);
        let file = match names
            .and_then(|names| names.file())
            .filter(|file| has_code(file))
        {
            Some(file) => Some(Arc::clone(file)),
            None => self.executable(bounds.module).filter(has_code),
        };
        let file = file.ok_or_else(|| MissingCode::NotInFile(path.clone()))?;
        if Disassembler::new(file.abi()).is_none() {
            return Err(MissingCode::NoDisassembler(path));
        }
        Ok(FoundCode {
            bounds,
            file: Some(file),
        })
    }

    /// The file with a module's code, if its names are from another one.
    fn executable(&mut self, id: ModuleId) -> Option<Arc<ElfFile>> {
        let build_id = self
            .named
            .profile
            .module(id)
            .and_then(ProfileModule::build_id);
        let finder = &self.finder;
        let find = || Some(Arc::new(finder.executable(build_id?, &|_| {})?));
        self.files.entry(id).or_insert_with(find).clone()
    }
}

fn path_of(profile: &Profile, id: ModuleId) -> PathBuf {
    profile
        .module(id)
        .map(|module| module.path.clone())
        .unwrap_or_default()
}

/// The weight of a source line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineWeight {
    /// The weight of samples in this line itself.
    pub own: u64,
    /// The weight of samples in this line, or in what it calls.
    pub total: u64,
    /// The number of samples in this line itself.
    pub samples: u64,
}

/// The source lines of a function.
///
/// A line that calls an inlined function has no own weight for it: as in lists of functions, that
/// is the inlined function's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceLines<'a> {
    /// The weights, by file and line.
    pub lines: BTreeMap<(&'a str, u32), LineWeight>,
    /// The weight of code whose line is unknown.
    pub without_line: LineWeight,
    /// All of these, each sample once.
    pub all: LineWeight,
    /// The modules with the function.
    pub modules: BTreeSet<ModuleId>,
}

impl<'a> SourceLines<'a> {
    /// The lines of a function that were sampled.
    #[must_use]
    pub fn new(view: &'a View<'_>, function: FunctionId) -> SourceLines<'a> {
        let mut found = SourceLines::default();
        let mut keys = Vec::new();
        for (stack, weight) in stack_weights(&view.samples) {
            keys.clear();
            let mut is_innermost = true;
            for (id, frame) in view.named.frames(stack) {
                for line in view.named.lines_of(id) {
                    if line.function == function {
                        keys.push((key(line), is_innermost));
                        found.modules.extend(frame.module());
                    }
                    is_innermost = false;
                }
            }
            // A line of a recursion counts once. The innermost is the first of equal ones.
            for (at, (key, is_own)) in keys.iter().enumerate() {
                if keys.iter().take(at).all(|(earlier, _)| earlier != key) {
                    found.line(*key).count(weight, *is_own);
                }
            }
            if let Some((_, is_own)) = keys.first() {
                found.all.count(weight, *is_own);
            }
        }
        found
    }

    fn line(&mut self, key: Option<(&'a str, u32)>) -> &mut LineWeight {
        match key {
            Some(key) => self.lines.entry(key).or_default(),
            None => &mut self.without_line,
        }
    }
}

fn key(line: &FrameLine) -> Option<(&str, u32)> {
    line.file.as_deref().zip(line.line)
}

impl LineWeight {
    fn count(&mut self, stack: StackWeight, is_own: bool) {
        self.total = self.total.saturating_add(stack.weight);
        if is_own {
            self.own = self.own.saturating_add(stack.weight);
            self.samples += stack.samples;
        }
    }
}
