//! Perf maps: the text file in which a process names the code that it generates at run time.
//!
//! Each line is `START SIZE NAME`, with hexadecimal numbers; a name may contain blanks. A later
//! line replaces whatever it overlaps.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use unspool_files::trust::is_owned_by;
use unspool_rows::RuntimeAddr;

use crate::live_code::LiveCode;

/// The most bytes to read of a file.
const MAX_TEXT_BYTES: u64 = 256 << 20;

/// The longest line, in bytes.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// The most names in memory, in bytes.
const MAX_NAME_BYTES: usize = 32 << 20;

/// The most lines in memory.
const MAX_ENTRIES: usize = 1 << 19;

/// The names of a process's generated code.
#[derive(Debug, Default)]
pub struct PerfMap {
    live: LiveCode,
    entries: Vec<PerfMapEntry>,
    names: String,
    bad_lines: usize,
    is_cut: bool,
}

#[derive(Debug, Clone, Copy)]
struct PerfMapEntry {
    start: u64,
    size: u64,
    name: usize,
    length: usize,
}

/// Generated code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JitSymbol<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its first address.
    pub address: RuntimeAddr,
    /// Its size in bytes.
    pub size: u64,
}

/// Why a perf map is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfMapError {
    /// It cannot be read. Most processes have none.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Its owner is neither the process's user nor root: any user can write into `/tmp`.
    #[error("{}: not the file of this process: it is of user {owner}", path.display())]
    Untrusted {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
}

/// The path of a process's perf map, if it writes one: readable after the process has exited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerfMapLocation {
    path: PathBuf,
    user: u32,
}

impl PerfMapLocation {
    /// The path for a running process: in `/tmp` under its root, to which `root` leads, with its
    /// PID in its own namespace.
    ///
    /// # Errors
    ///
    /// The process has exited, or may not be inspected.
    pub fn from_process(pid: u32, root: &Path) -> Result<PerfMapLocation, PerfMapError> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let failed = |error| PerfMapError::Io {
            path: process.clone(),
            error,
        };
        let status = fs::read_to_string(process.join("status")).map_err(failed)?;
        let inner = inner_pid(&status).unwrap_or(pid);
        Ok(PerfMapLocation {
            path: root.join(format!("tmp/perf-{inner}.map")),
            user: fs::metadata(&process).map_err(failed)?.uid(),
        })
    }

    /// Reads the map.
    ///
    /// # Errors
    ///
    /// As for [`PerfMap::open`].
    pub fn read(&self) -> Result<PerfMap, PerfMapError> {
        PerfMap::open(&self.path, self.user)
    }

    /// Reads the part of the map that names these addresses, in memory for their names.
    ///
    /// # Errors
    ///
    /// As for [`PerfMap::open`].
    pub fn read_for(
        &self,
        addresses: impl IntoIterator<Item = RuntimeAddr>,
    ) -> Result<PerfMap, PerfMapError> {
        let mut wanted: Vec<u64> = addresses.into_iter().map(|address| address.0).collect();
        wanted.sort_unstable();
        PerfMap::read(&self.path, self.user, Some(&wanted))
    }
}

impl PerfMap {
    /// Reads the perf map of a running process: in its own `/tmp`, with its PID in its own
    /// namespace.
    ///
    /// # Errors
    ///
    /// [`PerfMapError`]; [`io::ErrorKind::NotFound`] if it has none.
    pub fn from_process(pid: u32) -> Result<PerfMap, PerfMapError> {
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        PerfMapLocation::from_process(pid, &root)?.read()
    }

    /// Reads a perf map that must belong to a user, or to root.
    ///
    /// # Errors
    ///
    /// [`PerfMapError`].
    pub fn open(path: &Path, user: u32) -> Result<PerfMap, PerfMapError> {
        PerfMap::read(path, user, None)
    }

    fn read(path: &Path, user: u32, wanted: Option<&[u64]>) -> Result<PerfMap, PerfMapError> {
        let file = open_file(path, user)?;
        let failed = |error| PerfMapError::Io {
            path: path.to_path_buf(),
            error,
        };
        let size = file.metadata().map_err(failed)?.len();
        let text = BufReader::new(file.take(MAX_TEXT_BYTES));
        let mut map = PerfMap::from_lines(text, wanted).map_err(failed)?;
        map.is_cut |= size > MAX_TEXT_BYTES;
        Ok(map)
    }

    /// Reads the text of a perf map. Invalid lines are counted and skipped.
    #[must_use]
    pub fn from_text(text: &[u8]) -> PerfMap {
        // Memory can be read.
        PerfMap::from_lines(text, None).unwrap_or_default()
    }

    /// Reads lines; if some addresses are `wanted`, ascending, only those with code there.
    fn from_lines(mut text: impl BufRead, wanted: Option<&[u64]>) -> io::Result<PerfMap> {
        let mut map = PerfMap::default();
        let max_entries = MAX_ENTRIES.min(wanted.map_or(MAX_ENTRIES, |all| 2 * all.len() + 64));
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut limited = text.by_ref().take(MAX_LINE_BYTES);
            if limited.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let is_whole = limited.limit() > 0 || line.ends_with(b"\n");
            if !is_whole {
                text.skip_until(b'\n')?;
            }
            let content = line.trim_ascii();
            if !content.is_empty() && (!is_whole || map.add(content, wanted).is_none()) {
                map.bad_lines += 1;
            }
            let is_full = |map: &PerfMap, quarters: usize| {
                map.entries.len() >= max_entries / 4 * quarters
                    || map.names.len() >= MAX_NAME_BYTES / 4 * quarters
            };
            if is_full(&map, 4) {
                map.compact(wanted);
                // With less room, most of the time would be spent on this.
                map.is_cut = is_full(&map, 3);
            }
            if map.is_cut {
                break;
            }
        }
        Ok(map)
    }

    fn add(&mut self, line: &[u8], wanted: Option<&[u64]>) -> Option<()> {
        let (start, rest) = split_word(line)?;
        let (size, name) = split_word(rest)?;
        let (start, size) = (hexadecimal(start)?, hexadecimal(size)?);
        let name = String::from_utf8_lossy(name.trim_ascii());
        if name.is_empty() {
            return None;
        }
        let is_wanted = wanted.is_none_or(|wanted| {
            let first = wanted.partition_point(|address| *address < start);
            let first = wanted.get(first);
            first.is_some_and(|address| *address < start.saturating_add(size))
        });
        if is_wanted {
            self.push(start, size, &name);
        }
        Some(())
    }

    fn push(&mut self, start: u64, size: u64, name: &str) {
        self.live.add(start, size, self.entries.len());
        self.entries.push(PerfMapEntry {
            start,
            size,
            name: self.names.len(),
            length: name.len(),
        });
        self.names.push_str(name);
    }

    /// Forgets lines that later ones have replaced, at all addresses or at those `wanted`.
    fn compact(&mut self, wanted: Option<&[u64]>) {
        let mut numbers: Vec<usize> = match wanted {
            Some(wanted) => wanted
                .iter()
                .filter_map(|address| self.live.get(*address))
                .collect(),
            None => self.live.numbers().collect(),
        };
        numbers.sort_unstable();
        numbers.dedup();
        let mut rest = PerfMap {
            bad_lines: self.bad_lines,
            ..PerfMap::default()
        };
        for entry in numbers
            .into_iter()
            .filter_map(|number| self.entries.get(number))
        {
            let name = self.names.get(entry.name..entry.name + entry.length);
            rest.push(entry.start, entry.size, name.unwrap_or_default());
        }
        *self = rest;
    }

    /// The code at an address.
    #[must_use]
    pub fn get(&self, address: RuntimeAddr) -> Option<JitSymbol<'_>> {
        let entry = self.entries.get(self.live.get(address.0)?)?;
        Some(JitSymbol {
            name: self.names.get(entry.name..entry.name + entry.length)?,
            address: RuntimeAddr(entry.start),
            size: entry.size,
        })
    }

    /// The number of lines that name code, as far as they are needed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of invalid lines. The last one may be incomplete.
    #[must_use]
    pub fn bad_lines(&self) -> usize {
        self.bad_lines
    }

    /// Whether the rest was not read: the file is longer than 256 MiB, or has too many names.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}

/// The PID of a process in its innermost namespace, from the text of `/proc/PID/status`.
fn inner_pid(status: &str) -> Option<u32> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

fn open_file(path: &Path, user: u32) -> Result<File, PerfMapError> {
    let failed = |error| PerfMapError::Io {
        path: path.to_path_buf(),
        error,
    };
    // This refuses pipes, on which the open would block, and links to files that only we may read.
    let file = unspool_files::open_no_link(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let owner = metadata.uid();
    if is_owned_by(user, owner) {
        return Ok(file);
    }
    Err(PerfMapError::Untrusted {
        path: path.to_path_buf(),
        owner,
    })
}

/// The first word of a line, and the rest.
fn split_word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = line.iter().position(u8::is_ascii_whitespace)?;
    let (word, rest) = line.split_at_checked(end)?;
    Some((word, rest.trim_ascii_start()))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    // A sign is not a digit.
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(map: &PerfMap, address: u64) -> &str {
        map.get(RuntimeAddr(address))
            .map_or("-", |symbol| symbol.name)
    }

    #[test]
    fn names_with_blanks_and_code_that_took_the_place_of_other_code() {
        let map = PerfMap::from_text(
            b"1000 100 LazyCompile:~f /a b.js:1\n0x1080 0x10 Stub\r\n2000 0 empty\n1100 8 last",
        );
        assert_eq!(name(&map, 0x1000), "LazyCompile:~f /a b.js:1");
        assert_eq!(name(&map, 0x1080), "Stub");
        assert_eq!(name(&map, 0x1090), "LazyCompile:~f /a b.js:1");
        assert_eq!(name(&map, 0x1100), "last");
        for nothing in [0xfff, 0x1108, 0x2000] {
            assert_eq!(name(&map, nothing), "-", "at {nothing:#x}");
        }
        let symbol = map.get(RuntimeAddr(0x1090)).unwrap();
        assert_eq!((symbol.address.0, symbol.size), (0x1000, 0x100));
        assert_eq!((map.len(), map.bad_lines()), (4, 0));
    }

    /// Whoever writes a perf map may name the same code without end.
    #[test]
    #[cfg_attr(miri, ignore = "100,000 lines take hours")]
    fn names_of_wanted_addresses_take_bounded_memory() {
        let mut text = String::new();
        for number in 0..100_000_u64 {
            let (start, size) = (number * 7919 % 4096, number % 64);
            text += &format!("{start:x} {size:x} f{number}\n");
        }
        let all = PerfMap::from_text(text.as_bytes());
        let wanted: Vec<u64> = (0..4200).step_by(50).collect();
        let some = PerfMap::from_lines(text.as_bytes(), Some(&wanted)).unwrap();
        for address in &wanted {
            assert_eq!(name(&some, *address), name(&all, *address), "{address:#x}");
        }
        assert!(all.len() == 100_000 && some.len() < 300, "{}", some.len());
        assert!(!some.is_cut() && some.names.len() < 3000);
        // A name that is longer than a line may be.
        let text = format!("0 10 {}\n10 10 g\n", "f".repeat(1 << 17));
        let map = PerfMap::from_text(text.as_bytes());
        assert_eq!((map.len(), map.bad_lines(), name(&map, 0x10)), (1, 1, "g"));
    }

    #[test]
    fn lines_that_are_none_are_counted() {
        let text = b"1000 10 good\nbad\n1000\n1000 10\n1000 10 \n-1 10 a\n+1 10 a\nx 10 a\n\
                     11112222333344445 1 a\n\n\xff\xff\n2000 10 \xff\xfe\n";
        let map = PerfMap::from_text(text);
        assert_eq!((map.len(), map.bad_lines()), (2, 9));
        assert_eq!(name(&map, 0x2000), "\u{fffd}\u{fffd}");
        assert_eq!(name(&map, 0x1000), "good");
    }

    #[test]
    fn the_number_in_the_innermost_namespace() {
        assert_eq!(
            inner_pid("Name:\tx\nNSpid:\t1234\t17\t1\nNSpgid:\t1\n"),
            Some(1)
        );
        assert_eq!(inner_pid("NSpid:\t1234\n"), Some(1234));
        assert_eq!(inner_pid("Pid:\t1\n"), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs owners of files")]
    fn a_file_that_others_could_have_put_there() {
        let folder = std::env::temp_dir().join(format!("unspool-perf-map-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("perf-1.map");
        fs::write(&file, "10 10 a\n").unwrap();
        let owner = fs::metadata(&file).unwrap().uid();
        assert_eq!(PerfMap::open(&file, owner).unwrap().len(), 1);
        if owner != 0 {
            let refused = PerfMap::open(&file, owner + 1);
            assert!(matches!(refused, Err(PerfMapError::Untrusted { .. })));
        }
        let link = folder.join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(matches!(
            PerfMap::open(&link, owner),
            Err(PerfMapError::Io { .. })
        ));
        let directory = PerfMap::open(&folder, owner);
        assert!(matches!(directory, Err(PerfMapError::Io { .. })));
        fs::remove_dir_all(folder).unwrap();
    }
}
