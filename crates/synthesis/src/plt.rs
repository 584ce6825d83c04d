//! The procedure linkage table: stubs that jump to functions of other files.

use unspool_elf::ElfFile;

/// Begin of the PLT header, the target of the stubs' jumps: `push` of a memory operand.
const PUSH: [u8; 2] = [0xff, 0x35];

/// The stubs of the procedure linkage table, without the header, which is entered with more on the
/// stack.
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

/// The PLT header. Stubs jump there with one more word on the stack than at their call: the
/// function to resolve (psABI, "Procedure Linkage Table"). Linkers also write it without any stub.
pub(crate) fn plt_header(file: &ElfFile) -> Option<u64> {
    let plt = file.sections().find(|section| section.name == ".plt")?;
    let start = plt.address?;
    let bytes = file.bytes_at(start, plt.size)?;
    bytes.starts_with(&PUSH).then_some(start.0)
}
