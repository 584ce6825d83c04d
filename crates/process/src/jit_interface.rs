//! Object files that a process has made in its memory and registered with debuggers, by the
//! interface of GDB's manual ("JIT Compilation Interface").
//!
//! The variable `__jit_debug_descriptor` leads to a list of files. Their section headers have the
//! addresses where the code is, so each is a module without a load bias. Any process can claim
//! anything there: what is read is bounded, and a bad file is left out.

use std::collections::HashSet;

use unspool_elf::ElfFile;
use unspool_rows::{Memory, RuntimeAddr};

use crate::little_endian::{u32_at, u64_at};

/// The variable with the list.
pub(crate) const DESCRIPTOR: &str = "__jit_debug_descriptor";
/// The only version of the interface.
const VERSION: u32 = 1;
/// The most files of a process.
const MAX_FILES: usize = 10_000;
/// The most bytes of all files of a process, and of each.
const MAX_BYTES: u64 = 256 << 20;
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The files that a descriptor lists, as far as they can be read.
///
/// The layouts are those of 64-bit processes: `struct jit_descriptor` has `version`, `action_flag`,
/// `relevant_entry` and `first_entry`; `struct jit_code_entry` has `next_entry`, `prev_entry`,
/// `symfile_addr` and `symfile_size`.
pub(crate) fn registered_files(memory: &dyn Memory, descriptor: RuntimeAddr) -> Vec<ElfFile> {
    let mut files = Vec::new();
    let Some(head) = read::<24>(memory, descriptor.0) else {
        return files;
    };
    if u32_at(&head, 0) != Some(VERSION) {
        return files;
    }
    let (mut next, mut visited, mut left) = (u64_at(&head, 16), HashSet::new(), MAX_BYTES);
    while let Some(at) = next.filter(|at| *at != 0)
        && visited.len() < MAX_FILES
        && visited.insert(at)
        && let Some(entry) = read::<32>(memory, at)
    {
        next = u64_at(&entry, 0);
        let (Some(start), Some(size)) = (u64_at(&entry, 16), u64_at(&entry, 24)) else {
            break;
        };
        if size > left.min(MAX_FILE_BYTES) {
            continue;
        }
        left -= size;
        files.extend(file(memory, start, size));
    }
    files
}

fn file(memory: &dyn Memory, start: u64, size: u64) -> Option<ElfFile> {
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    memory.read(RuntimeAddr(start), &mut bytes).ok()?;
    ElfFile::from_bytes(format!("[JIT at {start:#x}]"), bytes).ok()
}

fn read<const N: usize>(memory: &dyn Memory, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    memory.read(RuntimeAddr(at), &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspool_rows::memory::Unreadable;

    /// Memory from address 0 on.
    struct WordMemory(Vec<u64>);

    impl Memory for WordMemory {
        fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
            let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
            let start = usize::try_from(addr.0).unwrap();
            let found = bytes.get(start..).and_then(|rest| rest.get(..into.len()));
            into.copy_from_slice(found.ok_or(Unreadable::unmapped(addr))?);
            Ok(())
        }
    }

    /// A descriptor at 8, entries at 32 and 64; the file is at 96.
    fn list(second: [u64; 4], version: u64) -> WordMemory {
        let header = {
            let mut header = vec![0_u8; 64];
            header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
            header[16..24].copy_from_slice(&[1, 0, 62, 0, 1, 0, 0, 0]);
            header[52] = 64;
            header
        };
        let mut words = vec![0, version, 0, 32, 64, 0, 96, 64];
        words.extend(second);
        let bytes = header.chunks(8);
        words.extend(bytes.map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())));
        WordMemory(words)
    }

    #[test]
    fn hostile_lists_end() {
        let count = |memory: &WordMemory| registered_files(memory, RuntimeAddr(8)).len();
        assert_eq!(count(&list([0, 32, 96, 64], 1)), 2);
        assert_eq!(count(&list([0, 32, 96, 64], 2)), 0, "another version");
        assert_eq!(count(&list([32, 32, 96, 64], 1)), 2, "a circle");
        assert_eq!(count(&list([u64::MAX, 32, 96, 64], 1)), 2, "unreadable");
        assert_eq!(count(&list([0, 32, 96, u64::MAX], 1)), 1, "too large");
        assert_eq!(count(&list([0, 32, u64::MAX - 8, 64], 1)), 1, "no memory");
        assert_eq!(count(&list([0, 32, 90, 64], 1)), 1, "no ELF file");
        assert_eq!(count(&WordMemory(vec![0; 2])), 0);
    }
}
