//! The procedure linkage table: stubs that jump to functions of other files.

use unspool_elf::ElfFile;

/// What the first stub begins with, to which others jump: `push` of what is in memory.
const PUSH: [u8; 2] = [0xff, 0x35];

/// The stubs of the procedure linkage table, without the first, which others jump to with more on the stack.
#[must_use]
pub fn plt_stubs(file: &ElfFile) -> Vec<u64> {
    let mut stubs = Vec::new();
    for section in file.sections() {
        let size = match &*section.name {
            ".plt" | ".plt.sec" => 16,
            ".plt.got" => 8,
            _ => continue,
        };
        let Some(start) = section.address else {
            continue;
        };
        let Some(bytes) = file.bytes_at(start, section.size) else {
            continue;
        };
        for (number, stub) in (0..).zip(bytes.chunks(size)) {
            if !stub.starts_with(&PUSH) {
                stubs.push(start.0 + number * size as u64);
            }
        }
    }
    stubs.sort_unstable();
    stubs
}

/// The first stub, to which others jump with one word more on the stack than they were called with: which function is to be found (psABI,
/// "Procedure Linkage Table"). Linkers write it where there is no other, too.
pub(crate) fn plt_header(file: &ElfFile) -> Option<u64> {
    let plt = file.sections().find(|section| section.name == ".plt")?;
    let start = plt.address?;
    let bytes = file.bytes_at(start, plt.size)?;
    bytes.starts_with(&PUSH).then_some(start.0)
}
