//! What functions were called with when samples were taken.
//!
//! A file's table of arguments says where values are ([`unspool_arg_table`]). Registers and stack are there with each sample: a
//! cursor leads from frame to frame, as far out as somebody is asked. Values are compared as bytes; they become text once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use unspool_arg_table::{
    ArgFrame, Certainty, CodeRange, DisplayKind, Parameter, TextPreview, UnprovenRules,
    ValueDisplay, read_argument,
};
use unspool_elf::{DebugFiles, ElfFile, SearchRoots, SignatureDetail, Symbols};
use unspool_perf_events::SampleRecord;
use unspool_process::read_memory;
use unspool_profile::{Argument, ArgumentCertainty, ArgumentsId, FrameEvidence, RawFrame};
use unspool_rows::{CodeAddr, Register, RuntimeAddr, Vaddr};
use unspool_table_store::{ArgumentTable, Store};
use unspool_unwind::{Cursor, Step};

use crate::address_space::ProcessSpace;
use crate::module_files::ModuleFile;
use crate::stack_copy::StackCopy;
use crate::unwinder::SampleTop;

/// Finds a file's table of arguments, or makes it, which takes a second for some 10 MB of code. `None` if nothing says what its
/// functions take.
pub type FindTable = fn(&ElfFile, &Store) -> Option<ArgumentTable>;

/// Whose arguments are recorded.
pub struct ArgumentFilter {
    functions: FunctionFilter,
    find: FindTable,
}

/// Which functions.
enum FunctionFilter {
    All,
    Named(Vec<FunctionRequest>),
}

/// A function whose arguments are recorded.
struct FunctionRequest {
    name: String,
    /// Which of them; all if there is none.
    parameters: Vec<ParameterRequest>,
    matched: AtomicU8,
}

/// An argument that is recorded.
struct ParameterRequest {
    /// Its name or number.
    name: String,
    /// Whether such a function takes it.
    is_matched: AtomicBool,
}

/// A file has such a function.
const FUNCTION_EXISTS: u8 = 1;
/// It says what the function takes.
const HAS_TYPE: u8 = 2;

/// Why nothing of a function was recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnmatchedRequest {
    /// Nothing that was mapped has it.
    #[error("--args: no recorded file has a function named `{0}`")]
    Function(String),
    /// It has no type.
    #[error(
        "--args: the parameters of `{0}` are not known: build with -g, or with gcc -gctf and `unspool ctf link --into`"
    )]
    Type(String),
    /// It takes no such argument.
    #[error("--args: `{function}` has no parameter `{parameter}`")]
    Parameter {
        /// The function.
        function: String,
        /// The name, or the number, that was given.
        parameter: String,
    },
}

impl fmt::Debug for ArgumentFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wanted").finish_non_exhaustive()
    }
}

impl ArgumentFilter {
    /// The arguments of functions by name, each with the name or number of one parameter, or none for all of them; of all functions
    /// if none is named.
    #[must_use]
    pub fn new(functions: &[(String, Option<String>)], find: FindTable) -> ArgumentFilter {
        let mut named: Vec<FunctionRequest> = Vec::new();
        for (name, parameter) in functions {
            let parameter = parameter.clone().map(|name| ParameterRequest {
                name,
                is_matched: AtomicBool::new(false),
            });
            match named.iter_mut().find(|known| known.name == *name) {
                Some(known) => known.parameters.extend(parameter),
                None => named.push(FunctionRequest {
                    name: name.clone(),
                    parameters: parameter.into_iter().collect(),
                    matched: AtomicU8::new(0),
                }),
            }
        }
        ArgumentFilter {
            functions: match named.is_empty() {
                true => FunctionFilter::All,
                false => FunctionFilter::Named(named),
            },
            find,
        }
    }

    /// What was asked for and not met.
    pub(crate) fn missing(&self) -> Vec<UnmatchedRequest> {
        let FunctionFilter::Named(named) = &self.functions else {
            return Vec::new();
        };
        named.iter().flat_map(FunctionRequest::missing).collect()
    }

    /// Makes the table of a file that is about to be run, and has the store keep it, so that it is there from the first sample on.
    pub fn prepare(&self, file: &ElfFile, store: &Store) {
        if self.entries(file).is_some() {
            (self.find)(file, store);
        }
    }

    /// Prepares a file if it has a function that is asked for, and the store has its table.
    pub(crate) fn attach_cached(&self, file: &ModuleFile, store: &Store) {
        // What is found and not used is told where tables are made.
        let debug = DebugFiles::locate(file.tables.file(), &SearchRoots::from_environment());
        let found = store.find_arguments(file.tables.file(), &debug, &mut Vec::new());
        if let Some(table) = found
            && let Some(entries) = self.entries(file.tables.file())
        {
            self.attach(file, table, &entries);
        }
    }

    /// The same; its table is made if there is none.
    pub(crate) fn attach_made(&self, file: &ModuleFile, store: &Store) {
        if file.arguments.get().is_none()
            && let Some(entries) = self.entries(file.tables.file())
            && let Some(table) = (self.find)(file.tables.file(), store)
        {
            self.attach(file, table, &entries);
        }
    }

    fn attach(&self, file: &ModuleFile, table: ArgumentTable, entries: &HashMap<u64, usize>) {
        if let Some(arguments) = FileArguments::new(table, entries, self) {
            // Nobody else brings another.
            let _ = file.arguments.set(arguments);
        }
    }

    /// Where the functions of a file begin that are asked for, with their places in the list; `None` if it has none.
    fn entries(&self, file: &ElfFile) -> Option<HashMap<u64, usize>> {
        let FunctionFilter::Named(named) = &self.functions else {
            return Some(HashMap::new());
        };
        let debug = DebugFiles::locate(file, &SearchRoots::from_environment());
        let symbols = Symbols::new(file, debug.debug.as_deref());
        let mut entries = HashMap::new();
        for symbol in symbols.iter().filter(|symbol| symbol.is_function) {
            let readable = SignatureDetail::NameOnly.demangle(&symbol.name);
            let is_meant =
                |function: &FunctionRequest| [&*symbol.name, &*readable].contains(&&*function.name);
            if let Some(place) = named.iter().position(is_meant) {
                entries.insert(symbol.address.0, place);
                if let Some(function) = named.get(place) {
                    function
                        .matched
                        .fetch_or(FUNCTION_EXISTS, Ordering::Relaxed);
                }
            }
        }
        (!entries.is_empty()).then_some(entries)
    }

    /// Which parameters of a function of a file are asked for, by their places.
    fn chosen(&self, function: &CodeRange<'_>, entries: &HashMap<u64, usize>) -> Vec<usize> {
        let parameters = function.parameters().into_iter().flatten().enumerate();
        match &self.functions {
            FunctionFilter::All => parameters.map(|(place, _)| place).collect(),
            FunctionFilter::Named(named) => {
                let place = entries.get(&function.entry);
                let Some(wanted) = place.and_then(|place| named.get(*place)) else {
                    return Vec::new();
                };
                let chosen: Vec<usize> = parameters
                    .filter(|(place, parameter)| wanted.asks_for(*place, parameter))
                    .map(|(place, _)| place)
                    .collect();
                if function.parameters().is_some() {
                    wanted.matched.fetch_or(HAS_TYPE, Ordering::Relaxed);
                }
                chosen
            }
        }
    }
}

impl FunctionRequest {
    fn asks_for(&self, place: usize, parameter: &Parameter<'_>) -> bool {
        let is_meant = |wanted: &&ParameterRequest| {
            let number = wanted.name.strip_prefix('#').unwrap_or(&wanted.name);
            wanted.name == parameter.name || number.parse() == Ok(place + 1)
        };
        let meant = self.parameters.iter().filter(is_meant);
        let meant = meant.map(|wanted| wanted.is_matched.store(true, Ordering::Relaxed));
        meant.count() > 0 || self.parameters.is_empty()
    }

    /// What of it was not met.
    fn missing(&self) -> Vec<UnmatchedRequest> {
        let met = self.matched.load(Ordering::Relaxed);
        match (met & FUNCTION_EXISTS != 0, met & HAS_TYPE != 0) {
            (_, true) => {
                let parameters = self.parameters.iter();
                let unmet = parameters.filter(|one| !one.is_matched.load(Ordering::Relaxed));
                let missing = unmet.map(|one| UnmatchedRequest::Parameter {
                    function: self.name.clone(),
                    parameter: one.name.clone(),
                });
                missing.collect()
            }
            (true, false) => vec![UnmatchedRequest::Type(self.name.clone())],
            (false, false) => vec![UnmatchedRequest::Function(self.name.clone())],
        }
    }
}

/// What is asked of a file's functions.
#[derive(Debug)]
pub(crate) struct FileArguments {
    table: ArgumentTable,
    /// The ranges of code of these functions, by their addresses, without overlap.
    ranges: Vec<ArgumentRange>,
}

/// Some code of a function whose arguments are asked for.
#[derive(Debug)]
struct ArgumentRange {
    start: u64,
    end: u64,
    /// The places of the parameters that are asked for.
    parameters: Vec<usize>,
}

impl FileArguments {
    /// `None` if nothing is asked of the file.
    fn new(
        table: ArgumentTable,
        entries: &HashMap<u64, usize>,
        wanted: &ArgumentFilter,
    ) -> Option<FileArguments> {
        let read = table.table()?;
        let functions = (0..read.len()).filter_map(|index| read.get(index));
        let ranges = functions.map(|function| ArgumentRange {
            start: function.start,
            end: function.end,
            parameters: wanted.chosen(&function, entries),
        });
        let ranges: Vec<ArgumentRange> = ranges
            .filter(|range| !range.parameters.is_empty())
            .collect();
        (!ranges.is_empty()).then_some(FileArguments { table, ranges })
    }

    fn range(&self, pc: Vaddr) -> Option<&ArgumentRange> {
        let after = self.ranges.partition_point(|range| range.start <= pc.0);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        (pc.0 < range.end).then_some(range)
    }
}

/// So many different lists of arguments are kept of one function, and so many of all.
const MAX_LISTS_PER_FUNCTION: u32 = 1000;
const MAX_LISTS: usize = 1 << 16;

/// The bytes that are kept of a value at most.
const MAX_VALUE_BYTES: usize = 256;

/// Finds what the functions of stacks were called with.
#[derive(Default)]
pub(crate) struct ArgumentRecorder {
    /// The lists that were met, as [`ArgumentRecorder::key`] has them.
    lists: HashMap<Box<[u8]>, ArgumentsId>,
    /// How many there are of each function, by its file's number and its entry.
    counts: HashMap<(u32, u64), u32>,
    /// What makes a list: the function, and of each argument how well it is known, and its bytes or characters.
    key: Vec<u8>,
    values: Vec<SampledValue>,
    reached: Vec<ReachedFrame>,
    frames: Vec<RawFrame>,
}

/// A sample that was unwound.
#[derive(Clone, Copy)]
pub(crate) struct UnwoundSample<'s> {
    pub(crate) space: &'s ProcessSpace,
    pub(crate) tid: u32,
    pub(crate) sample: &'s SampleRecord<'s>,
    /// All frames, those of the kernel first.
    pub(crate) frames: &'s [RawFrame],
}

impl ArgumentRecorder {
    /// The frames of a sample with what their functions were called with. `number` numbers a list.
    pub(crate) fn note<'f>(
        &'f mut self,
        taken: UnwoundSample<'f>,
        mut number: impl FnMut(&[Argument]) -> ArgumentsId,
    ) -> &'f [RawFrame] {
        let is_kernel = |frame: &RawFrame| frame.evidence == FrameEvidence::Kernel;
        let first = taken.frames.partition_point(is_kernel);
        let user = taken.frames.get(first..).unwrap_or_default();
        let mut asked = user
            .iter()
            .enumerate()
            .filter_map(|(place, frame)| {
                Some((place, RequestedFrame::of(taken.space, frame.code)?))
            })
            .peekable();
        if asked.peek().is_none() {
            return taken.frames;
        }
        let Some(top) = taken.top() else {
            return taken.frames;
        };
        self.frames.clear();
        self.frames.extend_from_slice(taken.frames);
        self.reached.clear();
        self.reached.push(ReachedFrame {
            cursor: top.cursor(),
            doubts: UnprovenRules::NONE,
        });
        let walked = ArgumentWalk {
            space: taken.space,
            tid: taken.tid,
            memory: StackCopy::new(taken.space, &top, taken.sample.stack.bytes),
            reached: RefCell::new(std::mem::take(&mut self.reached)),
            frames: user,
            certain: user
                .iter()
                .take_while(|frame| !frame.evidence.is_guess())
                .count(),
        };
        for (place, asked) in asked {
            let arguments = self.list(&walked, place, &asked, &mut number);
            if let Some(frame) = self.frames.get_mut(first + place) {
                frame.arguments = Some(arguments);
            }
        }
        self.reached = walked.reached.into_inner();
        &self.frames
    }

    /// The number of the arguments of a frame.
    fn list(
        &mut self,
        walked: &ArgumentWalk<'_>,
        place: usize,
        asked: &RequestedFrame<'_>,
        number: &mut impl FnMut(&[Argument]) -> ArgumentsId,
    ) -> ArgumentsId {
        let function = (asked.file.number, asked.function.entry);
        self.begin_key(function);
        self.values.clear();
        for (_, parameter) in asked.parameters() {
            let value = SampledValue::find(walked, place, &parameter);
            value.put(&mut self.key);
            self.values.push(value);
        }
        if let Some(id) = self.lists.get(&*self.key) {
            return *id;
        }
        let count = self.counts.entry(function).or_default();
        let is_kept = *count < MAX_LISTS_PER_FUNCTION && self.lists.len() < MAX_LISTS;
        *count = count.saturating_add(u32::from(is_kept));
        if !is_kept {
            self.begin_key(function);
            if let Some(id) = self.lists.get(&*self.key) {
                return *id;
            }
            self.values.fill_with(SampledValue::omitted);
        }
        let list: Vec<Argument> = asked
            .parameters()
            .zip(&self.values)
            .map(|((at, parameter), value)| value.argument(at, &parameter))
            .collect();
        let id = number(&list);
        self.lists.insert(self.key.as_slice().into(), id);
        id
    }

    fn begin_key(&mut self, (file, entry): (u32, u64)) {
        self.key.clear();
        self.key.extend(file.to_le_bytes());
        self.key.extend(entry.to_le_bytes());
    }
}

impl UnwoundSample<'_> {
    fn top(&self) -> Option<SampleTop<'_>> {
        SampleTop::from_sample(self.sample, unspool_rows::Arch::X86_64)
    }
}

/// A frame whose arguments are asked for.
struct RequestedFrame<'s> {
    file: &'s Arc<ModuleFile>,
    function: CodeRange<'s>,
    places: &'s [usize],
}

impl<'s> RequestedFrame<'s> {
    fn of(space: &'s ProcessSpace, code: CodeAddr) -> Option<RequestedFrame<'s>> {
        let (file, pc) = space.locate(code.lookup())?;
        let arguments = file.arguments.get()?;
        let range = arguments.range(pc)?;
        Some(RequestedFrame {
            file,
            function: arguments.table.table()?.function(pc.0)?,
            places: &range.parameters,
        })
    }

    /// The parameters that are asked for, with their places.
    fn parameters(&self) -> impl Iterator<Item = (usize, Parameter<'s>)> {
        let all = self.function.parameters().into_iter().flatten().enumerate();
        all.filter(|(place, _)| self.places.contains(place))
    }
}

/// A stack that is walked as far as it is asked for.
struct ArgumentWalk<'s> {
    space: &'s ProcessSpace,
    tid: u32,
    memory: StackCopy<'s>,
    reached: RefCell<Vec<ReachedFrame>>,
    /// The frames, as they were found before.
    frames: &'s [RawFrame],
    /// How many of them were found without a guess.
    certain: usize,
}

/// A frame that was stepped to.
#[derive(Clone, Copy)]
struct ReachedFrame {
    cursor: Cursor,
    /// What led there and is doubted.
    doubts: UnprovenRules,
}

impl ArgumentWalk<'_> {
    /// A cursor at a frame, and what led there; `None` if the frame was found in another way than by stepping there.
    fn reached(&self, number: usize) -> Option<ReachedFrame> {
        let mut reached = self.reached.borrow_mut();
        while reached.len() <= number {
            let ReachedFrame { mut cursor, doubts } = *reached.last()?;
            let expected = self.frames.get(reached.len())?;
            match cursor.step(self.space, &self.memory) {
                Step::Caller(_) if cursor.code() == expected.code => {}
                _ => return None,
            }
            let left = unspool_arg_table::ArgStack::frame(self, reached.len() - 1);
            let doubts =
                doubts.union(left.map_or(UnprovenRules::NONE, |frame| frame.unproven_rules()));
            reached.push(ReachedFrame { cursor, doubts });
        }
        reached.get(number).copied()
    }

    /// The characters at an address, and whether nothing can have changed them: elsewhere than in the copied stack and in
    /// what is mapped of files without the right to write, they are read from the process as it goes on.
    fn text(&self, at: u64) -> Option<(TextPreview, bool)> {
        let byte_of = |bytes: &[u8], address: u64| {
            let offset = usize::try_from(address.checked_sub(at)?).ok()?;
            bytes.get(offset).copied()
        };
        if let Some(constant) = self.space.constant(RuntimeAddr(at)) {
            let text = TextPreview::read(at, &|address| byte_of(constant, address));
            return Some((text?, true));
        }
        let copied = self.memory.copied(at);
        if let Some(text) = TextPreview::read(at, &|address| byte_of(copied, address)) {
            return Some((text, false));
        }
        let mut bytes = [0; TextPreview::MAX_TEXT_BYTES];
        let length = read_memory(self.tid, RuntimeAddr(at), &mut bytes).ok()?;
        let read = bytes.get(..length).unwrap_or_default();
        let text = TextPreview::read(at, &|address| byte_of(read, address));
        Some((text?, false))
    }
}

impl unspool_arg_table::ArgStack for ArgumentWalk<'_> {
    fn frame(&self, number: usize) -> Option<ArgFrame<'_>> {
        let code = self.frames.get(number)?.code;
        let is_return = matches!(code, CodeAddr::Return(_));
        let (file, pc) = self.space.locate(code.lookup())?;
        let address = pc.0.wrapping_add(u64::from(is_return));
        Some(ArgFrame {
            table: file.arguments.get()?.table.table()?,
            address,
            is_return,
            bias: code.address().0.wrapping_sub(address),
        })
    }

    fn register(&self, number: usize, register: u8) -> Option<u64> {
        let cursor = self.reached(number)?.cursor;
        cursor.registers().get(Register(register.into()))
    }

    fn cfa(&self, number: usize) -> Option<u64> {
        let cursor = self.reached(number)?.cursor;
        Some(cursor.cfa(self.space, &self.memory)?.0)
    }

    fn is_certain(&self, number: usize) -> bool {
        number < self.certain
    }

    fn unproven_rules(&self, number: usize) -> UnprovenRules {
        self.reached(number)
            .map_or(UnprovenRules::ALL, |frame| frame.doubts)
    }

    /// Of the copied stack only: what is below the stack pointer was not copied.
    fn read(&self, address: u64, bytes: u8) -> Option<u64> {
        let mut number = [0; 8];
        let wanted = number.get_mut(..usize::from(bytes))?;
        wanted.copy_from_slice(self.memory.copied(address).get(..usize::from(bytes))?);
        Some(u64::from_le_bytes(number))
    }
}

/// The value of an argument.
struct SampledValue {
    known: ArgumentCertainty,
    bytes: [u8; MAX_VALUE_BYTES],
    length: usize,
    /// What a pointer to characters leads to.
    text: Option<TextPreview>,
}

impl SampledValue {
    fn without(known: ArgumentCertainty) -> SampledValue {
        SampledValue {
            known,
            bytes: [0; MAX_VALUE_BYTES],
            length: 0,
            text: None,
        }
    }

    fn omitted() -> SampledValue {
        SampledValue::without(ArgumentCertainty::Omitted)
    }

    fn find(walked: &ArgumentWalk<'_>, frame: usize, parameter: &Parameter<'_>) -> SampledValue {
        let mut value = SampledValue::without(ArgumentCertainty::Lost);
        let length = usize::try_from(parameter.bytes).unwrap_or(usize::MAX);
        value.length = length.min(MAX_VALUE_BYTES);
        let room = value.bytes.get_mut(..value.length).unwrap_or_default();
        let Ok(found) = read_argument(walked, frame, parameter, room) else {
            return SampledValue::without(ArgumentCertainty::Lost);
        };
        value.known = match found.certainty {
            Certainty::Exact => ArgumentCertainty::Exact,
            Certainty::Likely => ArgumentCertainty::Likely,
        };
        if matches!(parameter.shape, DisplayKind::CharPointer) && !parameter.is_by_reference {
            let text = walked.text(unspool_arg_table::unsigned(value.bytes()));
            if let Some((text, is_constant)) = text {
                value.text = Some(text);
                if !is_constant {
                    value.known = ArgumentCertainty::Likely;
                }
            }
        }
        value
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// What tells it from others, of the same parameter.
    fn put(&self, key: &mut Vec<u8>) {
        let known = ArgumentCertainty::ALL
            .iter()
            .position(|known| *known == self.known);
        let known = known.and_then(|known| u8::try_from(known).ok());
        key.push(known.unwrap_or(u8::MAX));
        let content = self.text.as_ref().map_or(self.bytes(), TextPreview::bytes);
        key.push(u8::from(self.text.is_some()));
        key.extend(content.len().to_le_bytes());
        key.extend(content);
    }

    fn argument(&self, place: usize, parameter: &Parameter<'_>) -> Argument {
        let value = match (self.known, &self.text) {
            (ArgumentCertainty::Lost | ArgumentCertainty::Omitted, _) => String::new(),
            (_, Some(text)) => text.to_string(),
            (_, None) => ValueDisplay::new(parameter, self.bytes()).to_string(),
        };
        Argument {
            name: match parameter.name {
                "" => format!("#{}", place + 1),
                name => name.to_owned(),
            },
            type_name: parameter.type_name.to_owned(),
            value,
            certainty: self.known,
        }
    }
}
