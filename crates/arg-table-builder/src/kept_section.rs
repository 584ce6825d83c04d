//! Arguments that a program keeps on its stack (`unspool_keep.h`).
//!
//! The section `.unspool.kept` has an entry for each argument. The first field is the code address
//! from which on it is kept (8 bytes). Then follow the parameter's number from 1 on and its size in
//! bytes (a byte each). The last field is its location in assembly, `-24(%rbp)`, with a terminating
//! zero byte. Entries are aligned to 8.

use std::collections::BTreeMap;

use unspool_elf::ElfFile;
use unspool_rows::Abi;

/// The section's name.
const SECTION: &str = ".unspool.kept";

/// An argument kept in memory, from an address on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeptArgument {
    /// The parameter's number, from 0 on.
    pub(crate) parameter: usize,
    /// Its size in bytes.
    pub(crate) bytes: u8,
    /// The base register, by its DWARF number.
    pub(crate) base: u8,
    /// The offset from the base.
    pub(crate) offset: i32,
}

/// The arguments that a file's program keeps, by the addresses from which on it does. Unreadable
/// entries are ignored.
pub(crate) fn read_kept_section(file: &ElfFile) -> BTreeMap<u64, Vec<KeptArgument>> {
    let mut found: BTreeMap<u64, Vec<KeptArgument>> = BTreeMap::new();
    let Ok(Some(section)) = file.section_named(SECTION) else {
        return found;
    };
    let mut rest = section.data;
    while let Some((address, saved, length)) = first(rest, file.abi()) {
        if let Some(saved) = saved {
            found.entry(address).or_default().push(saved);
        }
        rest = rest.get(length.next_multiple_of(8)..).unwrap_or_default();
    }
    found
}

/// The first entry, and its size in bytes; `None` for an unreadable one.
fn first(bytes: &[u8], abi: Abi) -> Option<(u64, Option<KeptArgument>, usize)> {
    let (address, rest) = bytes.split_first_chunk()?;
    let [number, size, rest @ ..] = rest else {
        return None;
    };
    let end = rest.iter().position(|byte| *byte == 0)?;
    let text = core::str::from_utf8(rest.get(..end)?).ok();
    let place = text.and_then(|text| place(text, abi));
    let saved = place.and_then(|(base, offset)| {
        Some(KeptArgument {
            parameter: usize::from(number.checked_sub(1)?),
            bytes: *size,
            base,
            offset,
        })
    });
    Some((u64::from_le_bytes(*address), saved, 8 + 2 + end + 1))
}

/// The register and the offset of an assembly operand: `-24(%rbp)`, `(%rsp)`.
fn place(text: &str, abi: Abi) -> Option<(u8, i32)> {
    let (offset, register) = text.strip_suffix(')')?.split_once("(%")?;
    let offset = match offset {
        "" => 0,
        offset => offset.parse().ok()?,
    };
    let spec = abi.arch.spec();
    let mut bases = spec.frame_pointer.into_iter().chain([spec.stack_pointer]);
    let base = bases.find(|base| abi.arch.assembler_name(*base) == Some(register))?;
    Some((u8::try_from(base.0).ok()?, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_read() {
        let abi = Abi::X86_64;
        assert_eq!(place("-24(%rbp)", abi), Some((6, -24)));
        assert_eq!(place("(%rsp)", abi), Some((7, 0)));
        assert_eq!(place("8(%rsp)", abi), Some((7, 8)));
        for other in ["", "8", "8(%rax)", "8(%rsp,%rax)", "x(%rsp)", "foo(%rip)"] {
            assert_eq!(place(other, abi), None, "{other}");
        }
    }
}
