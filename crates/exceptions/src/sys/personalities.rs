//! Where personality routines are.

use core::arch::asm;
use core::ptr;

use crate::facts::PersonalityAddr;

/// An address in the own global offset table, which the loader has filled; 0 if nothing loaded at
/// the start has the name.
macro_rules! address_of {
    ($name:literal) => {{
        let address: u64;
        // SAFETY: reads that entry.
        unsafe {
            asm!(
                // A program has the routines of its languages.
                concat!(".weak ", $name),
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        address
    }};
}

/// The addresses of the personality routines of C++ and C that this library is linked with, or 0.
pub(crate) fn linked_personalities() -> [u64; 2] {
    [
        address_of!("__gxx_personality_v0"),
        address_of!("__gcc_personality_v0"),
    ]
}

/// The address of a personality routine at present, or 0. The facts that it is from are true.
#[inline]
pub(crate) fn routine(address: PersonalityAddr) -> u64 {
    let Some(pointer) = address.pointer() else {
        return address.word();
    };
    let pointer = ptr::with_exposed_provenance::<u64>(usize::try_from(pointer).unwrap_or(0));
    // SAFETY: it was readable when the facts were learned, and its module is loaded as long as they
    // are true. The loader wrote it before any code of the module ran.
    unsafe { pointer.read_unaligned() }
}
