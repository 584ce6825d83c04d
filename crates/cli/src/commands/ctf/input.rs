//! Where CTF is read from: ELF files, archives of them, files that are nothing but CTF.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use unspool_ctf::{ARCHIVE_MAGIC, ElfContext, ElfStrings, Endian, MAGIC};
use unspool_ir::arch::Word;
use unspool_module::{Container, ElfFile};

use crate::output;

/// The section that has CTF.
pub(super) const SECTION: &str = ".ctf";

/// A file with CTF in it.
pub(super) enum Input {
    /// A file that consists of CTF.
    Bare { path: PathBuf, bytes: Vec<u8> },
    /// An ELF file.
    Elf(Box<ElfFile>),
}

impl Input {
    /// The files of a path: of an archive all members that have CTF, otherwise the one.
    pub(super) fn open(path: &Path) -> anyhow::Result<Vec<Input>> {
        if let Some(bytes) = bare(path)? {
            let path = path.to_owned();
            return Ok(vec![Input::Bare { path, bytes }]);
        }
        match Container::open(path)? {
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
        Ok(Some((section.data, context(file)?)))
    }

    /// What made the file, by its `.comment`: one text for each compiler.
    pub(super) fn producers(&self) -> Vec<Cow<'_, str>> {
        let Input::Elf(file) = self else {
            return Vec::new();
        };
        let Ok(Some(comment)) = file.section_named(".comment") else {
            return Vec::new();
        };
        let texts = comment.data.split(|byte| *byte == 0);
        texts
            .filter(|text| !text.is_empty())
            .map(String::from_utf8_lossy)
            .collect()
    }
}

/// The bytes of a file that begins as CTF does.
fn bare(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    use std::io::Read as _;
    let mut start = [0; 8];
    let mut file = fs::File::open(path).with_context(|| path.display().to_string())?;
    let read = file
        .read(&mut start)
        .with_context(|| path.display().to_string())?;
    let is_dict = start.first_chunk().is_some_and(|magic| {
        u16::from_le_bytes(*magic) == MAGIC || u16::from_be_bytes(*magic) == MAGIC
    });
    let is_archive = u64::from_le_bytes(start) == ARCHIVE_MAGIC;
    match read >= 2 && (is_dict || is_archive) {
        true => Ok(Some(
            fs::read(path).with_context(|| path.display().to_string())?,
        )),
        false => Ok(None),
    }
}

/// What CTF needs of an ELF file.
pub(super) fn context(file: &ElfFile) -> anyhow::Result<ElfContext<'_>> {
    let data = |name| -> anyhow::Result<&[u8]> {
        Ok(file
            .section_named(name)?
            .map_or(&[][..], |section| section.data))
    };
    Ok(ElfContext {
        strings: ElfStrings {
            strtab: data(".strtab")?,
            dynstr: data(".dynstr")?,
        },
        symtab: data(".symtab")?,
        dynsym: data(".dynsym")?,
        endian: match file.abi().endian {
            unspool_ir::Endian::Little => Endian::Little,
            unspool_ir::Endian::Big => Endian::Big,
        },
        is_64: file.word() == Word::W64,
    })
}
