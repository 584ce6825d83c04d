//! The program headers of a loaded object, read from its mapping.

use unspool_rows::{LoadBias, Vaddr};

/// A loaded object, with what walks need. Addresses are link-time addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ObjectImage {
    pub(super) bias: LoadBias,
    pub(super) entry: Vaddr,
    /// The first executable segment.
    pub(super) code: VaddrRange,
    /// `.eh_frame_hdr`.
    pub(super) hdr: VaddrRange,
    /// `.sframe`.
    pub(super) sframe: VaddrRange,
    /// The readable segments.
    readable: [VaddrRange; ObjectImage::SEGMENTS],
    /// The GNU build ID: its offset in the first page, and its length.
    pub(super) build_id: (usize, usize),
}

/// Addresses from `start` on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct VaddrRange {
    pub(super) start: u64,
    pub(super) length: u64,
}

impl VaddrRange {
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
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PT_GNU_SFRAME: u32 = 0x6474_e554;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const PF_R: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;
const HEADER: usize = 56;
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

fn usize_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64_at(bytes, at)?).ok()
}

/// The program headers of a 64-bit little-endian object with the first page `page`, if all of them
/// are in it.
fn program_headers(page: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let is_elf = page.starts_with(b"\x7fELF\x02\x01\x01");
    let offset = usize_at(page, 32).filter(|_| is_elf)?;
    let size = usize::from(u16_at(page, 54)?);
    let count = usize::from(u16_at(page, 56)?);
    if size < HEADER {
        return None;
    }
    let headers = page.get(offset..)?.get(..size.checked_mul(count)?)?;
    Some(headers.chunks_exact(size))
}

impl ObjectImage {
    const SEGMENTS: usize = 8;

    /// Reads the headers of a 64-bit little-endian object that is mapped from `start` on, with the
    /// first page `page`. `None` if they are invalid or not all in it.
    pub(super) fn parse(page: &[u8], start: u64) -> Option<ObjectImage> {
        let headers = || program_headers(page);
        let first = headers()?.find(|header| u32_at(header, 0) == Some(PT_LOAD))?;
        let first = u64_at(first, 16)? & !(PAGE_BYTES - 1);
        let mut image = ObjectImage {
            bias: LoadBias(start.wrapping_sub(first)),
            entry: Vaddr(u64_at(page, 24)?),
            ..ObjectImage::default()
        };
        let mut readable = 0;
        for header in headers()? {
            let (kind, flags) = (u32_at(header, 0)?, u32_at(header, 4)?);
            let segment = VaddrRange::from_header(header)?;
            match kind {
                PT_GNU_EH_FRAME => image.hdr = segment,
                PT_GNU_SFRAME => image.sframe = segment,
                PT_NOTE if image.build_id.1 == 0 => {
                    let at = usize::try_from(segment.start.wrapping_sub(first)).ok()?;
                    let notes = usize::try_from(segment.length)
                        .ok()
                        .and_then(|length| page.get(at..)?.get(..length));
                    image.build_id = notes
                        .and_then(|notes| build_id(notes, at))
                        .unwrap_or((0, 0));
                }
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

    /// The segments that are neither code nor writable, of an object with the first page `page`.
    pub(super) fn constants(page: &[u8]) -> impl Iterator<Item = VaddrRange> {
        let headers = program_headers(page).into_iter().flatten();
        headers.filter_map(|header| {
            let is_constant = u32_at(header, 0)? == PT_LOAD && u32_at(header, 4)? == PF_R;
            is_constant.then_some(VaddrRange::from_header(header)?)
        })
    }

    /// The dynamic section of an object with the first page `page`.
    pub(super) fn dynamic(page: &[u8]) -> Option<VaddrRange> {
        let mut headers = program_headers(page)?;
        let header = headers.find(|header| u32_at(header, 0) == Some(PT_DYNAMIC))?;
        VaddrRange::from_header(header)
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

/// The position of the build ID in notes that begin at `at`.
fn build_id(notes: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut offset = 0;
    loop {
        let name = usize::try_from(u32_at(notes, offset)?).ok()?;
        let length = usize::try_from(u32_at(notes, offset + 4)?).ok()?;
        let kind = u32_at(notes, offset + 8)?;
        let content = (offset + 12).checked_add(name.checked_next_multiple_of(4)?)?;
        let is_gnu = notes.get(offset + 12..)?.starts_with(b"GNU\0");
        if kind == NT_GNU_BUILD_ID && is_gnu && name == 4 {
            notes.get(content..)?.get(..length)?;
            return Some((at + content, length));
        }
        offset = content.checked_add(length.checked_next_multiple_of(4)?)?;
    }
}
