//! Putting a read-only section into a linked ELF file, so that it is mapped with the file.
//!
//! The section becomes a segment of its own (`PT_LOAD`, readable only) behind all others, in the
//! file and in memory, so that no byte of code or data changes its place. The segment needs another
//! program header, and the table of program headers ends where the first section begins.
//!
//! # Where the program header comes from
//!
//! 1. A header that nothing reads: `PT_NULL`; a `PT_NOTE` of the same bytes as `PT_GNU_PROPERTY`
//!    (Linux since 5.8 and glibc since 2.32 read only the latter); `PT_PHDR` if nothing computes a
//!    load bias from it (a file linked for fixed addresses, or a library).
//! 2. Otherwise the table grows in place. The sections behind it are found by headers and by the
//!    dynamic section, not by code: the interpreter's name, notes, hash tables, the dynamic
//!    symbols. Notes move by a few bytes, because the build ID must stay in the first page for core
//!    files and the kernel. The others move into the new segment, behind the section. All
//!    references to them are changed: program and section headers, `DT_HASH`, `DT_GNU_HASH` and
//!    `DT_SYMTAB`, and symbols defined in them.
//!
//! The table never moves, although that would be simpler. Linux before 5.18 passes a wrong
//! `AT_PHDR` for a moved table, and before 6.12 it finds no build ID. glibc's loader computes the
//! address from `e_phoff`. `strip` and `objcopy` of binutils 2.40 and elfutils 0.188 destroy such
//! files without an error, because they write the table behind the ELF header again.
//!
//! The ELF builder of `object` does not serve here: it lays out the whole file anew from the
//! section headers, and so loses bytes that no section describes.
//!
//! # The file
//!
//! ```text
//! the old file, up to its last section      (section names and headers are dropped from the end)
//! the new segment: the section, then what had to make room for the program header
//! the section names
//! the section headers: the old ones in their order, then the new one
//! ```
//!
//! Embedding again replaces the old segment at the same place, unless another tool has added
//! something behind it.

mod draft;
mod encode;
mod error;
mod existing;
mod object_file;
mod program_headers;
mod rest;
mod unmapped;

use object::elf;
use unspool_rows::Vaddr;

use crate::elf::{ElfFile, slice};
use crate::header::ElfKind;

use draft::{Draft, EmbedRequest, NewSection};
pub use error::EmbedError;
pub use object_file::{NewEhFrame, eh_frame_of_object, replace_eh_frame};
pub use unmapped::embed_unmapped;

/// The minimum page size that files are mapped with.
const PAGE_BYTES: u64 = 4096;

/// The number of magic bytes at the start of a section.
const MAGIC: usize = 8;

/// A copy of the ELF file in which `content` is a section of that name, mapped read-only.
///
/// The section is at the start of a segment of its own, so that a process finds it by its program
/// header: a readable `PT_LOAD` that begins with the first 8 bytes of `content`. (The constants of
/// a program that looks for these bytes can begin so, too: check the bytes that follow.) Its
/// address is a multiple of `align`. A file with section headers gets one for it; the indices of
/// the others stay. If the file has the section already, it is replaced; embedding the same content
/// again gives the same bytes.
///
/// All addresses and file offsets stay. In some files these sections move to make room for a
/// program header: the interpreter's name, notes, hash tables and dynamic symbols. The build ID
/// stays the same. Signatures of the whole file become invalid. The segment is behind `.bss`, and
/// the heap of a program (`brk`) starts behind the segment.
///
/// A dynamic loader (`ld-linux…so`) with the section runs as a program everywhere. It serves as the
/// interpreter of others only since Linux 6.7: older kernels cleared an interpreter's `.bss` only
/// if it was last in memory.
///
/// Allocates the result and little else.
///
/// # Errors
///
/// [`EmbedError`] if the file is not linked, is damaged, has bytes behind its last section, or has
/// no room for another program header. Also if the name, the content or the alignment cannot be
/// used.
pub fn embed(
    file: &ElfFile,
    name: &str,
    content: &[u8],
    align: u64,
) -> Result<Vec<u8>, EmbedError> {
    let magic = check_request(name, content, align)?;
    check_file(file)?;
    let mut draft = Draft::new(file);
    let old = existing::find(file, name, magic)?;
    let rest = rest::end(file, old.as_ref())?;
    let room = match &old {
        Some(old) => draft.remove_segment(old),
        None => program_headers::make(&mut draft, 1)?,
    };
    let size = content.len() as u64;
    let request = EmbedRequest {
        sections: &[NewSection {
            name,
            kind: elf::SHT_PROGBITS,
            start: 0,
            size,
            align,
        }],
        content: &|_| content.to_vec(),
        size,
        align,
        leader: None,
    };
    draft.write(&request, &room, old.as_ref(), rest)
}

/// A copy of the ELF file with an unwind table, mapped read-only: `.eh_frame_hdr` and `.eh_frame`,
/// of these lengths in bytes, with the bytes that `content` returns for their addresses. Unwinders
/// and debuggers find them, by `PT_GNU_EH_FRAME` and by name.
///
/// Existing sections with these names stay, renamed with the ending `.old`. For addresses, offsets
/// and program headers see [`embed()`].
///
/// # Errors
///
/// As for [`embed()`].
pub fn embed_eh_frame(
    file: &ElfFile,
    [hdr, eh_frame]: [u64; 2],
    content: &dyn Fn([Vaddr; 2]) -> [Vec<u8>; 2],
) -> Result<Vec<u8>, EmbedError> {
    /// Both sections are aligned to this.
    const ALIGN: u64 = 8;
    check_file(file)?;
    let mut draft = Draft::new(file);
    let rest = rest::end(file, None)?;
    let room = program_headers::make(&mut draft, headers(file, elf::PT_GNU_EH_FRAME))?;
    let start = hdr.next_multiple_of(ALIGN);
    let bytes = |vaddr: u64| {
        let both = [vaddr, vaddr.wrapping_add(start)].map(Vaddr);
        let [mut bytes, table] = content(both);
        bytes.resize(usize::try_from(start).unwrap_or(usize::MAX), 0);
        bytes.extend(table);
        bytes
    };
    let part = |name, start, size, align| NewSection {
        name,
        kind: elf::SHT_PROGBITS,
        start,
        size,
        align,
    };
    let request = EmbedRequest {
        sections: &[
            part(".eh_frame_hdr", 0, hdr, 4),
            part(".eh_frame", start, eh_frame, ALIGN),
        ],
        content: &bytes,
        size: start + eh_frame,
        align: ALIGN,
        leader: Some((elf::PT_GNU_EH_FRAME, 4)),
    };
    draft.write(&request, &room, None, rest)
}

/// A copy of the ELF file with an SFrame section of that length in bytes, mapped read-only, with
/// the bytes that `content` returns for its address. Unwinders find it by `PT_GNU_SFRAME`.
///
/// For existing sections of that name see [`embed_eh_frame`]; for addresses see [`embed()`].
///
/// # Errors
///
/// As for [`embed()`].
pub fn embed_sframe(
    file: &ElfFile,
    size: u64,
    content: &dyn Fn(Vaddr) -> Vec<u8>,
) -> Result<Vec<u8>, EmbedError> {
    /// Fields of 8 bytes are at multiples of 4 from its start; all linkers align it so.
    const ALIGN: u64 = 8;
    check_file(file)?;
    let mut draft = Draft::new(file);
    let rest = rest::end(file, None)?;
    let room = program_headers::make(&mut draft, headers(file, elf::PT_GNU_SFRAME))?;
    let request = EmbedRequest {
        sections: &[NewSection {
            name: ".sframe",
            kind: elf::SHT_GNU_SFRAME,
            start: 0,
            size,
            align: ALIGN,
        }],
        content: &|vaddr| content(Vaddr(vaddr)),
        size,
        align: ALIGN,
        leader: Some((elf::PT_GNU_SFRAME, ALIGN)),
    };
    draft.write(&request, &room, None, rest)
}

/// The number of program headers for a segment with a leader of this kind.
fn headers(file: &ElfFile, leader: elf::ProgramType) -> u64 {
    match file.segment_of_kind(leader) {
        Some(_) => 1,
        None => 2,
    }
}

impl ElfFile {
    /// The address and the bytes of a section that [`embed`] put into this file.
    ///
    /// It is found by its section header. In a file without section headers it is the last segment
    /// in memory, if that is read-only and begins with `magic`; then a few zero bytes may follow
    /// it. Does not allocate.
    #[must_use]
    pub fn embedded(&self, name: &str, magic: &[u8]) -> Option<(Vaddr, &[u8])> {
        let found = existing::find(self, name, magic).ok()??;
        let bytes = slice(self.bytes(), found.location.offset, found.content)?;
        Some((Vaddr(found.location.vaddr), bytes))
    }
}

/// Returns the magic bytes of the content.
fn check_request<'a>(name: &str, content: &'a [u8], align: u64) -> Result<&'a [u8], EmbedError> {
    check_name(name)?;
    if !align.is_power_of_two() || align > PAGE_BYTES {
        return Err(EmbedError::Align {
            align,
            limit: PAGE_BYTES,
        });
    }
    match content.get(..MAGIC) {
        Some(magic) if magic.iter().any(|byte| *byte != 0) => Ok(magic),
        _ => Err(EmbedError::Content {
            length: content.len() as u64,
        }),
    }
}

fn check_name(name: &str) -> Result<(), EmbedError> {
    if name.is_empty() || name.contains('\0') {
        Err(EmbedError::Name {
            name: name.to_owned(),
        })
    } else {
        Ok(())
    }
}

/// Refuses files that no loader maps.
fn check_file(file: &ElfFile) -> Result<(), EmbedError> {
    let path = || file.path().to_path_buf();
    let what = match file.kind() {
        ElfKind::Executable | ElfKind::Dynamic => None,
        ElfKind::Relocatable => Some("a relocatable file, which must be linked first"),
        ElfKind::Core => Some("a core file"),
        ElfKind::Other(_) => Some("neither a program nor a shared object"),
    };
    if let Some(what) = what {
        return Err(EmbedError::NotLinked { file: path(), what });
    }
    file.check_program_headers()?;
    file.check_section_headers()?;
    if file.segments().next().is_none() {
        let what = "without loadable segments";
        return Err(EmbedError::NotLinked { file: path(), what });
    }
    if let Some(text) = text_without_bytes(file) {
        return Err(EmbedError::DebugFile {
            file: path(),
            section: file.section_name(text).into_owned(),
        });
    }
    Ok(())
}

/// A code section without bytes in the file, as in a separate debug file.
fn text_without_bytes(file: &ElfFile) -> Option<usize> {
    file.section_headers().iter().position(|header| {
        crate::section::is_code(header)
            && header.is(elf::SHT_NOBITS)
            && !header.has_flag(elf::SHF_WRITE)
    })
}
