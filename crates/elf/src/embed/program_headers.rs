//! Making room for one more program header.

use object::elf;

use super::PAGE_BYTES;
use super::draft::{DisplacedBlock, Displacements, Draft, LoadLocation, Shift};
use super::error::EmbedError;
use super::existing::TABLES;
use super::rest::{first_byte_not_in, has_bytes, section_table};
use crate::elf::ElfFile;
use crate::header::{ElfKind, Phdr, Shdr};
use crate::symtab::SymbolTable;

/// A section that keeps its address modulo this stays aligned, and as far from its neighbours.
const MOVE_ALIGN: u64 = 16;

/// The bytes of unused file space: `patchelf` writes `X` where it removed a section.
const BLANK: &[u8] = b"\0X";

/// Removes meaningless program headers, or makes room for more, until `headers` of them fit.
pub(super) fn make(draft: &mut Draft<'_>, headers: u64) -> Result<Displacements, EmbedError> {
    let mut missing = headers;
    while missing > 0
        && let Some(index) = expendable(draft)
    {
        draft.programs.remove(index);
        missing -= 1;
    }
    if missing == 0 {
        return Ok(Displacements::default());
    }
    let table = draft.program_table();
    let needed = missing * draft.encoding.program_size();
    grow(draft, needed).map_err(|reason| EmbedError::NoRoom {
        file: draft.file.path().to_path_buf(),
        offset: table.end,
        needed,
        reason,
    })
}

fn expendable(draft: &Draft<'_>) -> Option<usize> {
    let (file, programs) = (draft.file, &draft.programs);
    let of_kind = |kind: elf::ProgramType| programs.iter().position(|p| p.kind == kind.0);
    let property = file.segment_of_kind(elf::PT_GNU_PROPERTY);
    let is_property = |p: &Phdr| {
        let same = |q: &Phdr| (p.offset, p.file_size) == (q.offset, q.file_size);
        p.kind == elf::PT_NOTE.0 && property.is_some_and(same)
    };
    of_kind(elf::PT_NULL)
        .or_else(|| programs.iter().position(is_property))
        .or_else(|| of_kind(elf::PT_PHDR).filter(|_| !needs_phdr(file)))
}

/// Whether a loader or start-up code computes the load bias from `PT_PHDR`. Nothing does for a
/// library, which has neither an interpreter nor an entry point.
fn needs_phdr(file: &ElfFile) -> bool {
    let library = file.segment_of_kind(elf::PT_INTERP).is_none() && file.entry().0 == 0;
    file.kind() != ElfKind::Executable && !library
}

/// A section behind the program header table.
struct FollowingSection<'a> {
    index: usize,
    header: &'a Shdr,
    is_note: bool,
}

/// The new location of a neighbour.
enum MoveTarget {
    /// At this file offset, in the same segment.
    Stay(u64),
    /// That many bytes behind the embedded section.
    Leave(u64),
}

struct PlannedMove<'a> {
    header: &'a Shdr,
    target: MoveTarget,
}

/// Extends the table in place by `needed` bytes; the error names the obstacle.
fn grow(draft: &Draft<'_>, needed: u64) -> Result<Displacements, String> {
    let file = draft.file;
    let table = draft.program_table();
    let inside = |p: &&Phdr| {
        let end = p.offset.saturating_add(p.file_size);
        p.kind == elf::PT_LOAD.0 && p.offset <= table.start && table.end <= end
    };
    let Some(home) = draft.programs.iter().find(inside) else {
        return Err("no segment has the program header table".to_owned());
    };
    if draft.sections.is_empty() {
        return Err("without section headers, what follows is unknown".to_owned());
    }
    let behind = neighbours(file, table.end);
    let movable = behind
        .iter()
        .take_while(|n| n.header.offset >= table.end && may_move(file, home, n))
        .count();
    let site = HeaderTableGrowth {
        file,
        start: table.end,
        end: table.end + needed,
    };
    let attempts = [true, false]
        .into_iter()
        .flat_map(|stay| (0..=movable).map(move |count| (stay, count)));
    for (stay, count) in attempts {
        let (vacated, next) = behind.split_at_checked(count).unwrap_or((&behind, &[]));
        let limit = next.first().map(|n| n.header.offset);
        let limit = limit.unwrap_or(u64::MAX).min(end_of_home(home));
        if let Some(plan) = site.plan(vacated, limit, stay) {
            return Ok(room(home, &plan));
        }
    }
    Err(match behind.get(movable) {
        Some(n) if n.header.offset < site.end => {
            format!("{} cannot move", file.section_name(n.index))
        }
        _ => "something unknown follows".to_owned(),
    })
}

/// The maximum end of the segment: its last page is mapped anyway.
fn end_of_home(home: &Phdr) -> u64 {
    let end = home.offset + home.file_size;
    if home.file_size == home.mem_size && home.vaddr % PAGE_BYTES == home.offset % PAGE_BYTES {
        end.next_multiple_of(PAGE_BYTES)
    } else {
        end
    }
}

/// The sections behind the table, in file order.
fn neighbours(file: &ElfFile, from: u64) -> Vec<FollowingSection<'_>> {
    let sections = file.section_headers().iter().enumerate();
    let mut found: Vec<_> = sections
        .filter(|(_, s)| has_bytes(s) && s.offset.saturating_add(s.size) > from)
        .map(|(index, header)| FollowingSection {
            index,
            header,
            is_note: header.is(elf::SHT_NOTE),
        })
        .collect();
    found.sort_by_key(|n| n.header.offset);
    found
}

/// Whether all references to the section are known and can be changed.
fn may_move(file: &ElfFile, home: &Phdr, n: &FollowingSection<'_>) -> bool {
    let s = n.header;
    let at_home = s.flags == elf::SHF_ALLOC.0
        && s.align <= MOVE_ALIGN
        && s.offset >= home.offset
        && s.addr.wrapping_sub(s.offset) == home.vaddr.wrapping_sub(home.offset);
    let is_interpreter = |p: &Phdr| p.offset == s.offset && p.file_size == s.size;
    let interpreter = file
        .segment_of_kind(elf::PT_INTERP)
        .is_some_and(is_interpreter);
    let table = TABLES
        .iter()
        .any(|(kind, tag)| s.is(*kind) && file.dynamic_value(*tag) == Some(s.addr));
    at_home && (n.is_note || interpreter || table) && !is_named(file, n)
}

/// The symbol that glibc's start-up file gives its note; nothing refers to it.
const ABI_TAG: &[u8] = b"__abi_tag";

/// Whether a symbol names something in the section: then code may refer to it.
fn is_named(file: &ElfFile, n: &FollowingSection<'_>) -> bool {
    let tables = file.indices(|_, s| s.is(elf::SHT_SYMTAB) || s.is(elf::SHT_DYNSYM));
    let mut tables = tables.filter_map(|table| SymbolTable::from_section(file, table).ok());
    tables.any(|table| {
        let mut symbols = (0..table.len()).filter_map(|at| table.get(at));
        symbols.any(|symbol| {
            symbol.kind != elf::STT_SECTION
                && symbol.is_within(n.index, n.header)
                && !matches!(table.name(&symbol, ABI_TAG.len() + 1), b"" | ABI_TAG)
        })
    })
}

/// The current and the new end of the program header table.
struct HeaderTableGrowth<'a> {
    file: &'a ElfFile,
    start: u64,
    end: u64,
}

impl HeaderTableGrowth<'_> {
    /// The new locations of these neighbours, if they leave enough room before `limit`.
    fn plan<'a>(
        &self,
        vacated: &[FollowingSection<'a>],
        limit: u64,
        notes_stay: bool,
    ) -> Option<Vec<PlannedMove<'a>>> {
        let (mut staying, mut leaving) = (self.end, 0);
        let mut plan = Vec::new();
        for FollowingSection {
            header, is_note, ..
        } in vacated
        {
            let stays = notes_stay && *is_note;
            let cursor = if stays { &mut staying } else { &mut leaving };
            let at = congruent(*cursor, header.offset)?;
            *cursor = at.checked_add(header.size)?;
            let target = if stays {
                MoveTarget::Stay(at)
            } else {
                MoveTarget::Leave(at)
            };
            plan.push(PlannedMove { header, target });
        }
        let fits = staying <= limit && self.is_free(vacated, staying);
        (fits && self.segments_stay_whole(&plan)).then_some(plan)
    }

    /// Whether nothing is before `end` except the neighbours and the section header table, which is
    /// written elsewhere.
    fn is_free(&self, vacated: &[FollowingSection<'_>], end: u64) -> bool {
        let sections = vacated
            .iter()
            .map(|n| n.header.offset..n.header.offset.saturating_add(n.header.size));
        let mut known: Vec<_> = sections.chain([section_table(self.file)]).collect();
        known.sort_by_key(|range| range.start);
        let mut at = self.start;
        for range in known {
            let gap = at..range.start.clamp(at, end.max(at));
            if first_byte_not_in(BLANK, self.file.bytes(), gap).is_some() {
                return false;
            }
            at = at.max(range.end);
        }
        first_byte_not_in(BLANK, self.file.bytes(), at..end.max(at)).is_none()
    }

    /// Whether the sections of each segment other than `PT_LOAD` move together or not at all.
    fn segments_stay_whole(&self, plan: &[PlannedMove<'_>]) -> bool {
        let inner = |p: &&Phdr| {
            let kind = elf::ProgramType(p.kind);
            !matches!(kind, elf::PT_LOAD | elf::PT_PHDR) && p.file_size > 0
        };
        let mut programs = self.file.program_headers().iter().filter(inner);
        programs.all(|p| {
            let end = p.offset.saturating_add(p.file_size);
            let within = |s: &Shdr| s.offset < end && p.offset < s.offset.saturating_add(s.size);
            let sections = self.file.section_headers().iter();
            let all = sections.filter(|s| has_bytes(s) && within(s)).count();
            let moved: Vec<_> = plan.iter().filter(|n| within(n.header)).collect();
            let starts = moved.iter().any(|n| n.header.offset == p.offset);
            let together = moved
                .windows(2)
                .all(|pair| matches!(pair, [a, b] if a.delta() == b.delta()));
            moved.is_empty() || (starts && together && moved.len() == all)
        })
    }
}

impl PlannedMove<'_> {
    fn delta(&self) -> (bool, u64) {
        match self.target {
            MoveTarget::Stay(at) => (true, at.wrapping_sub(self.header.offset)),
            MoveTarget::Leave(at) => (false, at.wrapping_sub(self.header.offset)),
        }
    }
}

/// The first offset from `cursor` that is aligned like `offset`.
fn congruent(cursor: u64, offset: u64) -> Option<u64> {
    let up = offset.wrapping_sub(cursor) % MOVE_ALIGN;
    cursor.checked_add(up)
}

fn room(home: &Phdr, plan: &[PlannedMove<'_>]) -> Displacements {
    let mut room = Displacements::default();
    for PlannedMove { header, target } in plan {
        let from = LoadLocation {
            offset: header.offset,
            vaddr: header.addr,
        };
        let length = header.size;
        match *target {
            MoveTarget::Stay(offset) => {
                let vaddr = home.vaddr.wrapping_add(offset.wrapping_sub(home.offset));
                let to = LoadLocation { offset, vaddr };
                room.shifts.push(Shift { from, length, to });
            }
            MoveTarget::Leave(at) => room.displaced.push(DisplacedBlock { from, length, at }),
        }
    }
    room
}
