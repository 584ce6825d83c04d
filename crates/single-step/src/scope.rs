//! A module with stepped functions: its table, its functions in scope, and visited instructions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unspool_check::{CodeOrigin, DeclaredRow, RuleLocation, START_FILE_FUNCTIONS};
use unspool_code_analysis::Lifter;
use unspool_code_analysis::op::Flow;
use unspool_elf::{DebugFiles, ElfFile, Lines, SearchRoots, Symbols};
use unspool_rows::table::Span;
use unspool_rows::{LoadBias, RegisterRule, Row, RowId, RuntimeAddr, Table, Vaddr};
use unspool_table_store::{self as tables, TableSource};

use crate::instruction::SteppedInstruction;
use crate::{RowSource, StepRequest};

/// How often a thread at full speed is stopped at the same indirect jump.
const MAX_JUMP_STOPS: u32 = 200;

/// A function in scope.
#[derive(Debug, Default)]
pub(crate) struct SteppedFunction {
    pub(crate) name: Option<String>,
    pub(crate) start: Vaddr,
    pub(crate) end: Vaddr,
    /// It is a part of others, which jump there: it is not called.
    pub(crate) is_part: bool,
    /// Its landing pads.
    pub(crate) pads: Vec<Vaddr>,
    /// Number of traced entries.
    pub(crate) entered: u64,
    /// Number of successive entries without anything new.
    pub(crate) idle: u32,
    /// How often it was reactivated after it was retired.
    pub(crate) reactivated: u32,
    /// Its instructions were visited often enough, to the tracer's knowledge.
    pub(crate) is_retired: bool,
    /// It was retired at some time.
    pub(crate) was_retired: bool,
    /// Number of reactivations when tracing of all its entries began.
    pub(crate) complete_since: u64,
    /// For each preserved register: number of returns without restoring it.
    pub(crate) lost: [u64; 6],
    /// Number of observed returns.
    pub(crate) returned: u64,
}

/// An instruction that was visited.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VisitedInstruction {
    pub(crate) instruction: SteppedInstruction,
    pub(crate) visits: u32,
    /// How often a thread at full speed was stopped here in vain.
    pub(crate) stops: u32,
}

impl VisitedInstruction {
    /// Whether it jumps to an address that may be new each time, and was not stopped at too often.
    pub(crate) fn is_awaited_jump(&self) -> bool {
        let is_indirect = matches!(self.instruction.flow, Some(Flow::IndirectJump(_)));
        is_indirect && self.stops < MAX_JUMP_STOPS
    }
}

/// A module.
#[derive(Debug)]
pub(crate) struct SteppedModule {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<ElfFile>,
    /// The rows that are compared with the run.
    pub(crate) table: Table,
    pub(crate) spans: Vec<Span>,
    /// Whether rows have registers in vector registers.
    pub(crate) has_vectors: bool,
    /// Origin of the functions in scope.
    pub(crate) origin: CodeOrigin,
    /// The functions in scope, ascending and without overlap.
    pub(crate) functions: Vec<SteppedFunction>,
    /// Number of compiled functions out of scope.
    pub(crate) left_out: usize,
    pub(crate) visited: BTreeMap<u64, VisitedInstruction>,
}

/// An address in a module that a process has mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ModuleAddress {
    pub(crate) module: usize,
    pub(crate) bias: LoadBias,
    pub(crate) at: Vaddr,
}

/// A module at its address in a process.
#[derive(Debug, Clone)]
pub(crate) struct MappedModule {
    pub(crate) module: usize,
    pub(crate) bias: LoadBias,
    pub(crate) start: RuntimeAddr,
    pub(crate) end: RuntimeAddr,
}

impl SteppedModule {
    /// Reads a file, and selects the functions in scope.
    pub(crate) fn read(
        path: &Path,
        file: Arc<ElfFile>,
        request: &StepRequest,
        lifter: &Lifter,
    ) -> SteppedModule {
        let own = tables::read_if_any(&file).unwrap_or_else(|_| Table::new(file.abi()));
        // Function starts are not taken from the compared rows, if other information has them.
        let is_bare = own.fdes().is_empty();
        let mut module = SteppedModule {
            path: path.to_path_buf(),
            origin: CodeOrigin::from_file(&file),
            table: Table::new(file.abi()),
            spans: Vec::new(),
            has_vectors: false,
            functions: Vec::new(),
            left_out: 0,
            visited: BTreeMap::new(),
            file,
        };
        module.set_table(own);
        if !is_bare {
            module.choose(request, lifter);
        }
        if request.rows != RowSource::Table(TableSource::Auto) {
            module.set_table(request.rows.read(&module.file));
        }
        if is_bare {
            module.choose(request, lifter);
        }
        module
    }

    fn set_table(&mut self, table: Table) {
        self.spans = table.spans().collect();
        let count = u32::try_from(table.distinct_rows()).unwrap_or(u32::MAX);
        let mut rows = (0..count).filter_map(|id| table.row(RowId(id)));
        self.has_vectors = rows.any(|row| row.rules().any(|(_, rule)| is_vector(rule)));
        drop(rows);
        self.table = table;
    }

    /// The row at an address.
    pub(crate) fn row(&self, at: Vaddr) -> Option<Row<'_>> {
        let place = self.spans.partition_point(|span| span.end <= at);
        let span = self.spans.get(place).filter(|span| span.start <= at)?;
        self.table.row(span.row)
    }

    /// Index of the function in scope that contains an address.
    pub(crate) fn function(&self, at: Vaddr) -> Option<usize> {
        let after = self
            .functions
            .partition_point(|function| function.start <= at);
        let place = after.checked_sub(1)?;
        (at < self.functions.get(place)?.end).then_some(place)
    }

    /// Index of the function in scope that starts at an address.
    pub(crate) fn entry(&self, at: Vaddr) -> Option<usize> {
        let place = self.function(at)?;
        (self.functions.get(place)?.start == at).then_some(place)
    }

    /// The record of the instruction at an address.
    pub(crate) fn visited_instruction(
        &mut self,
        lifter: &mut Lifter,
        at: Vaddr,
    ) -> &mut VisitedInstruction {
        let bytes = self.file.rest_at(at).unwrap_or_default();
        self.visited
            .entry(at.0)
            .or_insert_with(|| VisitedInstruction {
                instruction: SteppedInstruction::decode(lifter, bytes, at.0),
                visits: 0,
                stops: 0,
            })
    }

    /// Selects the functions in scope.
    fn choose(&mut self, request: &StepRequest, lifter: &Lifter) {
        let debug = DebugFiles::locate(&self.file, &SearchRoots::from_environment());
        let is_named = |name: &str| {
            let mut wanted = request.functions.iter();
            wanted.any(|wanted| is_part_of(name, wanted))
        };
        let all = self.all_functions(debug.debug.as_deref(), lifter, &request.functions, is_named);
        let is_default = request.modules.is_empty();
        let is_asked =
            |function: &SteppedFunction| match (&function.name, request.functions.is_empty()) {
                (Some(name), false) => is_named(name),
                (None, false) => false,
                (name, true) => {
                    let name = name.as_deref().unwrap_or_default();
                    !START_FILE_FUNCTIONS.contains(&name)
                        && (!is_default || !self.is_stub(function.start))
                }
            };

        let mut functions: Vec<SteppedFunction> = all.into_iter().filter(is_asked).collect();
        if is_default || !request.functions.is_empty() {
            let starts: Vec<Vaddr> = functions.iter().map(|function| function.start).collect();
            let lines = Lines::new(Arc::clone(&self.file), &debug, &starts);
            let is_compiled = |function: &SteppedFunction| is_compiled(&lines, function.start);
            let is_all = functions.iter().all(is_compiled);
            if request.functions.is_empty() && !is_all {
                let all = functions.len();
                functions.retain(|function| !is_compiled(function));
                self.left_out = all - functions.len();
            }
            if !is_all {
                self.origin = CodeOrigin::HandWritten;
            }
        }
        self.functions = functions;
        self.find_pads();
    }

    /// Whether the linker made the code at an address, to call other modules.
    fn is_stub(&self, at: Vaddr) -> bool {
        let section = self.file.section_of(at);
        section.is_some_and(|(name, _)| matches!(&*name, ".plt" | ".plt.sec" | ".plt.got"))
    }

    /// All functions: symbols, and table entries that begin as functions do. Other entries are
    /// parts if no symbol names them. Of several names, a requested one is preferred.
    fn all_functions(
        &self,
        debug: Option<&ElfFile>,
        lifter: &Lifter,
        wanted: &[String],
        is_named: impl Fn(&str) -> bool,
    ) -> Vec<SteppedFunction> {
        let symbols = Symbols::new(&self.file, debug);
        let code = self.file.executable_ranges();
        let mut starts: BTreeMap<Vaddr, (Option<String>, Vaddr)> = BTreeMap::new();
        let mut parts = BTreeSet::new();
        let abi_info = lifter.abi_info();
        for fde in self.table.fdes() {
            let first = self.table.rows(fde).next();
            let row = first.and_then(|first| self.table.row(first.row));
            let declared = row.map(|row| DeclaredRow::from_row(&row, abi_info).cfa);
            let called =
                RuleLocation::Register(abi_info.stack_pointer, abi_info.call_pushes.into());
            let begins = declared == Some(called);
            if fde.start < fde.end && (begins || !self.is_stub(fde.start)) {
                starts.insert(fde.start, (None, fde.end));
                if !begins {
                    parts.insert(fde.start);
                }
            }
        }
        for symbol in symbols.iter() {
            let is_entry = starts.contains_key(&symbol.address);
            let is_code = code.iter().any(|range| range.contains(&symbol.address));
            // A symbol that is requested by name is a function, even if an assembler gave it no
            // type.
            let is_wanted = wanted.iter().any(|wanted| *wanted == symbol.name);
            if is_code && (symbol.is_function || is_entry || is_wanted) {
                let end = symbol.address.offset(symbol.size);
                let known = starts.entry(symbol.address).or_insert((None, end));
                if known.0.is_none() || is_named(&symbol.name) {
                    known.0 = Some(symbol.name.clone().into_owned());
                }
                known.1 = known.1.max(end);
                if symbol.is_function || is_wanted {
                    parts.remove(&symbol.address);
                }
            }
        }
        let mut functions: Vec<SteppedFunction> = Vec::with_capacity(starts.len());
        for (start, (name, end)) in starts {
            let range = code.iter().find(|range| range.contains(&start));
            let limit = range.map_or(start, |range| range.end);
            if let Some(last) = functions.last_mut() {
                // An assembler's symbol may have no size: it extends to the next.
                if last.end == last.start {
                    last.end = start;
                }
                if name.is_none() && start < last.end {
                    continue;
                }
                last.end = last.end.min(start);
            }
            functions.push(SteppedFunction {
                name,
                start,
                end: end.min(limit),
                is_part: parts.contains(&start),
                ..SteppedFunction::default()
            });
        }
        if let Some(last) = functions.last_mut()
            && last.end == last.start
        {
            let range = code.iter().find(|range| range.contains(&last.start));
            last.end = range.map_or(last.end, |range| range.end);
        }
        functions
    }

    /// Finds landing pads.
    fn find_pads(&mut self) {
        let mut found = Vec::new();
        for fde in self.table.fdes() {
            let Some(place) = self.function(fde.start) else {
                continue;
            };
            if let Some(lsda) = fde.lsda {
                let mut landed = Vec::new();
                unspool_synthesis::landings(&self.file, lsda, fde.start, &mut landed);
                found.extend(landed.iter().map(|landing| (place, Vaddr(landing.pad))));
            }
        }
        for (place, pad) in found {
            if let Some(function) = self.functions.get_mut(place) {
                function.pads.push(pad);
            }
        }
    }
}

/// Whether a function has a name, or is a part or copy of one with that name: compilers call them
/// `NAME.cold`, `NAME.part.0`.
fn is_part_of(function: &str, name: &str) -> bool {
    let rest = function.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether debug information says that code has a source other than assembly.
fn is_compiled(lines: &Lines, at: Vaddr) -> bool {
    const ASSEMBLY: [&str; 5] = ["s", "S", "sx", "asm", "nasm"];
    let frames = lines.frames(at).unwrap_or_default();
    let file = frames.into_iter().next().and_then(|frame| frame.file);
    let extension = file.as_deref().map(|file| Path::new(file).extension());
    match extension.flatten().and_then(|extension| extension.to_str()) {
        Some(extension) => !ASSEMBLY.contains(&extension),
        None => file.is_some(),
    }
}

/// Whether a register is saved in a vector register; their numbers follow that of the return
/// address.
fn is_vector(rule: RegisterRule<'_>) -> bool {
    matches!(rule, RegisterRule::Register(other) if other.0 > 16)
}
