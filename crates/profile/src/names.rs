//! Names of code locations: their lookup, and a profile with named frames.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::Path;

use unspool_elf::{demangle, fallback_name};

use crate::arguments::{ArgumentsId, with_arguments};
use crate::model::{
    CodeLocation, FrameEvidence, FrameId, Profile, ProfileFrame, ProfileSample, RecordedSymbol,
};
use crate::stacks::StackId;

/// A function at a code location, perhaps inlined.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SourceFrame {
    /// Its readable name.
    pub function: String,
    /// The source file.
    pub file: Option<String>,
    /// The line: of the location in the innermost function, of the inlined call in the others.
    pub line: Option<u32>,
}

/// The name of a code location.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocationName {
    /// The functions inlined there, innermost first, and last the function that contains the code.
    /// Empty if unknown.
    pub functions: Vec<SourceFrame>,
    /// The start of the function that contains the code, in the same address space as the location.
    /// It can be known for a function without a name.
    pub start: Option<u64>,
    /// A hash of that function's symbol, which distinguishes symbols of one readable name.
    /// Functions with equal name and hash differ if they start elsewhere. `None`: all functions of
    /// that name are the same.
    pub symbol_hash: Option<u32>,
}

/// Looks up names.
pub trait NameResolver {
    /// The name of the code location of an instruction ([`ProfileFrame::lookup`]).
    fn name(&self, location: CodeLocation) -> LocationName;
}

/// No names except those in the profile.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNameResolver;

impl NameResolver for NoNameResolver {
    fn name(&self, _: CodeLocation) -> LocationName {
        LocationName::default()
    }
}

/// The index of a function in a [`NamedProfile`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub u32);

/// A function of one module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProfileFunction {
    /// Its readable name. A function without a name is `module+0x1c3f0`, by its start. If that is
    /// unknown, it is the module in brackets, or `[unknown]`.
    ///
    /// If several functions of the module have one symbol, for example static ones of several
    /// source files, `@0x1c3f0` follows: the start of this one. Recorded arguments follow: with
    /// other arguments, it counts as another function.
    pub name: String,
    /// The last component of its module's path, the kernel's name for it in brackets, or
    /// `[unknown]`.
    pub module: String,
    /// Its arguments, if recorded.
    pub arguments: Option<ArgumentsId>,
    /// Its start, if others of the module have its symbol.
    pub start: Option<u64>,
    /// The length of its name alone, in bytes.
    plain: usize,
}

impl ProfileFunction {
    fn new(name: String, module: &str) -> ProfileFunction {
        ProfileFunction {
            plain: name.len(),
            name,
            module: module.to_owned(),
            arguments: None,
            start: None,
        }
    }

    /// One of several functions with the same name.
    fn with_start(self, start: u64) -> ProfileFunction {
        ProfileFunction {
            name: format!("{}@{start:#x}", self.name),
            start: Some(start),
            ..self
        }
    }

    fn with_arguments(self, profile: &Profile, id: ArgumentsId) -> ProfileFunction {
        ProfileFunction {
            name: with_arguments(&self.name, profile.arguments(id)),
            arguments: Some(id),
            ..self
        }
    }

    /// Its name alone.
    #[must_use]
    pub fn plain_name(&self) -> &str {
        self.name.get(..self.plain).unwrap_or(&self.name)
    }

    /// Its name, a mark behind it, and its module in brackets.
    #[must_use]
    pub fn marked(&self, mark: &str) -> String {
        let ProfileFunction { name, module, .. } = self;
        if name.starts_with('[') {
            format!("{name}{mark}")
        } else {
            format!("{name}{mark}  [{}]", module.trim_matches(['[', ']']))
        }
    }
}

/// Its name, and its module in brackets.
impl fmt::Display for ProfileFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.marked(""))
    }
}

/// A function of a frame: there are several if some were inlined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameLine {
    /// The function.
    pub function: FunctionId,
    /// Whether it is inlined into the next one.
    pub is_inlined: bool,
    /// The source file.
    pub file: Option<String>,
    /// The line.
    pub line: Option<u32>,
}

/// How certain a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameCertainty {
    /// It is from registers, a table or the kernel.
    Certain,
    /// It is guessed ([`FrameEvidence::is_guess`]).
    Guessed,
    /// It is from another sample, or from the kernel's frame pointer chain.
    Spliced,
}

impl FrameCertainty {
    /// The mark of a frame.
    #[must_use]
    pub(crate) fn from_evidence(evidence: FrameEvidence) -> FrameCertainty {
        match evidence {
            FrameEvidence::Spliced => FrameCertainty::Spliced,
            evidence if evidence.is_guess() => FrameCertainty::Guessed,
            _ => FrameCertainty::Certain,
        }
    }

    /// The name used in reports: `certain`, `guessed`, `spliced`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FrameCertainty::Certain => "certain",
            FrameCertainty::Guessed => "guessed",
            FrameCertainty::Spliced => "spliced",
        }
    }

    /// The suffix of a name: empty, `_[g]` or `_[s]`, as usual in flame graphs.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            FrameCertainty::Certain => "",
            FrameCertainty::Guessed => "_[g]",
            FrameCertainty::Spliced => "_[s]",
        }
    }
}

/// A function in a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackFunction {
    /// The function.
    pub function: FunctionId,
    /// The mark of its frame.
    pub mark: FrameCertainty,
}

/// A profile with named frames.
#[derive(Debug)]
pub struct NamedProfile<'a> {
    /// The profile.
    pub profile: &'a Profile,
    functions: Vec<ProfileFunction>,
    /// For each frame: its functions, innermost first, at least one.
    lines: Vec<Vec<FrameLine>>,
    /// For each frame: the start of the function that contains the code.
    starts: Vec<Option<u64>>,
    /// For each frame: whether its function has a name.
    has_name: Vec<bool>,
}

impl<'a> NamedProfile<'a> {
    /// Names each frame by `names`, which has most of them, and then by the names in the profile.
    #[must_use]
    pub fn new(profile: &'a Profile, names: &dyn NameResolver) -> NamedProfile<'a> {
        let recorded = RecordedSymbols::new(profile.symbols());
        let mut named = NamedProfile {
            profile,
            functions: Vec::new(),
            lines: Vec::new(),
            starts: Vec::new(),
            has_name: Vec::new(),
        };
        let of_frame = |frame: &ProfileFrame| {
            let symbol = recorded.find(frame.lookup);
            let mut name = names.name(frame.lookup);
            if let Some(symbol) =
                symbol.filter(|_| name.functions.is_empty() && name.start.is_none())
            {
                name = as_name(symbol);
            }
            (name, module_name(profile, frame.lookup, symbol))
        };
        let found: Vec<(LocationName, String)> = profile.frames().iter().map(of_frame).collect();
        let twins = ambiguous_keys(&found);
        let mut ids = HashMap::new();
        for (frame, (name, module)) in profile.frames().iter().zip(&found) {
            let is_twin = key(name, module).is_some_and(|key| twins.contains(&key));
            let outermost = Outermost {
                start: name.start,
                is_ambiguous: is_twin,
                arguments: frame.arguments,
            };
            named.has_name.push(!name.functions.is_empty());
            let lines = named.lines(&name.functions, outermost, module, &mut ids);
            named.lines.push(lines);
            named.starts.push(name.start);
        }
        named
    }

    fn lines(
        &mut self,
        called: &[SourceFrame],
        outermost: Outermost,
        module: &str,
        ids: &mut HashMap<ProfileFunction, FunctionId>,
    ) -> Vec<FrameLine> {
        let profile = self.profile;
        let mut id = |function: ProfileFunction| {
            let next = FunctionId(crate::intern::number(ids.len()));
            let functions = &mut self.functions;
            let id = ids.entry(function);
            *id.or_insert_with_key(|function| {
                functions.push(function.clone());
                next
            })
        };
        // The function that contains the code has the arguments, not an inlined one.
        let with_code = |function: ProfileFunction| {
            let start = outermost.start.filter(|_| outermost.is_ambiguous);
            let function = match start {
                Some(start) => function.with_start(start),
                None => function,
            };
            match outermost.arguments {
                Some(arguments) => function.with_arguments(profile, arguments),
                None => function,
            }
        };
        let Some((last, inlined)) = called.split_last() else {
            let name = match outermost.start {
                Some(start) => fallback_name(module, start),
                None if module.starts_with('[') => module.to_owned(),
                None => format!("[{module}]"),
            };
            return vec![FrameLine {
                function: id(with_code(ProfileFunction::new(name, module))),
                is_inlined: false,
                file: None,
                line: None,
            }];
        };
        let mut lines: Vec<FrameLine> = inlined
            .iter()
            .map(|called| FrameLine {
                function: id(ProfileFunction::new(called.function.clone(), module)),
                is_inlined: true,
                file: called.file.clone(),
                line: called.line,
            })
            .collect();
        lines.push(FrameLine {
            function: id(with_code(ProfileFunction::new(
                last.function.clone(),
                module,
            ))),
            is_inlined: false,
            file: last.file.clone(),
            line: last.line,
        });
        lines
    }

    /// The functions, by [`FunctionId`].
    #[must_use]
    pub fn functions(&self) -> &[ProfileFunction] {
        &self.functions
    }

    /// A function; `None` if the index is of another profile.
    #[must_use]
    pub fn function(&self, id: FunctionId) -> Option<&ProfileFunction> {
        self.functions.get(id.0 as usize)
    }

    /// A function's name; empty if the index is of another profile.
    #[must_use]
    pub fn function_name(&self, id: FunctionId) -> &str {
        self.function(id).map_or("", |function| &function.name)
    }

    /// The functions of a frame, innermost first: at least one.
    #[must_use]
    pub fn lines_of(&self, frame: FrameId) -> &[FrameLine] {
        let lines = self.lines.get(frame.0 as usize);
        lines.map_or(&[], Vec::as_slice)
    }

    /// Whether a frame's function has a name.
    #[must_use]
    pub fn has_name(&self, frame: FrameId) -> bool {
        self.has_name.get(frame.0 as usize) == Some(&true)
    }

    /// Whether a frame is in code made at run time that has no name.
    #[must_use]
    pub(crate) fn is_unnamed(&self, frame: FrameId) -> bool {
        !self.has_name(frame) && self.module_of(frame) == ANONYMOUS
    }

    /// The offset of a frame from the start of the function that contains its code, in bytes;
    /// `None` if unknown.
    #[must_use]
    pub fn offset(&self, id: FrameId) -> Option<u64> {
        let start = self.starts.get(id.0 as usize).copied().flatten()?;
        let frame = self.profile.frame(id)?;
        Some(frame.location().address().wrapping_sub(start))
    }

    /// The last component of the path of a frame's module, or the kernel's name in brackets.
    #[must_use]
    pub fn module_of(&self, frame: FrameId) -> &str {
        let line = self.lines_of(frame).first();
        let function = line.and_then(|line| self.function(line.function));
        function.map_or("", |function| &function.module)
    }

    /// The frames of a stack, the innermost first.
    pub fn frames(&self, stack: StackId) -> impl Iterator<Item = (FrameId, &'a ProfileFrame)> {
        let profile = self.profile;
        let frames = profile.stacks().frames(stack);
        frames.filter_map(|id| Some((id, profile.frame(id)?)))
    }

    /// The functions of a stack, the innermost first.
    pub fn steps(&self, stack: StackId) -> impl Iterator<Item = StackFunction> {
        self.frames(stack).flat_map(|(id, frame)| {
            let mark = FrameCertainty::from_evidence(frame.evidence);
            let lines = self.lines_of(id).iter();
            lines.map(move |line| StackFunction {
                function: line.function,
                mark,
            })
        })
    }

    /// The name of a sample's thread, and its ID in brackets.
    #[must_use]
    pub(crate) fn thread_name(&self, sample: &ProfileSample) -> String {
        let thread = self.profile.thread(sample.thread);
        thread.map_or_else(String::new, |t| format!("{} [{}]", t.name, t.tid))
    }
}

/// The function that contains the code of a frame.
#[derive(Clone, Copy)]
struct Outermost {
    start: Option<u64>,
    /// Whether others have its symbol.
    is_ambiguous: bool,
    arguments: Option<ArgumentsId>,
}

/// The key of functions that names cannot distinguish: name, module and symbol hash.
type FunctionKey<'n> = (&'n str, &'n str, u32);

fn key<'n>(name: &'n LocationName, module: &'n str) -> Option<FunctionKey<'n>> {
    let function = name.functions.last()?.function.as_str();
    Some((function, module, name.symbol_hash?))
}

/// The keys shared by several functions.
fn ambiguous_keys(found: &[(LocationName, String)]) -> HashSet<FunctionKey<'_>> {
    let mut starts = HashMap::new();
    let keys = found
        .iter()
        .filter_map(|(name, module)| Some((key(name, module)?, name.start?)));
    keys.filter(|(key, start)| starts.entry(*key).or_insert(*start) != start)
        .map(|(key, _)| key)
        .collect()
}

/// The names written during the recording, by their start.
#[derive(Default)]
struct RecordedSymbols<'a> {
    functions: BTreeMap<CodeLocation, &'a RecordedSymbol>,
    /// Names of regions, for functions without a name.
    regions: BTreeMap<CodeLocation, &'a RecordedSymbol>,
}

impl<'a> RecordedSymbols<'a> {
    fn new(symbols: &'a [RecordedSymbol]) -> RecordedSymbols<'a> {
        let mut recorded = RecordedSymbols::default();
        for symbol in symbols {
            if symbol.name.is_empty() {
                add(&mut recorded.regions, symbol);
            } else {
                add(&mut recorded.functions, symbol);
            }
        }
        recorded
    }

    fn find(&self, location: CodeLocation) -> Option<&'a RecordedSymbol> {
        let covering = |symbols: &BTreeMap<CodeLocation, &'a RecordedSymbol>| {
            let (start, symbol) = symbols.range(..=location).next_back()?;
            (location < start.offset(symbol.size)).then_some(*symbol)
        };
        covering(&self.functions).or_else(|| covering(&self.regions))
    }
}

/// Adds a symbol, which replaces those that start within it.
fn add<'a>(symbols: &mut BTreeMap<CodeLocation, &'a RecordedSymbol>, symbol: &'a RecordedSymbol) {
    let end = symbol.start.offset(symbol.size);
    if symbol.start < end {
        let within = symbols.range(symbol.start..end);
        let within: Vec<CodeLocation> = within.map(|(start, _)| *start).collect();
        for start in within {
            symbols.remove(&start);
        }
        symbols.insert(symbol.start, symbol);
    }
}

/// The name of a location in a symbol: perhaps only its owner.
fn as_name(symbol: &RecordedSymbol) -> LocationName {
    if symbol.name.is_empty() {
        return LocationName {
            start: (symbol.module == ANONYMOUS).then_some(symbol.start.address()),
            ..LocationName::default()
        };
    }
    let function = demangle(&symbol.name).into_owned();
    // Generated code is regenerated under the same name.
    let is_made = matches!(symbol.start, CodeLocation::Process(..));
    LocationName {
        symbol_hash: (function == symbol.name && !is_made).then_some(0),
        functions: vec![SourceFrame {
            function,
            ..SourceFrame::default()
        }],
        start: Some(symbol.start.address()),
    }
}

/// The module of code in memory without a file, with only the region known.
pub const ANONYMOUS: &str = "[anon]";

/// The module of a location, for display.
fn module_name(
    profile: &Profile,
    location: CodeLocation,
    symbol: Option<&RecordedSymbol>,
) -> String {
    if let Some(symbol) = symbol.filter(|symbol| !symbol.module.is_empty()) {
        return symbol.module.clone();
    }
    match location {
        CodeLocation::Module(id, _) => {
            let path = profile.module(id).map(|module| module.path.as_path());
            short_name(path.unwrap_or(Path::new("")))
        }
        CodeLocation::Kernel(_) => "[kernel]".into(),
        CodeLocation::Process(..) if symbol.is_some() => "[jit]".into(),
        CodeLocation::Process(..) => "[unknown]".into(),
    }
}

/// The last component of a path.
pub(crate) fn short_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}
