//! A cache of file hashes: hashing a file of 150 MB takes longer than a backtrace.
//!
//! A file's hash is kept in the folder `keys` of the cache, with its device, inode, size and times
//! ([`ElfFile::stamp`]), which change if the file does. Hashes are kept and used only for files
//! that nobody but root and the user can write to. Other users could write to theirs through a
//! shared mapping, without a new time, or use a file system that reports false times. The hash's
//! file name is a number below [`MAX_HASHES`] made from device and inode, which bounds their count.
//! Of two files with the same number, the last one hashed is remembered.
//!
//! A hash from here only selects a file's table. Tables are kept under the hash of the very bytes
//! that they were made from ([`ElfFile::is_private`]).

use unspool_elf::{ContentKey, ElfFile, TableKey};
use unspool_files::{CacheError, CacheFolder, FileId, FileState};

/// Smaller files are hashed as fast as a hash is looked up.
const MIN_REMEMBERED_BYTES: u64 = 1 << 16;

/// The limit of remembered hashes: all numbers of three hexadecimal digits.
const MAX_HASHES: u64 = 0x1000;

/// A limit above the size of any hash's file, in bytes.
const MAX_LINE_BYTES: u64 = 256;

/// The hash of a file, as in [`ElfFile::content_hash`], through the cache.
pub(crate) fn content_hash(cache: Option<&CacheFolder>, file: &ElfFile) -> Option<[u8; 20]> {
    if let Some(hash) = known_hash(cache, file) {
        return Some(hash);
    }
    let hash = file.content_hash()?;
    if let (Some(cache), Some(state)) = (cache, telling_state(file)) {
        let _ = remember(cache, &state, &hash); // one that cannot be kept is computed again
    }
    Some(hash)
}

/// The same if it takes no time: for a small file, or a remembered hash.
pub(crate) fn known_hash(cache: Option<&CacheFolder>, file: &ElfFile) -> Option<[u8; 20]> {
    if file.is_hashed() || file.bytes().len() as u64 <= MIN_REMEMBERED_BYTES {
        return file.content_hash();
    }
    remembered(cache?, &telling_state(file)?)
}

/// The state of a file, if it certainly changes with the contents.
fn telling_state(file: &ElfFile) -> Option<FileState> {
    file.stamp()?;
    file.state()
}

fn remembered(cache: &CacheFolder, state: &FileState) -> Option<[u8; 20]> {
    let line = folder(cache).open(&slot(state)).ok()??.read(MAX_LINE_BYTES);
    read_line(str::from_utf8(&line.ok()?).ok()?, state)
}

fn remember(cache: &CacheFolder, state: &FileState, hash: &[u8; 20]) -> Result<(), CacheError> {
    let line = line(state, hash);
    let written = folder(cache).write(&slot(state), line.as_bytes());
    written.map(drop)
}

/// The folder of the hashes in a cache.
pub(crate) fn folder(cache: &CacheFolder) -> CacheFolder {
    cache.subfolder("keys", is_slot)
}

/// The file's name for the hash of a file in this state.
fn slot(state: &FileState) -> String {
    format!("{:03x}", (state.id.device ^ state.id.inode) % MAX_HASHES)
}

/// Whether a hash's file could have this name.
fn is_slot(name: &str) -> bool {
    name.len() == 3 && name.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// The content of a hash's file.
fn line(state: &FileState, hash: &[u8; 20]) -> String {
    format!("{} {}\n", stamp(state), ContentKey::Hash(*hash))
}

/// The hash, if the line is of a file in this state.
fn read_line(line: &str, state: &FileState) -> Option<[u8; 20]> {
    let rest = line.strip_prefix(&stamp(state))?;
    let key = TableKey::from_text(rest.strip_prefix(' ')?.strip_suffix('\n')?)?;
    key.build_id.is_none().then_some(key.content)
}

/// Text that changes if the file does.
fn stamp(state: &FileState) -> String {
    let FileState {
        id: FileId { device, inode },
        size,
        modified,
        changed,
    } = state;
    format!("{device:x} {inode:x} {size} {modified} {changed}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: FileState = FileState {
        id: FileId {
            device: 0xfe01,
            inode: 0x1234_5678,
        },
        size: 1 << 20,
        modified: 1_700_000_000_000_000_000,
        changed: 1_700_000_000_123_456_789,
    };

    const KEY: [u8; 20] = [0xc5; 20];

    const LINE: &str = "fe01 12345678 1048576 1700000000000000000 1700000000123456789 \
                        sha256-c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5\n";

    /// States that differ from [`STATE`] in one field.
    fn others() -> [FileState; 9] {
        let with = |change: fn(&mut FileState)| {
            let mut state = STATE;
            change(&mut state);
            state
        };
        [
            with(|state| state.id.device += 1),
            with(|state| state.id.inode += 1),
            // The same number, and so the same file name.
            with(|state| state.id.inode += MAX_HASHES),
            with(|state| state.size += 1),
            with(|state| state.size *= 10),
            with(|state| state.modified += 1),
            with(|state| state.modified -= 1_000_000_000),
            with(|state| state.changed += 1),
            with(|state| state.changed = -state.changed),
        ]
    }

    #[test]
    fn a_key_is_read_back_for_the_same_state_only() {
        assert_eq!(line(&STATE, &KEY), LINE);
        assert_eq!(read_line(LINE, &STATE), Some(KEY));
        for other in others() {
            assert_eq!(read_line(LINE, &other), None, "{other:?}");
        }
    }

    #[test]
    fn malformed_lines_are_ignored() {
        for end in 0..LINE.len() {
            assert_eq!(read_line(&LINE[..end], &STATE), None, "{end}");
        }
        for start in 1..LINE.len() {
            assert_eq!(read_line(&LINE[start..], &STATE), None, "{start}");
        }
        let bad = [
            LINE.replace("c5\n", "\n"),
            LINE.replace("c5\n", "c5c5\n"),
            LINE.replace("c5\n", "g5\n"),
            LINE.replace("sha256-", ""),
            LINE.replace("789 ", "789  "),
            format!("1{LINE}"),
            format!("1 {LINE}"),
            format!("{LINE}\n"),
            format!("{LINE}{LINE}"),
        ];
        for bad in bad {
            assert_eq!(read_line(&bad, &STATE), None, "{bad:?}");
        }
        assert!(LINE.len() < usize::try_from(MAX_LINE_BYTES).unwrap());
        let widest = FileState {
            id: FileId {
                device: u64::MAX,
                inode: u64::MAX,
            },
            size: u64::MAX,
            modified: i128::from(i64::MIN) * 1_000_000_000,
            changed: i128::from(i64::MIN) * 1_000_000_000,
        };
        assert!(line(&widest, &KEY).len() < usize::try_from(MAX_LINE_BYTES).unwrap());
    }

    #[test]
    fn there_are_so_many_files_and_no_more() {
        let slot = |device, inode| {
            let id = FileId { device, inode };
            let name = slot(&FileState { id, ..STATE });
            assert!(is_slot(&name), "{name}");
            name
        };
        let names: std::collections::BTreeSet<_> = (0..20_000).map(|n| slot(7, n)).collect();
        assert_eq!(names.len(), 4096);
        assert_ne!(slot(7, 1), slot(8, 1));
        for other in ["", "ff", "0fff", "0fg", "0ff.1.0.tmp", "é0"] {
            assert!(!is_slot(other), "{other}");
        }
    }
}
