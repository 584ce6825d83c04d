//! Files with C types in any form: ELF files with CTF, BTF or DWARF, archives of them, and bare CTF
//! or BTF.

mod arrays;
mod btf;
mod dwarf;
mod headers;
mod interface;
mod link_input;
mod loader;
mod notice;

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unspool_c_types::{
    ARCHIVE_MAGIC, BTF_MAGIC, BtfError, CtfError, ElfContext, ILLUMOS_MAGIC, MAGIC,
};
use unspool_elf::{Container, ElfFile, ModuleError};
use unspool_files::{Input, open_input};

use crate::TypesError;
use crate::elf::elf_context;

pub use headers::{HeadersError, PublicHeaders};
pub use interface::{PublicInterface, VersionInterface};
pub use link_input::{LinkInput, LinkUnits};
pub use loader::{ArrayView, LoadedDicts, LoadedTypes, NamedDict, TypeLoader};
pub use notice::{TypesFaults, TypesNotice};

/// The section of CTF.
pub const CTF_SECTION: &str = ".ctf";

/// The section of BTF.
pub const BTF_SECTION: &str = ".BTF";

/// The section of CTF in FreeBSD and illumos, another format.
const ILLUMOS_SECTION: &str = ".SUNW_ctf";

/// A file with types.
#[derive(Debug)]
pub enum TypeFile {
    /// A bare CTF or BTF file.
    Bare {
        /// Its path.
        path: PathBuf,
        /// Its contents.
        bytes: Vec<u8>,
    },
    /// An ELF file.
    Elf(Box<ElfFile>),
}

/// Types as they are stored in a file.
#[derive(Debug)]
enum StoredTypes<'i> {
    /// CTF, and the context that it needs from its file.
    Ctf(&'i [u8], ElfContext<'i>),
    /// BTF, and the size of the machine's pointers in bytes.
    Btf(&'i [u8], u64),
}

impl StoredTypes<'_> {
    fn format(&self) -> &'static str {
        match self {
            StoredTypes::Ctf(..) => "CTF",
            StoredTypes::Btf(..) => "BTF",
        }
    }
}

/// Why the types of a file are not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TypeFileError {
    /// The file cannot be read.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// Its DWARF cannot be read.
    #[error(transparent)]
    Dwarf(#[from] TypesError),
    /// Its CTF cannot be read.
    #[error("{}: {error}", file.display())]
    Ctf {
        /// The file.
        file: PathBuf,
        /// Why.
        error: CtfError,
    },
    /// Its BTF cannot be read.
    #[error("{}: {error}", file.display())]
    Btf {
        /// The file.
        file: PathBuf,
        /// Why.
        error: BtfError,
    },
    /// It is a module of a kernel that does not run, so the running one's types are not its base.
    #[error(
        "{} is a module of Linux {release}, and {running} runs: give the types of its kernel by --base (its vmlinux, or that one's BTF)",
        file.display()
    )]
    OtherKernel {
        /// The module.
        file: PathBuf,
        /// The release of its kernel.
        release: String,
        /// The release of the running kernel.
        running: String,
    },
    /// The given base has no BTF.
    #[error("{} has no BTF to be a base", base.display())]
    NoBase {
        /// The file.
        base: PathBuf,
    },
    /// The files of its split units (`-gsplit-dwarf`) are missing.
    #[error(
        "{0}: its types are in split DWARF files (-gsplit-dwarf), which were not found: neither where the compiler wrote them, nor beside it, nor packed in {0}.dwp",
        file.display()
    )]
    Split {
        /// The file.
        file: PathBuf,
    },
    /// It has no DWARF, and the declarations of its types are wanted.
    #[error(
        "{} has {format}, which does not say in which files types are declared: --headers needs DWARF (`gcc -g`)",
        file.display()
    )]
    NoDeclarations {
        /// The file.
        file: PathBuf,
        /// The format of its types.
        format: &'static str,
    },
    /// It has no types in any form.
    #[error("{} has no types: neither CTF nor BTF nor DWARF of units in C", file.display())]
    NoTypes {
        /// The file.
        file: PathBuf,
    },
}

impl TypeFile {
    /// Opens a bare CTF or BTF file, an ELF file, or the ELF files of an archive, from a file or a
    /// pipe. A pipe is read completely. Members of an archive that cannot be read are errors of
    /// their own.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is of another kind.
    pub fn open(path: &Path) -> Result<Vec<Result<TypeFile, ModuleError>>, ModuleError> {
        let container = match bytes_of(path)? {
            Some(bytes) if is_bare(&bytes) => {
                let path = path.to_owned();
                return Ok(vec![Ok(TypeFile::Bare { path, bytes })]);
            }
            Some(bytes) => Container::from_bytes(path, bytes),
            None => Container::open(path),
        };
        Ok(match container? {
            Container::File(file) => vec![Ok(TypeFile::Elf(file))],
            Container::Archive(files) => {
                let files = files.into_iter();
                files
                    .map(|file| file.map(|file| TypeFile::Elf(Box::new(file))))
                    .collect()
            }
        })
    }

    /// The path; of a member of an archive, `lib.a(member.o)`.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            TypeFile::Bare { path, .. } => path,
            TypeFile::Elf(file) => file.path(),
        }
    }

    /// The ELF file, if it is one.
    #[must_use]
    pub fn elf(&self) -> Option<&ElfFile> {
        match self {
            TypeFile::Bare { .. } => None,
            TypeFile::Elf(file) => Some(file),
        }
    }

    /// The types: CTF if there is any, else BTF; `None` if there are none.
    fn stored(&self) -> Result<Option<StoredTypes<'_>>, ModuleError> {
        let has_ctf = match self {
            TypeFile::Bare { bytes, .. } => !is_btf(bytes),
            TypeFile::Elf(file) => file.section_named(CTF_SECTION)?.is_some(),
        };
        if !has_ctf && let Some((bytes, pointer_size)) = self.btf()? {
            return Ok(Some(StoredTypes::Btf(bytes, pointer_size)));
        }
        self.ctf()
    }

    fn ctf(&self) -> Result<Option<StoredTypes<'_>>, ModuleError> {
        let file = match self {
            TypeFile::Bare { bytes, .. } => {
                let elf = ElfContext::BARE_64;
                return Ok(Some(StoredTypes::Ctf(bytes, elf)));
            }
            TypeFile::Elf(file) => file,
        };
        let section = match file.section_named(CTF_SECTION)? {
            None => file.section_named(ILLUMOS_SECTION)?,
            section => section,
        };
        match section {
            Some(section) => Ok(Some(StoredTypes::Ctf(section.data, elf_context(file)?))),
            None => Ok(None),
        }
    }

    fn ctf_error(&self, error: CtfError) -> TypeFileError {
        let file = self.path().to_owned();
        TypeFileError::Ctf { file, error }
    }

    fn btf_error(&self, error: BtfError) -> TypeFileError {
        let file = self.path().to_owned();
        TypeFileError::Btf { file, error }
    }
}

/// Whether bytes start with a magic number of 16 bits, in either byte order.
fn starts_with(bytes: &[u8], magic: u16) -> bool {
    let start = bytes.first_chunk();
    start.is_some_and(|start| [magic.to_le_bytes(), magic.to_be_bytes()].contains(start))
}

fn is_btf(bytes: &[u8]) -> bool {
    starts_with(bytes, BTF_MAGIC)
}

/// Whether bytes start with the CTF or BTF magic.
fn is_bare(bytes: &[u8]) -> bool {
    let archive = bytes.first_chunk().map(|magic| u64::from_le_bytes(*magic));
    let magics = [MAGIC, ILLUMOS_MAGIC, BTF_MAGIC];
    archive == Some(ARCHIVE_MAGIC) || magics.iter().any(|magic| starts_with(bytes, *magic))
}

/// The bytes of a bare CTF or BTF file, and of any pipe, which can be read only once.
fn bytes_of(path: &Path) -> Result<Option<Vec<u8>>, ModuleError> {
    let mut bytes = Vec::new();
    let mut read = || -> io::Result<bool> {
        match open_input(path) {
            // Opening it as an ELF file reports its real type.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(false),
            Err(error) => return Err(error),
            Ok(Input::Stream(mut stream)) => stream.read_to_end(&mut bytes)?,
            Ok(Input::File(mut file)) => {
                file.by_ref().take(8).read_to_end(&mut bytes)?;
                if !is_bare(&bytes) {
                    return Ok(false);
                }
                file.read_to_end(&mut bytes)?
            }
        };
        Ok(true)
    };
    let is_read = read().map_err(|error| ModuleError::Io {
        file: path.to_owned(),
        source: Arc::new(error),
    })?;
    Ok(is_read.then_some(bytes))
}
