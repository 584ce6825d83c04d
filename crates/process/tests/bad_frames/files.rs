//! Files with unwind tables that no compiler or linker would make.

use std::fs;
use std::path::Path;

use unspool_testing::{Finish, command};

/// A file, with the offsets of the parts to damage.
pub(super) struct DamagedFile<'b> {
    bytes: &'b mut [u8],
    /// The program header of the search table.
    header: usize,
    hdr: usize,
    eh_frame: usize,
}

fn number(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

impl<'b> DamagedFile<'b> {
    fn from_bytes(bytes: &'b mut [u8]) -> Self {
        const PT_GNU_EH_FRAME: usize = 0x6474_e550;
        let (first, count) = (number(bytes, 32), usize::from(bytes[56]));
        let mut headers = (0..count).map(|index| first + 56 * index);
        let header = headers.find(|at| number(bytes, *at) == PT_GNU_EH_FRAME);
        let header = header.unwrap();
        let hdr = number(bytes, header + 8);
        // Relative to itself, in the same segment.
        let eh_frame = (hdr + 4 + number(bytes, hdr + 4)) % (1 << 32);
        DamagedFile {
            bytes,
            header,
            hdr,
            eh_frame,
        }
    }

    /// The entries of the search table.
    fn entries(&mut self) -> &mut [[u8; 8]] {
        let count = number(self.bytes, self.hdr + 8);
        let (entries, _) = self.bytes[self.hdr + 12..].as_chunks_mut();
        &mut entries[..count]
    }

    /// `.eh_frame`, except its last word. The linker puts it after the search table.
    fn section(&mut self) -> &mut [u8] {
        let entries = self.entries().len();
        let end = self.eh_frame + 40 * entries;
        &mut self.bytes[self.eh_frame..end]
    }
}

/// A defect in the tables of a file.
type Damage = fn(&mut DamagedFile<'_>);

const DAMAGES: [(&str, Damage); 15] = [
    ("version of the search table", |t| t.bytes[t.hdr] = 9),
    ("encoding of the pointer", |t| t.bytes[t.hdr + 1] = 0x55),
    ("encoding of the table", |t| t.bytes[t.hdr + 3] = 0x3b),
    ("pointer to the section", |t| {
        t.bytes[t.hdr + 4..t.hdr + 8].fill(0x7f);
    }),
    ("no entries", |t| t.bytes[t.hdr + 8..t.hdr + 12].fill(0)),
    ("too many entries", |t| {
        t.bytes[t.hdr + 8..t.hdr + 12].fill(0xff);
    }),
    ("entries out of range", |t| {
        let entries = t.entries().iter_mut();
        entries.for_each(|entry| entry[4..].copy_from_slice(&[0, 0, 0, 0x70]));
    }),
    ("entries of their neighbours", |t| {
        let entries = t.entries();
        let first = entries[0];
        for at in 1..entries.len() {
            let from = entries[at];
            entries[at - 1][4..].copy_from_slice(&from[4..]);
        }
        entries.last_mut().unwrap()[4..].copy_from_slice(&first[4..]);
    }),
    ("entries backwards", |t| t.entries().reverse()),
    ("entries between entries", |t| {
        t.entries().iter_mut().for_each(|entry| entry[4] ^= 5);
    }),
    ("a section of zeros", |t| t.section().fill(0)),
    ("a section of ones", |t| t.section().fill(0xff)),
    ("a section of noise", |t| {
        let mut state = 1_u32;
        for byte in t.section() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = state.to_be_bytes()[0];
        }
    }),
    ("augmentations that nobody knows", |t| {
        let section = t.section();
        for at in 0..section.len() - 2 {
            if section[at..].starts_with(b"zR\0") {
                section[at + 1] = b'Q';
            }
        }
    }),
    ("a search table that is elsewhere", |t| {
        t.bytes[t.header + 16..t.header + 22].fill(0x66);
    }),
];

/// Copies of a file, each damaged in another way.
pub(super) fn damaged(path: &Path) -> impl Iterator<Item = (&'static str, std::path::PathBuf)> {
    let bytes = fs::read(path).unwrap();
    let folder = super::directory();
    DAMAGES
        .iter()
        .enumerate()
        .map(move |(number, (name, damage))| {
            let mut bytes = bytes.clone();
            damage(&mut DamagedFile::from_bytes(&mut bytes));
            let draft = folder.join(format!("draft-{number}"));
            fs::write(&draft, bytes).unwrap();
            let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(&draft, executable).unwrap();
            // Only copies by another process are executed. A child that another test has just
            // forked may still have a file of this process open, and then it is busy.
            let to = folder.join(format!("damaged-{number}"));
            command("cp").args([&draft, &to]).succeed();
            (*name, to)
        })
}
