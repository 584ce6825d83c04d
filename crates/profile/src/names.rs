//! Names of places: what looks them up, and a profile whose frames have them.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use unspool_module::demangle;

use crate::arguments::{ArgumentsId, with_arguments};
use crate::model::{Evidence, Frame, FrameId, Place, Profile, Sample, Symbol};
use crate::stacks::StackId;

/// One function that a place is in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Called {
    /// Its readable name.
    pub function: String,
    /// The source file.
    pub file: Option<String>,
    /// The line: of the place in the innermost function, of the inlined call in the others.
    pub line: Option<u32>,
}

/// What is known of a place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Name {
    /// The functions that were inlined there, the innermost first, and at the end the one that has
    /// the code. Empty if nothing is known.
    pub functions: Vec<Called>,
    /// Where the function that has the code starts, as an address of the same kind as the place's.
    pub start: Option<u64>,
}

/// Looks names up.
pub trait Names {
    /// What is known of a place, which is that of an instruction ([`Frame::lookup`]).
    fn name(&self, place: Place) -> Name;
}

/// No names but those that the profile has.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNames;

impl Names for NoNames {
    fn name(&self, _: Place) -> Name {
        Name::default()
    }
}

/// The number of a function in a [`Named`] profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub u32);

/// A function, of one module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Function {
    /// Its readable name; for code without one, that of the module in brackets, or `[unknown]`. What it was called with
    /// follows if that was recorded: it counts as another function with other arguments.
    pub name: String,
    /// The last component of its module's path, the kernel's name for it in brackets, or `[unknown]`.
    pub module: String,
    /// What it was called with, if that was recorded.
    pub arguments: Option<ArgumentsId>,
    /// The length of its name alone, in bytes.
    plain: usize,
}

impl Function {
    fn new(name: String, module: &str) -> Function {
        Function {
            plain: name.len(),
            name,
            module: module.to_owned(),
            arguments: None,
        }
    }

    fn with_arguments(self, profile: &Profile, id: ArgumentsId) -> Function {
        Function {
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
}

/// One function of a frame: several if some were inlined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The function.
    pub function: FunctionId,
    /// Whether its code is part of the next one's.
    pub is_inlined: bool,
    /// The source file.
    pub file: Option<String>,
    /// The line.
    pub line: Option<u32>,
}

/// How sure it is that a frame belongs to a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// It was told by registers, a table or the kernel.
    Sure,
    /// It was guessed ([`Evidence::is_guess`]).
    Guessed,
    /// It is of another sample, or of the kernel's chain of frame pointers.
    Spliced,
}

impl Mark {
    /// The mark of a frame.
    #[must_use]
    pub fn of(evidence: Evidence) -> Mark {
        match evidence {
            Evidence::Spliced => Mark::Spliced,
            evidence if evidence.is_guess() => Mark::Guessed,
            _ => Mark::Sure,
        }
    }

    /// The name used in reports: `sure`, `guessed`, `spliced`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mark::Sure => "sure",
            Mark::Guessed => "guessed",
            Mark::Spliced => "spliced",
        }
    }

    /// What is appended to a name: nothing, `_[g]` or `_[s]`, in the manner of flame graphs.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Mark::Sure => "",
            Mark::Guessed => "_[g]",
            Mark::Spliced => "_[s]",
        }
    }
}

/// A function in a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Step {
    /// The function.
    pub function: FunctionId,
    /// Of its frame.
    pub mark: Mark,
}

/// A profile whose frames have names.
#[derive(Debug)]
pub struct Named<'a> {
    /// The profile.
    pub profile: &'a Profile,
    functions: Vec<Function>,
    /// For each frame: its functions, the innermost first, at least one.
    lines: Vec<Vec<Line>>,
    /// For each frame: where the function that has the code starts.
    starts: Vec<Option<u64>>,
    /// For each frame: whether its function has a name.
    known: Vec<bool>,
}

impl<'a> Named<'a> {
    /// Looks up the name of each frame with `names`, which know most of it, and then in what was recorded.
    #[must_use]
    pub fn new(profile: &'a Profile, names: &impl Names) -> Named<'a> {
        let recorded = Recorded::new(profile.symbols());
        let mut named = Named {
            profile,
            functions: Vec::new(),
            lines: Vec::new(),
            starts: Vec::new(),
            known: Vec::new(),
        };
        let mut ids = HashMap::new();
        for frame in profile.frames() {
            let symbol = recorded.at(frame.lookup);
            let mut name = names.name(frame.lookup);
            if let Some(symbol) = symbol.filter(|_| name.functions.is_empty()) {
                name = as_name(symbol);
            }
            let module = module_name(profile, frame.lookup, symbol);
            named.known.push(!name.functions.is_empty());
            let lines = named.lines(name.functions, frame.arguments, &module, &mut ids);
            named.lines.push(lines);
            named.starts.push(name.start);
        }
        named
    }

    fn lines(
        &mut self,
        called: Vec<Called>,
        arguments: Option<ArgumentsId>,
        module: &str,
        ids: &mut HashMap<Function, FunctionId>,
    ) -> Vec<Line> {
        let profile = self.profile;
        let mut id = |name: String, arguments: Option<ArgumentsId>| {
            let function = Function::new(name, module);
            let function = match arguments {
                Some(arguments) => function.with_arguments(profile, arguments),
                None => function,
            };
            let next = FunctionId(crate::intern::number(ids.len()));
            let functions = &mut self.functions;
            let id = ids.entry(function);
            *id.or_insert_with_key(|function| {
                functions.push(function.clone());
                next
            })
        };
        if called.is_empty() {
            let name = match module.starts_with('[') {
                true => module.to_owned(),
                false => format!("[{module}]"),
            };
            return vec![Line {
                function: id(name, arguments),
                is_inlined: false,
                file: None,
                line: None,
            }];
        }
        let outermost = called.len() - 1;
        let line = |(n, called): (usize, Called)| Line {
            // What has the code has its arguments, not what was inlined there.
            function: id(called.function, arguments.filter(|_| n == outermost)),
            is_inlined: n < outermost,
            file: called.file,
            line: called.line,
        };
        called.into_iter().enumerate().map(line).collect()
    }

    /// The functions, by [`FunctionId`].
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// A function's name; empty if the number is of another profile.
    #[must_use]
    pub fn function_name(&self, id: FunctionId) -> &str {
        let function = self.functions.get(id.0 as usize);
        function.map_or("", |function| &function.name)
    }

    /// The functions of a frame, the innermost first: at least one.
    #[must_use]
    pub fn lines_of(&self, frame: FrameId) -> &[Line] {
        let lines = self.lines.get(frame.0 as usize);
        lines.map_or(&[], Vec::as_slice)
    }

    /// Whether anything is known of a frame's function.
    #[must_use]
    pub fn is_known(&self, frame: FrameId) -> bool {
        self.known.get(frame.0 as usize) == Some(&true)
    }

    /// How far a frame is behind the start of the function that has its code, in bytes; `None` if
    /// that is not known.
    #[must_use]
    pub fn offset(&self, id: FrameId) -> Option<u64> {
        let start = self.starts.get(id.0 as usize).copied().flatten()?;
        let frame = self.profile.frame(id)?;
        Some(frame.place().address().wrapping_sub(start))
    }

    /// The last component of the path of a frame's module, or the kernel's name in brackets.
    #[must_use]
    pub fn module_of(&self, frame: FrameId) -> &str {
        let line = self.lines_of(frame).first();
        let function = line.and_then(|line| self.functions.get(line.function.0 as usize));
        function.map_or("", |function| &function.module)
    }

    /// The frames of a stack, the innermost first.
    pub fn frames(&self, stack: StackId) -> impl Iterator<Item = (FrameId, &'a Frame)> {
        let profile = self.profile;
        let frames = profile.stacks().frames(stack);
        frames.filter_map(|id| Some((id, profile.frame(id)?)))
    }

    /// The functions of a stack, the innermost first.
    pub fn steps(&self, stack: StackId) -> impl Iterator<Item = Step> {
        self.frames(stack).flat_map(|(id, frame)| {
            let mark = Mark::of(frame.evidence);
            let lines = self.lines_of(id).iter();
            lines.map(move |line| Step {
                function: line.function,
                mark,
            })
        })
    }

    /// The name of a sample's thread, and its number in brackets.
    #[must_use]
    pub fn thread_name(&self, sample: &Sample) -> String {
        let thread = self.profile.thread(sample.thread);
        thread.map_or_else(String::new, |t| format!("{} [{}]", t.name, t.tid))
    }
}

/// The names that were written while recording, by where they start.
struct Recorded<'a>(BTreeMap<Place, &'a Symbol>);

impl<'a> Recorded<'a> {
    fn new(symbols: &'a [Symbol]) -> Recorded<'a> {
        let mut recorded = Recorded(BTreeMap::new());
        symbols.iter().for_each(|symbol| recorded.add(symbol));
        recorded
    }

    /// Adds a symbol, which takes the place of those that start within it.
    fn add(&mut self, symbol: &'a Symbol) {
        let end = symbol.start.offset(symbol.size);
        if symbol.start < end {
            let within = self.0.range(symbol.start..end);
            let within: Vec<Place> = within.map(|(start, _)| *start).collect();
            for start in within {
                self.0.remove(&start);
            }
            self.0.insert(symbol.start, symbol);
        }
    }

    fn at(&self, place: Place) -> Option<&'a Symbol> {
        let (start, symbol) = self.0.range(..=place).next_back()?;
        let end = start.offset(symbol.size);
        (place < end).then_some(*symbol)
    }
}

/// What a symbol says of a place in it: perhaps no more than whose code it is.
fn as_name(symbol: &Symbol) -> Name {
    if symbol.name.is_empty() {
        return Name::default();
    }
    let function = Called {
        function: demangle(&symbol.name).into_owned(),
        ..Called::default()
    };
    Name {
        functions: vec![function],
        start: Some(symbol.start.address()),
    }
}

/// What a place is in, for people.
fn module_name(profile: &Profile, place: Place, symbol: Option<&Symbol>) -> String {
    if let Some(symbol) = symbol.filter(|symbol| !symbol.module.is_empty()) {
        return symbol.module.clone();
    }
    match place {
        Place::Module(id, _) => {
            let path = profile.module(id).map(|module| module.path.as_path());
            short_name(path.unwrap_or(Path::new("")))
        }
        Place::Kernel(_) => "[kernel]".into(),
        Place::Process(..) if symbol.is_some() => "[jit]".into(),
        Place::Process(..) => "[unknown]".into(),
    }
}

/// The last component of a path.
pub(crate) fn short_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}
