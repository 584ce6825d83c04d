//! Language-specific data areas: the call sites of functions, and where exceptions out of these land (Itanium C++ ABI,
//! "Exception Handling Tables"; the same for C, C++, Rust and others).
//!
//! Nothing but entries of unwind tables says where an area begins. In a section of them one follows the other, so that the
//! begin of each is where the one before ends: behind its call sites, or behind its types and its lists of types that may be
//! thrown, if it has any. Zeros fill up to where another object file's begin.

use std::collections::HashSet;

use unspool_cfi::byte_reader::ByteReader;
use unspool_cfi::pointer::{PointerBases, PointerEncoding};
use unspool_cfi::{CfiError, Section, SectionKind};
use unspool_code_analysis::Landing;
use unspool_elf::ElfFile;
use unspool_rows::Vaddr;

/// What an area says of a range of code. Addresses are counted from where the function starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LsdaCallSite {
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// The landing pad; 0: none.
    pub(crate) pad: u32,
}

/// An area that has landing pads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Lsda {
    pub(crate) sites: Box<[LsdaCallSite]>,
}

impl Lsda {
    /// The call sites that have landing pads.
    pub(crate) fn sites_with_pads(&self) -> impl Iterator<Item = &LsdaCallSite> + Clone {
        self.sites.iter().filter(|site| site.pad != 0)
    }

    /// How far it speaks of its function: so many bytes.
    pub(crate) fn code_bytes(&self) -> u64 {
        let ends = self.sites.iter();
        let ends = ends.map(|site| u64::from(site.end).max(u64::from(site.pad) + 1));
        ends.max().unwrap_or(0)
    }
}

/// Reads where exceptions land that leave calls of the function at `start`, whose language-specific data area is at
/// `lsda`; ends at the first damage.
pub fn landings(file: &ElfFile, lsda: Vaddr, start: Vaddr, into: &mut Vec<Landing>) {
    let Some(data) = file.rest_at(lsda) else {
        return;
    };
    let section = section_of_areas(file, lsda, data);
    let mut cursor = ByteReader::new(data, 0, data.len() as u64, section.abi.endian);
    let _ = LsdaReader::new(&section, Some(start)).read(&mut cursor, |base, site| {
        if site.pad != 0 {
            let from = start.offset(site.start).0;
            into.push(Landing {
                start: from,
                end: from.saturating_add(site.length),
                pad: base.unwrap_or(start).offset(site.pad).0,
            });
        }
    });
}

/// Sections of areas have this name, or one that goes on with a dot.
const NAME: &str = ".gcc_except_table";

/// The areas of a file that have landing pads, each once, as far as they can be read.
pub(crate) fn lsdas(file: &ElfFile) -> HashSet<Lsda> {
    let is_one = |name: &str| {
        let rest = name.strip_prefix(NAME);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let mut areas = HashSet::new();
    let mut end = 0;
    for section in file.sections().filter(|section| is_one(&section.name)) {
        // No byte is read twice.
        let start = section
            .address
            .filter(|start| section.has_data && end <= start.0);
        let data = start.and_then(|start| file.bytes_at(start, section.size));
        if let Some((address, data)) = start.zip(data) {
            end = address.0.saturating_add(section.size);
            let section = section_of_areas(file, address, data);
            // What is behind damage is not found.
            let _ = LsdaReader::new(&section, None).read_all(&mut areas);
        }
    }
    areas
}

/// Nothing in an area is relative to text or data.
fn section_of_areas<'d>(file: &ElfFile, address: Vaddr, data: &'d [u8]) -> Section<'d> {
    Section {
        kind: SectionKind::EhFrame,
        data,
        address,
        text_base: None,
        data_base: None,
        abi: file.abi(),
    }
}

/// A record of a call-site table.
struct CallSiteRecord {
    start: u64,
    length: u64,
    pad: u64,
    /// Where the first action is in the table of actions, plus 1; 0: only to clean up.
    action: u64,
}

/// Reads areas of one section.
struct LsdaReader<'s, 'd> {
    section: &'s Section<'d>,
    bases: PointerBases<'s, 'd>,
}

impl<'s, 'd> LsdaReader<'s, 'd> {
    /// `function` is where the function starts whose area is read, if that is known.
    fn new(section: &'s Section<'d>, function: Option<Vaddr>) -> Self {
        let bases = PointerBases {
            section,
            word: section.abi.arch.spec().word,
            function,
        };
        LsdaReader { section, bases }
    }

    /// Reads an area as far as its table of call sites; tells of each, and where pads are counted from if that is not where
    /// the function starts. Returns where the types end, if there are any.
    fn read(
        &self,
        cursor: &mut ByteReader<'d>,
        mut see: impl FnMut(Option<Vaddr>, CallSiteRecord),
    ) -> Result<Option<u64>, CfiError> {
        let bases = &self.bases;
        let encoding = PointerEncoding(cursor.u8()?);
        let base = match encoding.is_omitted() {
            true => None,
            false => Some(bases.address(cursor, encoding)?),
        };
        let types = match PointerEncoding(cursor.u8()?).is_omitted() {
            true => None,
            false => {
                let length = cursor.uleb()?;
                Some(cursor.offset().saturating_add(length))
            }
        };
        let encoding = PointerEncoding(cursor.u8()?);
        let length = cursor.uleb()?;
        let mut table = cursor.split(length)?;
        while !table.is_empty() {
            let record = CallSiteRecord {
                start: bases.address(&mut table, encoding)?.0,
                length: bases.address(&mut table, encoding)?.0,
                pad: bases.address(&mut table, encoding)?.0,
                action: table.uleb()?,
            };
            see(base, record);
        }
        Ok(types)
    }

    fn read_all(&self, areas: &mut HashSet<Lsda>) -> Result<(), CfiError> {
        let (data, endian) = (self.section.data, self.section.abi.endian);
        let size = data.len() as u64;
        let mut cursor = ByteReader::new(data, 0, size, endian);
        while let Some(zeros) = cursor.rest().iter().position(|byte| *byte != 0) {
            cursor.take(zeros as u64)?;
            let (mut sites, mut actions) = (Some(Vec::new()), HashSet::new());
            let types = self.read(&mut cursor, |base, record| {
                actions.extend(record.action.checked_sub(1));
                // Where pads are counted from something else, nothing says how far from the function they are.
                let site = LsdaCallSite::from_record(&record).filter(|_| base.is_none());
                sites = sites
                    .take()
                    .zip(site)
                    .and_then(|(sites, site)| ascending(sites, site));
            })?;
            if let Some(types) = types {
                let end = self
                    .end(cursor.offset(), types, actions)?
                    .max(cursor.offset());
                cursor = ByteReader::new(data, end, size, endian);
            }
            let area = sites.map(|sites| Lsda {
                sites: sites.into_boxed_slice(),
            });
            areas.extend(area.filter(|area| area.sites_with_pads().next().is_some()));
        }
        Ok(())
    }

    /// Where an area ends that has types: behind these, or behind the last list of types that may be thrown. Only actions
    /// say whether there are such lists: by a filter below zero, which says where one begins.
    fn end(&self, start: u64, types: u64, firsts: HashSet<u64>) -> Result<u64, CfiError> {
        let at = |offset: u64| {
            let data = self.section.data;
            ByteReader::new(data, offset, data.len() as u64, self.section.abi.endian)
        };
        let mut last_list = None;
        let mut seen = HashSet::new();
        for first in firsts {
            let mut next = Some(start.saturating_add(first));
            // Chains share their ends, and all are before the types.
            while let Some(offset) =
                next.take_if(|next| (start..types).contains(next) && seen.insert(*next))
            {
                let mut record = at(offset);
                let filter = record.sleb()?;
                let list = filter.checked_add(1).filter(|_| filter < 0);
                last_list = last_list.max(list.map(i64::unsigned_abs));
                let from = record.offset();
                let distance = record.sleb()?;
                next = (distance != 0).then(|| from.wrapping_add_signed(distance));
            }
        }
        let Some(last_list) = last_list else {
            return Ok(types);
        };
        let mut list = at(types.saturating_add(last_list));
        while list.uleb()? != 0 {}
        Ok(list.offset())
    }
}

/// Adds a call site, if it is behind all others, as it must be.
fn ascending(mut sites: Vec<LsdaCallSite>, site: LsdaCallSite) -> Option<Vec<LsdaCallSite>> {
    let is_behind = sites.last().is_none_or(|last| last.end <= site.start);
    is_behind.then(|| {
        sites.push(site);
        sites
    })
}

impl LsdaCallSite {
    /// `None`: no function is that large.
    fn from_record(record: &CallSiteRecord) -> Option<LsdaCallSite> {
        let narrow = |number: u64| u32::try_from(number).ok();
        Some(LsdaCallSite {
            start: narrow(record.start)?,
            end: narrow(record.start.checked_add(record.length)?)?,
            pad: narrow(record.pad)?,
        })
    }
}
