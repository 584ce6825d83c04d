//! The modules of the own process: found as walks come to them, and never forgotten.
//!
//! An object that is loaded gets a number, and keeps it. What is known of it is written once, before
//! anyone can see it, and then only read: readers never wait. Where the loader says that an
//! object lies at an address now (`_dl_find_object`, which takes no lock), it is one that is known if
//! addresses, search table and build ID are the same. The same library, loaded again at the same
//! address, is the same module.

use core::sync::atomic::{AtomicU32, Ordering};

use unspool_cfi::lookup::HdrTrust;
use unspool_cfi::{Hdr, Lookup, Section, SectionKind};
use unspool_compact::{Compiled, Key};
use unspool_ir::{RuntimeAddr, Vaddr};

use super::ABI;
use super::elf::{Image, Segment};
use super::sys::{self, Object, SetOnce};
use crate::modules::{Module, ModuleId, Modules, Place};

/// The modules of the own process.
pub struct OwnModules {
    slots: [SetOnce<Known>; OwnModules::MOST],
    tables: [SetOnce<&'static Compiled<'static>>; OwnModules::MOST],
    count: AtomicU32,
}

/// A module that has been met.
struct Known {
    object: Object,
    image: Image,
    place: Place,
    build_id: BuildId,
    /// `.eh_frame`, from its start to the end of its segment.
    eh_frame: Option<Segment>,
    compiled: SetOnce<&'static Compiled<'static>>,
}

/// A build ID of up to 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct BuildId {
    bytes: [u8; 32],
    length: usize,
}

impl BuildId {
    fn of(page: &[u8], (at, length): (usize, usize)) -> Option<BuildId> {
        let mut id = BuildId {
            length,
            ..BuildId::default()
        };
        let bytes = page.get(at..)?.get(..length)?;
        id.bytes.get_mut(..length)?.copy_from_slice(bytes);
        Some(id)
    }

    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl OwnModules {
    /// The most modules that are kept in mind, those that were unloaded included.
    pub const MOST: usize = 1024;

    /// How many slots may have to be looked at to find one.
    const PROBES: usize = 32;

    pub(super) const fn new() -> Self {
        OwnModules {
            slots: [const { SetOnce::new() }; OwnModules::MOST],
            tables: [const { SetOnce::new() }; OwnModules::MOST],
            count: AtomicU32::new(0),
        }
    }

    /// Uses a compiled table for the module with its build ID, when it comes or if it is there.
    /// Async-signal-safe. `false` if there is no room.
    pub fn attach(&self, table: &'static Compiled<'static>) -> bool {
        let is_kept = self.tables.iter().any(|slot| slot.set(table).is_some());
        for known in self.slots.iter().filter_map(SetOnce::get) {
            if table.key() == Key::BuildId(known.build_id.as_slice()) {
                known.compiled.set(table);
            }
        }
        is_kept
    }

    /// What is known of the object that is loaded at an address now; it is looked at where that is
    /// nothing.
    fn at(&self, addr: RuntimeAddr) -> Option<&Known> {
        let object = sys::find_object(addr.0)?;
        let hash = (object.start >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        let first = usize::try_from(hash).unwrap_or(0);
        let (before, from) = self.slots.split_at_checked(first)?;
        for slot in from.iter().chain(before).take(Self::PROBES) {
            if slot.is_empty() {
                return slot.set(self.look_at(object)?);
            }
            if let Some(known) = slot.get()
                && known.is(&object)
            {
                return Some(known);
            }
        }
        None
    }

    fn look_at(&self, object: Object) -> Option<Known> {
        let page = object.first_page();
        let image = Image::parse(page, object.start)?;
        let build_id = BuildId::of(page, image.build_id)?;
        let id = ModuleId(self.count.fetch_add(1, Ordering::Relaxed) + 1);
        let (start, end) = (RuntimeAddr(object.start), RuntimeAddr(object.end));
        let known = Known {
            object,
            place: Place::new(id, start, end)?,
            build_id,
            eh_frame: eh_frame(&object, &image),
            image,
            compiled: SetOnce::new(),
        };
        let mut tables = self.tables.iter().filter_map(SetOnce::get);
        if let Some(table) =
            tables.find(|table| table.key() == Key::BuildId(known.build_id.as_slice()))
        {
            known.compiled.set(table);
        }
        Some(known)
    }
}

/// Where `.eh_frame` is, by the header of its search table.
fn eh_frame(object: &Object, image: &Image) -> Option<Segment> {
    let start = hdr(object, image)?.eh_frame;
    let length = image.readable_from(start)?;
    Some(Segment {
        start: start.0,
        length,
    })
}

fn hdr(object: &Object, image: &Image) -> Option<Hdr<'static>> {
    let bytes = object.bytes(image, image.hdr)?;
    Hdr::parse(bytes, Vaddr(image.hdr.start), ABI).ok()
}

impl Known {
    /// Whether this is what the loader found.
    fn is(&self, object: &Object) -> bool {
        self.object.start == object.start
            && self.object.end == object.end
            && self.object.hdr == object.hdr
            && BuildId::of(object.first_page(), self.image.build_id) == Some(self.build_id)
    }

    fn lookup(&self) -> Option<Lookup<'static>> {
        let at = self.eh_frame?;
        let section = Section {
            kind: SectionKind::EhFrame,
            data: self.object.bytes(&self.image, at)?,
            address: Vaddr(at.start),
            text_base: None,
            data_base: None,
            abi: ABI,
        };
        let hdr = hdr(&self.object, &self.image)?;
        Some(Lookup::new(section, Some(hdr), HdrTrust::Complete))
    }
}

impl Modules for OwnModules {
    fn module(&self, addr: RuntimeAddr) -> Option<Module<'_>> {
        let known = self.at(addr)?;
        let compiled = known.compiled.get().copied();
        Some(Module {
            id: known.place.module(),
            bias: known.image.bias,
            entry: Some(known.image.entry).filter(|entry| entry.0 != 0),
            compiled,
            cfi: match compiled {
                Some(_) => None,
                None => known.lookup(),
            },
            found: None,
        })
    }

    fn place(&self, addr: RuntimeAddr) -> Option<Place> {
        Some(self.at(addr)?.place)
    }

    fn is_there(&self, place: &Place) -> bool {
        self.at(place.start())
            .is_some_and(|known| known.place == *place)
    }

    fn is_code(&self, addr: RuntimeAddr) -> bool {
        self.at(addr).is_some_and(|known| {
            let vaddr = known.image.bias.to_vaddr(addr);
            known.image.code.from(vaddr.0).is_some()
        })
    }
}
