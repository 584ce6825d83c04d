//! Finding the machine code for an address: the object of its module, by the module's build ID.
//!
//! In the own process the loader knows the module. Another address space only has its memory, by
//! the client's callback. So the module is searched from the code downwards, page by page. It is
//! accepted if its own search table points at the entry named by the client.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use unspool_rows::{CodeAddr, LoadBias, Memory, RuntimeAddr};
use unspool_unwind::Modules;
use unspool_unwind::local::{self, OwnModules, SetOnce};
use unspool_unwind::native::NativeCode;

use crate::abi::{self, Error};
use crate::client::Client;
use crate::guess;
use crate::image::LoadedHeaders;
use crate::remote_cfi;
use crate::sys::objects::{self, BuildId};

/// The code for an address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ObjectCode {
    /// The code.
    pub(crate) code: &'static NativeCode,
    /// Run-time minus link-time address of the module.
    pub(crate) bias: LoadBias,
}

/// The code for an address of the own process, except if a signal handler may return there: no
/// entry covers that.
///
/// Async-signal-safe.
#[must_use]
pub(crate) fn own(code: CodeAddr) -> Option<ObjectCode> {
    static KNOWN: [SetOnce<Option<&'static NativeCode>>; OwnModules::MAX_MODULES] =
        [const { SetOnce::new() }; OwnModules::MAX_MODULES];
    let pc = code.lookup();
    let module = local::modules().module(pc)?;
    let known = KNOWN.get(usize::from(module.slot?.0))?;
    let native = match known.get() {
        Some(native) => *native,
        None => {
            let loaded = local::modules().loaded(pc)?;
            let native = BuildId::new(loaded.build_id).and_then(|id| objects::of_build(&id));
            known.set(native);
            native
        }
    };
    let found = ObjectCode {
        code: native?,
        bias: module.bias,
    };
    if let CodeAddr::Return(address) = code {
        let (start, bytes) = module.code?;
        let at = found.bias.to_vaddr(address).0.checked_sub(start.0)?;
        let bytes = bytes.get(usize::try_from(at).ok()?..)?;
        return (!guess::begins_trampoline(bytes)).then_some(found);
    }
    Some(found)
}

/// The modules of another address space. All zero means that none was looked up.
#[derive(Debug)]
pub(crate) struct RemoteModules {
    /// In the slot given by a page's lowest bits: its number, and in the lowest bits that of the
    /// module, counted from 1, or [`NONE`](RemoteModules::NONE).
    pages: [AtomicU64; RemoteModules::PAGES],
    /// The modules with an object.
    modules: [SetOnce<RemoteModule>; RemoteModules::MAX_MODULES],
    count: AtomicUsize,
    /// The start addresses of modules found so far, with or without an object; 0 for none.
    bases: [AtomicU64; RemoteModules::MAX_MODULES],
    next_base: AtomicUsize,
}

/// A module with an object.
#[derive(Debug, Clone, Copy)]
struct RemoteModule {
    object_code: ObjectCode,
    build_id: BuildId,
    /// The address of its build ID in the target.
    build_id_at: u64,
}

impl RemoteModules {
    const PAGES: usize = 1 << 12;
    const MAX_MODULES: usize = 512;
    const NUMBER_BITS: u32 = 12;
    /// This page has no object.
    const NONE: u64 = (1 << RemoteModules::NUMBER_BITS) - 1;
    const PAGE_BYTES: u64 = 4096;
    /// The maximum distance of a module's start below its code, in pages: 256 MiB.
    const MAX_PAGES_BELOW_CODE: u64 = 1 << 16;

    /// The code for an address, except if a signal handler may return there: no entry covers that.
    ///
    /// If the client wants no caching, each look-up checks that the module is still loaded. Such a
    /// client may use one address space for several targets.
    pub(crate) fn find(&self, client: Client<'_>, code: CodeAddr) -> Option<ObjectCode> {
        let known = self.remote_module(client, code.lookup().0)?;
        if !client.space.is_caching() && !known.is_mapped(client) {
            self.forget();
            return None;
        }
        match code {
            CodeAddr::Return(address) if may_be_trampoline(client, address.0) => None,
            _ => Some(known.object_code),
        }
    }

    /// Forgets the modules. Their start addresses stay, as hints for the search.
    pub(crate) fn forget(&self) {
        self.pages
            .iter()
            .for_each(|page| page.store(0, Ordering::Relaxed));
    }

    fn remote_module(&self, client: Client<'_>, pc: u64) -> Option<&RemoteModule> {
        let number = pc / RemoteModules::PAGE_BYTES;
        let place = usize::try_from(number).ok()? % RemoteModules::PAGES;
        let page = self.pages.get(place)?;
        // Acquire: the module was published before its number.
        let kept = page.load(Ordering::Acquire);
        let module = if kept >> RemoteModules::NUMBER_BITS == number && kept != 0 {
            kept & RemoteModules::NONE
        } else {
            let module = self.look_for(client, pc);
            let module = module.unwrap_or(RemoteModules::NONE);
            let kept = number << RemoteModules::NUMBER_BITS | module;
            page.store(kept, Ordering::Release);
            module
        };
        let at = usize::try_from(module.checked_sub(1)?).ok()?;
        self.modules.get(at)?.get()
    }

    /// The number of an address's module, counted from 1; `None` if it has no object.
    fn look_for(&self, client: Client<'_>, pc: u64) -> Option<u64> {
        let (base, image) = module(client, pc, self.base_below(pc))?;
        self.note_base(base);
        let memory = client.memory();
        let (build_id_at, length) = image.build_id(&memory, base)?;
        let mut build_id = [0; BuildId::MAX_BYTES];
        let build_id = build_id.get_mut(..usize::try_from(length).ok()?)?;
        memory.read(RuntimeAddr(build_id_at), build_id).ok()?;
        let build_id = BuildId::new(build_id)?;
        let bias = LoadBias(image.bias);
        let is_it = |remote_module: &RemoteModule| {
            (remote_module.object_code.bias, remote_module.build_id_at) == (bias, build_id_at)
                && remote_module.build_id == build_id
        };
        let mut matches = self.modules.iter().zip(1..);
        let before = matches.find(|(slot, _)| slot.get().is_some_and(is_it));
        if let Some((_, number)) = before {
            return Some(number);
        }
        let code = objects::of_build(&build_id)?;
        // This keeps the count near the number of slots.
        self.modules.get(self.count.load(Ordering::Relaxed))?;
        let place = self.count.fetch_add(1, Ordering::Relaxed);
        self.modules.get(place)?.set(RemoteModule {
            object_code: ObjectCode { code, bias },
            build_id,
            build_id_at,
        })?;
        u64::try_from(place + 1).ok()
    }

    /// The last known module start at or below an address.
    fn base_below(&self, pc: u64) -> Option<u64> {
        let bases = self.bases.iter().map(|base| base.load(Ordering::Relaxed));
        bases.filter(|base| (1..=pc).contains(base)).max()
    }

    /// Records the start of a module in place of the oldest one.
    fn note_base(&self, new: u64) {
        let mut bases = self.bases.iter();
        if bases.all(|base| base.load(Ordering::Relaxed) != new) {
            let place = self.next_base.fetch_add(1, Ordering::Relaxed) % RemoteModules::MAX_MODULES;
            if let Some(base) = self.bases.get(place) {
                base.store(new, Ordering::Relaxed);
            }
        }
    }
}

impl RemoteModule {
    /// Whether the target has the module at this address now.
    fn is_mapped(&self, client: Client<'_>) -> bool {
        let expected = self.build_id.bytes();
        let mut found = [0; BuildId::MAX_BYTES];
        let read = found.get_mut(..expected.len()).is_some_and(|found| {
            let at = RuntimeAddr(self.build_id_at);
            client.memory().read(at, found).is_ok()
        });
        read && found.starts_with(expected)
    }
}

/// The module of an address: its start, and its headers. The search begins at `first`, and then
/// goes from the address downwards.
fn module(client: Client<'_>, pc: u64, first: Option<u64>) -> Option<(u64, LoadedHeaders)> {
    let info = client.find_proc_info(pc).ok()?;
    if info.has(abi::FLAG_DEBUG_FRAME) {
        return None;
    }
    let entry = remote_cfi::fde_address(&info).ok()?;
    if let Some(base) = first
        && let Ok(Some(image)) = module_at(client, base, pc, entry)
    {
        return Some((base, image));
    }
    let page = pc / RemoteModules::PAGE_BYTES;
    let pages = (page.saturating_sub(RemoteModules::MAX_PAGES_BELOW_CODE)..=page).rev();
    for base in pages.map(|page| page * RemoteModules::PAGE_BYTES) {
        if let Some(image) = module_at(client, base, pc, entry).ok()? {
            return Some((base, image));
        }
    }
    None
}

/// The headers of the module at an address, if its search table points from `pc` at this entry.
/// Bytes in code that look like a file have no such table.
///
/// # Errors
///
/// Out of memory.
fn module_at(
    client: Client<'_>,
    base: u64,
    pc: u64,
    entry: u64,
) -> Result<Option<LoadedHeaders>, Error> {
    if !client
        .read_word(base)?
        .to_le_bytes()
        .starts_with(b"\x7fELF")
    {
        return Ok(None);
    }
    let memory = client.memory();
    let search = |table| remote_cfi::search_table(&memory, &table, pc);
    let leads_there = |headers: &LoadedHeaders| {
        headers.covers(pc) && headers.table(&memory).and_then(search) == Ok(entry)
    };
    Ok(LoadedHeaders::read(&memory, base).ok().filter(leads_there))
}

/// Whether a signal handler may return to an address. Usually the first word excludes it.
fn may_be_trampoline(client: Client<'_>, address: u64) -> bool {
    let word = client.read_word(address & !7).unwrap_or(0).to_le_bytes();
    let skipped = usize::try_from(address % 8).unwrap_or(0);
    guess::begins_trampoline(word.get(skipped..).unwrap_or_default())
        && guess::trampoline_at(&client.memory(), address).is_some()
}
