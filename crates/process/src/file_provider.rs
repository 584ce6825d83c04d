//! The file behind a mapping, which a live process and a core file find in different ways.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use unspool_elf::{BuildId, ElfFile, ModuleError};
use unspool_rows::Unreadable;

use crate::OwnProcess;
#[cfg(feature = "ptrace")]
use crate::Process;
use crate::core_file::Core;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::loaded_objects::absolute;
use crate::maps::Mapping;
use crate::module_folders::ModuleFolders;
use crate::{FileIdentity, MappedFile, Snapshot};

/// Finds the file behind a mapping.
pub trait FileProvider {
    /// Opens the mapped file.
    ///
    /// # Errors
    ///
    /// There is no such file, or none that is certainly the same.
    fn file(&self, mapping: &Mapping) -> Result<ElfFile, FileProblem>;

    /// Opens a mapped file that is not a module, at its beginning; `None` unless it is certainly
    /// the mapped one.
    fn other_file(&self, _mapping: &Mapping) -> Option<File> {
        None
    }
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
    /// The file given as the core's program does not fit the addresses of the core.
    #[error("{}: it cannot be the program of this core: its segments are not at the core's addresses", path.display())]
    Unplaced {
        /// The path that was given.
        path: PathBuf,
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
        identified_file(self, mapping, self.open_mapped_file(mapping))
    }

    fn other_file(&self, mapping: &Mapping) -> Option<File> {
        crate::same_file(self.reader(), mapping)
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
impl FileProvider for OwnProcess {
    fn file(&self, mapping: &Mapping) -> Result<ElfFile, FileProblem> {
        identified_file(self, mapping, self.open_mapped_file(mapping))
    }
}

/// The file that a live process has mapped, if this is certain.
///
/// # Errors
///
/// It cannot be opened, or is not certainly the same.
pub(crate) fn identified_file(
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

/// Where the files of a core are.
#[derive(Debug, Default)]
pub struct FileSearch {
    /// The program's file, if it is not where the core says.
    pub executable: Option<PathBuf>,
    /// A copy of the file system that the process saw: paths in the core are below it.
    pub sysroot: Option<PathBuf>,
    /// Folders with files of any name, which are found by their build IDs.
    pub folders: ModuleFolders,
}

impl FileSearch {
    /// Opens the file that had a path in the process.
    pub(crate) fn open(&self, path: &Path) -> Result<ElfFile, ModuleError> {
        match &self.sysroot {
            Some(root) => ElfFile::open(root.join(path.strip_prefix("/").unwrap_or(path))),
            None => ElfFile::open(path),
        }
    }

    /// The path of a file in the folders.
    pub(crate) fn find(&self, id: BuildId) -> Option<PathBuf> {
        self.folders.find(id).map(Path::to_path_buf)
    }
}

/// The files of a core.
#[derive(Debug)]
pub struct CoreFiles<'c> {
    core: &'c Core,
    search: &'c FileSearch,
}

impl<'c> CoreFiles<'c> {
    /// Takes the files from where `search` says, after [`Core::find_objects`].
    ///
    /// # Errors
    ///
    /// The program given cannot be read, or is not the core's.
    pub fn new(core: &'c Core, search: &'c FileSearch) -> Result<Self, FileProblem> {
        let files = CoreFiles { core, search };
        if let Some(given) = &search.executable {
            let path = || given.clone();
            let program = files
                .program()
                .ok_or_else(|| FileProblem::Unplaced { path: path() })?;
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

    /// A mapping of the program: that of its entry point, or one with the given name.
    fn program(&self) -> Option<&'c Mapping> {
        let mappings = self.core.mappings();
        if let Some(entry) = self.core.auxv().entry() {
            return mappings.find(entry);
        }
        let given = absolute(self.search.executable.as_deref()?);
        let is_given = |mapping: &&Mapping| mapping.name.as_ref() == Some(&given);
        mappings.iter().find(is_given)
    }

    fn is_executable(&self, mapping: &Mapping) -> bool {
        let program = self.program();
        program.is_some_and(|program| program.name == mapping.name)
    }
}

impl FileProvider for CoreFiles<'_> {
    fn file(&self, mapping: &Mapping) -> Result<ElfFile, FileProblem> {
        let given = self.search.executable.as_deref();
        let given = given.filter(|_| self.is_executable(mapping));
        let named = mapping.path().unwrap_or(Path::new(""));
        let opened = given.map_or_else(|| self.search.open(named), ElfFile::open);
        // A core does not record inodes. Without a recorded build ID the path has to do.
        let id = self.core.build_id_at(mapping).ok();
        let file = opened.map_err(FileProblem::from).and_then(|file| match id {
            Some(_) => {
                let path = file.path().to_path_buf();
                same_build(self.core, mapping, file, path)
            }
            None => Ok(file),
        });
        let found = || {
            let id = id.as_deref().and_then(BuildId::new)?;
            ElfFile::open(self.search.find(id)?).ok()
        };
        file.or_else(|problem| found().filter(|_| given.is_none()).ok_or(problem))
    }
}
