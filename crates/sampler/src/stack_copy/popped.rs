//! Which registers an epilogue has loaded from memory that is now below the stack pointer, by the
//! instructions before an address.

use unspool_rows::{Arch, Register};

mod aarch64;
mod x86_64;

/// The size of the code to look at, before an address.
pub(super) const MAX_CODE_BYTES: usize = 48;

/// The register that was loaded from a word this many bytes below the stack pointer.
pub(super) fn register(arch: Arch, code: &[u8], below: u64) -> Option<Register> {
    match arch {
        Arch::X86_64 => find(x86_64::loads_before(code), below),
        Arch::Aarch64 => find(aarch64::loads_before(code), below),
        _ => None,
    }
}

fn find(mut loads: impl Iterator<Item = Load>, below: u64) -> Option<Register> {
    loads
        .find(|load| load.below == below)
        .map(|load| load.register)
}

/// A register, and its word's distance below the stack pointer, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Load {
    below: u64,
    register: Register,
}
