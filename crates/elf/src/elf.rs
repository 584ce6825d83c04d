//! The file: opening it, and its headers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use object::elf;
use sha2::{Digest, Sha256};
use unspool_files::{FileOrigin, FileState};
use unspool_rows::arch::AddressSize;
use unspool_rows::{Abi, Endian, Vaddr};

use crate::build_id::{BuildId, ContentKey, TableKey};
use crate::contents::SectionContents;
use crate::error::ModuleError;
use crate::header::{self, ElfHeaders, ElfKind, Phdr, Shdr};
use crate::image::ImageBytes;
use crate::layout::{self, AddressIndex};
use crate::note;
use crate::symbols::Symbols;

/// One ELF file: its bytes and its headers.
///
/// Opening reads the headers only. Everything else is read on demand and fails on its own: a broken
/// symbol table does not keep the unwind tables from being read. Computed data (decompressed or
/// relocated sections, symbols) is kept for the life of the value. It can be shared between
/// threads.
///
/// # Relocatable files
///
/// Sections of a relocatable file have no addresses: they are laid out one after another, `.text`
/// first at 0, the others in the order of the section headers, each aligned as its header asks.
/// If a loader has written addresses into the section headers, as JIT compilers do in files that
/// they register with debuggers, these hold, and sections without one are not loaded.
/// Undefined symbols get addresses of their own behind the last section. Every address that this
/// crate takes or returns for such a file is in that layout.
#[derive(Debug)]
pub struct ElfFile {
    path: PathBuf,
    origin: Option<FileOrigin>,
    pub(crate) image: Arc<ImageBytes>,
    pub(crate) headers: ElfHeaders,
    /// The addresses of undefined symbols of a relocatable file start here.
    pub(crate) externals: u64,
    pub(crate) sections_by_address: AddressIndex,
    pub(crate) contents: Vec<OnceLock<Box<Result<SectionContents, ModuleError>>>>,
    /// The claimed sizes of compressed sections that were read, in bytes.
    pub(crate) decompressed: AtomicU64,
    pub(crate) relocation_sections: OnceLock<HashMap<u32, Vec<u32>>>,
    build_id: OnceLock<Option<BuildId>>,
    content_hash: OnceLock<Option<[u8; 20]>>,
    pub(crate) symbols: OnceLock<Symbols>,
    /// The section of Go's functions, and the start of their code.
    pub(crate) go_functions: OnceLock<Option<(usize, Vaddr)>>,
}

impl ElfFile {
    /// Opens the ELF file at `path`: maps it read-only, or reads it if it is under 64 KiB.
    ///
    /// Another process may truncate the file or write to it meanwhile ([`unspool_files::FileMap`]):
    /// [`ElfFile::check_unchanged`]. Replacing the file by renaming, as package managers and
    /// linkers do, changes nothing.
    ///
    /// # Errors
    ///
    /// [`ModuleError`] if the path cannot be opened, is not a regular file, is empty, or does not
    /// start with a complete and supported ELF header. Any other fault in the file is reported when
    /// that part is read.
    pub fn open(path: impl AsRef<Path>) -> Result<ElfFile, ModuleError> {
        let path = path.as_ref();
        ElfFile::from_opened(path, ImageBytes::open(path)?)
    }

    /// Checks that the file has not been truncated or written to since it was opened. Call this
    /// when work on it is done, before the result is reported or kept. Asks the file system. It
    /// does not detect a write that the file's owner hides.
    ///
    /// # Errors
    ///
    /// [`ModuleError::Changed`].
    pub fn check_unchanged(&self) -> Result<(), ModuleError> {
        self.image.check(&self.path, self.state())
    }

    /// The ELF file that `file` has open, read from its beginning. `path` may lead to another file
    /// by now. Otherwise as if `path` had been opened. The descriptor can be closed afterwards.
    ///
    /// # Errors
    ///
    /// As for [`ElfFile::open`].
    pub fn from_file(path: impl AsRef<Path>, file: &File) -> Result<ElfFile, ModuleError> {
        let path = path.as_ref();
        ElfFile::from_opened(path, ImageBytes::from_file(file, path)?)
    }

    pub(crate) fn from_opened(
        path: &Path,
        (image, origin): (ImageBytes, FileOrigin),
    ) -> Result<ElfFile, ModuleError> {
        let mut file = ElfFile::from_image(path.to_path_buf(), image)?;
        file.origin = Some(origin);
        Ok(file)
    }

    /// Opens a file that this one names: one with parts of its debug information.
    ///
    /// # Errors
    ///
    /// As for [`ElfFile::open`], and [`ModuleError::Untrusted`] if users can write to it who cannot
    /// write to this file. Whoever writes there would choose what this file means.
    pub fn open_part(&self, path: &Path) -> Result<ElfFile, ModuleError> {
        let part = ElfFile::open(path)?;
        let writers = |file: &ElfFile| Some(file.origin?.writers);
        let is_right = match (writers(&part), writers(self)) {
            (Some(part), Some(own)) => part.are_among(&own),
            _ => part.is_trusted(),
        };
        if is_right {
            Ok(part)
        } else {
            Err(ModuleError::Untrusted { file: part.path })
        }
    }

    /// Whether the text of another file may be shown because this one names it, as a source file.
    ///
    /// Who can write to this file chooses what it names. If that may be a stranger, only files of
    /// this file's owner are shown: those of others could be secrets.
    #[must_use]
    pub fn may_show(&self, file: &FileOrigin) -> bool {
        let own = self.origin;
        self.is_trusted() || own.is_some_and(|own| own.writers.has_owner_of(&file.writers))
    }

    /// An ELF file from bytes in memory, such as the vDSO; `name` stands for the path in errors.
    /// The bytes must be laid out as in a file, which those of the vDSO are.
    ///
    /// # Errors
    ///
    /// As for [`ElfFile::open`].
    pub fn from_bytes(
        name: impl Into<PathBuf>,
        bytes: impl Into<Arc<[u8]>>,
    ) -> Result<ElfFile, ModuleError> {
        ElfFile::from_image(name.into(), ImageBytes::Shared(bytes.into()))
    }

    pub(crate) fn from_image(path: PathBuf, image: ImageBytes) -> Result<ElfFile, ModuleError> {
        let mut headers = header::parse(&path, image.bytes())?;
        let mut externals = 0;
        if let (ElfKind::Relocatable, Ok(sections)) = (headers.kind, &mut headers.sections) {
            let names = names(image.bytes(), sections, headers.section_names).unwrap_or_default();
            externals = layout::assign_addresses(sections, names, headers.address_size);
        }
        let sections = headers.sections.as_deref().unwrap_or_default();
        let placed = AddressIndex::new(sections);
        let contents = sections.iter().map(|_| OnceLock::new()).collect();
        Ok(ElfFile {
            path,
            origin: None,
            image: Arc::new(image),
            headers,
            externals,
            sections_by_address: placed,
            contents,
            decompressed: AtomicU64::new(0),
            relocation_sections: OnceLock::new(),
            build_id: OnceLock::new(),
            content_hash: OnceLock::new(),
            symbols: OnceLock::new(),
            go_functions: OnceLock::new(),
        })
    }

    /// The path of the file, or the name given to [`ElfFile::from_bytes`].
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file system's state of the file when it was opened; `None` for one that was not opened
    /// by a path.
    #[must_use]
    pub fn state(&self) -> Option<FileState> {
        Some(self.origin?.state)
    }

    /// Whether only root and this user could write to the file when it was opened. One of them owns
    /// it, nobody else has the permission, and its mount honours set-user-ID bits. A mount that
    /// other users control honours none. `false` for a file that was not opened by a path.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.origin.is_some_and(|origin| origin.is_trusted)
    }

    /// The file's state as bytes: it changes if the contents do. `None` for a file that could
    /// change without it: if it is not trusted ([`ElfFile::is_trusted`]), if it changed just before
    /// it was opened, or if the file system keeps times in whole seconds.
    #[must_use]
    pub fn stamp(&self) -> Option<Vec<u8>> {
        let origin = self
            .origin
            .filter(|origin| origin.is_trusted && origin.is_settled)?;
        Some(origin.state.bytes())
    }

    /// All bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.image.bytes()
    }

    /// Architecture and byte order.
    #[must_use]
    pub fn abi(&self) -> Abi {
        self.headers.abi
    }

    /// The size of an address: 32-bit or 64-bit ELF.
    #[must_use]
    pub fn word(&self) -> AddressSize {
        self.headers.address_size
    }

    /// The kind of the ELF file.
    #[must_use]
    pub fn kind(&self) -> ElfKind {
        self.headers.kind
    }

    /// The entry point (`e_entry`); 0 if the file has none.
    #[must_use]
    pub fn entry(&self) -> Vaddr {
        Vaddr(self.headers.entry)
    }

    /// Checks that the section header table could be read.
    ///
    /// # Errors
    ///
    /// The fault in the table. A file without section headers is not an error.
    pub fn check_section_headers(&self) -> Result<(), ModuleError> {
        self.headers
            .sections
            .as_ref()
            .map(drop)
            .map_err(ModuleError::clone)
    }

    /// Checks that the program header table could be read.
    ///
    /// # Errors
    ///
    /// The fault in the table. A file without program headers is not an error.
    pub fn check_program_headers(&self) -> Result<(), ModuleError> {
        self.headers
            .segments
            .as_ref()
            .map(drop)
            .map_err(ModuleError::clone)
    }

    /// The GNU build ID: from the note sections, or without section headers from the note segments.
    /// `None` if the file has no well-formed one.
    #[must_use]
    pub fn build_id(&self) -> Option<BuildId> {
        *self.build_id.get_or_init(|| note::build_id(self))
    }

    /// The identity of this file: the build ID, or a hash of all its bytes. `None` for a file
    /// without build ID that is too large to hash ([`ElfFile::content_hash`]).
    ///
    /// The first call for a file without a build ID reads the whole file.
    #[must_use]
    pub fn content_key(&self) -> Option<ContentKey> {
        match self.build_id() {
            Some(id) => Some(ContentKey::BuildId(id)),
            None => self.content_hash().map(ContentKey::Hash),
        }
    }

    /// The cache key for data derived from this file; `None` if the file is too large to hash.
    ///
    /// Reads the whole file once.
    #[must_use]
    pub fn table_key(&self) -> Option<TableKey> {
        Some(TableKey {
            build_id: self.build_id(),
            content: self.content_hash()?,
        })
    }

    /// The first 20 bytes of the SHA-256 of all bytes. `None` for files larger than
    /// [`MAX_HASHED_BYTES`](ElfFile::MAX_HASHED_BYTES), and for files larger than
    /// [`MAX_UNTRUSTED_BYTES`](ElfFile::MAX_UNTRUSTED_BYTES) that another user can write to. Such a
    /// file may be large and take no disk space (a sparse one).
    ///
    /// Reads the whole file once. If it is mapped and somebody writes to it, the hash may match
    /// neither content.
    #[must_use]
    pub fn content_hash(&self) -> Option<[u8; 20]> {
        let hash =
            || (self.bytes().len() as u64 <= self.most()).then(|| truncated_hash(self.bytes()));
        *self.content_hash.get_or_init(hash)
    }

    /// Whether the hash has been computed already.
    #[must_use]
    pub fn is_hashed(&self) -> bool {
        self.content_hash.get().is_some()
    }

    /// Larger files are not hashed or copied, in bytes.
    pub const MAX_HASHED_BYTES: u64 = 1 << 30;

    /// Larger files that another user can write to are not hashed or copied, in bytes.
    pub const MAX_UNTRUSTED_BYTES: u64 = 64 << 20;

    fn most(&self) -> u64 {
        if self.image.is_private() || self.is_trusted() {
            ElfFile::MAX_HASHED_BYTES
        } else {
            ElfFile::MAX_UNTRUSTED_BYTES
        }
    }

    /// Whether nobody can change the bytes of this file: they were read or passed in, not mapped.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.image.is_private()
    }

    /// The same file with its bytes copied into memory, where nobody can change them. `None` if the
    /// file is too large ([`ElfFile::content_hash`]) or private already. All results from the copy
    /// describe one content, and its hash is that content's.
    #[must_use]
    pub fn private_copy(&self) -> Option<ElfFile> {
        if self.is_private() || self.bytes().len() as u64 > self.most() {
            return None;
        }
        let image = ImageBytes::from(self.bytes().to_vec());
        let mut copy = ElfFile::from_image(self.path.clone(), image).ok()?;
        copy.origin = self.origin;
        Some(copy)
    }

    /// The file name of the dynamic loader (`PT_INTERP`), if the file asks for one.
    #[must_use]
    pub fn program_interpreter(&self) -> Option<Cow<'_, str>> {
        let header = self.segment_of_kind(elf::PT_INTERP)?;
        let bytes = slice(self.bytes(), header.offset, header.file_size)?;
        Some(String::from_utf8_lossy(until_nul(bytes)))
    }

    /// The address of the program headers in memory (`AT_PHDR` at run time): `PT_PHDR`, or the
    /// segment that maps them.
    #[must_use]
    pub fn program_headers_vaddr(&self) -> Option<Vaddr> {
        match self.segment_of_kind(elf::PT_PHDR) {
            Some(header) => Some(Vaddr(header.vaddr)),
            None => self.vaddr_of_offset(self.headers.program_header_offset),
        }
    }

    pub(crate) fn is_little_endian(&self) -> bool {
        self.headers.abi.endian == Endian::Little
    }

    pub(crate) fn is_relocatable(&self) -> bool {
        self.headers.kind == ElfKind::Relocatable
    }

    pub(crate) fn program_headers(&self) -> &[Phdr] {
        self.headers.segments.as_deref().unwrap_or_default()
    }

    pub(crate) fn segment_of_kind(&self, kind: elf::ProgramType) -> Option<&Phdr> {
        self.program_headers()
            .iter()
            .find(|header| header.kind == kind.0)
    }

    pub(crate) fn section_headers(&self) -> &[Shdr] {
        self.headers.sections.as_deref().unwrap_or_default()
    }

    pub(crate) fn section_header(&self, index: usize) -> Option<&Shdr> {
        self.section_headers().get(index)
    }

    /// The raw name of a section; empty if it cannot be read. Does not allocate.
    pub(crate) fn section_name_bytes(&self, header: &Shdr) -> &[u8] {
        self.section_names()
            .and_then(|names| string_at(names, header.name, MAX_NAME_BYTES))
            .unwrap_or_default()
    }

    /// Whether a section has that name.
    pub(crate) fn is_named(&self, header: &Shdr, name: &str) -> bool {
        self.section_names()
            .is_some_and(|names| is_string_at(names, header.name, name.as_bytes()))
    }

    fn section_names(&self) -> Option<&[u8]> {
        let sections = self.section_headers();
        names(self.bytes(), sections, self.headers.section_names)
    }

    pub(crate) fn section_name(&self, index: usize) -> Cow<'_, str> {
        match self.section_header(index) {
            Some(header) => String::from_utf8_lossy(self.section_name_bytes(header)),
            None => Cow::Borrowed(""),
        }
    }

    pub(crate) fn truncated(&self, what: String, offset: u64, length: u64) -> ModuleError {
        ModuleError::Truncated {
            file: self.path.clone(),
            what,
            offset,
            length,
            end: self.bytes().len() as u64,
        }
    }

    pub(crate) fn malformed(
        &self,
        what: &str,
        offset: u64,
        value: u64,
        reason: impl Into<String>,
    ) -> ModuleError {
        ModuleError::Malformed {
            file: self.path.clone(),
            what: what.to_owned(),
            offset,
            value,
            reason: reason.into(),
        }
    }
}

pub(crate) fn truncated_hash(bytes: &[u8]) -> [u8; 20] {
    let digest = Sha256::digest(bytes);
    let mut key = [0; 20];
    key.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    key
}

/// The section name string table.
fn names<'a>(data: &'a [u8], sections: &[Shdr], index: u32) -> Option<&'a [u8]> {
    let header = sections.get(usize::try_from(index).ok()?)?;
    slice(data, header.offset, header.size)
}

/// `length` bytes at `offset`, if all of them exist.
pub(crate) fn slice(data: &[u8], offset: u64, length: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = usize::try_from(offset.checked_add(length)?).ok()?;
    data.get(start..end)
}

/// The maximum number of bytes read of a name. Names in a string table may overlap: a file of a few
/// megabytes can have a million of them, each nearly as long as the file.
pub(crate) const MAX_NAME_BYTES: usize = 64 * 1024;

/// The NUL-terminated string at `offset` of a string table, cut after `most` bytes.
pub(crate) fn string_at(table: &[u8], offset: u32, most: usize) -> Option<&[u8]> {
    let rest = table.get(usize::try_from(offset).ok()?..)?;
    Some(until_nul(rest.get(..most).unwrap_or(rest)))
}

/// Whether that is the NUL-terminated string at `offset` of a string table. Reads no more bytes of
/// it than `text` has.
pub(crate) fn is_string_at(table: &[u8], offset: u32, text: &[u8]) -> bool {
    string_at(table, offset, text.len() + 1) == Some(text)
}

pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    CStr::from_bytes_until_nul(bytes).map_or(bytes, CStr::to_bytes)
}

/// A number of up to 8 bytes.
pub(crate) fn load(bytes: &[u8], little: bool) -> u64 {
    let add = |value, byte: &u8| (value << 8) | u64::from(*byte);
    if little {
        bytes.iter().rev().fold(0, add)
    } else {
        bytes.iter().fold(0, add)
    }
}
