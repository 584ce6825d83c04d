//! The arguments of functions at the time of a sample.
//!
//! A file's argument table says where values are ([`unspool_arg_table`]). Each sample has registers
//! and stack: a cursor steps from frame to frame, no further than the outermost requested frame.
//! Values are compared as bytes, and formatted once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use unspool_arg_table::{
    ArgFrame, CodeRange, DisplayKind, TableParameter, TextPreview, UnprovenRules, ValueCertainty,
    ValueDisplay, read_argument,
};
use unspool_elf::{DebugFiles, ElfFile, SearchRoots, SignatureDetail, Symbols};
use unspool_files::FileState;
use unspool_perf_events::SampleRecord;
use unspool_process::read_memory;
use unspool_profile::{Argument, ArgumentCertainty, ArgumentsId, FrameEvidence, RawFrame};
use unspool_rows::{Abi, CodeAddr, Register, RuntimeAddr, Vaddr};
use unspool_table_store::{ArgumentTable, Store};
use unspool_unwind::{Cursor, Step};

use crate::address_space::ProcessSpace;
use crate::module_files::ModuleFile;
use crate::stack_copy::StackCopy;
use crate::unwinder::SampleTop;

/// Finds a file's argument table, or builds it, which takes a second per 10 MB of code. `None` if
/// nothing describes the parameters of its functions.
pub type FindTable = fn(&ElfFile, &Store) -> Option<ArgumentTable>;

/// The functions whose arguments are recorded.
pub struct ArgumentFilter {
    functions: FunctionFilter,
    find: FindTable,
    /// Tables that were built before the files were mapped. Those of files that were just written
    /// are not stored.
    prepared: Mutex<HashMap<FileState, ArgumentTable>>,
}

/// Which functions.
enum FunctionFilter {
    All,
    Named(Vec<FunctionRequest>),
}

/// A function whose arguments are recorded.
struct FunctionRequest {
    name: String,
    /// Its requested parameters; all of them if empty.
    parameters: Vec<ParameterRequest>,
    matched: AtomicU8,
}

/// An argument that is recorded.
struct ParameterRequest {
    /// Its name or number.
    name: String,
    /// Whether such a function has it.
    is_matched: AtomicBool,
}

/// A file has such a function.
const FUNCTION_EXISTS: u8 = 1;
/// A file describes its parameters.
const HAS_TYPE: u8 = 2;

/// Why nothing of a function was recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnmatchedRequest {
    /// No mapped file has it.
    #[error("--args: no recorded file has a function named `{0}`")]
    Function(String),
    /// It has no type.
    #[error(
        "--args: the parameters of `{0}` are not known: those of C functions are by -g, or by gcc -gctf and `unspool ctf link --into`; those of C++ and Rust are not recorded"
    )]
    Type(String),
    /// It has no such parameter.
    #[error("--args: `{function}` has no parameter `{parameter}`")]
    Parameter {
        /// The function.
        function: String,
        /// The name or number that was requested.
        parameter: String,
    },
}

impl fmt::Debug for ArgumentFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArgumentFilter").finish_non_exhaustive()
    }
}

impl ArgumentFilter {
    /// Requests the arguments of functions by name, each with the name or number of one parameter,
    /// or none for all. Without names, of all functions.
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
            functions: if named.is_empty() {
                FunctionFilter::All
            } else {
                FunctionFilter::Named(named)
            },
            find,
            prepared: Mutex::default(),
        }
    }

    /// Requests that nothing matched.
    pub(crate) fn missing(&self) -> Vec<UnmatchedRequest> {
        let FunctionFilter::Named(named) = &self.functions else {
            return Vec::new();
        };
        named.iter().flat_map(FunctionRequest::missing).collect()
    }

    /// Builds the table of a file that is about to run, and keeps it, so that it is available from
    /// the first sample on.
    pub fn prepare(&self, file: &ElfFile, store: &Store) {
        if self.entries(file).is_some()
            && let Some(state) = file.state()
            && let Some(table) = (self.find)(file, store)
        {
            self.prepared().insert(state, table);
        }
    }

    fn prepared(&self) -> MutexGuard<'_, HashMap<FileState, ArgumentTable>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a file the table that was prepared for it, if there is one.
    pub(crate) fn attach_prepared(&self, file: &ModuleFile) -> bool {
        let elf = file.tables.file();
        let table = elf.state().and_then(|state| self.prepared().remove(&state));
        if let Some(table) = table
            && let Some(entries) = self.entries(elf)
        {
            self.attach(file, table, &entries);
        }
        file.arguments.get().is_some()
    }

    /// Prepares a file if it has a requested function and the store has its table.
    pub(crate) fn attach_cached(&self, file: &ModuleFile, store: &Store) {
        // The code that builds tables reports unused debug files.
        let debug = DebugFiles::locate(file.tables.file(), &SearchRoots::from_environment());
        let found = store.find_arguments(file.tables.file(), &debug, &mut Vec::new());
        if let Some(table) = found
            && let Some(entries) = self.entries(file.tables.file())
        {
            self.attach(file, table, &entries);
        }
    }

    /// The same, but builds the table if the store has none.
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
            // No other thread sets it.
            let _ = file.arguments.set(arguments);
        }
    }

    /// The entries of the requested functions of a file, with their indices in the list; `None` if
    /// it has none.
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

    /// The requested parameters of a function of a file, by their indices.
    fn chosen(&self, range: &CodeRange<'_>, entries: &HashMap<u64, usize>) -> Vec<usize> {
        let parameters = range.parameters().into_iter().flatten().enumerate();
        match &self.functions {
            FunctionFilter::All => parameters.map(|(place, _)| place).collect(),
            FunctionFilter::Named(named) => {
                let place = entries.get(&range.entry);
                let Some(wanted) = place.and_then(|place| named.get(*place)) else {
                    return Vec::new();
                };
                let chosen: Vec<usize> = parameters
                    .filter(|(place, parameter)| wanted.asks_for(*place, parameter))
                    .map(|(place, _)| place)
                    .collect();
                if range.parameters().is_some() {
                    wanted.matched.fetch_or(HAS_TYPE, Ordering::Relaxed);
                }
                chosen
            }
        }
    }
}

impl FunctionRequest {
    fn asks_for(&self, place: usize, parameter: &TableParameter<'_>) -> bool {
        let is_meant = |wanted: &&ParameterRequest| {
            let number = wanted.name.strip_prefix('#').unwrap_or(&wanted.name);
            wanted.name == parameter.name || number.parse() == Ok(place + 1)
        };
        let meant = self.parameters.iter().filter(is_meant);
        let meant = meant.map(|wanted| wanted.is_matched.store(true, Ordering::Relaxed));
        meant.count() > 0 || self.parameters.is_empty()
    }

    /// The parts of this request that nothing matched.
    fn missing(&self) -> Vec<UnmatchedRequest> {
        let matched = self.matched.load(Ordering::Relaxed);
        match (matched & FUNCTION_EXISTS != 0, matched & HAS_TYPE != 0) {
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

/// The requests for a file's functions.
#[derive(Debug)]
pub(crate) struct FileArguments {
    table: ArgumentTable,
    /// The ranges of code of these functions, sorted by address, without overlap.
    ranges: Vec<ArgumentRange>,
}

/// Some code of a function whose arguments are requested.
#[derive(Debug)]
struct ArgumentRange {
    start: u64,
    end: u64,
    /// The indices of the requested parameters.
    parameters: Vec<usize>,
}

impl FileArguments {
    /// `None` if nothing is requested of the file.
    fn new(
        table: ArgumentTable,
        entries: &HashMap<u64, usize>,
        filter: &ArgumentFilter,
    ) -> Option<FileArguments> {
        let read = table.table()?;
        let functions = (0..read.len()).filter_map(|index| read.get(index));
        let ranges = functions.map(|function| ArgumentRange {
            start: function.start,
            end: function.end,
            parameters: filter.chosen(&function, entries),
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

/// The most distinct lists of arguments kept per function, and in total.
const MAX_LISTS_PER_FUNCTION: u32 = 1000;
const MAX_LISTS: usize = 1 << 16;

/// The most bytes kept of a value.
const MAX_VALUE_BYTES: usize = 256;

/// Finds the arguments of functions on stacks.
#[derive(Default)]
pub(crate) struct ArgumentRecorder {
    /// The lists so far, keyed as [`ArgumentRecorder::key`].
    lists: HashMap<Box<[u8]>, ArgumentsId>,
    /// The number of lists per function, by its file's number and its entry.
    counts: HashMap<(u32, u64), u32>,
    /// The key of a list: the function, and for each argument its certainty and its bytes or
    /// characters.
    key: Vec<u8>,
    values: Vec<SampledValue>,
    reached: Vec<ReachedFrame>,
    frames: Vec<RawFrame>,
}

/// A sample after unwinding.
#[derive(Clone, Copy)]
pub(crate) struct UnwoundSample<'s> {
    pub(crate) space: &'s ProcessSpace,
    pub(crate) tid: u32,
    pub(crate) sample: &'s SampleRecord<'s>,
    /// All frames, kernel frames first.
    pub(crate) frames: &'s [RawFrame],
}

impl ArgumentRecorder {
    /// The frames of a sample with their functions' arguments. `number` numbers a list.
    pub(crate) fn note<'f>(
        &'f mut self,
        unwound: UnwoundSample<'f>,
        mut number: impl FnMut(&[Argument]) -> ArgumentsId,
    ) -> &'f [RawFrame] {
        let is_kernel = |frame: &RawFrame| frame.evidence == FrameEvidence::Kernel;
        let first = unwound.frames.partition_point(is_kernel);
        let user = unwound.frames.get(first..).unwrap_or_default();
        let mut asked = user
            .iter()
            .enumerate()
            .filter_map(|(place, frame)| {
                Some((place, RequestedFrame::from_code(unwound.space, frame.code)?))
            })
            .peekable();
        if asked.peek().is_none() {
            return unwound.frames;
        }
        let Some(top) = unwound.top() else {
            return unwound.frames;
        };
        self.frames.clear();
        self.frames.extend_from_slice(unwound.frames);
        self.reached.clear();
        self.reached.push(ReachedFrame {
            cursor: top.cursor(),
            unproven: UnprovenRules::NONE,
        });
        let walked = ArgumentWalk {
            space: unwound.space,
            tid: unwound.tid,
            memory: StackCopy::new(unwound.space, &top, unwound.sample.stack.bytes),
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
        walk: &ArgumentWalk<'_>,
        place: usize,
        request: &RequestedFrame<'_>,
        number: &mut impl FnMut(&[Argument]) -> ArgumentsId,
    ) -> ArgumentsId {
        let function = (request.file.number, request.range.entry);
        self.begin_key(function);
        self.values.clear();
        for (_, parameter) in request.parameters() {
            let value = SampledValue::find(walk, place, &parameter);
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
        let list: Vec<Argument> = request
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
        SampleTop::from_sample(self.sample, self.space, Abi::HOST)
    }
}

/// A frame whose arguments are requested.
struct RequestedFrame<'s> {
    file: &'s Arc<ModuleFile>,
    range: CodeRange<'s>,
    places: &'s [usize],
}

impl<'s> RequestedFrame<'s> {
    fn from_code(space: &'s ProcessSpace, code: CodeAddr) -> Option<RequestedFrame<'s>> {
        let (file, pc) = space.locate(code.lookup())?;
        let arguments = file.arguments.get()?;
        let range = arguments.range(pc)?;
        Some(RequestedFrame {
            file,
            range: arguments.table.table()?.function(pc.0)?,
            places: &range.parameters,
        })
    }

    /// The requested parameters, with their indices.
    fn parameters(&self) -> impl Iterator<Item = (usize, TableParameter<'s>)> {
        let all = self.range.parameters().into_iter().flatten().enumerate();
        all.filter(|(place, _)| self.places.contains(place))
    }
}

/// A stack, walked no further than requested.
struct ArgumentWalk<'s> {
    space: &'s ProcessSpace,
    tid: u32,
    memory: StackCopy<'s>,
    reached: RefCell<Vec<ReachedFrame>>,
    /// The frames, as the unwinder found them.
    frames: &'s [RawFrame],
    /// The number of frames found without guessing.
    certain: usize,
}

/// A frame that a step has reached.
#[derive(Clone, Copy)]
struct ReachedFrame {
    cursor: Cursor,
    /// The unproven rules used on the path there.
    unproven: UnprovenRules,
}

impl ArgumentWalk<'_> {
    /// A cursor at a frame, and the rules used on the path there. `None` if the frame was not found
    /// by stepping.
    fn reached(&self, number: usize) -> Option<ReachedFrame> {
        let mut reached = self.reached.borrow_mut();
        while reached.len() <= number {
            let ReachedFrame {
                mut cursor,
                unproven,
            } = *reached.last()?;
            let expected = self.frames.get(reached.len())?;
            match cursor.step(self.space, &self.memory) {
                Step::Caller(_) if cursor.code() == expected.code => {}
                _ => return None,
            }
            let left = unspool_arg_table::ArgStack::frame(self, reached.len() - 1);
            let unproven =
                unproven.union(left.map_or(UnprovenRules::NONE, |frame| frame.unproven_rules()));
            reached.push(ReachedFrame { cursor, unproven });
        }
        reached.get(number).copied()
    }

    /// The characters at an address, and whether they are certainly unchanged. Outside the copied
    /// stack and read-only mappings of files, they are read from the running process.
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
            .map_or(UnprovenRules::ALL, |frame| frame.unproven)
    }

    /// Reads the copied stack only: memory below the stack pointer was not copied.
    fn read(&self, address: u64, bytes: u8) -> Option<u64> {
        let mut number = [0; 8];
        let wanted = number.get_mut(..usize::from(bytes))?;
        wanted.copy_from_slice(self.memory.copied(address).get(..usize::from(bytes))?);
        Some(u64::from_le_bytes(number))
    }
}

/// The value of an argument.
struct SampledValue {
    certainty: ArgumentCertainty,
    bytes: [u8; MAX_VALUE_BYTES],
    length: usize,
    /// The characters that a pointer points to.
    text: Option<TextPreview>,
}

impl SampledValue {
    fn without(certainty: ArgumentCertainty) -> SampledValue {
        SampledValue {
            certainty,
            bytes: [0; MAX_VALUE_BYTES],
            length: 0,
            text: None,
        }
    }

    fn omitted() -> SampledValue {
        SampledValue::without(ArgumentCertainty::Omitted)
    }

    fn find(walk: &ArgumentWalk<'_>, frame: usize, parameter: &TableParameter<'_>) -> SampledValue {
        let mut value = SampledValue::without(ArgumentCertainty::Lost);
        let length = usize::try_from(parameter.bytes).unwrap_or(usize::MAX);
        value.length = length.min(MAX_VALUE_BYTES);
        let room = value.bytes.get_mut(..value.length).unwrap_or_default();
        let Ok(found) = read_argument(walk, frame, parameter, room) else {
            return SampledValue::without(ArgumentCertainty::Lost);
        };
        value.certainty = match found.certainty {
            ValueCertainty::Exact => ArgumentCertainty::Exact,
            ValueCertainty::Likely => ArgumentCertainty::Likely,
        };
        if matches!(parameter.display_kind, DisplayKind::CharPointer) && !parameter.is_by_reference
        {
            let text = walk.text(unspool_arg_table::unsigned(value.bytes()));
            if let Some((text, is_constant)) = text {
                value.text = Some(text);
                if !is_constant {
                    value.certainty = ArgumentCertainty::Likely;
                }
            }
        }
        value
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Adds the bytes that distinguish it from other values of the same parameter.
    fn put(&self, key: &mut Vec<u8>) {
        let known = ArgumentCertainty::ALL
            .iter()
            .position(|known| *known == self.certainty);
        let known = known.and_then(|known| u8::try_from(known).ok());
        key.push(known.unwrap_or(u8::MAX));
        let content = self.text.as_ref().map_or(self.bytes(), TextPreview::bytes);
        key.push(u8::from(self.text.is_some()));
        key.extend(content.len().to_le_bytes());
        key.extend(content);
    }

    fn argument(&self, place: usize, parameter: &TableParameter<'_>) -> Argument {
        let value = match (self.certainty, &self.text) {
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
            certainty: self.certainty,
        }
    }
}
