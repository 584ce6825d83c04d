//! Folders with modules of other machines, found by their build IDs.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use unspool_elf::{BuildId, ElfFile};

/// The limit of files and folders looked at.
const MAX_ENTRIES: usize = 1 << 20;

/// Folders with ELF files of any name. They are searched once, when a file is first needed.
#[derive(Debug, Default)]
pub struct ModuleFolders {
    folders: Vec<PathBuf>,
    by_build_id: OnceCell<HashMap<BuildId, PathBuf>>,
}

impl ModuleFolders {
    /// The files in these folders, and in folders therein. Symbolic links are not followed.
    #[must_use]
    pub fn new(folders: Vec<PathBuf>) -> Self {
        ModuleFolders {
            folders,
            by_build_id: OnceCell::new(),
        }
    }

    /// The path of the file with a build ID. A debug file without the code is not one.
    #[must_use]
    pub(crate) fn find(&self, id: BuildId) -> Option<&Path> {
        let files = self.by_build_id.get_or_init(|| index(&self.folders));
        files.get(&id).map(PathBuf::as_path)
    }
}

fn index(folders: &[PathBuf]) -> HashMap<BuildId, PathBuf> {
    let mut files = HashMap::new();
    let mut folders = folders.to_vec();
    let mut left = MAX_ENTRIES;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Some(less) = left.checked_sub(1) else {
                return files;
            };
            left = less;
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => {
                    let id = module_id(&entry.path());
                    files.extend(id.map(|id| (id, entry.path())));
                }
                _ => {}
            }
        }
    }
    files
}

/// The build ID of a file that has code.
fn module_id(path: &Path) -> Option<BuildId> {
    let file = ElfFile::open(path).ok()?;
    let code = file.executable_ranges().into_iter().next()?;
    file.rest_at(code.start)?;
    file.build_id()
}
