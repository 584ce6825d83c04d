//! A core file of x86-64 Linux, for `_UCD_*`.
//!
//! The kernel leaves out bytes that are in files. They are read from the files, if these still
//! exist.

use alloc::vec::Vec;

use unspool_files::raw::RawMap;
use unspool_rows::LoadBias;

use crate::abi::{DynInfo, Error, ProcInfo};
use crate::client::AlignedMemory;
use crate::image::{self, LoadedHeaders, u16_at, u32_at, u64_at};
use crate::sys::debug_frame_entry::DebugFrameEntry;
use crate::sys::os;
use crate::{debug_frame, remote_cfi};

/// An opened core file.
#[derive(Debug)]
pub struct CoreFile {
    file: RawMap,
    segments: Vec<CoreSegment>,
    threads: Vec<CoreThread>,
    selected: usize,
    mappings: Vec<FileNote>,
    /// The files of the mappings, each once, if readable.
    files: Vec<Option<RawMap>>,
    /// The last table found.
    table: Option<DynInfo>,
    /// The last entry found in a file's `.debug_frame`.
    debug_frame_entry: DebugFrameEntry,
}

/// A program header. Only those of memory have a size.
#[derive(Debug)]
struct CoreSegment {
    vaddr: u64,
    memory_size: u64,
    offset: u64,
    file_size: u64,
    /// The caller's file for bytes missing in the core file, and their offset in it.
    backing: Option<(RawMap, u64)>,
}

/// A thread, by its `NT_PRSTATUS` note (linux/elfcore.h).
#[derive(Debug, Clone, Copy)]
struct CoreThread {
    id: i32,
    signal: i32,
    /// The offset of its registers in the core file, laid out as `struct user_regs_struct`.
    registers: usize,
}

/// A file mapping, by the `NT_FILE` note.
#[derive(Debug, Clone, Copy)]
struct FileNote {
    start: u64,
    end: u64,
    /// Its start in the file, in bytes.
    offset: u64,
    /// The offset of its name in the core file, and the name's length.
    name: (usize, usize),
    /// The index of its file.
    file: usize,
}

const ET_CORE: u16 = 4;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const NT_PRSTATUS: u32 = 1;
const NT_FILE: u32 = 0x4649_4c45;
/// Offsets in `struct elf_prstatus`: the signal, the thread, and its registers.
const PR_CURSIG: usize = 12;
const PR_PID: usize = 32;
const PR_REG: usize = 112;

impl CoreFile {
    /// Reads the headers and notes of a core file, and maps the files that it names.
    ///
    /// # Errors
    ///
    /// [`Error::NO_INFO`] if the file is not a core file, or has no thread; [`Error::NO_MEMORY`].
    pub fn new(file: RawMap) -> Result<CoreFile, Error> {
        let mut core = CoreFile {
            file,
            segments: Vec::new(),
            threads: Vec::new(),
            selected: 0,
            mappings: Vec::new(),
            files: Vec::new(),
            table: None,
            debug_frame_entry: DebugFrameEntry::empty(),
        };
        core.read_segments()?;
        core.thread()?;
        core.map_files()?;
        Ok(core)
    }

    fn read_segments(&mut self) -> Result<(), Error> {
        let bytes = self.file.bytes();
        image::check(bytes)?;
        if u16_at(bytes, 16)? != ET_CORE {
            return Err(Error::NO_INFO);
        }
        let at = position(u64_at(bytes, 32)?)?;
        let headers = bytes.get(at..).unwrap_or_default().chunks_exact(56);
        let mut notes = Vec::new();
        for header in headers.take(usize::from(u16_at(bytes, 56)?)) {
            let kind = u32_at(header, 0)?;
            let (offset, file_size) = (u64_at(header, 8)?, u64_at(header, 32)?);
            if kind == PT_NOTE {
                push(&mut notes, (position(offset)?, position(file_size)?))?;
            }
            let is_memory = u64::from(kind == PT_LOAD);
            let segment = CoreSegment {
                vaddr: u64_at(header, 16)?,
                memory_size: u64_at(header, 40)? * is_memory,
                offset,
                file_size: file_size * is_memory,
                backing: None,
            };
            push(&mut self.segments, segment)?;
        }
        for (at, size) in notes {
            self.read_notes(at, size)?;
        }
        Ok(())
    }

    /// Reads the notes in a range (System V ABI, "Note Section").
    fn read_notes(&mut self, mut at: usize, size: usize) -> Result<(), Error> {
        let bytes = self.file.bytes();
        let end = at.saturating_add(size).min(bytes.len());
        while at.saturating_add(12) <= end {
            let name_size = position(u64::from(u32_at(bytes, at)?))?;
            let size = position(u64::from(u32_at(bytes, at + 4)?))?;
            let description = at + 12 + name_size.next_multiple_of(4);
            match u32_at(bytes, at + 8)? {
                NT_PRSTATUS => {
                    let thread = CoreThread {
                        id: u32_at(bytes, description + PR_PID)?.cast_signed(),
                        signal: i32::from(u16_at(bytes, description + PR_CURSIG)?),
                        registers: description + PR_REG,
                    };
                    push(&mut self.threads, thread)?;
                }
                NT_FILE => read_files(bytes, description, description + size, &mut self.mappings)?,
                _ => {}
            }
            at = description + size.next_multiple_of(4);
        }
        Ok(())
    }

    /// Maps the files of the mappings. Mappings of one file are adjacent.
    fn map_files(&mut self) -> Result<(), Error> {
        let mut mappings = core::mem::take(&mut self.mappings);
        let mut last: &[u8] = &[];
        let mut files = Vec::new();
        for mapping in &mut mappings {
            let name = self.name(mapping);
            if name != last || files.is_empty() {
                push(&mut files, os::map_named(name).ok())?;
                last = name;
            }
            mapping.file = files.len() - 1;
        }
        self.files = files;
        self.mappings = mappings;
        Ok(())
    }

    /// Uses a file for the bytes of a segment that the core file lacks. The segment begins with the
    /// file's first byte, unless the core file has another offset.
    ///
    /// # Errors
    ///
    /// [`Error::UNSPECIFIED`] if the segment does not exist, or has a file already.
    pub(crate) fn add_backing(&mut self, segment: usize, file: RawMap) -> Result<(), Error> {
        let vaddr = self.segments.get(segment).map(|segment| segment.vaddr);
        let mapping = self.mapping(vaddr.ok_or(Error::UNSPECIFIED)?);
        let offset = mapping.map_or(0, |mapping| mapping.offset);
        let segment = self.segments.get_mut(segment);
        let segment = segment.filter(|segment| segment.backing.is_none());
        segment.ok_or(Error::UNSPECIFIED)?.backing = Some((file, offset));
        self.table = None;
        Ok(())
    }

    /// The number of the segment that begins at an address.
    #[must_use]
    pub(crate) fn segment_at(&self, vaddr: u64) -> Option<usize> {
        let mut segments = self.segments.iter();
        segments.position(|segment| segment.vaddr == vaddr)
    }

    /// The number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Selects the thread for later calls, if it exists.
    pub fn select(&mut self, thread: usize) {
        if thread < self.threads.len() {
            self.selected = thread;
        }
    }

    fn thread(&self) -> Result<&CoreThread, Error> {
        self.threads.get(self.selected).ok_or(Error::NO_INFO)
    }

    /// The ID of the selected thread.
    #[must_use]
    pub fn thread_id(&self) -> i32 {
        self.thread().map_or(0, |thread| thread.id)
    }

    /// The signal that stopped the selected thread, or zero.
    #[must_use]
    pub fn signal(&self) -> i32 {
        self.thread().map_or(0, |thread| thread.signal)
    }

    /// A register of the selected thread, by its offset in `struct user_regs_struct`.
    ///
    /// # Errors
    ///
    /// The register is not in the file.
    pub fn register(&self, offset: usize) -> Result<u64, Error> {
        u64_at(self.file.bytes(), self.thread()?.registers + offset)
    }

    /// A word of memory.
    ///
    /// # Errors
    ///
    /// [`Error::INVALID`] if neither the core file nor another file has it.
    pub fn word(&self, addr: u64) -> Result<u64, Error> {
        let (bytes, at) = self.file_position(addr).ok_or(Error::INVALID)?;
        u64_at(bytes, position(at)?).map_err(|_| Error::INVALID)
    }

    /// The file that has the word at an address, and the offset.
    fn file_position(&self, addr: u64) -> Option<(&[u8], u64)> {
        if let Some(segment) = self.segment(addr) {
            let at = addr - segment.vaddr;
            let is_there = at.checked_add(8)? <= segment.file_size;
            match &segment.backing {
                _ if is_there => return Some((self.file.bytes(), segment.offset.checked_add(at)?)),
                Some((file, offset)) => return Some((file.bytes(), offset.checked_add(at)?)),
                None => {}
            }
        }
        let mapping = self.mapping(addr)?;
        let offset = mapping.offset.checked_add(addr - mapping.start)?;
        Some((self.mapped(mapping)?, offset))
    }

    fn segment(&self, addr: u64) -> Option<&CoreSegment> {
        let covers = |segment: &&CoreSegment| {
            let at = addr.checked_sub(segment.vaddr);
            at.is_some_and(|at| at < segment.memory_size)
        };
        self.segments.iter().find(covers)
    }

    /// The whole file of a mapping.
    fn mapped(&self, mapping: &FileNote) -> Option<&[u8]> {
        let file = self.files.get(mapping.file)?;
        file.as_ref().map(RawMap::bytes)
    }

    fn memory(&self) -> AlignedMemory<impl Fn(u64) -> Result<u64, Error>> {
        AlignedMemory::new(|addr| self.word(addr))
    }

    fn mapping(&self, addr: u64) -> Option<&FileNote> {
        let mut mappings = self.mappings.iter();
        mappings.find(|mapping| (mapping.start..mapping.end).contains(&addr))
    }

    fn name(&self, mapping: &FileNote) -> &[u8] {
        let (at, len) = mapping.name;
        let name = self.file.bytes().get(at..).and_then(|rest| rest.get(..len));
        name.unwrap_or_default()
    }

    /// The headers of the file mapped at an address. Without a note, as for the vDSO, its first
    /// byte is the segment's.
    fn image(&self, addr: u64) -> Result<LoadedHeaders, Error> {
        let base = match self.mapping(addr) {
            Some(mapping) => {
                let is_first = |other: &&FileNote| other.file == mapping.file && other.offset == 0;
                self.mappings.iter().find(is_first).map(|first| first.start)
            }
            None => self.segment(addr).map(|segment| segment.vaddr),
        };
        LoadedHeaders::read(&self.memory(), base.ok_or(Error::NO_INFO)?)
    }

    /// The procedure of an address.
    ///
    /// # Errors
    ///
    /// [`Error::NO_INFO`] if there is none, and errors of reading.
    pub fn find_proc_info(&mut self, ip: u64) -> Result<ProcInfo, Error> {
        match self.by_eh_frame(ip) {
            Err(Error::NO_INFO) => {
                let bias = LoadBias(self.image(ip)?.bias);
                let file = self.file_at(ip).ok_or(Error::NO_INFO)?;
                debug_frame::find(file, bias, ip, &self.debug_frame_entry)
            }
            found => found,
        }
    }

    fn by_eh_frame(&mut self, ip: u64) -> Result<ProcInfo, Error> {
        let known = self
            .table
            .filter(|table| (table.start_ip..table.end_ip).contains(&ip));
        let table = match known {
            Some(table) => table,
            None => self.image(ip)?.table(&self.memory())?,
        };
        self.table = Some(table);
        remote_cfi::search(&self.memory(), &table, ip)
    }

    /// The whole file mapped at an address: the caller's, or else the process's.
    fn file_at(&self, ip: u64) -> Option<&[u8]> {
        let given = self
            .segment(ip)
            .and_then(|segment| segment.backing.as_ref());
        match given {
            Some((file, _)) => Some(file.bytes()),
            None => self.mapping(ip).and_then(|mapping| self.mapped(mapping)),
        }
    }

    /// Passes the name of the function at an address to `found`, and the offset of the address in
    /// the function, in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::NO_INFO`] if there is none, and errors of `found`.
    pub fn function<T>(
        &self,
        ip: u64,
        found: impl FnOnce(&[u8], u64) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let vaddr = ip.wrapping_sub(self.image(ip)?.bias);
        let bytes = self.file_at(ip).ok_or(Error::NO_INFO)?;
        let (name, offset) = image::function(bytes, vaddr).ok_or(Error::NO_INFO)?;
        found(name, offset)
    }

    /// Passes the path of the file mapped at an address, by the `NT_FILE` note, to `found`, and the
    /// offset of the address in the file, in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::NO_INFO`] if there is none, and errors of `found`.
    pub(crate) fn file_name<T>(
        &self,
        ip: u64,
        found: impl FnOnce(&[u8], u64) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mapping = self.mapping(ip).ok_or(Error::NO_INFO)?;
        let offset = mapping.offset.wrapping_add(ip - mapping.start);
        found(self.name(mapping), offset)
    }
}

/// Reads `NT_FILE` (linux: `fill_files_note`): the count, the unit of offsets, each mapping's
/// start, end and offset, and then the names.
fn read_files(
    bytes: &[u8],
    at: usize,
    end: usize,
    mappings: &mut Vec<FileNote>,
) -> Result<(), Error> {
    let note = bytes.get(..end).ok_or(Error::NO_INFO)?;
    let (count, unit) = (u64_at(note, at)?, u64_at(note, at + 8)?);
    let room = (note.len() - at) / 24;
    let count = position(count)?;
    if count > room {
        return Err(Error::NO_INFO);
    }
    let mut name = at + 16 + count * 24;
    for entry in 0..count {
        let entry = at + 16 + entry * 24;
        let names = note.get(name..).unwrap_or_default();
        let length = names.iter().position(|byte| *byte == 0).unwrap_or(0);
        let mapping = FileNote {
            start: u64_at(note, entry)?,
            end: u64_at(note, entry + 8)?,
            offset: u64_at(note, entry + 16)?.saturating_mul(unit),
            name: (name, length),
            file: 0,
        };
        push(mappings, mapping)?;
        name += length + 1;
    }
    Ok(())
}

fn position(offset: u64) -> Result<usize, Error> {
    // At most half of the address space: sums of a few do not overflow.
    let position = usize::try_from(offset).ok();
    let position = position.filter(|position| *position < usize::MAX / 4);
    position.ok_or(Error::NO_INFO)
}

fn push<T>(list: &mut Vec<T>, item: T) -> Result<(), Error> {
    list.try_reserve(1).map_err(|_| Error::NO_MEMORY)?;
    list.push(item);
    Ok(())
}

#[cfg(test)]
mod tests;
