//! The program headers of a loaded object, read from its mapping.

use unspool_rows::{LoadBias, Vaddr};

/// A loaded object, with what walks need. Addresses are link-time addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ObjectImage {
    pub(super) bias: LoadBias,
    pub(super) entry: Vaddr,
    /// The first executable segment.
    pub(super) code: VaddrRange,
    /// `.eh_frame_hdr`.
    pub(super) hdr: VaddrRange,
    /// `.sframe`.
    pub(super) sframe: VaddrRange,
    /// The dynamic section.
    pub(super) dynamic: VaddrRange,
    /// The readable segments.
    readable: [VaddrRange; ObjectImage::SEGMENTS],
    /// The GNU build ID, without the head of its note.
    pub(super) build_id: VaddrRange,
}

/// Addresses from `start` on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct VaddrRange {
    pub(super) start: u64,
    pub(super) length: u64,
}

impl VaddrRange {
    const NONE: VaddrRange = VaddrRange {
        start: 0,
        length: 0,
    };

    /// How much of it follows an address, if that is inside.
    pub(super) fn from(&self, addr: u64) -> Option<u64> {
        let offset = addr.wrapping_sub(self.start);
        (offset < self.length).then(|| self.length - offset)
    }

    /// The range of a program header.
    fn from_header(header: &[u8]) -> Option<VaddrRange> {
        Some(VaddrRange {
            start: u64_at(header, 16)?,
            length: u64_at(header, 40)?,
        })
    }

    fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const PT_PHDR: u32 = 6;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PT_GNU_SFRAME: u32 = 0x6474_e554;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const PF_R: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;
/// The size of a program header in bytes. Loaders know no other.
pub(super) const HEADER: usize = 56;
const PAGE_BYTES: u64 = 4096;

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    number(bytes, at).map(u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    number(bytes, at).map(u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    number(bytes, at).map(u64::from_le_bytes)
}

/// Where the program headers of an object are: their offset in the file, and their size.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeaderTable {
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

impl HeaderTable {
    /// Those of a 64-bit little-endian object with the first page `page`.
    pub(super) fn parse(page: &[u8]) -> Option<HeaderTable> {
        let is_elf = page.starts_with(b"\x7fELF\x02\x01\x01");
        let has_size = usize::from(u16_at(page, 54)?) == HEADER;
        Some(HeaderTable {
            offset: u64_at(page, 32).filter(|_| is_elf && has_size)?,
            bytes: HEADER * usize::from(u16_at(page, 56)?),
        })
    }

    /// The headers, if all of them are in the first page.
    pub(super) fn within<'p>(&self, page: &'p [u8]) -> Option<&'p [u8]> {
        let start = usize::try_from(self.offset).ok()?;
        page.get(start..)?.get(..self.bytes)
    }
}

/// The run-time minus the link-time address of program headers that are at a run-time address, by
/// the header that names them.
pub(super) fn bias_by_own_header(headers: &[u8], at: u64) -> Option<LoadBias> {
    let own = each(headers).find(|header| u32_at(header, 0) == Some(PT_PHDR))?;
    Some(LoadBias(at.wrapping_sub(u64_at(own, 16)?)))
}

fn each(headers: &[u8]) -> impl Iterator<Item = &[u8]> {
    headers.chunks_exact(HEADER)
}

/// The segments of a kind.
fn segments(headers: &[u8], kind: u32) -> impl Iterator<Item = VaddrRange> {
    let headers = each(headers).filter(move |header| u32_at(header, 0) == Some(kind));
    headers.filter_map(VaddrRange::from_header)
}

impl ObjectImage {
    const SEGMENTS: usize = 8;

    /// Without segments.
    pub(super) const NONE: ObjectImage = ObjectImage {
        bias: LoadBias(0),
        entry: Vaddr(0),
        code: VaddrRange::NONE,
        hdr: VaddrRange::NONE,
        sframe: VaddrRange::NONE,
        dynamic: VaddrRange::NONE,
        readable: [VaddrRange::NONE; ObjectImage::SEGMENTS],
        build_id: VaddrRange::NONE,
    };

    /// Reads the program headers of an object that is mapped from `start` on, and its ELF header in
    /// its first page. `None` if they are invalid. The build ID is not found yet.
    pub(super) fn parse(headers: &[u8], page: &[u8], start: u64) -> Option<ObjectImage> {
        let first = ObjectImage::start(headers)?;
        let mut image = ObjectImage {
            bias: LoadBias(start.wrapping_sub(first.0)),
            entry: Vaddr(u64_at(page, 24)?),
            ..ObjectImage::NONE
        };
        let mut readable = 0;
        for header in each(headers) {
            let (kind, flags) = (u32_at(header, 0)?, u32_at(header, 4)?);
            let segment = VaddrRange::from_header(header)?;
            match kind {
                PT_GNU_EH_FRAME => image.hdr = segment,
                PT_GNU_SFRAME => image.sframe = segment,
                PT_DYNAMIC => image.dynamic = segment,
                PT_LOAD if flags & PF_R != 0 => {
                    if let Some(slot) = image.readable.get_mut(readable) {
                        *slot = segment;
                        readable += 1;
                    }
                    if flags & (PF_X | PF_W) == PF_X && image.code.length == 0 {
                        image.code = segment;
                    }
                }
                _ => {}
            }
        }
        Some(image)
    }

    /// The address of the first page.
    pub(super) fn start(headers: &[u8]) -> Option<Vaddr> {
        let first = segments(headers, PT_LOAD).next()?;
        Some(Vaddr(first.start & !(PAGE_BYTES - 1)))
    }

    /// Finds the build ID in the notes that program headers name.
    pub(super) fn find_build_id<'m>(
        &mut self,
        headers: &[u8],
        bytes: impl Fn(&ObjectImage, VaddrRange) -> Option<&'m [u8]>,
    ) {
        let found = segments(headers, PT_NOTE).find_map(|notes| {
            let (at, length) = build_id(bytes(self, notes)?)?;
            let start = notes.start.checked_add(at)?;
            Some(VaddrRange { start, length })
        });
        self.build_id = found.unwrap_or_default();
    }

    /// The segments that are neither code nor writable.
    pub(super) fn constants(headers: &[u8]) -> impl Iterator<Item = VaddrRange> {
        let headers = each(headers)
            .filter(|header| (u32_at(header, 0), u32_at(header, 4)) == (Some(PT_LOAD), Some(PF_R)));
        headers.filter_map(VaddrRange::from_header)
    }

    /// The end of its readable part in memory.
    pub(super) fn end(&self) -> u64 {
        let ends = self.readable.iter().map(VaddrRange::end);
        let end = ends.max().unwrap_or(0);
        self.bias.to_runtime(Vaddr(end)).0
    }

    /// The number of readable bytes of a segment from an address on.
    pub(super) fn readable_from(&self, addr: Vaddr) -> Option<u64> {
        self.readable
            .iter()
            .find_map(|segment| segment.from(addr.0))
    }
}

/// The position of the build ID in notes, and its length.
fn build_id(notes: &[u8]) -> Option<(u64, u64)> {
    let mut offset = 0;
    loop {
        let name = usize::try_from(u32_at(notes, offset)?).ok()?;
        let length = usize::try_from(u32_at(notes, offset + 4)?).ok()?;
        let kind = u32_at(notes, offset + 8)?;
        let content = (offset + 12).checked_add(name.checked_next_multiple_of(4)?)?;
        let is_gnu = notes.get(offset + 12..)?.starts_with(b"GNU\0");
        if kind == NT_GNU_BUILD_ID && is_gnu && name == 4 {
            notes.get(content..)?.get(..length)?;
            return Some((content as u64, length as u64));
        }
        offset = content.checked_add(length.checked_next_multiple_of(4)?)?;
    }
}
