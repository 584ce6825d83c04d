//! A stopped process with its modules: walks the stacks of its threads.
//!
//! Modules are opened when a walk first needs them. Their compiled table is from the [`Store`]. A
//! module without one is unwound straight from its `.eh_frame`. [`SnapshotUnwinder::uncompiled`]
//! lists it, so that a table can be made once the process runs again.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use unspool_elf::{ElfFile, ModuleError, SegmentMapping};
use unspool_rows::memory::{Unreadable, UnreadableReason};
use unspool_rows::{CodeAddr, LoadBias, Memory, Register, Registers, RuntimeAddr, Vaddr};
use unspool_symbols::JitCode;
use unspool_table_store::{Store, StoreError, TableOrigin};

use crate::file_provider::{FileProblem, FileProvider};
use crate::generated_code::CurrentJitCode;
use crate::maps::{Device, Mapping};
use crate::{Snapshot, Thread, jit_interface};
use unspool_unwind::{
    AnonymousCode, Cursor, End, Module, Modules, NoRow, Step, StepInfo, SynthesizedRows,
};

mod open_module;

pub use open_module::OpenModule;

/// The identity of a mapped file.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MappedFileId {
    name: Option<OsString>,
    device: Device,
    inode: u64,
    /// Its load address, if its inode is unknown: a core may have two files with one name, one of
    /// which replaced the other while the process ran.
    copy: Option<RuntimeAddr>,
}

/// The module and bias at a mapping, or why there is none.
type OpenResult = Result<(Rc<OpenModule>, LoadBias), FileProblem>;

/// The modules of a stopped process.
pub struct SnapshotUnwinder<'p> {
    snapshot: &'p dyn Snapshot,
    files: &'p dyn FileProvider,
    store: &'p Store,
    slots: Vec<OnceCell<OpenResult>>,
    opened: RefCell<BTreeMap<MappedFileId, Rc<OpenModule>>>,
    /// What the process says about generated code, once a walk needs it.
    generated: OnceCell<CurrentJitCode>,
    /// Code that the process has registered with debuggers, by its first address, with its end.
    registered: OnceCell<BTreeMap<RuntimeAddr, (RuntimeAddr, OpenResult)>>,
    /// By page: whether its code differs from the file's.
    differing: RefCell<BTreeMap<u64, bool>>,
    anonymous_code: AnonymousCode<&'p dyn Memory>,
    notices: RefCell<Vec<StoreError>>,
}

/// The detail that a walk keeps of each frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkDetail {
    /// Its code address, CFA and evidence.
    Frames,
    /// Its registers too: mostly some 100 bytes a frame.
    Registers,
}

/// The known registers of a frame.
#[derive(Debug, Clone)]
pub struct SparseRegisters {
    /// Bit `n`: register `n` is known.
    known: u128,
    /// The values of the known ones, ascending by number.
    values: Box<[u64]>,
}

impl SparseRegisters {
    fn from_registers(registers: &Registers) -> Self {
        SparseRegisters {
            known: registers
                .iter()
                .fold(0, |known, (register, _)| known | 1 << register.0),
            values: registers.iter().map(|(_, value)| value).collect(),
        }
    }

    /// The value of `register`, or `None` when it is unknown in this frame.
    #[must_use]
    pub fn get(&self, register: Register) -> Option<u64> {
        let bit = 1_u128.checked_shl(register.0.into())?;
        let before = (self.known & (bit - 1)).count_ones();
        let value = self.values.get(usize::try_from(before).ok()?)?;
        (self.known & bit != 0).then_some(*value)
    }
}

/// One frame of a walked stack.
#[derive(Debug, Clone)]
pub struct StackFrame {
    /// The frame's code address.
    pub code: CodeAddr,
    /// Its stack pointer, if known.
    pub stack_pointer: Option<RuntimeAddr>,
    /// Its known registers, if requested.
    pub registers: Option<SparseRegisters>,
    /// The step that found it; `None` for the innermost frame, which has the thread's registers.
    pub step: Option<StepInfo>,
    /// Its canonical frame address, if known.
    pub cfa: Option<RuntimeAddr>,
    /// Whether the CFA is a guess: no row covers the frame, and its caller was guessed.
    pub cfa_is_guess: bool,
}

/// A walked stack.
#[derive(Debug, Clone)]
pub struct CallStack {
    /// The frames, innermost first.
    pub frames: Vec<StackFrame>,
    /// Why the walk ended.
    pub end: End,
    /// The start of memory that was not copied and would extend the result: callers, or registers
    /// of the frames if requested.
    pub missing: Option<RuntimeAddr>,
}

impl CallStack {
    /// The number of frames before the first guess.
    #[must_use]
    pub fn certain(&self) -> usize {
        let guessed = |frame: &StackFrame| frame.step.is_some_and(|f| f.evidence.is_guess());
        let first = self.frames.iter().position(guessed);
        first.unwrap_or(self.frames.len())
    }

    /// Whether the stack is reliable: no frame is a guess, and the root was reached.
    #[must_use]
    pub fn is_reliable(&self) -> bool {
        self.end.is_root() && self.certain() == self.frames.len()
    }
}

/// A frame's location in its module.
#[derive(Debug, Clone)]
pub struct FrameLocation {
    /// The module.
    pub module: Rc<OpenModule>,
    /// The link-time address for look-ups of the frame: that of the call, for a return address.
    pub lookup: Vaddr,
    /// The frame's own link-time address.
    pub address: Vaddr,
    /// Whether the code in memory differs from the file's: the module is known by the object that
    /// spans the memory ([`Mapping::by_object`]). The frame's row is then made of the memory.
    pub differs: bool,
}

impl FrameLocation {
    /// The file, and the address in it that has the frame's name.
    #[must_use]
    pub fn in_file(&self) -> (&Arc<ElfFile>, Vaddr) {
        (&self.module.file, self.lookup)
    }
}

/// A mapped file that cannot be used.
#[derive(Debug, Clone, Copy)]
pub struct UnusableFile<'s> {
    /// Its path in the process.
    pub name: &'s Path,
    /// The file offset of the address, in bytes.
    pub offset: u64,
    /// Why it is not used.
    pub problem: &'s FileProblem,
}

impl<'p> SnapshotUnwinder<'p> {
    /// The modules of a process that finds its own files, with their tables from `store`.
    #[must_use]
    pub fn new<P: Snapshot + FileProvider>(process: &'p P, store: &'p Store) -> Self {
        SnapshotUnwinder::with_files(process, process, store)
    }

    /// The same with the files from elsewhere: a core's from
    /// [`CoreFiles`](crate::file_provider::CoreFiles).
    #[must_use]
    pub fn with_files(
        snapshot: &'p dyn Snapshot,
        files: &'p dyn FileProvider,
        store: &'p Store,
    ) -> Self {
        let count = snapshot.mappings().as_slice().len();
        SnapshotUnwinder {
            snapshot,
            files,
            store,
            slots: (0..count).map(|_| OnceCell::new()).collect(),
            opened: RefCell::new(BTreeMap::new()),
            generated: OnceCell::new(),
            registered: OnceCell::new(),
            differing: RefCell::new(BTreeMap::new()),
            anonymous_code: AnonymousCode::new(snapshot.memory(), snapshot.abi()),
            notices: RefCell::new(Vec::new()),
        }
    }

    /// The process.
    #[must_use]
    pub fn snapshot(&self) -> &'p dyn Snapshot {
        self.snapshot
    }

    /// Walks the stack of a thread, at most `limit` frames of it; `None` if its registers are
    /// unknown.
    #[must_use]
    pub fn walk(&self, thread: &Thread, limit: usize, detail: WalkDetail) -> Option<CallStack> {
        let registers = *thread.registers.as_ref().ok()?;
        let cursor = Cursor::new(self.snapshot.abi(), registers)?;
        Some(self.walk_from(cursor, limit, detail))
    }

    /// Walks from a frame on, at most `limit` frames including itself.
    #[must_use]
    pub fn walk_from(&self, cursor: Cursor, limit: usize, detail: WalkDetail) -> CallStack {
        let mut cursor = cursor.with_pac_mask(self.snapshot.pac_mask());
        let mut frames: Vec<StackFrame> = Vec::new();
        let mut found = None;
        let memory = SnapshotMemory {
            unwinder: self,
            missing: Cell::new(None),
        };
        let end = loop {
            frames.push(StackFrame {
                code: cursor.code(),
                stack_pointer: cursor.stack_pointer(),
                registers: (detail == WalkDetail::Registers)
                    .then(|| SparseRegisters::from_registers(cursor.registers())),
                step: found,
                cfa: None,
                cfa_is_guess: false,
            });
            if frames.len() >= limit {
                break End::Limit;
            }
            match self.step(&mut cursor, &memory) {
                Step::Caller(caller) => {
                    if let Some(frame) = frames.last_mut() {
                        frame.cfa = Some(caller.cfa);
                        frame.cfa_is_guess = caller.evidence.is_guess();
                        if caller.signal_frame {
                            // The kernel made the handler return there: no call precedes it.
                            frame.code = CodeAddr::Instruction(frame.code.address());
                        }
                    }
                    found = Some(caller);
                }
                Step::End(end) => break end,
            }
        };
        if let Some(last) = frames.last_mut() {
            last.cfa = cursor.cfa(self, &memory);
        }
        frames.shrink_to_fit();
        let is_all = end.is_root() && detail == WalkDetail::Frames;
        let missing = memory.missing.get().filter(|_| !is_all);
        CallStack {
            frames,
            end,
            missing,
        }
    }

    /// Steps to the caller; uses the module's own table if the compiled one turns out to be
    /// corrupt.
    fn step(&self, cursor: &mut Cursor, memory: &SnapshotMemory<'_>) -> Step {
        loop {
            let pc = cursor.code().lookup();
            match cursor.step(self, memory) {
                Step::End(End::NoRow(NoRow::CorruptTable(corrupt))) => {
                    let Some(Ok((module, _))) = self.slot(pc) else {
                        return Step::End(End::NoRow(NoRow::CorruptTable(corrupt)));
                    };
                    if let Some(place) = module.distrust() {
                        let path = match place {
                            TableOrigin::Embedded => module.name.clone(),
                            TableOrigin::File(path) => path.clone(),
                        };
                        let notice = StoreError::Corrupt {
                            path,
                            corruption: corrupt,
                        };
                        self.notices.borrow_mut().push(notice);
                    }
                }
                step => return step,
            }
        }
    }

    /// The module of a frame.
    #[must_use]
    pub fn locate(&self, code: CodeAddr) -> Option<FrameLocation> {
        let (module, bias) = self.slot(code.lookup())?.as_ref().ok()?;
        Some(FrameLocation {
            module: Rc::clone(module),
            lookup: bias.to_vaddr(code.lookup()),
            address: bias.to_vaddr(code.address()),
            differs: self.differs(code.lookup()),
        })
    }

    /// The code of a frame that the process has generated, and described in a jitdump.
    #[must_use]
    pub fn generated_code(&self, code: CodeAddr) -> Option<&JitCode> {
        self.generated().codes.current(code.lookup())
    }

    fn generated(&self) -> &CurrentJitCode {
        let read = || CurrentJitCode::read(self.snapshot, self.files);
        self.generated.get_or_init(read)
    }

    /// The file at an address, if it cannot be used.
    #[must_use]
    pub fn unusable(&self, addr: RuntimeAddr) -> Option<UnusableFile<'_>> {
        let (_, mapping) = self.mapping(addr)?;
        let problem = self.slot(addr)?.as_ref().err()?;
        let name = Path::new(mapping.name.as_deref()?);
        Some(UnusableFile {
            name,
            offset: mapping.offset.wrapping_add(addr.0 - mapping.start.0),
            problem,
        })
    }

    /// The problems of files that walks needed, each once.
    #[must_use]
    pub fn problems(&self) -> Vec<&FileProblem> {
        let slots = self.slots.iter().filter_map(OnceCell::get);
        let problems = slots.filter_map(|slot| slot.as_ref().err());
        let by_text = problems.map(|problem| (problem.to_string(), problem));
        by_text.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// The files that were truncated or written to during walks: their frames may be wrong.
    #[must_use]
    pub fn changed_files(&self) -> Vec<ModuleError> {
        let opened = self.opened.borrow();
        let checked = opened.values().map(|module| module.file.check_unchanged());
        checked.filter_map(Result::err).collect()
    }

    /// The modules that walks used without a compiled table, each file once.
    #[must_use]
    pub fn uncompiled(&self) -> Vec<Rc<OpenModule>> {
        let opened = self.opened.borrow();
        let modules = opened.values().filter(|module| !module.is_compiled());
        let by_path = modules.map(|module| (module.file.path(), Rc::clone(module)));
        by_path.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// Notices about tables that the store found and did not use.
    #[must_use]
    pub fn take_notices(&self) -> Vec<StoreError> {
        self.notices.take()
    }

    /// The mapping at an address, with its index.
    fn mapping(&self, addr: RuntimeAddr) -> Option<(usize, &'p Mapping)> {
        let list = self.snapshot.mappings().as_slice();
        let at = list
            .partition_point(|mapping| mapping.start <= addr)
            .checked_sub(1)?;
        let mapping = list.get(at)?;
        (addr < mapping.end).then_some((at, mapping))
    }

    fn slot(&self, addr: RuntimeAddr) -> Option<&OpenResult> {
        let (at, mapping) = self.mapping(addr)?;
        if !mapping.may_execute() {
            return None;
        }
        let slot = self.slots.get(at).filter(|_| !mapping.is_anonymous());
        let opened = slot.map(|slot| slot.get_or_init(|| self.open(mapping)));
        // A JIT compiler may map a file of its own at two places.
        match opened {
            Some(Ok(_)) => opened,
            _ => self.registered(addr).or(opened),
        }
    }

    /// The file with the code at an address that the process has registered with debuggers.
    fn registered(&self, addr: RuntimeAddr) -> Option<&OpenResult> {
        let all = self.registered.get_or_init(|| self.registered_code());
        let (_, (end, file)) = all.range(..=addr).next_back()?;
        (addr < *end).then_some(file)
    }

    fn registered_code(&self) -> BTreeMap<RuntimeAddr, (RuntimeAddr, OpenResult)> {
        let memory = self.snapshot.current_memory();
        let descriptors = self.mappings_of_files().filter_map(|mapping| {
            let opened = self.opened.borrow().get(&self.file_id(mapping)).cloned();
            let file = match opened {
                Some(module) => Arc::clone(&module.file),
                None => Arc::new(self.files.file(mapping).ok()?),
            };
            let descriptor = file.variable(jit_interface::DESCRIPTOR)?;
            let bias = file.load_bias(&self.segment_mapping(mapping))?;
            Some(bias.to_runtime(descriptor))
        });
        let files = descriptors.flat_map(|at| jit_interface::registered_files(memory, at));
        let mut all = BTreeMap::new();
        for file in files {
            let ranges = file.executable_ranges();
            let name = PathBuf::from("[jit]");
            let module = OpenModule::new(file, name, None, self.store, &mut Vec::new());
            let (module, bias) = (Rc::new(module), LoadBias(0));
            for Range { start, end } in ranges {
                let end = bias.to_runtime(end);
                let module = Ok((Rc::clone(&module), bias));
                all.insert(bias.to_runtime(start), (end, module));
            }
        }
        all
    }

    /// One mapping with code of each file.
    fn mappings_of_files(&self) -> impl Iterator<Item = &'p Mapping> {
        let mut names = BTreeSet::new();
        let all = self.snapshot.mappings().iter();
        let code = all.filter(|mapping| mapping.may_execute() && mapping.path().is_some());
        code.filter(move |mapping| names.insert(mapping.name.clone()))
    }

    /// Whether memory that an object spans has other code than the object's file, in the page of an
    /// address. Memory that cannot be read counts as equal.
    fn differs(&self, addr: RuntimeAddr) -> bool {
        if !self
            .mapping(addr)
            .is_some_and(|(_, mapping)| mapping.by_object)
        {
            return false;
        }
        let page = addr.0 - addr.0 % self.page_size();
        let known = self.differing.borrow().get(&page).copied();
        known.unwrap_or_else(|| {
            let differs = self.page_differs(page, addr).unwrap_or(false);
            self.differing.borrow_mut().insert(page, differs);
            differs
        })
    }

    /// Compares the part of a page that the segment of `addr` has.
    fn page_differs(&self, page: u64, addr: RuntimeAddr) -> Option<bool> {
        let (module, bias) = self.slot(addr)?.as_ref().ok()?;
        let lookup = bias.to_vaddr(addr);
        let mut segments = module.file.segments();
        let segment = segments.find(|segment| segment.range().contains(&lookup))?;
        let start = bias.to_vaddr(RuntimeAddr(page)).max(segment.vaddr);
        let rest = module.file.rest_at(start)?;
        let size = bias
            .to_vaddr(RuntimeAddr(page.checked_add(self.page_size())?))
            .0
            - start.0;
        let in_file = rest.get(..usize::try_from(size).ok()?).unwrap_or(rest);
        let mut in_memory = vec![0; in_file.len()];
        let read = self
            .snapshot
            .memory()
            .read(bias.to_runtime(start), &mut in_memory);
        read.ok().map(|()| in_memory != in_file)
    }

    fn page_size(&self) -> u64 {
        self.snapshot.auxv().page_size().unwrap_or(4096)
    }

    /// Fills in bytes that the process cannot have changed, from the module's file at the address:
    /// cores leave them out. Yields whether it could.
    #[must_use]
    pub fn read_unchanging(&self, addr: RuntimeAddr, into: &mut [u8]) -> bool {
        let mut fill = || {
            let (_, mapping) = self.mapping(addr)?;
            let length = into.len() as u64;
            let end = addr.0.checked_add(length)?;
            let is_whole = end <= mapping.start.0.checked_add(mapping.size())?;
            if mapping.permissions.write || !is_whole {
                return None;
            }
            let opened = self.opened.borrow();
            let file = &opened.get(&self.file_id(mapping))?.file;
            let offset = mapping.offset.checked_add(addr.0 - mapping.start.0)?;
            // Memory that was once writable may differ from the file.
            let is_fixed = file.segments().any(|segment| {
                let held =
                    segment.file_offset..segment.file_offset.saturating_add(segment.file_size);
                !segment.writable
                    && held.contains(&offset)
                    && offset.saturating_add(length) <= held.end
            });
            let start = usize::try_from(offset).ok().filter(|_| is_fixed)?;
            let held = start..start.checked_add(into.len())?;
            into.copy_from_slice(file.bytes().get(held)?);
            Some(())
        };
        fill().is_some()
    }

    /// The identity of a mapping's file.
    fn file_id(&self, mapping: &Mapping) -> MappedFileId {
        MappedFileId {
            name: mapping.name.clone(),
            device: mapping.device,
            inode: mapping.inode,
            copy: if mapping.inode == 0 {
                self.snapshot.copy_start(mapping)
            } else {
                None
            },
        }
    }

    fn open(&self, mapping: &Mapping) -> OpenResult {
        let key = self.file_id(mapping);
        let known = self.opened.borrow().get(&key).map(Rc::clone);
        let module = match known {
            Some(module) => module,
            None => {
                let module = Rc::new(self.open_module(mapping)?);
                self.opened.borrow_mut().insert(key, Rc::clone(&module));
                module
            }
        };
        let bias = module.file.load_bias(&self.segment_mapping(mapping));
        let bias = bias.filter(|bias| {
            mapping.permissions.execute
                || executes(&module.file, bias.to_vaddr(mapping.start), self.page_size())
        });
        let bias = bias.ok_or_else(|| FileProblem::NoSegment {
            path: module.file.path().to_path_buf(),
        })?;
        Ok((module, bias))
    }

    /// A mapping with code of a file.
    fn segment_mapping(&self, mapping: &Mapping) -> SegmentMapping {
        SegmentMapping {
            start: mapping.start,
            length: mapping.size(),
            file_offset: mapping.offset,
            executable: true,
            page_size: self.page_size(),
        }
    }

    /// Bytes of code from the file: a core leaves out unchanged ones.
    fn code_in_file(&self, addr: RuntimeAddr, length: usize) -> Option<&[u8]> {
        let (_, mapping) = self.mapping(addr)?;
        if mapping.permissions.write {
            return None;
        }
        let (module, bias) = self.slot(addr)?.as_ref().ok()?;
        let length = u64::try_from(length).ok()?;
        module.file.bytes_at(bias.to_vaddr(addr), length)
    }

    fn open_module(&self, mapping: &Mapping) -> Result<OpenModule, FileProblem> {
        let is_vdso = mapping.name.as_deref().is_some_and(|name| name == "[vdso]");
        let image = if is_vdso {
            self.snapshot.vdso_image()
        } else {
            None
        };
        let file = match image {
            Some(image) => {
                let image = image.map_err(FileProblem::Memory)?;
                ElfFile::from_bytes("[vdso]", Box::<[u8]>::from(image))?
            }
            None => {
                // Memory that an object spans has no file of its own.
                let first = self.snapshot.copy_start(mapping);
                let first = first.and_then(|start| self.snapshot.mappings().find(start));
                self.files
                    .file(first.filter(|_| mapping.by_object).unwrap_or(mapping))?
            }
        };
        let name = PathBuf::from(mapping.name.clone().unwrap_or_default());
        let mut notices = self.notices.borrow_mut();
        let table = self.store.find_named(&file, &name, &mut notices);
        Ok(OpenModule::new(file, name, table, self.store, &mut notices))
    }
}

/// The memory of the process during one walk.
struct SnapshotMemory<'s> {
    unwinder: &'s SnapshotUnwinder<'s>,
    /// The first address that is mapped and was not copied.
    missing: Cell<Option<RuntimeAddr>>,
}

impl Memory for SnapshotMemory<'_> {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let read = self.unwinder.snapshot.memory().read(addr, into);
        let Err(unreadable) = read else {
            return Ok(());
        };
        if let Some(code) = self.unwinder.code_in_file(addr, into.len()) {
            into.copy_from_slice(code);
            return Ok(());
        }
        if unreadable.reason == UnreadableReason::NotRecorded && self.missing.get().is_none() {
            self.missing.set(Some(unreadable.addr));
        }
        Err(unreadable)
    }
}

impl Modules for SnapshotUnwinder<'_> {
    fn module(&self, addr: RuntimeAddr) -> Option<Module<'_>> {
        match self.slot(addr) {
            Some(Ok((module, bias))) => (!self.differs(addr)).then(|| module.module(*bias)),
            _ => self.generated().tables.module(addr),
        }
    }

    fn without_module(&self, addr: RuntimeAddr) -> NoRow {
        match self.slot(addr) {
            Some(Err(_)) => NoRow::NoFile,
            _ => NoRow::NoModule,
        }
    }

    fn anonymous_code(&self, addr: RuntimeAddr) -> Option<&dyn SynthesizedRows> {
        let (_, mapping) = self.mapping(addr)?;
        let is_in_no_file = mapping.is_anonymous() || self.differs(addr);
        (mapping.permissions.execute && is_in_no_file).then_some(&self.anonymous_code)
    }

    fn is_code(&self, addr: RuntimeAddr) -> bool {
        self.mapping(addr).is_some_and(|(_, mapping)| {
            mapping.permissions.execute
                || (mapping.may_execute() && matches!(self.slot(addr), Some(Ok(_))))
        })
    }

    fn is_not_code(&self, addr: RuntimeAddr) -> bool {
        // A file without recorded permissions may be code.
        let may_be_code = |mapping: &Mapping| {
            mapping.permissions.execute || (mapping.may_execute() && !mapping.is_anonymous())
        };
        match self.mapping(addr) {
            Some((_, mapping)) => !may_be_code(mapping),
            None => self.snapshot.has_all_mappings(),
        }
    }
}

/// Whether an address lies in an executable segment. Mappings begin before the segment's first
/// byte, at the start of its page.
fn executes(file: &ElfFile, addr: Vaddr, page_size: u64) -> bool {
    let page = |addr: Vaddr| addr.0 / page_size;
    file.segments()
        .filter(|segment| segment.executable)
        .map(|segment| segment.range())
        .any(|range| page(range.start) <= page(addr) && addr < range.end)
}
