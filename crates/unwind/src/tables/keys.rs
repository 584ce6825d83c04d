//! Content keys of files without build ID, remembered: the hash of a file of 150 MB takes longer
//! than a backtrace.
//!
//! A file's key is kept in the folder `keys` of the cache, with the file's device, inode, size and
//! times. Whoever writes to the file or replaces it changes one of these. The name of the key's
//! file is a number below [`SLOTS`] made from device and inode, so that there are never more; of
//! two files with the same number the one that was looked at last is remembered.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use unspool_module::{ContentKey, ElfFile, FileState};

use super::store::{self, StoreError};

/// Smaller files are hashed faster than a key is looked up.
const LARGE: u64 = 1 << 20;

/// How many keys are remembered: what three hexadecimal digits number.
const SLOTS: u64 = 0x1000;

/// A file that changed this shortly before could change again without another time: nanoseconds.
const SETTLED: i128 = 2 * SECOND;

const SECOND: i128 = 1_000_000_000;

/// More than a key's file has: bytes.
const MAX_LINE: u64 = 256;

/// The key of a file, as [`ElfFile::content_key`] has it, by way of the cache.
pub(super) fn content_key(cache: Option<&Path>, file: &ElfFile) -> ContentKey {
    // Decided before the file is read: what is written to it afterwards gets another time.
    let state = file.state().filter(|state| is_telling(state, now()));
    let (None, Some(cache), Some(state)) = (file.build_id(), cache, state) else {
        return file.content_key();
    };
    if let Some(key) = remembered(cache, &state) {
        return key;
    }
    let key = file.content_key();
    let _ = remember(cache, &state, &key); // a key that cannot be kept is computed again
    key
}

/// Whether a file is large, and in a state that would be another if its contents were: not if it
/// changed just now. Nor where times are in whole seconds, as in the image of a file system, which
/// is mounted in the place of another of its kind: times, inodes and sizes may all be equal there.
fn is_telling(state: &FileState, now: i128) -> bool {
    let changed = state.changed.max(state.modified);
    state.size >= LARGE && now - changed > SETTLED && state.changed % SECOND != 0
}

/// Nanoseconds since 1970.
fn now() -> i128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.ok().and_then(|now| i128::try_from(now.as_nanos()).ok());
    now.unwrap_or_default()
}

fn remembered(cache: &Path, state: &FileState) -> Option<ContentKey> {
    let (folder, path) = place(cache, state);
    let is_trusted = |folder| store::is_trusted_folder(folder).ok();
    if !(is_trusted(cache)? && is_trusted(&folder)?) {
        return None;
    }
    let file = store::open_trusted(&path).ok()??;
    let mut line = String::new();
    file.take(MAX_LINE).read_to_string(&mut line).ok()?;
    read_line(&line, state)
}

fn remember(cache: &Path, state: &FileState, key: &ContentKey) -> Result<(), StoreError> {
    let (folder, path) = place(cache, state);
    store::make_folder(cache)?;
    store::make_folder(&folder)?;
    store::write_atomically(&path, |file| file.write_all(line(state, key).as_bytes()))
}

/// Removes all keys of a cache.
pub(super) fn forget_all(cache: &Path) -> Result<(), StoreError> {
    let folder = folder(cache);
    if !store::is_trusted_folder(&folder)? {
        return Ok(());
    }
    for file in store::files(&folder, is_slot)? {
        store::remove(&file.path)?;
    }
    Ok(())
}

/// The folder of the keys in a cache.
pub(super) fn folder(cache: &Path) -> PathBuf {
    cache.join("keys")
}

/// The folder and the file that remember the key of a file in this state.
fn place(cache: &Path, state: &FileState) -> (PathBuf, PathBuf) {
    let folder = folder(cache);
    let path = folder.join(format!("{:03x}", (state.device ^ state.inode) % SLOTS));
    (folder, path)
}

/// Whether a key's file could have this name.
pub(super) fn is_slot(name: &str) -> bool {
    name.len() == 3 && name.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// What a key's file holds.
fn line(state: &FileState, key: &ContentKey) -> String {
    format!("{} {key}\n", stamp(state))
}

/// The key, if the line is of a file in this state.
fn read_line(line: &str, state: &FileState) -> Option<ContentKey> {
    let rest = line.strip_prefix(&stamp(state))?;
    ContentKey::hash_from_text(rest.strip_prefix(' ')?.strip_suffix('\n')?)
}

/// What tells that a file is still the same.
fn stamp(state: &FileState) -> String {
    let FileState {
        device,
        inode,
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
        device: 0xfe01,
        inode: 0x1234_5678,
        size: LARGE,
        modified: 1_700_000_000_000_000_000,
        changed: 1_700_000_000_123_456_789,
    };

    const KEY: ContentKey = ContentKey::Hash([0xc5; 20]);

    const LINE: &str = "fe01 12345678 1048576 1700000000000000000 1700000000123456789 \
                        sha256-c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5c5\n";

    /// States that differ from [`STATE`] in one thing.
    fn others() -> [FileState; 9] {
        let with = |change: fn(&mut FileState)| {
            let mut state = STATE;
            change(&mut state);
            state
        };
        [
            with(|state| state.device += 1),
            with(|state| state.inode += 1),
            // The same number, and so the same file name.
            with(|state| state.inode += SLOTS),
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
    fn what_is_no_such_line_is_not_believed() {
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
        assert!(LINE.len() < usize::try_from(MAX_LINE).unwrap());
        let widest = FileState {
            device: u64::MAX,
            inode: u64::MAX,
            size: u64::MAX,
            modified: i128::from(i64::MIN) * SECOND,
            changed: i128::from(i64::MIN) * SECOND,
        };
        assert!(line(&widest, &KEY).len() < usize::try_from(MAX_LINE).unwrap());
    }

    #[test]
    fn a_state_tells_enough_if_the_file_is_large_and_settled() {
        let after = |nanoseconds| STATE.changed + nanoseconds;
        assert!(is_telling(&STATE, after(SETTLED + 1)));
        assert!(!is_telling(&STATE, after(SETTLED)), "changed just now");
        assert!(!is_telling(&STATE, after(0)));
        assert!(!is_telling(&STATE, after(-1)), "changed in the future");
        assert!(!is_telling(&STATE, 0), "no clock");
        let small = FileState {
            size: LARGE - 1,
            ..STATE
        };
        assert!(!is_telling(&small, after(SETTLED + 1)));
        let written = FileState {
            modified: STATE.changed + 10,
            ..STATE
        };
        assert!(
            !is_telling(&written, after(SETTLED + 10)),
            "either time counts"
        );
        assert!(is_telling(&written, after(SETTLED + 11)));
        let coarse = FileState {
            changed: STATE.modified,
            ..STATE
        };
        assert!(!is_telling(&coarse, after(SETTLED + 1)), "whole seconds");
    }

    #[test]
    fn there_are_so_many_files_and_no_more() {
        let slot = |device, inode| {
            let state = FileState {
                device,
                inode,
                ..STATE
            };
            let (folder, path) = place(Path::new("/cache"), &state);
            assert_eq!(folder, Path::new("/cache/keys"));
            let name = path
                .strip_prefix(folder)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
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
