//! What the kernel says is mapped. Async-signal-safe.

use unspool_ir::RuntimeAddr;
use unspool_unwind::maps_text::Line;

use crate::crash::modules::Name;
use crate::sys::files::{File, FileId};

/// What is mapped at an address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapped {
    pub(crate) file: FileId,
    /// Its path, or the kernel's own name for memory that is no file's.
    pub(crate) path: Name,
}

/// Room for the longest line: what comes before the path, and a path (`PATH_MAX`).
const LINE: usize = 128 + 4096;

/// Reads `/proc/self/maps` up to an address.
pub(crate) fn mapped(at: RuntimeAddr) -> Option<Mapped> {
    let maps = File::open(c"/proc/self/maps")?;
    let mut room = [0; LINE];
    let mut used = 0;
    loop {
        let length = maps
            .read_on(room.get_mut(used..)?)
            .filter(|length| *length > 0)?;
        used += length;
        let text = room.get(..used)?;
        let whole = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        let lines = text.get(..whole)?.split(|byte| *byte == b'\n');
        if let Some(line) = lines.filter_map(Line::parse).find(|line| line.contains(at)) {
            return Some(Mapped {
                file: FileId::numbered(line.device.major, line.device.minor, line.inode),
                path: Name::of(line.name),
            });
        }
        room.copy_within(whole..used, 0);
        used -= whole;
    }
}
