//! Loadable segments: translation between link-time addresses, file offsets and mappings.

use std::ops::Range;

use object::elf;
use unspool_rows::{LoadBias, RuntimeAddr, Vaddr};

use crate::elf::{ElfFile, slice};
use crate::header::{ElfKind, Phdr, Shdr};

/// One loadable segment (`PT_LOAD`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The link-time address of its first byte.
    pub vaddr: Vaddr,
    /// Bytes in memory.
    pub mem_size: u64,
    /// The file offset of its first byte, in bytes.
    pub file_offset: u64,
    /// Bytes in the file; the rest of `mem_size` is zero-filled.
    pub file_size: u64,
    /// The requested alignment (`p_align`), in bytes.
    pub align: u64,
    /// May be read.
    pub readable: bool,
    /// May be written.
    pub writable: bool,
    /// May be executed.
    pub executable: bool,
}

impl Segment {
    fn new(header: &Phdr) -> Segment {
        Segment {
            vaddr: Vaddr(header.vaddr),
            mem_size: header.mem_size,
            file_offset: header.offset,
            file_size: header.file_size.min(header.mem_size),
            align: header.align,
            readable: header.flags & elf::PF_R.0 != 0,
            writable: header.flags & elf::PF_W.0 != 0,
            executable: header.flags & elf::PF_X.0 != 0,
        }
    }

    /// The link-time addresses of the segment in memory.
    #[must_use]
    pub fn range(&self) -> Range<Vaddr> {
        self.vaddr..Vaddr(self.vaddr.0.saturating_add(self.mem_size))
    }

    /// The offset of `addr` from the start, if the file has a byte for it.
    fn in_file(&self, addr: Vaddr) -> Option<u64> {
        let delta = addr.0.checked_sub(self.vaddr.0)?;
        (delta < self.file_size).then_some(delta)
    }

    /// The file offsets of the pages that a loader maps for this segment.
    fn pages(&self, page_size: u64) -> Range<u64> {
        let end = self.file_offset.saturating_add(self.file_size);
        let start = self.file_offset - self.file_offset % page_size;
        start..end.checked_next_multiple_of(page_size).unwrap_or(u64::MAX)
    }
}

/// One mapping of a file in a process, as in a line of `/proc/PID/maps`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentMapping {
    /// The start address in the process.
    pub start: RuntimeAddr,
    /// Its length in bytes.
    pub length: u64,
    /// The file offset of its first byte, in bytes.
    pub file_offset: u64,
    /// Whether it may be executed.
    pub executable: bool,
    /// The page size of the system that mapped it, in bytes.
    pub page_size: u64,
}

/// How well a mapping fits a segment; greater is better.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Fit {
    /// An executable that is linked for fixed addresses is mapped at these.
    fixed: bool,
    permission: bool,
    /// The start counts more: `PT_GNU_RELRO` splits a mapping behind its first pages.
    edges: u8,
    overlap: u64,
}

impl SegmentMapping {
    /// Whether the mapping and the segment can share a page.
    fn overlaps(&self, segment: &Segment) -> bool {
        let pages = segment.pages(self.page_size.max(1));
        self.file_offset < pages.end && pages.start < self.file_end()
    }

    fn file_end(&self) -> u64 {
        self.file_offset.saturating_add(self.length)
    }

    /// The bias if this is a mapping of that segment.
    fn bias(&self, segment: &Segment) -> LoadBias {
        // The file's first byte would be at `start - file_offset` if all of it were mapped like
        // this segment is; its link-time address would be `vaddr - segment.file_offset`.
        let runtime = self.start.0.wrapping_sub(self.file_offset);
        let linked = segment.vaddr.0.wrapping_sub(segment.file_offset);
        LoadBias(runtime.wrapping_sub(linked))
    }

    fn fit(&self, segment: &Segment, kind: ElfKind) -> Fit {
        let pages = segment.pages(self.page_size.max(1));
        let end = self.file_end();
        let bytes = segment.file_offset..segment.file_offset.saturating_add(segment.file_size);
        let from = self.file_offset.max(bytes.start);
        Fit {
            fixed: kind == ElfKind::Executable && self.bias(segment) == LoadBias(0),
            permission: segment.executable == self.executable,
            edges: 2 * u8::from(pages.start == self.file_offset) + u8::from(pages.end == end),
            overlap: end.min(bytes.end).saturating_sub(from),
        }
    }
}

impl ElfFile {
    /// The loadable segments, in the order of the program headers. Does not allocate.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        self.program_headers()
            .iter()
            .filter(|header| header.kind == elf::PT_LOAD.0)
            .map(Segment::new)
    }

    /// The initial image of each thread's storage (`PT_TLS`), if the file has one.
    #[must_use]
    pub fn thread_local_segment(&self) -> Option<Segment> {
        self.segment_of_kind(elf::PT_TLS).map(Segment::new)
    }

    /// The range of all link-time addresses of the loadable segments.
    #[must_use]
    pub fn address_range(&self) -> Option<Range<Vaddr>> {
        let start = self.segments().map(|s| s.vaddr).min()?;
        let end = self.segments().map(|s| s.range().end).max()?;
        Some(start..end)
    }

    /// The address ranges that may be executed, in ascending order: of segments, or of sections
    /// if the file is relocatable. Allocates the result.
    #[must_use]
    pub fn executable_ranges(&self) -> Vec<Range<Vaddr>> {
        let mut ranges: Vec<_> = if self.is_relocatable() {
            let code = |s: &&_| crate::section::is_code(s);
            let range = |s: &Shdr| Vaddr(s.addr)..Vaddr(s.addr.saturating_add(s.size));
            self.section_headers()
                .iter()
                .filter(code)
                .map(range)
                .collect()
        } else {
            self.segments()
                .filter(|s| s.executable)
                .map(|s| s.range())
                .collect()
        };
        ranges.sort_by_key(|range| range.start);
        ranges
    }

    /// The link-time address of the byte at a file offset (in bytes).
    #[must_use]
    pub fn vaddr_of_offset(&self, offset: u64) -> Option<Vaddr> {
        self.segments().find_map(|segment| {
            let delta = offset.checked_sub(segment.file_offset)?;
            (delta < segment.file_size).then(|| segment.vaddr.offset(delta))
        })
    }

    /// The file offset, in bytes, of the byte at `addr`.
    #[must_use]
    pub fn offset_of_vaddr(&self, addr: Vaddr) -> Option<u64> {
        if self.is_relocatable() {
            let header = self.section_header(self.sections_by_address.find(addr.0)?)?;
            return header.offset.checked_add(addr.0.checked_sub(header.addr)?);
        }
        let held = self
            .segments()
            .find_map(|segment| self.loaded_bytes(&segment, addr));
        held.map(|(offset, _)| offset)
    }

    /// The file offset of the byte that a segment loads at `addr`, and the number of bytes of the
    /// segment from there in the file.
    fn loaded_bytes(&self, segment: &Segment, addr: Vaddr) -> Option<(u64, u64)> {
        let delta = segment.in_file(addr)?;
        let offset = segment.file_offset.checked_add(delta)?;
        let available = (self.bytes().len() as u64).checked_sub(offset)?;
        let length = (segment.file_size - delta).min(available);
        (length > 0).then_some((offset, length))
    }

    /// `length` bytes that the file holds for the link-time address `addr`; `None` unless it
    /// holds all of them.
    ///
    /// A separate debug file holds none, although its segments may claim so: a section without
    /// data at `addr` decides. In a relocatable file the bytes are those of one section, with
    /// its relocations applied as far as possible.
    #[must_use]
    pub fn bytes_at(&self, addr: Vaddr, length: u64) -> Option<&[u8]> {
        slice(self.rest_at(addr)?, 0, length)
    }

    /// All contiguous bytes in the file from `addr`: of the section in a relocatable file, else of
    /// the segment.
    #[must_use]
    pub fn rest_at(&self, addr: Vaddr) -> Option<&[u8]> {
        let section = self.sections_by_address.find(addr.0);
        if self.is_relocatable() {
            let index = section?;
            let delta = addr.0.checked_sub(self.section_header(index)?.addr)?;
            let data = self.section_contents(index).ok()?.0;
            return data.get(usize::try_from(delta).ok()?..);
        }
        let without_data = |index| {
            self.section_header(index)
                .is_some_and(|s| s.is(elf::SHT_NOBITS))
        };
        if section.is_some_and(without_data) {
            return None;
        }
        let held = self
            .segments()
            .find_map(|segment| self.loaded_bytes(&segment, addr));
        held.and_then(|(offset, length)| slice(self.bytes(), offset, length))
    }

    /// The load bias of a process with this mapping of the file; `None` if no segment of the file
    /// fits the mapping.
    ///
    /// Several segments may share a page of the file. It is then mapped once for each of them at
    /// different addresses. The segment is chosen by the permission to execute, then by the first
    /// page of the mapping, the last one, and the number of bytes in common. That is certain for
    /// the executable mapping of a file with one executable segment. Others can be ambiguous: data
    /// made read-only after relocating looks like the read-only segment before it.
    #[must_use]
    pub fn load_bias(&self, mapping: &SegmentMapping) -> Option<LoadBias> {
        let candidates = self.segments().filter(|segment| mapping.overlaps(segment));
        let (_, bias) = candidates
            .map(|segment| (mapping.fit(&segment, self.kind()), mapping.bias(&segment)))
            .reduce(|best, next| if next.0 > best.0 { next } else { best })?;
        Some(bias)
    }
}
