//! The target of a call in progress: from its code, from the dynamic linker's data, and from the
//! caller's remaining registers.

use unspool_rows::{Arch, Memory, RuntimeAddr};

mod aarch64;
mod x86_64;

/// The target of the call before an address. `register` returns the caller's registers, by their
/// DWARF numbers.
pub(crate) fn target(
    arch: Arch,
    returns_to: RuntimeAddr,
    memory: &dyn Memory,
    register: impl Fn(u16) -> Option<u64>,
) -> Option<u64> {
    match arch {
        Arch::X86_64 => x86_64::target(returns_to.0, memory, register),
        Arch::Aarch64 => aarch64::target(returns_to.0, memory, register),
        _ => None,
    }
}

fn read<const COUNT: usize>(memory: &dyn Memory, at: u64) -> Option<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    memory.read(RuntimeAddr(at), &mut bytes).ok()?;
    Some(bytes)
}

fn word(memory: &dyn Memory, at: u64) -> Option<u64> {
    read(memory, at).map(u64::from_le_bytes)
}
