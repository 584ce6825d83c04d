//! Cached names: `$XDG_CACHE_HOME/unspool/names/BUILDID-HASH`, for the files with the
//! [key](unspool_elf::DebugFiles::key) of that name; and those of the kernel, `names/kernel` (see
//! [`crate::kernel`]).
//!
//! A file of a build holds one [`NameTable`], little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `unspname` |
//! | 4 | the version, 3 |
//! | 4 | the size of the key's text in bytes |
//! | 5 × 4 | how many entries, functions, frames, texts, and bytes of text there are |
//! | | the key, as the file's name has it |
//! | 20 each | entries: address (8), function, first frame, number of frames |
//! | 24 each | functions: name (0: it has none), address (8), size (8), hash of the mangled name |
//! | 16 each | frames: function, file, line, column |
//! | 4 each | texts: where each ends |
//! | | the texts, one behind another |
//! | 4 | the CRC-32 of all that |
//!
//! A file of another version, for other files, or with a wrong checksum is not used; the next
//! stored table replaces it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use unspool_elf::{BuildId, TableKey, variable};
use unspool_files::is_untrusted;

use crate::name_table::{AddressEntry, FrameEntry, FunctionEntry, NameTable, TextId, TextPool};

/// The cache name of the kernel's functions.
pub(crate) const KERNEL: &str = "kernel";

const MAGIC: [u8; 8] = *b"unspname";
const VERSION: u32 = 3;
/// The most addresses of a table to store.
const MAX_ADDRESSES: usize = 1 << 20;
/// The size of the largest file to read, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// The most bytes of all files together.
const MAX_CACHE_BYTES: u64 = 256 << 20;
/// The granularity of the time of last use.
const USE_TIME_GRANULARITY: Duration = Duration::from_secs(24 * 60 * 60);

/// Stores names between runs.
#[derive(Debug, Clone)]
pub struct NameCache {
    folder: PathBuf,
}

impl NameCache {
    /// The user's cache: `unspool/names` in `XDG_CACHE_HOME`, else in `~/.cache`. `None` if neither
    /// is set.
    #[must_use]
    pub fn from_environment() -> Option<Self> {
        let folder = |name: &str| variable(name).map(PathBuf::from);
        let absolute = |path: Option<PathBuf>| path.filter(|path| path.is_absolute());
        let home = || Some(absolute(folder("HOME"))?.join(".cache"));
        let caches = absolute(folder("XDG_CACHE_HOME")).or_else(home)?;
        Some(NameCache::new(caches.join("unspool/names")))
    }

    /// Stores names in a folder, which is created when needed, with its two parents.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        NameCache { folder }
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The number of modules with names, and the size of their files in bytes.
    ///
    /// # Errors
    ///
    /// The folder cannot be read.
    pub fn size(&self) -> io::Result<(usize, u64)> {
        let files = self.files()?;
        Ok((files.len(), files.iter().map(|file| file.size).sum()))
    }

    /// Removes all files; returns their number and size in bytes.
    ///
    /// # Errors
    ///
    /// The folder cannot be read, or a file cannot be removed.
    pub fn clean(&self) -> io::Result<(usize, u64)> {
        let (mut count, mut bytes) = (0, 0);
        for file in self.files()? {
            fs::remove_file(&file.path)?;
            count += 1;
            bytes += file.size;
        }
        Ok((count, bytes))
    }

    /// The names from those files.
    fn load(&self, key: &TableKey) -> Option<NameTable> {
        let name = key.to_string();
        decode(&self.read(&name)?, name.as_bytes())
    }

    /// Stores the names from those files. A failure only costs time later.
    fn keep(&self, key: &TableKey, table: &NameTable) -> io::Result<()> {
        if table.entries.len() > MAX_ADDRESSES {
            return Ok(());
        }
        let name = key.to_string();
        match encode(table, name.as_bytes()) {
            Some(bytes) => self.write(&name, &bytes),
            None => Ok(()),
        }
    }

    /// The bytes stored under a name, if no other user can have written them.
    pub(crate) fn read(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.folder.join(name);
        if is_untrusted(&fs::symlink_metadata(&self.folder).ok()?) {
            return None;
        }
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = opened.ok()?;
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() || is_untrusted(&metadata) || metadata.len() > MAX_FILE_BYTES {
            return None;
        }
        let mut bytes = Vec::new();
        (&file).take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        let age = metadata
            .modified()
            .ok()
            .and_then(|time| time.elapsed().ok());
        if age.is_none_or(|age| age > USE_TIME_GRANULARITY) {
            // Without this it counts as unused.
            let _ = file.set_modified(SystemTime::now());
        }
        Some(bytes)
    }

    /// Stores bytes under a name, and replaces older ones.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        make_folder(&self.folder)?;
        self.make_room(bytes.len() as u64)?;
        let path = self.folder.join(name);
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let temporary = format!("{name}.{}.{count}", std::process::id());
        let temporary = self.folder.join(temporary);
        let mut options = OpenOptions::new();
        let written = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file: File| file.write_all(bytes))
            .and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Removes the least recently used files, until there is room for this many more bytes.
    fn make_room(&self, bytes: u64) -> io::Result<()> {
        let mut files = self.files()?;
        files.sort_by_key(|file| file.used);
        let mut total = files
            .iter()
            .fold(bytes, |sum, file| sum.saturating_add(file.size));
        for file in files {
            if total <= MAX_CACHE_BYTES {
                break;
            }
            fs::remove_file(&file.path)?;
            total -= file.size;
        }
        Ok(())
    }

    /// The folder's files with names of this cache.
    fn files(&self) -> io::Result<Vec<CacheFile>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_str().and_then(|name| name.split('.').next());
            let Ok(metadata) = entry.metadata() else {
                continue; // Removed in between.
            };
            // Earlier versions used only the build ID as the name.
            let is_build = |name| BuildId::from_hex(name).is_some();
            let is_kept = name.is_some_and(|name| {
                name == KERNEL || TableKey::from_text(name).is_some() || is_build(name)
            });
            if is_kept && metadata.is_file() {
                files.push(CacheFile {
                    path: entry.path(),
                    size: metadata.len(),
                    used: metadata.modified()?,
                });
            }
        }
        Ok(files)
    }
}

/// The cache entry of one module.
#[derive(Debug)]
pub(crate) struct NameCacheEntry {
    pub(crate) cache: NameCache,
    /// The key of the files that it is for.
    pub(crate) key: TableKey,
}

impl NameCacheEntry {
    /// The stored names.
    pub(crate) fn load(&self) -> Option<NameTable> {
        self.cache.load(&self.key)
    }

    /// Stores names, and replaces older ones.
    pub(crate) fn keep(&self, table: &NameTable) -> io::Result<()> {
        self.cache.keep(&self.key, table)
    }
}

/// A file of the cache.
struct CacheFile {
    path: PathBuf,
    size: u64,
    used: SystemTime,
}

/// Whether it belongs to this user or root.
fn is_ours(metadata: &fs::Metadata) -> bool {
    // The owner of this folder is the effective user.
    let user = fs::metadata("/proc/self").map(|own| own.uid());
    metadata.uid() == 0 || user.is_ok_and(|user| metadata.uid() == user)
}

/// Creates a cache folder and its two parents, for the user alone. Folders above those are not
/// created: for example, a home. Nor is one created in another user's home, which `sudo` may keep:
/// files of root would obstruct that user.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    let existing = folder.ancestors().find_map(|path| fs::metadata(path).ok());
    if existing.is_some_and(|existing| !is_ours(&existing)) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let named = |path: &&Path| !path.as_os_str().is_empty();
    let mut made: Vec<&Path> = folder.ancestors().filter(named).take(3).collect();
    made.reverse();
    for path in made {
        match DirBuilder::new().mode(0o700).create(path) {
            // A parent may be anywhere, and need not be writable.
            Err(_) if path.is_dir() => {}
            created => created?,
        }
    }
    // Another process may have been faster.
    match is_untrusted(&fs::metadata(folder)?) {
        true => Err(io::ErrorKind::PermissionDenied.into()),
        false => Ok(()),
    }
}

/// The bytes of a table; `None` if a count does not fit 32 bits.
fn encode(table: &NameTable, stamp: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = MAGIC.to_vec();
    let counts = [
        stamp.len(),
        table.entries.len(),
        table.functions.len(),
        table.frames.len(),
        table.texts.ends.len(),
        table.texts.bytes.len(),
    ];
    bytes.extend(VERSION.to_le_bytes());
    for count in counts {
        bytes.extend(u32::try_from(count).ok()?.to_le_bytes());
    }
    bytes.extend(stamp);
    for entry in &table.entries {
        bytes.extend(entry.address.to_le_bytes());
        for number in [entry.function, entry.first, entry.count] {
            bytes.extend(number.to_le_bytes());
        }
    }
    for function in &table.functions {
        bytes.extend(function.name.0.to_le_bytes());
        bytes.extend(function.address.to_le_bytes());
        bytes.extend(function.size.to_le_bytes());
        bytes.extend(function.symbol_hash.to_le_bytes());
    }
    for frame in &table.frames {
        for number in [frame.function.0, frame.file.0, frame.line, frame.column] {
            bytes.extend(number.to_le_bytes());
        }
    }
    for end in &table.texts.ends {
        bytes.extend(end.to_le_bytes());
    }
    bytes.extend(table.texts.bytes.as_bytes());
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    Some(bytes)
}

/// Decodes a table from [`encode`] with the same stamp.
fn decode(bytes: &[u8], stamp: &[u8]) -> Option<NameTable> {
    let (content, checksum) = bytes.split_last_chunk()?;
    let mut rest = CacheReader(content);
    if rest.array()? != MAGIC || rest.u32()? != VERSION {
        return None;
    }
    let stamp_size = rest.count()?;
    let [entries, functions, frames, texts, text] = [(); 5].map(|()| rest.count());
    if rest.bytes(stamp_size)? != stamp || crc32fast::hash(content) != u32::from_le_bytes(*checksum)
    {
        return None;
    }
    let table = NameTable {
        entries: rest.all(entries?, CacheReader::entry)?,
        functions: rest.all(functions?, CacheReader::function)?,
        frames: rest.all(frames?, CacheReader::frame)?,
        texts: TextPool {
            ends: rest.all(texts?, CacheReader::u32)?,
            bytes: String::from_utf8(rest.bytes(text?)?.to_vec()).ok()?,
        },
    };
    rest.0.is_empty().then_some(table)
}

/// The remaining bytes.
pub(crate) struct CacheReader<'a>(pub(crate) &'a [u8]);

impl<'a> CacheReader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn count(&mut self) -> Option<usize> {
        usize::try_from(self.u32()?).ok()
    }

    /// A number of items, each at least a byte long.
    pub(crate) fn all<T>(
        &mut self,
        count: usize,
        one: impl Fn(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let mut list = Vec::with_capacity(count.min(self.0.len()));
        for _ in 0..count {
            list.push(one(self)?);
        }
        Some(list)
    }

    fn entry(&mut self) -> Option<AddressEntry> {
        Some(AddressEntry {
            address: self.u64()?,
            function: self.u32()?,
            first: self.u32()?,
            count: self.u32()?,
        })
    }

    fn function(&mut self) -> Option<FunctionEntry> {
        Some(FunctionEntry {
            name: TextId(self.u32()?),
            address: self.u64()?,
            size: self.u64()?,
            symbol_hash: self.u32()?,
        })
    }

    fn frame(&mut self) -> Option<FrameEntry> {
        Some(FrameEntry {
            function: TextId(self.u32()?),
            file: TextId(self.u32()?),
            line: self.u32()?,
            column: self.u32()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use unspool_elf::InlineFrame;
    use unspool_rows::Vaddr;

    use super::*;
    use crate::name_table::{CodeName, NameTableBuilder};

    fn table() -> NameTable {
        let mut builder = NameTableBuilder::default();
        let frame = |function: &str, line, column| InlineFrame {
            function: Some(function.to_owned()),
            file: Some("a.c".to_owned()),
            line,
            column,
        };
        builder.add(
            Vaddr(0x20),
            &CodeName::Unknown,
            &[frame("né", Some(7), Some(0))],
        );
        let frames = [frame("inner", None, None), frame("outer", Some(1), Some(2))];
        builder.add(
            Vaddr(0x10),
            &CodeName::Unnamed(Vaddr(0x8)..Vaddr(0x18)),
            &frames,
        );
        builder.add(Vaddr(0x30), &CodeName::Unknown, &[]);
        builder.finish()
    }

    #[test]
    fn cached_tables_read_back() {
        let table = table();
        let bytes = encode(&table, b"stamp").unwrap();
        assert_eq!(decode(&bytes, b"stamp"), Some(table));
        assert_eq!(decode(&bytes, b"other"), None);
        let empty = encode(&NameTable::default(), b"").unwrap();
        assert_eq!(decode(&empty, b""), Some(NameTable::default()));
    }

    #[test]
    fn a_damaged_file_is_not_used() {
        let bytes = encode(&table(), b"stamp").unwrap();
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length], b"stamp"), None, "{length} bytes");
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x41;
            assert_eq!(decode(&bytes, b"stamp"), None, "byte {at}");
        }
    }

    #[test]
    fn numbers_that_lead_nowhere_are_no_names() {
        // Tampered content with a corrected checksum.
        let mut table = table();
        table.entries[0].first = u32::MAX;
        table.entries[0].count = u32::MAX;
        table.entries[1].function = 9;
        table.frames[0].function = TextId(77);
        table.texts.ends[1] = u32::MAX;
        let table = decode(&encode(&table, b"").unwrap(), b"").unwrap();
        for address in [0x10, 0x20, 0x30] {
            let name = table.get(Vaddr(address)).unwrap();
            assert!(name.frames().all(|frame| frame.function.is_none()));
        }
    }

    #[test]
    fn no_home_is_made() {
        let home = std::env::temp_dir().join(format!("unspool-home-{}", std::process::id()));
        let folder = home.join(".cache/unspool/names");
        let refused = make_folder(&folder).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        assert!(!home.exists());
        fs::create_dir(&home).unwrap();
        make_folder(&folder).unwrap();
        make_folder(&folder).unwrap();
        assert!(folder.is_dir());
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn one_of_many_builds_makes_room_and_strangers_files_stay() {
        let folder = std::env::temp_dir().join(format!("unspool-names-{}", std::process::id()));
        let cache = NameCache::new(folder.clone());
        let key = |byte| TableKey {
            build_id: BuildId::new(&[7; 20]),
            content: [byte; 20],
        };
        assert_eq!(cache.clean().unwrap(), (0, 0));
        cache.keep(&key(1), &table()).unwrap();
        cache.keep(&key(2), &table()).unwrap();
        assert_eq!(cache.load(&key(1)), Some(table()));
        assert_eq!(cache.load(&key(3)), None);
        // The least recently used file is removed first.
        let old = File::options()
            .append(true)
            .open(folder.join(key(2).to_string()));
        let old = old.unwrap();
        old.set_len(MAX_CACHE_BYTES).unwrap();
        old.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        fs::write(folder.join("notes"), "").unwrap();
        cache.keep(&key(4), &table()).unwrap();
        assert!(cache.load(&key(1)).is_some() && cache.load(&key(4)).is_some());
        assert!(!folder.join(key(2).to_string()).exists());
        // Other users could have written this file.
        let path = folder.join(key(1).to_string());
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o622)).unwrap();
        assert_eq!(cache.load(&key(1)), None);
        let kept = cache.size().unwrap();
        assert_eq!(kept.0, 2);
        assert_eq!(cache.clean().unwrap(), kept);
        assert!(folder.join("notes").exists());
        fs::remove_dir_all(folder).unwrap();
    }
}
