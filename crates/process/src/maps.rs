//! The mappings of a process: `/proc/PID/maps` of a live process (proc_pid_maps(5)), and the same
//! list rebuilt from a core file.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use unspool_elf::DELETED_SUFFIX;
use unspool_rows::{Memory, RuntimeAddr};
pub use unspool_unwind::maps_text::{Device, Permissions};
use unspool_unwind::maps_text::{MapsLine, unescaped};

use crate::loaded_objects;

/// The limit of kept lines. The kernel's default limit for one process (`vm.max_map_count`) is
/// 65530, and it can be raised.
const MAX_MAPPINGS: usize = 1 << 20;

/// One mapped range of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: RuntimeAddr,
    /// One past the last address; greater than `start`.
    pub end: RuntimeAddr,
    /// The file offset of `start`, in bytes; 0 if no file is mapped.
    pub offset: u64,
    /// The permissions of the memory.
    pub permissions: Permissions,
    /// The device of the mapped file; 0:0 if no file is mapped, or if unknown.
    pub device: Device,
    /// The inode of the mapped file; 0 if no file is mapped, or if unknown.
    pub inode: u64,
    /// The path of the mapped file without ` (deleted)`, or the kernel's own name in brackets
    /// (`[stack]`). `None` for memory without a name.
    pub name: Option<OsString>,
    /// The file has lost its name: it was removed or replaced since it was mapped.
    pub deleted: bool,
    /// No mapping of the file is recorded here: a loaded object spans the memory, and the file is
    /// the object's. The memory may differ from the file.
    pub by_object: bool,
}

impl Mapping {
    /// Whether `addr` lies in this mapping.
    #[must_use]
    pub fn contains(&self, addr: RuntimeAddr) -> bool {
        self.start <= addr && addr < self.end
    }

    /// The size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Whether it may hold code, as far as is recorded. gdb's `gcore` writes no segment for a part
    /// of a file that the process only reads and executes; the file has the permissions then.
    #[must_use]
    pub fn may_execute(&self) -> bool {
        let Permissions {
            read,
            write,
            execute,
            ..
        } = self.permissions;
        execute || !(read || write)
    }

    /// The path of the mapped file, or `None` for memory without a file.
    ///
    /// The kernel names a few files that have no path, for instance `/memfd:name` and `/dev/zero`.
    /// They are returned like any other, mostly with `deleted` set.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        let name = self.name.as_deref()?;
        name.as_bytes().starts_with(b"/").then(|| Path::new(name))
    }

    /// Whether it is the process's own memory without a file: named (`[heap]`, `[anon:NAME]`) or
    /// not.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.path().is_none() && self.name.as_deref().is_none_or(|name| name != "[vdso]")
    }
}

impl Mapping {
    /// The parts before and from an address on; one may be empty.
    fn split_at(self, addr: RuntimeAddr) -> (Mapping, Mapping) {
        let addr = addr.clamp(self.start, self.end);
        let mut after = self.clone();
        clip_start(&mut after, addr);
        (Mapping { end: addr, ..self }, after)
    }
}

/// The mappings of one process, in ascending order and without overlap.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mappings {
    list: Vec<Mapping>,
    malformed: usize,
}

impl Mappings {
    /// Parses the text of `/proc/PID/maps`. A malformed line is counted in [`Mappings::malformed`]
    /// and left out; the others are kept.
    #[must_use]
    pub fn parse(text: &[u8]) -> Mappings {
        let mut list = Vec::new();
        let mut malformed = 0;
        for line in text.split(|byte| *byte == b'\n').filter(|l| !l.is_empty()) {
            match parse_line(line) {
                Some(mapping) if list.len() < MAX_MAPPINGS => list.push(mapping),
                _ => malformed += 1,
            }
        }
        Mappings {
            malformed,
            ..Mappings::from_list(list)
        }
    }

    /// Takes mappings in any order. Where two overlap, the one with the lower start keeps the
    /// shared addresses; with equal starts, the earlier in the list does.
    #[must_use]
    pub fn from_list(mut list: Vec<Mapping>) -> Mappings {
        list.sort_by_key(|mapping| mapping.start);
        let mut end = RuntimeAddr(0);
        list.retain_mut(|mapping| {
            clip_start(mapping, end);
            let kept = mapping.start < mapping.end;
            if kept {
                end = mapping.end;
            }
            kept
        });
        Mappings { list, malformed: 0 }
    }

    /// Gives code without a file the file of the loaded object whose executable segment spans it: a
    /// program may copy its text to huge pages. Reads the objects' headers in memory. `None`: there
    /// is no such code.
    #[must_use]
    pub fn with_copied_text(&self, memory: &dyn Memory) -> Option<Mappings> {
        loaded_objects::with_copied_text(self, memory)
    }

    /// Gives the part of each mapping without a name that an owner covers the owner's file.
    pub(crate) fn assigned_to(
        self,
        owners: &Mappings,
        is_meant: impl Fn(&Mapping) -> bool,
    ) -> Mappings {
        let mut list = Vec::with_capacity(self.list.len());
        for mapping in self.list {
            if mapping.name.is_some() || !is_meant(&mapping) {
                list.push(mapping);
                continue;
            }
            let mut rest = mapping;
            for owner in owners.overlapping(rest.start..rest.end) {
                let (before, after) = rest.split_at(owner.start);
                let (part, after) = after.split_at(owner.end);
                let skipped = part.start.0.saturating_sub(owner.start.0);
                list.push(before);
                list.push(Mapping {
                    start: part.start,
                    end: part.end,
                    permissions: part.permissions,
                    offset: owner.offset.saturating_add(skipped),
                    ..owner.clone()
                });
                rest = after;
            }
            list.push(rest);
        }
        Mappings {
            malformed: self.malformed,
            ..Mappings::from_list(list)
        }
    }

    /// Adds the parts of `owners` that no mapping covers.
    pub(crate) fn with_gaps_filled(self, owners: &Mappings) -> Mappings {
        let mut list = Vec::new();
        for owner in &owners.list {
            let mut rest = owner.clone();
            for taken in self.overlapping(owner.start..owner.end) {
                let (before, after) = rest.split_at(taken.start);
                list.push(before);
                rest = after.split_at(taken.end).1;
            }
            list.push(rest);
        }
        list.extend(self.list);
        Mappings {
            malformed: self.malformed,
            ..Mappings::from_list(list)
        }
    }

    /// Whether a mapping shares addresses with one of these.
    pub(crate) fn have_some_of(&self, mapping: &Mapping) -> bool {
        !self.overlapping(mapping.start..mapping.end).is_empty()
    }

    /// The mappings that share addresses with a range.
    fn overlapping(&self, range: Range<RuntimeAddr>) -> &[Mapping] {
        let first = self
            .list
            .partition_point(|mapping| mapping.end <= range.start);
        let rest = self.list.get(first..).unwrap_or_default();
        let count = rest.partition_point(|mapping| mapping.start < range.end);
        rest.get(..count).unwrap_or_default()
    }

    /// The mapping that contains `addr`, by binary search.
    #[must_use]
    pub fn find(&self, addr: RuntimeAddr) -> Option<&Mapping> {
        let after = self.list.partition_point(|mapping| mapping.end <= addr);
        self.list
            .get(after)
            .filter(|mapping| mapping.contains(addr))
    }

    /// All mappings, ascending.
    pub fn iter(&self) -> core::slice::Iter<'_, Mapping> {
        self.list.iter()
    }

    /// All mappings, ascending.
    #[must_use]
    pub fn as_slice(&self) -> &[Mapping] {
        &self.list
    }

    /// The number of malformed lines in the text.
    #[must_use]
    pub fn malformed(&self) -> usize {
        self.malformed
    }
}

impl<'a> IntoIterator for &'a Mappings {
    type Item = &'a Mapping;
    type IntoIter = core::slice::Iter<'a, Mapping>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Raises the start of a mapping to `floor`, and its file offset with it.
fn clip_start(mapping: &mut Mapping, floor: RuntimeAddr) {
    let cut = floor.0.saturating_sub(mapping.start.0);
    if cut > 0 {
        mapping.start = floor;
        if mapping.inode != 0 || mapping.path().is_some() || mapping.by_object {
            mapping.offset = mapping.offset.saturating_add(cut);
        }
    }
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    let line = MapsLine::parse(line)?;
    let (name, deleted) = parse_name(&unescaped(line.name).collect::<Vec<_>>());
    Some(Mapping {
        start: line.start,
        end: line.end,
        offset: line.offset,
        permissions: line.permissions,
        device: line.device,
        inode: line.inode,
        name,
        deleted,
        by_object: false,
    })
}

/// Splits a name as the kernel prints it from its ` (deleted)` mark.
///
/// A file may really be called `x (deleted)`. The kernel prints both alike, and the mark is far
/// more likely.
pub(crate) fn parse_name(name: &[u8]) -> (Option<OsString>, bool) {
    let (name, deleted) = match name.strip_suffix(DELETED_SUFFIX.as_bytes()) {
        Some(rest) if rest.starts_with(b"/") => (rest, true),
        _ => (name, false),
    };
    let name = (!name.is_empty()).then(|| OsString::from(OsStr::from_bytes(name)));
    (name, deleted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Mapping {
        let maps = Mappings::parse(line.as_bytes());
        assert_eq!(maps.malformed(), 0, "{line}");
        maps.as_slice()[0].clone()
    }

    #[test]
    fn a_file_mapping() {
        let maps = one(
            "7f0000001000-7f0000003000 r-xp 00002000 fe:01 1234567                  /usr/lib/libc.so.6",
        );
        assert_eq!(maps.start, RuntimeAddr(0x7f00_0000_1000));
        assert_eq!(maps.size(), 0x2000);
        assert_eq!(maps.offset, 0x2000);
        assert_eq!(maps.inode, 1_234_567);
        assert_eq!(maps.device.major, 0xfe);
        assert!(maps.permissions.execute && maps.permissions.private && !maps.permissions.write);
        assert_eq!(maps.path(), Some(Path::new("/usr/lib/libc.so.6")));
    }

    #[test]
    fn names() {
        for (tail, name, deleted) in [
            ("", None, false),
            ("   ", None, false),
            (" [stack]", Some("[stack]"), false),
            ("   /a b/c  d", Some("/a b/c  d"), false),
            (r" /a\012b", Some("/a\nb"), false),
            (r" /a\040b", Some(r"/a\040b"), false),
            (" /gone (deleted)", Some("/gone"), true),
            (" /gone (deleted) (deleted)", Some("/gone (deleted)"), true),
            (" [anon:x (deleted)", Some("[anon:x (deleted)"), false),
        ] {
            let mapping = one(&["1000-2000 rw-s 0 0:0 0", tail].concat());
            assert_eq!(
                (mapping.name.as_deref(), mapping.deleted),
                (name.map(OsStr::new), deleted)
            );
        }
    }

    #[test]
    fn a_bad_line_does_not_lose_the_others() {
        let text = "1000-2000 r--p 0 0:0 0\nrubbish\n3000-2000 r--p 0 0:0 0\n\
                    1-2 r--p 0 00 0\n+1-2 r--p 0 0:0 0\n4000-5000 r--p 0 0:0 0";
        let maps = Mappings::parse(text.as_bytes());
        assert_eq!((maps.as_slice().len(), maps.malformed()), (2, 4));
    }

    #[test]
    fn every_prefix_of_a_line_is_read_without_a_panic() {
        let line = "7f0000001000-7f0000003000 r-xp 00002000 fe:01 1234567 /usr/lib/libc.so.6";
        for end in 0..line.len() {
            let _ = Mappings::parse(&line.as_bytes()[..end]);
        }
    }

    #[test]
    fn find_and_overlap() {
        let text =
            "5000-7000 r--p 100 1:0 9 /b\n1000-3000 r--p 0 1:0 8 /a\n2000-6000 r--p 0 1:0 7 /c";
        let maps = Mappings::parse(text.as_bytes());
        let name = |addr| {
            let found = maps.find(RuntimeAddr(addr))?;
            Some((found.name.clone()?, found.offset))
        };
        assert_eq!(name(0xfff), None);
        assert_eq!(name(0x1000), Some(("/a".into(), 0)));
        assert_eq!(name(0x2fff), Some(("/a".into(), 0)));
        assert_eq!(name(0x3000), Some(("/c".into(), 0x1000)));
        assert_eq!(name(0x6000), Some(("/b".into(), 0x1100)));
        assert_eq!(name(0x7000), None);
    }
}
