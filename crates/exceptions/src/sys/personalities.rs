//! The personality routines that were loaded at the start.

use core::arch::asm;

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
pub(crate) fn linked() -> [u64; 2] {
    [
        address_of!("__gxx_personality_v0"),
        address_of!("__gcc_personality_v0"),
    ]
}
