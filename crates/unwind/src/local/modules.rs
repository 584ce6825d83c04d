//! The modules of the own process: discovered as walks reach them, and never forgotten.
//!
//! A loaded object gets a permanent number. Its data is written once, before any thread can see it,
//! and then only read: readers never wait. `_dl_find_object`, which takes no lock, finds the object
//! at an address. It is a known one if addresses, search table and build ID are the same. The same
//! library, loaded again at the same address, is the same module. For a module without a build ID
//! nothing is learned that a successor's rows could contradict: it is looked up in every walk. So is
//! one of those that come after the last number.

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering, fence};

use unspool_cfi::lookup::HdrTrust;
use unspool_cfi::{CfiSection, Hdr, Lookup, SectionKind, sframe};
use unspool_compiled_table::CompiledTable;
use unspool_compiled_table::layout::MAGIC;
use unspool_rows::{LoadBias, RuntimeAddr, Vaddr};

use super::ABI;
use super::elf::{ObjectImage, VaddrRange};
use super::symbols::ExportedSymbols;
use super::sys::pool::{BufferPool, PooledBuffer};
use super::sys::{self, LoadedObject, SetOnce};
use crate::modules::{Module, ModuleSlot, Modules};
use crate::row_rules::RowRules;

/// The modules of the own process.
pub struct OwnModules {
    /// In order of discovery, which gives their numbers.
    modules: [SetOnce<OwnModule>; OwnModules::MAX_MODULES],
    /// The count of assigned numbers.
    count: AtomicU16,
    /// Numbers of modules by their first address: an open hash table, 0 in empty slots.
    index: [AtomicU16; OwnModules::INDEX],
    /// The slots below 64 of permanent modules, as bits.
    staying: AtomicU64,
    tables: [SetOnce<AttachedTable>; OwnModules::MAX_MODULES],
}

/// A compiled table, and the rules of its rows.
#[derive(Debug, Clone, Copy)]
struct AttachedTable {
    compiled: &'static CompiledTable<'static>,
    rules: RowRules<'static>,
}

/// A discovered module.
struct OwnModule {
    object: LoadedObject,
    image: ObjectImage,
    slot: ModuleSlot,
    build_id: InlineBuildId,
    /// The link-time address of its code, and the code.
    code: Option<(Vaddr, &'static [u8])>,
    /// The bytes that were read to find its unwind table, and the table.
    head: [u8; HEAD],
    cfi: Option<Lookup<'static>>,
    /// Only the position of its SFrame is kept.
    sframe: Option<sframe::SframeLookup<'static>>,
    table: SetOnce<AttachedTable>,
    arguments: SetOnce<&'static [u8]>,
    /// Whether it stays as long as the process.
    stays: AtomicBool,
}

/// A build ID of up to 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct InlineBuildId {
    bytes: [u8; 32],
    length: usize,
}

impl InlineBuildId {
    /// A longer one counts as none.
    fn new(id: &[u8]) -> InlineBuildId {
        let mut inline = InlineBuildId::default();
        if let Some(bytes) = inline.bytes.get_mut(..id.len()) {
            bytes.copy_from_slice(id);
            inline.length = id.len();
        }
        inline
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// A discovered object.
#[derive(Debug, Clone, Copy)]
pub struct LoadedModule<'m> {
    /// Its first address.
    pub start: RuntimeAddr,
    /// One past its last address.
    pub end: RuntimeAddr,
    /// Run-time minus link-time address.
    pub bias: LoadBias,
    /// The GNU build ID; empty if it has none, or one of more than 32 bytes.
    pub build_id: &'m [u8],
    /// The loader's record of it, a `struct link_map`: at present, or when the object was
    /// discovered.
    pub link_map: RuntimeAddr,
    /// Whether it has a compiled table.
    pub has_table: bool,
    /// Its table of arguments, if attached.
    pub arguments: Option<&'static [u8]>,
}

/// The unwind table of a loaded object.
#[derive(Debug)]
pub struct OwnUnwindTable<'m> {
    /// The table.
    pub lookup: &'m Lookup<'static>,
    /// Run-time minus link-time address.
    pub bias: LoadBias,
    /// The module's slot, if knowledge about it may be kept.
    pub slot: Option<ModuleSlot>,
    /// Whether the module stays as long as the process.
    pub is_permanent: bool,
}

/// Bytes of a module, in the loader's mapping.
#[derive(Debug, Clone, Copy)]
pub enum ModuleBytes<'t> {
    /// The module stays as long as the process.
    Permanent(&'static [u8]),
    /// The module may be unloaded.
    Borrowed(&'t [u8]),
}

impl OwnModules {
    /// The object loaded at an address at present. Async-signal-safe.
    #[must_use]
    pub fn loaded(&self, addr: RuntimeAddr) -> Option<LoadedModule<'_>> {
        let object = sys::find_object(addr.0)?;
        let link_map = RuntimeAddr(object.link_map);
        let loaded = self.find(addr)?.loaded();
        Some(LoadedModule { link_map, ..loaded })
    }

    /// Passes on the unwind table of the object loaded at an address, even if there are too many
    /// objects to remember this one. `None` if it has none. Async-signal-safe.
    pub fn with_unwind_table<R>(
        &self,
        addr: RuntimeAddr,
        work: impl FnOnce(OwnUnwindTable<'_>) -> R,
    ) -> Option<R> {
        let with_table = |known: &OwnModule| {
            Some(work(OwnUnwindTable {
                lookup: known.cfi.as_ref()?,
                bias: known.image.bias,
                slot: known.place(),
                is_permanent: known.stays.load(Ordering::Relaxed),
            }))
        };
        self.with(addr, with_table)?
    }

    /// The bytes from an address to the end of its segment, if that is readable by its module's
    /// program headers. They are not to be used once the module is unloaded. Async-signal-safe.
    #[must_use]
    pub fn bytes_from(&self, addr: RuntimeAddr) -> Option<&'static [u8]> {
        self.with(addr, |known| known.bytes_from(addr))?
    }

    /// The address of a function that the object loaded at an address exports. Async-signal-safe.
    #[must_use]
    pub fn symbol(&self, within: RuntimeAddr, name: &[u8]) -> Option<RuntimeAddr> {
        self.with(within, |known| known.exports()?.address(name))?
    }

    /// Whether the object loaded at an address exports a function there, under one of these names.
    /// Async-signal-safe.
    #[must_use]
    pub fn is_exported(&self, addr: RuntimeAddr, names: &[&[u8]]) -> bool {
        let is_it = |known: &OwnModule| {
            let exports = known.exports();
            exports.is_some_and(|all| names.iter().any(|name| all.address(name) == Some(addr)))
        };
        self.with(addr, is_it).unwrap_or(false)
    }

    /// All discovered objects, including unloaded ones.
    pub fn discovered(&self) -> impl Iterator<Item = LoadedModule<'_>> {
        self.modules
            .iter()
            .filter_map(SetOnce::get)
            .map(OwnModule::loaded)
    }

    /// Discovers all loaded objects.
    ///
    /// Not async-signal-safe: takes the loader's lock.
    pub fn discover_all(&self) {
        sys::for_each_object(|object| {
            self.find_listed(&object);
            true
        });
    }

    /// Discovers all loaded objects, and visits those with an embedded compiled table (`unspool
    /// compile --into`). The bytes only begin like a table and may not be one.
    ///
    /// Not async-signal-safe: takes the loader's lock, until the last was visited.
    pub fn for_each_embedded(&self, mut visit: impl FnMut(LoadedModule<'_>, ModuleBytes<'_>)) {
        sys::for_each_object(|object| {
            if let Some(known) = self.find_listed(&object)
                && let Some(bytes) = known.embedded()
            {
                let stays = known.stays.load(Ordering::Relaxed);
                let embedded = if stays {
                    ModuleBytes::Permanent(bytes)
                } else {
                    ModuleBytes::Borrowed(bytes)
                };
                visit(known.loaded(), embedded);
            }
            true
        });
    }

    /// The limit of discovered modules, including unloaded ones. Later ones have no number: walks
    /// end at their frames, or guess. Exceptions look at them anew each time
    /// ([`OwnModules::with_unwind_table`]).
    pub const MAX_MODULES: usize = 1024;

    const INDEX: usize = 2 * OwnModules::MAX_MODULES;
    /// The limit of slots probed in the index.
    const PROBES: usize = 32;

    pub(super) const fn new() -> Self {
        OwnModules {
            modules: [const { SetOnce::new() }; OwnModules::MAX_MODULES],
            count: AtomicU16::new(0),
            index: [const { AtomicU16::new(0) }; OwnModules::INDEX],
            staying: AtomicU64::new(0),
            tables: [const { SetOnce::new() }; OwnModules::MAX_MODULES],
        }
    }

    /// Uses a compiled table, with the rules of its rows, for the module with its build ID, loaded
    /// now or later. Async-signal-safe. `false` if there is no room.
    pub fn attach(
        &self,
        compiled: &'static CompiledTable<'static>,
        rules: RowRules<'static>,
    ) -> bool {
        let table = AttachedTable { compiled, rules };
        let is_kept = self.tables.iter().any(|slot| slot.set(table).is_some());
        fence(Ordering::SeqCst);
        for known in self.modules.iter().filter_map(SetOnce::get) {
            if compiled.key().build_id == known.build_id.bytes() && known.has_build_id() {
                known.table.set(table);
            }
        }
        is_kept
    }

    /// Attaches the table of arguments of the discovered modules with a build ID; yields whether
    /// there is one.
    pub fn attach_arguments(&self, build_id: &[u8], table: &'static [u8]) -> bool {
        let known = self.modules.iter().filter_map(SetOnce::get);
        let mut own = known.filter(|known| known.build_id.bytes() == build_id);
        own.any(|known| known.arguments.set(table).is_some())
    }

    /// Whether the module with this build ID already has a compiled table.
    #[must_use]
    pub fn has_table(&self, build_id: &[u8]) -> bool {
        self.table(build_id).is_some()
    }

    fn table(&self, build_id: &[u8]) -> Option<AttachedTable> {
        let mut tables = self.tables.iter().filter_map(SetOnce::get).copied();
        tables.find(|table| !build_id.is_empty() && table.compiled.key().build_id == build_id)
    }

    /// Finds the permanent modules: those that were loaded at the start of the program. For others,
    /// each walk that reaches them checks that they are the same.
    ///
    /// glibc keeps objects in load order, and never unloads the first: those up to itself, which
    /// something at the start has needed. musl unloads none at all.
    ///
    /// Not async-signal-safe: takes the loader's lock.
    pub fn prepare(&self) {
        sys::begin_process_epoch();
        sys::for_each_object(|object| {
            if let Some(known) = self.find_listed(&object) {
                known.stays.store(true, Ordering::Relaxed);
                if known.slot.0 < 64 {
                    self.staying.fetch_or(1 << known.slot.0, Ordering::Relaxed);
                }
            }
            !object.is_loader
        });
    }

    /// The module loaded at an address at present; a new one is examined first.
    fn find(&self, addr: RuntimeAddr) -> Option<&OwnModule> {
        self.numbered(sys::find_object(addr.0)?)
    }

    /// The same for an object in the loader's list, which tells where its program headers are.
    fn find_listed(&self, listed: &sys::ListedObject<'_>) -> Option<&OwnModule> {
        let object = sys::find_object(listed.addr)?;
        self.numbered(LoadedObject {
            headers: listed.object.headers,
            ..object
        })
    }

    fn numbered(&self, object: LoadedObject) -> Option<&OwnModule> {
        let hash = (object.start >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53;
        let first = usize::try_from(hash).unwrap_or(0);
        for at in first..first + Self::PROBES {
            let number = self.index.get(at % Self::INDEX)?;
            match number.load(Ordering::Acquire) {
                0 => return self.add(object, number),
                known => match self.loaded_module(ModuleSlot(known)) {
                    Some(known) if known.is(&object) => return Some(known),
                    _ => {}
                },
            }
        }
        None
    }

    /// Runs `work` with the module loaded at an address at present. Without a free number it is
    /// examined for this call alone.
    fn with<R>(&self, addr: RuntimeAddr, work: impl FnOnce(&OwnModule) -> R) -> Option<R> {
        let object = sys::find_object(addr.0)?;
        match self.numbered(object) {
            Some(known) => Some(work(known)),
            None => with_unnumbered(object, work),
        }
    }

    /// Whether an address lies in a segment of a loaded module that is readable by its program
    /// headers.
    pub(super) fn is_readable(&self, addr: RuntimeAddr) -> bool {
        let is_readable = |known: &OwnModule| {
            let vaddr = known.image.bias.to_vaddr(addr);
            known.image.readable_from(vaddr).is_some()
        };
        self.with(addr, is_readable).unwrap_or(false)
    }

    fn loaded_module(&self, slot: ModuleSlot) -> Option<&OwnModule> {
        let at = usize::from(slot.0).checked_sub(1)?;
        self.modules.get(at)?.get()
    }

    /// Gives the next number to an object, in a slot of the index. The number is wasted if another
    /// thread is faster, if a handler jumps out of here, or if a fork interrupts this.
    // Never inlined: other paths need not pay for its use of the stack.
    #[cold]
    #[inline(never)]
    fn add(&self, object: LoadedObject, number: &AtomicU16) -> Option<&OwnModule> {
        // Keeps the count near the number of slots.
        self.modules
            .get(usize::from(self.count.load(Ordering::Relaxed)))?;
        let image = object.image()?;
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        let (slot, next) = (self.modules.get(usize::from(before))?, before + 1);
        let known = slot.fill(|known| {
            known.look_at(object, image);
            known.slot = ModuleSlot(next);
        })?;
        // Either this sees a table that was attached meanwhile, or the attaching thread sees the
        // module.
        fence(Ordering::SeqCst);
        if let Some(table) = self.table(known.build_id.bytes()) {
            known.table.set(table);
        }
        let _ = number.compare_exchange(0, next, Ordering::Release, Ordering::Relaxed);
        Some(known)
    }
}

#[cold]
#[inline(never)]
fn with_unnumbered<R>(object: LoadedObject, work: impl FnOnce(&OwnModule) -> R) -> Option<R> {
    let image = object.image()?;
    Some(UNNUMBERED.with_any(|known| {
        known.look_at(object, image);
        work(known)
    }))
}

fn code(object: &LoadedObject, image: &ObjectImage) -> Option<(Vaddr, &'static [u8])> {
    let bytes = object.bytes(image, image.code)?;
    Some((Vaddr(image.code.start), bytes))
}

/// The unwind table that it was linked with.
fn lookup(object: &LoadedObject, image: &ObjectImage) -> Option<Lookup<'static>> {
    let bytes = object.bytes(image, image.hdr)?;
    let hdr = Hdr::parse(bytes, Vaddr(image.hdr.start), ABI).ok()?;
    // To the end of its segment: its own end is not recorded.
    let eh_frame = VaddrRange {
        start: hdr.eh_frame.0,
        length: image.readable_from(hdr.eh_frame)?,
    };
    let mut section = CfiSection {
        kind: SectionKind::EhFrame,
        data: object.bytes(image, eh_frame)?,
        address: hdr.eh_frame,
        text_base: None,
        data_base: None,
        abi: ABI,
    };
    // GNU ld lists no entry if it cannot read one of them. Then all are read, up to the terminator.
    let trust = if hdr.count > 0 {
        HdrTrust::Complete
    } else {
        section.end_at_terminator();
        HdrTrust::Suspect
    };
    Some(Lookup::new(section, Some(hdr), trust).stop_at_row())
}

/// The SFrame that it was linked with.
fn sframe_lookup(
    object: &LoadedObject,
    image: &ObjectImage,
) -> Option<sframe::SframeLookup<'static>> {
    let is_there = image.sframe.length > 0;
    let bytes = object.bytes(image, image.sframe).filter(|_| is_there)?;
    let machine = sframe::SframeAbi::from_abi(ABI)?;
    let address = Vaddr(image.sframe.start);
    Some(sframe::SframeLookup::new(bytes, address, machine))
}

/// The input of [`lookup`]: version, encodings, pointer and count in the header of the search
/// table.
fn head(object: &LoadedObject, image: &ObjectImage) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let bytes = object.bytes(image, image.hdr).unwrap_or_default();
    head.iter_mut()
        .zip(bytes)
        .for_each(|(slot, byte)| *slot = *byte);
    head
}

const HEAD: usize = 4 + 8 + 8;

/// Modules without a number, while they are used.
static UNNUMBERED: BufferPool<OwnModule> = BufferPool::new();

impl PooledBuffer for OwnModule {
    const EMPTY: OwnModule = OwnModule {
        object: LoadedObject::NONE,
        image: ObjectImage::NONE,
        slot: ModuleSlot(0),
        build_id: InlineBuildId {
            bytes: [0; 32],
            length: 0,
        },
        code: None,
        head: [0; HEAD],
        cfi: None,
        sframe: None,
        table: SetOnce::new(),
        arguments: SetOnce::new(),
        stays: AtomicBool::new(false),
    };
}

impl OwnModule {
    /// Finds the data of an object that has no number yet.
    // Not inlined: reading the headers before does not need its stack.
    #[inline(never)]
    fn look_at(&mut self, object: LoadedObject, image: ObjectImage) {
        let build_id = object.bytes(&image, image.build_id).unwrap_or_default();
        self.build_id = InlineBuildId::new(build_id);
        self.code = code(&object, &image);
        self.head = head(&object, &image);
        self.cfi = lookup(&object, &image);
        self.sframe = sframe_lookup(&object, &image);
        self.object = object;
        self.image = image;
    }

    fn loaded(&self) -> LoadedModule<'_> {
        LoadedModule {
            start: RuntimeAddr(self.object.start),
            end: RuntimeAddr(self.object.end),
            bias: self.image.bias,
            build_id: self.build_id.bytes(),
            link_map: RuntimeAddr(self.object.link_map),
            has_table: self.table.get().is_some(),
            arguments: self.arguments.get().copied(),
        }
    }

    /// The segment that begins like a compiled table. Not to be kept if the module can be unloaded.
    fn embedded(&self) -> Option<&'static [u8]> {
        let segments = ObjectImage::constants(self.object.program_headers()?);
        let mut bytes = segments.filter_map(|segment| self.object.bytes(&self.image, segment));
        bytes.find(|bytes| bytes.starts_with(&MAGIC))
    }

    /// Whether this is the object that the loader found.
    fn is(&self, object: &LoadedObject) -> bool {
        if !self.object.is_where(object) {
            return false;
        }
        if self.stays.load(Ordering::Relaxed) {
            return true;
        }
        let id = self.build_id.bytes();
        if let Some(at) = self.id_in_first_page() {
            return object.first_page().get(at..at + id.len()) == Some(id);
        }
        self.has_image_of(object)
    }

    // Not inlined: it needs more of the stack than the usual case.
    #[cold]
    #[inline(never)]
    fn has_image_of(&self, object: &LoadedObject) -> bool {
        object.image().is_some_and(|image| {
            let other = object.bytes(&image, image.build_id).unwrap_or_default();
            image == self.image
                && InlineBuildId::new(other) == self.build_id
                && head(object, &image) == self.head
        })
    }

    /// The offset of its build ID in its first page, if it is there.
    fn id_in_first_page(&self) -> Option<usize> {
        let id = self.image.bias.to_runtime(Vaddr(self.image.build_id.start));
        let at = usize::try_from(id.0.wrapping_sub(self.object.start)).ok()?;
        let is_there = self.has_build_id()
            && (self.object.first_page().len())
                .checked_sub(self.build_id.length)
                .is_some_and(|last| at <= last);
        is_there.then_some(at)
    }

    fn bytes_from(&self, addr: RuntimeAddr) -> Option<&'static [u8]> {
        let start = self.image.bias.to_vaddr(addr);
        let range = VaddrRange {
            start: start.0,
            length: self.image.readable_from(start)?,
        };
        self.object.bytes(&self.image, range)
    }

    fn exports(&self) -> Option<ExportedSymbols<'static>> {
        let dynamic = self.object.bytes(&self.image, self.image.dynamic)?;
        ExportedSymbols::find(dynamic, self.image.bias, |addr| self.bytes_from(addr))
    }

    fn module(&self) -> Module<'_> {
        let table = self.table.get();
        Module {
            slot: self.place(),
            bias: self.image.bias,
            entry: Some(self.image.entry).filter(|entry| entry.0 != 0),
            compiled: table.map(|table| table.compiled),
            rules: table.map(|table| table.rules).unwrap_or_default(),
            code: self.code,
            cfi: self.cfi.as_ref(),
            sframe: self.sframe.as_ref(),
            entry_cache: None,
            synthesized: None,
            native: None,
        }
    }

    fn has_build_id(&self) -> bool {
        self.build_id.length != 0
    }

    /// Its slot. Without a build ID another version with the same layout looks equal, so nothing
    /// may be kept of a module that can be unloaded.
    fn place(&self) -> Option<ModuleSlot> {
        let is_unique = self.has_build_id() || self.stays.load(Ordering::Relaxed);
        (is_unique && self.slot.0 != 0).then_some(self.slot)
    }
}

impl Modules for OwnModules {
    fn module(&self, addr: RuntimeAddr) -> Option<Module<'_>> {
        self.find(addr).map(OwnModule::module)
    }

    fn module_at(&self, slot: ModuleSlot, addr: RuntimeAddr) -> Option<Module<'_>> {
        let known = self.loaded_module(slot)?;
        let is_inside = (known.object.start..known.object.end).contains(&addr.0);
        // Foreign code may lie between the segments of a program.
        let vaddr = known.image.bias.to_vaddr(addr);
        (is_inside && known.image.readable_from(vaddr).is_some()).then(|| known.module())
    }

    fn staying(&self) -> u64 {
        self.staying.load(Ordering::Relaxed)
    }

    fn is_mapped(&self, slot: ModuleSlot) -> bool {
        let Some(known) = self.loaded_module(slot) else {
            return false;
        };
        known.stays.load(Ordering::Relaxed)
            || sys::find_object(known.object.start).is_some_and(|object| known.is(&object))
    }

    fn was_in(&self, slot: ModuleSlot, addr: RuntimeAddr) -> bool {
        let known = self.loaded_module(slot);
        known.is_some_and(|known| (known.object.start..=known.object.end).contains(&addr.0))
    }

    fn is_code(&self, addr: RuntimeAddr) -> bool {
        self.find(addr).is_some_and(|known| {
            let vaddr = known.image.bias.to_vaddr(addr);
            known.image.code.from(vaddr.0).is_some()
        })
    }
}
