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

use std::path::PathBuf;

use unspool_elf::{BuildId, TableKey};
use unspool_files::environment::{cache_home_path, variable};
use unspool_files::{CacheError, CacheFolder, RemovedFiles};

use crate::name_table::{AddressEntry, FrameEntry, FunctionEntry, NameTable, TextId, TextPool};

/// The cache name of the kernel's functions.
pub(crate) const KERNEL: &str = "kernel";

const MAGIC: [u8; 8] = *b"unspname";
const VERSION: u32 = 4;
/// The most addresses of a table to store.
const MAX_ADDRESSES: usize = 1 << 20;
/// The most bytes of all files together.
const MAX_CACHE_BYTES: u64 = 256 << 20;

/// Stores names between runs.
#[derive(Debug, Clone)]
pub struct NameCache(CacheFolder);

impl NameCache {
    /// The user's cache: `unspool/names` in `XDG_CACHE_HOME`, else in `~/.cache`. `None` if neither
    /// is set.
    #[must_use]
    pub fn from_environment() -> Option<Self> {
        let caches = cache_home_path(variable("XDG_CACHE_HOME"), variable("HOME"))?;
        let unspool = CacheFolder::new(caches.join("unspool"), is_name);
        Some(NameCache::in_folder(unspool.subfolder("names", is_name)))
    }

    /// Stores names in a folder, which is created when needed, with its parent.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        NameCache::in_folder(CacheFolder::new(folder, is_name))
    }

    fn in_folder(folder: CacheFolder) -> Self {
        NameCache(folder.with_limit(MAX_CACHE_BYTES))
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.0.path()
    }

    /// The modules with names: the number and size of their files.
    ///
    /// # Errors
    ///
    /// The folder cannot be read or trusted.
    pub fn size(&self) -> Result<(usize, u64), CacheError> {
        let files = self.0.entries()?;
        Ok((files.len(), files.iter().map(|file| file.size).sum()))
    }

    /// Removes all files.
    ///
    /// # Errors
    ///
    /// The folder cannot be read or trusted, or a file cannot be removed.
    pub fn clean(&self) -> Result<RemovedFiles, CacheError> {
        self.0.remove_all()
    }

    /// The names from those files.
    fn load(&self, key: &TableKey) -> Option<NameTable> {
        let name = key.to_string();
        decode(&self.read(&name)?, name.as_bytes())
    }

    /// Stores the names from those files. A failure only costs time later.
    fn keep(&self, key: &TableKey, table: &NameTable) -> Result<(), CacheError> {
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
        let file = self.0.open(name).ok()??;
        let bytes = file.read(MAX_CACHE_BYTES).ok()?;
        file.note_use();
        Some(bytes)
    }

    /// Stores bytes under a name, and replaces older ones.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), CacheError> {
        self.0.write(name, bytes).map(drop)
    }
}

/// Whether a file of the cache could have this name. Earlier versions used only the build ID.
fn is_name(name: &str) -> bool {
    name == KERNEL || TableKey::from_text(name).is_some() || BuildId::from_hex(name).is_some()
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
    pub(crate) fn keep(&self, table: &NameTable) -> Result<(), CacheError> {
        self.cache.keep(&self.key, table)
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
    use std::fs;
    use std::time::SystemTime;

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
    #[cfg_attr(miri, ignore = "changes modes of files")]
    fn one_of_many_builds_makes_room_and_strangers_files_stay() {
        let folder = std::env::temp_dir().join(format!("unspool-names-{}", std::process::id()));
        let cache = NameCache::new(folder.clone());
        let key = |byte| TableKey {
            build_id: BuildId::new(&[7; 20]),
            content: [byte; 20],
        };
        assert_eq!(cache.clean().unwrap(), RemovedFiles::default());
        cache.keep(&key(1), &table()).unwrap();
        cache.keep(&key(2), &table()).unwrap();
        assert_eq!(cache.load(&key(1)), Some(table()));
        assert_eq!(cache.load(&key(3)), None);
        // The least recently used file is removed first.
        let old = fs::File::options()
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
        let (count, bytes) = cache.size().unwrap();
        assert_eq!(count, 2);
        assert_eq!(cache.clean().unwrap(), RemovedFiles { count, bytes });
        assert!(folder.join("notes").exists());
        // They could have made the folder's names lead elsewhere, too.
        cache.keep(&key(1), &table()).unwrap();
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o722)).unwrap();
        assert!(cache.size().is_err() && cache.clean().is_err());
        assert!(path.exists());
        fs::remove_dir_all(folder).unwrap();
    }
}
