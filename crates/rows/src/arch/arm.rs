//! 32-bit ARM, AAPCS32.
//!
//! A call leaves the return address in `lr`, which is the return-address column. A leaf that never
//! saved it has no rule for it. Bit 0 of a code pointer marks Thumb code and is not part of the
//! address ([`crate::CodeAddr`]). A call preserves `r4`–`r11` and `d8`–`d15` (264–271).
//! Distributions put ARM CFI in `.debug_frame`; exceptions use EHABI instead.

use super::{AddressSize, ArchSpec};
use crate::register::Register;

pub(super) static SPEC: ArchSpec = ArchSpec {
    name: "arm",
    address_size: AddressSize::W32,
    names: &[
        (0, "r0"),
        (1, "r1"),
        (2, "r2"),
        (3, "r3"),
        (4, "r4"),
        (5, "r5"),
        (6, "r6"),
        (7, "r7"),
        (8, "r8"),
        (9, "r9"),
        (10, "r10"),
        (11, "r11"),
        (12, "r12"),
        (13, "sp"),
        (14, "lr"),
        (15, "pc"),
        (256, "d0"),
        (257, "d1"),
        (258, "d2"),
        (259, "d3"),
        (260, "d4"),
        (261, "d5"),
        (262, "d6"),
        (263, "d7"),
        (264, "d8"),
        (265, "d9"),
        (266, "d10"),
        (267, "d11"),
        (268, "d12"),
        (269, "d13"),
        (270, "d14"),
        (271, "d15"),
    ],
    register_sign: "",
    stack_pointer: Register(13),
    frame_pointer: None,
    pc: Register(15),
    return_address: Register(14),
    ra_sign_state: None,
    thread_pointer: None,
    mode_bits: 1,
    preserved: &[
        4, 5, 6, 7, 8, 9, 10, 11, 14, 264, 265, 266, 267, 268, 269, 270, 271,
    ],
    signal_record: None,
};
