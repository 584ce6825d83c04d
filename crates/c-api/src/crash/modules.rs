//! The modules of frames.

use unspool_rows::{Memory, RuntimeAddr};
use unspool_unwind::local::{LoadedModule, OwnMemory};

use super::text::TextBuffer;
use crate::sys::crash::{maps, program_path};

/// A name in a buffer of fixed size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BoundedName {
    bytes: [u8; BoundedName::MAX_BYTES],
    length: usize,
}

impl BoundedName {
    const MAX_BYTES: usize = 256;

    /// A zero-terminated text, truncated to the buffer and to readable memory.
    pub(super) fn read(memory: &OwnMemory, from: RuntimeAddr) -> BoundedName {
        let mut name = BoundedName {
            bytes: [0; BoundedName::MAX_BYTES],
            length: 0,
        };
        let mut addr = from;
        for slot in &mut name.bytes {
            let mut byte = [0];
            if memory.read(addr, &mut byte).is_err() || byte == [0] {
                break;
            }
            *slot = byte[0];
            name.length += 1;
            addr.0 = addr.0.wrapping_add(1);
        }
        name
    }

    /// Bytes up to a zero byte, truncated to the buffer.
    pub(crate) fn from_bytes(bytes: &[u8]) -> BoundedName {
        let mut name = BoundedName {
            bytes: [0; BoundedName::MAX_BYTES],
            length: 0,
        };
        let text = bytes.iter().take_while(|byte| **byte != 0);
        for (slot, byte) in name.bytes.iter_mut().zip(text) {
            *slot = *byte;
            name.length += 1;
        }
        name
    }

    /// The bytes.
    #[must_use]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// The file name of a path.
    #[must_use]
    pub(crate) fn last_part(&self) -> &[u8] {
        let path = self.bytes();
        path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
    }
}

/// A module and its path.
#[derive(Clone, Copy)]
pub(crate) struct NamedModule<'m> {
    /// The module.
    pub(crate) loaded: LoadedModule<'m>,
    path: BoundedName,
}

/// The offset of an object's path in `struct link_map` (`link.h`).
const L_NAME: u64 = 8;

impl<'m> NamedModule<'m> {
    /// Reads the path from the loader's list. It is empty for the program.
    pub(super) fn new(loaded: LoadedModule<'m>, memory: &OwnMemory) -> Self {
        let field = RuntimeAddr(loaded.link_map.0.wrapping_add(L_NAME));
        let mut word = [0; 8];
        let path = match memory.read(field, &mut word) {
            Ok(()) => BoundedName::read(memory, RuntimeAddr(u64::from_le_bytes(word))),
            Err(_) => BoundedName::from_bytes(b""),
        };
        let path = match path.bytes() {
            // The kernel may have started the loader, and the loader the program.
            b"" => match maps::mapping_at(loaded.start) {
                Some(mapped) if !mapped.path.bytes().is_empty() => mapped.path,
                _ => BoundedName::from_bytes(program_path()),
            },
            _ => path,
        };
        NamedModule { loaded, path }
    }

    /// Its path, if it is known.
    #[must_use]
    pub(crate) fn path(&self) -> &[u8] {
        self.path.bytes()
    }

    /// The last part of its path.
    #[must_use]
    pub(crate) fn name(&self) -> &[u8] {
        self.path.last_part()
    }
}

/// The modules of the report's frames.
pub(crate) struct ReportModules {
    modules: [Option<ReportModule>; ReportModules::MAX_MODULES],
}

#[derive(Clone, Copy)]
struct ReportModule {
    start: RuntimeAddr,
    bias: u64,
    build_id: [u8; 32],
    build_id_length: usize,
    path: BoundedName,
}

impl ReportModules {
    const MAX_MODULES: usize = 32;

    pub(super) fn new() -> Self {
        ReportModules {
            modules: [None; ReportModules::MAX_MODULES],
        }
    }

    pub(super) fn add(&mut self, module: &NamedModule<'_>) {
        let start = module.loaded.start;
        let is_it = |seen: &Option<ReportModule>| seen.is_none_or(|seen| seen.start == start);
        let Some(slot) = self.modules.iter_mut().find(|seen| is_it(seen)) else {
            return;
        };
        let mut build_id = [0; 32];
        let id = module.loaded.build_id;
        for (slot, byte) in build_id.iter_mut().zip(id) {
            *slot = *byte;
        }
        *slot = Some(ReportModule {
            start,
            bias: module.loaded.bias.0,
            build_id,
            build_id_length: id.len(),
            path: module.path,
        });
    }

    /// Prints them: load bias, build ID, path.
    pub(super) fn print(&self, text: &mut TextBuffer<'_>) {
        for module in self.modules.iter().flatten() {
            text.put(b"  ");
            text.address(module.bias);
            text.put(b"  ");
            match module.build_id.get(..module.build_id_length) {
                None | Some([]) => text.put(b"-"),
                Some(id) => text.bytes_in_hex(id),
            }
            text.put(b"  ");
            text.quote(module.path.bytes());
            text.put(b"\n");
            text.flush();
        }
    }
}
