//! Shared objects as rewriters of ELF files leave them.

use std::fs;
use std::path::{Path, PathBuf};

const HEADER: usize = 56;
const PAGE: usize = 4096;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PT_PHDR: u32 = 6;
const PF_R: u32 = 4;

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().unwrap())
}

fn usize_at(bytes: &[u8], at: usize) -> usize {
    usize::try_from(u64_at(bytes, at)).unwrap()
}

/// A program header for bytes that are as far from the first page in memory as in the file.
fn header(kind: u32, at: usize, length: usize) -> Vec<u8> {
    let mut header = [kind, PF_R].map(u32::to_le_bytes).concat();
    for word in [at, at, at, length, length, PAGE] {
        header.extend((word as u64).to_le_bytes());
    }
    header
}

/// Copies a shared object to `to`, with its program headers and its notes in a new page at the end:
/// BOLT moves the first, `patchelf` the second.
///
/// # Panics
///
/// It is not a 64-bit shared object, or a file cannot be written.
pub fn move_headers(object: &Path, to: PathBuf) -> PathBuf {
    let mut file = fs::read(object).unwrap();
    let at = usize_at(&file, 32);
    let count = usize::from(u16::from_le_bytes([file[56], file[57]]));
    let headers = file[at..at + count * HEADER].to_vec();
    let headers: Vec<_> = headers.chunks(HEADER).collect();
    let kind = |header: &[u8]| u32::from_le_bytes(*header.first_chunk().unwrap());
    let of_kind = |wanted| headers.iter().filter(move |header| kind(header) == wanted);
    let notes: Vec<u8> = of_kind(PT_NOTE)
        .flat_map(|note| file[usize_at(note, 8)..][..usize_at(note, 32)].to_vec())
        .collect();
    let ends = of_kind(PT_LOAD).map(|load| usize_at(load, 16) + usize_at(load, 40));
    let page = ends.max().unwrap().max(file.len()).next_multiple_of(PAGE);
    let kept = headers
        .iter()
        .filter(|header| ![PT_PHDR, PT_NOTE].contains(&kind(header)));
    let kept = kept.flat_map(|header| header.to_vec());
    let bytes = HEADER * (kept.clone().count() / HEADER + 3);
    let mut table = header(PT_PHDR, page, bytes);
    table.extend(kept);
    table.extend(header(PT_LOAD, page, bytes + notes.len()));
    table.extend(header(PT_NOTE, page + bytes, notes.len()));
    assert_eq!(table.len(), bytes);
    // Nothing finds the former ones.
    file[at..at + count * HEADER].fill(0);
    file.resize(page, 0);
    file.extend(table);
    file.extend(notes);
    file[32..40].copy_from_slice(&(page as u64).to_le_bytes());
    let count = u16::try_from(bytes / HEADER).unwrap();
    file[56..58].copy_from_slice(&count.to_le_bytes());
    fs::write(&to, file).unwrap();
    to
}
