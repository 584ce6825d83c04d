//! The FDEs that the program has registered for generated code, by address.
//!
//! They are in a search tree, which a lock protects from two writers. A writer that links a node
//! makes the version odd meanwhile. Readers take no lock: they read again if the version has
//! changed. All else that a writer does, such as reading entries, needs no odd version. The memory of
//! nodes is never returned to the system, so a reader may still read a node that was removed.
//!
//! A forked child may have been left a tree that another thread was changing. The first reader or
//! writer that sees this links all nodes anew. FDEs of a section that was being registered may be
//! missing then.
//!
//! Facts of generated code are true until code is removed, from one of `PARTS` parts of the
//! address space. Removals in each are counted.
//!
//! Reading is async-signal-safe. A handler that has interrupted its own thread while that made the
//! version odd finds nothing.

use core::hint;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};

use unspool_cfi::byte_reader::ByteReader;
use unspool_cfi::{CfiEntry, CfiSection, Cie, ParsedFde, SectionKind};
use unspool_rows::{LoadBias, Row, RuntimeAddr, Vaddr};
use unspool_unwind::local::ABI;
use unspool_unwind::local::fork_safe_lock::{self, ForkSafeLock, LockHolder};
use unspool_unwind::local::pool::with_evaluator;

use crate::facts::{BadEntry, EntryFacts, ProcedureInfo};
use crate::generated_code::GeneratedCode;
use crate::sys::address_tree::{AddressNode, AddressTree, NodeLink};
use crate::walk;

/// The registered FDEs.
#[derive(Debug)]
pub(crate) struct RegisteredFdes {
    lock: ForkSafeLock,
    /// Odd while a tree is changed.
    version: AtomicU64,
    /// FDEs by their first address: one past the last, the FDE's address, [`NodeState`].
    fdes: AddressTree,
    /// Registrations by what was registered: the program's object, the form, the state.
    /// Their nodes have lists of FDEs.
    registrations: AddressTree,
    blocks: AtomicPtr<NodeBlock>,
    /// Nodes without a use.
    free: NodeLink,
    /// Whether there is a registration whose FDEs are not read yet.
    is_any_pending: AtomicBool,
    /// The number of removals in each part.
    removals: [AtomicU64; PARTS],
}

/// The number of parts of the address space: pages are distributed among them.
const PARTS: usize = 64;

/// The number of removals after which facts would be taken for true again.
const GENERATIONS: u64 = 1 << 15;

const PAGE_BITS: u32 = 12;

/// What a node is used for. Zero is [`NodeState::Free`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum NodeState {
    Free,
    Fde,
    Registration,
    /// A registration whose FDEs are read when one is looked for.
    Pending,
}

/// Memory for nodes.
#[derive(Debug)]
#[repr(C)]
struct NodeBlock {
    next: AtomicPtr<NodeBlock>,
    nodes: [AddressNode; NodeBlock::NODES],
}

impl NodeBlock {
    const NODES: usize = 255;
}

/// The forms of a registration. LLVM's unwinder has FDEs registered one by one.
const FDE: u64 = 0;
const SECTION: u64 = 1;
const LIST: u64 = 2;

/// What a program registers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Registered {
    /// A section that begins with a CIE, or a single FDE.
    SectionOrFde(u64),
    /// A section up to a zero length. If a linker has merged CIEs, it may begin with an FDE.
    Section(u64),
    /// A list of sections that ends with a null pointer.
    List(u64),
}

/// When the FDEs of a registration are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadTime {
    /// At once.
    Now,
    /// When an address is looked up: programs register their own sections on starting.
    LookUp,
}

impl RegisteredFdes {
    /// The limit of a reader's tries before it sleeps.
    const MAX_SPINS: u64 = 100;

    /// None.
    #[must_use]
    pub(crate) const fn new() -> RegisteredFdes {
        RegisteredFdes {
            lock: ForkSafeLock::new(),
            version: AtomicU64::new(0),
            fdes: AddressTree::new(),
            registrations: AddressTree::new(),
            blocks: AtomicPtr::new(ptr::null_mut()),
            free: NodeLink::none(),
            is_any_pending: AtomicBool::new(false),
            removals: [const { AtomicU64::new(0) }; PARTS],
        }
    }

    /// The addresses of the FDE that covers an address, and of its function.
    #[must_use]
    pub(crate) fn fde_and_start(&self, pc: u64) -> Option<(u64, u64)> {
        if self.is_any_pending.load(Ordering::Relaxed) && !self.is_interrupted() {
            self.lock.with(|| self.repair(), || self.read_pending());
        }
        for spins in 0_u64.. {
            let version = self.version.load(Ordering::Acquire);
            if version.is_multiple_of(2) {
                let found = self.fdes.last_up_to(pc).map(|node| {
                    let [end, fde, _] = node
                        .words
                        .each_ref()
                        .map(|word| word.load(Ordering::Relaxed));
                    (node.key.load(Ordering::Relaxed), end, fde)
                });
                // The version is read again after all these loads.
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == version {
                    let (start, _, fde) = found.filter(|(_, end, _)| pc < *end)?;
                    return Some((fde, start));
                }
            }
            match self.lock.holder() {
                LockHolder::ThisThread => return None,
                LockHolder::ParentsThread => self.lock.with(|| self.repair(), || ()),
                LockHolder::Nobody | LockHolder::OtherThread if spins < Self::MAX_SPINS => {
                    hint::spin_loop();
                }
                LockHolder::Nobody | LockHolder::OtherThread => fork_safe_lock::wait(),
            }
        }
        None
    }

    /// Whether this is a handler that has interrupted a writer.
    fn is_interrupted(&self) -> bool {
        self.lock.holder() == LockHolder::ThisThread
    }

    /// Changes a tree, as the holder of the lock.
    fn change(&self, change: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed) | 1;
        self.version.store(version, Ordering::Relaxed);
        // The changes must not be visible before the odd version.
        fence(Ordering::Release);
        change();
        self.version
            .store(version.wrapping_add(1), Ordering::Release);
    }

    /// Registers FDEs, and the program's object for them.
    ///
    /// # Safety
    ///
    /// They are valid, and stay as they are until [`RegisteredFdes::deregister`].
    pub(crate) unsafe fn register(&self, registered: Registered, object: u64, time: ReadTime) {
        let (key, form) = match registered {
            // SAFETY: the caller's promise.
            Registered::SectionOrFde(entry) => match unsafe { header(entry) } {
                None => return,
                Some((_, _, 0)) => (entry, SECTION),
                Some(_) => (entry, FDE),
            },
            Registered::Section(section) => (section, SECTION),
            Registered::List(list) => (list, LIST),
        };
        let register = || {
            let Some(registration) = self.node(key, [object, form]) else {
                return;
            };
            set_state(registration, NodeState::Pending);
            self.change(|| self.registrations.insert(registration));
            match time {
                ReadTime::Now => self.read_fdes(registration),
                ReadTime::LookUp => self.is_any_pending.store(true, Ordering::Relaxed),
            }
        };
        self.lock.with(|| self.repair(), register);
    }

    /// Reads the FDEs of all pending registrations.
    fn read_pending(&self) {
        let pending = self
            .nodes()
            .filter(|node| state(node) == NodeState::Pending);
        pending.for_each(|registration| self.read_fdes(registration));
        self.is_any_pending.store(false, Ordering::Relaxed);
    }

    /// Reads the FDEs of a registration.
    fn read_fdes(&self, registration: &'static AddressNode) {
        set_state(registration, NodeState::Registration);
        let key = registration.key.load(Ordering::Relaxed);
        let [_, form, _] = &registration.words;
        match form.load(Ordering::Relaxed) {
            FDE => return self.insert(registration, key),
            SECTION => return self.read_section(registration, key),
            _ => {}
        }
        let list = pointer::<u64>(key);
        for at in 0.. {
            // SAFETY: `register`'s condition: the null pointer was not reached.
            match unsafe { list.wrapping_add(at).read() } {
                0 => return,
                section => self.read_section(registration, section),
            }
        }
    }

    fn read_section(&self, registration: &'static AddressNode, section: u64) {
        let mut at = section;
        // SAFETY: `register`'s condition: the terminator was not reached.
        while let Some((end, _, id)) = unsafe { header(at) } {
            if id != 0 {
                self.insert(registration, at);
            }
            at = end;
        }
    }

    /// Inserts an FDE; there may be no memory for it.
    fn insert(&self, registration: &'static AddressNode, address: u64) {
        // SAFETY: `register`'s condition.
        let Some(parts) = (unsafe { FdeParts::parse(address) }) else {
            return;
        };
        let (start, end) = (parts.fde.start.0, parts.fde.end.0);
        // A linker has dropped the function at 0.
        if start != 0
            && start < end
            && let Some(node) = self.node(start, [end, address])
        {
            node.first.set(Some(registration));
            registration.first.push(node);
            set_state(node, NodeState::Fde);
            self.change(|| self.fdes.insert(node));
        }
    }

    /// Removes the last registration of a section, an FDE or a list; returns the program's object
    /// for it, or zero.
    pub(crate) fn deregister(&self, key: u64) -> u64 {
        let remove = || {
            let registration = self.registrations.last_up_to(key);
            let registered = |node: &&AddressNode| node.key.load(Ordering::Relaxed) == key;
            let Some(registration) = registration.filter(registered) else {
                return 0;
            };
            let [object, ..] = &registration.words;
            let object = object.load(Ordering::Relaxed);
            while let Some(node) = registration.first.pop() {
                set_state(node, NodeState::Free);
                self.change(|| self.fdes.remove(node));
                let [end, ..] = &node.words;
                let end = end.load(Ordering::Relaxed);
                self.count_removal(node.key.load(Ordering::Relaxed)..end);
                self.free.push(node);
            }
            set_state(registration, NodeState::Free);
            self.change(|| self.registrations.remove(registration));
            self.free.push(registration);
            object
        };
        self.lock.with(|| self.repair(), remove)
    }

    /// Facts of code in the parts of a range are true no longer, before other code can be registered
    /// there. A reader that sees the new number finds the changed tree.
    fn count_removal(&self, code: core::ops::Range<u64>) {
        let pages = code.start >> PAGE_BITS..=(code.end - 1) >> PAGE_BITS;
        for page in pages.take(PARTS) {
            let removals = self.removals_in(page);
            // Before a number returns that facts may have, twice: the first time, a slow thread may
            // keep some afterwards.
            if (removals.load(Ordering::Relaxed) + 1).is_multiple_of(GENERATIONS / 2) {
                walk::clear_cache();
            }
            removals.fetch_add(1, Ordering::Release);
        }
    }

    fn removals_in(&self, page: u64) -> &AtomicU64 {
        const FIRST: usize = 0;
        let part = usize::try_from(page).unwrap_or(FIRST) % PARTS;
        let [first, ..] = &self.removals;
        self.removals.get(part).unwrap_or(first)
    }

    /// All nodes, used or not.
    fn nodes(&self) -> impl Iterator<Item = &'static AddressNode> + use<> {
        // SAFETY: null, or a block that is never unmapped.
        let block = |link: &AtomicPtr<NodeBlock>| unsafe {
            link.load(Ordering::Relaxed)
                .cast_const()
                .as_ref::<'static>()
        };
        let blocks = core::iter::successors(block(&self.blocks), move |last| block(&last.next));
        blocks.flat_map(|block| &block.nodes)
    }

    /// A node with these words; `None` without memory.
    fn node(&self, key: u64, [first, second]: [u64; 2]) -> Option<&'static AddressNode> {
        if self.free.get().is_none() {
            self.add_block();
        }
        let node = self.free.pop()?;
        let to = [&node.key].into_iter().chain(&node.words);
        for (to, word) in to.zip([key, first, second, NodeState::Free as u64]) {
            to.store(word, Ordering::Relaxed);
        }
        node.first.set(None);
        Some(node)
    }

    /// Gets new memory, which is never returned.
    fn add_block(&self) {
        let bytes = size_of::<NodeBlock>();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory.
        let memory = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if memory == libc::MAP_FAILED {
            return;
        }
        let memory = memory.cast::<NodeBlock>();
        // SAFETY: it is large enough, and aligned to a page; zero is a value of the type.
        let block: &'static NodeBlock = unsafe { &*memory };
        let before = self.blocks.load(Ordering::Relaxed);
        block.next.store(before, Ordering::Relaxed);
        self.blocks.store(memory, Ordering::Relaxed);
        block.nodes.iter().for_each(|node| self.free.push(node));
    }

    /// Links all nodes anew: the process was forked while another thread changed something.
    fn repair(&self) {
        self.change(|| {
            self.fdes.clear();
            self.registrations.clear();
            self.free.set(None);
            let registrations = || {
                self.nodes().filter(|node| {
                    matches!(state(node), NodeState::Registration | NodeState::Pending)
                })
            };
            for registration in registrations() {
                registration.first.set(None);
                self.registrations.insert(registration);
            }
            for node in self.nodes() {
                match state(node) {
                    NodeState::Free => self.free.push(node),
                    NodeState::Fde => {
                        if let Some(registration) = node.first.get() {
                            registration.first.push(node);
                        }
                        self.fdes.insert(node);
                    }
                    NodeState::Registration | NodeState::Pending => {}
                }
            }
        });
    }
}

fn state(node: &AddressNode) -> NodeState {
    let [.., state] = &node.words;
    match state.load(Ordering::Relaxed) {
        1 => NodeState::Fde,
        2 => NodeState::Registration,
        3 => NodeState::Pending,
        _ => NodeState::Free,
    }
}

/// Sets a node's state. A forked child sees it after the words that it speaks of.
fn set_state(node: &AddressNode, state: NodeState) {
    let [.., word] = &node.words;
    word.store(state as u64, Ordering::Release);
}

impl Default for RegisteredFdes {
    fn default() -> Self {
        RegisteredFdes::new()
    }
}

impl GeneratedCode for RegisteredFdes {
    fn row_and_entry(
        &self,
        pc: RuntimeAddr,
        row: &mut Row<'static>,
    ) -> Result<Option<EntryFacts>, BadEntry> {
        let Some((fde, _)) = self.fde_and_start(pc.0) else {
            return Ok(None);
        };
        // SAFETY: it is registered, so it and its CIE are valid.
        let parts = unsafe { FdeParts::parse(fde) }.ok_or(BadEntry)?;
        let bias = LoadBias(0);
        let procedure =
            ProcedureInfo::new(bias, parts.fde.start, parts.cie.personality, parts.fde.lsda)?;
        with_evaluator(|evaluator| {
            let rows =
                evaluator.rows_of_parts(&parts.cie_section, &parts.section, &parts.cie, &parts.fde);
            let mut rows = rows.map_err(|_| BadEntry)?;
            while let Some(range) = rows.advance().map_err(|_| BadEntry)? {
                if range.start.0 <= pc.0 && pc.0 < range.end.0 {
                    row.assign(rows.row());
                    return Ok(Some(EntryFacts { procedure, bias }));
                }
            }
            Ok(None)
        })
    }

    fn generation(&self, pc: RuntimeAddr) -> Option<u16> {
        let removals = self.removals_in(pc.0 >> PAGE_BITS);
        u16::try_from(removals.load(Ordering::Acquire) % GENERATIONS).ok()
    }
}

/// An FDE and its CIE, each as a section of its own: what is between them may be anything.
struct FdeParts {
    section: CfiSection<'static>,
    cie_section: CfiSection<'static>,
    cie: Cie<'static>,
    fde: ParsedFde<'static>,
}

impl FdeParts {
    /// `None` if one of them is bad.
    ///
    /// # Safety
    ///
    /// An FDE is at the address; it and its CIE stay as they are.
    unsafe fn parse(address: u64) -> Option<FdeParts> {
        // SAFETY: the caller's promise.
        let (end, id_address, id) = unsafe { header(address) }?;
        // SAFETY: as above.
        let section = unsafe { section_of(address, end) };
        let cie_address = id_address.wrapping_sub(i64::from(id).cast_unsigned());
        // SAFETY: as above: an FDE has a CIE.
        let (cie_end, ..) = unsafe { header(cie_address) }?;
        // SAFETY: as above.
        let cie_section = unsafe { section_of(cie_address, cie_end) };
        let cie = Cie::parse_at(&cie_section, 0).ok()?;
        let body = id_address.wrapping_add(4).wrapping_sub(address);
        let length = section.data.len() as u64;
        let body = ByteReader::new(section.data, body, length, ABI.endian);
        let entry = CfiEntry::new(0, Some(0), body);
        let fde = ParsedFde::parse(&section, &cie, entry).ok()?;
        Some(FdeParts {
            section,
            cie_section,
            cie,
            fde,
        })
    }
}

/// Mapped bytes as a section of their own.
///
/// # Safety
///
/// They are mapped, and not written to.
unsafe fn section_of(start: u64, end: u64) -> CfiSection<'static> {
    let length = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
    CfiSection {
        kind: SectionKind::EhFrame,
        // SAFETY: the caller's promise.
        data: unsafe { core::slice::from_raw_parts(pointer(start), length) },
        address: Vaddr(start),
        text_base: None,
        data_base: None,
        abi: ABI,
    }
}

fn pointer<T>(addr: u64) -> *const T {
    ptr::with_exposed_provenance(usize::try_from(addr).unwrap_or(0))
}

/// The end of an entry, the address of its CIE pointer, and that; `None` for a terminator.
///
/// # Safety
///
/// An entry or a terminator is at the address.
unsafe fn header(entry: u64) -> Option<(u64, u64, i32)> {
    // SAFETY: the caller's promise.
    let (length, at) = match unsafe { pointer::<u32>(entry).read_unaligned() } {
        0 => return None,
        u32::MAX => {
            // SAFETY: as above: the length has 8 bytes.
            let length = unsafe { pointer::<u64>(entry.wrapping_add(4)).read_unaligned() };
            (length, entry.wrapping_add(12))
        }
        length => (length.into(), entry.wrapping_add(4)),
    };
    // SAFETY: an entry has a CIE pointer behind its length.
    let id = unsafe { pointer::<i32>(at).read_unaligned() };
    Some((at.wrapping_add(length), at, id))
}
