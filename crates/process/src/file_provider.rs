//! The file behind a mapping, which a live process and a core file find in different ways.

use std::io;
use std::path::{Path, PathBuf};

use unspool_elf::{BuildId, ElfFile, ModuleError};
use unspool_rows::Unreadable;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::OwnProcess;
#[cfg(feature = "ptrace")]
use crate::Process;
use crate::core_file::Core;
use crate::maps::Mapping;
use crate::{FileIdentity, MappedFile, Snapshot};

/// Finds the file behind a mapping.
pub trait FileProvider {
    /// Opens the mapped file.
    ///
    /// # Errors
    ///
    /// There is no such file, or none that is certainly the same.
    fn file(&self, mapping: &Mapping) -> Result<ElfFile, FileProblem>;
}

/// Why the file of a mapping is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileProblem {
    /// It cannot be opened.
    #[error("{}: {error}", path.display())]
    Open {
        /// The path in the process.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// It is not a readable ELF file.
    #[error(transparent)]
    Elf(#[from] Box<ModuleError>),
    /// The file on disk differs from the mapped one.
    #[error("{}: the file was replaced since it was mapped{}", path.display(), build_ids(mapped.as_deref(), on_disk.as_deref()))]
    Replaced {
        /// The path.
        path: PathBuf,
        /// The build ID of the mapped file.
        mapped: Option<Box<BuildId>>,
        /// The build ID of the file.
        on_disk: Option<Box<BuildId>>,
    },
    /// The file given as the core's program is another one.
    #[error("{}: it is not the program of this core{}", path.display(), build_ids(mapped.as_deref(), on_disk.as_deref()))]
    OtherProgram {
        /// The path that was given.
        path: PathBuf,
        /// The build ID of the mapped file.
        mapped: Option<Box<BuildId>>,
        /// The build ID of the file.
        on_disk: Option<Box<BuildId>>,
    },
    /// The image in memory cannot be read.
    #[error("the image in memory cannot be read: {0}")]
    Memory(#[from] Unreadable),
    /// No segment of the file can have this mapping.
    #[error("{}: no segment of the file fits the mapping", path.display())]
    NoSegment {
        /// The path.
        path: PathBuf,
    },
}

impl From<ModuleError> for FileProblem {
    fn from(error: ModuleError) -> Self {
        FileProblem::Elf(Box::new(error))
    }
}

fn build_ids(mapped: Option<&BuildId>, on_disk: Option<&BuildId>) -> String {
    match (mapped, on_disk) {
        (Some(mapped), Some(on_disk)) => {
            format!(": build ID {mapped} is mapped, {on_disk} is on disk")
        }
        _ => String::new(),
    }
}

#[cfg(feature = "ptrace")]
impl FileProvider for Process {
    fn file(&self, mapping: &Mapping) -> Result<ElfFile, FileProblem> {
        mapped(self, mapping, self.open_mapped_file(mapping))
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
impl FileProvider for OwnProcess {
    fn file(&self, mapping: &Mapping) -> Result<ElfFile, FileProblem> {
        mapped(self, mapping, self.open_mapped_file(mapping))
    }
}

/// The file that a live process has mapped, if this is certain.
fn mapped(
    snapshot: &dyn Snapshot,
    mapping: &Mapping,
    opened: io::Result<MappedFile>,
) -> Result<ElfFile, FileProblem> {
    let path = || PathBuf::from(mapping.name.clone().unwrap_or_default());
    let opened = opened.map_err(|error| FileProblem::Open {
        path: path(),
        error,
    })?;
    // By now the path may lead to another file than the identified one.
    let file = ElfFile::from_file(&opened.path, &opened.file)?;
    match opened.identity {
        FileIdentity::Same => Ok(file),
        // Another inode, or a file system without reliable ones: the build ID decides.
        FileIdentity::Unverified | FileIdentity::Replaced => {
            same_build(snapshot, mapping, file, path())
        }
    }
}

/// Accepts a file with the build ID of the module in memory.
fn same_build(
    snapshot: &dyn Snapshot,
    mapping: &Mapping,
    file: ElfFile,
    path: PathBuf,
) -> Result<ElfFile, FileProblem> {
    let mapped = snapshot
        .build_id_at(mapping)
        .ok()
        .and_then(|id| BuildId::new(&id));
    let on_disk = file.build_id();
    if mapped.is_some() && mapped == on_disk {
        return Ok(file);
    }
    Err(FileProblem::Replaced {
        path,
        mapped: mapped.map(Box::new),
        on_disk: on_disk.map(Box::new),
    })
}

/// The files of a core, at their present paths.
#[derive(Debug)]
pub struct CoreFiles<'c> {
    core: &'c Core,
    executable: Option<PathBuf>,
}

impl<'c> CoreFiles<'c> {
    /// Takes the files from their paths in the core; the executable from `executable` if given.
    ///
    /// # Errors
    ///
    /// The file given cannot be read, or is not the core's.
    pub fn new(core: &'c Core, executable: Option<PathBuf>) -> Result<Self, FileProblem> {
        let files = CoreFiles { core, executable };
        if files.executable.is_some()
            && let Some(program) = files.program()
        {
            files.file(program).map_err(|problem| match problem {
                FileProblem::Replaced {
                    path,
                    mapped,
                    on_disk,
                } => FileProblem::OtherProgram {
                    path,
                    mapped,
                    on_disk,
                },
                problem => problem,
            })?;
        }
        Ok(files)
    }

    /// The mapping of the program's entry point.
    fn program(&self) -> Option<&'c Mapping> {
        let entry = self.core.auxv().entry()?;
        self.core.mappings().find(entry)
    }

    fn is_executable(&self, mapping: &Mapping) -> bool {
        let program = self.program();
        program.is_some_and(|program| program.name == mapping.name)
    }
}

impl FileProvider for CoreFiles<'_> {
    fn file(&self, mapping: &Mapping) -> Result<ElfFile, FileProblem> {
        let given = self
            .executable
            .as_deref()
            .filter(|_| self.is_executable(mapping));
        let named = mapping.path().unwrap_or(Path::new(""));
        let path = given.unwrap_or(named);
        let file = ElfFile::open(path)?;
        // A core does not record inodes. Without a recorded build ID the path has to do.
        match self.core.build_id_at(mapping) {
            Ok(_) => same_build(self.core, mapping, file, path.to_path_buf()),
            Err(_) => Ok(file),
        }
    }
}
