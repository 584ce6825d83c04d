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

/// Whether a file is large enough, and its state would change with its contents: not if it
/// changed just now, and not on a file system that counts whole seconds, or an image of one whose
/// times all are set to the same.
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
    store::remove_leftovers(&folder);
    for file in store::files(&folder)? {
        let name = file.path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(is_slot) {
            store::remove(&file.path)?;
        }
    }
    Ok(())
}

fn folder(cache: &Path) -> PathBuf {
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
