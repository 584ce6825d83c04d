//! The procedure linkage table: stubs that jump to functions of other files.

use unspool_module::ElfFile;

/// The stubs of the procedure linkage table, without the first, which others jump to with more on the stack.
#[must_use]
pub fn stubs(file: &ElfFile) -> Vec<u64> {
    /// Of the first stub: `push` of what is in memory.
    const PUSH: [u8; 2] = [0xff, 0x35];
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
