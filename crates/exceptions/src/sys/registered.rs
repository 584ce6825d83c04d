//! The FDEs that the program has registered for generated code, by address.
//!
//! They are in one sorted table, which a lock protects from two writers. Readers take no lock: they
//! read again if the version has changed meanwhile. A table that is full is replaced by one twice
//! as large, and its memory is never returned, so a reader may still read it. All tables together
//! take twice the memory of the last.
//!
//! A child that is forked while another thread registers may miss that code, or others of its
//! section.
//!
//! Reading is async-signal-safe. A handler that interrupts a registration in its own thread finds
//! nothing.

use core::hint;
use core::mem::size_of;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

use unspool_cfi::{CfiSection, Cie, ParsedFde, SectionKind};
use unspool_rows::{LoadBias, Row, RuntimeAddr, Vaddr};
use unspool_unwind::local::ABI;
use unspool_unwind::local::pool::with_evaluator;

use crate::facts::{BadEntry, EntryFacts, FrameHandler, resolved};
use crate::generated_code::GeneratedCode;
use crate::walk;

/// The registered FDEs.
#[derive(Debug)]
pub struct RegisteredFdes {
    /// The ID of the process with a thread that changes the table, or zero.
    writer: AtomicI32,
    /// Odd while the table is changed.
    version: AtomicU64,
    table: AtomicPtr<FdeTable>,
    /// The number of times that code was removed.
    removals: AtomicU64,
}

/// The head of a table; its capacity of [`RegisteredFde`]s follows.
#[derive(Debug)]
struct FdeTable {
    capacity: usize,
    /// At most the capacity.
    count: AtomicUsize,
}

#[derive(Debug)]
struct RegisteredFde {
    start: AtomicU64,
    end: AtomicU64,
    fde: AtomicU64,
    /// What it was registered by.
    section: AtomicU64,
    /// The program's object for it, or zero.
    object: AtomicU64,
}

/// The words of a [`RegisteredFde`].
type FdeWords = [u64; 5];

impl RegisteredFde {
    fn words(&self) -> [&AtomicU64; 5] {
        [
            &self.start,
            &self.end,
            &self.fde,
            &self.section,
            &self.object,
        ]
    }

    fn load(&self) -> FdeWords {
        self.words().map(|word| word.load(Ordering::Relaxed))
    }

    fn store(&self, values: FdeWords) {
        for (word, value) in self.words().into_iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

/// By what a program registers FDEs, and its object for them.
#[derive(Debug, Clone, Copy)]
struct Registration {
    section: u64,
    object: u64,
}

/// Entries that are being registered.
struct RegisteredEntries {
    bytes: Range<u64>,
    /// The only FDE among them that counts: LLVM's unwinder has FDEs registered one by one.
    fde: Option<u64>,
}

impl RegisteredFdes {
    const FIRST_CAPACITY: usize = 100;

    /// The limit of a reader's tries: a writer that it has interrupted does not end.
    const MAX_TRIES: u32 = 1 << 16;

    /// None.
    #[must_use]
    pub const fn new() -> RegisteredFdes {
        RegisteredFdes {
            writer: AtomicI32::new(0),
            version: AtomicU64::new(0),
            table: AtomicPtr::new(ptr::null_mut()),
            removals: AtomicU64::new(0),
        }
    }

    fn entries(&self) -> &[RegisteredFde] {
        // SAFETY: null, or a table that is never unmapped.
        let Some(table) = (unsafe { self.table.load(Ordering::Acquire).as_ref() }) else {
            return &[];
        };
        table.used()
    }

    /// The words of the FDE that covers an address.
    fn find(&self, pc: u64) -> Option<FdeWords> {
        for _ in 0..RegisteredFdes::MAX_TRIES {
            let version = self.version.load(Ordering::Acquire);
            if version.is_multiple_of(2) {
                let entries = self.entries();
                let after = entries.partition_point(|it| it.start.load(Ordering::Relaxed) <= pc);
                let found = entries.get(after.wrapping_sub(1)).map(RegisteredFde::load);
                // The version is read again after all these loads.
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == version {
                    return found.filter(|[_, end, ..]| pc < *end);
                }
            }
            hint::spin_loop();
        }
        None
    }

    /// The addresses of the FDE that covers an address, and of its function.
    #[must_use]
    pub fn fde_and_start(&self, pc: u64) -> Option<(u64, u64)> {
        let [start, _, fde, ..] = self.find(pc)?;
        Some((fde, start))
    }

    /// Runs `change` as the only writer.
    fn change(&self, change: impl FnOnce()) {
        // SAFETY: takes nothing, cannot fail.
        let own = unsafe { libc::getpid() };
        let take = |from| {
            let (taken, not) = (Ordering::Acquire, Ordering::Relaxed);
            self.writer.compare_exchange(from, own, taken, not)
        };
        // A parent's thread that was writing at the fork is not in the child.
        while let Err(holder) = take(0) {
            if holder != own && take(holder).is_ok() {
                break;
            }
            // SAFETY: takes nothing.
            unsafe { libc::sched_yield() };
        }
        let version = self.version.load(Ordering::Relaxed) | 1;
        self.version.store(version, Ordering::Relaxed);
        // The changes must not be visible before the odd version.
        fence(Ordering::Release);
        change();
        self.version
            .store(version.wrapping_add(1), Ordering::Release);
        self.writer.store(0, Ordering::Release);
    }

    /// Registers the FDEs of a section, up to a zero length, or a single FDE.
    ///
    /// # Safety
    ///
    /// They are valid, and stay as they are until [`RegisteredFdes::deregister`].
    pub unsafe fn register(&self, section: u64, object: u64) {
        let registration = Registration { section, object };
        // SAFETY: the caller's promise.
        let Some(entries) = (unsafe { registered_entries(section) }) else {
            return;
        };
        self.change(|| self.insert_all(registration, entries));
    }

    /// The same for a list of sections that ends with a null pointer; they are deregistered by the
    /// list's address.
    ///
    /// # Safety
    ///
    /// As [`RegisteredFdes::register`].
    pub unsafe fn register_list(&self, list: *const u64, object: u64) {
        let registration = Registration {
            section: list.expose_provenance() as u64,
            object,
        };
        for at in 0.. {
            // SAFETY: the caller's promise: the null pointer was not reached.
            let section = unsafe { list.wrapping_add(at).read() };
            if section == 0 {
                return;
            }
            // SAFETY: the caller's promise.
            if let Some(entries) = unsafe { registered_entries(section) } {
                self.change(|| self.insert_all(registration, entries));
            }
        }
    }

    fn insert_all(&self, registration: Registration, entries: RegisteredEntries) {
        let start = entries.bytes.start;
        // SAFETY: `registered_entries` has read their lengths.
        let section = unsafe { section(entries.bytes) };
        for (offset, entry) in section.entries() {
            let address = start.wrapping_add(offset);
            let counts = entries.fde.is_none_or(|only| only == address);
            let fde = entry.ok().filter(|_| counts).and_then(|entry| {
                let cie = Cie::parse_at(&section, entry.cie?).ok()?;
                ParsedFde::parse(&section, &cie, entry).ok()
            });
            // A linker has dropped the function at 0.
            if let Some(fde) = fde
                && fde.start.0 != 0
                && fde.start < fde.end
            {
                let Registration { section, object } = registration;
                self.insert([fde.start.0, fde.end.0, address, section, object]);
            }
        }
    }

    /// Inserts an FDE; there may be no memory for it.
    fn insert(&self, new: FdeWords) {
        let [start, ..] = new;
        let Some(table) = self.table_with_room() else {
            return;
        };
        let count = table.count.load(Ordering::Relaxed);
        let (all, used) = (table.all(), table.used());
        let at = used.partition_point(|it| it.start.load(Ordering::Relaxed) <= start);
        table.count.store(count + 1, Ordering::Relaxed);
        for (from, to) in used.iter().zip(all.iter().skip(1)).skip(at).rev() {
            to.store(from.load());
        }
        if let Some(place) = all.get(at) {
            place.store(new);
        }
    }

    /// The table, replaced by a larger one if it is full.
    fn table_with_room(&self) -> Option<&FdeTable> {
        // SAFETY: null, or a table that is never unmapped.
        let table = unsafe { self.table.load(Ordering::Relaxed).as_ref() };
        let capacity = match table {
            Some(table) if table.used().len() < table.capacity => return Some(table),
            Some(table) => table.capacity.checked_mul(2)?,
            None => RegisteredFdes::FIRST_CAPACITY,
        };
        let larger = FdeTable::allocate(capacity)?;
        let used = table.map(FdeTable::used).unwrap_or_default();
        for (from, to) in used.iter().zip(larger.all()) {
            to.store(from.load());
        }
        larger.count.store(used.len(), Ordering::Relaxed);
        self.table
            .store(ptr::from_ref(larger).cast_mut(), Ordering::Release);
        Some(larger)
    }

    /// Removes what was registered by an address; returns the object of that, or zero.
    pub fn deregister(&self, section: u64) -> u64 {
        let (mut object, mut removals) = (0, 1);
        self.change(|| {
            let entries = self.entries();
            let mut kept = 0;
            for entry in entries {
                let words = entry.load();
                let [_, _, _, registered, its_object] = words;
                if registered == section {
                    object = its_object;
                    continue;
                }
                if let Some(to) = entries.get(kept) {
                    to.store(words);
                }
                kept += 1;
            }
            // SAFETY: null, or a table that is never unmapped.
            if let Some(table) = unsafe { self.table.load(Ordering::Relaxed).as_ref() } {
                table.count.store(kept, Ordering::Relaxed);
            }
            // Before other code can be registered at these addresses. Readers that see the number
            // read the table again.
            removals = self
                .removals
                .fetch_add(1, Ordering::Release)
                .wrapping_add(1);
        });
        if removals.is_multiple_of(GENERATIONS) {
            walk::forget();
        }
        object
    }
}

const GENERATIONS: u64 = 1 << 15;

impl Default for RegisteredFdes {
    fn default() -> Self {
        RegisteredFdes::new()
    }
}

impl FdeTable {
    /// An empty table in new memory, which is never returned.
    fn allocate(capacity: usize) -> Option<&'static FdeTable> {
        let bytes = capacity.checked_mul(size_of::<RegisteredFde>())?;
        let bytes = bytes.checked_add(size_of::<FdeTable>())?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory.
        let memory = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if memory == libc::MAP_FAILED {
            return None;
        }
        let table = memory.cast::<FdeTable>();
        // SAFETY: the memory is large enough, and aligned to a page.
        unsafe {
            table.write(FdeTable {
                capacity,
                count: AtomicUsize::new(0),
            });
        }
        // SAFETY: it was written.
        Some(unsafe { &*table })
    }

    /// All places. Zero is a value of each.
    fn all(&self) -> &[RegisteredFde] {
        let first = ptr::from_ref(self).wrapping_add(1).cast::<RegisteredFde>();
        // SAFETY: `allocate` has mapped them behind the head, whose size is a multiple of their
        // alignment.
        unsafe { core::slice::from_raw_parts(first, self.capacity) }
    }

    fn used(&self) -> &[RegisteredFde] {
        let count = self.count.load(Ordering::Acquire);
        self.all().get(..count).unwrap_or_default()
    }
}

impl GeneratedCode for RegisteredFdes {
    fn entry(
        &self,
        pc: RuntimeAddr,
        row: &mut Row<'static>,
    ) -> Result<Option<EntryFacts>, BadEntry> {
        let Some((fde, _)) = self.fde_and_start(pc.0) else {
            return Ok(None);
        };
        // SAFETY: it is registered, so it and its CIE are valid.
        let bytes = unsafe { with_cie(fde) };
        // SAFETY: as above.
        let section = unsafe { section(bytes.clone()) };
        let entry = section.entry(fde.wrapping_sub(bytes.start));
        let entry = entry.ok().flatten().ok_or(BadEntry)?;
        let cie = Cie::parse_at(&section, entry.cie.ok_or(BadEntry)?).map_err(|_| BadEntry)?;
        let fde = ParsedFde::parse(&section, &cie, entry).map_err(|_| BadEntry)?;
        let bias = LoadBias(0);
        let handler = FrameHandler {
            personality: resolved(bias, cie.personality)?,
            lsda: resolved(bias, fde.lsda)?,
            start: fde.start.0,
        };
        with_evaluator(|evaluator| {
            let rows = evaluator.rows_of(&section, &cie, &fde);
            let mut rows = rows.map_err(|_| BadEntry)?;
            while let Some(range) = rows.advance().map_err(|_| BadEntry)? {
                if range.start.0 <= pc.0 && pc.0 < range.end.0 {
                    row.assign(rows.row());
                    return Ok(Some(EntryFacts { handler, bias }));
                }
            }
            Ok(None)
        })
    }

    fn generation(&self) -> Option<u16> {
        u16::try_from(self.removals.load(Ordering::Acquire) % GENERATIONS).ok()
    }
}

/// Mapped bytes as a section of their own.
///
/// # Safety
///
/// They are mapped, and not written to.
unsafe fn section(bytes: Range<u64>) -> CfiSection<'static> {
    let length = usize::try_from(bytes.end.saturating_sub(bytes.start)).unwrap_or(0);
    // SAFETY: the caller's promise.
    let data = unsafe { core::slice::from_raw_parts(pointer(bytes.start), length) };
    CfiSection {
        kind: SectionKind::EhFrame,
        data,
        address: Vaddr(bytes.start),
        text_base: None,
        data_base: None,
        abi: ABI,
    }
}

fn pointer<T>(addr: u64) -> *const T {
    ptr::with_exposed_provenance(usize::try_from(addr).unwrap_or(0))
}

/// The bytes of an FDE and its CIE, and what is between them.
///
/// # Safety
///
/// An FDE is at the address.
unsafe fn with_cie(fde: u64) -> Range<u64> {
    // SAFETY: the caller's promise.
    let (end, id_address, id) = unsafe { header(fde) }.unwrap_or((fde, fde, 0));
    let cie = id_address.wrapping_sub(i64::from(id).cast_unsigned());
    // SAFETY: an FDE has a CIE.
    let (cie_end, ..) = unsafe { header(cie) }.unwrap_or((cie, cie, 0));
    fde.min(cie)..end.max(cie_end)
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

/// The entries that are registered by an address: a section's, which begins with a CIE, or an FDE.
/// `None` for none.
///
/// # Safety
///
/// As [`RegisteredFdes::register`].
unsafe fn registered_entries(registered: u64) -> Option<RegisteredEntries> {
    // SAFETY: the caller's promise.
    let (mut end, _, id) = unsafe { header(registered) }?;
    if id != 0 {
        return Some(RegisteredEntries {
            // SAFETY: as above: it is an FDE.
            bytes: unsafe { with_cie(registered) },
            fde: Some(registered),
        });
    }
    // SAFETY: as above: the terminator was not reached.
    while let Some((next, ..)) = unsafe { header(end) } {
        end = next;
    }
    Some(RegisteredEntries {
        bytes: registered..end,
        fde: None,
    })
}
