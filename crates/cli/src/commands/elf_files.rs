//! The ELF files of folders.

use std::collections::HashSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use unspool_files::FileId;

/// The named files, and every ELF file in the named folders, each once; symbolic links in folders
/// are not followed. Also returns the folders that cannot be read.
pub(super) fn find(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<(PathBuf, anyhow::Error)>) {
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
                if metadata.is_file() && is_elf(&path) && seen.insert(FileId::new(&metadata)) {
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
    let mut magic = [0; 4];
    let read = unspool_files::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == *b"\x7fELF"
}
