//! Where types are read from: ELF files, archives of them, files that are nothing but CTF or BTF.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use unspool_ctf::{ARCHIVE_MAGIC, BTF_MAGIC, ElfContext, MAGIC, Quirk, SymbolKind};
use unspool_ir::arch::Word;
use unspool_module::{Container, ElfFile};
use unspool_types::elf_context;

use crate::output;

/// The section that has CTF.
pub(super) const SECTION: &str = ".ctf";

/// The section that has BTF.
pub(super) const BTF_SECTION: &str = ".BTF";

/// Types as they are stored.
pub(super) enum Stored<'i> {
    /// CTF, and what it needs of the file that it is in.
    Ctf(&'i [u8], ElfContext<'i>),
    /// BTF, of a machine with pointers of so many bytes.
    Btf(&'i [u8], u64),
}

/// A file with types in it.
pub(super) enum Input {
    /// A file that consists of CTF or BTF.
    Bare { path: PathBuf, bytes: Vec<u8> },
    /// An ELF file.
    Elf(Box<ElfFile>),
}

impl Input {
    /// The files of a path: of an archive all members that have CTF, otherwise the one.
    pub(super) fn open(path: &Path) -> anyhow::Result<Vec<Input>> {
        let container = match bytes_of(path)? {
            Some(bytes) if is_bare(&bytes) => {
                let path = path.to_owned();
                return Ok(vec![Input::Bare { path, bytes }]);
            }
            Some(bytes) => Container::from_bytes(path, bytes),
            None => Container::open(path),
        };
        match container? {
            Container::File(file) => Ok(vec![Input::Elf(file)]),
            Container::Archive(files) => {
                let mut inputs = Vec::new();
                for file in files {
                    match file {
                        Ok(file) => inputs.push(Input::Elf(Box::new(file))),
                        Err(error) => output::notice(&error),
                    }
                }
                Ok(inputs)
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Input::Bare { path, .. } => path,
            Input::Elf(file) => file.path(),
        }
    }

    /// The CTF, and what it needs of the file that it is in; `None` if there is none.
    pub(super) fn section(&self) -> anyhow::Result<Option<(&[u8], ElfContext<'_>)>> {
        let file = match self {
            Input::Bare { bytes, .. } => {
                let elf = ElfContext {
                    is_64: true,
                    ..ElfContext::default()
                };
                return Ok(Some((bytes, elf)));
            }
            Input::Elf(file) => file,
        };
        let Some(section) = file.section_named(SECTION)? else {
            return Ok(None);
        };
        Ok(Some((section.data, elf_context(file)?)))
    }

    /// The types, which are CTF if there is any; `None` if there are none.
    pub(super) fn types(&self) -> anyhow::Result<Option<Stored<'_>>> {
        match self {
            Input::Bare { bytes, .. } if is_btf(bytes) => Ok(Some(Stored::Btf(bytes, 8))),
            Input::Elf(file) if file.section_named(SECTION)?.is_none() => {
                let section = file.section_named(BTF_SECTION)?;
                let pointer_size = if file.word() == Word::W64 { 8 } else { 4 };
                Ok(section.map(|section| Stored::Btf(section.data, pointer_size)))
            }
            _ => Ok(self.section()?.map(|(bytes, elf)| Stored::Ctf(bytes, elf))),
        }
    }

    /// What made the file, by its `.comment`, if that is known to store arrays of arrays the wrong way round.
    pub(super) fn reversed_arrays(&self) -> Option<Cow<'_, str>> {
        let Input::Elf(file) = self else {
            return None;
        };
        file.comments()
            .map(String::from_utf8_lossy)
            .find(|text| Quirk::of_producer(text) == Some(Quirk::ReversedArrays))
    }
}

/// Whether bytes begin as BTF does.
fn is_btf(bytes: &[u8]) -> bool {
    let start = bytes.first_chunk();
    start.is_some_and(|magic| {
        u16::from_le_bytes(*magic) == BTF_MAGIC || u16::from_be_bytes(*magic) == BTF_MAGIC
    })
}

/// Whether bytes begin as CTF or BTF does.
fn is_bare(bytes: &[u8]) -> bool {
    let is_dict = bytes.first_chunk().is_some_and(|magic| {
        u16::from_le_bytes(*magic) == MAGIC || u16::from_be_bytes(*magic) == MAGIC
    });
    let archive = bytes.first_chunk().map(|magic| u64::from_le_bytes(*magic));
    is_dict || archive == Some(ARCHIVE_MAGIC) || is_btf(bytes)
}

/// The bytes of a file that begins as CTF or BTF does, and of all that comes through a pipe, which can be read but once.
fn bytes_of(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    let said = || path.display().to_string();
    let kind = fs::metadata(path).with_context(said)?.file_type();
    if !kind.is_file() && !kind.is_fifo() {
        return Ok(None);
    }
    let mut file = fs::File::open(path).with_context(said)?;
    let mut bytes = Vec::new();
    if kind.is_file() {
        let start = file.by_ref().take(8).read_to_end(&mut bytes);
        start.with_context(said)?;
        if !is_bare(&bytes) {
            return Ok(None);
        }
    }
    let most = if kind.is_fifo() { MOST_PIPED } else { u64::MAX };
    let rest = file.take(most.saturating_add(1)).read_to_end(&mut bytes);
    if rest.with_context(said)? as u64 > most {
        bail!(
            "{} yields more than {MOST_PIPED} bytes: put them into a file first",
            said()
        );
    }
    Ok(Some(bytes))
}

/// No more is read from a pipe, in bytes.
const MOST_PIPED: u64 = 1 << 30;

/// The names of the functions and of the data in `.dynsym`, or in `.symtab`.
pub(super) fn symbol_names(
    elf: ElfContext<'_>,
    is_dynamic: bool,
) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut functions, mut objects) = (BTreeSet::new(), BTreeSet::new());
    for symbol in elf.symbols(is_dynamic) {
        match symbol.kind {
            SymbolKind::Function => functions.insert(symbol.name.into_owned()),
            SymbolKind::Object => objects.insert(symbol.name.into_owned()),
        };
    }
    (functions, objects)
}
