//! The variables of a report's functions, from debugging information.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use unspool_arg_table::{ArgSource, DisplayType as _, ValueDisplay};
use unspool_c_types::Graph;
use unspool_dwarf_types::variables::{
    self, Activation, DwarfFunction, VariableUnavailable, Variables,
};
use unspool_dwarf_types::{GraphType, SplitFiles, TypesError};
use unspool_elf::{DebugFiles, ElfFile, ModuleError};
use unspool_process::Snapshot;
use unspool_process::snapshot_unwinder::{CallStack, SnapshotUnwinder};
use unspool_rows::{CodeAddr, Memory, Register, RuntimeAddr, Vaddr};
use unspool_symbols::ModuleFinder;
use unspool_synthesis::unchanged_registers;

use crate::containers::ContainerFormatter;
use crate::frame_values::format_value;
use crate::frames::StackArguments;
use crate::{MAX_VALUE_BYTES, call_target, rust};

/// The files with the debug information of some stacks' modules.
pub struct DebugInfoFiles {
    by_module: HashMap<PathBuf, (Arc<ElfFile>, DebugFiles, SplitFiles)>,
}

impl DebugInfoFiles {
    /// Finds the files for the modules of frames in the user's folders, of a process with debug
    /// files under its `root` first.
    pub fn open<'s>(
        unwinder: &SnapshotUnwinder<'_>,
        stacks: impl Iterator<Item = &'s CallStack>,
        root: Option<&Path>,
    ) -> DebugInfoFiles {
        let finder = ModuleFinder::from_environment().offline();
        DebugInfoFiles::open_by(&finder, unwinder, stacks, root)
    }

    /// The same by another finder.
    pub fn open_by<'s>(
        finder: &ModuleFinder,
        unwinder: &SnapshotUnwinder<'_>,
        stacks: impl Iterator<Item = &'s CallStack>,
        root: Option<&Path>,
    ) -> DebugInfoFiles {
        let mut by_module = HashMap::new();
        for frame in stacks.flat_map(|stack| &stack.frames) {
            if let Some(at) = unwinder.locate(frame.code)
                && !by_module.contains_key(&at.module.name)
            {
                let file = Arc::clone(&at.module.file);
                let (debug, _) = finder.debug_files(&file, root, &|_| {});
                by_module.insert(at.module.name.clone(), (file, debug, SplitFiles::default()));
            }
        }
        DebugInfoFiles { by_module }
    }
}

/// The debug information about the variables of some modules.
pub struct DebugInfo<'f> {
    by_module: HashMap<PathBuf, Variables<'f>>,
    /// The registers that functions have not changed so far, by addresses of the process.
    unchanged: RefCell<HashMap<u64, Rc<[Register]>>>,
    problems: RefCell<Vec<ValueProblem>>,
}

/// Why less is reported than possible.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ValueProblem {
    /// A debug file was found but rejected.
    #[error(transparent)]
    DebugFile(ModuleError),
    /// Debug information of a module is unreadable or missing.
    #[error("{}: {error}", module.display())]
    Types {
        /// The module.
        module: PathBuf,
        /// The fault.
        error: TypesError,
    },
    /// No module has debug information.
    #[error(
        "no module here has debugging information, which says where variables are: build with -g, or install the package of debug symbols"
    )]
    NoDebugInfo,
}

/// The function of a frame, or one inlined there.
pub struct FunctionValues {
    /// Its name.
    pub function: String,
    /// Its parameters.
    pub parameters: Vec<VariableText>,
    /// Its variables, those of the innermost block first.
    pub locals: Vec<VariableText>,
}

/// A variable.
pub struct VariableText {
    /// Its name.
    pub name: String,
    /// Its type.
    pub type_name: String,
    /// The depth of nested blocks in its function; 0 for the body.
    pub block: usize,
    /// Its current value.
    pub current: Result<ValueText, VariableUnavailable>,
    /// The value of a parameter when the frame's function was called, from the caller's call site.
    pub at_entry: Option<EntryText>,
}

/// A parameter's value when its function was called.
pub struct EntryText {
    /// In the notation of the function's language.
    pub text: String,
    /// Whether debugging information has this value for a call that is not proven to have called
    /// this function.
    pub is_likely: bool,
}

/// A completely or partly known value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueText {
    /// In the notation of the function's language.
    pub text: String,
    /// Its first bytes, [`MAX_VALUE_BYTES`] at most, and the mask of their known bits.
    pub value: variables::PartialValue,
}

impl<'f> DebugInfo<'f> {
    /// Reads the files.
    #[must_use]
    pub fn read(files: &'f DebugInfoFiles) -> DebugInfo<'f> {
        let mut by_module = HashMap::new();
        let mut problems = Vec::new();
        for (name, (file, debug, splits)) in &files.by_module {
            problems.extend(debug.rejected.iter().cloned().map(ValueProblem::DebugFile));
            match Variables::from_module(file, debug, splits) {
                Ok(variables) => {
                    by_module.insert(name.clone(), variables);
                }
                Err(error) => problems.push(ValueProblem::Types {
                    module: name.clone(),
                    error,
                }),
            }
        }
        if by_module.values().all(Variables::is_empty) {
            problems.push(ValueProblem::NoDebugInfo);
        }
        DebugInfo {
            by_module,
            unchanged: RefCell::default(),
            problems: RefCell::new(problems),
        }
    }

    /// The problems since the last call.
    #[must_use]
    pub fn take_problems(&self) -> Vec<ValueProblem> {
        self.problems.take()
    }

    fn note(&self, module: &Path, error: TypesError) {
        let problem = ValueProblem::Types {
            module: module.to_path_buf(),
            error,
        };
        let text = problem.to_string();
        let mut problems = self.problems.borrow_mut();
        if !problems.iter().any(|known| known.to_string() == text) {
            problems.push(problem);
        }
    }

    /// The functions of a frame and the known values of their variables: inlined functions first.
    /// Empty without debugging information. Given memory is that of texts at pointers, and of what
    /// containers contain.
    pub(crate) fn frame_functions(
        &self,
        walked: &WalkedStack<'_, 'f>,
        number: usize,
        [text, contents]: [Option<&dyn Memory>; 2],
    ) -> Vec<FunctionValues> {
        let found = self.function(walked, number);
        // Behind a guessed frame, the registers are guessed as well.
        let Some((function, lookup)) = found.filter(|_| number < walked.first_guess) else {
            return Vec::new();
        };
        let activation = Activation::new(walked, number, &function);
        let show = match function.rust() {
            Some(rust) => {
                LanguageFormatter::Rust(rust::RustFormatter::new(&activation, rust, text))
            }
            None => {
                let graph = activation.graph();
                let containers =
                    contents.map(|memory| ContainerFormatter::new(graph, memory, text));
                LanguageFormatter::C(graph, text, containers)
            }
        };
        let levels = function.frame_functions(lookup);
        let outermost = levels.len().saturating_sub(1);
        let levels = levels.iter().enumerate().map(|(nth, level)| {
            let shown = |variable: &&variables::Variable<'f>| {
                let known = |value: variables::PartialValue| ValueText {
                    text: show.value(variable, &value),
                    value,
                };
                let is_own = nth == outermost && variable.is_parameter;
                let at_entry = || activation.at_entry(variable, MAX_VALUE_BYTES).ok();
                VariableText {
                    name: match &*variable.name {
                        "" => "(unnamed)".to_owned(),
                        name => name.to_owned(),
                    },
                    type_name: show.type_name(variable),
                    block: variable.block,
                    current: activation
                        .current_value(variable, MAX_VALUE_BYTES)
                        .map(known),
                    at_entry: is_own.then(at_entry).flatten().map(|at_entry| EntryText {
                        text: show.value(variable, &at_entry.value),
                        is_likely: at_entry.is_likely,
                    }),
                }
            };
            FunctionValues {
                function: level.function.to_owned(),
                parameters: level.parameters.iter().map(shown).collect(),
                locals: level.locals.iter().map(shown).collect(),
            }
        });
        levels.collect()
    }

    fn function(
        &self,
        walked: &WalkedStack<'_, 'f>,
        number: usize,
    ) -> Option<(Rc<DwarfFunction<'f>>, Vaddr)> {
        let frame = variables::VariableStack::frame(walked, number)?;
        let found = frame.variables.function(frame.lookup);
        let module = frame.variables.path();
        for problem in frame.variables.take_problems() {
            self.note(module, problem);
        }
        match found {
            Ok(function) => Some((function?, frame.lookup)),
            Err(error) => {
                self.note(module, error);
                None
            }
        }
    }
}

/// The notation of a function's variables.
enum LanguageFormatter<'s, 'f> {
    /// C and C++, with the types, the memory of texts, and a formatter of containers, if their
    /// contents are shown.
    C(
        &'s Graph<'f>,
        Option<&'s dyn Memory>,
        Option<ContainerFormatter<'s, 'f>>,
    ),
    Rust(rust::RustFormatter<'s, 'f>),
}

impl<'f> LanguageFormatter<'_, 'f> {
    fn type_name(&self, variable: &variables::Variable<'f>) -> String {
        match self {
            LanguageFormatter::C(graph, ..) => graph.declare(variable.ty, "").trim_end().to_owned(),
            LanguageFormatter::Rust(values) => values.type_name(variable.ty),
        }
    }

    fn value(&self, variable: &variables::Variable<'f>, value: &variables::PartialValue) -> String {
        match self {
            LanguageFormatter::C(graph, text, containers) => {
                let is_known = value.known.iter().all(|known| *known == 0xff);
                let containers = containers.as_ref().filter(|_| is_known);
                if let Some(shown) =
                    containers.and_then(|containers| containers.show(variable.ty, &value.bytes))
                {
                    return shown;
                }
                let kind = GraphType::new(graph, variable.ty).kind();
                let shown = ValueDisplay::from_kind(kind, &value.bytes);
                format_value(shown.with_known(&value.known), *text)
            }
            LanguageFormatter::Rust(values) => values.show(variable.ty, value),
        }
    }
}

/// A walked stack, prepared to find variables.
pub(crate) struct WalkedStack<'r, 'f> {
    pub(crate) debug_info: &'r DebugInfo<'f>,
    pub(crate) snapshot: &'r dyn Snapshot,
    pub(crate) unwinder: &'r SnapshotUnwinder<'r>,
    pub(crate) stack: &'r CallStack,
    pub(crate) memory: &'r dyn Memory,
    /// The frames before this one were found without a guess.
    pub(crate) first_guess: usize,
    /// The arguments from the code, if requested.
    pub(crate) arguments: Option<&'r StackArguments<'r>>,
}

/// The maximum number of callees to check.
const MAX_CALLEES: usize = 16;

impl<'f> WalkedStack<'_, 'f> {
    /// A register that calls may change, but the functions called by a frame have not: compilers
    /// rely on that if they see all callees (`-fipa-ra`).
    fn preserved_by_callees(&self, number: usize, register: Register) -> Option<u64> {
        for callee in (0..number).rev().take(MAX_CALLEES) {
            if !self.unchanged(callee)?.contains(&register) {
                return None;
            }
            let registers = self.stack.frames.get(callee)?.registers.as_ref()?;
            if let Some(value) = registers.get(register) {
                return Some(value);
            }
        }
        None
    }

    /// The registers that a frame's function has not changed since its call.
    fn unchanged(&self, number: usize) -> Option<Rc<[Register]>> {
        let frame = self.stack.frames.get(number)?;
        let CodeAddr::Return(returns_to) = self.stack.frames.get(number.checked_add(1)?)?.code
        else {
            return None;
        };
        let at = variables::VariableStack::frame(self, number)?;
        let function = at.variables.function(at.lookup).ok()??;
        let entry = function.code().first()?.start.wrapping_add(at.bias);
        if callee_address(returns_to, self.memory) != Some(entry) {
            return None;
        }
        let mut known = self.debug_info.unchanged.borrow_mut();
        let unchanged = known.entry(frame.code.address().0).or_insert_with(|| {
            let parts = function.code().iter();
            let parts: Vec<_> = parts
                .map(|part| Vaddr(part.start)..Vaddr(part.end))
                .collect();
            match self.unwinder.locate(frame.code) {
                Some(at) => unchanged_registers(&at.module.file, &parts, at.lookup).into(),
                None => Rc::default(),
            }
        });
        Some(Rc::clone(unchanged))
    }
}

/// The function called before an address, if the call is direct.
fn callee_address(returns_to: RuntimeAddr, memory: &dyn Memory) -> Option<u64> {
    /// `call rel32` of x86-64.
    const CALL: u8 = 0xe8;
    let mut call = [0; 5];
    let start = returns_to.0.checked_sub(call.len() as u64)?;
    memory.read(RuntimeAddr(start), &mut call).ok()?;
    let [CALL, distance @ ..] = call else {
        return None;
    };
    Some(
        returns_to
            .0
            .wrapping_add_signed(i32::from_le_bytes(distance).into()),
    )
}

impl<'f> variables::VariableStack<'f> for WalkedStack<'_, 'f> {
    fn frame(&self, number: usize) -> Option<variables::VariableFrame<'_, 'f>> {
        let frame = self.stack.frames.get(number)?;
        let at = self.unwinder.locate(frame.code)?;
        Some(variables::VariableFrame {
            variables: self.debug_info.by_module.get(&at.module.name)?,
            lookup: at.lookup,
            returns_to: matches!(frame.code, CodeAddr::Return(_)).then_some(at.address),
            bias: frame.code.address().0.wrapping_sub(at.address.0),
        })
    }

    fn register(&self, number: usize, register: u16) -> Option<u64> {
        let register = Register(register);
        let registers = self.stack.frames.get(number)?.registers.as_ref()?;
        let known = registers.get(register);
        known.or_else(|| self.preserved_by_callees(number, register))
    }

    fn cfa(&self, number: usize) -> Option<u64> {
        Some(self.stack.frames.get(number)?.cfa?.0)
    }

    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        self.memory.read(RuntimeAddr(address), into).is_ok()
    }

    fn thread_local(&self, number: usize, offset: u64) -> Result<u64, VariableUnavailable> {
        let block = crate::thread_local::block(self, number);
        Ok(block
            .map_err(VariableUnavailable::ThreadLocal)?
            .wrapping_add(offset))
    }

    fn callee_address(&self, number: usize) -> Option<u64> {
        let CodeAddr::Return(returns_to) = self.stack.frames.get(number)?.code else {
            return None;
        };
        let register = |register| variables::VariableStack::register(self, number, register);
        let arch = self.snapshot.abi().arch;
        call_target::target(arch, returns_to, self.memory, register)
    }

    fn at_entry(&self, number: usize, register: u16) -> Option<u64> {
        let source = ArgSource::Register(u8::try_from(register).ok()?);
        let value = self.arguments?.value(number, source, 64)?;
        (value.certainty == unspool_arg_table::ValueCertainty::Exact).then_some(value.number)
    }
}
