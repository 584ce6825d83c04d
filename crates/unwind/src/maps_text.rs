//! The text of `/proc/PID/maps`, line by line (proc_pid_maps(5)). Allocates nothing.

use unspool_rows::RuntimeAddr;

/// One mapped range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapsLine<'t> {
    /// The first address.
    pub start: RuntimeAddr,
    /// One past the last address; greater than `start`.
    pub end: RuntimeAddr,
    /// The permissions of the memory.
    pub permissions: Permissions,
    /// The file offset of `start`, in bytes; 0 if no file is mapped.
    pub offset: u64,
    /// The device of the mapped file; 0:0 when no file is mapped.
    pub device: Device,
    /// The inode of the mapped file; 0 when no file is mapped.
    pub inode: u64,
    /// The path of the mapped file or the kernel's own name in brackets, as the kernel prints it
    /// ([`unescaped`]); empty for memory without a name.
    pub name: &'t [u8],
}

/// The permissions of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Permissions {
    /// May be read.
    pub read: bool,
    /// May be written.
    pub write: bool,
    /// May be executed.
    pub execute: bool,
    /// Writes stay in this process (copy on write). Core files do not record this; there it is
    /// true.
    pub private: bool,
}

/// A device number in its two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Device {
    /// The driver.
    pub major: u32,
    /// The unit of the driver.
    pub minor: u32,
}

impl<'t> MapsLine<'t> {
    /// Reads `start-end perms offset major:minor inode   name`; `None` for a line of another form.
    /// The name is everything after the blanks that follow the inode, so it may itself contain
    /// blanks.
    #[must_use]
    pub fn parse(line: &'t [u8]) -> Option<MapsLine<'t>> {
        let (range, rest) = field(line)?;
        let (permissions, rest) = field(rest)?;
        let (offset, rest) = field(rest)?;
        let (device, rest) = field(rest)?;
        let (inode, rest) = field(rest)?;
        let (start, end) = pair(range, b'-')?;
        let (start, end) = (RuntimeAddr(hex(start)?), RuntimeAddr(hex(end)?));
        let (major, minor) = pair(device, b':')?;
        (start < end).then_some(MapsLine {
            start,
            end,
            permissions: parse_permissions(permissions)?,
            offset: hex(offset)?,
            device: Device {
                major: u32::try_from(hex(major)?).ok()?,
                minor: u32::try_from(hex(minor)?).ok()?,
            },
            inode: str::from_utf8(inode).ok()?.parse().ok()?,
            name: rest.trim_ascii_start(),
        })
    }

    /// Whether `addr` lies in this mapping.
    #[must_use]
    pub fn contains(&self, addr: RuntimeAddr) -> bool {
        self.start <= addr && addr < self.end
    }

    /// The file offset of an address in this mapping, in bytes.
    #[must_use]
    pub fn file_offset(&self, addr: RuntimeAddr) -> u64 {
        let distance = addr.0.wrapping_sub(self.start.0);
        self.offset.wrapping_add(distance)
    }
}

/// A name without the kernel's escapes: it prints a newline as `\012`, and escapes nothing else.
pub fn unescaped(name: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = name;
    core::iter::from_fn(move || {
        if let Some(after) = rest.strip_prefix(b"\\012") {
            rest = after;
            return Some(b'\n');
        }
        let (first, after) = rest.split_first()?;
        rest = after;
        Some(*first)
    })
}

/// The first field, which ends in a blank or at the end of the line, and the rest of the line.
fn field(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(|byte| *byte == b' ');
    let (field, rest) = text.split_at_checked(end.unwrap_or(text.len()))?;
    (!field.is_empty()).then_some((field, rest))
}

fn pair(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == separator)?;
    let (left, right) = text.split_at_checked(at)?;
    Some((left, right.get(1..)?))
}

fn hex(digits: &[u8]) -> Option<u64> {
    let digits = str::from_utf8(digits).ok()?;
    let unsigned = !digits.starts_with('+');
    unsigned.then(|| u64::from_str_radix(digits, 16).ok())?
}

fn parse_permissions(text: &[u8]) -> Option<Permissions> {
    let [read, write, execute, sharing] = text else {
        return None;
    };
    Some(Permissions {
        read: *read == b'r',
        write: *write == b'w',
        execute: *execute == b'x',
        private: *sharing == b'p',
    })
}
