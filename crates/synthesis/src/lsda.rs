//! LSDAs (language-specific data areas): call sites of functions and their landing pads (Itanium
//! C++ ABI, "Exception Handling Tables"; the same for C, C++, Rust and others).
//!
//! Only entries of unwind tables point to an LSDA. In a section they follow one another, so each
//! begins where the one before ends. That is behind its call sites or, if it has them, behind its
//! types and lists of permitted types. Zeros fill up to the next object file's LSDAs.

use std::collections::HashSet;

use unspool_cfi::byte_reader::ByteReader;
use unspool_cfi::lsda::{self, CallSite};
use unspool_cfi::{CfiError, CfiSection, SectionKind};
use unspool_code_analysis::Landing;
use unspool_elf::ElfFile;
use unspool_rows::Vaddr;

/// A call site of an LSDA. Addresses are relative to the function's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LsdaCallSite {
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// The landing pad, or 0.
    pub(crate) pad: u32,
}

/// An LSDA with landing pads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Lsda {
    pub(crate) sites: Box<[LsdaCallSite]>,
}

impl Lsda {
    /// The call sites with landing pads.
    pub(crate) fn sites_with_pads(&self) -> impl Iterator<Item = &LsdaCallSite> + Clone {
        self.sites.iter().filter(|site| site.pad != 0)
    }

    /// Size of the code that it describes, in bytes.
    pub(crate) fn code_bytes(&self) -> u64 {
        let ends = self.sites.iter();
        let ends = ends.map(|site| u64::from(site.end).max(u64::from(site.pad) + 1));
        ends.max().unwrap_or(0)
    }
}

/// Reads the landing pads of the function at `start` with its LSDA at `lsda`; stops at the first
/// damage.
pub fn landings(file: &ElfFile, lsda: Vaddr, start: Vaddr, into: &mut Vec<Landing>) {
    let Some(data) = file.rest_at(lsda) else {
        return;
    };
    let section = section_of_areas(file, lsda, data);
    let mut reader = ByteReader::new(data, 0, data.len() as u64, section.abi.endian);
    let Ok(mut area) = lsda::Lsda::parse(&section, Some(start), &mut reader) else {
        return;
    };
    while let Ok(Some(site)) = area.next_call_site() {
        if site.pad != 0 {
            let from = start.offset(site.start).0;
            into.push(Landing {
                start: from,
                end: from.saturating_add(site.length),
                pad: area.pad_base.unwrap_or(start).offset(site.pad).0,
            });
        }
    }
}

/// Sections of LSDAs have this name, or this name followed by a dot and a suffix.
const NAME: &str = ".gcc_except_table";

/// The LSDAs of a file that have landing pads, each once; unreadable ones are left out.
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
            // LSDAs behind damage are not found.
            let _ = LsdaReader { section: &section }.read_all(&mut areas);
        }
    }
    areas
}

/// LSDAs are not relative to text or data.
fn section_of_areas<'d>(file: &ElfFile, address: Vaddr, data: &'d [u8]) -> CfiSection<'d> {
    CfiSection {
        kind: SectionKind::EhFrame,
        data,
        address,
        text_base: None,
        data_base: None,
        abi: file.abi(),
    }
}

/// Reads the LSDAs of one section.
struct LsdaReader<'s, 'd> {
    section: &'s CfiSection<'d>,
}

impl LsdaReader<'_, '_> {
    fn read_all(&self, areas: &mut HashSet<Lsda>) -> Result<(), CfiError> {
        let (data, endian) = (self.section.data, self.section.abi.endian);
        let size = data.len() as u64;
        let mut cursor = ByteReader::new(data, 0, size, endian);
        while let Some(zeros) = cursor.rest().iter().position(|byte| *byte != 0) {
            cursor.take(zeros as u64)?;
            let (mut sites, mut actions) = (Some(Vec::new()), HashSet::new());
            let mut area = lsda::Lsda::parse(self.section, None, &mut cursor)?;
            while let Some(record) = area.next_call_site()? {
                actions.extend(record.action.checked_sub(1));
                // With another base, the pads' distance from the function is not known.
                let site = LsdaCallSite::from_record(&record).filter(|_| area.pad_base.is_none());
                sites = sites
                    .take()
                    .zip(site)
                    .and_then(|(sites, site)| ascending(sites, site));
            }
            let types = area.types_end;
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

    /// End of an LSDA with types: behind the types, or behind the last list of permitted types.
    /// Only actions show whether there are such lists: a negative filter has the start of one.
    fn end(&self, start: u64, types: u64, firsts: HashSet<u64>) -> Result<u64, CfiError> {
        let at = |offset: u64| {
            let data = self.section.data;
            ByteReader::new(data, offset, data.len() as u64, self.section.abi.endian)
        };
        let mut last_list = None;
        let mut seen = HashSet::new();
        for first in firsts {
            let mut next = Some(start.saturating_add(first));
            // Action records may share their successors, and all are before the types.
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

/// Appends a call site, if it is behind all others, as required.
fn ascending(mut sites: Vec<LsdaCallSite>, site: LsdaCallSite) -> Option<Vec<LsdaCallSite>> {
    let is_behind = sites.last().is_none_or(|last| last.end <= site.start);
    is_behind.then(|| {
        sites.push(site);
        sites
    })
}

impl LsdaCallSite {
    /// `None`: functions are not that large.
    fn from_record(record: &CallSite) -> Option<LsdaCallSite> {
        let narrow = |number: u64| u32::try_from(number).ok();
        Some(LsdaCallSite {
            start: narrow(record.start)?,
            end: narrow(record.start.checked_add(record.length)?)?,
            pad: narrow(record.pad)?,
        })
    }
}
