//! Perf maps: the text file in which a process names the code that it generates at run time.
//!
//! Each line is `START SIZE NAME`, with hexadecimal numbers; a name may contain blanks. A later
//! line replaces whatever it overlaps.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use unspool_files::trust::is_owned_by;
use unspool_rows::RuntimeAddr;

use crate::live_code::LiveCode;

/// The most bytes to read of a file.
const MAX_TEXT_BYTES: u64 = 256 << 20;

/// The names of a process's generated code.
#[derive(Debug, Default)]
pub struct PerfMap {
    live: LiveCode,
    entries: Vec<PerfMapEntry>,
    names: String,
    bad_lines: usize,
    first_bad_line: Option<usize>,
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
        let file = open_file(path, user)?;
        let mut text = Vec::new();
        let read = file.take(MAX_TEXT_BYTES + 1).read_to_end(&mut text);
        read.map_err(|error| PerfMapError::Io {
            path: path.to_path_buf(),
            error,
        })?;
        let most = usize::try_from(MAX_TEXT_BYTES).unwrap_or(usize::MAX);
        let mut map = PerfMap::from_text(text.get(..most).unwrap_or(&text));
        map.is_cut = text.len() > most;
        Ok(map)
    }

    /// Reads the text of a perf map. Invalid lines are counted and skipped.
    #[must_use]
    pub fn from_text(text: &[u8]) -> PerfMap {
        let mut map = PerfMap::default();
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if !line.is_empty() && map.add(line).is_none() {
                map.bad_lines += 1;
                map.first_bad_line.get_or_insert(number + 1);
            }
        }
        map
    }

    fn add(&mut self, line: &[u8]) -> Option<()> {
        let (start, rest) = split_word(line)?;
        let (size, name) = split_word(rest)?;
        let (start, size) = (hexadecimal(start)?, hexadecimal(size)?);
        let name = String::from_utf8_lossy(name.trim_ascii());
        if name.is_empty() {
            return None;
        }
        self.live.add(start, size, self.entries.len());
        self.entries.push(PerfMapEntry {
            start,
            size,
            name: self.names.len(),
            length: name.len(),
        });
        self.names.push_str(&name);
        Some(())
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

    /// The number of lines that name code.
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

    /// The first invalid line, counted from 1.
    #[must_use]
    pub fn first_bad_line(&self) -> Option<usize> {
        self.first_bad_line
    }

    /// Whether the file is longer than 256 MiB; the rest was not read.
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

    #[test]
    fn lines_that_are_none_are_counted() {
        let text = b"1000 10 good\nbad\n1000\n1000 10\n1000 10 \n-1 10 a\n+1 10 a\nx 10 a\n\
                     11112222333344445 1 a\n\n\xff\xff\n2000 10 \xff\xfe\n";
        let map = PerfMap::from_text(text);
        assert_eq!((map.len(), map.bad_lines()), (2, 9));
        assert_eq!(map.first_bad_line(), Some(2));
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
