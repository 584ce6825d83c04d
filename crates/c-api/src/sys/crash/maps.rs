//! The kernel's list of mappings. Async-signal-safe.

use unspool_files::FileId;
use unspool_files::raw::RawFile;
use unspool_rows::RuntimeAddr;
use unspool_unwind::maps_text::MapsLine;

use crate::crash::modules::BoundedName;

/// The mapping at an address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MappedPath {
    pub(crate) file: FileId,
    /// Its path, or the kernel's name for memory without a file.
    pub(crate) path: BoundedName,
}

/// The maximum length of a line: the fields before the path, and a path (`PATH_MAX`).
const MAX_LINE_BYTES: usize = 128 + 4096;

/// Reads `/proc/self/maps` up to an address.
pub(crate) fn mapping_at(at: RuntimeAddr) -> Option<MappedPath> {
    let maps = RawFile::open(c"/proc/self/maps")?;
    let mut room = [0; MAX_LINE_BYTES];
    let mut used = 0;
    loop {
        let length = maps
            .read(room.get_mut(used..)?)
            .filter(|length| *length > 0)?;
        used += length;
        let text = room.get(..used)?;
        let whole = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        let lines = text.get(..whole)?.split(|byte| *byte == b'\n');
        if let Some(line) = lines
            .filter_map(MapsLine::parse)
            .find(|line| line.contains(at))
        {
            return Some(MappedPath {
                file: FileId::from_numbers(line.device.major, line.device.minor, line.inode),
                path: BoundedName::from_bytes(line.name),
            });
        }
        room.copy_within(whole..used, 0);
        used -= whole;
    }
}
