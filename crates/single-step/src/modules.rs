//! The modules with functions in scope: found as processes map them, with the rows that are
//! compared there, and what was visited.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unspool_check::{DeclaredRow, RuleLocation};
use unspool_code_analysis::Lifter;
use unspool_code_analysis::arch::AbiInfo;
use unspool_elf::{ElfFile, SegmentMapping};
use unspool_process::mapped_files;
use unspool_process::maps::{Mapping, Mappings};
use unspool_rows::{Register, Registers, Vaddr};

use crate::compare::{RowComparison, RowFault};
use crate::faults::PendingFault;
use crate::instruction::SteppedInstruction;
use crate::scope::{
    MappedModule, ModuleAddress, SteppedFunction, SteppedModule, VisitedInstruction,
};
use crate::shadow_stack::{FunctionId, RunningFunction, ShadowFrame};
use crate::sys::{self, Regs};
use crate::traced_memory::{BreakpointReason, TracedMemory, mappings};
use crate::x86_64::{ABI, general, preserved};
use crate::{RowSource, SingleStepError, StepRequest};

/// How often a retired function is reactivated because it did something new.
const MAX_REACTIVATIONS: u32 = 20;

/// All modules with functions in scope.
pub(crate) struct SteppedModules<'r> {
    request: &'r StepRequest,
    lifter: Lifter,
    modules: Vec<SteppedModule>,
    by_path: HashMap<PathBuf, Option<usize>>,
    /// The program that was executed first.
    first: Option<PathBuf>,
    /// Number of reactivations of functions.
    reactivations: u64,
}

impl<'r> SteppedModules<'r> {
    pub(crate) fn new(request: &'r StepRequest) -> Result<SteppedModules<'r>, SingleStepError> {
        Ok(SteppedModules {
            request,
            lifter: Lifter::new(ABI).ok_or(SingleStepError::Architecture)?,
            modules: Vec::new(),
            by_path: HashMap::new(),
            first: None,
            reactivations: 0,
        })
    }

    pub(crate) fn all(&self) -> &[SteppedModule] {
        &self.modules
    }

    pub(crate) fn abi_info(&self) -> &'static AbiInfo {
        self.lifter.abi_info()
    }

    /// Number of reactivations of functions.
    pub(crate) fn reactivations(&self) -> u64 {
        self.reactivations
    }

    /// Finds the modules that a process has newly mapped, and sets breakpoints at their functions
    /// in scope.
    pub(crate) fn find(&mut self, tid: i32, memory: &mut TracedMemory) -> io::Result<()> {
        let maps = mappings(tid)?;
        let executable = std::fs::read_link(format!("/proc/{tid}/exe")).unwrap_or_default();
        if self.first.is_none() {
            self.first = Some(executable.clone());
        }
        self.forget_unmapped(memory, &maps);
        let code = |mapping: &&Mapping| mapping.permissions.execute && mapping.path().is_some();
        for mapping in maps.iter().filter(code) {
            let Some(path) = mapping.path() else { continue };
            let is_known = memory.site(mapping.start.0).is_some();
            if is_known || !self.is_asked(path, &executable) {
                if !is_known && !self.request.modules.is_empty() {
                    watch_loader(tid, mapping, memory);
                }
                continue;
            }
            if let Some(module) = self.read(tid, mapping) {
                self.add(tid, mapping, module, memory)?;
            }
        }
        Ok(())
    }

    /// Drops modules that are no longer mapped there.
    fn forget_unmapped(&self, memory: &mut TracedMemory, maps: &Mappings) {
        let is_there = |mapped: &mut MappedModule| {
            let mapping = maps.iter().find(|mapping| mapping.contains(mapped.start));
            let path = mapping.and_then(Mapping::path);
            let module = self.modules.get(mapped.module);
            path.is_some() && path == module.map(|module| &*module.path)
        };
        let gone = memory.mapped.extract_if(.., |mapped| !is_there(mapped));
        let gone: Vec<MappedModule> = gone.collect();
        gone.iter().for_each(|gone| memory.forget(gone));
    }

    /// Whether functions of a file can be in scope.
    fn is_asked(&self, path: &Path, executable: &Path) -> bool {
        let request = self.request;
        if request.modules.is_empty() {
            let is_first = self.first.as_deref() == Some(path);
            return path == executable && (is_first || !request.functions.is_empty());
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        request.modules.iter().any(|wanted| {
            let rest = name.strip_prefix(wanted.as_str());
            Path::new(wanted) == path
                || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    /// The module of a mapping, which is read once.
    fn read(&mut self, tid: i32, mapping: &Mapping) -> Option<usize> {
        let path = mapping.path()?;
        if let Some(known) = self.by_path.get(path) {
            return *known;
        }
        let opened = mapped_files(tid.unsigned_abs(), mapping).find_map(Result::ok);
        let file = opened.and_then(|opened| ElfFile::from_file(path, &opened.file).ok());
        let file = file.filter(|file| file.abi() == ABI);
        let number = file.map(|file| {
            let module = SteppedModule::read(path, Arc::new(file), self.request, &self.lifter);
            self.modules.push(module);
            self.modules.len() - 1
        });
        self.by_path.insert(path.to_path_buf(), number);
        number
    }

    /// Sets breakpoints in a newly mapped module.
    fn add(
        &self,
        tid: i32,
        mapping: &Mapping,
        number: usize,
        memory: &mut TracedMemory,
    ) -> io::Result<()> {
        let Some(module) = self.modules.get(number) else {
            return Ok(());
        };
        let Some(bias) = module.file.load_bias(&segment_mapping(mapping)) else {
            return Ok(());
        };
        memory.mapped.push(MappedModule {
            module: number,
            bias,
            start: mapping.start,
            end: mapping.end,
        });
        let is_awaited = |function: &&SteppedFunction| !function.is_retired && !function.is_part;
        for function in module.functions.iter().filter(is_awaited) {
            let at = bias.to_runtime(function.start);
            if mapping.contains(at) {
                memory.stop_at(at.0, BreakpointReason::Entry);
            }
        }
        if memory.has_room(mapping.start.0) {
            Ok(())
        } else {
            memory.make_room(tid, mapping.start.0)
        }
    }

    /// The function in scope at an address of a process.
    pub(crate) fn function_at(
        &self,
        memory: &TracedMemory,
        at: u64,
    ) -> Option<(ModuleAddress, FunctionId)> {
        let site = memory.site(at)?;
        let place = self.modules.get(site.module)?.function(site.at)?;
        Some((site, (site.module, place)))
    }

    /// The function that was requested by name, and its address in a process.
    pub(crate) fn requested_function(&self, memory: &TracedMemory) -> Option<(u64, FunctionId)> {
        let wanted = |name: &str| self.request.functions.iter().any(|wanted| wanted == name);
        memory.mapped.iter().find_map(|mapped| {
            let functions = &self.modules.get(mapped.module)?.functions;
            let is_it = |function: &SteppedFunction| function.name.as_deref().is_some_and(wanted);
            let place = functions.iter().position(is_it)?;
            let start = functions.get(place)?.start;
            Some((mapped.bias.to_runtime(start).0, (mapped.module, place)))
        })
    }

    fn function(&self, id: FunctionId) -> Option<&SteppedFunction> {
        self.modules.get(id.0)?.functions.get(id.1)
    }

    pub(crate) fn function_mut(&mut self, id: FunctionId) -> Option<&mut SteppedFunction> {
        self.modules.get_mut(id.0)?.functions.get_mut(id.1)
    }

    /// The function that control is in.
    pub(crate) fn running(&self, id: FunctionId) -> RunningFunction {
        let seen = self.function(id).filter(|function| !function.is_retired);
        RunningFunction {
            id,
            complete_since: seen.map(|function| function.complete_since),
        }
    }

    /// Counts a return, and the registers that the function has not restored.
    pub(crate) fn count_return(&mut self, ended: &ShadowFrame, regs: &Regs) {
        let function = ended.function.and_then(|id| self.function_mut(id));
        let Some(function) = function else { return };
        function.returned += 1;
        let now = preserved(regs);
        for (lost, (now, before)) in function.lost.iter_mut().zip(now.iter().zip(ended.saved)) {
            *lost += u64::from(*now != before);
        }
    }

    /// The record of an instruction.
    fn visited(&mut self, site: ModuleAddress) -> Option<&mut VisitedInstruction> {
        let module = self.modules.get_mut(site.module)?;
        Some(module.visited_instruction(&mut self.lifter, site.at))
    }

    /// Whether an instruction was visited less often than requested.
    pub(crate) fn is_unvisited(&mut self, site: ModuleAddress) -> bool {
        let most = self.request.visits;
        self.visited(site).is_some_and(|spot| spot.visits < most)
    }

    /// Visits an instruction of a function, and counts the visit if the frame is certain. Returns
    /// the instruction, and whether it was unvisited.
    pub(crate) fn visit(
        &mut self,
        site: ModuleAddress,
        id: FunctionId,
        is_certain: bool,
    ) -> Option<(SteppedInstruction, bool)> {
        let most = self.request.visits;
        let spot = self.visited(site)?;
        let instruction = spot.instruction;
        let is_new = spot.visits < most;
        if is_new && is_certain {
            spot.visits += 1;
            if let Some(function) = self.function_mut(id) {
                function.idle = 0;
            }
        }
        Some((instruction, is_new))
    }

    /// Counts that a thread at full speed was stopped in vain. Returns whether to stop there again.
    pub(crate) fn count_stop(&mut self, site: ModuleAddress) -> bool {
        self.visited(site).is_some_and(|spot| {
            spot.stops += 1;
            spot.is_awaited_jump()
        })
    }

    /// The addresses in a function, except `site`, at which something new may happen. `None` if
    /// there is no such function.
    pub(crate) fn awaited_in(&self, id: FunctionId, site: ModuleAddress) -> Option<Vec<u64>> {
        let module = self.modules.get(id.0)?;
        let function = module.functions.get(id.1)?;
        let is_visited = |at: u64| {
            let spot = module.visited.get(&at);
            spot.is_some_and(|spot| spot.visits >= self.request.visits)
        };
        let is_in_scope = |at: u64| module.function(Vaddr(at)).is_some();
        let mut awaited = BTreeSet::new();
        for (at, spot) in module.visited.range(function.start.0..function.end.0) {
            let successors = spot.instruction.successors(*at).into_iter().flatten();
            awaited.extend(successors.filter(|at| !is_visited(*at) && is_in_scope(*at)));
            if spot.is_awaited_jump() && *at != site.at.0 {
                awaited.insert(*at);
            }
        }
        let awaited = awaited.into_iter();
        Some(
            awaited
                .map(|at| site.bias.to_runtime(Vaddr(at)).0)
                .collect(),
        )
    }

    /// A retired function does something new: its next entry is traced.
    pub(crate) fn reactivate(
        &mut self,
        memory: &mut TracedMemory,
        at: u64,
        function: Option<FunctionId>,
    ) {
        let Some((site, _)) = self.function_at(memory, at) else {
            return;
        };
        let function = function.and_then(|(module, place)| {
            let module = self.modules.get_mut(module)?;
            let spot = module.visited.get(&site.at.0);
            let is_known = spot.is_some_and(|spot| spot.visits >= self.request.visits);
            let function = module.functions.get_mut(place)?;
            let is_wanted = function.is_retired
                && !function.is_part
                && !is_known
                && function.reactivated < MAX_REACTIVATIONS;
            is_wanted.then_some(function)
        });
        let Some(function) = function else { return };
        self.reactivations += 1;
        function.is_retired = false;
        function.reactivated += 1;
        function.complete_since = self.reactivations;
        function.idle = 0;
        let start = function.start;
        let biases = memory.mapped.iter().map(|mapped| mapped.bias);
        let entries: Vec<u64> = biases.map(|bias| bias.to_runtime(start).0).collect();
        for at in entries {
            if memory.site(at).is_some_and(|site| site.at == start) {
                memory.stop_at(at, BreakpointReason::Entry);
            }
        }
    }

    /// Whether a call to an address begins a frame. It does at a function's entry. It also does at
    /// a label inside a function if the row is that of a begin, and the code there does not use the
    /// pushed word.
    pub(crate) fn begins_frame(&mut self, site: ModuleAddress) -> bool {
        let module = self.modules.get(site.module);
        module.is_some_and(|module| module.entry(site.at).is_some()) || self.has_row_of_begin(site)
    }

    /// Whether the row at an address is that of a function's begin, and the code there does not use
    /// the word on top.
    pub(crate) fn has_row_of_begin(&mut self, site: ModuleAddress) -> bool {
        let abi_info = self.lifter.abi_info();
        let module = self.modules.get(site.module);
        let row = module.and_then(|module| module.row(site.at));
        let is_begin = row
            .is_some_and(|row| DeclaredRow::from_row(&row, abi_info).is_function_entry(abi_info));
        is_begin
            && self
                .visited(site)
                .is_some_and(|spot| !spot.instruction.takes_top)
    }

    /// The return address, if the row at an address declares it in a register.
    pub(crate) fn linked_return_address(
        &mut self,
        site: ModuleAddress,
        regs: &Regs,
    ) -> Option<u64> {
        let row = self.modules.get_mut(site.module)?.row(site.at)?;
        match DeclaredRow::from_row(&row, self.lifter.abi_info()).return_address {
            RuleLocation::Register(register, 0) => {
                general(regs).get(usize::from(register)).copied()
            }
            _ => None,
        }
    }

    /// The registers by number; vector registers only if the module has rules for them.
    pub(crate) fn registers(
        &self,
        tid: i32,
        regs: &Regs,
        site: ModuleAddress,
    ) -> io::Result<Registers> {
        let mut registers = Registers::new();
        for (number, value) in (0..).zip(general(regs)) {
            registers.set(Register(number), value);
        }
        let module = self.modules.get(site.module);
        if module.is_some_and(|module| module.has_vectors) {
            for (number, value) in (17..).zip(sys::vectors(tid)?) {
                registers.set(Register(number), value);
            }
        }
        Ok(registers)
    }

    /// The faults in the row at an address.
    pub(crate) fn compare(
        &self,
        memory: &TracedMemory,
        site: ModuleAddress,
        looked_up: Vaddr,
        registers: &Registers,
        truth: &ShadowFrame,
    ) -> Vec<PendingFault> {
        let Some(comparison) = self.comparison(memory, site, looked_up, registers, truth) else {
            return match self.request.rows {
                RowSource::Table(_) => vec![self.fault(site, truth, RowFault::Missing, None, None)],
                RowSource::Code => Vec::new(),
            };
        };
        let differences = comparison.differences().into_iter();
        let faults = differences.map(|(difference, found)| {
            let place = comparison.truth_of(&difference);
            self.fault(site, truth, RowFault::Mismatch(difference), found, place)
        });
        faults.collect()
    }

    /// The fault of a row that is reached through a signal frame, and is not declared as one.
    pub(crate) fn undeclared_signal(
        &self,
        site: ModuleAddress,
        truth: &ShadowFrame,
    ) -> Option<PendingFault> {
        let module = self.modules.get(site.module);
        let row = module.and_then(|module| module.row(site.at));
        let is_declared = row.is_none_or(|row| row.signal_frame || row.is_outermost());
        (!is_declared).then(|| self.fault(site, truth, RowFault::UndeclaredSignal, None, None))
    }

    /// A fault in the row of an instruction, with the value by the row and the actual location.
    fn fault(
        &self,
        site: ModuleAddress,
        frame: &ShadowFrame,
        fault: RowFault,
        found: Option<u64>,
        truth: Option<RuleLocation>,
    ) -> PendingFault {
        let module = self.modules.get(site.module);
        let function = module.and_then(|module| module.function(site.at));
        PendingFault {
            cause: (site.module, function.unwrap_or(usize::MAX), fault),
            at: site.at,
            found,
            truth,
            frame: *frame,
        }
    }

    /// The row at an address, with the state there and the truth; `None` if there is no row.
    pub(crate) fn comparison<'a>(
        &'a self,
        memory: &'a TracedMemory,
        site: ModuleAddress,
        looked_up: Vaddr,
        registers: &'a Registers,
        truth: &'a ShadowFrame,
    ) -> Option<RowComparison<'a>> {
        Some(RowComparison {
            abi: ABI,
            abi_info: self.abi_info(),
            row: self.modules.get(site.module)?.row(looked_up)?,
            registers,
            memory: memory.memory(),
            bias: site.bias,
            truth,
        })
    }
}

/// Sets a breakpoint where the dynamic linker reports modules to debuggers.
fn watch_loader(tid: i32, mapping: &Mapping, memory: &mut TracedMemory) {
    const LOADER_HOOK: &str = "_dl_debug_state";
    let name = mapping.path().and_then(Path::file_name).unwrap_or_default();
    if !name.to_string_lossy().starts_with("ld-") {
        return;
    }
    let opened = mapped_files(tid.unsigned_abs(), mapping).find_map(Result::ok);
    let file = opened.and_then(|opened| ElfFile::from_file(&opened.path, &opened.file).ok());
    let Some(file) = file else { return };
    let hook = file.symbols().named(LOADER_HOOK).next();
    if let (Some(hook), Some(bias)) = (hook, file.load_bias(&segment_mapping(mapping))) {
        let at = bias.to_runtime(hook.address).0;
        memory.stop_at(at, BreakpointReason::Loader);
    }
}

fn segment_mapping(mapping: &Mapping) -> SegmentMapping {
    SegmentMapping {
        start: mapping.start,
        length: mapping.size(),
        file_offset: mapping.offset,
        executable: mapping.permissions.execute,
        page_size: 4096,
    }
}
