//! The ELF files, and others, of folders.

use std::collections::HashSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use unspool_files::FileId;

/// Folders that cannot be read.
pub(super) type UnreadableFolders = Vec<(PathBuf, anyhow::Error)>;

/// The named files, and every ELF file in the named folders, each once; symbolic links in folders
/// are not followed. Also returns the folders that cannot be read.
pub(super) fn find(paths: &[PathBuf]) -> (Vec<PathBuf>, UnreadableFolders) {
    find_those(paths, is_elf)
}

/// The same for another kind of files in folders.
pub(super) fn find_those(
    paths: &[PathBuf],
    is_wanted: fn(&Path) -> bool,
) -> (Vec<PathBuf>, UnreadableFolders) {
    let mut found = Vec::new();
    let mut unreadable = Vec::new();
    let mut seen = HashSet::new();
    let mut open: Vec<PathBuf> = paths.to_vec();
    while let Some(path) = open.pop() {
        let named = paths.contains(&path);
        let metadata = if named {
            fs::metadata(&path)
        } else {
            fs::symlink_metadata(&path)
        };
        match metadata {
            Ok(metadata) if metadata.is_dir() => match fs::read_dir(&path) {
                Ok(entries) => open.extend(entries.flatten().map(|entry| entry.path())),
                Err(error) => {
                    let error = anyhow!(error).context(format!("cannot read {}", path.display()));
                    unreadable.push((path, error));
                }
            },
            Ok(metadata) if !named => {
                if metadata.is_file() && is_wanted(&path) && seen.insert(FileId::new(&metadata)) {
                    found.push(path);
                }
            }
            Err(_) if !named => {} // It was removed in between.
            // Opening it reports any problem.
            Ok(metadata) => {
                seen.insert(FileId::new(&metadata));
                found.push(path);
            }
            Err(_) => found.push(path),
        }
    }
    found.sort();
    found.dedup();
    (found, unreadable)
}

pub(super) fn is_elf(path: &Path) -> bool {
    begins_with(path, *b"\x7fELF")
}

/// Whether a file begins with these bytes.
pub(super) fn begins_with<const N: usize>(path: &Path, wanted: [u8; N]) -> bool {
    let mut begin = [0; N];
    let read = unspool_files::open(path).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && begin == wanted
}
